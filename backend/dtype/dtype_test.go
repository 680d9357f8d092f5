package dtype

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, d := range All() {
		got, err := Parse(d.String())
		if err != nil || got != d {
			t.Errorf("Parse(%q) = %v, %v", d.String(), got, err)
		}
		text, err := json.Marshal(map[string]DType{"dtype": d})
		if err != nil || string(text) != `{"dtype":"`+d.String()+`"}` {
			t.Errorf("%v: marshalled as %s, %v", d, text, err)
		}
		var back map[string]DType
		if err := json.Unmarshal(text, &back); err != nil || back["dtype"] != d {
			t.Errorf("%v: unmarshalled as %v, %v", d, back, err)
		}
	}
	for _, bad := range []string{"", "invalid", "Float16", "half", "float8"} {
		got, err := Parse(bad)
		if got != Invalid || err == nil {
			t.Errorf("Parse(%q) = %v, %v", bad, got, err)
			continue
		}
		for _, d := range All() {
			if !strings.Contains(err.Error(), d.String()) {
				t.Errorf("Parse(%q): error %q does not name %v", bad, err, d)
			}
		}
	}
	d := Float16
	if err := d.UnmarshalText([]byte("int7")); err == nil || d != Float16 {
		t.Errorf("UnmarshalText of int7 = %v, %v", d, err)
	}
	if _, err := Invalid.MarshalText(); err == nil {
		t.Error("Invalid has a text")
	}
	if got := DType(200).String(); got != "DType(200)" {
		t.Errorf("got %q", got)
	}
}

func TestProperties(t *testing.T) {
	for _, c := range []struct {
		d                   DType
		size                int
		float, int, is16    bool
		maxExp, minExp      int
		max, norm, sub, eps float64
		acc                 DType
	}{
		{Invalid, 0, false, false, false, 0, 0, 0, 0, 0, 0, Invalid},
		{DType(99), 0, false, false, false, 0, 0, 0, 0, 0, 0, Invalid},
		{Bool, 1, false, false, false, 0, 0, 1, 1, 1, 1, Int64},
		{Uint8, 1, false, true, false, 0, 0, 255, 1, 1, 1, Int64},
		{Int8, 1, false, true, false, 0, 0, 127, 1, 1, 1, Int64},
		{Int32, 4, false, true, false, 0, 0, 1<<31 - 1, 1, 1, 1, Int64},
		{Int64, 8, false, true, false, 0, 0, 1 << 63, 1, 1, 1, Int64},
		{Float16, 2, true, false, true, 15, -14, 65504, 0x1p-14, 0x1p-24, 0x1p-10, Float32},
		{BFloat16, 2, true, false, true, 127, -126, float64(BF16ToF32(0x7f7f)), 0x1p-126, 0x1p-133, 0x1p-7, Float32},
		{Float32, 4, true, false, false, 127, -126, math.MaxFloat32, 0x1p-126, math.SmallestNonzeroFloat32, 0x1p-23, Float32},
		{Float64, 8, true, false, false, 1023, -1022, math.MaxFloat64, 0x1p-1022, math.SmallestNonzeroFloat64, 0x1p-52, Float64},
	} {
		d := c.d
		if d.Size() != c.size || d.Bits() != 8*c.size || d.IsFloat() != c.float || d.IsInt() != c.int || d.Is16() != c.is16 {
			t.Errorf("%v: size %d, bits %d, float %v, int %v, 16 %v", d, d.Size(), d.Bits(), d.IsFloat(), d.IsInt(), d.Is16())
		}
		if hi, lo := d.Exponents(); hi != c.maxExp || lo != c.minExp {
			t.Errorf("%v: exponents %d, %d, want %d, %d", d, hi, lo, c.maxExp, c.minExp)
		}
		got := [...]float64{d.Max(), d.SmallestNormal(), d.SmallestSubnormal(), d.Epsilon()}
		if want := [...]float64{c.max, c.norm, c.sub, c.eps}; got != want {
			t.Errorf("%v: max, normal, subnormal, epsilon %v, want %v", d, got, want)
		}
		if d.Accumulator() != c.acc {
			t.Errorf("%v: accumulator %v, want %v", d, d.Accumulator(), c.acc)
		}
	}
	var floats []DType
	for _, d := range All() {
		if d.IsFloat() {
			floats = append(floats, d)
		}
	}
	for i, d := range Floats() {
		if len(Floats()) != len(floats) || floats[i] != d {
			t.Errorf("Floats() = %v, want %v", Floats(), floats)
		}
	}
}

