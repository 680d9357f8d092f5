package gemm

import (
	"fmt"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
)

// amx writes the kernels for AMX-BF16: a tile of the result is two by two tile registers of 16
// × 16 float32, and a step of the loop multiplies 16 pairs of each row of A with those of each
// column of B.
func amx() *gen {
	g := &gen{file: asm.NewFile("amx_amd64"), doc: "// Kernels for AMX-BF16.\n\n"}
	g.text("configureAMX", "shape unsafe.Pointer", "sets up the tile registers of the thread from 64 bytes.")
	g.ins("MOVQ shape+0(FP), AX\n%s\nRET", "LDTILECFG_AX")
	g.text("releaseAMX", "", "gives the tile registers of the thread back.")
	g.ins("%s\nRET", "TILERELEASE")
	for _, tiles := range []int{1, 2} {
		g.amxTile(fmt.Sprintf("pairsAMXRows%dx32", 16*tiles), tiles)
	}
	for _, parts := range []int{1, 2} {
		for _, rows := range []int{1, 2} {
			for _, cols := range []int{1, 2} {
				g.panel(panel{parts, rows, cols})
			}
		}
	}
	g.split()
	g.bytesAMX("bytesAMX32")
	g.text("peakAMX", "n int", "does n times 16 TDPBF16PS; the tile registers must be set up.")
	g.ins("MOVQ n+0(FP), CX")
	g.label("loop")
	for i := range 16 {
		g.ins("%s", amd64.TDPBF16PS(i%4, 4, 6))
	}
	g.ins("DECQ CX\nJNZ loop\nRET")
	return g
}

// amxTile writes a kernel of so many tile registers of rows. Registers 0 to 3 are the sums, 4
// and 5 tiles of A, 6 and 7 tiles of B.
func (g *gen) amxTile(name string, tiles int) {
	g.text(name, kernelParams, fmt.Sprintf("is a Kernel on pairs of %d rows and 32 columns: Σ a[i*lda+p]·b[p*ldb+j], where k is a multiple of 16.", 16*tiles))
	g.ins("MOVQ k+0(FP), CX\nMOVQ a+8(FP), AX\nMOVQ lda+16(FP), R12\nMOVQ b+24(FP), BX\nMOVQ ldb+32(FP), R8")
	g.ins("MOVQ s+40(FP), SI\nTESTQ SI, SI\nJZ zero\nMOVQ lds+48(FP), R9\nLEAQ 64(SI), DI")
	ends := func(do func(first int)) {
		for i := range tiles {
			do(2 * i)
			if i < tiles-1 {
				g.ins("MOVQ R9, R10\nSHLQ $4, R10\nADDQ R10, SI\nADDQ R10, DI")
			}
		}
	}
	ends(func(first int) {
		g.ins("%s\n%s", amd64.TileLoad(first, amd64.SI, amd64.R9, 0), amd64.TileLoad(first+1, amd64.DI, amd64.R9, 0))
	})
	g.ins("JMP start")
	g.label("zero")
	for i := range 2 * tiles {
		g.ins("TILEZERO(%d)", i)
	}
	g.label("start")
	g.ins("MOVQ R12, DX\nSHLQ $4, DX\nADDQ AX, DX") // DX points 16 rows after AX
	g.ins("LEAQ 64(BX), SI\nMOVQ R8, R11\nSHLQ $4, R11")
	g.ins("SHRQ $4, CX\nJZ store")
	g.label("loop")
	g.ins("%s\n%s", amd64.TileLoad(6, amd64.BX, amd64.R8, 0), amd64.TileLoad(4, amd64.AX, amd64.R12, 0))
	g.ins("%s\n%s", amd64.TDPBF16PS(0, 4, 6), amd64.TileLoad(7, amd64.SI, amd64.R8, 0))
	g.ins("%s", amd64.TDPBF16PS(1, 4, 7))
	if tiles == 2 {
		g.ins("%s\n%s\n%s", amd64.TileLoad(5, amd64.DX, amd64.R12, 0), amd64.TDPBF16PS(2, 5, 6), amd64.TDPBF16PS(3, 5, 7))
	}
	g.ins("ADDQ $64, AX\nADDQ $64, DX\nADDQ R11, BX\nADDQ R11, SI\nDECQ CX\nJNZ loop")
	g.label("store")
	g.ins("MOVQ d+56(FP), SI\nMOVQ ldd+64(FP), R9\nLEAQ 64(SI), DI")
	ends(func(first int) {
		g.ins("%s\n%s", amd64.TileStore(first, amd64.SI, amd64.R9, 0), amd64.TileStore(first+1, amd64.DI, amd64.R9, 0))
	})
	g.ins("RET")
}
