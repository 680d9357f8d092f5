package keras

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// CompileConfig has the arguments of Compile (Keras: Model.compile).
type CompileConfig struct {
	Optimizer optimizers.Optimizer // default: RMSprop
	Loss      losses.Loss          // of a model with one output, or of each output alike; required unless Losses or Outputs is given

	// Of a model with one output. Metrics take no notice of sample weights, WeightedMetrics
	// use them (Keras: metrics, weighted_metrics). A name that is in both is logged with
	// "weighted_" in front of the second.
	Metrics, WeightedMetrics []metrics.Metric

	// Models with several outputs: one entry for each, in order. A nil loss
	// leaves its output out.
	Losses                []losses.Loss
	LossWeights           []float64
	OutputMetrics         [][]metrics.Metric
	OutputWeightedMetrics [][]metrics.Metric

	// Outputs is what the fields above give, by the names of the outputs, which are
	// those of their layers: see OutputNames. An output without an entry, or with a nil
	// Loss in it, has no loss. (Keras: dicts as loss, loss_weights, metrics and
	// weighted_metrics.)
	Outputs map[string]OutputConfig

	// AutoScaleLoss wraps the optimizer in a LossScaleOptimizer when any layer
	// computes in float16. Default: true.
	AutoScaleLoss *bool

	// TrainStep and TestStep are what Fit, TrainOnBatch and TrainStep do for a batch,
	// and what Evaluate and validations do, instead of the built-in steps (Keras: an
	// overridden train_step and test_step). Like a Function they run as Go code only
	// while they are recorded. They get the model as an argument because tools compile
	// copies of it, as MaxBatch does. A Loss is not required then; without a Loss and a
	// TestStep the model cannot be evaluated. See StepLogs, ComputeLoss and
	// ComputeMetrics.
	TrainStep, TestStep func(m *Model, b Batch) StepLogs

	// Parts is what TrainStep and TestStep use besides the model, the Optimizer and what
	// they log: other models, optimizers, states of random numbers. Checkpoints have
	// them, too. Without an Optimizer the first one among them counts as it, for logs and
	// callbacks; optimizers in Parts are not wrapped in a LossScaleOptimizer.
	Parts []Stateful

	// NonFinite is the treatment of a training step whose loss, gradients or
	// moving statistics are not finite, under every policy: NonFiniteApply,
	// NonFiniteSkip or NonFiniteError. Default: NonFiniteApply, as in Keras.
	NonFinite NonFinite
}

// OutputConfig is how one output of a model is judged: see CompileConfig.Outputs.
type OutputConfig struct {
	Loss                     losses.Loss
	LossWeight               *float64 // default: 1
	Metrics, WeightedMetrics []metrics.Metric
}

// training is the state that Compile adds to a model.
type training struct {
	config    CompileConfig
	wrapped   *optimizers.LossScaleOptimizer // made around config.Optimizer, also by an earlier Compile
	optimizer optimizers.Optimizer
	every     []optimizers.Optimizer         // see optimizers
	scaler    *optimizers.LossScaleOptimizer // nil when losses are not scaled
	outputs   []output                       // nil until prepared
	total     *metrics.Mean                  // the loss over an epoch
	guard     *guard                         // nil: steps that are not finite are applied
	trained   *trained                       // nil until prepared
	train     *tensor.Func[Batch, none]
	test      *tensor.Func[Batch, none] // nil: the model cannot be evaluated
	ownTrain  *ownStep                  // nil: the built-in step
	ownTest   *ownStep
}

// output is how one output of the model is judged.
type output struct {
	name    string
	loss    losses.Loss
	weight  float64
	mean    *metrics.Mean // its loss over an epoch, for models with several outputs
	metrics []metrics.Metric

	weighted []metrics.Metric // those that sample weights count for
}

// none is the result of a step that is run for its effects.
type none struct{}

