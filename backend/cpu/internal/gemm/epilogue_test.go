package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// TestEpilogue holds the epilogue of a product against the loop in Go, bit by bit,
// with rows that are apart and numbers of which there are several kinds.
func TestEpilogue(t *testing.T) {
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
				for _, epilogue := range []struct {
					name string
					do   Epilogue
					each func(x *float32, y float32, number *float32)
				}{
					{"Relu", set.Relu, func(x *float32, _ float32, _ *float32) {
						if *x < 0 {
							*x = 0
						}
					}},
					{"AddRelu", set.AddRelu, func(x *float32, y float32, _ *float32) {
						if *x += y; *x < 0 {
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
					if epilogue.do == nil {
						continue
					}
					fill(d.data)
					fill(y.data)
					number := &dtype.View[float32](y.data)[0]
					if rng.IntN(2) == 0 {
						*number = divisors[rng.IntN(len(divisors))]
					}
					want := slices.Clone(dtype.View[float32](d.data))
					for i := range rows {
						for j := range cols {
							epilogue.each(&want[i*ldd+j], dtype.View[float32](y.data)[i*ldy+j], number)
						}
					}
					epilogue.do(rows, d.pointer(), 4*ldd, y.pointer(), 4*ldy, 1<<cols-1)
					d.check(t, what)
					for i, x := range dtype.View[float32](d.data) {
						if math.Float32bits(x) != math.Float32bits(want[i]) && !(epilogue.name == "Divide" && x != x && want[i] != want[i]) {
							t.Fatalf("%s: %s: element %d is %v, want %v", what, epilogue.name, i, x, want[i])
						}
					}
				}
			}
		}
	}
}

// TestLowPrecisionEpilogue holds the epilogue of a product of 16 bits against the loop in Go,
// bit by bit but for what is in a NaN: with every other operand, and sums that are
// halfway between two numbers, subnormal or not finite.
func TestLowPrecisionEpilogue(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for _, set := range setsHere() {
		for e, d := range map[Element]dtype.DType{F16: dtype.Float16, BF16: dtype.BFloat16} {
			from, to := dtype.F16ToF32, dtype.F16FromF32
			if e == BF16 {
				from, to = dtype.BF16ToF32, dtype.BF16FromF32
			}
			sum := func(x, y float32) float32 { return from(to(from(to(x)) + y)) }
			for name, epilogue := range map[string]struct {
				do   LowPrecisionEpilogue
				each func(x, y float32) float32
			}{
				"Add": {set.LowPrecision[e].Add, sum},
				"AddRelu": {set.LowPrecision[e].AddRelu, func(x, y float32) float32 {
					if z := sum(x, y); !(z < 0) {
						return z
					}
					return 0
				}},
				"Grad": {set.LowPrecision[e].Grad, func(x, y float32) float32 {
					if y > 0 {
						return x
					}
					return 0
				}},
			} {
				if epilogue.do == nil {
					continue
				}
				next := uint16(0) // of the words that y goes through
				for rows := 1; rows < 96; rows++ {
					cols := 1 + rng.IntN(32)
					if rows > 64 {
						rows, cols = 700, 32
					}
					lds, ldd, ldy := cols+rng.IntN(3), cols+rng.IntN(3), cols+rng.IntN(3)
					if rows%4 == 0 {
						ldy = 0 // the same row for all
					}
					s, out, y := newGuarded(4*((rows-1)*lds+cols)), newGuarded(2*((rows-1)*ldd+cols)), newGuarded(2*((rows-1)*ldy+cols))
					sums, words, others := dtype.View[float32](s.data), dtype.View[uint16](out.data), dtype.View[uint16](y.data)
					for i := range others {
						others[i], next = next, next+1
					}
					for i := range sums {
						switch rng.IntN(4) {
						case 0:
							sums[i] = math.Float32frombits(rng.Uint32())
						case 1: // near what is halfway
							sums[i] = math.Float32frombits(math.Float32bits(from(uint16(rng.Uint32()))) + 1<<12 - 1 + uint32(rng.IntN(3)))
						case 2: // which a sum is 0, or nearly
							sums[i] = -from(others[rng.IntN(len(others))])
						default:
							sums[i] = rng.Float32() - 0.5
						}
					}
					want := slices.Clone(words)
					for i := range rows {
						for j := range cols {
							want[i*ldd+j] = to(epilogue.each(sums[i*lds+j], from(others[i*ldy+j])))
						}
					}
					epilogue.do(rows, out.pointer(), 2*ldd, s.pointer(), 4*lds, y.pointer(), 2*ldy, 1<<cols-1)
					what := fmt.Sprintf("%s: %s of %v, %d×%d", set.Name, name, d, rows, cols)
					out.check(t, what)
					for i, w := range want {
						if g := words[i]; g != w && !(from(g) != from(g) && from(w) != from(w)) {
							t.Fatalf("%s: element %d is %v, want %v", what, i, from(g), from(w))
						}
					}
				}
			}
		}
	}
}
