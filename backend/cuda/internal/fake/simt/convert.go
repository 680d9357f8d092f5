package simt

import (
	"math"
	"math/bits"
)

// toHalf rounds to float16, ties to even.
func toHalf(x float32) uint16 {
	u := math.Float32bits(x)
	sign, a := uint16(u>>16&0x8000), u&0x7fffffff
	switch {
	case a > 0x7f800000:
		return 0x7fff
	case a >= 0x477ff000: // 65520: half way beyond the largest number
		return sign | 0x7c00
	case a < 0x38800000: // subnormal: units of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(a))*0x1p24))
	}
	a += 0xfff + a>>13&1
	return sign | uint16(a>>13-112<<10)
}

// fromHalf is exact.
func fromHalf(h uint16) float32 {
	sign, e, m := uint32(h&0x8000)<<16, uint32(h>>10&31), uint32(h&0x3ff)
	switch {
	case e == 31 && m != 0:
		return math.Float32frombits(nan32)
	case e == 31:
		return math.Float32frombits(sign | 0x7f800000)
	case e > 0:
		return math.Float32frombits(sign | (e+112)<<23 | m<<13)
	case m == 0:
		return math.Float32frombits(sign)
	}
	shift := uint32(bits.LeadingZeros32(m)) - 21 // to the hidden bit
	return math.Float32frombits(sign | (113-shift)<<23 | m<<shift&0x3ff<<13)
}

// toBFloat rounds to bfloat16, ties to even.
func toBFloat(x float32) uint16 {
	u := math.Float32bits(x)
	if u&0x7fffffff > 0x7f800000 {
		return 0x7fff
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// toTF32 is cvt.rna.tf32: 10 bits of mantissa, ties away from zero.
func toTF32(x float32) uint32 {
	u := math.Float32bits(x)
	if u&0x7f800000 == 0x7f800000 {
		if u&0x7fffff != 0 {
			return nan32
		}
		return u
	}
	return (u + 0x1000) &^ 0x1fff
}

// saturate is .sat: into [0, 1], NaN is 0.
func saturate(x float32) float32 {
	switch {
	case x >= 1:
		return 1
	case x > 0:
		return x
	}
	return 0
}

// toInteger converts what has been rounded to a whole number to a type of size bits.
// Numbers beyond it become its ends; what NaN becomes is the manual's choice.
func toInteger(x float64, signed bool, size uint, wide bool) uint64 {
	if x != x {
		if !wide && size < 64 {
			return 0
		}
		return 1 << (size - 1)
	}
	if signed {
		end := math.Ldexp(1, int(size)-1)
		switch {
		case x >= end:
			return 1<<(size-1) - 1
		case x < -end:
			return 1 << (size - 1)
		}
		return uint64(int64(x)) & (1<<(size-1)<<1 - 1)
	}
	switch {
	case x < 0:
		return 0
	case x >= math.Ldexp(1, int(size)):
		return 1<<(size-1)<<1 - 1
	}
	return uint64(x)
}

// roundings are how floats become whole numbers.
var roundings = map[string]func(float64) float64{"rni": math.RoundToEven, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil}

// integerTypes are the types of conversions between integers.
var integerTypes = []string{"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"}

// extend is the value of the lower bits of u as a type.
func extend(u uint64, t string) uint64 {
	shift := 64 - 8*sizeOf(t)
	if t[0] == 's' {
		return uint64(int64(u<<shift) >> shift)
	}
	return u << shift >> shift
}

// conversions are the instructions cvt.
var conversions = func() map[string]operation {
	m := map[string]operation{
		"cvt.f32.f16":      unaryOp(getU16, putF32, fromHalf),
		"cvt.rn.f16.f32":   unaryOp(getF32, putU16, toHalf),
		"cvt.rn.bf16.f32":  unaryOp(getF32, putU16, toBFloat),
		"cvt.rna.tf32.f32": unaryOp(getF32, putU32, toTF32),
		"cvt.sat.f32.f32":  unaryOp(getF32, putF32, saturate),
		"cvt.rn.f32.f64":   unaryOp(getF64, putF32, func(x float64) float32 { return float32(x) }),
		"cvt.f64.f32":      unaryOp(getF32, putF64, func(x float32) float64 { return float64(x) }),
	}
	for name, round := range roundings {
		m["cvt."+name+".f32.f32"] = unaryOp(getF32, putF32, of32(round))
		m["cvt."+name+".f64.f64"] = unaryOp(getF64, putF64, round)
		for _, t := range integerTypes {
			size, signed := uint(8*sizeOf(t)), t[0] == 's'
			m["cvt."+name+"."+t+".f32"] = unaryOp(getF32, putU64, func(x float32) uint64 { return toInteger(round(float64(x)), signed, size, false) })
			m["cvt."+name+"."+t+".f64"] = unaryOp(getF64, putU64, func(x float64) uint64 { return toInteger(round(x), signed, size, true) })
		}
	}
	for _, from := range integerTypes {
		if from[0] == 's' {
			m["cvt.rn.f32."+from] = unaryOp(getU64, putF32, func(u uint64) float32 { return float32(int64(extend(u, from))) })
			m["cvt.rn.f64."+from] = unaryOp(getU64, putF64, func(u uint64) float64 { return float64(int64(extend(u, from))) })
		} else {
			m["cvt.rn.f32."+from] = unaryOp(getU64, putF32, func(u uint64) float32 { return float32(extend(u, from)) })
			m["cvt.rn.f64."+from] = unaryOp(getU64, putF64, func(u uint64) float64 { return float64(extend(u, from)) })
		}
		for _, to := range integerTypes {
			m["cvt."+to+"."+from] = between(to, from)
		}
	}
	return m
}()

// between converts integers.
func between(to, from string) operation {
	narrow := min(sizeOf(to), sizeOf(from))
	if from[0] == 'u' || sizeOf(to) <= sizeOf(from) { // the lower bits
		mask := ^uint64(0) >> (64 - 8*narrow)
		return operation{func(d, a, _, _ *lanes) {
			for l := range d {
				d[l] = a[l] & mask
			}
		}, 1}
	}
	shift, mask := 64-8*sizeOf(from), ^uint64(0)>>(64-8*sizeOf(to))
	return operation{func(d, a, _, _ *lanes) {
		for l := range d {
			d[l] = uint64(int64(a[l]<<shift)>>shift) & mask
		}
	}, 1}
}
