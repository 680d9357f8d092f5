package keras

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

func TestCompileErrors(t *testing.T) {
	mse := &losses.MeanSquaredError{}
	two := func() *Model {
		x := Input(3)
		return newModel(t, x, Tuple(Apply(&layers.Dense{Units: 1, Name: "a"}, x), Apply(&layers.Dense{Units: 1, Name: "b"}, x)))
	}
	sgd := func() optimizers.Optimizer { return &optimizers.SGD{} }
	for _, c := range []struct {
		c    CompileConfig
		want string
	}{
		{CompileConfig{}, "model functional: Compile: no Loss given"},
		{CompileConfig{Loss: mse, Losses: []losses.Loss{mse, mse}}, "model functional: Compile: both Loss and Losses are given; use one"},
		{CompileConfig{Losses: []losses.Loss{mse}}, `model functional: Compile: 1 Losses given, it has 2 outputs ["a" "b"]`},
		{CompileConfig{Loss: mse, LossWeights: []float64{1, 2, 3}}, `model functional: Compile: 3 LossWeights given, it has 2 outputs ["a" "b"]`},
		{CompileConfig{Loss: mse, OutputMetrics: [][]metrics.Metric{{}}}, `model functional: Compile: 1 OutputMetrics given, it has 2 outputs ["a" "b"]`},
		{CompileConfig{Loss: mse, Metrics: []metrics.Metric{&metrics.MeanAbsoluteError{}}}, "model functional: Compile: it has 2 outputs; give OutputMetrics, a list for each"},
		{CompileConfig{Loss: mse, Metrics: []metrics.Metric{nil}}, "model functional: Compile: a metric is nil"},
		{CompileConfig{Loss: mse, Metrics: []metrics.Metric{&metrics.MeanAbsoluteError{}}, OutputMetrics: [][]metrics.Metric{{&metrics.MeanAbsoluteError{}}}}, "model functional: Compile: both Metrics and OutputMetrics are given; use one"},
		{CompileConfig{Loss: mse, Optimizer: &optimizers.LossScaleOptimizer{}}, "model functional: Compile: the LossScaleOptimizer has no Inner optimizer"},
		{CompileConfig{Loss: mse, Optimizer: &optimizers.LossScaleOptimizer{Inner: &optimizers.LossScaleOptimizer{Inner: sgd()}}},
			"model functional: Compile: the optimizer is a LossScaleOptimizer around a LossScaleOptimizer; wrap once"},
	} {
		m := two()
		wantError(t, m.Compile(c.c), c.want)
		if m.Optimizer() != nil {
			t.Errorf("%s: the model is compiled all the same", c.want)
		}
	}
	// A model that is not built yet finds out when it sees data.
	m := Sequential(dense(1))
	check(t, m.Compile(CompileConfig{Losses: []losses.Loss{mse, mse}}))
	_, err := m.Fit(background, regression(4), silent(FitConfig{}))
	wantError(t, err, `model sequential: Compile: 2 Losses given, it has 1 outputs ["dense"]`)

	m = two()
	check(t, m.Compile(CompileConfig{Losses: []losses.Loss{nil, nil}}))
	x := NewTensor(rising(3), 1, 3)
	y := NewTensor([]float32{1}, 1, 1)
	_, err = m.TrainOnBatch(background, Batch{X: x, Y: Tuple(y, y)})
	wantError(t, err, "Compile: every output has a nil loss")
	if Sequential(dense(1)).Optimizer() != nil {
		t.Error("a model that is not compiled has an optimizer")
	}
	m = Sequential(dense(1))
	check(t, m.Compile(CompileConfig{Loss: mse}))
	if _, ok := m.Optimizer().(*optimizers.RMSprop); !ok {
		t.Errorf("got optimizer %T, want RMSprop unless one is given", m.Optimizer())
	}
}

