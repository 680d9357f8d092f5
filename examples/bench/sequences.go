package main

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
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
				return ops.DotProductAttention(in[0], in[1], in[2], ops.AttentionOptions{})
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
			y := ops.DotProductAttention(in[0], in[1], in[2], ops.AttentionOptions{})
			return keras.Tuple(ops.Gradients(y.Mul(in[3]).Sum(), in[:3]...)...)
		}, shape, shape, shape, shape)
	}
	return r
}

// recurrent is a recurrent layer: each step multiplies its input and the last
// state by the kernels of the cell's gates.
func recurrent(cell string, batch, steps, features, units int) row {
	return row{
		name:  fmt.Sprintf("%s-%dto%d-b%d-t%d", cell, features, units, batch, steps),
		spec:  spec{"kind": "recurrent", "cell": cell, "batch": batch, "steps": steps, "features": features, "units": units},
		flops: 2 * float64(batch*steps*(features+units)*gates(cell)*units),
		build: func(ctx context.Context) (func() error, error) {
			return layer(ctx, recurrentLayer(cell, units, true), []int{batch, steps, features})
		},
	}
}

// gates is how many kernels of features times units a cell has.
func gates(cell string) int { return map[string]int{"lstm": 4, "gru": 3, "rnn": 1, "custom": 2}[cell] }

func recurrentLayer(cell string, units int, sequences bool) layers.Layer {
	switch cell {
	case "lstm":
		return &layers.LSTM{Units: units, ReturnSequences: sequences}
	case "gru":
		return &layers.GRU{Units: units, ReturnSequences: sequences}
	case "custom":
		return &layers.RNN{Cell: &minimalGate{units: units}, ReturnSequences: sequences}
	}
	return &layers.SimpleRNN{Units: units, ReturnSequences: sequences}
}

// minimalGate is a cell of one gate f: g = tanh(x·w + h·u), h ← g + f·(h-g).
type minimalGate struct {
	layers.Base
	units int
	w, u  *layers.Weight
}

func (c *minimalGate) Config() layers.Config       { return layers.Config{} }
func (c *minimalGate) StateShapes() []layers.Shape { return []layers.Shape{{c.units}} }

func (c *minimalGate) Build(in ...layers.Shape) (err error) {
	if c.w, err = c.AddWeight("w", layers.Shape{in[0][1], 2 * c.units}, "glorot_uniform"); err != nil {
		return err
	}
	c.u, err = c.AddWeight("u", layers.Shape{c.units, 2 * c.units}, "orthogonal")
	return err
}

func (c *minimalGate) Call(_ layers.Pass, in *keras.Tensor) *keras.Tensor {
	x, h := in.Unpack()[0], in.Unpack()[1]
	z := x.MatMul(c.w.Value()).Add(h.MatMul(c.u.Value()))
	f, g := z.Slice(1, 0, c.units).Sigmoid(), z.Slice(1, c.units, 2*c.units).Tanh()
	h = g.Add(f.Mul(h.Sub(g)))
	return keras.Tuple(h, h)
}

// recurrentClassifier is a recurrent layer over the rows of images, and a Dense
// layer on its last state. The input has no gradient, the states have.
func recurrentClassifier(cell string, units, size, batch int) row {
	macs := batch * size * gates(cell) * units
	flops := products(macs*size, macs*units, batch*units*10)
	return step(fmt.Sprintf("%s%d", cell, units), batch, spec{"model": "recurrent", "cell": cell, "size": size, "units": units}, flops, func() (network, error) {
		model := keras.Sequential(recurrentLayer(cell, units, false), &layers.Dense{Units: 10, Activation: "softmax"})
		return network{model, &losses.SparseCategoricalCrossentropy{}, samples(batch, 10, size, size)}, nil
	})
}
