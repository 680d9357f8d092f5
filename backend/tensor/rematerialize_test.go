package tensor_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestRematerialize: for a deep chain of products and gelus in 16 bits, the
// backward pass saves two 16-bit values of each gelu, its operand and its result,
// and not the float32 values between them that its gradient rule reads. Eager
// execution, which has every value, gives the same bits.
func TestRematerialize(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	const depth, rows, units = 16, 256, 64
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
		w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{units, units}, func(dst []float64) error {
			copy(dst, randoms(1, len(dst), -0.2, 0.2))
			return nil
		})
		step := tensor.Function(func(x T) []T {
			h := x.Cast(d)
			for range depth {
				z := h.MatMul(w.Value().Cast(d)).Cast(dtype.Float32)
				h = z.MulScalar(0.5).Mul(z.MulScalar(0.7071067811865476).Erf().AddScalar(1)).Cast(d)
			}
			return tensor.Gradients(h.Widen().Square().Mean(), vars{w})
		}, vars{w})
		data := make([]float32, rows*units)
		for i, r := range randoms(2, len(data), -1, 1) {
			data[i] = float32(r)
		}
		x := tensor.New(data, rows, units)
		got := must[[]byte](t)(must[[]T](t)(step.Call(ctx, x))[0].Bytes())
		memory := must[tensor.Memory](t)(step.MemoryOf(x)).Arena
		// Two values of each gelu, in its type, and at most six float32 values that
		// are live at a time.
		if most := (2*depth*d.Size() + 6*4) * rows * units; memory > most {
			t.Errorf("%v: %d bytes, want at most %d", d, memory, most)
		}
		t.Run("eager", func(t *testing.T) {
			debugging(t, backend.Debug{Eager: true})
			want := must[[]byte](t)(must[[]T](t)(step.Call(ctx, x))[0].Bytes())
			if string(got) != string(want) {
				t.Errorf("%v: the gradient differs from that of eager execution", d)
			}
		})
	}
}
