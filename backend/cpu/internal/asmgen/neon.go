package asmgen

import "fmt"

// neon writes the kernels for arm64: 8 rows and three vectors take 24 of the
// 32 registers.
func neon() *gen {
	g := &gen{name: "neon_arm64", doc: "// Kernels for Advanced SIMD.\n\n"}
	const rows, vectors = 8, 3
	for _, inner := range []bool{false, true} {
		form := "Rows"
		if inner {
			form = "Inner"
		}
		name := func(mr int) string { return fmt.Sprintf("f32NEON%s%dx%d", form, mr, 4*vectors) }
		for mr := 1; mr <= rows; mr++ {
			g.neonTile(name(mr), mr, vectors, inner)
		}
		g.table("Kernel", 1, fmt.Sprintf("f32NEON%s%d", form, 4*vectors), rows, name)
	}
	return g
}

// neonTile writes a kernel. R0 counts, R1 on point to A: to each row, or to
// the first; R10 points to B. V0 on are the sums, V24 on B, V27 and V28
// elements of A.
func (g *gen) neonTile(name string, rows, vectors int, inner bool) {
	how := "a[i*lda+p]"
	if inner {
		how = "a[p*lda+i]"
	}
	g.text(name, kernelParams, fmt.Sprintf("is a Kernel of %d rows and %d columns: Σ %s·b[p*ldb+j].", rows, 4*vectors, how))
	g.ins("MOVD k+0(FP), R0\nMOVD a+8(FP), R1\nMOVD lda+16(FP), R9\nMOVD b+24(FP), R10\nMOVD ldb+32(FP), R11")
	if !inner {
		for i := 1; i < rows; i++ {
			g.ins("ADD R9, R%d, R%d", i, i+1)
		}
	}
	for i := range rows * vectors {
		g.ins("VEOR V%[1]d.B16, V%[1]d.B16, V%[1]d.B16", i)
	}
	group := func(first int) string { return fmt.Sprintf("[V%d.S4, V%d.S4, V%d.S4]", first, first+1, first+2) }
	g.ins("CBZ R0, sum")
	g.label("loop")
	g.ins("VLD1 (R10), %s\nADD R11, R10, R10", group(24))
	if inner {
		g.ins("MOVD R1, R12\nADD R9, R1, R1")
	}
	for i := range rows {
		from := fmt.Sprintf("R%d", i+1)
		if inner {
			from = "R12"
		}
		a := 27 + i%2
		g.ins("VLD1R.P 4(%s), [V%d.S4]", from, a)
		for v := range vectors {
			g.ins("VFMLA V%d.S4, V%d.S4, V%d.S4", a, 24+v, i*vectors+v)
		}
	}
	g.ins("SUB $1, R0, R0\nCBNZ R0, loop")
	g.label("sum")
	g.ins("MOVD s+40(FP), R1\nCBZ R1, store\nMOVD lds+48(FP), R9")
	for i := range rows {
		g.ins("VLD1 (R1), %s\nADD R9, R1, R1", group(24))
		for v := range vectors {
			// Go's assembler has no vector addition of floats: FADD is a word.
			acc := i*vectors + v
			g.ins("WORD $%#08x // FADD V%d.4S, V%d.4S, V%d.4S", 0x4e20d400|(24+v)<<16|acc<<5|acc, acc, acc, 24+v)
		}
	}
	g.label("store")
	g.ins("MOVD d+56(FP), R1\nMOVD ldd+64(FP), R9")
	for i := range rows {
		g.ins("VST1 %s, (R1)\nADD R9, R1, R1", group(i*vectors))
	}
	g.ins("RET")
}