// TestSeveralOutputs checks the sum of losses, its weights, the logs and that
// one sample weight, or one per output, counts.
func TestSeveralOutputs(t *testing.T) {
	x := Input(1)
	m := newModel(t, x, Tuple(
		Apply(&layers.Dense{Units: 1, Name: "a", KernelInitializer: "ones"}, x),
		Apply(&layers.Dense{Units: 1, Name: "b", KernelInitializer: "zeros"}, x),
		Apply(&layers.Dense{Units: 1, Name: "c"}, x)))
	check(t, m.Compile(CompileConfig{
		Losses:        []losses.Loss{&losses.MeanSquaredError{}, &losses.MeanAbsoluteError{}, nil},
		LossWeights:   []float64{0.5, 3, 1},
		OutputMetrics: [][]metrics.Metric{{&metrics.MeanAbsoluteError{}}, nil, nil},
	}))
	in, zero := NewTensor([]float32{2, 4}, 2, 1), NewTensor([]float32{0, 6}, 2, 1)
	for _, c := range []struct {
		weight *Tensor
		a, b   float64
	}{
		{nil, 4, 3}, // a: (2²+2²)/2, b: (0+6)/2
		{NewTensor([]float32{1, 0.5}, 2), 3, 1.5},
		{Tuple(NewTensor([]float32{1, 0.5}, 2), NewTensor([]float32{9, 2}, 2), NewTensor([]float32{0, 0}, 2)), 3, 6},
	} {
		logs, err := m.TestOnBatch(background, Batch{X: in, Y: Tuple(zero, zero, zero), Weight: c.weight})
		check(t, err)
		want := Logs{{"a_loss", c.a}, {"a_mean_absolute_error", 2}, {"b_loss", c.b}, {"loss", 0.5*c.a + 3*c.b}}
		if !slices.Equal(logs, want) {
			t.Errorf("got %v, want %v", logs, want)
		}
	}
	before := weightsOf(t, m)
	_, err := m.TrainOnBatch(background, Batch{X: in, Y: Tuple(zero, zero, zero)})
	check(t, err)
	after := weightsOf(t, m)
	if slices.Equal(before[0], after[0]) || !slices.Equal(before[4], after[4]) {
		t.Errorf("got %v, then %v: an output with a loss must move, one without must not", before, after)
	}
}

// TestPenalties adds regularizers and activity regularizers to the loss, in
// training and in evaluation.
func TestPenalties(t *testing.T) {
	penalized := func(trainable bool) *Model {
		m := Sequential(&layers.Dense{Units: 1, KernelInitializer: "ones", KernelRegularizer: "l2(0.5)", ActivityRegularizer: "l1(0.25)"})
		m.SetTrainable(trainable)
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 1}, Loss: &losses.MeanSquaredError{}}))
		return m
	}
	b := Batch{X: NewTensor([]float32{1, 2, 3, 4}, 2, 2), Y: NewTensor([]float32{3, 7}, 2, 1)}
	// The fit is perfect; penalties are 0.5·(1+1) and 0.25·(3+7)/2.
	m := penalized(true)
	for name, f := range map[string]func() (Logs, error){
		"test":  func() (Logs, error) { return m.TestOnBatch(background, b) },
		"train": func() (Logs, error) { return penalized(true).TrainOnBatch(background, b) },
	} {
		logs, err := f()
		check(t, err)
		if logs.Get("loss") != 1+1.25 {
			t.Errorf("%s: got loss %v, want 2.25", name, logs.Get("loss"))
		}
	}
	_, err := m.TrainOnBatch(background, b)
	check(t, err)
	// d/dw 0.5·w² = 1; d/dw 0.25·mean(x·w) = 0.25·(2, 3); the bias 0.25.
	if got := fmt.Sprint(weightsOf(t, m)); got != "[[-0.5 -0.75] [-0.25]]" {
		t.Errorf("got weights %s, want [[-0.5 -0.75] [-0.25]]", got)
	}
	frozen := penalized(false)
	logs, err := frozen.TestOnBatch(background, b)
	check(t, err)
	if logs.Get("loss") != 1.25 {
		t.Errorf("frozen: got loss %v, want 1.25: frozen weights have no penalty", logs.Get("loss"))
	}
}

func TestFrozenLayers(t *testing.T) {
	bn := &layers.BatchNormalization{}
	first := &layers.Dense{Units: 4, KernelRegularizer: "l2"}
	m := Sequential(first, bn, dense(1))
	check(t, m.Build(3))
	first.SetTrainable(false)
	bn.SetTrainable(false)
	check(t, m.Compile(lineConfig()))
	before := weightsOf(t, m)
	fit(t, m, regression(16), FitConfig{Epochs: 2})
	names, after := weightNames(m), weightsOf(t, m)
	for i, name := range names {
		if moved := !slices.Equal(before[i], after[i]); moved != (name == "dense_1/kernel" || name == "dense_1/bias") {
			t.Errorf("%s: moved is %v", name, moved)
		}
	}
	// Said before there are layers, it holds.
	m = Sequential(dense(1))
	m.SetTrainable(false)
	check(t, m.Compile(lineConfig()))
	_, err := m.TrainOnBatch(background, one(regression(4).Batch(4)))
	wantError(t, err, "model sequential: it has no trainable weights; unfreeze a layer with SetTrainable and Compile again")
	if m.Trainable() || len(m.TrainableVariables()) != 0 || len(m.NonTrainableVariables()) != 2 {
		t.Errorf("got %d trainable and %d other variables", len(m.TrainableVariables()), len(m.NonTrainableVariables()))
	}
	m.SetTrainable(true)
	check(t, m.Compile(lineConfig()))
	before = weightsOf(t, m)
	fit(t, m, regression(4), FitConfig{})
	if slices.Equal(before[0], weightsOf(t, m)[0]) {
		t.Error("the layer stays frozen")
	}
}

