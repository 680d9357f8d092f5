package dtype

import (
	"math"
	"testing"

	"github.com/x448/float16"
)

// reference rounds x to the nearest value of d, ties to even, by arithmetic
// in float64 that is exact: scaling by powers of two and math.RoundToEven.
func reference(x float64, d DType) float64 {
	hi, lo := d.Exponents()
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	_, e := math.Frexp(x) // |x| in [2^(e-1), 2^e)
	e = max(e-1, lo) + int(math.Log2(d.Epsilon()))
	r := math.Ldexp(math.RoundToEven(math.Ldexp(x, -e)), e)
	if math.Abs(r) >= math.Ldexp(1, hi+1) {
		return math.Inf(int(math.Copysign(1, x)))
	}
	return r
}

// roundTrip stores x as d and reads it back.
func roundTrip(x float64, d DType) float64 {
	b, back := make([]byte, d.Size()), make([]float64, 1)
	FromF64(b, []float64{x}, d)
	ToF64(back, b, d)
	return back[0]
}

func bits16(x float64, d DType) uint16 {
	if d == Float16 {
		return F16FromF64(x)
	}
	return BF16FromF64(x)
}

func value16(h uint16, d DType) float64 {
	if d == Float16 {
		return float64(F16ToF32(h))
	}
	return float64(BF16ToF32(h))
}

// decode16 is the definition of a 16-bit format: its fields, multiplied out.
func decode16(h uint16, d DType) float64 {
	hi, lo := d.Exponents()
	fraction := -int(math.Log2(d.Epsilon()))
	exponent, mantissa := int(h&0x7fff)>>fraction, int(h)&(1<<fraction-1)
	sign := 1.0
	if h&0x8000 != 0 {
		sign = -1
	}
	switch {
	case exponent > hi-lo+1 && mantissa != 0:
		return math.NaN()
	case exponent > hi-lo+1:
		return math.Inf(int(sign))
	case exponent == 0:
		return math.Copysign(math.Ldexp(float64(mantissa), lo-fraction), sign)
	}
	return sign * math.Ldexp(float64(mantissa+1<<fraction), exponent-1+lo-fraction)
}

// Every 16-bit pattern, both ways, against x448 and the format's definition.
func TestAll16BitPatterns(t *testing.T) {
	for i := range 1 << 16 {
		h := uint16(i)
		if got, want := math.Float32bits(F16ToF32(h)), math.Float32bits(float16.Frombits(h).Float32()); got != want {
			t.Fatalf("float16 %04x: float32 %08x, x448 %08x", h, got, want)
		}
		for _, d := range []DType{Float16, BFloat16} {
			v, want := value16(h, d), decode16(h, d)
			if math.IsNaN(want) {
				quiet := uint16(0x200)
				if d == BFloat16 {
					quiet = 0x40
				}
				from32 := F16FromF32(F16ToF32(h))
				if d == BFloat16 {
					from32 = BF16FromF32(BF16ToF32(h))
				}
				if v == v || bits16(v, d) != h|quiet || from32 != h|quiet {
					t.Fatalf("%v %04x, a NaN, is %v and returns as %04x and %04x", d, h, v, bits16(v, d), from32)
				}
				continue
			}
			if v != want || math.Signbit(v) != math.Signbit(want) {
				t.Fatalf("%v %04x: %v, want %v", d, h, v, want)
			}
			if got := bits16(v, d); got != h {
				t.Fatalf("%v %04x: from float64 %04x", d, h, got)
			}
			from32 := F16FromF32(float32(v))
			if d == BFloat16 {
				from32 = BF16FromF32(float32(v))
			}
			if from32 != h {
				t.Fatalf("%v %04x: from float32 %04x", d, h, from32)
			}
			if b := BFloat(h); d == BFloat16 && (b.IsNaN() || b.IsInf(0) != math.IsInf(want, 0) || b.IsInf(1) != math.IsInf(want, 1) ||
				b.IsInf(-1) != math.IsInf(want, -1) || b.Signbit() != math.Signbit(want) || b.IsFinite() == math.IsInf(want, 0) ||
				b.IsNormal() != (math.Abs(want) >= 0x1p-126 && !math.IsInf(want, 0)) || float64(b.Float32()) != want || b.Bits() != h) {
				t.Fatalf("methods of BFloat %04x", h)
			}
		}
		if got, want := BFloat(h).IsNaN(), math.IsNaN(decode16(h, BFloat16)); got != want {
			t.Fatalf("BFloat %04x: NaN %v, want %v", h, got, want)
		}
	}
}

// bf16Reference is BF16FromF32 by comparison of the two neighbours: the float32
// cut to its upper half and the next pattern away from zero.
func bf16Reference(u uint32) uint16 {
	x := math.Float32frombits(u)
	if x != x {
		return uint16(u>>16) | 0x40
	}
	low := uint16(u >> 16)
	if low&0x7fff == 0x7f80 {
		return low
	}
	// Past the largest finite value the neighbour counts as 2^128.
	a, b := math.Abs(decode16(low, BFloat16)), math.Abs(decode16(low+1, BFloat16))
	if math.IsInf(b, 0) {
		b = 0x1p128
	}
	down, up := math.Abs(float64(x))-a, b-math.Abs(float64(x))
	if down < up || down == up && low&1 == 0 {
		return low
	}
	return low + 1
}

