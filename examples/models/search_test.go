package models_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// modelled is a time of a step that does not depend on the machine: the fewer bits a
// layer computes in the less, and more for the cast where the next one has others.
func modelled(_ context.Context, m *keras.Model, _ keras.Batch) (doctor.StepTime, error) {
	t := doctor.StepTime{Layers: map[string]float64{}}
	last := keras.Float32
	for _, l := range m.Layers() {
		b, n := layers.BaseOf(l), 100
		for _, w := range b.Weights() {
			n += w.Shape().Size()
		}
		d := b.ComputeDType()
		x := float64(n) * map[keras.DType]float64{keras.Float32: 4e-9, keras.BFloat16: 2e-9, keras.Float16: 1e-9}[d]
		if d != last {
			x += 1e-7
		}
		last = d
		t.Layers[b.Path()] = x
		t.Seconds += x
	}
	return t, nil
}

// TestSearch: on small versions of two models the choice is verified, every other point
// is dominated or slower, and the result is the same again.
func TestSearch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	rossmann, err := models.Rossmann(models.RossmannCategories[1:3], 4)
	if err != nil {
		t.Fatal(err)
	}
	var x []*keras.Tensor
	for _, c := range models.RossmannCategories[1:3] {
		x = append(x, whole(r, c.Cardinality, 64))
	}
	sales := func() float64 { return 8.7 + 0.4*r.NormFloat64() } // their logarithm
	for _, c := range []struct {
		name  string
		model *keras.Model
		loss  losses.Loss
		data  keras.Dataset
	}{
		{"cnn", models.DigitsCNN([2]int{4, 8}), &losses.SparseCategoricalCrossentropy{},
			keras.FromTensors(floats(r.Float64, 32, 784), whole(r, 10, 32), nil).Shuffle(32, 7).Batch(8)},
		{"rossmann", rossmann, &losses.MeanSquaredError{},
			keras.FromTensors(keras.Tuple(append(x, floats(r.NormFloat64, 64, 4))...), floats(sales, 64, 1), nil).Batch(32)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.model.Compile(keras.CompileConfig{Loss: c.loss, Optimizer: &optimizers.Adam{}}); err != nil {
				t.Fatal(err)
			}
			var last []byte
			for range 2 {
				s, err := doctor.Search(t.Context(), c.model, c.data, doctor.SearchConfig{Steps: 8, Maps: 3, Measure: modelled})
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("\n%v", s)
				if s.Chosen == nil || !s.Chosen.Verified.OK {
					t.Fatalf("got %+v, want a choice that is verified", s.Chosen)
				}
				for _, p := range s.Points[1:] {
					if !p.Dominated && p.Seconds <= s.Chosen.Seconds {
						t.Errorf("%+v is listed, and neither dominated nor slower than %+v", p, s.Chosen)
					}
				}
				b, err := json.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				if last != nil && string(b) != string(last) {
					t.Errorf("got\n%s the second time, and\n%s before", b, last)
				}
				last = b
			}
		})
	}
}
