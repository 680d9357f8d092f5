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
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// operations lists the rows of single operations. Names of products are
// mm-MxNxK, of as many of them bmm-BATCHxMxNxK.
func operations() []row {
	var rows []row
	for _, n := range []int{64, 128, 256, 512, 1024, 2048, 4096} {
		rows = append(rows, product(n, n, n, false, false))
	}
	rows = append(rows,
		product(1024, 1024, 1024, true, false),
		product(1024, 1024, 1024, false, true))
	for _, s := range [][3]int{
		{8192, 4096, 784}, {128, 128, 784}, {32, 3072, 768}, {3780, 1000, 590},
		{25088, 64, 288}, {128, 512, 784}, {8192, 64, 784},
	} {
		rows = append(rows, product(s[0], s[1], s[2], false, false))
	}
	for _, s := range [][3]int{{32, 3072, 768}, {128, 512, 784}, {1024, 1024, 1024}} {
		rows = append(rows, linear(s[0], s[1], s[2]))
	}
	for _, s := range [][4]int{{64, 128, 128, 64}, {256, 32, 32, 32}, {256, 128, 64, 128}} {
		rows = append(rows, batched(s[0], s[1], s[2], s[3], false))
	}
	rows = append(rows, batched(256, 128, 128, 64, true)) // the scores of attention
	rows = append(rows, convolutions()...)
	const m, n = 8192, 1024 // 32 MiB in float32
	rows = append(rows,
		biasRelu(m, n),
		softmax(m, n),
		normalization(m, n, false), normalization(m, n, true),
		cast(m, n, false), cast(m, n, true),
		dropout(m, n),
		embedding(30522, 512, 4096, false), embedding(30522, 512, 4096, true),
		adam(20_000_000),
		attention(heads{32, 128, 8, 64}, false), attention(heads{32, 128, 8, 64}, true),
		attention(heads{2, 1024, 12, 64}, false), attention(heads{2, 1024, 12, 64}, true),
		recurrent("lstm", 128, 28, 128, 128), recurrent("gru", 128, 28, 128, 128), recurrent("rnn", 128, 28, 128, 128),
		recurrent("lstm", 1, 28, 128, 128), recurrent("gru", 1, 28, 128, 128), recurrent("lstm", 1, 28, 512, 512))
	return rows
}

var mixed = []string{"mixed_bfloat16", "mixed_float16"}

// random returns a tensor of the compute type with elements of about a
// standard deviation.
func random(ctx context.Context, shape ...int) (*keras.Tensor, error) {
	x := make([]float32, op.Shape(shape).Size())
	for i := range x { // a multiplicative hash: quick, and no two rows alike
		x[i] = float32(int32(uint32(i+1)*2654435761))/(1<<30) - 0.01
	}
	t := keras.NewTensor(x, shape...).Cast(policy.Global().Compute)
	return t, ops.Eval(ctx, t)
}

// recorded compiles f for random arguments of the given shapes.
func recorded(ctx context.Context, f func([]*keras.Tensor) *keras.Tensor, shapes ...[]int) (func() error, error) {
	var in []*keras.Tensor
	for _, s := range shapes {
		t, err := random(ctx, s...)
		if err != nil {
			return nil, err
		}
		in = append(in, t)
	}
	fn := keras.Function(f)
	return func() error { return fn.Run(ctx, in) }, nil
}

// product is X·W of sizes [m k] and [k n], or their transposes. W counts as new
// in every call: nothing can be kept from one to the next.
func product(m, n, k int, transX, transW bool) row {
	x, w, suffix := []int{m, k}, []int{k, n}, ""
	if transX {
		x, suffix = []int{k, m}, "-tx"
	}
	if transW {
		w, suffix = []int{n, k}, suffix+"-tw"
	}
	return row{
		name:  fmt.Sprintf("mm-%dx%dx%d%s", m, n, k, suffix),
		spec:  spec{"kind": "mm", "m": m, "n": n, "k": k, "tx": transX, "tw": transW},
		flops: 2 * float64(m) * float64(n) * float64(k),
		build: func(ctx context.Context) (func() error, error) {
			a, err := random(ctx, x...)
			if err != nil {
				return nil, err
			}
			b, err := random(ctx, w...)
			if err != nil {
				return nil, err
			}
			if b, err = b.Clone(); err != nil { // a tensor that may be overwritten
				return nil, err
			}
			fn, in := keras.Function(func(in []*keras.Tensor) *keras.Tensor { return in[0].MatMulT(in[1], transX, transW) }), []*keras.Tensor{a, b}
			return func() error {
				if err := tensor.Overwrite(b, func([]byte) error { return nil }); err != nil { // the same elements, as new ones
					return err
				}
				return fn.Run(ctx, in)
			}, nil
		},
	}
}

