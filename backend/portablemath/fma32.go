package portablemath

import "math"

// FMA32 returns x·y + z, rounded once to float32, on every processor.
func FMA32(x, y, z float32) float32 {
	p := float64(x) * float64(y) // exact: 48 bits
	s := p + float64(z)
	if twice(s) {
		s = roundToOdd(p, float64(z), s)
	}
	return float32(s)
}

// twice reports whether rounding s, which is rounded to float64, to float32 may give another
// number than rounding once: if it lies in the middle between two float32, or near it for
// subnormal ones.
func twice(s float64) bool {
	b := math.Float64bits(s)
	return b&(1<<29-1) == 1<<28 || b<<1>>53 < 1023-126
}

// roundToOdd returns p + z, of which s is the nearest float64: s if that is exact, else the
// neighbour of the sum whose last bit is 1. Rounding that to float32, which has two bits less
// at least, is rounding the sum (Boldo and Melquiond 2008).
func roundToOdd(p, z, s float64) float64 {
	t := s - p
	e := (p - (s - t)) + (z - t) // p + z - s, exactly (Knuth's TwoSum)
	if e == 0 || e != e || math.Float64bits(s)&1 == 1 {
		return s
	}
	if (e > 0) == (s > 0) {
		return math.Float64frombits(math.Float64bits(s) + 1)
	}
	return math.Float64frombits(math.Float64bits(s) - 1)
}
