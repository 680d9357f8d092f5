package gemm

import "fmt"

// The most pixels of a loop over taps: all registers but four are sums, or all but those that
// the rounding to bfloat16 needs.
const (
	tapPixels      = 14
	tapPixelsBrain = 13
)

// smallChannel writes the loops over the elements of windows of a source with few channels, by
// the number of pixels that they compute at a time.
func (g *gen) smallChannel(e element) {
	most := tapPixels
	if e == bfloat16s {
		most = tapPixelsBrain
	}
	name := func(pixels int) string { return fmt.Sprintf("smallChannel%d%sAVX512", pixels, e) }
	for p := 1; p <= most; p++ {
		g.text(name(p), windowsParams, fmt.Sprintf("is SmallChannel of %d pixels and 32 channels, to %s, for AVX-512.", p, e))
		name := "SMALL_CHANNEL"
		switch {
		case e == bfloat16s:
			name += "_BF16"
		}
		if p > 10 {
			name += "_3_POINTERS"
		} else if p > 5 {
			name += "_2_POINTERS"
		}
		g.block(name, func() { g.smallChannelLoop(e, p) }, "zero", fmt.Sprintf("ZERO_C_%dx2", p), "fma", fmt.Sprintf("FMA_PIXELS_%d", p), "store", fmt.Sprintf("STORE_PIXELS_%s_%d", e, p), "pixels", p)
	}
	g.table("Windows", 1, "smallChannel"+string(e)+"AVX512", most, name)
}

// smallChannelLoop computes p pixels. An address reaches five of them, so there are three
// pointers: AX, DX and R15.
func (g *gen) smallChannelLoop(e element, p int) {
	g.block("LOAD_SMALL_CHANNEL_ARGS", func() {
		g.ins("MOVQ at+16(FP), R8\nMOVQ x+24(FP), SI\nMOVQ xs+32(FP), R9\nMOVQ y+40(FP), BX\nMOVQ d+56(FP), DI\nMOVQ ds+64(FP), R11")
		g.ins("MOVQ mask+72(FP), DX\nKMOVW DX, K1\nKMOVD DX, K7\nSHRQ $16, DX\nKMOVW DX, K2")
		g.ins("LEAQ (R9)(R9*2), R10\nLEAQ (R9)(R9*4), R14")
	})
	g.block("BEGIN_PIXELS", func() {
		g.ins("CMPQ n+0(FP), $0\nJLE done")
		g.label("group")
	})
	g.sharedRows("ZERO_C", "x2", p, func(i int) {
		for v := range 2 {
			g.ins("VPXORD Z%[1]d, Z%[1]d, Z%[1]d", 2*i+v)
		}
	})
	g.block("BEGIN_TAPS", func() {
		g.ins("MOVQ taps+8(FP), CX\nMOVQ R8, R12\nTESTQ CX, CX\nJZ sum")
		g.label("tap")
		g.ins("MOVQ (R12), R13\nMOVQ 8(R12), AX\nADDQ $16, R12")
		g.ins("VMOVUPS (BX)(AX*1), Z28\nVMOVUPS 64(BX)(AX*1), Z29\nLEAQ (SI)(R13*1), AX")
	})
	if p > 5 {
		g.ins("LEAQ (AX)(R14*1), DX")
	}
	if p > 10 {
		g.ins("LEAQ (DX)(R14*1), R15")
	}
	g.sharedRows("FMA_PIXELS", "", p, func(i int) {
		base := []string{"AX", "DX", "R15"}[i/5]
		at := "(" + base + ")" + []string{"", "(R9*1)", "(R9*2)", "(R10*1)", "(R9*4)"}[i%5]
		g.fmaRow(at, 30+i%2, 28, 2*i)
	})
	name := "END_TAPS"
	if e == bfloat16s {
		name += "_BF16"
	}
	g.block(name, func() {
		g.ins("DECQ CX\nJNZ tap")
		g.label("sum")
		g.ins("MOVQ ys+48(FP), AX\nADDQ BX, AX")
		if e == bfloat16s {
			g.block("LOAD_BF16_CONSTANTS", func() {
				for i, c := range []uint32{0x7fff, 1, 1 << 16, 0xffff0000} {
					g.ins("MOVL $0x%x, DX\nVPBROADCASTD DX, Z%d", c, 26+i)
				}
			})
			g.ins("VBROADCASTSS 128(AX), Z30")
		} else {
			g.ins("VMOVUPS (AX), Z28\nVMOVUPS 64(AX), Z29\nVBROADCASTSS 128(AX), Z30")
		}
	})
	g.sharedRows("STORE_PIXELS_"+string(e), "", p, func(i int) {
		g.block("STORE_PIXEL_"+string(e), func() {
			switch e {
			case float32s:
				g.floatPixel(2 * i)
			case float16s:
				g.halfPixel(2 * i)
			case bfloat16s:
				g.bfloat16Pixel(2 * i)
			}
			g.ins("ADDQ R11, DI")
		}, "acc0", fmt.Sprintf("Z%d", 2*i), "acc1", fmt.Sprintf("Z%d", 2*i+1), "y0", fmt.Sprintf("Y%d", 2*i), "y1", fmt.Sprintf("Y%d", 2*i+1))
	})
	g.block("END_PIXELS", func() {
		g.ins("IMUL3Q $%d, R9, AX\nADDQ AX, SI\nDECQ n+0(FP)\nJNZ group", p)
		g.label("done")
		g.end()
	}, "pixels", p)
}

