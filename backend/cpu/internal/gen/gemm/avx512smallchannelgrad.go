package gemm

import "fmt"

// smallChannelGradTaps is the most elements of the window whose sums and offsets fit in
// registers.
const smallChannelGradTaps = 9

// smallChannelGrad writes the gradients by the kernels of few channels, for 1 to
// smallChannelGradTaps elements of the window.
func (g *gen) smallChannelGrad(e element) {
	name := func(taps int) string { return fmt.Sprintf("smallChannelGrad%d%sAVX512", taps, e) }
	places := []string{"AX", "DX", "DI", "R8", "R11", "R12", "R13", "R14", "R15"}
	for n := 1; n <= smallChannelGradTaps; n++ {
		g.text(name(n), windowsParams, fmt.Sprintf("is SmallChannelGrad of %d elements and 32 channels of %s for AVX-512.", n, e))
		g.block("SMALL_CHANNEL_GRAD", func() { g.smallChannelGradLoop(e, n, places) }, "load", fmt.Sprintf("LOAD_TAPS_%d", n), "zero", fmt.Sprintf("ZERO_C_%dx2", n), "grads", "LOAD_GRADS_"+string(e), "fma", fmt.Sprintf("FMA_TAPS_%d", n), "add", fmt.Sprintf("ADD_TAPS_%d", n))
	}
	g.table("Windows", 1, "smallChannelGrad"+string(e)+"AVX512", smallChannelGradTaps, name)
}

// smallChannelGradLoop sums up n taps.
func (g *gen) smallChannelGradLoop(e element, n int, places []string) {
	g.block("LOAD_SMALL_CHANNEL_GRAD_ARGS", func() {
		g.ins("MOVQ at+16(FP), CX\nMOVQ x+24(FP), SI\nMOVQ xs+32(FP), R9\nMOVQ y+40(FP), BX\nMOVQ ys+48(FP), R10")
		g.ins("MOVQ mask+72(FP), DX\nKMOVW DX, K1\nSHRQ $16, DX\nKMOVW DX, K2")
	})
	g.sharedRows("LOAD_TAPS", "", n, func(t int) { g.ins("MOVQ %d(CX), %s", 16*t, places[t]) })
	g.sharedRows("ZERO_C", "x2", n, func(i int) {
		for v := range 2 {
			g.ins("VPXORD Z%[1]d, Z%[1]d, Z%[1]d", 2*i+v)
		}
	})
	g.block("BEGIN_ROWS", func() {
		g.ins("CMPQ n+0(FP), $0\nJLE sum\nCMPQ taps+8(FP), $0\nJLE sum")
		g.label("row")
		g.ins("MOVQ n+0(FP), CX")
		g.label("pixel")
	})
	g.macro("LOAD_GRADS_"+string(e), func() {
		for i := range 2 {
			g.loadHalf(e, i, "(BX)", i+1, 18+i)
		}
		g.prefetchPixel(e, "(BX)")
	})
	g.sharedRows("FMA_TAPS", "", n, func(t int) { g.fmaRow(fmt.Sprintf("(SI)(%s*1)", places[t]), 20+t%4, 18, 2*t) })
	g.block("END_ROWS", func() {
		g.ins("ADDQ R9, SI\nADDQ R10, BX\nDECQ CX\nJNZ pixel\nADDQ ds+64(FP), SI\nDECQ taps+8(FP)\nJNZ row")
		g.label("sum")
		g.ins("MOVQ at+16(FP), CX")
	})
	g.sharedRows("ADD_TAPS", "", n, func(t int) {
		g.block("ADD_TAP", func() {
			g.ins("MOVQ %d(CX), DI\nADDQ d+56(FP), DI", 16*t+8)
			for i := range 2 {
				g.ins("VADDPS %[1]d(DI), Z%[2]d, Z%[2]d\nVMOVUPS Z%[2]d, %[1]d(DI)", 64*i, 2*t+i)
			}
		}, "tap", 16*t, "acc0", fmt.Sprintf("Z%d", 2*t), "acc1", fmt.Sprintf("Z%d", 2*t+1))
	})
	g.end()
}
