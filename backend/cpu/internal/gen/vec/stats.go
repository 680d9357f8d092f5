package vec

import "fmt"

// Kernels of this file compare a value with its reference: n is a multiple of 16 and
// not 0, and all elements are finite. A result is a vector, whose lanes the caller
// joins; results are 64 bytes apart.

func init() {
	const params = "(results, x, y unsafe.Pointer, n int)"
	special["stats"] = []function{
		{params, 32, pairSums, "pairSums", "results are lanes of Σ(x[i]-y[i])², Σx[i]², Σy[i]², Σx[i]·y[i] and the largest (x[i]-y[i])², in float64", false},
		{params, 32, pairMagnitudes, "pairMagnitudes", "results are lanes of the largest |x[i]| and |y[i]|, the smallest ones that are not 0 (infinity if there is none), and the numbers of zeros of x, of y, and of both", false},
	}
}

// pairs writes a loop over vectors of x and y. Step gets the address of an
// element of each, some bytes further.
func (a *emitter) pairs(begin func(), step func(address func(argument, bytes int) string), end func()) {
	if a.arm {
		a.framed(func() { a.arguments("results", "x", "y", "n") }, func() {
			begin()
			a.label("loop")
			step(func(argument, bytes int) string { return fmt.Sprintf("%d(R%d)", bytes, 1+argument) })
			a.line("ADD $16, R1")
			a.line("ADD $16, R2")
			a.line("SUBS $4, R3")
			a.line("BNE loop")
			end()
			a.line("RET")
		})
		return
	}
	for i, to := range []string{"DI", "SI", "DX", "CX"} {
		a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", []string{"results", "x", "y", "n"}[i], 8*i), to)
	}
	begin()
	a.op("XORQ", "AX", "AX")
	a.label("loop")
	step(func(argument, bytes int) string {
		return fmt.Sprintf("%d(%s)(AX*4)", bytes, []string{"SI", "DX"}[argument])
	})
	a.op("ADDQ", a.lanes(), "AX")
	a.op("CMPQ", "AX", "CX")
	a.op("JLT", "loop")
	end()
	a.end()
}

// result is the address of a result.
func (a *emitter) result(i int) string {
	if a.arm {
		return fmt.Sprintf("%d(R0)", 64*i)
	}
	return fmt.Sprintf("%d(DI)", 64*i)
}

// pairSums keeps two registers for each result: of the lower halves of vectors and of
// the upper ones.
func pairSums(a *emitter) {
	const results, first = 5, reg(6)
	half := func(low reg, x, y reg) {
		a.block("ADD_PAIRS", func() {
			a.subDouble(y, x, 4)
			a.mulDouble(4, 4, 4)
			a.op("VADDPD", reg(4), low, low)
			a.op("VFMADD231PD", x, x, low+2)
			a.op("VFMADD231PD", y, y, low+4)
			a.op("VFMADD231PD", x, y, low+6)
			a.maxDouble(4, low+8)
		}, "x", x, "y", y, "errors", low, "squaresX", low+2, "squaresY", low+4, "products", low+6, "largest", low+8)
	}
	a.pairs(func() {
		for i := range reg(2 * results) {
			a.op("VPXOR", first+i, first+i, first+i)
		}
	}, func(address func(argument, bytes int) string) {
		for argument := range 2 {
			low := reg(2 * argument)
			if a.arm {
				a.line("FMOVQ %s, F4", address(argument, 0))
				a.ins("FCVTL.2D", int(low), 4)
				a.ins("FCVTL2.2D", int(low)+1, 4)
				continue
			}
			a.op("VCVTPS2PD", address(argument, 0), low)
			a.op("VCVTPS2PD", address(argument, 2*a.lanes()), low+1)
		}
		half(first, 0, 2)
		half(first+1, 1, 3)
	}, func() {
		for i := range results {
			low := first + reg(2*i)
			if i == results-1 {
				a.maxDouble(low+1, low)
			} else {
				a.op("VADDPD", low+1, low, low)
			}
			a.op("VMOVUPS", low, a.result(i))
		}
	})
}

// subDouble is to = x-y of float64.
func (a *emitter) subDouble(y, x, to reg) {
	if a.arm {
		a.ins("FSUB.2D", int(to), int(x), int(y))
		return
	}
	a.op("VSUBPD", y, x, to)
}

// mulDouble is to = x·y of float64.
func (a *emitter) mulDouble(y, x, to reg) {
	if a.arm {
		a.ins("FMUL.2D", int(to), int(x), int(y))
		return
	}
	a.op("VMULPD", y, x, to)
}

// maxDouble is to = max(x, to) of float64 that are not NaN.
func (a *emitter) maxDouble(x, to reg) {
	if a.arm {
		a.ins("FCMGT.2D", scratch, int(x), int(to))
		a.ins("BIT", int(to), int(x), scratch)
		return
	}
	a.op("VMAXPD", x, to, to)
}

// pairMagnitudes counts in integers.
func pairMagnitudes(a *emitter) {
	const zero, largest, smallest, zeros, both = reg(3), reg(4), reg(6), reg(8), reg(10)
	a.pairs(func() {
		for _, r := range []reg{zero, largest, largest + 1, zeros, zeros + 1, both} {
			a.op("VPXOR", r, r, r)
		}
		for r := smallest; r < smallest+2; r++ {
			a.op("VMOVUPS", bits(plusInf), r)
		}
	}, func(address func(argument, bytes int) string) {
		for i := range reg(2) {
			a.op("VMOVUPS", address(int(i), 0), i)
			a.block("PAIR_MAGNITUDE", func() {
				a.op("VPAND", bits(^signBit), i, i)
				a.op("VMAXPS", i, largest+i, largest+i)
				a.cmp(eq, i, zero, 0)
				a.count(0, zeros+i)
				a.blend(0, i, bits(plusInf), 2)
				a.op("VMINPS", reg(2), smallest+i, smallest+i)
			}, "x", i, "largest", largest+i, "smallest", smallest+i, "zeros", zeros+i)
		}
		a.op("VPOR", reg(0), reg(1), reg(1))
		a.cmp(eq, 1, zero, 0)
		a.count(0, both)
	}, func() {
		for i, r := range []reg{largest, largest + 1, smallest, smallest + 1, zeros, zeros + 1, both} {
			a.op("VMOVUPS", r, a.result(i))
		}
	})
}

// count adds 1 to the lanes of a register that a mask has.
func (a *emitter) count(m mask, to reg) {
	if a.wide {
		a.op("VPADDD", bits(1), to, m, to)
		return
	}
	a.op("VPSUBD", m, to, to)
}
