package lanes

import (
	"maps"
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Table holds the loops of one lane type. All slices passed to a loop have the same
// length, and dst may be one of the arguments. Loops of package vec are in separate
// tables over the portable ones, which stay as their reference.
type Table[T dtype.Element] struct {
	Unary   map[op.Code]func(dst, a []T)
	Binary  map[op.Code]func(dst, a, b []T)
	test    map[op.Code]func(dst []byte, a []T)
	Compare map[op.Code]func(dst []byte, a, b []T)
	Where   func(dst []T, c []byte, a, b []T)
}

// Has reports whether there is a loop for an operation.
func (l *Table[T]) Has(c op.Code) bool {
	return l.Unary[c] != nil || l.Binary[c] != nil || l.test[c] != nil || l.Compare[c] != nil
}

// Bind binds a loop to block buffers.
func (l *Table[T]) Bind(c op.Code, dst int, args []int) Loop {
	a := args[0]
	if f := l.Unary[c]; f != nil {
		return func(r [][]byte, n int) { f(dtype.View[T](r[dst])[:n], dtype.View[T](r[a])[:n]) }
	}
	if f := l.test[c]; f != nil {
		return func(r [][]byte, n int) { f(r[dst][:n], dtype.View[T](r[a])[:n]) }
	}
	b := args[1]
	if f := l.Binary[c]; f != nil {
		return func(r [][]byte, n int) {
			f(dtype.View[T](r[dst])[:n], dtype.View[T](r[a])[:n], dtype.View[T](r[b])[:n])
		}
	}
	f := l.Compare[c]
	return func(r [][]byte, n int) { f(r[dst][:n], dtype.View[T](r[a])[:n], dtype.View[T](r[b])[:n]) }
}

// OfF32 returns the float32 loops of the current level. If bits must be portable, these
// are loops that have the same results on every level.
func OfF32() *Table[float32] {
	portable := 0
	if isa.PortableBits() {
		portable = 1
	}
	switch vec.Native() {
	case nil:
		return loopsGo[portable]
	case vec.AVX512():
		return loopsAVX512[portable]
	case vec.NEON():
		return loopsNEON[portable]
	}
	return loopsAVX2[portable]
}

// Choose returns the loop of Where.
func Choose[T dtype.Element](dst int, args []int, f func(dst []T, c []byte, a, b []T)) Loop {
	c, a, b := args[0], args[1], args[2]
	return func(r [][]byte, n int) {
		f(dtype.View[T](r[dst])[:n], r[c][:n], dtype.View[T](r[a])[:n], dtype.View[T](r[b])[:n])
	}
}

func Where[T dtype.Element](dst []T, c []byte, a, b []T) {
	c, a, b = c[:len(dst)], a[:len(dst)], b[:len(dst)]
	for i := range dst {
		v := b[i]
		if c[i] != 0 {
			v = a[i]
		}
		dst[i] = v
	}
}

func Truth(b bool) byte {
	if b {
		return 1
	}
	return 0
}

type Real interface{ float32 | float64 }
type Number interface{ float32 | float64 | int64 }

var (
	F32Table = float32Loops()
	F64Table = FloatLoops[float64]()
	I64Table = intLoops()
	// Loops of float32 in assembly, over the portable ones: all, and those with portable
	// bits.
	loopsGo     = overlays(nil)
	loopsAVX2   = overlays(vec.AVX2())
	loopsAVX512 = overlays(vec.AVX512())
	loopsNEON   = overlays(vec.NEON())
	// bool is the logical operations; Less and the like order false before true.
	BoolTable = &Table[uint8]{
		Unary: map[op.Code]func(dst, a []uint8){op.Not: not},
		test:  map[op.Code]func(dst []byte, a []uint8){op.IsFinite: yes[uint8]},
		Binary: map[op.Code]func(dst, a, b []uint8){
			op.Add: or, op.Sub: xor, op.Mul: and, op.Maximum: or, op.Minimum: and, op.And: and, op.Or: or,
		},
		Compare: map[op.Code]func(dst []byte, a, b []uint8){
			op.Equal: xnor, op.NotEqual: xor, op.Less: lessBool, op.LessEqual: lessEqualBool,
			op.Greater:      func(dst, a, b []uint8) { lessBool(dst, b, a) },
			op.GreaterEqual: func(dst, a, b []uint8) { lessEqualBool(dst, b, a) },
		},
	}
)

// numberLoops returns the loops of all numbers.
func numberLoops[T Number]() *Table[T] {
	return &Table[T]{
		Unary: map[op.Code]func(dst, a []T){
			op.Neg: neg[T], op.Abs: abs[T], op.Sign: sign[T], op.Square: square[T], op.Relu: relu[T],
		},
		Binary: map[op.Code]func(dst, a, b []T){
			op.Add: Add[T], op.Sub: sub[T], op.Mul: mul[T], op.Maximum: maximum[T], op.Minimum: minimum[T],
		},
		test: map[op.Code]func(dst []byte, a []T){},
		Compare: map[op.Code]func(dst []byte, a, b []T){
			op.Equal: equal[T], op.NotEqual: notEqual[T], op.Less: less[T], op.LessEqual: lessEqual[T],
			op.Greater: greater[T], op.GreaterEqual: greaterEqual[T],
		},
		Where: Where[T],
	}
}

func intLoops() *Table[int64] {
	l := numberLoops[int64]()
	l.Binary[op.Div] = divInt
	l.Binary[op.Mod] = modInt
	l.test[op.IsFinite] = yes[int64]
	return l
}

func FloatLoops[T Real]() *Table[T] {
	l := numberLoops[T]()
	for _, c := range op.Codes() {
		if s := c.Info().Scalar; s == nil || s.Float == nil {
			continue
		} else if c.Info().Args == 1 {
			l.Unary[c] = by64[T](s.Float)
		} else if l.Binary[c] == nil {
			l.Binary[c] = by64x2[T](s.Float)
		}
	}
	maps.Copy(l.Unary, numberLoops[T]().Unary)
	l.Unary[op.Exp] = ExpAll[T]
	l.Unary[op.Tanh] = tanhAll[T]
	l.Unary[op.Sigmoid] = sigmoidAll[T]
	l.Unary[op.Sqrt] = sqrt[T]
	l.Unary[op.Rsqrt] = rsqrt[T]
	l.Unary[op.Reciprocal] = reciprocal[T]
	l.Unary[op.Floor] = floor[T]
	l.Unary[op.Ceil] = ceil[T]
	l.Unary[op.Round] = round[T]
	l.Binary[op.Div] = div[T]
	l.test[op.IsFinite] = isFinite[T]
	return l
}

func float32Loops() *Table[float32] {
	l := FloatLoops[float32]()
	l.Unary[op.RoundE4M3], l.Unary[op.RoundE5M2] = dtype.RoundE4M3s, dtype.RoundE5M2s
	return l
}

func neg[T Number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = -a[i]
	}
}

