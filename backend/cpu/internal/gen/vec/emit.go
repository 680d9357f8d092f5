// Package vec generates the assembly of package vec. Command gen writes the files, and its
// test fails if a checked-in file differs from the generator's output.
//
// Main types: [kernel] describes a loop once, [emitter] writes it for one instruction set.
//
// Rules: a kernel's body is written in terms of vectors and works for 16 lanes (AVX-512), 8
// (AVX2) and 4 (NEON, with the equivalents of the AVX instructions). It is written twice, for
// the loop over whole vectors and for the remaining elements, where loads and stores are
// masked; both do the same arithmetic, so the bits of an element do not depend on its
// position. Constants are operands in memory, which leaves the registers to the bodies.
package vec

import (
	"fmt"
	"math"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
)

// elem is the element type of an argument in memory. In registers elements are float32.
type elem int

const (
	f32 elem = iota
	f16
	bf16
	u8    // a number
	i32   // a number
	truth // a bool of one byte: a mask in registers
	i8    // a number
)

func (e elem) size() int { return [...]int{4, 2, 2, 1, 4, 1, 1}[e] }

// param is an argument of a kernel: a slice or, with by set, a number.
type param struct {
	name   string
	elem   elem
	scalar bool
}

// kernel is a loop over elements. Its first parameter is the result, except in reductions,
// whose result is a number.
type kernel struct {
	name   string // Go name without the instruction set
	doc    string // the loop in Go
	params []param
	body   func(a *emitter)
	folds  *fold
	spread reg // of the first number, if it is not scalarReg

	wide    bool             // only for AVX-512
	prepare func(a *emitter) // of such a kernel: loads registers from 16 on; or nil

	// Kernels of one form differ only in a step, which is a macro, and are calls of one macro.
	// The form may be "".
	form, step string
}

// number returns the register of number i.
func (k *kernel) number(i int) reg {
	if k.spread != 0 {
		return k.spread + reg(i)
	}
	return scalarReg + reg(i)
}

// fold is the part of a kernel that makes it a reduction.
type fold struct {
	neutral uint32 // bits of the value of missing elements
	before  func(a *emitter)
	after   func(a *emitter) // must leave the result in lane 0 of register 0
	double  bool             // the result is a float64
	streams *streams         // or nil
}

// reg is a vector register; mask is a register of truth values.
type (
	reg  int
	mask int
	bits uint32  // a constant, in every lane
	num  float32 // the same
)

// emitter writes a file of functions for one instruction set.
type emitter struct {
	*asm.File
	set
	pinned  []uint32 // constants in registers of arm64
	offset  int      // vectors after the pointers, on arm64
	rest    bool     // writing the masked part
	coarse  bool     // functions need only the precision of bfloat16
	common  bool     // bits are those of functions and arithmetic in loops of their own
	k       *kernel
	consts  map[uint32]int
	order   []uint32
	labels  int
	file    string            // name of the constants
	vectors map[string]string // constants of different lanes: their data by name
}

// The pointers to arguments. The loop over remaining elements does not keep those from the
// fourth on.
var pointers = []string{"DI", "SI", "DX", "R8", "R10", "R11", "R12", "R13"}

func (a *emitter) lanes() int {
	switch {
	case a.wide:
		return 16
	case a.arm:
		return 4
	}
	return 8
}

func (a *emitter) reg(r reg) string {
	if a.wide {
		return fmt.Sprintf("Z%d", r)
	}
	return fmt.Sprintf("Y%d", r)
}

// mask returns a mask register of AVX-512, or one of the upper vector registers of AVX2.
func (a *emitter) mask(m mask) string {
	if a.wide {
		return fmt.Sprintf("K%d", m+1)
	}
	return fmt.Sprintf("Y%d", 15-m)
}

// argsMacro returns the macro that loads the arguments of a kernel.
func (k *kernel) argsMacro() string {
	name := "ARGS"
	for _, p := range k.params {
		name += "_" + strings.ToUpper(p.name)
	}
	return name
}

// begin starts a kernel.
func (a *emitter) begin(k *kernel, frame, size int) {
	a.Text(fmt.Sprintf("\n// %s: %s\n// func %s\nTEXT ·%s%s(SB), NOSPLIT, $%d-%d\n",
		k.name, k.doc, strings.TrimPrefix(a.stub(k), "func "), k.name, a.suffix, frame, size))
}

// constantMacro returns the macro that defines a constant.
func (a *emitter) constantMacro() string {
	return map[int]string{4: "CONSTANT", 16: "CONSTANT4", 32: "CONSTANT8"}[a.stored()]
}

