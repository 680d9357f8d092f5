package vec

import (
	"fmt"
	"slices"
	"strings"
)

// Kernels of this file compute on blocks of scores of attention: rows of float32 with a
// leading dimension, in memory with room for whole vectors. They are for AVX-512.

const (
	weighParams    = "(x unsafe.Pointer, ld, n, all, rows int, top, sum, s unsafe.Pointer)"
	slopesParams   = "(x, dx unsafe.Pointer, ld, n, all, rows int, top, inverse, mean, s unsafe.Pointer)"
	chooseParams   = "(x, flags unsafe.Pointer, ld, step, n, rows int, v float32)"
	scaleParams    = "(dst, x unsafe.Pointer, to, ld, n, rows int, by unsafe.Pointer, step int)"
	dotParams      = "(dst, x, y unsafe.Pointer, ld, n, rows int)"
	copyRowsParams = "(dst, src unsafe.Pointer, to, from, n, rows int)"

	weighDoc  = "for rows r, top[r] = max(top[r], x[r][i]), x[r][i] = e to the power of (x[r][i]-top[r]) * s[0], or 0 if top[r] is -∞, sum[r] = Σ x[r][i], for i < n, and 0 up to all, which n is rounded up to, at least"
	slopesDoc = "for rows r, x[r][i] = inverse[r] times e to the power of min(0, x[r][i]-top[r]) * s[0], dx[r][i] = x[r][i] * (dx[r][i]*s[1] - mean[r]), for i < n, and both 0 up to all, which n is rounded up to, at least"
	chooseDoc = "for rows r, x[r*ld+i] = v where flags[r*step+i] is 0, for i < n"
)

const log2e = 1.44269504088896341

func init() {
	special["attention"] = []function{
		{weighParams, 64, weigh(false), "weigh", weighDoc, true},
		{weighParams, 64, weigh(true), "weighBF16", weighDoc + "; in place of the float32s of a row come bfloat16s", true},
		{slopesParams, 80, slopes(false), "slopes", slopesDoc, true},
		{slopesParams, 80, slopes(true), "slopesBF16", slopesDoc + "; in place of the float32s of a row come bfloat16s", true},
		{chooseParams, 52, choose(false), "choose", chooseDoc + "; x is float32", true},
		{copyRowsParams, 48, copyRows, "copyRows", "dst[r*to+i] = src[r*from+i] for rows r and i < n bytes, an even number", true},
		{chooseParams, 52, choose(true), "chooseU16", chooseDoc + "; x has 16 bits, those of v are the upper ones", true},
	}
	for _, t := range passTypes {
		if !t.convert { // whose bits differ from those of a cast of float32
			for nt, suffix := range map[bool]string{false: "", true: "NT"} {
				special["attention"] = append(special["attention"], function{scaleParams, 64, scaleRows(t, nt), "scaleRows" + t.suffix + suffix,
					"for rows r, dst[r*to+i] = x[r*ld+i] * by[r*step] for i < n" + map[bool]string{true: ", with non-temporal stores, for n of whole lines"}[nt], true})
			}
			special["attention"] = append(special["attention"], function{dotParams, 48, dotRows(t.elem), "dotRows" + t.suffix,
				"dst[r] = Σ x[r*ld+i] * y[r*ld+i] for rows r and i < n", true})
		}
	}
	slices.SortFunc(special["attention"], func(a, b function) int { return strings.Compare(a.name, b.name) })
}

// scoreRow and the following name the registers of loops over rows of scores: the row, the
// position in it, its length in whole vectors, and the length with padding.
const (
	scoreAt, scoreLength, scoreAll = "AX", "R10", "R11"
)

// scoreVectors writes a loop over the vectors of a row up to a length, four in an iteration
// while there are four.
func (a *emitter) scoreVectors(name, label string, body func(u int)) {
	a.block("BEGIN_SCORES", func() {
		a.op("XORQ", scoreAt, scoreAt)
		a.op("LEAQ", fmt.Sprintf("-64(%s)", scoreLength), "R14")
		a.op("JMP", label+"Many")
		a.label(label + "Four")
	}, "many", label+"Many", "four", label+"Four")
	for u := range 4 {
		a.block("SCORES_"+name, func() { body(u) }, "u", u)
	}
	a.block("ONE_SCORE", func() {
		a.op("ADDQ", 64, scoreAt)
		a.label(label + "Many")
		a.op("CMPQ", scoreAt, "R14")
		a.op("JLE", label+"Four")
		a.op("JMP", label+"Few")
		a.label(label + "One")
	}, "many", label+"Many", "four", label+"Four", "few", label+"Few", "one", label+"One")
	a.block("SCORES_"+name, func() { body(0) }, "u", 0)
	a.block("END_SCORES", func() {
		a.op("ADDQ", 16, scoreAt)
		a.label(label + "Few")
		a.op("CMPQ", scoreAt, scoreLength)
		a.op("JLT", label+"One")
	}, "few", label+"Few", "one", label+"One")
}

