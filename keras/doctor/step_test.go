package doctor_test

import (
	"bytes"
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var every = flag.Bool("every", false, "examine every patient also as a custom loop, as a step and under Autocast, not one in three")

// loop makes a custom loop of a model.
func loop(loss losses.Loss) func(*keras.Model, *optimizers.LossScaleOptimizer) *tensor.Func[keras.Batch, *keras.Tensor] {
	return func(m *keras.Model, scaler *optimizers.LossScaleOptimizer) *tensor.Func[keras.Batch, *keras.Tensor] {
		vars := m.TrainableVariables()
		if scaler == nil {
			sgd := &optimizers.SGD{AllowUnscaledLoss: true}
			return keras.Function(func(b keras.Batch) *keras.Tensor {
				y := loss.Call(b.Y, m.Call(b.X, keras.Training))
				sgd.ApplyGradients(keras.Gradients(y, vars), vars)
				return y
			}, m, sgd)
		}
		return keras.Function(func(b keras.Batch) *keras.Tensor {
			y := loss.Call(b.Y, m.Call(b.X, keras.Training))
			grads := keras.Gradients(scaler.GetScaledLoss(y), vars)
			scaler.ApplyGradients(scaler.GetUnscaledGradients(grads), vars)
			return y
		}, m, scaler)
	}
}

// TestExamineLoop examines the patients as custom loops: each report is that of the
// model's own training step.
func TestExamineLoop(t *testing.T) {
	for i := range patients {
		p := &patients[i]
		if p.name[:3] == "11 " || !*every && i%3 != 0 {
			continue // 11 needs a map and a loss scale, and has no scaler
		}
		t.Run(p.name, func(t *testing.T) {
			m := p.compiled(t)
			scaler, _ := m.Optimizer().(*optimizers.LossScaleOptimizer)
			r, err := doctor.ExamineLoop(t.Context(), m, scaler, loop(p.loss), p.batch(), doctor.Config{})
			if err != nil {
				t.Fatal(err)
			}
			p.check(t, r)
		})
	}
}

// TestExamineStep examines the patients as steps that nothing but Beside can change.
// Layers are computed in float32 there without their readers, which would widen what
// they read: some remedies have one more layer, or the one in front of another.
func TestExamineStep(t *testing.T) {
	others := map[string][]string{
		"02": {"ff_2", "ff_3"}, "04": {"block_2", "add_2", "norm_out"}, "20": {"in_1", "in_2", "attention", "own_norm"}, "21": {"conv_2", "bn"}, "38": {"norm", "rnn"}, "40": {"likelihood", "norm_out"}, "53": {"frozen", "norm"},
	}
	for i := range patients {
		p := patients[i]
		if p.name[:3] == "11 " || !*every && i%3 != 1 {
			continue // as above
		}
		if l := others[p.name[:2]]; l != nil {
			p.layers = l
		}
		t.Run(p.name, func(t *testing.T) {
			m := p.compiled(t)
			scaler, _ := m.Optimizer().(*optimizers.LossScaleOptimizer)
			step := loop(p.loss)(m, scaler)
			before := state(t, m)
			r, err := doctor.ExamineStep(t.Context(), step, p.batch(), scaler, doctor.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if after := state(t, m); !bytes.Equal(before, after) {
				t.Errorf("examining the step has changed variables")
			}
			p.check(t, r)
		})
	}
}

// TestExamineOwnStep: a training step of the user's in Fit is examined as the built-in
// one, on copies of the model, and with Parts as a step of a custom loop is.
func TestExamineOwnStep(t *testing.T) {
	p := patientOf(t, "26")
	m := p.compiled(t)
	c, _ := m.CompileConfig()
	c.TrainStep = func(m *keras.Model, b keras.Batch) keras.StepLogs {
		_, loss := m.ComputeLoss(b, keras.Training)
		optimizers.Minimize(m.Optimizer(), loss, m.TrainableVariables())
		return keras.StepLogs{"loss": loss}
	}
	examined := func() *doctor.Report {
		if err := m.Compile(c); err != nil {
			t.Fatal(err)
		}
		r, err := doctor.Examine(t.Context(), m, p.batch(), doctor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	p.check(t, examined())
	c.Parts = []keras.Stateful{&optimizers.SGD{}}
	if r := examined(); r.Kind != p.kind || !r.Remedy.Verified {
		t.Errorf("with Parts: got %v", r)
	}
	if _, err := doctor.Search(t.Context(), m, keras.FromTensors(p.batch().X, p.batch().Y, nil).Batch(8), doctor.SearchConfig{}); err == nil || !strings.Contains(err.Error(), "compiled with Parts") {
		t.Errorf("Search: got error %v, want one that names Parts", err)
	}
}

// TestExamineOperations: what a step computes outside of layers is a remedy of its own.
func TestExamineOperations(t *testing.T) {
	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
	w := tensor.NewVariable("w", keras.Float32, keras.Shape{64, 10}, func(dst []float64) error {
		for i := range dst {
			dst[i] = float64(i%7-3) / 10
		}
		return nil
	})
	vars := []*tensor.Variable{w}
	scaler := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}, InitialScale: 1024}
	step := keras.Function(func(b keras.Batch) *keras.Tensor {
		x := b.X.Cast(keras.Float16)
		x = x.MulScalar(400)
		x = x.Div(x.Square().MeanKeep(1).AddScalar(1e-3).Sqrt())
		loss := crossentropy.Call(b.Y, x.MatMul(w.Value().Cast(keras.Float16)))
		grads := keras.Gradients(scaler.GetScaledLoss(loss), vars)
		scaler.ApplyGradients(scaler.GetUnscaledGradients(grads), vars)
		return loss
	}, owner(vars), scaler)
	r, err := doctor.ExamineStep(t.Context(), step, standard(), scaler, doctor.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if r.Kind != doctor.Overflow || r.Remedy.Map != nil || !r.Remedy.Verified || !slices.Equal(r.Remedy.Operations, []tensor.TapID{"/Square#0", "/Mean#0", "/Add#0", "/Sqrt#0"}) {
		t.Errorf("got %v, want an overflow and a remedy of all that is above 65504", r)
	}
	for want, c := range map[string]doctor.Config{"Prefer is": {Prefer: []string{"float32"}}, "Trials is -1": {Trials: -1}} {
		if _, err := doctor.ExamineStep(t.Context(), step, standard(), scaler, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	if _, err := doctor.ExamineStep[keras.Batch, *keras.Tensor](t.Context(), nil, standard(), scaler, doctor.Config{}); err == nil {
		t.Error("a nil step: got no error")
	}
}

type owner []*tensor.Variable

func (o owner) Variables() []*tensor.Variable { return o }

// TestExamineGAN: a step with two models, two losses, two optimizers and two loss scales.
func TestExamineGAN(t *testing.T) {
	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
	for _, sick := range []bool{false, true} {
		noise, picture := keras.Input(16), keras.Input(64)
		x := dense("g_in", 64, "relu", noise)
		if sick {
			x = layerOf("g_norm", ownNorm, x)
		}
		generator, err := keras.NewModel(noise, dense("g_out", 64, "tanh", x))
		if err != nil {
			t.Fatal(err)
		}
		critic, err := keras.NewModel(picture, dense("c_out", 1, "", dense("c_in", 64, "relu", picture)))
		if err != nil {
			t.Fatal(err)
		}
		scaler := func(name string) *optimizers.LossScaleOptimizer {
			return &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{Name: name}, InitialScale: 1024, Name: name + "_scale"}
		}
		forGenerator, forCritic := scaler("generator"), scaler("critic")
		minimize := func(s *optimizers.LossScaleOptimizer, loss *keras.Tensor, vars []*keras.Variable) {
			s.ApplyGradients(s.GetUnscaledGradients(keras.Gradients(s.GetScaledLoss(loss), vars)), vars)
		}
		judge := func(pictures *keras.Tensor, real float64) *keras.Tensor {
			logits := critic.Call(pictures, keras.Training)
			return (&losses.BinaryCrossentropy{FromLogits: true}).Call(logits.MulScalar(0).AddScalar(real).StopGradient(), logits)
		}
		step := keras.Function(func(b keras.Batch) *keras.Tensor {
			fake := generator.Call(b.X, keras.Training)
			loss := judge(b.Y, 1).Add(judge(fake.StopGradient(), 0))
			minimize(forCritic, loss, critic.TrainableVariables())
			minimize(forGenerator, judge(fake, 1), generator.TrainableVariables())
			return loss
		}, generator, critic, forGenerator, forCritic)
		b := keras.Batch{X: normal(1, 1, 0, 32, 16), Y: normal(2, 1, 0, 32, 64)}
		r, err := doctor.ExamineStep(t.Context(), step, b, forCritic, doctor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Log(r)
		if len(r.Taps.Derivatives) != 2 {
			t.Errorf("got %d derivatives, want those of two losses", len(r.Taps.Derivatives))
		}
		kind, want := doctor.Healthy, policy.Map(nil)
		if sick {
			kind, want = doctor.Overflow, policy.Map{"g_norm": "float32"}
		}
		if r.Kind != kind || !maps.Equal(r.Remedy.Map, want) {
			t.Errorf("got %v, want %s and the remedy %#v", r, kind, want)
		}
	}
}
