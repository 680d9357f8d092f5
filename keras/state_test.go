package keras

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
)

// memory is a Checkpointer that keeps states in memory.
type memory struct {
	states []*State
	fail   error
}

func (m *memory) Load(context.Context) (*State, error) {
	if len(m.states) == 0 {
		return nil, nil
	}
	return m.states[len(m.states)-1], nil
}

func (m *memory) Save(_ context.Context, s *State) error {
	m.states = append(m.states, s)
	return m.fail
}

// TestHooks: which hooks run when, in a training from the start and in one
// that is resumed in the middle of an epoch.
func TestHooks(t *testing.T) {
	var seen []string
	note := func(name string) func(context.Context, *Run) error {
		return func(_ context.Context, r *Run) error {
			seen = append(seen, fmt.Sprintf("%s%d.%d", name, r.Epoch, r.Step))
			return nil
		}
	}
	c := FitConfig{BatchSize: 4, Epochs: 2, ValidationData: regression(4), Callbacks: []Callback{{
		TrainBegin: note("T"), EpochBegin: note("E"), BatchBegin: note("b"), BatchEnd: note("B"), TestBegin: note("v"), TestEnd: note("V"),
		EpochEnd: note("e"), EpochDone: note("d"), TrainEnd: note("t"), Name: "x",
		Save: func() (CallbackState, error) { seen = append(seen, "save"); return CallbackState{}, nil },
		Load: func(s CallbackState) error { seen = append(seen, "load "+s.Name); return nil },
	}}}
	want := func(text string) {
		t.Helper()
		if got := strings.Join(seen, " "); got != text {
			t.Errorf("got hooks\n%s\nwant\n%s", got, text)
		}
		seen = nil
	}
	fit(t, line(t), regression(8), c)
	want("T0.0 E0.0 b0.0 B0.1 b0.1 B0.2 v0.2 V0.2 e0.2 d0.2 E1.0 b1.0 B1.1 b1.1 B1.2 v1.2 V1.2 e1.2 d1.2 t1.2")

	states := &memory{}
	c.Checkpoint, c.SaveEvery = states, 1
	fit(t, line(t), regression(8), c)
	want("T0.0 E0.0 b0.0 B0.1 save b0.1 B0.2 save v0.2 V0.2 e0.2 d0.2 save E1.0 b1.0 B1.1 save b1.1 B1.2 save v1.2 V1.2 e1.2 d1.2 save t1.2")
	var at []string
	for _, s := range states.states {
		at = append(at, fmt.Sprint(s.Epoch, s.Step, s.Data, len(s.History.Logs)))
	}
	if got := strings.Join(at, ", "); got != "0 1 {0 1} 0, 0 2 {0 2} 0, 1 0 {1 0} 1, 1 1 {1 1} 1, 1 2 {1 2} 1, 2 0 {2 0} 2" {
		t.Errorf("got states at %s", got)
	}
	all := states.states
	states.states = all[3:4]
	fit(t, line(t), regression(8), c)
	want("T0.0 load x b1.1 B1.2 save v1.2 V1.2 e1.2 d1.2 save t1.2")
	states.states = all[4:5] // all steps of the epoch are done
	fit(t, line(t), regression(8), c)
	want("T0.0 load x v1.2 V1.2 e1.2 d1.2 save t1.2")
	states.states = all[2:3] // between epochs
	fit(t, line(t), regression(8), c)
	want("T0.0 load x E1.0 b1.0 B1.1 save b1.1 B1.2 save v1.2 V1.2 e1.2 d1.2 save t1.2")

	// What was changed for others is put back also after an error.
	broken := errors.New("broken")
	c.Checkpoint = nil
	c.Callbacks = []Callback{{TestBegin: note("v"), TestEnd: note("V"), EpochEnd: note("e"), EpochDone: note("d")}, {
		EpochEnd: func(context.Context, *Run) error { return broken }}}
	if _, err := line(t).Fit(background, regression(8), silent(c)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	want("v0.2 V0.2 e0.2 d0.2")
}

func TestSaveFails(t *testing.T) {
	_, err := line(t).Fit(background, regression(8), silent(FitConfig{Checkpoint: &memory{fail: errors.New("no paper")}}))
	wantError(t, err, "Fit: no paper")
}

func TestSetArrays(t *testing.T) {
	m := Sequential(&layers.Dense{Units: 2})
	check(t, m.Build(3))
	good, err := ArraysOf(m)
	check(t, err)
	before := bits(t, m)
	spoil := func(f func(a []Array) []Array) error { return SetArrays(f(slices.Clone(good)), m) }
	wantError(t, spoil(func(a []Array) []Array { return a[:1] }), "got 1 variables, want 2: dense/bias is missing")
	wantError(t, spoil(func(a []Array) []Array { return append(a, Array{Name: "x"}) }), "got 3 variables, want 2: there is no x")
	wantError(t, spoil(func(a []Array) []Array { a[1].Name = "x"; return a }), "variable 1: got x float32[2], want dense/bias float32[2]")
	wantError(t, spoil(func(a []Array) []Array { a[1].Data = nil; return a }), "variable 1, dense/bias: got 0 bytes, want 8")
	if !same(before, bits(t, m)) {
		t.Error("an error changed variables")
	}
	check(t, SetArrays(good, m))
}

func TestLogsJSON(t *testing.T) {
	for _, x := range []float64{0, 0.1, -1e-300, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN()} {
		b, err := json.Marshal(Logs{{"a", x}})
		check(t, err)
		var got Logs
		check(t, json.Unmarshal(b, &got))
		if math.Float64bits(got[0].Value) != math.Float64bits(x) || got[0].Name != "a" {
			t.Errorf("got %v, want a %v", got, x)
		}
	}
	var l Log
	wantError(t, json.Unmarshal([]byte(`{"Name":"a","Value":"x"}`), &l), `log a: got "x", want a number`)
}

func TestRunMetric(t *testing.T) {
	m := Sequential(&layers.Dense{Units: 1})
	mae := &metrics.MeanAbsoluteError{}
	check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Metrics: []metrics.Metric{mae}}))
	fit(t, m, regression(8), FitConfig{Callbacks: []Callback{{EpochEnd: func(_ context.Context, r *Run) error {
		if r.Metric("mean_absolute_error") != mae || r.Metric("val_mean_absolute_error") != mae || r.Metric("loss") != nil {
			t.Error("Metric finds the wrong one")
		}
		return nil
	}}}})
}
