package gemm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// guarded is n bytes between bytes of another pattern, which are to stay.
type guarded struct {
	all  []byte
	data []byte
}

const guard = 256

func newGuarded(n int) *guarded {
	g := &guarded{all: bytes.Repeat([]byte{0xa5}, n+2*guard)}
	g.data = g.all[guard : guard+n : guard+n]
	return g
}

func (g *guarded) pointer() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(g.data)) }

func (g *guarded) check(t *testing.T, what string) {
	t.Helper()
	for i, b := range g.all {
		if (i < guard || i >= guard+len(g.data)) && b != 0xa5 {
			t.Fatalf("%s: byte %d, outside of %d, was written", what, i-guard, len(g.data))
		}
	}
}

// floats fills b with elements that bfloat16 has exactly, as kind e says, or with
// others that are to be rounded.
func floats(rng *rand.Rand, b []byte, e Element) {
	d := map[Element]dtype.DType{F32: dtype.Float32, F16: dtype.Float16, BF16: dtype.BFloat16, Pairs: dtype.BFloat16, RoundF16: dtype.Float32}[e]
	x := make([]float32, len(b)/e.Size())
	for i := range x {
		if x[i] = rng.Float32()*2 - 1; e != RoundF16 {
			x[i] = dtype.BFloat16.Round(x[i])
		}
	}
	dtype.FromF32(b, x, d)
}

// TestKernels holds each kernel against the loop in Go, with operands whose
// rows are apart, and that end where the elements end.
func TestKernels(t *testing.T) {
	for _, set := range setsHere() {
		testTiles(t, set.Name+"/float32", set.F32, false)
		if set.Pairs != nil {
			testTiles(t, set.Name+"/pairs", set.Pairs, true)
		}
		if set.Blocks != nil {
			testTiles(t, set.Name+"/blocks", set.Blocks, true)
		}
	}
}

func testTiles(t *testing.T, name string, tiles *Tiles, pairs bool) {
	rng := rand.New(rand.NewPCG(1, 2))
	kind := F32
	if pairs {
		kind = Pairs
	}
	for _, form := range []struct {
		name   string
		inner  bool
		nr     int
		kernel []Kernel
	}{
		{"Rows", false, tiles.NR, tiles.Rows}, {"Inner", true, tiles.NR, tiles.Inner},
		{"NarrowRows", false, tiles.NarrowNR, tiles.NarrowRows}, {"NarrowInner", true, tiles.NarrowNR, tiles.NarrowInner},
	} {
		for mr := tiles.Unit; mr < len(form.kernel); mr += tiles.Unit {
			for _, k := range []int{0, 1, 2, 3, 4, 5, 8, 33} {
				k *= tiles.Deep
				cols := form.nr
				if tiles.Masked {
					cols = 1 + rng.IntN(form.nr)
				}
				add := rng.IntN(2) == 1
				what := fmt.Sprintf("%s%s %d×%d, k %d, added %v", name, form.name, mr, cols, k, add)
				acols, arows := k, mr
				if form.inner {
					acols, arows = mr, k
				}
				lda, ldb, ldd := 4*(acols+rng.IntN(3)), 4*(form.nr+rng.IntN(3)), 4*(cols+rng.IntN(3))
				size := func(rows, ld, cols int) int { return max(0, (rows-1)*ld+4*cols) }
				a, b := newGuarded(size(arows, lda, acols)), newGuarded(size(k, ldb, form.nr))
				floats(rng, a.data, kind)
				floats(rng, b.data, kind)
				got, want := newGuarded(size(mr, ldd, cols)), newGuarded(size(mr, ldd, cols))
				floats(rng, got.data, F32)
				copy(want.data, got.data)
				var sg, sw unsafe.Pointer
				if add {
					sg, sw = got.pointer(), want.pointer()
				}
				mask := uint(1)<<cols - 1
				if tiles.Begin != nil {
					runtime.LockOSThread()
					tiles.Begin()
				}
				form.kernel[mr](k, a.pointer(), lda, b.pointer(), ldb, sg, ldd, got.pointer(), ldd, mask)
				if tiles.End != nil {
					tiles.End()
					runtime.UnlockOSThread()
				}
				Reference(mr, form.nr, pairs, form.inner)(k, a.pointer(), lda, b.pointer(), ldb, sw, ldd, want.pointer(), ldd, mask)
				got.check(t, what)
				g, w := dtype.View[float32](got.data), dtype.View[float32](want.data)
				// Up to 2k+1 terms of magnitude 1, each added with a rounding.
				tol := float64(2*k+1) * float64(2*k+1) * dtype.Float32.Epsilon()
				for i := range g {
					if math.Abs(float64(g[i])-float64(w[i])) > tol {
						t.Fatalf("%s: element %d of row %d: got %v, want %v", what, i*4%ldd/4, i*4/ldd, g[i], w[i])
					}
				}
			}
		}
	}
}

