package keras_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

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
