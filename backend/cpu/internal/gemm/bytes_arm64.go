package gemm

import (
	"runtime"

	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
)

var bytesNEON = &Bytes{Name: "NEON dot products", Size: 1, Deep: 16, Rows: []BytesKernel{2: bytesNEON2}, Pad: true}

// hasDotProducts reports whether the processor has dot products of bytes (FEAT_DotProd), as
// all of Apple's have.
var hasDotProducts = runtime.GOOS == "darwin" || cpu.ARM64.HasASIMDDP

// BytesOf returns the kernels on 8-bit integers of the level in use.
func BytesOf(int) *Bytes {
	if isa.Current() >= isa.NEON && hasDotProducts {
		return bytesNEON
	}
	return PortableBytes
}

// allBytes returns all kernels that the processor has, for tests.
func allBytes() []*Bytes {
	if !hasDotProducts {
		return []*Bytes{PortableBytes}
	}
	return []*Bytes{PortableBytes, bytesNEON}
}