// Compile sets the optimizer, the loss and the metrics for training. When a
// model is compiled again with the same optimizer, the optimizer keeps its
// state.
func (m *Model) Compile(c CompileConfig) error {
	t := &training{config: c, optimizer: c.Optimizer, total: &metrics.Mean{Name: "loss"}, guard: newGuard(c.NonFinite)}
	if err := c.check(); err != nil {
		return m.errorf("Compile: %w", err)
	}
	for _, p := range c.Parts {
		if o, ok := p.(optimizers.Optimizer); ok {
			t.optimizer = cmp.Or(t.optimizer, o)
		}
	}
	t.ownTrain, t.ownTest = newOwnStep("TrainStep", c.TrainStep), newOwnStep("TestStep", c.TestStep)
	if t.optimizer == nil {
		t.optimizer = &optimizers.RMSprop{}
	}
	if isNil(t.optimizer) {
		return m.errorf("Compile: the Optimizer is a nil %T", t.optimizer)
	}
	if s, ok := t.optimizer.(*optimizers.LossScaleOptimizer); ok {
		if _, twice := s.Inner.(*optimizers.LossScaleOptimizer); twice {
			return m.errorf("Compile: the optimizer is a LossScaleOptimizer around a LossScaleOptimizer; wrap once")
		}
		if s.Inner == nil {
			return m.errorf("Compile: the LossScaleOptimizer has no Inner optimizer")
		}
		t.scaler = s
	}
	if err := optimizers.Check(t.optimizer); err != nil {
		return m.errorf("Compile: %w", err)
	}
	if old := m.training; old != nil && old.config.Optimizer != nil && old.config.Optimizer == c.Optimizer {
		t.wrapped = old.wrapped
	}
	m.training = t
	if m.built {
		if err := m.prepare(); err != nil {
			m.training = nil
			return err
		}
	}
	return nil
}

// check finds what is wrong with the fields alone.
func (c CompileConfig) check() error {
	switch {
	case c.NonFinite < NonFiniteApply || c.NonFinite > NonFiniteError:
		return fmt.Errorf("NonFinite is %d, want NonFiniteApply, NonFiniteSkip or NonFiniteError", int(c.NonFinite))
	case len(c.Outputs) > 0 && (c.Loss != nil || len(c.Losses) > 0 || c.LossWeights != nil || len(c.Metrics) > 0 || len(c.WeightedMetrics) > 0 || c.OutputMetrics != nil || c.OutputWeightedMetrics != nil):
		return fmt.Errorf("Outputs is given, and a loss, weight or metric outside of it; use one")
	case c.Loss == nil && len(c.Losses) == 0 && len(c.Outputs) == 0 && c.TrainStep == nil:
		return fmt.Errorf("no Loss given")
	case len(c.Parts) > 0 && c.TrainStep == nil && c.TestStep == nil:
		return fmt.Errorf("Parts are given, but neither a TrainStep nor a TestStep that could use them")
	case c.Loss != nil && len(c.Losses) > 0:
		return fmt.Errorf("both Loss and Losses are given; use one")
	case len(c.Metrics) > 0 && len(c.OutputMetrics) > 0:
		return fmt.Errorf("both Metrics and OutputMetrics are given; use one")
	case len(c.WeightedMetrics) > 0 && len(c.OutputWeightedMetrics) > 0:
		return fmt.Errorf("both WeightedMetrics and OutputWeightedMetrics are given; use one")
	}
	for i, w := range c.LossWeights {
		if !(math.Abs(w) <= math.MaxFloat32) {
			return fmt.Errorf("LossWeights[%d] is %v, want a finite number", i, w)
		}
	}
	lists := slices.Concat(c.OutputMetrics, c.OutputWeightedMetrics, [][]metrics.Metric{c.Metrics, c.WeightedMetrics})
	all := append(slices.Clone(c.Losses), c.Loss)
	for name, o := range c.Outputs {
		if w := o.LossWeight; w != nil && !(math.Abs(*w) <= math.MaxFloat32) {
			return fmt.Errorf("LossWeight of output %q is %v, want a finite number", name, *w)
		}
		lists, all = append(lists, o.Metrics, o.WeightedMetrics), append(all, o.Loss)
	}
	for _, list := range lists {
		if slices.ContainsFunc(list, isNil[metrics.Metric]) {
			return fmt.Errorf("a metric is nil")
		}
	}
	for _, l := range all {
		if l != nil && isNil(l) {
			return fmt.Errorf("a loss is a nil %T", l)
		}
	}
	for i, p := range c.Parts {
		if isNil(p) {
			return fmt.Errorf("Parts[%d] is nil", i)
		}
		if o, ok := p.(optimizers.Optimizer); ok {
			if err := optimizers.Check(o); err != nil {
				return fmt.Errorf("Parts[%d]: %w", i, err)
			}
		}
	}
	return nil
}

