package gemm

import (
	"golang.org/x/sys/cpu"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
)

// Kernels on 8-bit integers. Products on tile registers have 16 rows at least.
var (
	bytesAVX2 = &Bytes{Name: "AVX2", Size: 2, Deep: 4, Rows: []BytesKernel{1: bytesAVX2Row}}
	bytesVNNI = &Bytes{Name: "AVX512-VNNI", Size: 1, Offset: 128, Deep: 16, Rows: []BytesKernel{1: bytesVNNI1, 4: bytesVNNI4, 12: bytesVNNI12}}
	bytesAMX  = &Bytes{Name: "AMX-INT8", Size: 1, Deep: 64, Rows: []BytesKernel{32: bytesAMX32}, Pad: true, Begin: beginAMX, End: releaseAMX}
)

// fewRows is the rows below which products do not use tile registers: they read the
// matrix once, and wait for it.
const fewRows = 12

// BytesOf returns the kernels on 8-bit integers of the level in use for products of m
// rows. Processors with AVX-512 and without VNNI run those for AVX2.
func BytesOf(m int) *Bytes {
	switch level := isa.Current(); {
	case level >= isa.AMX && cpu.X86.HasAMXInt8 && m >= fewRows:
		return bytesAMX
	case level >= isa.AVX512 && cpu.X86.HasAVX512VNNI:
		return bytesVNNI
	case level >= isa.AVX2:
		return bytesAVX2
	}
	return PortableBytes
}

// allBytes returns all kernels that the processor has, for tests.
func allBytes() []*Bytes {
	list := []*Bytes{PortableBytes}
	for _, l := range isa.Levels() {
		switch l {
		case isa.AVX2:
			list = append(list, bytesAVX2)
		case isa.AVX512:
			if cpu.X86.HasAVX512VNNI {
				list = append(list, bytesVNNI)
			}
		case isa.AMX:
			if cpu.X86.HasAMXInt8 {
				list = append(list, bytesAMX)
			}
		}
	}
	return list
}
