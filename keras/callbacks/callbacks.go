// Package callbacks holds Keras's callbacks with Keras's arguments, defaults
// and messages. Each is a struct; [List] makes what keras.FitConfig takes:
//
//	stop := &callbacks.EarlyStopping{Patience: 3, RestoreBestWeights: true}
//	model.Fit(ctx, data, keras.FitConfig{
//		Callbacks: callbacks.List(stop, &callbacks.CSVLogger{File: "log.csv"}),
//	})
//
// A program's own hooks are a keras.Callback (Keras: LambdaCallback), which List
// takes too.
//
// Rules:
//   - A callback is used by one Fit at a time; the next Fit starts it afresh.
//   - The state of a callback is part of a checkpoint: a resumed training is
//     stopped, slowed down and logged as if it had not been killed.
//   - A Monitor that is not in the logs is an error that lists the names in the
//     logs; Keras warns and does nothing. In an epoch without validation (see
//     FitConfig.ValidationFreq) a Monitor with "val_" is ignored.
//   - Values are compared in float32, as Keras compares them.
package callbacks

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/suggest"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/metrics"
)

// Maker is a type of this package, or keras.Callback.
type Maker interface{ Callback() keras.Callback }

// List returns the callbacks for FitConfig.Callbacks, in this order.
func List(cs ...Maker) []keras.Callback {
	out := make([]keras.Callback, len(cs))
	for i, c := range cs {
		out[i] = c.Callback()
	}
	return out
}

// Mode says which values of a monitored log are better.
type Mode string

// The modes. ModeAuto is ModeMin for "loss" and for metrics of errors, ModeMax
// for metrics such as accuracies; other logs need another mode.
const (
	ModeAuto Mode = ""
	ModeMin  Mode = "min"
	ModeMax  Mode = "max"
)

// monitor watches one log (Keras: MonitorCallback).
type monitor struct {
	class    string // for messages
	log      string
	mode     Mode
	minDelta float64
	less     bool // whether less is better
	ready    bool
	best     *float64 // nil: no value yet
}

// get returns the value of the log at the end of an epoch; ok is false in an
// epoch that was not validated.
func (m *monitor) get(r *keras.Run, logs keras.Logs) (value float64, ok bool, err error) {
	if logs.Has(m.log) {
		err := m.settle(r)
		return logs.Get(m.log), err == nil, err
	}
	validated := false
	have := make([]string, len(logs))
	for i, l := range logs {
		have[i] = l.Name
		validated = validated || strings.HasPrefix(l.Name, "val_")
	}
	if c := r.Config; strings.HasPrefix(m.log, "val_") && !validated && (c.ValidationData != nil || c.ValidationSplit > 0) {
		return 0, false, nil
	}
	near, hint := suggest.Meant(m.log, have), ""
	if strings.HasPrefix(m.log, "val_") && !validated {
		near, hint = "", "; give ValidationData, or another Monitor"
	}
	return 0, false, fmt.Errorf("callback %s: Monitor: got %q, %swant one of %s%s", m.class, m.log, near, strings.Join(have, ", "), hint)
}

// settle decides which values are better, once the metrics are known.
func (m *monitor) settle(r *keras.Run) error {
	if m.ready {
		return nil
	}
	switch m.mode {
	case ModeMin:
		m.less = true
	case ModeMax:
	case ModeAuto, "auto":
		if strings.TrimPrefix(m.log, "val_") == "loss" {
			m.less = true
			break
		}
		way := metrics.BetterUnknown
		if of := r.Metric(m.log); of != nil {
			way = metrics.DirectionOf(of)
		}
		if way == metrics.BetterUnknown {
			return fmt.Errorf("callback %s: Mode: whether less or more of %q is better is not known, want min or max", m.class, m.log)
		}
		m.less = way == metrics.BetterDown
	default:
		return fmt.Errorf("callback %s: Mode: got %q, want min, max or nothing", m.class, m.mode)
	}
	m.ready = true
	return nil
}

// improves reports whether value is better than reference by more than the
// least change. Keras computes the difference in float64 and compares in
// float32.
func (m *monitor) improves(value float64, reference *float64) bool {
	switch {
	case reference == nil:
		return true
	case m.less:
		return float32(value+m.minDelta) < float32(*reference)
	}
	return float32(value-m.minDelta) > float32(*reference)
}

// save makes the state of a callback; memory is a pointer to what it
// remembers. Numbers that are not finite need the type number.
func save(memory any) (keras.CallbackState, error) {
	b, err := json.Marshal(memory)
	return keras.CallbackState{Data: b}, err
}

func load(s keras.CallbackState, memory any) error { return json.Unmarshal(s.Data, memory) }

// number is a float64 in JSON, to the bit and also when it is not finite.
type number float64

// MarshalText implements encoding.TextMarshaler.
func (n number) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(n), 'g', -1, 64), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *number) UnmarshalText(b []byte) error {
	x, err := strconv.ParseFloat(string(b), 64)
	*n = number(x)
	return err
}
