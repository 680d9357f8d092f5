package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

func TestColumnSums(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) {
		testColumnSums(t, s, s.Columns, func(x float32) float32 { return x }, func(x float32) float32 { return x })
		testColumnSums(t, s, s.ColumnsF16, dtype.F16FromF32, dtype.F16ToF32)
		testColumnSums(t, s, s.ColumnsBF16, dtype.BF16FromF32, dtype.BF16ToF32)
	})
}

// testColumnSums tests the sums of a type, given conversions from and to float32, for
// up to nine vectors, between guards.
func testColumnSums[T float32 | uint16](t *testing.T, s *Set, c ColumnSums[T], of func(float32) T, value func(T) float32) {
	rng := rand.New(rand.NewPCG(11, 12))
	for n := s.Lanes; n <= 9*s.Lanes; n += s.Lanes {
		for _, rows := range []int{0, 1, 2, 9} {
			stride := n + 5
			x, g := make([]T, rows*stride), make([]T, rows*stride)
			for i := range x {
				x[i], g[i] = of(2*rng.Float32()-1), of(2*rng.Float32()-1)
			}
			center := make([]float32, n)
			for i := range center {
				center[i] = rng.Float32()
			}
			const guard = 20
			made := func() []float32 { // 1 everywhere
				v := make([]float32, n+2*guard)
				for i := range v {
					v[i] = 1
				}
				return v
			}
			in := func(v []float32) []float32 { return v[guard : guard+n] }
			all := [5][]float32{made(), made(), made(), made(), made()}
			c.Sums(in(all[0]), x, rows, stride)
			c.Deviations(in(all[1]), in(all[2]), center, x, rows, stride)
			c.Products(in(all[3]), in(all[4]), center, x, g, rows, stride)
			for k, v := range all {
				for i, got := range v {
					want := 1.
					for r := range rows {
						at := r*stride + i - guard
						if i < guard || i >= guard+n {
							break
						}
						e, d, g := float64(value(x[at])), float64(value(x[at]))-float64(center[i-guard]), float64(value(g[at]))
						want += [5]float64{e, d, d * d, g, g * d}[k]
					}
					// Some additions of numbers below 4 to sums below 40.
					if math.Abs(float64(got)-want) > 40*float64(rows)*0x1p-24 {
						t.Fatalf("%T: sum %d of %d rows and %d columns: column %d is %v, want %v", x, k, rows, n, i-guard, got, want)
					}
				}
			}
		}
	}
}
