package cpu

import (
	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
)

// gemmSets are the routines of each level that has its own.
var gemmSets = map[isa]*gemm.Set{
	isaAVX2: gemm.AVX2, isaAVX512: gemm.AVX512, isaAVX512BF16: setBF16(cpu.X86.HasAMXBF16), isaAMX: gemm.AMX,
}

// setBF16 is the routines of the level of AVX512-BF16. Processors that have AMX
// run its products at half the rate of float32's; where AMX cannot be used on
// them, because the level or the system forbids it, bfloat16 is widened.
func setBF16(hasAMX bool) *gemm.Set {
	if hasAMX {
		return gemm.AVX512
	}
	return gemm.AVX512BF16
}
