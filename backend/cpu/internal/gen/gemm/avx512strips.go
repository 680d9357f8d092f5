package gemm

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
)

// stripParams is the signature of kernels of strips; package gemm documents it at its
// type StripKernel.
const stripParams = "k int, a unsafe.Pointer, lda int, b unsafe.Pointer, panels int, d unsafe.Pointer, ldd int, mask uint"

// strips writes the kernels of strips of one kind of arithmetic, of one or two vectors of
// columns, and a table of them.
func (g *gen) strips(prefix string, rows, vectors int, t tile) {
	name := func(mr int) string { return fmt.Sprintf("%s%dx%d", prefix, mr, 16*vectors) }
	t.strips, t.vectors = true, vectors
	for mr := 1; mr <= rows; mr++ {
		t.name, t.rows = name(mr), mr
		t.strip(g)
	}
	g.table("StripKernel", 1, fmt.Sprint(prefix, 16*vectors), rows, name)
}

// strip writes a kernel that computes a strip of rows of the result, panel by panel of B, and
// rounds the sums to bfloat16. With one vector there is one panel, and the first half of it is
// read.
func (t *tile) strip(g *gen) {
	g.text(t.name, stripParams, fmt.Sprintf("is a StripKernel of %d rows: Σ a[i*lda+p]·b[p*32+j], rounded to bfloat16.", t.rows))
	name := func(what string) string { return fmt.Sprintf("%s_%d%s", what, t.rows, t.width()) }
	bases := rowBases[:(t.rows+2)/3]
	pairs := t.arithmetic() == "DOT"
	kind, store := "STRIP_KERNEL_"+t.arithmetic(), name("STORE_BF16_C")
	parts := []any{"prefetchw", name("PREFETCHW_STRIP"), "zero", name("ZERO_C"), "point", fmt.Sprintf("POINT_A_%d", len(bases)), "step", t.stepMacro(), "advance", t.advanceMacro(), "store", store}
	if !pairs {
		parts = append(parts, "find", name("FIND_SUBNORMAL_C"), "round", name("STORE_ROUNDED_C"))
	}
	g.block(kind, func() {
		g.block("LOAD_STRIP_ARGS", func() {
			g.ins("MOVQ lda+16(FP), R12\nMOVQ b+24(FP), BX\nMOVQ panels+32(FP), R15\nMOVQ d+40(FP), DI\nMOVQ ldd+48(FP), R8")
			g.ins("MOVQ $%d, R13\nLEAQ (R13)(R13*2), R11\nLEAQ %d(BX), R14\nKXNORD K1, K1, K1", 2*t.bytes, prefetchDistanceB*2*t.bytes)
		})
		g.block("BEGIN_PANEL", func() {
			g.label("panel")
			g.ins("CMPQ R15, $1\nJNE whole\nMOVQ mask+56(FP), DX\nKMOVD DX, K1")
			g.label("whole")
			g.ins("MOVQ k+0(FP), CX\nMOVQ a+8(FP), AX\nMOVQ DI, DX")
		})
		rows := func(what string, row func(i int)) {
			g.sharedRows(what, t.width(), t.rows, func(i int) {
				if i > 0 {
					g.ins("ADDQ R8, DX")
				}
				row(i)
			})
		}
		rows("PREFETCHW_STRIP", func(int) { g.ins("%s", amd64.Prefetchw(prefetchDistanceStrip, amd64.DX)) })
		g.sharedRows("ZERO_C", t.width(), t.rows, func(i int) {
			for v := range t.vectors {
				g.ins("%s %[2]s%[3]d, %[2]s%[3]d, %[2]s%[3]d", t.zero, t.reg, t.acc(i, v))
			}
		})
		g.macro(fmt.Sprintf("POINT_A_%d", len(bases)), func() {
			for i := 1; i < len(bases); i++ {
				g.ins("LEAQ (%s)(R12*2), %s\nADDQ R12, %s", bases[i-1], bases[i], bases[i])
			}
		})
		advance := func(n int) { g.macro(t.advanceMacro(), func() { t.advance(g, n, bases) }, "n", n) }
		g.block("LOOP_OF_FOUR", func() {
			g.ins("SUBQ $%d, CX\nJLT tail\nPCALIGN $64", unroll)
			g.label("loop")
		})
		for u := range unroll {
			t.step(g, u)
		}
		advance(unroll)
		g.block("LOOP_OF_ONE", func() {
			g.ins("SUBQ $%d, CX\nJGE loop", unroll)
			g.label("tail")
			g.ins("ADDQ $%d, CX\nJLE %s", unroll, "sum")
			g.label("rest")
		}, "end", "sum")
		t.step(g, 0)
		advance(1)
		g.ins("DECQ CX\nJNZ rest")
		g.label("sum")
		g.ins("MOVQ DI, DX")
		if !pairs {
			// The rounding instruction flushes subnormal numbers to zero. Sums of products of
			// pairs have none.
			g.sharedRows("FIND_SUBNORMAL_C", t.width(), t.rows, func(i int) {
				low := fmt.Sprintf("Z%d", t.acc(i, 0))
				if t.vectors == 1 {
					g.block("FIND_SUBNORMAL_1", func() {
						g.ins("VFPCLASSPSZ $0x20, %s, K3\nKORTESTW K3, K3\nJNZ subnormal", low)
					}, "low", low)
					return
				}
				high := fmt.Sprintf("Z%d", t.acc(i, 1))
				g.block("FIND_SUBNORMAL", func() {
					g.ins("VFPCLASSPSZ $0x20, %s, K3\nVFPCLASSPSZ $0x20, %s, K4\nKORTESTW K3, K4\nJNZ subnormal", low, high)
				}, "low", low, "high", high)
			})
		}
		rows("STORE_BF16_C", func(i int) {
			low, high := t.acc(i, 0), t.acc(i, t.vectors-1)
			g.ins("%s\nVMOVDQU16 Z%d, K1, (DX)", amd64.VCVTNE2PS2BF16(low, high, low), low)
		})
		g.block("NEXT_PANEL", func() {
			g.label("stored")
			g.ins("ADDQ $%d, DI\nDECQ R15\nJNZ panel", t.bytes)
			g.end()
		})
		if !pairs {
			g.label("subnormal")
			const constants = 28
			g.bfloat16Constants(constants)
			g.ins("MOVQ DI, DX")
			rows("STORE_ROUNDED_C", func(i int) {
				low := t.acc(i, 0)
				if t.vectors == 1 {
					g.block("STORE_ROUNDED_1", func() {
						g.roundBFloat16(low, constants)
						g.ins("VPSRLD $16, Z%[1]d, Z%[1]d\nVPMOVDW Z%[1]d, Y%[1]d\nVMOVDQU16 Z%[1]d, K1, (DX)", low)
					}, "low", fmt.Sprintf("Z%d", low), "lowhalf", fmt.Sprintf("Y%d", low))
					return
				}
				high := t.acc(i, 1)
				g.block("STORE_ROUNDED", func() {
					for _, v := range []int{low, high} {
						g.roundBFloat16(v, constants)
						g.ins("VPSRLD $16, Z%[1]d, Z%[1]d\nVPMOVDW Z%[1]d, Y%[1]d", v)
					}
					g.ins("VINSERTI64X4 $1, Y%d, Z%[2]d, Z%[2]d\nVMOVDQU16 Z%[2]d, K1, (DX)", high, low)
				}, "low", fmt.Sprintf("Z%d", low), "lowhalf", fmt.Sprintf("Y%d", low), "high", fmt.Sprintf("Z%d", high), "highhalf", fmt.Sprintf("Y%d", high))
			})
			g.ins("JMP stored")
		}
	}, parts...)
}

// prefetchDistanceStrip is the distance in bytes at which rows of the result are prefetched
// before they are written.
const prefetchDistanceStrip = 128
