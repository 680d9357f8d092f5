package vecgen

import (
	"fmt"
	"strings"
)

// function is one that is no loop over the elements of slices.
type function struct {
	params string
	args   int
	write  func(a *asm)
	name   string
	doc    string
}

// special are these functions by file of the output.
var special = map[string][]function{"columns": {
	{columnParams, 40, sumColumns(f32), "sumColumns", columnDoc},
	{columnParams, 40, sumColumns(f16), "sumColumnsF16", columnDoc},
	{columnParams, 40, sumColumns(bf16), "sumColumnsBF16", columnDoc},
}, "special": {
	{"dst unsafe.Pointer, n int, first, k0, k1, c1, c2, c3 uint32", 40, philox, "philox",
		"blocks first to first+n-1 of Philox4x32-10, as numbers in [0, 1); n is a multiple of 16"},
	{"dst, src unsafe.Pointer, to, from int", 32, transpose, "transpose8",
		"dst[i*to+j] = src[j*from+i] for i, j < 8, elements of four bytes"},
	{"dst, src unsafe.Pointer, to, from int", 32, transpose16, "transpose8Half",
		"dst[i*to+j] = src[j*from+i] for i, j < 8, elements of two bytes"},
	{"n int", 8, pause, "pause", "waits for n times the processor's pause in a loop"},
}, "rows": {
	{rowParams, 32, softmaxRows(false), "softmaxRows", "for rows r, dst[r] = softmax(x[r]) of n elements, at most a vector"},
	{rowParams, 32, softmaxRows(true), "logSoftmaxRows", "for rows r, dst[r] = log(softmax(x[r])) of n elements, at most a vector"},
	{argParams, 36, argRows, "argRows", "for rows r, dst[r] = argmax(x[r] xor sign) of n elements, at most a vector"},
}}

const (
	columnParams = "acc, x unsafe.Pointer, n, rows, stride int"
	columnDoc    = "for rows r and columns i < n, acc[i] += float64(x[r*stride+i])"
)

// sumColumns goes down the rows for 16 (8) columns at a time, their sums in
// registers, and then for each of the columns left.
func sumColumns(from elem) func(a *asm) {
	return func(a *asm) {
		a.op("MOVQ", "acc+0(FP)", "DI")
		a.op("MOVQ", "x+8(FP)", "SI")
		a.op("MOVQ", "n+16(FP)", "CX")
		a.op("MOVQ", "rows+24(FP)", "DX")
		a.op("MOVQ", "stride+32(FP)", "R8")
		a.op("IMULQ", from.size(), "R8")
		half := 4 * a.lanes() // bytes of half the sums
		high := fmt.Sprintf("%d(DI)", half)
		a.label("columns")
		a.op("CMPQ", "CX", a.lanes())
		a.op("JLT", "rest")
		a.op("VMOVUPD", "(DI)", reg(4))
		a.op("VMOVUPD", high, reg(5))
		a.op("MOVQ", "SI", "R9")
		a.op("MOVQ", "DX", "R10")
		a.label("rows")
		switch from {
		case f32:
			a.op("VCVTPS2PD", "(R9)", reg(1))
			a.op("VCVTPS2PD", fmt.Sprintf("%d(R9)", 2*a.lanes()), reg(2))
		case f16:
			a.op("VCVTPH2PS", "(R9)", reg(0))
			widen(a)
		case bf16:
			a.op("VPMOVZXWD", "(R9)", reg(0))
			a.op("VPSLLD", 16, reg(0), reg(0))
			widen(a)
		}
		a.op("VADDPD", reg(1), reg(4), reg(4))
		a.op("VADDPD", reg(2), reg(5), reg(5))
		a.op("ADDQ", "R8", "R9")
		a.op("DECQ", "R10")
		a.op("JNZ", "rows")
		a.op("VMOVUPD", reg(4), "(DI)")
		a.op("VMOVUPD", reg(5), high)
		a.op("ADDQ", 8*a.lanes(), "DI")
		a.op("ADDQ", from.size()*a.lanes(), "SI")
		a.op("SUBQ", a.lanes(), "CX")
		a.op("JMP", "columns")
		a.label("rest")
		a.op("TESTQ", "CX", "CX")
		a.op("JZ", "done")
		a.label("column")
		a.op("VMOVSD", "(DI)", "X4")
		a.op("MOVQ", "SI", "R9")
		a.op("MOVQ", "DX", "R10")
		a.label("row")
		switch from {
		case f32:
			a.op("MOVL", "(R9)", "R11")
		case f16, bf16:
			a.op("MOVWLZX", "(R9)", "R11")
		}
		if from == bf16 {
			a.op("SHLL", 16, "R11")
		}
		a.op("VMOVD", "R11", "X1")
		if from == f16 {
			a.op("VCVTPH2PS", "X1", "X1")
		}
		a.op("VCVTSS2SD", "X1", "X1", "X1")
		a.op("VADDSD", "X1", "X4", "X4")
		a.op("ADDQ", "R8", "R9")
		a.op("DECQ", "R10")
		a.op("JNZ", "row")
		a.op("VMOVSD", "X4", "(DI)")
		a.op("ADDQ", 8, "DI")
		a.op("ADDQ", from.size(), "SI")
		a.op("DECQ", "CX")
		a.op("JNZ", "column")
		a.label("done")
		a.op("VZEROUPPER")
		a.op("RET")
	}
}

