package checkpoint

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestCustomLoop: a loop of one's own goes on from its variables, to the bit.
func TestCustomLoop(t *testing.T) {
	type loop struct {
		model *keras.Model
		opt   *optimizers.Adam
		step  func(keras.Batch) error
		ready func(keras.Batch) error
	}
	begin := func() loop {
		m := keras.Sequential(&layers.Dense{Units: 8}, &layers.Dropout{Rate: 0.5}, &layers.Dense{Units: 3})
		check(t, m.Build(6))
		opt := &optimizers.Adam{}
		loss := &losses.SparseCategoricalCrossentropy{FromLogits: true}
		step := keras.Function(func(b keras.Batch) *keras.Tensor {
			l := loss.Call(b.Y, m.Call(b.X, keras.Training))
			opt.ApplyGradients(keras.Gradients(l, m.TrainableVariables()), m.TrainableVariables())
			return l
		}, m, opt)
		return loop{m, opt, func(b keras.Batch) error { return step.Run(background, b) },
			func(b keras.Batch) error { _, err := step.MemoryOf(b); return err }}
	}
	path := filepath.Join(t.TempDir(), "loop.ckpt")
	whole, resumed := begin(), begin()
	i := 0
	for b, err := range data(48, 1).Batch(8).Batches() {
		check(t, err)
		check(t, whole.step(b))
		switch i++; {
		case i == 3:
			check(t, SaveVariables(path, whole.model, whole.opt))
			check(t, resumed.ready(b))
			check(t, LoadVariables(path, resumed.model, resumed.opt))
		case i > 3:
			check(t, resumed.step(b))
		}
	}
	a, err := keras.ArraysOf(whole.model, whole.opt)
	check(t, err)
	b, err := keras.ArraysOf(resumed.model, resumed.opt)
	check(t, err)
	for i := range a {
		if !bytes.Equal(a[i].Data, b[i].Data) {
			t.Errorf("%s differs", a[i].Name)
		}
	}
}
