package keras

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Interrupted is the error of Fit when its context ends before the training
// does. errors.Is finds context.Canceled or context.DeadlineExceeded in it,
// and the cause of the context.
type Interrupted struct {
	Epoch int   // 0-based: the epoch that training was in
	Step  int   // the steps of it that are done
	Saved bool  // the Checkpoint includes all completed steps; otherwise there is none, or no step is completed
	Err   error // of the context and its cause, or the error that came from its end
}

func (e *Interrupted) Error() string {
	saved := ""
	if e.Saved {
		saved = ", which is saved"
	}
	return fmt.Sprintf("Fit: interrupted after step %d of epoch %d%s: %v", e.Step, e.Epoch+1, saved, e.Err)
}

// Unwrap returns the context's error.
func (e *Interrupted) Unwrap() error { return e.Err }

// interrupted ends training between two steps because ctx has ended. The next
// step would read the batch at a place.
func (f *fitting) interrupted(ctx context.Context, epoch int, at Position) error {
	e := &Interrupted{Epoch: epoch, Step: f.run.Step, Saved: f.saved, Err: pipeline.Ended(ctx)}
	if f.ranks != nil {
		e.Err = stopped(ctx)
	}
	defer func() { f.told(ctx, e) }()
	if err := f.keep(ctx, epoch, at); err != nil {
		e.Saved = false
		return errors.Join(e, err)
	}
	e.Saved = f.saved
	return e
}

// told tells the Logger of an interruption.
func (f *fitting) told(ctx context.Context, e *Interrupted) *Interrupted {
	f.event(ctx, slog.LevelWarn, "interrupted", slog.Bool("saved", e.Saved), slog.Any("error", e.Err))
	return e
}

// ended returns err, which ends training, as an *Interrupted if its cause is the end of
// ctx. It does not save the steps since the last checkpoint: it is for errors within a
// step or a callback.
func (f *fitting) ended(ctx context.Context, err error) error {
	var already *Interrupted
	if err == nil || !pipeline.EndedBy(ctx, err) || errors.As(err, &already) {
		return err
	}
	return f.told(ctx, &Interrupted{Epoch: f.run.Epoch, Step: f.run.Step, Err: pipeline.WithCause(ctx, err)})
}

// broken ends training between two steps because of err, from a dataset or a step that
// did not run. It saves the completed steps: after the cause is removed, training
// continues with the batch that failed.
func (f *fitting) broken(ctx context.Context, epoch int, at Position, err error) error {
	f.ranks.fails()
	if e := f.keep(ctx, epoch, at); e != nil {
		return errors.Join(err, e)
	}
	if f.saved && f.run.Step > 0 {
		return fmt.Errorf("%w; the %d steps of epoch %d before that are saved", err, f.run.Step, epoch+1)
	}
	return err
}

// keep saves the steps of an epoch that has begun; the end of the one before
// is saved.
func (f *fitting) keep(ctx context.Context, epoch int, at Position) error {
	if f.run.Step == 0 {
		return nil
	}
	return f.save(ctx, epoch, f.run.Step, at)
}
