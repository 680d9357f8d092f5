package callbacks

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// trained is what Keras's callbacks do in trainings of one weight: see
// testdata/make_fit.py.
type trained struct {
	Kind, Name string
	Config     struct {
		Epochs         int
		InitialEpoch   int `json:"initial_epoch"`
		ValidationFreq int `json:"validation_freq"`
		Held           []float64
	}
	Stop          int
	Lines         []string
	Epochs        []int
	History       map[string][]float64
	Rates, Logged []float64
	Text          string
	Values        []wrapped
	Steps         int
	Ended         string
	Swap, Keep    bool
	Weights       []moment
	ValLoss       []float64 `json:"val_loss"`
	Final         float64
	Lives         [][]string
	Left          bool
	Update        int
	Tags          []tag
}

// wrapped is a number that may be {"x": "nan"}.
type wrapped float64

func (w *wrapped) UnmarshalJSON(b []byte) error {
	var r row
	if err := json.Unmarshal(fmt.Appendf(nil, `{"x":%s}`, b), &r); err != nil {
		return err
	}
	*w = wrapped(r[0].Value)
	return nil
}

// moment is the weight at a moment.
type moment struct {
	what   string
	weight float64
}

func (m *moment) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&m.what, &m.weight})
}

// tag is a scalar of an event file.
type tag struct {
	name  string
	step  int64
	value float64
}

func (g *tag) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&g.name, &g.step, &g.value})
}

var (
	trainX = []float64{1, -2, 0.5, 3, -1, 2}
	heldX  = []float64{0.25, 4}
)

func column[T ~float64](values []T) *keras.Pipeline {
	x := make([]float32, len(values))
	for i, v := range values {
		x[i] = float32(v)
	}
	n := len(x)
	return keras.FromTensors(keras.NewTensor(x, n, 1), keras.NewTensor(make([]float32, n), n, 1), nil)
}

// scalar is the model y = w·x.
func scalar(t testing.TB, sgd *optimizers.SGD, rate float64) *keras.Model {
	t.Helper()
	m := keras.Sequential(&layers.Dense{Units: 1, UseBias: new(false), KernelInitializer: "ones"})
	check(t, m.Build(1))
	sgd.LearningRate = cmpRate(rate)
	check(t, m.Compile(keras.CompileConfig{Loss: &losses.MeanAbsoluteError{}, Optimizer: sgd}))
	check(t, sgd.SetLearningRate(rate)) // 0 as a field is the default
	return m
}

func cmpRate(rate float64) float64 {
	if rate == 0 {
		return 1
	}
	return rate
}

func weightOf(t testing.TB, m *keras.Model) float64 {
	t.Helper()
	v, err := m.Weights()[0].Float64s()
	check(t, err)
	return v[0]
}

// run is Fit in the order of the data.
func (c *trained) run(m *keras.Model, data *keras.Pipeline, batch, epochs int, cs ...Maker) (*keras.History, string, error) {
	var out bytes.Buffer
	f := keras.FitConfig{BatchSize: batch, Epochs: epochs, InitialEpoch: c.Config.InitialEpoch, ValidationFreq: c.Config.ValidationFreq,
		Shuffle: new(false), Output: &out, Verbose: keras.VerbositySilent, Callbacks: List(cs...)}
	if c.Config.Held != nil {
		f.ValidationData = column(c.Config.Held)
	}
	h, err := m.Fit(background, data, f)
	return h, out.String(), err
}

// lines writes down what happens, as Log of make_fit.py does.
func lines(stop int, to *[]string) keras.Callback {
	say := func(format string, args ...any) { *to = append(*to, fmt.Sprintf(format, args...)) }
	batches := 0
	return keras.Callback{
		TrainBegin: func(context.Context, *keras.Run) error { say("train begin"); return nil },
		TrainEnd:   func(context.Context, *keras.Run) error { say("train end"); return nil },
		EpochBegin: func(_ context.Context, r *keras.Run) error { say("epoch begin %d", r.Epoch); return nil },
		EpochEnd: func(_ context.Context, r *keras.Run) error {
			var names []string
			for _, l := range r.Logs {
				if l.Name != "learning_rate" && l.Name != "gradient_norm" { // the latter is not in Keras
					names = append(names, l.Name)
				}
			}
			slices.Sort(names)
			say("epoch end %d %s", r.Epoch, strings.Join(names, " "))
			return nil
		},
		BatchBegin: func(_ context.Context, r *keras.Run) error { say("batch begin %d", r.Step); return nil },
		BatchEnd: func(_ context.Context, r *keras.Run) error {
			say("batch end %d", r.Step-1)
			if batches++; batches == stop {
				r.Stop = true
			}
			return nil
		},
		TestBegin: func(context.Context, *keras.Run) error { say("test begin"); return nil },
		TestEnd:   func(context.Context, *keras.Run) error { say("test end"); return nil },
	}
}

