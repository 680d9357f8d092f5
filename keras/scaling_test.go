package keras

import (
	"errors"
	"math"
	"regexp"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

func TestAutoScaling(t *testing.T) {
	inner := func(d string) *Model { return Sequential(&layers.Dense{Units: 1, DType: d}) }
	for name, c := range map[string]struct {
		policy string
		m      *Model
		auto   *bool
		want   bool
	}{
		"float32":                {"float32", Sequential(dense(1)), nil, false},
		"mixed_float16":          {"mixed_float16", Sequential(dense(1)), nil, true},
		"float16":                {"float16", Sequential(dense(1)), nil, true},
		"mixed_bfloat16":         {"mixed_bfloat16", Sequential(dense(1)), nil, false},
		"one float16 layer":      {"float32", Sequential(dense(1), &layers.Activation{Activation: "relu", DType: "mixed_float16"}), nil, true},
		"one float16 and bfloat": {"mixed_bfloat16", Sequential(dense(1), &layers.Dense{Units: 1, DType: "mixed_float16"}), nil, true},
		"nested":                 {"float32", Sequential(dense(1), inner("mixed_float16").Layer()), nil, true},
		"float32 in nested":      {"mixed_float16", Sequential(inner("float32").Layer()), nil, false},
		"opted out":              {"mixed_float16", Sequential(dense(1)), new(false), false},
		"opted in":               {"mixed_float16", Sequential(dense(1)), new(true), true},
		"in for nothing":         {"float32", Sequential(dense(1)), new(true), false},
	} {
		underPolicy(t, c.policy)
		config := lineConfig()
		config.AutoScaleLoss = c.auto
		check(t, c.m.Compile(config))
		h := fit(t, c.m, regression(4), FitConfig{})
		o, got := c.m.Optimizer().(*optimizers.LossScaleOptimizer)
		if got != c.want || h.Logs[0].Has("loss_scale") != c.want {
			t.Errorf("%s: got optimizer %T, logs %v, want it wrapped: %v", name, c.m.Optimizer(), h.Logs[0], c.want)
		}
		if got && o.Inner != config.Optimizer {
			t.Errorf("%s: the optimizer inside is another one", name)
		}
	}
	own := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}, InitialScale: 64}
	for _, p := range []string{"mixed_float16", "float32"} {
		underPolicy(t, p)
		m := Sequential(dense(1))
		check(t, m.Compile(CompileConfig{Optimizer: own, Loss: &losses.MeanSquaredError{}}))
		h := fit(t, m, regression(4), FitConfig{})
		if m.Optimizer() != own || h.Get("loss_scale")[0] != 64 || h.Get("skipped_steps")[0] != 0 {
			t.Errorf("%s: got optimizer %T, logs %v, want that which was given, at 64", p, m.Optimizer(), h.Logs)
		}
	}
}

// TestOverflowSkips: the gradient at the output is 2·100/n, so scales down to
// 65504/(200/4) overflow float16.
func TestOverflowSkips(t *testing.T) {
	underPolicy(t, "mixed_float16")
	m := Sequential(dense(3), &layers.BatchNormalization{}, &layers.Dropout{Rate: 0.25}, dense(1))
	check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{},
		Optimizer: &optimizers.SGD{Momentum: 0.9, UseEMA: true}}))
	x := NewTensor(numbers(12), 4, 3)
	y := NewTensor([]float32{100, -100, 100, -100}, 4, 1)
	b := Batch{X: x, Y: y}
	check(t, m.ready(b))
	scaler := m.Optimizer().(*optimizers.LossScaleOptimizer)
	_, err := m.PlanMemory(b) // makes the slots
	check(t, err)
	state := func() [][]byte {
		var all []*Variable
		all = append(append(all, variablesOf(m.Weights())...), scaler.Inner.Variables()...)
		return bits(t, variables(all))
	}
	before := state()
	scale, applied := 32768.0, int64(0)
	for step := int64(1); step <= 20; step++ {
		_, err := m.TrainOnBatch(background, b)
		check(t, err)
		r, err := m.StepResult()
		check(t, err)
		after := state()
		if r.Applied {
			applied++
		} else {
			scale /= 2
			if !same(before, after) {
				t.Errorf("step %d was skipped at scale %v and something moved", step, scale*2)
			}
		}
		if r.Applied == same(before, after) || r.LossScale != scale || r.AppliedSteps != applied || r.SkippedSteps != step-applied {
			t.Errorf("step %d: got %+v, want scale %v, %d applied", step, r, scale, applied)
		}
		if step == 1 && r.Applied {
			t.Error("the first step was applied: this model does not overflow")
		}
		before = after
	}
	// 32768·50 is 25 times the largest float16: a few halvings are enough.
	if n, err := optimizers.Iterations(m.Optimizer()); n != applied || applied < 4 || err != nil {
		t.Errorf("got %d iterations, %d steps applied of 20", n, applied)
	}
}

