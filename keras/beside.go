package keras

import (
	"context"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Beside runs the training step on b beside itself in a wider type and returns
// statistics of each value and its shadow: see tensor.Func.Beside. It changes no
// variable. The model must be compiled.
func (m *Model) Beside(ctx context.Context, b Batch, o tensor.BesideOptions) (taps *tensor.Taps, err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "Beside"); err != nil {
		return nil, err
	}
	defer func() { err = pipeline.WithCause(ctx, err) }()
	if err := m.ready(b); err != nil {
		return nil, err
	}
	return m.training.train.Beside(ctx, b, o)
}

// Digests returns digests of every value of the training step on b, in order: see
// tensor.Func.Digests. It changes no variable. The model must be compiled.
func (m *Model) Digests(ctx context.Context, b Batch) (all []tensor.Digest, err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "Digests"); err != nil {
		return nil, err
	}
	if err := m.ready(b); err != nil {
		return nil, err
	}
	return m.training.train.Digests(ctx, b)
}

// StepValue returns the elements of a value of the training step on b, of those that
// Digests lists: see tensor.Func.ValueOf. It changes no variable. The model must be
// compiled.
func (m *Model) StepValue(ctx context.Context, b Batch, id tensor.TapID) (t op.Type, data []byte, err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "StepValue"); err != nil {
		return t, nil, err
	}
	if err := m.ready(b); err != nil {
		return t, nil, err
	}
	return m.training.train.ValueOf(ctx, b, id)
}

// StepCopies returns the copies of weights that the next training step on batches like b
// would read: see tensor.Func.Copies. The model must be compiled.
func (m *Model) StepCopies(b Batch) (all []tensor.Copy, err error) {
	defer tensor.Catch(&err)
	if err := m.ready(b); err != nil {
		return nil, err
	}
	return m.training.train.Copies(b)
}

// StepVariables lists all variables that a training step on batches like b reads or
// changes: weights, states of random numbers, variables of the optimizer, the totals of
// loss and metrics, and the counters of skipped steps. It makes the optimizer's variables
// if they do not exist yet. The model must be compiled.
func (m *Model) StepVariables(b Batch) (all []*Variable, err error) {
	defer tensor.Catch(&err)
	if err := m.ready(b); err != nil {
		return nil, err
	}
	t := m.training
	if _, err := t.train.MemoryOf(b); err != nil {
		return nil, err
	}
	all = slices.Concat(m.Variables(), t.optimizer.Variables(), t.Variables(), t.others().Variables())
	if t.guard != nil {
		all = append(all, t.guard.Variables()...)
	}
	return all, nil
}
