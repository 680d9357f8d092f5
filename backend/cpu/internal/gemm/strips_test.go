package gemm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestStrips: a StripKernel writes what a Kernel and NarrowLanes write, bit by bit, and
// nothing else, also where sums are subnormal, infinite or NaN.
func TestStrips(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0x1p-127, -0x1p-130, 0x1p-64, 0x1.8p-70, math.MaxFloat32}
	for _, set := range setsHere() {
		for _, kind := range []Element{F32, Pairs} {
			kernels, tiles := set.Strips[kind], set.F32
			if kernels == nil {
				continue
			}
			if kind == Pairs {
				tiles = set.Pairs
			}
			for rows := 1; rows <= tiles.MR; rows++ {
				for _, k := range []int{1, 2, 3, 4, 5, 8, 33} {
					for _, panels := range []int{0, 1, 2, 3} {
						last, ordinary, kernels := 1+rng.IntN(tiles.NR), rng.IntN(2) == 0, kernels
						if panels == 0 {
							panels, last, kernels = 1, 1+rng.IntN(tiles.NarrowNR), set.NarrowStrips[kind]
						}
						cols := (panels-1)*tiles.NR + last
						what := fmt.Sprintf("%s, element %d: %d×%d, k %d, ordinary numbers %v", set.Name, kind, rows, cols, k, ordinary)
						lda, ldd := 4*(k+rng.IntN(3)), 2*(cols+rng.IntN(3))
						a, b := newGuarded((rows-1)*lda+4*k), newGuarded(4*panels*k*tiles.NR)
						for _, x := range [][]byte{a.data, b.data} {
							floats(rng, x, kind)
							if ordinary {
								continue
							}
							for i := 0; i < len(x); i += kind.Size() {
								if s := special[rng.IntN(len(special))]; rng.IntN(8) == 0 {
									d := dtype.Float32
									if kind == Pairs {
										d = dtype.BFloat16
									}
									dtype.FromF32(x[i:i+kind.Size()], []float32{s}, d)
								}
							}
						}
						got, want := newGuarded((rows-1)*ldd+2*cols), newGuarded((rows-1)*ldd+2*cols)
						kernels[rows](k, a.pointer(), lda, b.pointer(), panels, got.pointer(), ldd, 1<<last-1)
						sums := make([]float32, rows*tiles.NR)
						for panel := range panels {
							mask, d := uint(1)<<tiles.NR-1, unsafe.Pointer(&sums[0])
							if panel == panels-1 {
								mask = 1<<last - 1
							}
							tiles.Rows[rows](k, a.pointer(), lda, unsafe.Pointer(&b.data[4*panel*k*tiles.NR]), 4*tiles.NR, nil, 0, d, 4*tiles.NR, mask)
							set.NarrowLanes[BF16](unsafe.Pointer(&want.data[2*panel*tiles.NR]), ldd, d, 4*tiles.NR, rows, mask, mask)
						}
						got.check(t, what)
						if !bytes.Equal(got.data, want.data) {
							t.Fatalf("%s: the result is not that of a Kernel and NarrowLanes", what)
						}
					}
				}
			}
		}
	}
}