// TestPrefetchKernels: kernels that prefetch give the bits of those that do not.
func TestPrefetchKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, set := range setsHere() {
		tiles := set.F32
		for inner, form := range [][2]any{{tiles.Prefetch.Rows, tiles.Rows}, {tiles.Prefetch.Inner, tiles.Inner}} {
			plain := form[1].([]Kernel)
			for mr, kernel := range form[0].([]PrefetchKernel) {
				for _, k := range []int{0, 3, 8, 37} {
					if kernel == nil {
						continue
					}
					a, b := newGuarded(4*mr*k), newGuarded(4*tiles.NR*k)
					floats(rng, a.data, F32)
					floats(rng, b.data, F32)
					lda := []int{4 * k, 4 * mr}[inner]
					got, want := newGuarded(4*mr*tiles.NR), newGuarded(4*mr*tiles.NR)
					floats(rng, want.data, F32)
					copy(got.data, want.data)
					ldd, mask := 4*tiles.NR, uint(1)<<(tiles.NR-1)-1
					kernel(k, a.pointer(), lda, b.pointer(), ldd, got.pointer(), ldd, got.pointer(), ldd, mask, b.pointer(), 64)
					plain[mr](k, a.pointer(), lda, b.pointer(), ldd, want.pointer(), ldd, want.pointer(), ldd, mask)
					if what := fmt.Sprintf("%s, %d rows, k %d", set.Name, mr, k); !bytes.Equal(got.all, want.all) {
						t.Errorf("%s: other bits than without prefetching", what)
					}
				}
			}
		}
	}
}

// TestCopyKernels: kernels that copy B give the bits of those that do not, and a
// copy of B without gaps.
func TestCopyKernels(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, set := range setsHere() {
		tiles := set.F32
		for inner, form := range [][2]any{{tiles.Copies.Rows, tiles.Rows}, {tiles.Copies.Inner, tiles.Inner}} {
			plain := form[1].([]Kernel)
			for mr, kernel := range form[0].([]CopyKernel) {
				for _, k := range []int{0, 3, 8, 37} {
					if kernel == nil {
						continue
					}
					row := 4 * tiles.NR
					ldb := row + 4*rng.IntN(3)
					a, b, packed := newGuarded(4*mr*k), newGuarded(max(0, (k-1)*ldb+row)), newGuarded(row*k)
					floats(rng, a.data, F32)
					floats(rng, b.data, F32)
					lda := []int{4 * k, 4 * mr}[inner]
					got, want := newGuarded(row*mr), newGuarded(row*mr)
					floats(rng, want.data, F32)
					copy(got.data, want.data)
					mask := uint(1)<<(tiles.NR-1) - 1
					kernel(k, a.pointer(), lda, b.pointer(), ldb, got.pointer(), row, got.pointer(), row, mask, packed.pointer())
					plain[mr](k, a.pointer(), lda, b.pointer(), ldb, want.pointer(), row, want.pointer(), row, mask)
					what := fmt.Sprintf("%s, %d rows, k %d", set.Name, mr, k)
					packed.check(t, what)
					if !bytes.Equal(got.all, want.all) {
						t.Errorf("%s: other bits than without copying", what)
					}
					for p := range k {
						if !bytes.Equal(packed.data[p*row:(p+1)*row], b.data[p*ldb:p*ldb+row]) {
							t.Errorf("%s: row %d is not copied", what, p)
						}
					}
				}
			}
		}
	}
}

// TestCopyPairs: kernels on pairs that copy B give the bits of packing and of those that
// do not copy, and what packing writes.
func TestCopyPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, set := range setsHere() {
		tiles := set.Pairs
		if tiles == nil {
			continue
		}
		for mr, kernel := range tiles.Copies.Rows {
			for _, k := range []int{0, 1, 3, 8, 37} {
				if kernel == nil {
					continue
				}
				row := 4 * tiles.NR
				ldb := 2 * (tiles.NR + rng.IntN(5))
				a, b := newGuarded(4*mr*k), newGuarded(max(0, (2*k-1)*ldb+2*tiles.NR))
				packed, plain := newGuarded(row*k), newGuarded(row*k)
				floats(rng, a.data, BF16)
				floats(rng, b.data, BF16)
				got, want := newGuarded(row*mr), newGuarded(row*mr)
				floats(rng, want.data, F32)
				copy(got.data, want.data)
				mask := uint(1)<<(tiles.NR-1) - 1
				kernel(k, a.pointer(), 4*k, b.pointer(), ldb, got.pointer(), row, got.pointer(), row, mask, packed.pointer())
				set.Lanes[Pairs](plain.pointer(), row, b.pointer(), ldb, 2*k, 1<<tiles.NR-1, 1<<tiles.NR-1)
				tiles.Rows[mr](k, a.pointer(), 4*k, plain.pointer(), row, want.pointer(), row, want.pointer(), row, mask)
				what := fmt.Sprintf("%s, %d rows, k %d", set.Name, mr, k)
				packed.check(t, what)
				if !bytes.Equal(got.all, want.all) {
					t.Errorf("%s: other bits than without copying", what)
				}
				if !bytes.Equal(packed.data, plain.data) {
					t.Errorf("%s: another copy than packing makes", what)
				}
			}
		}
	}
}

