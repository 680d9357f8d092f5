//go:build !amd64 && !arm64

package gemm

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"

var levels map[isa.Level]*Set

// WidenBF16 is for amd64.
const WidenBF16 = false
