package keras

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// Interrupted is the error of a Fit whose context ended before the training
// did: errors.Is finds context.Canceled or context.DeadlineExceeded in it.
type Interrupted struct {
	Epoch int   // 0-based: the epoch that training was in
	Step  int   // the steps of it that are done
	Saved bool  // the Checkpoint has what is done; otherwise there is none, or nothing is done
	Err   error // of the context
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
	e := &Interrupted{Epoch: epoch, Step: f.run.Step, Saved: f.saved, Err: ctx.Err()}
	defer func() {
		f.event(ctx, slog.LevelWarn, "interrupted", slog.Bool("saved", e.Saved), slog.Any("error", e.Err))
	}()
	if f.run.Checkpoint == nil || f.run.Step == 0 { // the end of the epoch before is saved
		return e
	}
	if err := f.save(ctx, epoch, f.run.Step, at); err != nil {
		e.Saved = false
		return errors.Join(e, err)
	}
	e.Saved = true
	return e
}
