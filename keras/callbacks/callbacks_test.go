package callbacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

func wantError(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("got error\n\t%v\nwant\n\t%s", err, text)
	}
}

// samples of 4 features and 3 classes.
func samples(n int) *keras.Pipeline {
	x, y := make([]float32, 4*n), make([]int32, n)
	seed := uint32(n)
	for i := range x {
		seed = seed*1664525 + 1013904223
		x[i] = float32(seed>>8)/(1<<23) - 1
	}
	for i := range y {
		y[i] = int32(i % 3)
	}
	return keras.FromTensors(keras.NewTensor(x, n, 4), keras.NewTensor(y, n), nil)
}

func classifier(t testing.TB, o optimizers.Optimizer) *keras.Model {
	t.Helper()
	m := keras.Sequential(&layers.Dense{Units: 5, Activation: "relu"}, &layers.Dropout{Rate: 0.2}, &layers.Dense{Units: 3})
	check(t, m.Compile(keras.CompileConfig{Optimizer: o, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Metrics: []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}}}))
	return m
}

func fit(m *keras.Model, c keras.FitConfig) (*keras.History, string, error) {
	var out bytes.Buffer
	c.Output, c.Verbose, c.BatchSize = &out, keras.VerbositySilent, 8
	h, err := m.Fit(background, samples(24), c)
	return h, out.String(), err
}

// TestResume: callbacks remember what they need: a training that is killed
// after any step and resumed acts, and logs, as one that is not.
func TestResume(t *testing.T) {
	killed := errors.New("killed")
	run := func(dir string, c keras.Checkpointer, die int) (string, error) {
		m := classifier(t, &optimizers.SGD{LearningRate: 0.5, UseEMA: true, EMAMomentum: 0.5})
		stop := &EarlyStopping{Patience: 3, RestoreBestWeights: true}
		h, _, err := fit(m, keras.FitConfig{Epochs: 9, ValidationData: samples(10), Checkpoint: c, SaveEvery: 2, Callbacks: List(
			&SwapEMAWeights{SwapOnEpoch: true},
			stop,
			&ReduceLROnPlateau{Patience: 1, Factor: 0.9, Cooldown: 1, MinDelta: new(0.01)},
			&LearningRateScheduler{Schedule: func(epoch int, rate float64) float64 { return rate * 0.95 }},
			&ModelCheckpoint{File: filepath.Join(dir, "{epoch}-{batch}"), SaveFreq: 4},
			&ModelCheckpoint{File: filepath.Join(dir, "best"), SaveBestOnly: true},
			&CSVLogger{File: filepath.Join(dir, "log.csv")},
			keras.Callback{BatchEnd: func(context.Context, *keras.Run) error {
				if die--; die == 0 {
					return killed
				}
				return nil
			}},
		)})
		if err != nil {
			return "", err
		}
		arrays, err := keras.ArraysOf(m, m.Optimizer())
		check(t, err)
		log, err := os.ReadFile(filepath.Join(dir, "log.csv"))
		check(t, err)
		last, err := os.ReadFile(filepath.Join(dir, "4-3"))
		check(t, err)
		return fmt.Sprint(h, arrays, stop.StoppedEpoch, stop.BestEpoch, string(log), len(last), last), nil
	}
	want, err := run(t.TempDir(), nil, 0)
	check(t, err)
	for _, die := range []int{1, 2, 4, 5, 6, 9, 14} {
		dir, d := t.TempDir(), &checkpoint.Directory{Path: t.TempDir()}
		got, err := run(dir, d, die)
		for i := 0; errors.Is(err, killed) && i < 20; i++ {
			got, err = run(dir, d, max(die, 4))
		}
		check(t, err)
		if got != want {
			t.Errorf("killed every %d steps: got\n%.300s, want\n%.300s", die, got, want)
		}
	}
}

