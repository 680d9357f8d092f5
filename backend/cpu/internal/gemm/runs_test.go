package gemm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestRuns holds kernels on blocks against the loop in Go, with blocks in any
// order that overlap and end where the operand does.
func TestRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, set := range setsHere() {
		if set.Blocks == nil || set.Blocks.Runs[0] == nil {
			continue
		}
		tiles := set.Blocks
		for i := range tiles.Runs {
			for mr := tiles.Unit; mr < len(tiles.Runs[i]); mr += tiles.Unit {
				for _, n := range []int{1, 2, 3, 7} {
					testRuns(t, rng, set.Name, tiles, i+1, mr, n, false)
					testRuns(t, rng, set.Name, tiles, i+1, mr, n, true)
				}
			}
		}
		for range 100 {
			runs, cols, rows := 1+rng.IntN(PatchRuns), 1+rng.IntN(9), 1+rng.IntN(4)
			n := 1 + rng.IntN(32/runs)
			lds, ldd := 2*(n+rng.IntN(3)), 64+2*rng.IntN(3)
			next, drow := 2*(n+rng.IntN(9)), cols*ldd+2*rng.IntN(3)
			srow := next + 2*rng.IntN(9)
			s := newGuarded((rows-1)*srow + (cols-1)*lds + (runs-1)*next + 2*n)
			floats(rng, s.data, BF16)
			size := (rows-1)*drow + (cols-1)*ldd + 64
			got, want := newGuarded(size), newGuarded(size)
			tiles.Patches(got.pointer(), ldd, drow, s.pointer(), lds, srow, cols, rows, runs, next, n)
			copyPatches(want.pointer(), ldd, drow, s.pointer(), lds, srow, cols, rows, runs, next, n)
			what := fmt.Sprintf("%s patches of %dx%d pixels, %d runs of %d", set.Name, rows, cols, runs, n)
			got.check(t, what)
			if !bytes.Equal(got.data, want.data) {
				t.Fatalf("%s: got\n%x, want\n%x", what, got.data, want.data)
			}
		}
	}
}

// TestCopy holds copies of lanes of pixels against the loop in Go.
func TestCopy(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 7))
	for _, set := range setsHere() {
		for _, tiles := range []*Tiles{set.Pairs, set.Blocks} {
			if tiles == nil || tiles.Copy == nil {
				continue
			}
			for range 200 {
				width := 1 + rng.IntN(32)
				n, cols, rows := rng.IntN(width+1), rng.IntN(10), rng.IntN(4)
				lds, ldd := 2*(n+rng.IntN(3)), 2*(width+rng.IntN(3))
				srow, drow := cols*lds+2*rng.IntN(3), cols*ldd+2*rng.IntN(3)
				s := newGuarded(max(0, rows-1)*srow + max(0, cols-1)*lds + 2*n)
				floats(rng, s.data, BF16)
				size := max(0, rows-1)*drow + max(0, cols-1)*ldd + 2*width
				got, want := newGuarded(size), newGuarded(size)
				tiles.Copy(got.pointer(), ldd, drow, s.pointer(), lds, srow, cols, rows, 1<<n-1, 1<<width-1)
				copyLanes(want.pointer(), ldd, drow, s.pointer(), lds, srow, cols, rows, 1<<n-1, 1<<width-1)
				what := fmt.Sprintf("%s copy of %dx%d pixels, %d of %d lanes", set.Name, rows, cols, n, width)
				got.check(t, what)
				if !bytes.Equal(got.data, want.data) {
					t.Fatalf("%s: got\n%x, want\n%x", what, got.data, want.data)
				}
			}
		}
	}
}

