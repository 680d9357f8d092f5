package vec

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
)

// Kernels of this file compute the functions of a recurrent cell, and their gradients, in one
// pass over rows of n elements, from the last row to the first. Their operands are a list at p
// with 16 bytes each: the address of the first row, and the bytes between rows. Without masks
// n must be a multiple of the lanes.

// cell is one of these kernels. Stored operands have the type of the kernel; the others are
// float32.
type cell struct {
	name, doc string
	operands  []string // stored operands are marked with an asterisk
	body      func(a *emitter, c cellAt)
}

// cellAt reads and writes the current vector of operands.
type cellAt struct {
	load  func(name string, to reg)
	store func(from reg, name string) // for a 16-bit type it changes from and registers 1 and 2
}

// cellRegisters hold the operands; AX counts elements.
var cellRegisters = []string{"DI", "SI", "DX", "R8", "R9", "R10", "R11", "R12", "R13", "BX", "CX", "R15"}

func init() {
	for _, c := range cells() {
		for _, e := range []struct {
			suffix  string
			elem    elem
			convert bool // by VCVTNEPS2BF16
		}{{"", f32, false}, {"F16", f16, false}, {"BF16", bf16, false}, {"ConvertBF16", bf16, true}} {
			special["cells"] = append(special["cells"], function{
				signature: "(p unsafe.Pointer, rows, n int)", args: 24, name: c.name + e.suffix, doc: c.doc, wide: e.convert,
				write: func(a *emitter) { c.write(a, e.elem, e.convert, false) },
			})
			if !e.convert {
				special["cells"] = append(special["cells"], function{
					signature: "(p unsafe.Pointer, rows, n int)", args: 24, name: c.name + "Common" + e.suffix, doc: c.doc + "; functions are those of package vec, and every operation rounds", wide: true,
					write: func(a *emitter) { c.write(a, e.elem, false, true) },
				})
			}
		}
	}
}

