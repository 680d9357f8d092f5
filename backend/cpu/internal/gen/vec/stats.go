package vec

import (
	"fmt"
	"slices"
)

// Kernels of this file compare a value with its reference. Results that are lanes of vectors,
// which the caller combines, are 64 bytes apart.

func init() {
	special["stats"] = []function{
		{"(results, x, y unsafe.Pointer, n int)", 32, pairSums, "pairSums", "results are lanes of Σ(x[i]-y[i])², Σx[i]², Σy[i]², Σx[i]·y[i] and the largest |x[i]-y[i]|, in float64; n is a multiple of 16", false},
		{"(results, fields, x unsafe.Pointer, n int)", 32, magnitudes, "magnitudes", "results are lanes of the largest |x[i]| and the smallest that is not 0 less 1, as integers; fields are the exponent fields of x in any order; n is a multiple of 64", false},
		{"(results, fields unsafe.Pointer, n, first int)", 32, countFields, "countFields", "number k of results is how many of fields are first+k, for k < 8, as int64; n is a multiple of 64 of at most 4032", false},
		{"(results, fields unsafe.Pointer, n, first int)", 32, countFieldsWide, "countFieldsWide", "number k of results is how many of fields are first+k, for k < 32, as int64; n is a multiple of 64 of at most 1984; requires GFNI, VBMI and BITALG", true},
	}
}

// pairs writes a loop over vectors of x and y. Step gets the address of an element of each,
// with an offset in bytes.
func (a *emitter) pairs(begin func(), step func(address func(argument, bytes int) string), end func()) {
	if a.arm {
		a.framed(func() { a.arguments("results", "x", "y", "n") }, func() {
			begin()
			a.label("loop")
			step(func(argument, bytes int) string { return fmt.Sprintf("%d(R%d)", bytes, 1+argument) })
			a.line("ADD $16, R1")
			a.line("ADD $16, R2")
			a.line("SUBS $4, R3")
			a.line("BNE loop")
			end()
			a.line("RET")
		})
		return
	}
	for i, to := range []string{"DI", "SI", "DX", "CX"} {
		a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", []string{"results", "x", "y", "n"}[i], 8*i), to)
	}
	begin()
	a.op("XORQ", "AX", "AX")
	a.label("loop")
	step(func(argument, bytes int) string {
		return fmt.Sprintf("%d(%s)(AX*4)", bytes, []string{"SI", "DX"}[argument])
	})
	a.op("ADDQ", a.lanes(), "AX")
	a.op("CMPQ", "AX", "CX")
	a.op("JLT", "loop")
	end()
	a.end()
}

// result returns the address of a result.
func (a *emitter) result(i int) string {
	if a.arm {
		return fmt.Sprintf("%d(R0)", 64*i)
	}
	return fmt.Sprintf("%d(DI)", 64*i)
}

// pairSums keeps two registers for each result: of the lower halves of vectors and of
// the upper ones.
func pairSums(a *emitter) {
	const results, unsigned, first = 5, reg(5), reg(6)
	half := func(low reg, x, y reg) {
		a.block("ADD_PAIRS", func() {
			a.subDouble(y, x, 4)
			a.op("VFMADD231PD", reg(4), reg(4), low)
			a.op("VPAND", unsigned, reg(4), reg(4))
			a.op("VFMADD231PD", x, x, low+2)
			a.op("VFMADD231PD", y, y, low+4)
			a.op("VFMADD231PD", x, y, low+6)
			a.maxDouble(4, low+8)
		}, "x", x, "y", y, "errors", low, "squaresX", low+2, "squaresY", low+4, "products", low+6, "largest", low+8)
	}
	a.pairs(func() {
		for i := range reg(2 * results) {
			a.op("VPXOR", first+i, first+i, first+i)
		}
		if a.arm {
			a.line("MOVD $0x7fffffffffffffff, R4")
			a.line("VDUP R4, V%d.D2", unsigned)
		} else {
			a.op("MOVQ", "$0x7fffffffffffffff", "AX")
			a.line("VMOVQ AX, X%d", unsigned)
			a.op("VPBROADCASTQ", fmt.Sprintf("X%d", unsigned), unsigned)
		}
	}, func(address func(argument, bytes int) string) {
		for argument := range 2 {
			low := reg(2 * argument)
			if a.arm {
				a.line("FMOVQ %s, F4", address(argument, 0))
				a.ins("FCVTL.2D", int(low), 4)
				a.ins("FCVTL2.2D", int(low)+1, 4)
				continue
			}
			a.op("VCVTPS2PD", address(argument, 0), low)
			a.op("VCVTPS2PD", address(argument, 2*a.lanes()), low+1)
		}
		half(first, 0, 2)
		half(first+1, 1, 3)
	}, func() {
		for i := range results {
			low := first + reg(2*i)
			if i == results-1 {
				a.maxDouble(low+1, low)
			} else {
				a.op("VADDPD", low+1, low, low)
			}
			a.op("VMOVUPS", low, a.result(i))
		}
	})
}

