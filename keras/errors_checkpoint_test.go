package keras_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/callbacks"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

func init() {
	for name, f := range map[string]func(t *testing.T) error{
		"Damaged checkpoint": func(t *testing.T) error {
			return weightsError(t, func(b []byte) []byte { b[bytes.LastIndex(b, one)+2] ^= 1; return b }, 3)
		},
		"Truncated checkpoint": func(t *testing.T) error {
			return weightsError(t, func(b []byte) []byte { return b[:len(b)-40] }, 3)
		},
		"File that is no checkpoint": func(t *testing.T) error {
			return weightsError(t, func(b []byte) []byte { return bytes.Repeat([]byte("weights\n"), 20) }, 3)
		},
		"Checkpoint of another version": func(t *testing.T) error {
			return weightsError(t, func(b []byte) []byte { b[8]++; return b }, 3)
		},
		"Newest checkpoint that cannot be read": func(t *testing.T) error {
			dir, c := t.TempDir(), quiet
			c.Checkpoint = &checkpoint.Directory{Path: dir}
			if _, err := classifier(t).Fit(context.Background(), samples(8, 4, 3), c); err != nil {
				return err
			}
			all, err := (&checkpoint.Directory{Path: dir}).Files()
			if err != nil {
				return err
			}
			b, err := os.ReadFile(all[0])
			if err != nil {
				return err
			}
			b[8]++
			if err := os.WriteFile(all[0], b, 0o644); err != nil {
				return err
			}
			if _, err = classifier(t).Fit(context.Background(), samples(8, 4, 3), c); err == nil {
				return nil
			}
			return elsewhereError{err, dir}
		},
		"Weights of another shape": func(t *testing.T) error {
			return weightsError(t, func(b []byte) []byte { return b }, 5)
		},
		"Resumed with another batch size": func(t *testing.T) error { return resumeError(t, 4, &optimizers.SGD{}) },
		"Resumed with another optimizer":  func(t *testing.T) error { return resumeError(t, 2, &optimizers.Adam{}) },
		"Directory that is in use": func(t *testing.T) error {
			dir := t.TempDir()
			release, err := (&checkpoint.Directory{Path: dir}).Lock()
			if err != nil {
				return err
			}
			defer release()
			_, err = classifier(t).Fit(context.Background(), samples(8, 4, 3), keras.FitConfig{Verbose: keras.VerbositySilent, Checkpoint: &checkpoint.Directory{Path: dir}})
			if !errors.Is(err, checkpoint.ErrInUse) {
				t.Errorf("got %v, want a directory in use", err)
			}
			return numberless{elsewhereError{err, dir}}
		},
		"Dataset that fails within an epoch": func(t *testing.T) error {
			c := quiet
			c.BatchSize, c.Checkpoint = 0, &checkpoint.Directory{Path: t.TempDir()}
			d := data.Map(data.Range(0, 4), func(_ context.Context, i int) (keras.Batch, error) {
				if i == 2 {
					return keras.Batch{}, errors.New("photos/7.jpg: unexpected EOF")
				}
				return keras.Batch{X: keras.NewTensor(make([]float32, 8), 2, 4), Y: keras.NewTensor([]int32{0, 1}, 2)}, nil
			})
			_, err := classifier(t).Fit(context.Background(), d, c)
			return err
		},
		"Interrupted training": func(t *testing.T) error {
			ctx, cancel := context.WithCancel(context.Background())
			_, err := classifier(t).Fit(ctx, samples(8, 4, 3), keras.FitConfig{Verbose: keras.VerbositySilent, BatchSize: 2, Checkpoint: &checkpoint.Directory{Path: t.TempDir()},
				Callbacks: []keras.Callback{{BatchEnd: func(context.Context, *keras.Run) error { cancel(); return nil }}}})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want a context that was cancelled", err)
			}
			return err
		},
		"Monitor that is not in the logs": func(t *testing.T) error { return callbackError(t, &callbacks.EarlyStopping{}) },
		"Monitor without a direction": func(t *testing.T) error {
			return callbackError(t, &callbacks.EarlyStopping{Monitor: "gradient_norm"})
		},
		"Unknown name in a file name": func(t *testing.T) error {
			return callbackError(t, &callbacks.ModelCheckpoint{File: "{epoch:02d}-{val_loss:.2f}.ckpt"})
		},
		"Averages that the optimizer does not keep": func(t *testing.T) error {
			return callbackError(t, &callbacks.SwapEMAWeights{})
		},
		"Learning rate of a schedule": func(t *testing.T) error {
			m := classifier(t)
			err := m.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Optimizer: &optimizers.SGD{
				Schedule: &optimizers.ExponentialDecay{InitialLearningRate: 1, DecaySteps: 1, DecayRate: 1}}})
			if err != nil {
				return err
			}
			halve := func(_ int, rate float64) float64 { return rate / 2 }
			_, err = m.Fit(context.Background(), samples(8, 4, 3), keras.FitConfig{Verbose: keras.VerbositySilent,
				Callbacks: callbacks.List(&callbacks.LearningRateScheduler{Schedule: halve})})
			return err
		},
	} {
		errorCases[name] = f
	}
	elsewhere["Full disk while a checkpoint is saved"] = true // TestFullDisk of keras/checkpoint
}