// write writes a cell. With common its bits are those of functions and arithmetic in loops of
// their own.
func (c cell) write(a *emitter, stored elem, convert, common bool) {
	at := map[string]int{}
	elems := make([]elem, len(c.operands))
	for i, name := range c.operands {
		if name[0] == '*' {
			name, elems[i] = name[1:], stored
		}
		at[name] = i
	}
	if a.arm {
		c.writeNEON(a, at, elems)
		return
	}
	address := func(i int) string { return fmt.Sprintf("(%s)(AX*%d)", cellRegisters[i], elems[i].size()) }
	rest := func() string {
		if a.wide && a.rest {
			return "_REST"
		}
		return ""
	}
	v := cellAt{
		load: func(name string, to reg) {
			i := at[name]
			a.macro("LOAD_ELEMENTS_"+elemNames[elems[i]]+rest(), func() {
				switch elems[i] {
				case f32:
					a.loadOp("VMOVUPS", address(i), to)
				case f16:
					a.loadOp("VCVTPH2PS", address(i), to)
				default:
					a.loadOp("VPMOVZXWD", address(i), to)
					a.op("VPSLLD", 16, to, to)
				}
			}, "from", address(i), "to", to)
		},
		store: func(from reg, name string) {
			i := at[name]
			kind := elemNames[elems[i]]
			if elems[i] == bf16 && convert {
				kind = "CONVERT_BF16"
			}
			a.macro("STORE_ELEMENTS_"+kind+rest(), func() { a.storeAs(elems[i], convert, from, address(i)) },
				"from", from, "to", address(i), "x", fmt.Sprintf("X%d", from), "y", fmt.Sprintf("Y%d", from), "n", int(from))
		},
	}
	a.k, a.rest, a.coarse, a.common = &kernel{}, false, stored == bf16 && !common, common
	if a.wide { // mask of the last vector
		a.block("CELL_MASK", func() {
			a.op("MOVQ", "n+16(FP)", "CX")
			a.op("ANDQ", 15, "CX")
			a.op("MOVL", 0xffff, "AX")
			a.op("BZHIL", "CX", "AX", "AX")
			a.op("KMOVW", "AX", "K7")
		})
	}
	if a.wide && stored == bf16 && !convert {
		a.loadUpperHalves()
	}
	points := fmt.Sprintf("POINT_OPERANDS_%d", len(c.operands))
	a.block("CELL_ROWS", func() {
		a.label("row")
		a.op("DECQ", "rows+8(FP)")
		a.op("MOVQ", "p+0(FP)", "AX")
		a.macro(points, func() {
			for i := range c.operands {
				r := cellRegisters[i]
				a.block("POINT_OPERAND", func() {
					a.op("MOVQ", "rows+8(FP)", r)
					a.op("IMULQ", fmt.Sprintf("%d(AX)", 16*i+8), r)
					a.op("ADDQ", fmt.Sprintf("%d(AX)", 16*i), r)
				}, "place", 16*i, "to", r)
			}
		})
		a.op("XORQ", "AX", "AX")
		a.op("ADDQ", a.lanes(), "AX")
		a.label("loop")
		a.op("CMPQ", "AX", "n+16(FP)")
		a.op("JGT", "rest")
		a.op("SUBQ", a.lanes(), "AX")
	}, "points", points)
	body := func() {
		kind := elemNames[stored]
		loads := kind + rest()
		if convert {
			kind = "CONVERT_BF16"
		}
		a.block(macroName(c.name)+"_CELL", func() { c.body(a, v) },
			"load", "LOAD_ELEMENTS_"+loads, "store", "STORE_ELEMENTS_"+kind+rest(), "size", stored.size(),
			"sigmoid", a.cellMacro("SIGMOID"), "tanh", a.cellMacro("TANH"), "tanhGrad", a.roundedMacro("TANH_GRAD"),
			"addProduct", a.roundedMacro("ADD_PRODUCT"), "blend", a.roundedMacro("BLEND_STATES"),
			"loadF32", "LOAD_ELEMENTS_F32"+rest(), "storeF32", "STORE_ELEMENTS_F32"+rest())
	}
	body()
	a.block("CELL_REST", func() {
		a.op("ADDQ", 2*a.lanes(), "AX")
		a.op("JMP", "loop")
		a.label("rest")
		if a.wide {
			a.op("SUBQ", a.lanes(), "AX")
			a.op("CMPQ", "AX", "n+16(FP)")
			a.op("JEQ", "next")
		}
	})
	if a.wide {
		a.rest = true
		body()
		a.rest = false
		a.label("next")
	}
	a.block("CELL_END", func() {
		a.op("CMPQ", "rows+8(FP)", 0)
		a.op("JNE", "row")
		a.end()
	})
}

// storeAs writes a register of float32 to memory as elements of a type; for bfloat16 it
// changes the register and registers 1 and 2. With convert it uses the instruction of
// AVX512-BF16, which flushes subnormal numbers to zero.
func (a *emitter) storeAs(e elem, convert bool, from reg, to string) {
	switch e {
	case f32:
		a.storeOp("VMOVUPS", from, to)
	case f16:
		a.storeOp("VCVTPS2PH", 0, from, to)
	default:
		if convert {
			a.convertBF16(from)
		} else {
			a.toBF16(from, 1, 2)
		}
		if a.wide {
			if !convert {
				a.op("VPERMW", from, upperHalves, from)
			}
			half := fmt.Sprintf("Y%d", from)
			if a.rest {
				a.op("VMOVDQU16", half, "K7", to)
			} else {
				a.op("VMOVDQU", half, to)
			}
			break
		}
		a.op("VPSRLD", 16, from, from)
		a.op("VPACKUSDW", from, from, from)
		a.op("VPERMQ", 0xd8, from, from)
		a.op("VMOVDQU", fmt.Sprintf("X%d", from), to)
	}
}

// convertBF16 rounds a register to bfloat16 in its lower half.
func (a *emitter) convertBF16(r reg) { a.Line(amd64.VCVTNEPS2BF16(int(r), int(r))) }

// upperHalves is the register with the indices of the upper halves of 16 lanes.
const upperHalves = "Z31"

func (a *emitter) loadUpperHalves() { a.op("VMOVUPS", a.upperPlaces(), upperHalves) }

