package vec

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"

// Native returns the loops of the level in use, or nil where it has none.
func Native() *Set {
	switch l := isa.Current(); {
	case l >= isa.AVX512:
		return AVX512()
	case l >= isa.AVX2:
		return AVX2()
	case l >= isa.NEON:
		return NEON()
	}
	return nil
}

// Current returns Native, or nil if bits must be portable. Use Native only for loops whose
// results are the same on every level: what IEEE 754 defines for each element, copies,
// comparisons, prefetching.
func Current() *Set {
	if isa.PortableBits() {
		return nil
	}
	return Native()
}
