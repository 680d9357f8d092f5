package gemm

import (
	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
)

var levels = map[isa.Level]*Set{isa.AVX2: AVX2, isa.AVX512: AVX512, isa.AVX512BF16: AVX512BF16, isa.AMX: AMX}

// WidenBF16 reports whether the level AVX512BF16 computes products of bfloat16 in
// float32. Processors with AMX run the products of AVX512-BF16 at half the rate of
// float32's; that matters where the system or MEZZO_CPU forbids AMX. Tests change it.
var WidenBF16 = cpu.X86.HasAMXBF16
