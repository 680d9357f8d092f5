package gemm

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
)

// vectorParams is the signature of the products of a few rows of a matrix and a
// vector; package gemm documents them at its types Dots and Adds.
const vectorParams = "d unsafe.Pointer, x unsafe.Pointer, s unsafe.Pointer, lds int, n int"

// prefetchDistanceVector is the distance in bytes at which rows are prefetched.
const prefetchDistanceVector = 1024

// manyColumns are columns for which later columns are prefetched, not later rows.
const manyColumns = 1024

// vectorProducts writes Dots and Adds of one and four rows for each element
// type. Without masks, columns are a multiple of a register's lanes.
func (g *gen) vectorProducts(suffix, reg string, bytes int) {
	for _, kind := range elementKinds {
		load := func(at string, z int, masked bool) {
			suffix, mask := "", ""
			if masked {
				suffix, mask = ".Z", "K1, "
			}
			switch kind.name {
			case "F16":
				g.ins("VCVTPH2PS%s %s, %s%s%d", suffix, at, mask, reg, z)
			case "BF16":
				g.ins("VPMOVZXWD%s %s, %s%s%d\nVPSLLD $16, %[4]s%[5]d, %[4]s%[5]d", suffix, at, mask, reg, z)
			default:
				g.ins("VMOVUPS%s %s, %s%s%d", suffix, at, mask, reg, z)
			}
		}
		step := bytes / 4 * kind.bytes // bytes of a row in a register
		for _, rows := range []int{4, 1} {
			g.dots(fmt.Sprintf("dots%s%d%s", kind.name, rows, suffix), kind.doc, reg, bytes, step, rows, load)
			g.adds(fmt.Sprintf("adds%s%d%s", kind.name, rows, suffix), kind.doc, reg, bytes, step, rows, load)
		}
	}
}

// vectorRows loads the arguments and returns the addresses of the rows.
func (g *gen) vectorRows(rows int) []string {
	g.block("LOAD_VECTOR_ARGS", func() {
		g.ins("MOVQ d+0(FP), DI\nMOVQ x+8(FP), SI\nMOVQ s+16(FP), AX\nMOVQ lds+24(FP), R8\nMOVQ n+32(FP), CX")
	})
	if rows > 1 {
		g.ins("LEAQ (AX)(R8*2), DX")
	}
	return []string{"(AX)", "(AX)(R8*1)", "(DX)", "(DX)(R8*1)"}[:rows]
}

// advanceRows moves the pointers to rows by some bytes.
func (g *gen) advanceRows(rows, bytes int) {
	g.ins("ADDQ $%d, AX", bytes)
	if rows > 1 {
		g.ins("ADDQ $%d, DX", bytes)
	}
}

// columns iterates over CX columns: two registers at a time, then one, then the remaining
// columns if there are masks.
func (g *gen) columns(reg string, lanes int, iteration func(registers int, masked bool)) {
	g.ins("SUBQ $%d, CX\nJLT tail", 2*lanes)
	g.label("loop")
	iteration(2, false)
	g.ins("SUBQ $%d, CX\nJGE loop", 2*lanes)
	g.label("tail")
	if reg != "Z" {
		g.ins("ADDQ $%d, CX\nJLT done", lanes)
		iteration(1, false)
		g.label("done")
		return
	}
	g.ins("ADDQ $%d, CX\nJLT rest", lanes)
	iteration(1, false)
	g.ins("SUBQ $%d, CX", lanes)
	g.label("rest")
	g.ins("ADDQ $%d, CX\nJEQ done", lanes)
	g.ins("MOVQ $1, BX\nSHLQ CX, BX\nDECQ BX\nKMOVW BX, K1")
	iteration(1, true)
	g.label("done")
}

// vectorRow returns the name of the macro of a row's part of an iteration.
func vectorRow(what, name, reg string, n int, masked bool) string {
	kind := strings.TrimSuffix(strings.TrimSuffix(name[4:], "AVX2"), "AVX512")
	kind = kind[:len(kind)-1] // without the number of rows
	s := fmt.Sprintf("%s_%s_%d", what, kind, n)
	if masked {
		s += "_MASKED"
	}
	if reg == "Y" {
		s += "_AVX2"
	}
	return s
}

