package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestFinish holds what follows a product against the loop in Go, bit by bit,
// with rows that are apart and numbers of which there are several kinds.
func TestFinish(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0x1p-149, -0x1p-149}
	fill := func(b []byte) {
		x := dtype.View[float32](b)
		for i := range x {
			if x[i] = rng.Float32() - 0.5; rng.IntN(3) == 0 {
				x[i] = special[rng.IntN(len(special))]
			}
		}
	}
	// Powers of two whose reciprocals are normal numbers or not, and what is none.
	divisors := []float32{1, 32768, -0x1p-3, 0x1p126, 0x1p127, 0x1p-126, 0x1p-127, 0x1p-149, 3, 1e-3, 0, float32(math.Inf(-1)), float32(math.NaN())}
	for _, set := range setsHere() {
		if set.Relu == nil {
			continue
		}
		for cols := 1; cols <= 32; cols++ {
			for _, rows := range []int{1, 2, 5, 14} {
				what := fmt.Sprintf("%s: %d×%d", set.Name, rows, cols)
				ldd, ldy := cols+rng.IntN(3), cols+rng.IntN(3)
				size := func(ld int) int { return 4 * ((rows-1)*ld + cols) }
				d, y := newGuarded(size(ldd)), newGuarded(size(ldy))
				for _, finish := range []struct {
					name string
					do   Finish
					each func(x *float32, y float32, number *float32)
				}{
					{"Relu", set.Relu, func(x *float32, _ float32, _ *float32) {
						if *x < 0 {
							*x = 0
						}
					}},
					{"ReluGrad", set.ReluGrad, func(x *float32, y float32, _ *float32) {
						if !(y > 0) {
							*x = 0
						}
					}},
					{"Divide", set.Divide, func(x *float32, _ float32, number *float32) { *x /= *number }},
				} {
					fill(d.data)
					fill(y.data)
					number := &dtype.View[float32](y.data)[0]
					if rng.IntN(2) == 0 {
						*number = divisors[rng.IntN(len(divisors))]
					}
					want := slices.Clone(dtype.View[float32](d.data))
					for i := range rows {
						for j := range cols {
							finish.each(&want[i*ldd+j], dtype.View[float32](y.data)[i*ldy+j], number)
						}
					}
					finish.do(rows, d.pointer(), 4*ldd, y.pointer(), 4*ldy, 1<<cols-1)
					d.check(t, what)
					for i, x := range dtype.View[float32](d.data) {
						if math.Float32bits(x) != math.Float32bits(want[i]) && !(finish.name == "Divide" && x != x && want[i] != want[i]) {
							t.Fatalf("%s: %s: element %d is %v, want %v", what, finish.name, i, x, want[i])
						}
					}
				}
			}
		}
	}
}