func testRuns(t *testing.T, rng *rand.Rand, set string, tiles *Tiles, parts, mr, n int, add bool) {
	what := fmt.Sprintf("%s %d parts, %d rows, %d blocks, added %v", set, parts, mr, n, add)
	deep := 4 * tiles.Deep
	lda, ldd := deep+2*rng.IntN(9), 4*(tiles.NR+rng.IntN(3))
	room := 2 * rng.IntN(40)
	lowA, lowB := room+mr*lda+2*rng.IntN(9), n*deep*tiles.NR+2*rng.IntN(9)
	a := newGuarded((parts-1)*lowA + room + (mr-1)*lda + deep)
	b := newGuarded((parts-1)*lowB + n*deep*tiles.NR)
	floats(rng, a.data, Pairs)
	floats(rng, b.data, Pairs)
	at := make([]int64, n)
	for q := range at {
		at[q] = int64(2 * rng.IntN(room/2+1))
	}
	at[n-1] = int64(room)
	got, want := newGuarded((mr-1)*ldd+4*tiles.NR), newGuarded((mr-1)*ldd+4*tiles.NR)
	floats(rng, got.data, F32)
	copy(want.data, got.data)
	var sg, sw unsafe.Pointer
	if add {
		sg, sw = got.pointer(), want.pointer()
	}
	next := unsafe.Pointer(nil)
	if n%2 == 1 {
		next = b.pointer()
	}
	runtime.LockOSThread()
	tiles.Begin()
	tiles.Runs[parts-1][mr](n, a.pointer(), lda, lowA, unsafe.Pointer(&at[0]), b.pointer(), lowB, sg, ldd, got.pointer(), ldd, next)
	tiles.End()
	runtime.UnlockOSThread()
	RunsReference(parts, mr, tiles.NR, tiles.Deep)(n, a.pointer(), lda, lowA, unsafe.Pointer(&at[0]), b.pointer(), lowB, sw, ldd, want.pointer(), ldd, nil)
	got.check(t, what)
	terms := float64(parts*parts*n*tiles.Deep*tiles.Step + 1)
	// Terms of magnitude 1, each added with a rounding.
	tol := terms * terms * dtype.Float32.Epsilon()
	g, w := dtype.View[float32](got.data), dtype.View[float32](want.data)
	for i := range g {
		if math.Abs(float64(g[i])-float64(w[i])) > tol {
			t.Fatalf("%s: element %d of row %d: got %v, want %v", what, i*4%ldd/4, i*4/ldd, g[i], w[i])
		}
	}
}

// TestWindows holds the loops over windows against what they say.
func TestWindows(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, set := range setsHere() {
		if set.Depthwise == nil {
			continue
		}
		for range 300 {
			n, taps, cols := 1+rng.IntN(11), rng.IntN(10), 1+rng.IntN(32)
			ld := 4 * (cols + rng.IntN(5))
			mask := uint(1)<<cols - 1
			x, y := make([]float32, 4096), make([]float32, 2048)
			for i := range x {
				x[i], y[i/2] = rng.Float32()-0.5, rng.Float32()-0.5
			}
			if rng.IntN(4) == 0 {
				x[rng.IntN(512)], x[rng.IntN(512)] = float32(math.NaN()), float32(math.Inf(-1))
			}
			pairs := make([]int64, 2*taps+1)
			for i := range taps {
				pairs[2*i], pairs[2*i+1] = int64(4*rng.IntN(300)), int64(128*i)
			}
			value := func(at int64, i, j int) float64 { return float64(x[(int(at)+i*ld)/4+j]) }
			check := func(what string, d *guarded, ds, rows int, want func(i, j int) float64) {
				t.Helper()
				d.check(t, what)
				got := dtype.View[float32](d.data)
				for i := range rows {
					for j := range cols {
						// Sums of up to 11 products of up to ¼, after one of up to 1.
						g, w := float64(got[i*ds/4+j]), want(i, j)
						same := g == w || g != g && w != w
						if !same && !(math.Abs(g-w) <= 16*dtype.Float32.Epsilon()) {
							t.Fatalf("%s %s, %d pixels, %d elements, %d channels: element %d of %d: got %v, want %v", set.Name, what, n, taps, cols, j, i, g, w)
						}
					}
				}
			}
			d := newGuarded((n-1)*ld + 4*cols)
			set.Depthwise(n, taps, unsafe.Pointer(&pairs[0]), unsafe.Pointer(&x[0]), ld, unsafe.Pointer(&y[0]), 0, d.pointer(), ld, mask)
			check("own", d, ld, n, func(i, j int) (sum float64) {
				for k := range taps {
					sum += value(pairs[2*k], i, j) * float64(y[pairs[2*k+1]/4+int64(j)])
				}
				return
			})
			if set.DepthwiseRow != nil {
				testDepthwiseRow(t, set, n, taps, cols, ld, pairs, x, y)
			}
			if set.DepthwiseNine != nil {
				testDepthwiseNine(t, set, n, 1+rng.IntN(70), rng.IntN(40), rng.IntN(9), x, y)
				testDepthwiseNine(t, set, n, 8*(1+rng.IntN(9)), rng.IntN(40), rng.IntN(9), x, y)
			}
			if set.DepthwiseAdd == nil {
				continue
			}
			d = newGuarded((n-1)*ld + 4*cols)
			floats(rng, d.data, F32)
			first := append([]float32(nil), dtype.View[float32](d.data)...)
			set.DepthwiseAdd(n, taps, unsafe.Pointer(&pairs[0]), unsafe.Pointer(&x[0]), ld, unsafe.Pointer(&y[0]), 0, d.pointer(), ld, mask)
			check("added", d, ld, n, func(i, j int) float64 {
				sum := float64(first[i*ld/4+j])
				for k := range taps {
					sum += value(pairs[2*k], i, j) * float64(y[pairs[2*k+1]/4+int64(j)])
				}
				return sum
			})
			d = newGuarded(128 * max(1, taps))
			floats(rng, d.data, F32)
			before := append([]float32(nil), dtype.View[float32](d.data)...)
			set.DepthwiseGrad(n, taps, unsafe.Pointer(&pairs[0]), unsafe.Pointer(&x[0]), ld, unsafe.Pointer(&y[0]), ld, d.pointer(), 0, mask)
			check("gradient", d, 128, taps, func(k, j int) float64 {
				sum := float64(before[32*k+j])
				for i := range n {
					sum += value(pairs[2*k], i, j) * float64(y[i*ld/4+j])
				}
				return sum
			})
		}
	}
}

