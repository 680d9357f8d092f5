package data_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
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
		"unbatch": data.Unbatch(data.Batch(mapped, 5)),
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
			c.Epochs, c.Verbose = 2, keras.Silent
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
		keras.FitConfig{BatchSize: 8, Epochs: 2, ClassWeight: weighted, Verbose: keras.Silent})
	check(t, err)
	want := model(t)
	_, err = want.Fit(background, keras.FromTensors(x, y, nil).Batch(8), keras.FitConfig{Epochs: 2, ClassWeight: weighted, Verbose: keras.Silent})
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
		_, err := make(t).Fit(background, own, keras.FitConfig{BatchSize: 4, Verbose: keras.Silent,
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

// TestResumeUnbatched: a training on samples that Fit batches is resumed in the
// middle of an epoch, to the bit.
func TestResumeUnbatched(t *testing.T) {
	x, y := samples(26)
	for name, d := range rowsOf(t, x, y) {
		d = d.Shuffle(26, 5)
		train := func(state string, life int) (*keras.Model, error) {
			m := model(t)
			stop := errors.New("stop")
			_, err := m.Fit(background, d, keras.FitConfig{BatchSize: 4, Epochs: 3, Verbose: keras.Silent, SaveEvery: 1,
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

// pairs is a dataset of one's own made of another: its samples in batches of
// two.
type pairs struct{ *data.Dataset[keras.Batch] }

func (p pairs) Epoch(ctx context.Context, epoch, skip int) iter.Seq2[keras.Batch, error] {
	return data.Batch(p.Dataset, 2).Epoch(ctx, epoch, skip)
}

// TestEmbedded: what a type that embeds a dataset yields is taken, not what the
// dataset in it does.
func TestEmbedded(t *testing.T) {
	x, y := samples(8)
	steps := 0
	_, err := model(t).Fit(background, pairs{data.FromDataset(keras.FromTensors(x, y, nil))}, keras.FitConfig{BatchSize: 8, Verbose: keras.Silent,
		Callbacks: []keras.Callback{{BatchEnd: func(_ context.Context, r *keras.Run) error {
			steps++
			return nil
		}}}})
	check(t, err)
	if steps != 4 {
		t.Errorf("got %d steps, want 4 of two samples each", steps)
	}
}
