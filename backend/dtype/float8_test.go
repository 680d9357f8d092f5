package dtype

import (
	"math"
	"sort"
	"testing"
)

// codes8 is every finite number ≥ 0 of an 8-bit float, from its bits.
func codes8(fraction, bias, count int) []float64 {
	var all []float64
	for code := range count {
		e, f := code>>fraction, float64(code&(1<<fraction-1))/float64(int(1)<<fraction)
		if e == 0 {
			all = append(all, math.Ldexp(f, 1-bias))
		} else {
			all = append(all, math.Ldexp(1+f, e-bias))
		}
	}
	return all
}

// nearest8 looks for the nearest of codes; of two the one with an even code.
func nearest8(codes []float64, x float64) float64 {
	a := math.Abs(x)
	i := sort.SearchFloat64s(codes, a)
	switch {
	case i == len(codes):
		i--
	case i > 0 && (a-codes[i-1] < codes[i]-a || a-codes[i-1] == codes[i]-a && i&1 == 1):
		i--
	}
	return math.Copysign(codes[i], x)
}

func TestRound8(t *testing.T) {
	for _, f := range []struct {
		name    string
		round   func(float64) float64
		many    func(dst, a []float32)
		codes   []float64
		largest float64
	}{
		{"E4M3", RoundE4M3, RoundE4M3s, codes8(3, 7, 127), MaxE4M3}, // 0x7f is NaN
		{"E5M2", RoundE5M2, RoundE5M2s, codes8(2, 15, 124), MaxE5M2},
	} {
		if got := f.codes[len(f.codes)-1]; got != f.largest {
			t.Errorf("%s: the largest number is %v, want %v", f.name, f.largest, got)
		}
		var xs []float32
		for h := range 1 << 16 {
			xs = append(xs, BF16ToF32(uint16(h)), F16ToF32(uint16(h)))
		}
		for i, c := range f.codes[1:] { // the ties, and their neighbours
			tie := float32((f.codes[i] + c) / 2)
			xs = append(xs, tie, -tie, math.Nextafter32(tie, 0), math.Nextafter32(tie, 1e9))
		}
		got := make([]float32, len(xs))
		f.many(got, xs)
		for i, x := range xs {
			x, many := float64(x), float64(got[i])
			one := f.round(x)
			if math.IsNaN(x) || math.IsInf(x, 0) {
				if one == one || many == many {
					t.Errorf("%s of %v: got %v and %v, want NaN", f.name, x, one, many)
				}
				continue
			}
			want := nearest8(f.codes, x)
			if one != want || many != want || math.Signbit(one) != math.Signbit(x) || math.Signbit(many) != math.Signbit(x) {
				t.Fatalf("%s of %v: got %v and of a slice %v, want %v", f.name, x, one, many, want)
			}
		}
		for _, x := range []float64{1e300, 0x1p976, 0x1p974, -0x1p973, 1e-300, math.MaxFloat64, 5e-324, 17.000000000000004, 1.0625, 1.06250000000001} {
			if got, want := f.round(x), nearest8(f.codes, x); got != want {
				t.Errorf("%s of %v: got %v, want %v", f.name, x, got, want)
			}
		}
	}
}
