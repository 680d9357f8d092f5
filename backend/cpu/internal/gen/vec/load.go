package vec

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
)

// address returns the address of the current vector of an argument.
func (a *emitter) address(i int) string {
	if a.arm {
		return a.addressNEON(i)
	}
	return fmt.Sprintf("(%s)(AX*%d)", pointers[i], a.k.params[i].elem.size())
}

// further returns the address bytes after the current vector.
func (a *emitter) further(i, bytes int) string {
	if a.arm {
		return fmt.Sprintf("%d(R%d)", bytes+a.offset*4*a.k.params[i].elem.size(), i)
	}
	return fmt.Sprint(bytes) + a.address(i)
}

// prefetchW prefetches, with write intent, the line bytes after the current vector of argument
// i, one of the first three. A line that all cores have read, such as one of weights, can be
// written only after the other cores have invalidated it; a store waits for that, and few
// stores are in flight. Go's assembler has no PREFETCHW, which does nothing on processors
// without it.
func (a *emitter) prefetchW(i, bytes int) {
	if a.rest {
		return
	}
	if a.arm {
		a.line("PRFM %s, PSTL1KEEP", a.further(i, bytes))
		return
	}
	base := map[string]amd64.Reg{"DI": amd64.DI, "SI": amd64.SI, "DX": amd64.DX}[pointers[i]]
	scale := map[int]int{1: 0, 2: 1, 4: 2}[a.k.params[i].elem.size()]
	a.Line(amd64.PrefetchwAX(bytes, base, scale))
}

// loadOp writes a load of the current vector; lanes beyond the remaining elements get the
// neutral value.
func (a *emitter) loadOp(name, from string, to reg) {
	if a.wide && a.rest {
		if n := a.neutral(); n != 0 {
			if name == "VPMOVZXWD" { // bfloat16, before the shift
				n >>= 16
			}
			a.op("VMOVUPS", bits(n), to)
			a.op(name, from, "K7", to)
			return
		}
		a.op(name+".Z", from, "K7", to)
		return
	}
	a.op(name, from, to)
}

func (a *emitter) neutral() uint32 {
	if a.k.folds != nil {
		return a.k.folds.neutral
	}
	return 0
}

// source returns the operand with the current vector of argument i: memory, or, for remaining
// elements without masks, a copy on the stack, which is made through register to.
func (a *emitter) source(i int, to reg) string {
	if a.wide || !a.rest {
		return a.address(i)
	}
	frame := fmt.Sprintf("%d(SP)", 32*i)
	fill := a.neutral()
	switch a.k.params[i].elem {
	case bf16:
		fill |= fill >> 16
	case f16:
		fill = map[uint32]uint32{0: 0, plusInf: 0x7c007c00, minusInf: 0xfc00fc00}[fill]
	}
	a.op("VMOVUPS", bits(fill), to)
	a.op("VMOVUPS", to, frame)
	a.copy(i, a.address(i), frame, false)
	return frame
}

// copy copies the remaining elements between an argument and the stack, one by one.
func (a *emitter) copy(i int, address, frame string, out bool) {
	size := a.k.params[i].elem.size()
	load := map[int]string{1: "MOVBLZX", 2: "MOVWLZX", 4: "MOVL"}[size]
	store := map[int]string{1: "MOVB", 2: "MOVW", 4: "MOVL"}[size]
	a.labels++
	l := fmt.Sprintf("copy%d", a.labels)
	name := fmt.Sprintf("COPY_IN_%d", 8*size)
	if out {
		name = fmt.Sprintf("COPY_OUT_%d", 8*size)
	}
	a.block(name, func() { a.copyLoop(l, address, frame, out, size, load, store) }, "label", l)
}

func (a *emitter) copyLoop(l, address, frame string, out bool, size int, load, store string) {
	a.op("LEAQ", address, "R12")
	a.op("XORQ", "R11", "R11")
	a.label(l)
	at := fmt.Sprintf("(R11*%d)", size)
	if out {
		a.op(load, frame+at, "R10")
		a.op(store, "R10", "(R12)"+at)
	} else {
		a.op(load, "(R12)"+at, "R10")
		a.op(store, "R10", frame+at)
	}
	a.op("INCQ", "R11")
	a.op("CMPQ", "R11", "R9")
	a.op("JLT", l)
}

// load reads the current vector of argument i into a register as float32. It
// changes no other register.
func (a *emitter) load(i int, to reg) {
	if a.arm {
		a.element(a.k.params[i].elem, a.address(i), int(to), a.neutral())
		return
	}
	e := a.k.params[i].elem
	if a.rest && !a.wide && e != i32 {
		a.labels++
		l := fmt.Sprintf("copy%d", a.labels)
		a.labels--
		a.block("LOAD_REST_"+elemNames[e], func() { a.loadVector(i, e, to) }, "to", to, "label", l, "place", 32*i, "pointer", pointers[i])
		return
	}
	a.loadVector(i, e, to)
}