// one is the float32 1.
var one = []byte{0, 0, 0x80, 0x3f}

// weightsError saves the weights of a model of 3 classes, spoils the file and
// loads it into one of so many.
func weightsError(t *testing.T, spoil func([]byte) []byte, units int) error {
	model := func(units int) *keras.Model {
		m := keras.Sequential(&layers.Dense{Units: units, Name: "head", KernelInitializer: "ones"})
		if err := m.Build(4); err != nil {
			t.Fatal(err)
		}
		return m
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "w.ckpt")
	if err := checkpoint.SaveWeights(path, model(3)); err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, spoil(b), 0o644); err != nil {
		return err
	}
	if err = checkpoint.LoadWeights(path, model(units)); err == nil {
		return nil
	}
	return elsewhereError{err, dir}
}

// elsewhereError is an error with the directory of a test left out.
type elsewhereError struct {
	error
	dir string
}

func (e elsewhereError) Error() string { return strings.ReplaceAll(e.error.Error(), e.dir, "DIR") }
func (e elsewhereError) Unwrap() error { return e.error }

// numberless is an error with the number of this process left out.
type numberless struct{ error }

func (e numberless) Error() string {
	return strings.ReplaceAll(e.error.Error(), strconv.Itoa(os.Getpid()), "4711")
}
func (e numberless) Unwrap() error { return e.error }

// resumeError trains with SGD and batches of 2 until it fails, and goes on
// with others.
func resumeError(t *testing.T, batch int, o optimizers.Optimizer) error {
	c, dir := quiet, t.TempDir()
	c.Epochs, c.Checkpoint = 3, &checkpoint.Directory{Path: dir}
	broken := errors.New("power cut")
	c.Callbacks = []keras.Callback{{EpochBegin: func(_ context.Context, r *keras.Run) error {
		if r.Epoch == 1 {
			return broken
		}
		return nil
	}}}
	if _, err := classifier(t).Fit(context.Background(), samples(8, 4, 3), c); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	m := classifier(t)
	if err := m.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Optimizer: o}); err != nil {
		return err
	}
	c.BatchSize, c.Callbacks = batch, nil
	_, err := m.Fit(context.Background(), samples(8, 4, 3), c)
	if err == nil {
		return nil
	}
	return elsewhereError{err, dir}
}

func callbackError(t *testing.T, c callbacks.Maker) error {
	_, err := classifier(t).Fit(context.Background(), samples(8, 4, 3), keras.FitConfig{Verbose: keras.VerbositySilent, Callbacks: callbacks.List(c)})
	return err
}
