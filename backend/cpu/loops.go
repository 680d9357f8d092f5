package cpu

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// loops holds the loops of one domain. All slices given to a loop have one
// length, and dst may be one of the arguments. Loops of package vec are put
// into tables of their own over the portable ones, which stay as their
// reference.
type loops[T dtype.Element] struct {
	unary   map[op.Code]func(dst, a []T)
	binary  map[op.Code]func(dst, a, b []T)
	test    map[op.Code]func(dst []byte, a []T)
	compare map[op.Code]func(dst []byte, a, b []T)
	where   func(dst []T, c []byte, a, b []T)
}

func (l *loops[T]) has(c op.Code) bool {
	return l.unary[c] != nil || l.binary[c] != nil || l.test[c] != nil || l.compare[c] != nil
}

// exec binds a loop to registers.
func (l *loops[T]) exec(c op.Code, dst int, args []int) exec {
	a := args[0]
	if f := l.unary[c]; f != nil {
		return func(r [][]byte, n int) { f(dtype.View[T](r[dst])[:n], dtype.View[T](r[a])[:n]) }
	}
	if f := l.test[c]; f != nil {
		return func(r [][]byte, n int) { f(r[dst][:n], dtype.View[T](r[a])[:n]) }
	}
	b := args[1]
	if f := l.binary[c]; f != nil {
		return func(r [][]byte, n int) {
			f(dtype.View[T](r[dst])[:n], dtype.View[T](r[a])[:n], dtype.View[T](r[b])[:n])
		}
	}
	f := l.compare[c]
	return func(r [][]byte, n int) { f(r[dst][:n], dtype.View[T](r[a])[:n], dtype.View[T](r[b])[:n]) }
}

// ofF32 is the loops of float32 of the level in use.
func ofF32() *loops[float32] {
	switch vec.Current() {
	case nil:
		return loopsF32
	case vec.AVX512():
		return loopsAVX512
	case vec.NEON():
		return loopsNEON
	}
	return loopsAVX2
}

// choose is Where.
func choose[T dtype.Element](dst int, args []int, f func(dst []T, c []byte, a, b []T)) exec {
	c, a, b := args[0], args[1], args[2]
	return func(r [][]byte, n int) {
		f(dtype.View[T](r[dst])[:n], r[c][:n], dtype.View[T](r[a])[:n], dtype.View[T](r[b])[:n])
	}
}

func where[T dtype.Element](dst []T, c []byte, a, b []T) {
	c, a, b = c[:len(dst)], a[:len(dst)], b[:len(dst)]
	for i := range dst {
		v := b[i]
		if c[i] != 0 {
			v = a[i]
		}
		dst[i] = v
	}
}

func truth(b bool) byte {
	if b {
		return 1
	}
	return 0
}

type real interface{ float32 | float64 }
type number interface{ float32 | float64 | int64 }

var (
	loopsF32 = float32Loops()
	loopsF64 = floatLoops[float64]()
	loopsI64 = intLoops()
	// The loops of float32 in assembly, over the portable ones.
	loopsAVX2   = overlay(vec.AVX2())
	loopsAVX512 = overlay(vec.AVX512())
	loopsNEON   = overlay(vec.NEON())
	// bool follows logic; Less and the like order false before true.
	loopsBool = &loops[uint8]{
		unary: map[op.Code]func(dst, a []uint8){op.Not: not},
		test:  map[op.Code]func(dst []byte, a []uint8){op.IsFinite: yes[uint8]},
		binary: map[op.Code]func(dst, a, b []uint8){
			op.Add: or, op.Sub: xor, op.Mul: and, op.Maximum: or, op.Minimum: and, op.And: and, op.Or: or,
		},
		compare: map[op.Code]func(dst []byte, a, b []uint8){
			op.Equal: xnor, op.NotEqual: xor, op.Less: lessBool, op.LessEqual: lessEqualBool,
			op.Greater:      func(dst, a, b []uint8) { lessBool(dst, b, a) },
			op.GreaterEqual: func(dst, a, b []uint8) { lessEqualBool(dst, b, a) },
		},
	}
)

// numberLoops are those of all numbers.
func numberLoops[T number]() *loops[T] {
	return &loops[T]{
		unary: map[op.Code]func(dst, a []T){
			op.Neg: neg[T], op.Abs: abs[T], op.Sign: sign[T], op.Square: square[T], op.Relu: relu[T],
		},
		binary: map[op.Code]func(dst, a, b []T){
			op.Add: add[T], op.Sub: sub[T], op.Mul: mul[T], op.Maximum: maximum[T], op.Minimum: minimum[T],
		},
		test: map[op.Code]func(dst []byte, a []T){},
		compare: map[op.Code]func(dst []byte, a, b []T){
			op.Equal: equal[T], op.NotEqual: notEqual[T], op.Less: less[T], op.LessEqual: lessEqual[T],
			op.Greater: greater[T], op.GreaterEqual: greaterEqual[T],
		},
		where: where[T],
	}
}

func intLoops() *loops[int64] {
	l := numberLoops[int64]()
	l.binary[op.Div] = divInt
	l.binary[op.Mod] = modInt
	l.test[op.IsFinite] = yes[int64]
	return l
}

