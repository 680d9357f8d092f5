package gemm

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
)

// panel is a kernel on tile registers over the whole inner dimension: registers 0 to 3 are the
// sums, 4 and 5 tiles of A, 6 and 7 tiles of B.
type panel struct{ parts, rows, cols int }

// panelParams are the parameters of a gemm.PanelKernel.
const panelParams = "k int, a unsafe.Pointer, lda int, lowA int, tail unsafe.Pointer, b unsafe.Pointer, s unsafe.Pointer, d unsafe.Pointer, ld int, next unsafe.Pointer"

// ends writes do for each tile of the result: SI points to its first row, and R9 is the bytes
// between rows.
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
	g.ends(k, func(tile, disp int) string { return amd64.TileLoad(tile, amd64.SI, amd64.R9, disp) })
	g.ins("JMP start")
	g.label("zero")
	for i := range k.rows {
		for j := range k.cols {
			g.ins("TILEZERO(%d)", 2*i+j)
		}
	}
	g.label("start")
	g.block("LOAD_PANEL_ARGS", func() {
		g.ins("MOVQ k+0(FP), CX\nMOVQ a+8(FP), AX\nMOVQ lda+16(FP), R12\nMOVQ tail+32(FP), R13\nMOVQ b+40(FP), BX\nMOVQ next+72(FP), R10\nMOVQ $128, R8")
		g.ins("MOVQ R12, DX\nSHLQ $4, DX\nADDQ AX, DX") // DX points 16 rows after AX
	})
	if k.parts == 2 {
		g.ins("MOVQ lowA+24(FP), DI\nLEAQ (DX)(DI*1), R11\nADDQ AX, DI")
	}
	g.ins("TESTQ CX, CX\nJZ rest")
	g.label("loop")
	g.panelStep(k, nil)
	// The next panel of B has the size of this one. It is prefetched in eight calls, an eighth
	// in each.
	g.block(fmt.Sprintf("NEXT_PANEL_STEP_%d", k.parts), func() {
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
	})
	g.ends(k, func(tile, disp int) string { return amd64.TileStore(tile, amd64.SI, amd64.R9, disp) })
	g.ins("RET")
}

// panelStep multiplies 32 elements of the inner dimension: rows of A at AX and DX with those
// of B at BX. With two parts for each number, it adds all four products of parts; the low
// parts of A begin at DI and R11, those of B at the register that lowB returns, which is
// called when DI is free, or after the high parts.
func (g *gen) panelStep(k panel, lowB func() amd64.Reg) {
	loadA := func(i int, bases [2]amd64.Reg) { g.ins("%s", amd64.TileLoad(4+i, bases[i], amd64.R12, 0)) }
	loadB := func(j int, base amd64.Reg, disp int) { g.ins("%s", amd64.TileLoad(6+j, base, amd64.R8, 64*j+disp)) }
	mul := func(i, j int) { g.ins("%s", amd64.TDPBF16PS(2*i+j, 4+i, 6+j)) }
	high, lowA := [2]amd64.Reg{amd64.AX, amd64.DX}, [2]amd64.Reg{amd64.DI, amd64.R11}
	// All tiles are loaded before the first product, so that a product waits for its own
	// operands only.
	loadB(0, amd64.BX, 0)
	loadA(0, high)
	if k.cols == 2 {
		loadB(1, amd64.BX, 0)
	}
	if k.rows == 2 {
		loadA(1, high)
	}
	for i := range k.rows {
		for j := range k.cols {
			mul(i, j)
		}
	}
	if k.parts == 1 {
		return
	}
	byRows := func(bases [2]amd64.Reg) {
		for i := range k.rows {
			loadA(i, bases)
			for j := range k.cols {
				mul(i, j)
			}
		}
	}
	byRows(lowA)
	base, disp := amd64.BX, 2048
	if lowB != nil {
		base, disp = lowB(), 0
	}
	for j := range k.cols {
		loadB(j, base, disp)
		for i := range k.rows {
			mul(i, j)
		}
	}
	byRows(high)
}