func abs[T Number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		v := a[i]
		if v <= 0 { // not <, so that -0 becomes 0
			v = 0 - v
		}
		dst[i] = v
	}
}

func sign[T Number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		v := a[i]
		switch {
		case v > 0:
			v = 1
		case v < 0:
			v = 0 - 1
		}
		dst[i] = v // ±0 and NaN are unchanged
	}
}

func square[T Number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * a[i]
	}
}

func relu[T Number](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		v := a[i]
		if v < 0 { // NaN and -0 are unchanged
			v = 0
		}
		dst[i] = v
	}
}

func sqrt[T Real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Sqrt(float64(a[i])))
	}
}

func rsqrt[T Real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = 1 / T(math.Sqrt(float64(a[i]))) // two roundings, as in package vec
	}
}

func reciprocal[T Real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = 1 / a[i]
	}
}

func floor[T Real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Floor(float64(a[i])))
	}
}

func ceil[T Real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = T(math.Ceil(float64(a[i])))
	}
}

func round[T Real](dst, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = T(math.RoundToEven(float64(a[i])))
	}
}

func isFinite[T Real](dst []byte, a []T) {
	a = a[:len(dst)]
	for i := range dst {
		d := a[i] - a[i] // NaN unless finite
		dst[i] = Truth(d == 0)
	}
}

func yes[T dtype.Element](dst []byte, _ []T) {
	for i := range dst {
		dst[i] = 1
	}
}

func Add[T Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func sub[T Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func mul[T Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func div[T Real](dst, a, b []T) {
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
func maximum[T Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		v := b[i]
		if x := a[i]; x > v || x != x { // a NaN wins
			v = x
		}
		dst[i] = v
	}
}

func minimum[T Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		v := b[i]
		if x := a[i]; x < v || x != x { // a NaN wins
			v = x
		}
		dst[i] = v
	}
}

func equal[T Number](dst []byte, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = Truth(a[i] == b[i])
	}
}

func notEqual[T Number](dst []byte, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = Truth(a[i] != b[i])
	}
}

