package keras_test

import (
	"context"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestSummaryVector is Keras's test of what a summary adds up: after a fit with
// Adam, two slots for each of 9 parameters, the steps and the rate.
func TestSummaryVector(t *testing.T) {
	m := keras.Sequential(&layers.Dense{Units: 3})
	if err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.MeanSquaredError{}}); err != nil {
		t.Fatal(err)
	}
	data := keras.FromTensors(tensor.Ones(dtype.Float32, 4, 2), tensor.Ones(dtype.Float32, 4, 3), nil)
	if _, err := m.Fit(context.Background(), data, keras.FitConfig{Verbose: keras.VerbositySilent}); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := m.Summary(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" Total params: 29 (", " Trainable params: 9 (", " Non-trainable params: 0 (", " Optimizer params: 20 ("} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("got\n%s\nwant %q in it", &b, want)
		}
	}
}
