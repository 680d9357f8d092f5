package keras

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// NonFinite says what happens to a training step that is not finite: its loss,
// a gradient or a new moving statistic has a NaN or an infinity.
type NonFinite int

// The values of NonFinite. A LossScaleOptimizer, as under mixed_float16, skips
// steps with gradients that overflow under all three.
const (
	// NonFiniteApply applies them, as Keras does: the weights are NaN from then
	// on.
	NonFiniteApply NonFinite = iota

	// NonFiniteSkip passes over the batch, as if the dataset did not have it:
	// weights, slots, averages, moving statistics, random states, accumulated
	// gradients, the loss scale and the totals of loss and metrics stay as they
	// are, to the bit. StepResult counts it as skipped, and Fit gives up after
	// FitConfig.MaxSkipsAtFloor of them in a row.
	NonFiniteSkip

	// NonFiniteError makes the step an error that names what was not finite
	// first, with no variable changed. The device is asked after each step.
	NonFiniteError
)

// errNonFinite is in the errors of steps that NonFiniteError refuses.
var errNonFinite = errors.New("the step is not finite")

// guard skips training steps that are not finite. nil guards nothing.
type guard struct {
	action         NonFinite
	skipped, inRow *Variable // int64: steps skipped, and those since the last that was not
}

func newGuard(action NonFinite) *guard {
	if action == NonFiniteApply {
		return nil
	}
	count := func(name string) *Variable { return tensor.NewState("non_finite/"+name, dtype.Int64, nil, nil) }
	return &guard{action, count("skipped_steps"), count("consecutive_skips")}
}

// Variables lists the counters.
func (g *guard) Variables() []*Variable { return []*Variable{g.skipped, g.inRow} }

// skips reports whether steps are skipped, rather than refused.
func (g *guard) skips() bool { return g != nil && g.action == NonFiniteSkip }

// update records f, which updates models and totals, so that a non-finite step changes
// nothing, including earlier assignments. ok says whether what the caller knows is
// finite; gradients are those that no loss scale checks.
func (g *guard) update(ok *Tensor, gradients []*Tensor, ms []*Model, f func()) {
	since := tensor.SequencePoint()
	if all := optimizers.AllFinite(gradients); all != nil {
		ok = ok.And(all)
	}
	for _, m := range ms {
		for _, v := range m.Variables() {
			if v.Statistic() {
				ok = ok.And(v.Value().AllFinite())
			}
		}
	}
	zero := tensor.Scalar(dtype.Int64, 0)
	tensor.PredicateAssigned(ok)
	g.skipped.Assign(g.skipped.Value().Add(ok.Not().Cast(dtype.Int64)))
	g.inRow.Assign(tensor.Where(ok, zero, g.inRow.Value().AddScalar(1)))
	tensor.Label("non_finite", since, ok, g.skipped.Value(), g.inRow.Value())
	tensor.Predicated(ok, f)
}

// counts reads the counters.
func (g *guard) counts() (skipped, inRow int64, err error) {
	if g == nil {
		return 0, 0, nil
	}
	a, err := g.skipped.Item()
	if err != nil {
		return 0, 0, err
	}
	b, err := g.inRow.Item()
	return int64(a), int64(b), err
}

// set sets the counters.
func (g *guard) set(skipped, inRow int64) error {
	if g == nil {
		return nil
	}
	return errors.Join(g.skipped.Set([]float64{float64(skipped)}), g.inRow.Set([]float64{float64(inRow)}))
}

// trainOn runs one training step. With NonFiniteError it is an error if the step
// was not finite.
func (m *Model) trainOn(ctx context.Context, b Batch) error {
	t := m.training
	if err := t.train.Run(ctx, b); err != nil {
		return err
	}
	return m.refused(ctx, b)
}

// refusal names the model in the error of a step that was refused.
func (m *Model) refusal(err error) error {
	if errors.Is(err, errNonFinite) {
		return m.errorf("%w", err)
	}
	return err
}

// refused is the error of a step that was not finite, with NonFiniteError.
func (m *Model) refused(ctx context.Context, b Batch) error {
	g := m.training.guard
	if g == nil || g.action != NonFiniteError {
		return nil
	}
	n, err := g.skipped.Item()
	if n == 0 || err != nil {
		return err
	}
	if err := g.set(0, 0); err != nil {
		return err
	}
	switch first, err := m.training.train.FirstNonFinite(ctx, b); {
	case err != nil:
		return fmt.Errorf("%w; %w", errNonFinite, err)
	case first != nil:
		return fmt.Errorf("%w: %w", errNonFinite, inBatch(first, b))
	}
	return errNonFinite
}

// unseen makes logs NaN where all batches so far were skipped: there is nothing
// that they are a mean of.
func (t *training) unseen(logs Logs) error {
	if !t.guard.skips() {
		return nil
	}
	n, err := t.total.Variables()[1].Item()
	if n != 0 || err != nil {
		return err
	}
	for i := range logs {
		logs[i].Value = math.NaN()
	}
	return nil
}

// result returns the optimizer's result, including the steps that the guard has
// skipped.
func (t *training) result() (optimizers.StepResult, error) {
	r, err := optimizers.Result(t.optimizer)
	if err != nil {
		return r, err
	}
	for _, o := range t.optimizers[1:] {
		other, err := optimizers.Result(o)
		if err != nil {
			return r, err
		}
		r.SkippedSteps += other.SkippedSteps
		r.ConsecutiveSkips = max(r.ConsecutiveSkips, other.ConsecutiveSkips)
		r.SkipsAtFloor = max(r.SkipsAtFloor, other.SkipsAtFloor)
		r.Applied = r.Applied && other.Applied
	}
	skipped, inRow, err := t.guard.counts()
	r.SkippedSteps += skipped
	r.ConsecutiveSkips += inRow
	r.Applied = r.Applied && inRow == 0
	return r, err
}

// skips reports whether steps may be skipped.
func (t *training) skips() bool {
	return t.scaler != nil || t.guard.skips() || slices.ContainsFunc(t.optimizers, func(o optimizers.Optimizer) bool {
		_, ok := o.(*optimizers.LossScaleOptimizer)
		return ok
	})
}
