package preprocessing_test

import (
	"context"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// TestNormalizationAdapt: statistics of batches are those of all together, also
// far from 0, and replace earlier ones.
func TestNormalizationAdapt(t *testing.T) {
	l := &preprocessing.Normalization{}
	if err := l.Adapt(tensor.New([]float32{9, 9, 9, 9, 9, 9}, 2, 3)); err != nil {
		t.Fatal(err)
	}
	// Keras's docstring, moved by 2²³, where a mean of squares has no digit left.
	const far = 1 << 23
	first := tensor.New([]float32{far, far + 7, far + 4}, 1, 3)
	rest := tensor.New([]float32{far + 2, far + 9, far + 6, far, far + 7, far + 4, far + 2, far + 9, far + 6}, 3, 3)
	if err := l.Adapt(first, rest); err != nil {
		t.Fatal(err)
	}
	if l.LayerName() != "" {
		t.Errorf("Adapt named the layer %q, want that left to its model", l.LayerName())
	}
	w := l.NonTrainableWeights()
	tensortest.Close(t, "mean", w[0].Variable.Value(), tensortest.Of(dtype.Float32, []float64{far + 1, far + 8, far + 5}, 3), 0)
	tensortest.Close(t, "variance", w[1].Variable.Value(), tensortest.Of(dtype.Float32, []float64{1, 1, 1}, 3), 0)
	if n, err := w[2].Item(); n != 4 || err != nil || w[2].DType() != dtype.Int32 {
		t.Errorf("count: got %v of %v, %v, want 4 of int32", n, w[2].DType(), err)
	}
	y, err := layertest.Function(l, true).Call(context.Background(), first)
	if err != nil {
		t.Fatal(err)
	}
	tensortest.Close(t, "y", y, tensortest.Of(dtype.Float32, []float64{-1, -1, -1}, 1, 3), 0)
	if len(l.TrainableWeights()) != 0 {
		t.Errorf("got %d trainable weights, want none", len(l.TrainableWeights()))
	}
	for _, c := range []struct {
		layer *preprocessing.Normalization
		data  []*tensor.Tensor
		want  string
	}{
		{l, nil, "layer normalization: Adapt: got no data"},
		{l, []*tensor.Tensor{tensor.Zeros(dtype.Float32, 2, 4)}, "layer normalization: Call: axis 1 of input [? 4] is 4, want 3"},
		{&preprocessing.Normalization{Mean: []float64{0}, Variance: []float64{1}}, []*tensor.Tensor{first}, "layer normalization: Adapt: Mean and Variance are given, want them left out"},
		{&preprocessing.Normalization{}, []*tensor.Tensor{tensor.Zeros(dtype.Float32, 0, 3)}, "layer normalization: Adapt: got data without elements"},
	} {
		if err := c.layer.Adapt(c.data...); err == nil || err.Error() != c.want {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
}

func TestDiscretizationAdapt(t *testing.T) {
	l := &preprocessing.Discretization{NumBins: 4}
	data := make([]float32, 100)
	for i := range data {
		data[i] = float32((i*37)%100 + 1) // 1 to 100
	}
	if err := l.Adapt(tensor.New(data[:30], 30), tensor.New(data[30:], 70)); err != nil {
		t.Fatal(err)
	}
	tensortest.Close(t, "boundaries", tensor.New(l.BinBoundaries, 3).Cast(dtype.Float32), tensortest.Of(dtype.Float32, []float64{25, 50, 75}, 3), 1)
	y, err := layertest.Function(l, false).Call(context.Background(), tensor.New([]float32{24.9, 25.1, 80}, 3))
	if err != nil {
		t.Fatal(err)
	}
	tensortest.Close(t, "y", y, tensortest.Of(dtype.Int32, []float64{0, 1, 3}, 3), 0)
	if err := l.Adapt(tensor.New(data, 100)); err == nil || err.Error() != "layer discretization: Adapt: the layer is in use, want Adapt before that" {
		t.Errorf("got error %v, want one that the layer is in use", err)
	}
	if err := (&preprocessing.Discretization{}).Adapt(tensor.New(data, 100)); err == nil || err.Error() != "layer discretization: Adapt: NumBins is 0, want at least 2" {
		t.Errorf("got error %v, want one of NumBins", err)
	}
}

// TestKerasAdapt compares learned boundaries with Keras.
func TestKerasAdapt(t *testing.T) {
	for _, c := range tensortest.Load(t, "../../keras/testdata/golden/adapt.json").Cases {
		made, _ := layertest.FromCase(t, &c)
		l := made.(*preprocessing.Discretization)
		if err := l.Adapt(layertest.Inputs(&c, dtype.Float32).Unpack()...); err != nil {
			t.Fatal(err)
		}
		got := tensor.New(l.BinBoundaries, len(l.BinBoundaries)).Cast(dtype.Float32)
		// Shares of float32 there and of float64 here choose between neighbours
		// that lie up to 1 apart: some epsilons of that.
		tensortest.Close(t, c.Name, got, c.Outputs["y"], 4)
	}
	for want, l := range map[string]*preprocessing.Discretization{
		"layer discretization: Adapt: Epsilon is 2, want a number between 0 and 1": {NumBins: 3, Epsilon: new(2.0)},
		"layer discretization: Adapt: got 1 numbers, want at least 2":              {NumBins: 3},
	} {
		if err := l.Adapt(tensor.New([]float32{1}, 1)); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}
