package lanes

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// Functions of float32 with portable bits. These functions of package vec are the same
// operations on every level, and those here are the same in Go, for levels without assembly.

// portableF32 returns the float32 loops with portable bits of a level; s is nil for portable Go.
func portableF32(s *vec.Set) *Table[float32] {
	l := Overlay(s)
	for c, f := range F32Table.Unary {
		if c.Info().Costly && c != op.Sqrt && c != op.Rsqrt && c != op.Reciprocal {
			l.Unary[c] = f
		}
	}
	each := func(f func(x float32) float32) vec.Unary {
		return func(dst, a []float32) {
			a = a[:len(dst)]
			for i := range dst {
				dst[i] = f(a[i])
			}
		}
	}
	for c, f := range map[op.Code]struct {
		inGo func(x float32) float32
		loop func(s *vec.Set) vec.Unary
	}{
		op.Exp:       {expF32, func(s *vec.Set) vec.Unary { return s.Exp }},
		op.Expm1:     {expm1F32, func(s *vec.Set) vec.Unary { return s.Expm1 }},
		op.Log:       {logF32, func(s *vec.Set) vec.Unary { return s.Log }},
		op.Log1p:     {log1pF32, func(s *vec.Set) vec.Unary { return s.Log1p }},
		op.Tanh:      {tanhF32, func(s *vec.Set) vec.Unary { return s.Tanh }},
		op.Sigmoid:   {sigmoidF32, func(s *vec.Set) vec.Unary { return s.Sigmoid }},
		op.NormalCDF: {normalCDF32, func(s *vec.Set) vec.Unary { return s.Common.NormalCDF }},
		op.NormalPDF: {normalPDF32, func(s *vec.Set) vec.Unary { return s.NormalPDF }},
	} {
		if l.Unary[c] = each(f.inGo); s != nil {
			l.Unary[c] = f.loop(s)
		}
	}
	return l
}

// tanhF32 is [vec.Set.Tanh].
func tanhF32(x float32) float32 {
	b := math.Float32bits(x)
	y := math.Float32frombits(b &^ (1 << 31))
	if y > 10 {
		y = 10
	}
	t := y + y
	if t == t {
		t = smallExpm1(t)
	}
	return math.Float32frombits(math.Float32bits(t/(t+2))&^(1<<31) | b&(1<<31))
}

// sigmoidF32 is [vec.Set.Sigmoid].
func sigmoidF32(x float32) float32 {
	e := expF32(math.Float32frombits(math.Float32bits(x) | 1<<31))
	y := e / (1 + e)
	if x < 0 {
		return y
	}
	return 1 - y
}

// bell is e to the power of -x²/2 for |x|, up to 15, where it is 0.
func bell(x float32) float32 {
	s := float32(x * x)
	e := expF32(-0.5 * s)
	return portablemath.FMA32(-0.5*portablemath.FMA32(x, x, -s), e, e)
}

// upTo15 is |x|, at most 15.
func upTo15(x float32) float32 {
	if x = math.Float32frombits(math.Float32bits(x) &^ (1 << 31)); x > 15 {
		return 15
	}
	return x
}

// normalCDF32 is NormalCDF of vec.Set.Common.
func normalCDF32(x float32) float32 {
	size := upTo15(x)
	t := 3 / portablemath.FMA32(size, 33.0/32, 3)
	p := horner(t, -0.027671665, 0.14321575, -0.27048168, 0.18960094, -0.03845852, 0.11232379, 0.11681893, 0.13753226, 0.1371202)
	p *= t
	if y := bell(size); x < 0 {
		return p * y
	} else {
		return portablemath.FMA32(-p, y, 1)
	}
}

// normalPDF32 is [vec.Set.NormalPDF].
func normalPDF32(x float32) float32 { return bell(upTo15(x)) * 0.398942280401432678 } // 1/√(2π)

const (
	roundShift     = 12582912 // 1.5·2²³: adding it rounds to a whole number, in the low bits
	roundShiftBits = 0x4b400000
)