// batched is as many products X·W of sizes [m k] and [k n], or of W transposed.
func batched(batch, m, n, k int, transW bool) row {
	w, suffix := []int{batch, k, n}, ""
	if transW {
		w, suffix = []int{batch, n, k}, "-tw"
	}
	return row{
		name:  fmt.Sprintf("bmm-%dx%dx%dx%d%s", batch, m, n, k, suffix),
		spec:  spec{"kind": "bmm", "batch": batch, "m": m, "n": n, "k": k, "tw": transW},
		flops: 2 * float64(batch*m*n) * float64(k),
		build: func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].MatMulT(in[1], false, transW) }, []int{batch, m, k}, w)
		},
	}
}

// linear is a Dense layer of m samples from k to n features: its kernel stays
// the same from call to call, so that a packed copy of it may be kept. Peers
// may bring it into the layout that they like best beforehand.
func linear(m, n, k int) row {
	return row{
		name:  fmt.Sprintf("linear-%dx%dx%d", m, n, k),
		spec:  spec{"kind": "linear", "m": m, "n": n, "k": k},
		flops: 2 * float64(m) * float64(n) * float64(k),
		build: func(ctx context.Context) (func() error, error) {
			return layer(ctx, &layers.Dense{Units: n}, []int{m, k})
		},
	}
}

// layer calls a layer on a random input.
func layer(ctx context.Context, l layers.Layer, shape []int, pass ...keras.CallOption) (func() error, error) {
	model := keras.Sequential(l).KeepOutputDType()
	x, err := random(ctx, shape...)
	if err != nil {
		return nil, err
	}
	fn := keras.Function(func(x *keras.Tensor) *keras.Tensor { return model.Call(x, pass...) }, model)
	return func() error { return fn.Run(ctx, x) }, nil
}

// twice is the traffic of n elements that are read and written.
func twice(n int) func(int) float64 { return func(size int) float64 { return 2 * float64(n*size) } }

func biasRelu(m, n int) row {
	return row{
		name: "bias-relu", spec: spec{"kind": "bias-relu", "m": m, "n": n}, bytes: twice(m * n),
		build: func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Add(in[1]).Relu() }, []int{m, n}, []int{n})
		},
	}
}

func softmax(m, n int) row {
	return row{
		name: "softmax", spec: spec{"kind": "softmax", "m": m, "n": n}, bytes: twice(m * n),
		build: func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Softmax(-1) }, []int{m, n})
		},
	}
}

// normalization is a LayerNormalization, or the gradients of its input, gain
// and shift: they read input and gradient and write one.
func normalization(m, n int, gradient bool) row {
	r := row{
		name: "layernorm", spec: spec{"kind": "layernorm", "m": m, "n": n, "gradient": gradient}, bytes: twice(m * n),
		build: func(ctx context.Context) (func() error, error) {
			return layer(ctx, &layers.LayerNormalization{}, []int{m, n})
		},
	}
	if !gradient {
		return r
	}
	r.name += "-gradient"
	r.bytes = func(size int) float64 { return 3 * float64(m*n*size) }
	r.build = func(ctx context.Context) (func() error, error) {
		model := keras.Sequential(&layers.LayerNormalization{}).KeepOutputDType()
		var in []*keras.Tensor
		for range 2 {
			t, err := random(ctx, m, n)
			if err != nil {
				return nil, err
			}
			in = append(in, t)
		}
		if err := ops.Eval(ctx, model.Call(in[0])); err != nil { // makes the weights
			return nil, err
		}
		fn := keras.Function(func(in []*keras.Tensor) []*keras.Tensor {
			along := model.Call(in[0]).Mul(in[1]).Sum()
			at := []*keras.Tensor{in[0]}
			for _, v := range model.TrainableVariables() {
				at = append(at, v.Value())
			}
			return ops.Gradients(along, at...)
		}, model)
		return func() error { return fn.Run(ctx, in) }, nil
	}
	return r
}