func (a *emitter) loadVector(i int, e elem, to reg) {
	from := a.source(i, to)
	switch e {
	case f32:
		a.loadOp("VMOVUPS", from, to)
	case f16:
		a.loadOp("VCVTPH2PS", from, to)
	case bf16:
		a.loadBF16(from, to)
	case u8:
		a.loadOp("VPMOVZXBD", from, to)
		a.op("VCVTDQ2PS", to, to)
	case i8:
		a.loadOp("VPMOVSXBD", from, to)
		a.op("VCVTDQ2PS", to, to)
	case i32:
		a.loadOp("VMOVUPS", from, to)
		a.op("VCVTDQ2PS", to, to)
	}
}

// loadFlags reads the current vector of truth values into a mask, using
// register t.
func (a *emitter) loadFlags(i int, m mask, t reg) {
	if a.arm {
		a.element(truth, a.address(i), int(t), 0)
		a.ins("CMTST", maskFirst-int(m), int(t), int(t))
		return
	}
	from := a.source(i, t)
	a.loadOp("VPMOVZXBD", from, t)
	if a.wide {
		a.op("VPTESTMD", t, t, m)
		return
	}
	a.op("VPCMPEQD", bits(0), t, t) // inverted
	a.op("VPXOR", bits(^uint32(0)), t, m)
}

// target returns the operand to which the current vector of the result is written; done
// completes the write.
func (a *emitter) target() (to string, done func()) { return a.targetOf(0) }

// targetOf is target for argument i.
func (a *emitter) targetOf(i int) (to string, done func()) {
	if a.wide || !a.rest {
		return a.address(i), func() {}
	}
	frame := fmt.Sprintf("%d(SP)", 32*i)
	return frame, func() { a.copy(i, a.address(i), frame, true) }
}

func (a *emitter) storeOp(name string, args ...any) {
	if a.wide && a.rest {
		args = append(args[:len(args)-1:len(args)-1], "K7", args[len(args)-1])
	}
	a.op(name, args...)
}

// store writes a register of float32 to the result. It changes registers 0
// to 2 when it has to convert.
func (a *emitter) store(from reg) {
	if a.arm {
		a.storeNEON(a.k.params[0].elem, from, a.address(0))
		return
	}
	name := "STORE_RESULT_" + elemNames[a.k.params[0].elem]
	if a.rest {
		name += "_REST"
	}
	a.block(name, func() {
		to, done := a.target()
		switch a.k.params[0].elem {
		case f32:
			a.storeOp("VMOVUPS", from, to)
		case f16:
			a.storeOp("VCVTPS2PH", 0, from, to)
		case bf16:
			a.toBF16(from, 1, 2)
			a.storeUpper(from, to)
		}
		done()
	})
}

// storeTo writes a register to argument i, of float32.
func (a *emitter) storeTo(i int, from reg) {
	if a.arm {
		a.storeNEON(f32, from, a.address(i))
		return
	}
	to, done := a.targetOf(i)
	a.storeOp("VMOVUPS", from, to)
	done()
}

// storeRounding is store for results of arithmetic on numbers of a 16-bit type, whose NaNs are
// quiet already.
func (a *emitter) storeRounding(from reg) {
	if !a.arm && a.k.params[0].elem == bf16 {
		a.nearestBF16(from, 1)
		a.storeExactly(from)
		return
	}
	a.store(from)
}

// storeExactly is store for numbers of the result's 16-bit type.
func (a *emitter) storeExactly(from reg) {
	if !a.arm && a.k.params[0].elem == bf16 {
		name := "STORE_UPPER"
		if a.rest {
			name += "_REST"
		}
		a.block(name, func() {
			to, done := a.target()
			a.storeUpper(from, to)
			done()
		})
		return
	}
	a.store(from)
}

// storeUpper writes the upper 16 bits of each lane of a register, which it
// changes.
func (a *emitter) storeUpper(from reg, to string) {
	a.upper(from)
	if a.wide {
		a.storeOp("VMOVDQU16", fmt.Sprintf("Y%d", from), to)
	} else {
		a.op("VMOVDQU", fmt.Sprintf("X%d", from), to)
	}
}

// storeFlags writes a mask to the result as bytes 0 and 1, using registers 0
// and 1.
func (a *emitter) storeFlags(m mask) {
	if a.arm {
		a.storeFlagsNEON(m)
		return
	}
	to, done := a.target()
	if a.wide {
		a.op("VPBROADCASTD.Z", a.constant(1), m, reg(0))
		a.storeOp("VPMOVDB", reg(0), to)
	} else {
		a.block("STORE_FLAGS", func() {
			a.op("VPAND", bits(1), m, reg(0))
			a.op("VEXTRACTI128", 1, reg(0), "X1")
			a.op("VPACKSSDW", "X1", "X0", "X0")
			a.op("VPACKSSWB", "X0", "X0", "X0")
			a.op("VMOVQ", "X0", to)
		}, "to", to)
	}
	done()
}

