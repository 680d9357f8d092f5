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
