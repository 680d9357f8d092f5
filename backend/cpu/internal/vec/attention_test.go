package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// scoreBlock is rows of n numbers with room for whole vectors and more, and guards
// before, between and after the rows.
type scoreBlock struct {
	data  []float32
	ld, n int // elements
	rows  int
}

const scoreGuard = 4321

func newScoreBlock(rng *rand.Rand, n, all, rows int) *scoreBlock {
	b := &scoreBlock{ld: all + 19, n: n, rows: rows}
	b.data = make([]float32, 16+rows*b.ld)
	for i := range b.data {
		b.data[i] = scoreGuard
	}
	for r := range rows {
		for i := range n {
			b.row(r)[i] = 8*rng.Float32() - 4
		}
		for i := n; i < all; i++ {
			b.row(r)[i] = float32(math.NaN()) // any previous contents
		}
	}
	return b
}

func (b *scoreBlock) row(r int) []float32 { return b.data[16+r*b.ld:] }

func (b *scoreBlock) at() unsafe.Pointer { return unsafe.Pointer(&b.data[16]) }

// weights returns the first n weights of row r.
func (b *scoreBlock) weights(r, n int, half bool) []float64 {
	x, d := make([]float64, n), dtype.Float32
	if half {
		d = dtype.BFloat16
	}
	row := b.row(r)
	dtype.ToF64(x, unsafe.Slice((*byte)(unsafe.Pointer(&row[0])), n*d.Size()), d)
	return x
}

func (b *scoreBlock) guarded(t *testing.T, all int) {
	t.Helper()
	for i, v := range b.data {
		if at := (i - 16) % b.ld; (i < 16 || at >= all) && v != scoreGuard {
			t.Fatalf("element %d, %d of a row of %d, was written", i, at, b.n)
		}
	}
}

// TestScores compares the loops over scores with their definitions in float64, for rows
// of every length up to some vectors.
func TestScores(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	forEachSet(t, func(t *testing.T, s *Set) {
		if s.Scores == nil {
			return
		}
		for _, half := range []bool{false, true} {
			weigh, slopes, choose, rel := s.Weigh, s.Slopes, s.Choose, 0x1p-22
			if half {
				if !cpu.X86.HasAVX512BF16 {
					continue
				}
				weigh, slopes, choose, rel = s.WeighBF16, s.SlopesBF16, s.ChooseU16, 0x1p-8+0x1p-13
			}
			// A difference, its factor and their product are rounded, relative to the
			// exponent.
			power := func(exponent float64) (e, off float64) {
				e = math.Exp(exponent)
				return e, e * (rel - max(-200, exponent)*0x1p-22)
			}
			for n := 1; n < 150; n++ {
				const rows = 3
				all := (n + 15 + 16*(n%3)) &^ 15
				what := fmt.Sprintf("half %v, rows of %d: ", half, n)
				near := func(kind string, got, want, off float64) {
					t.Helper()
					if !(math.Abs(got-want) <= off) {
						t.Fatalf("%s%s is %v, want %v ± %.2g", what, kind, got, want, off)
					}
				}
				inf := float32(math.Inf(-1))
				x := newScoreBlock(rng, n, all, rows)
				before := append([]float32(nil), x.data...)
				old := func(r, i int) float64 { return float64(before[16+r*x.ld+i]) }
				top, sum, numbers := []float32{-9, 5, inf}, make([]float32, rows), []float32{0.75, 1.5}
				weigh(x.at(), 4*x.ld, n, all, rows, unsafe.Pointer(&top[0]), unsafe.Pointer(&sum[0]), unsafe.Pointer(&numbers[0]))
				x.guarded(t, all)
				for r := range rows {
					most, total := []float64{-9, 5, math.Inf(-1)}[r], 0.
					for i := range n {
						most = max(most, old(r, i))
					}
					near("the largest", float64(top[r]), most, 0)
					for i, v := range x.weights(r, all, half) {
						want, off := 0., 0.
						if i < n {
							want, off = power(0.75 * (old(r, i) - most))
						}
						near("a weight", v, want, off)
						total += want
					}
					near("the sum", float64(sum[r]), total, (0x1p-20+map[bool]float64{true: 0x1p-18}[half])*total)
				}

				x, d := newScoreBlock(rng, n, all, rows), newScoreBlock(rng, n, all, rows)
				for i := range min(n, 3) {
					x.row(1)[i] = inf
				}
				before = append([]float32(nil), x.data...)
				dx := append([]float32(nil), d.data...)
				// No score is above the largest, except the second row's.
				top, inverse, mean := []float32{4, 1, 0}, []float32{0.5, 0.25, 0}, []float32{0.5, -2, 1}
				slopes(x.at(), d.at(), 4*x.ld, n, all, rows, unsafe.Pointer(&top[0]), unsafe.Pointer(&inverse[0]), unsafe.Pointer(&mean[0]), unsafe.Pointer(&numbers[0]))
				x.guarded(t, all)
				d.guarded(t, all)
				for r := range rows {
					w, g := x.weights(r, all, half), d.weights(r, all, half)
					for i := range all {
						want, off, slope := 0., 0., 0.
						if i < n {
							want, off = power(0.75 * min(0, old(r, i)-float64(top[r])))
							want, off = want*float64(inverse[r]), off*float64(inverse[r])
							slope = want * (1.5*float64(dx[16+r*d.ld+i]) - float64(mean[r]))
						}
						near("a weight again", w[i], want, off)
						near("a slope", g[i], slope, 2*rel*math.Abs(slope)+off*math.Abs(slope/max(want, 1e-30))+want*0x1p-20)
					}
				}

				x = newScoreBlock(rng, n, n, rows)
				before = append([]float32(nil), x.data...)
				step, flags := n+5, make([]byte, rows*(n+5))
				for i := range flags {
					flags[i] = byte(rng.IntN(3))
				}
				choose(x.at(), unsafe.Pointer(&flags[0]), 4*x.ld, step, n, rows, float32(math.Inf(-1)))
				x.guarded(t, n)
				for r := range rows {
					was := x.weights(r, n, half)
					y := &scoreBlock{data: before, ld: x.ld, n: n, rows: rows}
					for i, v := range y.weights(r, n, half) {
						if flags[r*step+i] == 0 {
							v = math.Inf(-1)
						}
						if was[i] != v && (v == v || was[i] == was[i]) {
							t.Fatalf("%selement %d of row %d is %v after the choice, want %v", what, i, r, was[i], v)
						}
					}
				}
			}
			weighNothing(t, weigh, half)
		}
	})
}

