package dtype

import "math"

// The largest numbers of the 8-bit floats: E4M3 (float8_e4m3fn: 4 bits of
// exponent, 3 of fraction, no infinities) and E5M2 (Micikevicius et al. 2022,
// FP8 Formats for Deep Learning). Both have subnormal numbers.
const (
	MaxE4M3 = 448
	MaxE5M2 = 57344
)

// Of an 8-bit float: the bits of its fraction, the exponent of its least
// normal number, and its largest number.
const (
	fractionE4M3, leastE4M3 = 3, -6
	fractionE5M2, leastE5M2 = 2, -14
)

// RoundE4M3 rounds x to the nearest number of float8_e4m3fn, ties to even.
// Larger ones than MaxE4M3 become MaxE4M3, as they do on GPUs; infinities
// become NaN, so that an overflow before is not hidden.
func RoundE4M3(x float64) float64 { return round8(x, fractionE4M3, leastE4M3, MaxE4M3) }

// RoundE5M2 is RoundE4M3 for float8_e5m2 and MaxE5M2.
func RoundE5M2(x float64) float64 { return round8(x, fractionE5M2, leastE5M2, MaxE5M2) }

func round8(x float64, fraction, least int, largest float64) float64 {
	a := math.Abs(x)
	switch {
	case !(a <= math.MaxFloat64):
		return math.NaN()
	case a >= largest:
		return math.Copysign(largest, x)
	}
	// Adding a number whose last bit is the result's cuts at that bit.
	exponent := int(math.Float64bits(a)>>52) - 1023
	c := math.Float64frombits(uint64(max(exponent, least)-fraction+52+1023) << 52)
	return math.Copysign(min(a+c-c, largest), x)
}

// RoundE4M3s sets dst to a rounded by RoundE4M3.
func RoundE4M3s(dst, a []float32) { round8s(dst, a, fractionE4M3, leastE4M3, MaxE4M3) }

// RoundE5M2s sets dst to a rounded by RoundE5M2.
func RoundE5M2s(dst, a []float32) { round8s(dst, a, fractionE5M2, leastE5M2, MaxE5M2) }

func round8s(dst, a []float32, fraction, least int, largest float32) {
	const sign = 1 << 31
	cut := 23 - fraction
	half := uint32(1)<<(cut-1) - 1
	normal := uint32(least+127) << 23
	c := math.Float32frombits(uint32(least-fraction+23+127) << 23)
	limit := math.Float32bits(largest)
	a = a[:len(dst)]
	for i := range dst {
		b := math.Float32bits(a[i])
		m := b &^ sign
		switch {
		case m >= inf32:
			m = inf32 | quiet32
		case m >= limit:
			m = limit
		case m < normal:
			m = math.Float32bits(math.Float32frombits(m) + c - c)
		default:
			m = (m + half + m>>cut&1) >> cut << cut
		}
		dst[i] = math.Float32frombits(b&sign | m)
	}
}