// CompileConfig returns what Compile was called with, and whether it was (Keras:
// get_compile_config). Metrics have a state, which models must not share: compile a
// copy of the model with others, or with none.
func (m *Model) CompileConfig() (c CompileConfig, ok bool) {
	if m.training == nil {
		return CompileConfig{}, false
	}
	return m.training.config, true
}

// Optimizer returns the optimizer that training uses: the one given to
// Compile, wrapped in a LossScaleOptimizer if the loss is scaled. It is nil
// before Compile.
func (m *Model) Optimizer() optimizers.Optimizer {
	if m.training == nil {
		return nil
	}
	return m.training.optimizer
}

// ready makes sure that the model can be trained on batches like b.
func (m *Model) ready(b Batch) error {
	if m.training == nil {
		return m.errorf("%w; call Compile before Fit, Evaluate or TrainOnBatch", ErrNotCompiled)
	}
	return m.readyFor(m.training.ownTrain, b)
}

// readyToTest makes sure that the model can be evaluated on batches like b.
func (m *Model) readyToTest(b Batch) error {
	if m.training == nil {
		return m.errorf("%w; call Compile before Fit, Evaluate or TrainOnBatch", ErrNotCompiled)
	}
	if err := m.readyFor(m.training.ownTest, b); err != nil {
		return err
	}
	if m.training.test == nil {
		return m.errorf("it was compiled with a TrainStep and neither a Loss nor a TestStep; give one of them to evaluate it")
	}
	return nil
}

// readyFor is ready for a step of the user's, or with nil a built-in one.
func (m *Model) readyFor(own *ownStep, b Batch) error {
	switch {
	case own != nil && (m.built || b.X != nil):
		if !m.built {
			if err := m.buildFor(b.X); err != nil {
				return err
			}
		}
		return m.prepare() // the step knows what it takes
	case b.X == nil:
		return m.errorf("the batch has no X")
	case b.Y == nil:
		return m.errorf("the batch has no Y")
	}
	if err := m.buildFor(b.X); err != nil {
		return err
	}
	if err := m.prepare(); err != nil {
		return err
	}
	// Checked here, because programs are found by the types of the tensors in a batch
	// alone.
	n := len(m.training.outputs)
	switch {
	case b.X.Len() != m.in.Len():
		return m.errorf("the batch has %d inputs, want %d", b.X.Len(), m.in.Len())
	case b.Y.Len() != n:
		return m.errorf("the batch has %d targets, want %d, one for each output", b.Y.Len(), n)
	case b.Weight != nil && b.Weight.Len() != 1 && b.Weight.Len() != n:
		return m.errorf("the batch has %d sample weights, want 1 or %d, one for each output", b.Weight.Len(), n)
	}
	return nil
}