// testDepthwiseRow compares a row with a bias and a least result with the row without them.
func testDepthwiseRow(t *testing.T, set *Set, n, taps, cols, ld int, pairs []int64, x, y []float32) {
	t.Helper()
	sums, got := newGuarded((n-1)*ld+4*cols), newGuarded((n-1)*ld+4*cols)
	call := func(bias, d unsafe.Pointer) {
		set.DepthwiseRow(n, taps, unsafe.Pointer(&pairs[0]), unsafe.Pointer(&x[0]), ld, unsafe.Pointer(&y[0]), bias, d, ld, cols)
	}
	bias := append(make([]float32, 8), y[1024:1024+32]...)
	for _, least := range []float32{0, float32(math.Inf(-1))} {
		for i := range 8 {
			bias[i] = least
		}
		call(nil, sums.pointer())
		call(unsafe.Pointer(&bias[0]), got.pointer())
		got.check(t, set.Name+" DepthwiseRow")
		a, b := dtype.View[float32](sums.data), dtype.View[float32](got.data)
		for i := range n {
			for j := range cols {
				at := i*ld/4 + j
				want := a[at] + bias[8+j]
				if want < least {
					want = least
				}
				if math.Float32bits(b[at]) != math.Float32bits(want) && (b[at] == b[at] || want == want) {
					t.Fatalf("%s DepthwiseRow: channel %d of %d of pixel %d with bias %v and least result %v: got %v, want %v", set.Name, j, cols, i, bias[8+j], least, b[at], want)
				}
			}
		}
	}
}

// testDepthwiseNine compares DepthwiseNine with DepthwiseRow, for rows and columns that are so
// many elements apart, or that follow each other in the other direction.
func testDepthwiseNine(t *testing.T, set *Set, n, channels, row, column int, x, y []float32) {
	t.Helper()
	if n%2 == 0 {
		row, column = -row, -column
	}
	var pairs []int64
	for k := range 9 {
		kernel := k
		if n%3 == 0 {
			kernel = 8 - k
		}
		pairs = append(pairs, int64(4*(k/3*row+k%3*column)), int64(4*112*kernel))
	}
	bias := append(append(make([]float32, 8), y[1024:1024+112]...), 0)
	pixel := 4 * (channels + n%3)
	for _, b := range []unsafe.Pointer{nil, unsafe.Pointer(&bias[0])} {
		want, got := newGuarded((n-1)*pixel+4*channels), newGuarded((n-1)*pixel+4*channels)
		at, source, kernels := unsafe.Pointer(&pairs[0]), unsafe.Pointer(&x[512]), unsafe.Pointer(&y[0])
		set.DepthwiseRow(n, 9, at, source, pixel, kernels, b, want.pointer(), pixel, channels)
		set.DepthwiseNine(n, 9, at, source, pixel, kernels, b, got.pointer(), pixel, channels)
		got.check(t, set.Name+" DepthwiseNine")
		for i := range n {
			at := i * pixel
			if !bytes.Equal(got.data[at:at+4*channels], want.data[at:at+4*channels]) {
				t.Fatalf("%s DepthwiseNine of %d channels, bias %v: pixel %d is not that of DepthwiseRow", set.Name, channels, b != nil, i)
			}
		}
	}
}

