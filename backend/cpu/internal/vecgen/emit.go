// Package vecgen writes the assembly of package vec. Its test compares the
// files with what it writes, and with -generate rewrites them:
//
//	go test ./backend/cpu/internal/vecgen -generate
//
// Main types: [kernel] describes a loop once, [asm] writes it for one
// instruction set.
//
// Rules: a kernel's body is written in terms of vectors and works for 16 lanes
// (AVX-512), 8 (AVX2) and 4 (NEON, whose instructions stand for those of AVX)
// alike. It is written out twice, for the loop over whole vectors and for the
// rest, where loads and stores are masked; both do the same arithmetic, so the
// bits of an element do not depend on its place.
// Constants are operands in memory, which leaves the registers to the bodies.
package vecgen

import (
	"fmt"
	"math"
	"strings"
)

// elem is how elements of an argument lie in memory. In a vector they are
// float32.
type elem int

const (
	f32 elem = iota
	f16
	bf16
	u8    // a number
	i32   // a number
	truth // a byte: a mask in registers
)

func (e elem) size() int { return [...]int{4, 2, 2, 1, 4, 1}[e] }

// param is an argument of a kernel: a slice or, with by set, a number.
type param struct {
	name   string
	elem   elem
	scalar bool
}

// kernel is a loop over elements. Its first parameter is the result unless it
// folds, when the result is a number.
type kernel struct {
	name   string // Go name without the instruction set
	doc    string // the loop in Go
	params []param
	body   func(a *asm)
	folds  *fold
	spread reg // of the first number, if it is not scalarReg
}

// number is the register of number i.
func (k *kernel) number(i int) reg {
	if k.spread != 0 {
		return k.spread + reg(i)
	}
	return scalarReg + reg(i)
}

// fold is what a reduction adds to a kernel.
type fold struct {
	neutral uint32 // bits of what stands for elements that are not there
	before  func(a *asm)
	after   func(a *asm) // leaves the result in lane 0 of register 0
	double  bool         // the result is a float64
	streams *streams     // or nil
}

// reg is a vector register; mask is a register of truth values.
type (
	reg  int
	mask int
	bits uint32  // a constant, in every lane
	num  float32 // the same
)

// asm writes a file of functions for one instruction set.
type asm struct {
	strings.Builder
	set
	pinned  []uint32 // of the constants, those in registers of arm64
	ahead   int      // vectors behind the pointers, on arm64
	rest    bool     // writing the masked part
	coarse  bool     // functions may be as coarse as bfloat16 lets them
	k       *kernel
	consts  map[uint32]int
	order   []uint32
	labels  int
	file    string            // name of the constants
	vectors map[string]string // constants of different lanes: their data by name
}

// pointers to arguments. Those from the fourth on are not kept for the rest.
var pointers = []string{"DI", "SI", "DX", "R8", "R10", "R11", "R12", "R13"}

func (a *asm) lanes() int {
	switch {
	case a.wide:
		return 16
	case a.arm:
		return 4
	}
	return 8
}

func (a *asm) reg(r reg) string {
	if a.wide {
		return fmt.Sprintf("Z%d", r)
	}
	return fmt.Sprintf("Y%d", r)
}

// mask is a register of its own kind in AVX-512, one of the upper vector
// registers in AVX2.
func (a *asm) mask(m mask) string {
	if a.wide {
		return fmt.Sprintf("K%d", m+1)
	}
	return fmt.Sprintf("Y%d", 15-m)
}

// stored is the bytes of a constant: a vector, or a number that instructions
// broadcast.
func (a *asm) stored() int {
	switch {
	case a.wide:
		return 4
	case a.arm:
		return 16
	}
	return 32
}

// constant returns the operand of a vector with x in every lane.
func (a *asm) constant(x uint32) string {
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
func (a *asm) op(name string, args ...any) {
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
	fmt.Fprintf(a, "\t%s\n", strings.TrimSpace(name+" "+strings.Join(text, ", ")))
}

func (a *asm) label(name string) { fmt.Fprintf(a, "%s:\n", name) }

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
func (a *asm) cmp(pred int, x reg, y any, m mask) { a.op("VCMPPS", pred, y, x, m) }

// blend sets dst to yes where m, else to no; yes may be a constant.
func (a *asm) blend(m mask, no reg, yes any, dst reg) {
	if a.wide {
		a.op("VBLENDMPS", yes, no, m, dst)
	} else {
		a.op("VBLENDVPS", m, yes, no, dst)
	}
}

// layout is where a kernel's parameters lie in its frame, and the bytes of
// them and the length that follows.
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
func (a *asm) function(k *kernel) {
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
	fmt.Fprintf(a, "\n// %s: %s\n// func %s\n", k.name, k.doc, strings.TrimPrefix(a.stub(k), "func "))
	fmt.Fprintf(a, "TEXT ·%s%s(SB), NOSPLIT, $%d-%d\n", k.name, a.suffix, frame, size)
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
	if a.wide && k.params[0].elem == bf16 && k.folds == nil {
		a.loadUpperHalves()
	}
	a.labels = 0
	if k.folds != nil {
		k.folds.before(a)
		if k.folds.streams != nil {
			a.foldStreams(k.folds.streams, k.params[0].elem.size())
		}
	}
	a.op("XORQ", "AX", "AX")
	a.op("MOVQ", "CX", "BX")
	a.op("ANDQ", -a.lanes(), "BX")
	a.op("JZ", "rest")
	a.rest = false
	a.label("loop")
	k.body(a)
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
	a.op("VZEROUPPER")
	a.op("RET")
}

// scalarReg holds the scalar parameter of a kernel, the one above it a second.
const scalarReg = reg(12)

// stub is the Go declaration of a kernel.
func (a *asm) stub(k *kernel) string {
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
func (a *asm) data() {
	if len(a.order) == 0 {
		return
	}
	a.WriteByte('\n')
	size := a.stored()
	for i, x := range a.order {
		for at := size * i; at < size*(i+1); at += 4 {
			fmt.Fprintf(a, "DATA %s<>+%d(SB)/4, $0x%08x\n", a.file, at, x)
		}
	}
	fmt.Fprintf(a, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", a.file, size*len(a.order))
}
