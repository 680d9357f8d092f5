package losses

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

// Padding, here NaN, has no part in losses, means, or gradients.
func TestMask(t *testing.T) {
	keep := f32([]int{2, 3}, 1, 1, 0, 1, 0, 0).GreaterScalar(0.5)
	y := f32([]int{2, 3, 1}, 0, 0, 0, 0, 0, 0)
	x := f32([]int{2, 3, 1}, 1, 2, math.NaN(), 3, math.NaN(), math.NaN())
	p := x.WithMask(keep)
	w := f32([]int{2, 3}, 1, 0.5, 9, 2, 9, 9)
	for _, c := range []struct {
		reduction string
		w         *tensor.Tensor
		want      []float64
	}{
		{"", nil, []float64{14. / 3}},
		{"sum", nil, []float64{14}},
		{"none", nil, []float64{1, 4, 0, 9, 0, 0}},
		{"mean_with_sample_weight", nil, []float64{14. / 3}},
		{"", w, []float64{(1 + 2 + 18.) / 3}},
		{"mean_with_sample_weight", w, []float64{21 / 3.5}},
	} {
		l := (&MeanSquaredError{Reduction: c.reduction}).CallWeighted(y, p, c.w)
		tensortest.Close(t, c.reduction, l, array(l.Shape(), c.want...), 1)
	}
	g := tensor.GradientsAt((&MeanSquaredError{}).Call(y, x.Mul(x.Sign()).WithMask(keep)), x)[0]
	got, err := g.Slice(1, 0, 1).Float64s()
	if err != nil || math.Abs(got[0]-2./3) > 1e-6 || math.Abs(got[1]-2) > 1e-6 {
		t.Errorf("got gradients %v, %v, want 2/3 and 2", got, err)
	}
	ignore := &SparseCategoricalCrossentropy{FromLogits: true, IgnoreClass: new(1)}
	logits := f32([]int{1, 3, 2}, 1, 1, 2, 2, 3, 3).WithMask(f32([]int{1, 3}, 1, 1, 0).GreaterScalar(0.5))
	tensortest.Close(t, "ignored and masked", ignore.Call(tensor.New([]int32{0, 1, 0}, 1, 3), logits), array(nil, math.Ln2), 1)
	want := `MeanSquaredError: got a mask bool[2 3] of predictions float32[2 3] for values of shape [2], want the first axes of those`
	err = failure(func() *tensor.Tensor {
		return (&MeanSquaredError{}).Call(y.Squeeze(-1), x.Squeeze(-1).WithMask(keep))
	})
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A masked sequence has the loss of the sequence without the padding.
func TestMaskOfCTC(t *testing.T) {
	x := []float64{.4, .8, .4, .2, .3, .3, 7, 7, -7, 1, 2, 3}
	labels := tensor.New([]int32{1, 2, 0}, 1, 3)
	p := tensortest.Of(dtype.Float64, x, 1, 4, 3)
	masked := func(p *tensor.Tensor) *tensor.Tensor {
		return (&CTC{}).Call(labels, p.WithMask(f32([]int{1, 4}, 1, 1, 0, 0).GreaterScalar(0.5)))
	}
	short, err := (&CTC{}).Call(labels, tensortest.Of(dtype.Float64, x[:6], 1, 2, 3).Tensor()).Item()
	if err != nil {
		t.Fatal(err)
	}
	// 1.91680186: vector 88, whose second sample has two steps of three.
	if math.Abs(short-1.91680186) > 1e-7 {
		t.Errorf("got %v, want 1.91680186", short)
	}
	tensortest.Close(t, "ctc", masked(p.Tensor()), tensortest.Of(dtype.Float64, []float64{short}), 1)
	tensortest.CheckGradient(t, "ctc", p, masked)
}