// TestTaps holds the loops over elements of windows of few channels against what
// they say, with sums that are negative, that round to -0, and NaNs.
func TestTaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, set := range setsHere() {
		for e, d := range map[Element]dtype.DType{F32: dtype.Float32, F16: dtype.Float16, BF16: dtype.BFloat16} {
			for p := 1; p < len(set.SmallChannel[e]); p++ {
				for round := range 12 {
					n, taps, cols, size := rng.IntN(3), rng.IntN(10), 1+rng.IntN(32), d.Size()
					ds, xs := size*(cols+rng.IntN(3)), 4*(1+rng.IntN(3))
					scale := []float64{1, 0x1p-26, 0x1p-134}[round%3]
					x, y := make([]float32, 256), make([]float32, 32*(taps+2))
					for i := range x {
						x[i] = float32(rng.IntN(9) - 4)
					}
					for i := range y {
						y[i] = float32(float64(rng.IntN(9)-4) * scale / 4)
					}
					if round%4 == 0 {
						x[rng.IntN(9)] = float32(math.NaN())
					}
					least := math.Inf(-1)
					if round%2 == 0 {
						least = map[Element]float64{F32: 0, F16: -0x1p-25, BF16: -0x1p-134}[e]
					}
					y[32*taps+32] = float32(least)
					at := make([]int64, 2*taps+1)
					for i := range taps {
						at[2*i], at[2*i+1] = int64(4*rng.IntN(100)), int64(128*i)
					}
					got := newGuarded(max(0, (n*p-1)*ds+size*cols))
					set.SmallChannel[e][p](n, taps, unsafe.Pointer(&at[0]), unsafe.Pointer(&x[0]), xs, unsafe.Pointer(&y[0]), 128*taps, got.pointer(), ds, 1<<cols-1)
					what := fmt.Sprintf("%s, %d times %d pixels, %d elements, %d channels to %v", set.Name, n, p, taps, cols, d)
					got.check(t, what)
					for i := range n * p {
						for j := range cols {
							place := j
							if e == BF16 {
								place = j%2*16 + j/2
							}
							// All that is added up is a multiple of a small number: exact.
							sum := float32(0)
							for k := range taps {
								sum += x[(int(at[2*k])+i*xs)/4] * y[32*k+place]
							}
							var want [2]byte
							rounded := func(v float32) float32 {
								if d == dtype.Float32 {
									return v
								}
								dtype.FromF32(want[:], []float32{v}, d)
								var w [1]float32
								dtype.ToF32(w[:], want[:], d)
								return w[0]
							}
							z := rounded(sum) + y[32*taps+place]
							w := rounded(z)
							if float64(z) < least {
								w = 0
							}
							var g [1]float32
							dtype.ToF32(g[:], got.data[i*ds+j*size:][:size], d)
							if g[0] != w && (g[0] == g[0] || w == w) || math.Signbit(float64(g[0])) != math.Signbit(float64(w)) && w == w {
								t.Fatalf("%s: element %d of pixel %d: got %v, want %v, of %v", what, j, i, g[0], w, sum)
							}
						}
					}
				}
			}
		}
	}
}