func floatLoops[T real]() *loops[T] {
	l := numberLoops[T]()
	for c, f := range map[op.Code]func(float64) float64{
		op.Expm1: math.Expm1, op.Log: logarithm, op.Log1p: math.Log1p,
		op.Sin: math.Sin, op.Cos: math.Cos, op.Erf: math.Erf,
		op.NormalCDF: normalCDF, op.NormalPDF: normalPDF,
	} {
		l.unary[c] = by64[T](f)
	}
	l.unary[op.Exp] = expAll[T]
	l.unary[op.Tanh] = tanhAll[T]
	l.unary[op.Sigmoid] = sigmoidAll[T]
	l.unary[op.Sqrt] = sqrt[T]
	l.unary[op.Rsqrt] = rsqrt[T]
	l.unary[op.Reciprocal] = reciprocal[T]
	l.unary[op.Floor] = floor[T]
	l.unary[op.Ceil] = ceil[T]
	l.unary[op.Round] = round[T]
	l.unary[op.RoundE4M3] = by64[T](dtype.RoundE4M3)
	l.unary[op.RoundE5M2] = by64[T](dtype.RoundE5M2)
	l.binary[op.Div] = div[T]
	l.binary[op.Mod] = by64x2[T](mod)
	l.binary[op.Pow] = by64x2[T](power)
	l.test[op.IsFinite] = isFinite[T]
	return l
}

func normalCDF(x float64) float64 { return math.Erfc(-x*(math.Sqrt2/2)) / 2 }

func normalPDF(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }

func float32Loops() *loops[float32] {
	l := floatLoops[float32]()
	l.unary[op.RoundE4M3], l.unary[op.RoundE5M2] = dtype.RoundE4M3s, dtype.RoundE5M2s
	return l
}

func neg[T number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = -a[i]
	}
}

func abs[T number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		v := a[i]
		if v <= 0 { // not <: -0 becomes 0
			v = 0 - v
		}
		dst[i] = v
	}
}

func sign[T number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		v := a[i]
		switch {
		case v > 0:
			v = 1
		case v < 0:
			v = 0 - 1
		}
		dst[i] = v // ±0 and NaN as they are
	}
}

func square[T number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * a[i]
	}
}

func relu[T number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		v := a[i]
		if v < 0 { // not so of NaN and -0, which stay
			v = 0
		}
		dst[i] = v
	}
}

func sqrt[T real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Sqrt(float64(a[i])))
	}
}

func rsqrt[T real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = T(1 / math.Sqrt(float64(a[i])))
	}
}

func reciprocal[T real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = 1 / a[i]
	}
}

func floor[T real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Floor(float64(a[i])))
	}
}

func ceil[T real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Ceil(float64(a[i])))
	}
}

func round[T real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = T(math.RoundToEven(float64(a[i])))
	}
}

func isFinite[T real](dst []byte, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		d := a[i] - a[i] // NaN unless finite
		dst[i] = truth(d == 0)
	}
}

func yes[T dtype.Element](dst []byte, _ []T) {
	for i := range dst {
		dst[i] = 1
	}
}

func add[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func sub[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func mul[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func div[T real](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

func divInt(dst, a, b []int64) {
	for i := range dst {
		var q int64
		if b[i] != 0 {
			q = a[i] / b[i]
		}
		dst[i] = q
	}
}

// modInt has the sign of the divisor, as x - y·floor(x/y) has.
func modInt(dst, a, b []int64) {
	for i := range dst {
		x, y := a[i], b[i]
		var m int64
		if y != 0 {
			if m = x % y; m != 0 && (m < 0) != (y < 0) {
				m += y
			}
		}
		dst[i] = m
	}
}

// mod is x - y·floor(x/y) without the rounding of the quotient.
func mod(x, y float64) float64 {
	m := math.Mod(x, y)
	if m != 0 && (m < 0) != (y < 0) {
		m += y
	}
	return m
}

func maximum[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		v := b[i]
		if x := a[i]; x > v || x != x { // a NaN wins
			v = x
		}
		dst[i] = v
	}
}

func minimum[T number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		v := b[i]
		if x := a[i]; x < v || x != x { // a NaN wins
			v = x
		}
		dst[i] = v
	}
}

func equal[T number](dst []byte, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth(a[i] == b[i])
	}
}

func notEqual[T number](dst []byte, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth(a[i] != b[i])
	}
}

func less[T number](dst []byte, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth(a[i] < b[i])
	}
}

func lessEqual[T number](dst []byte, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = truth(a[i] <= b[i])
	}
}

func greater[T number](dst []byte, a, b []T)      { less(dst, b, a) }
func greaterEqual[T number](dst []byte, a, b []T) { lessEqual(dst, b, a) }

func not(dst, a []uint8) {
	for i := range dst {
		dst[i] = truth(a[i] == 0)
	}
}

func and(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = truth(a[i] != 0 && b[i] != 0)
	}
}

func or(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = truth(a[i] != 0 || b[i] != 0)
	}
}

func xor(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = truth((a[i] != 0) != (b[i] != 0))
	}
}

func xnor(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = truth((a[i] != 0) == (b[i] != 0))
	}
}

func lessBool(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = truth(a[i] == 0 && b[i] != 0)
	}
}

func lessEqualBool(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = truth(a[i] == 0 || b[i] != 0)
	}
}
