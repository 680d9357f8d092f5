package backendtest

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// f makes an array of floats.
func f(d dtype.DType, shape op.Shape, v ...float64) array {
	a := newArray(op.Type{DType: d, Shape: shape})
	dtype.FromF64(a.data, v, d)
	return a
}

// n makes an array of integers or bool.
func n(d dtype.DType, shape op.Shape, v ...int64) array {
	a := newArray(op.Type{DType: d, Shape: shape})
	dtype.FromI64(a.data, v, d)
	return a
}

// TestReference holds the interpreter against results worked out by hand.
func TestReference(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	two, six := op.Shape{2}, op.Shape{2, 3}
	h, s, d, i := dtype.Float16, dtype.Float32, dtype.Float64, dtype.Int32
	m := f(s, six, 1, 2, 3, 4, 5, 6)
	for _, c := range []struct {
		op   op.Code
		attr op.Attr
		args []array
		want array
	}{
		// 2049 is between two values of float16: a tie, to even.
		{op.Add, op.Attr{}, []array{f(h, two, 2048, 65504), f(h, nil, 1)}, f(h, two, 2048, 65504)},
		{op.Add, op.Attr{}, []array{f(h, two, 2050, 65504), f(h, two, 1, 16)}, f(h, two, 2052, inf)},
		{op.Div, op.Attr{}, []array{n(i, op.Shape{4}, 7, -7, 7, 1), n(i, op.Shape{4}, 2, 2, -2, 0)}, n(i, op.Shape{4}, 3, -3, -3, 0)},
		{op.Mod, op.Attr{}, []array{n(i, op.Shape{4}, 7, -7, 7, 1), n(i, op.Shape{4}, 4, 4, -4, 0)}, n(i, op.Shape{4}, 3, 1, -1, 0)},
		{op.Mod, op.Attr{}, []array{f(s, two, -7.5, 7.5), f(s, two, 2, -2)}, f(s, two, 0.5, -0.5)},
		{op.Mul, op.Attr{}, []array{n(dtype.Uint8, two, 200, 3), n(dtype.Uint8, two, 2, 2)}, n(dtype.Uint8, two, 144, 6)},
		{op.Mul, op.Attr{}, []array{n(dtype.Int8, two, 100, -3), n(dtype.Int8, two, 2, 2)}, n(dtype.Int8, two, -56, -6)},
		{op.Sub, op.Attr{}, []array{n(dtype.Bool, two, 1, 1), n(dtype.Bool, two, 1, 0)}, n(dtype.Bool, two, 0, 1)},
		{op.Maximum, op.Attr{}, []array{f(s, op.Shape{3}, nan, inf, -1), f(s, op.Shape{3}, inf, nan, 2)}, f(s, op.Shape{3}, nan, nan, 2)},
		{op.Minimum, op.Attr{}, []array{f(s, two, -inf, 3), f(s, two, nan, 2)}, f(s, two, nan, 2)},
		{op.Less, op.Attr{}, []array{f(s, two, nan, 1), f(s, nil, 2)}, n(dtype.Bool, two, 0, 1)},
		{op.NotEqual, op.Attr{}, []array{f(s, two, nan, 2), f(s, two, nan, 2)}, n(dtype.Bool, two, 1, 0)},
		{op.Round, op.Attr{}, []array{f(d, op.Shape{4}, 0.5, 1.5, 2.5, -0.5)}, f(d, op.Shape{4}, 0, 2, 2, math.Copysign(0, -1))},
		{op.Sigmoid, op.Attr{}, []array{f(d, op.Shape{3}, 0, inf, -inf)}, f(d, op.Shape{3}, 0.5, 1, 0)},
		{op.Relu, op.Attr{}, []array{f(s, op.Shape{3}, nan, -2, 3)}, f(s, op.Shape{3}, nan, 0, 3)},
		{op.Cast, op.Attr{DType: dtype.Uint8}, []array{f(s, op.Shape{4}, -1, 2.9, 300, nan)}, n(dtype.Uint8, op.Shape{4}, 0, 2, 255, 0)},
		{op.Where, op.Attr{}, []array{n(dtype.Bool, two, 1, 0), f(s, nil, 5), f(s, two, 1, 2)}, f(s, two, 5, 2)},
		{op.IsFinite, op.Attr{}, []array{f(s, op.Shape{3}, nan, 1, inf)}, n(dtype.Bool, op.Shape{3}, 0, 1, 0)},
		{op.Sum, op.Attr{Axes: []int{0}}, []array{m}, f(s, op.Shape{3}, 5, 7, 9)},
		{op.Sum, op.Attr{Axes: []int{1}, KeepDims: true}, []array{m}, f(s, op.Shape{2, 1}, 6, 15)},
		{op.Sum, op.Attr{Axes: []int{0}, DType: i}, []array{n(dtype.Bool, two, 1, 1)}, n(i, nil, 2)},
		{op.Mean, op.Attr{Axes: []int{0, 1}}, []array{m}, f(s, nil, 3.5)},
		{op.Mean, op.Attr{Axes: []int{0}}, []array{f(h, two, 60000, 60000)}, f(h, nil, 60000)},
		{op.Mean, op.Attr{Axes: []int{0}}, []array{f(s, op.Shape{0})}, f(s, nil, nan)},
		{op.Prod, op.Attr{Axes: []int{1}}, []array{m}, f(s, two, 6, 120)},
		{op.Max, op.Attr{Axes: []int{0}}, []array{f(s, op.Shape{0})}, f(s, nil, -inf)},
		{op.Min, op.Attr{Axes: []int{0}}, []array{n(i, op.Shape{0})}, n(i, nil, math.MaxInt32)},
		{op.ArgMax, op.Attr{Axes: []int{1}}, []array{f(s, six, 1, 3, 3, 0, nan, 9)}, n(i, two, 1, 1)},
		{op.ArgMin, op.Attr{Axes: []int{0}}, []array{m}, n(i, op.Shape{3}, 0, 0, 0)},
		{op.SumSquares, op.Attr{}, []array{m}, f(s, nil, 91)},
		{op.AllFinite, op.Attr{}, []array{f(s, two, 1, inf)}, n(dtype.Bool, nil, 0)},
		{op.MatMul, op.Attr{}, []array{m, f(s, op.Shape{3, 1}, 1, 0, -1)}, f(s, op.Shape{2, 1}, -2, -2)},
		{op.MatMul, op.Attr{TransA: true}, []array{m, f(s, op.Shape{2, 1}, 1, 10)}, f(s, op.Shape{3, 1}, 41, 52, 63)},
		{op.MatMul, op.Attr{TransB: true}, []array{m, f(s, op.Shape{1, 3}, 1, 1, 1)}, f(s, op.Shape{2, 1}, 6, 15)},
		{op.MatMul, op.Attr{}, []array{f(s, op.Shape{2, 1, 1}, 2, 3), f(s, op.Shape{1, 2}, 5, 7)}, f(s, op.Shape{2, 1, 2}, 10, 14, 15, 21)},
		{op.Softmax, op.Attr{Axes: []int{0}}, []array{f(s, two, 7, 7)}, f(s, two, 0.5, 0.5)},
		{op.LogSoftmax, op.Attr{Axes: []int{0}}, []array{f(d, two, 3, -inf)}, f(d, two, 0, -inf)},
		{op.Transpose, op.Attr{Perm: []int{1, 0}}, []array{m}, f(s, op.Shape{3, 2}, 1, 4, 2, 5, 3, 6)},
		{op.BroadcastTo, op.Attr{Dims: six}, []array{f(s, op.Shape{2, 1}, 1, 2)}, f(s, six, 1, 1, 1, 2, 2, 2)},
		{op.Concat, op.Attr{Axes: []int{1}}, []array{f(s, op.Shape{2, 1}, 8, 9), f(s, op.Shape{2, 2}, 1, 2, 3, 4)}, f(s, six, 8, 1, 2, 9, 3, 4)},
		{op.Slice, op.Attr{Start: []int{0, 0}, Limit: []int{2, 3}, Stride: []int{1, 2}}, []array{m}, f(s, op.Shape{2, 2}, 1, 3, 4, 6)},
		{op.Pad, op.Attr{Low: []int{1}, High: []int{2}, Value: 9}, []array{f(s, two, 1, 2)}, f(s, op.Shape{5}, 9, 1, 2, 9, 9)},
		{op.Gather, op.Attr{}, []array{m, n(i, op.Shape{3}, 1, 0, 1)}, f(s, op.Shape{3, 3}, 4, 5, 6, 1, 2, 3, 4, 5, 6)},
		{op.ScatterAdd, op.Attr{Size: 3}, []array{m, n(i, two, 2, 2)}, f(s, op.Shape{3, 3}, 0, 0, 0, 0, 0, 0, 5, 7, 9)},
		{op.TakeAlongAxis, op.Attr{}, []array{m, n(i, two, 2, 0)}, f(s, two, 3, 4)},
		{op.ScatterAlongAxis, op.Attr{Size: 3}, []array{f(s, two, 8, 9), n(i, two, 2, 0)}, f(s, six, 0, 0, 8, 9, 0, 0)},
		{op.ScatterUpdate, op.Attr{}, []array{m, n(i, op.Shape{3}, 1, 5, 1), f(s, op.Shape{3, 3}, 7, 7, 7, 8, 8, 8, 9, 9, 9)}, f(s, six, 1, 2, 3, 9, 9, 9)},
		{op.Unique, op.Attr{Padding: 6}, []array{n(i, op.Shape{4}, 3, 5, 3, 1)}, n(i, op.Shape{2, 4}, 0, 1, 0, 2, 3, 5, 1, 6)},
		{op.Iota, op.Attr{DType: i, Dims: six}, nil, n(i, six, 0, 1, 2, 0, 1, 2)},
		{op.Const, op.Attr{DType: h, Dims: two, Value: 1e9}, nil, f(h, two, inf, inf)},
	} {
		got, err := evaluate(c.op, c.attr, c.args)
		if err == nil {
			err = sameBits(got.array(), c.want)
		}
		if err != nil {
			t.Errorf("%v %v: %v", c.op, c.attr, err)
		}
	}
}

