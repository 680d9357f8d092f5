package tensortest

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Within reports whether got is as close to want as the tolerance of d times
// scale allows. NaN equals NaN, and infinities of one sign are equal.
func Within(d dtype.DType, got, want, scale float64) bool {
	if got == want || math.IsNaN(got) && math.IsNaN(want) {
		return true
	}
	if math.IsInf(got, 0) || math.IsInf(want, 0) {
		return false
	}
	rel, abs := d.Tolerance()
	return math.Abs(got-want) <= scale*(abs+rel*math.Abs(want))
}

// Close fails the test unless got has the shape of want and elements within
// scale times the tolerance of got's element type; scale is 1 for one rounded
// result (see dtype.Tolerance).
func Close(t testing.TB, what string, got *tensor.Tensor, want Array, scale float64) {
	t.Helper()
	if !got.Shape().Equal(want.Shape) {
		t.Errorf("%s: got %v, want shape %v", what, got.Type(), op.Shape(want.Shape))
		return
	}
	data, err := got.Float64s()
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	bad := 0
	for i, w := range want.Data {
		if Within(got.DType(), data[i], w, scale) {
			continue
		}
		if bad++; bad <= 4 {
			t.Errorf("%s: element %d: got %v, want %v (%v)", what, i, data[i], w, got.DType())
		}
	}
	if bad > 4 {
		t.Errorf("%s: %d of %d elements differ", what, bad, len(data))
	}
}

// Near fails the test unless the elements of got are within scale times half an epsilon
// of its type from want.
func Near(t testing.TB, what string, got *tensor.Tensor, want Array, scale float64) {
	t.Helper()
	data, err := got.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want.Data {
		if err := math.Abs(data[i] - w); !(err <= scale*got.DType().Epsilon()/2) {
			t.Errorf("%s: element %d: got %v, want %v", what, i, data[i], w)
		}
	}
}

// step is the half width of a central difference in float64. Its truncation
// error is step²/6 times the third derivative, its rounding error the value's
// epsilon over step: about 1e-10 each for functions of magnitude 1.
const step = 1e-5

// CheckGradient compares the gradient of f, which must give a scalar and be
// smooth within 1e-5 of x, with central differences in float64, for each
// element of x.
func CheckGradient(t testing.TB, what string, x Array, f func(x *tensor.Tensor) *tensor.Tensor) {
	t.Helper()
	x = x.As(dtype.Float64)
	at := x.Tensor()
	loss := f(at)
	if loss.DType() != dtype.Float64 {
		t.Fatalf("%s: got a loss of %v for float64, want float64", what, loss.Type())
	}
	g := tensor.GradientsAt(loss, at)[0]
	if g == nil {
		t.Fatalf("%s: got no gradient, want one of %v", what, at.Type())
	}
	got, err := g.Float64s()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	value := func(i int, d float64) float64 {
		y := Of(x.DType, x.Data, x.Shape...)
		y.Data[i] += d
		v, err := f(y.Tensor()).Item()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return v
	}
	for i := range x.Data {
		want := (value(i, step) - value(i, -step)) / (2 * step)
		// 1e-8: a hundred times the error of step; a wrong formula is off by
		// far more.
		if math.Abs(got[i]-want) > 1e-8*(1+math.Abs(want)) {
			t.Errorf("%s: gradient of element %d: got %v, want %v", what, i, got[i], want)
		}
	}
}
