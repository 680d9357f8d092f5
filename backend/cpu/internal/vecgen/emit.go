// Package vecgen writes the assembly of package vec. Its test compares the
// files with what it writes, and with -generate rewrites them:
//
//	go test ./backend/cpu/internal/vecgen -generate
//
// Main types: [kernel] describes a loop once, [asm] writes it for one
// instruction set.
//
// Rules: a kernel's body is written in terms of vectors and works for 16 lanes
// (AVX-512) and 8 (AVX2) alike. It is written out twice, for the loop over
// whole vectors and for the rest, where loads and stores are masked; both do
// the same arithmetic, so the bits of an element do not depend on its place.
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
	wide    bool // AVX-512
	suffix  string
	rest    bool // writing the masked part
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
	if a.wide {
		return 16
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
	if a.wide {
		return 4
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

// address is where the current vector of an argument lies.
func (a *asm) address(i int) string {
	return fmt.Sprintf("(%s)(AX*%d)", pointers[i], a.k.params[i].elem.size())
}

// loadOp writes a load of the current vector; lanes beyond the rest become
// what is neutral.
func (a *asm) loadOp(name, from string, to reg) {
	if a.wide && a.rest {
		if n := a.neutral(); n != 0 {
			if name == "VPMOVZXWD" { // of bfloat16, before it is shifted
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

func (a *asm) neutral() uint32 {
	if a.k.folds != nil {
		return a.k.folds.neutral
	}
	return 0
}

// source is the operand that holds the current vector of argument i: memory,
// or for the rest without masks a copy on the stack.
func (a *asm) source(i int) string {
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
	a.op("VMOVUPS", bits(fill), "Y0")
	a.op("VMOVUPS", "Y0", frame)
	a.copy(i, a.address(i), frame, false)
	return frame
}

// copy moves the rest between an argument and the stack, element by element.
func (a *asm) copy(i int, address, frame string, out bool) {
	size := a.k.params[i].elem.size()
	load := map[int]string{1: "MOVBLZX", 2: "MOVWLZX", 4: "MOVL"}[size]
	store := map[int]string{1: "MOVB", 2: "MOVW", 4: "MOVL"}[size]
	a.labels++
	l := fmt.Sprintf("copy%d", a.labels)
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

// load reads the current vector of argument i into a register as float32. In
// the rest it uses register 0, so that loads come in descending order.
func (a *asm) load(i int, to reg) {
	from := a.source(i)
	switch a.k.params[i].elem {
	case f32:
		a.loadOp("VMOVUPS", from, to)
	case f16:
		a.loadOp("VCVTPH2PS", from, to)
	case bf16:
		a.loadOp("VPMOVZXWD", from, to)
		a.op("VPSLLD", 16, to, to)
	case u8:
		a.loadOp("VPMOVZXBD", from, to)
		a.op("VCVTDQ2PS", to, to)
	case i32:
		a.loadOp("VMOVUPS", from, to)
		a.op("VCVTDQ2PS", to, to)
	}
}

// loadFlags reads the current vector of truth values into a mask, using
// register t.
func (a *asm) loadFlags(i int, m mask, t reg) {
	from := a.source(i)
	a.loadOp("VPMOVZXBD", from, t)
	if a.wide {
		a.op("VPTESTMD", t, t, m)
		return
	}
	a.op("VPCMPEQD", bits(0), t, t) // inverted
	a.op("VPXOR", bits(^uint32(0)), t, m)
}

// target is the operand to write the current vector of the result to; done
// completes the write.
func (a *asm) target() (to string, done func()) {
	if a.wide || !a.rest {
		return a.address(0), func() {}
	}
	return "0(SP)", func() { a.copy(0, a.address(0), "0(SP)", true) }
}

func (a *asm) storeOp(name string, args ...any) {
	if a.wide && a.rest {
		args = append(args[:len(args)-1:len(args)-1], "K7", args[len(args)-1])
	}
	a.op(name, args...)
}

// store writes a register of float32 to the result. It changes registers 0
// to 2 when it has to convert.
func (a *asm) store(from reg) {
	to, done := a.target()
	switch a.k.params[0].elem {
	case f32:
		a.storeOp("VMOVUPS", from, to)
	case f16:
		a.storeOp("VCVTPS2PH", 0, from, to)
	case bf16:
		a.toBF16(from, 1, 2)
		a.op("VPSRLD", 16, from, from)
		if a.wide && a.rest {
			a.storeOp("VPMOVDW", from, to)
			break
		}
		if a.wide { // in two steps: the one to memory is slow
			a.op("VPMOVDW", from, "Y1")
			a.op("VMOVDQU", "Y1", to)
			break
		}
		a.op("VPACKUSDW", from, from, from)
		a.op("VPERMQ", 0xd8, from, from)
		a.op("VMOVDQU", fmt.Sprintf("X%d", from), to)
	}
	done()
}

// storeFlags writes a mask to the result as bytes 0 and 1, using registers 0
// and 1.
func (a *asm) storeFlags(m mask) {
	to, done := a.target()
	if a.wide {
		a.op("VPBROADCASTD.Z", a.constant(1), m, reg(0))
		a.storeOp("VPMOVDB", reg(0), to)
	} else {
		a.op("VPAND", bits(1), m, reg(0))
		a.op("VEXTRACTI128", 1, reg(0), "X1")
		a.op("VPACKSSDW", "X1", "X0", "X0")
		a.op("VPACKSSWB", "X0", "X0", "X0")
		a.op("VMOVQ", "X0", to)
	}
	done()
}

// round rounds to whole numbers: 0 to nearest even, 1 down, 2 up.
func (a *asm) round(mode int, from, to reg) {
	if a.wide {
		a.op("VRNDSCALEPS", mode, from, to)
	} else {
		a.op("VROUNDPS", mode, from, to)
	}
}

// toBF16 rounds x to nearest even at bit 16 and quiets a NaN; the lower bits
// are undefined. t, u and masks 0 and 1 are changed.
func (a *asm) toBF16(x, t, u reg) {
	a.cmp(nan, x, x, 0)
	if a.wide {
		a.op("VPTESTMD", bits(1<<16), x, mask(1))
		a.op("VPADDD", bits(0x7fff), x, t)
		a.op("VPADDD", bits(1), t, mask(1), t)
		a.op("VPOR", bits(0x00400000), x, mask(0), t)
		a.op("VMOVUPS", t, x)
		return
	}
	a.op("VPOR", bits(0x00400000), x, u)
	a.op("VPSRLD", 16, x, t)
	a.op("VPAND", bits(1), t, t)
	a.op("VPADDD", bits(0x7fff), t, t)
	a.op("VPADDD", t, x, x)
	a.blend(0, x, u, x)
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
	p, s := 0, scalarReg
	for i, x := range k.params {
		if x.scalar {
			a.op("VBROADCASTSS", fmt.Sprintf("%s+%d(FP)", x.name, offsets[i]), s)
			s++
			continue
		}
		a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", x.name, offsets[i]), pointers[p])
		p++
	}
	a.op("MOVQ", fmt.Sprintf("n+%d(FP)", args-8), "CX")
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
