package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPairs holds the loops against those in Go: extremes and counts to the bit, sums
// but for their order. Each special value comes in each lane.
func TestPairs(t *testing.T) {
	special := []float32{0, float32(math.Copysign(0, -1)), 0x1p-149, -0x1p-149, 0x1p-126, math.MaxFloat32, -math.MaxFloat32}
	forEachSet(t, func(t *testing.T, s *Set) {
		rng := rand.New(rand.NewPCG(41, 42))
		sums, magnitudes := make([]float64, PairScratch/8), make([]float32, PairScratch/4)
		for _, n := range []int{16, 32, 48, 1024} {
			for lane := range 16 {
				for i, v := range special {
					x, y := make([]float32, n), make([]float32, n)
					for k := range x {
						x[k], y[k] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
						if rng.IntN(4) == 0 {
							x[k] = 0
						}
					}
					x[n-16+lane] = v
					y[lane] = special[(i+lane)%len(special)]
					got, want := s.PairSums(sums, x, y), SumPairs(x, y)
					if got.LargestError != want.LargestError {
						t.Errorf("%d elements: got largest error %v, want %v", n, got.LargestError, want.LargestError)
					}
					for _, c := range []struct{ got, want, size float64 }{
						{got.SquaredErrors, want.SquaredErrors, want.SquaredErrors}, {got.SquaresX, want.SquaresX, want.SquaresX},
						{got.SquaresY, want.SquaresY, want.SquaresY}, {got.Products, want.Products, want.SquaresX + want.SquaresY},
					} {
						if !(math.Abs(c.got-c.want) <= 1e-14*c.size) {
							t.Errorf("%d elements: got sums %+v, want %+v", n, got, want)
						}
					}
					if got, want := s.PairMagnitudes(magnitudes, x, y), MagnitudesOfPairs(x, y); got != want {
						t.Errorf("%d elements: got %+v, want %+v", n, got, want)
					}
				}
			}
			zeros := make([]float32, n)
			want := PairMagnitudes{Smallest: [2]float32{float32(math.Inf(1)), float32(math.Inf(1))}, Zeros: [2]int{n, n}, BothZero: n}
			if got := s.PairMagnitudes(magnitudes, zeros, zeros); got != want {
				t.Errorf("%d zeros: got %+v, want %+v", n, got, want)
			}
			if got := MagnitudesOfPairs(zeros, zeros); got != want {
				t.Errorf("%d zeros in Go: got %+v, want %+v", n, got, want)
			}
		}
	})
}
