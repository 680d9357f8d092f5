package op

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// The result of Stats is a float64 vector of StatsSize elements. StatsX and StatsY
// are where the magnitudes of x and of y begin: the infinities of y are at
// StatsY+StatsInfinities. Counts are exact.
const (
	StatsCount        = iota // elements of x, as many as of y
	StatsFinite              // pairs in which both are finite
	StatsFlushed             // pairs in which x is 0, and y is finite and not 0
	StatsSubnormal           // elements of x that are not 0 and below the smallest normal number of x's type
	StatsSquaredError        // Σ(x-y)² over the finite pairs
	StatsProducts            // Σxy over the finite pairs
	StatsLargestError        // the largest |x-y| of the finite pairs; 0 of none
	StatsResolution          // 1 if there is a bin for each exponent; 0 if bins end at StatsBorders only
	StatsX
	StatsY    = StatsX + statsMagnitudes
	StatsSize = StatsY + statsMagnitudes
)

// Places from StatsX and StatsY on.
const (
	StatsNaNs       = iota // NaNs
	StatsInfinities        // infinities of either sign
	StatsZeros             // zeros of either sign
	StatsLargest           // the largest magnitude of the finite elements; 0 of none
	StatsSmallest          // the smallest magnitude of the finite elements that are not 0; 0 of none
	StatsSquares           // Σx², or Σy², over the finite pairs
	StatsBin0              // the first of StatsBins counts of finite elements that are not 0, by exponent: see StatsBin

	statsMagnitudes = StatsBin0 + StatsBins
)

// StatsBins is the number of bins: one for each exponent field of a float32 but the
// last, which counts the numbers that float32 lacks.
const StatsBins = 256

// StatsBin returns the bin of magnitudes from 2^exponent to below 2^(exponent+1). The
// first bin has all magnitudes below 2^-126, the last all from 2^128 on. So the limits
// of all float types but the subnormal numbers of bfloat16 and float32 and the range
// of float64 are borders of bins.
func StatsBin(exponent int) int { return min(max(exponent+127, 0), StatsBins-1) }

// StatsBorders are the exponents at which bins end if a device has no kernel for
// Stats and computes its expansion: the smallest normal number of bfloat16 and
// float32, the smallest subnormal and normal numbers of float16, and the powers of two
// beyond the largest number of float16, and of bfloat16 and float32. The numbers
// between two borders are counted in the first bin, the smallest ones in bin 0.
var StatsBorders = [...]int{-126, -24, -14, 16, 128}

// Statistics is the result of Stats.
type Statistics struct {
	Count     int64 // pairs
	Finite    int64 // pairs in which both are finite
	Flushed   int64 // pairs in which x is 0, and y is finite and not 0
	Subnormal int64 // elements of x that are not 0 and below the smallest normal number of x's type
	X, Y      Magnitudes

	// Over the finite pairs: Σ(x-y)², Σxy and the largest |x-y|. Sums whose terms leave
	// the range of float64 are infinite or NaN.
	SquaredError, Products, LargestError float64

	// Coarse says that bins end at StatsBorders only.
	Coarse bool
}

// Magnitudes is what Stats says of one of its arguments.
type Magnitudes struct {
	NaNs, Infinities, Zeros int64

	// Largest is the largest magnitude of the finite elements and Smallest the
	// smallest that is not 0; 0 if there is none.
	Largest, Smallest float64

	Squares float64          // Σx² over the finite pairs
	Bins    [StatsBins]int64 // counts of finite elements that are not 0: see StatsBin
}

// DecodeStatistics returns what the result of Stats says.
func DecodeStatistics(v []float64) (*Statistics, error) {
	if len(v) != StatsSize {
		return nil, fmt.Errorf("op: DecodeStatistics: got %d numbers, want %d", len(v), StatsSize)
	}
	s := &Statistics{
		Count: int64(v[StatsCount]), Finite: int64(v[StatsFinite]), Flushed: int64(v[StatsFlushed]), Subnormal: int64(v[StatsSubnormal]),
		SquaredError: v[StatsSquaredError], Products: v[StatsProducts], LargestError: v[StatsLargestError],
		Coarse: v[StatsResolution] == 0,
	}
	s.X.decode(v[StatsX:])
	s.Y.decode(v[StatsY:])
	return s, nil
}

func (m *Magnitudes) decode(v []float64) {
	m.NaNs, m.Infinities, m.Zeros = int64(v[StatsNaNs]), int64(v[StatsInfinities]), int64(v[StatsZeros])
	m.Largest, m.Smallest, m.Squares = v[StatsLargest], v[StatsSmallest], v[StatsSquares]
	for i := range m.Bins {
		m.Bins[i] = int64(v[StatsBin0+i])
	}
}

// Below returns the number of elements that are not 0 and below 2^exponent, which is
// a border of bins: from -126 to 128, or one of StatsBorders if they are coarse.
func (m *Magnitudes) Below(exponent int) (n int64) {
	for _, c := range m.Bins[:StatsBin(exponent)] {
		n += c
	}
	return n
}

