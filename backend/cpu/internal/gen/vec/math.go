package vec

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
)

// The functions of this file work on float32 alone, with fused
// multiply-additions, and are within two units in the last place (normalCDF six,
// the density four); results below the normal range are rounded once more at most.

// horner evaluates a polynomial in x, its coefficients from the highest power
// down, into p.
func horner(a *emitter, x, p reg, coefficients ...num) {
	if a.arm {
		a.hornerNEON(x, p, coefficients)
		return
	}
	a.op("VMOVUPS", coefficients[0], p)
	for _, c := range coefficients[1:] {
		a.op("VFMADD213PS", c, x, p)
	}
}

// Adding shift to a small number leaves its nearest whole number in the low
// bits.
const (
	shift     = 12582912 // 1.5·2²³
	shiftBits = 0x4b400000
)

// reduce splits register 0 into n·ln 2 + r, |r| <= ln(2)/2: r in register 0, n as an integer
// in register 1 and as a float in 3, and eʳ-1 in register 2. It changes register 4. The
// coefficients are those of expf in Moshier's Cephes.
func reduce(a *emitter) {
	a.block("REDUCE_LN2", func() { reduceBody(a) })
}

func reduceBody(a *emitter) {
	a.op("VMOVUPS", num(1.44269504088896341), reg(1))
	a.op("VFMADD213PS", num(shift), reg(0), reg(1))
	a.op("VSUBPS", num(shift), reg(1), reg(3))
	a.op("VFNMADD231PS", num(0.693359375), reg(3), reg(0))
	a.op("VFMADD231PS", num(2.12194440e-4), reg(3), reg(0))
	a.op("VPSUBD", bits(shiftBits), reg(1), reg(1))
	horner(a, 0, 2, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
	a.op("VMULPS", reg(0), reg(0), reg(4))
	a.op("VFMADD213PS", reg(0), reg(4), reg(2))
}

// power computes 2ⁿ·x in x for the n of reduce. Where there is no instruction for it, it
// multiplies in two steps, because 2ⁿ may be out of range when the product is not. It changes
// registers 1 and 3.
func power(a *emitter, x reg) {
	a.block("SCALE_BY_POWER", func() { powerBody(a, x) }, "x", x)
}

func powerBody(a *emitter, x reg) {
	if a.wide {
		a.op("VSCALEFPS", reg(3), x, x)
		return
	}
	a.op("VPSRAD", 1, reg(1), reg(3))
	a.op("VPSUBD", reg(3), reg(1), reg(1))
	for _, r := range []reg{1, 3} {
		a.op("VPADDD", bits(127), r, r)
		a.op("VPSLLD", 23, r, r)
		a.op("VMULPS", r, x, x)
	}
}

// clamp clamps register 0 to low and high; a NaN stays, as the second
// operand.
func clamp(a *emitter, low, high num) {
	a.block("CLAMP", func() { clampBody(a, low, high) })
}

func clampBody(a *emitter, low, high num) {
	a.op("VMOVUPS", high, reg(1))
	a.op("VMINPS", reg(0), reg(1), reg(0))
	a.op("VMOVUPS", low, reg(1))
	a.op("VMAXPS", reg(0), reg(1), reg(0))
}

// exp computes e to the power of register 0 in register 0 and changes 1 to 4 and mask 1. Above
// 90 the result is infinite. Below -104 it is 0, which is blended in: a result that underflows
// takes the processor some hundred cycles, and masked attention has many.
func exp(a *emitter) {
	a.block("EXP_OF", func() { expBody(a) })
}

func expBody(a *emitter) {
	if a.wide {
		a.cmp(notLess, 0, num(-104), 1)
	} else {
		a.cmp(lt, 0, num(-104), 1)
		a.blend(1, 0, bits(0), 0)
	}
	a.op("VMOVUPS", num(90), reg(1))
	a.op("VMINPS", reg(0), reg(1), reg(0)) // a NaN stays, as the second operand
	reduce(a)
	a.op("VADDPS", num(1), reg(2), reg(0))
	if a.wide {
		a.op("VSCALEFPS.Z", reg(3), reg(0), mask(1), reg(0))
		return
	}
	power(a, 0)
	a.blend(1, 0, bits(0), 0)
}

// expm1 leaves eˣ-1 in register 0 for x there and -20 <= x <= 88.9, and changes
// 1 to 4: twice 2ⁿ⁻¹·(eʳ-1) + (2ⁿ⁻¹-½), of which nothing overflows before the
// result does.
func expm1(a *emitter) {
	a.block("EXPM1_OF", func() { expm1Body(a) })
}

func expm1Body(a *emitter) {
	reduce(a)
	a.op("VPADDD", bits(126), reg(1), reg(1))
	a.op("VPSLLD", 23, reg(1), reg(1))
	a.op("VSUBPS", num(0.5), reg(1), reg(0))
	a.op("VFMADD231PS", reg(1), reg(2), reg(0))
	a.op("VADDPS", reg(0), reg(0), reg(0))
}

// copySign gives register 0 the sign of from and changes from.
func copySign(a *emitter, from reg) {
	a.block("COPY_SIGN", func() { copySignBody(a, from) }, "from", from)
}

func copySignBody(a *emitter, from reg) {
	a.op("VPAND", bits(^signBit), reg(0), reg(0))
	a.op("VPAND", bits(signBit), from, from)
	a.op("VPOR", from, reg(0), reg(0))
}

// logOf leaves ln x in register 0 for normal positive x there, plus register 7
// times ln 2, and changes 1 to 4: x is 2ᵉ·(1+f) with 1+f in [⅔, 4/3). The
// polynomial is N. Juffa's (2014), within 0.86 units.
func logOf(a *emitter) {
	a.block("LOG_OF", func() { logOfBody(a) })
}

func logOfBody(a *emitter) {
	a.op("VPSUBD", bits(0x3f2aaaab), reg(0), reg(1))
	a.op("VPAND", bits(0xff800000), reg(1), reg(1))
	a.op("VPSUBD", reg(1), reg(0), reg(0))
	a.op("VCVTDQ2PS", reg(1), reg(1))
	a.op("VFMADD231PS", num(1.0/(1<<23)), reg(1), reg(7)) // e
	a.op("VSUBPS", num(1), reg(0), reg(0))                // f
	a.op("VMULPS", reg(0), reg(0), reg(1))
	horner(a, 1, 2, -0.130310059, -0.121483512, -0.166846126, -0.249996200)
	horner(a, 1, 3, 0.140869141, 0.139814854, 0.200120345)
	a.op("VFMADD231PS", reg(3), reg(0), reg(2))
	a.op("VFMADD213PS", num(0.333331972), reg(0), reg(2))
	a.op("VFMADD213PS", num(-0.5), reg(0), reg(2))
	a.op("VFMADD213PS", reg(0), reg(1), reg(2))
	a.op("VFMADD132PS", num(0.693147182), reg(2), reg(7))
	a.op("VMOVUPS", reg(7), reg(0))
}

func expKernels() []*kernel {
	return []*kernel{
		unary("exp", "dst[i] = e to the power of a[i]", f32, f32, exp),
		unary("expm1", "dst[i] = e to the power of a[i], minus 1", f32, f32, func(a *emitter) {
			a.op("VMOVUPS", reg(0), reg(7))
			clamp(a, -20, 88.9)
			expm1(a)
			copySign(a, 7) // of -0
		}),
	}
}

func tanhKernels() []*kernel {
	return []*kernel{
		unary("tanh", "dst[i] = tanh a[i]", f32, f32, tanh),
		unary("sigmoid", "dst[i] = 1/(1+e to the power of -a[i])", f32, f32, sigmoid),
	}
}

// tanh computes tanh x in register 0 for x there, and changes 1 to 4 and 7.
func tanh(a *emitter) {
	a.block("TANH_OF", func() { tanhBody(a) })
}

func tanhBody(a *emitter) {
	// t/(t+2) with t = e²ˣ-1: the quotient reduces rounding errors of t.
	a.op("VMOVUPS", reg(0), reg(7))
	a.op("VPAND", bits(^signBit), reg(0), reg(0))
	a.op("VMOVUPS", num(10), reg(1))
	a.op("VMINPS", reg(0), reg(1), reg(0))
	a.op("VADDPS", reg(0), reg(0), reg(0))
	expm1(a)
	a.op("VADDPS", num(2), reg(0), reg(1))
	quotient(a)
	copySign(a, 7)
}

// sigmoid leaves 1/(1+e⁻ˣ) in register 0 for x there, and changes 1 to 4, 7
// and masks 0 and 1: e to the power of -|x|/(1+e to the power of -|x|), or 1 less that.
func sigmoid(a *emitter) {
	a.block("SIGMOID_OF", func() { sigmoidBody(a) })
}

func sigmoidBody(a *emitter) {
	a.op("VMOVUPS", reg(0), reg(7))
	a.op("VPOR", bits(signBit), reg(0), reg(0))
	exp(a)
	a.op("VADDPS", num(1), reg(0), reg(1))
	quotient(a)
	a.op("VPXOR", reg(2), reg(2), reg(2))
	a.cmp(lt, 7, reg(2), 0)
	a.op("VMOVUPS", num(1), reg(1))
	a.op("VSUBPS", reg(0), reg(1), reg(1))
	a.blend(0, 1, reg(0), 0)
}

// quotient divides register 0 by register 1, between 1 and 2¹²⁶, and changes 2 and 3. With
// AVX-512 two steps by the reciprocal of 14 bits take less time than the instruction and give
// the same bits for the operands of this file: they were tried with each, and with each
// reciprocal within 2⁻¹⁴. Only powers of two divided by 2-2⁻²³ would differ, and their like, so
// that nothing divides 1.
func quotient(a *emitter) {
	a.block("QUOTIENT", func() { quotientBody(a) })
}

func quotientBody(a *emitter) {
	if !a.wide {
		a.op("VDIVPS", reg(1), reg(0), reg(0))
		return
	}
	a.op("VRCP14PS", reg(1), reg(2))
	a.op("VMOVUPS", num(1), reg(3))
	a.op("VFNMADD231PS", reg(2), reg(1), reg(3))
	a.op("VFMADD231PS", reg(3), reg(2), reg(2)) // Newton's step
	quotientBy(a)
}

// quotientBy divides register 0 by register 1, of which register 2 is about the reciprocal, with
// what that leaves of the dividend, and changes 3.
func quotientBy(a *emitter) {
	a.op("VMULPS", reg(2), reg(0), reg(3))
	a.op("VFNMADD231PS", reg(3), reg(1), reg(0))
	a.op("VFMADD213PS", reg(3), reg(2), reg(0))
}

func logKernels() []*kernel {
	return []*kernel{
		unary("log", "dst[i] = ln a[i]", f32, f32, func(a *emitter) {
			a.op("VMOVUPS", reg(0), reg(6))
			a.op("VPXOR", reg(7), reg(7), reg(7))
			// Subnormal numbers become normal.
			a.cmp(lt, 0, num(0x1p-126), 0)
			a.op("VMULPS", num(1<<23), reg(0), reg(1))
			a.blend(0, 0, reg(1), 0)
			a.blend(0, 7, num(-23), 7)
			logOf(a)
			logLimits(a, 0)
		}),
		unary("log1p", "dst[i] = ln(1+a[i])", f32, f32, func(a *emitter) {
			// The rounding error of u = 1+x, divided by u, is added.
			a.op("VMOVUPS", reg(0), reg(6))
			a.op("VADDPS", num(1), reg(0), reg(0))
			a.op("VSUBPS", num(1), reg(0), reg(1))
			a.op("VSUBPS", reg(1), reg(6), reg(1))
			a.op("VDIVPS", reg(0), reg(1), reg(5))
			a.op("VPXOR", reg(7), reg(7), reg(7))
			logOf(a)
			a.op("VADDPS", reg(5), reg(0), reg(0))
			a.op("VMOVUPS", reg(6), reg(5))
			copySign(a, 5) // of -0
			logLimits(a, -1)
		}),
	}
}

// logLimits sets register 0 to the special values of a logarithm, where register 6 has the
// argument: -∞ at zero, NaN below, NaN and +∞ as they are.
func logLimits(a *emitter, zero num) {
	a.block("LOG_LIMITS", func() { logLimitsBody(a, zero) })
}

func logLimitsBody(a *emitter, zero num) {
	a.cmp(nge, 6, zero, 0)
	a.blend(0, 0, bits(0x7fc00000), 0)
	a.cmp(eq, 6, zero, 0)
	a.blend(0, 0, bits(0xff800000), 0)
	a.cmp(eq, 6, bits(0x7f800000), 0)
	a.blend(0, 0, bits(0x7f800000), 0)
}

// erf is N. Juffa's (2016), within one unit: an odd polynomial near 0, else
// 1 - e to the power of a polynomial.
func erf(a *emitter) {
	a.op("VMOVUPS", reg(0), reg(7))
	a.op("VPAND", bits(^signBit), reg(0), reg(0))
	a.op("VMOVUPS", num(4), reg(1)) // where it is 1
	a.op("VMINPS", reg(0), reg(1), reg(0))
	a.op("VMOVUPS", reg(0), reg(6)) // t
	a.op("VMULPS", reg(6), reg(6), reg(5))
	horner(a, 5, 8, -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
	a.op("VFMADD213PS", reg(6), reg(6), reg(8)) // near 0
	horner(a, 6, 0, -1.72853470e-5, 3.83197126e-4)
	horner(a, 6, 1, -3.88396438e-3, 2.42546219e-2)
	a.op("VFMADD213PS", reg(1), reg(5), reg(0))
	for _, c := range []num{-1.06777877e-1, -6.34846687e-1, -1.28717512e-1} {
		a.op("VFMADD213PS", c, reg(6), reg(0))
	}
	a.op("VFMSUB213PS", reg(6), reg(6), reg(0))
	exp(a)
	a.op("VMOVUPS", num(1), reg(1))
	a.op("VSUBPS", reg(0), reg(1), reg(0))
	a.cmp(lt, 6, num(0.927734375), 0)
	a.blend(0, 0, reg(8), 0)
	copySign(a, 7)
}

// density is 1/√(2π).
const density num = 0.398942280401432678

// bell computes e to the power of -x²/2 in register 0 for x >= 0 there, with the rounding
// error of x², and changes 1 to 6 and mask 1.
func bell(a *emitter) {
	a.block("BELL", func() { bellBody(a) })
}

func bellBody(a *emitter) {
	a.op("VMOVUPS", num(15), reg(1)) // where it is 0
	a.op("VMINPS", reg(0), reg(1), reg(0))
	a.op("VMULPS", reg(0), reg(0), reg(5))
	a.op("VMOVUPS", reg(0), reg(6))
	a.op("VFMSUB213PS", reg(5), reg(0), reg(6))
	a.op("VMULPS", num(-0.5), reg(5), reg(0))
	exp(a)
	a.op("VMULPS", num(-0.5), reg(6), reg(6))
	a.op("VMOVUPS", reg(0), reg(5))
	a.op("VFMADD231PS", reg(5), reg(6), reg(0))
}

// normalCDF computes the normal distribution function of x in register 0 for x there, with x
// in register 7 and the result of bell in 5, and changes 1 to 8 and masks 0 and 1. Below 0 it
// is the product of bell and t·P(t), which is the Mills ratio divided by √(2π) with a relative
// error of 3e-8, for t = 1/(1+11/32·|x|) and |x| up to 15. The coefficients of P are a fit by
// reweighted least squares.
func normalCDF(a *emitter) {
	a.block("NORMAL_CDF_OF", func() { normalCDFBody(a) })
}

func normalCDFBody(a *emitter) {
	a.op("VMOVUPS", reg(0), reg(7))
	a.op("VPAND", bits(^signBit), reg(0), reg(0))
	a.op("VMOVUPS", num(15), reg(1))
	a.op("VMINPS", reg(0), reg(1), reg(8))
	bell(a)
	a.op("VMOVUPS", reg(0), reg(5))
	a.op("VMOVUPS", num(33.0/32), reg(1))
	a.op("VFMADD213PS", num(3), reg(8), reg(1))
	a.op("VMOVUPS", num(3), reg(0))
	quotient(a)
	horner(a, 0, 6, -0.027671665, 0.14321575, -0.27048168, 0.18960094, -0.03845852, 0.11232379, 0.11681893, 0.13753226, 0.1371202)
	a.op("VMULPS", reg(0), reg(6), reg(6))
	a.op("VMULPS", reg(5), reg(6), reg(0))
	a.op("VMOVUPS", num(1), reg(1))
	a.op("VFNMADD231PS", reg(5), reg(6), reg(1))
	a.op("VPXOR", reg(2), reg(2), reg(2))
	a.cmp(lt, 7, reg(2), 0)
	a.blend(0, 1, reg(0), 0)
}

// normalCDFByTable is normalCDF for AVX-512 in less than half of the time. It looks up polynomials,
// which normalTable must have loaded, and calls normalCDF only for a vector with an |x| that the
// table does not reach. What an element gets depends on that element alone. It leaves nothing in
// register 5, and changes 9 and mask 2, too.
func normalCDFByTable(a *emitter) {
	a.block("NORMAL_BY_TABLE", func() {
		a.op("VMOVUPS", reg(0), reg(7))
		a.op("VPAND", bits(^signBit), reg(0), reg(0))
		a.cmp(ge, 0, num(normalReach), 2)
		a.op("VMOVUPS", num(1/normalStep), reg(1))
		a.op("VFMADD213PS", num(shift), reg(0), reg(1)) // the index, in the low bits
		a.op("VSUBPS", num(shift), reg(1), reg(3))
		a.op("VFNMADD231PS", num(normalStep), reg(3), reg(0))
		for i := range reg(normalDegree + 1) {
			to := reg(2)
			if i > 0 {
				to = 4
			}
			a.op("VMOVUPS", normalTables+2*i, to)
			a.op("VPERMT2PS", normalTables+2*i+1, reg(1), to)
			if i > 0 {
				a.op("VFMADD213PS", to, reg(0), reg(2))
			}
		}
		a.op("VMOVUPS", num(1), reg(4))
		a.op("VSUBPS", reg(2), reg(4), reg(4))
		a.op("VPXOR", reg(3), reg(3), reg(3))
		a.cmp(lt, 7, reg(3), 0)
		a.blend(0, 4, reg(2), 0)
		far := a.Capture(func() {
			a.op("VMOVUPS", reg(0), reg(9))
			a.op("VMOVUPS", reg(7), reg(0))
			normalCDF(a)
			a.blend(2, 9, reg(0), 0)
		})
		a.op("KORTESTW", mask(2), mask(2))
		a.op("JEQ", fmt.Sprintf("%d(PC)", asm.Count(far)+1))
		a.Append(far)
	})
}

// The table of normalCDFByTable: polynomials of r that are the function at -(n·normalStep+r), for
// |r| <= normalStep/2 and n below 32, with a relative error of 5e-8. They are a least-squares
// fit at 200 Chebyshev nodes, coefficient by coefficient from the lowest power up: each is
// rounded to float32 before the higher ones are fitted.
const (
	normalStep   = 3.0 / 16
	normalReach  = 5.9 // of |x|, below which the nearest n is less than 32
	normalDegree = 6
	normalTables = reg(16) // and up: two registers for each power, from the highest down
)

// normalTable loads the table.
func normalTable(a *emitter) {
	a.block("NORMAL_TABLE", func() {
		for i := range 2 * (normalDegree + 1) {
			a.op("VMOVUPS", fmt.Sprintf("normal<>+%d(SB)", 64*i), normalTables+reg(i))
		}
	})
	var s strings.Builder
	for i := 0; i < len(normalPolynomials); i += 8 {
		fmt.Fprintf(&s, "CONSTANTS(normal, %d", 4*i)
		for _, x := range normalPolynomials[i : i+8] {
			fmt.Fprintf(&s, ", 0x%08x", x)
		}
		s.WriteString(")\n")
	}
	fmt.Fprintf(&s, "GLOBL normal<>(SB), RODATA|NOPTR, $%d\n", 4*len(normalPolynomials))
	a.vectors["normal"] = s.String()
}

// normalPolynomials is the bits of the table's numbers, from the highest power down.
var normalPolynomials = [...]uint32{
	0x3a0d9112, 0xbe2ceeec, 0xbe493cd5, 0xbd35031e, 0x3d11c94b, 0x3d89ec41, 0x3bef1136, 0x3c4cb489,
	0xbcbd0257, 0x3bed7f20, 0x3c283b8a, 0xbbfab7e9, 0xbbcc4fe6, 0xbabad0b2, 0xb94de5b1, 0x39eb3211,
	0xb949c77b, 0xb82d55da, 0x3973e5b5, 0x395004f8, 0x391546ae, 0x38b6b010, 0x3894aad6, 0x3819723b,
	0x37c47f7f, 0x375258fb, 0x36d42d75, 0x3658b30b, 0x35cd84ce, 0x3535c65e, 0x349a232b, 0x3402043b,
	0xbc28a482, 0xbc15fc7d, 0xbbcf5c8b, 0xbb54add4, 0x3a16f850, 0x3b4ee0e8, 0x3bacd57b, 0x3bca1c36,
	0x3bbbe190, 0x3b9f93a0, 0x3b52758c, 0x3aed4ee6, 0x39eebd6e, 0xb9f6365a, 0xba7d8379, 0xba96d971,
	0xba911868, 0xba76332a, 0xba3c55e2, 0xba0682bd, 0xb9b34e5f, 0xb9619752, 0xb906529f, 0xb897caff,
	0xb823824e, 0xb7a7ec91, 0xb724b49c, 0xb69a8c9e, 0xb60acce0, 0xb56f067d, 0xb4c550a9, 0xb41c5238,
	0xb6df11c2, 0xbbd3940a, 0xbc5e026a, 0xbca98320, 0xbcc00c1a, 0xbcb6b03b, 0xbc8dde0d, 0xbc440f6d,
	0xbbbb8f28, 0xba982455, 0x3b29db4c, 0x3bab1bf4, 0x3bcbc3c3, 0x3bc89fd5, 0x3bb1600d, 0x3b8fd99b,
	0x3b5a2471, 0x3b1add64, 0x3acf5448, 0x3a83e76b, 0x3a1fb985, 0x39b88404, 0x394b4b98, 0x38d6ae03,
	0x3858c1ec, 0x37d1ee43, 0x37430bf3, 0x36add849, 0x3614d5c9, 0x3574ec8c, 0x34c1b36f, 0x34133991,
	0x3d882e3f, 0x3d8118d0, 0x3d5a2268, 0x3d1eec5d, 0x3cb3d5fe, 0x3baa0856, 0xbc19ae63, 0xbca6595f,
	0xbcdd07c5, 0xbcf2570a, 0xbcec4016, 0xbcd34584, 0xbcb00c62, 0xbc89fc3f, 0xbc4cac30, 0xbc103608,
	0xbbc1a167, 0xbb783fa7, 0xbb18358c, 0xbab2be72, 0xba493aff, 0xb9d95ca3, 0xb9616d27, 0xb8e099f5,
	0xb857160a, 0xb7c60ed5, 0xb72f6e90, 0xb69584bd, 0xb5f54da6, 0xb541b837, 0xb4934f5b, 0xb3d7c4d1,
	0x329cf922, 0x3d167a2c, 0x3d8ec3c9, 0x3dc4290f, 0x3de74735, 0x3df6cccb, 0x3df4152e, 0x3de29749,
	0x3dc6ef95, 0x3da5fed8, 0x3d84123e, 0x3d48ddab, 0x3d12413d, 0x3ccc32f3, 0x3c88cf7a, 0x3c301611,
	0x3bd9d562, 0x3b8193c2, 0x3b145135, 0x3aa36567, 0x3a2d4edc, 0x39b106ea, 0x392e2f3d, 0x38a51f9c,
	0x3816d784, 0x3784cdbf, 0x36e167cb, 0x36386867, 0x35917489, 0x34dd404b, 0x34224406, 0x33658901,
	0xbecc422a, 0xbec8b308, 0xbebe63ca, 0xbeae5ee0, 0xbe9a2eaf, 0xbe839f31, 0xbe58f631, 0xbe2ca3b1,
	0xbe04a043, 0xbdc4bbe4, 0xbd8cdfd2, 0xbd42c7de, 0xbd020170, 0xbca78c5e, 0xbc507916, 0xbbfa6ed3,
	0xbb91390a, 0xbb229b7a, 0xbaafc87b, 0xba377646, 0xb9b8dc97, 0xb933d652, 0xb8a8e7d3, 0xb819287f,
	0xb78614d3, 0xb6e2a6bf, 0xb638f2bd, 0xb591b46b, 0xb4dda548, 0xb422c272, 0xb366c755, 0xb29df5b6,
	0x3f000000, 0x3ed9ecbe, 0x3eb5293d, 0x3e92e2f2, 0x3e681100, 0x3e326ec7, 0x3e056bed, 0x3dc1e55b,
	0x3d88d237, 0x3d3b6827, 0x3cf901ca, 0x3ca06667, 0x3c484928, 0x3bf24e76, 0x3b8df736, 0x3b2114bd,
	0x3ab0ef10, 0x3a3c1973, 0x39c180df, 0x39409787, 0x38b96cab, 0x382cab3b, 0x379b7f57, 0x37076871,
	0x36640394, 0x35b9991c, 0x35120a4d, 0x345e276c, 0x33a350b6, 0x32e8124c, 0x321f59a3, 0x31537909,
}

// trig computes sin x in register 0 for x there and |x| < TrigLimit of package vec, or cos x,
// which is a quarter of a turn ahead, and changes 1 to 5: x is n·π/2 + r, with π/2 in three
// parts. The coefficients are those of sinf and cosf in Moshier's Cephes.
func trig(quarters uint32) func(a *emitter) {
	return func(a *emitter) {
		a.op("VMOVUPS", reg(0), reg(5))
		a.op("VMOVUPS", num(0.636619772367581343), reg(1))
		a.op("VFMADD213PS", num(shift), reg(0), reg(1))
		a.op("VSUBPS", num(shift), reg(1), reg(3))
		a.op("VFNMADD231PS", num(1.57079637050628662), reg(3), reg(0))
		a.op("VFMADD231PS", num(4.37113900018624283e-8), reg(3), reg(0))
		a.op("VFMADD231PS", num(1.71512451000000000e-15), reg(3), reg(0))
		if quarters != 0 {
			a.op("VPADDD", bits(quarters), reg(1), reg(1))
		}
		a.op("VMULPS", reg(0), reg(0), reg(4)) // r²
		horner(a, 4, 2, -1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
		a.op("VMULPS", reg(0), reg(2), reg(2))
		a.op("VFMADD213PS", reg(0), reg(4), reg(2)) // sin r
		horner(a, 4, 3, 2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5)
		a.op("VFMADD213PS", num(1), reg(4), reg(3)) // cos r
		if quarters == 0 {                          // -0
			a.op("VPXOR", reg(0), reg(0), reg(0))
			a.cmp(eq, 5, reg(0), 0)
			a.blend(0, 2, reg(5), 2)
		}
		a.op("VPSLLD", 31, reg(1), reg(4)) // odd: the other one
		a.op("VPXOR", reg(0), reg(0), reg(0))
		a.op("VPSRAD", 31, reg(4), reg(4))
		a.op("VPAND", reg(4), reg(3), reg(3))
		a.op("VPANDN", reg(2), reg(4), reg(2))
		a.op("VPOR", reg(3), reg(2), reg(0))
		a.op("VPSRLD", 1, reg(1), reg(1)) // the third and fourth quarter: negative
		a.op("VPSLLD", 31, reg(1), reg(1))
		a.op("VPXOR", reg(1), reg(0), reg(0))
	}
}
