package keras

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var policies = []string{"float32", "mixed_float16", "mixed_bfloat16"}

// TestFreezeAfterCompile: to freeze or unfreeze after Compile is an error of
// whatever trains, at once and between steps, and of nothing else; Compile
// takes it up.
func TestFreezeAfterCompile(t *testing.T) {
	for _, name := range policies {
		underPolicy(t, name)
		for _, on := range []bool{false, true} { // what the layer becomes
			first := &layers.Dense{Units: 4, Name: "first"}
			m := Sequential(first, &layers.Dense{Units: 1})
			first.SetTrainable(!on)
			check(t, m.Build(3))
			check(t, m.Compile(lineConfig()))
			b := Batch{X: NewTensor(numbers(12), 4, 3), Y: NewTensor(numbers(4), 4, 1)}
			check(t, m.TrainStep(background, b))
			first.SetTrainable(on)
			is, was := "frozen", "trainable"
			if on {
				is, was = was, is
			}
			want := "model sequential: first/kernel is " + is + " now, but the training step was made with it " + was + "; Compile again"
			before := bits(t, m)
			for what, train := range map[string]func() error{
				"TrainStep":    func() error { return m.TrainStep(background, b) },
				"TrainOnBatch": func() error { _, err := m.TrainOnBatch(background, b); return err },
				"Fit":          func() error { _, err := m.Fit(background, regression(4), silent(FitConfig{})); return err },
				"Trace":        func() error { return m.Trace(background, b, io.Discard) },
			} {
				err := train()
				if err == nil || err.Error() != want {
					t.Errorf("%s, %s: got %v\nwant %s", name, what, err, want)
				}
			}
			if !same(before, bits(t, m)) {
				t.Errorf("%s: something has moved", name)
			}
			_, err := m.TestOnBatch(background, b)
			check(t, err)
			_, err = m.Evaluate(background, regression(4))
			check(t, err)
			_, err = m.Predict(background, b.X)
			check(t, err)

			// A loop that lists the variables is right at every step.
			optimizer := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}}
			loop := Function(func(b Batch) none {
				vars := m.TrainableVariables()
				loss := (&losses.MeanSquaredError{}).Call(b.Y, m.Call(b.X, Training))
				optimizer.ApplyGradients(optimizer.GetUnscaledGradients(Gradients(optimizer.GetScaledLoss(loss), vars)), vars)
				return none{}
			}, m, optimizer)
			check(t, loop.Run(background, b))

			check(t, m.Compile(m.training.config))
			kernel := bits(t, variables{first.Weights()[0].Variable})
			check(t, m.TrainStep(background, b))
			if moved := !same(kernel, bits(t, variables{first.Weights()[0].Variable})); moved != on {
				t.Errorf("%s: after Compile the layer moves: %v, want %v", name, moved, on)
			}
			first.SetTrainable(!on)
			first.SetTrainable(on)
			check(t, m.TrainStep(background, b)) // nothing has changed
		}
		// Between the steps of a Fit, and before the model is built.
		first := &layers.Dense{Units: 4, Name: "first"}
		m := Sequential(first, &layers.Dense{Units: 1})
		check(t, m.Compile(lineConfig()))
		first.SetTrainable(false)
		_, err := m.Fit(background, regression(8), silent(FitConfig{BatchSize: 4, Callbacks: []Callback{{
			BatchEnd: func(context.Context, *Run) error { m.SetTrainable(true); return nil },
		}}}))
		wantError(t, err, "model sequential: first/kernel is trainable now, but the training step was made with it frozen; Compile again")
	}
}

