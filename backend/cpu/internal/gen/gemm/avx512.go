package gemm

import (
	"fmt"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
)

// avx512Tile is the micro-kernel for AVX-512. A tile of 14 rows and two vectors takes 28
// accumulators; two vectors of B and two broadcasts take the other registers.
var avx512Tile = tile{
	bytes: 64, reg: "Z", masked: true, bcast: "VBROADCASTSS", loadB: "VMOVUPS", zero: "VPXORD",
	step1: fmadd512,
}

// avx512 writes the kernels for AVX-512.
func avx512() *gen {
	g := &gen{file: asm.NewFile("avx512_amd64"), doc: "// Kernels for AVX-512.\n\n"}
	base := avx512Tile
	g.family("f32AVX512", 14, []int{2, 1}, base)
	base.next = true
	g.family("f32AVX512Prefetch", 14, []int{2}, base)
	base.next, base.copies = false, true
	g.family("f32AVX512Copy", 14, []int{2}, base)
	down := avx512Tile
	down.name, down.rows, down.vectors = "f32AVX512Tall", 14, 2
	down.tall(g)
	g.vectorProducts("AVX512", "Z", 64)
	g.addsFour()
	g.peak("peakAVX512", "VFMADD231PS", "Z", 32, func(acc int) string { return fmt.Sprintf("VFMADD231PS Z30, Z31, Z%d", acc) })
	return g
}

// avx512Pairs writes the kernels for AVX512-BF16.
func avx512Pairs() *gen {
	g := &gen{file: asm.NewFile("pairs_amd64"), doc: "// Kernels for AVX512-BF16.\n\n"}
	base := avx512Tile
	base.bcast, base.step1 = "VPBROADCASTD", amd64.VDPBF16PS
	g.family("pairsAVX512", 14, []int{2, 1}, base)
	copies := base
	copies.copies = true
	g.interleaveTable()
	g.family("pairsAVX512Copy", 14, []int{2}, copies)
	g.addsPairs("addsPairsAVX512")
	g.strips("pairsAVX512Strip", 14, 2, base)
	g.strips("pairsAVX512Strip", 14, 1, base)
	runs := base
	runs.runs, runs.vectors = true, 2
	g.pixelRuns("pairsRowRuns", "AVX512", 14, runs)
	runs.vectors = 1
	g.pixelRuns("pairsRowRunsNarrow", "AVX512", 14, runs)
	g.strips("f32AVX512BF16Strip", 14, 2, avx512Tile)
	g.strips("f32AVX512BF16Strip", 14, 1, avx512Tile)
	g.peak("peakPairsAVX512", "VDPBF16PS", "Z", 32, func(acc int) string { return amd64.VDPBF16PS(acc, 31, 30) })
	return g
}

// avx512Pack writes, for AVX-512, the packing and conversion of operands before products, and
// the routines for their results.
func avx512Pack() *gen {
	g := &gen{file: asm.NewFile("pack_amd64"), doc: "// Packing and epilogues for AVX-512.\n\n"}
	g.epilogues()
	g.lowPrecisionEpilogues()
	g.packing()
	return g
}

// fmadd512 adds the products of registers a and b to acc.
func fmadd512(acc, a, b int) string { return fmt.Sprintf("VFMADD231PS Z%d, Z%d, Z%d", b, a, acc) }

// fmaRow broadcasts the number at an address to register a, and adds its products with
// registers b and b+1 to acc and acc+1.
func (g *gen) fmaRow(at string, a, b, acc int) {
	z := func(n int) string { return fmt.Sprintf("Z%d", n) }
	g.block("FMA_ROW_2", func() {
		g.ins("VBROADCASTSS %s, Z%d\n%s\n%s", at, a, fmadd512(acc, a, b), fmadd512(acc+1, a, b+1))
	}, "acc0", z(acc), "acc1", z(acc+1), "b0", z(b), "b1", z(b+1), "a", z(a), "at", at)
}

// peak writes a loop of independent multiplications on registers of a kind; a quarter of the
// registers are operands.
func (g *gen) peak(name, what, reg string, registers int, step func(acc int) string) {
	g.text(name, "n int", "does n times 48 "+what+" on registers.")
	g.ins("MOVQ n+0(FP), CX")
	for i := range registers {
		g.ins("VXORPS %[1]s%[2]d, %[1]s%[2]d, %[1]s%[2]d", reg, i)
	}
	g.ins("PCALIGN $64")
	g.label("loop")
	for range 48 / (registers * 3 / 4) {
		g.block("PEAK_"+what+reg, func() {
			for i := range registers * 3 / 4 {
				g.ins("%s", step(i))
			}
		})
	}
	g.ins("DECQ CX\nJNZ loop\nVZEROUPPER\nRET")
}
