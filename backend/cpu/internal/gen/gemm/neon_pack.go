package gemm

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/arm64"
)

// neonKinds are the loads of four elements as float32, or of pairs as they are.
var neonKinds = []struct {
	name, doc string
	bytes     int // of an element or a pair
	load      func(at string, v int) string
}{
	{"F32", "float32, or of pairs of bfloat16", 4, func(at string, v int) string { return fmt.Sprintf("FMOVQ %s, F%d", at, v) }},
	{"F16", "float16, made float32", 2, func(at string, v int) string {
		return fmt.Sprintf("FMOVD %s, F%d\n%s", at, v, arm64.Ins("FCVTL", v, v))
	}},
	{"BF16", "bfloat16, made float32", 2, func(at string, v int) string {
		return fmt.Sprintf("FMOVD %s, F%d\n%s", at, v, arm64.Ins("SHLL", v, v))
	}},
}

// neonPacking writes the transposition of four lanes at a time, and the packing of pairs of
// rows.
func (g *gen) neonPacking() {
	for _, kind := range neonKinds {
		g.text("transpose"+kind.name+"NEON", "d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int",
			fmt.Sprintf("packs four lanes of %s:\nd[p*ldd+j] = s[j*lds+p] for p < k, a multiple of 4.", kind.doc))
		g.ins("MOVD d+0(FP), R0\nMOVD ldd+8(FP), R1\nMOVD s+16(FP), R2\nMOVD lds+24(FP), R3\nMOVD k+32(FP), R4")
		g.ins("ADD R3, R2, R5\nADD R3, R5, R6\nADD R3, R6, R7\nCBZ R4, done")
		g.label("loop")
		for j, p := range []string{"R2", "R5", "R6", "R7"} {
			g.ins("%s\nADD $%d, %s", kind.load("("+p+")", j), 4*kind.bytes, p)
		}
		for j := 0; j < 4; j += 2 {
			g.ins("%s\n%s", arm64.Ins("TRN1", 4+j, j, j+1), arm64.Ins("TRN2", 5+j, j, j+1))
		}
		for p, from := range []string{"TRN1.2D", "TRN1.2D", "TRN2.2D", "TRN2.2D"} {
			g.ins("%s\nFMOVQ F%d, (R0)\nADD R1, R0", arm64.Ins(from, p, 4+p%2, 6+p%2), p)
		}
		g.ins("SUBS $4, R4\nBNE loop")
		g.label("done")
		g.ins("RET")
	}
	g.text("zipNEON", "d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, n int",
		"packs bfloat16 from rows of lanes, two rows to a row of pairs:\nd[p*ldd+2j] = s[2p*lds+j] and d[p*ldd+2j+1] = s[(2p+1)*lds+j] for p < k and j < n, a multiple of 4.")
	g.ins("MOVD d+0(FP), R0\nMOVD ldd+8(FP), R1\nMOVD s+16(FP), R2\nMOVD lds+24(FP), R3\nMOVD k+32(FP), R4\nMOVD n+40(FP), R5\nCBZ R4, done")
	g.label("row")
	g.ins("MOVD R0, R6\nMOVD R2, R7\nADD R3, R2, R8\nSUBS $8, R5, R9\nBLT four")
	g.label("eight")
	g.ins("FMOVQ.P 16(R7), F0\nFMOVQ.P 16(R8), F1\n%s\n%s", arm64.Ins("ZIP1.8H", 2, 0, 1), arm64.Ins("ZIP2.8H", 3, 0, 1))
	g.ins("FMOVQ F2, (R6)\nFMOVQ F3, 16(R6)\nADD $32, R6\nSUBS $8, R9\nBGE eight")
	g.label("four")
	g.ins("ADDS $8, R9\nBEQ next\nFMOVD (R7), F0\nFMOVD (R8), F1\n%s\nFMOVQ F2, (R6)", arm64.Ins("ZIP1.8H", 2, 0, 1))
	g.label("next")
	g.ins("ADD R3<<1, R2\nADD R1, R0\nSUBS $1, R4\nBNE row")
	g.label("done")
	g.ins("RET")
}