// prepare decides everything that depends on the built layers: whether to scale the
// loss, and which loss and metrics apply to which output.
func (m *Model) prepare() error {
	t := m.training
	if t.outputs != nil {
		return nil
	}
	outs, err := m.judgedOutputs()
	if err != nil {
		return err
	}
	if t.scaler == nil && !t.given() && m.computesIn(dtype.Float16) && (t.config.AutoScaleLoss == nil || *t.config.AutoScaleLoss) {
		if t.wrapped == nil {
			t.wrapped = &optimizers.LossScaleOptimizer{Inner: t.optimizer}
		}
		t.scaler, t.optimizer = t.wrapped, t.wrapped
	}
	t.outputs, t.trained = outs, m.trained()
	t.train = m.trainFunction()
	if t.ownTest != nil {
		t.test = Function(func(b Batch) none { return m.ownTestStep(b) }, append([]Stateful{m, t.optimizer, t, t.ownTest}, t.config.Parts...)...)
	} else if t.ownTrain == nil || slices.ContainsFunc(outs, func(o output) bool { return o.loss != nil }) {
		t.test = Function(m.testStep, m, t)
	}
	m.keepPlans()
	return nil
}

// judgedOutputs is how the outputs are judged, as Compile was told.
func (m *Model) judgedOutputs() ([]output, error) {
	c, names := m.training.config, m.outputNames()
	outs := make([]output, len(names))
	for i, name := range names {
		outs[i] = output{name: name, loss: c.Loss, weight: 1}
		if len(names) > 1 {
			outs[i].mean = &metrics.Mean{Name: name + "_loss"}
		}
	}
	if len(c.Outputs) > 0 {
		for _, name := range slices.Sorted(maps.Keys(c.Outputs)) {
			i := slices.Index(names, name)
			if i < 0 {
				return nil, m.errorf("Compile: there is no output %q in it; have %q", name, names)
			}
			if slices.Contains(names[i+1:], name) {
				return nil, m.errorf("Compile: several outputs are named %q; give lists in their order", name)
			}
			o := c.Outputs[name]
			outs[i].loss, outs[i].metrics, outs[i].weighted = o.Loss, o.Metrics, o.WeightedMetrics
			if o.LossWeight != nil {
				outs[i].weight = *o.LossWeight
			}
		}
		return outs, nil
	}
	for _, f := range []struct {
		name string
		n    int
		one  bool // the list of a model with one output is given
		set  func(i int)
	}{
		{"Losses", len(c.Losses), false, func(i int) { outs[i].loss = c.Losses[i] }},
		{"LossWeights", len(c.LossWeights), false, func(i int) { outs[i].weight = c.LossWeights[i] }},
		{"OutputMetrics", len(c.OutputMetrics), len(c.Metrics) > 0, func(i int) { outs[i].metrics = c.OutputMetrics[i] }},
		{"OutputWeightedMetrics", len(c.OutputWeightedMetrics), len(c.WeightedMetrics) > 0, func(i int) { outs[i].weighted = c.OutputWeightedMetrics[i] }},
	} {
		switch {
		case f.one && len(names) > 1:
			return nil, m.errorf("Compile: it has %d outputs; give %s, a list for each", len(names), f.name)
		case f.n == 0:
			continue
		case f.n != len(names):
			return nil, m.errorf("Compile: %d %s given, it has %d outputs %q", f.n, f.name, len(names), names)
		}
		for i := range outs {
			f.set(i)
		}
	}
	if len(names) == 1 {
		outs[0].metrics, outs[0].weighted = append(outs[0].metrics, c.Metrics...), append(outs[0].weighted, c.WeightedMetrics...)
	}
	return outs, nil
}

// trainFunction makes a Function of the training step.
func (m *Model) trainFunction() *tensor.Func[Batch, none] {
	t := m.training
	owners := append([]Stateful{m, t.optimizer, t, t.trained}, t.config.Parts...)
	for _, p := range t.config.Parts {
		if other, ok := p.(*Model); ok {
			owners = append(owners, other.trained())
		}
	}
	if t.guard != nil {
		owners = append(owners, t.guard)
	}
	if t.ownTrain != nil {
		return Function(m.ownTrainStep, owners...)
	}
	return Function(m.trainStep, owners...)
}

