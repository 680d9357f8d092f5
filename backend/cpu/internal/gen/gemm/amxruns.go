package gemm

import (
	"fmt"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
)

// runsParams is the signature of kernels that read the first operand in blocks; package gemm
// documents it at its type RunsKernel.
const runsParams = "n int, a unsafe.Pointer, lda int, lowA int, at unsafe.Pointer, b unsafe.Pointer, lowB int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, next unsafe.Pointer"

// amxRuns writes the kernels for AMX-BF16 that read blocks of A at a list of offsets, and the
// copies that make such blocks.
func amxRuns() *gen {
	g := &gen{file: asm.NewFile("amxruns_amd64"), doc: "// Kernels for AMX-BF16 whose first operand lies in blocks.\n\n"}
	for _, parts := range []int{1, 2} {
		for _, rows := range []int{1, 2} {
			g.amxRunsTile(panel{parts, rows, 2})
		}
	}
	g.copyLanes()
	g.copyPatches()
	fmt.Fprintf(&g.tables, "var pairsAMXRuns32 = [2][]RunsKernel{{16: pairsAMXRuns16Parts1, 32: pairsAMXRuns32Parts1}, {16: pairsAMXRuns16Parts2, 32: pairsAMXRuns32Parts2}}\n")
	return g
}

// amxRunsTile is amxTile with the offset of each block of A from a list, for numbers of one or
// two parts.
func (g *gen) amxRunsTile(k panel) {
	what := "pairs"
	if k.parts == 2 {
		what = "pairs in two parts"
	}
	g.text(fmt.Sprintf("pairsAMXRuns%dParts%d", 16*k.rows, k.parts), runsParams, fmt.Sprintf("is a RunsKernel on %s of %d rows and 32 columns, for blocks of 16 pairs.", what, 16*k.rows))
	g.ins("MOVQ s+56(FP), SI\nTESTQ SI, SI\nJZ zero\nMOVQ lds+64(FP), R9")
	g.amxEnds(k.rows, amd64.TileLoad)
	g.ins("JMP start")
	g.label("zero")
	for i := range 2 * k.rows {
		g.ins("TILEZERO(%d)", i)
	}
	g.label("start")
	g.ins("MOVQ n+0(FP), CX\nMOVQ a+8(FP), R13\nMOVQ lda+16(FP), R12\nMOVQ at+32(FP), R10\nMOVQ b+40(FP), BX\nMOVQ $128, R8")
	if k.parts == 2 {
		g.ins("MOVQ lowA+24(FP), R9")
	}
	g.ins("MOVQ R12, SI\nSHLQ $4, SI\nTESTQ CX, CX\nJZ store") // SI points 16 rows later
	g.ins("CMPQ next+88(FP), $0\nJNE prefetch")
	g.runsLoop("loop", k, false)
	g.ins("JMP store")
	g.runsLoop("prefetch", k, true)
	g.label("store")
	g.ins("MOVQ d+72(FP), SI\nMOVQ ldd+80(FP), R9")
	g.amxEnds(k.rows, amd64.TileStore)
	g.ins("RET")
}