// TestContinue: kernels whose sums begin with those of an earlier call give the bits of one call.
func TestContinue(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, set := range setsHere() {
		for _, tiles := range []*Tiles{set.F32, set.Pairs} {
			if tiles == nil || !tiles.Masked {
				continue
			}
			check := func(what string, nr int, kernel func(mr, k, from int, s unsafe.Pointer, a, d *guarded, mask uint)) {
				for mr := 1; mr <= tiles.MR; mr++ {
					const k, half = 37, 16
					a := newGuarded(4 * mr * k)
					floats(rng, a.data, BF16)
					got, want := newGuarded(4*nr*mr), newGuarded(4*nr*mr)
					mask := uint(1)<<(nr-1) - 1
					kernel(mr, k, 0, nil, a, want, mask)
					kernel(mr, half, 0, nil, a, got, mask)
					kernel(mr, k-half, half, got.pointer(), a, got, mask|Continue)
					if !bytes.Equal(got.all, want.all) {
						t.Errorf("%s, %s, %d rows of %d columns: other bits than in one call", set.Name, what, mr, nr)
					}
				}
			}
			b := newGuarded(4 * tiles.NR * 37)
			floats(rng, b.data, BF16)
			for nr, kernels := range map[int][]Kernel{tiles.NR: tiles.Rows, tiles.NarrowNR: tiles.NarrowRows} {
				check("kernel", nr, func(mr, k, from int, s unsafe.Pointer, a, d *guarded, mask uint) {
					kernels[mr](k, at(a.pointer(), from, 4), 4*37, at(b.pointer(), from*nr, 4), 4*nr, s, 4*nr, d.pointer(), 4*nr, mask)
				})
			}
			if tiles.Step > 1 {
				packed := newGuarded(4 * tiles.NR * 37)
				check("copying kernel", tiles.NR, func(mr, k, from int, s unsafe.Pointer, a, d *guarded, mask uint) {
					nr := tiles.NR
					tiles.Copies.Rows[mr](k, at(a.pointer(), from, 4), 4*37, at(b.pointer(), 2*from*nr, 2), 2*nr, s, 4*nr, d.pointer(), 4*nr, mask, packed.pointer())
				})
			}
		}
	}
}

// TestPack holds packing against the loops in Go, to the bit.
func TestPack(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, set := range setsHere() {
		for e := F32; e < elements; e++ {
			for form, fs := range map[string][2]Pack{
				"Lanes": {set.Lanes[e], portable.Lanes[e]}, "Transpose": {set.Transpose[e], portable.Transpose[e]},
			} {
				limit := 32
				if form == "Transpose" {
					limit = 16
				}
				for range 200 {
					width := 1 + rng.IntN(limit)
					n, k := 1+rng.IntN(width), rng.IntN(70)
					rows, cols := k, n
					if form == "Transpose" {
						rows, cols = n, k
					}
					lds := e.Size() * (cols + rng.IntN(3))
					s := newGuarded(max(0, (rows-1)*lds+e.Size()*cols))
					floats(rng, s.data, e)
					steps := k
					if e == Pairs {
						steps = (k + 1) / 2
					}
					ldd := 4 * (width + rng.IntN(3))
					got, want := newGuarded(max(0, (steps-1)*ldd+4*width)), newGuarded(max(0, (steps-1)*ldd+4*width))
					for i, g := range []*guarded{got, want} {
						fs[i](g.pointer(), ldd, s.pointer(), lds, k, 1<<n-1, 1<<width-1)
					}
					what := fmt.Sprintf("%s %s of element %d, k %d, %d of %d lanes", set.Name, form, e, k, n, width)
					got.check(t, what)
					if !bytes.Equal(got.data, want.data) {
						t.Fatalf("%s: got\n%x, want\n%x", what, got.data, want.data)
					}
				}
			}
		}
	}
}

