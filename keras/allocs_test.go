package keras

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
)

// TestAllocs: in steady state neither a training step nor a prediction whose
// result is released allocates in Go.
func TestAllocs(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	for _, p := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		underPolicy(t, p)
		m := Sequential(&layers.Dense{Units: 32, Activation: "relu"}, &layers.BatchNormalization{}, &layers.Dropout{Rate: 0.5},
			&layers.Dense{Units: 3, Activation: "softmax"})
		check(t, m.Compile(CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}, Metrics: []metrics.Metric{&metrics.SparseCategoricalAccuracy{}}}))
		x, y, _ := classData(64, false)
		b := Batch{X: x, Y: y}
		check(t, m.ready(b))
		step := func() {
			if err := m.training.train.Run(background, b); err != nil {
				t.Fatal(err)
			}
		}
		predict := func() {
			out, err := m.Predict(background, x)
			if err != nil {
				t.Fatal(err)
			}
			out.Release()
		}
		ready := func() { check(t, m.ready(b)) }
		for name, f := range map[string]func(){"training step": step, "prediction": predict, "check of a batch": ready} {
			for range 3 { // compile, and make what is kept
				f()
			}
			if n := testing.AllocsPerRun(20, f); n != 0 {
				t.Errorf("%s: a %s allocates %v times, want 0", p, name, n)
			}
		}
	}
}
