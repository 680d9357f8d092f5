package backendtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// larger is the maximum of two floats; NaN wins.
var larger = op.Maximum.Info().Scalar.Float

// sumTolerance bounds the error of a sum of elements of type in, stored as
// out: the accumulator's tolerance times the magnitude of the terms, and the
// result's own rounding. Where the terms exceed the accumulator, a sum that is
// finite after all depends on the order: anything goes.
func sumTolerance(in, out dtype.DType, sum, magnitude float64) float64 {
	if magnitude > in.Accumulator().Max() && in.IsFloat() {
		return math.Inf(1)
	}
	acc, _ := in.Accumulator().Tolerance()
	if !in.IsFloat() { // exact in integers; what counts is the result
		acc, _ = out.Accumulator().Tolerance()
	}
	rel, _ := out.Tolerance()
	return rel*math.Abs(sum) + acc*magnitude + out.SmallestSubnormal()
}

// accumulator is a sum that loses no digit that float64 has (Neumaier 1974):
// otherwise long float64 sums would be compared with an error of the
// reference.
type accumulator struct{ sum, lost, magnitude float64 }

func (a *accumulator) add(x float64) {
	s := a.sum + x
	if math.Abs(a.sum) >= math.Abs(x) {
		a.lost += a.sum - s + x
	} else {
		a.lost += x - s + a.sum
	}
	a.sum = s
	a.magnitude += math.Abs(x)
}

func (a *accumulator) value() float64 {
	if math.IsNaN(a.lost) || math.IsInf(a.sum, 0) {
		return a.sum // of infinities, or NaN
	}
	return a.sum + a.lost
}

// groups lists, for each element of the result of a reduction over axes, the
// elements of x that it folds, in order.
func groups(s op.Shape, axes []int) [][]int {
	keep := s.Clone()
	for _, ax := range axes {
		keep[ax] = 1
	}
	out := make([][]int, keep.Size())
	if s.Size() == 0 {
		return out
	}
	for i := range out {
		out[i] = make([]int, 0, s.Size()/len(out))
	}
	st := strides(keep)
	walk(s, func(pos int, index []int) {
		at := 0
		for i, d := range keep {
			if d != 1 {
				at += st[i] * index[i]
			}
		}
		out[at] = append(out[at], pos)
	})
	return out
}

func reduce(c op.Code, a op.Attr, t op.Type, x array) (result, error) {
	axes := a.Axes
	if c == op.SumSquares || c == op.AllFinite {
		axes = make([]int, len(x.Shape))
		for i := range axes {
			axes[i] = i
		}
	}
	g := groups(x.Shape, axes)
	switch c {
	case op.Sum, op.Mean, op.SumSquares, op.Prod:
		if !t.DType.IsFloat() {
			return foldInts(c, t, x, g), nil
		}
		return foldFloats(c, t, x, g), nil
	case op.Max, op.Min:
		r := result{Type: t, anyZero: true}
		if t.DType.IsFloat() {
			r.f = extremes(c == op.Max, x.floats(), g, math.Inf(1-2*int(bit(c == op.Max))))
		} else {
			r.i = extremes(c == op.Max, x.ints(), g, bound(t.DType, c == op.Min))
		}
		return r, nil
	case op.ArgMax, op.ArgMin:
		if x.DType.IsFloat() {
			return result{Type: t, i: positions(c == op.ArgMax, x.floats(), g)}, nil
		}
		return result{Type: t, i: positions(c == op.ArgMax, x.ints(), g)}, nil
	case op.AllFinite:
		all := true
		for _, v := range x.floats() {
			all = all && !math.IsNaN(v) && !math.IsInf(v, 0)
		}
		return result{Type: t, i: []int64{bit(all)}}, nil
	}
	return result{}, fmt.Errorf("the reference has no %v", c)
}

func foldInts(c op.Code, t op.Type, x array, g [][]int) result {
	r := result{Type: t, i: make([]int64, len(g))}
	v := x.ints()
	for i, members := range g {
		if c == op.Prod {
			r.i[i] = 1
		}
		for _, m := range members {
			if c == op.Prod {
				r.i[i] *= v[m]
			} else {
				r.i[i] += v[m]
			}
		}
	}
	return r
}

func foldFloats(c op.Code, t op.Type, x array, g [][]int) result {
	r := result{Type: t, f: make([]float64, len(g)), tol: make([]float64, len(g))}
	v := x.floats()
	for i, members := range g {
		if c == op.Prod {
			r.f[i], r.tol[i] = product(x.DType, t.DType, v, members)
			continue
		}
		var acc accumulator
		for _, m := range members {
			if c == op.SumSquares {
				acc.add(v[m] * v[m])
			} else {
				acc.add(v[m])
			}
		}
		sum, magnitude := acc.value(), acc.magnitude
		if c == op.Mean {
			sum /= float64(len(members))
			magnitude /= float64(len(members))
		}
		r.f[i], r.tol[i] = sum, sumTolerance(x.DType, t.DType, sum, magnitude)
	}
	return r
}

// product: every factor rounds the whole product, so the error grows as the
// square root of their number however they are grouped. A thousand are within
// the tolerance of the type.
func product(in, out dtype.DType, v []float64, members []int) (p, tol float64) {
	p = 1
	for _, m := range members {
		p *= v[m]
	}
	grow := math.Sqrt(max(1, float64(len(members))/1024))
	return p, sumTolerance(in, out, p, math.Abs(p)*grow)
}

