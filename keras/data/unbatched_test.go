package data_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// unbuilt is model, which learns from its first batch what its input is.
func unbuilt(t testing.TB) *keras.Model {
	t.Helper()
	m := keras.Sequential(&layers.Dense{Units: 3})
	check(t, m.Compile(keras.CompileConfig{
		Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Optimizer: &optimizers.Adam{}}))
	return m
}

// row is a sample of samples as a program may have it.
type row struct {
	x [4]float32
	y int32
}

// rowsOf are datasets of the samples, one by one: from where a dataset knows
// that they are samples, and from where it does not.
func rowsOf(t testing.TB, x, y *keras.Tensor) map[string]*data.Dataset[keras.Batch] {
	t.Helper()
	values, err := x.Values()
	check(t, err)
	classes, err := y.Int64s()
	check(t, err)
	var rows []row
	for i, c := range classes {
		rows = append(rows, row{[4]float32(values[4*i:]), int32(c)})
	}
	sample := func(r row) keras.Batch {
		return keras.Batch{X: keras.NewTensor(r.x[:], 4), Y: keras.NewTensor([]int32{r.y})}
	}
	mapped := data.Map(data.FromSlice(rows), func(_ context.Context, r row) (keras.Batch, error) { return sample(r), nil })
	return map[string]*data.Dataset[keras.Batch]{
		"tensors": data.FromDataset(keras.FromTensors(x, y, nil)),
		"unbatch": mapped.Batch(5).Unbatch(),
		"map":     mapped,
		"generator": data.FromGenerator(func(context.Context, int) iter.Seq2[keras.Batch, error] {
			return func(yield func(keras.Batch, error) bool) {
				for _, r := range rows {
					if !yield(sample(r), nil) {
						return
					}
				}
			}
		}),
	}
}

// TestUnbatched: Fit, Evaluate and PredictDataset batch samples of a dataset as
// they batch those of a Pipeline, whether the model is built or not.
func TestUnbatched(t *testing.T) {
	noLeaks(t)
	x, y := samples(50)
	weighted := map[int]float64{0: 0.5, 2: 3}
	for _, make := range []func(testing.TB) *keras.Model{model, unbuilt} {
		train := func(d keras.Dataset, c keras.FitConfig) *keras.Model {
			c.Epochs, c.Verbose = 2, keras.VerbositySilent
			m := make(t)
			h, err := m.Fit(background, d, c)
			check(t, err)
			if v := c.ValidationData; v != nil && len(h.Logs) != 2 {
				t.Errorf("got logs %v, want two epochs", h.Logs)
			}
			return m
		}
		memory := keras.FromTensors(x, y, nil)
		want := train(memory.Batch(8), keras.FitConfig{})
		byClass := train(memory.Batch(8), keras.FitConfig{ClassWeight: weighted})
		wantLogs, err := want.Evaluate(background, memory.Batch(8))
		check(t, err)
		wantY, err := want.Predict(background, x)
		check(t, err)
		predicted, err := wantY.Bytes()
		check(t, err)
		for name, d := range rowsOf(t, x, y) {
			m := train(d, keras.FitConfig{BatchSize: 8, ValidationData: d.Take(9)})
			if !bytes.Equal(weights(t, m), weights(t, want)) {
				t.Errorf("%s: the weights are not those of a training on batches", name)
			}
			if m := train(d, keras.FitConfig{BatchSize: 8, ClassWeight: weighted}); !bytes.Equal(weights(t, m), weights(t, byClass)) {
				t.Errorf("%s: the weights are not those of a training on batches with class weights", name)
			}
			logs, err := m.Evaluate(background, d)
			check(t, err)
			for i, l := range logs {
				if d := l.Value - wantLogs[i].Value; d > 1e-6 || d < -1e-6 { // sums in batches of another size
					t.Errorf("%s: Evaluate says %v, want %v", name, logs, wantLogs)
				}
			}
			p, err := m.PredictDataset(background, d)
			check(t, err)
			got, err := p.Bytes()
			check(t, err)
			if !p.Shape().Equal(wantY.Shape()) || !bytes.Equal(got, predicted) {
				t.Errorf("%s: PredictDataset returned %v, want what Predict returns, %v", name, p.Type(), wantY.Type())
			}
		}
	}
	// A Pipeline of samples from a generator takes class weights, too.
	m := model(t)
	_, err := m.Fit(background, keras.FromGenerator(rowsOf(t, x, y)["map"].Batches, false),
		keras.FitConfig{BatchSize: 8, Epochs: 2, ClassWeight: weighted, Verbose: keras.VerbositySilent})
	check(t, err)
	want := model(t)
	_, err = want.Fit(background, keras.FromTensors(x, y, nil).Batch(8), keras.FitConfig{Epochs: 2, ClassWeight: weighted, Verbose: keras.VerbositySilent})
	check(t, err)
	if !bytes.Equal(weights(t, m), weights(t, want)) {
		t.Error("generator of samples: the weights are not those of a training on batches with class weights")
	}
}

