package asmgen

import "fmt"

// avx512Own writes the loops over channels of windows: convolutions that have a
// kernel of their own for each channel, their gradients, and maxima.
func avx512Own() *gen {
	g := &gen{name: "own_amd64", doc: "// Kernels and loops of convolutions for AVX-512.\n\n"}
	runs := tile{bytes: 64, reg: "Z", vectors: 2, inner: true, runs: true, masked: true, bcast: "VBROADCASTSS", loadB: "VMOVUPS", zero: "VPXORD", step: fmadd512}
	fmt.Fprintf(&g.tables, "var pixelRunsAVX512 = []PixelRuns{nil")
	for mr := 1; mr <= 14; mr++ {
		runs.rows, runs.name = mr, fmt.Sprintf("pixelRuns%dAVX512", mr)
		runs.write(g)
		fmt.Fprintf(&g.tables, ", %s", runs.name)
	}
	g.tables.WriteString("}\n")
	g.own("ownAVX512", "is Own of 32 channels for AVX-512.", false)
	g.own("ownAddAVX512", "is OwnAdd of 32 channels for AVX-512.", true)
	g.ownGrad()
	g.largest()
	g.largestGrad("largestGradAVX512", "is LargestGrad of 32 channels for AVX-512.", false)
	g.largestGrad("largestGradAddAVX512", "is LargestGradAdd of 32 channels for AVX-512.", true)
	return g
}

const ownParams = "n int, taps int, at unsafe.Pointer, x unsafe.Pointer, xs int, y unsafe.Pointer, ys int, d unsafe.Pointer, ds int, mask uint"

// ownStart reads the parameters: CX is n, AX taps, R8 their places, SI and R9
// are x, BX and R10 are y, DI and R11 are d; K1 and K2 mask the channels.
func (g *gen) ownStart() {
	g.ins("MOVQ n+0(FP), CX\nMOVQ taps+8(FP), AX\nMOVQ at+16(FP), R8\nMOVQ x+24(FP), SI\nMOVQ xs+32(FP), R9\nMOVQ y+40(FP), BX\nMOVQ ys+48(FP), R10\nMOVQ d+56(FP), DI\nMOVQ ds+64(FP), R11")
	g.ins("MOVQ mask+72(FP), DX\nKMOVW DX, K1\nSHRQ $16, DX\nKMOVW DX, K2")
}

// own sums up four pixels and 32 channels at a time, from what is there on if
// it adds.
func (g *gen) own(name, doc string, add bool) {
	g.text(name, ownParams, doc)
	g.ownStart()
	pixels := func(n int) {
		if add {
			g.ins("MOVQ DI, DX")
		}
		for i := range n {
			if add {
				g.ins("VMOVUPS.Z (DX), K1, Z%d\nVMOVUPS.Z 64(DX), K2, Z%d\nADDQ R11, DX", 2*i, 2*i+1)
			} else {
				g.ins("VPXORD Z%[1]d, Z%[1]d, Z%[1]d\nVPXORD Z%[2]d, Z%[2]d, Z%[2]d", 2*i, 2*i+1)
			}
		}
		at := []string{"SI", "R12", "R13", "R14"}[:n]
		for i := range at[1:] {
			g.ins("LEAQ (%s)(R9*1), %s", at[i], at[i+1])
		}
		g.ins("MOVQ AX, DX\nMOVQ R8, R10\nTESTQ DX, DX\nJZ sum%d", n)
		g.label(fmt.Sprintf("tap%d", n))
		g.ins("MOVQ 8(R10), BX\nADDQ y+40(FP), BX\nVMOVUPS (BX), Z8\nVMOVUPS 64(BX), Z9\nMOVQ (R10), BX\nADDQ $16, R10")
		for i, p := range at {
			g.ins("VFMADD231PS (%s)(BX*1), Z8, K1, Z%d\nVFMADD231PS 64(%s)(BX*1), Z9, K2, Z%d", p, 2*i, p, 2*i+1)
		}
		g.ins("DECQ DX\nJNZ tap%d", n)
		g.label(fmt.Sprintf("sum%d", n))
		for i := range n {
			g.ins("VMOVUPS Z%d, K1, (DI)\nVMOVUPS Z%d, K2, 64(DI)\nADDQ R11, DI", 2*i, 2*i+1)
		}
		g.ins("LEAQ (%s)(R9*1), SI", at[n-1])
	}
	g.ins("SUBQ $4, CX\nJLT few")
	g.label("four")
	pixels(4)
	g.ins("SUBQ $4, CX\nJGE four")
	g.label("few")
	g.ins("ADDQ $4, CX\nJLE done")
	g.label("one")
	pixels(1)
	g.ins("DECQ CX\nJNZ one")
	g.label("done")
	g.ins("VZEROUPPER\nRET")
}

