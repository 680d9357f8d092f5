package vecgen

import (
	"fmt"
	"strings"
)

// Kernels of this file are the passes of normalizations and softmaxes over
// whole vectors: n is a multiple of the lanes. Numbers, and sums that come
// back, lie in an array s.

// pass is a loop over slices of float32.
type pass struct {
	name, doc string
	slices    []string // the first one is written, unless it is listed in none of writes
	half      bool     // the first slice has bfloat16
	numbers   int      // in s, from 0 on: in registers 12, 13 …
	sums      int      // into s, after the numbers: in registers 4 and up, 8 and up
	body      func(a *asm, p passAt)
}

// passAt is a vector of a pass.
type passAt struct {
	at    func(i int) string // where slice i lies
	sum   [2]reg
	store func(from reg) // to the first slice
}

const unrolled = 4

var passPointers = []string{"DI", "SI", "DX", "R8", "R9", "R10", "R11"}

func init() {
	for _, p := range passes() {
		special["fused"] = append(special["fused"], function{
			signature: "(" + strings.Join(p.slices, ", ") + ", s unsafe.Pointer, n int)",
			args:      8 * (len(p.slices) + 2), name: p.name, doc: p.doc + ", for n a multiple of the lanes",
			write: p.write,
		})
	}
}

func (p pass) write(a *asm) {
	if a.arm {
		p.writeNEON(a)
		return
	}
	for i, s := range p.slices {
		a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", s, 8*i), passPointers[i])
	}
	a.op("MOVQ", fmt.Sprintf("s+%d(FP)", 8*len(p.slices)), "R12")
	a.op("MOVQ", fmt.Sprintf("n+%d(FP)", 8*len(p.slices)+8), "CX")
	for i := range p.numbers {
		a.op("VBROADCASTSS", fmt.Sprintf("%d(R12)", 4*i), reg(12+i))
	}
	for i := range p.sums {
		for u := range unrolled {
			r := reg(4 + 4*i + u)
			a.op("VPXOR", r, r, r)
		}
	}
	a.op("XORQ", "AX", "AX")
	a.op("MOVQ", "CX", "BX")
	a.op("SUBQ", unrolled*a.lanes(), "BX")
	a.label("many")
	a.op("CMPQ", "AX", "BX")
	a.op("JGT", "one")
	for u := range unrolled {
		p.body(a, p.vector(a, u))
	}
	a.op("ADDQ", unrolled*a.lanes(), "AX")
	a.op("JMP", "many")
	a.label("one")
	a.op("CMPQ", "AX", "CX")
	a.op("JGE", "done")
	p.body(a, p.vector(a, 0))
	a.op("ADDQ", a.lanes(), "AX")
	a.op("JMP", "one")
	a.label("done")
	for i := range p.sums {
		first := reg(4 + 4*i)
		for u := 1; u < unrolled; u++ {
			a.op("VADDPS", first+reg(u), first, first)
		}
		across(a, "VADDPS", first, 0)
		a.op("VMOVSS", fmt.Sprintf("X%d", first), fmt.Sprintf("%d(R12)", 4*(p.numbers+i)))
	}
	a.op("VZEROUPPER")
	a.op("RET")
}

func (p pass) vector(a *asm, u int) passAt {
	at := func(i int) string {
		size := 4
		if p.half && i == 0 {
			size = 2
		}
		return fmt.Sprintf("%d(%s)(AX*%d)", u*size*a.lanes(), passPointers[i], size)
	}
	return passAt{at: at, sum: [2]reg{reg(4 + u), reg(8 + u)}, store: func(from reg) {
		if !p.half {
			a.op("VMOVUPS", from, at(0))
			return
		}
		a.toBF16(from, 2, 3)
		a.op("VPSRLD", 16, from, from)
		if a.wide {
			a.op("VPMOVDW", from, fmt.Sprintf("Y%d", from))
			a.op("VMOVDQU", fmt.Sprintf("Y%d", from), at(0))
			return
		}
		a.op("VPACKUSDW", from, from, from)
		a.op("VPERMQ", 0xd8, from, from)
		a.op("VMOVDQU", fmt.Sprintf("X%d", from), at(0))
	}}
}

