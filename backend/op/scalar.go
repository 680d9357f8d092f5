package op

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// Scalar is the formula of an element-wise operation for one element of each argument;
// unary operations ignore y. It is the reference of the conformance suite, and the
// CPU's portable loop for operations without a faster one.
type Scalar struct {
	Float func(x, y float64) float64 // on floats; nil: not on floats
	Int   func(x, y int64) int64     // on integers; nil: not on integers
	Bool  func(x, y int64) int64     // on bools as 0 and 1; nil: not on bools

	// Error returns the error that a device may make in a result f of a type with the
	// tolerances rel and abs (see dtype.DType.Tolerance). Nil: the result must be
	// rounded correctly.
	Error func(x, y, f, rel, abs float64) float64

	AnyZero  bool // a result of 0 may have either sign
	Positive bool // Float is defined for positive arguments only
}

// unary sets a row's function of one float.
func (i Info) unary(f func(x float64) float64) Info {
	return i.binary(func(x, _ float64) float64 { return f(x) })
}

// binary sets a row's function of two floats.
func (i Info) binary(f func(x, y float64) float64) Info {
	i.Scalar = &Scalar{Float: f}
	return i
}

// unaryInt sets a row's function of one integer.
func (i Info) unaryInt(f func(x int64) int64) Info {
	return i.binaryInt(func(x, _ int64) int64 { return f(x) })
}

// binaryInt sets a row's function of two integers.
func (i Info) binaryInt(f func(x, y int64) int64) Info {
	i.Scalar = i.Scalar.clone()
	i.Scalar.Int = f
	return i
}

// onBools sets a row's function of bools.
func (i Info) onBools(f func(x, y int64) int64) Info {
	i.Scalar = i.Scalar.clone()
	i.Scalar.Bool = f
	return i
}

// within sets the error that devices may make.
func (i Info) within(e func(x, y, f, rel, abs float64) float64) Info {
	i.Scalar = i.Scalar.clone()
	i.Scalar.Error = e
	return i
}

// anyZero lets a row return 0 of either sign.
func (i Info) anyZero() Info {
	i.Scalar = i.Scalar.clone()
	i.Scalar.AnyZero = true
	return i
}

// positive restricts the arguments of a row to positive ones.
func (i Info) positive() Info {
	i.Scalar = i.Scalar.clone()
	i.Scalar.Positive = true
	return i
}

func (s *Scalar) clone() *Scalar {
	if s == nil {
		return &Scalar{}
	}
	c := *s
	return &c
}

// costly marks a row whose kernels take many times as long as an addition.
func (i Info) costly() Info { i.Costly = true; return i }

// selects marks a row whose result is one of its arguments, or its sign.
func (i Info) selects() Info { i.Selects = true; return i }

// expands gives a row its expansion.
func (i Info) expands(f func(r Recorder, a Attr, args []Ref) Ref) Info { i.Expand = f; return i }

// relative is an error of some units in the last place.
func relative(_, _, f, rel, _ float64) float64 { return rel * math.Abs(f) }

// normalError is the error of e^(-x²/2): rounding x² costs up to x² units.
func normalError(x, _, f, rel, _ float64) float64 { return rel * math.Abs(f) * (1 + min(x*x, 1e3)) }

// trigonometricError: sine and cosine cancel near their roots, where the error is that
// of the reduced argument: abs, as for terms of magnitude 1. Beyond the range of
// float16, devices may return any result from -1 to 1.
func trigonometricError(x, _, f, rel, abs float64) float64 {
	if math.Abs(x) > dtype.Float16.Max() {
		return 2
	}
	return float64(rel*math.Abs(f)) + abs
}

// powerError: a relative error of the exponent y·ln x gives a relative error of the
// result.
func powerError(x, y, f, rel, _ float64) float64 {
	if l := math.Abs(y * logarithm(math.Abs(x))); l < math.MaxFloat64 {
		rel *= 1 + l
	}
	return rel * math.Abs(f)
}

const smallestNormal = 0x1p-1022

// logarithm is ln x. portablemath.Log of Go's amd64 is wrong for subnormal numbers.
func logarithm(x float64) float64 {
	if x > 0 && x < smallestNormal {
		return portablemath.Log(x*0x1p54) - 54*math.Ln2
	}
	return portablemath.Log(x)
}

// power is xʸ. portablemath.Pow uses portablemath.Log, with its error for subnormal numbers, and one
// product per bit of y, whose roundings add up.
func power(x, y float64) float64 {
	if math.Abs(x-1) < 0.5 && math.Abs(y) > 64 && !math.IsInf(y, 0) {
		return portablemath.Exp(y * portablemath.Log1p(x-1))
	}
	if a := math.Abs(x); a > 0 && a < smallestNormal {
		fraction, exponent := math.Frexp(x)
		return portablemath.Pow(fraction, y) * portablemath.Exp2(float64(exponent)*y)
	}
	return portablemath.Pow(x, y)
}

// sigmoid is 1/(1+e⁻ˣ) without overflow.
func sigmoid(x float64) float64 {
	if x < 0 {
		e := portablemath.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + portablemath.Exp(-x))
}

// softplus is ln(1+eˣ) without overflow.
func softplus(x float64) float64 {
	return max(x, 0) + portablemath.Log1p(portablemath.Exp(-math.Abs(x)))
}

func normalCDF(x float64) float64 { return portablemath.Erfc(-x*(math.Sqrt2/2)) / 2 }

func normalPDF(x float64) float64 { return portablemath.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }

// floorMod is x - y·⌊x/y⌋, with the sign of y.
func floorMod(x, y float64) float64 {
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return m
}

func floorModInt(x, y int64) int64 {
	if y == 0 {
		return 0
	}
	m := x % y
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return m
}

func divInt(x, y int64) int64 {
	if y == 0 {
		return 0
	}
	return x / y
}

func signOf(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x // 0 or NaN
}

// larger is the maximum; NaN wins, unlike in math.Max, where +Inf does.
func larger(x, y float64) float64 {
	if x != x || y != y {
		return math.NaN()
	}
	return max(x, y)
}

func smaller(x, y float64) float64 { return -larger(-x, -y) }

func or(x, y int64) int64  { return x | y }
func and(x, y int64) int64 { return x & y }
func xor(x, y int64) int64 { return x ^ y }

func maxInt(x, y int64) int64 { return max(x, y) }
func minInt(x, y int64) int64 { return min(x, y) }
