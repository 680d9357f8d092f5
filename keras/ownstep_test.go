package keras

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// asBuiltIn are the built-in steps, as a user would write them.
func asBuiltIn(c CompileConfig) CompileConfig {
	c.TrainStep = func(m *Model, b Batch) StepLogs {
		predictions, loss := m.ComputeLoss(b, Training)
		optimizers.Minimize(m.Optimizer(), loss, m.TrainableVariables())
		logs := m.ComputeMetrics(b, predictions)
		logs["loss"] = loss
		return logs
	}
	c.TestStep = func(m *Model, b Batch) StepLogs {
		predictions, loss := m.ComputeLoss(b)
		logs := m.ComputeMetrics(b, predictions)
		logs["loss"] = loss
		return logs
	}
	return c
}

// TestOwnStep: the built-in steps written with TrainStep and TestStep train, log and
// validate to the same bits.
func TestOwnStep(t *testing.T) {
	for _, name := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		for _, nonFinite := range []NonFinite{NonFiniteApply, NonFiniteSkip} {
			underPolicy(t, name)
			train := func(change func(CompileConfig) CompileConfig) (*Model, *History, Logs) {
				m := Sequential(&layers.Dense{Units: 5, Activation: "tanh", KernelRegularizer: "l2"}, &layers.BatchNormalization{}, &layers.Dense{Units: 1, DType: "float32"})
				check(t, m.Compile(change(CompileConfig{Optimizer: &optimizers.Adam{LearningRate: 0.01}, Loss: &losses.MeanSquaredError{},
					Metrics: []metrics.Metric{&metrics.MeanAbsoluteError{}}, NonFinite: nonFinite})))
				h := fit(t, m, regression(21), FitConfig{BatchSize: 8, Epochs: 3, ValidationData: regression(10)})
				logs, err := m.Evaluate(background, regression(13).Batch(5))
				check(t, err)
				return m, h, logs
			}
			want, wantHistory, wantLogs := train(func(c CompileConfig) CompileConfig { return c })
			got, history, logs := train(asBuiltIn)
			if !same(bits(t, want, want.Optimizer()), bits(t, got, got.Optimizer())) {
				t.Errorf("%s, NonFinite %d: weights differ", name, nonFinite)
			}
			if fmt.Sprint(history) != fmt.Sprint(wantHistory) {
				t.Errorf("%s, NonFinite %d: got history\n%v\nwant\n%v", name, nonFinite, history, wantHistory)
			}
			if fmt.Sprint(logs) != fmt.Sprint(wantLogs) {
				t.Errorf("%s, NonFinite %d: evaluated to %v, want %v", name, nonFinite, logs, wantLogs)
			}
		}
	}
}

// adversaries is a GAN: a functional model of both parts, with an optimizer for each. It
// is compiled to be fitted on batches that have only X.
func adversaries(t testing.TB, scaled bool) *Model {
	t.Helper()
	generator := Sequential(&layers.Dense{Units: 6, Activation: "relu"}, &layers.BatchNormalization{}, &layers.Dense{Units: 3}).Named("generator")
	critic := Sequential(&layers.Dense{Units: 7, Activation: "leaky_relu"}, &layers.Dropout{Rate: 0.2}, &layers.Dense{Units: 1, DType: "float32"}).Named("critic")
	noise := Input(2)
	m, err := NewModel(noise, Apply(critic.Layer(), Apply(generator.Layer(), noise)))
	check(t, err)
	var og, oc optimizers.Optimizer = &optimizers.Adam{LearningRate: 0.01, Name: "generator_adam"}, &optimizers.RMSprop{LearningRate: 0.01}
	if scaled { // so high that the first steps are skipped
		og = &optimizers.LossScaleOptimizer{Inner: og, InitialScale: 1 << 24, Name: "generator_scale"}
		oc = &optimizers.LossScaleOptimizer{Inner: oc, InitialScale: 1 << 20}
	}
	draw := &layers.GaussianNoise{Stddev: 1}
	check(t, draw.Build(layers.Shape{-1, 2}))
	judge := func(logits *Tensor, real float64) *Tensor {
		return (&losses.BinaryCrossentropy{FromLogits: true}).Call(logits.MulScalar(0).AddScalar(real), logits)
	}
	seen := &metrics.MeanAbsoluteError{Name: "distance"}
	check(t, m.Compile(CompileConfig{
		Parts: []Stateful{oc, og, stateOf{draw}},
		TrainStep: func(_ *Model, b Batch) StepLogs {
			z := draw.Call(layers.Pass{Training: true}, tensor.Zeros(b.X.DType(), b.X.Dim(0), 2))
			lc := judge(critic.Call(b.X, Training), 0.9).Add(judge(critic.Call(generator.Call(z), Training), 0))
			optimizers.Minimize(oc, lc, critic.TrainableVariables())
			fake := generator.Call(z, Training)
			lg := judge(critic.Call(fake), 1)
			optimizers.Minimize(og, lg, generator.TrainableVariables())
			seen.Update(b.X, fake)
			return StepLogs{"critic_loss": lc, "generator_loss": lg, "distance": seen}
		},
		TestStep: func(_ *Model, b Batch) StepLogs {
			seen.Update(b.X, b.X.AddScalar(1))
			return StepLogs{"distance": seen}
		},
	}))
	return m
}

