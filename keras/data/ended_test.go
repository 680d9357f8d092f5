package data_test

import (
	"context"
	"errors"
	"iter"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

var errOperator = errors.New("operator")

// withCause is a context that has a cause once end is called.
func withCause() (ctx context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(background)
	return ctx, func() { cancel(errOperator) }
}

// wantEnded fails unless err is that of a context that was ended by errOperator.
func wantEnded(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) || !errors.Is(err, errOperator) {
		t.Errorf("%s: got error %v, want one of %v and %v", what, err, context.Canceled, errOperator)
	}
}

// TestEndedCause: whatever reads with a context that has ended tells of that and
// of its cause.
func TestEndedCause(t *testing.T) {
	noLeaks(t)
	x, y := samples(8)
	rows := data.FromDataset(keras.FromTensors(x, y, nil))
	path := filepath.Join(t.TempDir(), "r.tfrecord")
	_, err := data.Range(0, 9).Cache().Collect(background)
	check(t, err)
	records := data.Map(data.Range(0, 3), func(context.Context, int) ([]byte, error) { return []byte{1}, nil }).CacheFile(path, data.Bytes())
	_, err = records.Collect(background)
	check(t, err)

	// endless ends its own context when it is asked for its third element.
	endless := func(ctx context.Context, end func(), d *data.Dataset[int]) error {
		n := 0
		for _, err := range d.Epoch(ctx, 0, 0) {
			if err != nil {
				return err
			}
			if n++; n == 3 {
				end()
			}
		}
		return nil
	}
	for what, d := range map[string]*data.Dataset[int]{
		"Range":       data.Range(0, 1000),
		"Filter":      data.Range(0, 1000).Filter(func(x int) bool { return x < 3 }),
		"ParallelMap": data.ParallelMap(data.Range(0, 100000), 2, double),
		"Map": data.Map(data.Range(0, 1000), func(ctx context.Context, x int) (int, error) {
			return x, context.Cause(ctx)
		}),
		"FromGenerator": unknown(1000),
		"Prefetch":      unknown(1000).Prefetch(1),
	} {
		ctx, end := withCause()
		wantEnded(t, what, endless(ctx, end, d))
	}

	ctx, end := withCause()
	m := model(t)
	check(t, m.TrainStep(background, keras.Batch{X: x, Y: y})) // built
	text := &preprocessing.TextVectorization{}
	batches := func() *data.Dataset[keras.Batch] { return rows.Batch(4) }
	one := keras.Batch{X: x, Y: y}
	// The function of a user may tell of the cause alone.
	causes := keras.FromTensors(x, y, nil).Batch(4).Map(func(b keras.Batch) (keras.Batch, error) { return b, context.Cause(ctx) })
	end()
	for what, f := range map[string]func() error{
		"TFRecord": func() error { _, err := data.TFRecord(path).Collect(ctx); return err },
		"Collect":  func() error { _, err := batches().Collect(ctx); return err },
		"Evaluate": func() error { _, err := m.Evaluate(ctx, batches()); return err },
		"Evaluate, Pipeline": func() error {
			_, err := m.Evaluate(ctx, keras.FromTensors(x, y, nil))
			return err
		},
		"Evaluate, Map":  func() error { _, err := m.Evaluate(ctx, causes); return err },
		"PredictDataset": func() error { _, err := m.PredictDataset(ctx, batches()); return err },
		"Predict":        func() error { _, err := m.Predict(ctx, x); return err },
		"TrainOnBatch":   func() error { _, err := m.TrainOnBatch(ctx, one); return err },
		"TestOnBatch":    func() error { _, err := m.TestOnBatch(ctx, one); return err },
		"TrainStep":      func() error { return m.TrainStep(ctx, one) },
		"keras.Adapt":    func() error { return keras.Adapt(ctx, &preprocessing.Normalization{}, batches()) },
		"data.Adapt":     func() error { return data.Adapt(ctx, text, data.FromSlice([]string{"a"})) },
		"Fit": func() error {
			_, err := m.Fit(ctx, batches(), keras.FitConfig{Verbose: keras.VerbositySilent})
			return err
		},
		"Fit, Map": func() error {
			_, err := m.Fit(ctx, causes, keras.FitConfig{Verbose: keras.VerbositySilent})
			return err
		},
	} {
		wantEnded(t, what, f())
	}
}

