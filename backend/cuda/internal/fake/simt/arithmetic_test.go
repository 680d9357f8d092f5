package simt

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// samples are operands of 64 bits whose lower halves are as well chosen as the whole:
// the ends of the types, special floats and random bits.
func samples(n int) []uint64 {
	list := []uint64{0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255, 1<<15 - 1, 1 << 15, 1<<16 - 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 63, 1<<63 - 1, math.MaxUint64}
	for _, x := range []float64{1, -1, 0.5, 1.5, 2.5, -2.5, 3.4999998, 65504, 65520, 1e-8, -6e-8, 1e-40, 1e-45, -1e-45, 3.4e38, 1e300, 5e-324, 4294967295, -2147483649, 9.3e18, math.Inf(1), math.Inf(-1), math.NaN(), math.Copysign(0, -1), 1 + 0x1p-23, 1 + 0x1p-24} {
		list = append(list, math.Float64bits(x), uint64(math.Float32bits(float32(x))), uint64(toHalf(float32(x))))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for len(list) < n {
		u := r.Uint64()
		if len(list)%2 == 0 { // floats that are not far from 1
			u = uint64(math.Float32bits(float32(r.NormFloat64()))) | u&0xffffffff<<32
		}
		list = append(list, u)
	}
	return list
}

// check runs an instruction on pairs and triples of samples, and compares the bits of
// its result with what want says. %w1 to %w3 have the operands, %r, %f, %h and %e
// their lower or all bits; the result is %w0, or what the last line moves there.
func check(t *testing.T, line string, want func(a, b, c uint64) uint64) {
	t.Helper()
	const n = 1024
	in := make([]byte, 64*n)
	s := samples(256)
	var operands [n][3]uint64
	for i := range operands {
		for j := range 3 {
			operands[i][j] = s[(i*(1+6*j)+i/len(s)*(j*31))%len(s)]
			binary.LittleEndian.PutUint64(in[64*i+8*j:], operands[i][j])
		}
	}
	prologue := []string{"mov.u64 %w0, 0;"}
	for j, r := range []string{"1", "2", "3"} {
		prologue = append(prologue, "ld.global.u64 %w"+r+", [%i+"+strconv.Itoa(8*j)+"];")
		prologue = append(prologue, "cvt.u32.u64 %r"+r+", %w"+r+";", "mov.b32 %f"+r+", %r"+r+";", "cvt.u16.u64 %h"+r+", %w"+r+";", "mov.b64 %e"+r+", %w"+r+";")
	}
	text := snippet("", append(append(prologue, strings.Split(line, "\n")...), "st.global.u64 [%o], %w0;")...)
	out, _, err := execute(t, text, in, n/128, 128)
	if err != nil {
		t.Errorf("%s: %v", line, err)
		return
	}
	failed := 0
	for i, o := range operands {
		if got, w := binary.LittleEndian.Uint64(out[64*i:]), want(o[0], o[1], o[2]); got != w {
			if failed++; failed < 4 {
				t.Errorf("%s: of %#x, %#x, %#x: got %#x, want %#x", line, o[0], o[1], o[2], got, w)
			}
		}
	}
}

// To the result from where instructions of a type leave theirs.
func to32(line string) string  { return line + "\ncvt.u64.u32 %w0, %r0;" }
func toF32(line string) string { return line + "\nmov.b32 %r0, %f0;\ncvt.u64.u32 %w0, %r0;" }
func toF64(line string) string { return line + "\nmov.b64 %w0, %e0;" }
func to16(line string) string  { return line + "\ncvt.u64.u16 %w0, %h0;" }

func TestIntegers(t *testing.T) {
	u32 := func(f func(a, b, c uint32) uint32) func(a, b, c uint64) uint64 {
		return func(a, b, c uint64) uint64 { return uint64(f(uint32(a), uint32(b), uint32(c))) }
	}
	big64 := func(u uint64) *big.Int { return new(big.Int).SetUint64(u) }
	low := func(x *big.Int, shift uint) uint64 {
		m := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 64), big.NewInt(1))
		return m.And(m, new(big.Int).Rsh(x, shift)).Uint64()
	}
	for _, c := range []struct {
		line string
		want func(a, b, c uint64) uint64
	}{
		{to32("add.s32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { return a + b })},
		{"add.s64 %w0, %w1, %w2;", func(a, b, _ uint64) uint64 { return a + b }},
		{to32("sub.s32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { return a - b })},
		{"sub.s64 %w0, %w1, %w2;", func(a, b, _ uint64) uint64 { return a - b }},
		{to32("mul.lo.s32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { return a * b })},
		{"mul.lo.s64 %w0, %w1, %w2;", func(a, b, _ uint64) uint64 { return low(new(big.Int).Mul(big64(a), big64(b)), 0) }},
		{"mul.hi.u64 %w0, %w1, %w2;", func(a, b, _ uint64) uint64 { return low(new(big.Int).Mul(big64(a), big64(b)), 64) }},
		{to32("mul.hi.u32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { hi, _ := bits.Mul32(a, b); return hi })},
		{"mul.wide.u32 %w0, %r1, %r2;", func(a, b, _ uint64) uint64 { return uint64(uint32(a)) * uint64(uint32(b)) }},
		{"mul.wide.s32 %w0, %r1, %r2;", func(a, b, _ uint64) uint64 { return uint64(int64(int32(a)) * int64(int32(b))) }},
		{to32("mul.wide.u16 %r0, %h1, %h2;"), func(a, b, _ uint64) uint64 { return uint64(uint16(a)) * uint64(uint16(b)) }},
		{to32("mad.lo.s32 %r0, %r1, %r2, %r3;"), u32(func(a, b, c uint32) uint32 { return a*b + c })},
		{"mad.wide.u32 %w0, %r1, %r2, %w3;", func(a, b, c uint64) uint64 { return uint64(uint32(a))*uint64(uint32(b)) + c }},
		{to32("or.b32 %r3, %r2, 1;\ndiv.u32 %r0, %r1, %r3;"), u32(func(a, b, _ uint32) uint32 { return a / (b | 1) })},
		{to32("or.b32 %r3, %r2, 1;\nrem.u32 %r0, %r1, %r3;"), u32(func(a, b, _ uint32) uint32 { return a % (b | 1) })},
		{to32("or.b32 %r3, %r2, 1;\ndiv.s32 %r0, %r1, %r3;"), u32(func(a, b, _ uint32) uint32 { return uint32(int32(a) / int32(b|1)) })},
		{to32("or.b32 %r3, %r2, 1;\nrem.s32 %r0, %r1, %r3;"), u32(func(a, b, _ uint32) uint32 { return uint32(int32(a) % int32(b|1)) })},
		{"or.b64 %w3, %w2, 1;\ndiv.s64 %w0, %w1, %w3;", func(a, b, _ uint64) uint64 { return uint64(int64(a) / int64(b|1)) }},
		{"or.b64 %w3, %w2, 1;\nrem.s64 %w0, %w1, %w3;", func(a, b, _ uint64) uint64 { return uint64(int64(a) % int64(b|1)) }},
		{"or.b64 %w3, %w2, 1;\ndiv.u64 %w0, %w1, %w3;", func(a, b, _ uint64) uint64 { return a / (b | 1) }},
		{to32("min.s32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { return uint32(min(int32(a), int32(b))) })},
		{to32("max.u32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { return max(a, b) })},
		{"min.s64 %w0, %w1, %w2;", func(a, b, _ uint64) uint64 { return uint64(min(int64(a), int64(b))) }},
		{"max.u64 %w0, %w1, %w2;", func(a, b, _ uint64) uint64 { return max(a, b) }},
		{to32("abs.s32 %r0, %r1;"), u32(func(a, _, _ uint32) uint32 {
			if int32(a) < 0 {
				return -a
			}
			return a
		})},
		{"neg.s64 %w0, %w1;", func(a, _, _ uint64) uint64 { return -a }},
		{to32("xor.b32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { return a ^ b })},
		{to32("not.b32 %r0, %r1;"), u32(func(a, _, _ uint32) uint32 { return ^a })},
		{to16("and.b16 %h0, %h1, %h2;"), func(a, b, _ uint64) uint64 { return a & b & 0xffff }},
		{to32("shl.b32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { return uint32(uint64(a) << min(b, 32)) })},
		{to32("shr.u32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { return uint32(uint64(a) >> min(b, 32)) })},
		{to32("shr.s32 %r0, %r1, %r2;"), u32(func(a, b, _ uint32) uint32 { return uint32(int64(int32(a)) >> min(b, 32)) })},
		{"shl.b64 %w0, %w1, %r2;", func(a, b, _ uint64) uint64 {
			if uint32(b) > 63 {
				return 0
			}
			return a << uint32(b)
		}},
		{"shr.s64 %w0, %w1, %r2;", func(a, b, _ uint64) uint64 { return uint64(int64(a) >> min(uint32(b), 63)) }},
		{to16("shr.u16 %h0, %h1, %r2;"), func(a, b, _ uint64) uint64 { return a & 0xffff >> min(uint32(b), 16) }},
		{to32("clz.b64 %r0, %w1;"), func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a)) }},
		{to32("bfi.b32 %r0, %r1, %r2, 6, 26;"), u32(func(a, b, _ uint32) uint32 { return a<<6 | b&63 })},
		{"bfi.b64 %w0, %w1, %w2, 8, 1;", func(a, b, _ uint64) uint64 { return b&^256 | a&1<<8 }},
		{to32("prmt.b32 %r0, %r1, %r2, 4180;"), u32(func(a, b, _ uint32) uint32 { return a<<16 | b&0xffff })},
		{"setp.lt.s32 %p1, %r1, %r2;\nsetp.ge.u64 %p2, %w1, %w2;\nxor.pred %p3, %p1, %p2;\nnot.pred %p3, %p3;\nselp.b64 %w0, %w3, 5, %p3;", func(a, b, c uint64) uint64 {
			if (int32(a) < int32(b)) == (a >= b) {
				return c
			}
			return 5
		}},
		{"mov.b64 {%r0, %r4}, %w1;\nmov.b64 %w0, {%r4, %r0};", func(a, _, _ uint64) uint64 { return a<<32 | a>>32 }},
		{"cvt.s64.s32 %w0, %r1;", func(a, _, _ uint64) uint64 { return uint64(int64(int32(a))) }},
		{to32("cvt.s32.s8 %r0, %r1;"), u32(func(a, _, _ uint32) uint32 { return uint32(int32(int8(a))) })},
		{to16("cvt.u16.u32 %h0, %r1;"), func(a, _, _ uint64) uint64 { return a & 0xffff }},
		// A product of 128 bits by parts, of the three carries.
		{"mov.b64 {%r4, %r5}, %w1;\nmov.b64 {%r6, %r7}, %w2;\nmov.u32 %r8, 0;\nmul.lo.u32 %r9, %r4, %r6;\nmul.hi.u32 %r10, %r4, %r6;\n" +
			"mad.lo.cc.u32 %r10, %r5, %r6, %r10;\nmadc.hi.u32 %r11, %r5, %r6, 0;\nmad.lo.cc.u32 %r10, %r4, %r7, %r10;\nmadc.hi.cc.u32 %r11, %r4, %r7, %r11;\naddc.u32 %r12, %r8, 0;\n" +
			"mad.lo.cc.u32 %r11, %r5, %r7, %r11;\nmadc.hi.u32 %r12, %r5, %r7, %r12;\nmov.b64 %w0, {%r11, %r12};", func(a, b, _ uint64) uint64 { hi, _ := bits.Mul64(a, b); return hi }},
		{"mov.b64 {%r4, %r5}, %w1;\nmov.b64 {%r6, %r7}, %w2;\nsub.cc.u32 %r4, %r4, %r6;\nsubc.u32 %r5, %r5, %r7;\nmov.b64 %w0, {%r4, %r5};", func(a, b, _ uint64) uint64 { return a - b }},
		{"mov.b64 {%r4, %r5}, %w1;\nmov.b64 {%r6, %r7}, %w2;\nadd.cc.u32 %r4, %r4, %r6;\naddc.u32 %r5, %r5, %r7;\nmov.b64 %w0, {%r4, %r5};", func(a, b, _ uint64) uint64 { return a + b }},
	} {
		check(t, c.line, c.want)
	}
}

// exactly rounds a number to float32 in a direction; the precision of big.Float has
// no subnormals, so they are whole numbers of the smallest.
func exactly(x *big.Float, mode big.RoundingMode) float32 {
	const least = -149
	if x.Sign() != 0 && x.MantExp(nil) < -125 {
		units := new(big.Float).SetMantExp(x, -least)
		whole, _ := units.Int(nil) // towards zero
		rest := new(big.Float).SetPrec(2000).Sub(units, new(big.Float).SetInt(whole))
		half := new(big.Float).Abs(rest).Cmp(big.NewFloat(0.5))
		away := mode == big.ToNegativeInf && rest.Sign() < 0 || mode == big.ToNearestEven && (half > 0 || half == 0 && whole.Bit(0) == 1)
		if away {
			whole.Add(whole, big.NewInt(int64(x.Sign())))
		}
		f, _ := new(big.Float).SetInt(whole).Float64()
		return float32(math.Copysign(f*0x1p-149, float64(x.Sign())))
	}
	y := new(big.Float).SetPrec(24).SetMode(mode).Set(x)
	if f, _ := y.Float64(); math.Abs(f) > math.MaxFloat32 {
		if mode == big.ToZero || mode == big.ToNegativeInf && f > 0 {
			return float32(math.Copysign(math.MaxFloat32, f))
		}
		return float32(math.Inf(int(math.Copysign(1, f))))
	} else {
		return float32(f)
	}
}

// finite reports whether numbers are no NaN and not infinite.
func finite(x ...float32) bool {
	for _, f := range x {
		if f-f != 0 {
			return false
		}
	}
	return true
}

func TestFloats(t *testing.T) {
	f32 := func(f func(a, b, c float32) float32) func(a, b, c uint64) uint64 {
		return func(a, b, c uint64) uint64 {
			if r := f(getF32(a), getF32(b), getF32(c)); r == r {
				return uint64(math.Float32bits(r))
			}
			return 0x7fffffff
		}
	}
	f64 := func(f func(a, b, c float64) float64) func(a, b, c uint64) uint64 {
		return func(a, b, c uint64) uint64 {
			return math.Float64bits(f(math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(c)))
		}
	}
	exact := func(x ...float32) (list []*big.Float) {
		for _, f := range x {
			list = append(list, new(big.Float).SetPrec(2000).SetFloat64(float64(f)))
		}
		return list
	}
	// fused is x·y+z of big numbers, for finite ones whose sum is not zero.
	fused := func(mode big.RoundingMode) func(x, y, z float32) float32 {
		return func(x, y, z float32) float32 {
			if !finite(x, y, z) {
				return float32(float64(x)*float64(y) + float64(z))
			}
			e := exact(x, y, z)
			sum := e[0].Mul(e[0], e[1])
			sum.Add(sum, e[2])
			if sum.Sign() == 0 {
				if p := float64(x) * float64(y); mode == big.ToNegativeInf && (math.Signbit(p) || math.Signbit(float64(z))) {
					return float32(math.Copysign(0, -1))
				} else {
					return float32(p + float64(z))
				}
			}
			return exactly(sum, mode)
		}
	}
	for _, c := range []struct {
		line string
		want func(a, b, c uint64) uint64
	}{
		{toF32("add.f32 %f0, %f1, %f2;"), f32(func(a, b, _ float32) float32 { return a + b })},
		{toF32("sub.rn.f32 %f0, %f1, %f2;"), f32(func(a, b, _ float32) float32 { return a - b })},
		{toF32("mul.f32 %f0, %f1, %f2;"), f32(func(a, b, _ float32) float32 { return a * b })},
		{toF32("div.rn.f32 %f0, %f1, %f2;"), f32(func(a, b, _ float32) float32 { return a / b })},
		{toF32("rcp.rn.f32 %f0, %f1;"), f32(func(a, _, _ float32) float32 { return 1 / a })},
		{toF32("sqrt.rn.f32 %f0, %f1;"), f32(func(a, _, _ float32) float32 { return float32(math.Sqrt(float64(a))) })},
		{toF32("fma.rn.f32 %f0, %f1, %f2, %f3;"), f32(fused(big.ToNearestEven))},
		{toF32("fma.rm.f32 %f0, %f1, %f2, %f3;"), f32(fused(big.ToNegativeInf))},
		{toF32("fma.rz.f32 %f0, %f1, %f2, %f3;"), f32(fused(big.ToZero))},
		{toF32("add.rz.f32 %f0, %f1, %f2;"), f32(func(a, b, _ float32) float32 { return fused(big.ToZero)(a, 1, b) })},
		{toF64("add.f64 %e0, %e1, %e2;"), f64(func(a, b, _ float64) float64 { return a + b })},
		{toF64("fma.rn.f64 %e0, %e1, %e2, %e3;"), f64(math.FMA)},
		{toF32("min.f32 %f0, %f1, %f2;"), f32(func(a, b, _ float32) float32 {
			if a != a || b < a || a == b && math.Signbit(float64(b)) {
				return b
			}
			return a
		})},
		{toF32("max.f32 %f0, %f1, %f2;"), f32(func(a, b, _ float32) float32 {
			if a != a || b > a || a == b && math.Signbit(float64(a)) {
				return b
			}
			return a
		})},
		{toF32("neg.f32 %f0, %f1;\nabs.f32 %f0, %f0;"), func(a, _, _ uint64) uint64 { return a & 0x7fffffff }},
		{toF32("cvt.sat.f32.f32 %f0, %f1;"), f32(func(a, _, _ float32) float32 {
			if a > 0 {
				return min(a, 1)
			}
			return 0
		})},
		{toF32("cvt.rni.f32.f32 %f0, %f1;"), f32(func(a, _, _ float32) float32 { return float32(math.RoundToEven(float64(a))) })},
		{toF32("cvt.rn.f32.s64 %f0, %w1;"), func(a, _, _ uint64) uint64 {
			return uint64(math.Float32bits(exactly(new(big.Float).SetInt64(int64(a)), big.ToNearestEven)))
		}},
		{toF32("cvt.rn.f32.u32 %f0, %r1;"), func(a, _, _ uint64) uint64 {
			return uint64(math.Float32bits(exactly(new(big.Float).SetUint64(uint64(uint32(a))), big.ToNearestEven)))
		}},
		{toF64("cvt.rn.f64.u64 %e0, %w1;"), func(a, _, _ uint64) uint64 {
			f, _ := new(big.Float).SetUint64(a).Float64()
			return math.Float64bits(f)
		}},
		{"cvt.rzi.s64.f32 %w0, %f1;", func(a, _, _ uint64) uint64 {
			f := getF32(a)
			if !finite(f) || math.Abs(float64(f)) >= 1<<63 {
				if f > 0 {
					return math.MaxInt64
				}
				return 1 << 63
			}
			i, _ := big.NewFloat(float64(f)).Int64()
			return uint64(i)
		}},
		{to32("cvt.rzi.u32.f32 %r0, %f1;"), func(a, _, _ uint64) uint64 {
			switch f := getF32(a); {
			case !(f > 0):
				return 0
			case f >= 1<<32:
				return 1<<32 - 1
			default:
				return uint64(uint32(f))
			}
		}},
		{to32("cvt.rni.s32.f64 %r0, %e1;"), func(a, _, _ uint64) uint64 {
			switch f := math.RoundToEven(math.Float64frombits(a)); {
			case f >= 1<<31:
				return 1<<31 - 1
			case !(f > -1<<31):
				return 1 << 31
			default:
				return uint64(uint32(int32(f)))
			}
		}},
		{toF32("cvt.rn.f32.f64 %f0, %e1;"), func(a, _, _ uint64) uint64 {
			return f32(func(float32, float32, float32) float32 { return float32(math.Float64frombits(a)) })(0, 0, 0)
		}},
		{"setp.lt.f32 %p1, %f1, %f2;\nsetp.geu.f32 %p2, %f1, %f2;\nsetp.neu.f32 %p3, %f1, %f2;\nsetp.leu.f32 %p4, %f1, %f2;\n" +
			"selp.b64 %w0, 1, 0, %p1;\nselp.b64 %w4, 2, 0, %p2;\nor.b64 %w0, %w0, %w4;\nselp.b64 %w4, 4, 0, %p3;\nor.b64 %w0, %w0, %w4;\nselp.b64 %w4, 8, 0, %p4;\nor.b64 %w0, %w0, %w4;", func(a, b, _ uint64) (m uint64) {
			x, y := getF32(a), getF32(b)
			for i, p := range []bool{x < y, !(x < y), x != y, !(x > y)} {
				if p {
					m |= 1 << i
				}
			}
			return m
		}},
	} {
		check(t, c.line, c.want)
	}
}

// nearest is the float of 16 bits, with fraction bits of its mantissa, that is nearest
// to x, by looking at all of them in order.
func nearest(values []float64, x float32) uint16 {
	if x != x {
		return 0x7fff
	}
	sign := uint16(0)
	a := float64(x)
	if math.Signbit(a) {
		sign, a = 0x8000, -a
	}
	low, high := 0, len(values)-1 // values[low] <= a
	for low < high {
		if m := (low + high + 1) / 2; values[m] <= a {
			low = m
		} else {
			high = m - 1
		}
	}
	if low+1 < len(values) {
		if up, down := values[low+1]-a, a-values[low]; up < down || up == down && low%2 == 1 {
			low++
		}
	}
	return sign | uint16(low)
}

// TestHalves: conversions from and to float16 and bfloat16.
func TestHalves(t *testing.T) {
	halves, bfloats := []float64{}, []float64{}
	for i := range 0x7c00 {
		e, m := i>>10, float64(i&0x3ff)
		if e > 0 {
			m += 1024
		}
		halves = append(halves, math.Ldexp(m, max(e, 1)-25))
	}
	halves = append(halves, 65536) // becomes infinite
	for i := range 0x7f80 {
		bfloats = append(bfloats, float64(math.Float32frombits(uint32(i)<<16)))
	}
	bfloats = append(bfloats, 0x1p128)
	check(t, to16("cvt.rn.f16.f32 %h0, %f1;"), func(a, _, _ uint64) uint64 { return uint64(nearest(halves, getF32(a))) })
	check(t, to16("cvt.rn.bf16.f32 %h0, %f1;"), func(a, _, _ uint64) uint64 { return uint64(nearest(bfloats, getF32(a))) })
	check(t, toF32("cvt.f32.f16 %f0, %h1;"), func(a, _, _ uint64) uint64 {
		h := uint16(a)
		switch {
		case h&0x7fff > 0x7c00:
			return 0x7fffffff
		case h&0x7fff == 0x7c00:
			return uint64(h)>>15<<31 | 0x7f800000
		}
		return uint64(math.Float32bits(float32(halves[h&0x7fff]))) | uint64(h)>>15<<31
	})
	check(t, to32("cvt.rna.tf32.f32 %r0, %f1;"), func(a, _, _ uint64) uint64 {
		x := float64(getF32(a))
		if x-x != 0 {
			if x != x {
				return 0x7fffffff
			}
			return a & 0xffffffff
		}
		_, e := math.Frexp(x)
		unit := math.Ldexp(1, max(e, -125)-11)
		return uint64(math.Float32bits(float32(math.Copysign(math.Round(math.Abs(x)/unit)*unit, x))))
	})
	for i, x := range halves[:0x7c00] {
		if got := toHalf(float32(x)); int(got) != i {
			t.Fatalf("%v: got %#x, want %#x", x, got, i)
		}
	}
}

// TestApproximate: approximate instructions err, but not by more than the manual says.
func TestApproximate(t *testing.T) {
	ulp := func(y float64) float64 { return math.Ldexp(1, max(math.Ilogb(y), -126)-23) }
	for _, c := range []struct {
		line string
		want func(a, b float64) float64
		most func(y float64) float64 // error
	}{
		{toF32("ex2.approx.ftz.f32 %f0, %f1;"), func(a, _ float64) float64 { return math.Exp2(a) }, func(y float64) float64 { return y * 0x1p-22 }},
		{toF32("ex2.approx.f32 %f0, %f1;"), func(a, _ float64) float64 { return math.Exp2(a) }, func(y float64) float64 { return max(y*0x1p-22, 0x1p-148) }},
		{toF32("rcp.approx.ftz.f32 %f0, %f1;"), func(a, _ float64) float64 { return 1 / a }, func(y float64) float64 { return ulp(y) }},
		{toF32("div.approx.f32 %f0, %f1, %f2;"), func(a, b float64) float64 { return a / b }, func(y float64) float64 { return 2 * ulp(y) }},
		{toF64("rcp.approx.ftz.f64 %e0, %e1;"), func(a, _ float64) float64 { return 1 / a }, func(y float64) float64 { return math.Abs(y) * 0x1p-19 }},
	} {
		differ := 0
		wide := strings.Contains(c.line, "f64")
		in := make([]byte, 64*256)
		r := rand.New(rand.NewPCG(3, 4))
		for i := range 256 {
			a, b := r.NormFloat64()*20, r.NormFloat64()*20
			if i < 8 {
				a = []float64{0, 1, -1, 2, -126, -140, -200, 127}[i]
			}
			putElement(in[64*i:], 8, math.Float64bits(a))
			putElement(in[64*i+8:], 4, uint64(math.Float32bits(float32(a))))
			putElement(in[64*i+12:], 4, uint64(math.Float32bits(float32(b))))
		}
		out, _, err := execute(t, snippet("", append([]string{"ld.global.f64 %e1, [%i];", "ld.global.v2.f32 {%f1, %f2}, [%i+8];"},
			append(strings.Split(c.line, "\n"), "st.global.u64 [%o], %w0;")...)...), in, 2, 128)
		if err != nil {
			t.Error(err)
			continue
		}
		for i := range 256 {
			a, b, u := getF64(getElement(in[64*i:], 8)), float64(getF32(getElement(in[64*i+12:], 4))), getElement(out[64*i:], 8)
			got := getF64(u)
			if !wide {
				a, got = float64(float32(a)), float64(getF32(u))
			}
			y := c.want(a, b)
			if strings.Contains(c.line, "ftz") && math.Abs(y) < 0x1p-126 && !wide {
				y = 0
			}
			if got != y && !(math.Abs(got-y) <= c.most(y)) {
				t.Errorf("%s: of %v: got %v, want %v within %v", c.line, a, got, y, c.most(y))
			}
			if got != y && (wide || float32(got) != float32(y)) {
				differ++
			}
		}
		if differ < 30 {
			t.Errorf("%s: %d results of 256 are not the rounded ones: approximations err", c.line, differ)
		}
	}
}