func checkF32(t *testing.T, u uint32) {
	t.Helper()
	x := math.Float32frombits(u)
	if got, want := F16FromF32(x), float16.Fromfloat32(x).Bits(); got != want {
		t.Fatalf("float32 %08x: float16 %04x, x448 %04x", u, got, want)
	}
	if got, want := BF16FromF32(x), bf16Reference(u); got != want {
		t.Fatalf("float32 %08x: bfloat16 %04x, want %04x", u, got, want)
	}
	if x != x {
		// A float64 made from the float32 keeps the payload, made quiet.
		wide := math.Float64frombits(uint64(u>>31)<<63 | 0x7ff8<<48 | uint64(u&0x7fffff)<<29)
		if F16FromF64(wide) != F16FromF32(x) || BF16FromF64(wide) != BF16FromF32(x) {
			t.Fatalf("float32 %08x: another NaN by float64", u)
		}
		return
	}
	if F16FromF64(float64(x)) != F16FromF32(x) || BF16FromF64(float64(x)) != BF16FromF32(x) {
		t.Fatalf("float32 %08x: otherwise rounded by float64", u)
	}
}

// A sweep of float32 by a prime stride, 4 million patterns through every
// check and 17 million more against x448.
func TestFloat32Sweep(t *testing.T) {
	for u := uint64(0); u < 1<<32; u += 1069 {
		checkF32(t, uint32(u))
	}
	for u := uint64(0); u < 1<<32; u += 251 {
		x := math.Float32frombits(uint32(u))
		if got, want := F16FromF32(x), float16.Fromfloat32(x).Bits(); got != want {
			t.Fatalf("float32 %08x: float16 %04x, x448 %04x", u, got, want)
		}
	}
}

// Every exponent and sign with the fractions at and about every tie.
func TestFloat32Boundaries(t *testing.T) {
	var fractions []uint32
	for bit := range 23 {
		for _, above := range []uint32{0, 1 << bit, 0x7fffff &^ (1<<bit - 1), 0x2aaaaa &^ (1<<bit - 1), 0x555555 &^ (1<<bit - 1)} {
			for _, by := range []int32{-1, 0, 1} {
				fractions = append(fractions, uint32(int32(above|1<<bit)+by)&0x7fffff)
			}
		}
	}
	for head := range uint32(1 << 9) {
		for _, f := range fractions {
			checkF32(t, head<<23|f)
		}
	}
}

// Between every two neighbours of a 16-bit type: the middle, and the float64
// just above and below it, which by way of float32 would be the middle.
func TestFloat64RoundsOnce(t *testing.T) {
	twice := 0
	for _, d := range []DType{Float16, BFloat16} {
		hi, _ := d.Exponents()
		for i := range 1 << 15 {
			h := uint16(i)
			low, high := decode16(h, d), decode16(h+1, d)
			if math.IsNaN(low) || math.IsInf(low, 0) {
				break
			}
			if math.IsInf(high, 0) {
				high = math.Ldexp(1, hi+1)
			}
			middle := (low + high) / 2
			for _, x := range []float64{low, math.Nextafter(low, high), math.Nextafter(middle, low), middle, math.Nextafter(middle, high), math.Nextafter(high, low)} {
				want := h
				if x > middle || x == middle && h&1 == 1 {
					want = h + 1
				}
				for _, sign := range []uint16{0, 0x8000} {
					if sign != 0 {
						x = -x
					}
					if got := bits16(x, d); got != want|sign {
						t.Fatalf("%v: %x becomes %04x, want %04x", d, x, got, want|sign)
					}
					if got, want := value16(bits16(x, d), d), reference(x, d); got != want {
						t.Fatalf("%v: %x becomes %v, want %v", d, x, got, want)
					}
				}
				if by32 := float32(-x); d == Float16 && F16FromF32(by32) != want || d == BFloat16 && BF16FromF32(by32) != want {
					twice++
				}
			}
		}
	}
	if twice == 0 {
		t.Error("no case would have shown a double rounding")
	}
}

func TestFloat64Extremes(t *testing.T) {
	for _, d := range []DType{Float16, BFloat16} {
		for _, x := range []float64{math.SmallestNonzeroFloat64, 0x1p-1022, 0x1p-200, 0x1p-134, math.MaxFloat64, math.Inf(1), 0, 1e300} {
			for _, x := range []float64{x, -x, math.Copysign(x, -1)} {
				got, want := value16(bits16(x, d), d), reference(x, d)
				if got != want || math.Signbit(got) != math.Signbit(x) {
					t.Errorf("%v: %g becomes %g, want %g", d, x, got, want)
				}
			}
		}
		for bit := range 52 {
			// A payload of one bit, dropped or not, leaves a NaN.
			x := math.Float64frombits(inf64 | 1<<bit)
			if got := value16(bits16(x, d), d); got == got {
				t.Errorf("%v: NaN with bit %d becomes %v", d, bit, got)
			}
		}
	}
}

func TestBFloatString(t *testing.T) {
	for _, c := range []struct {
		b    BFloat
		want string
	}{{0x3f80, "1"}, {0xbfc0, "-1.5"}, {0x7f80, "+Inf"}, {0x7fc0, "NaN"}, {0x4049, "3.140625"}} {
		if got := c.b.String(); got != c.want {
			t.Errorf("BFloat %04x: %q, want %q", uint16(c.b), got, c.want)
		}
	}
}