// TestScoresFar: weights depend on the differences of scores alone, to the last bit. A
// score slightly above the largest, as another order of sums may give, has the largest
// weight.
func TestScoresFar(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) {
		const n, all, ld = 40, 48, 64
		compute := func(far float32) (weights, slopes []float32, sum float32) {
			x, d := make([]float32, ld), make([]float32, ld)
			for i := range n {
				x[i], d[i] = far-float32(i%9)*0x1p6, float32(i)
			}
			y := append([]float32(nil), x...)
			y[9] = far + 0x1p6
			if s.Scores == nil { // only that loop
				numbers := []float32{0.01, far, 1, 0}
				s.Exp2BelowSum(x[:n], x[:n], numbers)
				sum = numbers[3]
				s.Exp2BelowSum(y[:n], y[:n], numbers)
				return x[:n], y[:n], sum
			}
			top, inverse, mean, numbers := float32(math.Inf(-1)), float32(1), float32(0), []float32{0.01, 1}
			s.Weigh(unsafe.Pointer(&x[0]), 4*ld, n, all, 1, unsafe.Pointer(&top), unsafe.Pointer(&sum), unsafe.Pointer(&numbers[0]))
			s.Slopes(unsafe.Pointer(&y[0]), unsafe.Pointer(&d[0]), 4*ld, n, all, 1, unsafe.Pointer(&top), unsafe.Pointer(&inverse), unsafe.Pointer(&mean), unsafe.Pointer(&numbers[0]))
			if top != far {
				t.Errorf("the largest is %v, want %v", top, far)
			}
			return x[:n], y[:n], sum
		}
		weights, slopes, sum := compute(0)
		for _, far := range []float32{0x1p9, -0x1p20, 0x1p29} {
			w, sl, total := compute(far)
			if !slices.Equal(w, weights) || !slices.Equal(sl, slopes) || sum != total {
				t.Errorf("weights of scores near %v differ from those of scores near 0:\n%v, sum %v\n%v, sum %v", far, w, total, weights, sum)
			}
			if sl[9] != 1 || sl[0] != 1 || w[0] != 1 {
				t.Errorf("near %v: weights of the largest are %v and %v, of one above it %v, want 1", far, w[0], sl[0], sl[9])
			}
		}
	})
}

