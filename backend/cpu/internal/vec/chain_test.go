package vec

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"
)

// TestChains compares chains with the same operations in Go, each rounded: conversions
// keep the compiler from fusing them.
func TestChains(t *testing.T) {
	a, b := pairs()
	c := append(slices.Clone(a[len(a)/3:]), a[:len(a)/3]...)
	forEachSet(t, func(t *testing.T, s *Set) {
		root := func(x float32) float32 { return float32(math.Sqrt(float64(x))) }
		square := func(x float32) float32 { return float32(x * x) }
		lerp := func(a, b, s float32) float32 { return a + float32(float32(b-a)*s) }
		flush := func(a, t float32) float32 { return float32(a+t) - t }
		blend := func(a, b, s, t float32) float32 { return float32(a*s) + float32(b*t) }
		step := func(a, b, root, s float32) float32 { return a - float32(float32(b*s)/root) }
		for _, n := range [][2]float32{{0.1, 1e-7}, {-3, 0.5}, {1, 0}} {
			for _, f := range []struct {
				name string
				f    Chain
				slow SlowChain
				want func(a, b, c, s, t float32) float32
			}{
				{"Lerp", s.Lerp, nil, func(a, b, _, s, _ float32) float32 { return lerp(a, b, s) }},
				{"LerpSquare", s.LerpSquare, nil, func(a, b, _, s, _ float32) float32 { return lerp(a, square(b), s) }},
				{"LerpFlush", s.LerpFlush, nil, func(a, b, _, s, t float32) float32 { return flush(lerp(a, b, s), t) }},
				{"LerpSquareFlush", s.LerpSquareFlush, nil, func(a, b, _, s, t float32) float32 { return flush(lerp(a, square(b), s), t) }},
				{"Blend", s.Blend, nil, func(a, b, _, s, t float32) float32 { return blend(a, b, s, t) }},
				{"BlendSquare", s.BlendSquare, nil, func(a, b, _, s, t float32) float32 { return blend(a, square(b), s, t) }},
				{"AddScaled", s.AddScaled, nil, func(a, b, _, s, _ float32) float32 { return a + float32(b*s) }},
				{"SubScaled", s.SubScaled, nil, func(a, b, _, s, _ float32) float32 { return a - float32(b*s) }},
				{"BlendSub", s.BlendSub, nil, func(a, b, _, s, t float32) float32 { return float32(a*s) - float32(b*t) }},
				{"RootStep", nil, s.RootStep, func(a, b, c, s, t float32) float32 { return step(a, b, root(c)+t, s) }},
				{"RootStepInside", nil, s.RootStepInside, func(a, b, c, s, t float32) float32 { return step(a, b, root(c+t), s) }},
			} {
				checkLoop(t, f.name, 0, a,
					func(dst []float32, at int) {
						x, y, z := a[at:at+len(dst)], b[at:at+len(dst)], c[at:at+len(dst)]
						if f.slow != nil {
							p := unsafe.Pointer(&a[0])
							f.slow(dst, x, y, z, n[0], n[1], [4]unsafe.Pointer{p, p, p, p})
							return
						}
						f.f(dst, x, y, n[0], n[1])
					},
					func(i int) float64 { return float64(f.want(a[i], b[i], c[i], n[0], n[1])) })
			}
		}
	})
}

// TestMoments compares the loop of all three chains with the loops of each.
func TestMoments(t *testing.T) {
	a, b := pairs()
	forEachSet(t, func(t *testing.T, s *Set) {
		for _, n := range []int{0, 1, 5, 16, 37, 256, len(a) / 4 * 3} {
			var got, want [4][]float32
			for i := range got {
				got[i] = slices.Concat(a[i:i+n], []float32{7, 7})
			}
			copy(got[3], b[:n])
			for i, x := range got[1][:n] {
				got[1][i] = max(x, -x)
			}
			for i := range got {
				want[i] = slices.Clone(got[i])
			}
			const s1, t1, s2, t2, rate, epsilon = 0.1, 0x1p-80, 0.001, 0x1p-81, 0.01, 1e-7
			s.Moments(got[0][:n], got[1][:n], got[2][:n], got[3][:n], s1, t1, s2, t2, rate, epsilon)
			s.LerpFlush(want[0][:n], want[0][:n], want[3][:n], s1, t1)
			s.LerpSquareFlush(want[1][:n], want[1][:n], want[3][:n], s2, t2)
			p := unsafe.Pointer(&a[0])
			s.RootStep(want[2][:n], want[2][:n], want[0][:n], want[1][:n], rate, epsilon, [4]unsafe.Pointer{p, p, p, p})
			for i := range got {
				for j := range got[i] {
					if x, y := got[i][j], want[i][j]; math.Float32bits(x) != math.Float32bits(y) && !(x != x && y != y) {
						t.Fatalf("slice %d of %d elements: element %d is %v, want %v", i, n, j, x, y)
					}
				}
			}
		}
	})
}

// TestGelu: the activation and its gradient have the bits of their operations one by
// one, in whole vectors and after them, also in place.
func TestGelu(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	forEachSet(t, func(t *testing.T, s *Set) {
		for n := range 70 {
			a, b := make([]float32, n), make([]float32, n)
			for i := range a {
				a[i], b[i] = float32(3*rng.NormFloat64()), float32(rng.NormFloat64())
			}
			cdf, pdf := make([]float32, n), make([]float32, n)
			s.NormalCDF(cdf, a)
			s.NormalPDF(pdf, a)
			check := func(what string, got []float32, want func(i int) float32) {
				for i, g := range got {
					if w := want(i); math.Float32bits(g) != math.Float32bits(w) {
						t.Fatalf("%s of %d elements: element %d is %v, want %v", what, n, i, g, w)
					}
				}
			}
			gelu := func(i int) float32 { return a[i] * cdf[i] }
			gradient := func(i int) float32 { return float32(b[i]*cdf[i]) + float32(float32(b[i]*a[i])*pdf[i]) }
			dst := make([]float32, n)
			s.Gelu(dst, a)
			check("Gelu", dst, gelu)
			s.GeluGrad(dst, a, b)
			check("GeluGrad", dst, gradient)
			dst = slices.Clone(b)
			s.GeluGrad(dst, a, dst)
			check("GeluGrad in place", dst, gradient)
		}
	})
}