// TestSwapEMAWeights: the validation sees the averages, training does not.
func TestSwapEMAWeights(t *testing.T) {
	ema := func() optimizers.Optimizer {
		return &optimizers.SGD{LearningRate: 0.5, UseEMA: true, EMAMomentum: 0.9}
	}
	weight := func(m *keras.Model) float64 {
		v, err := m.Weights()[0].Float64s()
		check(t, err)
		return v[0]
	}
	for _, onEpoch := range []bool{false, true} {
		m := classifier(t, ema())
		check(t, m.Build(4))
		var seen [5][]float64 // at the last batch's end, during validation, at the epoch's end before and after, at the next beginning
		note := func(i int) func(context.Context, *keras.Run) error {
			return func(_ context.Context, r *keras.Run) error {
				if i > 0 || r.Step == 3 {
					seen[i] = append(seen[i], weight(m))
				}
				return nil
			}
		}
		h, _, err := fit(m, keras.FitConfig{Epochs: 2, ValidationData: samples(10), Callbacks: List(
			keras.Callback{BatchEnd: note(0), EpochEnd: note(2)},
			&SwapEMAWeights{SwapOnEpoch: onEpoch},
			keras.Callback{TestBegin: note(1), EpochEnd: note(3), EpochBegin: note(4)})})
		check(t, err)
		for e := range 2 {
			trained, validated, before, after := seen[0][e], seen[1][e], seen[2][e], seen[3][e]
			if validated == trained || before != trained || (after == validated) != onEpoch || (after == trained) == onEpoch {
				t.Errorf("on epoch %v, epoch %d: got weights %v trained, %v validated, %v and %v at the end", onEpoch, e, trained, validated, before, after)
			}
		}
		if seen[4][1] != seen[0][0] {
			t.Errorf("on epoch %v: training goes on with %v, want %v", onEpoch, seen[4][1], seen[0][0])
		}
		// At the end of training the averages are the weights (Keras:
		// finalize_variable_values), so the last validation can be repeated.
		logs, err := m.Evaluate(background, samples(10))
		check(t, err)
		// In one batch instead of two: another order of float32 additions.
		rel, _ := keras.Float32.Tolerance()
		if got, want := logs.Get("loss"), h.Get("val_loss")[1]; math.Abs(got-want) > rel*want {
			t.Errorf("on epoch %v: got loss %v of the final weights, want %v", onEpoch, got, want)
		}
	}
	_, _, err := fit(classifier(t, &optimizers.SGD{}), keras.FitConfig{Callbacks: List(&SwapEMAWeights{})})
	wantError(t, err, "callback SwapEMAWeights: got an optimizer without averages, want UseEMA: true")
}

func TestTerminateOnNaN(t *testing.T) {
	ended := false
	train := func(c *TerminateOnNaN) (*keras.History, string, error) {
		ended = false
		return fit(classifier(t, &optimizers.SGD{LearningRate: 1e30}), keras.FitConfig{Epochs: 4, Callbacks: List(c,
			keras.Callback{TrainEnd: func(context.Context, *keras.Run) error { ended = true; return nil }})})
	}
	h, text, err := train(&TerminateOnNaN{})
	check(t, err)
	if l := h.Get("loss"); len(l) != 1 || !math.IsNaN(l[0]) && !math.IsInf(l[0], 0) || !ended {
		t.Errorf("got losses %v, TrainEnd %v, want one that is not finite, true", l, ended)
	}
	if want := "Batch 1: Invalid loss, terminating training\n"; text != want {
		t.Errorf("got text %q, want %q", text, want)
	}
	_, _, err = train(&TerminateOnNaN{RaiseError: true})
	if err == nil || !strings.HasPrefix(err.Error(), "callback TerminateOnNaN: the loss is ") ||
		!strings.HasSuffix(err.Error(), " after batch 2 of epoch 1, want a finite number") || ended {
		t.Errorf("got %v, TrainEnd %v", err, ended)
	}
}

func TestLearningRateScheduler(t *testing.T) {
	m := classifier(t, &optimizers.SGD{LearningRate: 0.5})
	h, text, err := fit(m, keras.FitConfig{Epochs: 3, Callbacks: List(&LearningRateScheduler{Verbose: 1,
		Schedule: func(epoch int, rate float64) float64 { return rate / float64(epoch+1) }})})
	check(t, err)
	if got, want := h.Get("learning_rate"), []float64{0.5, 0.25, float64(float32(0.25 / 3))}; !slices.Equal(got, want) {
		t.Errorf("got rates %v, want %v", got, want)
	}
	if want := "\nEpoch 1: LearningRateScheduler setting learning rate to 0.5.\n\nEpoch 2: LearningRateScheduler setting learning rate to 0.25.\n" +
		"\nEpoch 3: LearningRateScheduler setting learning rate to 0.08333333333333333.\n"; text != want {
		t.Errorf("got text %q, want %q", text, want)
	}
}

