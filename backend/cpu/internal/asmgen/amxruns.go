package asmgen

import "fmt"

// runsParams is the signature of kernels whose first operand lies in blocks;
// package gemm documents it at its type RunsKernel.
const runsParams = "n int, a unsafe.Pointer, lda int, lowA int, at unsafe.Pointer, b unsafe.Pointer, lowB int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, next unsafe.Pointer"

// amxRuns writes the kernels for AMX-BF16 that read blocks of A from a list,
// and the copies that make such blocks.
func amxRuns() *gen {
	g := &gen{name: "amxruns_amd64", doc: "// Kernels for AMX-BF16 whose first operand lies in blocks.\n\n"}
	for _, parts := range []int{1, 2} {
		for _, rows := range []int{1, 2} {
			g.amxRunsTile(panel{parts, rows, 2})
		}
	}
	g.copyLanes()
	fmt.Fprintf(&g.tables, "var pairsAMXRuns32 = [2][]RunsKernel{{16: pairsAMXRuns16Parts1, 32: pairsAMXRuns32Parts1}, {16: pairsAMXRuns16Parts2, 32: pairsAMXRuns32Parts2}}\n")
	return g
}

// amxRunsTile is amxTile with the place of each block of A read from a list, for
// numbers of one or two parts.
func (g *gen) amxRunsTile(k panel) {
	what := "pairs"
	if k.parts == 2 {
		what = "pairs in two parts"
	}
	g.text(fmt.Sprintf("pairsAMXRuns%dParts%d", 16*k.rows, k.parts), runsParams, fmt.Sprintf("is a RunsKernel on %s of %d rows and 32 columns, for blocks of 16 pairs.", what, 16*k.rows))
	g.ins("MOVQ s+56(FP), SI\nTESTQ SI, SI\nJZ zero\nMOVQ lds+64(FP), R9")
	g.amxEnds(k.rows, tileLoad)
	g.ins("JMP start")
	g.label("zero")
	for i := range 2 * k.rows {
		g.ins("%s", bytesOf(vex(0x49, 3, i, 0, 0), fmt.Sprintf("TILEZERO TMM%d", i)))
	}
	g.label("start")
	g.ins("MOVQ n+0(FP), CX\nMOVQ a+8(FP), R13\nMOVQ lda+16(FP), R12\nMOVQ at+32(FP), R10\nMOVQ b+40(FP), BX\nMOVQ $128, R8")
	if k.parts == 2 {
		g.ins("MOVQ lowA+24(FP), R9")
	}
	g.ins("MOVQ R12, SI\nSHLQ $4, SI\nTESTQ CX, CX\nJZ store") // 16 rows on
	g.ins("CMPQ next+88(FP), $0\nJNE ahead")
	g.runsLoop("loop", k, false)
	g.ins("JMP store")
	g.runsLoop("ahead", k, true)
	g.label("store")
	g.ins("MOVQ d+72(FP), SI\nMOVQ ldd+80(FP), R9")
	g.amxEnds(k.rows, tileStore)
	g.ins("RET")
}

// runsLoop is the loop over blocks, which asks for what comes next if that is to
// be.
func (g *gen) runsLoop(name string, k panel, ahead bool) {
	g.label(name)
	g.ins("MOVQ (R10), AX\nADDQ R13, AX\nLEAQ (AX)(SI*1), DX")
	if k.parts == 2 {
		g.ins("LEAQ (AX)(R9*1), DI\nLEAQ (DX)(R9*1), R11")
	}
	g.panelStep(k, tileLoad, func() int {
		g.ins("MOVQ lowB+48(FP), DI\nADDQ BX, DI")
		return regDI
	})
	if ahead { // in eight calls, a part in each
		g.ins("MOVQ next+88(FP), DI")
		if k.parts == 2 {
			g.ins("MOVQ lowB+48(FP), R11\nADDQ DI, R11")
		}
		for i := range 4 {
			g.ins("PREFETCHT1 %d(DI)", 64*i)
			if k.parts == 2 {
				g.ins("PREFETCHT1 %d(R11)", 64*i)
			}
		}
		g.ins("ADDQ $256, DI\nMOVQ DI, next+88(FP)")
	}
	g.ins("ADDQ $8, R10\nADDQ $2048, BX\nDECQ CX\nJNZ %s", name)
}

// amxEnds loads or stores the sums of a kernel, registers 0 to 3, at SI with
// rows that are R9 apart.
func (g *gen) amxEnds(tiles int, move tileMove) {
	for i := range tiles {
		g.ins("%s\n%s", move(2*i, regSI, regR9, 0), move(2*i+1, regSI, regR9, 64))
		if i < tiles-1 {
			g.ins("MOVQ R9, DX\nSHLQ $4, DX\nADDQ DX, SI")
		}
	}
}

// copyLanes copies rows of 16-bit lanes.
func (g *gen) copyLanes() {
	g.text("copyLanesAVX512", packParams, "copies up to 32 neighbouring lanes of 16 bits, from rows of lanes:\nd[p*ldd+j] = s[p*lds+j] for p < k and j in store, 0 where j is not in load.")
	g.ins("MOVQ d+0(FP), DI\nMOVQ ldd+8(FP), R9\nMOVQ s+16(FP), SI\nMOVQ lds+24(FP), R8\nMOVQ k+32(FP), CX\nMOVQ load+40(FP), AX\nMOVQ store+48(FP), BX")
	g.ins("KMOVD AX, K1\nKMOVD BX, K2\nSUBQ $2, CX\nJLT tail\nPCALIGN $32")
	g.label("loop")
	g.ins("VMOVDQU16.Z (SI), K1, Z0\nVMOVDQU16.Z (SI)(R8*1), K1, Z1\nLEAQ (SI)(R8*2), SI")
	g.ins("VMOVDQU16 Z0, K2, (DI)\nVMOVDQU16 Z1, K2, (DI)(R9*1)\nLEAQ (DI)(R9*2), DI\nSUBQ $2, CX\nJGE loop")
	g.label("tail")
	g.ins("ADDQ $2, CX\nJLE done\nVMOVDQU16.Z (SI), K1, Z0\nVMOVDQU16 Z0, K2, (DI)")
	g.label("done")
	g.ins("VZEROUPPER\nRET")
}
