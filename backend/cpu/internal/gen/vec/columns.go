package vec

import "fmt"

// columns folds rows for 16 (8) columns at a time, with the results in registers, and then for
// each remaining column. It adds, or folds by an instruction that returns its second operand
// for a NaN.
func columns(from elem, join string) func(a *emitter) {
	return func(a *emitter) {
		if a.arm {
			columnsNEON(a, from, join)
			return
		}
		high := fmt.Sprintf("%d(DI)", 4*a.lanes()) // the second half of the sums
		a.block("BEGIN_COLUMNS", func() {
			a.op("MOVQ", "acc+0(FP)", "DI")
			a.op("MOVQ", "x+8(FP)", "SI")
			a.op("MOVQ", "n+16(FP)", "CX")
			a.op("MOVQ", "rows+24(FP)", "DX")
			a.op("MOVQ", "stride+32(FP)", "R8")
			a.op("IMULQ", from.size(), "R8")
			a.op("LEAQ", "(R8)(R8*2)", "R11")
			a.label("columns")
			a.op("CMPQ", "CX", a.lanes())
			a.op("JLT", "rest")
			a.op("VMOVUPD", "(DI)", reg(4))
			a.op("VMOVUPD", high, reg(5))
			a.op("MOVQ", "SI", "R9")
			a.op("MOVQ", "DX", "R10")
		}, "size", from.size())
		if join == "" && from != f32 {
			a.op("SUBQ", 4, "R10")
			a.op("JLT", "few")
			a.label("four")
			a.sumOfFour(from, []string{"(R9)", "(R9)(R8*1)", "(R9)(R8*2)", "(R9)(R11*1)"})
			widen(a)
			addDouble(a, 4, 5)
			a.block("NEXT_FOUR_ROWS", func() {
				a.op("LEAQ", "(R9)(R8*4)", "R9")
				a.op("SUBQ", 4, "R10")
				a.op("JGE", "four")
				a.label("few")
				a.op("ADDQ", 4, "R10")
				a.op("JZ", "column16")
			})
		}
		a.label("rows")
		if from == f32 {
			a.op("VCVTPS2PD", "(R9)", reg(1))
			a.op("VCVTPS2PD", fmt.Sprintf("%d(R9)", 2*a.lanes()), reg(2))
		} else {
			a.widened(from, "(R9)", 0)
			widen(a)
		}
		for i := range reg(2) {
			a.joinDouble(join, 1+i, 4+i)
		}
		a.block("NEXT_COLUMNS", func() {
			a.op("ADDQ", "R8", "R9")
			a.op("DECQ", "R10")
			a.op("JNZ", "rows")
			a.label("column16")
			a.op("VMOVUPD", reg(4), "(DI)")
			a.op("VMOVUPD", reg(5), high)
			a.op("ADDQ", 8*a.lanes(), "DI")
			a.op("ADDQ", from.size()*a.lanes(), "SI")
			a.op("SUBQ", a.lanes(), "CX")
			a.op("JMP", "columns")
			a.label("rest")
			a.op("TESTQ", "CX", "CX")
			a.op("JZ", "done")
			a.label("column")
			a.op("VMOVSD", "(DI)", "X4")
			a.op("MOVQ", "SI", "R9")
			a.op("MOVQ", "DX", "R10")
			a.label("row")
		}, "size", from.size())
		if from == f32 {
			a.op("MOVL", "(R9)", "R11")
		} else {
			a.op("MOVWLZX", "(R9)", "R11")
		}
		if from == bf16 {
			a.op("SHLL", 16, "R11")
		}
		a.op("VMOVD", "R11", "X1")
		if from == f16 {
			a.op("VCVTPH2PS", "X1", "X1")
		}
		a.op("VCVTSS2SD", "X1", "X1", "X1")
		a.joinDouble(join, 1, 4)
		a.block("END_COLUMNS", func() {
			a.op("ADDQ", "R8", "R9")
			a.op("DECQ", "R10")
			a.op("JNZ", "row")
			a.op("VMOVSD", "X4", "(DI)")
			a.op("ADDQ", 8, "DI")
			a.op("ADDQ", from.size(), "SI")
			a.op("DECQ", "CX")
			a.op("JNZ", "column")
			a.label("done")
			a.end()
		}, "size", from.size())
	}
}

// joinDouble adds x to a register of float64, or folds it by an instruction and keeps the
// register's NaNs. It changes register 3.
func (a *emitter) joinDouble(join string, x, to reg) {
	if a.arm {
		a.joinDoubleNEON(join, int(x), int(to))
		return
	}
	if join == "" {
		a.op("VADDPD", x, to, to)
		return
	}
	a.block("JOIN_"+joinName(join), func() { a.joinOne(join, x, to) })
}

func (a *emitter) joinOne(join string, x, to reg) {
	a.op(join, to, x, reg(3)) // a NaN in to stays: the second operand
	if a.wide {
		a.op("VCMPPD", nan, x, x, mask(0))
		a.op("VBLENDMPD", x, reg(3), mask(0), to)
		return
	}
	a.op("VCMPPD", nan, x, x, mask(0))
	a.op("VBLENDVPD", mask(0), x, reg(3), to)
}