// scoreTail sets K7 to the lanes after n, which scoreLength has, in its last vector, and R15
// to their number, and rounds the length up.
func (a *emitter) scoreTail() {
	a.block("MASK_SCORES", func() {
		a.op("MOVQ", scoreLength, "R15")
		a.op("ANDQ", 15, "R15")
		a.op("MOVL", 0xffff, "R14")
		a.op("SHLXL", "R15", "R14", "R14")
		a.op("KMOVW", "R14", "K7")
		a.op("ADDQ", 15, scoreLength)
		a.op("ANDQ", -16, scoreLength)
	})
}

// scoreFill clears the rest of rows, of elements of size bytes.
func (a *emitter) scoreFill(size int, rows ...string) {
	a.op("VPXOR", reg(0), reg(0), reg(0))
	a.op("MOVQ", scoreLength, scoreAt)
	a.op("JMP", "filled")
	a.label("fill")
	for _, r := range rows {
		a.storeScore(size, 0, fmt.Sprintf("(%s)(%s*%d)", r, scoreAt, size))
	}
	a.op("ADDQ", 16, scoreAt)
	a.label("filled")
	a.op("CMPQ", scoreAt, scoreAll)
	a.op("JLT", "fill")
}

// scoreScale loads -log₂e times the number at s, the factor from the difference of a score and
// the largest to the exponent of a power of two. The difference comes first, because it is
// exact where it is small, however large scores are.
func (a *emitter) scoreScale(s string, scale reg) {
	a.op("VBROADCASTSS", "("+s+")", scale)
	a.op("VMULPS", num(-log2e), scale, scale)
}

func (a *emitter) storeScore(size int, r reg, to string) {
	if size == 2 {
		a.op("VMOVUPS", fmt.Sprintf("Y%d", r), to)
		return
	}
	a.op("VMOVUPS", r, to)
}

func weigh(half bool) func(a *emitter) {
	return func(a *emitter) {
		const scale, least, shift = reg(20), reg(21), reg(22)
		// Sums of weights have more bits than bfloat16.
		size, powers := 4, powers23
		if half {
			size, powers = 2, powers18
		}
		a.arguments64("x ld n all rows top sum s", "SI R8 R10 R11 DX R12 R13 CX")
		a.scoreScale("CX", scale)
		a.op("VMOVUPS", bits(minusInf), least)
		a.scoreTail()
		a.label("row")
		a.op("TESTQ", "R15", "R15")
		a.op("JZ", "whole")
		a.op("VMOVUPS", least, "K7", fmt.Sprintf("-64(SI)(%s*4)", scoreLength))
		a.label("whole")
		for u := range 4 {
			a.op("VMOVUPS", least, reg(4+u))
		}
		a.scoreVectors("MAX", "max", func(u int) {
			a.op("VMAXPS", fmt.Sprintf("%d(SI)(AX*4)", 64*u), reg(4+u), reg(4+u))
		})
		a.op("VMAXPS", reg(5), reg(4), reg(4))
		a.op("VMAXPS", reg(7), reg(6), reg(6))
		a.op("VMAXPS", reg(6), reg(4), reg(4))
		across(a, "VMAXPS", 4, 5)
		a.op("VBROADCASTSS", "(R12)", reg(5))
		a.op("VMAXPS", reg(5), reg(4), reg(4))
		a.op("VMOVSS", "X4", "(R12)")
		a.cmp(ne, 4, least, 0)
		a.op("VMOVUPS.Z", reg(4), mask(0), shift)
		for u := range 4 {
			a.op("VPXOR", reg(8+u), reg(8+u), reg(8+u))
		}
		a.scoreVectors("WEIGH"+map[bool]string{true: "_BF16"}[half], "power", func(u int) {
			a.op("VSUBPS", fmt.Sprintf("%d(SI)(AX*4)", 64*u), shift, reg(0))
			a.op("VMULPS", scale, reg(0), reg(0))
			exp2By(a, powers)
			a.op("VADDPS", reg(0), reg(8+u), reg(8+u))
			if half {
				a.convertBF16(0)
			}
			a.storeScore(size, 0, fmt.Sprintf("%d(SI)(AX*%d)", 16*size*u, size))
		})
		a.scoreFill(size, "SI")
		for u := range reg(3) { // as sums of passes
			a.op("VADDPS", 9+u, reg(8), reg(8))
		}
		across(a, "VADDPS", 8, 9)
		a.op("VMOVSS", "X8", "(R13)")
		a.op("ADDQ", "R8", "SI")
		a.op("ADDQ", 4, "R12")
		a.op("ADDQ", 4, "R13")
		a.op("DECQ", "DX")
		a.op("JNZ", "row")
		a.end()
	}
}