func inferStats(_ Attr, t []Type) (Type, error) {
	x, y := t[0], t[1]
	switch {
	case !x.DType.IsFloat():
		return Type{}, fmt.Errorf("got %v, want floats", x)
	case y.DType != x.DType && y.DType != dtype.Float32 && y.DType != dtype.Float64:
		return Type{}, fmt.Errorf("the reference of %v is %v, want float32, float64 or the same type", x, y)
	case !x.Shape.Equal(y.Shape):
		return Type{}, fmt.Errorf("%v and its reference %v differ in shape", x, y)
	}
	return Type{dtype.Float64, Shape{StatsSize}}, nil
}

// expandStats computes in float64, with a pass over the elements for each number. It
// counts numbers at StatsBorders only.
func expandStats(r Recorder, _ Attr, args []Ref) Ref {
	e := statsExpansion{r, r.TypeOf(args[0]).Shape}
	x, y := e.record(Cast, args[0]), e.record(Cast, args[1])
	zero := e.number(0)
	finiteX, finiteY := e.record(IsFinite, x), e.record(IsFinite, y)
	both := e.record(And, finiteX, finiteY)
	zeroX := e.record(Equal, x, zero)
	normal := e.number(r.TypeOf(args[0]).DType.SmallestNormal())
	sizeX := e.record(Abs, x)

	of := func(keep, what Ref) Ref { return e.record(Where, keep, what, zero) }
	px, py := of(both, x), of(both, y)
	d := e.record(Sub, px, py)
	list := make([]Ref, StatsX, StatsSize)
	list[StatsCount] = e.number(float64(e.shape.Size()))
	list[StatsFinite] = e.count(both)
	list[StatsFlushed] = e.count(e.record(And, zeroX, e.record(And, finiteY, e.record(NotEqual, y, zero))))
	list[StatsSubnormal] = e.count(e.record(And, e.record(Less, sizeX, normal), e.record(NotEqual, x, zero)))
	list[StatsSquaredError] = e.fold(Sum, e.record(Square, d))
	list[StatsProducts] = e.fold(Sum, e.record(Mul, px, py))
	list[StatsLargestError] = e.record(Maximum, e.fold(Max, e.record(Abs, d)), zero)
	list[StatsResolution] = zero
	list = append(list, e.magnitudes(x, finiteX, px)...)
	list = append(list, e.magnitudes(y, finiteY, py)...)
	for i, v := range list {
		list[i] = r.Record(Reshape, Attr{Dims: Shape{r.TypeOf(v).Shape.Size()}}, v)
	}
	return r.Record(Concat, Attr{Axes: []int{0}}, list...)
}

// statsExpansion records operations on float64 of a shape.
type statsExpansion struct {
	r     Recorder
	shape Shape
}

func (e statsExpansion) record(c Code, args ...Ref) Ref {
	a := Attr{}
	if c == Cast {
		a.DType = dtype.Float64
	}
	return e.r.Record(c, a, args...)
}

func (e statsExpansion) number(x float64) Ref {
	return e.r.Record(Const, Attr{DType: dtype.Float64, Dims: Shape{}, Value: x})
}

// fold joins all elements.
func (e statsExpansion) fold(c Code, x Ref) Ref {
	axes := make([]int, len(e.shape))
	for i := range axes {
		axes[i] = i
	}
	return e.r.Record(c, Attr{Axes: axes}, x)
}

// count returns how many elements of a bool tensor are true.
func (e statsExpansion) count(x Ref) Ref { return e.fold(Sum, e.record(Cast, x)) }

// magnitudes returns what there is from StatsX on: of x, where it is finite, and x
// where both are finite, else 0.
func (e statsExpansion) magnitudes(x, finite, pairs Ref) []Ref {
	zero := e.number(0)
	size := e.record(Abs, x)
	nans := e.count(e.record(NotEqual, x, x))
	largest := e.record(Maximum, e.fold(Max, e.record(Where, finite, size, zero)), zero)
	positive := e.record(And, finite, e.record(Greater, size, zero))
	// Of nothing the minimum is infinite.
	smallest := e.fold(Min, e.record(Where, positive, size, e.number(math.Inf(1))))
	list := []Ref{
		StatsNaNs:       nans,
		StatsInfinities: e.record(Sub, e.count(e.record(Not, finite)), nans),
		StatsZeros:      e.count(e.record(Equal, x, zero)),
		StatsLargest:    largest,
		StatsSmallest:   e.record(Where, e.record(IsFinite, smallest), smallest, zero),
		StatsSquares:    e.fold(Sum, e.record(Square, pairs)),
	}
	from := e.count(positive) // numbers from the last border on
	bin := 0
	for _, border := range StatsBorders {
		to := StatsBin(border)
		beyond := e.count(e.record(And, finite, e.record(GreaterEqual, size, e.number(math.Ldexp(1, border)))))
		list = append(list, e.record(Sub, from, beyond))
		if between := to - bin - 1; between > 0 {
			list = append(list, e.r.Record(Const, Attr{DType: dtype.Float64, Dims: Shape{between}}))
		}
		from, bin = beyond, to
	}
	return append(list, from)
}