// upperPlaces returns the operand with these indices.
func (a *emitter) upperPlaces() string {
	halves := make([]uint32, 16) // two indices of 16 bits each
	for i := range 8 {
		halves[i] = uint32(4*i+1) | uint32(4*i+3)<<16
	}
	return a.vector(halves)
}

// sigmoidOf leaves 1/(1+e⁻ˣ) in register 0 for x there, and changes 1 to 4, 7
// and masks 0 and 1. With AVX-512 it is within 4 units in the last place for
// |x| < 20, within 12 above, and not below e⁻⁸⁷: 2 to the power of fractions of
// ±½ goes through a polynomial within 2⁻²³ (Remez).
func sigmoidOf(a *emitter) {
	a.macro(a.cellMacro("SIGMOID"), func() { sigmoidOfBody(a) })
}

// cellMacro returns the macro of a function as precise as the cell is.
func (a *emitter) cellMacro(name string) string {
	switch {
	case a.wide && a.common:
		return "COMMON_" + name
	case a.wide && a.coarse:
		return "CELL_" + name + "_COARSE"
	}
	return "CELL_" + name
}

// roundedMacro returns the macro of an operation that rounds once, or twice for common bits.
func (a *emitter) roundedMacro(name string) string {
	return "CELL_" + name + map[bool]string{true: "_ROUNDED"}[a.common]
}

func sigmoidOfBody(a *emitter) {
	switch {
	case !a.wide || a.common:
		sigmoid(a)
		return
	case a.coarse:
		sigmoidCoarse(a)
		return
	}
	clamp(a, -87, 87)
	scale := num(-1.44269504088896341)
	a.op("VMOVUPS", scale, reg(1))
	a.op("VMOVUPS", reg(1), reg(2))
	a.op("VFMADD213PS", num(shift), reg(0), reg(1))
	a.op("VSUBPS", num(shift), reg(1), reg(3))
	a.op("VFMSUB213PS", reg(3), reg(2), reg(0))
	horner(a, 0, 2, 1.3264730328914308e-3, 9.67151372442139e-3, 5.55073374572094e-2, 2.402224206885228e-1, 6.931469775910771e-1, 1)
	a.op("VSCALEFPS", reg(3), reg(2), reg(0))
	a.op("VADDPS", num(1), reg(0), reg(1))
	a.op("VMOVUPS", num(1), reg(2))
	a.op("VRCP14PS", reg(1), reg(0))
	a.op("VFNMADD213PS", reg(2), reg(0), reg(1))
	a.op("VFMADD213PS", reg(0), reg(1), reg(0))
}

// tanhOf leaves tanh x in register 0 for x there, and changes 1 to 4 and 7.
// With AVX-512 it is within 4 units in the last place: a quotient of odd and
// even polynomials, those of the library Eigen.
func tanhOf(a *emitter) {
	a.macro(a.cellMacro("TANH"), func() { tanhOfBody(a) })
}

