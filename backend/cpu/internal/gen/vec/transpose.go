package vec

import "fmt"

// tile transposes 16 source columns to 16 rows of 64 bytes: of 16 source rows of four-byte
// elements, or of 32 rows of two bytes, which are paired first. Lines are read and written
// once and whole, so that strides of a power of two and non-temporal stores cost nothing.
func tile(half, nt bool) func(a *emitter) {
	return func(a *emitter) {
		size := 4
		if half {
			size = 2
		}
		a.op("MOVQ", "dst+0(FP)", "DI")
		a.op("MOVQ", "src+8(FP)", "SI")
		a.op("MOVQ", "to+16(FP)", "R8")
		a.op("MOVQ", "from+24(FP)", "R9")
		a.op("IMULQ", size, "R8")
		a.op("IMULQ", size, "R9")
		for i := range reg(16) {
			if half {
				a.block("LOAD_TWO_ROWS", func() {
					a.op("VPMOVZXWD", "(SI)", i)
					a.op("VPMOVZXWD", "(SI)(R9*1)", reg(16))
					a.op("VPSLLD", 16, reg(16), reg(16))
					a.op("VPORD", reg(16), i, i)
					a.op("LEAQ", "(SI)(R9*2)", "SI")
				}, "to", i)
			} else {
				a.op("VMOVUPS", "(SI)", i)
				a.op("ADDQ", "R9", "SI")
			}
		}
		a.block("TRANSPOSE_16x16", func() {
			// Within 128 bits: transpose pairs, then fours of rows.
			for i := reg(0); i < 16; i += 2 {
				a.op("VUNPCKLPS", i+1, i, 16+i)
				a.op("VUNPCKHPS", i+1, i, 17+i)
			}
			for i := reg(0); i < 16; i += 4 {
				for j := range reg(2) {
					a.op("VUNPCKLPD", 18+i+j, 16+i+j, i+2*j)
					a.op("VUNPCKHPD", 18+i+j, 16+i+j, i+2*j+1)
				}
			}
			// Register 4q+j has column 4l+j of rows 4q to 4q+3 in its part l.
			for j := range reg(4) {
				a.op("VSHUFF32X4", 0x88, 4+j, j, 16+j)    // parts 0 and 2
				a.op("VSHUFF32X4", 0xdd, 4+j, j, 20+j)    // parts 1 and 3
				a.op("VSHUFF32X4", 0x88, 12+j, 8+j, 24+j) // of the rows from 8 on
				a.op("VSHUFF32X4", 0xdd, 12+j, 8+j, 28+j)
			}
		})
		name := "STORE_COLUMN"
		if nt {
			name += "_NT"
		}
		for l := range reg(4) {
			for j := range reg(4) {
				low, order := 16+4*(l%2)+j, []int{0x88, 0xdd}[l/2]
				a.block(name, func() {
					a.op("VSHUFF32X4", order, low+8, low, reg(0))
					a.op(storeName(nt), reg(0), "(DI)")
					a.op("ADDQ", "R8", "DI")
				})
			}
		}
		a.end()
	}
}

// transpose transposes a square of 8 by 8; both instruction sets use 256 bits.
func transpose(a *emitter) {
	if a.arm {
		transposeNEON(a)
		return
	}
	a.op("MOVQ", "dst+0(FP)", "DI")
	a.op("MOVQ", "src+8(FP)", "SI")
	a.op("MOVQ", "to+16(FP)", "R8")
	a.op("MOVQ", "from+24(FP)", "R9")
	a.op("SHLQ", 2, "R8")
	a.op("SHLQ", 2, "R9")
	y := func(i int) string { return fmt.Sprintf("Y%d", i) }
	// Rows i and i+4 share a register, so that no later step crosses lanes.
	a.op("LEAQ", "(SI)(R9*4)", "DX")
	for half := range 2 { // columns 0 to 3, then 4 to 7
		for i := range 4 {
			a.op("VMOVUPS", fmt.Sprintf("%d(SI)", 16*half), fmt.Sprintf("X%d", i))
			a.op("VINSERTF128", 1, fmt.Sprintf("%d(DX)", 16*half), y(i), y(i))
			if i < 3 {
				a.op("ADDQ", "R9", "SI")
				a.op("ADDQ", "R9", "DX")
			}
		}
		a.op("VUNPCKLPS", y(1), y(0), y(4))
		a.op("VUNPCKHPS", y(1), y(0), y(5))
		a.op("VUNPCKLPS", y(3), y(2), y(6))
		a.op("VUNPCKHPS", y(3), y(2), y(7))
		for i, from := range []int{4, 4, 5, 5} {
			name := []string{"VUNPCKLPD", "VUNPCKHPD"}[i%2]
			a.op(name, y(from+2), y(from), y(i))
			a.op("VMOVUPS", y(i), "(DI)")
			a.op("ADDQ", "R8", "DI")
		}
		if half == 0 {
			a.op("LEAQ", "(R9)(R9*2)", "R10")
			a.op("SUBQ", "R10", "SI")
			a.op("SUBQ", "R10", "DX")
		}
	}
	a.end()
}

// transpose16 is transpose for elements of two bytes.
func transpose16(a *emitter) {
	if a.arm {
		transpose16NEON(a)
		return
	}
	a.op("MOVQ", "dst+0(FP)", "DI")
	a.op("MOVQ", "src+8(FP)", "SI")
	a.op("MOVQ", "to+16(FP)", "R8")
	a.op("MOVQ", "from+24(FP)", "R9")
	a.op("SHLQ", 1, "R8")
	a.op("SHLQ", 1, "R9")
	x := func(i int) string { return fmt.Sprintf("X%d", i) }
	for i := range 8 {
		a.op("VMOVDQU", "(SI)", x(i))
		a.op("ADDQ", "R9", "SI")
	}
	// Transpose pairs, then fours, then all eight rows of a column.
	for i := range 4 {
		a.op("VPUNPCKLWD", x(2*i+1), x(2*i), x(8+2*i))
		a.op("VPUNPCKHWD", x(2*i+1), x(2*i), x(9+2*i))
	}
	for half := range 2 {
		from, to := 8+4*half, 4*half
		for i := range 2 {
			a.op("VPUNPCKLDQ", x(from+2+i), x(from+i), x(to+2*i))
			a.op("VPUNPCKHDQ", x(from+2+i), x(from+i), x(to+2*i+1))
		}
	}
	for i := range 4 {
		a.op("VPUNPCKLQDQ", x(4+i), x(i), "X8")
		a.op("VPUNPCKHQDQ", x(4+i), x(i), "X9")
		for _, r := range []string{"X8", "X9"} {
			a.op("VMOVDQU", r, "(DI)")
			a.op("ADDQ", "R8", "DI")
		}
	}
	a.op("RET")
}

// storeName returns the store instruction, non-temporal or not.
func storeName(nt bool) string {
	if nt {
		return "VMOVNTPS"
	}
	return "VMOVUPS"
}