// subDouble is to = x-y of float64.
func (a *emitter) subDouble(y, x, to reg) {
	if a.arm {
		a.ins("FSUB.2D", int(to), int(x), int(y))
		return
	}
	a.op("VSUBPD", y, x, to)
}

// maxDouble is to = max(x, to) of float64 that are not NaN.
func (a *emitter) maxDouble(x, to reg) {
	if a.arm {
		a.ins("FCMGT.2D", scratch, int(x), int(to))
		a.ins("BIT", int(to), int(x), scratch)
		return
	}
	a.op("VMAXPD", x, to, to)
}

// magnitudes takes four vectors at a time. As integers, magnitudes have the order of the
// numbers, with infinities and NaNs beyond them; 0-1 is the largest of all.
func magnitudes(a *emitter) {
	const largest, smallest, less = reg(8), reg(9), reg(4)
	if a.arm {
		a.framed(func() { a.arguments("results", "fields", "x", "n") }, func() {
			a.op("VPXOR", largest, largest, largest)
			a.op("VMOVUPS", bits(^uint32(0)), smallest)
			a.label("loop")
			a.line("VLD1.P 64(R2), [V0.S4, V1.S4, V2.S4, V3.S4]")
			for i := range reg(4) {
				a.op("VPAND", bits(^signBit), i, i)
				a.line("VUMAX V%d.S4, V%d.S4, V%[2]d.S4", i, largest)
				a.op("VPADDD", bits(^uint32(0)), i, less)
				a.line("VUMIN V%d.S4, V%d.S4, V%[2]d.S4", less, smallest)
				a.op("VPSRLD", 23, i, i)
			}
			a.line("VUZP1 V1.H8, V0.H8, V0.H8")
			a.line("VUZP1 V3.H8, V2.H8, V2.H8")
			a.line("VUZP1 V2.B16, V0.B16, V0.B16")
			a.line("VST1.P [V0.B16], 16(R1)")
			a.line("SUBS $16, R3")
			a.line("BNE loop")
			a.op("VMOVUPS", largest, a.result(0))
			a.op("VMOVUPS", smallest, a.result(1))
			a.line("RET")
		})
		return
	}
	a.statsArguments("results", "fields", "x", "n")
	a.op("VPXOR", largest, largest, largest)
	a.op("VMOVUPS", bits(^uint32(0)), smallest)
	a.op("XORQ", "AX", "AX")
	a.label("loop")
	for i := range reg(4) {
		a.block("MAGNITUDE", func() {
			a.op("VMOVUPS", fmt.Sprintf("%d(DX)(AX*4)", 4*a.lanes()*int(i)), i)
			a.op("VPAND", bits(^signBit), i, i)
			a.op("VPMAXUD", i, largest, largest)
			a.op("VPADDD", bits(^uint32(0)), i, less)
			a.op("VPMINUD", less, smallest, smallest)
			a.op("VPSRLD", 23, i, i)
		}, "x", i)
	}
	a.op("VPACKUSDW", reg(1), reg(0), reg(0))
	a.op("VPACKUSDW", reg(3), reg(2), reg(2))
	a.op("VPACKUSWB", reg(2), reg(0), reg(0))
	a.op("VMOVUPS", reg(0), "(SI)(AX*1)")
	a.op("ADDQ", 4*a.lanes(), "AX")
	a.op("CMPQ", "AX", "CX")
	a.op("JLT", "loop")
	a.op("VMOVUPS", largest, a.result(0))
	a.op("VMOVUPS", smallest, a.result(1))
	a.end()
}

// statsArguments loads four arguments.
func (a *emitter) statsArguments(names ...string) {
	for i, to := range []string{"DI", "SI", "DX", "CX"} {
		a.op("MOVQ", fmt.Sprintf("%s+%d(FP)", names[i], 8*i), to)
	}
}