// exp2 leaves 2 to the power of register 0 in register 0, and 0 below -126,
// where results are subnormal, and changes 1 to 3 and mask 1. Fractions of
// ±½ go through a polynomial within 2⁻²⁴ (Remez).
func exp2(a *asm) {
	a.cmp(lt, 0, num(-126), 1)
	a.op("VMOVUPS", num(129), reg(1))
	a.op("VMINPS", reg(0), reg(1), reg(0)) // a NaN stays, as the second operand
	a.round(0, 0, 1)
	a.op("VSUBPS", reg(1), reg(0), reg(0))
	horner(a, 0, 2, 1.5403530393381606e-4, 1.3333558146428443e-3, 9.6181291076284771e-3, 5.5504108664821580e-2, 2.4022650695910071e-1, 6.9314718055994531e-1, 1)
	if a.wide {
		a.op("VSCALEFPS", reg(1), reg(2), reg(0))
	} else {
		a.op("VCVTPS2DQ", reg(1), reg(1))
		a.op("VMOVUPS", reg(2), reg(0))
		power(a, 0)
	}
	a.blend(1, 0, bits(0), 0)
}

func passes() []pass {
	exponential := func(a *asm, p passAt) {
		a.op("VMOVUPS", p.at(1), reg(0))
		a.op("VFMADD213PS", reg(13), reg(12), reg(0))
		exp2(a)
		a.op("VADDPS", reg(0), p.sum[0], p.sum[0])
		p.store(0)
	}
	return []pass{
		{name: "exp2Sum", doc: "dst[i] = 2 to the power of x[i]*s[0] + s[1], s[2] = Σ dst[i]", slices: []string{"dst", "x"}, numbers: 2, sums: 1, body: exponential},
		{name: "exp2SumAhead", doc: "exp2Sum, asking for the same of ahead", slices: []string{"dst", "x", "ahead"}, numbers: 2, sums: 1, body: func(a *asm, p passAt) {
			a.op("PREFETCHT0", p.at(2))
			exponential(a, p)
		}},
		{name: "exp2SumBF16", doc: "dst[i] = bfloat16 of 2 to the power of x[i]*s[0] + s[1], s[2] = Σ before rounding", slices: []string{"dst", "x"}, half: true, numbers: 2, sums: 1, body: exponential},
		{name: "deviations", doc: "s[1] = Σ x[i]-s[0], s[2] = Σ (x[i]-s[0])²", slices: []string{"x"}, numbers: 1, sums: 2, body: func(a *asm, p passAt) {
			a.op("VMOVUPS", p.at(0), reg(0))
			a.op("VSUBPS", reg(12), reg(0), reg(0))
			a.op("VADDPS", reg(0), p.sum[0], p.sum[0])
			a.op("VFMADD231PS", reg(0), reg(0), p.sum[1])
		}},
		{name: "products", doc: "s[0] = Σ x[i]*y[i]", slices: []string{"x", "y"}, sums: 1, body: func(a *asm, p passAt) {
			a.op("VMOVUPS", p.at(0), reg(0))
			a.op("VFMADD231PS", p.at(1), reg(0), p.sum[0])
		}},
		{name: "lessRow", doc: "dst[i] = x[i] - s[0] - s[1]", slices: []string{"dst", "x"}, numbers: 2, body: func(a *asm, p passAt) {
			a.op("VMOVUPS", p.at(1), reg(0))
			a.op("VSUBPS", reg(12), reg(0), reg(0))
			a.op("VSUBPS", reg(13), reg(0), reg(0))
			p.store(0)
		}},
		{name: "normalizeRow", doc: "dst[i] = (x[i]-s[0])*s[1]*gain[i] + shift[i], asking for the same of ahead", slices: []string{"dst", "x", "gain", "shift", "ahead"}, numbers: 2, body: func(a *asm, p passAt) {
			a.op("PREFETCHT0", p.at(4))
			a.op("VMOVUPS", p.at(1), reg(0))
			a.op("VSUBPS", reg(12), reg(0), reg(0))
			a.op("VMULPS", reg(13), reg(0), reg(0))
			a.op("VMOVUPS", p.at(2), reg(1))
			a.op("VFMADD213PS", p.at(3), reg(1), reg(0))
			p.store(0)
		}},
		{name: "gradRowSums", doc: "h = (x[i]-s[0])*s[1]: dgain[i] += grad[i]*h, dshift[i] += grad[i], s[2] = Σ grad[i]*gain[i], s[3] = Σ grad[i]*gain[i]*h",
			slices: []string{"dgain", "dshift", "x", "grad", "gain"}, numbers: 2, sums: 2, body: func(a *asm, p passAt) {
				a.op("VMOVUPS", p.at(2), reg(0))
				a.op("VSUBPS", reg(12), reg(0), reg(0))
				a.op("VMULPS", reg(13), reg(0), reg(0))
				a.op("VMOVUPS", p.at(3), reg(1))
				a.op("VMOVUPS", p.at(0), reg(2))
				a.op("VFMADD231PS", reg(1), reg(0), reg(2))
				a.op("VMOVUPS", reg(2), p.at(0))
				a.op("VADDPS", p.at(1), reg(1), reg(2))
				a.op("VMOVUPS", reg(2), p.at(1))
				a.op("VMULPS", p.at(4), reg(1), reg(1))
				a.op("VADDPS", reg(1), p.sum[0], p.sum[0])
				a.op("VFMADD231PS", reg(0), reg(1), p.sum[1])
			}},
		// These two are chains of element-wise operations: every one rounds.
		{name: "affine", doc: "dst[i] = (a[i]-b[i])*c[i] + d[i]", slices: []string{"dst", "a", "b", "c", "d"}, body: func(a *asm, p passAt) {
			a.op("VMOVUPS", p.at(1), reg(0))
			a.op("VSUBPS", p.at(2), reg(0), reg(0))
			a.op("VMULPS", p.at(3), reg(0), reg(0))
			a.op("VADDPS", p.at(4), reg(0), reg(0))
			p.store(0)
		}},
		{name: "affineSum", doc: "dst[i] = a[i]*b[i] + (c[i]-d[i])*e[i] + f[i]", slices: []string{"dst", "a", "b", "c", "d", "e", "f"}, body: func(a *asm, p passAt) {
			a.op("VMOVUPS", p.at(3), reg(0))
			a.op("VSUBPS", p.at(4), reg(0), reg(0))
			a.op("VMULPS", p.at(5), reg(0), reg(0))
			a.op("VMOVUPS", p.at(1), reg(1))
			a.op("VMULPS", p.at(2), reg(1), reg(1))
			a.op("VADDPS", reg(1), reg(0), reg(0))
			a.op("VADDPS", p.at(6), reg(0), reg(0))
			p.store(0)
		}},
		{name: "gradRow", doc: "dst[i] = grad[i]*gain[i]*s[1] + (x[i]-s[0])*s[2] + s[3]", slices: []string{"dst", "x", "grad", "gain"}, numbers: 4, body: func(a *asm, p passAt) {
			a.op("VMOVUPS", p.at(1), reg(0))
			a.op("VSUBPS", reg(12), reg(0), reg(0))
			a.op("VFMADD213PS", reg(15), reg(14), reg(0))
			a.op("VMOVUPS", p.at(2), reg(1))
			a.op("VMULPS", p.at(3), reg(1), reg(1))
			a.op("VFMADD231PS", reg(13), reg(1), reg(0))
			p.store(0)
		}},
	}
}
