package gemm

import (
	"fmt"
	"slices"
)

// avx2Conv writes the loops of convolutions and pooling for AVX2. They go through channels
// in groups of eight or sixteen; VMASKMOVPS, whose stores are slow, is for the last channels.
func (g *gen) avx2Conv() {
	g.file.Raw(channelMasks)
	runs := avx2Tile
	runs.runs, runs.vectors = true, 2
	g.pixelRuns("rowRuns", "AVX2", 6, runs)
	down := avx2Tile
	down.name, down.rows, down.vectors = "f32AVX2Tall", 6, 2
	down.tall(g)
	g.smallChannelAVX2()
	g.depthwiseRowAVX2()
	g.depthwiseNineAVX2()
	g.transformAVX2("winogradSourceAVX2", winogradSource)
	g.transformAVX2("winogradResultAVX2", winogradResult)
	g.transformAVX2("winogradGradsAVX2", winogradGrads)
	g.maxPoolAVX2()
	g.reluAVX2()
}

// channelMasks are lanes of ones before lanes of zeros: from 4·c bytes before the middle on
// they mask c channels.
const channelMasks = "DATA channelMasks<>+0(SB)/8, $-1\nDATA channelMasks<>+8(SB)/8, $-1\nDATA channelMasks<>+16(SB)/8, $-1\nDATA channelMasks<>+24(SB)/8, $-1\n" +
	"DATA channelMasks<>+32(SB)/8, $0\nDATA channelMasks<>+40(SB)/8, $0\nDATA channelMasks<>+48(SB)/8, $0\nDATA channelMasks<>+56(SB)/8, $0\n" +
	"GLOBL channelMasks<>(SB), RODATA|NOPTR, $64\n"

// lastChannels sets Y15 to the mask of the channels in DX, at most 8, which it changes.
func (g *gen) lastChannels() {
	g.block("MASK_CHANNELS_AVX2", func() {
		g.ins("CMPQ DX, $8\nJLE mask\nMOVQ $8, DX")
		g.label("mask")
		g.ins("NEGQ DX\nLEAQ channelMasks<>+32(SB), BX\nVMOVUPS (BX)(DX*4), Y15")
	})
}

// tapPixelsAVX2 is the most pixels of a loop over taps of sixteen channels.
const tapPixelsAVX2 = 6

// smallChannelAVX2 writes the loops over the elements of windows of a source with few channels,
// by the number of pixels that they compute at a time, for sixteen channels after the other.
func (g *gen) smallChannelAVX2() {
	name := func(pixels int) string { return fmt.Sprintf("smallChannel%dF32AVX2", pixels) }
	for p := 1; p <= tapPixelsAVX2; p++ {
		g.text(name(p), windowsParams, fmt.Sprintf("is SmallChannel of %d pixels and 32 channels, to F32, for AVX2.", p))
		part := func(what string) string { return fmt.Sprintf("%s_%d_AVX2", what, p) }
		g.block("SMALL_CHANNEL_AVX2", func() { g.smallChannelPixels(p) }, "zero", part("ZERO_PIXELS"), "fma", part("FMA_PIXELS"), "add", part("ADD_BIAS"), "store", part("STORE_PIXELS"), "masked", part("STORE_MASKED_PIXELS"), "pixels", p)
	}
	g.table("Windows", 1, "smallChannelF32AVX2", tapPixelsAVX2, name)
}