// TestTolerance says what a comparison lets through.
func TestTolerance(t *testing.T) {
	d := dtype.Float16
	one := op.Type{DType: d}
	check := func(want, tol, got float64) bool {
		r := result{Type: one, f: []float64{want}}
		if tol > 0 {
			r.tol = []float64{tol}
		}
		return r.check(f(d, nil, got)) == nil
	}
	nan, inf, e := math.NaN(), math.Inf(1), d.Epsilon()
	for _, c := range []struct {
		want, tol, got float64
		ok             bool
	}{
		{1, 0, 1, true},
		{1 + e/2, 0, 1, true},      // the tie rounds to even
		{1 + e/2, 0, 1 + e, false}, // and not up
		{1, e, 1 + e, true},
		{1, e, 1 + 2*e, false},
		{nan, 0, nan, true},
		{nan, 1, 0, false},
		{0, 1, nan, false},
		{inf, 1, 65504, false},
		{inf, 0, inf, true},
		{inf, 1, -inf, false},
		{65504, 32, inf, true}, // 65520 rounds to infinity
		{65504, 8, inf, false},
		{0, 0, math.Copysign(0, -1), false},
		{0, 1, math.Copysign(0, -1), true},
	} {
		if got := check(c.want, c.tol, c.got); got != c.ok {
			t.Errorf("want %v ± %v, got %v: accepted is %v, want %v", c.want, c.tol, c.got, got, c.ok)
		}
	}
}
