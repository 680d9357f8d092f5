package gemm

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
)

// Kernels on 8-bit integers. Products on tile registers have 16 rows at least.
var (
	BytesAVX2 = &Bytes{Algorithm: "avx2", Deep: 4, Group: ByteColumns, Rows: []BytesKernel{1: bytesAVX2Row}}
	WordsAVX2 = &Bytes{Algorithm: "avx2-words", Deep: 4, Widen: widenBytes, Group: 8, Rows: []BytesKernel{1: wordsAVX2Row, 4: wordsAVX2Rows4}}
	BytesVNNI = &Bytes{Algorithm: "vnni", Offset: 128, Deep: 16, Group: ByteColumns, Rows: []BytesKernel{1: bytesVNNI1, 4: bytesVNNI4, 8: bytesVNNI8, 12: bytesVNNI12}}
	BytesAMX  = &Bytes{Algorithm: "amx", Deep: 64, Group: ByteColumns, Rows: []BytesKernel{32: bytesAMX32}, Pad: true, Begin: beginAMX, End: releaseAMX}
)

// widenBytes is Bytes.Widen by vectors.
func widenBytes(dst, x []byte) {
	const vectors = 32
	n := len(x) &^ (vectors - 1)
	if dst = dst[:2*len(x)]; n > 0 {
		widenAVX2(unsafe.Pointer(&dst[0]), unsafe.Pointer(&x[0]), n)
	}
	for i := n; i < len(x); i++ {
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(int8(x[i])))
	}
}

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