// TestConvert holds conversions against package dtype: all 16-bit patterns
// one way, and the other way those with every fraction that decides about
// rounding, for lengths that end anywhere.
func TestConvert(t *testing.T) {
	all16 := make([]uint16, 1<<16)
	for i := range all16 {
		all16[i] = uint16(i)
	}
	var words []uint32
	for i := range uint32(1 << 16) {
		for _, low := range []uint32{0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff} {
			words = append(words, i<<16|low)
		}
	}
	for _, set := range setsHere() {
		for e, d := range map[Element]dtype.DType{F16: dtype.Float16, BF16: dtype.BFloat16} {
			wide := make([]float32, len(all16))
			set.Widen[e](unsafe.Pointer(&wide[0]), unsafe.Pointer(&all16[0]), len(all16))
			for i, x := range wide {
				want := dtype.F16ToF32(uint16(i))
				if d == dtype.BFloat16 {
					want = dtype.BF16ToF32(uint16(i))
				}
				if math.Float32bits(x) != math.Float32bits(want) {
					t.Fatalf("%s: %v %#04x widened is %#08x, want %#08x", set.Name, d, i, math.Float32bits(x), math.Float32bits(want))
				}
			}
			half := make([]uint16, len(words))
			set.Narrow[e](unsafe.Pointer(&half[0]), unsafe.Pointer(&words[0]), len(words))
			for i, w := range words {
				want := dtype.F16FromF32(math.Float32frombits(w))
				if d == dtype.BFloat16 {
					want = dtype.BF16FromF32(math.Float32frombits(w))
				}
				if half[i] != want {
					t.Fatalf("%s: %#08x narrowed to %v is %#04x, want %#04x", set.Name, w, d, half[i], want)
				}
			}
			if d == dtype.Float16 {
				rounded := slices.Clone(words)
				set.Widen[RoundF16](unsafe.Pointer(&rounded[0]), unsafe.Pointer(&words[0]), len(words))
				for i, w := range rounded {
					if want := math.Float32bits(dtype.F16ToF32(half[i])); w != want {
						t.Fatalf("%s: %#04x, rounded at once, is %#08x, want %#08x", set.Name, half[i], w, want)
					}
				}
			}
			for n := range 40 {
				g, b := newGuarded(4*n), newGuarded(2*n)
				set.Widen[e](g.pointer(), b.pointer(), n)
				g.check(t, fmt.Sprint(set.Name, " widen ", n))
				set.Narrow[e](b.pointer(), g.pointer(), n)
				b.check(t, fmt.Sprint(set.Name, " narrow ", n))
			}
		}
	}
}

// TestTall holds kernels that go down rows against kernels of a tile, bit by bit.
func TestTall(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for _, set := range setsHere() {
		tiles := set.F32
		if tiles.Tall == nil {
			continue
		}
		for _, k := range []int{1, 3, 4, 27, 64} {
			for _, n := range []int{1, 2, 5} {
				for mode := range 4 {
					rows := n * tiles.MR
					lda, ldb, ldd := 4*(k+rng.IntN(3)), 4*(tiles.NR+rng.IntN(3)), 4*(tiles.NR+rng.IntN(3))
					a, b, bias := newGuarded((rows-1)*lda+4*k), newGuarded((k-1)*ldb+4*tiles.NR), newGuarded(4*tiles.NR)
					got, want := newGuarded((rows-1)*ldd+4*tiles.NR), newGuarded((rows-1)*ldd+4*tiles.NR)
					for _, x := range []*guarded{a, b, bias} {
						floats(rng, x.data, F32)
					}
					if mode == 3 {
						dtype.View[float32](a.data)[0] = float32(math.NaN())
					}
					var s, least unsafe.Pointer
					zero := float32(0)
					if mode&1 != 0 {
						s = bias.pointer()
					}
					if mode&2 != 0 {
						least = unsafe.Pointer(&zero)
					}
					tiles.Tall(n, k, a.pointer(), lda, b.pointer(), ldb, s, least, got.pointer(), ldd)
					for i := range n {
						at := i * tiles.MR
						tiles.Rows[tiles.MR](k, unsafe.Add(a.pointer(), at*lda), lda, b.pointer(), ldb, s, 0, unsafe.Add(want.pointer(), at*ldd), ldd, 1<<tiles.NR-1)
					}
					what := fmt.Sprintf("%s: %d tiles of %d steps, mode %d", set.Name, n, k, mode)
					got.check(t, what)
					x, y := dtype.View[float32](got.data), dtype.View[float32](want.data)
					for i := range rows {
						for j := range tiles.NR {
							w := y[i*ldd/4+j]
							if least != nil && w < 0 {
								w = 0
							}
							if g := x[i*ldd/4+j]; math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
								t.Fatalf("%s: element %d of row %d is %v, want %v", what, j, i, g, w)
							}
						}
					}
				}
			}
		}
	}
}