// TestBatchedIsTaken: batches that a program makes itself are taken as they
// come, whatever BatchSize says.
func TestBatchedIsTaken(t *testing.T) {
	x, y := samples(48)
	own := data.Map(data.Chunk(rowsOf(t, x, y)["map"], 16, false), func(_ context.Context, rows []keras.Batch) (keras.Batch, error) {
		return keras.Stack(keras.Batch{}, rows)
	})
	for _, make := range []func(testing.TB) *keras.Model{model, unbuilt} {
		var shapes []string
		_, err := make(t).Fit(background, own, keras.FitConfig{BatchSize: 4, Verbose: keras.VerbositySilent,
			Callbacks: []keras.Callback{{BatchEnd: func(_ context.Context, r *keras.Run) error {
				shapes = append(shapes, r.Batch.X.Type().String())
				return nil
			}}}})
		check(t, err)
		if got := fmt.Sprint(shapes); got != "[float32[16 4] float32[16 4] float32[16 4]]" {
			t.Errorf("got batches %v, want three of 16 samples", got)
		}
	}
}

// elements is a dataset of one batch or sample, again and again, from a function
// of the program.
func elements(b keras.Batch, n int) *data.Dataset[keras.Batch] {
	return data.FromGenerator(func(context.Context, int) iter.Seq2[keras.Batch, error] {
		return func(yield func(keras.Batch, error) bool) {
			for range n {
				if !yield(b, nil) {
					return
				}
			}
		}
	})
}