// split writes the conversion of float16 to two bfloat16: the rest after truncation to
// bfloat16 is exact, because a float16 has three more bits. Packing works within 128-bit
// lanes, so the quarters of the register are permuted first.
func (g *gen) split() {
	g.text("splitAMX", "d unsafe.Pointer, ldd int, low int, s unsafe.Pointer, lds int, rows int, n int, found unsafe.Pointer", `splits rows of n float16 into bfloat16 whose sum is exact:
d[i*ldd+j] = s[i*lds+j] without its last three bits, d[i*ldd+low+j] = the rest, for i < rows.
Rows of d are filled with zeros up to a multiple of 32; d may be s where ldd is lds and
n such a multiple. The uint32 at found becomes positive if an element is infinite or NaN.`)
	g.ins("MOVQ d+0(FP), DI\nMOVQ ldd+8(FP), R9\nMOVQ low+16(FP), R10\nMOVQ s+24(FP), SI\nMOVQ lds+32(FP), R8\nMOVQ rows+40(FP), R11\nMOVQ n+48(FP), CX")
	g.ins("MOVQ $splitOrder<>(SB), AX\nVMOVDQU64 (AX), Z31\nMOVL $0xffff0000, AX\nVPBROADCASTD AX, Z30\nVPXORD Z28, Z28, Z28\nVPXORD Z29, Z29, Z29")
	g.ins("MOVQ CX, R12\nANDQ $31, R12\nMOVQ $1, AX\nXCHGQ CX, R12\nSHLQ CX, AX\nXCHGQ CX, R12\nDECQ AX\nKMOVD AX, K1")
	g.ins("TESTQ R11, R11\nJLE done")
	body := func() {
		g.ins("VPERMQ Z0, Z31, Z0\nVEXTRACTI64X4 $1, Z0, Y1\nVCVTPH2PS Y0, Z2\nVCVTPH2PS Y1, Z3")
		g.ins("VPSRLD $16, Z2, Z4\nVPSRLD $16, Z3, Z5\nVPACKUSDW Z5, Z4, Z4\nVMOVDQU64 Z4, (DX)")
		g.ins("VPANDD Z30, Z2, Z6\nVPANDD Z30, Z3, Z7\nVSUBPS Z6, Z2, Z2\nVSUBPS Z7, Z3, Z3\nVADDPS Z2, Z28, Z28\nVADDPS Z3, Z29, Z29")
		g.ins("VPSRLD $16, Z2, Z2\nVPSRLD $16, Z3, Z3\nVPACKUSDW Z3, Z2, Z2\nVMOVDQU64 Z2, (DX)(R10*1)")
	}
	g.label("row")
	g.ins("MOVQ SI, BX\nMOVQ DI, DX\nMOVQ CX, R13\nSUBQ $32, R13\nJLT tail")
	g.label("loop")
	g.ins("VMOVDQU64 (BX), Z0")
	body()
	g.ins("ADDQ $64, BX\nADDQ $64, DX\nSUBQ $32, R13\nJGE loop")
	g.label("tail")
	g.ins("TESTQ R12, R12\nJZ next\nVMOVDQU16.Z (BX), K1, Z0")
	body()
	g.label("next")
	g.ins("ADDQ R8, SI\nADDQ R9, DI\nDECQ R11\nJNZ row")
	// The sum of the rests is NaN if an element was infinite (∞ - ∞) or NaN.
	g.ins("VADDPS Z28, Z29, Z29\nVCMPPS $3, Z29, Z29, K2\nKTESTW K2, K2\nJZ done\nMOVQ found+56(FP), AX\nMOVL $1, (AX)")
	g.label("done")
	g.end()
	var data strings.Builder
	for i, q := range []int{0, 2, 4, 6, 1, 3, 5, 7} {
		fmt.Fprintf(&data, "DATA splitOrder<>+%d(SB)/8, $%d\n", 8*i, q)
	}
	data.WriteString("GLOBL splitOrder<>(SB), RODATA|NOPTR, $64\n")
	g.file.Raw(data.String())
}