func TestKerasFit(t *testing.T) {
	b, err := os.ReadFile("testdata/fit.json")
	check(t, err)
	var file struct{ Cases []trained }
	check(t, json.Unmarshal(b, &file))
	kinds := map[string]func(*testing.T, *trained){"order": order, "rates": rates, "nan": nans, "ema": averaged, "backup": backup, "tensorboard": board}
	seen := map[string]bool{}
	for i := range file.Cases {
		c := &file.Cases[i]
		seen[c.Kind] = true
		t.Run(c.Kind+"/"+c.Name, func(t *testing.T) { kinds[c.Kind](t, c) })
	}
	if len(seen) != len(kinds) {
		t.Errorf("got cases of %v", seen)
	}
}

// order: hooks are called as Keras calls them, and History has the same.
func order(t *testing.T, c *trained) {
	var got []string
	h, _, err := c.run(scalar(t, &optimizers.SGD{}, 0), column(trainX), 2, c.Config.Epochs, lines(c.Stop, &got))
	check(t, err)
	if !slices.Equal(got, c.Lines) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.Lines, "\n"))
	}
	if !slices.Equal(h.Epochs, c.Epochs) {
		t.Errorf("got the epochs %v, want %v", h.Epochs, c.Epochs)
	}
	for name, want := range c.History {
		var got []float64
		for _, l := range h.Logs { // Keras leaves out epochs without validation
			if l.Has(name) {
				got = append(got, l.Get(name))
			}
		}
		near(t, name, got, want)
	}
}

