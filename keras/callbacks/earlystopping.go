package callbacks

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
)

// EarlyStopping ends training when a log has stopped improving (Keras:
// EarlyStopping).
type EarlyStopping struct {
	Monitor  string  // log to watch; default: "val_loss"
	MinDelta float64 // a change of no more than this is no improvement
	Patience int     // stop after so many epochs without improvement; 0 is as 1
	Verbose  int     // 1 prints a line when it acts
	Mode     Mode
	Baseline *float64 // only what is better than this, too, ends the waiting
	// RestoreBestWeights gives the model, when training ends, the weights of
	// the best epoch. It holds a copy of all weights.
	RestoreBestWeights bool
	StartFromEpoch     int // epochs before this one, 0-based, are passed over

	StoppedEpoch int // result: the 0-based epoch that training was ended after, 0 if it was not
	BestEpoch    int // result: the 0-based epoch with the best value

	m       monitor
	wait    int
	weights []*keras.Tensor
}

type earlyStoppingState struct {
	Wait, StoppedEpoch, BestEpoch int
	Best                          *number
}

// Callback makes the hooks.
func (e *EarlyStopping) Callback() keras.Callback {
	return keras.Callback{
		Name: "EarlyStopping",
		TrainBegin: func(context.Context, *keras.Run) error {
			e.m = monitor{class: "EarlyStopping", log: cmp.Or(e.Monitor, "val_loss"), mode: e.Mode, minDelta: math.Abs(e.MinDelta)}
			e.wait, e.StoppedEpoch, e.BestEpoch, e.weights = 0, 0, 0, nil
			if e.Patience < 0 {
				return fmt.Errorf("callback EarlyStopping: Patience: got %d, want 0 or more", e.Patience)
			}
			return nil
		},
		EpochEnd: func(_ context.Context, r *keras.Run) error { return e.epochEnd(r) },
		TrainEnd: func(_ context.Context, r *keras.Run) error { return e.trainEnd(r) },
		Save:     e.save,
		Load:     e.load,
	}
}

func (e *EarlyStopping) epochEnd(r *keras.Run) (err error) {
	value, ok, err := e.m.get(r, r.Logs)
	if err != nil || !ok || r.Epoch < e.StartFromEpoch {
		return err
	}
	keep := func() error {
		e.BestEpoch = r.Epoch
		if e.RestoreBestWeights {
			e.weights, err = r.Model.GetWeights()
		}
		return err
	}
	e.wait++
	if e.m.improves(value, e.m.best) {
		e.m.best = &value
		if e.m.improves(value, e.Baseline) {
			e.wait = 0
		}
		return keep()
	}
	if e.wait >= e.Patience && r.Epoch > 0 {
		e.StoppedEpoch, r.Stop = r.Epoch, true
	}
	return nil
}

func (e *EarlyStopping) trainEnd(r *keras.Run) error {
	if e.StoppedEpoch > 0 && e.Verbose > 0 {
		fmt.Fprintf(r.Config.Output, "Epoch %d: early stopping\n", e.StoppedEpoch+1)
	}
	if e.weights == nil {
		return nil
	}
	if e.Verbose > 0 {
		fmt.Fprintf(r.Config.Output, "Restoring model weights from the end of the best epoch: %d.\n", e.BestEpoch+1)
	}
	return r.Model.SetWeights(e.weights)
}

func (e *EarlyStopping) save() (keras.CallbackState, error) {
	s, err := save(earlyStoppingState{e.wait, e.StoppedEpoch, e.BestEpoch, (*number)(e.m.best)})
	for _, w := range e.weights {
		b, err := w.Bytes()
		if err != nil {
			return s, err
		}
		s.Arrays = append(s.Arrays, keras.Array{Type: w.Type(), Data: b})
	}
	return s, err
}

func (e *EarlyStopping) load(s keras.CallbackState) error {
	var m earlyStoppingState
	if err := load(s, &m); err != nil {
		return err
	}
	e.wait, e.StoppedEpoch, e.BestEpoch, e.m.best = m.Wait, m.StoppedEpoch, m.BestEpoch, (*float64)(m.Best)
	e.weights = nil
	for _, a := range s.Arrays {
		e.weights = append(e.weights, tensor.FromBytes(a.Type, a.Data))
	}
	return nil
}