// The range of a type is what its own rounding makes of values about it.
func TestRangeAgreesWithRounding(t *testing.T) {
	for _, d := range Floats()[:3] {
		one := func(x float64) float64 { return roundTrip(x, d) }
		if got := one(d.Max()); got != d.Max() {
			t.Errorf("%v: max becomes %v", d, got)
		}
		// Half an ulp above the largest is a tie, to the even neighbour: infinity.
		if got := one(d.Max() * (1 + d.Epsilon()/2)); !math.IsInf(got, 1) {
			t.Errorf("%v: above max becomes %v", d, got)
		}
		if got := one(d.SmallestSubnormal()); got != d.SmallestSubnormal() {
			t.Errorf("%v: least becomes %v", d, got)
		}
		if got := one(d.SmallestSubnormal() / 2); got != 0 {
			t.Errorf("%v: half the least becomes %v", d, got)
		}
		if got := one(1 + d.Epsilon()); got != 1+d.Epsilon() {
			t.Errorf("%v: 1+epsilon becomes %v", d, got)
		}
		if got := one(1 + d.Epsilon()/2); got != 1 {
			t.Errorf("%v: 1+epsilon/2 becomes %v", d, got)
		}
	}
}

func TestTolerance(t *testing.T) {
	for _, d := range All() {
		rel, abs := d.Tolerance()
		switch {
		case !d.IsFloat():
			if rel != 0 || abs != 0 {
				t.Errorf("%v: tolerance %g, %g, want 0, 0", d, rel, abs)
			}
		case rel < d.Epsilon() || rel > 16*d.Epsilon():
			t.Errorf("%v: relative tolerance %g is not a few of %g", d, rel, d.Epsilon())
		case abs < d.SmallestSubnormal() || abs > rel+d.SmallestSubnormal():
			t.Errorf("%v: absolute tolerance %g", d, abs)
		}
	}
}

func TestPromote(t *testing.T) {
	all := All()
	for _, a := range all {
		if Promote(a, a) != a {
			t.Errorf("Promote(%v, %v) = %v", a, a, Promote(a, a))
		}
		if Promote(a, Invalid) != Invalid || Promote(Invalid, a) != Invalid {
			t.Errorf("%v with invalid is not invalid", a)
		}
		for _, b := range all {
			if Promote(a, b) != Promote(b, a) {
				t.Errorf("Promote(%v, %v) = %v, the other way %v", a, b, Promote(a, b), Promote(b, a))
			}
			for _, c := range all {
				if l, r := Promote(Promote(a, b), c), Promote(a, Promote(b, c)); l != r {
					t.Errorf("%v, %v, %v: %v or %v", a, b, c, l, r)
				}
			}
		}
	}
	for _, c := range [][3]DType{
		{Bool, Uint8, Uint8}, {Bool, Float16, Float16}, {Uint8, Int32, Int32}, {Bool, Int8, Int8}, {Uint8, Int8, Int32}, {Int8, Int32, Int32}, {Int8, Float16, Float16}, {Int32, Int64, Int64},
		{Int64, Float16, Float16}, {Int64, BFloat16, BFloat16}, {Int32, Float32, Float32},
		{Float16, BFloat16, Float32}, {Float16, Float32, Float32}, {BFloat16, Float32, Float32},
		{Float32, Float64, Float64}, {Float16, Float64, Float64},
	} {
		if got := Promote(c[0], c[1]); got != c[2] {
			t.Errorf("Promote(%v, %v) = %v, want %v", c[0], c[1], got, c[2])
		}
	}
}

// extremes returns, as exact integers or floats of each type, the values that
// decide whether one type holds another's: ends of ranges and widest
// significands.
func extremes(d DType) (ints []int64, floats []float64) {
	switch d {
	case Bool:
		return []int64{0, 1}, nil
	case Uint8:
		return []int64{0, 1, 254, 255}, nil
	case Int8:
		return []int64{math.MinInt8, -127, -1, 126, math.MaxInt8}, nil
	case Int32:
		return []int64{math.MinInt32, -1, math.MaxInt32 - 1, math.MaxInt32}, nil
	case Int64:
		return []int64{math.MinInt64, math.MinInt64 + 1, -1, math.MaxInt64}, nil
	}
	return nil, []float64{-d.Max(), d.Max(), d.SmallestNormal(), d.SmallestSubnormal(), 1 + d.Epsilon(), math.Inf(1)}
}

func TestWidens(t *testing.T) {
	for _, d := range All() {
		if d.Widens(Invalid) || Invalid.Widens(d) {
			t.Errorf("%v widens to or from invalid", d)
		}
		for _, to := range All() {
			ints, floats := extremes(d)
			exact := true
			b := make([]byte, to.Size())
			for _, v := range ints {
				var back [1]int64
				FromI64(b, []int64{v}, to)
				if to.IsFloat() {
					// 2^63-1 rounds to 2^63, which reads back saturated.
					var f [1]float64
					ToF64(f[:], b, to)
					exact = exact && math.Abs(f[0]) < 1<<63
				}
				ToI64(back[:], b, to)
				exact = exact && back[0] == v
			}
			for _, v := range floats {
				var back [1]float64
				FromF64(b, []float64{v}, to)
				ToF64(back[:], b, to)
				exact = exact && back[0] == v
			}
			if got := d.Widens(to); got != exact {
				t.Errorf("%v.Widens(%v) = %v, but the values say %v", d, to, got, exact)
			}
		}
	}
}