// philox computes one block in each lane. Lane 4l+j has block number 4j+l (2j+l
// in AVX2), so that transposing the four words of the blocks within 128 bits
// puts them in order.
func philox(a *asm) {
	a.op("MOVQ", "dst+0(FP)", "DI")
	a.op("MOVQ", "n+8(FP)", "CX")
	a.op("VBROADCASTSS", "first+16(FP)", reg(7))
	lanes := make([]uint32, a.lanes())
	for i := range lanes {
		lanes[i] = uint32(i%4*(a.lanes()/4) + i/4)
	}
	a.op("VPADDD", a.vector(lanes), reg(7), reg(7))
	a.label("blocks")
	a.op("VMOVUPS", reg(7), reg(0))
	a.op("VBROADCASTSS", "c1+28(FP)", reg(1))
	a.op("VBROADCASTSS", "c2+32(FP)", reg(2))
	a.op("VBROADCASTSS", "c3+36(FP)", reg(3))
	a.op("VBROADCASTSS", "k0+20(FP)", reg(4))
	a.op("VBROADCASTSS", "k1+24(FP)", reg(5))
	a.op("MOVL", 10, "R9")
	a.label("rounds")
	// high gets the upper halves of the products of x with m, low the lower.
	multiply := func(x reg, m bits, high, low reg) {
		a.op("VMOVUPS", m, reg(6))
		a.op("VPSRLQ", 32, x, reg(10))
		a.op("VPMULUDQ", reg(6), x, reg(11))
		a.op("VPMULUDQ", reg(6), reg(10), reg(10))
		a.op("VPSRLQ", 32, reg(11), high)
		a.op("VPSLLQ", 32, reg(10), low)
		if a.wide {
			a.op("VMOVDQA32", reg(10), "K1", high)
			a.op("VMOVDQA32", reg(11), "K2", low)
			return
		}
		a.op("VPBLENDD", 0xaa, reg(10), high, high)
		a.op("VPBLENDD", 0x55, reg(11), low, low)
	}
	if a.wide {
		a.op("MOVL", 0xaaaa, "R10")
		a.op("KMOVW", "R10", "K1")
		a.op("KNOTW", "K1", "K2")
	}
	multiply(0, 0xD2511F53, 8, 0) // of c0: upper half in 8, lower in 0
	multiply(2, 0xCD9E8D57, 9, 2)
	a.op("VPXOR", reg(9), reg(1), reg(9))
	a.op("VPXOR", reg(4), reg(9), reg(9)) // new c0
	a.op("VPXOR", reg(8), reg(3), reg(8))
	a.op("VPXOR", reg(5), reg(8), reg(8)) // new c2
	a.op("VMOVUPS", reg(2), reg(1))
	a.op("VMOVUPS", reg(0), reg(3))
	a.op("VMOVUPS", reg(9), reg(0))
	a.op("VMOVUPS", reg(8), reg(2))
	a.op("VPADDD", bits(0x9E3779B9), reg(4), reg(4))
	a.op("VPADDD", bits(0xBB67AE85), reg(5), reg(5))
	a.op("DECL", "R9")
	a.op("JNZ", "rounds")
	a.op("VPUNPCKLDQ", reg(1), reg(0), reg(4))
	a.op("VPUNPCKHDQ", reg(1), reg(0), reg(5))
	a.op("VPUNPCKLDQ", reg(3), reg(2), reg(6))
	a.op("VPUNPCKHDQ", reg(3), reg(2), reg(8))
	a.op("VPUNPCKLQDQ", reg(6), reg(4), reg(0))
	a.op("VPUNPCKHQDQ", reg(6), reg(4), reg(1))
	a.op("VPUNPCKLQDQ", reg(8), reg(5), reg(2))
	a.op("VPUNPCKHQDQ", reg(8), reg(5), reg(3))
	for i := range reg(4) {
		a.op("VPSRLD", 8, i, i)
		a.op("VCVTDQ2PS", i, i)
		a.op("VMULPS", num(0x1p-24), i, i)
		a.op("VMOVUPS", i, fmt.Sprintf("%d(DI)", int(i)*4*a.lanes()))
	}
	a.op("VPADDD", bits(a.lanes()), reg(7), reg(7))
	a.op("ADDQ", 16*a.lanes(), "DI")
	a.op("SUBQ", a.lanes(), "CX")
	a.op("JNZ", "blocks")
	a.op("VZEROUPPER")
	a.op("RET")
}

