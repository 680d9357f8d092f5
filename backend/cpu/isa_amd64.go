package cpu

import (
	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
)

// isaLevels are the levels that the processor and the system support, from
// the lowest to the highest.
func isaLevels() []isa {
	x := &cpu.X86
	l := []isa{isaPortable}
	if !x.HasAVX2 || !x.HasFMA || !x.HasF16C {
		return l
	}
	l = append(l, isaAVX2)
	if !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL {
		return l
	}
	l = append(l, isaAVX512)
	if !x.HasAVX512BF16 {
		return l
	}
	l = append(l, isaAVX512BF16)
	if !x.HasAMXBF16 || !gemm.UseAMX() {
		return l
	}
	return append(l, isaAMX)
}
