package doctor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// modelled is a time of a step that does not depend on the machine: of each layer its
// weights, and less the fewer bits it computes in.
func modelled(_ context.Context, m *keras.Model, _ keras.Batch) (doctor.StepTime, error) {
	t := doctor.StepTime{Layers: map[string]float64{}}
	for _, l := range m.Layers() {
		b, n := layers.BaseOf(l), 64
		for _, w := range b.Weights() {
			n += w.Shape().Size()
		}
		x := float64(n) * map[keras.DType]float64{keras.Float32: 4e-9, keras.BFloat16: 2e-9, keras.Float16: 1e-9}[b.ComputeDType()]
		t.Layers[b.Path()] = x
		t.Seconds += x
	}
	return t, nil
}

// searched is a compiled tower around f, and data.
func searched(t *testing.T, f func(x *keras.Tensor) *keras.Tensor) (*keras.Model, keras.Dataset) {
	t.Helper()
	m, err := tower(f)()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Compile(keras.CompileConfig{Loss: crossentropy, Optimizer: &optimizers.Adam{}}); err != nil {
		t.Fatal(err)
	}
	b := standard()
	return m, keras.FromTensors(b.X, b.Y, nil).Batch(16)
}

func search(t *testing.T, m *keras.Model, data keras.Dataset, c doctor.SearchConfig) *doctor.SearchResult {
	t.Helper()
	if c.Measure == nil {
		c.Measure = modelled
	}
	c.Steps, c.Maps = 8, 4
	r, err := doctor.Search(t.Context(), m, data, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", r)
	return r
}

// TestSearch: the layer whose squares overflow stays out of float16, and the others,
// which are the faster in it, do not. A model that does not learn does not pass for a
// good one.
func TestSearch(t *testing.T) {
	m, data := searched(t, func(x *keras.Tensor) *keras.Tensor { return layerOf("own_norm", ownNorm, x) })
	before := state(t, m)
	r := search(t, m, data, doctor.SearchConfig{Tolerance: 0.05})
	if r.Chosen == nil || !r.Chosen.Verified.OK || r.Chosen.Map["own_norm"] == "" || r.Chosen.Policy != "mixed_float16" {
		t.Errorf("got %+v, want a verified map with own_norm not in float16", r.Chosen)
	}
	if i := slices.IndexFunc(r.Rejected, func(p doctor.Point) bool { return p.Policy == "mixed_float16" && len(p.Map) == 0 }); i < 0 || r.Rejected[i].Verified.OK || r.Rejected[i].Verified.Why == "" {
		t.Errorf("rejected are %+v, want mixed_float16 with a reason among them", r.Rejected)
	}
	for _, p := range r.Points[1:] {
		if p.Verified != nil || !p.Dominated && p.Seconds <= r.Chosen.Seconds {
			t.Errorf("%+v is listed, and neither dominated nor slower than %+v", p, r.Chosen)
		}
	}
	if !bytes.Equal(before, state(t, m)) {
		t.Error("the model has changed")
	}

	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Chosen struct {
			Policy   string
			Map      policy.Map
			Verified struct{ OK bool }
		}
		Rejected []struct {
			Predicted any
			Verified  struct{ Why string }
		}
		Layers []struct{ Layer, Policy string }
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if c := file.Chosen; c.Policy != r.Chosen.Policy || !maps.Equal(c.Map, r.Chosen.Map) || !c.Verified.OK || file.Rejected[0].Predicted != "Infinity" || file.Rejected[0].Verified.Why == "" || len(file.Layers) != 21 {
		t.Errorf("as JSON the result is %+v", file)
	}

	// The choice trains as the verification says.
	healthy, err := m.CloneUnder(r.Chosen.Policy, r.Chosen.Map, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := healthy.Compile(keras.CompileConfig{Loss: crossentropy, Optimizer: &optimizers.SGD{}}); err != nil {
		t.Fatal(err)
	}
	for b, err := range data.Batches() {
		if err != nil {
			t.Fatal(err)
		}
		if report, err := doctor.Examine(t.Context(), healthy, b, doctor.Config{}); err != nil || report.Kind != doctor.Healthy {
			t.Errorf("under the choice a step is %v, %v", report, err)
		}
		break
	}
}

// TestSearchRepeats: the same times give the same result, to the bit.
func TestSearchRepeats(t *testing.T) {
	m, data := searched(t, func(x *keras.Tensor) *keras.Tensor {
		return keras.Apply(&layers.Dropout{Rate: 0.2}, x)
	})
	first := search(t, m, data, doctor.SearchConfig{})
	want, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	times, err := json.Marshal(first.Times)
	if err != nil {
		t.Fatal(err)
	}
	var known []doctor.StepTime
	if err := json.Unmarshal(times, &known); err != nil {
		t.Fatal(err)
	}
	again := search(t, m, data, doctor.SearchConfig{Times: known, Measure: func(context.Context, *keras.Model, keras.Batch) (doctor.StepTime, error) {
		return doctor.StepTime{}, errors.New("a known time was measured again")
	}})
	if got, err := json.Marshal(again); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got\n%s (%v) the second time, and\n%s before", got, err, want)
	}
	if first.Chosen.Verified.Loss != again.Chosen.Verified.Loss {
		t.Errorf("the losses are off by %v, and by %v the second time", first.Chosen.Verified.Loss, again.Chosen.Verified.Loss)
	}
}

// TestSearchBudget: points beyond the budget are not tried, and the goal orders the rest.
func TestSearchBudget(t *testing.T) {
	m, data := searched(t, func(x *keras.Tensor) *keras.Tensor {
		return keras.Apply(&layers.Dense{Units: 64, Name: "exact", DType: "float32"}, x)
	})
	loose := search(t, m, data, doctor.SearchConfig{Tolerance: 0.5})
	if loose.Chosen == nil || loose.Chosen != &loose.Points[0] || len(loose.Points) < 3 {
		t.Fatalf("got %+v, want a choice among several", loose)
	}
	for _, l := range loose.Layers {
		if l.Layer == "exact" {
			t.Errorf("%+v: the policy of that layer is fixed", l)
		}
	}
	forced := search(t, m, data, doctor.SearchConfig{Tolerance: 0.5, Force: true})
	if p := forced.Chosen; p == nil || p.Policy != "mixed_float16" || len(p.Map) != 1 || p.Map["exact"] != "mixed_float16" || p.Seconds >= loose.Chosen.Seconds {
		t.Errorf("got %+v, want float16 in all layers, by force where a field names another policy", p)
	}
	smallest := search(t, m, data, doctor.SearchConfig{Goal: doctor.MinMemory, Tolerance: 0.5})
	for _, p := range smallest.Points {
		if p.Memory < smallest.Chosen.Memory {
			t.Errorf("%+v is smaller than the choice, %+v", p, smallest.Chosen)
		}
	}
	exact := search(t, m, data, doctor.SearchConfig{Goal: doctor.MinError, MaxTime: 0.6, Tolerance: 0.5, Metric: func(_ context.Context, m *keras.Model) (float64, error) {
		return float64(len(m.Weights())), nil
	}})
	if p := exact.Chosen; p == nil || p.Predicted == 0 || !p.Verified.OK || p.Verified.Metric != 0 {
		t.Errorf("got %+v, want a choice that is faster than float32", p)
	}
	for _, p := range exact.Points[1:] {
		if p.Predicted < exact.Chosen.Predicted {
			t.Errorf("%+v is more exact than the choice, %+v", p, exact.Chosen)
		}
	}
	// 8-bit products have a gradient of their own, and round the more.
	bits := search(t, m, data, doctor.SearchConfig{Policies: []string{"mixed_bfloat16", "mixed_float8"}, Tolerance: 0.5})
	for i := 0; i < len(bits.Layers); i += 3 {
		if b, e := bits.Layers[i+1], bits.Layers[i+2]; e.Policy != "mixed_float8" || strings.HasPrefix(b.Layer, "in_") && !(e.Error > 10*b.Error) {
			t.Errorf("got %+v and %+v, want the error of 8 bits to be larger", b, e)
		}
	}
	// A device that does not tell the times of layers.
	whole := search(t, m, data, doctor.SearchConfig{Tolerance: 0.5, Measure: func(ctx context.Context, m *keras.Model, b keras.Batch) (doctor.StepTime, error) {
		all, err := modelled(ctx, m, b)
		return doctor.StepTime{Seconds: all.Seconds}, err
	}})
	if p := whole.Chosen; p == nil || p.Policy != "mixed_float16" {
		t.Errorf("got %+v without the times of layers, want the fastest", p)
	}
	none := search(t, m, data, doctor.SearchConfig{MaxMemory: 1})
	if none.Chosen != nil || len(none.Points) != 0 || !strings.Contains(none.String(), "no choice is within the budget") || !strings.Contains(none.Rejected[0].Verified.Why, "MaxMemory is 1 B") {
		t.Errorf("got %v, want nothing within one byte", none)
	}
	off := search(t, m, data, doctor.SearchConfig{Metric: func(_ context.Context, m *keras.Model) (float64, error) {
		if m.Optimizer() == nil || slices.ContainsFunc(m.Layers(), func(l layers.Layer) bool { return layers.BaseOf(l).ComputeDType().Is16() }) {
			return 0.5, nil
		}
		return 1, nil
	}})
	if p := off.Chosen; p == nil || p.Policy != policy.Float32 || len(p.Map) > 0 {
		t.Errorf("got %+v where the metric of all others is off by half, want float32", p)
	}
}

// TestSearchSilentFault: a branch that learns nothing in float16 does not show in the loss
// of a few steps, but in its gradients.
func TestSearchSilentFault(t *testing.T) {
	m, data := searched(t, func(x *keras.Tensor) *keras.Tensor {
		y := layerOf("own_norm", ownNorm, dense("branch", 64, "", x))
		y = layerOf("small", func(x *keras.Tensor) *keras.Tensor { return x.MulScalar(0.01) }, y)
		return keras.Apply(&layers.Add{}, x, y)
	})
	r := search(t, m, data, doctor.SearchConfig{Tolerance: 0.1})
	i := slices.IndexFunc(r.Rejected, func(p doctor.Point) bool { return p.Policy == "mixed_float16" && len(p.Map) == 0 })
	if i < 0 {
		t.Fatalf("got %+v, want mixed_float16 to be rejected", r.Rejected)
	}
	if v := r.Rejected[i].Verified; !(v.Loss[0] < 0.1 && v.Loss[1] < 0.1) || v.Worst != "branch/kernel" || !(v.Gradient > 0.5) || !strings.Contains(v.Why, "the gradient of branch/kernel is off by") {
		t.Errorf("it was rejected for %+v, want the gradient of branch/kernel", v)
	}
	if r.Chosen.Map["own_norm"] == "" {
		t.Errorf("got %+v, want own_norm not in float16", r.Chosen)
	}
}

// TestSearchScale: a loss scale that is too large at first comes down before the second
// half, and the batches of skipped steps are not lost.
func TestSearchScale(t *testing.T) {
	in := keras.Input(64)
	m, err := keras.NewModel(in, dense("out", 1, "", dense("in", 64, "relu", in)))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.Adam{}, NonFinite: keras.NonFiniteError}); err != nil {
		t.Fatal(err)
	}
	data := keras.FromTensors(normal(1, 1, 0, 32, 64), normal(3, 3000, 6000, 32, 1), nil).Batch(8)
	r := search(t, m, data, doctor.SearchConfig{Policies: []string{"mixed_float16"}})
	if p := r.Chosen; p == nil || p.Policy != "mixed_float16" || len(p.Map) > 0 || p.Verified.Skipped[0] < 5 || p.Verified.Skipped[1] != 0 {
		t.Errorf("got %+v, want mixed_float16 after some skips", p)
	}
	// From another first scale, in Compile's optimizer, none is skipped.
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{}, InitialScale: 16}}); err != nil {
		t.Fatal(err)
	}
	again := search(t, m, data, doctor.SearchConfig{Policies: []string{"mixed_float16"}})
	if p := again.Chosen; p == nil || p.Verified.Skipped != [2]int{} || p.Verified.Loss != r.Chosen.Verified.Loss {
		t.Errorf("got %+v, want the losses of %+v without skips", p, r.Chosen)
	}
}