// TestFreezeStatistics: to freeze a layer that has only statistics counts as
// well, wherever in the model it is.
func TestFreezeStatistics(t *testing.T) {
	no := false
	for _, where := range []string{"batch_normalization", "sequential/batch_normalization", "time_distributed/batch_normalization"} {
		bn := &layers.BatchNormalization{Center: &no, Scale: &no, Name: "batch_normalization"}
		var l layers.Layer = bn
		shape := []int{3}
		switch where {
		case "sequential/batch_normalization":
			l = Sequential(bn).Layer()
		case "time_distributed/batch_normalization":
			l = &layers.TimeDistributed{Layer: bn}
			shape = []int{2, 3}
		}
		m := Sequential(l, &layers.Dense{Units: 1})
		check(t, m.Compile(lineConfig()))
		of := func(last int) *Tensor {
			all := append(append(Shape{4}, shape[:len(shape)-1]...), last)
			return NewTensor(numbers(all.Size()), all...)
		}
		b := Batch{X: of(3), Y: of(1)}
		check(t, m.TrainStep(background, b))
		bn.SetTrainable(false)
		before := bits(t, m)
		wantError(t, m.TrainStep(background, b),
			"model sequential: layer "+where+" is frozen now, but the training step was made with it trainable; Compile again")
		if !same(before, bits(t, m)) {
			t.Errorf("%s: something has moved", where)
		}
		_, err := m.TestOnBatch(background, b)
		check(t, err)
		check(t, m.Compile(lineConfig()))
		mean := bits(t, bn)
		check(t, m.TrainStep(background, b))
		if !same(mean, bits(t, bn)) {
			t.Errorf("%s: statistics of a frozen layer have moved", where)
		}
		check(t, m.TrainStep(background, b))
	}
}

// TestLearningRateField: Fit does not go on with a rate that is not that of the
// field.
func TestLearningRateField(t *testing.T) {
	for _, name := range policies {
		underPolicy(t, name)
		sgd := &optimizers.SGD{LearningRate: 0.1}
		m := Sequential(&layers.Dense{Units: 1})
		check(t, m.Compile(CompileConfig{Optimizer: sgd, Loss: &losses.MeanSquaredError{}}))
		_, err := m.PlanMemory(Batch{X: NewTensor(numbers(12), 4, 3), Y: NewTensor(numbers(4), 4, 1)})
		check(t, err)
		sgd.LearningRate = 0.2 // before the first step it is what counts
		h := fit(t, m, regression(4), FitConfig{})
		if rate := h.Get("learning_rate")[0]; rate != float64(float32(0.2)) {
			t.Errorf("%s: got a rate of %v, want 0.2", name, rate)
		}
		sgd.LearningRate = 0.5
		const want = "optimizer sgd: the field LearningRate is 0.5, but the optimizer has begun with 0.2 and does not read it again; call SetLearningRate(0.5)"
		_, err = m.Fit(background, regression(4), silent(FitConfig{}))
		wantError(t, err, want)
		_, err = m.TrainOnBatch(background, Batch{X: NewTensor(numbers(12), 4, 3), Y: NewTensor(numbers(4), 4, 1)})
		wantError(t, err, want)
		check(t, optimizers.SetLearningRate(m.Optimizer(), 0.5))
		if rate := fit(t, m, regression(4), FitConfig{}).Get("learning_rate")[0]; rate != 0.5 {
			t.Errorf("%s: got a rate of %v, want 0.5", name, rate)
		}
	}
}

// TestPolicyTooLate: Fit says once that layers keep the policy they were built
// with.
func TestPolicyTooLate(t *testing.T) {
	run := func(m *Model) (string, string) {
		t.Helper()
		var out, events bytes.Buffer
		_, err := m.Fit(background, regression(4), FitConfig{Output: &out, Verbose: VerbosityLines, Logger: slog.New(slog.NewTextHandler(&events, nil))})
		check(t, err)
		return out.String(), events.String()
	}
	const text = "Policy: layer dense was built under float32 and keeps it (so do 2 more); mixed_bfloat16 was set later. Set it before the layers are built."
	underPolicy(t, "float32")
	make := func() *Model {
		x := Input(3)
		in := Input(4)
		inner, err := NewModel(in, Apply(&layers.Dense{Units: 4}, in))
		check(t, err)
		y := Apply(inner.Named("inner").Layer(), Apply(&layers.Dense{Units: 4}, x))
		m, err := NewModel(x, Apply(&layers.Dense{Units: 1}, Apply(&layers.Dense{Units: 2, DType: "float32"}, y)))
		check(t, err)
		check(t, m.Compile(lineConfig()))
		return m
	}
	m, again := make(), make()
	if out, events := run(m); strings.Contains(out+events, "olicy") {
		t.Errorf("under the policy: got %s%s", out, events)
	}
	policy.SetGlobal("mixed_bfloat16")
	out, events := run(m)
	if strings.Count(out, text) != 1 || !strings.Contains(events, `level=WARN msg="policy set too late"`) {
		t.Errorf("got %s%s\nwant %s, and an event", out, events, text)
	}
	if out, _ := run(m); strings.Contains(out, "Policy") {
		t.Errorf("the second time: got %s", out)
	}
	if out, _ := run(again); strings.Contains(out, "Policy") {
		t.Errorf("the same of another model: got %s", out)
	}
	policy.SetGlobalMap(map[string]string{"inner": "mixed_float16", "dense": "float32", "dense_1": "float32", "dense_2": "float32"})
	defer policy.SetGlobalMap(nil)
	const mapped = "Policy: layer inner/dense was built under float32 and keeps it; mixed_float16 was set later. Set it before the layers are built."
	if out, _ := run(m); strings.Count(out, mapped) != 1 {
		t.Errorf("a map: got %s\nwant %s", out, mapped)
	}
}