// best is the member with the first extreme element; the first NaN wins. It
// is -1 when there are none.
func best[T ordered](largest bool, v []T, members []int) int {
	at := -1
	for _, m := range members {
		switch {
		case at >= 0 && v[at] != v[at]: // NaN
		case at < 0 || v[m] != v[m] || largest && v[m] > v[at] || !largest && v[m] < v[at]:
			at = m
		}
	}
	return at
}

// positions of the extreme elements within their groups.
func positions[T ordered](largest bool, v []T, g [][]int) []int64 {
	var out []int64
	for _, members := range g {
		out = append(out, int64(slices.Index(members, best(largest, v, members))))
	}
	return out
}

// extremes of no elements are those of the type: -Inf is the maximum.
func extremes[T ordered](largest bool, v []T, g [][]int, none T) []T {
	out := make([]T, len(g))
	for i, members := range g {
		out[i] = none
		if at := best(largest, v, members); at >= 0 {
			out[i] = v[at]
		}
	}
	return out
}

// bound is the largest or smallest value of an integer type or bool.
func bound(d dtype.DType, largest bool) int64 {
	switch d {
	case dtype.Bool:
		return bit(largest)
	case dtype.Uint8:
		return bit(largest) * math.MaxUint8
	case dtype.Int8:
		if largest {
			return math.MaxInt8
		}
		return math.MinInt8
	case dtype.Int32:
		if largest {
			return math.MaxInt32
		}
		return math.MinInt32
	}
	if largest {
		return math.MaxInt64
	}
	return math.MinInt64
}

func matMul(a op.Attr, t op.Type, args []array) result {
	x, y := args[0], args[1]
	m, n := t.Shape[len(t.Shape)-2], t.Shape[len(t.Shape)-1]
	k := x.Shape[len(x.Shape)-1]
	if a.TransA {
		k = x.Shape[len(x.Shape)-2]
	}
	batch := t.Shape[:len(t.Shape)-2]
	fx, fy := x.floats(), y.floats()
	bx := broadcastIndex(x.Shape[:len(x.Shape)-2], batch)
	by := broadcastIndex(y.Shape[:len(y.Shape)-2], batch)
	r := result{Type: t, f: make([]float64, t.Shape.Size()), tol: make([]float64, t.Shape.Size())}
	// Steps from one row and one column of the product to the next.
	xi, xk, yk, yj := k, 1, n, 1
	if a.TransA {
		xi, xk = 1, m
	}
	if a.TransB {
		yk, yj = 1, k
	}
	for b := range bx {
		p, q := fx[bx[b]*m*k:], fy[by[b]*k*n:]
		for i := range m {
			for j := range n {
				sum, magnitude := 0.0, 0.0
				for l := range k {
					v := p[i*xi+l*xk] * q[l*yk+j*yj]
					sum += v
					magnitude += math.Abs(v)
				}
				at := (b*m+i)*n + j
				r.f[at], r.tol[at] = sum, sumTolerance(x.DType, t.DType, sum, magnitude)
			}
		}
	}
	return r
}

func softmax(c op.Code, a op.Attr, t op.Type, x array) result {
	r := result{Type: t, f: make([]float64, t.Shape.Size()), tol: make([]float64, t.Shape.Size())}
	rel, _ := t.DType.Tolerance()
	acc, _ := x.DType.Accumulator().Tolerance()
	v := x.floats()
	for _, members := range groups(x.Shape, a.Axes) {
		top := math.Inf(-1)
		for _, m := range members {
			top = larger(top, v[m])
		}
		var total accumulator
		for _, m := range members {
			total.add(math.Exp(v[m] - top))
		}
		sum := total.value()
		for _, m := range members {
			// The difference to the maximum is rounded: relative to itself,
			// which is an error of its exponential relative to 1.
			d := v[m] - top
			size := 1 + math.Abs(d)
			if math.IsInf(d, 0) {
				size = 1
			}
			if c == op.Softmax {
				r.f[m] = math.Exp(d) / sum
				r.tol[m] = (rel+acc*size)*r.f[m] + t.DType.Accumulator().SmallestNormal() + t.DType.SmallestSubnormal()
			} else {
				r.f[m] = d - math.Log(sum)
				r.tol[m] = rel*math.Abs(r.f[m]) + acc*(size+math.Log(sum)) + t.DType.SmallestSubnormal()
			}
		}
	}
	return r
}

func softmaxGrad(a op.Attr, t op.Type, args []array) result {
	r := result{Type: t, f: make([]float64, t.Shape.Size()), tol: make([]float64, t.Shape.Size())}
	rel, _ := t.DType.Tolerance()
	acc, _ := args[0].DType.Accumulator().Tolerance()
	y, g := args[0].floats(), args[1].floats()
	for _, members := range groups(args[0].Shape, a.Axes) {
		var sum accumulator
		for _, m := range members {
			sum.add(y[m] * g[m])
		}
		for _, m := range members {
			r.f[m] = y[m] * (g[m] - sum.value())
			r.tol[m] = rel*math.Abs(r.f[m]) + acc*math.Abs(y[m])*(math.Abs(g[m])+sum.magnitude) + t.DType.SmallestSubnormal()
		}
	}
	return r
}
