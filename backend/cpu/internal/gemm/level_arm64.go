package gemm

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"

var levels = map[isa.Level]*Set{isa.NEON: NEON, isa.NEONBF16: NEONBF16}

// WidenBF16 is for amd64.
const WidenBF16 = false