func tanhOfBody(a *emitter) {
	switch {
	case !a.wide || a.common:
		tanh(a)
		return
	case a.coarse:
		tanhCoarse(a)
		return
	}
	clamp(a, -7.90531110763549805, 7.90531110763549805)
	a.op("VMULPS", reg(0), reg(0), reg(4))
	horner(a, 4, 2, -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)
	horner(a, 4, 1, 1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
	a.op("VMULPS", reg(2), reg(0), reg(0))
	a.op("VRCP14PS", reg(1), reg(2))
	quotientBy(a)
}

// sigmoidCoarse is sigmoidOf within 2⁻¹² of the result, a sixteenth of half a
// unit of bfloat16: 2 to the power of fractions goes through a polynomial
// within 9·10⁻⁵ (minimax), and the reciprocal has 14 bits. It changes 1 and 2.
func sigmoidCoarse(a *emitter) {
	a.block("COARSE_SIGMOID", func() { sigmoidCoarseBody(a) })
}

func sigmoidCoarseBody(a *emitter) {
	a.op("VMULPS", num(-1.44269504088896341), reg(0), reg(0))
	a.op("VREDUCEPS", 1, reg(0), reg(1)) // the fraction, x - floor(x)
	horner(a, 1, 2, 7.70673007e-2, 2.27644712e-1, 6.95116878e-1, 1)
	a.op("VSCALEFPS", reg(0), reg(2), reg(1))
	a.op("VADDPS", num(1), reg(1), reg(1))
	a.op("VRCP14PS", reg(1), reg(0))
}

// tanhCoarse is tanhOf within 2⁻¹² of the result: x·P(x²)/Q(x²), of which the
// polynomials are within 6·10⁻⁵ up to 5 (minimax), where the function is as
// near to 1. It changes 1, 2 and 4.
func tanhCoarse(a *emitter) {
	a.block("COARSE_TANH", func() { tanhCoarseBody(a) })
}

func tanhCoarseBody(a *emitter) {
	clamp(a, -5, 5)
	a.op("VMULPS", reg(0), reg(0), reg(4))
	horner(a, 4, 2, 6.70599751e-4, 1.0241928e-1, 9.99948382e-1)
	horner(a, 4, 1, 1.28202932e-2, 4.35434639e-1, 1)
	a.op("VMULPS", reg(2), reg(0), reg(0))
	a.op("VRCP14PS", reg(1), reg(1))
	a.op("VMULPS", reg(1), reg(0), reg(0))
}

// oneLess is y·(1-x²), the gradient y through a tanh whose result is x.
func oneLess(a *emitter, x, y, t reg) {
	a.macro(a.roundedMacro("TANH_GRAD"), func() { oneLessBody(a, x, y, t) }, "x", x, "y", y, "t", t)
}

func oneLessBody(a *emitter, x, y, t reg) {
	if a.common { // -x² + 1
		a.op("VMULPS", x, x, t)
		a.op("VPXOR", bits(signBit), t, t)
		a.op("VADDPS", num(1), t, t)
		a.op("VMULPS", t, y, y)
		return
	}
	a.op("VMOVUPS", num(1), t)
	a.op("VFNMADD231PS", x, x, t)
	a.op("VMULPS", t, y, y)
}

// addProduct adds x·y to a register, and may change t.
func addProduct(a *emitter, x, y, to, t reg) {
	a.macro(a.roundedMacro("ADD_PRODUCT"), func() {
		if a.common {
			a.op("VMULPS", x, y, t)
			a.op("VADDPS", t, to, to)
			return
		}
		a.op("VFMADD231PS", x, y, to)
	}, "x", x, "y", y, "to", to, "t", t)
}

// blendStates is d = d·by + to.
func blendStates(a *emitter, to, by, d reg) {
	a.macro(a.roundedMacro("BLEND_STATES"), func() {
		if a.common {
			a.op("VMULPS", by, d, d)
			a.op("VADDPS", to, d, d)
			return
		}
		a.op("VFMADD213PS", to, by, d)
	}, "to", to, "by", by, "d", d)
}

// through is y·x·(1-x), the gradient y through a logistic function whose
// result is x.
func through(a *emitter, x, y, t reg) {
	a.block("SIGMOID_GRAD", func() { throughBody(a, x, y, t) }, "x", x, "y", y, "t", t)
}

func throughBody(a *emitter, x, y, t reg) {
	a.op("VMOVUPS", num(1), t)
	a.op("VSUBPS", x, t, t)
	a.op("VMULPS", x, t, t)
	a.op("VMULPS", t, y, y)
}

func cells() []cell {
	return []cell{
		{
			name: "lstm", doc: "i, f, o = 1/(1+e to the power of -z), g = tanh z; next = f*c + i*g, h = o*tanh next; state = next, stored",
			operands: []string{"zi", "zf", "zg", "zo", "c", "next", "*i", "*f", "*g", "*o", "*h", "*state"},
			body: func(a *emitter, at cellAt) {
				for g, name := range []string{"i", "f", "g", "o"} {
					at.load("z"+name, 0)
					if name == "g" {
						tanhOf(a)
					} else {
						sigmoidOf(a)
					}
					a.op("VMOVUPS", reg(0), reg(8+g))
				}
				at.load("c", 0)
				a.op("VMULPS", reg(9), reg(0), reg(0))
				addProduct(a, 10, 8, 0, 1)
				a.op("VMOVUPS", reg(0), reg(12))
				at.store(8, "i")
				at.store(9, "f")
				at.store(10, "g")
				at.store(12, "next")
				tanhOf(a)
				a.op("VMULPS", reg(11), reg(0), reg(0))
				at.store(0, "h")
				at.store(11, "o")
				at.store(12, "state")
			},
		},
		{
			name: "lstmGrad", doc: "dc += dh*o*(1-tanh² c); gradients by what i, f, o = 1/(1+e to the power of -z) and g = tanh z are functions of; dc *= f",
			operands: []string{"*i", "*f", "*g", "*o", "*c", "*last", "dh", "dc", "*di", "*df", "*dg", "*do"},
			body: func(a *emitter, at cellAt) {
				at.load("c", 0)
				tanhOf(a)
				at.load("o", 5)
				at.load("dh", 6)
				a.op("VMULPS", reg(5), reg(6), reg(7)) // dh·o
				oneLess(a, 0, 7, 1)
				at.load("dc", 8)
				a.op("VADDPS", reg(7), reg(8), reg(8))
				a.op("VMULPS", reg(0), reg(6), reg(6))
				through(a, 5, 6, 1)
				at.store(6, "do")
				at.load("i", 0)
				at.load("g", 3)
				a.op("VMULPS", reg(3), reg(8), reg(6))
				through(a, 0, 6, 1)
				a.op("VMULPS", reg(0), reg(8), reg(7))
				oneLess(a, 3, 7, 1)
				at.store(6, "di")
				at.store(7, "dg")
				at.load("f", 0)
				at.load("last", 3)
				a.op("VMULPS", reg(3), reg(8), reg(3))
				through(a, 0, 3, 1)
				a.op("VMULPS", reg(0), reg(8), reg(8))
				at.store(3, "df")
				at.store(8, "dc")
			},
		},
		{
			name: "gru", doc: "z, r = 1/(1+e to the power of -its sum), g = tanh(zg + r*q), h = g + z*(last-g); z, r, g and q stored",
			operands: []string{"zz", "zr", "zg", "zq", "*last", "*z", "*r", "*g", "*q", "*h"},
			body: func(a *emitter, at cellAt) {
				at.load("zz", 0)
				sigmoidOf(a)
				a.op("VMOVUPS", reg(0), reg(8))
				at.load("zr", 0)
				sigmoidOf(a)
				a.op("VMOVUPS", reg(0), reg(9))
				at.load("zq", 10)
				at.load("zg", 0)
				addProduct(a, 10, 9, 0, 1)
				tanhOf(a)
				at.load("last", 5)
				a.op("VSUBPS", reg(0), reg(5), reg(5))
				blendStates(a, 0, 8, 5)
				at.store(8, "z")
				at.store(9, "r")
				at.store(0, "g")
				at.store(10, "q")
				at.store(5, "h")
			},
		},
		{
			name: "gruGrad", doc: "pass = dh*z; gradients by what z, r = 1/(1+e to the power of -its sum) and g = tanh(zg + r*q) are functions of, and by q",
			operands: []string{"*z", "*r", "*g", "*q", "*last", "dh", "pass", "*dz", "*dr", "*dg", "*dq"},
			body: func(a *emitter, at cellAt) {
				at.load("z", 0)
				at.load("dh", 5)
				a.op("VMULPS", reg(0), reg(5), reg(6))
				at.store(6, "pass")
				at.load("last", 3)
				at.load("g", 4)
				a.op("VSUBPS", reg(4), reg(3), reg(3))
				a.op("VMULPS", reg(5), reg(3), reg(3))
				through(a, 0, 3, 1)
				a.op("VMOVUPS", num(1), reg(7))
				a.op("VSUBPS", reg(0), reg(7), reg(7))
				a.op("VMULPS", reg(5), reg(7), reg(7))
				oneLess(a, 4, 7, 1)
				at.load("r", 8)
				a.op("VMULPS", reg(8), reg(7), reg(9))
				at.load("q", 10)
				a.op("VMULPS", reg(7), reg(10), reg(10))
				through(a, 8, 10, 1)
				at.store(3, "dz")
				at.store(10, "dr")
				at.store(7, "dg")
				at.store(9, "dq")
			},
		},
	}
}
