package models_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

var every = flag.Bool("every", false, "also search policies of models of their usual size by measured times")

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
	for _, c := range searches(t, [2]int{4, 8}, 8, models.RossmannCategories[1:3], 4, 32, 64) {
		t.Run(c.name, func(t *testing.T) {
			first := c.search(t, doctor.SearchConfig{Steps: 8, Maps: 3, Measure: modelled})
			c.same(t, first, c.search(t, doctor.SearchConfig{Steps: 8, Maps: 3, Measure: modelled}))
		})
	}
}

// TestSearchMeasured is TestSearch on larger models, by measured times:
// the same times give the same result again.
func TestSearchMeasured(t *testing.T) {
	if !*every {
		t.Skip("without -every: TestSearch has the same on small models")
	}
	for _, c := range searches(t, [2]int{16, 32}, 64, models.RossmannCategories, 16, 256, 1024) {
		t.Run(c.name, func(t *testing.T) {
			first := c.search(t, doctor.SearchConfig{Steps: 6})
			c.same(t, first, c.search(t, doctor.SearchConfig{Steps: 6, Times: first.Times}))
		})
	}
}

// searchCase is a compiled model and what it is trained on.
type searchCase struct {
	name  string
	model *keras.Model
	data  keras.Dataset
}

// searches are the network on digits and the one on a table of sales.
func searches(t *testing.T, filters [2]int, pictures int, categories []models.Category, numbers, rows, all int) []searchCase {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 5))
	digit, _, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	rossmann, err := models.Rossmann(categories, numbers)
	if err != nil {
		t.Fatal(err)
	}
	var x []*keras.Tensor
	for _, c := range categories {
		x = append(x, whole(r, c.Cardinality, all))
	}
	sales := func() float64 { return 8.7 + 0.4*r.NormFloat64() } // their logarithm
	cases := []searchCase{
		{"cnn", models.DigitsCNN(filters), digit.Shuffle(1024, 7).Batch(pictures)},
		{"rossmann", rossmann, keras.FromTensors(keras.Tuple(append(x, floats(r.NormFloat64, all, numbers))...), floats(sales, all, 1), nil).Batch(rows)},
	}
	for i, loss := range []losses.Loss{&losses.SparseCategoricalCrossentropy{}, &losses.MeanSquaredError{}} {
		if err := cases[i].model.Compile(keras.CompileConfig{Loss: loss, Optimizer: &optimizers.Adam{}}); err != nil {
			t.Fatal(err)
		}
	}
	return cases
}

// search searches, and checks the result.
func (c *searchCase) search(t *testing.T, config doctor.SearchConfig) *doctor.SearchResult {
	t.Helper()
	s, err := doctor.Search(t.Context(), c.model, c.data, config)
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
	for _, p := range s.Rejected {
		if p.Verified == nil || p.Verified.OK || p.Verified.Why == "" {
			t.Errorf("%+v is rejected without a reason", p)
		}
	}
	return s
}

// same compares the results of two searches to the bit.
func (c *searchCase) same(t *testing.T, first, second *doctor.SearchResult) {
	t.Helper()
	want, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(second)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%s the second time, and\n%s before", got, want)
	}
}
