package asmgen

import "fmt"

// avx512Tile is a kernel for AVX-512. One of 14 rows and two vectors takes 28
// accumulators; two vectors of B and two broadcasts take the other registers.
var avx512Tile = tile{
	bytes: 64, reg: "Z", masked: true, bcast: "VBROADCASTSS", loadB: "VMOVUPS", zero: "VPXORD",
	step: fmadd512,
}

// avx512 writes the kernels for AVX-512.
func avx512() *gen {
	g := &gen{name: "avx512_amd64", doc: "// Kernels for AVX-512.\n\n"}
	base := avx512Tile
	g.family("f32AVX512", 14, []int{2, 1}, base)
	base.next = true
	g.family("f32AVX512Next", 14, []int{2}, base)
	base.next, base.copies = false, true
	g.family("f32AVX512Copy", 14, []int{2}, base)
	g.vectorProducts("AVX512", "Z", 64)
	g.peak("peakAVX512", "VFMADD231PS", "Z", 32, func(acc int) string { return fmt.Sprintf("VFMADD231PS Z30, Z31, Z%d", acc) })
	return g
}

// avx512Pairs writes the kernels for AVX512-BF16.
func avx512Pairs() *gen {
	g := &gen{name: "pairs_amd64", doc: "// Kernels for AVX512-BF16.\n\n"}
	base := avx512Tile
	base.bcast, base.step = "VPBROADCASTD", vdpbf16ps
	g.family("pairsAVX512", 14, []int{2, 1}, base)
	g.peak("peakPairsAVX512", "VDPBF16PS", "Z", 32, func(acc int) string { return vdpbf16ps(acc, 31, 30) })
	return g
}

// avx512Pack writes what is done to operands before products, and to their
// results, for AVX-512.
func avx512Pack() *gen {
	g := &gen{name: "pack_amd64", doc: "// Packing for AVX-512, and what follows products there.\n\n"}
	g.finishes()
	g.finishHalves()
	g.packing()
	return g
}

// fmadd512 adds the products of registers a and b to acc.
func fmadd512(acc, a, b int) string { return fmt.Sprintf("VFMADD231PS Z%d, Z%d, Z%d", b, a, acc) }

// peak writes a loop of independent multiplications on registers of a kind, of
// which a quarter is left to operands.
func (g *gen) peak(name, what, reg string, registers int, step func(acc int) string) {
	g.text(name, "n int", "does n times 48 "+what+" on registers.")
	g.ins("MOVQ n+0(FP), CX")
	for i := range registers {
		g.ins("VXORPS %[1]s%[2]d, %[1]s%[2]d, %[1]s%[2]d", reg, i)
	}
	g.ins("PCALIGN $64")
	g.label("loop")
	for i := range 48 {
		g.ins("%s", step(i%(registers*3/4)))
	}
	g.ins("DECQ CX\nJNZ loop\nVZEROUPPER\nRET")
}