// smallChannelPixels computes p pixels at a time. The taps' offsets are R8, Y15 is the least
// result, R15 the mask of the channels.
func (g *gen) smallChannelPixels(p int) {
	row := func(what string, body func(i int)) { g.sharedRows(what, "_AVX2", p, body) }
	g.ins("MOVQ at+16(FP), R8\nMOVQ xs+32(FP), R9\nMOVQ y+40(FP), BX\nMOVQ ds+64(FP), R11\nMOVQ mask+72(FP), R15")
	g.ins("LEAQ (R9)(R9*2), R10\nLEAQ (R9)(R9*4), R14\nMOVQ ys+48(FP), AX\nVBROADCASTSS 128(BX)(AX*1), Y15")
	g.label("channels")
	g.ins("MOVQ n+0(FP), CX\nMOVQ x+24(FP), SI\nMOVQ d+56(FP), DI\nTESTQ CX, CX\nJLE done")
	g.label("group")
	row("ZERO_PIXELS", func(i int) {
		g.ins("VXORPS Y%[1]d, Y%[1]d, Y%[1]d\nVXORPS Y%[2]d, Y%[2]d, Y%[2]d", 2*i, 2*i+1)
	})
	g.ins("MOVQ taps+8(FP), AX\nMOVQ R8, R12\nTESTQ AX, AX\nJZ sum")
	g.label("tap")
	g.ins("MOVQ 8(R12), DX\nMOVQ (R12), R13\nVMOVUPS (BX)(DX*1), Y12\nVMOVUPS 32(BX)(DX*1), Y13\nADDQ SI, R13\nADDQ $16, R12")
	row("FMA_PIXELS", func(i int) {
		at := []string{"(R13)", "(R13)(R9*1)", "(R13)(R9*2)", "(R13)(R10*1)", "(R13)(R9*4)", "(R13)(R14*1)"}[i]
		g.ins("VBROADCASTSS %s, Y14\nVFMADD231PS Y12, Y14, Y%d\nVFMADD231PS Y13, Y14, Y%d", at, 2*i, 2*i+1)
	})
	g.ins("DECQ AX\nJNZ tap")
	g.label("sum")
	g.ins("MOVQ ys+48(FP), AX\nVMOVUPS (BX)(AX*1), Y12\nVMOVUPS 32(BX)(AX*1), Y13")
	row("ADD_BIAS", func(i int) {
		for v := range 2 {
			// VMAXPS returns its second operand, the first in Go's order, if either is NaN or
			// both are 0.
			g.ins("VADDPS Y%[1]d, Y%[2]d, Y%[2]d\nVMAXPS Y%[2]d, Y15, Y%[2]d", 12+v, 2*i+v)
		}
	})
	g.ins("MOVWLZX R15, DX\nCMPL DX, $0xffff\nJNE last")
	row("STORE_PIXELS", func(i int) {
		g.ins("VMOVUPS Y%d, (DI)\nVMOVUPS Y%d, 32(DI)\nADDQ R11, DI", 2*i, 2*i+1)
	})
	g.label("next")
	g.ins("IMUL3Q $%d, R9, AX\nADDQ AX, SI\nDECQ CX\nJNZ group\nADDQ $64, BX\nADDQ $64, d+56(FP)\nSHRQ $16, R15\nJNZ channels\nJMP done", p)
	g.label("last")
	g.ins("POPCNTQ DX, DX\nLEAQ channelMasks<>+32(SB), R13\nMOVQ $8, AX\nCMPQ DX, AX\nCMOVQLT DX, AX\nSUBQ AX, DX\nNEGQ AX\nNEGQ DX\nVMOVUPS (R13)(AX*4), Y12\nVMOVUPS (R13)(DX*4), Y13")
	row("STORE_MASKED_PIXELS", func(i int) {
		g.ins("VMASKMOVPS Y%d, Y12, (DI)\nVMASKMOVPS Y%d, Y13, 32(DI)\nADDQ R11, DI", 2*i, 2*i+1)
	})
	g.ins("JMP next")
	g.label("done")
	g.end()
}

// depthwiseRowParams is the signature of a gemm.DepthwiseRow.
const depthwiseRowParams = "n int, taps int, at unsafe.Pointer, x unsafe.Pointer, xs int, y unsafe.Pointer, bias unsafe.Pointer, d unsafe.Pointer, ds int, channels int"

