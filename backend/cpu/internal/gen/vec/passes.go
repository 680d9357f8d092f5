package vec

import (
	"fmt"
	"slices"
	"strings"
)

// Kernels of this file are the passes of normalizations and softmaxes over whole vectors: n
// must be a multiple of the lanes. Numbers, and resulting sums, are in an array s.
//
// Sums have the lanes of four vectors of AVX-512, which are four registers there. AVX2 and NEON
// go through a row once for each of their vectors in one of AVX-512: a part of the row is every
// second or fourth vector, and has four registers for a sum, too. So sums of a multiple of 16
// elements have the same bits on every level, except those of gradRowSums: to go through its seven
// slices more than once takes longer, because they do not fit in L1.

// pass is a loop over slices. Slices with an asterisk are rows in memory, of the type of the
// function; the others are float32.
type pass struct {
	name, doc string
	slices    []string
	nt        bool     // the first slice is also written by non-temporal stores
	onlyNT    bool     // only the function with non-temporal stores exists
	only      []string // the types with a function, by suffix; nil: all
	numbers   int      // of numbers in s, from 0 on
	sums      int      // of sums written to s, after the numbers; in registers 4 and up, 8 and up
	body      func(a *emitter, p passAt)

	once          bool             // no parts: sums have the lanes of four vectors of the level
	wide          bool             // only for AVX-512
	before, after func(a *emitter) // or nil; in after, R12 points to s
}

// passAt is a vector of a pass.
type passAt struct {
	at       func(i int) string // address of slice i, of float32
	load     func(i int, to reg)
	prefetch func(i int) // prefetches slice i
	top      func(i int) // folds the vector of slice i, of 16 bits, into tops
	number   func(i int) reg
	sum      [2]reg
	store    func(from reg) // to the first slice; for 16 bits it changes from and registers 2 and 3
	cut      func(from reg) // store for numbers that have the type's precision already
	number16 func(from reg) // store for numbers, and NaNs without lower bits
}

// passType is the element type of the rows of a function.
type passType struct {
	suffix  string
	elem    elem
	convert bool // by VCVTNEPS2BF16
}

var passTypes = []passType{{"", f32, false}, {"F16", f16, false}, {"BF16", bf16, false}, {"ConvertBF16", bf16, true}}

const unrolled = 4

// laneVector is the elements of a vector of AVX-512.
const laneVector = 16

// partSums are the registers of the sums of parts of a row; AVX2 has only the first for each sum.
var partSums = [2][2]reg{{15, 27}, {14, 25}}

var passPointers = []string{"DI", "SI", "DX", "R8", "R9", "R10", "R11"}

func init() {
	for _, p := range passes() {
		for _, t := range passTypes {
			if !p.has(t) {
				continue
			}
			if !p.onlyNT {
				special["fused"] = append(special["fused"], p.function(t, false))
			}
			if p.nt || p.onlyNT {
				special["fused"] = append(special["fused"], p.function(t, true))
			}
		}
	}
}

func starred(slice string) bool { return slice[0] == '*' }

// resultHasType reports whether the result has the type of the function.
func (p pass) resultHasType() bool { return p.slices[0] == "*dst" }

// has reports whether there is a function for a type.
func (p pass) has(t passType) bool {
	switch {
	case p.only != nil:
		return slices.Contains(p.only, t.suffix)
	case t.convert:
		return p.resultHasType()
	}
	return t.elem == f32 || slices.ContainsFunc(p.slices, starred)
}

// function returns the function for a type, with non-temporal stores or without. Only AVX-512
// has registers of a whole line.
func (p pass) function(t passType, nt bool) function {
	name, doc := p.name+t.suffix, p.doc
	if nt {
		name, doc = name+"NT", doc+", with non-temporal stores, dst a multiple of 64"
	}
	return function{
		signature: "(" + strings.ReplaceAll(strings.Join(p.slices, ", "), "*", "") + ", s unsafe.Pointer, n int)",
		args:      8 * (len(p.slices) + 2), name: name, doc: doc + ", for n a multiple of the lanes",
		write: func(a *emitter) { p.write(a, t, nt) }, wide: nt || t.convert || p.wide,
	}
}

// elems returns the types of the slices' elements.
func (p pass) elems(t passType) []elem {
	list := make([]elem, len(p.slices))
	for i, s := range p.slices {
		if starred(s) {
			list[i] = t.elem
		}
	}
	return list
}

// number returns the register of a number: the first ones after the sums.
func (p pass) number(i int) reg { return reg(4 + 4*p.sums + i) }

// parts returns how many times a pass goes through a row.
func (p pass) parts(a *emitter) int {
	if p.sums == 0 || p.once {
		return 1
	}
	return laneVector / a.lanes()
}

// spacing returns the elements from a vector of a part to the next.
func (p pass) spacing(a *emitter) int { return p.parts(a) * a.lanes() }

