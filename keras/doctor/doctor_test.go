package doctor_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

func TestExamineErrors(t *testing.T) {
	sick := &patients[0]
	m := sick.compiled(t)
	examine := func(m *keras.Model, b keras.Batch, c doctor.Config) error {
		_, err := doctor.Examine(t.Context(), m, b, c)
		return err
	}
	for want, err := range map[string]error{
		"the model is nil":                   examine(nil, standard(), doctor.Config{}),
		"the model is not compiled":          examine(keras.Sequential(&layers.Dense{Units: 2}), standard(), doctor.Config{}),
		`Prefer: policy: unknown policy "x"`: examine(m, standard(), doctor.Config{Prefer: []string{"x"}}),
		"Trials is -1, want":                 examine(m, standard(), doctor.Config{Trials: -1}),
		"Tolerance is -1, want":              examine(m, standard(), doctor.Config{Tolerance: -1}),
		"want float32[? 64]":                 examine(m, keras.Batch{X: normal(1, 1, 0, 4, 3), Y: classes(2, 4, 10)}, doctor.Config{}),
		"the batch has no X":                 examine(m, keras.Batch{}, doctor.Config{}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := doctor.Examine(ctx, m, standard(), doctor.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: got error %v", err)
	}
}

// TestLostUpdates: Adam's steps of 1e-4 are below the spacing of most bfloat16 weights.
func TestLostUpdates(t *testing.T) {
	for p, want := range map[string]doctor.Kind{"bfloat16": doctor.LostUpdates, "mixed_bfloat16": doctor.Healthy, "float16": doctor.Healthy} {
		old := policy.SetGlobal(p)
		m := keras.Sequential(&layers.Dense{Units: 64, Activation: "relu"}, &layers.Dense{Units: 10})
		err := m.Compile(keras.CompileConfig{Loss: crossentropy, Optimizer: &optimizers.Adam{LearningRate: 1e-4}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := doctor.Examine(t.Context(), m, standard(), doctor.Config{})
		policy.SetGlobal(old)
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != want || (p == "bfloat16") != (r.Lost["dense/kernel"] > 0.5) {
			t.Errorf("%s: got %v, %v lost, want %s", p, r, r.Lost, want)
		}
		if html := htmlOf(t, r); strings.Contains(html, `<section id="lost">`) != (len(r.Lost) > 0) || p == "bfloat16" && !strings.Contains(html, "<code>dense/kernel</code>") {
			t.Errorf("%s: lost updates are not in the HTML report", p)
		}
	}
}

// TestLearningRate: with numbers that are huge because of the steps before, the report
// names the learning rate besides the map.
func TestLearningRate(t *testing.T) {
	for rate, want := range map[float64]bool{1e4: true, 0.01: false} {
		p := *patientOf(t, "00")
		if !want {
			p = *patientOf(t, "07")
		}
		defer policy.SetGlobal(policy.SetGlobal(p.policy))
		m, err := p.build()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Compile(keras.CompileConfig{Loss: p.loss, Optimizer: &optimizers.SGD{LearningRate: rate}}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := m.TrainOnBatch(t.Context(), p.batch()); err != nil {
				t.Fatal(err)
			}
		}
		r, err := doctor.Examine(t.Context(), m, p.batch(), doctor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != doctor.Overflow || strings.Contains(r.Remedy.Advice, "learning rate") != want || strings.Contains(r.String(), "learning rate") != want {
			t.Errorf("a rate of %v: got %v", rate, r)
		}
	}
}

// TestDelayedScaling: the first steps of 8-bit products are healthy but for their scales,
// which are 1 at first, so that small gradients become 0.
func TestDelayedScaling(t *testing.T) {
	defer policy.SetGlobal(policy.SetGlobal("mixed_float8"))
	m := keras.Sequential(&layers.Dense{Units: 32, Activation: "tanh"}, &layers.Dense{Units: 32}, &layers.Dense{Units: 1, KernelInitializer: "random_normal(stddev=0.000001)"})
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{LearningRate: 1e-3}}); err != nil {
		t.Fatal(err)
	}
	b := keras.Batch{X: normal(1, 1, 0, 32, 64), Y: normal(3, 1e-5, 0, 32, 1)}
	settling := 0
	for step := range 6 {
		r, err := doctor.Examine(t.Context(), m, b, doctor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != doctor.Healthy {
			t.Errorf("step %d: got %v", step, r)
		}
		if strings.Contains(r.Summary, "scales of 8-bit products") {
			settling++
		}
		if _, err := m.TrainOnBatch(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if settling == 0 || settling > 4 {
		t.Errorf("%d steps of 6 have scales that do not fit, want the first ones", settling)
	}
}

// TestMinScale: raw targets of a million need a loss scale below 1, and the optimizer a
// MinScale below its default.
func TestMinScale(t *testing.T) {
	p := *patientOf(t, "12")
	p.batch = func() keras.Batch { return keras.Batch{X: normal(1, 1, 0, 32, 64), Y: normal(3, 3e6, 6e6, 32, 1)} }
	r, err := doctor.Examine(t.Context(), p.compiled(t), p.batch(), doctor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Kind != doctor.Scale || !r.Remedy.Verified || r.Remedy.Scale >= 1 || r.Remedy.MinScale != r.Remedy.Scale/16 {
		t.Fatalf("got %v", r)
	}
	words := fmt.Sprintf("a loss scale of %v, with a MinScale of %v", r.Remedy.Scale, r.Remedy.MinScale)
	if !strings.Contains(r.String(), words) || !strings.Contains(htmlOf(t, r), fmt.Sprintf("<code>MinScale</code> to <strong>%v</strong>", r.Remedy.MinScale)) {
		t.Errorf("got %v, want %s there and in HTML", r, words)
	}
	defer policy.SetGlobal(policy.SetGlobal(p.policy))
	m, err := p.build()
	if err != nil {
		t.Fatal(err)
	}
	scaler := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{LearningRate: 1e-9}, InitialScale: r.Remedy.Scale, MinScale: r.Remedy.MinScale}
	if err := m.Compile(keras.CompileConfig{Loss: p.loss, Optimizer: scaler}); err != nil {
		t.Fatal(err)
	}
	if err := m.TrainStep(t.Context(), p.batch()); err != nil {
		t.Fatal(err)
	}
	if s, err := m.StepResult(); err != nil || s.SkippedSteps != 0 {
		t.Errorf("got %+v, %v, want no skipped step", s, err)
	}
}

// patientOf is the patient with that number.
func patientOf(t *testing.T, number string) *patient {
	t.Helper()
	i := slices.IndexFunc(patients, func(p patient) bool { return strings.HasPrefix(p.name, number+" ") })
	if i < 0 {
		t.Fatalf("there is no patient %s", number)
	}
	return &patients[i]
}

// TestHealed: a model of 68 layers with three faults skips every step. With the map that the
// report proposes its loss falls, and it skips only steps whose gradients are ten times as large
// as those of the step before: its attention is nearly a switch, and where two scores are the
// same its gradient has no bound, in float32 either. A skipped step changes no weight, so the next
// step that is applied has its gradients.
func TestHealed(t *testing.T) {
	p := patientOf(t, "26")
	m := p.compiled(t)
	r, err := doctor.Examine(t.Context(), m, p.batch(), doctor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	healed, err := m.CloneUnder("", r.Remedy.Map, false)
	if err != nil {
		t.Fatal(err)
	}
	scaler := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{LearningRate: 0.01}, InitialScale: cmp.Or(r.Remedy.Scale, p.scale)}
	if err := healed.Compile(keras.CompileConfig{Loss: p.loss, Optimizer: scaler}); err != nil {
		t.Fatal(err)
	}
	b := p.batch()
	step := func(m *keras.Model) (loss float64, s optimizers.StepResult) {
		t.Helper()
		logs, err := m.TrainOnBatch(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = m.StepResult(); err != nil {
			t.Fatal(err)
		}
		return logs.Get("loss"), s
	}
	var s optimizers.StepResult
	for range 10 {
		_, s = step(m)
	}
	if s.SkippedSteps != 10 {
		t.Errorf("the sick model skips %d of 10 steps, want all", s.SkippedSteps)
	}
	first, before := step(healed)
	last, skipped := first, int64(0)
	for i := 1; i < 60; i++ {
		if last, s = step(healed); !s.Applied {
			continue
		}
		if s.SkippedSteps > skipped && !(s.GradientNorm >= 10*before.GradientNorm) {
			t.Errorf("steps before step %d are skipped, with gradients of the norm %v, after a step of %v", i, s.GradientNorm, before.GradientNorm)
		}
		before, skipped = s, s.SkippedSteps
	}
	t.Logf("60 steps: loss %.4g to %.4g, %d skipped", first, last, s.SkippedSteps)
	if !before.Applied || !(last < 0.5*first) || s.SkippedSteps > 10 {
		t.Errorf("60 steps with the map: loss %v to %v, %d skipped, want half of it or less, and at most 10", first, last, s.SkippedSteps)
	}
}

// TestPatientsAuto examines the float16 patients as float32 models that Autocast turns
// into mixed precision. Some it heals without looking at data; for the others there is a
// remedy, too.
func TestPatientsAuto(t *testing.T) {
	var healthy []string
	for i := range patients {
		p := patients[i]
		if p.policy != "mixed_float16" || p.kind == doctor.Healthy || !*every && i%3 != 2 {
			continue
		}
		p.policy = policy.Auto(keras.Float16)
		t.Run(p.name, func(t *testing.T) {
			r, err := doctor.Examine(t.Context(), p.compiled(t), p.batch(), doctor.Config{})
			if err != nil {
				t.Fatal(err)
			}
			switch r.Kind {
			case doctor.Healthy:
				healthy = append(healthy, p.name[:3])
			case doctor.Given, doctor.Diverged, doctor.Formula: // nothing that types would help
			default:
				if !r.Remedy.Verified {
					t.Errorf("got %v", r)
				}
			}
		})
	}
	if got, want := strings.Join(healthy, ""), "07 08 09 10 18 27 30 31 34 36 37 39 40 41 49 50 56 57 58 "; *every && got != want {
		t.Errorf("healthy without a look at data: got %s, want %s", got, want)
	}
}

// TestNoScaleFits: two losses whose gradients are so far apart that no loss scale fits
// both.
func TestNoScaleFits(t *testing.T) {
	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
	in := keras.Input(64)
	a, b := dense("a", 64, "relu", in), dense("b", 64, "relu", in)
	m, err := keras.NewModel(in, keras.Tuple(dense("out_a", 1, "", a), dense("out_b", 1, "", b)))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, LossWeights: []float64{1, 1e-12}, Optimizer: &optimizers.SGD{}}); err != nil {
		t.Fatal(err)
	}
	r, err := doctor.Examine(t.Context(), m, keras.Batch{X: normal(1, 1, 0, 32, 64), Y: keras.Tuple(normal(2, 1, 0, 32, 1), normal(3, 1, 0, 32, 1))}, doctor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (policy.Map{"b": "float32", "out_b": "float32"}); r.Kind != doctor.Scale || !strings.Contains(r.Summary, "No loss scale fits all gradients: out_b/grad") || !maps.Equal(r.Remedy.Map, want) || !r.Remedy.Verified {
		t.Errorf("got %v, want no scale that fits, and the remedy %#v", r, want)
	}
}

// TestSpoiledStatistics: a NaN in a moving average leaves the step as it is, and spoils
// predictions.
func TestSpoiledStatistics(t *testing.T) {
	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
	m := keras.Sequential(&layers.Dense{Units: 16}, &layers.BatchNormalization{Name: "norm"}, &layers.Dense{Units: 10})
	if err := m.Compile(keras.CompileConfig{Loss: crossentropy, Optimizer: &optimizers.SGD{}}); err != nil {
		t.Fatal(err)
	}
	for _, spoil := range []bool{false, true} {
		want := doctor.Healthy
		if spoil {
			want = doctor.Given
			for _, v := range m.NonTrainableVariables() {
				if strings.HasSuffix(v.Name(), "/moving_variance") {
					if err := v.Set(append([]float64{math.Inf(1)}, make([]float64, 15)...)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		r, err := doctor.Examine(t.Context(), m, standard(), doctor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != want || spoil && !strings.Contains(r.Summary, "norm/moving_variance") {
			t.Errorf("got %v, want %s", r, want)
		}
	}
}

// TestAdvice: what helps where no policy does is said by what is wrong.
func TestAdvice(t *testing.T) {
	for name, want := range map[string]string{
		"45": "a row of nothing but -Inf", "51": "scale the data, argument 1 is up to 1.2", "15": "lower the learning rate", "28": "Where in front of a root",
	} {
		p := patientOf(t, name)
		r, err := doctor.Examine(t.Context(), p.compiled(t), p.batch(), doctor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.Remedy.Advice, want) {
			t.Errorf("%s: got %v, want the advice %s", p.name, r, want)
		}
	}
	// Numbers that become 0 with the constant that was to keep them from it.
	r, err := doctor.Examine(t.Context(), patientOf(t, "18").compiled(t), patientOf(t, "18").batch(), doctor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.Summary, "of layer power gives become 0 in float16, and so does the constant 1e-12.") {
		t.Errorf("got %v, want both in a sentence", r)
	}
	// A layer that computes in float16 whatever its policy.
	p := *patientOf(t, "00")
	p.build = tower(func(x *keras.Tensor) *keras.Tensor {
		return layerOf("fixed", func(x *tensor.Tensor) *tensor.Tensor { return x.MulScalar(2000).Cast(keras.Float16).Square().Sqrt() }, x)
	})
	if r, err = doctor.Examine(t.Context(), p.compiled(t), p.batch(), doctor.Config{}); err != nil {
		t.Fatal(err)
	}
	if r.Kind != doctor.Overflow || !strings.Contains(r.Remedy.Advice, "fixed/Square#0 computes in 16 bits whatever the policy") {
		t.Errorf("got %v, want the operation in 16 bits", r)
	}
}
