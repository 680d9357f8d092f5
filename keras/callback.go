package keras

import (
	"context"
	"errors"
	"strings"

	"github.com/mezzo-ml/mezzo/keras/metrics"
)

// Callback is a set of hooks that Fit calls (Keras: Callback, LambdaCallback).
// Nil hooks are skipped. If a hook returns an error, Fit returns that error.
// Hooks of one kind run in the order of FitConfig.Callbacks.
type Callback struct {
	TrainBegin func(ctx context.Context, r *Run) error // not told yet whether training is resumed
	EpochBegin func(ctx context.Context, r *Run) error // not for an epoch that is resumed after its first step
	BatchBegin func(ctx context.Context, r *Run) error
	BatchEnd   func(ctx context.Context, r *Run) error
	// BatchRefused runs instead of BatchEnd after a step that NonFiniteError refused:
	// no variable has changed. Fit returns the error of the step after it.
	BatchRefused func(ctx context.Context, r *Run) error

	TestBegin func(ctx context.Context, r *Run) error // before the validation of an epoch
	TestEnd   func(ctx context.Context, r *Run) error // after it, also when it failed
	EpochEnd  func(ctx context.Context, r *Run) error // after validation
	// EpochDone runs after all EpochEnd hooks, also if one failed. It must undo what
	// its EpochEnd has changed for the other hooks, before the next checkpoint is
	// taken.
	EpochDone func(ctx context.Context, r *Run) error
	TrainEnd  func(ctx context.Context, r *Run) error // not when Fit fails

	// FirstRankOnly leaves the callback out on all ranks of a CompileConfig.Distribution
	// but the first, because it writes files. It must not change the model or the
	// optimizer, or set Run.Stop: callbacks that do run on all ranks.
	FirstRankOnly bool

	// Save returns the callback's state for a checkpoint; Load restores it, after
	// TrainBegin, when training is resumed. Name identifies the state; callbacks
	// without Save need none.
	Name string
	Save func() (CallbackState, error)
	Load func(CallbackState) error
}

// Callback returns c: a Callback is a callback as the types of package
// callbacks are (see callbacks.List).
func (c Callback) Callback() Callback { return c }

// seesBatches reports whether a hook runs while there is a Run.Batch.
func (c Callback) seesBatches() bool {
	return c.BatchBegin != nil || c.BatchEnd != nil || c.BatchRefused != nil
}

// Run describes a Fit in progress to the hooks of a Callback.
type Run struct {
	Model  *Model
	Config FitConfig
	Epoch  int   // 0-based
	Step   int   // steps done in the epoch
	Steps  int   // of an epoch; -1 while unknown
	Batch  Batch // of the step, from BatchBegin to BatchEnd; to keep it, Clone it
	Logs   Logs  // at EpochEnd: of the epoch; hooks may add to it. At BatchEnd: empty, see Read
	Stop   bool  // set it to end Fit after the current step

	// Report is a file that says why steps are not finite, if a hook has written one:
	// the error names it when Fit gives up, or when a step was refused.
	Report string

	// Where training is saved to and resumed from, and after how many steps
	// it is saved besides at the ends of epochs: FitConfig's, unless a
	// TrainBegin hook sets others.
	Checkpoint Checkpointer
	SaveEvery  int
}

// Read returns the logs of the epoch so far. It reads totals back from the
// device, so a hook that calls it at every batch slows training down.
func (r *Run) Read() (Logs, error) { return r.Model.training.read(r.Model.training.ownTrain, nil) }

// Metric returns the compiled metric with that name in the logs, with or
// without "val_"; nil if there is none.
func (r *Run) Metric(name string) metrics.Accumulator {
	name = strings.TrimPrefix(name, "val_")
	var found metrics.Accumulator
	r.Model.training.eachMetric(func(n string, m metrics.Accumulator) {
		if n == name && found == nil {
			found = m
		}
	})
	return found
}

func (r *Run) call(ctx context.Context, hook func(Callback) func(context.Context, *Run) error) error {
	for _, c := range r.Config.Callbacks {
		if f := hook(c); f != nil {
			if err := f(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// settle calls hooks that undo changes: all of them, also after an error.
func (r *Run) settle(ctx context.Context, err error, hook func(Callback) func(context.Context, *Run) error) error {
	for _, c := range r.Config.Callbacks {
		if f := hook(c); f != nil {
			if e := f(ctx, r); e != nil {
				err = errors.Join(err, e)
			}
		}
	}
	return err
}
