package keras

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// StepLogs is what a TrainStep or a TestStep reports (Keras: the dict that
// train_step returns). A value is
//
//   - a *Tensor, a scalar of floats: the log is its mean over the samples so far,
//     as it is for the built-in loss; or
//   - a metrics.Accumulator, such as a metric that the step updates: the log is its
//     result.
//
// Logs start over in every epoch and in every Evaluate. A name must have the same kind of
// value in every recording of the step.
type StepLogs map[string]any

// ownStep is a TrainStep or TestStep and what it logs.
type ownStep struct {
	field string
	step  func(*Model, Batch) StepLogs
	logs  map[string]metrics.Accumulator // of all recordings so far
	means map[string]*metrics.Mean       // of those that are tensors
}

func newOwnStep(field string, step func(*Model, Batch) StepLogs) *ownStep {
	if step == nil {
		return nil
	}
	return &ownStep{field, step, map[string]metrics.Accumulator{}, map[string]*metrics.Mean{}}
}

// each calls f for everything that is logged, in the order of the names.
func (s *ownStep) each(f func(name string, m metrics.Accumulator)) {
	for _, name := range slices.Sorted(maps.Keys(s.logs)) {
		f(name, s.logs[name])
	}
}

// Variables lists the totals of what is logged.
func (s *ownStep) Variables() (all []*Variable) {
	s.each(func(_ string, m metrics.Accumulator) { all = append(all, m.Variables()...) })
	return all
}

// record records the step and returns its logs that are tensors, by name.
func (s *ownStep) record(m *Model, b Batch) map[string]*Tensor {
	values := map[string]*Tensor{}
	logs := s.step(m, b)
	if len(logs) == 0 {
		tensor.Fail(s.field, "it returned no logs; return at least the loss")
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		before, known := s.logs[name]
		_, averaged := s.means[name]
		switch v := logs[name].(type) {
		case *Tensor:
			if v == nil || v.Rank() != 0 || !v.DType().IsFloat() {
				tensor.Fail(s.field, "log %q is %v, want a scalar of floats or a metric", name, describe(v))
			}
			if known && !averaged {
				tensor.Fail(s.field, "log %q is a tensor now, but was the metric %T", name, before)
			}
			if !known {
				s.means[name] = &metrics.Mean{Name: name}
				s.logs[name] = s.means[name]
			}
			values[name] = v
		case metrics.Accumulator:
			if isNil(v) {
				tensor.Fail(s.field, "log %q is a nil %T", name, v)
			}
			if known && before != v {
				tensor.Fail(s.field, "log %q is another metric than in the step's first recording", name)
			}
			s.logs[name] = v
		default:
			tensor.Fail(s.field, "log %q is a %T, want a *keras.Tensor or a metrics.Accumulator", name, v)
		}
	}
	return values
}

func describe(t *Tensor) string {
	if t == nil {
		return "nil"
	}
	return t.Type().String()
}

// add records that values count in the means, with the number of samples of b.
func (s *ownStep) add(values map[string]*Tensor, b Batch) {
	n := samples(b)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		s.means[name].AddWeighted(v, tensor.Scalar(v.DType(), n))
	}
}

// samples is the number of samples of a batch, 1 where that is unknown.
func samples(b Batch) float64 {
	for _, t := range b.tensors(nil) {
		if t.Rank() > 0 {
			return float64(t.Dim(0))
		}
	}
	return 1
}

// ownTrainStep is trainStep with the user's TrainStep.
func (m *Model) ownTrainStep(b Batch) none {
	t := m.training
	values := t.ownTrain.record(m, b)
	if t.guard == nil {
		t.ownTrain.add(values, b)
		return none{}
	}
	// A gradient that is not finite makes its weight not finite, so the weights are
	// checked that the step has assigned.
	var checked []*Tensor
	for _, name := range slices.Sorted(maps.Keys(values)) {
		checked = append(checked, values[name])
	}
	ms := []*Model{m}
	for _, p := range t.config.Parts {
		if other, ok := p.(*Model); ok {
			ms = append(ms, other)
		}
	}
	for _, of := range ms {
		for _, v := range of.TrainableVariables() {
			if v.DType().IsFloat() {
				checked = append(checked, v.Value())
			}
		}
	}
	ok := optimizers.AllFinite(checked)
	if ok == nil {
		tensor.Fail("TrainStep", "NonFinite is set, but the step has neither a tensor among its logs nor weights that could be checked")
	}
	t.guard.update(ok, nil, ms, func() {
		t.ownTrain.add(values, b)
		t.count(b)
	})
	return none{}
}

