package tensor_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestRemat: a deep chain with random masks has the same gradients to the bit
// when its parts are computed again, in less memory.
func TestRemat(t *testing.T) {
	const depth, rows, units = 12, 512, 64
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
		var weights vars
		for i := range depth {
			weights = append(weights, tensor.NewVariable("w", dtype.Float32, tensor.Shape{units, units}, func(dst []float64) error {
				copy(dst, randoms(uint64(i), len(dst), -0.15, 0.15))
				return nil
			}))
		}
		state := tensor.NewVariable("state", dtype.Int64, tensor.Shape{2}, func(dst []float64) error {
			dst[0], dst[1] = 7, 3
			return nil
		})
		step := func(remat bool) *tensor.Func[T, []T] {
			return tensor.Function(func(x T) []T {
				x = x.Cast(d)
				for i := range depth {
					block := func() T {
						w := weights[i].Value().Cast(d)
						h := x.MatMul(w).Tanh()
						keep := tensor.RandomUniform(state.Value(), uint64(i), rows, units).LessScalar(0.8)
						h = tensor.Where(keep, h.Mul(h).Exp(), h)
						return x.Add(h.MatMul(w))
					}
					if remat {
						x = tensor.Remat(block)
					} else {
						x = block()
					}
				}
				// The last sum is recorded again in float32.
				return tensor.Gradients(x.Widen().Square().Mean(), weights)
			}, weights, vars{state})
		}
		data := make([]float32, rows*units)
		for i, r := range randoms(9, len(data), -0.5, 0.5) {
			data[i] = float32(r)
		}
		x := tensor.New(data, rows, units)
		plain, again := step(false), step(true)
		want, got := must[[]T](t)(plain.Call(ctx, x)), must[[]T](t)(again.Call(ctx, x))
		for i := range want {
			a, b := must[[]byte](t)(want[i].Bytes()), must[[]byte](t)(got[i].Bytes())
			if string(a) != string(b) {
				t.Errorf("%v: the gradient of weight %d differs", d, i)
			}
		}
		most, least := must[tensor.Memory](t)(plain.MemoryOf(x)).Arena, must[tensor.Memory](t)(again.MemoryOf(x)).Arena
		// The input of each block, and at most twelve values of float32 while
		// one is computed again.
		if bound := (depth*d.Size() + 12*4) * rows * units; (least >= most || least > bound) && !backend.Skipping() {
			t.Errorf("%v: %d bytes with Remat, %d without; want less, and at most %d", d, least, most, bound)
		}
	}
}
