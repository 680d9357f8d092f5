package main

import (
	"math/rand/v2"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
)

// patient is a model with something wrong.
type patient struct {
	name, what, policy string
	build              func() (*keras.Model, error)
	loss               losses.Loss
	batch              func() keras.Batch
}

var crossentropy = &losses.SparseCategoricalCrossentropy{FromLogits: true}

var patients = []patient{
	{"own_norm", "a norm whose squares overflow", "mixed_float16", tower("own_norm", func(x *keras.Tensor) *keras.Tensor {
		x = x.MulScalar(400)
		return x.Div(x.Square().MeanKeep(1).AddScalar(1e-3).Sqrt())
	}), crossentropy, classified},
	{"attention", "attention without scaling, whose logits overflow", "mixed_float16", tower("attention", func(x *keras.Tensor) *keras.Tensor {
		n := x.Dim(0)
		t := x.Reshape(n, 8, 8).MulScalar(120) // 8 positions of 8 features
		return t.MatMulT(t, false, true).Softmax(2).MatMul(t).Reshape(n, 64).MulScalar(1. / 120)
	}), crossentropy, classified},
	{"raw_targets", "targets of several thousand under a squared error", "mixed_float16", func() (*keras.Model, error) {
		in := keras.Input(64)
		x := keras.Apply(&layers.Dense{Units: 64, Activation: "relu", Name: "in"}, in)
		return keras.NewModel(in, keras.Apply(&layers.Dense{Units: 1, Name: "out"}, x))
	}, &losses.MeanSquaredError{}, func() keras.Batch { return keras.Batch{X: normal(1, 0, 32, 64), Y: normal(3000, 6000, 32, 1)} }},
	{"cancellation", "a difference of nearly equal numbers", "mixed_bfloat16", tower("center", func(x *keras.Tensor) *keras.Tensor {
		x = x.AddScalar(1000)
		return x.Sub(x.MeanKeep(1))
	}), crossentropy, classified},
}

// function is a layer of a Go function, in a field that copies of the model take along.
type function struct {
	F    func(x *keras.Tensor) *keras.Tensor
	Name string
	layers.Base
}

func (l *function) Config() layers.Config                             { return layers.Config{Name: l.Name} }
func (l *function) Build(...layers.Shape) error                       { return nil }
func (l *function) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor { return l.F(x) }

// tower puts a layer of the function f between healthy ones.
func tower(name string, f func(x *keras.Tensor) *keras.Tensor) func() (*keras.Model, error) {
	return func() (*keras.Model, error) {
		in := keras.Input(64)
		x := keras.Apply(&layers.Dense{Units: 64, Activation: "tanh", Name: "in"}, in)
		x = keras.Apply(&function{F: f, Name: name}, x)
		x = keras.Apply(&layers.LayerNormalization{Name: "norm"}, x)
		x = keras.Apply(&layers.Dense{Units: 64, Activation: "relu", Name: "hidden"}, x)
		return keras.NewModel(in, keras.Apply(&layers.Dense{Units: 10, Name: "logits"}, x))
	}
}

func normal(scale, offset float64, shape ...int) *keras.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	r := rand.New(rand.NewPCG(1, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(offset + scale*r.NormFloat64())
	}
	return keras.NewTensor(x, shape...)
}

func classified() keras.Batch {
	r := rand.New(rand.NewPCG(2, 9))
	y := make([]int32, 32)
	for i := range y {
		y[i] = int32(r.IntN(10))
	}
	return keras.Batch{X: normal(1, 0, 32, 64), Y: keras.NewTensor(y, 32)}
}