// count counts the samples of b, of a step that logs no built-in loss: see unseen.
func (t *training) count(b Batch) {
	t.total.AddWeighted(tensor.Scalar(Float32, 0), tensor.Scalar(Float32, samples(b)))
}

// ownTestStep is testStep with the user's TestStep.
func (m *Model) ownTestStep(b Batch) none {
	t := m.training
	t.ownTest.add(t.ownTest.record(m, b), b)
	if t.guard != nil {
		t.count(b)
	}
	return none{}
}

// ComputeLoss returns the model's predictions for a batch and the loss that Compile was
// given: of the outputs, with their weights and sample weights, plus the losses that
// layers add and the penalties of weights (Keras: Model.compute_loss, after the call of
// the model). It belongs in a TrainStep, with the option Training, or a TestStep.
func (m *Model) ComputeLoss(b Batch, opts ...CallOption) (predictions, loss *Tensor) {
	m.compiledFor("ComputeLoss", b)
	var p layers.Pass
	for _, o := range opts {
		o(&p)
	}
	return m.judge(p, b, nil)
}

// ComputeMetrics updates the metrics that Compile was given with the predictions of
// ComputeLoss and returns them as logs, to which a step adds its own (Keras:
// Model.compute_metrics).
func (m *Model) ComputeMetrics(b Batch, predictions *Tensor) StepLogs {
	m.compiledFor("ComputeMetrics", b)
	t := m.training
	t.trackMetrics(b, predictions)
	logs := StepLogs{}
	t.eachMetric(func(name string, a metrics.Accumulator) { logs[name] = a })
	return logs
}

// compiledFor fails unless the model is compiled and b has its inputs and targets.
func (m *Model) compiledFor(method string, b Batch) {
	if m.training == nil {
		panic(&tensor.Error{Err: m.errorf("%s: %w", method, ErrNotCompiled)})
	}
	if tensor.Recording() == 0 {
		tensor.Fail(method, "it belongs in a TrainStep or a TestStep")
	}
	if err := m.readyFor(nil, b); err != nil {
		panic(&tensor.Error{Err: err})
	}
}

// given reports whether the optimizer is one of Parts, which is used as it is.
func (t *training) given() bool {
	return slices.ContainsFunc(t.config.Parts, func(p Stateful) bool { return p == Stateful(t.optimizer) })
}

// listOptimizers is called when the optimizer changes.
func (t *training) listOptimizers() {
	t.optimizers = []optimizers.Optimizer{t.optimizer}
	for _, p := range t.config.Parts {
		if o, ok := p.(optimizers.Optimizer); ok && o != t.optimizer && o != t.config.Optimizer {
			t.optimizers = append(t.optimizers, o)
		}
	}
}

// nameOf is the name of optimizers[i] in logs: that of its variables, with a number
// if it is not the first of that name.
func (t *training) nameOf(i int) string {
	all := t.optimizers
	base := func(o optimizers.Optimizer) string {
		if vs := o.Variables(); len(vs) > 0 {
			name, _, _ := strings.Cut(vs[0].Name(), "/")
			return name
		}
		return "optimizer"
	}
	name, n := base(all[i]), 0
	for _, o := range all[:i] {
		if base(o) == name {
			n++
		}
	}
	if n == 0 {
		return name
	}
	return fmt.Sprintf("%s_%d", name, n)
}

// others lists the variables of Parts that the model and its optimizer have not.
func (t *training) others() Stateful { return parts{t} }

type parts struct{ t *training }

func (p parts) Variables() (all []*Variable) {
	seen := map[*Variable]bool{}
	for _, v := range p.t.trained.m.Variables() {
		seen[v] = true
	}
	for _, v := range p.t.optimizer.Variables() {
		seen[v] = true
	}
	for _, part := range p.t.config.Parts {
		for _, v := range part.Variables() {
			if !seen[v] {
				seen[v] = true
				all = append(all, v)
			}
		}
	}
	return all
}
