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

// TestSplit: the parts of every finite float16 add up to it, others are found,
// and rows are filled with zeros.
func TestSplit(t *testing.T) {
	for _, set := range setsHere() {
		if set.Panels == nil {
			continue
		}
		// Rows of n elements, apart in both operands, or where they lie.
		split := func(s []uint16, rows int, inPlace bool) (high, low []uint16, found uint32) {
			n := len(s) / rows
			wide := (n + PanelDepth - 1) / PanelDepth * PanelDepth
			ldd, at := 2*wide+6, 2*(wide*rows+3*rows)
			from := newGuarded(2*len(s) + 10*(rows-1))
			lds := 2*n + 10
			d := newGuarded(at + ldd*(rows-1) + 2*wide)
			if inPlace {
				from, lds = d, ldd
			}
			for i := range rows {
				copy(dtype.View[uint16](from.data[i*lds:][:2*n]), s[i*n:])
			}
			set.Panels.Split(d.pointer(), ldd, at, from.pointer(), lds, rows, n, unsafe.Pointer(&found))
			d.check(t, "parts")
			for i := range rows {
				h, l := dtype.View[uint16](d.data[i*ldd:][:2*wide]), dtype.View[uint16](d.data[at+i*ldd:][:2*wide])
				for j := n; j < wide; j++ {
					if h[j]|l[j] != 0 {
						t.Fatalf("%s: %d rows of %d: no zeros at the end of row %d", set.Name, rows, n, i)
					}
				}
				high, low = append(high, h[:n]...), append(low, l[:n]...)
			}
			return high, low, found
		}
		var finite []uint16
		for i := range 1 << 16 {
			if i&0x7c00 != 0x7c00 {
				finite = append(finite, uint16(i))
			} else if _, _, found := split([]uint16{0, uint16(i), 1}, 1, false); found == 0 {
				t.Fatalf("%s: %#04x counts as finite", set.Name, i)
			}
		}
		for _, c := range []struct {
			n, rows int
			inPlace bool
		}{
			{len(finite), 1, false}, {len(finite), 8, true}, {0, 1, false}, {1, 1, false}, {31, 1, false}, {32, 1, true}, {33, 1, false},
			{5 * 31, 5, false}, {3 * 32, 3, false}, {3 * 64, 3, true}, {7 * 65, 7, false},
		} {
			some := finite[len(finite)-c.n:]
			high, low, found := split(some, c.rows, c.inPlace)
			if found != 0 {
				t.Fatalf("%s: one of %d finite numbers counts as infinite", set.Name, c.n)
			}
			for i, x := range some {
				f := dtype.F16ToF32(x)
				h, l := dtype.BF16ToF32(high[i]), dtype.BF16ToF32(low[i])
				if h+l != f || uint32(high[i]) != math.Float32bits(f)>>16 {
					t.Fatalf("%s: %#04x, which is %v, became %v and %v", set.Name, x, f, h, l)
				}
			}
		}
	}
}
