package gemm

import (
	"fmt"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
)

// avx512Conv writes the loops over channels of windows: depthwise convolutions, their
// gradients, and maxima.
func avx512Conv() *gen {
	g := &gen{file: asm.NewFile("conv_amd64"), doc: "// Kernels and loops of convolutions for AVX-512.\n\n"}
	runs := avx512Tile
	runs.runs = true
	runs.inner, runs.vectors = true, 2
	g.pixelRuns("pixelRuns", "AVX512", 14, runs)
	runs.inner = false
	g.pixelRuns("rowRuns", "AVX512", 14, runs)
	runs.vectors = 1
	g.pixelRuns("rowRunsNarrow", "AVX512", 14, runs)
	g.depthwiseRow()
	g.depthwiseNine()
	g.depthwiseAdd()
	g.depthwiseGrad()
	for _, e := range []element{float32s, float16s, bfloat16s} {
		g.smallChannel(e)
		g.smallChannelGrad(e)
	}
	g.transform("winogradSourceAVX512", winogradSource)
	g.transform("winogradResultAVX512", winogradResult)
	g.transform("winogradGradsAVX512", winogradGrads)
	for _, e := range []element{float32s, float16s, bfloat16s} {
		g.maxPool(e)
		g.maxPoolGrad(e, false, false)
		g.maxPoolGrad(e, true, false)
	}
	g.maxPoolGrad(float32s, false, true)
	g.narrowLanes(float16s)
	g.narrowLanes(bfloat16s)
	g.narrowNative()
	return g
}

// pixelRuns writes the kernels of up to some rows that read runs of pixels, for one kind of
// arithmetic and form, and a table of them.
func (g *gen) pixelRuns(prefix, suffix string, rows int, t tile) {
	name := func(mr int) string { return fmt.Sprintf("%s%d%s", prefix, mr, suffix) }
	for mr := 1; mr <= rows; mr++ {
		t.rows, t.name = mr, name(mr)
		t.write(g)
	}
	g.table("PixelRuns", 1, prefix+suffix, rows, name)
}

const windowsParams = "n int, taps int, at unsafe.Pointer, x unsafe.Pointer, xs int, y unsafe.Pointer, ys int, d unsafe.Pointer, ds int, mask uint"

// windowsStart loads the arguments: CX is n, AX taps, R8 their offsets, SI and R9 are x, BX
// and R10 are y, DI and R11 are d; K1 and K2 mask the channels.
func (g *gen) windowsStart() {
	g.block("LOAD_WINDOW_ARGS", func() {
		g.ins("MOVQ n+0(FP), CX\nMOVQ taps+8(FP), AX\nMOVQ at+16(FP), R8\nMOVQ x+24(FP), SI\nMOVQ xs+32(FP), R9\nMOVQ y+40(FP), BX\nMOVQ ys+48(FP), R10\nMOVQ d+56(FP), DI\nMOVQ ds+64(FP), R11")
		g.ins("MOVQ mask+72(FP), DX\nKMOVW DX, K1\nSHRQ $16, DX\nKMOVW DX, K2")
	})
}

// depthwiseAdd adds windows of four pixels and 32 channels at a time to the result.
func (g *gen) depthwiseAdd() {
	g.text("depthwiseAddAVX512", windowsParams, "is DepthwiseAdd of 32 channels for AVX-512.")
	g.windowsStart()
	g.depthwise(func(n int) {
		g.ins("MOVQ DI, DX")
		g.sharedRows("LOAD_DEPTHWISE", "", n, func(i int) {
			g.ins("VMOVUPS.Z (DX), K1, Z%d\nVMOVUPS.Z 64(DX), K2, Z%d\nADDQ R11, DX", 2*i, 2*i+1)
		})
	}, func(int) {})
	g.label("done")
	g.end()
}

