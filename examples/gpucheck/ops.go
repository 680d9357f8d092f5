package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// operation is a row of the operations. A call does flops, or, where memory is
// the limit, reads and writes bytes, of elements of the policy's compute type.
type operation struct {
	name  string
	flops float64
	bytes func(size int) float64
	build func(context.Context) (func() error, error)
}

func operationRows() []operation {
	m, n, products, weights := 16384, 1024, [][3]int{{8192, 8192, 8192}, {8192, 4096, 784}, {8192, 4096, 4096}, {4096, 3072, 768}, {1024, 1024, 1024}}, 20_000_000
	if *small {
		m, n, products, weights = 3, 40, [][3]int{{16, 16, 16}}, 100
	}
	times := func(k int) func(int) float64 { return func(size int) float64 { return float64(k * m * n * size) } }
	matrix := []int{m, n}
	rows := []operation{
		{"copy", 0, times(2), func(context.Context) (func() error, error) {
			return copied(m * n * typeOf(policy.Global().Name).Size())
		}},
		{"negative", 0, times(2), func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Neg() }, matrix)
		}},
	}
	for _, s := range products {
		rows = append(rows, operation{fmt.Sprintf("matmul %dx%dx%d", s[0], s[1], s[2]), 2 * float64(s[0]) * float64(s[1]) * float64(s[2]), nil,
			func(ctx context.Context) (func() error, error) {
				return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].MatMul(in[1]) }, []int{s[0], s[2]}, []int{s[2], s[1]})
			}})
	}
	return append(rows,
		operation{"bias relu", 0, times(2), func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Add(in[1]).Relu() }, matrix, []int{n})
		}},
		operation{"add", 0, times(3), func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Add(in[1]) }, matrix, matrix)
		}},
		operation{"softmax", 0, times(2), func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Softmax(-1) }, matrix)
		}},
		operation{"softmax gradient", 0, times(3), func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor {
				return ops.Gradients(in[0].Softmax(-1).Mul(in[1]).Sum(), in[0])[0]
			}, matrix, matrix)
		}},
		operation{"sum of rows", 0, times(1), func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Sum(-1) }, matrix)
		}},
		operation{"sum of columns", 0, times(1), func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Sum(0) }, matrix)
		}},
		operation{"transpose", 0, times(2), func(ctx context.Context) (func() error, error) {
			return recorded(ctx, func(in []*keras.Tensor) *keras.Tensor { return in[0].Transpose(1, 0) }, matrix)
		}},
		operation{"layer normalization", 0, times(2), called(&layers.LayerNormalization{}, matrix)},
		operation{"layer normalization and gradient", 0, times(3), differentiated(&layers.LayerNormalization{}, matrix)},
		operation{"batch normalization and gradient", 0, times(5), differentiated(&layers.BatchNormalization{}, matrix)},
		operation{"dropout", 0, times(2), called(&layers.Dropout{Rate: 0.2}, matrix)},
		operation{"adam", 0, func(int) float64 { return 28 * float64(weights) }, func(ctx context.Context) (func() error, error) { return adam(ctx, weights) }},
	)
}

// copied copies memory of the device: what the others are measured by.
func copied(bytes int) (func() error, error) {
	d, err := backend.Default()
	if err != nil {
		return nil, err
	}
	from, err := d.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	to, err := d.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	c, ok := to.(driver.Copier)
	if !ok {
		return nil, fmt.Errorf("device %s does not copy by itself", d.Name())
	}
	return func() error { return c.CopyFrom(from, bytes) }, nil
}

// random is of the compute type.
func random(ctx context.Context, shape ...int) (*keras.Tensor, error) {
	t := floats(shape...).Cast(policy.Global().Compute)
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

// called calls a layer as in training.
func called(l layers.Layer, shape []int) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		model := keras.Sequential(l).KeepOutputDType()
		x, err := random(ctx, shape...)
		if err != nil {
			return nil, err
		}
		fn := keras.Function(func(x *keras.Tensor) *keras.Tensor { return model.Call(x, keras.Training) }, model)
		return func() error { return fn.Run(ctx, x) }, nil
	}
}