// transpose moves a square of 8 by 8; both instruction sets use 256 bits.
func transpose(a *asm) {
	a.op("MOVQ", "dst+0(FP)", "DI")
	a.op("MOVQ", "src+8(FP)", "SI")
	a.op("MOVQ", "to+16(FP)", "R8")
	a.op("MOVQ", "from+24(FP)", "R9")
	a.op("SHLQ", 2, "R8")
	a.op("SHLQ", 2, "R9")
	y := func(i int) string { return fmt.Sprintf("Y%d", i) }
	// Rows i and i+4 share a register, so that no lane need be crossed later.
	a.op("LEAQ", "(SI)(R9*4)", "DX")
	for half := range 2 { // columns 0 to 3, then 4 to 7
		for i := range 4 {
			a.op("VMOVUPS", fmt.Sprintf("%d(SI)", 16*half), fmt.Sprintf("X%d", i))
			a.op("VINSERTF128", 1, fmt.Sprintf("%d(DX)", 16*half), y(i), y(i))
			if i < 3 {
				a.op("ADDQ", "R9", "SI")
				a.op("ADDQ", "R9", "DX")
			}
		}
		a.op("VUNPCKLPS", y(1), y(0), y(4))
		a.op("VUNPCKHPS", y(1), y(0), y(5))
		a.op("VUNPCKLPS", y(3), y(2), y(6))
		a.op("VUNPCKHPS", y(3), y(2), y(7))
		for i, from := range []int{4, 4, 5, 5} {
			name := []string{"VUNPCKLPD", "VUNPCKHPD"}[i%2]
			a.op(name, y(from+2), y(from), y(i))
			a.op("VMOVUPS", y(i), "(DI)")
			a.op("ADDQ", "R8", "DI")
		}
		if half == 0 {
			a.op("LEAQ", "(R9)(R9*2)", "R10")
			a.op("SUBQ", "R10", "SI")
			a.op("SUBQ", "R10", "DX")
		}
	}
	a.op("VZEROUPPER")
	a.op("RET")
}

func pause(a *asm) {
	a.op("MOVQ", "n+0(FP)", "CX")
	a.label("again")
	a.op("PAUSE")
	a.op("DECQ", "CX")
	a.op("JNZ", "again")
	a.op("RET")
}

// vector returns the operand of a vector with the given lanes.
func (a *asm) vector(lanes []uint32) string {
	name := "lanes" + strings.Trim(strings.ReplaceAll(fmt.Sprint(lanes), " ", "_"), "[]")
	var text strings.Builder
	for i, x := range lanes {
		fmt.Fprintf(&text, "DATA %s<>+%d(SB)/4, $%d\n", name, 4*i, x)
	}
	fmt.Fprintf(&text, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", name, 4*len(lanes))
	a.vectors[name] = text.String()
	return name + "<>(SB)"
}