// ownGrad sums up over pixels, four at a time, an element of the window after
// the other.
func (g *gen) ownGrad() {
	g.text("ownGradAVX512", ownParams, "is OwnGrad of 32 channels for AVX-512.")
	g.ownStart()
	g.ins("TESTQ AX, AX\nJZ done")
	g.label("tap")
	g.ins("MOVQ (R8), SI\nADDQ x+24(FP), SI\nMOVQ 8(R8), DI\nADDQ d+56(FP), DI\nADDQ $16, R8\nMOVQ y+40(FP), BX\nMOVQ n+0(FP), CX")
	for i := range 8 {
		g.ins("VPXORD Z%[1]d, Z%[1]d, Z%[1]d", i)
	}
	step := func(i int) {
		g.ins("VMOVUPS.Z (BX), K1, Z8\nVMOVUPS.Z 64(BX), K2, Z9\nADDQ R10, BX")
		g.ins("VFMADD231PS (SI), Z8, K1, Z%d\nVFMADD231PS 64(SI), Z9, K2, Z%d\nADDQ R9, SI", 2*i, 2*i+1)
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
	g.ins("VZEROUPPER\nRET")
}

// maxima leaves the maxima of a pixel's window in Z0 and Z1, and what is
// larger than nothing is in Z8.
func (g *gen) maxima() {
	g.ins("VMOVAPS Z8, Z0\nVMOVAPS Z8, Z1\nMOVQ AX, DX\nMOVQ R8, R12\nTESTQ DX, DX\nJZ most")
	g.label("tap")
	g.ins("MOVQ (R12), R13\nADDQ $8, R12")
	for i := range 2 {
		// Of a NaN and a number VMAXPS gives the operand written first: the NaN
		// that was there stays, and one that comes is put in.
		g.ins("VMOVUPS.Z %d(SI)(R13*1), K%d, Z%d", 64*i, i+1, 2+i)
		g.ins("VCMPPS $3, Z%[1]d, Z%[1]d, K3\nVCMPPS $3, Z%[2]d, Z%[2]d, K4\nVMAXPS Z%[2]d, Z%[1]d, Z%[2]d", 2+i, i)
		g.ins("KANDNW K3, K4, K3\nVMOVAPS Z%d, K3, Z%d", 2+i, i)
	}
	g.ins("DECQ DX\nJNZ tap")
	g.label("most")
}

// largest takes the maxima of a pixel's window, 32 channels at a time.
func (g *gen) largest() {
	g.text("largestAVX512", ownParams, "is Largest of 32 channels for AVX-512.")
	g.ownStart()
	g.ins("TESTQ CX, CX\nJLE done\nMOVL $0xff800000, DX\nVPBROADCASTD DX, Z8")
	g.label("pixel")
	g.maxima()
	g.ins("VMOVUPS Z0, K1, (DI)\nVMOVUPS Z1, K2, 64(DI)\nADDQ R9, SI\nADDQ R11, DI\nDECQ CX\nJNZ pixel")
	g.label("done")
	g.ins("VZEROUPPER\nRET")
}

// largestGrad hands the gradient of a window to the first of its elements that
// is the largest, or adds it there.
func (g *gen) largestGrad(name, doc string, add bool) {
	g.text(name, ownParams, doc)
	g.ownStart()
	g.ins("TESTQ CX, CX\nJLE done\nMOVL $0xff800000, DX\nVPBROADCASTD DX, Z8")
	g.label("pixel")
	g.maxima()
	g.ins("VMOVUPS.Z (BX), K1, Z4\nVMOVUPS.Z 64(BX), K2, Z5\nKMOVW K1, K5\nKMOVW K2, K6")
	g.ins("MOVQ AX, DX\nMOVQ R8, R12\nTESTQ DX, DX\nJZ next")
	g.label("give")
	g.ins("MOVQ (R12), R13\nADDQ $8, R12\nLEAQ (DI)(R13*1), R10")
	for i := range 2 {
		left := 5 + i
		g.ins("VMOVUPS.Z %d(SI)(R13*1), K%d, Z%d", 64*i, i+1, 2+i)
		g.ins("VCMPPS $0, Z%d, Z%d, K3\nVCMPPS $3, Z%d, Z%d, K4\nKORW K3, K4, K3", 2+i, i, 2+i, 2+i)
		g.ins("KANDW K%[1]d, K3, K3\nKANDNW K%[1]d, K3, K%[1]d", left)
		if add {
			g.ins("VMOVUPS.Z %[1]d(R10), K3, Z%[2]d\nVADDPS Z%[3]d, Z%[2]d, Z%[2]d\nVMOVUPS Z%[2]d, K3, %[1]d(R10)", 64*i, 6+i, 4+i)
		} else {
			g.ins("VMOVAPS.Z Z%d, K3, Z%d\nVMOVUPS Z%d, K%d, %d(R10)", 4+i, 6+i, 6+i, i+1, 64*i)
		}
	}
	g.ins("DECQ DX\nJNZ give")
	g.label("next")
	g.ins("ADDQ R9, SI\nADDQ R11, DI\nADDQ ys+48(FP), BX\nDECQ CX\nJNZ pixel")
	g.label("done")
	g.ins("VZEROUPPER\nRET")
}
