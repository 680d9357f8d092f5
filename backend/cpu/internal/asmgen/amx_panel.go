package asmgen

import "fmt"

// panel is a kernel on tile registers that goes through all of the inner
// dimension: registers 0 to 3 are the sums, 4 and 5 tiles of A, 6 and 7 of B.
type panel struct{ parts, rows, cols int }

// panelParams are the parameters of a gemm.PanelKernel.
const panelParams = "k int, a unsafe.Pointer, lda int, lowA int, tail unsafe.Pointer, b unsafe.Pointer, s unsafe.Pointer, d unsafe.Pointer, ld int, next unsafe.Pointer"

// ends does something with each tile of the result: SI is on its first row, and
// R9 is the distance of rows.
func (g *gen) ends(k panel, do func(tile, disp int) string) {
	for i := range k.rows {
		if i > 0 {
			g.ins("MOVQ R9, R10\nSHLQ $4, R10\nADDQ R10, SI")
		}
		for j := range k.cols {
			g.ins("%s", do(2*i+j, 64*j))
		}
	}
}

func (g *gen) panel(k panel) {
	what := "bfloat16"
	if k.parts == 2 {
		what = "float16 in two parts"
	}
	g.text(fmt.Sprintf("panelAMX%dx%dParts%d", 16*k.rows, 16*k.cols, k.parts), panelParams, fmt.Sprintf("is a PanelKernel on %s of %d rows and %d columns.", what, 16*k.rows, 16*k.cols))
	g.ins("MOVQ s+48(FP), SI\nMOVQ ld+64(FP), R9\nTESTQ SI, SI\nJZ zero")
	g.ends(k, func(tile, disp int) string { return tileStream(tile, regSI, regR9, disp) })
	g.ins("JMP start")
	g.label("zero")
	for i := range k.rows {
		for j := range k.cols {
			g.ins("%s", bytesOf(vex(0x49, 3, 2*i+j, 0, 0), fmt.Sprintf("TILEZERO TMM%d", 2*i+j)))
		}
	}
	g.label("start")
	g.ins("MOVQ k+0(FP), CX\nMOVQ a+8(FP), AX\nMOVQ lda+16(FP), R12\nMOVQ tail+32(FP), R13\nMOVQ b+40(FP), BX\nMOVQ next+72(FP), R10\nMOVQ $128, R8")
	g.ins("MOVQ R12, DX\nSHLQ $4, DX\nADDQ AX, DX") // 16 rows on
	if k.parts == 2 {
		g.ins("MOVQ lowA+24(FP), DI\nLEAQ (DX)(DI*1), R11\nADDQ AX, DI")
	}
	g.ins("TESTQ CX, CX\nJZ rest")
	g.label("loop")
	g.panelStep(k)
	// The next panel of B is as long as this one. It is asked for in eight
	// calls, a part in each.
	for i := range 4 * k.parts {
		g.ins("PREFETCHT1 %d(R10)", 64*i)
	}
	g.ins("ADDQ $%d, R10\nADDQ $64, AX\nADDQ $64, DX\nADDQ $%d, BX", 256*k.parts, 2048*k.parts)
	if k.parts == 2 {
		g.ins("ADDQ $64, DI\nADDQ $64, R11")
	}
	g.ins("DECQ CX\nJNZ loop")
	g.label("rest")
	if k.parts == 1 {
		g.ins("TESTQ R13, R13\nJZ store\nMOVQ R13, AX\nLEAQ 1024(R13), DX\nMOVQ $64, R12\nXORQ R13, R13\nMOVQ $1, CX\nJMP loop")
		g.label("store")
	}
	g.ins("MOVQ d+56(FP), SI")
	g.ends(k, func(tile, disp int) string { return tileStore(tile, regSI, regR9, disp) })
	g.ins("RET")
}

