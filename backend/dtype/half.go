package dtype

import (
	"math"
	"strconv"
	"sync"

	"github.com/x448/float16"
)

// Half is a float16 scalar. Its conversions and the package's agree bit for
// bit.
type Half = float16.Float16

// BFloat is a bfloat16 scalar: the upper half of a float32's bits.
type BFloat uint16

// Float32 returns the value of b, exactly.
func (b BFloat) Float32() float32 { return BF16ToF32(uint16(b)) }

// Bits returns the bits of b.
func (b BFloat) Bits() uint16 { return uint16(b) }

// IsNaN reports whether b is not a number.
func (b BFloat) IsNaN() bool { return b&0x7fff > 0x7f80 }

// IsInf reports whether b is an infinity, of the sign of sign or, for 0, of
// either.
func (b BFloat) IsInf(sign int) bool {
	return b == 0x7f80 && sign >= 0 || b == 0xff80 && sign <= 0
}

// IsFinite reports whether b is neither an infinity nor NaN.
func (b BFloat) IsFinite() bool { return b&0x7f80 != 0x7f80 }

// IsNormal reports whether b is neither zero, subnormal, infinite nor NaN.
func (b BFloat) IsNormal() bool { return b.IsFinite() && b&0x7f80 != 0 }

// Signbit reports whether b is negative or negative zero.
func (b BFloat) Signbit() bool { return b&0x8000 != 0 }

// String returns the shortest decimal that reads back, as float32, as b.
func (b BFloat) String() string {
	return strconv.FormatFloat(float64(b.Float32()), 'f', -1, 32)
}

// Bits of float32 and float64 numbers that bound the cases of a conversion.
const (
	inf32    = 0x7f800000
	quiet32  = 0x00400000 // the quiet bit of a NaN
	half32   = 0x3f000000 // 0.5
	f16Over  = 0x47800000 // 2^16, above every finite float16
	f16Norm  = 0x38800000 // 2^-14, the least normal float16
	rebias16 = (127 - 15) << 23

	inf64     = 0x7ff << 52
	f16Over64 = (1023 + 16) << 52
	f16Norm64 = (1023 - 14) << 52
	bfOver64  = (1023 + 128) << 52 // 2^128, above every finite bfloat16
	bfNorm64  = (1023 - 126) << 52 // 2^-126, the least normal bfloat16
)

// F16FromF32 rounds x to float16 and returns its bits.
func F16FromF32(x float32) uint16 {
	u := math.Float32bits(x)
	a := u & 0x7fffffff
	if a >= f16Over {
		return uint16(u>>16)&0x8000 | f16Large(a)
	}
	return uint16(u>>16)&0x8000 | f16Round(a)
}

// f16Round rounds a magnitude below 2^16. The processor's own addition does
// it: with 2^13 times its power of two, or that of the least normal number,
// added, x has the spacing of float16, and the fraction of the sum is that of
// the result, under a leading one that counts as an exponent. Normal numbers,
// subnormal numbers and zeros, which activations mix at random, take the same
// path, for a mispredicted branch costs several conversions.
func f16Round(a uint32) uint16 {
	e := max(a&inf32, f16Norm)
	m := e + 13<<23
	return uint16(math.Float32bits(math.Float32frombits(a)+math.Float32frombits(m)) - m + (e-f16Norm)>>13)
}

// f16Large returns the infinity or NaN of a magnitude of 2^16 or more.
func f16Large(a uint32) uint16 {
	if a > inf32 {
		return 0x7e00 | uint16(a>>13)&0x3ff
	}
	return 0x7c00
}

// F16ToF32 returns the value of the float16 with bits h, exactly; NaN quiet.
func F16ToF32(h uint16) float32 {
	sign, a := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case a > 0x7c00:
		a = inf32 | quiet32 | a<<13&0x7fffff
	case a == 0x7c00:
		a = inf32
	case a >= 0x400:
		a = a<<13 + rebias16
	default:
		// 0.5 + a*2^-24 is exact and so is the difference.
		a = math.Float32bits(math.Float32frombits(half32|a) - 0.5)
	}
	return math.Float32frombits(sign | a)
}

// f16Values is F16ToF32 of every pattern: a load is several times as fast as
// the branches on data that mixes zeros and normal numbers.
var f16Values = sync.OnceValue(func() *[1 << 16]float32 {
	values := new([1 << 16]float32)
	for h := range values {
		values[h] = F16ToF32(uint16(h))
	}
	return values
})

// BF16FromF32 rounds x to bfloat16 and returns its bits.
func BF16FromF32(x float32) uint16 {
	u := math.Float32bits(x)
	if u&0x7fffffff > inf32 {
		return uint16(u>>16) | quiet32>>16
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// BF16ToF32 returns the value of the bfloat16 with bits h, exactly.
func BF16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// F16FromF64 rounds x to float16, in one rounding, and returns its bits.
func F16FromF64(x float64) uint16 {
	u := math.Float64bits(x)
	sign, a := uint16(u>>48)&0x8000, u&^(1<<63)
	switch {
	case a > inf64:
		return sign | 0x7e00 | uint16(a>>42)&0x3ff
	case a >= f16Over64:
		return sign | 0x7c00
	}
	// As f16Round, of a fraction 42 bits longer.
	e := max(a&inf64, f16Norm64)
	m := e + 42<<52
	return sign | uint16(math.Float64bits(math.Float64frombits(a)+math.Float64frombits(m))-m+(e-f16Norm64)>>42)
}

// BF16FromF64 rounds x to bfloat16, in one rounding, and returns its bits.
func BF16FromF64(x float64) uint16 {
	u := math.Float64bits(x)
	sign, a := uint16(u>>48)&0x8000, u&^(1<<63)
	switch {
	case a > inf64:
		return sign | 0x7fc0 | uint16(a>>45)&0x7f
	case a >= bfOver64:
		return sign | 0x7f80
	}
	// As f16Round, of a fraction 45 bits longer.
	e := max(a&inf64, bfNorm64)
	m := e + 45<<52
	return sign | uint16(math.Float64bits(math.Float64frombits(a)+math.Float64frombits(m))-m+(e-bfNorm64)>>45)
}
