package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestPanelKernels holds kernels on tile registers against float64, with
// operands whose rows are apart, and that end where the elements end.
func TestPanelKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, set := range setsHere() {
		if set.Panels == nil {
			continue
		}
		for parts := 1; parts <= 2; parts++ {
			for i := range 2 {
				for j := range 2 {
					for _, k := range []int{0, 1, 2, 5, 33} {
						for _, tail := range []bool{false, true} {
							if tail && parts == 2 || k == 0 && !tail {
								continue
							}
							testPanelKernel(t, rng, set.Panels, parts, i, j, k, tail)
						}
					}
				}
			}
		}
	}
}

func testPanelKernel(t *testing.T, rng *rand.Rand, panels *Panels, parts, i, j, k int, tail bool) {
	rows, cols := 16*(i+1), 16*(j+1)
	what := fmt.Sprintf("%d×%d of %d parts, k %d, tail %v", rows, cols, parts, k, tail)
	all := k
	if tail {
		all++
	}
	lda := 2*PanelDepth*k + 6
	lowA := rows * lda
	a, b := newGuarded(parts*lowA), newGuarded(all*parts*PanelStep)
	rest := newGuarded(rows * 2 * PanelDepth)
	for _, g := range []*guarded{a, b, rest} {
		floats(rng, g.data, Pairs)
	}
	half := func(g *guarded, at int) float64 {
		return float64(dtype.BF16ToF32(*(*uint16)(unsafe.Pointer(&g.data[at]))))
	}
	number := func(g *guarded, at, low int) float64 {
		if parts == 1 {
			return half(g, at)
		}
		return half(g, at) + half(g, at+low)
	}
	ld := 4*cols + 64
	got := newGuarded((rows-1)*ld + 4*cols)
	floats(rng, got.data, F32)
	before := append([]float32(nil), dtype.View[float32](got.data)...)
	add := rng.IntN(2) == 1
	s, at := unsafe.Pointer(nil), unsafe.Pointer(nil)
	if add {
		s = got.pointer()
	}
	if tail {
		at = rest.pointer()
	}
	runtime.LockOSThread()
	panels.Begin()
	panels.Kernels[parts-1][i][j](k, a.pointer(), lda, lowA, at, b.pointer(), s, got.pointer(), ld, b.pointer())
	panels.End()
	runtime.UnlockOSThread()
	got.check(t, what)
	c := dtype.View[float32](got.data)
	for row := range rows {
		for col := range cols {
			sum := 0.0
			if add {
				sum = float64(before[row*ld/4+col])
			}
			for p := range all * PanelDepth {
				x := 0.0
				if q := p - k*PanelDepth; q >= 0 {
					x = half(rest, (row*PanelDepth+q)*2)
				} else {
					x = number(a, row*lda+2*p, lowA)
				}
				step, pair := p/PanelDepth, p%PanelDepth
				sum += x * number(b, step*parts*PanelStep+(pair/2*PanelCols+col)*4+pair%2*2, PanelStep)
			}
			// Each product adds parts² terms of magnitude 1 with a rounding.
			terms := float64(all*PanelDepth*parts*parts + 1)
			if g := float64(c[row*ld/4+col]); math.Abs(g-sum) > terms*dtype.Float32.Epsilon()*math.Sqrt(terms) {
				t.Fatalf("%s: row %d, column %d: got %v, want %v", what, row, col, g, sum)
			}
		}
	}
}

// TestSplit: the parts of every finite float16 add up to it, and others are
// found.
func TestSplit(t *testing.T) {
	for _, set := range setsHere() {
		if set.Panels == nil {
			continue
		}
		split := func(s []uint16) (high, low []uint16, found uint32) {
			n := len(s)
			h, l := newGuarded(2*n), newGuarded(2*n)
			set.Panels.Split(h.pointer(), l.pointer(), unsafe.Pointer(unsafe.SliceData(s)), n, unsafe.Pointer(&found))
			h.check(t, "high parts")
			l.check(t, "low parts")
			return dtype.View[uint16](h.data), dtype.View[uint16](l.data), found
		}
		var finite []uint16
		for i := range 1 << 16 {
			if i&0x7c00 != 0x7c00 {
				finite = append(finite, uint16(i))
			} else if _, _, found := split([]uint16{0, uint16(i), 1}); found == 0 {
				t.Fatalf("%s: %#04x counts as finite", set.Name, i)
			}
		}
		for _, n := range []int{len(finite), 0, 1, 31, 32, 33, 63, 65} {
			some := finite[len(finite)-n:]
			high, low, found := split(some)
			if found != 0 {
				t.Fatalf("%s: one of %d finite numbers counts as infinite", set.Name, n)
			}
			for i, x := range some {
				h, l := dtype.BF16ToF32(high[i]), dtype.BF16ToF32(low[i])
				if h+l != dtype.F16ToF32(x) || h != dtype.BFloat16.Round(dtype.F16ToF32(x)) {
					t.Fatalf("%s: %#04x, which is %v, became %v and %v", set.Name, x, dtype.F16ToF32(x), h, l)
				}
			}
		}
	}
}
