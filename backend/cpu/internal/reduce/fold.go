package reduce

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// accumulator is the type of sums: float64 for floats, so that the only visible
// rounding is that of the result, and int64 for all others.
type accumulator interface{ float64 | int64 }

// folds are the loops of a reduction of elements of type T.
type folds[T lanes.Number, A accumulator] struct {
	empty A
	run   func(x []T) A        // of contiguous elements
	each  func(acc []A, x []T) // acc[i] with x[i]
	join  func(a, b A) A
	joins func(acc, x []A) // join for each element; nil: use join

	// Assembly, or nil: down is each for several rows, stride apart; run16 and down16
	// are run and down for 16-bit floats in memory.
	down   func(acc []A, x []T, rows, stride int)
	run16  func(x []uint16) A
	down16 func(acc []A, x []uint16, rows, stride int)
	// rows folds short rows of n elements, a multiple of rowGroup rows. It returns
	// false if there is a NaN; the rows must then be folded one by one.
	rows func(dst []A, x []T, n int) bool

	// canonical results have one zero, +0, and one NaN. The loops of a largest or smallest
	// element leave either zero, and any of the NaNs, which depends on their vectors.
	canonical bool
}

const rowGroup = 8

// joinEach computes acc[i] = join(acc[i], x[i]).
func (f *folds[T, A]) joinEach(acc, x []A) {
	if f.joins != nil {
		f.joins(acc, x)
		return
	}
	for i := range acc {
		acc[i] = f.join(acc[i], x[i])
	}
}

// vectorFolds returns the folds of float32 for elements of type d in memory, in
// assembly if there is some.
func vectorFolds(c op.Code, d dtype.DType) folds[float32, float64] {
	f := floatFolds[float32](c)
	v := vec.Native()
	if isa.PortableBits() {
		switch c {
		case op.Max, op.Min: // the same in any order
			f.canonical = true
		case op.Sum, op.Mean:
			if d == dtype.Float32 { // in the order of the rows on every level
				f.down = sumDown
				if v != nil {
					f.down = v.SumColumns
				}
			}
			return f
		default:
			return f
		}
	}
	if v == nil {
		return f
	}
	if run := vectorRun(c, &v.Folds); run != nil {
		f.run = run
	}
	f.down = vectorDown(c, &v.Folds)
	switch c {
	case op.Sum, op.Mean:
		f.rows = func(dst []float64, x []float32, n int) bool { v.SumRows(dst, x, n); return true }
	case op.Max:
		f.rows = v.MaxRows
	case op.Min:
		f.rows = v.MinRows
	}
	half := map[dtype.DType]*vec.Folds[uint16]{dtype.Float16: &v.F16, dtype.BFloat16: &v.BF16}[d]
	if half == nil {
		return f
	}
	f.run16 = vectorRun(c, half)
	f.down16 = vectorDown(c, half)
	return f
}

// sumDown is [vec.Folds.SumColumns] in Go.
func sumDown(acc []float64, x []float32, rows, stride int) {
	for i := range rows {
		sumEach(acc, x[i*stride:][:len(acc)])
	}
}

func vectorDown[T float32 | uint16](c op.Code, v *vec.Folds[T]) func(acc []float64, x []T, rows, stride int) {
	switch c {
	case op.Sum, op.Mean:
		return v.SumColumns
	case op.Max:
		return v.MaxColumns
	case op.Min:
		return v.MinColumns
	}
	return nil
}

func vectorRun[T float32 | uint16](c op.Code, v *vec.Folds[T]) func(x []T) float64 {
	switch c {
	case op.Sum, op.Mean:
		return v.Sum
	case op.SumSquares:
		return v.SumSquares
	case op.Max:
		return v.Max
	case op.Min:
		return v.Min
	case op.AllFinite:
		return func(x []T) float64 { return float64(lanes.Truth(v.Infinities(x) == 0)) }
	}
	return nil
}

func floatFolds[T lanes.Real](c op.Code) folds[T, float64] {
	switch c {
	case op.Max:
		return folds[T, float64]{empty: math.Inf(-1), run: MaxRun[T], each: maxEach[T, float64], join: func(a, b float64) float64 { return max(a, b) }}
	case op.Min:
		return folds[T, float64]{empty: math.Inf(1), run: minRun[T], each: minEach[T, float64], join: func(a, b float64) float64 { return min(a, b) }}
	case op.AllFinite:
		return folds[T, float64]{empty: 1, run: finiteRun[T], join: func(a, b float64) float64 { return min(a, b) }}
	}
	return sumFolds[T, float64](c)
}

