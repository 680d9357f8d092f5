package asmgen

import "fmt"

// runsParams is the signature of kernels whose first operand lies in blocks;
// package gemm documents it at its type RunsKernel.
const runsParams = "n int, a unsafe.Pointer, lda int, at unsafe.Pointer, b unsafe.Pointer, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int"

// amxRuns writes the kernels for AMX-BF16 that read blocks of A from a list,
// and the copies that make such blocks.
func amxRuns() *gen {
	g := &gen{name: "amxruns_amd64", doc: "// Kernels for AMX-BF16 whose first operand lies in blocks.\n\n"}
	for _, tiles := range []int{1, 2} {
		g.amxRunsTile(fmt.Sprintf("pairsAMXRuns%dx32", 16*tiles), tiles)
	}
	g.copyLanes()
	fmt.Fprintf(&g.tables, "var pairsAMXRuns32 = []RunsKernel{16: pairsAMXRuns16x32, 32: pairsAMXRuns32x32}\n")
	return g
}

// amxRunsTile is amxTile with the place of each block of A read from a list.
func (g *gen) amxRunsTile(name string, tiles int) {
	g.text(name, runsParams, fmt.Sprintf("is a RunsKernel on pairs of %d rows and 32 columns, for blocks of 16 pairs.", 16*tiles))
	g.ins("MOVQ n+0(FP), CX\nMOVQ a+8(FP), AX\nMOVQ lda+16(FP), R12\nMOVQ at+24(FP), R10\nMOVQ b+32(FP), BX\nMOVQ $128, R8")
	g.ins("MOVQ s+40(FP), SI\nTESTQ SI, SI\nJZ zero\nMOVQ lds+48(FP), R9")
	g.amxEnds(tiles, tileLoad)
	g.ins("JMP start")
	g.label("zero")
	for i := range 2 * tiles {
		g.ins("%s", bytesOf(vex(0x49, 3, i, 0, 0), fmt.Sprintf("TILEZERO TMM%d", i)))
	}
	g.label("start")
	g.ins("MOVQ R12, R13\nSHLQ $4, R13\nTESTQ CX, CX\nJZ store") // 16 rows on
	g.label("loop")
	g.ins("MOVQ (R10), SI\nADDQ AX, SI\nLEAQ 64(BX), DI")
	g.ins("%s\n%s", tileLoad(6, regBX, regR8), tileLoad(4, regSI, regR12))
	g.ins("%s\n%s", tdpbf16ps(0, 4, 6), tileLoad(7, regDI, regR8))
	g.ins("%s", tdpbf16ps(1, 4, 7))
	if tiles == 2 {
		g.ins("LEAQ (SI)(R13*1), DX\n%s\n%s\n%s", tileLoad(5, regDX, regR12), tdpbf16ps(2, 5, 6), tdpbf16ps(3, 5, 7))
	}
	g.ins("ADDQ $8, R10\nADDQ $2048, BX\nDECQ CX\nJNZ loop")
	g.label("store")
	g.ins("MOVQ d+56(FP), SI\nMOVQ ldd+64(FP), R9")
	g.amxEnds(tiles, func(tile, base, stride int) string { return tileStore(tile, base, stride, 0) })
	g.ins("RET")
}

// amxEnds loads or stores the sums of a kernel, registers 0 to 3, at SI with
// rows that are R9 apart.
func (g *gen) amxEnds(tiles int, move func(tile, base, stride int) string) {
	g.ins("LEAQ 64(SI), DI")
	for i := range tiles {
		g.ins("%s\n%s", move(2*i, regSI, regR9), move(2*i+1, regDI, regR9))
		if i < tiles-1 {
			g.ins("MOVQ R9, DX\nSHLQ $4, DX\nADDQ DX, SI\nADDQ DX, DI")
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