// TestTapsGrad holds the gradients of few channels by the kernels against what
// they say.
func TestTapsGrad(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for _, set := range setsHere() {
		for e, d := range map[Element]dtype.DType{F32: dtype.Float32, F16: dtype.Float16, BF16: dtype.BFloat16} {
			for p := 1; p < len(set.SmallChannelGrad[e]); p++ {
				for range 20 {
					n, rows, cols, size := rng.IntN(6), rng.IntN(4), 1+rng.IntN(32), d.Size()
					xs, ys := 4*(1+rng.IntN(3)), size*(cols+rng.IntN(3))
					skip := 4 * rng.IntN(9)
					x, at := make([]float32, 256), make([]int64, 2*p)
					for i := range x {
						x[i] = float32(rng.IntN(9)-4) / 4
					}
					for i := range p {
						at[2*i], at[2*i+1] = int64(4*rng.IntN(60)), int64(128*i)
					}
					y, got := newGuarded(max(0, (n*rows-1)*ys+size*cols)), newGuarded(128*p)
					floats(rng, y.data, e)
					floats(rng, got.data, F32)
					sums := dtype.View[float32](got.data)
					before := append([]float32(nil), sums...)
					set.SmallChannelGrad[e][p](n, rows, unsafe.Pointer(&at[0]), unsafe.Pointer(&x[0]), xs, y.pointer(), ys, got.pointer(), skip, 1<<cols-1)
					what := fmt.Sprintf("%s, %d rows of %d pixels, %d elements, %d channels of %v", set.Name, rows, n, p, cols, d)
					got.check(t, what)
					for k := range p {
						for j := range 32 {
							want := float64(before[32*k+j])
							for i := range n * rows {
								if j < cols {
									var v [1]float64
									dtype.ToF64(v[:], y.data[i*ys+j*size:][:size], d)
									want += v[0] * float64(x[(int(at[2*k])+i%n*xs+i/n*(n*xs+skip))/4])
								}
							}
							// Sums of up to 16 numbers of magnitude 1.
							if g := float64(sums[32*k+j]); math.Abs(g-want) > 32*dtype.Float32.Epsilon() {
								t.Fatalf("%s: element %d of sum %d: got %v, want %v", what, j, k, g, want)
							}
						}
					}
				}
			}
		}
	}
}

// TestNarrowLanes holds the rounding of rows against that of slices, to the bit.
func TestNarrowLanes(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for _, set := range setsHere() {
		for e, f := range set.NarrowLanes {
			if f == nil {
				continue
			}
			for range 200 {
				n, rows := 1+rng.IntN(32), rng.IntN(4)
				lds, ldd := 4*(n+rng.IntN(3)), 2*(n+rng.IntN(3))
				s, got := newGuarded(max(0, (rows-1)*lds+4*n)), newGuarded(max(0, (rows-1)*ldd+2*n))
				x := dtype.View[float32](s.data)
				for i := range x {
					x[i] = math.Float32frombits(rng.Uint32() >> rng.IntN(3) << (16 * rng.IntN(2)))
				}
				f(got.pointer(), ldd, s.pointer(), lds, rows, 0, 1<<n-1)
				got.check(t, set.Name)
				for r := range rows {
					want := make([]byte, 2*n)
					set.Narrow[e](unsafe.Pointer(&want[0]), unsafe.Add(s.pointer(), r*lds), n)
					if !bytes.Equal(got.data[r*ldd:][:2*n], want) {
						t.Fatalf("%s: %d of type %d: row %d is %x, want %x of %v", set.Name, n, e, r, got.data[r*ldd:][:2*n], want, x[r*lds/4:][:n])
					}
				}
			}
		}
	}
}

// TestTransforms holds Winograd's transforms against products of matrices.
func TestTransforms(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, set := range setsHere() {
		for _, c := range []struct {
			name string
			f    Transform
			m    [][]float64
		}{
			{"source", set.WinogradSource, [][]float64{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}}},
			{"result", set.WinogradResult, [][]float64{{1, 1, 1, 0}, {0, 1, -1, -1}}},
			{"grads", set.WinogradGrads, [][]float64{{1, 0}, {1, 1}, {1, -1}, {0, -1}}},
		} {
			if c.f == nil {
				continue
			}
			for range 100 {
				p, q := len(c.m), len(c.m[0])
				n, channels := rng.IntN(5), 1+rng.IntN(32)
				pixel := 4 * (channels + rng.IntN(3))
				x := newGuarded(max(0, (q-1)*(n+1)*q*pixel+((n-1)*q+q-1)*pixel+4*channels))
				floats(rng, x.data, F32)
				ds := 4 * (channels + rng.IntN(3))
				element := n*ds + 4
				got := newGuarded((p*p-1)*element + max(0, n-1)*ds + 4*channels)
				floats(rng, got.data, F32)
				before := append([]float32(nil), dtype.View[float32](got.data)...)
				row := (n + 1) * q * pixel
				c.f(n, x.pointer(), row, pixel, q*pixel, got.pointer(), p*element, element, ds, 1<<channels-1)
				got.check(t, set.Name+" "+c.name)
				values, sums := dtype.View[float32](x.data), dtype.View[float32](got.data)
				for tile := range n {
					for e := range p * p {
						for ch := range channels {
							want := 0.0
							for r := range q {
								for s := range q {
									want += c.m[e/p][r] * c.m[e%p][s] * float64(values[(tile*q*pixel+r*row+s*pixel)/4+ch])
								}
							}
							at := (e*element+tile*ds)/4 + ch
							// Sums of up to 9 numbers of magnitude 1.
							if math.Abs(float64(sums[at])-want) > 16*dtype.Float32.Epsilon() {
								t.Fatalf("%s %s: element %d of tile %d of %d, channel %d of %d: got %v, want %v", set.Name, c.name, e, tile, n, ch, channels, sums[at], want)
							}
							before[at] = sums[at]
						}
					}
				}
				for i, v := range before {
					if v != sums[i] {
						t.Fatalf("%s %s wrote element %d, between channels", set.Name, c.name, i)
					}
				}
			}
		}
	}
}