// neonVectorProducts writes Dots and Adds of one and four rows for each element type, for
// columns in groups of four: two registers at a time, then one.
func (g *gen) neonVectorProducts() {
	for _, kind := range neonKinds {
		for _, rows := range []int{4, 1} {
			g.neonVector("dots", kind.name, kind.bytes, rows, kind.load)
			g.neonVector("adds", kind.name, kind.bytes, rows, kind.load)
		}
	}
}

func (g *gen) neonVector(what, kind string, bytes, rows int, load func(at string, v int) string) {
	dots := what == "dots"
	g.text(fmt.Sprintf("%s%s%dNEON", what, kind, rows), vectorParams, fmt.Sprintf("is %s of %d rows of %s.", map[bool]string{true: "Dots", false: "Adds"}[dots], rows, kind))
	g.block("BEGIN_VECTOR", func() {
		g.ins("MOVD d+0(FP), R0\nMOVD x+8(FP), R1\nMOVD s+16(FP), R2\nMOVD lds+24(FP), R6\nMOVD n+32(FP), R7")
	})
	for i := 1; i < rows; i++ {
		g.ins("ADD R6, R%d, R%d", i+1, i+2)
	}
	vector := "R1" // pointer that advances with the columns
	switch {
	case dots:
		g.neonZero(2 * rows)
	case rows == 4:
		g.ins("FMOVQ (R1), F0")
	default:
		g.ins("FMOVS (R1), F0")
	}
	if !dots {
		vector = "R0"
	}
	iteration := func(n int) {
		for v := range n {
			g.ins("FMOVQ %d(%s), F%d", 16*v, vector, 8+v)
		}
		for i := range rows {
			g.macro(fmt.Sprintf("%s_NEON_%s_%d", strings.ToUpper(what), kind, n), func() {
				for v := range n {
					g.ins("%s", load(fmt.Sprintf("%d(R%d)", 4*bytes*v, 2+i), 10+v))
					if dots {
						g.ins("%s", arm64.Ins("FMLA", 2*i+v, 10+v, 8+v))
					} else {
						g.ins("%s", arm64.ByElement(8+v, 10+v, 0, i))
					}
				}
				g.ins("ADD $%d, R%d", 4*bytes*n, 2+i)
			}, "row", fmt.Sprintf("R%d", 2+i), "sum", 2*i, "i", i, "v0", fmt.Sprintf("V%d", 2*i), "v1", fmt.Sprintf("V%d", 2*i+1))
		}
		for v := 0; v < n && !dots; v++ {
			g.ins("FMOVQ F%d, %d(R0)", 8+v, 16*v)
		}
		g.ins("ADD $%d, %s", 16*n, vector)
	}
	macro := func(n int) string { return fmt.Sprintf("%s_NEON_%s_%d", strings.ToUpper(what), kind, n) }
	g.block(fmt.Sprintf("%s_COLUMNS_%d", strings.ToUpper(what[:3]), rows), func() {
		g.ins("SUBS $8, R7\nBLT tail")
		g.label("loop")
		iteration(2)
		g.ins("SUBS $8, R7\nBGE loop")
		g.label("tail")
		g.ins("ADDS $8, R7\nBEQ done")
		iteration(1)
		g.label("done")
	}, "two", macro(2), "one", macro(1))
	if dots {
		for i := range rows {
			g.ins("%s", arm64.Ins("FADD", 2*i, 2*i, 2*i+1))
		}
		if rows == 4 {
			g.ins("%s\n%s\n%s\nFMOVQ F0, (R0)", arm64.Ins("FADDP", 0, 0, 2), arm64.Ins("FADDP", 4, 4, 6), arm64.Ins("FADDP", 0, 0, 4))
		} else {
			g.ins("%s\n%[1]s\nFMOVS F0, (R0)", arm64.Ins("FADDP", 0, 0, 0))
		}
	}
	g.ins("RET")
}
