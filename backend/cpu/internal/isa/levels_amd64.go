package isa

import "golang.org/x/sys/cpu"

// Levels returns the levels that the processor and the system support, from
// the lowest to the highest.
func Levels() []Level {
	x := &cpu.X86
	l := []Level{Portable}
	if !x.HasAVX2 || !x.HasFMA || !x.HasF16C {
		return l
	}
	l = append(l, AVX2)
	if !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL {
		return l
	}
	l = append(l, AVX512)
	if !x.HasAVX512BF16 {
		return l
	}
	l = append(l, AVX512BF16)
	if !x.HasAMXBF16 || !useAMX() {
		return l
	}
	return append(l, AMX)
}

// HasBitMatrices reports whether the processor has instructions on bytes and matrices
// of bits that not every processor with AVX-512 has: GFNI, AVX512-VBMI and
// AVX512-BITALG.
func HasBitMatrices() bool {
	x := &cpu.X86
	return x.HasAVX512GFNI && x.HasAVX512VBMI && x.HasAVX512BITALG
}