// depthwiseRowAVX2 computes six pixels of sixteen channels at a time.
func (g *gen) depthwiseRowAVX2() {
	g.text("depthwiseRowAVX2", depthwiseRowParams, "is a DepthwiseRow for AVX2.")
	g.ins("MOVQ taps+8(FP), AX\nMOVQ at+16(FP), R8\nMOVQ xs+32(FP), R9\nMOVQ y+40(FP), R15\nMOVQ ds+64(FP), R11")
	g.ins("LEAQ (R9)(R9*2), R10\nLEAQ (R9)(R9*4), R14\nMOVQ bias+48(FP), BX\nTESTQ BX, BX\nJZ group\nVMOVUPS (BX), Y14")
	start := func() { g.ins("MOVQ n+0(FP), CX\nMOVQ x+24(FP), SI\nMOVQ d+56(FP), DI") }
	// next goes to the next channels.
	next := func(bytes int, to string) {
		g.block("NEXT_CHANNELS_AVX2", func() {
			g.ins("ADDQ $%[1]d, x+24(FP)\nADDQ $%[1]d, d+56(FP)\nADDQ $%[1]d, R15\nCMPQ bias+48(FP), $0\nJEQ %[2]s\nADDQ $%[1]d, bias+48(FP)\nJMP %[2]s", bytes, to)
		}, "bytes", bytes)
	}
	g.label("group")
	g.ins("SUBQ $16, channels+72(FP)\nJLT rest")
	start()
	g.ins("SUBQ $6, CX\nJLT few")
	g.label("six")
	g.depthwisePixels(6, 2)
	g.ins("SUBQ $6, CX\nJGE six")
	g.label("few")
	g.ins("ADDQ $6, CX\nCMPQ CX, $3\nJLT two")
	g.depthwisePixels(3, 2)
	g.ins("SUBQ $3, CX")
	g.label("two")
	g.ins("CMPQ CX, $2\nJLT one")
	g.depthwisePixels(2, 2)
	g.ins("SUBQ $2, CX")
	g.label("one")
	g.ins("TESTQ CX, CX\nJLE next")
	g.depthwisePixels(1, 2)
	g.label("next")
	next(64, "group")
	g.label("rest")
	g.ins("ADDQ $16, channels+72(FP)")
	g.label("vector")
	g.ins("MOVQ channels+72(FP), DX\nTESTQ DX, DX\nJLE done")
	g.lastChannels()
	start()
	g.ins("SUBQ $8, channels+72(FP)\nTESTQ CX, CX\nJLE done")
	g.label("pixel")
	g.depthwisePixels(1, 1)
	g.ins("DECQ CX\nJNZ pixel")
	next(32, "vector")
	g.label("done")
	g.end()
}

// depthwiseNineAVX2 keeps the kernels of eight channels in registers: the sum of a pixel is nine
// loads and multiplications, and sums of the next pixels fill the time that an addition takes.
func (g *gen) depthwiseNineAVX2() {
	g.text("depthwiseNineAVX2", depthwiseRowParams, "is DepthwiseNine of a multiple of eight channels for AVX2.")
	g.ins("MOVQ at+16(FP), R8\nMOVQ 16(R8), R12\nMOVQ 48(R8), R13\nMOVQ 8(R8), DX\nADDQ DX, y+40(FP)\nMOVQ 24(R8), R10\nSUBQ DX, R10\nMOVQ xs+32(FP), R9\nMOVQ ds+64(FP), R11")
	g.ins("VPCMPEQD Y11, Y11, Y11\nVPSLLD $31, Y11, Y10\nVPSLLD $23, Y11, Y11\nMOVQ bias+48(FP), R8\nTESTQ R8, R8\nJZ group\nVMOVUPS (R8), Y11")
	g.label("group")
	g.ins("MOVQ y+40(FP), BX")
	for t := range 9 {
		g.block("LOAD_NINE_AVX2", func() { g.ins("VMOVUPS (BX), Y%d\nADDQ R10, BX", 1+t) })
	}
	g.ins("TESTQ R8, R8\nJZ row\nVMOVUPS 32(R8), Y10\nADDQ $32, R8")
	g.label("row")
	g.ins("MOVQ n+0(FP), CX\nMOVQ x+24(FP), SI\nMOVQ d+56(FP), DI\nLEAQ (SI)(R13*1), AX\nLEAQ (SI)(R13*2), BX")
	at := func(t int) string {
		return []string{"(SI)", "(AX)", "(BX)"}[t/3] + []string{"", "(R12*1)", "(R12*2)"}[t%3]
	}
	g.label("pixel")
	g.ins("VXORPS Y0, Y0, Y0")
	for t := range 9 {
		g.ins("VFMADD231PS %s, Y%d, Y0", at(t), 1+t)
	}
	// VMAXPS returns its second operand, the first in Go's order, if either is NaN or both are 0.
	g.ins("VADDPS Y10, Y0, Y0\nVMAXPS Y0, Y11, Y0\nVMOVUPS Y0, (DI)\nADDQ R9, SI\nADDQ R9, AX\nADDQ R9, BX\nADDQ R11, DI\nDECQ CX\nJNZ pixel")
	g.ins("ADDQ $32, x+24(FP)\nADDQ $32, y+40(FP)\nADDQ $32, d+56(FP)\nSUBQ $8, channels+72(FP)\nJNE group")
	g.end()
}

