package vec

import (
	"math"
	"slices"
	"testing"
)

// TestGeluLengths: an element has the same bits for every number of elements, so
// elements after the last whole vector are computed as in whole ones, and agrees with
// the formula.
func TestGeluLengths(t *testing.T) {
	const n = 40
	a, b := make([]float32, n), make([]float32, n)
	for i := range a {
		a[i], b[i] = float32(i)/5-4, 1+float32(i%7)/8
	}
	forEachSet(t, func(t *testing.T, s *Set) {
		y, g := make([]float32, n), make([]float32, n)
		s.Gelu(y, a)
		s.GeluGrad(g, a, b)
		for i, x := range a {
			cdf, pdf := math.Erfc(-float64(x)/math.Sqrt2)/2, math.Exp(-float64(x)*float64(x)/2)/math.Sqrt(2*math.Pi)
			// 6 units of the distribution and 4 of the density, and one for each product and the sum.
			for _, c := range []struct {
				got       float32
				want, abs float64
			}{
				{y[i], float64(x) * cdf, math.Abs(float64(x)) * cdf},
				{g[i], float64(b[i]) * (cdf + float64(x)*pdf), float64(b[i]) * (cdf + math.Abs(float64(x))*pdf)},
			} {
				if d := math.Abs(float64(c.got) - c.want); d > 10*0x1p-24*2*c.abs {
					t.Errorf("at %v: got %v, want %v", x, c.got, c.want)
				}
			}
		}
		for k := 1; k < n; k++ {
			short := make([]float32, k)
			if s.Gelu(short, a[:k]); !slices.Equal(short, y[:k]) {
				t.Errorf("gelu of %d elements: got %v, want %v", k, short, y[:k])
			}
			if s.GeluGrad(short, a[:k], b[:k]); !slices.Equal(short, g[:k]) {
				t.Errorf("gradient of gelu of %d elements: got %v, want %v", k, short, g[:k])
			}
		}
	})
}
