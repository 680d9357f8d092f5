package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestPoolLevels compares pooling at every level with the portable loops, with equal
// elements and NaNs.
func TestPoolLevels(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		if isa.Current() == isa.Portable {
			return
		}
		rng := rand.New(rand.NewPCG(41, 42))
		for i := range 150 {
			n := 1 + rng.IntN(3)
			x, a := op.Shape{1 + rng.IntN(3)}, op.Attr{}
			for range n {
				x, a.Window = append(x, 1+rng.IntN(12)), append(a.Window, 1+rng.IntN(3))
				a.Stride, a.Dilation = append(a.Stride, 1+rng.IntN(3)), append(a.Dilation, 1+rng.IntN(2))
				a.Low, a.High = append(a.Low, rng.IntN(2)), append(a.High, rng.IntN(2))
			}
			x = append(x, []int{1, 3, 16, 31, 32, 33, 70}[rng.IntN(7)])
			d := []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16}[i%3]
			y, err := op.Infer(op.MaxPool, a, op.Type{DType: d, Shape: x})
			if err != nil {
				continue
			}
			in, grad := arrayOf(d, x, func(int) float64 {
				if i%4 == 0 && rng.IntN(40) == 0 {
					return math.NaN()
				}
				return float64(rng.IntN(9) - 4)
			}), randomArray(rng, d, y.Shape...)
			for _, c := range []op.Code{op.MaxPool, op.AvgPool, op.MaxPoolGrad, op.AvgPoolGrad} {
				args, a := []array{in}, a
				switch c {
				case op.MaxPoolGrad:
					args = []array{in, grad}
				case op.AvgPoolGrad:
					args, a.Dims = []array{grad}, x
				}
				got, want := eval(t, c, a, args...), portable(t, c, a, args...)
				// Up to 27 terms of up to 4, each with a rounding; both sides round to
				// the result's type.
				near(t, fmt.Sprint(c, " ", d, " ", x, " ", a), got, want.values(), 27*4)
			}
		}
	})
}