type variables []*Variable

func (v variables) Variables() []*Variable { return v }

// TestUnderflow: gradients of 2⁻²⁹ vanish in float16 unless they are scaled.
func TestUnderflow(t *testing.T) {
	underPolicy(t, "mixed_float16")
	loss := func(scale bool) []float64 {
		m := Sequential(
			&layers.Dense{Units: 4, Name: "first", KernelInitializer: "ones", UseBias: new(false)},
			&layers.Dense{Units: 1, KernelInitializer: "constant(0.00000762939453125)", UseBias: new(false)}) // 2⁻¹⁷
		m.Layers()[1].(*layers.Dense).SetTrainable(false)
		check(t, m.Compile(CompileConfig{AutoScaleLoss: &scale, Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{LearningRate: 1 << 27}}))
		y := make([]float32, 8)
		for i := range y {
			y[i] = 1.0 / (1 << 10)
		}
		h := fit(t, m, FromTensors(NewTensor(filled(24, 1), 8, 3), NewTensor(y, 8, 1), nil), FitConfig{Epochs: 6})
		return h.Get("loss")
	}
	without, with := loss(false), loss(true)
	if without[5] != without[0] {
		t.Errorf("got losses %v without scaling: the gradients do not vanish", without)
	}
	if !(with[5] < with[0]/2) {
		t.Errorf("got losses %v with scaling, want them to fall", with)
	}
}

func filled(n int, v float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// TestGivesUp: steps that are skipped with the scale at its minimum end Fit
// with what caused them.
func TestGivesUp(t *testing.T) {
	underPolicy(t, "mixed_float16")
	run := func(x []float32, c FitConfig) (*Model, error) {
		m := Sequential(
			&layers.Dense{Units: 4, Name: "big", KernelInitializer: "constant(100)"},
			&layers.Dense{Units: 1, Name: "out"})
		check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{},
			Optimizer: &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}, InitialScale: 2}}))
		c.Epochs, c.BatchSize, c.Shuffle = 20, 4, new(false)
		_, err := m.Fit(background, FromTensors(NewTensor(x, 4, 3), NewTensor(rising(4), 4, 1), nil), silent(c))
		return m, err
	}
	m, err := run(filled(12, 1000), FitConfig{})
	want := regexp.MustCompile(`^Fit: 10 steps in a row had gradients that are not finite with the loss scale at its minimum 1: ` +
		`layer big: MatMul made an infinity in float16\[4 4\] \(overflow; its inputs were finite\); doctor\.Examine finds a remedy \(docs/doctor\.md\)$`)
	if err == nil || !want.MatchString(err.Error()) {
		t.Errorf("got %v\nwant %v", err, want)
	}
	var cause *tensor.NonFinite
	if !errors.As(err, &cause) || cause.Given || cause.NaN || cause.Path != "big" || cause.Op != op.MatMul {
		t.Errorf("got cause %+v", cause)
	}
	if r, err := m.StepResult(); err != nil || r.SkippedSteps != 11 || r.AppliedSteps != 0 { // one at scale 2, ten at 1
		t.Errorf("got %+v, %v, want 11 steps skipped", r, err)
	}

	x := filled(12, 0.01)
	x[7] = float32(math.NaN())
	_, err = run(x, FitConfig{MaxSkipsAtFloor: 3})
	wantError(t, err, "Fit: 3 steps in a row had gradients that are not finite with the loss scale at its minimum 1: X of the batch: a NaN was there before the step, in float32[4 3]; doctor.Examine finds a remedy (docs/doctor.md)")
	if !errors.As(err, &cause) || !cause.Given || !cause.NaN {
		t.Errorf("got cause %+v, want a NaN that was given", cause)
	}
	x[7] = float32(math.Inf(-1))
	_, err = run(x, FitConfig{MaxSkipsAtFloor: 1})
	wantError(t, err, "Fit: 1 steps in a row had gradients that are not finite with the loss scale at its minimum 1: X of the batch: an infinity was there before the step, in float32[4 3]; doctor.Examine finds a remedy (docs/doctor.md)")
	if _, err = run(x, FitConfig{MaxSkipsAtFloor: -1}); err != nil {
		t.Errorf("got %v with MaxSkipsAtFloor -1, want Fit to go on", err)
	}
}