// depthwiseRow computes four pixels and 32 channels at a time, and all pixels before the next
// channels.
func (g *gen) depthwiseRow() {
	g.text("depthwiseRowAVX512", depthwiseRowParams, "is a DepthwiseRow for AVX-512.")
	g.ins("MOVQ taps+8(FP), AX\nMOVQ at+16(FP), R8\nMOVQ xs+32(FP), R9\nMOVQ ds+64(FP), R11")
	g.ins("MOVQ bias+48(FP), BX\nTESTQ BX, BX\nJZ group\nVBROADCASTSS (BX), Z10")
	g.label("group")
	g.ins("MOVQ channels+72(FP), DX\nMOVQ $32, R10\nCMPQ DX, R10\nCMOVQGT R10, DX\nMOVL $-1, R10\nBZHIL DX, R10, DX\nKMOVW DX, K1\nSHRQ $16, DX\nKMOVW DX, K2")
	g.ins("MOVQ n+0(FP), CX\nMOVQ x+24(FP), SI\nMOVQ d+56(FP), DI")
	g.depthwise(func(n int) {
		g.sharedRows("ZERO_DEPTHWISE", "", n, func(i int) {
			g.ins("VPXORD Z%[1]d, Z%[1]d, Z%[1]d\nVPXORD Z%[2]d, Z%[2]d, Z%[2]d", 2*i, 2*i+1)
		})
	}, func(n int) {
		g.ins("MOVQ bias+48(FP), BX\nTESTQ BX, BX\nJZ store%d\nVMOVUPS 32(BX), Z8\nVMOVUPS 96(BX), Z9", n)
		for i := range n {
			g.addPixelBias("Z", 10, 8, 2*i)
		}
		g.label(fmt.Sprintf("store%d", n))
	})
	g.label("done")
	g.ins("ADDQ $128, x+24(FP)\nADDQ $128, y+40(FP)\nADDQ $128, d+56(FP)\nCMPQ bias+48(FP), $0\nJEQ next\nADDQ $128, bias+48(FP)")
	g.label("next")
	g.ins("SUBQ $32, channels+72(FP)\nJGT group")
	g.end()
}

// depthwiseNine keeps the kernels of 16 channels in registers: the sum of a pixel is nine loads
// and multiplications, and sums of the next pixels fill the time that an addition takes.
func (g *gen) depthwiseNine() {
	g.text("depthwiseNineAVX512", depthwiseRowParams, "is DepthwiseNine for AVX-512.")
	g.ins("MOVQ at+16(FP), R8\nMOVQ 16(R8), R12\nMOVQ 48(R8), R13\nMOVQ 8(R8), DX\nADDQ DX, y+40(FP)\nMOVQ 24(R8), R10\nSUBQ DX, R10\nMOVQ xs+32(FP), R9\nMOVQ ds+64(FP), R11")
	g.ins("MOVL $0x80000000, DX\nVPBROADCASTD DX, Z10\nMOVL $0xff800000, DX\nVPBROADCASTD DX, Z11\nMOVQ bias+48(FP), R8\nTESTQ R8, R8\nJZ group\nVBROADCASTSS (R8), Z11")
	g.label("group")
	g.ins("MOVQ channels+72(FP), DX\nMOVQ $16, BX\nCMPQ DX, BX\nCMOVQGT BX, DX\nMOVL $-1, BX\nBZHIL DX, BX, DX\nKMOVW DX, K1\nMOVQ y+40(FP), BX")
	for t := range 9 {
		g.block("LOAD_NINE", func() { g.ins("VMOVUPS (BX), Z%d\nADDQ R10, BX", 1+t) })
	}
	g.ins("TESTQ R8, R8\nJZ row\nVMOVUPS 32(R8), Z10\nADDQ $64, R8")
	g.label("row")
	g.ins("MOVQ n+0(FP), CX\nMOVQ x+24(FP), SI\nMOVQ d+56(FP), DI\nLEAQ (SI)(R13*1), AX\nLEAQ (SI)(R13*2), DX")
	g.label("pixel")
	g.ins("VPXORD Z0, Z0, Z0")
	for t := range 9 {
		g.ins("VFMADD231PS (%s)%s, Z%d, K1, Z0", []string{"SI", "AX", "DX"}[t/3], []string{"", "(R12*1)", "(R12*2)"}[t%3], 1+t)
	}
	g.ins("ADDQ R9, SI\nADDQ R9, AX\nADDQ R9, DX\nVADDPS Z10, Z0, Z0\nVMAXPS Z0, Z11, Z0\nVMOVUPS Z0, K1, (DI)\nADDQ R11, DI\nDECQ CX\nJNZ pixel")
	g.ins("ADDQ $64, x+24(FP)\nADDQ $64, y+40(FP)\nADDQ $64, d+56(FP)\nSUBQ $16, channels+72(FP)\nJGT group")
	g.end()
}