// panelStep multiplies 32 steps of the inner dimension. With two parts to a
// number, all four products of parts are added; tiles of the low parts follow
// those of the high ones in B.
func (g *gen) panelStep(k panel) {
	const low = 2048
	loadA := func(i int, bases [2]int) { g.ins("%s", tileStream(4+i, bases[i], regR12, 0)) }
	loadB := func(j, disp int) { g.ins("%s", tileStream(6+j, regBX, regR8, 64*j+disp)) }
	mul := func(i, j int) { g.ins("%s", tdpbf16ps(2*i+j, 4+i, 6+j)) }
	high, lowA := [2]int{regAX, regDX}, [2]int{regDI, regR11}
	loadB(0, 0)
	loadA(0, high)
	mul(0, 0)
	if k.cols == 2 {
		loadB(1, 0)
		mul(0, 1)
	}
	if k.rows == 2 {
		loadA(1, high)
		for j := range k.cols {
			mul(1, j)
		}
	}
	if k.parts == 1 {
		return
	}
	byRows := func(bases [2]int) {
		for i := range k.rows {
			loadA(i, bases)
			for j := range k.cols {
				mul(i, j)
			}
		}
	}
	byRows(lowA)
	for j := range k.cols {
		loadB(j, low)
		for i := range k.rows {
			mul(i, j)
		}
	}
	byRows(high)
}

// split writes the conversion of float16 to two bfloat16.
func (g *gen) split() {
	g.text("splitAMX", "high unsafe.Pointer, low unsafe.Pointer, s unsafe.Pointer, n int, found unsafe.Pointer", `splits float16 into the bfloat16 next to it and the rest, which is exact:
high[i] = bfloat16(s[i]), low[i] = s[i]-high[i], for i < n. The uint32 at found becomes
positive if an element is infinite or NaN.`)
	g.ins("MOVQ high+0(FP), DI\nMOVQ low+8(FP), BX\nMOVQ s+16(FP), SI\nMOVQ n+24(FP), CX")
	g.ins("MOVL $0x7fff7fff, AX\nVPBROADCASTD AX, Z31\nMOVL $0x7c007c00, AX\nVPBROADCASTD AX, Z30\nVPXORD Z29, Z29, Z29\nMOVQ $-1, AX\nKMOVD AX, K1")
	g.label("loop")
	g.ins("CMPQ CX, $32\nJGE whole\nTESTQ CX, CX\nJLE done\nMOVQ $1, AX\nSHLQ CX, AX\nDECQ AX\nKMOVD AX, K1")
	g.label("whole")
	g.ins("VMOVDQU16.Z (SI), K1, Z0\nVPANDD Z31, Z0, Z1\nVPMAXUW Z1, Z29, Z29")
	g.ins("VEXTRACTI64X4 $1, Z0, Y1\nVCVTPH2PS Y0, Z2\nVCVTPH2PS Y1, Z3")
	g.ins("%s", vcvtne2ps2bf16(4, 2, 3))
	g.ins("VMOVDQU16 Z4, K1, (DI)\nVEXTRACTI64X4 $1, Z4, Y6\nVPMOVZXWD Y4, Z5\nVPMOVZXWD Y6, Z6\nVPSLLD $16, Z5, Z5\nVPSLLD $16, Z6, Z6")
	g.ins("VSUBPS Z5, Z2, Z2\nVSUBPS Z6, Z3, Z3")
	g.ins("%s", vcvtne2ps2bf16(7, 2, 3))
	g.ins("VMOVDQU16 Z7, K1, (BX)\nADDQ $64, SI\nADDQ $64, DI\nADDQ $64, BX\nSUBQ $32, CX\nJG loop")
	g.label("done")
	g.ins("VPCMPUW $5, Z30, Z29, K2\nKTESTD K2, K2\nJZ finite\nMOVQ found+32(FP), AX\nMOVL $1, (AX)")
	g.label("finite")
	g.ins("VZEROUPPER\nRET")
}