// near compares numbers that went through a few float32 operations.
func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	rel, abs := keras.Float32.Tolerance()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = math.Abs(got[i]-want[i]) <= abs+rel*math.Abs(want[i])
	}
	if !ok {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// rates: LearningRateScheduler sets, logs and prints as Keras's.
func rates(t *testing.T, c *trained) {
	schedule := map[string]func(epoch int, rate float64) float64{
		"halves": func(_ int, rate float64) float64 { return rate / 2 },
		"steps": func(epoch int, _ float64) float64 {
			if epoch < 2 {
				return 0.1
			}
			return 0.01
		},
		"keeps":  func(_ int, rate float64) float64 { return rate },
		"counts": func(epoch int, _ float64) float64 { return 1 / float64(epoch+1) },
	}[c.Name]
	m := scalar(t, &optimizers.SGD{}, 0.1)
	var got []float64
	h, text, err := c.run(m, column(trainX), 2, 5, &LearningRateScheduler{Schedule: schedule, Verbose: 1},
		keras.Callback{EpochEnd: func(context.Context, *keras.Run) error {
			rate, err := optimizers.CurrentLearningRate(m.Optimizer())
			got = append(got, rate)
			return err
		}})
	check(t, err)
	if !slices.Equal(got, c.Rates) || !slices.Equal(h.Get("learning_rate"), c.Logged) {
		t.Errorf("got rates %v, logged %v, want %v and %v", got, h.Get("learning_rate"), c.Rates, c.Logged)
	}
	if text != c.Text {
		t.Errorf("got text %q, want %q", text, c.Text)
	}
}

// nans: TerminateOnNaN stops after the same batch.
func nans(t *testing.T, c *trained) {
	var got []string
	h, text, err := c.run(scalar(t, &optimizers.SGD{}, 0), column(c.Values), 1, 2, &TerminateOnNaN{}, lines(0, &got))
	check(t, err)
	steps := 0
	for _, l := range got {
		if strings.HasPrefix(l, "batch end") {
			steps++
		}
	}
	if steps != c.Steps || !slices.Equal(h.Epochs, c.Epochs) || got[len(got)-1] != c.Ended || text != c.Text {
		t.Errorf("got %d steps, epochs %v, %q in the end, text %q, want %d, %v, %q, %q", steps, h.Epochs, got[len(got)-1], text, c.Steps, c.Epochs, c.Ended, c.Text)
	}
}

// averaged: SwapEMAWeights shows the same weights at every moment.
func averaged(t *testing.T, c *trained) {
	m := scalar(t, &optimizers.SGD{UseEMA: true, EMAMomentum: 0.5}, 0.125)
	var got []moment
	note := func(what string) func(context.Context, *keras.Run) error {
		return func(context.Context, *keras.Run) error {
			got = append(got, moment{what, weightOf(t, m)})
			return nil
		}
	}
	c.Config.Held = heldX
	h, _, err := c.run(m, column(trainX), 2, 3, &SwapEMAWeights{SwapOnEpoch: c.Swap}, keras.Callback{EpochBegin: note("epoch begin"),
		BatchEnd: note("batch end"), TestBegin: note("test begin"), TestEnd: note("test end"), EpochEnd: note("epoch end")})
	check(t, err)
	var names, wantNames []string
	var weights, wantWeights []float64
	for _, g := range got {
		names, weights = append(names, g.what), append(weights, g.weight)
	}
	for _, w := range c.Weights {
		wantNames, wantWeights = append(wantNames, w.what), append(wantWeights, w.weight)
	}
	if !slices.Equal(names, wantNames) {
		t.Errorf("got moments %v, want %v", names, wantNames)
	}
	near(t, "weights", weights, wantWeights)
	near(t, "val_loss", h.Get("val_loss"), c.ValLoss)
	near(t, "final weight", []float64{weightOf(t, m)}, []float64{c.Final})
}

// backup: BackupAndRestore goes on with the same epoch, and leaves the same
// behind.
func backup(t *testing.T, c *trained) {
	dir := filepath.Join(t.TempDir(), "backup")
	failed, broken := false, errors.New("power cut")
	var m *keras.Model
	for _, want := range c.Lives {
		m = scalar(t, &optimizers.SGD{}, 0.125)
		var got []string
		_, _, err := c.run(m, column(trainX), 2, 4, &BackupAndRestore{Dir: dir, DeleteCheckpoint: new(!c.Keep)},
			keras.Callback{EpochBegin: func(_ context.Context, r *keras.Run) error {
				got = append(got, fmt.Sprintf("epoch begin %d", r.Epoch))
				if r.Epoch == 2 && !failed {
					failed = true
					return broken
				}
				return nil
			}})
		if err != nil && !errors.Is(err, broken) {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	near(t, "final weight", []float64{weightOf(t, m)}, []float64{c.Final})
	if left, _ := os.ReadDir(dir); len(left) > 0 != c.Left {
		t.Errorf("got %d files that are left, want some: %v", len(left), c.Left)
	}
}

// board: TensorBoard writes the same scalars at the same steps. Mezzo's logs
// have the gradient norm besides.
func board(t *testing.T, c *trained) {
	dir := t.TempDir()
	_, _, err := c.run(scalar(t, &optimizers.SGD{}, 0.125), column(trainX), 2, 2, &TensorBoard{LogDir: dir, WithoutGraph: true, UpdateFreq: c.Update})
	check(t, err)
	got := scalars(t, events(t, filepath.Join(dir, "train")))
	if c.Config.Held != nil {
		got = append(got, scalars(t, events(t, filepath.Join(dir, "validation")))...)
	}
	got = slices.DeleteFunc(got, func(g tag) bool { return strings.HasSuffix(g.name, "gradient_norm") })
	sorted := func(all []tag) {
		slices.SortStableFunc(all, func(a, b tag) int {
			return strings.Compare(fmt.Sprintf("%s %d %.4f", a.name, a.step, a.value), fmt.Sprintf("%s %d %.4f", b.name, b.step, b.value))
		})
	}
	sorted(got)
	sorted(c.Tags)
	var names, want []string
	var values, wantValues []float64
	for _, g := range got {
		names, values = append(names, fmt.Sprint(g.name, " ", g.step)), append(values, g.value)
	}
	for _, g := range c.Tags {
		want, wantValues = append(want, fmt.Sprint(g.name, " ", g.step)), append(wantValues, g.value)
	}
	if !slices.Equal(names, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(names, "\n"), strings.Join(want, "\n"))
	}
	near(t, "values", values, wantValues)
}

// scalars decodes those of an event file.
func scalars(t *testing.T, file []byte) []tag {
	t.Helper()
	fields := func(b []byte, each func(n protowire.Number, v []byte, x uint64)) {
		for len(b) > 0 {
			n, kind, k := protowire.ConsumeTag(b)
			if k < 0 {
				t.Fatal("a damaged event")
			}
			b = b[k:]
			switch kind {
			case protowire.BytesType:
				v, k := protowire.ConsumeBytes(b)
				each(n, v, 0)
				b = b[k:]
			case protowire.VarintType:
				x, k := protowire.ConsumeVarint(b)
				each(n, nil, x)
				b = b[k:]
			default:
				b = b[protowire.ConsumeFieldValue(n, kind, b):]
			}
		}
	}
	var out []tag
	for len(file) > 0 {
		n := binary.LittleEndian.Uint64(file)
		event := file[12 : 12+n]
		file = file[16+n:]
		var step int64
		fields(event, func(n protowire.Number, v []byte, x uint64) {
			if n == 2 {
				step = int64(x)
			}
			if n != 5 {
				return
			}
			fields(v, func(_ protowire.Number, value []byte, _ uint64) {
				g := tag{step: step, value: math.NaN()}
				fields(value, func(n protowire.Number, v []byte, _ uint64) {
					switch n {
					case 1:
						g.name = string(v)
					case 8:
						fields(v, func(n protowire.Number, v []byte, _ uint64) {
							if n == 5 {
								g.value = float64(math.Float32frombits(binary.LittleEndian.Uint32(v)))
							}
						})
					}
				})
				if !math.IsNaN(g.value) {
					out = append(out, g)
				}
			})
		})
	}
	return out
}