// TestCompileAgain keeps the state of an optimizer that is given again.
func TestCompileAgain(t *testing.T) {
	underPolicy(t, "mixed_float16")
	c := lineConfig()
	m := Sequential(dense(1))
	check(t, m.Compile(c))
	fit(t, m, regression(8), FitConfig{BatchSize: 4})
	before := m.Optimizer()
	check(t, m.Compile(c))
	if m.Optimizer() != before {
		t.Error("the loss scale starts again")
	}
	fit(t, m, regression(8), FitConfig{BatchSize: 4})
	if r, err := m.StepResult(); r.AppliedSteps != 4 || err != nil {
		t.Errorf("got %+v, %v, want 4 steps", r, err)
	}
	check(t, m.Compile(lineConfig()))
	check(t, m.ready(one(regression(4).Batch(4))))
	if n, err := optimizers.Iterations(m.Optimizer()); n != 0 || err != nil || m.Optimizer() == before {
		t.Errorf("got %d iterations of a new optimizer", n)
	}
}

// TestPlanMemory compares the plan with what is there.
func TestPlanMemory(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	m := Sequential(dense(8), &layers.Dropout{Rate: 0.5}, dense(1))
	check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.MeanSquaredError{}, Metrics: []metrics.Metric{&metrics.MeanAbsoluteError{}}}))
	b := one(regression(16).Batch(16))
	p, err := m.PlanMemory(b)
	check(t, err)
	g, err := m.training.train.Plan(b)
	check(t, err)
	sum := func(s Stateful) (n Bytes) {
		for _, v := range s.Variables() {
			n += Bytes(v.Type().Bytes())
		}
		return n
	}
	weights := Bytes(4*(3*8+8+8+1) + 16) // and the state of Dropout
	if p.Weights != weights || sum(m) != weights {
		t.Errorf("got %d bytes of weights, %d in variables, want %d", p.Weights, sum(m), weights)
	}
	constant := Bytes(16) // what Dropout adds to its state
	norm := Bytes(4)      // of gradients: written and not read, so that its last value stays meanwhile
	if want := sum(m.Optimizer()) + sum(m.training) + constant + norm; p.Slots != want {
		t.Errorf("got %d bytes of slots, want %d", p.Slots, want)
	}
	if p.Activation != Bytes(g.ArenaBytes) || p.Batch != 16*4*4 || p.Peak != p.Weights+p.Slots+p.Activation+p.Workspace+p.Batch {
		t.Errorf("got %+v, want %d of activations, %d of batch", p, g.ArenaBytes, 16*4*4)
	}
	if n, err := optimizers.Iterations(m.Optimizer()); n != 0 || err != nil {
		t.Error("planning has run a step")
	}
	_, err = m.PlanMemory(Batch{})
	wantError(t, err, "model sequential: the batch has no X")
	if got, want := (MemoryPlan{1 << 20, 2 << 20, 3 << 19, 1 << 18, 0, 0}).String(), "weights 1.00 MiB, slots 2.00 MiB, activations and gradients 1.50 MiB, workspace 0.25 MiB, batch 0.00 MiB, peak 0.00 MiB"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestMoreThan1024Rows takes data in parts, whose ends show.
func TestMoreThan1024Rows(t *testing.T) {
	for _, n := range []int{1, 1023, 1024, 1025, 2048, 2500} {
		x := Input(1)
		h := Apply(&layers.Dense{Units: 2, KernelInitializer: "ones"}, x)
		m := newModel(t, x, Tuple(h, Apply(&layers.Dense{Units: 1, KernelInitializer: "ones"}, h)))
		in := NewTensor(rising(n), n, 1)
		p, err := m.Predict(background, in)
		check(t, err)
		if !p.IsTuple() || !p.Unpack()[0].Shape().Equal(Shape{n, 2}) || !p.Unpack()[1].Shape().Equal(Shape{n, 1}) {
			t.Fatalf("%d rows: got %v", n, p)
		}
		for i, v := range values(t, p.Unpack()[1]) {
			if v != 2*float64(i) {
				t.Fatalf("%d rows: row %d is %v, want %v", n, i, v, 2*i)
			}
		}
		narrow := newModel(t, x, h)
		mae := &metrics.MeanAbsoluteError{}
		check(t, narrow.Compile(CompileConfig{Loss: &losses.MeanAbsoluteError{}, Metrics: []metrics.Metric{mae}}))
		logs, err := narrow.Evaluate(background, FromTensors(in, Tuple(NewTensor(make([]float32, 2*n), n, 2)), nil))
		check(t, err)
		want := float64(n-1) / 2
		// The loss is a float32 mean per part of 1024 rows.
		wantNear(t, "loss", []float64{logs.Get("loss"), logs.Get("mean_absolute_error")}, []float64{want, want}, 1)
		single, err := narrow.Predict(background, in)
		check(t, err)
		if single.IsTuple() || single.Dim(0) != n {
			t.Errorf("%d rows: got %v", n, single.Type())
		}
	}
	m := line(t)
	if _, err := m.Predict(background, nil); err == nil {
		t.Error("Predict takes nil")
	}
}

