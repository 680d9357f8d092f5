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
		if set.Blocks == nil || set.Blocks.Runs == nil {
			continue
		}
		tiles := set.Blocks
		for mr := tiles.Unit; mr < len(tiles.Runs); mr += tiles.Unit {
			for _, n := range []int{1, 2, 3, 7} {
				for _, add := range []bool{false, true} {
					what := fmt.Sprintf("%s %d rows, %d blocks, added %v", set.Name, mr, n, add)
					deep := 4 * tiles.Deep
					lda, ldd := deep+2*rng.IntN(9), 4*(tiles.NR+rng.IntN(3))
					room := 2 * rng.IntN(40)
					a := newGuarded(room + (mr-1)*lda + deep)
					b := newGuarded(n * deep * tiles.NR)
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
					runtime.LockOSThread()
					tiles.Begin()
					tiles.Runs[mr](n, a.pointer(), lda, unsafe.Pointer(&at[0]), b.pointer(), sg, ldd, got.pointer(), ldd)
					tiles.End()
					runtime.UnlockOSThread()
					RunsReference(mr, tiles.NR, tiles.Deep)(n, a.pointer(), lda, unsafe.Pointer(&at[0]), b.pointer(), sw, ldd, want.pointer(), ldd)
					got.check(t, what)
					terms := float64(n*tiles.Deep*tiles.Step + 1)
					// Terms of magnitude 1, each added with a rounding.
					tol := terms * terms * dtype.Float32.Epsilon()
					g, w := dtype.View[float32](got.data), dtype.View[float32](want.data)
					for i := range g {
						if math.Abs(float64(g[i])-float64(w[i])) > tol {
							t.Fatalf("%s: element %d of row %d: got %v, want %v", what, i*4%ldd/4, i*4/ldd, g[i], w[i])
						}
					}
				}
			}
		}
		for range 200 {
			width := 1 + rng.IntN(32)
			n, k := 1+rng.IntN(width), 1+rng.IntN(9)
			lds, ldd := 2*(n+rng.IntN(3)), 2*(width+rng.IntN(3))
			s := newGuarded((k-1)*lds + 2*n)
			floats(rng, s.data, BF16)
			got, want := newGuarded((k-1)*ldd+2*width), newGuarded((k-1)*ldd+2*width)
			tiles.Copy(got.pointer(), ldd, s.pointer(), lds, k, 1<<n-1, 1<<width-1)
			copyLanes(want.pointer(), ldd, s.pointer(), lds, k, 1<<n-1, 1<<width-1)
			what := fmt.Sprintf("%s copy of %d rows, %d of %d lanes", set.Name, k, n, width)
			got.check(t, what)
			if !bytes.Equal(got.data, want.data) {
				t.Fatalf("%s: got\n%x, want\n%x", what, got.data, want.data)
			}
		}
	}
}
