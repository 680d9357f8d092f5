package lossmath

import (
	"math"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

func f32(shape []int, data ...float64) tensortest.Array {
	return tensortest.Of(dtype.Float32, data, shape...)
}

// Values that can be checked by hand, where the plain formula loses digits,
// overflows, or divides by 0. What Keras computes is checked by the packages
// losses and metrics.
func TestEdges(t *testing.T) {
	for _, c := range []struct {
		name string
		got  *tensor.Tensor
		want []float64
	}{
		{"log cosh", LogCosh("T", f32([]int{3, 1}, 0, 0, 0).Tensor(), f32([]int{3, 1}, 1e-3, 1e4, 0).Tensor()), []float64{math.Log(math.Cosh(1e-3)), 1e4 - math.Ln2, 0}},
		{"cosine of nothing", Cosine("T", f32([]int{1, 2}, 0, 0).Tensor(), f32([]int{1, 2}, 1, 2).Tensor(), nil), []float64{0}},
		{"cosine of small vectors", Cosine("T", f32([]int{1, 2}, 1e-5, 0).Tensor(), f32([]int{1, 2}, 3e-5, 4e-5).Tensor(), nil), []float64{0.6}},
		{"logistic", Logistic(f32([]int{4}, 0, 1, 1, 0).Tensor(), f32([]int{4}, 1000, 1000, -1000, -1000).Tensor()), []float64{1000, 0, 1000, 0}},
		{"hinge of bits", Hinge("T", f32([]int{1, 2}, 0, 1).Tensor(), f32([]int{1, 2}, -3, 0.5).Tensor()), []float64{0.25}},
		{"hinge of signs", Hinge("T", f32([]int{1, 2}, -1, 1).Tensor(), f32([]int{1, 2}, 0.5, 2).Tensor()), []float64{0.75}},
		{"power 0", Power(f32([]int{2}, 0, 3).Tensor(), 0), []float64{1, 1}},
		{"power 1.5", Power(f32([]int{2}, 0, 4).Tensor(), 1.5), []float64{0, 8}},
		{"scalars", Squared("T", f32(nil, 1).Tensor(), f32(nil, 4).Tensor()), []float64{9}},
		{"focal logits", Crossentropy{FromLogits: true}.BinaryFocal("T", f32([]int{1, 1}, 1).Tensor(), f32([]int{1, 1}, 20).Tensor(), false, 0, 1), []float64{math.Exp(-40)}},
	} {
		tensortest.Close(t, c.name, c.got, f32(c.got.Shape(), c.want...), 1)
	}
}

// Derivatives at points where a careless formula has none.
func TestGradientsAtEdges(t *testing.T) {
	for _, c := range []struct {
		name string
		f    func(x *tensor.Tensor) *tensor.Tensor
		at   []float64
		want []float64
	}{
		{"cosine", func(x *tensor.Tensor) *tensor.Tensor {
			return Cosine("T", f32([]int{1, 2}, 1, 0).Tensor(), x, nil).Sum()
		}, []float64{0, 0}, []float64{1e7, 0}},
		{"log cosh", func(x *tensor.Tensor) *tensor.Tensor {
			return LogCosh("T", f32([]int{1, 2}, 0, 0).Tensor(), x).Sum()
		}, []float64{0, -200}, []float64{0, -0.5}},
		{"generalized", func(x *tensor.Tensor) *tensor.Tensor {
			return Generalized("T", tensor.New([]int32{0}, 1), x.Softmax(-1), 0.5).Sum()
		}, []float64{-500, 500}, []float64{0, 0}},
		{"focal", func(x *tensor.Tensor) *tensor.Tensor {
			return Crossentropy{}.CategoricalFocal("T", f32([]int{1, 2}, 1, 0).Tensor(), x.Softmax(-1), 1, 2).Sum()
		}, []float64{500, -500}, []float64{0, 0}},
	} {
		x := f32([]int{1, 2}, c.at...).Tensor()
		tensortest.Close(t, c.name, tensor.GradientsAt(c.f(x), x)[0], f32([]int{1, 2}, c.want...), 1)
	}
}

func TestTypes(t *testing.T) {
	for d, want := range map[dtype.DType]dtype.DType{dtype.Float16: dtype.Float32, dtype.BFloat16: dtype.Float32, dtype.Float64: dtype.Float64} {
		p := tensor.Placeholder(d, 4, 3)
		for _, f := range []func(string, *tensor.Tensor, *tensor.Tensor) *tensor.Tensor{
			Error, Squared, Absolute, AbsolutePercentage, SquaredLogarithmic, LogCosh, Hinge, SquaredHinge, CategoricalHinge, KLDivergence, Poisson,
			Crossentropy{}.Binary, Crossentropy{}.Categorical,
		} {
			if got := f("T", tensor.Placeholder(dtype.Int32, 4, 3), p).DType(); got != want {
				t.Errorf("%v: got %v, want %v", d, got, want)
			}
		}
	}
}