// TestNilArguments: what is nil is named.
func TestNilArguments(t *testing.T) {
	var noContext context.Context
	var noPipeline *Pipeline
	var noAdam *optimizers.Adam
	var noScaler *optimizers.LossScaleOptimizer
	var noMetric *metrics.Mean
	var noLoss *losses.MeanSquaredError
	m := line(t)
	fit(t, m, regression(4), FitConfig{})
	x, d := NewTensor(numbers(12), 4, 3), regression(4)
	b := Batch{X: x, Y: NewTensor(numbers(4), 4, 1)}
	for text, f := range map[string]func() error{
		"Fit: the context is nil; use context.Background()":            func() error { _, err := m.Fit(noContext, d, FitConfig{}); return err },
		"Evaluate: the context is nil; use context.Background()":       func() error { _, err := m.Evaluate(noContext, d); return err },
		"Predict: the context is nil; use context.Background()":        func() error { _, err := m.Predict(noContext, x); return err },
		"PredictDataset: the context is nil; use context.Background()": func() error { _, err := m.PredictDataset(noContext, d); return err },
		"TrainOnBatch: the context is nil; use context.Background()":   func() error { _, err := m.TrainOnBatch(noContext, b); return err },
		"TestOnBatch: the context is nil; use context.Background()":    func() error { _, err := m.TestOnBatch(noContext, b); return err },
		"TrainStep: the context is nil; use context.Background()":      func() error { return m.TrainStep(noContext, b) },
		"Trace: the context is nil; use context.Background()":          func() error { return m.Trace(noContext, b, io.Discard) },
		"Exponents: the context is nil; use context.Background()":      func() error { return m.Explain(noContext, b, io.Discard) },
		"Adapt: the context is nil; use context.Background()":          func() error { return Adapt(noContext, &preprocessing.Normalization{}, d) },
		"Epoch: the context is nil; use context.Background()": func() (err error) {
			for _, err = range d.Epoch(noContext, 0, 0) {
			}
			return err
		},
		"Fit: no dataset given":                              func() error { _, err := m.Fit(background, noPipeline, FitConfig{}); return err },
		"Evaluate: no dataset given":                         func() error { _, err := m.Evaluate(background, noPipeline); return err },
		"model sequential: PredictDataset: no dataset given": func() error { _, err := m.PredictDataset(background, noPipeline); return err },
		"Adapt: no dataset given":                            func() error { return Adapt(background, &preprocessing.Normalization{}, noPipeline) },
		"model sequential: Compile: the Optimizer is a nil *optimizers.Adam": func() error {
			return Sequential().Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: noAdam})
		},
		"model sequential: Compile: Schedule: got a nil *optimizers.CosineDecay, want a schedule, or nil for none": func() error {
			none := (*optimizers.CosineDecay)(nil)
			return m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.Adam{Schedule: none}})
		},
		"model sequential: Compile: the Optimizer is a nil *optimizers.LossScaleOptimizer": func() error {
			return Sequential().Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: noScaler})
		},
		"model sequential: Compile: optimizer loss_scale_optimizer: Inner: got a nil *optimizers.Adam, want an optimizer": func() error {
			return Sequential().Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.LossScaleOptimizer{Inner: noAdam}})
		},
		"model sequential: Compile: a metric is nil": func() error {
			return Sequential().Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Metrics: []metrics.Metric{nil}})
		},
		"model sequential: Compile: a loss is a nil *losses.MeanSquaredError": func() error {
			return Sequential().Compile(CompileConfig{Loss: noLoss})
		},
		"Function: owner 2 of its list is a nil *optimizers.Adam": func() error {
			_, err := Function(func(b Batch) none { return none{} }, m, noAdam).Call(background, b)
			return err
		},
		"Function: owner 1 of its list is a nil *metrics.Mean": func() error {
			return Function(func(b Batch) none { return none{} }, noMetric).Run(background, b)
		},
	} {
		t.Run(text, func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("got a panic, %v", r)
				}
			}()
			wantError(t, f(), text)
		})
	}
}