// foldRows adds up short rows of float32, or folds them by an instruction and reports whether
// there was a NaN: as many rows at a time as a vector has float64, a register for each row,
// which are then reduced to one vector.
func foldRows(join string) func(a *emitter) {
	return func(a *emitter) {
		if a.arm {
			foldRowsNEON(a, join)
			return
		}
		group, name := a.lanes()/2, "VADDPD"
		if join != "" {
			name = join
		}
		var neutral any = bits(0)
		if join == "VMAXPD" {
			neutral = bits(minusInf)
		} else if join == "VMINPD" {
			neutral = bits(plusInf)
		}
		first := reg(4)
		a.op("MOVQ", "dst+0(FP)", "DI")
		a.op("MOVQ", "x+8(FP)", "SI")
		a.op("MOVQ", "n+16(FP)", "CX")
		a.op("MOVQ", "rows+24(FP)", "DX")
		a.op("XORQ", "R13", "R13")
		a.op("MOVQ", "CX", "R8")
		a.op("ANDQ", a.lanes()-1, "R8") // beyond whole vectors
		a.op("SUBQ", "R8", "CX")
		if a.wide {
			a.op("MOVL", 0xffff, "R10")
			a.op("BZHIL", "R8", "R10", "R10")
			a.op("KMOVW", "R10", "K7")
			a.op("KXORW", mask(1), mask(1), mask(1))
		} else {
			a.op("VMOVD", "R8", "X0")
			a.op("VPBROADCASTD", "X0", reg(0))
			a.op("VPCMPGTD", a.vector([]uint32{0, 1, 2, 3, 4, 5, 6, 7}), reg(0), mask(2))
			a.op("VPXOR", mask(1), mask(1), mask(1))
		}
		// body folds register 0, of float32, into a row's.
		body := func(row reg) {
			if join == "" {
				widen(a)
				a.op("VADDPD", reg(1), row, row)
				a.op("VADDPD", reg(2), row, row)
				return
			}
			orderStep(a, join[:len(join)-1]+"S", row)
		}
		a.label("group")
		for r := range group {
			row, label := first+reg(r), fmt.Sprint(r)
			a.block("FOLD_ROW_"+joinName(join), func() {
				a.op("VMOVUPS", neutral, row)
				a.op("MOVQ", "CX", "R9")
				a.op("TESTQ", "R9", "R9")
				a.op("JZ", "rest"+label)
				a.label("row" + label)
				a.op("VMOVUPS", "(SI)", reg(0))
				body(row)
				a.op("ADDQ", 4*a.lanes(), "SI")
				a.op("SUBQ", a.lanes(), "R9")
				a.op("JNZ", "row"+label)
				a.label("rest" + label)
				a.op("TESTQ", "R8", "R8")
				a.op("JZ", "end"+label)
				if a.wide {
					a.op("VMOVUPS", neutral, reg(0))
					a.op("VMOVUPS", "(SI)", "K7", reg(0))
				} else {
					a.op("VMASKMOVPS", "(SI)", mask(2), reg(0))
					if join != "" {
						a.op("VMOVUPS", neutral, reg(1))
						a.op("VBLENDVPS", mask(2), reg(0), reg(1), reg(0))
					}
				}
				body(row)
				a.op("LEAQ", "(SI)(R8*4)", "SI")
				a.label("end" + label)
				if join != "" { // half as many, as float64
					half := fmt.Sprintf("X%d", row)
					if a.wide {
						half = fmt.Sprintf("Y%d", row)
						a.op("VEXTRACTF64X4", 1, row, "Y1")
						a.op(join[:len(join)-1]+"S", "Y1", half, half)
					} else {
						a.op("VEXTRACTF128", 1, row, "X1")
						a.op(join[:len(join)-1]+"S", "X1", half, half)
					}
					a.op("VCVTPS2PD", half, row)
				}
			}, "to", row, "row", "row"+label, "rest", "rest"+label, "end", "end"+label)
		}
		// Reduce pairs, fours and eights of rows to parts of a vector.
		for r := reg(0); r < reg(group); r += 2 {
			x, y := first+r, first+r+1
			a.op("VUNPCKLPD", y, x, reg(0))
			a.op("VUNPCKHPD", y, x, reg(1))
			a.op(name, reg(1), reg(0), first+r/2)
		}
		for n := reg(group) / 2; n > 1; n /= 2 {
			for r := reg(0); r < n; r += 2 {
				x, y := first+r, first+r+1
				if a.wide {
					a.op("VSHUFF64X2", 0x88, y, x, reg(0))
					a.op("VSHUFF64X2", 0xdd, y, x, reg(1))
				} else {
					a.op("VPERM2F128", 0x20, y, x, reg(0))
					a.op("VPERM2F128", 0x31, y, x, reg(1))
				}
				a.op(name, reg(1), reg(0), first+r/2)
			}
		}
		a.op("VMOVUPD", first, "(DI)")
		a.op("ADDQ", 8*group, "DI")
		a.op("SUBQ", group, "DX")
		a.op("JNZ", "group")
		if join != "" {
			if a.wide {
				a.op("KMOVW", mask(1), "R13")
			} else {
				a.op("VMOVMSKPS", mask(1), "R13")
			}
		}
		a.op("MOVQ", "R13", "ret+32(FP)")
		a.end()
	}
}