// TestNilContext: what reads with no context says so.
func TestNilContext(t *testing.T) {
	var none context.Context
	d := data.Range(0, 3)
	const want = "Epoch: the context is nil; use context.Background()"
	_, err := d.Collect(none)
	wantError(t, err, want)
	_, err = read(d.All(none))
	wantError(t, err, want)
	wantError(t, data.Adapt(none, &preprocessing.TextVectorization{}, data.FromSlice([]string{"a"})), want)
}

// TestInterruptedFirstBatch ends the context while a resumed Fit reads its first
// batch: it is interrupted, as anywhere else, and goes on when it is run again.
func TestInterruptedFirstBatch(t *testing.T) {
	noLeaks(t)
	x, y := samples(24)
	type reading = func(at func(i int)) keras.Dataset
	counted := func(at func(i int)) func(b keras.Batch) (keras.Batch, error) {
		i := 0
		return func(b keras.Batch) (keras.Batch, error) {
			i++
			at(i)
			return b, nil
		}
	}
	for what, open := range map[string]reading{
		"Pipeline": func(at func(int)) keras.Dataset {
			return keras.FromTensors(x, y, nil).Batch(4).Map(counted(at))
		},
		"generator": func(at func(int)) keras.Dataset {
			all := keras.FromTensors(x, y, nil).Batch(4).Map(counted(at))
			return keras.FromGenerator(all.Batches, true)
		},
		"data": func(at func(int)) keras.Dataset {
			f := counted(at)
			return data.Map(data.FromDataset(keras.FromTensors(x, y, nil).Batch(4)), func(_ context.Context, b keras.Batch) (keras.Batch, error) { return f(b) })
		},
		"data, parallel": func(at func(int)) keras.Dataset {
			f := counted(at)
			return data.ParallelMap(data.FromDataset(keras.FromTensors(x, y, nil).Batch(4)), 1, func(ctx context.Context, b keras.Batch) (keras.Batch, error) {
				b, _ = f(b)
				return b, ctx.Err()
			}).Prefetch(1)
		},
	} {
		dir := &checkpoint.Directory{Path: t.TempDir()}
		config := keras.FitConfig{Epochs: 2, Checkpoint: dir, Verbose: keras.VerbositySilent}
		run := func(ctx context.Context, d keras.Dataset, callbacks ...keras.Callback) (*keras.Model, error) {
			m, c := model(t), config
			c.Callbacks = callbacks
			_, err := m.Fit(ctx, d, c)
			return m, err
		}
		want := model(t)
		_, err := want.Fit(background, open(func(int) {}), keras.FitConfig{Epochs: 2, Verbose: keras.VerbositySilent})
		check(t, err)

		ctx, end := withCause()
		_, err = run(ctx, open(func(int) {}), keras.Callback{BatchEnd: func(_ context.Context, r *keras.Run) error {
			if r.Epoch == 1 && r.Step == 2 {
				end()
			}
			return nil
		}})
		wantEnded(t, what, err)
		ctx, end = withCause()
		_, err = run(ctx, open(func(int) { end() }))
		wantEnded(t, what+", resumed", err)
		var stop *keras.Interrupted
		if !errors.As(err, &stop) || stop.Epoch != 1 || stop.Step != 2 || !stop.Saved {
			t.Errorf("%s, resumed: got %#v, want an *Interrupted after step 2 of epoch 2, which is saved", what, err)
		}
		got, err := run(background, open(func(int) {}))
		check(t, err)
		if string(weights(t, got)) != string(weights(t, want)) {
			t.Errorf("%s: the weights are not those of a training that was not interrupted", what)
		}
	}
}

