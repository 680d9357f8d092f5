package tensor_test

import (
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// slid is a convolution or a pooling with every kind of option.
type slid struct {
	x, w []int // w without channels for pooling
	attr op.Attr
}

var slidCases = []slid{
	{s(2, 5, 2), s(3, 2, 3), op.Attr{Stride: s(1), Dilation: s(1), Low: s(0), High: s(0)}},
	{s(2, 7, 2), s(2, 2, 3), op.Attr{Stride: s(2), Dilation: s(2), Low: s(1), High: s(0)}},
	{s(1, 4, 5, 2), s(3, 2, 2, 3), op.Attr{Stride: s(1, 1), Dilation: s(1, 1), Low: s(1, 0), High: s(1, 1)}},
	{s(2, 5, 6, 4), s(2, 3, 2, 2), op.Attr{Stride: s(2, 3), Dilation: s(1, 1), Low: s(0, 2), High: s(1, 0), Groups: 2}},
	{s(1, 4, 4, 3), s(2, 2, 1, 6), op.Attr{Stride: s(1, 2), Dilation: s(2, 1), Low: s(0, 0), High: s(0, 0), Groups: 3}},
	{s(1, 3, 3, 4, 1), s(2, 2, 2, 1, 2), op.Attr{Stride: s(1, 1, 2), Dilation: s(1, 1, 1), Low: s(0, 1, 1), High: s(1, 0, -1)}},
}

// result is the shape of what Conv gives.
func (c slid) result() []int {
	f := func(s []int) op.Type { return op.Type{DType: dtype.Float64, Shape: s} }
	t, err := op.Infer(op.Conv, c.attr, f(c.x), f(c.w))
	if err != nil {
		panic(err)
	}
	return t.Shape
}

// convs are the points of a convolution or one of its gradients.
func convs(code op.Code) []point {
	var all []point
	for _, c := range slidCases {
		a := c.attr
		args := [2][]int{c.x, c.w}
		switch code {
		case op.ConvInputGrad:
			a.Dims, args[0] = c.x, c.result()
		case op.ConvKernelGrad:
			a.Dims, args[1] = c.w, c.result()
		}
		all = append(all, at(-1, 1, func(x []T) T { return tensor.Record(code, a, x[0], x[1]) }, args[0], args[1]))
	}
	return all
}

// pools are the points of a pooling or one of its gradients.
func pools(code op.Code) []point {
	var all []point
	for _, c := range slidCases {
		n := len(c.w) - 2
		a := c.attr
		a.Groups, a.Window = 0, c.w[:n]
		// What the places of maxima come from is no argument: it has no gradient.
		fixed := tensor.New(randoms(3, tensor.Shape(c.x).Size(), -1, 1), c.x...)
		y := append(c.result()[:n+1:n+1], c.x[n+1])
		arg := c.x
		f := func(x []T) T { return tensor.Record(code, a, x[0]) }
		switch code {
		case op.AvgPoolGrad:
			a.Dims, arg = c.x, y
		case op.MaxPoolGrad:
			arg = y
			f = func(x []T) T { return tensor.Record(code, a, fixed, x[0]) }
		case op.MaxPoolGradGrad:
			f = func(x []T) T { return tensor.Record(code, a, fixed, x[0]) }
		}
		all = append(all, at(-1, 1, f, arg))
	}
	return all
}

// iota3 is 1, 2, 3 … in a shape.
func counting(shape ...int) T {
	n := tensor.Shape(shape).Size()
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i + 1)
	}
	return tensor.New(x, shape...)
}

// TestConvOptions: results worked out by hand.
func TestConvOptions(t *testing.T) {
	x := counting(1, 5, 1)
	w := tensor.New([]float32{1, 10, 100}, 3, 1, 1)
	conv := func(o tensor.ConvOptions) T { return x.Conv(w, o) }
	want(t, "valid", conv(tensor.ConvOptions{Padding: "valid"}), 321, 432, 543)
	want(t, "same", conv(tensor.ConvOptions{Padding: "same"}), 210, 321, 432, 543, 54)
	want(t, "same, stride 2", conv(tensor.ConvOptions{Padding: "same", Stride: s(2)}), 210, 432, 54)
	want(t, "same, stride 3: the odd element after", conv(tensor.ConvOptions{Padding: "same", Stride: s(3)}), 321, 54)
	want(t, "causal", conv(tensor.ConvOptions{Padding: "causal"}), 100, 210, 321, 432, 543)
	want(t, "causal, dilation 2", conv(tensor.ConvOptions{Padding: "causal", Dilation: s(2)}), 100, 200, 310, 420, 531)
	want(t, "numbers", conv(tensor.ConvOptions{Low: s(2), High: s(-1)}), 100, 210, 321, 432)
	want(t, "transposed", f32(1, 2).Reshape(1, 2, 1).ConvTranspose(w, s(1, 6, 1), tensor.ConvOptions{Stride: s(2)}), 1, 10, 102, 20, 200, 0)

	// Groups of one channel: output channel 2·c+j is kernel j of channel c.
	depth := tensor.New([]float32{1, 2, 3, 4}, 1, 2, 2) // window, C/Groups would be 1
	pair := tensor.New([]float32{1, 10}, 1, 1, 2)
	want(t, "depthwise", pair.Conv(depth.Reshape(1, 1, 4), tensor.ConvOptions{Groups: 2}), 1, 2, 30, 40)

	p := counting(1, 3, 3, 1)
	want(t, "MaxPool", p.MaxPool(tensor.PoolOptions{Window: s(2)}), 5)
	want(t, "MaxPool, same", p.MaxPool(tensor.PoolOptions{Window: s(2), Padding: "same"}), 5, 6, 8, 9)
	want(t, "MaxPool, stride 1", p.MaxPool(tensor.PoolOptions{Window: s(2, 1), Stride: s(1)}), 4, 5, 6, 7, 8, 9)
	want(t, "AvgPool, same: padding does not count", p.AvgPool(tensor.PoolOptions{Window: s(2), Padding: "same"}), 3, 4.5, 7.5, 9)
	want(t, "gradient of MaxPool at a tie", gradient(func(x T) T {
		return x.MaxPool(tensor.PoolOptions{Window: s(3), Stride: s(1), Padding: "same"})
	}, f32(1, 1, 0, 1).Reshape(1, 4, 1)), 2, 1, 0, 1)
	want(t, "gradient of AvgPool", gradient(func(x T) T {
		return x.AvgPool(tensor.PoolOptions{Window: s(2), Stride: s(1), Padding: "same"})
	}, f32(1, 2, 3).Reshape(1, 3, 1)), 0.5, 1, 1.5)
}

