package cpu

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestFloat16Exact: every finite float16 times a power of two is exact, to
// the smallest products.
func TestFloat16Exact(t *testing.T) {
	isatest.SkipRace(t)
	const rows, k = 1984, 32
	isatest.ForEach(t, func(t *testing.T) {
		for trans := range 4 {
			for _, scale := range []float32{1, 0x1p-24, -0x1p15} {
				a := op.Attr{TransA: trans&1 != 0, TransB: trans&2 != 0, DType: dtype.Float32}
				p := matMulProgram(t, a, dtype.Float16, rows, k, k)
				in := someOperands(p)
				x, y := dtype.View[uint16](in[0].data), dtype.View[uint16](in[1].data)
				for i := range x {
					x[i] = uint16(i)
					if i >= 0x7c00 {
						x[i] += 0x400 // the negative ones
					}
				}
				for i := range y {
					y[i] = 0
					if i/k == i%k {
						y[i] = dtype.F16FromF32(scale)
					}
				}
				got := dtype.View[float32](runProcs(t, p, in, 1).data)
				for i, g := range got {
					at := i
					if a.TransA {
						at = i%k*rows + i/k
					}
					if want := dtype.F16ToF32(x[at]) * scale; g != want {
						t.Fatalf("%+v: %v times %v is %v, want %v", a, dtype.F16ToF32(x[at]), scale, g, want)
					}
				}
			}
		}
	})
}

// TestFloat16NonFinite: infinities and NaN in operands, and sums that leave
// the range, give on every instruction set what float32 arithmetic gives, for
// any number of workers, and with other elements as they are.
func TestFloat16NonFinite(t *testing.T) {
	isatest.SkipRace(t)
	inf := math.Inf(1)
	rng := rand.New(rand.NewPCG(8, 9))
	for _, s := range []struct{ m, n, k int }{{64, 64, 64}, {300, 70, 96}, {40, 70, 1100}, {700, 40, 130}, {90, 50, 4100}, {260, 1030, 1030}} {
		if most := map[bool]int{false: 1 << 26, true: 2 << 20}[isatest.Emulated()]; testing.Short() && s.m*s.n*s.k > most {
			continue
		}
		for trans := range 4 {
			a := op.Attr{TransA: trans&1 != 0, TransB: trans&2 != 0}
			operands := someOperands(matMulProgram(t, a, dtype.Float16, s.m, s.n, s.k))
			for i, special := range [][]float64{{inf}, {-inf}, {math.NaN()}, {inf, -inf}, {65504, 65504}} {
				for side := range 2 {
					if !isatest.InTurn(i + side + trans) {
						continue
					}
					list := dtype.View[uint16](operands[side].data)
					before := slices.Clone(list)
					for _, x := range special {
						list[rng.IntN(len(list))] = dtype.F16FromF32(float32(x))
					}
					checkNonFinite(t, fmt.Sprintf("%+v %+v, %v in operand %d", s, a, special, side), operands, a, s.m, s.n, s.k)
					copy(list, before)
				}
			}
		}
	}
}

func checkNonFinite(t *testing.T, what string, in []array, a op.Attr, m, n, k int) {
	t.Helper()
	var want []uint16
	isatest.ForEach(t, func(t *testing.T) {
		if isa.Current() == isa.Portable && m*n*k > 1<<18 {
			return // blocks of another driver, which TestMatMul covers
		}
		p := matMulProgram(t, a, dtype.Float16, m, n, k)
		first := runProcs(t, p, in, 1).data
		if !bytes.Equal(first, runProcs(t, p, in, 3).data) {
			t.Errorf("%s: other bits with 3 workers", what)
		}
		got := dtype.View[uint16](first)
		if want == nil {
			want = slices.Clone(got)
		}
		rel, _ := dtype.Float16.Tolerance()
		for i := range got {
			g, w := float64(dtype.F16ToF32(got[i])), float64(dtype.F16ToF32(want[i]))
			// Sums of k products of magnitudes up to 1 in another order.
			if tol := rel*math.Abs(w) + float64(k)*dtype.Float32.Epsilon(); g != w && !(g != g && w != w) && !(math.Abs(g-w) <= tol) {
				t.Fatalf("%s: element %d is %v, want %v", what, i, g, w)
			}
		}
	})
}
