package keras

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

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
// evaluation and prediction each: the plans of the n batch shapes that were
// used last. The default is 64; n below 1 counts as 1. See tensor.Func.KeepPlans.
func (m *Model) KeepPlans(n int) {
	m.plans = max(n, 1)
	m.keepPlans()
	m.predicting.Lock()
	defer m.predicting.Unlock()
	if m.prediction != nil {
		m.prediction.KeepPlans(m.plans)
	}
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