// keepPlans tells the Functions how many plans to keep, if KeepPlans was called.
func (m *Model) keepPlans() {
	t := m.training
	if m.plans == 0 || t == nil {
		return
	}
	for _, f := range []*tensor.Func[Batch, none]{t.train, t.test} {
		if f != nil {
			f.KeepPlans(m.plans)
		}
	}
}

// trained is which weights and layers are trainable when the training step is
// made. It is recorded with them (BatchNormalization uses its averages while it
// is frozen), so that to freeze a layer later would change some steps, or none.
type trained struct {
	m       *Model
	weights []*layers.Weight
	layers  []*layers.Base // also those in others
	on      []bool         // of the weights, then of the layers
}

func (m *Model) trained() *trained {
	t := &trained{m: m, weights: m.Weights()}
	for _, w := range t.weights {
		t.on = append(t.on, w.Trainable())
	}
	var add func(ls []layers.Layer)
	add = func(ls []layers.Layer) {
		for _, l := range ls {
			b := layers.BaseOf(l)
			t.layers = append(t.layers, b)
			t.on = append(t.on, b.Trainable())
			add(b.Sublayers())
		}
	}
	add(m.layers)
	return t
}

// Variables returns nil: trained is listed in a Function for its precondition.
func (t *trained) Variables() []*Variable { return nil }

func init() {
	tensor.RegisterPrecondition(func(o Stateful) func() error {
		if t, ok := o.(*trained); ok {
			return t.unchanged
		}
		return nil
	})
}

// unchanged returns an error when weights or layers were frozen or unfrozen after
// the training step was made.
func (t *trained) unchanged() error {
	for i, w := range t.weights {
		if w.Trainable() != t.on[i] {
			return t.changed(w.Name(), w.Trainable())
		}
	}
	for i, b := range t.layers {
		if b.Trainable() != t.on[len(t.weights)+i] {
			return t.changed("layer "+b.Path(), b.Trainable())
		}
	}
	return nil
}

func (t *trained) changed(what string, on bool) error {
	now, was := "frozen", "trainable"
	if on {
		now, was = was, now
	}
	return t.m.errorf("%s is %s now, but the training step was made with it %s; Compile again", what, now, was)
}

