package vec

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/arm64"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
)

// Bodies are written in terms of AVX instructions. For arm64 each becomes one or a few of
// Advanced SIMD with the same results: V0 to V15 are the registers of bodies, V16 to V24
// constants, V25 to V27 masks, V28 to V31 are free between instructions. R9 points to the
// constants.

const (
	pinnedFirst, pinnedMost = 16, 9
	maskFirst               = 27 // and lower ones
	scratch                 = 28
	hornerSpare             = 31
	bottom                  = "R9"
)

// threes are instructions that have an equivalent with the same operands.
var threes = map[string]string{
	"VADDPS": "FADD", "VSUBPS": "FSUB", "VMULPS": "FMUL", "VDIVPS": "FDIV", "VADDPD": "FADD.2D",
	"VPADDD": "ADD", "VPSUBD": "SUB", "VPAND": "AND", "VPOR": "ORR", "VPXOR": "EOR", "VPCMPGTD": "CMGT",
	"VFMADD231PS": "FMLA", "VFNMADD231PS": "FMLS", "VFMADD231PD": "FMLA.2D",
}

var twos = map[string]string{"VSQRTPS": "FSQRT", "VCVTDQ2PS": "SCVTF", "VCVTPS2DQ": "FCVTNS"}

var shifts = map[string]string{"VPSLLD": "SHL", "VPSRLD": "USHR", "VPSRAD": "SSHR"}

// line writes a line of assembly.
func (a *emitter) line(format string, args ...any) { a.Line(fmt.Sprintf(format, args...)) }

// ins writes an instruction of package arm64.
func (a *emitter) ins(name string, regs ...int) { a.line("%s", arm64.Ins(name, regs...)) }

// number returns the register of an operand: its own, that of a pinned constant, or a scratch
// register that the constant is loaded to.
func (a *emitter) number(x any, free *int) int {
	switch x := x.(type) {
	case reg:
		return int(x)
	case mask:
		return maskFirst - int(x)
	case num, bits:
		c := constantBits(x)
		for i, p := range a.pinned {
			if p == c {
				return pinnedFirst + i
			}
		}
		if len(a.pinned) < pinnedMost {
			a.pinned = append(a.pinned, c)
			return pinnedFirst + len(a.pinned) - 1
		}
	}
	r := *free
	*free++
	a.into(x, r)
	return r
}

func constantBits(x any) uint32 {
	if n, ok := x.(num); ok {
		return math.Float32bits(float32(n))
	}
	return uint32(x.(bits))
}

// into copies an operand to a register; constants come from memory, because pinned registers
// are for operands of instructions.
func (a *emitter) into(x any, to int) {
	switch x := x.(type) {
	case reg:
		if int(x) != to {
			a.line("%s", arm64.Move(to, int(x)))
		}
	case mask:
		a.line("%s", arm64.Move(to, maskFirst-int(x)))
	case num, bits:
		a.constant(constantBits(x))
		a.line("FMOVQ %d(%s), F%d", a.stored()*a.consts[constantBits(x)], bottom, to)
	case string:
		a.line("FMOVQ %s, F%d", x, to)
	default:
		panic(fmt.Sprintf("vec: no operand %v", x))
	}
}

// opNEON writes the equivalent of an AVX instruction.
func (a *emitter) opNEON(name string, args ...any) {
	free := scratch
	n := len(args) - 1
	of := func(i int) int { return a.number(args[i], &free) }
	switch {
	case threes[name] != "":
		y, x := of(0), of(1)
		a.ins(threes[name], of(2), x, y)
		return
	case twos[name] != "":
		x := of(0)
		a.ins(twos[name], of(1), x)
		return
	case shifts[name] != "":
		x := of(1)
		a.line("%s", arm64.Shift(shifts[name], of(2), x, args[0].(int)))
		return
	}
	switch name {
	case "VMOVUPS":
		if to, ok := args[1].(string); ok {
			a.line("FMOVQ F%d, %s", of(0), to)
		} else {
			a.into(args[0], of(1))
		}
	case "VBROADCASTSS":
		a.broadcast(args[0].(string), of(1))
	case "VPANDN":
		a.ins("BIC", of(2), of(0), of(1))
	case "VFMADD213PS", "VFMADD132PS":
		plus, x := args[0], of(1)
		if name == "VFMADD132PS" {
			plus, x = args[1], of(0)
		}
		t, d := free, of(2)
		a.into(plus, t)
		a.ins("FMLA", t, x, d)
		a.line("%s", arm64.Move(d, t))
	case "VFMSUB213PS":
		x, y, d := of(0), of(1), of(2)
		a.ins("FNEG", free, x)
		a.ins("FMLA", free, y, d)
		a.line("%s", arm64.Move(d, free))
	case "VMAXPS", "VMINPS":
		a.orderNEON(name == "VMAXPS", of(0), of(1), of(2), free)
	case "VROUNDPS":
		a.ins([]string{"FRINTN", "FRINTM", "FRINTP"}[args[0].(int)], of(2), of(1))
	case "VCMPPS":
		a.compare(args[0].(int), of(2), of(1), of(3))
	case "VBLENDVPS":
		m, yes, no, d := of(0), of(1), of(2), of(3)
		switch {
		case d == yes:
			a.ins("BIF", d, no, m)
		default:
			a.into(args[2], d)
			a.ins("BIT", d, yes, m)
		}
	case "PREFETCHT0":
		a.line("PRFM %s, PLDL1KEEP", args[n])
	default:
		panic("vec: no counterpart of " + name)
	}
}