// TestCompileChecks: numbers of the optimizer that make no sense are found by
// Compile.
func TestCompileChecks(t *testing.T) {
	for _, name := range policies {
		underPolicy(t, name)
		for _, rate := range []float64{math.NaN(), math.Inf(1), -1, 5e-324} {
			m := Sequential(&layers.Dense{Units: 1})
			err := m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{LearningRate: rate}})
			wantError(t, err, fmt.Sprintf("model sequential: Compile: optimizer sgd: LearningRate: got %v, want a positive float32 number", rate))
			_, err = m.Fit(background, regression(4), silent(FitConfig{}))
			if !errors.Is(err, ErrNotCompiled) {
				t.Errorf("got %v, want that it is not compiled", err)
			}
		}
	}
}

// startsAt is a Schedule of a user's own.
type startsAt float64

func (s startsAt) Rate(step *Tensor) *Tensor { return step.AddScalar(float64(s)) }

// TestCompileChecksRates: so are the numbers of schedules, and rates of 0 stay
// legal.
func TestCompileChecksRates(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	compile := func(s optimizers.Schedule, wrap bool) error {
		var o optimizers.Optimizer = &optimizers.Adam{Schedule: s}
		if wrap {
			o = &optimizers.LossScaleOptimizer{Inner: &optimizers.MultiOptimizer{OptimizerMap: optimizers.OptimizerMap{Default: o}}}
		}
		return Sequential(&layers.Dense{Units: 1}).Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: o})
	}
	for _, bad := range []float64{nan, inf, -1, 5e-324} {
		for _, s := range []optimizers.Schedule{
			&optimizers.ExponentialDecay{InitialLearningRate: bad, DecaySteps: 10, DecayRate: 0.9},
			&optimizers.InverseTimeDecay{InitialLearningRate: bad, DecaySteps: 10, DecayRate: 0.9},
			&optimizers.PolynomialDecay{InitialLearningRate: bad, DecaySteps: 10},
			&optimizers.CosineDecay{InitialLearningRate: bad, DecaySteps: 10},
			&optimizers.CosineDecay{DecaySteps: 10, WarmupSteps: 3, WarmupTarget: &bad},
			&optimizers.CosineDecayRestarts{InitialLearningRate: bad, FirstDecaySteps: 10},
			&optimizers.OneCycle{MaxLearningRate: bad, TotalSteps: 10},
			startsAt(bad),
		} {
			if _, own := s.(startsAt); own && bad == 5e-324 {
				continue // it is 0 in float32
			}
			for _, wrap := range []bool{false, true} {
				if err := compile(s, wrap); err == nil || !strings.Contains(err.Error(), "Compile: ") || !strings.Contains(err.Error(), "got ") {
					t.Errorf("%T of %v: got %v, want an error", s, bad, err)
				}
			}
		}
		if bad == 5e-324 {
			continue
		}
		for _, s := range []optimizers.Schedule{
			&optimizers.ExponentialDecay{InitialLearningRate: 1, DecaySteps: bad, DecayRate: 0.9},
			&optimizers.ExponentialDecay{InitialLearningRate: 1, DecaySteps: 10, DecayRate: bad},
			&optimizers.PiecewiseConstantDecay{Boundaries: []float64{1}, Values: []float64{1, bad}},
			&optimizers.PolynomialDecay{InitialLearningRate: 1, DecaySteps: 10, EndLearningRate: &bad},
			&optimizers.CosineDecay{InitialLearningRate: 1, DecaySteps: 10, Alpha: bad},
		} {
			if err := compile(s, false); err == nil {
				t.Errorf("%+v: got no error", s)
			}
		}
		if bad >= 0 || bad != bad {
			if err := compile(&optimizers.PiecewiseConstantDecay{Boundaries: []float64{bad}, Values: []float64{1, 2}}, false); err == nil {
				t.Errorf("a boundary of %v: got no error", bad)
			}
			err := Sequential(&layers.Dense{Units: 1}).Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, LossWeights: []float64{bad}})
			wantError(t, err, fmt.Sprintf("model sequential: Compile: LossWeights[0] is %v, want a finite number", bad))
		}
	}
	wantError(t, compile(startsAt(nan), false), "model sequential: Compile: optimizer adam: Schedule: keras.startsAt: got rate NaN at step 0, want a number that is not negative")
	for _, s := range []optimizers.Schedule{
		startsAt(0), &optimizers.PiecewiseConstantDecay{Boundaries: []float64{1}, Values: []float64{0, 0}},
		&optimizers.CosineDecay{DecaySteps: 10, WarmupSteps: 3, WarmupTarget: new(1.0)},
		&optimizers.PolynomialDecay{InitialLearningRate: 1, DecaySteps: 10, EndLearningRate: new(0.0)},
	} {
		check(t, compile(s, true))
	}
	check(t, Sequential(&layers.Dense{Units: 1}).Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{LearningRate: math.Copysign(0, -1)}}))
}