func (g *gen) dots(name, doc, reg string, bytes, step, rows int, load func(at string, z int, masked bool)) {
	g.text(name, vectorParams, fmt.Sprintf("is Dots of %d rows of %s.", rows, doc))
	at := g.vectorRows(rows)
	g.block(fmt.Sprintf("ZERO_SUMS_%d_%s", 2*rows, reg), func() {
		for i := range 2 * rows {
			g.ins("VXORPS %[1]s%[2]d, %[1]s%[2]d, %[1]s%[2]d", reg, i)
		}
	})
	lanes := bytes / 4
	iteration := func(n int, masked bool) {
		if masked {
			g.ins("VMOVUPS.Z (SI), K1, %s8", reg)
		} else {
			for v := range n {
				g.ins("VMOVUPS %d(SI), %s%d", v*bytes, reg, 8+v)
			}
		}
		for i, row := range at {
			g.macro(vectorRow("DOTS", name, reg, n, masked), func() {
				for v := range n {
					load(fmt.Sprintf("%d%s", v*step, row), 10+v, masked)
					g.ins("VFMADD231PS %[1]s%[2]d, %[1]s%[3]d, %[1]s%[4]d", reg, 10+v, 8+v, 2*i+v)
				}
				for b := 0; b < n*step && !masked; b += 64 {
					g.ins("PREFETCHT0 %d%s", prefetchDistanceVector+b, row)
				}
			}, "row", row, "sum0", fmt.Sprintf("%s%d", reg, 2*i), "sum1", fmt.Sprintf("%s%d", reg, 2*i+1))
		}
		if masked {
			return
		}
		g.ins("ADDQ $%d, SI", n*bytes)
		g.advanceRows(rows, n*step)
	}
	g.block(fmt.Sprintf("DOT_COLUMNS_%d_%s", rows, reg), func() { g.columns(reg, lanes, iteration) }, "two", vectorRow("DOTS", name, reg, 2, false), "one", vectorRow("DOTS", name, reg, 1, false), "masked", vectorRow("DOTS", name, reg, 1, true))
	for i := range rows {
		z := 2 * i
		g.block("SUM_QUARTERS_"+map[string]string{"Y": "AVX2", "Z": "AVX512"}[reg], func() {
			g.ins("VADDPS %[1]s%[2]d, %[1]s%[3]d, %[1]s%[3]d", reg, z+1, z)
			if reg == "Z" {
				g.ins("VEXTRACTF64X4 $1, Z%[1]d, Y%[2]d\nVADDPS Y%[2]d, Y%[1]d, Y%[1]d", z, z+1)
			}
			g.ins("VEXTRACTF128 $1, Y%[1]d, X%[2]d\nVADDPS X%[2]d, X%[1]d, X%[1]d", z, z+1)
		}, "sum", fmt.Sprintf("%s%d", reg, z), "sum1", fmt.Sprintf("%s%d", reg, z+1))
	}
	if rows == 1 {
		g.ins("VHADDPS X0, X0, X0\nVHADDPS X0, X0, X0\nVMOVSS X0, (DI)\nVZEROUPPER\nRET")
		return
	}
	g.ins("VHADDPS X2, X0, X0\nVHADDPS X6, X4, X4\nVHADDPS X4, X0, X0\nVMOVUPS X0, (DI)\nVZEROUPPER\nRET")
}

func (g *gen) adds(name, doc, reg string, bytes, step, rows int, load func(at string, z int, masked bool)) {
	g.text(name, vectorParams, fmt.Sprintf("is Adds of %d rows of %s.", rows, doc))
	at := g.vectorRows(rows)
	for i := range rows {
		g.ins("VBROADCASTSS %d(SI), %s%d", 4*i, reg, i)
	}
	// Of a few columns the rows of the next call are prefetched, of many later columns.
	next := []string{"(SI)", "(SI)(R8*1)", "(R9)", "(R9)(R8*1)"}[:rows]
	g.block(fmt.Sprintf("POINT_NEXT_%d", rows), func() {
		g.ins("LEAQ (AX)(R8*%d), SI\nCMPQ CX, $%d\nJLT near\nLEAQ %d(AX), SI", rows, manyColumns, prefetchDistanceVector)
		g.label("near")
		if rows > 1 {
			g.ins("LEAQ (SI)(R8*2), R9")
		}
	})
	iteration := func(n int, masked bool) {
		if masked {
			g.ins("VMOVUPS.Z (DI), K1, %s8", reg)
		} else {
			for v := range n {
				g.ins("VMOVUPS %d(DI), %s%d", v*bytes, reg, 8+v)
			}
		}
		for i, row := range at {
			g.macro(vectorRow("ADDS", name, reg, n, masked), func() {
				for v := range n {
					load(fmt.Sprintf("%d%s", v*step, row), 10+v, masked)
					g.ins("VFMADD231PS %[1]s%[2]d, %[1]s%[3]d, %[1]s%[4]d", reg, 10+v, i, 8+v)
				}
				for b := 0; b < n*step && !masked; b += 64 {
					g.ins("PREFETCHT0 %d%s", b, next[i])
				}
			}, "row", row, "next", next[i], "factor", fmt.Sprintf("%s%d", reg, i))
		}
		if masked {
			g.ins("VMOVUPS %s8, K1, (DI)", reg)
			return
		}
		for v := range n {
			g.ins("VMOVUPS %s%d, %d(DI)", reg, 8+v, v*bytes)
		}
		g.ins("ADDQ $%d, DI\nADDQ $%d, SI", n*bytes, n*step)
		if rows > 1 {
			g.ins("ADDQ $%d, R9", n*step)
		}
		g.advanceRows(rows, n*step)
	}
	lanes := bytes / 4
	g.block(fmt.Sprintf("ADD_COLUMNS_%d_%s", rows, reg), func() { g.columns(reg, lanes, iteration) }, "two", vectorRow("ADDS", name, reg, 2, false), "one", vectorRow("ADDS", name, reg, 1, false), "masked", vectorRow("ADDS", name, reg, 1, true))
	g.end()
}