// Variables lists the totals of the loss and the metrics.
func (t *training) Variables() []*Variable {
	all := slices.Clone(t.total.Variables())
	add := func(_ string, m metrics.Accumulator) {
		for _, v := range m.Variables() {
			if !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	t.eachMetric(add)
	if t.ownTrain != nil {
		t.ownTrain.each(add)
	}
	return all
}

// each calls f for everything that a step logs, by name: a built-in one if own is nil.
func (t *training) each(own *ownStep, f func(name string, m metrics.Accumulator)) {
	if own != nil {
		own.each(f)
		return
	}
	f("loss", t.total)
	t.eachMetric(f)
}

// eachMetric calls f for every metric but the total loss, with its log name.
func (t *training) eachMetric(f func(name string, m metrics.Accumulator)) {
	for _, o := range t.outputs {
		prefix := ""
		if o.mean != nil {
			prefix = o.name + "_"
			if o.loss != nil {
				f(o.mean.MetricName(), o.mean)
			}
		}
		taken := map[string]bool{}
		for _, m := range o.metrics {
			taken[m.MetricName()] = true
			f(prefix+m.MetricName(), m)
		}
		for _, m := range o.weighted {
			name := m.MetricName()
			if taken[name] {
				name = "weighted_" + name
			}
			f(prefix+name, m)
		}
	}
}

// judge computes the model and its loss: the losses of the outputs, the losses that
// layers add, and the penalties of trainable weights.
func (m *Model) judge(p layers.Pass, b Batch) (predictions, loss *Tensor) {
	var added []*Tensor
	predictions = m.call(p.Collect(&added), b.X, true)
	loss = m.training.loss(b, predictions)
	for _, w := range m.Weights() {
		if p := w.Regularization(); p != nil && w.Trainable() {
			added = append(added, p)
		}
	}
	for _, l := range added {
		loss = loss.Add(l.Cast(loss.DType()))
	}
	return predictions, loss
}

// trainStep is one step of training, as a custom loop would write it.
func (m *Model) trainStep(b Batch) none {
	t := m.training
	predictions, loss := m.judge(layers.Pass{Training: true}, b)
	scaled := loss
	if t.scaler != nil {
		scaled = t.scaler.GetScaledLoss(loss)
	}
	vars := m.TrainableVariables()
	if len(vars) == 0 {
		panic(&tensor.Error{Err: m.errorf("it has no trainable weights; unfreeze a layer with SetTrainable and Compile again")})
	}
	gradients := Gradients(scaled, vars)
	if t.scaler != nil {
		gradients = t.scaler.GetUnscaledGradients(gradients)
	} else if auto := t.config.AutoScaleLoss; auto != nil && !*auto {
		for _, g := range gradients { // not scaled on purpose
			if g != nil {
				tensor.ClearGradientTag(g)
			}
		}
	}
	update := func() {
		t.optimizer.ApplyGradients(gradients, vars)
		t.track(b, predictions, loss)
	}
	switch {
	case t.guard == nil:
		update()
	case t.scaler != nil: // which skips steps with gradients that overflow
		t.guard.update(loss.AllFinite(), nil, []*Model{m}, update)
	default:
		t.guard.update(loss.AllFinite(), gradients, []*Model{m}, update)
	}
	return none{}
}

// testStep judges one batch and changes nothing but the totals.
func (m *Model) testStep(b Batch) none {
	predictions, loss := m.judge(layers.Pass{}, b)
	m.training.track(b, predictions, loss)
	return none{}
}

// loss is the weighted sum of the outputs' losses.
func (t *training) loss(b Batch, predictions *Tensor) *Tensor {
	ys, ps, ws := t.judged(b, predictions)
	var sum *Tensor
	for i := range t.outputs {
		o := &t.outputs[i]
		if o.loss == nil {
			continue
		}
		l := callLoss(o.loss, ys[i], ps[i], ws[i])
		if l.Rank() != 0 {
			tensor.Fail("loss", "%T returns %v, want a scalar; use a Reduction other than none", o.loss, l.Type())
		}
		if o.mean != nil {
			o.mean.AddWeighted(l, tensor.Scalar(l.DType(), float64(ps[i].Dim(0))))
		}
		if o.weight != 1 {
			l = l.MulScalar(o.weight)
		}
		if sum == nil {
			sum = l
		} else {
			sum = sum.Add(l.Cast(sum.DType()))
		}
	}
	if sum == nil {
		tensor.Fail("Compile", "every output has a nil loss")
	}
	return sum
}

func callLoss(l losses.Loss, y, p, w *Tensor) *Tensor {
	if w == nil {
		return l.Call(y, p)
	}
	lw, ok := l.(losses.Weighted)
	if !ok {
		tensor.Fail("loss", "%T takes no sample weights; implement losses.Weighted", l)
	}
	return lw.CallWeighted(y, p, w)
}

// track adds the batch to the totals. The loss of an epoch is the mean over
// its samples, so a batch counts with its size.
func (t *training) track(b Batch, predictions, loss *Tensor) {
	t.total.AddWeighted(loss, tensor.Scalar(loss.DType(), float64(predictions.Unpack()[0].Dim(0))))
	t.trackMetrics(b, predictions)
}

func (t *training) trackMetrics(b Batch, predictions *Tensor) {
	ys, ps, ws := t.judged(b, predictions)
	for i := range t.outputs {
		for _, m := range t.outputs[i].metrics {
			m.Update(ys[i], ps[i])
		}
		for _, m := range t.outputs[i].weighted {
			m.UpdateWeighted(ys[i], ps[i], ws[i])
		}
	}
}

// judged pairs targets, predictions and sample weights by output; see ready.
func (t *training) judged(b Batch, predictions *Tensor) (ys, ps, ws []*Tensor) {
	n := len(t.outputs)
	ws = make([]*Tensor, n)
	if b.Weight != nil {
		for i := range ws {
			ws[i] = b.Weight.Unpack()[min(i, b.Weight.Len()-1)]
		}
	}
	return b.Y.Unpack(), predictions.Unpack(), ws
}

// reset starts the totals of a step again: those of a built-in one if own is nil.
func (t *training) reset(own *ownStep) error {
	if err := t.total.Reset(); err != nil { // which also counts samples, see unseen
		return err
	}
	var first error
	t.each(own, func(_ string, m metrics.Accumulator) { first = cmp.Or(first, m.Reset()) })
	return first
}

// restart is reset of a step that may not be recorded yet for any batch, so that what it
// logs is unknown: metrics among it may have counted before, in the other step.
func (t *training) restart(own *ownStep, f *tensor.Func[Batch, none], b Batch) error {
	if own != nil && len(own.logs) == 0 {
		if _, err := f.MemoryOf(b); err != nil {
			return err
		}
	}
	return t.reset(own)
}

// read appends the totals of a step so far, sorted by name as Keras prints them.
func (t *training) read(own *ownStep, dst Logs) (Logs, error) {
	from := len(dst)
	var err error
	t.each(own, func(name string, m metrics.Accumulator) {
		v, e := m.Result()
		err = cmp.Or(err, e)
		dst = append(dst, Log{name, v})
	})
	if err == nil {
		err = t.unseen(dst[from:])
	}
	slices.SortStableFunc(dst[from:], func(a, b Log) int { return strings.Compare(a.Name, b.Name) })
	return dst, err
}

// TrainOnBatch runs one training step and returns its loss and metrics (Keras:
// Model.train_on_batch).
func (m *Model) TrainOnBatch(ctx context.Context, b Batch) (Logs, error) {
	return m.onBatch(ctx, b, true)
}

// TestOnBatch returns the loss and the metrics of the model on one batch
// (Keras: Model.test_on_batch).
func (m *Model) TestOnBatch(ctx context.Context, b Batch) (Logs, error) {
	return m.onBatch(ctx, b, false)
}

func (m *Model) onBatch(ctx context.Context, b Batch, train bool) (Logs, error) {
	where, ready := "TestOnBatch", m.readyToTest
	if train {
		where, ready = "TrainOnBatch", m.ready
	}
	if err := needs(ctx, where); err != nil {
		return nil, err
	}
	if err := ready(b); err != nil {
		return nil, err
	}
	t := m.training
	own, f := t.ownTest, t.test
	if train {
		own, f = t.ownTrain, t.train
	}
	if err := t.restart(own, f, b); err != nil {
		return nil, err
	}
	var err error
	if train {
		err = m.refusal(m.trainOn(ctx, b))
	} else {
		err = t.test.Run(ctx, b)
	}
	if err != nil {
		return nil, pipeline.WithCause(ctx, err)
	}
	return t.read(own, nil)
}

// StepResult describes the last training step: whether it was applied or
// skipped, the loss scale, the norm of the gradients.
func (m *Model) StepResult() (optimizers.StepResult, error) {
	if m.training == nil {
		return optimizers.StepResult{}, m.errorf("%w", ErrNotCompiled)
	}
	return m.training.result()
}

// MemoryPlan is the memory of a training step, known before the first one runs.
type MemoryPlan struct {
	Weights    Bytes // of the model
	Slots      Bytes // of the optimizer and its loss scale, weights in 16 bits, the totals of loss and metrics, and constants
	Activation Bytes // activations and gradients
	Workspace  Bytes // of the device's kernels: packed operands, sums of several workers, the steps of loops, constants
	Batch      Bytes // the batch itself
	Peak       Bytes // all together
}

// String prints the plan in mebibytes.
func (p MemoryPlan) String() string {
	mib := func(n Bytes) string { return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20)) }
	return fmt.Sprintf("weights %s, slots %s, activations and gradients %s, workspace %s, batch %s, peak %s",
		mib(p.Weights), mib(p.Slots), mib(p.Activation), mib(p.Workspace), mib(p.Batch), mib(p.Peak))
}

