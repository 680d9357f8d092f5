package gemm

import (
	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
)

// Kernels on 8-bit integers. Products on tile registers have 16 rows at least.
var (
	BytesAVX2 = &Bytes{Algorithm: "avx2", Deep: 4, Rows: []BytesKernel{1: bytesAVX2Row}}
	WordsAVX2 = &Bytes{Algorithm: "avx2-words", Deep: 4, Wide: true, Rows: []BytesKernel{1: wordsAVX2Row, 2: wordsAVX2Rows2}}
	BytesVNNI = &Bytes{Algorithm: "vnni", Offset: 128, Deep: 16, Rows: []BytesKernel{1: bytesVNNI1, 4: bytesVNNI4, 8: bytesVNNI8, 12: bytesVNNI12}}
	BytesAMX  = &Bytes{Algorithm: "amx", Deep: 64, Rows: []BytesKernel{32: bytesAMX32}, Pad: true, Begin: beginAMX, End: releaseAMX}
)

// AllBytes returns the kernels on 8-bit integers that run at the level in use, those in Go
// last. Processors with AVX-512 and without VNNI run those for AVX2.
func AllBytes() (all []*Bytes) {
	level := isa.Current()
	if level >= isa.AMX && cpu.X86.HasAMXInt8 {
		all = append(all, BytesAMX)
	}
	if level >= isa.AVX512 && cpu.X86.HasAVX512VNNI {
		all = append(all, BytesVNNI)
	}
	if level >= isa.AVX2 {
		all = append(all, WordsAVX2, BytesAVX2)
	}
	return append(all, PortableBytes)
}