// addsFour writes AddsFour: an addition waits for the one before it, so one slice after the other
// would take the time of four.
func (g *gen) addsFour() {
	g.text("addsFourAVX512", "d unsafe.Pointer, ldd int, x unsafe.Pointer, s unsafe.Pointer, lds int, apart int, n int, mask uint", "is AddsFour for AVX-512.")
	g.ins("MOVQ d+0(FP), DI\nMOVQ ldd+8(FP), R8\nMOVQ x+16(FP), SI\nMOVQ s+24(FP), AX\nMOVQ lds+32(FP), R9\nMOVQ apart+40(FP), R10\nMOVQ n+48(FP), CX\nMOVQ mask+56(FP), DX\nKMOVW DX, K1")
	g.ins("MOVQ R10, R11\nIMULQ R9, R11\nLEAQ (AX)(R11*1), BX\nLEAQ (AX)(R11*2), DX\nLEAQ (BX)(R11*2), R12\nSHLQ $2, R10\nLEAQ (R10)(R10*2), R11")
	for i := range 4 {
		g.ins("VPXORD Z%[1]d, Z%[1]d, Z%[1]d", i)
	}
	g.label("loop")
	for i, x := range []string{"(SI)", "(SI)(R10*1)", "(SI)(R10*2)", "(SI)(R11*1)"} {
		s := []string{"AX", "BX", "DX", "R12"}[i]
		g.ins("VBROADCASTSS %s, Z%d\nVFMADD231PS (%s), Z%d, K1, Z%d\nADDQ R9, %s", x, 4+i, s, 4+i, i, s)
	}
	g.ins("ADDQ $4, SI\nDECQ CX\nJNZ loop")
	for i := range 4 {
		g.ins("VMOVUPS Z%d, K1, (DI)\nADDQ R8, DI", i)
	}
	g.end()
}

// addsPairs writes Adds on pairs: two rows of B at a time make a row of pairs. Only the last
// columns are stored with a mask, because masked stores are not forwarded to the loads of the
// next rows.
func (g *gen) addsPairs(name string) {
	g.text(name, "d unsafe.Pointer, x unsafe.Pointer, s unsafe.Pointer, lds int, rows int, n int", "is Adds on pairs.")
	g.ins("MOVQ d+0(FP), R9\nMOVQ x+8(FP), SI\nMOVQ s+16(FP), R11\nMOVQ lds+24(FP), R8\nMOVQ rows+32(FP), R10\nMOVQ n+40(FP), R12")
	g.ins("VMOVDQU64 interleave<>+0(SB), Z2\nVMOVDQU64 interleave<>+64(SB), Z3")
	g.label("row")
	g.ins("CMPQ R10, $1\nJNE two\nMOVWLZX (SI), BX\nVPBROADCASTD BX, Z0\nKXORD K3, K3, K3\nJMP columns") // the last row has no partner
	g.label("two")
	g.ins("VPBROADCASTD (SI), Z0\nKXNORD K3, K3, K3")
	g.label("columns")
	g.ins("MOVQ R9, DI\nMOVQ R11, AX\nMOVQ R12, CX\nLEAQ (AX)(R8*2), R11\nMOVQ R11, DX") // the next rows are prefetched
	g.ins("SUBQ $32, CX\nJLT tail")
	step := func(masked bool) {
		z, all, low, high := "", "", "", ""
		if masked {
			z, all, low, high = ".Z", "K1, ", "K1, ", "K2, "
		}
		g.ins("VMOVDQU16%s (AX), %sZ10\nVMOVDQU16.Z (AX)(R8*1), K3, Z12\nVMOVDQA64 Z10, Z11", z, all)
		g.ins("VPERMT2W Z12, Z2, Z10\nVPERMT2W Z12, Z3, Z11")
		g.ins("VMOVUPS%s (DI), %sZ8\nVMOVUPS%s 64(DI), %sZ9", z, low, z, high)
		for v := range 2 {
			g.ins("%s", amd64.VDPBF16PS(8+v, 0, 10+v))
		}
		g.ins("VMOVUPS Z8, %s(DI)\nVMOVUPS Z9, %s64(DI)", low, high)
	}
	g.label("loop")
	step(false)
	g.ins("PREFETCHT0 (DX)\nPREFETCHT0 (DX)(R8*1)\nADDQ $64, AX\nADDQ $64, DX\nADDQ $128, DI\nSUBQ $32, CX\nJGE loop")
	g.label("tail")
	g.ins("ADDQ $32, CX\nJEQ next\nMOVQ $1, BX\nSHLQ CX, BX\nDECQ BX\nKMOVD BX, K1\nKSHIFTRD $16, K1, K2\nKANDD K1, K3, K3")
	step(true)
	g.label("next")
	g.ins("ADDQ $4, SI\nSUBQ $2, R10\nJGT row")
	g.end()
}
