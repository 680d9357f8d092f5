package vec

var avx2, avx512 = loopsAVX2.set(8), loopsAVX512.set(16)

// AVX2 returns the loops for AVX2 with FMA and F16C.
func AVX2() *Set { return avx2 }

// AVX512 returns the loops for AVX-512 F, BW, DQ and VL.
func AVX512() *Set { return avx512 }

// NEON returns nil: the processor has no such instructions.
func NEON() *Set { return nil }