func TestSearchErrors(t *testing.T) {
	m, data := searched(t, func(x *keras.Tensor) *keras.Tensor { return x })
	run := func(m *keras.Model, data keras.Dataset, c doctor.SearchConfig) error {
		if c.Measure == nil {
			c.Measure = modelled
		}
		_, err := doctor.Search(t.Context(), m, data, c)
		return err
	}
	b := standard()
	for want, err := range map[string]error{
		"the model is nil":                            run(nil, data, doctor.SearchConfig{}),
		"the data is nil":                             run(m, nil, doctor.SearchConfig{}),
		"the model is not compiled":                   run(keras.Sequential(&layers.Dense{Units: 2}), data, doctor.SearchConfig{}),
		"the data has no batch":                       run(m, keras.FromTensors(b.X, b.Y, nil).Batch(64).Take(0), doctor.SearchConfig{}),
		`Policies: policy: unknown policy "x"`:        run(m, data, doctor.SearchConfig{Policies: []string{"x"}}),
		`the policies ["float32"] make no difference`: run(m, data, doctor.SearchConfig{Policies: []string{"float32"}}),
		`Goal is "speed", want time, memory or error`: run(m, data, doctor.SearchConfig{Goal: "speed"}),
		"Goal is error without MaxTime and MaxMemory": run(m, data, doctor.SearchConfig{Goal: doctor.MinError}),
		"MaxTime is -1, want":                         run(m, data, doctor.SearchConfig{MaxTime: -1}),
		"MaxMemory is -1, want":                       run(m, data, doctor.SearchConfig{MaxMemory: -1}),
		"Tolerance is 1, want":                        run(m, data, doctor.SearchConfig{Tolerance: 1}),
		"Steps is 1, want":                            run(m, data, doctor.SearchConfig{Steps: 1}),
		"Maps is -1, want":                            run(m, data, doctor.SearchConfig{Maps: -1}),
		"want float32[? 64]":                          run(m, keras.FromTensors(normal(1, 1, 0, 4, 3), classes(2, 4, 10), nil).Batch(4), doctor.SearchConfig{}),
		"under float32 is 0 seconds, want a positive": run(m, data, doctor.SearchConfig{Times: []doctor.StepTime{{Policy: "float32"}}}),
		"the loss is not finite in float32":           run(m, keras.FromTensors(normal(1, 1e38, 0, 32, 64), b.Y, nil).Batch(4), doctor.SearchConfig{}),
		"Metric: none": run(m, data, doctor.SearchConfig{Steps: 2, Metric: func(context.Context, *keras.Model) (float64, error) {
			return 0, errors.New("none")
		}}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := doctor.Search(ctx, m, data, doctor.SearchConfig{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: got error %v", err)
	}
}

// TestMeasureStep: a step has a time, and so have its layers.
func TestMeasureStep(t *testing.T) {
	m, _ := searched(t, func(x *keras.Tensor) *keras.Tensor { return x })
	got, err := doctor.MeasureStep(t.Context(), m, standard())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []string{"in_1", "logits"} {
		if s := got.Layers[l]; !(s > 0 && got.Seconds > 0) {
			t.Errorf("%s takes %v of %v seconds", l, s, got.Seconds)
		}
	}
	if _, ok := got.Layers["in_1/grad"]; ok {
		t.Error(fmt.Sprint("the backward pass counts apart: ", got.Layers))
	}
}