// storeBytes writes the low bytes of the lanes of register 0 to the result, using register
// 1.
func (a *emitter) storeBytes() {
	if a.arm {
		a.ins("XTN", scratch, 0)
		a.ins("XTN.8B", scratch, scratch)
		a.put(scratch, 1, a.address(0))
		return
	}
	to, done := a.target()
	if a.wide {
		a.storeOp("VPMOVDB", reg(0), to)
	} else {
		a.block("STORE_BYTES", func() {
			a.op("VPAND", bits(0xff), reg(0), reg(0))
			a.op("VEXTRACTI128", 1, reg(0), "X1")
			a.op("VPACKSSDW", "X1", "X0", "X0")
			a.op("VPACKUSWB", "X0", "X0", "X0")
			a.op("VMOVQ", "X0", to)
		}, "to", to)
	}
	done()
}

// round rounds to whole numbers: 0 to nearest even, 1 down, 2 up.
func (a *emitter) round(mode int, from, to reg) {
	if a.wide {
		a.op("VRNDSCALEPS", mode, from, to)
	} else {
		a.op("VROUNDPS", mode, from, to)
	}
}

// toBF16 rounds x to nearest even at bit 16 and quiets a NaN; the lower bits
// are undefined. t, u and masks 0 and 1 are changed.
func (a *emitter) toBF16(x, t, u reg) {
	a.block("ROUND_BF16", func() { a.toBF16Body(x, t, u) }, "x", x, "t", t, "u", u)
}

func (a *emitter) toBF16Body(x, t, u reg) {
	if a.wide {
		a.roundBF16By(x, t, 0, 1)
		return
	}
	a.cmp(nan, x, x, 0)
	a.op("VPOR", bits(0x00400000), x, u)
	a.nearestBF16(x, t)
	a.blend(0, x, u, x)
}

// roundBF16By is toBF16 with given masks, for AVX-512.
func (a *emitter) roundBF16By(x, t reg, isNaN, odd mask) {
	a.block("ROUND_BF16_BY", func() { a.roundBF16ByBody(x, t, isNaN, odd) }, "x", x, "t", t)
}

func (a *emitter) roundBF16ByBody(x, t reg, isNaN, odd mask) {
	a.cmp(nan, x, x, isNaN)
	a.op("VPTESTMD", bits(1<<16), x, odd)
	a.op("VPADDD", bits(0x7fff), x, t)
	a.op("VPADDD", bits(1), t, odd, t)
	a.op("VPOR", bits(0x00400000), x, isNaN, t)
	a.op("VMOVUPS", t, x)
}

// nearestBF16 is toBF16 for numbers, and NaNs without lower bits. It changes t
// and mask 1.
func (a *emitter) nearestBF16(x, t reg) {
	a.block("NEAREST_BF16", func() { a.nearestBF16Body(x, t) }, "x", x, "t", t)
}

func (a *emitter) nearestBF16Body(x, t reg) {
	if a.wide {
		a.op("VPTESTMD", bits(1<<16), x, mask(1))
		a.op("VPADDD", bits(0x7fff), x, x)
		a.op("VPADDD", bits(1), x, mask(1), x)
		return
	}
	a.op("VPSRLD", 16, x, t)
	a.op("VPAND", bits(1), t, t)
	a.op("VPADDD", bits(0x7fff), t, t)
	a.op("VPADDD", t, x, x)
}

// Registers and the mask of spread.
const spreadLow, spreadHigh, spreadMask = reg(29), reg(30), "K6"

// loadSpread prepares spread.
func (a *emitter) loadSpread() {
	a.block("LOAD_SPREAD", func() { a.loadSpreadBody() })
}

func (a *emitter) loadSpreadBody() {
	for half, r := range []reg{spreadLow, spreadHigh} {
		places := make([]uint32, 16) // of two elements each: zero, and one of bfloat16
		for i := range places {
			places[i] = uint32(16*half+i) << 16
		}
		a.op("VMOVUPS", a.vector(places), r)
	}
	a.op("MOVL", "$0xaaaaaaaa", "R13")
	a.op("KMOVD", "R13", spreadMask)
}

// spread loads half of a line of bfloat16 as float32 by one instruction instead of a widening
// and a shift.
func (a *emitter) spread(half int, address string, to reg) {
	a.op("VPERMW.Z", address, spreadLow+reg(half), spreadMask, to)
}

// loadBF16 loads a vector of bfloat16 as float32.
func (a *emitter) loadBF16(from string, to reg) {
	name := "LOAD_BF16"
	if a.wide && a.rest {
		name += "_REST"
		if a.neutral() != 0 {
			name += "_OR"
		}
	}
	a.block(name, func() {
		a.loadOp("VPMOVZXWD", from, to)
		a.op("VPSLLD", 16, to, to)
	}, "from", from, "to", to)
}
