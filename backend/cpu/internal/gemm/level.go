package gemm

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"

// Current returns the routines of the level in use, or nil where it has none.
func Current() *Set { return Of(isa.Current()) }

// Of returns the routines of a level, or nil where it has none.
func Of(l isa.Level) *Set {
	if l == isa.AVX512BF16 && WidenBF16 {
		l = isa.AVX512
	}
	return levels[l]
}
