package vec

// Kernels of this file process many short rows, each with at most as many elements as a vector
// has lanes, and reduce across the lanes.

const (
	rowParams = "(dst, x unsafe.Pointer, n, rows int)"
	argParams = "(dst, x unsafe.Pointer, n, rows int, sign uint32)"
)

// perRow writes the loop over the rows of x, n elements each: a row is loaded to register 0,
// with -∞ beyond it, and body must leave the result there or, without store, write it to DI.
func perRow(a *emitter, step any, store bool, load, body func()) {
	if a.arm {
		perRowNEON(a, step, store, load, body)
		return
	}
	a.op("MOVQ", "dst+0(FP)", "DI")
	a.op("MOVQ", "x+8(FP)", "SI")
	a.op("MOVQ", "n+16(FP)", "CX")
	a.op("MOVQ", "rows+24(FP)", "DX")
	if a.wide {
		a.op("MOVL", 0xffff, "R10")
		a.op("BZHIL", "CX", "R10", "R10")
		a.op("KMOVW", "R10", "K7")
	} else {
		a.op("VMOVD", "CX", "X0")
		a.op("VPBROADCASTD", "X0", reg(0))
		a.op("VPCMPGTD", a.vector([]uint32{0, 1, 2, 3, 4, 5, 6, 7}), reg(0), mask(2))
	}
	a.op("SHLQ", 2, "CX")
	a.label("row")
	if a.wide {
		a.op("VMOVUPS.Z", "(SI)", "K7", reg(0))
	} else {
		a.op("VMASKMOVPS", "(SI)", mask(2), reg(0))
	}
	load()
	a.op("VMOVUPS", bits(0xff800000), reg(1))
	if a.wide {
		a.op("VBLENDMPS", reg(0), reg(1), "K7", reg(0))
	} else {
		a.op("VBLENDVPS", mask(2), reg(0), reg(1), reg(0))
	}
	body()
	switch {
	case !store:
	case a.wide:
		a.op("VMOVUPS", reg(0), "K7", "(DI)")
	default:
		a.op("VMASKMOVPS", reg(0), mask(2), "(DI)")
	}
	a.op("ADDQ", "CX", "SI")
	a.op("ADDQ", step, "DI")
	a.op("DECQ", "DX")
	a.op("JNZ", "row")
	a.end()
}

// across applies an instruction to x until every lane has the result of all lanes. It changes
// register t.
func across(a *emitter, name string, x, t reg) {
	a.block("ACROSS_"+joinName(name), func() { acrossBody(a, name, x, t) }, "x", x, "t", t)
}

func acrossBody(a *emitter, name string, x, t reg) {
	if a.arm {
		a.acrossNEON(name, x, t)
		return
	}
	if a.wide {
		a.op("VSHUFF32X4", 0x4e, x, x, t)
		a.op(name, t, x, x)
		a.op("VSHUFF32X4", 0xb1, x, x, t)
	} else {
		a.op("VPERM2F128", 1, x, x, t)
	}
	a.op(name, t, x, x)
	for _, order := range []int{0x4e, 0xb1} {
		a.op("VPERMILPS", order, x, t)
		a.op(name, t, x, x)
	}
}

// softmaxRows: a NaN reaches its whole row through the sum, even if the maximum ignored it.
func softmaxRows(log bool) func(a *emitter) {
	return func(a *emitter) {
		perRow(a, "CX", true, func() {}, func() {
			a.op("VMOVUPS", reg(0), reg(5))
			across(a, "VMAXPS", 5, 8)
			a.op("VSUBPS", reg(5), reg(0), reg(0))
			a.op("VMOVUPS", reg(0), reg(9))
			exp(a)
			if !log {
				a.op("VMOVUPS", reg(0), reg(5))
				across(a, "VADDPS", 5, 8)
				a.op("VDIVPS", reg(5), reg(0), reg(0))
				return
			}
			across(a, "VADDPS", 0, 8)
			a.op("VMOVUPS", reg(0), reg(6))
			a.op("VPXOR", reg(7), reg(7), reg(7))
			logOf(a)
			logLimits(a, 0)
			a.op("VSUBPS", reg(0), reg(9), reg(0))
		})
	}
}

// argRows finds the first NaN, or else the first of the largest elements, by its bit in the
// mask of all lanes.
func argRows(a *emitter) {
	perRow(a, 4, false, func() {
		a.op("VBROADCASTSS", "sign+32(FP)", reg(2))
		a.op("VPXOR", reg(2), reg(0), reg(0))
	}, func() {
		a.op("VMOVUPS", reg(0), reg(5))
		across(a, "VMAXPS", 5, 8)
		a.cmp(nan, 0, reg(0), 0)
		a.cmp(eq, 0, reg(5), 1)
		if a.arm {
			a.firstLane()
			return
		}
		for i, to := range []string{"R8", "R9"} {
			if a.wide {
				a.op("KMOVW", mask(i), to)
			} else {
				a.op("VMOVMSKPS", mask(i), to)
			}
		}
		a.op("TESTL", "R8", "R8")
		a.op("CMOVLNE", "R8", "R9")
		a.op("BSFL", "R9", "R9")
		a.op("MOVL", "R9", "(DI)")
	})
}