// constantMacros are the definitions of these macros.
var constantMacros = []asm.Definition{
	{Name: "CONSTANT", Text: `// CONSTANT is a float32 by its bits, off bytes into the constants of a file.
#define CONSTANT(file, off, x) \
	DATA file<>+off(SB)/4, $x
`},
	{Name: "CONSTANT4", Text: `// CONSTANT4 is a float32 by its bits in four lanes, off bytes into the constants of a file.
#define CONSTANT4(file, off, x) \
	DATA file<>+off(SB)/8, $(x<<32|x); \
	DATA file<>+off+8(SB)/8, $(x<<32|x)
`},
	{Name: "CONSTANT8", Text: `// CONSTANT8 is a float32 by its bits in eight lanes, off bytes into the constants of a file.
#define CONSTANT8(file, off, x) \
	DATA file<>+off(SB)/8, $(x<<32|x); \
	DATA file<>+off+8(SB)/8, $(x<<32|x); \
	DATA file<>+off+16(SB)/8, $(x<<32|x); \
	DATA file<>+off+24(SB)/8, $(x<<32|x)
`},
	{Name: "CONSTANTS", Text: `// CONSTANTS is eight float32 by their bits, off bytes into the constants of a file.
#define CONSTANTS(file, off, a, b, c, d, e, f, g, h) \
	DATA file<>+off(SB)/8, $(b<<32|a); \
	DATA file<>+off+8(SB)/8, $(d<<32|c); \
	DATA file<>+off+16(SB)/8, $(f<<32|e); \
	DATA file<>+off+24(SB)/8, $(h<<32|g)
`},
}

// stored returns the bytes of a constant in memory: a vector, or a number that instructions
// broadcast.
func (a *emitter) stored() int {
	switch {
	case a.wide:
		return 4
	case a.arm:
		return 16
	}
	return 32
}

// constant returns the operand of a vector with x in every lane.
func (a *emitter) constant(x uint32) string {
	i, ok := a.consts[x]
	if !ok {
		i = len(a.order)
		a.consts[x] = i
		a.order = append(a.order, x)
	}
	return fmt.Sprintf("%s<>+%d(SB)", a.file, a.stored()*i)
}

// renamed are integer instructions whose AVX-512 form names the lane.
var renamed = map[string]string{"VPAND": "VPANDD", "VPOR": "VPORD", "VPXOR": "VPXORD", "VPANDN": "VPANDND"}

// op writes an instruction. Operands are in the order of the Go assembler,
// the result last.
func (a *emitter) op(name string, args ...any) {
	if a.arm {
		a.opNEON(name, args...)
		return
	}
	if r, ok := renamed[name]; ok && a.wide {
		name = r
	}
	text := make([]string, len(args))
	broadcast := false
	for i, x := range args {
		switch x := x.(type) {
		case reg:
			text[i] = a.reg(x)
		case mask:
			text[i] = a.mask(x)
		case num:
			text[i], broadcast = a.constant(math.Float32bits(float32(x))), a.wide
		case bits:
			text[i], broadcast = a.constant(uint32(x)), a.wide
		case int:
			text[i] = fmt.Sprintf("$%d", x)
		default:
			text[i] = fmt.Sprint(x)
		}
	}
	switch {
	case broadcast && name == "VMOVUPS":
		name = "VBROADCASTSS"
	case broadcast:
		name += ".BCST"
	}
	a.Line(name + " " + strings.Join(text, ", "))
}

func (a *emitter) label(name string) { a.Label(name) }

// end returns.
func (a *emitter) end() {
	a.block("RETURN", func() {
		a.op("VZEROUPPER")
		a.op("RET")
	})
}

// macro is block for a part that is an argument of other macros; hints are all its
// parameters.
func (a *emitter) macro(name string, body func(), hints ...any) {
	a.Macro(name, body, a.hints(hints)...)
}

// block names a part, which becomes a macro. Hints are pairs of a parameter's name and its
// value here.
func (a *emitter) block(name string, body func(), hints ...any) {
	a.Block(name, body, a.hints(hints)...)
}

func (a *emitter) hints(pairs []any) []asm.Hint {
	for i, h := range pairs {
		switch h := h.(type) {
		case reg:
			pairs[i] = a.reg(h)
			if a.arm {
				pairs[i] = fmt.Sprintf("V%d", h)
			}
		case mask:
			pairs[i] = a.mask(h)
		}
	}
	return asm.Hints(pairs...)
}

// macroName returns the macro's name for a Go name: LERP_SQUARE for lerpSquare.
func macroName(name string) string {
	var s strings.Builder
	for i, c := range name {
		lower := i > 0 && (name[i-1] >= 'a' && name[i-1] <= 'z' || name[i-1] >= '0' && name[i-1] <= '9')
		if c >= 'A' && c <= 'Z' && lower {
			s.WriteByte('_')
		}
		s.WriteRune(c)
	}
	return strings.ToUpper(s.String())
}

// Comparisons: the immediate of VCMPPS.
const (
	eq  = 0
	lt  = 1
	le  = 2
	nan = 3 // either is NaN
	ne  = 4
	nge = 9 // less, or either is NaN
	ge  = 13
)

// cmp sets m to x pred y; y may be a constant.
func (a *emitter) cmp(pred int, x reg, y any, m mask) { a.op("VCMPPS", pred, y, x, m) }

