package callbacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// scripted is what Keras's callbacks do on scripted logs: see
// testdata/make_callbacks.py.
type scripted struct {
	Kind, Name string
	Config     struct {
		Patience       int
		Mode           Mode
		MinDelta       *float64 `json:"min_delta"`
		Baseline       *float64
		Restore        bool `json:"restore_best_weights"`
		StartFromEpoch int  `json:"start_from_epoch"`
		Factor         float64
		Cooldown       int
		MinLR          float64  `json:"min_lr"`
		File           string   `json:"filepath"`
		BestOnly       bool     `json:"save_best_only"`
		Threshold      *float64 `json:"initial_value_threshold"`
		SaveFreq       int      `json:"save_freq"`
		Separator      string
		Append         bool
	}
	Values       []float64
	Logs, First  []row
	Steps        int
	Stopped      int
	StoppedEpoch int `json:"stopped_epoch"`
	BestEpoch    int `json:"best_epoch"`
	Restored     int
	Rates        []float64
	Saved        []string
	Text         string
}

// row is a dict of logs, in order.
type row keras.Logs

func (r *row) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.Token()
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		var wrapped struct{ X string }
		if json.Unmarshal(raw, &wrapped) == nil {
			raw = []byte(wrapped.X)
		}
		x, err := strconv.ParseFloat(string(raw), 64)
		if err != nil {
			return err
		}
		*r = append(*r, keras.Log{Name: k.(string), Value: x})
	}
	return nil
}

var background = context.Background()

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// model is compiled, and has one weight of one element.
func model(t testing.TB) *keras.Model {
	t.Helper()
	m := keras.Sequential(&layers.Dense{Units: 1, UseBias: new(false)})
	check(t, m.Build(1))
	check(t, m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{LearningRate: 0.1}}))
	return m
}

// script runs the hooks of a callback as Fit does.
type script struct {
	t   testing.TB
	c   keras.Callback
	run *keras.Run
	out bytes.Buffer
}

func play(t testing.TB, m *keras.Model, c Maker) *script {
	s := &script{t: t, c: c.Callback(), run: &keras.Run{Model: m}}
	s.run.Config.Output = &s.out
	s.hook(s.c.TrainBegin)
	return s
}

func (s *script) hook(f func(context.Context, *keras.Run) error) {
	s.t.Helper()
	if f != nil {
		check(s.t, f(background, s.run))
	}
}

// epochEnd ends an epoch. The callback goes through a checkpoint first: that
// must make no difference.
func (s *script) epochEnd(epoch int, logs keras.Logs) {
	s.t.Helper()
	if s.c.Save != nil {
		state, err := s.c.Save()
		check(s.t, err)
		b, err := json.Marshal(state)
		check(s.t, err)
		state = keras.CallbackState{}
		check(s.t, json.Unmarshal(b, &state))
		s.hook(s.c.TrainBegin)
		check(s.t, s.c.Load(state))
	}
	s.run.Epoch, s.run.Logs = epoch, slices.Clone(logs)
	s.hook(s.c.EpochEnd)
}

func (s *script) wantText(want string) {
	s.t.Helper()
	if got := s.out.String(); got != want {
		s.t.Errorf("got text %q, want %q", got, want)
	}
}

func TestKeras(t *testing.T) {
	b, err := os.ReadFile("testdata/callbacks.json")
	check(t, err)
	var file struct{ Cases []scripted }
	check(t, json.Unmarshal(b, &file))
	if len(file.Cases) < 100 {
		t.Fatalf("got %d cases", len(file.Cases))
	}
	kinds := map[string]func(*testing.T, *scripted){"early": early, "plateau": plateau, "save": saves, "csv": table}
	for i := range file.Cases {
		c := &file.Cases[i]
		t.Run(fmt.Sprintf("%s/%d/%s", c.Kind, i, c.Name), func(t *testing.T) { kinds[c.Kind](t, c) })
	}
}