// depthwisePixels computes n pixels of eight or sixteen channels: one or two vectors. Single
// vectors are masked by Y15.
func (g *gen) depthwisePixels(n, vectors int) {
	name := fmt.Sprint(n)
	if vectors == 1 {
		name = "last"
	}
	at := []string{"(R13)", "(R13)(R9*1)", "(R13)(R9*2)", "(R13)(R10*1)", "(R13)(R9*4)", "(R13)(R14*1)"}[:n]
	for i := range n * vectors {
		g.ins("VXORPS Y%[1]d, Y%[1]d, Y%[1]d", i)
	}
	g.ins("MOVQ AX, DX\nMOVQ R8, R12\nTESTQ DX, DX\nJZ sum%s", name)
	g.label("tap" + name)
	g.ins("MOVQ 8(R12), BX\nMOVQ (R12), R13\nADDQ R15, BX\nADDQ SI, R13\nADDQ $16, R12")
	if vectors == 1 {
		g.ins("VMASKMOVPS (R13), Y15, Y13\nVFMADD231PS (BX), Y13, Y0")
	} else {
		g.ins("VMOVUPS (BX), Y12\nVMOVUPS 32(BX), Y13")
		for i, a := range at {
			g.block("FMA_PIXEL_AVX2", func() {
				g.ins("VFMADD231PS %s, Y12, Y%d\nVFMADD231PS 32%s, Y13, Y%d", a, 2*i, a, 2*i+1)
			}, "at", a, "acc0", fmt.Sprintf("Y%d", 2*i), "acc1", fmt.Sprintf("Y%d", 2*i+1))
		}
	}
	g.ins("DECQ DX\nJNZ tap%s", name)
	g.label("sum" + name)
	g.ins("MOVQ bias+48(FP), BX\nTESTQ BX, BX\nJZ store%s\nVMOVUPS 32(BX), Y12", name)
	if vectors > 1 {
		g.ins("VMOVUPS 64(BX), Y13")
	}
	for i := 0; i < n && vectors > 1; i++ {
		g.addPixelBias("Y", 14, 12, 2*i)
	}
	if vectors == 1 {
		g.ins("VADDPS Y12, Y0, Y0\nVMAXPS Y0, Y14, Y0")
	}
	g.label("store" + name)
	if vectors == 1 {
		g.ins("VMASKMOVPS Y0, Y15, (DI)\nADDQ R11, DI\nADDQ R9, SI")
		return
	}
	for i := range n {
		g.block("STORE_PIXEL_AVX2", func() {
			g.ins("VMOVUPS Y%d, (DI)\nVMOVUPS Y%d, 32(DI)\nADDQ R11, DI", 2*i, 2*i+1)
		}, "acc0", fmt.Sprintf("Y%d", 2*i), "acc1", fmt.Sprintf("Y%d", 2*i+1))
	}
	g.ins("%s", map[int]string{6: "LEAQ (SI)(R10*2), SI", 3: "ADDQ R10, SI", 2: "LEAQ (SI)(R9*2), SI", 1: "ADDQ R9, SI"}[n])
}

// addPixelBias adds the bias in registers bias and bias+1 to accumulators acc and acc+1, and takes
// the maximum with register least.
func (g *gen) addPixelBias(reg string, least, bias, acc int) {
	of := func(n int) string { return fmt.Sprintf("%s%d", reg, n) }
	g.block("ADD_PIXEL_BIAS_"+reg, func() {
		for v := range 2 {
			// VMAXPS returns its second operand, the first in Go's order, if either is NaN or both
			// are 0.
			g.ins("VADDPS %[1]s, %[2]s, %[2]s\nVMAXPS %[2]s, %[3]s, %[2]s", of(bias+v), of(acc+v), of(least))
		}
	}, "acc0", of(acc), "acc1", of(acc+1))
}

// tallParams is the signature of a gemm.TallKernel.
const tallParams = "n int, k int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, bias unsafe.Pointer, least unsafe.Pointer, d unsafe.Pointer, ldd int"

