package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

func TestFold(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) {
		testFold(t, s.Folds, func(x float32) float32 { return x }, func(x float32) float32 { return x })
		testFold(t, s.F16, dtype.F16FromF32, dtype.F16ToF32)
		testFold(t, s.BF16, dtype.BF16FromF32, dtype.BF16ToF32)
	})
}

// testFold tests the folds of a type, given conversions from and to float32.
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
			// The order of additions in float64 differs; 16-bit floats, of up to
			// 1 here, are first added in fours, to within 2⁻²³ each time.
			inFours := 1e-13
			if unsafe.Sizeof(x[0]) == 2 {
				inFours = 2 * 0x1p-23
			}
			for i, p := range [][2]float64{{s.Sum(a), sum}, {s.SumSquares(a), squares}} {
				if d := math.Abs(p[0] - p[1]); d > inFours*float64(n) || (p[0] == p[0]) != (p[1] == p[1]) {
					t.Fatalf("%T: sum %d of %d elements is %v, want %v", a, i, n, p[0], p[1])
				}
			}
			for i, p := range [][2]float64{{s.Max(a), most}, {s.Min(a), least}, {s.Infinities(a), inexact}, {s.RowMax(a), most}} {
				if p[0] != p[1] && (p[0] == p[0] || p[1] == p[1]) {
					t.Fatalf("%T: fold %d of %d elements is %v, want %v", a, i, n, p[0], p[1])
				}
			}
			if n > 0 {
				v := value(a[rng.IntN(n)])
				want := slices.IndexFunc(a, func(x T) bool { return value(x) == v })
				if got := s.Find(a, v); got != want || s.Find(a, 77) != -1 {
					t.Fatalf("%T: %v found at %d of %d elements, want %d", a, v, got, n, want)
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
				// Fours of 16-bit floats below 1 are added in float32.
				if math.Abs(got-want) > float64(rows)*0x1p-23*float64(4-unsafe.Sizeof(x[0]))/2 {
					t.Fatalf("%T: %d columns of %d: column %d is %v, want %v", x, n, rows, i-10, got, want)
				}
			}
			for name, c := range map[string]struct {
				f    func(acc []float64, x []T, rows, stride int)
				join func(a, b float64) float64
			}{
				"largest":  {s.MaxColumns, func(a, b float64) float64 { return max(a, b) }},
				"smallest": {s.MinColumns, func(a, b float64) float64 { return min(a, b) }},
			} {
				if len(x) > 3 {
					x[3] = of(float32(math.NaN()))
				}
				for i := range acc {
					acc[i] = 0.5
				}
				c.f(acc[10:10+n], x, rows, stride)
				for i, got := range acc {
					want := 0.5
					for r := range rows {
						if i >= 10 && i < 10+n {
							want = c.join(want, float64(value(x[r*stride+i-10])))
						}
					}
					if got != want && (got == got || want == want) {
						t.Fatalf("%T: %s of %d rows: column %d of %d is %v, want %v", x, name, rows, i-10, n, got, want)
					}
				}
			}
		}
	}
}

func TestFoldRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	forEachSet(t, func(t *testing.T, s *Set) {
		for _, n := range []int{1, 2, 7, 8, 9, 10, 15, 16, 17, 31, 32, 64, 100} {
			for _, rows := range []int{0, 8, 24} {
				x, dst := make([]float32, rows*n), make([]float64, rows+2)
				for i := range x {
					x[i] = float32(rng.NormFloat64())
				}
				dst[rows], dst[rows+1] = 77, 77
				for name, c := range map[string]struct {
					f    func(dst []float64, x []float32, n int) bool
					want func(x []float32) float64
				}{
					"sum":      {func(dst []float64, x []float32, n int) bool { s.SumRows(dst, x, n); return true }, s.Sum},
					"largest":  {s.MaxRows, s.Max},
					"smallest": {s.MinRows, s.Min},
				} {
					if !c.f(dst[:rows], x, n) {
						t.Fatalf("%s of %d rows of %d sees a NaN", name, rows, n)
					}
					for r := range rows {
						// The order of additions in float64 differs.
						if want := c.want(x[r*n : (r+1)*n]); math.Abs(dst[r]-want) > 1e-13*float64(n) {
							t.Fatalf("%s of row %d of %d, %d elements, is %v, want %v", name, r, rows, n, dst[r], want)
						}
					}
					if dst[rows] != 77 || dst[rows+1] != 77 {
						t.Fatalf("%s of %d rows writes beyond them", name, rows)
					}
				}
				if rows > 0 {
					x[rng.IntN(len(x))] = float32(math.NaN())
					if s.MaxRows(dst[:rows], x, n) || s.MinRows(dst[:rows], x, n) {
						t.Fatalf("a NaN in %d rows of %d is not seen", rows, n)
					}
				}
			}
		}
	})
}