func early(t *testing.T, c *scripted) {
	m := model(t)
	e := &EarlyStopping{Verbose: 1, Patience: c.Config.Patience, Mode: c.Config.Mode, Baseline: c.Config.Baseline,
		RestoreBestWeights: c.Config.Restore, StartFromEpoch: c.Config.StartFromEpoch}
	if d := c.Config.MinDelta; d != nil {
		e.MinDelta = *d
	}
	s := play(t, m, e)
	set := func(x int) { check(t, m.Weights()[0].Set([]float64{float64(x)})) }
	stopped := -1
	for i, v := range c.Values {
		set(i)
		s.epochEnd(i, keras.Logs{{Name: "val_loss", Value: v}})
		if s.run.Stop {
			stopped = i
			break
		}
	}
	set(-1)
	s.hook(s.c.TrainEnd)
	s.wantText(c.Text)
	w, err := m.Weights()[0].Float64s()
	check(t, err)
	if stopped != c.Stopped || e.StoppedEpoch != c.StoppedEpoch || e.BestEpoch != c.BestEpoch || int(w[0]) != c.Restored {
		t.Errorf("got stopped %d, %d, best %d, restored %v, want %d, %d, %d, %d", stopped, e.StoppedEpoch, e.BestEpoch, w[0],
			c.Stopped, c.StoppedEpoch, c.BestEpoch, c.Restored)
	}
}

func plateau(t *testing.T, c *scripted) {
	m := model(t)
	s := play(t, m, &ReduceLROnPlateau{Verbose: 1, Patience: c.Config.Patience, Factor: c.Config.Factor, Mode: c.Config.Mode,
		MinDelta: c.Config.MinDelta, Cooldown: c.Config.Cooldown, MinLR: c.Config.MinLR})
	var rates []float64
	for i, v := range c.Values {
		s.epochEnd(i, keras.Logs{{Name: "val_loss", Value: v}})
		rate, err := optimizers.CurrentLearningRate(m.Optimizer())
		check(t, err)
		rates = append(rates, rate)
	}
	if !slices.Equal(rates, c.Rates) {
		t.Errorf("got rates %v, want %v", rates, c.Rates)
	}
	s.wantText(c.Text)
}

func saves(t *testing.T, c *scripted) {
	var saved []string
	s := play(t, model(t), &ModelCheckpoint{Verbose: 1, File: c.Config.File, SaveBestOnly: c.Config.BestOnly, Mode: c.Config.Mode,
		InitialValueThreshold: c.Config.Threshold, SaveFreq: c.Config.SaveFreq,
		Save: func(file string, _ *keras.Model) error { saved = append(saved, file); return nil }})
	for i, l := range c.Logs {
		s.run.Epoch = i
		for b := range c.Steps {
			s.run.Step = b + 1
			s.hook(s.c.BatchEnd)
		}
		s.epochEnd(i, keras.Logs(l))
	}
	if !slices.Equal(saved, c.Saved) {
		t.Errorf("got files %q, want %q", saved, c.Saved)
	}
	s.wantText(c.Text)
}

func table(t *testing.T, c *scripted) {
	file := filepath.Join(t.TempDir(), "log.csv")
	parts := [][]row{c.Logs}
	if len(c.First) > 0 {
		parts = [][]row{c.First, c.Logs}
	}
	for _, logs := range parts {
		s := play(t, model(t), &CSVLogger{File: file, Separator: c.Config.Separator, Append: c.Config.Append})
		for i, l := range logs {
			s.epochEnd(i, keras.Logs(l))
		}
		s.hook(s.c.TrainEnd)
	}
	b, err := os.ReadFile(file)
	check(t, err)
	if string(b) != c.Text {
		t.Errorf("got\n%q\nwant\n%q", b, c.Text)
	}
}

// TestRepr compares with Python's repr at the edges.
func TestRepr(t *testing.T) {
	for _, c := range []struct {
		x    float64
		want string
	}{
		{0, "0.0"}, {math.Copysign(0, -1), "-0.0"}, {1, "1.0"}, {-2.5, "-2.5"}, {0.0001, "0.0001"}, {0.00001, "1e-05"},
		{1e15, "1000000000000000.0"}, {1e16, "1e+16"}, {1.5e300, "1.5e+300"}, {0.1, "0.1"}, {math.Inf(1), "inf"}, {math.Inf(-1), "-inf"},
		{math.NaN(), "nan"}, {5e-324, "5e-324"}, {123456789.125, "123456789.125"},
	} {
		if got := repr(c.x); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