func TestLogs(t *testing.T) {
	l := Logs{{"loss", 1}, {"sparse_categorical_accuracy", 0.5}, {"val_binary_accuracy", 0.25}}
	if l.Get("accuracy") != 0.5 || l.Get("val_accuracy") != 0.25 || !math.IsNaN(l.Get("mse")) || !l.Has("loss") || l.Has("accuracy") {
		t.Errorf("got %v, %v, %v", l.Get("accuracy"), l.Get("val_accuracy"), l.Get("mse"))
	}
	l = append(l, Log{"binary_accuracy", 0.75})
	if !math.IsNaN(l.Get("accuracy")) {
		t.Errorf("got %v of two accuracies, want NaN", l.Get("accuracy"))
	}
	if n := (&History{}).Names(); n != nil {
		t.Errorf("got names %v of nothing", n)
	}
}

// plainLoss is a loss of a user's that takes no sample weights.
type plainLoss struct{}

func (plainLoss) Call(yTrue, yPred *Tensor) *Tensor { return yTrue.Sub(yPred).Abs().Mean() }

func TestStepErrors(t *testing.T) {
	try := func(m *Model, change func(*Batch)) error {
		b := one(regression(4).Batch(4))
		if change != nil {
			change(&b)
		}
		_, err := m.TrainOnBatch(background, b)
		return err
	}
	with := func(l losses.Loss) *Model {
		m := Sequential(dense(1))
		check(t, m.Compile(CompileConfig{Loss: l}))
		return m
	}
	wantError(t, try(with(&losses.MeanSquaredError{Reduction: "none"}), nil), "loss: *losses.MeanSquaredError returns float32[4], want a scalar; use a Reduction other than none")
	check(t, try(with(plainLoss{}), nil))
	wantError(t, try(with(plainLoss{}), func(b *Batch) { b.Weight = NewTensor(rising(4), 4) }), "loss: keras.plainLoss takes no sample weights; implement losses.Weighted")
	wantError(t, try(line(t), func(b *Batch) { b.Weight = NewTensor(rising(3), 3) }),
		"MeanSquaredError: got sample weights float32[3] for losses of shape [4], want that shape or one that broadcasts to it")
	wantError(t, try(line(t), func(b *Batch) { b.Y = NewTensor(rising(3), 3, 1) }),
		"MeanSquaredError: got targets float32[3 1] for predictions float32[4 1], want equal shapes")
	wantError(t, try(line(t), func(b *Batch) { b.Y = nil; b.Weight = b.X }), "model sequential: the batch has no Y")
}

// TestMovingAverage: Fit ends with the averages in the weights.
func TestMovingAverage(t *testing.T) {
	m := Sequential(&layers.Dense{Units: 1, UseBias: new(false), KernelInitializer: "zeros"})
	check(t, m.Compile(CompileConfig{Loss: plainLoss{},
		Optimizer: &optimizers.SGD{LearningRate: 1, UseEMA: true, EMAMomentum: 0.5}}))
	d := FromTensors(NewTensor([]float32{1}, 1, 1), NewTensor([]float32{100}, 1, 1), nil)
	fit(t, m, d, FitConfig{Epochs: 3})
	// The weights are 1, 2, 3; their average starts at the first.
	if got, want := weightsOf(t, m)[0][0], 0.5*(0.5*1+0.5*2)+0.5*3; got != want {
		t.Errorf("got weight %v, want the average %v", got, want)
	}
}

// TestModelsSideBySide trains several models at once, each as if alone.
func TestModelsSideBySide(t *testing.T) {
	train := func() ([][]byte, error) {
		m := Sequential(dense(8), &layers.Dropout{Rate: 0.5}, dense(1))
		if err := m.Compile(lineConfig()); err != nil {
			return nil, err
		}
		_, err := m.Fit(background, regression(30), silent(FitConfig{BatchSize: 7, Epochs: 3}))
		if err != nil {
			return nil, err
		}
		var out [][]byte
		for _, v := range m.Variables() {
			b, err := v.Bytes()
			if err != nil {
				return nil, err
			}
			out = append(out, b)
		}
		return out, nil
	}
	want, err := train()
	check(t, err)
	results := make(chan error)
	for range 4 {
		go func() {
			got, err := train()
			if err == nil && !same(got, want) {
				err = errors.New("a model that trained beside others got other weights")
			}
			results <- err
		}()
	}
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