// PlanMemory returns the memory that a training step on batches like b needs.
// The step is planned and not run. The model must be compiled.
func (m *Model) PlanMemory(b Batch) (MemoryPlan, error) {
	if err := m.ready(b); err != nil {
		return MemoryPlan{}, err
	}
	return m.planMemory(m.training.train, b)
}

// planMemory is PlanMemory of a Function that trains.
func (m *Model) planMemory(step *tensor.Func[Batch, none], b Batch) (p MemoryPlan, err error) {
	need, err := step.MemoryOf(b)
	if err != nil {
		return p, err
	}
	for _, v := range m.Variables() {
		p.Weights += Bytes(v.Type().Bytes())
	}
	p.Activation, p.Workspace, p.Batch = Bytes(need.Arena), Bytes(need.Workspace), Bytes(need.Arguments)
	p.Slots = max(Bytes(need.Variables)-p.Weights, 0)
	p.Peak = Bytes(need.Arena + need.Workspace + need.Variables + need.Arguments + need.Results)
	return p, nil
}

// KeepPlans sets how many compiled plans the model keeps, for training,
// evaluation and prediction each: those of the n batch shapes that were used
// last. The default is 64; n below 1 counts as 1. See tensor.Func.KeepPlans.
func (m *Model) KeepPlans(n int) {
	m.plans = max(n, 1)
	m.keepPlans()
	m.predicting.Lock()
	defer m.predicting.Unlock()
	if m.prediction != nil {
		m.prediction.KeepPlans(m.plans)
	}
}