func TestConvErrors(t *testing.T) {
	x, w := counting(1, 5, 5, 2), counting(3, 3, 2, 4)
	for text, f := range map[string]func() T{
		`Conv: got stride [1 2 3], want an entry for each of 2 spatial axes, or one for all`: func() T {
			return x.Conv(w, tensor.ConvOptions{Stride: s(1, 2, 3)})
		},
		`Conv: got padding "full", want "valid", "same" or "causal"`: func() T {
			return x.Conv(w, tensor.ConvOptions{Padding: "full"})
		},
		`Conv: got padding "same" and numbers [1], [], want one of the two`: func() T {
			return x.Conv(w, tensor.ConvOptions{Padding: "same", Low: s(1)})
		},
		`MaxPool: got window [], want an entry for each of 2 spatial axes, or one for all`: func() T {
			return x.MaxPool(tensor.PoolOptions{})
		},
		`Conv: float32[1 5 5 2] has 2 channels, want the 4 of the kernels float32[3 3 2 4] in 2 groups`: func() T {
			return x.Conv(w, tensor.ConvOptions{Groups: 2})
		},
		`AvgPool: axis 1 of float32[1 5 5 2]: a window of 6 elements, 1 apart, does not fit into 5 elements with padding 0 and 0`: func() T {
			return x.AvgPool(tensor.PoolOptions{Window: s(6)})
		},
	} {
		wantError(t, text, catch(func() { f() }), text)
	}
}

// TestConvWidens: the gradient of a float32 kernel reaches it without being
// rounded to 16 bits on the way.
func TestConvWidens(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		w := tensor.New(randoms(1, 3*3*2*4, -1, 1), 3, 3, 2, 4).Cast(dtype.Float32)
		x := tensor.New(randoms(2, 2*6*6*2, -1, 1), 2, 6, 6, 2).Cast(d)
		g := tensor.GradientsAt(x.Conv(w.Cast(d), tensor.ConvOptions{}).Widen().Square().Sum(), w)[0]
		if tensor.OpOf(g) != op.ConvKernelGrad || g.DType() != dtype.Float32 {
			t.Errorf("%v: the gradient is a %v of %v, want a ConvKernelGrad that stores float32", d, tensor.OpOf(g), g.DType())
		}
		rounded := 0
		for _, v := range values(t, g) {
			if float64(d.Round(float32(v))) == v {
				rounded++
			}
		}
		if rounded > 8 { // of 72, by chance
			t.Errorf("%v: %d of 72 elements have 16 bits", d, rounded)
		}
	}
}

// TestConvUnknown: shapes of a model under construction.
func TestConvUnknown(t *testing.T) {
	const q = tensor.Unknown
	for _, c := range []struct {
		x, w []int
		o    tensor.ConvOptions
		want string
	}{
		{s(q, 8, 8, 3), s(3, 3, 3, 4), tensor.ConvOptions{}, "[? 6 6 4]"},
		{s(q, 7, 8, 3), s(3, 3, 3, 4), tensor.ConvOptions{Padding: "same", Stride: s(2)}, "[? 4 4 4]"},
		{s(q, q, 8, 3), s(3, 3, 3, 4), tensor.ConvOptions{Padding: "same"}, "[? ? 8 4]"},
	} {
		y := tensor.Placeholder(dtype.Float32, c.x...).Conv(tensor.Zeros(dtype.Float32, c.w...), c.o)
		if got := fmt.Sprint(y.Shape()); got != c.want {
			t.Errorf("%v with %v and %+v: got %v, want %v", c.x, c.w, c.o, got, c.want)
		}
	}
}
