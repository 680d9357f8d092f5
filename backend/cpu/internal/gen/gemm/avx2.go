package gemm

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
)

// avx2Tile is the micro-kernel for AVX2 and FMA. A tile of 6 rows and two vectors takes 12 of
// the 16 registers.
var avx2Tile = tile{
	bytes: 32, reg: "Y", bcast: "VBROADCASTSS", loadB: "VMOVUPS", zero: "VXORPS",
	step1: func(acc, a, b int) string { return fmt.Sprintf("VFMADD231PS Y%d, Y%d, Y%d", b, a, acc) },
}

// avx2 writes the kernels for AVX2 and FMA.
func avx2() *gen {
	g := &gen{file: asm.NewFile("avx2_amd64"), doc: "// Kernels for AVX2 and FMA.\n\n"}
	g.family("f32AVX2", 6, []int{2}, avx2Tile)
	g.bytesAVX2("bytesAVX2Row")
	g.widenAVX2()
	g.wordsAVX2("wordsAVX2Row", 1)
	g.wordsAVX2("wordsAVX2Rows4", 4)
	g.vectorProducts("AVX2", "Y", 32)
	g.avx2Packing()
	g.avx2Conv()
	g.peak("peakAVX2", "VFMADD231PS", "Y", 16, func(acc int) string { return fmt.Sprintf("VFMADD231PS Y14, Y15, Y%d", acc) })
	return g
}