func slopes(half bool) func(a *emitter) {
	return func(a *emitter) {
		const scale, by, least, zero, top, inverse, mean = reg(20), reg(21), reg(22), reg(23), reg(24), reg(25), reg(26)
		size, powers := 4, powers23
		if half {
			size, powers = 2, powers13 // a twentieth of half a unit of bfloat16
		}
		a.arguments64("x dx ld n all rows top inverse mean s", "SI DI R8 R10 R11 DX R12 CX R13 R9")
		a.scoreScale("R9", scale)
		a.op("VBROADCASTSS", "4(R9)", by)
		a.op("VMOVUPS", bits(minusInf), least)
		a.op("VPXOR", zero, zero, zero)
		a.scoreTail()
		a.label("row")
		a.op("TESTQ", "R15", "R15")
		a.op("JZ", "whole")
		a.op("VMOVUPS", least, "K7", fmt.Sprintf("-64(SI)(%s*4)", scoreLength))
		a.op("VMOVUPS", zero, "K7", fmt.Sprintf("-64(DI)(%s*4)", scoreLength))
		a.label("whole")
		a.op("VBROADCASTSS", "(R12)", top)
		a.op("VBROADCASTSS", "(CX)", inverse)
		a.op("VBROADCASTSS", "(R13)", mean)
		a.scoreVectors("SLOPES"+map[bool]string{true: "_BF16"}[half], "power", func(u int) {
			a.op("VSUBPS", fmt.Sprintf("%d(SI)(AX*4)", 64*u), top, reg(0))
			a.op("VMAXPS", reg(0), zero, reg(0)) // a NaN stays, as the second operand
			a.op("VMULPS", scale, reg(0), reg(0))
			exp2By(a, powers)
			a.op("VMULPS", inverse, reg(0), reg(0))
			a.op("VMOVUPS", fmt.Sprintf("%d(DI)(AX*4)", 64*u), reg(1))
			a.op("VFMSUB213PS", mean, by, reg(1))
			a.op("VMULPS", reg(0), reg(1), reg(1))
			for r, at := range []string{"SI", "DI"} {
				if half {
					a.convertBF16(reg(r))
				}
				a.storeScore(size, reg(r), fmt.Sprintf("%d(%s)(AX*%d)", 16*size*u, at, size))
			}
		})
		a.scoreFill(size, "SI", "DI")
		a.op("ADDQ", "R8", "SI")
		a.op("ADDQ", "R8", "DI")
		for _, r := range []string{"R12", "CX", "R13"} {
			a.op("ADDQ", 4, r)
		}
		a.op("DECQ", "DX")
		a.op("JNZ", "row")
		a.end()
	}
}

// choose writes the chosen number without reading x.
func choose(half bool) func(a *emitter) {
	return func(a *emitter) {
		lanes, flags, size, store := 16, "X0", 4, "VMOVUPS"
		if half {
			lanes, flags, size, store = 32, "Y0", 2, "VMOVDQU16"
		}
		a.arguments64("x flags ld step n rows", "DI SI R8 R9 CX DX")
		a.op("VBROADCASTSS", "v+48(FP)", reg(1))
		if half {
			a.op("VPSRLD", 16, reg(1), reg(2))
			a.op("VPOR", reg(2), reg(1), reg(1))
		}
		a.rowMask("CX", "R10", lanes)
		a.eachRow("CX", "R10", "DX", lanes, func() {}, func(rest bool) {
			if rest {
				a.op("VMOVDQU8.Z", "(SI)(AX*1)", "K7", flags)
				a.op("VPTESTNMB", flags, flags, "K7", mask(0))
			} else {
				a.op("VMOVDQU", "(SI)(AX*1)", flags)
				a.op("VPTESTNMB", flags, flags, mask(0))
			}
			a.op(store, reg(1), mask(0), fmt.Sprintf("(DI)(AX*%d)", size))
		}, func() {
			a.op("ADDQ", "R8", "DI")
			a.op("ADDQ", "R9", "SI")
		})
	}
}

// rowMask sets K7 to the lanes, of up to lanes, that n has beyond whole vectors, rest to their
// number, and n to the number of the others.
func (a *emitter) rowMask(n, rest string, lanes int) {
	a.block("MASK_REST", func() {
		a.op("MOVQ", n, rest)
		a.op("ANDQ", lanes-1, rest)
		a.op("SUBQ", rest, n)
		a.op("MOVL", -1, "BX")
		a.op("BZHIL", rest, "BX", "BX")
		a.op("KMOVD", "BX", "K7")
	}, "lanes", lanes)
}