// differentiated calls a layer and computes its gradients.
func differentiated(l layers.Layer, shape []int) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		model := keras.Sequential(l).KeepOutputDType()
		var in []*keras.Tensor
		for range 2 {
			t, err := random(ctx, shape...)
			if err != nil {
				return nil, err
			}
			in = append(in, t)
		}
		if err := ops.Eval(ctx, model.Call(in[0])); err != nil { // makes the weights
			return nil, err
		}
		fn := keras.Function(func(in []*keras.Tensor) []*keras.Tensor {
			at := []*keras.Tensor{in[0]}
			for _, v := range model.TrainableVariables() {
				at = append(at, v.Value())
			}
			return ops.Gradients(model.Call(in[0], keras.Training).Mul(in[1]).Sum(), at...)
		}, model)
		return func() error { return fn.Run(ctx, in) }, nil
	}
}

type variables []*keras.Variable

func (v variables) Variables() []*keras.Variable { return v }

// adam updates n weights: it reads weight, gradient and two slots, and writes
// all but the gradient.
func adam(ctx context.Context, n int) (func() error, error) {
	w := keras.NewVariable("w", keras.Float32, keras.Shape{n}, nil)
	g := floats(n)
	o := &optimizers.Adam{}
	fn := keras.Function(func(g *keras.Tensor) struct{} {
		o.ApplyGradients([]*keras.Tensor{g}, []*keras.Variable{w})
		return struct{}{}
	}, o, variables{w})
	return func() error { return fn.Run(ctx, g) }, nil
}

// operations times operations, beside the rates of a copy and of the fastest
// product of their type.
func operations(ctx context.Context, w io.Writer) error {
	fmt.Fprint(w, "## Operations\n\nRates, and their share of that of a copy within the device (the row `copy`, of as many bytes) or of the fastest product so far.\n\n")
	head(w, "operation", "type", "ms", "rate", "share")
	var copyRate, productRate = map[string]float64{}, map[string]float64{}
	for _, o := range operationRows() {
		if !named(o.name) {
			continue
		}
		for p := range strings.SplitSeq(*under, ",") {
			kind := typeOf(p)
			var ms float64
			if err := spawn(ctx, *device, task{Kind: "op", Name: o.name, Policy: p}, &ms); err != nil {
				row(w, o.name, kind.String(), err.Error(), "", "")
				continue
			}
			line := []string{o.name, kind.String(), fmt.Sprintf("%.4f", ms)}
			if o.flops > 0 {
				productRate[p] = max(productRate[p], o.flops/ms)
				line = append(line, fmt.Sprintf("%.1f TFLOP/s", o.flops/ms/1e9), share(o.flops/ms, productRate[p]))
			} else {
				rate := o.bytes(kind.Size()) / ms
				if o.name == "copy" {
					copyRate[p] = rate
				}
				line = append(line, fmt.Sprintf("%.0f GB/s", rate/1e6), share(rate, copyRate[p]))
			}
			row(w, line...)
		}
	}
	return nil
}

func typeOf(name string) dtype.DType {
	p, err := policy.Parse(name)
	if err != nil {
		panic(err) // a name of this program
	}
	return p.Compute
}

func share(rate, peak float64) string {
	if peak == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*rate/peak)
}

// timeOperation is the task of operations: milliseconds a call.
func timeOperation(ctx context.Context, t task) (any, error) {
	policy.SetGlobal(t.Policy)
	all := operationRows()
	i := slices.IndexFunc(all, func(o operation) bool { return o.name == t.Name })
	if i < 0 {
		return nil, fmt.Errorf("no operation %q", t.Name)
	}
	call, err := all[i].build(ctx)
	if err != nil {
		return nil, err
	}
	return measure(call)
}
