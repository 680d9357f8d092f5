package vec

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"

// Current returns the loops of the level in use, or nil where it has none.
func Current() *Set {
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
