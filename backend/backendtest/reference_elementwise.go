package backendtest

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// function is an element-wise operation on floats. slack is nil where IEEE 754
// or the definition fixes the result: then devices must round correctly.
// (Computing in float32 and rounding again to 16 bits is still correct for
// sum, difference, product, quotient and root: 24 ≥ 2·11+2 bits.) Elsewhere it
// gives the error allowed to the result f, from the tolerance of its type.
type function struct {
	f       func(x, y float64) float64
	slack   func(x, y, f, rel, abs float64) float64
	anyZero bool
}

func relative(_, _, f, rel, _ float64) float64 { return rel * math.Abs(f) }

// normal distributions have e^(-x²/2), of which rounding x² leaves so many units.
func normal(x, _, f, rel, _ float64) float64 { return rel * math.Abs(f) * (1 + min(x*x, 1e3)) }

// trigonometric functions cancel near their roots, where the error is that of
// the reduced argument: abs, as for terms of magnitude 1. Beyond the range of
// float16 devices may reduce arguments as they like, within -1 … 1.
func trigonometric(x, _, f, rel, abs float64) float64 {
	if math.Abs(x) > dtype.Float16.Max() {
		return 2
	}
	return rel*math.Abs(f) + abs
}

// power: an error of the exponent y·ln x, relative to it, is one of the result
// relative to 1.
func power(x, y, f, rel, _ float64) float64 {
	if l := math.Abs(y * logarithm(math.Abs(x))); l < math.MaxFloat64 {
		rel *= 1 + l
	}
	return rel * math.Abs(f)
}

// logarithm is ln x, from log₂ for subnormal numbers, of which math.Log on
// amd64 makes others (and with it math.Pow).
func logarithm(x float64) float64 {
	if x > 0 && x < 0x1p-1022 {
		return math.Log2(x) * math.Ln2
	}
	return math.Log(x)
}

// raised is xʸ, by way of the logarithm where math.Pow would multiply often.
func raised(x, y float64) float64 {
	if x > 0.5 && x < 2 && math.Abs(y) > 16 && !math.IsInf(y, 0) {
		return math.Exp(y * math.Log1p(x-1))
	}
	const up = 0x1p200
	if a := math.Abs(x); a > 0 && a < 0x1p-1022 {
		half := math.Pow(up, -y/2) // in two steps, for the range
		return math.Pow(x*up, y) * half * half
	}
	return math.Pow(x, y)
}

func unary(f func(float64) float64, slack func(x, y, f, rel, abs float64) float64) function {
	return function{f: func(x, _ float64) float64 { return f(x) }, slack: slack}
}

var onFloats = map[op.Code]function{
	op.Identity:   unary(func(x float64) float64 { return x }, nil),
	op.Neg:        unary(func(x float64) float64 { return -x }, nil),
	op.Abs:        unary(math.Abs, nil),
	op.Sign:       {f: func(x, _ float64) float64 { return sign(x) }, anyZero: true},
	op.Exp:        unary(math.Exp, relative),
	op.Expm1:      unary(math.Expm1, relative),
	op.Log:        unary(logarithm, relative),
	op.Log1p:      unary(math.Log1p, relative),
	op.Sqrt:       unary(math.Sqrt, nil),
	op.Rsqrt:      unary(func(x float64) float64 { return 1 / math.Sqrt(x) }, relative),
	op.Reciprocal: unary(func(x float64) float64 { return 1 / x }, relative),
	op.Square:     unary(func(x float64) float64 { return x * x }, nil),
	op.Sin:        unary(math.Sin, trigonometric),
	op.Cos:        unary(math.Cos, trigonometric),
	op.Tanh:       unary(math.Tanh, relative),
	op.Sigmoid:    unary(sigmoid, relative),
	op.Relu:       {f: func(x, _ float64) float64 { return larger(x, 0) }, anyZero: true},
	op.Erf:        unary(math.Erf, relative),
	op.NormalCDF:  unary(func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }, normal),
	op.NormalPDF:  unary(func(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }, normal),
	op.Floor:      unary(math.Floor, nil),
	op.Ceil:       unary(math.Ceil, nil),
	op.Round:      unary(math.RoundToEven, nil),
	op.RoundE4M3:  unary(func(x float64) float64 { return float8(x, 3, -6, 448) }, nil),
	op.RoundE5M2:  unary(func(x float64) float64 { return float8(x, 2, -14, 57344) }, nil),
	op.Add:        {f: func(x, y float64) float64 { return x + y }},
	op.Sub:        {f: func(x, y float64) float64 { return x - y }},
	op.Mul:        {f: func(x, y float64) float64 { return x * y }},
	op.Div:        {f: func(x, y float64) float64 { return x / y }},
	op.Mod:        {f: func(x, y float64) float64 { return x - y*math.Floor(x/y) }, anyZero: true},
	op.Pow:        {f: raised, slack: power},
	op.Maximum:    {f: larger, anyZero: true},
	op.Minimum:    {f: func(x, y float64) float64 { return -larger(-x, -y) }, anyZero: true},
}

