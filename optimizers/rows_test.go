package optimizers

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// lookup is a step of a model that gathers rows of a table, some of them twice,
// and a dense variable besides. With dense, the gradient of the table is one of
// all rows.
func lookup(o Optimizer, table, w *tensor.Variable, dense bool) *stepFunc {
	vars := []*tensor.Variable{table, w}
	return tensor.Function(func(in []*tensor.Tensor) struct{} {
		x := table.Value().Gather(in[0]).Cast(in[1].DType())
		y := table.Value().Gather(in[2]).Cast(in[1].DType()) // the table is used twice
		loss := x.Mul(in[1]).Add(y.Square()).Mul(w.Value().Cast(in[1].DType())).Widen().Cast(dtype.Float32).Sum()
		scaler, scaled := o.(*LossScaleOptimizer)
		if scaled {
			loss = scaler.GetScaledLoss(loss)
		}
		grads := tensor.Gradients(loss, vars)
		if scaled {
			grads = scaler.GetUnscaledGradients(grads)
		}
		if dense {
			grads[0] = tensor.Where(tensor.Scalar(dtype.Float32, 0).Less(w.Value().SumSquares().AddScalar(1)), grads[0], grads[0])
		}
		o.ApplyGradients(grads, vars)
		return struct{}{}
	}, o, owner(vars))
}

const width = 3

func rowsOf(n int) *tensor.Variable {
	first := make([]float64, n*width)
	for i := range first {
		first[i] = float64(i%17)/7 - 1
	}
	return variable("table", dtype.Float32, first, n, width)
}

// TestSparseRows: the update of a table from which rows were gathered is that of
// a dense gradient, to the bit; where only those rows move, it takes memory and
// reads and writes as if the table had no others.
func TestSparseRows(t *testing.T) {
	kinds := map[string]options{
		"plain": {}, "clip value": {ClipValue: 0.2}, "clip norm": {ClipNorm: 0.7}, "global clip": {GlobalClipNorm: 0.9},
		"decay": {WeightDecay: new(0.1)}, "average": {UseEMA: true}, "accumulate": {GradientAccumulationSteps: 2},
	}
	for name, make := range map[string]func(o options) Optimizer{
		"SGD":      func(o options) Optimizer { return with(&SGD{}, o) },
		"momentum": func(o options) Optimizer { return with(&SGD{Momentum: 0.9}, o) },
		"Adagrad":  func(o options) Optimizer { return with(&Adagrad{}, o) },
		"Adam":     func(o options) Optimizer { return with(&Adam{}, o) },
		"Lamb":     func(o options) Optimizer { return with(&Lamb{}, o) },
	} {
		for kind, o := range kinds {
			for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
				for _, scaled := range []bool{false, true} {
					what := fmt.Sprintf("%s, %s, %v, scaled %v", name, kind, d, scaled)
					o := o
					o.AllowUnscaledLoss = d == dtype.Float16 && !scaled
					fit := func(opt Optimizer) Optimizer {
						if scaled {
							return &LossScaleOptimizer{Inner: opt}
						}
						return opt
					}
					factors := tensor.New([]float32{1, 0.5, -2}, width).Cast(d)
					bad := tensor.New([]float32{1, float32(math.Inf(1)), -2}, width).Cast(d)
					batch := func(x *tensor.Tensor) []*tensor.Tensor {
						return []*tensor.Tensor{tensor.New([]int32{3, 0, 3, 8}, 2, 2), x, tensor.New([]int32{8, 5}, 1, 2)}
					}
					var states [2][]float64
					for i := range states {
						table, w := rowsOf(20), variable("w", dtype.Float32, []float64{0.1, 0.2, -0.3}, width)
						opt := fit(make(o))
						fn := lookup(opt, table, w, i == 1)
						steps := []*tensor.Tensor{factors, factors, factors}
						if scaled {
							steps = []*tensor.Tensor{factors, bad, factors, factors, factors}
						}
						for _, x := range steps {
							run(t, fn, batch(x)...)
						}
						for _, v := range append(opt.Variables(), table, w) {
							states[i] = append(states[i], floats(t, v)...)
						}
						in := batch(factors)
						if n := testing.AllocsPerRun(3, func() { run(t, fn, in...) }); n != 0 && !backend.Skipping() {
							t.Errorf("%s: %v allocations a step, want 0", what, n)
						}
					}
					// The squares of rows are added up in another order than those of the
					// table, in float32 or better: the norm may differ in its last digits.
					tolerance := 0.0
					if kind == "clip norm" || kind == "global clip" || name == "Lamb" {
						tolerance = 0x1p-20
					}
					for i, x := range states[0] {
						y := states[1][i]
						if !(math.Abs(x-y) <= tolerance*math.Abs(y)) && !(math.IsNaN(x) && math.IsNaN(y)) {
							t.Fatalf("%s: number %d is %v with rows, %v without", what, i, x, y)
						}
					}
					var plans [2]*ir.Graph
					for i, n := range []int{100, 10000} {
						g, err := lookup(fit(make(o)), rowsOf(n), variable("w", dtype.Float32, []float64{1, 2, 3}, width), false).Plan(batch(factors))
						if err != nil {
							t.Fatal(err)
						}
						plans[i] = g
					}
					alone := (name == "SGD" || name == "Adagrad") && kind != "decay" && kind != "average" && kind != "accumulate"
					if same := plans[0].ArenaBytes == plans[1].ArenaBytes; alone && !same {
						t.Errorf("%s: a step needs %d bytes for a table of 100 rows, %d for 10000", what, plans[0].ArenaBytes, plans[1].ArenaBytes)
					}
					whole := touched(plans[1], 10000)
					if alone && whole != 0 && !backend.Skipping() {
						t.Errorf("%s: %d values are made for all of the table\n%v", what, whole, plans[1])
					}
				}
			}
		}
	}
}

