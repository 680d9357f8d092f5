package vec

import "fmt"

// Kernels of this file find an element of a row.

const findDoc = "the first multiple of the lanes from which on a vector has an element equal to v, or n, a multiple of the lanes"

func init() {
	for _, t := range passTypes {
		if t.convert {
			continue
		}
		special["find"] = append(special["find"], function{
			signature: "(x unsafe.Pointer, n int, v float32) (ret int)", args: 32, name: "find" + t.suffix, doc: findDoc,
			write: func(a *emitter) { find(a, t.elem) },
		})
	}
	special["find"] = append(special["find"], function{
		signature: "(x unsafe.Pointer, n int) (ret int)", args: 24, name: "extremes", wide: true,
		doc:   "the largest of x and, 16 bits further up, the smallest, for n, a multiple of 32, 16-bit floats as integers of the same order: of negative ones all bits but the sign are inverted",
		write: extremes,
	})
}

func find(a *emitter, from elem) {
	size := from.size()
	if a.arm {
		a.framed(func() {
			a.arguments("x", "n")
			a.broadcast("v+16(FP)", 1)
		}, func() {
			a.line("MOVD $0, R2")
			a.label("loop")
			a.line("CMP R1, R2")
			a.line("BGE done")
			a.widened(from, "(R0)", 0)
			a.cmp(eq, 0, reg(1), 0)
			a.anyLane(0, "R3")
			a.line("CBNZW R3, done")
			a.line("ADD $%d, R0", 4*size)
			a.line("ADD $4, R2")
			a.line("B loop")
			a.label("done")
			a.line("MOVD R2, ret+24(FP)")
			a.line("RET")
		})
		return
	}
	a.op("MOVQ", "x+0(FP)", "SI")
	a.op("MOVQ", "n+8(FP)", "CX")
	a.op("VBROADCASTSS", "v+16(FP)", reg(1))
	a.op("XORQ", "AX", "AX")
	a.label("loop")
	a.op("CMPQ", "AX", "CX")
	a.op("JGE", "done")
	a.widened(from, fmt.Sprintf("(SI)(AX*%d)", size), 0)
	a.cmp(eq, 0, reg(1), 0)
	if a.wide {
		a.op("KORTESTW", mask(0), mask(0))
	} else {
		a.op("VPTEST", mask(0), mask(0))
	}
	a.op("JNZ", "done")
	a.op("ADDQ", a.lanes(), "AX")
	a.op("JMP", "loop")
	a.label("done")
	a.op("MOVQ", "AX", "ret+24(FP)")
	a.end()
}

// extremes is for AVX-512.
func extremes(a *emitter) {
	const most, least = reg(16), reg(20) // four each
	a.op("MOVQ", "x+0(FP)", "SI")
	a.op("MOVQ", "n+8(FP)", "CX")
	a.op("VMOVUPS", bits(0x7fff7fff), reg(3))
	for i := range reg(4) {
		a.op("VMOVUPS", bits(0x80008000), most+i)
		a.op("VMOVUPS", bits(0x7fff7fff), least+i)
	}
	step := func(i int) {
		a.op("VMOVUPS", fmt.Sprintf("%d(SI)", line*i), reg(0))
		a.op("VPSRAW", 15, reg(0), reg(1))
		a.op("VPTERNLOGD", 0x6a, reg(0), reg(3), reg(1)) // (1 and 3) xor 0
		a.op("VPMAXSW", reg(1), most+reg(i), most+reg(i))
		a.op("VPMINSW", reg(1), least+reg(i), least+reg(i))
	}
	a.label("four")
	a.op("SUBQ", 128, "CX")
	a.op("JLT", "few")
	for i := range 4 {
		step(i)
	}
	a.op("ADDQ", 4*line, "SI")
	a.op("JMP", "four")
	a.label("few")
	a.op("ADDQ", 128, "CX")
	a.op("JZ", "done")
	a.label("one")
	step(0)
	a.op("ADDQ", line, "SI")
	a.op("SUBQ", 32, "CX")
	a.op("JNZ", "one")
	a.label("done")
	a.extremesOf(most, least, 4)
	a.op("SHLL", 16, "BX")
	a.op("ORL", "BX", "AX")
	a.op("MOVQ", "AX", "ret+16(FP)")
	a.end()
}

// extremesOf computes the largest 16 bits of count registers from most on in AX, and the
// smallest of those from least on in BX. It changes registers 4 and 5.
func (a *emitter) extremesOf(most, least reg, count int) {
	// VPHMINPOSUW finds the smallest of eight unsigned numbers.
	for _, x := range []struct {
		first  reg
		name   string
		invert uint32
		to     string
	}{{most, "VPMAXSW", 0x7fff7fff, "AX"}, {least, "VPMINSW", 0x80008000, "BX"}} {
		a.block(fmt.Sprintf("TOP_OF_%s_%d", joinName(x.name), count), func() {
			for i := range reg(count - 1) {
				a.op(x.name, x.first+i+1, x.first, x.first)
			}
			a.op("VMOVUPS", x.first, reg(4))
			halve(a, x.name)
			a.op("VPXORD.BCST", a.constant(x.invert), "X4", "X4")
			a.op("VPHMINPOSUW", "X4", "X4")
			a.op("VMOVD", "X4", x.to)
			a.op("XORL", fmt.Sprintf("$%d", x.invert&0xffff), x.to)
			a.op("MOVWLZX", x.to, x.to)
		})
	}
}

// The largest and the smallest 16-bit floats of rows, compared as integers, in two registers
// each, and the mask of half a line. If the largest integer is not negative, it is the largest
// number; else the smallest integer is, because negative floats have the reverse order as
// integers.
const topMost, topLeast, topHalf = reg(16), reg(18), "K5"

func beginTops(a *emitter) { a.block("BEGIN_TOPS", func() { beginTopsBody(a) }) }

func beginTopsBody(a *emitter) {
	for i := range reg(2) {
		a.op("VMOVUPS", bits(0x80008000), topMost+i)
		a.op("VMOVUPS", bits(0x7fff7fff), topLeast+i)
	}
	a.op("MOVL", 0xffff, "R13")
	a.op("KMOVD", "R13", topHalf)
}

// foldTops folds the vector at an address, or with many a line for two vectors.
func (a *emitter) foldTops(address string, u int, many bool) {
	most, least := topMost+reg(u/2), topLeast+reg(u/2)
	switch {
	case !many:
		a.op("VPMAXSW", address, most, topHalf, most)
		a.op("VPMINSW", address, least, topHalf, least)
	case u%2 == 0:
		a.op("VPMAXSW", address, most, most)
		a.op("VPMINSW", address, least, least)
	}
}

func endTops(a *emitter) {
	a.extremesOf(topMost, topLeast, 2)
	a.op("MOVL", "AX", "16(R12)")
	a.op("MOVL", "BX", "20(R12)")
}