func less[T Number](dst []byte, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = Truth(a[i] < b[i])
	}
}

func lessEqual[T Number](dst []byte, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = Truth(a[i] <= b[i])
	}
}

func greater[T Number](dst []byte, a, b []T)      { less(dst, b, a) }
func greaterEqual[T Number](dst []byte, a, b []T) { lessEqual(dst, b, a) }

func not(dst, a []uint8) {
	for i := range dst {
		dst[i] = Truth(a[i] == 0)
	}
}

func and(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = Truth(a[i] != 0 && b[i] != 0)
	}
}

func or(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = Truth(a[i] != 0 || b[i] != 0)
	}
}

func xor(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = Truth((a[i] != 0) != (b[i] != 0))
	}
}

func xnor(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = Truth((a[i] != 0) == (b[i] != 0))
	}
}

func lessBool(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = Truth(a[i] == 0 && b[i] != 0)
	}
}

func lessEqualBool(dst, a, b []uint8) {
	for i := range dst {
		dst[i] = Truth(a[i] == 0 || b[i] != 0)
	}
}

// Loop runs one loop over the first n elements of block buffers.
type Loop func(regs [][]byte, n int)

// Overlay returns the portable float32 loops, replaced by those of s where it has some.
func Overlay(s *vec.Set) *Table[float32] {
	l := float32Loops()
	if s == nil {
		return l
	}
	for c, f := range map[op.Code]vec.Unary{
		op.Neg: s.Neg, op.Abs: s.Abs, op.Sign: s.Sign, op.Square: s.Square, op.Relu: s.Relu,
		op.Sqrt: s.Sqrt, op.Rsqrt: s.Rsqrt, op.Reciprocal: s.Reciprocal,
		op.Floor: s.Floor, op.Ceil: s.Ceil, op.Round: s.Round,
		op.Exp: s.Exp, op.Expm1: s.Expm1, op.Log: s.Log, op.Log1p: s.Log1p,
		op.Tanh: s.Tanh, op.Sigmoid: s.Sigmoid, op.Erf: s.Erf,
		op.NormalCDF: s.NormalCDF, op.NormalPDF: s.NormalPDF,
	} {
		l.Unary[c] = f
	}
	l.Unary[op.Sin] = trig(s, s.Sin, l.Unary[op.Sin])
	l.Unary[op.Cos] = trig(s, s.Cos, l.Unary[op.Cos])
	for c, f := range map[op.Code]vec.Binary{
		op.Add: s.Add, op.Sub: s.Sub, op.Mul: s.Mul, op.Div: s.Div, op.Maximum: s.Maximum, op.Minimum: s.Minimum,
	} {
		l.Binary[c] = f
	}
	l.test[op.IsFinite] = s.IsFinite
	l.Compare[op.Equal] = s.Equal
	l.Compare[op.NotEqual] = s.NotEqual
	l.Compare[op.Less] = s.Less
	l.Compare[op.LessEqual] = s.LessEqual
	l.Compare[op.Greater] = func(dst []byte, a, b []float32) { s.Less(dst, b, a) }
	l.Compare[op.GreaterEqual] = func(dst []byte, a, b []float32) { s.LessEqual(dst, b, a) }
	l.Where = s.Where
	return l
}

// overlays returns Overlay of s, and the loops with portable bits.
func overlays(s *vec.Set) [2]*Table[float32] {
	return [2]*Table[float32]{Overlay(s), portableF32(s)}
}

// trig returns a loop that calls within for arguments within ±vec.TrigLimit and beyond
// for all others and NaNs.
func trig(s *vec.Set, within, beyond func(dst, a []float32)) func(dst, a []float32) {
	ok := func(x float32) bool { return x >= -vec.TrigLimit && x <= vec.TrigLimit }
	return func(dst, a []float32) {
		if s.Max(a) <= vec.TrigLimit && s.Min(a) >= -vec.TrigLimit {
			within(dst, a)
			return
		}
		for i, x := range a[:len(dst)] { // rare
			if ok(x) {
				within(dst[i:i+1], a[i:i+1])
			} else {
				beyond(dst[i:i+1], a[i:i+1])
			}
		}
	}
}
