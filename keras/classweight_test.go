package keras

import (
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// classData is n samples of 3 classes, whose targets are integers or one-hot.
func classData(n int, oneHot bool) (x, y *Tensor, classes []int) {
	px := numbers(2 * n)
	classes = make([]int, n)
	sparse, hot := make([]int32, n), make([]float32, 3*n)
	for i := range classes {
		c := i * i % 3
		classes[i], sparse[i], hot[3*i+c] = c, int32(c), 1
	}
	if oneHot {
		return NewTensor(px, n, 2), NewTensor(hot, n, 3), classes
	}
	return NewTensor(px, n, 2), NewTensor(sparse, n), classes
}

// TestClassWeights gives the same bits as sample weights made by hand.
func TestClassWeights(t *testing.T) {
	byClass := map[int]float64{0: 0.25, 1: 3}
	for _, oneHot := range []bool{false, true} {
		x, y, classes := classData(21, oneHot)
		w := make([]float32, len(classes))
		for i, c := range classes {
			w[i] = 1
			if v, ok := byClass[c]; ok {
				w[i] = float32(v)
			}
		}
		after := func(d Dataset, c FitConfig) [][]byte {
			m := Sequential(dense(4), &layers.Dense{Units: 3, Activation: "softmax"})
			var loss losses.Loss = &losses.SparseCategoricalCrossentropy{}
			if oneHot {
				loss = &losses.CategoricalCrossentropy{}
			}
			check(t, m.Compile(CompileConfig{Loss: loss}))
			c.BatchSize, c.Epochs = 6, 2
			fit(t, m, d, c)
			return bits(t, m)
		}
		weight := NewTensor(w, len(w))
		plain := FromTensors(x, y, nil)
		for name, c := range map[string]struct {
			byHand, byClass Dataset
			split           float64
		}{
			"samples": {FromTensors(x, y, weight), plain, 0},
			"batches": {FromTensors(x, y, weight).Batch(6), plain.Batch(6), 0},
			"own":     {mapped(FromTensors(x, y, weight).Batch(6), func(b Batch) Batch { return b }), mapped(plain.Batch(6), func(b Batch) Batch { return b }), 0},
			"column":  {FromTensors(x, y, weight), FromTensors(x, y.ExpandDims(1), nil), 0},
		} {
			if oneHot && name == "column" {
				continue
			}
			if !same(after(c.byHand, FitConfig{}), after(c.byClass, FitConfig{ClassWeight: byClass})) {
				t.Errorf("%s, one-hot %v: class weights differ from sample weights", name, oneHot)
			}
		}
		if same(after(plain, FitConfig{}), after(plain, FitConfig{ClassWeight: byClass})) {
			t.Error("class weights do nothing")
		}
		_, err := line(t).Fit(background, FromTensors(x, y, weight), silent(FitConfig{ClassWeight: byClass}))
		wantError(t, err, "Fit: both ClassWeight and sample weights are given; use one")
	}
	x, y, _ := classData(6, false)
	_, err := line(t).Fit(background, FromTensors(x, Tuple(y, y), nil), silent(FitConfig{ClassWeight: byClass}))
	wantError(t, err, "Fit: ClassWeight wants one target, got (int32[6], int32[6])")
	_, err = line(t).Fit(background, FromTensors(x, nil, nil), silent(FitConfig{ClassWeight: byClass}))
	wantError(t, err, "Fit: ClassWeight wants one target, got nothing")
	_, err = line(t).Fit(background, FromTensors(x, NewTensor(rising(24), 6, 2, 2), nil), silent(FitConfig{ClassWeight: byClass}))
	wantError(t, err, "Fit: ClassWeight wants targets of one class per sample, got float32[6 2 2]")

	// Validation samples keep their weight of 1, also behind a split.
	v := NewTensor(make([]float32, 10), 10, 1)
	two := FromTensors(v, NewTensor([]float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 10, 1), nil)
	m := Sequential(&layers.Dense{Units: 1, UseBias: new(false)})
	check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{}, Loss: &losses.MeanSquaredError{}}))
	h := fit(t, m, two, FitConfig{ClassWeight: map[int]float64{1: 0.5}, ValidationSplit: 0.4})
	if h.Get("loss")[0] != 0.5 || h.Get("val_loss")[0] != 1 {
		t.Errorf("got loss %v and val_loss %v, want 0.5 and 1", h.Get("loss"), h.Get("val_loss"))
	}
}