// horner computes a polynomial, its coefficients from the highest power down.
func horner(x float32, coefficients ...float32) float32 {
	p := coefficients[0]
	for _, c := range coefficients[1:] {
		p = portablemath.FMA32(p, x, c)
	}
	return p
}

// reduceLn2 splits x into n·ln 2 + r and returns n and eʳ-1.
func reduceLn2(x float32) (n int32, p float32) {
	t := portablemath.FMA32(x, 1.44269504088896341, roundShift)
	f := t - roundShift
	x = portablemath.FMA32(-f, 0.693359375, x)
	x = portablemath.FMA32(f, 2.12194440e-4, x)
	p = horner(x, 1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
	return int32(math.Float32bits(t) - roundShiftBits), portablemath.FMA32(p, x*x, x)
}

// power2 returns 2ⁿ for n from -126 to 127.
func power2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// expF32 is [vec.Set.Exp].
func expF32(x float32) float32 {
	if x < -104 {
		return 0
	}
	if x != x {
		return x
	}
	n, p := reduceLn2(min(x, 90))
	half := n >> 1
	return (p + 1) * power2(n-half) * power2(half)
}

// exp2F32 is 2 to the power of x, and 0 below -126, as in the loops of vec.Rows.
func exp2F32(x float32) float32 {
	switch {
	case x < -126:
		return 0
	case x != x:
		return x
	case x > 128:
		x = 128
	}
	t := x + roundShift
	p := horner(x-(t-roundShift), 1.3269535265862942e-3, 9.671292267739773e-3, 5.55071085691452e-2, 2.4022246897220612e-1, 6.931470036506653e-1, 1)
	return math.Float32frombits(math.Float32bits(p) + (math.Float32bits(t)-roundShiftBits)<<23)
}

// expm1F32 is [vec.Set.Expm1].
func expm1F32(x float32) float32 {
	if x != x {
		return x
	}
	y := smallExpm1(max(min(x, 88.9), -20))
	return math.Float32frombits(math.Float32bits(y)&^(1<<31) | math.Float32bits(x)&(1<<31))
}

// smallExpm1 is eˣ-1 for x from -20 to 88.9.
func smallExpm1(x float32) float32 {
	n, p := reduceLn2(x)
	scale := power2(n - 1)
	y := portablemath.FMA32(p, scale, scale-0.5)
	return y + y
}

// logOf returns ln x for a normal positive x, plus e times ln 2.
func logOf(x, e float32) float32 {
	b := math.Float32bits(x)
	k := (b - 0x3f2aaaab) & 0xff800000
	f := math.Float32frombits(b-k) - 1
	e = portablemath.FMA32(float32(int32(k)), 1.0/(1<<23), e)
	s := f * f
	p := horner(s, -0.130310059, -0.121483512, -0.166846126, -0.249996200)
	q := horner(s, 0.140869141, 0.139814854, 0.200120345)
	p = portablemath.FMA32(f, q, p)
	p = portablemath.FMA32(p, f, 0.333331972)
	p = portablemath.FMA32(p, f, -0.5)
	p = portablemath.FMA32(p, s, f)
	return portablemath.FMA32(e, 0.693147182, p)
}

// logF32 is [vec.Set.Log].
func logF32(x float32) float32 {
	switch {
	case !(x >= 0):
		return float32(math.NaN())
	case x == 0:
		return float32(math.Inf(-1))
	case x > math.MaxFloat32:
		return x
	case x < 0x1p-126:
		return logOf(x*(1<<23), -23)
	}
	return logOf(x, 0)
}

// log1pF32 is [vec.Set.Log1p].
func log1pF32(x float32) float32 {
	switch {
	case !(x >= -1):
		return float32(math.NaN())
	case x == -1:
		return float32(math.Inf(-1))
	case x > math.MaxFloat32:
		return x
	}
	u := x + 1
	lost := (x - (u - 1)) / u // the rounding error of u, divided by u
	y := logOf(u, 0) + lost
	return math.Float32frombits(math.Float32bits(y)&^(1<<31) | math.Float32bits(x)&(1<<31))
}
