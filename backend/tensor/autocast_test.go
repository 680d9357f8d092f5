package tensor_test

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// in16 counts the values of a plan that have 16 bits, by operation.
func in16(g *ir.Graph) map[op.Code]int {
	n := map[op.Code]int{}
	for _, v := range g.Values {
		if v.Type.DType.Is16() {
			n[v.Op]++
		}
	}
	return n
}

// TestAutocast: a float32 step computes its products in 16 bits, its loss and the
// weights' gradients in float32.
func TestAutocast(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		t.Run(d.String(), func(t *testing.T) {
			w1 := tensor.NewVariable("w1", dtype.Float32, tensor.Shape{8, 16}, func(x []float64) error { fill(x, 1); return nil })
			w2 := tensor.NewVariable("w2", dtype.Float32, tensor.Shape{16, 4}, func(x []float64) error { fill(x, 2); return nil })
			step := func(cast bool) *tensor.Func[T, T] {
				return tensor.Function(func(x T) T {
					var y T
					layers := func() {
						h := x.MatMul(w1.Value()).Relu()
						if h.DType() != dtype.Float32 {
							t.Errorf("the hidden layer is %v, want float32", h.DType())
						}
						y = h.MatMul(w2.Value())
					}
					if cast {
						tensor.Autocast(d, layers)
					} else {
						layers()
					}
					loss := y.LogSoftmax(1).Square().Mean().MulScalar(64)
					g := tensor.Gradients(tensor.TagScaled(loss, "scaler"), []V{w1, w2})
					for _, g := range g {
						if g.DType() != dtype.Float32 {
							t.Errorf("a gradient is %v, want float32", g.DType())
						}
					}
					return tensor.Concat(0, tensor.Untag(g[0], "scaler").Reshape(-1), tensor.Untag(g[1], "scaler").Reshape(-1), loss.Reshape(1))
				})
			}
			x := tensor.New(randoms(3, 5*8, -1, 1), 5, 8).Cast(dtype.Float32)
			plan := must[*ir.Graph](t)(step(true).Plan(x))
			n := in16(plan)
			if n[op.MatMul] == 0 || n[op.LogSoftmax]+n[op.Mean] > 0 {
				t.Errorf("got %v in 16 bits, want products and no loss\n%v", n, plan)
			}
			if n := in16(must[*ir.Graph](t)(step(false).Plan(x))); len(n) > 0 {
				t.Errorf("without Autocast: got %v in 16 bits", n)
			}
			got := must[[]float64](t)(must[T](t)(step(true).Call(ctx, x)).Float64s())
			want := must[[]float64](t)(must[T](t)(step(false).Call(ctx, x)).Float64s())
			var e, y float64
			for i := range want {
				e, y = e+(got[i]-want[i])*(got[i]-want[i]), y+want[i]*want[i]
			}
			epsilon := map[dtype.DType]float64{dtype.Float16: 0x1p-11, dtype.BFloat16: 0x1p-8}[d]
			if e = math.Sqrt(e / y); e == 0 || e > 4*epsilon {
				t.Errorf("the step is off by %.2g, want more than 0 and at most %.2g", e, 4*epsilon)
			}
		})
	}
}

// TestAutocastMask: a mask that is attached outside of Autocast, as layers do, is no wall
// between two products.
func TestAutocastMask(t *testing.T) {
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{8, 8}, func(x []float64) error { fill(x, 1); return nil })
	mask := tensor.New([]float64{1, 1, 0}, 3).Cast(dtype.Bool)
	fn := tensor.Function(func(x T) T {
		var y T
		tensor.Autocast(dtype.Float16, func() { y = x.MatMul(w.Value()).AddScalar(1) })
		y = y.WithMask(mask)
		tensor.Autocast(dtype.Float16, func() { y = y.Relu().MatMul(w.Value()) })
		return y
	})
	plan := must[*ir.Graph](t)(fn.Plan(tensor.New(randoms(3, 3*8, -1, 1), 3, 8).Cast(dtype.Float32)))
	for _, v := range plan.Values {
		if v.Type.DType == dtype.Float32 && v.Op != op.Param && v != plan.Outputs[0] {
			t.Errorf("%v is %v, want 16 bits\n%v", v.Op, v.Type, plan)
		}
	}
}

func fill(x []float64, seed uint64) {
	copy(x, randoms(seed, len(x), -0.5, 0.5))
}