// tall writes a kernel that goes down rows of A, tile by tile, for a panel of B, and computes
// bias and relu in registers: a call for each tile costs as much as a short sum.
func (t *tile) tall(g *gen) {
	g.text(t.name, tallParams, fmt.Sprintf("is a TallKernel of %d rows and %d columns.", t.rows, t.vectors*t.bytes/4))
	bases := rowBases[:(t.rows+2)/3]
	g.ins("MOVQ lda+24(FP), R12\nMOVQ ldb+40(FP), R13\nMOVQ d+64(FP), DI\nMOVQ ldd+72(FP), R8\nLEAQ (R13)(R13*2), R11")
	if t.masked {
		g.ins("KXNORW K1, K1, K1\nKXNORW K2, K2, K2")
	}
	g.label("tile")
	g.ins("MOVQ k+8(FP), CX\nMOVQ a+16(FP), AX\nMOVQ b+32(FP), BX\nMOVQ DI, DX")
	t.prefetchC(g)
	t.zeroC(g)
	t.pointA(g, bases)
	t.pointPrefetchB(g)
	t.steps(g, bases, "sum")
	g.label("sum")
	g.ins("MOVQ bias+48(FP), SI\nTESTQ SI, SI\nJZ least")
	first := t.rows * t.vectors
	if t.masked {
		g.ins("XORQ R9, R9") // all rows of s are the bias
		t.addS(g)
	} else {
		for v := range t.vectors {
			g.ins("VMOVUPS %d(SI), %s%d", v*t.bytes, t.reg, first+v)
		}
		for i := range first {
			g.ins("VADDPS %[1]s%[2]d, %[1]s%[3]d, %[1]s%[3]d", t.reg, first+i%t.vectors, i)
		}
	}
	g.label("least")
	g.ins("MOVQ least+56(FP), SI\nTESTQ SI, SI\nJZ store\nVBROADCASTSS (SI), %s%d", t.reg, first)
	for i := range t.rows {
		g.block("LEAST_OF_ROW_"+t.reg, func() {
			for v := range t.vectors {
				// VMAXPS returns its second operand, the first in Go's order, if either is NaN or
				// both are 0.
				g.ins("VMAXPS %[1]s%[2]d, %[1]s%[3]d, %[1]s%[2]d", t.reg, t.acc(i, v), first)
			}
		}, "acc0", fmt.Sprintf("%s%d", t.reg, t.acc(i, 0)), "acc1", fmt.Sprintf("%s%d", t.reg, t.acc(i, 1)))
	}
	g.label("store")
	t.storeC(g)
	g.ins("ADDQ R8, DI\nIMUL3Q $%d, R12, SI\nADDQ SI, a+16(FP)\nDECQ n+0(FP)\nJNZ tile", t.rows)
	g.end()
}

// transformAVX2 writes the product M·X·Mᵀ for tiles X, eight channels at a time: each row of
// M·X is made from memory, and then each of its products with Mᵀ.
func (g *gen) transformAVX2(name string, m [][]int) {
	p, q := len(m), len(m[0])
	g.text(name, winogradParams, fmt.Sprintf("is a Transform of %d×%d pixels to %d×%d for AVX2.", q, q, p, p))
	g.block("LOAD_TRANSFORM_ARGS_AVX2", func() {
		g.ins("MOVQ row+16(FP), R8\nMOVQ column+24(FP), R9\nMOVQ drow+48(FP), R11\nMOVQ dcolumn+56(FP), R12")
		g.ins("LEAQ (R9)(R9*2), R10\nLEAQ (R12)(R12*2), R13")
	})
	g.label("tile")
	g.block("START_TRANSFORM_AVX2", func() {
		g.ins("DECQ n+0(FP)\nJLT done\nMOVQ x+8(FP), SI\nMOVQ d+40(FP), DI\nMOVQ mask+72(FP), CX")
		g.label("channels")
		g.ins("MOVBLZX CX, DX\nCMPL DX, $255\nJNE last")
	})
	for _, masked := range []bool{false, true} {
		if masked {
			g.block("MASK_TRANSFORM_AVX2", func() {
				g.ins("ADDQ $32, SI\nADDQ $32, DI\nSHRQ $8, CX\nJMP channels")
				g.label("last")
				g.ins("POPCNTQ DX, DX\nJZ next")
			})
			g.lastChannels()
		}
		g.transformChannels(m, masked)
	}
	g.label("next")
	g.ins("MOVQ xs+32(FP), DX\nADDQ DX, x+8(FP)\nMOVQ ds+64(FP), DX\nADDQ DX, d+40(FP)\nJMP tile")
	g.label("done")
	g.end()
}