// touched counts the values of a plan that read or write all of a table of n
// rows.
func touched(g *ir.Graph, n int) (count int) {
	for _, v := range g.Values {
		if v.Op == op.Param || v.Op == op.Const || v.View() {
			continue
		}
		large := func(t op.Type) bool { return len(t.Shape) > 0 && t.Shape[0] == n }
		switch {
		case v.Op == op.ScatterUpdate && v.Slot == v.Args[0].Slot: // writes its rows
		case large(v.Type):
			count++
		case v.Op != op.Gather && len(v.Args) > 0 && large(v.Args[0].Type):
			count++
		}
	}
	return count
}

// BenchmarkEmbedding is the update of a table of a million rows of which 4,096
// were gathered.
func BenchmarkEmbedding(b *testing.B) {
	const rows, features, indices = 1_000_000, 64, 4096
	places := make([]int32, indices)
	for i := range places {
		places[i] = int32(i * 7919 % rows)
	}
	in := []*tensor.Tensor{tensor.New(places, indices), tensor.Ones(dtype.Float32, indices, features)}
	for name, o := range map[string]Optimizer{
		"SGD": &SGD{}, "SGD-global-clip-scaled": &LossScaleOptimizer{Inner: &SGD{GlobalClipNorm: 1}},
		"Adagrad": &Adagrad{}, "Adam": &Adam{},
	} {
		b.Run(name, func(b *testing.B) {
			table := tensor.NewVariable("table", dtype.Float32, tensor.Shape{rows, features}, nil)
			vars := []*tensor.Variable{table}
			fn := tensor.Function(func(in []*tensor.Tensor) struct{} {
				loss := table.Value().Gather(in[0]).Mul(in[1]).Sum()
				scaler, scaled := o.(*LossScaleOptimizer)
				if scaled {
					loss = scaler.GetScaledLoss(loss)
				}
				grads := tensor.Gradients(loss, vars)
				if scaled {
					grads = scaler.GetUnscaledGradients(grads)
				}
				o.ApplyGradients(grads, vars)
				return struct{}{}
			}, o, owner(vars))
			if err := fn.Run(context.Background(), in); err != nil { // makes the slots
				b.Fatal(err)
			}
			for b.Loop() {
				if err := fn.Run(context.Background(), in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
