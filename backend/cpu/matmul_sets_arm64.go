package cpu

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"

// gemmSets are the routines of each level that has its own.
var gemmSets = map[isa]*gemm.Set{isaNEON: gemm.NEON, isaNEONBF16: gemm.NEONBF16}
