package vec

var neon = loopsNEON.set(4)

// AVX2 returns nil: the processor has no such instructions.
func AVX2() *Set { return nil }

// AVX512 returns nil: the processor has no such instructions.
func AVX512() *Set { return nil }

// NEON returns the loops for Advanced SIMD, which every processor has.
func NEON() *Set { return neon }