type stateOf struct{ l layers.Layer }

func (s stateOf) Variables() []*Variable { return layers.BaseOf(s.l).Variables() }

// TestOwnStepResumes: a GAN in Fit goes on to the same bits after it was killed, with two
// loss scales, random numbers of its own and skipped steps.
func TestOwnStepResumes(t *testing.T) {
	for _, name := range []string{"float32", "mixed_float16"} {
		underPolicy(t, name)
		data := FromTensors(NewTensor(numbers(3*20), 20, 3), nil, nil)
		config := FitConfig{BatchSize: 8, Epochs: 4, ValidationData: data.Batch(20), SaveEvery: 1}
		whole := adversaries(t, name != "float32")
		want := fit(t, whole, data, config)
		wantBits := bits(t, whole, whole.training.others(), whole.Optimizer())
		for _, kill := range []int{1, 4, 6, 11} {
			states := &memory{}
			config.Checkpoint = states
			killed := errors.New("killed")
			n := 0
			config.Callbacks = []Callback{{BatchEnd: func(context.Context, *Run) error {
				if n++; n == kill {
					return killed
				}
				return nil
			}}}
			_, err := adversaries(t, name != "float32").Fit(background, data, silent(config))
			if !errors.Is(err, killed) {
				t.Fatalf("got %v, want the kill", err)
			}
			config.Callbacks = nil
			m := adversaries(t, name != "float32")
			h := fit(t, m, data, config)
			if !same(wantBits, bits(t, m, m.training.others(), m.Optimizer())) {
				t.Errorf("%s, killed after %d steps: other bits", name, kill)
			}
			if fmt.Sprint(h) != fmt.Sprint(want) {
				t.Errorf("%s, killed after %d steps: got history\n%v\nwant\n%v", name, kill, h, want)
			}
		}
		last := want.Logs[3]
		names := []string{"critic_loss", "distance", "generator_loss", "val_distance", "gradient_norm", "learning_rate", "generator_adam_gradient_norm", "generator_adam_learning_rate"}
		if name != "float32" {
			names = []string{"critic_loss", "distance", "generator_loss", "val_distance", "loss_scale", "skipped_steps", "gradient_norm", "learning_rate",
				"generator_scale_loss_scale", "generator_scale_gradient_norm", "generator_scale_learning_rate"}
		}
		var got []string
		for _, l := range last {
			got = append(got, l.Name)
		}
		if !slices.Equal(got, names) {
			t.Errorf("%s: got logs %q, want %q", name, got, names)
		}
		if v := last.Get("val_distance"); math.Abs(v-1) > 1e-6 { // not with what training counted
			t.Errorf("%s: val_distance is %v, want 1", name, v)
		}
		if n := last.Get("skipped_steps"); name != "float32" && n == 0 {
			t.Errorf("%s: no step was skipped, so that the test says little", name)
		}
	}
}

// TestOwnStepNonFinite: a step that is not finite is passed over, or refused, also where
// only the weights of another model show it.
func TestOwnStepNonFinite(t *testing.T) {
	x := numbers(3 * 12)
	x[3*5] = float32(math.Inf(1)) // in the second batch of 4
	data := FromTensors(NewTensor(x, 12, 3), NewTensor(numbers(12), 12, 1), nil)
	compiled := func(action NonFinite) (*Model, *Model) {
		m, other := line(t), Sequential(&layers.Dense{Units: 1})
		check(t, other.Build(3))
		o := &optimizers.SGD{LearningRate: 0.1}
		check(t, m.Compile(CompileConfig{NonFinite: action, Parts: []Stateful{other, o}, TrainStep: func(m *Model, b Batch) StepLogs {
			optimizers.Minimize(o, other.Call(b.X).Mean(), other.TrainableVariables())
			return StepLogs{"one": m.Call(tensor.Ones(Float32, 1, 3)).Mean()}
		}}))
		return m, other
	}
	m, other := compiled(NonFiniteSkip)
	h := fit(t, m, data, FitConfig{BatchSize: 4, Shuffle: new(false)})
	if n := h.Logs[0].Get("skipped_steps"); n != 1 {
		t.Errorf("%v steps were skipped, want 1", n)
	}
	if v := h.Logs[0].Get("one"); math.IsNaN(v) || v == 0 {
		t.Errorf("logged %v, want the mean of the two other steps", v)
	}
	ws, err := other.GetWeights()
	check(t, err)
	for _, v := range values(t, ws[0]) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("a weight is %v", v)
		}
	}
	m, _ = compiled(NonFiniteError)
	_, err = m.Fit(background, data, silent(FitConfig{BatchSize: 4, Shuffle: new(false)}))
	if !errors.Is(err, errNonFinite) || !strings.Contains(fmt.Sprint(err), "batch 2 of epoch 1") {
		t.Errorf("got error %v, want one that names batch 2", err)
	}
}

