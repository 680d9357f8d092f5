package keras

import "context"

// Callback hooks into Fit (Keras: Callback). Nil hooks are passed over. An
// error from a hook ends Fit with that error.
type Callback struct {
	TrainBegin func(ctx context.Context, r *Run) error
	EpochBegin func(ctx context.Context, r *Run) error
	BatchEnd   func(ctx context.Context, r *Run) error
	EpochEnd   func(ctx context.Context, r *Run) error // after validation
	TrainEnd   func(ctx context.Context, r *Run) error
}

// Run is a Fit in progress.
type Run struct {
	Model  *Model
	Config FitConfig
	Epoch  int  // 0-based
	Step   int  // steps done in the epoch
	Steps  int  // of an epoch; -1 while unknown
	Logs   Logs // at EpochEnd: of the epoch; hooks may add to it. At BatchEnd: empty, see Read
	Stop   bool // set it to end Fit after the current step
}

// Read returns the logs of the epoch so far. It reads totals back from the
// device; hooks that need them at every batch make training wait.
func (r *Run) Read() (Logs, error) { return r.Model.training.read(nil) }

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
