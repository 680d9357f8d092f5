package isa

// Levels returns the levels that the processor supports, from the lowest to
// the highest. Every arm64 processor that Go runs on has Advanced SIMD.
func Levels() []Level {
	l := []Level{Portable, NEON}
	if hasBF16() {
		l = append(l, NEONBF16)
	}
	return l
}

// HasBitMatrices returns false: they are instructions of AVX-512.
func HasBitMatrices() bool { return false }
