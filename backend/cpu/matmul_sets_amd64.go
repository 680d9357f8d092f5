package cpu

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"

// gemmSets are the routines of each level that has its own.
var gemmSets = map[isa]*gemm.Set{
	isaAVX2: gemm.AVX2, isaAVX512: gemm.AVX512, isaAVX512BF16: gemm.AVX512BF16, isaAMX: gemm.AMX,
}
