package keras_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// TestPredictRescaled: a Dense layer, with and without a bias, and a Rescaling behind it, whose
// constants are folded into the kernel and a bias, at two sizes of the batch, again, and after
// new weights.
func TestPredictRescaled(t *testing.T) {
	ctx := context.Background()
	for _, biased := range []bool{true, false} {
		m := keras.Sequential(&layers.Dense{Units: 2, UseBias: new(biased)}, &preprocessing.Rescaling{Scale: 0.5, Offset: 3})
		if err := m.Build(3); err != nil {
			t.Fatal(err)
		}
		for _, kernel := range [][]float32{{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}, {-1, 0, 2, 4, 8, 16}} {
			weights, bias := []*keras.Tensor{keras.NewTensor(kernel, 3, 2)}, []float32{0, 0}
			if biased {
				bias = []float32{10, -20}
				weights = append(weights, keras.NewTensor(bias, 2))
			}
			if err := m.SetWeights(weights); err != nil {
				t.Fatal(err)
			}
			for _, batch := range []int{1, 4, 1} {
				x := make([]float32, 3*batch)
				var want []float32
				for i := range batch {
					x[3*i], x[3*i+1], x[3*i+2] = float32(i), 1, -2
					for j := range 2 {
						y := bias[j]
						for p := range 3 {
							y += x[3*i+p] * kernel[2*p+j]
						}
						want = append(want, 0.5*y+3) // exact: small integers and a half
					}
				}
				p, err := m.Predict(ctx, keras.NewTensor(x, batch, 3))
				if err != nil {
					t.Fatal(err)
				}
				if got, err := p.Values(); err != nil || !slices.Equal(got, want) {
					t.Errorf("bias %v, kernel %v, batch %d: got %v, want %v, %v", biased, kernel, batch, got, want, err)
				}
			}
		}
	}
}

// TestPredictDataset: batches of any size, the last one smaller, give what the
// whole gives, also of several inputs and outputs; targets are not read.
func TestPredictDataset(t *testing.T) {
	ctx := context.Background()
	a, b := keras.Input(3), keras.Input(3)
	sum := keras.Apply(&layers.Add{}, a, b)
	m, err := keras.NewModel(keras.Tuple(a, b), keras.Tuple(sum, keras.Apply(&layers.Dense{Units: 2}, sum)))
	if err != nil {
		t.Fatal(err)
	}
	data := make([]float32, 7*3)
	for i := range data {
		data[i] = float32(i)
	}
	x := keras.Tuple(keras.NewTensor(data, 7, 3), keras.NewTensor(data, 7, 3))
	want, err := m.Predict(ctx, x)
	if err != nil {
		t.Fatal(err)
	}
	plain := keras.FromTensors(x, keras.NewTensor(make([]int32, 7), 7), nil)
	for what, d := range map[string]keras.Dataset{"samples": plain, "batches": plain.Batch(3), "one": plain.Batch(7)} {
		got, err := m.PredictDataset(ctx, d)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for i, p := range got.Unpack() {
			g, err := p.Values()
			if err != nil {
				t.Fatal(err)
			}
			if w, err := want.Unpack()[i].Values(); err != nil || !slices.Equal(g, w) {
				t.Errorf("%s: output %d: got %v, want %v, %v", what, i, g, w, err)
			}
		}
	}
	if _, err := m.PredictDataset(ctx, plain.Take(0)); !errors.Is(err, keras.ErrEmptyDataset) {
		t.Errorf("no samples: got error %v, want ErrEmptyDataset", err)
	}
	if _, err := m.PredictDataset(ctx, nil); err == nil || err.Error() != "model functional: PredictDataset: no dataset given" {
		t.Errorf("no dataset: got error %v", err)
	}
}