// TestSampleOrBatch: what a function returns is a sample or a batch for a model
// that is not built where only one of them fits its layers or Y, or the dataset
// tells; else it is an error, and for a built model never.
func TestSampleOrBatch(t *testing.T) {
	zeros := func(shape ...int) *keras.Tensor {
		return keras.NewTensor(make([]float32, keras.Shape(shape).Size()), shape...)
	}
	dense := func() []layers.Layer { return []layers.Layer{&layers.Dense{Units: 1}} }
	const ambiguous = "may be samples or batches of 7: X is float32[7 3], Y float32[7 1]; make batches of samples with Batch"
	for name, c := range map[string]struct {
		layers []layers.Layer
		x, y   *keras.Tensor
		built  []int
		want   string // shape of X in the first step, or what is in the error
	}{
		"features":           {dense(), zeros(4), zeros(4), nil, "[2 4]"},
		"rows differ":        {dense(), zeros(7, 3), zeros(5, 1), nil, "[2 7 3]"},
		"steps":              {dense(), zeros(7, 3), zeros(7, 1), nil, ambiguous},
		"built for rows":     {dense(), zeros(7, 3), zeros(7, 1), []int{3}, "[7 3]"},
		"built for steps":    {dense(), zeros(7, 3), zeros(7, 1), []int{7, 3}, "[2 7 3]"},
		"sequence":           {[]layers.Layer{&layers.LSTM{Units: 1, ReturnSequences: true}}, zeros(7, 3), zeros(7, 1), nil, "[2 7 3]"},
		"batch of sequences": {[]layers.Layer{&layers.LSTM{Units: 1}}, zeros(7, 5, 3), zeros(7, 1), nil, "[7 5 3]"},
		"batch of images":    {[]layers.Layer{&layers.Flatten{}, &layers.Dense{Units: 4}}, zeros(7, 5, 5), zeros(7, 4), nil, "[7 5 5]"},
		"image or classes":   {[]layers.Layer{&layers.Flatten{}, &layers.Dense{Units: 4}}, zeros(4, 5, 5), zeros(4), nil, "may be samples or batches of 4"},
		"another's layer":    {append(dense(), &own{}), zeros(7, 3), zeros(7, 1), nil, ambiguous},
		"neither":            {[]layers.Layer{&layers.Conv2D{Filters: 1, KernelSize: []int{9}}}, zeros(7, 3), zeros(7, 3), nil, "layer conv2d: Build"},
	} {
		m := keras.Sequential(c.layers...)
		check(t, m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}}))
		if c.built != nil {
			check(t, m.Build(c.built...))
		}
		got := ""
		_, err := m.Fit(background, elements(keras.Batch{X: c.x, Y: c.y}, 2), keras.FitConfig{BatchSize: 2, Verbose: keras.VerbositySilent,
			Callbacks: []keras.Callback{{BatchBegin: func(_ context.Context, r *keras.Run) error {
				if got == "" {
					got = fmt.Sprint(r.Batch.X.Shape())
				}
				return nil
			}}}})
		if got == "" && err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s (%v)", name, got, c.want, err)
		}
	}
	// Where the dataset knows, and of validation data, of which the model is
	// built when they are read.
	steps := elements(keras.Batch{X: zeros(7, 3), Y: zeros(7, 1)}, 2)
	rows := func() *data.Dataset[keras.Batch] {
		return data.Map(data.Chunk(elements(keras.Batch{X: zeros(3), Y: zeros(1)}, 14), 7, false),
			func(_ context.Context, b []keras.Batch) (keras.Batch, error) { return keras.Stack(keras.Batch{}, b) })
	}
	pair := func(_ context.Context, p data.Pair[keras.Batch, uint64]) (keras.Batch, error) { return p.First, nil }
	for name, c := range map[string]struct {
		d    *data.Dataset[keras.Batch]
		want string
	}{
		"batched":          {steps.Batch(2), "[2 7 3]"},
		"mapped":           {data.Map(steps.Batch(2), func(_ context.Context, b keras.Batch) (keras.Batch, error) { return b, nil }), "[2 7 3]"},
		"of chunks":        {rows(), "[7 3]"},
		"zipped batches":   {data.Map(data.Zip(steps.Batch(2), data.Random(1)), pair), "[2 7 3]"},
		"zipped samples":   {data.Map(data.Zip(steps.Batch(2).Unbatch(), data.Random(1)), pair), "[2 7 3]"},
		"unbatched chunks": {rows().Unbatch(), "[2 3]"},
	} {
		m := keras.Sequential(dense()...)
		check(t, m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}}))
		got := ""
		h, err := m.Fit(background, c.d, keras.FitConfig{BatchSize: 2, Verbose: keras.VerbositySilent, ValidationData: c.d,
			Callbacks: []keras.Callback{{BatchBegin: func(_ context.Context, r *keras.Run) error {
				got = fmt.Sprint(r.Batch.X.Shape())
				return nil
			}}}})
		check(t, err)
		if got != c.want || len(h.Get("val_loss")) != 1 {
			t.Errorf("%s: got batches %s and logs %v, want %s", name, got, h.Logs, c.want)
		}
	}
}

// own is a layer that is not of this module.
type own struct{ layers.Base }

func (*own) Config() layers.Config { return layers.Config{} }

func (*own) Build(...keras.Shape) error { return nil }

func (*own) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor { return x }