// depthwise computes the CX pixels from SI on, four, two and one at a time, in registers that
// begin sets. It calls sum before they are stored from DI on.
func (g *gen) depthwise(begin, sum func(n int)) {
	pixels := func(n int) {
		begin(n)
		at := []string{"SI", "R12", "R13", "R14"}[:n]
		for i := range at[1:] {
			g.ins("LEAQ (%s)(R9*1), %s", at[i], at[i+1])
		}
		g.ins("MOVQ AX, DX\nMOVQ R8, R10\nTESTQ DX, DX\nJZ sum%d", n)
		g.label(fmt.Sprintf("tap%d", n))
		g.block("LOAD_DEPTHWISE_TAP", func() {
			g.ins("MOVQ 8(R10), BX\nADDQ y+40(FP), BX\nVMOVUPS (BX), Z8\nVMOVUPS 64(BX), Z9\nMOVQ (R10), BX\nADDQ $16, R10")
		})
		g.rowsOf("FMA_DEPTHWISE", "", n, func(i int) {
			g.ins("VFMADD231PS (%s)(BX*1), Z8, K1, Z%d\nVFMADD231PS 64(%s)(BX*1), Z9, K2, Z%d", at[i], 2*i, at[i], 2*i+1)
		})
		g.ins("DECQ DX\nJNZ tap%d", n)
		g.label(fmt.Sprintf("sum%d", n))
		sum(n)
		g.sharedRows("STORE_DEPTHWISE", "", n, func(i int) {
			g.ins("VMOVUPS Z%d, K1, (DI)\nVMOVUPS Z%d, K2, 64(DI)\nADDQ R11, DI", 2*i, 2*i+1)
		})
		g.ins("LEAQ (%s)(R9*1), SI", at[n-1])
	}
	g.ins("SUBQ $4, CX\nJLT few")
	g.label("four")
	pixels(4)
	g.ins("SUBQ $4, CX\nJGE four")
	g.label("few")
	g.ins("ADDQ $4, CX\nJLE done\nSUBQ $2, CX\nJLT one")
	pixels(2)
	g.ins("SUBQ $2, CX\nJLT one")
	g.label("one")
	g.ins("ADDQ $2, CX\nJLE done")
	pixels(1)
}

// depthwiseGrad sums over pixels, four at a time, one element of the window after the other.
func (g *gen) depthwiseGrad() {
	g.text("depthwiseGradAVX512", windowsParams, "is DepthwiseGrad of 32 channels for AVX-512.")
	g.windowsStart()
	g.ins("TESTQ AX, AX\nJZ done")
	g.label("tap")
	g.ins("MOVQ (R8), SI\nADDQ x+24(FP), SI\nMOVQ 8(R8), DI\nADDQ d+56(FP), DI\nADDQ $16, R8\nMOVQ y+40(FP), BX\nMOVQ n+0(FP), CX")
	for i := range 8 {
		g.ins("VPXORD Z%[1]d, Z%[1]d, Z%[1]d", i)
	}
	step := func(i int) {
		g.block("FMA_DEPTHWISE_GRAD", func() {
			g.ins("VMOVUPS.Z (BX), K1, Z8\nVMOVUPS.Z 64(BX), K2, Z9\nADDQ R10, BX")
			g.ins("VFMADD231PS (SI), Z8, K1, Z%d\nVFMADD231PS 64(SI), Z9, K2, Z%d\nADDQ R9, SI", 2*i, 2*i+1)
		}, "acc0", fmt.Sprintf("Z%d", 2*i), "acc1", fmt.Sprintf("Z%d", 2*i+1))
	}
	g.ins("SUBQ $4, CX\nJLT few")
	g.label("four")
	for i := range 4 {
		step(i)
	}
	g.ins("SUBQ $4, CX\nJGE four")
	g.label("few")
	g.ins("ADDQ $4, CX\nJLE sum")
	g.label("one")
	step(0)
	g.ins("DECQ CX\nJNZ one")
	g.label("sum")
	for i := range 2 {
		g.ins("VADDPS Z%d, Z%d, Z%d\nVADDPS Z%d, Z%d, Z%d\nVADDPS Z%d, Z%d, Z%d", 2+i, i, i, 6+i, 4+i, 4+i, 4+i, i, i)
		g.ins("VADDPS %d(DI), Z%d, Z%d\nVMOVUPS Z%d, %d(DI)", 64*i, i, i, i, 64*i)
	}
	g.ins("DECQ AX\nJNZ tap")
	g.label("done")
	g.end()
}