// TestMaxima: of windows that do not overlap, and their gradients, in every type.
func TestMaxima(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, set := range setsHere() {
		for round := range 200 {
			for e, d := range map[Element]dtype.DType{F32: dtype.Float32, F16: dtype.Float16, BF16: dtype.BFloat16} {
				if set.MaxPool[e] == nil {
					continue
				}
				n, taps, cols, size := 1+rng.IntN(5), rng.IntN(5), 1+rng.IntN(32), d.Size()
				pixel := size * (cols + rng.IntN(3))
				// Window i has the pixels i·taps to (i+1)·taps-1, in any order.
				at := make([]int64, taps+1)
				for i, j := range rng.Perm(taps) {
					at[i] = int64(j * pixel)
				}
				step := max(1, taps) * pixel
				random := func(bytes int) []byte {
					x := make([]float32, bytes/size)
					for i := range x {
						x[i] = float32(rng.IntN(5) - 3 + round%3)
					}
					if round%4 == 0 {
						x[rng.IntN(len(x))] = float32(math.NaN())
					}
					out := make([]byte, len(x)*size)
					dtype.FromF32(out, x, d)
					return out
				}
				x, y := random(n*step), random((n-1)*pixel+size*cols)
				value := func(data []byte, bytes int) float64 {
					var v [1]float64
					dtype.ToF64(v[:], data[bytes:bytes+size], d)
					return v[0]
				}
				call := func(f Windows, y unsafe.Pointer, bytes, ds int) []byte {
					out := newGuarded(bytes)
					f(n, taps, unsafe.Pointer(&at[0]), unsafe.Pointer(&x[0]), step, y, pixel, out.pointer(), ds, uint(1)<<cols-1)
					out.check(t, set.Name)
					return out.data
				}
				most := call(set.MaxPool[e], nil, (n-1)*pixel+size*cols, pixel)
				var grads [][]byte
				for _, f := range []Windows{set.MaxPoolGrad[e], set.ReluMaxPoolGrad[e]} {
					if f != nil {
						grads = append(grads, call(f, unsafe.Pointer(&y[0]), n*step-pixel+size*cols, step))
					}
				}
				for i := range n {
					for c := range cols {
						best, first := math.Inf(-1), -1
						for k := range taps {
							v := value(x, i*step+int(at[k])+size*c)
							if v > best || v != v && best == best || first < 0 && v == best {
								best, first = v, k
							}
						}
						if got := value(most, i*pixel+size*c); got != best && (got == got || best == best) {
							t.Fatalf("%s %v: the maximum of window %d, channel %d, is %v, want %v", set.Name, d, i, c, got, best)
						}
						for j, grad := range grads {
							for k := range taps {
								want := 0.0
								if k == first && (j == 0 || best > 0) {
									want = value(y, i*pixel+size*c)
								}
								if got := value(grad, i*step+int(at[k])+size*c); got != want && (got == got || want == want) {
									t.Fatalf("%s %v: gradient %d of element %d of window %d, channel %d, is %v, want %v", set.Name, d, j, k, i, c, got, want)
								}
							}
						}
					}
				}
			}
		}
	}
}
