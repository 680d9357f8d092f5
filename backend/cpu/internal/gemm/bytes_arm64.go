package gemm

import (
	"runtime"

	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
)

// BytesNEON needs dot products of bytes.
var BytesNEON = &Bytes{Algorithm: "dot", Deep: 16, Group: ByteColumns, Rows: []BytesKernel{2: bytesNEON2}, Pad: true}

// hasDotProducts reports whether the processor has dot products of bytes (FEAT_DotProd), as
// all of Apple's have.
var hasDotProducts = runtime.GOOS == "darwin" || cpu.ARM64.HasASIMDDP

// AllBytes returns the kernels on 8-bit integers that run at the level in use, those in Go
// last.
func AllBytes() []*Bytes {
	if isa.Current() >= isa.NEON && hasDotProducts {
		return []*Bytes{BytesNEON, PortableBytes}
	}
	return []*Bytes{PortableBytes}
}
