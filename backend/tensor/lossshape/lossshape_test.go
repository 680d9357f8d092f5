package lossshape

import (
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

func TestSameRank(t *testing.T) {
	for _, c := range []struct{ a, b, wantA, wantB tensor.Shape }{
		{tensor.Shape{4}, tensor.Shape{4}, tensor.Shape{4}, tensor.Shape{4}},
		{tensor.Shape{4}, tensor.Shape{4, 1}, tensor.Shape{4, 1}, tensor.Shape{4, 1}},
		{tensor.Shape{4, 1}, tensor.Shape{4}, tensor.Shape{4, 1}, tensor.Shape{4, 1}},
		{tensor.Shape{4, 2}, tensor.Shape{4, 2, 1}, tensor.Shape{4, 2}, tensor.Shape{4, 2}},
		{tensor.Shape{4, 2, 1}, tensor.Shape{4, 2}, tensor.Shape{4, 2}, tensor.Shape{4, 2}},
		{tensor.Shape{}, tensor.Shape{1}, tensor.Shape{}, tensor.Shape{}},
		{tensor.Shape{4}, tensor.Shape{4, 3}, tensor.Shape{4}, tensor.Shape{4, 3}},
		{tensor.Shape{4, 1, 1}, tensor.Shape{4}, tensor.Shape{4, 1, 1}, tensor.Shape{4}},
	} {
		a, b := SameRank(tensor.Placeholder(dtype.Float32, c.a...), tensor.Placeholder(dtype.Float32, c.b...))
		if !a.Shape().Equal(c.wantA) || !b.Shape().Equal(c.wantB) {
			t.Errorf("%v, %v: got %v, %v, want %v, %v", c.a, c.b, a.Shape(), b.Shape(), c.wantA, c.wantB)
		}
	}
}

func TestTypes(t *testing.T) {
	for d, want := range map[dtype.DType]dtype.DType{
		dtype.Float16: dtype.Float32, dtype.BFloat16: dtype.Float32, dtype.Float32: dtype.Float32,
		dtype.Float64: dtype.Float64, dtype.Int32: dtype.Float32, dtype.Bool: dtype.Float32,
	} {
		yTrue, yPred := Floats("test", tensor.Placeholder(dtype.Uint8, 2), tensor.Placeholder(d, 2))
		if yTrue.DType() != want || yPred.DType() != want {
			t.Errorf("%v: got %v and %v, want %v", d, yTrue.Type(), yPred.Type(), want)
		}
	}
	for d, want := range map[dtype.DType]dtype.DType{
		dtype.Uint8: dtype.Int32, dtype.Int32: dtype.Int32, dtype.Int64: dtype.Int64, dtype.Float32: dtype.Int32,
	} {
		if got := Labels("test", tensor.Placeholder(d, 2), tensor.Placeholder(dtype.Float32, 2, 3)); got.DType() != want {
			t.Errorf("labels %v: got %v, want %v", d, got.Type(), want)
		}
	}
}