// TestBackupAndRestore: a training that fails goes on, and what was written
// for it is gone when it is done.
func TestBackupAndRestore(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backup")
	train := func(fail bool, b *BackupAndRestore) (epochs, steps int, err error) {
		h, _, err := fit(classifier(t, &optimizers.Adam{}), keras.FitConfig{Epochs: 4, Callbacks: List(b, keras.Callback{
			BatchEnd: func(_ context.Context, r *keras.Run) error {
				if steps++; fail && r.Epoch == 2 && r.Step == 2 {
					return io.ErrUnexpectedEOF
				}
				return nil
			}})})
		return len(h.Epochs), steps, err
	}
	if _, steps, err := train(true, &BackupAndRestore{Dir: dir}); !errors.Is(err, io.ErrUnexpectedEOF) || steps != 8 {
		t.Fatalf("got %d steps, %v", steps, err)
	}
	epochs, steps, err := train(false, &BackupAndRestore{Dir: dir, DoubleCheckpoint: true, DeleteCheckpoint: new(false)})
	if err != nil || epochs != 4 || steps != 6 {
		t.Errorf("got %d epochs, %d steps, %v, want 4, 6", epochs, steps, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("got %v, %v, want two files", files, err)
	}
	if _, steps, err := train(false, &BackupAndRestore{Dir: dir}); err != nil || steps != 0 {
		t.Errorf("after the end: got %d steps, %v, want 0", steps, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

func TestModelCheckpointFiles(t *testing.T) {
	dir := t.TempDir()
	m := classifier(t, &optimizers.Adam{})
	_, _, err := fit(m, keras.FitConfig{Epochs: 2, ValidationData: samples(10), Callbacks: List(
		&ModelCheckpoint{File: filepath.Join(dir, "sub", "{epoch:02d}.ckpt")},
		&ModelCheckpoint{File: filepath.Join(dir, "best.ckpt"), Monitor: "val_accuracy", SaveBestOnly: true})})
	check(t, err)
	other := classifier(t, &optimizers.Adam{})
	check(t, other.Build(4))
	check(t, checkpoint.LoadWeights(filepath.Join(dir, "sub", "02.ckpt"), other))
	for i, w := range m.Weights() {
		want, err := w.Bytes()
		check(t, err)
		got, err := other.Weights()[i].Bytes()
		check(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("weight %s was read with other values than written", w.Name())
		}
	}
	check(t, checkpoint.LoadWeights(filepath.Join(dir, "best.ckpt"), other))
}

// TestModelCheckpointSuffixes: the suffix of the name says what is written.
func TestModelCheckpointSuffixes(t *testing.T) {
	dir := t.TempDir()
	for suffix, load := range map[string]func(path string, m *keras.Model) error{
		".keras":       func(path string, m *keras.Model) error { return saving.LoadWeights(path, m) },
		".weights.h5":  func(path string, m *keras.Model) error { return saving.LoadWeights(path, m) },
		".safetensors": saving.LoadSafetensors,
		".npz":         saving.LoadNPZ,
		".ckpt":        checkpoint.LoadWeights,
		"":             checkpoint.LoadWeights,
	} {
		path := filepath.Join(dir, "best"+suffix)
		m := classifier(t, &optimizers.SGD{})
		_, _, err := fit(m, keras.FitConfig{Callbacks: List(&ModelCheckpoint{File: path})})
		check(t, err)
		other := classifier(t, &optimizers.SGD{})
		check(t, other.Build(4))
		check(t, other.SetSeed(9))
		check(t, load(path, other))
		want, err := m.Weights()[0].Bytes()
		check(t, err)
		if got, err := other.Weights()[0].Bytes(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q: other weights were read than written: %v", suffix, err)
		}
	}
	if _, err := saving.Load(filepath.Join(dir, "best.keras")); err != nil {
		t.Errorf("no whole model: %v", err)
	}
	if got, _ := filepath.Glob(filepath.Join(dir, "*")); len(got) != 6 {
		t.Errorf("got the files %q, want 6", got)
	}
}

// TestNowhere: files that cannot be written are found before the first step.
func TestNowhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o644))
	for name, c := range map[string]Maker{
		"CSVLogger":        &CSVLogger{File: filepath.Join(file, "log.csv")},
		"ModelCheckpoint":  &ModelCheckpoint{File: filepath.Join(file, "{epoch}.keras")},
		"BackupAndRestore": &BackupAndRestore{Dir: filepath.Join(file, "backup")},
		"TensorBoard":      &TensorBoard{LogDir: filepath.Join(file, "logs")},
	} {
		steps := 0
		_, _, err := fit(classifier(t, &optimizers.SGD{}), keras.FitConfig{Callbacks: List(c,
			keras.Callback{BatchBegin: func(context.Context, *keras.Run) error { steps++; return nil }})})
		if err == nil || !strings.Contains(err.Error(), file) || steps > 0 {
			t.Errorf("%s: got %v after %d steps, want an error that names %s before the first", name, err, steps, file)
		}
	}
}

// TestCSVLoggerLost: a table that was lost since the checkpoint.
func TestCSVLoggerLost(t *testing.T) {
	file, d := filepath.Join(t.TempDir(), "log.csv"), &checkpoint.Directory{Path: t.TempDir()}
	train := func(epochs int) error {
		_, _, err := fit(classifier(t, &optimizers.SGD{}), keras.FitConfig{Epochs: epochs, Checkpoint: d, Callbacks: List(&CSVLogger{File: file})})
		return err
	}
	check(t, train(1))
	info, err := os.Stat(file)
	check(t, err)
	check(t, os.Remove(file))
	wantError(t, train(2), fmt.Sprintf("Fit: resuming from %s: callback CSVLogger: %s: got 0 bytes, want the %d that were written before the checkpoint; put it back, or leave the callback out",
		filepath.Join(d.Path, "epoch-00001-step-00000000.ckpt"), file, info.Size()))
}

// TestErrors: arguments that make no sense, and logs that are not there.
func TestErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	for _, c := range []struct {
		c    Maker
		want string
	}{
		{&EarlyStopping{}, `callback EarlyStopping: Monitor: got "val_loss", want one of accuracy, loss, gradient_norm, learning_rate; give ValidationData, or another Monitor`},
		{&EarlyStopping{Monitor: "los"}, `callback EarlyStopping: Monitor: got "los", did you mean "loss"? want one of accuracy, loss, gradient_norm, learning_rate`},
		{&EarlyStopping{Monitor: "gradient_norm"}, `callback EarlyStopping: Mode: whether less or more of "gradient_norm" is better is not known, want min or max`},
		{&EarlyStopping{Monitor: "loss", Mode: "most"}, `callback EarlyStopping: Mode: got "most", want min, max or nothing`},
		{&EarlyStopping{Patience: -1}, "callback EarlyStopping: Patience: got -1, want 0 or more"},
		{&ReduceLROnPlateau{Factor: 1}, "callback ReduceLROnPlateau: Factor: got 1, want more than 0 and less than 1"},
		{&LearningRateScheduler{}, "callback LearningRateScheduler: Schedule: got nil, want a function"},
		{&ModelCheckpoint{}, "callback ModelCheckpoint: no File given"},
		{&ModelCheckpoint{File: file, SaveFreq: -1}, "callback ModelCheckpoint: SaveFreq: got -1, want a number of batches, or 0 for each epoch"},
		{&ModelCheckpoint{File: "{epohc}"}, `callback ModelCheckpoint: file name "{epohc}": got {epohc}, want one of epoch, accuracy, loss, gradient_norm, learning_rate`},
		{&ModelCheckpoint{File: "{loss:02d}"}, `callback ModelCheckpoint: file name "{loss:02d}": loss: got the format "02d", want one such as 02d for counts and .4f for other numbers`},
		{&ModelCheckpoint{File: "{epoch"}, `callback ModelCheckpoint: file name "{epoch": there is a single "{"; want {name}, {name:format}, or "{{" for the character`},
		{&ModelCheckpoint{File: "model.h5"}, `callback ModelCheckpoint: File: got "model.h5", want .keras for whole models or .weights.h5 for weights`},
		{&CSVLogger{}, "callback CSVLogger: no File given"},
		{&CSVLogger{File: file, Separator: ", "}, `callback CSVLogger: Separator: got ", ", want one character`},
		{&BackupAndRestore{}, "callback BackupAndRestore: no Dir given"},
		{&BackupAndRestore{Dir: file, SaveFreq: -1}, "callback BackupAndRestore: SaveFreq: got -1, want a number of steps, or 0 for the ends of epochs"},
	} {
		_, _, err := fit(classifier(t, &optimizers.SGD{}), keras.FitConfig{Epochs: 3, Callbacks: List(c.c)})
		wantError(t, err, c.want)
	}
	_, _, err := fit(classifier(t, &optimizers.SGD{}), keras.FitConfig{Callbacks: List(&BackupAndRestore{Dir: file}, &BackupAndRestore{Dir: file})})
	wantError(t, err, "callback BackupAndRestore: Fit has a Checkpoint already; use one of the two")
	scheduled := &optimizers.SGD{Schedule: &optimizers.ExponentialDecay{InitialLearningRate: 1, DecaySteps: 1, DecayRate: 1}}
	_, _, err = fit(classifier(t, scheduled), keras.FitConfig{Epochs: 3, Callbacks: List(&ReduceLROnPlateau{Monitor: "loss", Patience: 1, MinDelta: new(100.0)})})
	wantError(t, err, "callback ReduceLROnPlateau: optimizer sgd: SetLearningRate: the rate is determined by the Schedule *optimizers.ExponentialDecay")
	// In epochs without validation there is nothing to watch.
	h, _, err := fit(classifier(t, &optimizers.SGD{}), keras.FitConfig{Epochs: 4, ValidationData: samples(10), ValidationFreq: 2,
		Callbacks: List(&EarlyStopping{Patience: 9}, &ReduceLROnPlateau{}, &ModelCheckpoint{File: file, SaveBestOnly: true})})
	if err != nil || len(h.Epochs) != 4 {
		t.Errorf("got %v, %v", h.Epochs, err)
	}
}