// transformChannels transforms eight channels, those of Y15 if masked is set.
func (g *gen) transformChannels(m [][]int, masked bool) {
	q := len(m[0])
	rows, strides := []string{"SI", "AX", "BX", "DX"}[:q], []string{"", "(%s*1)", "(%s*2)", "(%s*1)"}
	column := func(base, one, three string, i int) string {
		switch {
		case i == 0:
			return "(" + base + ")"
		case i == 3:
			one = three
		}
		return "(" + base + ")" + fmt.Sprintf(strides[i], one)
	}
	for i := 1; i < q; i++ {
		g.ins("LEAQ (%s)(R8*1), %s", rows[i-1], rows[i])
	}
	g.ins("MOVQ DI, R15")
	for i, factors := range m {
		for c := range q {
			first := true
			if !slices.Contains(factors, 1) { // zero less the other terms
				g.ins("VXORPS Y%[1]d, Y%[1]d, Y%[1]d", c)
				first = false
			}
			// The first term must be a positive one.
			for _, sign := range []int{1, -1} {
				for r, f := range factors {
					if f != sign {
						continue
					}
					at := column(rows[r], "R9", "R10", c)
					load, to := "VMOVUPS %s, Y%d", c
					if masked {
						load = "VMASKMOVPS %s, Y15, Y%d"
						if !first {
							to = 8
						}
					}
					what := map[int]string{1: "VADDPS", -1: "VSUBPS"}[sign]
					switch {
					case first || masked:
						g.ins(load, at, to)
					default:
						g.ins("%s %s, Y%[3]d, Y%[3]d", what, at, c)
					}
					if masked && !first {
						g.ins("%s Y8, Y%[2]d, Y%[2]d", what, c)
					}
					first = false
				}
			}
		}
		g.block(fmt.Sprintf("TRANSFORM_%s_AVX2_%dx%d", map[bool]string{false: "ROW", true: "LAST"}[masked], q, len(m)), func() {
			for j, factors := range m {
				sum := -1
				if !slices.Contains(factors, 1) {
					sum = 4 + j
					g.ins("VXORPS Y%[1]d, Y%[1]d, Y%[1]d", sum)
				}
				for _, sign := range []int{1, -1} {
					for c, f := range factors {
						switch {
						case f != sign:
						case sum < 0:
							sum = c
						default:
							what := map[int]string{1: "VADDPS", -1: "VSUBPS"}[sign]
							g.ins("%s Y%d, Y%d, Y%d", what, c, sum, 4+j)
							sum = 4 + j
						}
					}
				}
				mask := ""
				store := "VMOVUPS"
				if masked {
					store, mask = "VMASKMOVPS", "Y15, "
				}
				g.ins("%s Y%d, %s%s", store, sum, mask, column("R15", "R12", "R13", j))
			}
		})
		if i+1 < len(m) {
			g.ins("ADDQ R11, R15")
		}
	}
}

// maxPoolAVX2 computes the maxima of windows of float32, eight channels at a time.
func (g *gen) maxPoolAVX2() {
	g.text("maxPoolF32AVX2", windowsParams, "is MaxPool of 32 channels of F32 for AVX2.")
	g.ins("MOVQ taps+8(FP), AX\nMOVQ at+16(FP), R8\nMOVQ xs+32(FP), R9\nMOVQ ds+64(FP), R11\nMOVQ mask+72(FP), R10")
	g.ins("MOVL $0xff800000, DX\nVMOVD DX, X14\nVBROADCASTSS X14, Y14")
	g.label("channels")
	g.ins("MOVBLZX R10, DX\nMOVQ n+0(FP), CX\nMOVQ x+24(FP), SI\nMOVQ d+56(FP), DI\nTESTQ CX, CX\nJLE done\nCMPL DX, $255\nJNE last")
	for _, masked := range []bool{false, true} {
		load, store, pixel := "VMOVUPS (SI)(R13*1), Y1", "VMOVUPS Y0, (DI)", "pixel"
		if masked {
			g.label("last")
			g.ins("POPCNTQ DX, DX\nJZ done")
			g.lastChannels()
			load, store, pixel = "VMASKMOVPS (SI)(R13*1), Y15, Y1", "VMASKMOVPS Y0, Y15, (DI)", "lastPixel"
		}
		g.label(pixel)
		g.ins("VMOVUPS Y14, Y0\nMOVQ AX, DX\nMOVQ R8, R12\nTESTQ DX, DX\nJZ %sMost", pixel)
		g.label(pixel + "Tap")
		// VMAXPS returns the operand that is first in Go's order if one is NaN: a NaN in the
		// maximum stays, and a NaN of the window is blended in.
		g.ins("MOVQ (R12), R13\nADDQ $8, R12\n%s\nVCMPPS $3, Y1, Y1, Y2\nVCMPPS $7, Y0, Y0, Y3\nVMAXPS Y0, Y1, Y0", load)
		g.ins("VANDPS Y2, Y3, Y2\nVBLENDVPS Y2, Y1, Y0, Y0\nDECQ DX\nJNZ %sTap", pixel)
		g.label(pixel + "Most")
		g.ins("%s\nADDQ R9, SI\nADDQ R11, DI\nDECQ CX\nJNZ %s", store, pixel)
		if !masked {
			g.ins("ADDQ $32, x+24(FP)\nADDQ $32, d+56(FP)\nSHRQ $8, R10\nJMP channels")
		}
	}
	g.label("done")
	g.end()
}

