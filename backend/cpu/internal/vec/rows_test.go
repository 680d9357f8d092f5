package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// rowsOf calls f with rows of every length that a set takes and every special value in
// turn at some place, between guards.
func rowsOf(t *testing.T, f func(t *testing.T, s *Set, x, dst []float32, n int)) {
	rng := rand.New(rand.NewPCG(9, 10))
	inf := float32(math.Inf(1))
	forEachSet(t, func(t *testing.T, s *Set) {
		for n := 1; n <= s.Lanes; n++ {
			const rows = 50
			x := make([]float32, rows*n)
			for i := range x {
				x[i] = 20 * (rng.Float32() - 0.5)
			}
			for i, v := range []float32{float32(math.NaN()), inf, -inf, 1000, -1000} {
				x[(10+i)*n+rng.IntN(n)] = v
			}
			for i := range n {
				x[20*n+i] = -inf
				x[21*n+i] = 3
			}
			all := make([]float32, rows*n+40)
			for i := range all {
				all[i] = 12345
			}
			f(t, s, x, all[20:20+rows*n], n)
			for i, v := range all {
				if (i < 20 || i >= 20+rows*n) && v != 12345 {
					t.Fatalf("rows of %d: element %d was written", n, i-20)
				}
			}
		}
	})
}

func TestSoftmaxRows(t *testing.T) {
	rowsOf(t, func(t *testing.T, s *Set, x, dst []float32, n int) {
		for _, log := range []bool{false, true} {
			s.SoftmaxRows(dst, x, n)
			if log {
				s.LogSoftmaxRows(dst, x, n)
			}
			for i := range x {
				row := x[i/n*n:][:n]
				top := float64(slices.Max(row))
				var sum float64
				for _, v := range row {
					sum += math.Exp(float64(v) - top)
				}
				want := math.Exp(float64(x[i])-top) / sum
				// The difference to the maximum is rounded, which is relative
				// to the exponential; the rest is some units in the last place.
				tol := (1e-6 + 0x1p-24*math.Abs(float64(x[i])-top)) * want
				if log {
					want = float64(x[i]) - top - math.Log(sum)
					tol = 1e-6 * max(1, math.Abs(want))
				}
				if got := float64(dst[i]); !(math.Abs(got-want) <= tol+1e-38) && got != want && (got == got || want == want) {
					t.Fatalf("log %v: element %d of %v is %v, want %v", log, i%n, row, got, want)
				}
			}
		}
	})
}

func TestArgRows(t *testing.T) {
	rowsOf(t, func(t *testing.T, s *Set, x, _ []float32, n int) {
		got := make([]int32, len(x)/n+1)
		for _, sign := range []uint32{0, 1 << 31} {
			s.ArgRows(got[:len(x)/n], x, n, sign)
			for r := range len(x) / n {
				row := x[r*n:][:n]
				want := slices.IndexFunc(row, func(v float32) bool { return v != v })
				if want < 0 && sign == 0 {
					want = slices.Index(row, slices.Max(row))
				} else if want < 0 {
					want = slices.Index(row, slices.Min(row))
				}
				if int(got[r]) != want {
					t.Fatalf("sign %#x: got %d of %v, want %d", sign, got[r], row, want)
				}
			}
			if got[len(x)/n] != 0 {
				t.Fatal("wrote beyond the last row")
			}
		}
	})
}