// float8 rounds x to a fraction of so many bits, with the exponent least at
// the least.
func float8(x float64, fraction, least int, largest float64) float64 {
	if math.IsInf(x, 0) || x != x {
		return math.NaN()
	}
	_, e := math.Frexp(x) // 0.5 ≤ |x|/2ᵉ < 1
	ulp := max(e-1, least) - fraction
	r := math.Ldexp(math.RoundToEven(math.Ldexp(x, -ulp)), ulp)
	return math.Copysign(math.Min(math.Abs(r), largest), x)
}

// sigmoid keeps the relative precision of large negative x: eˣ does.
func sigmoid(x float64) float64 {
	if x < 0 {
		e := math.Exp(x)
		return e / (1 + e)
	}
	return 1 / (1 + math.Exp(-x))
}

func sign(x float64) float64 {
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

var onInts = map[op.Code]func(x, y int64) int64{
	op.Identity: func(x, _ int64) int64 { return x },
	op.Neg:      func(x, _ int64) int64 { return -x },
	op.Abs:      func(x, _ int64) int64 { return max(x, -x) },
	op.Sign:     func(x, _ int64) int64 { return min(max(x, -1), 1) },
	op.Square:   func(x, _ int64) int64 { return x * x },
	op.Relu:     func(x, _ int64) int64 { return max(x, 0) },
	op.Add:      func(x, y int64) int64 { return x + y },
	op.Sub:      func(x, y int64) int64 { return x - y },
	op.Mul:      func(x, y int64) int64 { return x * y },
	op.Div: func(x, y int64) int64 {
		if y == 0 {
			return 0
		}
		return x / y
	},
	op.Mod: func(x, y int64) int64 {
		if y == 0 {
			return 0
		}
		r := x % y
		if r != 0 && (r < 0) != (y < 0) {
			r += y
		}
		return r
	},
	op.Maximum: func(x, y int64) int64 { return max(x, y) },
	op.Minimum: func(x, y int64) int64 { return min(x, y) },
}

// onBools are operations on 0 and 1: arithmetic in which any number but 0 is 1.
var onBools = map[op.Code]func(x, y int64) int64{
	op.Identity: onInts[op.Identity],
	op.Not:      func(x, _ int64) int64 { return 1 - x },
	op.Add:      func(x, y int64) int64 { return x | y },
	op.Sub:      func(x, y int64) int64 { return x ^ y },
	op.Mul:      func(x, y int64) int64 { return x & y },
	op.Maximum:  onInts[op.Maximum],
	op.Minimum:  onInts[op.Minimum],
	op.And:      func(x, y int64) int64 { return x & y },
	op.Or:       func(x, y int64) int64 { return x | y },
}

// wrap reduces the result of integer arithmetic to the bits of its type.
func wrap(x int64, d dtype.DType) int64 {
	switch d {
	case dtype.Uint8:
		return int64(uint8(x))
	case dtype.Int32:
		return int64(int32(x))
	}
	return x
}

type ordered interface{ int64 | float64 }

func compare[T ordered](c op.Code, x, y T) bool {
	switch c {
	case op.Equal:
		return x == y
	case op.NotEqual:
		return x != y
	case op.Less:
		return x < y
	case op.LessEqual:
		return x <= y
	case op.Greater:
		return x > y
	}
	return x >= y
}

func isCompare(c op.Code) bool { return c >= op.Equal && c <= op.GreaterEqual }

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// broadcastTo repeats a to shape s.
func broadcastTo(a array, s op.Shape) array {
	if a.Shape.Equal(s) {
		return a
	}
	return array{op.Type{DType: a.DType, Shape: s}, pick(a, broadcastIndex(a.Shape, s))}
}

func elementwise(c op.Code, t op.Type, args []array) (result, error) {
	x := make([]array, len(args))
	for i, a := range args {
		x[i] = broadcastTo(a, t.Shape)
	}
	r := result{Type: t}
	switch {
	case c == op.Cast:
		r.raw = cast(x[0], t).data
		if t.DType.IsFloat() { // through float64, so that any NaN is a NaN
			r = result{Type: t, f: array{t, r.raw}.floats()}
		}
		return r, nil
	case c == op.Where:
		return where(t, x), nil
	case c == op.IsFinite:
		r.i = make([]int64, t.Shape.Size())
		for i, v := range x[0].floats() {
			r.i[i] = bit(!math.IsNaN(v) && !math.IsInf(v, 0))
		}
		return r, nil
	case isCompare(c):
		r.i = make([]int64, t.Shape.Size())
		if x[0].DType.IsFloat() {
			a, b := x[0].floats(), x[1].floats()
			for i := range a {
				r.i[i] = bit(compare(c, a[i], b[i]))
			}
			return r, nil
		}
		a, b := x[0].ints(), x[1].ints()
		for i := range a {
			r.i[i] = bit(compare(c, a[i], b[i]))
		}
		return r, nil
	case !t.DType.IsFloat():
		return integers(c, t, x)
	}
	fn, ok := onFloats[c]
	if !ok {
		return r, fmt.Errorf("the reference has no %v on %v", c, t.DType)
	}
	r.anyZero = fn.anyZero
	a := x[0].floats()
	b := a
	if len(x) > 1 {
		b = x[1].floats()
	}
	r.f = make([]float64, len(a))
	for i := range a {
		r.f[i] = fn.f(a[i], b[i])
	}
	if fn.slack == nil {
		return r, nil
	}
	rel, abs := t.DType.Tolerance()
	// Functions that are not exact may treat results below the normal range of
	// the type they compute in as zero, as vector libraries do.
	flush := t.DType.Accumulator().SmallestNormal() + t.DType.SmallestSubnormal()
	r.tol = make([]float64, len(a))
	for i, v := range r.f {
		r.tol[i] = fn.slack(a[i], b[i], v, rel, abs) + flush
	}
	return r, nil
}

func integers(c op.Code, t op.Type, x []array) (result, error) {
	table := onInts
	if t.DType == dtype.Bool {
		table = onBools
	}
	fn, ok := table[c]
	if !ok {
		return result{}, fmt.Errorf("the reference has no %v on %v", c, t.DType)
	}
	a := x[0].ints()
	b := a
	if len(x) > 1 {
		b = x[1].ints()
	}
	r := result{Type: t, i: make([]int64, len(a))}
	for i := range a {
		r.i[i] = wrap(fn(a[i], b[i]), t.DType)
	}
	return r, nil
}

func where(t op.Type, x []array) result {
	r := result{Type: t}
	cond := x[0].ints()
	if t.DType.IsFloat() {
		a, b := x[1].floats(), x[2].floats()
		for i, c := range cond {
			if c == 0 {
				a[i] = b[i]
			}
		}
		r.f = a
		return r
	}
	a, b := x[1].ints(), x[2].ints()
	for i, c := range cond {
		if c == 0 {
			a[i] = b[i]
		}
	}
	r.i = a
	return r
}

// cast converts after the rules of package dtype, in one step.
func cast(a array, t op.Type) array {
	out := newArray(op.Type{DType: t.DType, Shape: a.Shape})
	if a.DType.IsFloat() {
		dtype.FromF64(out.data, a.floats(), t.DType)
	} else {
		dtype.FromI64(out.data, a.ints(), t.DType)
	}
	return out
}
