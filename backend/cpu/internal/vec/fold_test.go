package vec

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

func TestFold(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) {
		testFold(t, s.Folds, func(x float32) float32 { return x }, func(x float32) float32 { return x })
		testFold(t, s.F16, dtype.F16FromF32, dtype.F16ToF32)
		testFold(t, s.BF16, dtype.BF16FromF32, dtype.BF16ToF32)
	})
}

// testFold tests the folds of a type to and from which floats convert.
func testFold[T float32 | uint16](t *testing.T, s Folds[T], of func(float32) T, value func(T) float32) {
	rng := rand.New(rand.NewPCG(5, 6))
	x := make([]T, 1100)
	for i := range x {
		x[i] = of(rng.Float32() - 0.6)
	}
	inf := float32(math.Inf(1))
	for n := range 1000 {
		a := append([]T(nil), x[n/10:n/10+n]...)
		for place := range 4 { // also with a NaN or an infinity somewhere
			if place > 0 && n > 0 {
				a[rng.IntN(n)] = of([]float32{0, float32(math.NaN()), inf, -inf}[place])
			}
			var sum, squares, inexact float64
			most, least := math.Inf(-1), math.Inf(1)
			for _, v := range a {
				v := float64(value(v))
				sum += v
				squares += v * v
				most, least = max(most, v), min(least, v)
				inexact += v - v
			}
			// The order of additions in float64 differs.
			for i, p := range [][2]float64{{s.Sum(a), sum}, {s.SumSquares(a), squares}} {
				if d := math.Abs(p[0] - p[1]); d > 1e-13*float64(n) || (p[0] == p[0]) != (p[1] == p[1]) {
					t.Fatalf("%T: sum %d of %d elements is %v, want %v", a, i, n, p[0], p[1])
				}
			}
			for i, p := range [][2]float64{{s.Max(a), most}, {s.Min(a), least}, {s.Infinities(a), inexact}} {
				if p[0] != p[1] && (p[0] == p[0] || p[1] == p[1]) {
					t.Fatalf("%T: fold %d of %d elements is %v, want %v", a, i, n, p[0], p[1])
				}
			}
			if n > 60 {
				break
			}
		}
	}
	for n := range 70 {
		for _, rows := range []int{0, 1, 2, 7} {
			stride := n + 3
			x := make([]T, rows*stride+1)
			for i := range x {
				x[i] = of(rng.Float32())
			}
			acc := make([]float64, n+20)
			for i := range acc {
				acc[i] = float64(i)
			}
			s.SumColumns(acc[10:10+n], x, rows, stride)
			for i, got := range acc {
				want := float64(i)
				for r := range rows {
					if i >= 10 && i < 10+n {
						want += float64(value(x[r*stride+i-10]))
					}
				}
				if got != want {
					t.Fatalf("%T: %d columns of %d: column %d is %v, want %v", x, n, rows, i-10, got, want)
				}
			}
		}
	}
}
