package keras

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/metrics"
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

	// Distribution trains replicas of the model on several processes, each on its rows of
	// every batch (Keras: keras.distribution.set_distribution). All ranks compile the
	// same model and call Fit with the same arguments and data; batch sizes are of all
	// ranks together. A TrainStep calls its Replicas itself. Default: none.
	Distribution *distribution.DataParallel

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
	config     CompileConfig
	wrapped    *optimizers.LossScaleOptimizer // made around config.Optimizer, also by an earlier Compile
	optimizer  optimizers.Optimizer
	optimizers []optimizers.Optimizer         // optimizer and those in Parts
	scaler     *optimizers.LossScaleOptimizer // nil when losses are not scaled
	outputs    []output                       // nil until prepared
	total      *metrics.Mean                  // the loss over an epoch
	floats     bool                           // no layer is quantized, as a step has checked
	scattered  *tensor.Partition              // of the gradients, of which each rank has parts; nil: it has all
	guard      *guard                         // nil: steps that are not finite are applied
	trained    *trained                       // nil until prepared
	train      *tensor.Func[Batch, none]
	share      *tensor.Func[Batch, none] // test on this rank's rows of a batch; nil without a Distribution
	test       *tensor.Func[Batch, none] // nil: the model cannot be evaluated
	ownTrain   *ownStep                  // nil: the built-in step
	ownTest    *ownStep
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
	if d := c.Distribution; d != nil && d.ZeroRedundancy {
		p := d.Partition()
		p.Scattered = c.TrainStep == nil && !d.Engine && p.Ranks() > 1 && !optimizers.NeedsWholeGradients(t.optimizer)
		if err := optimizers.SetPartition(t.optimizer, p); err != nil {
			return m.errorf("Compile: %w", err)
		}
		if p.Scattered {
			t.scattered = p
		}
	}
	if old := m.training; old != nil && old.config.Optimizer != nil && old.config.Optimizer == c.Optimizer {
		t.wrapped = old.wrapped
	}
	t.listOptimizers()
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
	if c.Distribution != nil {
		if err := c.Distribution.Check(); err != nil {
			return err
		}
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
	if !m.training.floats { // Quantize compiles anew
		if err := m.quantized(); err != nil {
			return err
		}
		m.training.floats = true
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
		t.listOptimizers()
	}
	t.outputs, t.trained = outs, m.trained()
	t.train = m.trainFunction()
	if t.ownTest != nil {
		t.test = Function(func(b Batch) none { return m.ownTestStep(b) }, append([]Stateful{m, t.optimizer, t, t.ownTest}, t.config.Parts...)...)
	} else if t.ownTrain == nil || slices.ContainsFunc(outs, func(o output) bool { return o.loss != nil }) {
		t.test = Function(m.testStep, m, t)
		if t.config.Distribution != nil {
			t.share = Function(m.testShare, m, t)
		}
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