// runsLoop writes the loop over blocks, with or without prefetching the next operands.
func (g *gen) runsLoop(name string, k panel, prefetch bool) {
	g.label(name)
	g.ins("MOVQ (R10), AX\nADDQ R13, AX\nLEAQ (AX)(SI*1), DX")
	if k.parts == 2 {
		g.ins("LEAQ (AX)(R9*1), DI\nLEAQ (DX)(R9*1), R11")
	}
	g.panelStep(k, func() amd64.Reg {
		g.ins("MOVQ lowB+48(FP), DI\nADDQ BX, DI")
		return amd64.DI
	})
	if prefetch { // an eighth in each of eight calls
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

// amxEnds loads or stores the sums of a kernel, registers 0 to 3, at SI with rows R9 bytes
// apart.
func (g *gen) amxEnds(tiles int, move func(tile int, base, stride amd64.Reg, disp int) string) {
	for i := range tiles {
		g.ins("%s\n%s", move(2*i, amd64.SI, amd64.R9, 0), move(2*i+1, amd64.SI, amd64.R9, 64))
		if i < tiles-1 {
			g.ins("MOVQ R9, DX\nSHLQ $4, DX\nADDQ DX, SI")
		}
	}
}

// lanesParams is the signature of a gemm.Copy.
const lanesParams = "d unsafe.Pointer, ldd int, drow int, s unsafe.Pointer, lds int, srow int, cols int, rows int, load uint, store uint"

// copyLanes copies rows of pixels of 16-bit lanes.
func (g *gen) copyLanes() {
	g.text("copyLanesAVX512", lanesParams, "is a Copy of up to 32 neighbouring lanes of 16 bits.")
	g.ins("MOVQ d+0(FP), DI\nMOVQ ldd+8(FP), R9\nMOVQ drow+16(FP), R10\nMOVQ s+24(FP), SI\nMOVQ lds+32(FP), R8\nMOVQ srow+40(FP), R11")
	g.ins("MOVQ cols+48(FP), R12\nMOVQ rows+56(FP), R13\nMOVQ load+64(FP), AX\nMOVQ store+72(FP), BX\nKMOVD AX, K1\nKMOVD BX, K2")
	g.ins("TESTQ R13, R13\nJLE done\nTESTQ R12, R12\nJLE done")
	g.label("row")
	g.ins("MOVQ DI, DX\nMOVQ SI, BX\nMOVQ R12, CX\nSUBQ $2, CX\nJLT tail\nPCALIGN $32")
	g.label("loop")
	g.ins("VMOVDQU16.Z (BX), K1, Z0\nVMOVDQU16.Z (BX)(R8*1), K1, Z1\nLEAQ (BX)(R8*2), BX")
	g.ins("VMOVDQU16 Z0, K2, (DX)\nVMOVDQU16 Z1, K2, (DX)(R9*1)\nLEAQ (DX)(R9*2), DX\nSUBQ $2, CX\nJGE loop")
	g.label("tail")
	g.ins("ADDQ $2, CX\nJLE next\nVMOVDQU16.Z (BX), K1, Z0\nVMOVDQU16 Z0, K2, (DX)")
	g.label("next")
	g.ins("ADDQ R10, DI\nADDQ R11, SI\nDECQ R13\nJNZ row")
	g.label("done")
	g.end()
}

// patchParams is the signature of a gemm.Patches.
const patchParams = "d unsafe.Pointer, ldd int, drow int, s unsafe.Pointer, lds int, srow int, cols int, rows int, runs int, next int, n int"

// patchRuns is the most runs of a patch.
const patchRuns = 5

// copyPatches loads the runs of a pixel's patch to their lanes of a register: each from an
// address that is so many lanes earlier, with a mask.
func (g *gen) copyPatches() {
	g.text("copyPatchesAVX512", patchParams, "is a Patches of 16-bit lanes.")
	g.ins("MOVQ n+80(FP), CX\nMOVQ $1, AX\nSHLQ CX, AX\nDECQ AX")
	for i := range patchRuns {
		g.ins("KMOVD AX, K%d\nSHLQ CX, AX", i+1)
	}
	g.ins("MOVQ next+72(FP), AX\nSHLQ $1, CX\nSUBQ CX, AX\nLEAQ (AX)(AX*2), R13") // bytes from a run to the next, and to the one after two more
	g.ins("MOVQ d+0(FP), DI\nMOVQ ldd+8(FP), R9\nMOVQ drow+16(FP), R10\nMOVQ s+24(FP), SI\nMOVQ lds+32(FP), R8\nMOVQ srow+40(FP), R11\nMOVQ rows+56(FP), R12")
	at := []string{"(BX)", "(BX)(AX*1)", "(BX)(AX*2)", "(BX)(R13*1)", "(BX)(AX*4)"}
	for runs := patchRuns; runs > 0; runs-- {
		g.label(fmt.Sprintf("runs%d", runs))
		if runs > 1 {
			g.ins("CMPQ runs+64(FP), $%d\nJLT runs%d", runs, runs-1)
		}
		g.label(fmt.Sprintf("row%d", runs))
		g.ins("MOVQ DI, DX\nMOVQ SI, BX\nMOVQ cols+48(FP), CX\nPCALIGN $32")
		g.label(fmt.Sprintf("pixel%d", runs))
		g.ins("VMOVDQU16.Z (BX), K1, Z0")
		for i := 1; i < runs; i++ {
			g.ins("VMOVDQU16 %s, K%d, Z0", at[i], i+1)
		}
		g.ins("VMOVDQU64 Z0, (DX)\nADDQ R8, BX\nADDQ R9, DX\nDECQ CX\nJNZ pixel%d", runs)
		g.ins("ADDQ R10, DI\nADDQ R11, SI\nDECQ R12\nJNZ row%d\nVZEROUPPER\nRET", runs)
	}
}
