package backendtest

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// wrap reduces the result of integer arithmetic to the bits of its type.
func wrap(x int64, d dtype.DType) int64 {
	switch d {
	case dtype.Uint8:
		return int64(uint8(x))
	case dtype.Int8:
		return int64(int8(x))
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
	fn := c.Info().Scalar
	if fn == nil || fn.Float == nil {
		return r, fmt.Errorf("the row of %v has no formula for %v", c, t.DType)
	}
	r.anyZero = fn.AnyZero
	a := x[0].floats()
	b := a
	if len(x) > 1 {
		b = x[1].floats()
	}
	r.f = make([]float64, len(a))
	for i := range a {
		r.f[i] = fn.Float(a[i], b[i])
	}
	if fn.Error == nil {
		return r, nil
	}
	rel, abs := t.DType.Tolerance()
	// Functions that are not exact may treat results below the normal range of
	// the type they compute in as zero, as vector libraries do.
	flush := t.DType.Accumulator().SmallestNormal() + t.DType.SmallestSubnormal()
	r.tol = make([]float64, len(a))
	for i, v := range r.f {
		r.tol[i] = fn.Error(a[i], b[i], v, rel, abs) + flush
	}
	return r, nil
}

func integers(c op.Code, t op.Type, x []array) (result, error) {
	var f func(x, y int64) int64
	if s := c.Info().Scalar; s != nil {
		f = s.Int
		if t.DType == dtype.Bool {
			f = s.Bool
		}
	}
	if f == nil {
		return result{}, fmt.Errorf("the row of %v has no formula for %v", c, t.DType)
	}
	a := x[0].ints()
	b := a
	if len(x) > 1 {
		b = x[1].ints()
	}
	r := result{Type: t, i: make([]int64, len(a))}
	for i := range a {
		r.i[i] = wrap(f(a[i], b[i]), t.DType)
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