// TestScaleBelowOne: gradients of 5·10⁵ at the output overflow float16 unscaled.
// Fit gives up at scale 1 and names them; with a lower MinScale it trains.
func TestScaleBelowOne(t *testing.T) {
	underPolicy(t, "mixed_float16")
	for _, least := range []float64{1, 0x1p-16} {
		m := Sequential(&layers.Dense{Units: 4, Activation: "relu", Name: "hidden"}, &layers.Dense{Units: 1, Name: "out"})
		check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{},
			Optimizer: &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{LearningRate: 100}, MinScale: least}}))
		x, y := NewTensor(numbers(12), 4, 3), NewTensor(filled(4, 1e6), 4, 1)
		h, err := m.Fit(background, FromTensors(x, y, nil), silent(FitConfig{Epochs: 60, BatchSize: 4}))
		if least == 1 {
			wantError(t, err, "Fit: 10 steps in a row had gradients that are not finite with the loss scale at its minimum 1: "+
				"layer out/grad: Cast made an infinity in float16[4 1] (overflow; its inputs were finite); doctor.Examine finds a remedy (docs/doctor.md)")
			continue
		}
		check(t, err)
		r, err := m.StepResult()
		check(t, err)
		if loss := h.Get("loss"); r.LossScale > 0.125 || r.SkippedSteps > 31 || !r.Applied || !(loss[59] < loss[0]) {
			t.Errorf("got %+v and losses %v, want steps at a scale that fits", r, loss)
		}
	}
}

// TestInBatch names the part of a batch that an argument of the step is.
func TestInBatch(t *testing.T) {
	x := NewTensor(rising(1), 1)
	for path, c := range map[string]struct {
		given int
		b     Batch
	}{
		"X of the batch":      {0, Batch{X: x, Y: x}},
		"Y of the batch":      {1, Batch{X: x, Y: x}},
		"X[1] of the batch":   {1, Batch{X: Tuple(x, x), Y: x}},
		"Y[0] of the batch":   {2, Batch{X: Tuple(x, x), Y: Tuple(x, x)}},
		"Weight of the batch": {3, Batch{X: Tuple(x, x), Y: x, Weight: x}},
		"dense/kernel":        {-1, Batch{X: x}},
	} {
		if got := inBatch(&tensor.NonFinite{Path: "dense/kernel", Given: true, Argument: c.given}, c.b).Path; got != path {
			t.Errorf("argument %d: got %s, want %s", c.given, got, path)
		}
	}
}
