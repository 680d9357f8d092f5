package main

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
)

// heads is a batch of sequences of steps, whose features are cut into heads of
// the given size.
type heads struct{ batch, steps, count, size int }

// attention is scaled dot-product attention of sequences to themselves, or it
// and its gradients: two products of all steps with all steps, and four more.
// A gradient that computes the scores again does more than is counted here.
func attention(h heads, gradient bool) row {
	shape := []int{h.batch, h.steps, h.count, h.size}
	r := row{
		name:  fmt.Sprintf("attention-b%d-t%d", h.batch, h.steps),
		spec:  spec{"kind": "attention", "batch": h.batch, "steps": h.steps, "heads": h.count, "size": h.size, "gradient": gradient},
		flops: 2 * 2 * float64(h.batch*h.count*h.size) * float64(h.steps*h.steps),
		build: func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor {
				return tensor.Attention(in[0], in[1], in[2], tensor.AttentionOptions{})
			}, shape, shape, shape)
		},
	}
	if !gradient {
		return r
	}
	r.name += "-both"
	r.flops *= 3
	r.build = func(ctx context.Context) (func() error, error) {
		return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor {
			y := tensor.Attention(in[0], in[1], in[2], tensor.AttentionOptions{})
			return keras.Tuple(tensor.GradientsAt(y.Mul(in[3]).Sum(), in[:3]...)...)
		}, shape, shape, shape, shape)
	}
	return r
}

// lstm is an LSTM layer: each step multiplies its input and the last state by
// the kernels of four gates.
func lstm(batch, steps, features, units int) row {
	return row{
		name:  fmt.Sprintf("lstm-%dto%d-b%d-t%d", features, units, batch, steps),
		spec:  spec{"kind": "lstm", "batch": batch, "steps": steps, "features": features, "units": units},
		flops: 2 * float64(batch*steps*(features+units)*4*units),
		build: func(ctx context.Context) (func() error, error) {
			return layer(ctx, &layers.LSTM{Units: units, ReturnSequences: true}, []int{batch, steps, features})
		},
	}
}

// lstmClassifier is an LSTM layer over the rows of images, and a Dense layer on
// its last state. The input has no gradient, the states have.
func lstmClassifier(units, size, batch int) row {
	macs := batch * size * 4 * units
	flops := products(macs*size, macs*units, batch*units*10)
	return step(fmt.Sprintf("lstm%d", units), batch, spec{"model": "lstm", "size": size, "units": units}, flops, func() (network, error) {
		model := keras.Sequential(&layers.LSTM{Units: units}, &layers.Dense{Units: 10, Activation: "softmax"})
		return network{model, &losses.SparseCategoricalCrossentropy{}, samples(batch, 10, size, size)}, nil
	})
}
