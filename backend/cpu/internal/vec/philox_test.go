package vec

import (
	"bytes"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/philox"
)

func TestPhilox(t *testing.T) {
	forEachSet(t, func(t *testing.T, s *Set) {
		for _, n := range []int{256, 512, 1280} {
			got, want := make([]float32, n+20), make([]float32, n+20)
			check := func() {
				t.Helper()
				for i := range got {
					if got[i] != want[i] {
						t.Fatalf("number %d of %d is %v, want %v", i, n, got[i], want[i])
					}
				}
			}
			philox.UniformAt(1<<40|77, 3, 9, 4*1001, want[:n])
			s.Philox(got[:n], 1001, 77, 1<<8, 0, 3, 9)
			check()
			philox.Uniform16At(1<<40|77, 3, 9, 8*1001, want[:n])
			s.Philox16(got[:n], 1001, 77, 1<<8, 0, 3, 9)
			check()
			flags := make([]byte, n+20)
			for _, bound := range []uint16{0, 1, 0x4ccd, 0x8000, 0xffff} {
				s.PhiloxAtLeast(flags[:n], 1001, 77, 1<<8, 0, 3, 9, bound)
				for i, f := range flags {
					if f != truthOf(i < n && want[i]*(1<<16) >= float32(bound)) {
						t.Fatalf("flag %d of %d is %d, want %v·2¹⁶ >= %v", i, n, f, want[i], bound)
					}
				}
				if s.PhiloxScale.F32 != nil {
					checkPhiloxScale(t, s, flags[:n], bound)
				}
			}
		}
	})
}

// checkPhiloxScale compares PhiloxScale of each type with a product and a choice by
// flags.
func checkPhiloxScale(t *testing.T, s *Set, flags []byte, bound uint16) {
	for _, c := range []struct {
		dtype  dtype.DType
		direct PhiloxScale
		nt     PhiloxScale
		round  func(dst []byte, x []float32)
	}{
		{dtype.Float32, s.PhiloxScale.F32, s.PhiloxScaleNT.F32, func(dst []byte, x []float32) { copy(dtype.View[float32](dst), x) }},
		{dtype.Float16, s.PhiloxScale.F16, s.PhiloxScaleNT.F16, func(dst []byte, x []float32) { s.ToF16(dtype.View[uint16](dst), x) }},
		{dtype.BFloat16, s.PhiloxScale.BF16, s.PhiloxScaleNT.BF16, func(dst []byte, x []float32) { s.ToBF16(dtype.View[uint16](dst), x) }},
	} {
		n, size := len(flags), c.dtype.Size()
		x, values, want := make([]byte, n*size), make([]float64, n), make([]float32, n)
		for i := range values {
			values[i] = math.Sin(float64(i)) * math.Pow(2, float64(i%60-45))
		}
		values[3], values[4], values[5] = math.Inf(1), math.NaN(), math.Inf(-1)
		dtype.FromF64(x, values, c.dtype)
		dtype.ToF64(values, x, c.dtype)
		const by = 1.2345
		for i, v := range values {
			if flags[i] != 0 {
				want[i] = float32(v) * by
			}
		}
		rounded := make([]byte, n*size)
		c.round(rounded, want)
		for _, f := range []PhiloxScale{c.direct, c.nt} {
			all := alignedTo(n*size + 2*Line)
			f(all[Line:Line+n*size], x, 1001, 77, 1<<8, 0, 3, 9, bound, by)
			s.Fence()
			if !bytes.Equal(all[Line:Line+n*size], rounded) {
				t.Errorf("%d %v that are dropped or scaled differ from such a choice", n, c.dtype)
			}
			if !bytes.Equal(all[:Line], make([]byte, Line)) || !bytes.Equal(all[Line+n*size:], make([]byte, Line)) {
				t.Errorf("dropping from %d %v wrote beside the result", n, c.dtype)
			}
		}
	}
}