// TestReadOnce: to look at the first element costs no reading of its own.
func TestReadOnce(t *testing.T) {
	x, y := samples(50)
	var opened, read int
	all, err := data.FromDataset(keras.FromTensors(x, y, nil)).Collect(background)
	check(t, err)
	d := data.FromGenerator(func(context.Context, int) iter.Seq2[keras.Batch, error] {
		opened++
		return func(yield func(keras.Batch, error) bool) {
			for _, b := range all {
				read++
				if !yield(b, nil) {
					return
				}
			}
		}
	}).Shuffle(50)
	noLeaks(t)
	for _, built := range []bool{true, false} {
		m := unbuilt(t)
		if built {
			m = model(t)
		}
		for what, f := range map[string]func() error{
			"Fit": func() error {
				_, err := m.Fit(background, d, keras.FitConfig{BatchSize: 8, Verbose: keras.VerbositySilent})
				return err
			},
			"Fit from epoch 3": func() error {
				_, err := m.Fit(background, d, keras.FitConfig{BatchSize: 8, InitialEpoch: 3, Epochs: 4, Verbose: keras.VerbositySilent})
				return err
			},
			"Fit of batches": func() error {
				_, err := m.Fit(background, d.Batch(8), keras.FitConfig{Verbose: keras.VerbositySilent})
				return err
			},
			"Evaluate":       func() error { _, err := m.Evaluate(background, d); return err },
			"PredictDataset": func() error { _, err := m.PredictDataset(background, d); return err },
			"validation": func() error {
				_, err := m.Fit(background, keras.FromTensors(x, y, nil), keras.FitConfig{ValidationData: d, Verbose: keras.VerbositySilent})
				return err
			},
		} {
			opened, read = 0, 0
			check(t, f())
			if opened != 1 || read != 50 {
				t.Errorf("%s: the generator was opened %d times and asked for %d samples, want 1 and 50", what, opened, read)
			}
		}
		// What is opened to look at it ends with a Fit that fails.
		stop := errors.New("stop")
		_, err := model(t).Fit(background, d, keras.FitConfig{Verbose: keras.VerbositySilent,
			Callbacks: []keras.Callback{{TrainBegin: func(context.Context, *keras.Run) error { return stop }}}})
		if !errors.Is(err, stop) {
			t.Errorf("got error %v, want that of the callback", err)
		}
	}
}

// TestResumeUnbatched: a training on samples that Fit batches is resumed in the
// middle of an epoch, to the bit.
func TestResumeUnbatched(t *testing.T) {
	x, y := samples(26)
	for name, d := range rowsOf(t, x, y) {
		d = d.Shuffle(26, 5)
		train := func(state string, life int) (*keras.Model, error) {
			m := model(t)
			stop := errors.New("stop")
			_, err := m.Fit(background, d, keras.FitConfig{BatchSize: 4, Epochs: 3, Verbose: keras.VerbositySilent, SaveEvery: 1,
				Checkpoint: &checkpoint.Directory{Path: state},
				Callbacks: []keras.Callback{{BatchEnd: func(context.Context, *keras.Run) error {
					if life--; life == 0 {
						return stop
					}
					return nil
				}}}})
			if errors.Is(err, stop) {
				return nil, nil
			}
			return m, err
		}
		m, err := train(t.TempDir(), -1)
		check(t, err)
		want := weights(t, m)
		state := t.TempDir()
		for m, err = train(state, 5); m == nil && err == nil; m, err = train(state, 5) {
		}
		check(t, err)
		if !bytes.Equal(weights(t, m), want) {
			t.Errorf("%s: the weights of the resumed training differ", name)
		}
	}
}

// pairs is a user-defined dataset made of another: its samples in batches of
// two.
type pairs struct{ *data.Dataset[keras.Batch] }

func (p pairs) Epoch(ctx context.Context, epoch, skip int) iter.Seq2[keras.Batch, error] {
	return p.Dataset.Batch(2).Epoch(ctx, epoch, skip)
}

// TestEmbedded: what a type that embeds a dataset yields is taken, not what the
// dataset in it does.
func TestEmbedded(t *testing.T) {
	x, y := samples(8)
	steps := 0
	_, err := model(t).Fit(background, pairs{data.FromDataset(keras.FromTensors(x, y, nil))}, keras.FitConfig{BatchSize: 8, Verbose: keras.VerbositySilent,
		Callbacks: []keras.Callback{{BatchEnd: func(_ context.Context, r *keras.Run) error {
			steps++
			return nil
		}}}})
	check(t, err)
	if steps != 4 {
		t.Errorf("got %d steps, want 4 of two samples each", steps)
	}
}
