package cpu

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"

// isaLevels are the levels that the processor supports, from the lowest to
// the highest. Every arm64 processor that Go runs on has Advanced SIMD.
func isaLevels() []isa {
	l := []isa{isaPortable, isaNEON}
	if gemm.HasBF16() {
		l = append(l, isaNEONBF16)
	}
	return l
}