// atLeast replaces numbers below the one in Z30 by 0; a NaN stays.
func (g *gen) atLeast(acc, k int) {
	g.ins("VCMPPS $5, Z30, Z%d, K%d", acc, k)
}

// floatPixel stores a pixel of float32 from register acc on.
func (g *gen) floatPixel(acc int) {
	for v := range 2 {
		g.ins("VADDPS Z%[1]d, Z%[2]d, Z%[2]d", 28+v, acc+v)
		g.atLeast(acc+v, 3)
		g.ins("VMOVAPS.Z Z%[1]d, K3, Z%[1]d\nVMOVUPS Z%[1]d, K%[2]d, %[3]d(DI)", acc+v, v+1, 64*v)
	}
}

// halfPixel rounds a pixel to float16 before and after the bias is added.
func (g *gen) halfPixel(acc int) {
	for v := range 2 {
		g.ins("VCVTPS2PH $0, Z%[1]d, Y%[1]d\nVCVTPH2PS Y%[1]d, Z%[1]d\nVADDPS Z%[2]d, Z%[1]d, Z%[1]d", acc+v, 28+v)
		g.atLeast(acc+v, 3)
		g.ins("VMOVAPS.Z Z%[1]d, K3, Z%[1]d\nVCVTPS2PH $0, Z%[1]d, K%[2]d, %[3]d(DI)", acc+v, v+1, 32*v)
	}
}

// bfloat16Pixel rounds a pixel to bfloat16 before and after the bias is added. The first
// register has the even channels and the second the odd ones, so that both are merged into
// one.
func (g *gen) bfloat16Pixel(acc int) {
	for v := range 2 {
		z := acc + v
		// NaNs of arithmetic are quiet, and lose only lower bits.
		g.ins("VCMPPS $7, Z%[1]d, Z%[1]d, K3\nVPTESTMD Z28, Z%[1]d, K3, K4\nVPADDD Z26, Z%[1]d, K3, Z%[1]d\nVPADDD Z27, Z%[1]d, K4, Z%[1]d\nVPANDD Z29, Z%[1]d, Z%[1]d", z)
		g.ins("VADDPS %d(AX), Z%[2]d, Z%[2]d", 64*v, z)
		g.atLeast(z, 5+v)
		g.ins("VPTESTMD Z28, Z%[1]d, K4\nVPADDD Z26, Z%[1]d, Z%[1]d\nVPADDD Z27, Z%[1]d, K4, Z%[1]d", z)
	}
	g.ins("VPSRLD.Z $16, Z%[1]d, K5, Z%[1]d\nVPANDD.Z Z29, Z%[2]d, K6, Z%[2]d\nVPORD Z%[2]d, Z%[1]d, Z%[1]d\nVMOVDQU16 Z%[1]d, K7, (DI)", acc, acc+1)
}