// TrainStep runs one training step without reading its loss and metrics back:
// what Fit does for each batch. From the second step on it allocates nothing.
func (m *Model) TrainStep(ctx context.Context, b Batch) error {
	if err := needs(ctx, "TrainStep"); err != nil {
		return err
	}
	if err := m.ready(b); err != nil {
		return err
	}
	return pipeline.WithCause(ctx, m.refusal(m.trainOn(ctx, b)))
}

// StepTimes runs one training step as TrainStep does and returns how long the device
// computed the values of each path: see tensor.Func.Times. Layers have their own path in
// the forward pass, and "path/grad" in the backward pass.
func (m *Model) StepTimes(ctx context.Context, b Batch) (map[string]time.Duration, error) {
	if err := needs(ctx, "StepTimes"); err != nil {
		return nil, err
	}
	if err := m.ready(b); err != nil {
		return nil, err
	}
	times, err := m.training.train.Times(ctx, b)
	if err == nil {
		err = m.refusal(m.refused(ctx, b))
	}
	return times, pipeline.WithCause(ctx, err)
}

// Trace runs one training step as TrainStep does and writes a timeline of the
// device's workers to w, in the format that chrome://tracing and Perfetto
// read. See tensor.Func.Trace.
func (m *Model) Trace(ctx context.Context, b Batch, w io.Writer) error {
	if err := needs(ctx, "Trace"); err != nil {
		return err
	}
	if err := m.ready(b); err != nil {
		return err
	}
	err := m.training.train.Trace(ctx, b, w)
	if err == nil {
		err = m.refusal(m.refused(ctx, b))
	}
	return pipeline.WithCause(ctx, err)
}