// countFields compares bytes with eight numbers and subtracts the masks, which are -1, from
// bytes. AVX-512 uses it, too, because a mask in a vector register is cheaper here.
func countFields(a *emitter) {
	if a.arm {
		a.arguments("results", "fields", "n", "first")
		a.line("VDUP R3, V8.B16")
		a.line("MOVD $1, R4")
		a.line("VDUP R4, V10.B16")
		for k := range 8 {
			a.line("VEOR V%d.B16, V%[1]d.B16, V%[1]d.B16", k)
			a.line("VADD V%d.B16, V%d.B16, V%d.B16", 10, 16+k-1, 16+k)
			if k == 0 {
				a.line("VMOV V8.B16, V16.B16")
			}
		}
		a.label("loop")
		a.line("VLD1.P 16(R1), [V8.B16]")
		for k := range 8 {
			a.line("VCMEQ V%d.B16, V8.B16, V9.B16", 16+k)
			a.line("VSUB V9.B16, V%d.B16, V%[1]d.B16", k)
		}
		a.line("SUBS $16, R2")
		a.line("BNE loop")
		for k := range 8 {
			a.line("VUADDLV V%d.B16, V%[1]d", k)
			a.line("VMOV V%d.H[0], R4", k)
			a.line("MOVD R4, %d(R0)", 8*k)
		}
		a.line("RET")
		return
	}
	a.statsArguments("results", "fields", "n", "first")
	a.line("VMOVQ CX, X9")
	a.line("VPBROADCASTB X9, Y9")
	for k := range 8 {
		a.line("VPXOR Y%d, Y%[1]d, Y%[1]d", k)
	}
	a.op("XORQ", "AX", "AX")
	a.label("loop")
	a.line("VMOVDQU (SI)(AX*1), Y8")
	a.line("VPSUBB Y9, Y8, Y8")
	for k := range 8 {
		to := 10 + k%4
		number := a.named(fmt.Sprintf("bytes%d", k), slices.Repeat([]uint32{uint32(k) * 0x01010101}, 8))
		a.block("COUNT_FIELD", func() {
			a.line("VPCMPEQB %s, Y8, Y%d", number, to)
			a.line("VPSUBB Y%d, Y%d, Y%[2]d", to, k)
		}, "number", number, "mask", fmt.Sprintf("Y%d", to), "count", fmt.Sprintf("Y%d", k))
	}
	a.op("ADDQ", 32, "AX")
	a.op("CMPQ", "AX", "DX")
	a.op("JLT", "loop")
	a.line("VPXOR Y9, Y9, Y9")
	for k := range 8 {
		a.block("STORE_COUNT", func() {
			a.line("VPSADBW Y9, Y%d, Y%[1]d", k)
			a.line("VEXTRACTI128 $1, Y%d, X8", k)
			a.line("VPADDQ X8, X%d, X8", k)
			a.line("VPSRLDQ $8, X8, X10")
			a.line("VPADDQ X10, X8, X8")
			a.line("VMOVQ X8, %d(DI)", 8*k)
		}, "x", fmt.Sprintf("X%d", k), "y", fmt.Sprintf("Y%d", k))
	}
	a.end()
}

// countFieldsWide converts each byte to a vector of bits, one for each number: four bytes at a
// time, by tables. Eight bytes are a matrix of bits; its transpose has a byte for each number,
// and the bits of these bytes are counted.
func countFieldsWide(a *emitter) {
	const groups, bits, first, identity, last, at = 4, reg(4), reg(8), reg(9), reg(10), reg(11)
	a.statsArguments("results", "fields", "n", "first")
	a.op("VPBROADCASTB", "CX", first)
	a.op("MOVQ", "$0x8040201008040201", "BX")
	a.op("VPBROADCASTQ", "BX", identity)
	a.op("MOVL", 63, "CX")
	a.op("VPBROADCASTB", "CX", last)
	const sums, tables = reg(0), reg(16)
	for k := range reg(groups) {
		a.op("VPXOR", sums+k, sums+k, sums+k)
		a.op("MOVL", 1<<k, "CX")
		a.op("KMOVW", "CX", "K1")
		a.op("VPBROADCASTQ.Z", "BX", "K1", tables+k) // 8k to 8k+7 are 1 to 128, others 0
	}
	a.op("XORQ", "AX", "AX")
	a.label("loop")
	a.op("VMOVDQU64", "(SI)(AX*1)", at)
	a.op("VPSUBB", first, at, at)
	a.op("VPMINUB", last, at, at)
	for k := range reg(groups) {
		a.op("VPERMB", tables+k, at, bits+k)
	}
	for k := range reg(groups) {
		a.op("VGF2P8AFFINEQB", 0, bits+k, identity, bits+k)
	}
	for k := range reg(groups) {
		a.op("VPOPCNTB", bits+k, bits+k)
	}
	for k := range reg(groups) {
		a.op("VPADDB", bits+k, sums+k, sums+k)
	}
	a.op("ADDQ", 64, "AX")
	a.op("CMPQ", "AX", "DX")
	a.op("JLT", "loop")
	var transpose []uint32
	for lane := range uint32(16) {
		transpose = append(transpose, 0x18100800+lane/2*0x01010101+lane%2*0x20202020)
	}
	a.op("VMOVDQU64", a.named("transpose", transpose), last)
	a.op("VPXOR", first, first, first)
	for k := range reg(groups) {
		a.op("VPERMB", sums+k, last, sums+k)
		a.op("VPSADBW", first, sums+k, sums+k)
		a.op("VMOVUPS", sums+k, fmt.Sprintf("%d(DI)", 64*k))
	}
	a.end()
}
