package main

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
	"github.com/mezzo-ml/mezzo/layers"
)

// convolution is a convolution to time: the shapes of its input [batch spatial…
// channels] and of its kernels [window… channels/groups outputs], and what is
// the same along all axes.
type convolution struct {
	name                string
	x, w                op.Shape
	stride, pad, groups int
}

// square is a batch of square images that 3x3 windows make smaller by two rows
// and columns.
func square(batch, size, in, out int) convolution {
	return convolution{fmt.Sprintf("conv3x3-%dto%d", in, out), op.Shape{batch, size, size, in}, op.Shape{3, 3, in, out}, 1, 0, 1}
}

// convolutions lists the rows of convolutions, each with its gradients. The
// gradient of conv2x2 by its input is a transposed convolution with strides.
func convolutions() []row {
	var rows []row
	for _, c := range []convolution{
		square(128, 13, 32, 64),
		square(32, 7, 256, 256),
		{"conv3x3-3to32-same", op.Shape{64, 32, 32, 3}, op.Shape{3, 3, 3, 32}, 1, 1, 1},
		{"conv3x3-64to128-stride2", op.Shape{32, 28, 28, 64}, op.Shape{3, 3, 64, 128}, 2, 1, 1},
		{"conv2x2-64to128-stride2", op.Shape{8, 64, 64, 64}, op.Shape{2, 2, 64, 128}, 2, 0, 1},
		{"conv3x3-128to128-groups4", op.Shape{32, 28, 28, 128}, op.Shape{3, 3, 32, 128}, 1, 1, 4},
		{"depthwise3x3-128", op.Shape{32, 28, 28, 128}, op.Shape{3, 3, 1, 128}, 1, 1, 128},
		{"conv1d5-64to128", op.Shape{32, 1024, 64}, op.Shape{5, 64, 128}, 1, 2, 1},
		{"conv3d3-32to32", op.Shape{2, 16, 28, 28, 32}, op.Shape{3, 3, 3, 32, 32}, 1, 1, 1},
	} {
		rows = append(rows, conv(c, "forward"), conv(c, "input"), conv(c, "kernel"))
	}
	return append(rows, channelsFirst(32, 28, 64, 64))
}

// conv is a convolution, or its gradient by the input or by the kernels: 2·size
// of the window·in·out/groups operations for every output pixel.
func conv(c convolution, part string) row {
	n := len(c.w) - 2
	each := func(x int) []int {
		all := make([]int, n)
		for i := range all {
			all[i] = x
		}
		return all
	}
	y := op.Shape{c.x[0]}
	for i := range n {
		y = append(y, (c.x[i+1]+2*c.pad-c.w[i])/c.stride+1)
	}
	y = append(y, c.w[n+1])
	o := ops.ConvOptions{Stride: each(c.stride), Low: each(c.pad), High: each(c.pad), Groups: c.groups}
	return row{
		name:  c.name + "-" + part,
		spec:  spec{"kind": "conv", "x": c.x, "w": c.w, "y": y, "stride": c.stride, "pad": c.pad, "groups": c.groups, "part": part, "first": false},
		flops: 2 * float64(y.Size()*c.w[:n+1].Size()),
		build: func(ctx context.Context) (func() error, error) {
			switch part {
			case "forward":
				return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Conv(in[1], o) }, c.x, c.w)
			case "input":
				return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].ConvTranspose(in[1], c.x, o) }, y, c.w)
			}
			// The gradient of a weight is stored in float32.
			a := op.Attr{Dims: c.w, Stride: o.Stride, Dilation: each(1), Low: o.Low, High: o.High, Groups: c.groups, DType: dtype.Float32}
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return tensor.Record(op.ConvKernelGrad, a, in...) }, c.x, y)
		},
	}
}

// channelsFirst is a 3x3 convolution of images whose channels come before rows
// and columns, as a layer has it: with a bias, and with same padding.
func channelsFirst(batch, size, in, out int) row {
	return row{
		name: fmt.Sprintf("conv3x3-%dto%d-channels-first", in, out),
		spec: spec{"kind": "conv", "x": op.Shape{batch, size, size, in}, "w": op.Shape{3, 3, in, out}, "y": op.Shape{batch, size, size, out},
			"stride": 1, "pad": 1, "groups": 1, "part": "forward", "first": true},
		flops: 2 * float64(batch*size*size*9*in*out),
		build: func(ctx context.Context) (func() error, error) {
			l := &layers.Conv2D{Filters: out, KernelSize: layers.PerAxis{3}, Padding: "same", DataFormat: "channels_first"}
			return layer(ctx, l, []int{batch, in, size, size})
		},
	}
}