// orderNEON writes the larger or smaller of x and y, and y if one is NaN or both
// are zero.
func (a *emitter) orderNEON(larger bool, y, x, d, free int) {
	if !larger {
		x, y = y, x
	}
	m := free
	if d != x && d != y {
		m = d
	}
	a.ins("FCMGT", m, x, y)
	if !larger {
		x, y = y, x
	}
	switch d {
	case m:
		a.ins("BSL", d, x, y)
	case y:
		a.ins("BIT", d, x, m)
	default:
		a.ins("BIF", d, y, m)
	}
}

// compare sets m to x pred y.
func (a *emitter) compare(pred, x, y, m int) {
	switch pred {
	case eq, ne:
		a.ins("FCMEQ", m, x, y)
	case lt:
		a.ins("FCMGT", m, y, x)
	case le:
		a.ins("FCMGE", m, y, x)
	case ge, nge:
		a.ins("FCMGE", m, x, y)
	case nan:
		if x != y {
			panic("vec: NaNs are found one register at a time")
		}
		a.ins("FCMEQ", m, x, x)
	}
	if pred == ne || pred == nge || pred == nan {
		a.ins("MVN", m, m)
	}
}

// broadcast fills a register with a number in memory.
func (a *emitter) broadcast(address string, to int) {
	a.line("FMOVS %s, F%d", address, to)
	a.line("VDUP V%d.S[0], V%[1]d.S4", to)
}

// hornerNEON is horner with one more register, which saves copies.
func (a *emitter) hornerNEON(x, p reg, coefficients []num) {
	at, other := int(p), hornerSpare
	if len(coefficients)%2 == 0 {
		at, other = other, at
	}
	a.into(coefficients[0], at)
	for _, c := range coefficients[1:] {
		a.into(c, other)
		a.ins("FMLA", other, at, int(x))
		at, other = other, at
	}
}

// acrossNEON is across, two halves at a time.
func (a *emitter) acrossNEON(name string, x, t reg) {
	for _, from := range []int{8, 4} {
		a.line("%s", arm64.Ext(int(t), int(x), int(x), from))
		a.op(name, t, x, x)
	}
}

// anyLane sets a general register to 0 if all lanes of a mask are.
func (a *emitter) anyLane(m mask, to string) {
	a.ins("UMAXV", scratch, maskFirst-int(m))
	a.line("FMOVS F%d, %s", scratch, to)
}

// framed writes before, the loads of pinned constants, and after: which constants are pinned
// is known only at the end.
func (a *emitter) framed(before, after func()) {
	before()
	a.pinned = nil
	body := a.Capture(after)
	if len(a.pinned) > 0 || asm.Mentions(body, "("+bottom+")") {
		a.line("MOVD $%s<>(SB), %s", a.file, bottom)
	}
	if len(a.pinned) > 0 {
		a.block(fmt.Sprintf("PIN_%d", len(a.pinned)), func() {
			for i, c := range a.pinned {
				a.into(bits(c), pinnedFirst+i)
			}
		})
	}
	a.Append(body)
}

// arguments writes loads of arguments of eight bytes to R0 and up.
func (a *emitter) arguments(names ...string) {
	for i, name := range names {
		a.line("MOVD %s+%d(FP), R%d", name, 8*i, i)
	}
}
