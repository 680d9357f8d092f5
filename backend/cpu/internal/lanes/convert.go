package lanes

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// ToF32 is [dtype.ToF32], in assembly if there is some.
func ToF32(dst []float32, src []byte, d dtype.DType) {
	if v := vec.Native(); v != nil {
		switch d {
		case dtype.Float16:
			v.FromF16(dst, dtype.View[uint16](src))
			return
		case dtype.BFloat16:
			v.FromBF16(dst, dtype.View[uint16](src))
			return
		case dtype.Uint8:
			v.FromU8(dst, src)
			return
		case dtype.Int8:
			v.FromI8(dst, src)
			return
		case dtype.Int32:
			v.FromI32(dst, dtype.View[int32](src))
			return
		case dtype.Bool:
			for len(dst) > 0 {
				n := min(len(dst), Block)
				v.Where(dst[:n], src[:n], ones[:n], Zeros[:n])
				dst, src = dst[n:], src[n:]
			}
			return
		}
	}
	dtype.ToF32(dst, src, d)
}

// FromF32 is [dtype.FromF32], in assembly if there is some.
func FromF32(dst []byte, src []float32, d dtype.DType) {
	if v := vec.Native(); v != nil {
		switch d {
		case dtype.Float16:
			v.ToF16(dtype.View[uint16](dst), src)
			return
		case dtype.BFloat16:
			v.ToBF16(dtype.View[uint16](dst), src)
			return
		}
	}
	dtype.FromF32(dst, src, d)
}

// RoundTo rounds each element to a 16-bit type.
func RoundTo(dst, x []float32, d dtype.DType) {
	v := vec.Native()
	switch {
	case v != nil && d == dtype.BFloat16:
		v.RoundBF16(dst, x)
	case v != nil:
		v.RoundF16(dst, x)
	default:
		for i, v := range x {
			dst[i] = d.Round(v)
		}
	}
}

var ones, Zeros = func() (ones, zeros [Block]float32) {
	for i := range ones {
		ones[i] = 1
	}
	return
}()