// TestInterruptedCallback: a callback that returns the error of the context
// interrupts the training, too.
func TestInterruptedCallback(t *testing.T) {
	x, y := samples(8)
	for what, at := range map[string]func(func(context.Context, *keras.Run) error) keras.Callback{
		"TrainBegin": func(f func(context.Context, *keras.Run) error) keras.Callback { return keras.Callback{TrainBegin: f} },
		"BatchEnd":   func(f func(context.Context, *keras.Run) error) keras.Callback { return keras.Callback{BatchEnd: f} },
		"EpochEnd":   func(f func(context.Context, *keras.Run) error) keras.Callback { return keras.Callback{EpochEnd: f} },
	} {
		ctx, end := withCause()
		_, err := model(t).Fit(ctx, keras.FromTensors(x, y, nil), keras.FitConfig{Verbose: keras.VerbositySilent,
			Callbacks: []keras.Callback{at(func(ctx context.Context, _ *keras.Run) error { end(); return context.Cause(ctx) })}})
		wantEnded(t, what, err)
		if stop := (*keras.Interrupted)(nil); !errors.As(err, &stop) || stop.Saved {
			t.Errorf("%s: got %v, want an *Interrupted that is not saved", what, err)
		}
	}
}

// TestBlockedGenerator: a generator that blocks holds no reader whose context
// has ended, and its goroutine ends when it goes on.
func TestBlockedGenerator(t *testing.T) {
	noLeaks(t)
	x, y := samples(8)
	one := keras.Batch{X: x, Y: y}
	for what, place := range map[string]int{"at the first": 0, "at the third": 2, "when it is opened": -1} {
		for how, wrap := range map[string]func(open func() iter.Seq2[keras.Batch, error]) keras.Dataset{
			"keras": func(open func() iter.Seq2[keras.Batch, error]) keras.Dataset { return keras.FromGenerator(open, true) },
			"keras, prefetched": func(open func() iter.Seq2[keras.Batch, error]) keras.Dataset {
				return keras.FromGenerator(open, true).Prefetch(2)
			},
			"data, parallel": func(open func() iter.Seq2[keras.Batch, error]) keras.Dataset {
				d := data.FromGenerator(func(context.Context, int) iter.Seq2[keras.Batch, error] { return open() })
				return data.ParallelMap(d, 2, func(_ context.Context, b keras.Batch) (keras.Batch, error) { return b, nil }).Prefetch(1)
			},
			"own": func(open func() iter.Seq2[keras.Batch, error]) keras.Dataset { return plain(open) },
		} {
			for use, run := range map[string]func(context.Context, *keras.Model, keras.Dataset) error{
				"Fit": func(ctx context.Context, m *keras.Model, d keras.Dataset) error {
					_, err := m.Fit(ctx, d, keras.FitConfig{Verbose: keras.VerbositySilent})
					if stop := (*keras.Interrupted)(nil); !errors.As(err, &stop) {
						t.Errorf("%s: got %v, want an *Interrupted", how, err)
					}
					return err
				},
				"Evaluate": func(ctx context.Context, m *keras.Model, d keras.Dataset) error {
					_, err := m.Evaluate(ctx, d)
					return err
				},
				"PredictDataset": func(ctx context.Context, m *keras.Model, d keras.Dataset) error {
					_, err := m.PredictDataset(ctx, d)
					return err
				},
			} {
				ctx, end := withCause()
				release := make(chan struct{})
				block := func() { end(); <-release }
				d := wrap(func() iter.Seq2[keras.Batch, error] {
					if place < 0 {
						block()
					}
					return func(yield func(keras.Batch, error) bool) {
						for i := 0; ; i++ {
							if i == place {
								block()
							}
							if !yield(one, nil) {
								return
							}
						}
					}
				})
				wantEnded(t, use+", "+how+", blocked "+what, run(ctx, model(t), d))
				close(release)
			}
		}
	}
}

// plain is a keras.Dataset of a user's own.
type plain func() iter.Seq2[keras.Batch, error]

func (o plain) Batches() iter.Seq2[keras.Batch, error] { return o() }

// TestGeneratorPanics: what a generator panics with arrives at its reader.
func TestGeneratorPanics(t *testing.T) {
	noLeaks(t)
	ctx, end := withCause()
	defer end()
	d := data.FromGenerator(func(context.Context, int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			yield(1, nil)
			panic("generator")
		}
	})
	defer func() {
		if r := recover(); r != "generator" {
			t.Errorf("got panic %v", r)
		}
	}()
	_, err := d.Collect(ctx)
	t.Errorf("got error %v, want a panic", err)
}