func (p pass) write(a *emitter, t passType, nt bool) {
	elems := p.elems(t)
	if a.arm {
		p.writeNEON(a, t.suffix, elems)
		return
	}
	a.block("BEGIN_"+macroName(p.name), func() {
		for i, s := range p.slices {
			a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", strings.TrimPrefix(s, "*"), 8*i), passPointers[i])
		}
		a.op("MOVQ", fmt.Sprintf("s+%d(FP)", 8*len(p.slices)), "R12")
		a.op("MOVQ", fmt.Sprintf("n+%d(FP)", 8*len(p.slices)+8), "CX")
		for i := range p.numbers {
			a.op("VBROADCASTSS", fmt.Sprintf("%d(R12)", 4*i), p.number(i))
		}
		if p.parts(a) == 1 {
			p.zeroSums(a)
		}
	})
	if p.parts(a) > 1 {
		p.writeParts(a, t, elems)
		return
	}
	if a.wide && p.resultHasType() && t.elem == bf16 && !t.convert {
		a.loadUpperHalves()
	}
	if a.wide && t.elem == bf16 {
		a.loadSpread()
	}
	if p.before != nil {
		p.before(a)
	}
	loops := "PASS_LOOPS"
	if p.before != nil {
		loops += "_TOPS"
	}
	var steps []string
	for u := range unrolled {
		steps = append(steps, p.stepName(a, t, elems, nt, u, true))
	}
	steps = append(steps, p.stepName(a, t, elems, nt, 0, false))
	a.block(loops, func() {
		a.block("LOOP_OF_FOUR", func() {
			a.op("XORQ", "AX", "AX")
			a.op("MOVQ", "CX", "BX")
			a.op("SUBQ", unrolled*a.lanes(), "BX")
			a.label("many")
			a.op("CMPQ", "AX", "BX")
			a.op("JGT", "one")
		})
		for u := range unrolled {
			p.step(a, t, elems, nt, u, true)
		}
		a.block("LOOP_OF_ONE", func() {
			a.op("ADDQ", unrolled*a.lanes(), "AX")
			a.op("JMP", "many")
			a.label("one")
			a.op("CMPQ", "AX", "CX")
			a.op("JGE", "done")
		})
		p.step(a, t, elems, nt, 0, false)
		a.block("LOOP_DONE", func() {
			a.op("ADDQ", a.lanes(), "AX")
			a.op("JMP", "one")
			a.label("done")
		})
	}, "step0", steps[0], "step1", steps[1], "step2", steps[2], "step3", steps[3], "step", steps[4])
	for i := range p.sums {
		first := reg(4 + 4*i)
		a.block("STORE_SUM", func() {
			for u := 1; u < unrolled; u++ {
				a.op("VADDPS", first+reg(u), first, first)
			}
			across(a, "VADDPS", first, 0)
			a.op("VMOVSS", fmt.Sprintf("X%d", first), fmt.Sprintf("%d(R12)", 4*(p.numbers+i)))
		}, "sum", first, "sum1", first+1, "sum2", first+2, "sum3", first+3, "place", 4*(p.numbers+i))
	}
	if p.after != nil {
		p.after(a)
	}
	a.end()
}

// writeParts writes the loops over the parts of a row for AVX2. R13 is the first element of a
// part. What a part prefetches begins a line after that of the part before, not a vector.
func (p pass) writeParts(a *emitter, t passType, elems []elem) {
	spacing := p.spacing(a)
	prefetched, ahead := len(p.slices)-1, 0
	if p.prefetched(prefetched) {
		ahead = line - a.lanes()*elems[prefetched].size()
	}
	var steps []any
	for u := range unrolled {
		steps = append(steps, fmt.Sprint("step", u), p.stepName(a, t, elems, false, u, true))
	}
	a.block(fmt.Sprintf("PART_LOOPS_%d", p.sums), func() {
		p.zeroParts(a)
		a.op("XORQ", "R13", "R13")
		a.op("LEAQ", fmt.Sprintf("%d(CX)", -(unrolled-1)*spacing-a.lanes()), "BX")
		a.label("part")
		p.zeroSums(a)
		a.op("MOVQ", "R13", "AX")
		a.op("CMPQ", "AX", "BX")
		a.op("JGT", "one")
		a.label("many")
		for u := range unrolled {
			p.step(a, t, elems, false, u, true)
		}
		a.op("ADDQ", unrolled*spacing, "AX")
		a.op("CMPQ", "AX", "BX")
		a.op("JLE", "many")
		a.label("one")
		a.op("CMPQ", "AX", "CX")
		a.op("JGE", "done")
		p.step(a, t, elems, false, 0, false)
		a.op("ADDQ", spacing, "AX")
		a.op("JMP", "one")
		a.label("done")
		p.addPart(a)
		a.op("ADDQ", ahead, passPointers[prefetched])
		a.op("ADDQ", a.lanes(), "R13")
		a.op("CMPQ", "R13", fmt.Sprintf("$%d", spacing))
		a.op("JLT", "part")
	}, append(steps, "ahead", ahead, "prefetch", passPointers[prefetched])...)
	for i := range p.sums {
		sum, place := partSums[i][0], 4*(p.numbers+i)
		a.block("STORE_PARTS", func() {
			across(a, "VADDPS", sum, 0)
			a.op("VMOVSS", fmt.Sprintf("X%d", sum), fmt.Sprintf("%d(R12)", place))
		}, "sum", sum, "place", place)
	}
	a.end()
}

