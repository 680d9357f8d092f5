package vec

import (
	"math"
	"slices"
	"testing"
	"unsafe"
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
		// Rows of a matrix are computed in place, and nothing beside them.
		const rows, stride = 3, n + 5
		for k := range n + 1 {
			d := make([]float32, rows*stride)
			for i := range d {
				d[i] = a[i%n]
			}
			want := slices.Clone(d)
			for r := range rows {
				s.Gelu(want[r*stride:][:k], want[r*stride:][:k])
			}
			if s.GeluRows(unsafe.Pointer(&d[0]), 4*stride, rows, k); !slices.Equal(d, want) {
				t.Errorf("rows of %d elements: got %v, want %v", k, d, want)
			}
		}
	})
}

// TestGeluNeighbours: what an element gets does not depend on its vector, in which other
// elements may be out of the reach of the table of AVX-512, infinite or no numbers.
func TestGeluNeighbours(t *testing.T) {
	const n = 32
	forEachSet(t, func(t *testing.T, s *Set) {
		inf := float32(math.Inf(1))
		for _, x := range []float32{0, 0.09375, -0.09375, 1, -5.8, 5.8, math.Nextafter32(5.9, 0), 5.9, -5.9, -13, 13, inf, -inf} {
			for _, by := range []float32{0.5, -5.9, -12, 40, inf, float32(math.NaN())} {
				a, y, alone, want := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
				for i := range a {
					a[i] = by
				}
				a[5], alone[0] = x, x
				for _, f := range []Unary{s.Gelu, s.NormalCDF, s.Common.Gelu, s.Common.NormalCDF} {
					f(y, a)
					f(want, alone)
					if got := y[5]; math.Float32bits(got) != math.Float32bits(want[0]) && got == got {
						t.Errorf("at %v beside %v: got %v, want %v", x, by, got, want[0])
					}
				}
			}
		}
	})
}
