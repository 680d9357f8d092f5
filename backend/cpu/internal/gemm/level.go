package gemm

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"

// Native returns the routines of the level in use, or nil where it has none.
func Native() *Set { return Of(isa.Current()) }

// Current returns Native, or nil if bits must be portable. Use Native only for routines
// whose results are the same on every level.
func Current() *Set {
	if isa.PortableBits() {
		return nil
	}
	return Native()
}

// Of returns the routines of a level, or nil where it has none.
func Of(l isa.Level) *Set {
	if l == isa.AVX512BF16 && WidenBF16 {
		l = isa.AVX512
	}
	return levels[l]
}