// weighNothing: rows of -∞ have weights of 0, a NaN reaches the sum, and the largest
// score so far is unchanged.
func weighNothing(t *testing.T, weigh func(x unsafe.Pointer, ld, n, all, rows int, top, sum, s unsafe.Pointer), half bool) {
	const n = 20
	x := &scoreBlock{data: make([]float32, 16+3*40), ld: 40, n: n, rows: 3}
	for r := range 3 {
		for i := range n {
			x.row(r)[i] = float32(math.Inf(-1))
		}
	}
	x.row(2)[7] = float32(math.NaN())
	top, sum, numbers := []float32{float32(math.Inf(-1)), 2, 3}, make([]float32, 3), []float32{1}
	weigh(x.at(), 4*x.ld, n, 32, 3, unsafe.Pointer(&top[0]), unsafe.Pointer(&sum[0]), unsafe.Pointer(&numbers[0]))
	if !math.IsInf(float64(top[0]), -1) || top[1] != 2 || sum[0] != 0 || sum[1] != 0 || sum[2] == sum[2] {
		t.Errorf("half %v: of nothing, the largest are %v and the sums %v", half, top, sum)
	}
	for r := range 2 {
		for i, v := range x.weights(r, 32, half) {
			if v != 0 {
				t.Fatalf("half %v: weight %d of nothing is %v", half, i, v)
			}
		}
	}
}

// TestScoreRows compares the loops that copy rows, scale them and multiply two with
// their definitions.
func TestScoreRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	forEachSet(t, func(t *testing.T, s *Set) {
		if s.Scores == nil {
			return
		}
		type of struct {
			dtype     dtype.DType
			scale, nt RowScale
			dot       func(dst, x, y unsafe.Pointer, ld, n, rows int)
		}
		types := []of{
			{dtype.Float32, s.RowScales.F32, s.RowScalesNT.F32, s.DotRows}, {dtype.Float16, s.RowScales.F16, s.RowScalesNT.F16, s.DotRowsF16},
			{dtype.BFloat16, s.RowScales.BF16, s.RowScalesNT.BF16, s.DotRowsBF16},
		}
		for _, c := range types {
			size := c.dtype.Size()
			rel, _ := c.dtype.Tolerance()
			for _, n := range []int{1, 2, 15, 16, 17, 31, 32, 33, 64, 70, 96, 128} {
				const rows = 5
				what := fmt.Sprintf("%v, rows of %d: ", c.dtype, n)
				x := newScoreBlock(rng, n, n, rows)
				by := []float32{2, 0, -0.5, 0, 1, 0, 0.25, 0, 3}
				for _, scale := range []RowScale{c.scale, c.nt} {
					to := Line * (n*size/Line + 2)
					dst := alignedTo(Line + rows*to)
					for i := range dst {
						dst[i] = 77
					}
					if whole := n*size%Line == 0; !whole {
						scale = c.scale
					}
					scale(unsafe.Pointer(&dst[Line]), x.at(), to, 4*x.ld, n, rows, unsafe.Pointer(&by[0]), 8)
					s.Fence()
					got := make([]float64, n)
					for r := range rows {
						dtype.ToF64(got, dst[Line+r*to:][:n*size], c.dtype)
						for i, v := range got {
							if want := float64(by[2*r]) * float64(x.row(r)[i]); !(math.Abs(v-want) <= rel*math.Abs(want)) {
								t.Fatalf("%selement %d is %v scaled, want %v", what, i, v, want)
							}
						}
						for _, v := range dst[Line+r*to+n*size : Line+(r+1)*to] {
							if v != 77 {
								t.Fatalf("%sscaling wrote behind a row", what)
							}
						}
					}
				}

				ld := 2 * (n*size + 6)
				a, b, dst := make([]byte, rows*ld), make([]byte, rows*ld), make([]float32, rows+1)
				va, vb := make([]float64, rows*ld/size), make([]float64, rows*ld/size)
				for _, v := range []struct {
					data []byte
					x    []float64
				}{{a, va}, {b, vb}} {
					for i := range v.x {
						v.x[i] = 2*rng.Float64() - 1
					}
					dtype.FromF64(v.data, v.x, c.dtype)
					dtype.ToF64(v.x, v.data, c.dtype)
				}
				c.dot(unsafe.Pointer(&dst[0]), unsafe.Pointer(&a[0]), unsafe.Pointer(&b[0]), ld, n, rows)
				for r, got := range dst {
					want := 0.
					for i := range n {
						if r < rows {
							want += va[r*ld/size+i] * vb[r*ld/size+i]
						}
					}
					if math.Abs(float64(got)-want) > float64(n)*0x1p-23 {
						t.Fatalf("%sthe product of rows %d is %v, want %v", what, r, got, want)
					}
				}

				copied := make([]byte, rows*(ld+8))
				s.CopyRows(unsafe.Pointer(&copied[0]), unsafe.Pointer(&a[0]), ld+8, ld, n*size, rows)
				for r := range rows {
					for i, v := range copied[r*(ld+8) : (r+1)*(ld+8)] {
						want := byte(0)
						if i < n*size {
							want = a[r*ld+i]
						}
						if v != want {
							t.Fatalf("%sbyte %d of row %d is %d when copied, want %d", what, i, r, v, want)
						}
					}
				}
			}
		}
	})
}