func intFolds(c op.Code) folds[int64, int64] {
	switch c {
	case op.Max:
		return folds[int64, int64]{empty: math.MinInt64, run: slices.Max[[]int64], each: maxEach[int64, int64], join: func(a, b int64) int64 { return max(a, b) }}
	case op.Min:
		return folds[int64, int64]{empty: math.MaxInt64, run: slices.Min[[]int64], each: minEach[int64, int64], join: func(a, b int64) int64 { return min(a, b) }}
	case op.AllFinite:
		one := func([]int64) int64 { return 1 }
		return folds[int64, int64]{empty: 1, run: one, join: func(a, b int64) int64 { return min(a, b) }}
	}
	return sumFolds[int64, int64](c)
}

func sumFolds[T lanes.Number, A accumulator](c op.Code) folds[T, A] {
	plus := func(a, b A) A { return a + b }
	switch c {
	case op.SumSquares:
		return folds[T, A]{run: squaresRun[T, A], join: plus}
	case op.Prod:
		return folds[T, A]{empty: 1, run: prodRun[T, A], each: prodEach[T, A], join: func(a, b A) A { return a * b }}
	}
	return folds[T, A]{run: SumRun[T, A], each: sumEach[T, A], join: plus, joins: sumEach[A, A]}
}

// foldBlock is the elements of a partial sum: rounding errors grow with the length of a
// chain of additions.
const foldBlock = 256

func SumRun[T lanes.Number, A accumulator](x []T) A {
	var total, a, b, c, d A
	for ; len(x) > foldBlock; x = x[foldBlock:] {
		total += SumRun[T, A](x[:foldBlock])
	}
	for ; len(x) >= 4; x = x[4:] {
		a += A(x[0])
		b += A(x[1])
		c += A(x[2])
		d += A(x[3])
	}
	for _, v := range x {
		a += A(v)
	}
	return total + ((a + b) + (c + d))
}

func squaresRun[T lanes.Number, A accumulator](x []T) A {
	var total, a, b, c, d A
	for ; len(x) > foldBlock; x = x[foldBlock:] {
		total += squaresRun[T, A](x[:foldBlock])
	}
	for ; len(x) >= 4; x = x[4:] {
		a += A(A(x[0]) * A(x[0]))
		b += A(A(x[1]) * A(x[1]))
		c += A(A(x[2]) * A(x[2]))
		d += A(A(x[3]) * A(x[3]))
	}
	for _, v := range x {
		a += A(A(v) * A(v))
	}
	return total + ((a + b) + (c + d))
}

func prodRun[T lanes.Number, A accumulator](x []T) A {
	p := A(1)
	for _, v := range x {
		p *= A(v)
	}
	return p
}

func MaxRun[T lanes.Real](x []T) float64 {
	m := x[0]
	for _, v := range x {
		if v > m || v != v { // faster than the built-in; a NaN stays
			m = v
		}
	}
	return float64(m)
}

func minRun[T lanes.Real](x []T) float64 {
	m := x[0]
	for _, v := range x {
		if v < m || v != v { // faster than the built-in; a NaN stays
			m = v
		}
	}
	return float64(m)
}

// finiteRun is 1 if all elements are finite, else 0: x-x is NaN for all others, and a
// NaN stays in a sum.
func finiteRun[T lanes.Real](x []T) float64 {
	var a, b T
	for ; len(x) >= 2; x = x[2:] {
		a += x[0] - x[0]
		b += x[1] - x[1]
	}
	for _, v := range x {
		a += v - v
	}
	if a+b == 0 {
		return 1
	}
	return 0
}

func sumEach[T lanes.Number, A accumulator](acc []A, x []T) {
	x = x[:len(acc)]
	for len(acc) >= 4 && len(x) >= 4 { // unrolled: the loop costs as much as an addition
		a, b := (*[4]A)(acc), (*[4]T)(x)
		a[0] += A(b[0])
		a[1] += A(b[1])
		a[2] += A(b[2])
		a[3] += A(b[3])
		acc, x = acc[4:], x[4:]
	}
	for i := range acc {
		acc[i] += A(x[i])
	}
}

func prodEach[T lanes.Number, A accumulator](acc []A, x []T) {
	x = x[:len(acc)]
	for i := range acc {
		acc[i] *= A(x[i])
	}
}

func maxEach[T lanes.Number, A accumulator](acc []A, x []T) {
	x = x[:len(acc)]
	for i := range acc {
		if v := A(x[i]); v > acc[i] || v != v {
			acc[i] = v
		}
	}
}

func minEach[T lanes.Number, A accumulator](acc []A, x []T) {
	x = x[:len(acc)]
	for i := range acc {
		if v := A(x[i]); v < acc[i] || v != v {
			acc[i] = v
		}
	}
}