// eachRow writes the loop over rows and the vectors of each row, the last of which may be
// partial.
func (a *emitter) eachRow(n, rest, rows string, lanes int, before func(), body func(rest bool), after func()) {
	a.label("row")
	before()
	a.block("BEGIN_ROW", func() {
		a.op("XORQ", "AX", "AX")
		a.op("JMP", "many")
		a.label("whole")
	})
	body(false)
	a.block("REST_OF_ROW", func() {
		a.op("ADDQ", lanes, "AX")
		a.label("many")
		a.op("CMPQ", "AX", n)
		a.op("JLT", "whole")
		a.op("TESTQ", rest, rest)
		a.op("JZ", "next")
	}, "lanes", lanes)
	body(true)
	a.label("next")
	after()
	a.op("DECQ", rows)
	a.op("JNZ", "row")
	a.end()
}

// arguments64 loads arguments of eight bytes.
func (a *emitter) arguments64(names, registers string) {
	r := strings.Fields(registers)
	a.block("ARGS_"+strings.ToUpper(strings.ReplaceAll(names, " ", "_")), func() {
		for i, name := range strings.Fields(names) {
			a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", name, 8*i), r[i])
		}
	})
}

func scaleRows(t passType, nt bool) func(a *emitter) {
	return func(a *emitter) {
		a.arguments64("dst x to ld n rows by step", "DI SI R8 R9 CX DX R12 R13")
		a.rowMask("CX", "R10", 16)
		if t.elem == bf16 {
			a.loadUpperHalves()
		}
		a.eachRow("CX", "R10", "DX", 16, func() { a.op("VBROADCASTSS", "(R12)", reg(4)) }, func(rest bool) {
			a.op("VMULPS", "(SI)(AX*4)", reg(4), reg(0))
			to := fmt.Sprintf("(DI)(AX*%d)", t.elem.size())
			switch half := func() { a.roundHalf(t.elem, t.convert, 0) }; {
			case !rest:
				a.storeRow(t.elem, "", func(reg) { half() }, nt, 0, to)
			case t.elem == f32:
				a.op("VMOVUPS", reg(0), "K7", to)
			default:
				half()
				a.op("VMOVDQU16", "Y0", "K7", to)
			}
		}, func() {
			a.op("ADDQ", "R8", "DI")
			a.op("ADDQ", "R9", "SI")
			a.op("ADDQ", "R13", "R12")
		})
	}
}

func dotRows(t elem) func(a *emitter) {
	return func(a *emitter) {
		a.arguments64("dst x y ld n rows", "DI SI R8 R9 CX DX")
		a.rowMask("CX", "R10", 16)
		a.eachRow("CX", "R10", "DX", 16, func() { a.op("VPXOR", reg(4), reg(4), reg(4)) }, func(rest bool) {
			for i, from := range []string{"SI", "R8"} {
				at := fmt.Sprintf("(%s)(AX*%d)", from, t.size())
				load := map[elem]string{f32: "VMOVUPS", f16: "VCVTPH2PS", bf16: "VPMOVZXWD"}[t]
				if rest {
					a.op(load+".Z", at, "K7", reg(i))
				} else {
					a.op(load, at, reg(i))
				}
				if t == bf16 {
					a.op("VPSLLD", 16, reg(i), reg(i))
				}
			}
			a.op("VFMADD231PS", reg(1), reg(0), reg(4))
		}, func() {
			across(a, "VADDPS", 4, 5)
			a.op("VMOVSS", "X4", "(DI)")
			a.op("ADDQ", 4, "DI")
			a.op("ADDQ", "R9", "SI")
			a.op("ADDQ", "R9", "R8")
		})
	}
}

func copyRows(a *emitter) {
	a.arguments64("dst src to from n rows", "DI SI R8 R9 CX DX")
	a.op("SHRQ", 1, "CX")
	a.rowMask("CX", "R10", 32)
	a.eachRow("CX", "R10", "DX", 32, func() {}, func(rest bool) {
		if rest {
			a.op("VMOVDQU16.Z", "(SI)(AX*2)", "K7", reg(0))
			a.op("VMOVDQU16", reg(0), "K7", "(DI)(AX*2)")
			return
		}
		a.op("VMOVUPS", "(SI)(AX*2)", reg(0))
		a.op("VMOVUPS", reg(0), "(DI)(AX*2)")
	}, func() {
		a.op("ADDQ", "R8", "DI")
		a.op("ADDQ", "R9", "SI")
	})
}