// blend sets dst to yes where m, else to no; yes may be a constant.
func (a *emitter) blend(m mask, no reg, yes any, dst reg) {
	if a.wide {
		a.op("VBLENDMPS", yes, no, m, dst)
	} else {
		a.op("VBLENDVPS", m, yes, no, dst)
	}
}

// layout returns the offsets of a kernel's parameters in its frame, and the bytes of the
// parameters with the length after them.
func (k *kernel) layout() (offsets []int, size int) {
	for _, p := range k.params {
		if p.scalar {
			offsets = append(offsets, size)
			size += 4
			continue
		}
		size = (size + 7) &^ 7
		offsets = append(offsets, size)
		size += 8
	}
	return offsets, (size+7)&^7 + 8
}

// function writes a kernel.
func (a *emitter) function(k *kernel) {
	a.k = k
	if a.arm {
		a.functionNEON(k)
		return
	}
	offsets, args := k.layout()
	frame := 0
	size := args
	if k.folds != nil {
		size += 4
		if k.folds.double {
			size += 4
		}
	}
	if !a.wide {
		frame = 32 * len(k.params)
	}
	a.begin(k, frame, size)
	a.block(k.argsMacro(), func() {
		p, s := 0, 0
		for i, x := range k.params {
			if x.scalar {
				a.op("VBROADCASTSS", fmt.Sprintf("%s+%d(FP)", x.name, offsets[i]), k.number(s))
				s++
				continue
			}
			a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", x.name, offsets[i]), pointers[p])
			p++
		}
		a.op("MOVQ", fmt.Sprintf("n+%d(FP)", args-8), "CX")
	})
	if a.wide && k.params[0].elem == bf16 && k.folds == nil {
		a.loadUpperHalves()
	}
	if k.prepare != nil {
		k.prepare(a)
	}
	a.labels = 0
	if k.form != "" {
		a.block(k.form+"_"+k.types(), func() { a.loops(k) }, "step", k.step)
		return
	}
	a.loops(k)
}

// types returns the names of the types of a kernel's arguments.
func (k *kernel) types() string {
	var list []string
	for _, p := range k.params {
		if p.scalar {
			list = append(list, "N")
		} else {
			list = append(list, elemNames[p.elem])
		}
	}
	return strings.Join(list, "_")
}

// loops writes a kernel after the loads of its arguments.
func (a *emitter) loops(k *kernel) {
	_, args := k.layout()
	if k.folds != nil {
		k.folds.before(a)
		if k.folds.streams != nil {
			a.foldStreams(k.folds.streams, k.params[0].elem.size())
		}
	}
	a.block("LOOP", func() {
		a.op("XORQ", "AX", "AX")
		a.op("MOVQ", "CX", "BX")
		a.op("ANDQ", -a.lanes(), "BX")
		a.op("JZ", "rest")
		a.label("loop")
	})
	a.rest = false
	k.body(a)
	a.block("LOOP_END", func() {
		a.op("ADDQ", a.lanes(), "AX")
		a.op("CMPQ", "AX", "BX")
		a.op("JLT", "loop")
		a.label("rest")
		a.op("MOVQ", "CX", "R9")
		a.op("SUBQ", "AX", "R9")
		a.op("JZ", "done")
		if a.wide {
			a.op("MOVL", 0xffff, "R10")
			a.op("BZHIL", "R9", "R10", "R10")
			a.op("KMOVW", "R10", "K7")
		}
	})
	a.rest = true
	k.body(a)
	a.label("done")
	if k.folds != nil {
		k.folds.after(a)
		ret := fmt.Sprintf("ret+%d(FP)", args)
		if k.folds.double {
			a.op("VMOVSD", "X0", ret)
		} else {
			a.op("VMOVSS", "X0", ret)
		}
	}
	a.end()
}

// scalarReg holds the scalar parameter of a kernel; the next register holds a second one.
const scalarReg = reg(12)

// stub returns the Go declaration of a kernel.
func (a *emitter) stub(k *kernel) string {
	var decl []string
	for _, p := range k.params {
		if p.scalar {
			decl = append(decl, p.name+" float32")
		} else {
			decl = append(decl, p.name+" unsafe.Pointer")
		}
	}
	s := fmt.Sprintf("func %s%s(%s, n int)", k.name, a.suffix, strings.Join(decl, ", "))
	if k.folds != nil {
		s += map[bool]string{false: " float32", true: " float64"}[k.folds.double]
	}
	return s
}

// data writes the constants.
func (a *emitter) data() {
	if len(a.order) == 0 {
		return
	}
	var s strings.Builder
	s.WriteByte('\n')
	size := a.stored()
	for i, x := range a.order {
		fmt.Fprintf(&s, "%s(%s, %d, 0x%08x) // %v\n", a.constantMacro(), a.file, size*i, x, math.Float32frombits(x))
	}
	fmt.Fprintf(&s, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", a.file, size*len(a.order))
	a.Raw(s.String())
}
