package lanes

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// Functions of float32 with portable bits. Exp, Expm1, Log and Log1p of package vec are
// the same operations on every level, and these are the same in Go, for levels without
// assembly. Where a level has a faster operation than the others (a reciprocal), the function is
// made of these and of exact operations here.

// Exp computes e to the power of each element, with portable bits where they must be.
func Exp(dst, a []float32) { OfF32().Unary[op.Exp](dst, a) }

// Largest returns the largest element, or NaN if there is one.
func Largest(x []float32) float32 {
	if v := vec.Native(); v != nil {
		return float32(v.RowMax(x))
	}
	top := float32(math.Inf(-1))
	for _, v := range x {
		if v > top || v != v {
			if top = v; v != v {
				break
			}
		}
	}
	return top
}

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
	exp, expm1, log, log1p := each(expF32), each(expm1F32), each(logF32), each(log1pF32)
	if s != nil {
		exp, expm1, log, log1p = s.Exp, s.Expm1, s.Log, s.Log1p
	}
	l.Unary[op.Exp], l.Unary[op.Expm1], l.Unary[op.Log], l.Unary[op.Log1p] = exp, expm1, log, log1p
	l.Unary[op.Tanh], l.Unary[op.Sigmoid] = tanhBy(expm1), sigmoidBy(exp)
	l.Unary[op.NormalCDF], l.Unary[op.NormalPDF] = normalBy(exp, true), normalBy(exp, false)
	return l
}

// functionBlock is the elements for which a function has an array.
const functionBlock = 256

// tanhBy returns tanh by eˣ-1: t/(t+2) with t = e²ˣ-1.
func tanhBy(expm1 vec.Unary) vec.Unary {
	return func(dst, a []float32) {
		var sign [functionBlock]uint32
		for len(dst) > 0 {
			n := min(len(dst), functionBlock)
			d := dst[:n]
			for i, x := range a[:n] {
				b := math.Float32bits(x)
				sign[i] = b & (1 << 31)
				x = math.Float32frombits(b &^ (1 << 31))
				if x > 10 {
					x = 10
				}
				d[i] = x + x
			}
			expm1(d, d)
			for i, t := range d {
				d[i] = math.Float32frombits(math.Float32bits(t/(t+2)) | sign[i])
			}
			dst, a = dst[n:], a[n:]
		}
	}
}

// sigmoidBy returns 1/(1+e⁻ˣ) by eˣ of -|x|, which cannot overflow.
func sigmoidBy(exp vec.Unary) vec.Unary {
	return func(dst, a []float32) {
		var below [functionBlock]bool
		for len(dst) > 0 {
			n := min(len(dst), functionBlock)
			d := dst[:n]
			for i, x := range a[:n] {
				below[i] = x < 0
				d[i] = math.Float32frombits(math.Float32bits(x) | 1<<31)
			}
			exp(d, d)
			for i, e := range d {
				if below[i] {
					d[i] = e / (1 + e)
				} else {
					d[i] = 1 / (1 + e)
				}
			}
			dst, a = dst[n:], a[n:]
		}
	}
}

// millsRatio is the polynomial of normalCDF in package gen/vec, from the highest power down.
var millsRatio = [...]float64{-0.027671665, 0.14321575, -0.27048168, 0.18960094, -0.03845852, 0.11232379, 0.11681893, 0.13753226, 0.1371202}

// normalBy returns the normal distribution function, or the density, by eˣ of -x²/2, which is
// rounded to float32: what is lost is added as a factor. The distribution function of -|x| is that
// times t·P(t), for t = 1/(1+11/32·|x|).
func normalBy(exp vec.Unary, cdf bool) vec.Unary {
	return func(dst, a []float32) {
		var x, lost [functionBlock]float64
		for len(dst) > 0 {
			n := min(len(dst), functionBlock)
			d := dst[:n]
			for i, v := range a[:n] {
				x[i] = float64(v)
				size := min(math.Abs(x[i]), 15) // where it is 0
				square := -0.5 * size * size
				d[i] = float32(square)
				lost[i] = square - float64(d[i])
			}
			exp(d, d)
			for i, e := range d {
				y := float64(e) * (1 + lost[i])
				if !cdf {
					d[i] = float32(y * (1 / (math.Sqrt2 * 1.77245385090551602729816748334))) // 1/√(2π)
					continue
				}
				t := 1 / (1 + float64(11.0/32*min(math.Abs(x[i]), 15)))
				p := millsRatio[0]
				for _, c := range millsRatio[1:] {
					p = float64(p*t) + c
				}
				if y = float64(y * float64(t*p)); x[i] >= 0 {
					y = 1 - y
				}
				d[i] = float32(y)
			}
			dst, a = dst[n:], a[n:]
		}
	}
}

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

// expm1F32 is [vec.Set.Expm1].
func expm1F32(x float32) float32 {
	if x != x {
		return x
	}
	n, p := reduceLn2(max(min(x, 88.9), -20))
	scale := power2(n - 1)
	y := portablemath.FMA32(p, scale, scale-0.5)
	return math.Float32frombits(math.Float32bits(y+y)&^(1<<31) | math.Float32bits(x)&(1<<31))
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
