package callbacks

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TerminateOnNaN ends training when the loss of the epoch is not finite
// (Keras: TerminateOnNaN). It reads the loss back after each batch, which
// slows training down. With loss scaling, steps whose gradients are not finite
// are skipped in any case.
type TerminateOnNaN struct {
	RaiseError bool // Fit fails, and no TrainEnd hook runs; otherwise it ends as usual
}

// Callback makes the hooks.
func (t *TerminateOnNaN) Callback() keras.Callback {
	return keras.Callback{BatchEnd: func(_ context.Context, r *keras.Run) error {
		logs, err := r.Read()
		if err != nil {
			return err
		}
		loss := logs.Get("loss")
		switch {
		case !math.IsNaN(loss) && !math.IsInf(loss, 0):
			return nil
		case t.RaiseError:
			return fmt.Errorf("callback TerminateOnNaN: the loss is %s after batch %d of epoch %d, want a finite number", repr(loss), r.Step, r.Epoch+1)
		}
		fmt.Fprintf(r.Config.Output, "Batch %d: Invalid loss, terminating training\n", r.Step-1)
		r.Stop = true
		return nil
	}}
}

// SwapEMAWeights replaces the weights by their moving averages while the model
// is validated (Keras: SwapEMAWeights). The optimizer must have UseEMA.
type SwapEMAWeights struct {
	// SwapOnEpoch also swaps for the EpochEnd hooks of the callbacks after
	// this one, so that ModelCheckpoint writes the averages.
	SwapOnEpoch bool

	swapped bool
}

// Callback makes the hooks.
func (s *SwapEMAWeights) Callback() keras.Callback {
	swap := func(to bool) func(context.Context, *keras.Run) error {
		return func(_ context.Context, r *keras.Run) error {
			if s.swapped == to {
				return nil
			}
			if err := optimizers.SwapEMA(r.Model.Optimizer()); err != nil {
				return fmt.Errorf("callback SwapEMAWeights: %w", err)
			}
			s.swapped = to
			return nil
		}
	}
	c := keras.Callback{
		TrainBegin: func(_ context.Context, r *keras.Run) error {
			s.swapped = false
			if !averages(r.Model.Optimizer()) {
				return errors.New("callback SwapEMAWeights: got an optimizer without averages, want UseEMA: true")
			}
			return nil
		},
		TestBegin: swap(true),
		TestEnd:   swap(false),
	}
	if s.SwapOnEpoch {
		c.EpochEnd, c.EpochDone = swap(true), swap(false)
	}
	return c
}

// averages reports whether an optimizer keeps averages. An Averager without a
// field UseEMA keeps them.
func averages(o optimizers.Optimizer) bool {
	if s, ok := o.(*optimizers.LossScaleOptimizer); ok {
		o = s.Inner
	}
	if _, ok := o.(optimizers.Averager); !ok {
		return false
	}
	v := reflect.Indirect(reflect.ValueOf(o))
	if v.Kind() != reflect.Struct {
		return true
	}
	f := v.FieldByName("UseEMA")
	return f.Kind() != reflect.Bool || f.Bool()
}

// BackupAndRestore resumes a training that was killed, with the same bits as
// without interruption (Keras: BackupAndRestore). It sets FitConfig.Checkpoint
// and SaveEvery.
type BackupAndRestore struct {
	Dir              string // required; for this training only
	SaveFreq         int    // steps of an epoch between backups; 0: at the ends of epochs only
	DoubleCheckpoint bool   // keep the backup before the last one, too
	DeleteCheckpoint *bool  // when training has ended; default: true
}

// Callback makes the hooks.
func (b *BackupAndRestore) Callback() keras.Callback {
	d := &checkpoint.Directory{Path: b.Dir, Keep: 1}
	if b.DoubleCheckpoint {
		d.Keep = 2
	}
	return keras.Callback{
		FirstRankOnly: true,
		TrainBegin: func(_ context.Context, r *keras.Run) error {
			switch {
			case b.Dir == "":
				return errors.New("callback BackupAndRestore: no Dir given")
			case b.SaveFreq < 0:
				return fmt.Errorf("callback BackupAndRestore: SaveFreq: got %d, want a number of steps, or 0 for the ends of epochs", b.SaveFreq)
			case r.Checkpoint != nil:
				return errors.New("callback BackupAndRestore: Fit has a Checkpoint already; use one of the two")
			}
			r.Checkpoint, r.SaveEvery = d, b.SaveFreq
			return nil
		},
		TrainEnd: func(context.Context, *keras.Run) error {
			if b.DeleteCheckpoint != nil && !*b.DeleteCheckpoint {
				return nil
			}
			return d.Remove()
		},
	}
}
