package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// overlay is the portable loops of float32 with those of s in their places.
func overlay(s *vec.Set) *loops[float32] {
	l := float32Loops()
	if s == nil {
		return l
	}
	for c, f := range map[op.Code]vec.Unary{
		op.Neg: s.Neg, op.Abs: s.Abs, op.Sign: s.Sign, op.Square: s.Square, op.Relu: s.Relu,
		op.Sqrt: s.Sqrt, op.Rsqrt: s.Rsqrt, op.Reciprocal: s.Reciprocal,
		op.Floor: s.Floor, op.Ceil: s.Ceil, op.Round: s.Round,
		op.Exp: s.Exp, op.Expm1: s.Expm1, op.Log: s.Log, op.Log1p: s.Log1p,
		op.Tanh: s.Tanh, op.Sigmoid: s.Sigmoid, op.Erf: s.Erf,
		op.NormalCDF: s.NormalCDF, op.NormalPDF: s.NormalPDF,
	} {
		l.unary[c] = f
	}
	l.unary[op.Sin] = turns(s, s.Sin, l.unary[op.Sin])
	l.unary[op.Cos] = turns(s, s.Cos, l.unary[op.Cos])
	for c, f := range map[op.Code]vec.Binary{
		op.Add: s.Add, op.Sub: s.Sub, op.Mul: s.Mul, op.Div: s.Div, op.Maximum: s.Maximum, op.Minimum: s.Minimum,
	} {
		l.binary[c] = f
	}
	l.test[op.IsFinite] = s.IsFinite
	l.compare[op.Equal] = s.Equal
	l.compare[op.NotEqual] = s.NotEqual
	l.compare[op.Less] = s.Less
	l.compare[op.LessEqual] = s.LessEqual
	l.compare[op.Greater] = func(dst []byte, a, b []float32) { s.Less(dst, b, a) }
	l.compare[op.GreaterEqual] = func(dst []byte, a, b []float32) { s.LessEqual(dst, b, a) }
	l.where = s.Where
	return l
}

// turns is a loop for arguments within ±vec.TurnLimit that leaves others, and
// NaNs, to a second one.
func turns(s *vec.Set, within, beyond func(dst, a []float32)) func(dst, a []float32) {
	ok := func(x float32) bool { return x >= -vec.TurnLimit && x <= vec.TurnLimit }
	return func(dst, a []float32) {
		if s.Max(a) <= vec.TurnLimit && s.Min(a) >= -vec.TurnLimit {
			within(dst, a)
			return
		}
		for i, x := range a[:len(dst)] { // few
			if ok(x) {
				within(dst[i:i+1], a[i:i+1])
			} else {
				beyond(dst[i:i+1], a[i:i+1])
			}
		}
	}
}

// toF32 is [dtype.ToF32], in assembly where there is some.
func toF32(dst []float32, src []byte, d dtype.DType) {
	if v := vec.Current(); v != nil {
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
		case dtype.Int32:
			v.FromI32(dst, dtype.View[int32](src))
			return
		case dtype.Bool:
			for len(dst) > 0 {
				n := min(len(dst), block)
				v.Where(dst[:n], src[:n], ones[:n], zeros[:n])
				dst, src = dst[n:], src[n:]
			}
			return
		}
	}
	dtype.ToF32(dst, src, d)
}

// fromF32 is [dtype.FromF32], in assembly where there is some.
func fromF32(dst []byte, src []float32, d dtype.DType) {
	if v := vec.Current(); v != nil {
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

// roundTo rounds each element to a 16-bit type.
func roundTo(dst, x []float32, d dtype.DType) {
	v := vec.Current()
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

var ones, zeros = func() (ones, zeros [block]float32) {
	for i := range ones {
		ones[i] = 1
	}
	return
}()

// pause waits for some tens of nanoseconds in a way that leaves the core's
// resources, and its memory, to others.
func pause() {
	if v := vec.Current(); v != nil {
		v.Pause(1)
	}
}