// TestMetricInFunction: a metric cannot be read in a step, whether or not that
// has it in its list.
func TestMetricInFunction(t *testing.T) {
	for _, name := range policies {
		underPolicy(t, name)
		for _, listed := range []bool{true, false} {
			mean := &metrics.Mean{}
			m := line(t)
			owners := []Stateful{m}
			want := "a metric has no data inside a Function; read it when the call has returned"
			if listed {
				owners = append(owners, mean)
				want = "variable mean/total has no data inside a Function; read it when the call has returned"
			}
			var err error
			step := Function(func(b Batch) *Tensor {
				y := m.Call(b.X)
				if listed {
					mean.Add(y)
				}
				_, err = mean.Result()
				return y
			}, owners...)
			_, e := step.Call(background, Batch{X: NewTensor(numbers(12), 4, 3)})
			check(t, e)
			wantError(t, err, want)
		}
	}
}

// TestFloat16WithoutScale: the two commonest mistakes of a loop of one's own.
func TestFloat16WithoutScale(t *testing.T) {
	for _, name := range policies {
		underPolicy(t, name)
		for _, scaler := range []bool{false, true} {
			var optimizer optimizers.Optimizer = &optimizers.Adam{}
			want := ""
			if name == "mixed_float16" {
				want = "ApplyGradients: optimizer adam: the gradient of dense/kernel passed through float16 and its loss was not scaled, so small gradients are lost; " +
					"use a LossScaleOptimizer, with GetScaledLoss and GetUnscaledGradients, or set AllowUnscaledLoss"
			}
			if scaler {
				optimizer = &optimizers.LossScaleOptimizer{Inner: optimizer}
				want = "ApplyGradients: optimizer loss_scale_optimizer: the loss whose gradient of dense/kernel is given was not scaled; " +
					"compute gradients from GetScaledLoss and give them to GetUnscaledGradients, or set AllowUnscaledLoss"
			}
			// Convolutions, statistics, tables and recurrences on the way.
			m := Sequential(&layers.Dense{Units: 4, Activation: "gelu"}, &layers.Reshape{TargetShape: []int{2, 2}}, &layers.LSTM{Units: 3},
				&layers.BatchNormalization{}, &layers.Dropout{Rate: 0.1}, &layers.Dense{Units: 1})
			step := Function(func(b Batch) none {
				loss := (&losses.MeanSquaredError{}).Call(b.Y, m.Call(b.X, Training))
				vars := m.TrainableVariables()
				optimizer.ApplyGradients(Gradients(loss, vars), vars)
				return none{}
			}, m, optimizer)
			err := step.Run(background, Batch{X: NewTensor(numbers(12), 4, 3), Y: NewTensor(numbers(4), 4, 1)})
			if want == "" {
				check(t, err)
			} else {
				wantError(t, err, want)
			}
		}
	}
}