// cast goes from float32 to 16 bits, or back.
func cast(m, n int, widen bool) row {
	r := row{
		name: "cast-narrow", spec: spec{"kind": "cast", "m": m, "n": n, "widen": widen}, policies: mixed,
		bytes: func(size int) float64 { return float64(m * n * (4 + size)) },
		build: func(ctx context.Context) (func() error, error) {
			x, err := random(ctx, m, n)
			if err != nil {
				return nil, err
			}
			to := dtype.Float32
			if !widen {
				x, to = x.Cast(dtype.Float32), x.DType()
				if err := ops.Eval(ctx, x); err != nil {
					return nil, err
				}
			}
			fn := keras.Function(func(x *keras.Tensor) *keras.Tensor { return x.Cast(to) })
			return func() error { return fn.Run(ctx, x) }, nil
		},
	}
	if widen {
		r.name = "cast-widen"
	}
	return r
}

func dropout(m, n int) row {
	return row{
		name: "dropout", spec: spec{"kind": "dropout", "m": m, "n": n}, bytes: twice(m * n),
		build: func(ctx context.Context) (func() error, error) {
			return layer(ctx, &layers.Dropout{Rate: 0.2}, []int{m, n}, keras.Training)
		},
	}
}

// embedding gathers rows of a table, or adds the gradients of rows to one of
// the table's size, which is written in full. The table is float32 under every
// policy.
func embedding(rows, width, indices int, gradient bool) row {
	places := make([]int32, indices)
	for i := range places {
		places[i] = int32(i * 7919 % rows)
	}
	r := row{
		name: "embedding", spec: spec{"kind": "embedding", "rows": rows, "width": width, "indices": indices, "gradient": gradient},
		bytes: func(size int) float64 { return float64(indices * (4 + width*(4+size))) },
		build: func(ctx context.Context) (func() error, error) {
			model := keras.Sequential(&layers.Embedding{InputDim: rows, OutputDim: width}).KeepOutputDType()
			x := keras.NewTensor(places, indices)
			fn := keras.Function(func(x *keras.Tensor) *keras.Tensor { return model.Call(x) }, model)
			return func() error { return fn.Run(ctx, x) }, nil
		},
	}
	if !gradient {
		return r
	}
	r.name += "-gradient"
	r.policies = []string{"float32"}
	r.bytes = func(int) float64 { return float64(4 * (indices + indices*width + rows*width)) }
	r.build = func(ctx context.Context) (func() error, error) {
		x := keras.NewTensor(places, indices)
		g, err := random(ctx, indices, width)
		if err != nil {
			return nil, err
		}
		in := []*keras.Tensor{g, x}
		fn := keras.Function(func(in []*keras.Tensor) *keras.Tensor { return in[0].ScatterAdd(in[1], rows) })
		return func() error { return fn.Run(ctx, in) }, nil
	}
	return r
}

// adam updates n weights: it reads weight, gradient and two slots, and writes
// all but the gradient, 28 bytes a weight, float32 under every policy.
func adam(n int) row {
	return row{
		name: fmt.Sprintf("adam-%dM", n/1_000_000), spec: spec{"kind": "adam", "n": n}, policies: []string{"float32"},
		bytes: func(int) float64 { return 28 * float64(n) },
		build: func(ctx context.Context) (func() error, error) {
			w := keras.NewVariable("w", keras.Float32, keras.Shape{n}, nil)
			g, err := random(ctx, n)
			if err != nil {
				return nil, err
			}
			adam := &optimizers.Adam{}
			fn := keras.Function(func(g *keras.Tensor) struct{} {
				adam.ApplyGradients([]*keras.Tensor{g}, []*keras.Variable{w})
				return struct{}{}
			}, adam, variables{w})
			return func() error { return fn.Run(ctx, g) }, nil
		},
	}
}

// variables makes a list of them something that a Function changes.
type variables []*keras.Variable

func (v variables) Variables() []*keras.Variable { return v }