// reluAVX2 writes the epilogues of products, sixteen columns at a time.
func (g *gen) reluAVX2() {
	for _, f := range []struct {
		name, doc string
		add, grad bool
	}{
		{"reluAVX2", "is Relu: d[i*ldd+j] = 0 if d[i*ldd+j] < 0. It does not read y.", false, false},
		{"addAVX2", "is Add: d[i*ldd+j] += y[i*ldy+j].", true, false},
		{"reluGradAVX2", "is ReluGrad: d[i*ldd+j] = 0 unless y[i*ldy+j] > 0.", false, true},
	} {
		g.text(f.name, epilogueParams, f.doc)
		g.ins("MOVQ ldd+16(FP), R8\nMOVQ ldy+32(FP), R9\nMOVQ mask+40(FP), R10\nVXORPS Y14, Y14, Y14")
		row := func(loads, stores []string) {
			for i := range loads {
				if f.grad || f.add {
					g.ins(loads[i], "SI", 2+i)
					g.ins(loads[i], "DI", i)
				}
				if f.add {
					g.ins("VADDPS Y%[1]d, Y%[2]d, Y%[2]d", 2+i, i)
				} else if f.grad {
					const greater = 0x1e // ordered, quiet
					g.ins("VCMPPS $%d, Y14, Y%[2]d, Y%[2]d\nVANDPS Y%[2]d, Y%[3]d, Y%[3]d", greater, 2+i, i)
				} else {
					// VMAXPS returns its second operand, the first in Go's order, if either is
					// NaN or both are 0.
					g.ins(loads[i], "DI", i)
					g.ins("VMAXPS Y%[1]d, Y14, Y%[1]d", i)
				}
			}
			for i := range stores {
				g.ins(stores[i], i, "DI")
			}
			if f.grad || f.add {
				g.ins("ADDQ R9, SI")
			}
			g.ins("ADDQ R8, DI\nDECQ CX")
		}
		g.label("columns")
		g.ins("MOVQ rows+0(FP), CX\nMOVQ d+8(FP), DI\nMOVQ y+24(FP), SI\nMOVWLZX R10, DX\nCMPL DX, $0xffff\nJNE few")
		g.label("row")
		row([]string{"VMOVUPS (%s), Y%d", "VMOVUPS 32(%s), Y%d"}, []string{"VMOVUPS Y%d, (%s)", "VMOVUPS Y%d, 32(%s)"})
		g.ins("JNZ row\nADDQ $64, d+8(FP)\nADDQ $64, y+24(FP)\nSHRQ $16, R10\nJMP columns")
		g.label("few")
		g.ins("POPCNTQ DX, DX\nJZ done\nMOVQ DX, R10")
		g.lastChannels()
		g.label("last")
		row([]string{"VMASKMOVPS (%s), Y15, Y%d"}, []string{"VMASKMOVPS Y%d, Y15, (%s)"})
		g.ins("JNZ last\nADDQ $32, d+8(FP)\nADDQ $32, y+24(FP)\nSUBQ $8, R10\nJLE done\nMOVQ R10, CX\nMOVQ $1, R10\nSHLQ CX, R10\nDECQ R10\nJMP columns")
		g.label("done")
		g.end()
	}
}
