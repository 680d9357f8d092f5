package callbacks

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// ReduceLROnPlateau multiplies the learning rate by Factor when a log has
// stopped improving (Keras: ReduceLROnPlateau). The optimizer must have no
// Schedule.
type ReduceLROnPlateau struct {
	Monitor  string  // log to watch; default: "val_loss"
	Factor   float64 // of the rate, below 1; default: 0.1
	Patience int     // epochs without improvement before it acts; default: 10
	Verbose  int     // 1 prints a line when it acts
	Mode     Mode
	MinDelta *float64 // a change of no more than this is no improvement; nil: 1e-4
	Cooldown int      // epochs after a reduction in which nothing is counted
	MinLR    float64  // the rate does not get lower

	m          monitor
	wait, cool int
}

type plateauState struct {
	Wait, Cool int
	Best       *number
}

// Callback makes the hooks.
func (p *ReduceLROnPlateau) Callback() keras.Callback {
	return keras.Callback{
		Name: "ReduceLROnPlateau",
		TrainBegin: func(context.Context, *keras.Run) error {
			delta := 1e-4
			if p.MinDelta != nil {
				delta = math.Abs(*p.MinDelta)
			}
			p.m = monitor{class: "ReduceLROnPlateau", log: cmp.Or(p.Monitor, "val_loss"), mode: p.Mode, minDelta: delta}
			p.wait, p.cool = 0, 0
			if !(p.Factor >= 0 && p.Factor < 1) {
				return fmt.Errorf("callback ReduceLROnPlateau: Factor: got %v, want more than 0 and less than 1", p.Factor)
			}
			return nil
		},
		EpochEnd: func(_ context.Context, r *keras.Run) error { return p.epochEnd(r) },
		Save:     func() (keras.CallbackState, error) { return save(plateauState{p.wait, p.cool, (*number)(p.m.best)}) },
		Load: func(s keras.CallbackState) error {
			var m plateauState
			err := load(s, &m)
			p.wait, p.cool, p.m.best = m.Wait, m.Cool, (*float64)(m.Best)
			return err
		},
	}
}

func (p *ReduceLROnPlateau) epochEnd(r *keras.Run) error {
	rate, err := logRate(r)
	if err != nil {
		return err
	}
	value, ok, err := p.m.get(r, r.Logs)
	if err != nil || !ok {
		return err
	}
	if p.cool > 0 {
		p.cool--
		p.wait = 0
	}
	if p.m.improves(value, p.m.best) {
		p.m.best, p.wait = &value, 0
		return nil
	}
	if p.cool > 0 {
		return nil
	}
	if p.wait++; p.wait < cmp.Or(p.Patience, 10) || rate <= float64(float32(p.MinLR)) {
		return nil
	}
	rate = max(rate*cmp.Or(p.Factor, 0.1), p.MinLR)
	if err := optimizers.SetLearningRate(r.Model.Optimizer(), rate); err != nil {
		return fmt.Errorf("callback ReduceLROnPlateau: %w", err)
	}
	if p.Verbose > 0 {
		fmt.Fprintf(r.Config.Output, "\nEpoch %d: ReduceLROnPlateau reducing learning rate to %s.\n", r.Epoch+1, repr(rate))
	}
	p.cool, p.wait = p.Cooldown, 0
	return nil
}

// logRate puts the learning rate into the logs of the epoch.
func logRate(r *keras.Run) (float64, error) {
	rate, err := optimizers.CurrentLearningRate(r.Model.Optimizer())
	if err != nil {
		return 0, err
	}
	r.Logs.Set("learning_rate", rate)
	return rate, err
}

// LearningRateScheduler sets the learning rate at the beginning of each epoch
// (Keras: LearningRateScheduler). The optimizer must have no Schedule.
type LearningRateScheduler struct {
	// Schedule returns the rate of an epoch, 0-based, given the rate before.
	// It must not remember anything: it is not part of checkpoints.
	Schedule func(epoch int, rate float64) float64
	Verbose  int // 1 prints a line in each epoch
}

// Callback makes the hooks.
func (l *LearningRateScheduler) Callback() keras.Callback {
	return keras.Callback{
		EpochBegin: func(_ context.Context, r *keras.Run) error {
			if l.Schedule == nil {
				return fmt.Errorf("callback LearningRateScheduler: Schedule: got nil, want a function")
			}
			o := r.Model.Optimizer()
			rate, err := optimizers.CurrentLearningRate(o)
			if err != nil {
				return err
			}
			rate = l.Schedule(r.Epoch, rate)
			if err := optimizers.SetLearningRate(o, rate); err != nil {
				return fmt.Errorf("callback LearningRateScheduler: %w", err)
			}
			if l.Verbose > 0 {
				fmt.Fprintf(r.Config.Output, "\nEpoch %d: LearningRateScheduler setting learning rate to %s.\n", r.Epoch+1, repr(rate))
			}
			return nil
		},
		EpochEnd: func(_ context.Context, r *keras.Run) error {
			_, err := logRate(r)
			return err
		},
	}
}
