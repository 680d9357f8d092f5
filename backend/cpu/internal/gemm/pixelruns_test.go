package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestPixelRuns holds kernels that go through runs against the loop in Go, with
// runs in any order whose last one ends where the operands do.
func TestPixelRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, set := range setsHere() {
		type family struct {
			name    string
			tiles   *Tiles
			cols    int
			inner   bool
			kernels []PixelRuns
		}
		all := []family{{"inner", set.F32, set.F32.NR, true, set.PixelRuns}}
		for _, tiles := range []*Tiles{set.F32, set.Pairs} {
			if tiles != nil {
				all = append(all, family{"rows", tiles, tiles.NR, false, tiles.RowRuns}, family{"narrow rows", tiles, tiles.NarrowNR, false, tiles.NarrowRowRuns})
			}
		}
		for _, f := range all {
			for rows := 1; rows < len(f.kernels); rows++ {
				for _, n := range []int{1, 2, 5} {
					for _, add := range []bool{false, true} {
						what := fmt.Sprintf("%s %s of %d steps: %d rows, %d runs, added %v", set.Name, f.name, f.tiles.Step, rows, n, add)
						testPixelRuns(t, rng, what, f.kernels[rows], Reference(rows, f.cols, f.tiles.Step == 2, f.inner), rows, f.cols, n, f.inner, add, f.tiles)
					}
				}
			}
		}
	}
}

func testPixelRuns(t *testing.T, rng *rand.Rand, what string, kernel PixelRuns, reference Kernel, rows, cols, n int, inner, add bool, tiles *Tiles) {
	const most = 21 // steps of a run
	mask := uint(1)<<cols - 1
	if tiles.Masked {
		mask >>= rng.IntN(cols)
	}
	ldb, ldd := 4*tiles.NR, 4*(cols+rng.IntN(3))
	lda, room := 4*(most+rng.IntN(9)), 4*rng.IntN(40)
	sizeA := func(k int) int { return (rows-1)*lda + 4*k }
	if inner {
		lda = 4 * (rows + rng.IntN(5))
		sizeA = func(k int) int { return (k-1)*lda + 4*rows }
	}
	runs, steps := make([][3]int64, n), 0
	for i := range runs {
		k := 1 + rng.IntN(most)
		if i == n-1 {
			k = most
		}
		runs[i] = [3]int64{int64(4 * rng.IntN(room/4+1)), int64(steps * ldb), int64(k)}
		steps += k
	}
	runs[n-1][0] = int64(room)
	a, b := newGuarded(room+sizeA(most)), newGuarded((steps-1)*ldb+4*cols)
	element := F32
	if tiles.Step == 2 {
		element = Pairs
	}
	floats(rng, a.data, element)
	floats(rng, b.data, element)
	got, want := newGuarded((rows-1)*ldd+4*cols), newGuarded((rows-1)*ldd+4*cols)
	floats(rng, got.data, F32)
	copy(want.data, got.data)
	var sg, sw unsafe.Pointer
	if add {
		sg, sw = got.pointer(), want.pointer()
	}
	kernel(n, a.pointer(), lda, b.pointer(), ldb, sg, ldd, got.pointer(), ldd, mask, unsafe.Pointer(&runs[0]))
	for _, run := range runs {
		reference(int(run[2]), unsafe.Add(a.pointer(), run[0]), lda, unsafe.Add(b.pointer(), run[1]), ldb, sw, ldd, want.pointer(), ldd, mask)
		sw = want.pointer()
	}
	got.check(t, what)
	// Terms of magnitude 1, each added with a rounding.
	terms := float64(steps*tiles.Step + 1)
	tol := terms * terms * dtype.Float32.Epsilon()
	g, w := dtype.View[float32](got.data), dtype.View[float32](want.data)
	for i := range g {
		if math.Abs(float64(g[i])-float64(w[i])) > tol {
			t.Fatalf("%s: element %d of row %d: got %v, want %v", what, i*4%ldd/4, i*4/ldd, g[i], w[i])
		}
	}
}