// zeroParts sets the sums of parts to -0, to which sums of either zero can be added.
func (p pass) zeroParts(a *emitter) {
	for i := range p.sums {
		for _, r := range partSums[i][:p.parts(a)/2] {
			a.op("VMOVUPS", bits(signBit), r)
		}
	}
}

// addPart adds the sums of a part to those of parts. With four parts each is added to that two
// before, the order of halves of AVX-512.
func (p pass) addPart(a *emitter) {
	for i := range p.sums {
		first, to := reg(4+4*i), partSums[i]
		a.block("ADD_PART", func() {
			for u := 1; u < unrolled; u++ {
				a.op("VADDPS", first+reg(u), first, first)
			}
			if p.parts(a) == 2 {
				a.op("VADDPS", first, to[0], to[0])
				return
			}
			a.op("VADDPS", to[0], first, first)
			a.op("VMOVUPS", to[1], to[0])
			a.op("VMOVUPS", first, to[1])
		}, "sum", first, "sum1", first+1, "sum2", first+2, "sum3", first+3, "to", to[0], "to1", to[1])
	}
}

// prefetched reports whether slice i is only prefetched.
func (p pass) prefetched(i int) bool { return p.slices[i] == "*prefetch" }

// prefetches reports whether vector u of a slice begins what a part prefetches: a line of as many
// as there are parts.
func (p pass) prefetches(a *emitter, e elem, u int) bool {
	return u*e.size()*p.spacing(a)%(line*p.parts(a)) == 0
}

// zeroSums clears the sums.
func (p pass) zeroSums(a *emitter) {
	if p.sums == 0 {
		return
	}
	a.block(fmt.Sprintf("ZERO_SUMS_%d", p.sums), func() {
		for i := range p.sums {
			for u := range unrolled {
				r := reg(4 + 4*i + u)
				a.op("VPXOR", r, r, r)
			}
		}
	})
}

// stepName returns the macro of the body for a vector. Vectors that share a line of 16-bit
// elements have different macros.
func (p pass) stepName(a *emitter, t passType, elems []elem, nt bool, u int, many bool) string {
	name := macroName(p.name+t.suffix) + "_STEP"
	if nt {
		name += "_NT"
	}
	last := len(elems) - 1
	if p.prefetched(last) && p.prefetches(a, elems[last], u) {
		name += "_PREFETCH"
	}
	if many && a.wide && (t.elem == bf16 || p.before != nil) {
		name += []string{"_LOW", "_HIGH"}[u%2]
	}
	if !many && p.before != nil {
		name += "_ONE"
	}
	return name
}

// step writes the body for a vector.
func (p pass) step(a *emitter, t passType, elems []elem, nt bool, u int, many bool) {
	v := p.vector(a, t, elems, nt, u, many)
	hints := []any{"u", u, "sum", v.sum[0], "sum1", v.sum[1]}
	if p.before != nil {
		hints = append(hints, "most", topMost+reg(u/2), "least", topLeast+reg(u/2))
	}
	a.macro(p.stepName(a, t, elems, nt, u, many), func() { p.body(a, v) }, hints...)
}

// vector returns vector u of those computed at the same time, or, without many, the remaining
// one.
func (p pass) vector(a *emitter, t passType, elems []elem, nt bool, u int, many bool) passAt {
	address := func(i, u int) string {
		size := elems[i].size()
		return fmt.Sprintf("%d(%s)(AX*%d)", u*size*p.spacing(a), passPointers[i], size)
	}
	at := func(i int) string { return address(i, u) }
	a.rest = false
	store := func(kind string, convert func(from reg)) func(from reg) {
		return func(from reg) { a.storeRow(elems[0], kind, convert, nt, from, at(0)) }
	}
	rounding := ""
	if t.convert {
		rounding = "_CONVERT"
	}
	round := func(from reg) { a.roundHalf(elems[0], t.convert, from) }
	return passAt{
		at: at,
		load: func(i int, to reg) {
			if many && a.wide && elems[i] == bf16 {
				a.spread(u%2, address(i, u&^1), to)
				return
			}
			a.widened(elems[i], at(i), to)
		},
		prefetch: func(i int) {
			if p.prefetches(a, elems[i], u) {
				a.op("PREFETCHT0", at(i))
			}
		},
		top:    func(i int) { a.foldTops(at(i), u, many) },
		number: p.number,
		sum:    [2]reg{reg(4 + u), reg(8 + u)},
		store:  store(rounding, round),
		cut:    store("_CUT", a.upper),
		number16: store("_NUMBER", func(from reg) {
			if elems[0] != bf16 || t.convert {
				round(from)
				return
			}
			a.nearestBF16(from, 2)
			a.upper(from)
		}),
	}
}