func TestOwnStepErrors(t *testing.T) {
	one := func() *Tensor { return tensor.Ones(Float32) }
	var none *Tensor
	for _, c := range []struct {
		logs StepLogs
		want string
	}{
		{nil, "TrainStep: it returned no logs; return at least the loss"},
		{StepLogs{"loss": 1.5}, `TrainStep: log "loss" is a float64, want a *keras.Tensor or a metrics.Accumulator`},
		{StepLogs{"loss": none}, `TrainStep: log "loss" is nil, want a scalar of floats or a metric`},
		{StepLogs{"loss": NewTensor([]float32{1, 2}, 2)}, `TrainStep: log "loss" is float32[2], want a scalar of floats or a metric`},
		{StepLogs{"a": (*metrics.Mean)(nil)}, `TrainStep: log "a" is a nil *metrics.Mean`},
	} {
		m := line(t)
		check(t, m.Compile(CompileConfig{TrainStep: func(*Model, Batch) StepLogs { return c.logs }}))
		_, err := m.Fit(background, regression(4), silent(FitConfig{}))
		wantError(t, err, c.want)
	}
	logs := func(*Model, Batch) StepLogs { return StepLogs{"loss": one()} }
	m := line(t)
	check(t, m.Compile(CompileConfig{TrainStep: logs}))
	_, err := m.Fit(background, regression(4), silent(FitConfig{ValidationData: regression(4)}))
	wantError(t, err, "model sequential: it was compiled with a TrainStep and neither a Loss nor a TestStep; give one of them to evaluate it")
	wantError(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Parts: []Stateful{line(t)}}),
		"model sequential: Compile: Parts are given, but neither a TrainStep nor a TestStep that could use them")
	wantError(t, m.Compile(CompileConfig{TrainStep: logs, Parts: []Stateful{(*Model)(nil)}}), "model sequential: Compile: Parts[0] is nil")
	m = line(t)
	check(t, m.Compile(CompileConfig{TrainStep: logs}))
	_, err = m.TrainOnBatch(background, Batch{})
	wantError(t, err, "model sequential: the batch has no X")

	// A layer of a part that is frozen after the step was made.
	other := line(t)
	check(t, other.Build(3))
	check(t, m.Compile(CompileConfig{TrainStep: logs, Parts: []Stateful{other}}))
	_, err = m.TrainOnBatch(background, one4())
	check(t, err)
	other.Layers()[0].(interface{ SetTrainable(bool) }).SetTrainable(false)
	if _, err = m.TrainOnBatch(background, one4()); err == nil || !strings.Contains(err.Error(), "Compile again") {
		t.Errorf("a part was frozen: got error %v, want one that says to compile again", err)
	}
}

func one4() Batch {
	return Batch{X: NewTensor(numbers(12), 4, 3), Y: NewTensor(numbers(4), 4, 1)}
}

// TestOwnStepSamples: a step of one's own may take what the model's layers do not, so that
// the rank of X alone does not tell samples from batches.
func TestOwnStepSamples(t *testing.T) {
	logs := func(*Model, Batch) StepLogs { return StepLogs{"loss": tensor.Ones(Float32)} }
	for _, own := range []bool{false, true} {
		m := line(t) // of vectors of 3
		check(t, m.Build(3))
		c := CompileConfig{Loss: &losses.MeanSquaredError{}}
		if own {
			c.TrainStep = logs
		}
		check(t, m.Compile(c))
		for _, of := range []struct {
			x    *Tensor
			form pipeline.Form
			want bool
			err  bool
		}{
			{tensor.Ones(Float32, 3), pipeline.AnyForm, true, false},
			{tensor.Ones(Float32, 3), pipeline.LikelyBatches, true, false},
			{tensor.Ones(Float32, 8, 3), pipeline.LikelySamples, false, false},
			{tensor.Ones(Float32, 8), pipeline.LikelyBatches, !own, false},
			{tensor.Ones(Float32, 8), pipeline.LikelySamples, true, false},
			{tensor.Ones(Float32, 8, 5), pipeline.LikelySamples, own, false},
			{tensor.Ones(Float32, 8), pipeline.AnyForm, !own, own},
		} {
			got, err := isSample(m, Batch{X: of.x}, of.form)
			if got != of.want || (err != nil) != of.err {
				t.Errorf("own step %v, X %v, form %d: got %v and error %v, want %v, error %v", own, of.x.Type(), of.form, got, err, of.want, of.err)
			}
			if err != nil && !strings.Contains(err.Error(), "may be samples or batches of 8: X is float32[8]; make batches of samples with Batch, or give data of the model's inputs, float32[") {
				t.Errorf("got error %v", err)
			}
		}
	}
}