// storeRow writes a register of float32 to memory. If elements have 16 bits, half must first
// move them to the register's lower half.
func (a *emitter) storeRow(e elem, kind string, half func(from reg), nt bool, from reg, to string) {
	move := map[bool]string{false: "VMOVUPS", true: "VMOVNTPS"}[nt]
	if e == f32 {
		a.op(move, from, to)
		return
	}
	a.block("STORE_ROW_"+elemNames[e]+kind+map[bool]string{true: "_NT"}[nt], func() { a.storeHalf(half, move, from, to) }, "from", from, "to", to)
}

func (a *emitter) storeHalf(half func(from reg), move string, from reg, to string) {
	half(from)
	lower := fmt.Sprintf("X%d", from)
	if a.wide {
		lower = fmt.Sprintf("Y%d", from)
	}
	a.op(move, lower, to)
}

// roundHalf rounds float32s to 16 bits in the lower half of their register. For
// bfloat16 it may change registers 2 and 3.
func (a *emitter) roundHalf(e elem, convert bool, from reg) {
	switch {
	case e == f16 && a.wide:
		a.op("VCVTPS2PH", 0, from, fmt.Sprintf("Y%d", from))
	case e == f16:
		a.op("VCVTPS2PH", 0, from, fmt.Sprintf("X%d", from))
	case convert:
		a.convertBF16(from)
	default:
		a.toBF16(from, 2, 3)
		a.upper(from)
	}
}

// upper moves the upper 16 bits of each lane to the register's lower half.
func (a *emitter) upper(from reg) {
	if a.wide {
		a.op("VPERMW", from, upperHalves, from)
		return
	}
	a.block("UPPER_HALVES", func() {
		a.op("VPSRLD", 16, from, from)
		a.op("VPACKUSDW", from, from, from)
		a.op("VPERMQ", 0xd8, from, from)
	}, "v", from)
}

// exp2 computes 2 to the power of register 0, which is not +∞, in register 0, and 0 below -126, where
// results are subnormal, and changes 1 to 3 and mask 1. Bits are the same on every level: the
// nearest whole number is the exponent, and the rest, from -1/2 to 1/2, goes through a polynomial.
func exp2(a *emitter) { exp2By(a, powers23) }

// Coefficients of 2 to the power of numbers in [-1/2, 1/2], by the negative exponent of the
// relative error's bound: a fit by reweighted least squares, coefficient by coefficient from the
// lowest power up, each rounded to float32 before the higher ones are fitted. 2 to the power of 0
// is 1. Package lanes has powers23, too.
var (
	powers23 = []num{1.3269535265862942e-3, 9.671292267739773e-3, 5.55071085691452e-2, 2.4022246897220612e-1, 6.931470036506653e-1, 1}
	powers18 = []num{9.58317331969738e-3, 5.59065118432045e-2, 2.402409166097641e-1, 6.931241750717163e-1, 1}
	powers13 = []num{5.500904470682144e-2, 2.4221095442771912e-1, 6.932829022407532e-1, 1}
)

// exp2By is exp2 with a polynomial.
func exp2By(a *emitter, powers []num) {
	a.block(fmt.Sprintf("EXP2_%d", len(powers)), func() { exp2ByBody(a, powers) })
}

func exp2ByBody(a *emitter, powers []num) {
	if a.wide {
		a.cmp(notLess, 0, num(-126), 1)
	} else {
		a.cmp(lt, 0, num(-126), 1)
		a.op("VMOVUPS", num(128), reg(1))
		a.op("VMINPS", reg(0), reg(1), reg(0)) // a NaN stays, as the second operand
	}
	a.round(0, 0, 1)
	a.op("VSUBPS", reg(1), reg(0), reg(0))
	horner(a, 0, 2, powers...)
	if a.wide {
		a.op("VSCALEFPS.Z", reg(1), reg(2), mask(1), reg(0))
		return
	}
	a.op("VCVTPS2DQ", reg(1), reg(1))
	a.op("VPSLLD", 23, reg(1), reg(1))
	a.op("VPADDD", reg(1), reg(2), reg(0)) // a NaN stays one: its whole number has no lower bits
	a.blend(1, 0, bits(0), 0)
}
