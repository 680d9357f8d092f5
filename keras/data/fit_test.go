package data_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// model returns a small compiled model of 4 features and 3 classes.
func model(t testing.TB) *keras.Model {
	t.Helper()
	x := keras.Input(4)
	m, err := keras.NewModel(x, keras.Apply(&layers.Dense{Units: 3}, x))
	check(t, err)
	check(t, m.Compile(keras.CompileConfig{
		Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Optimizer: &optimizers.Adam{}}))
	return m
}

func weights(t testing.TB, m *keras.Model) []byte {
	t.Helper()
	var all []byte
	for _, v := range m.Variables() {
		b, err := v.Bytes()
		check(t, err)
		all = append(all, b...)
	}
	return all
}

// samples are n rows of 4 numbers with their classes.
func samples(n int) (x, y *keras.Tensor) {
	values, classes := make([]float32, 4*n), make([]int32, n)
	for i := range values {
		values[i] = float32(i*i%17) / 17
	}
	for i := range classes {
		classes[i] = int32(i % 3)
	}
	return keras.NewTensor(values, n, 4), keras.NewTensor(classes, n)
}

// TestFitLikeTensors: a pipeline of the same samples in the same order trains
// the same bits as samples in memory do.
func TestFitLikeTensors(t *testing.T) {
	noLeaks(t)
	x, y := samples(50)
	memory := model(t)
	_, err := memory.Fit(background, keras.FromTensors(x, y, nil), keras.FitConfig{BatchSize: 8, Epochs: 3, Seed: 11, Verbose: keras.VerbositySilent})
	check(t, err)
	rows := data.FromDataset(keras.FromTensors(x, y, nil))
	same := func(_ context.Context, b keras.Batch) (keras.Batch, error) { return b, nil }
	for name, d := range map[string]*data.Dataset[keras.Batch]{
		"stream":    rows.Shuffle(50, 11).Batch(8),
		"parallel":  data.ParallelMap(rows.Shuffle(50, 11), 3, same).Batch(8).Prefetch(2),
		"batches":   data.ParallelMap(data.FromDataset(keras.FromTensors(x, y, nil).Shuffle(50, 11).Batch(8)), 3, same),
		"unbatched": rows.Batch(7).Unbatch().Shuffle(50, 11).Batch(8),
	} {
		m := model(t)
		h, err := m.Fit(background, d, keras.FitConfig{Epochs: 3, Verbose: keras.VerbositySilent})
		check(t, err)
		if !bytes.Equal(weights(t, m), weights(t, memory)) {
			t.Errorf("%s: the weights are not those of a training from memory: losses %v", name, h.Logs)
		}
		a, err := m.Evaluate(background, rows.Batch(50))
		check(t, err)
		b, err := memory.Evaluate(background, keras.FromTensors(x, y, nil))
		check(t, err)
		if fmt.Sprint(a) != fmt.Sprint(b) {
			t.Errorf("%s: Evaluate says %v, want %v", name, a, b)
		}
	}
	_, err = model(t).Fit(background, rows.Batch(8).Repeat(), keras.FitConfig{Verbose: keras.VerbositySilent})
	wantError(t, err, "Fit: the dataset has no end; give StepsPerEpoch")
	_, err = model(t).Evaluate(background, rows.Batch(8).Repeat())
	wantError(t, err, "Evaluate: the dataset has no end; use Take")
}

// TestFitCancelled ends the context while Fit waits for a batch.
func TestFitCancelled(t *testing.T) {
	noLeaks(t)
	x, y := samples(40)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	stuck := data.ParallelMap(data.FromDataset(keras.FromTensors(x, y, nil)), 2, func(ctx context.Context, b keras.Batch) (keras.Batch, error) {
		cancel()
		<-ctx.Done()
		return b, ctx.Err()
	})
	_, err := model(t).Fit(ctx, stuck.Batch(8).Prefetch(2), keras.FitConfig{Verbose: keras.VerbositySilent})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
}

// TestResume: a training that is ended after any number of steps and resumed
// makes the same bits as one that is not, with shuffling, random numbers for
// each sample, a cache and goroutines in the pipeline. Samples that were
// trained on before are not made again.
func TestResume(t *testing.T) {
	noLeaks(t)
	x, y := samples(26)
	var made atomic.Int64
	pipeline := func(dir string) *data.Dataset[keras.Batch] {
		rows := data.FromDataset(keras.FromTensors(x, y, nil)).CacheFile(filepath.Join(dir, "rows"), data.Samples())
		augmented := data.ParallelMap(data.Zip(rows.Shuffle(9, 2), data.Random(3)), 2, func(_ context.Context, p data.Pair[keras.Batch, uint64]) (keras.Batch, error) {
			made.Add(1)
			v, err := p.First.X.Values()
			if err != nil {
				return keras.Batch{}, err
			}
			rng := rand.New(rand.NewPCG(p.Second, 0))
			for i := range v {
				v[i] += rng.Float32()
			}
			return keras.Batch{X: keras.NewTensor(v, 4), Y: p.First.Y}, nil
		})
		return augmented.Batch(4).Prefetch(2) // 7 steps
	}
	made.Store(0)
	if got := len(epochFrom(t, pipeline(t.TempDir()), 1, 5)); got != 2 || made.Load() != 6 {
		t.Errorf("got %d batches of %d samples after the fifth, want 2 of 6", got, made.Load())
	}
	for _, perEpoch := range []int{0, 3} {
		train := func(d *data.Dataset[keras.Batch], state string, life int) (*keras.Model, error) {
			m := model(t)
			stop := errors.New("stop")
			_, err := m.Fit(background, d, keras.FitConfig{
				Epochs: 3, StepsPerEpoch: perEpoch, Verbose: keras.VerbositySilent, SaveEvery: 1,
				Checkpoint: &checkpoint.Directory{Path: state},
				Callbacks: []keras.Callback{{BatchEnd: func(context.Context, *keras.Run) error {
					if life--; life == 0 {
						return stop
					}
					return nil
				}}},
			})
			if errors.Is(err, stop) {
				return nil, nil
			}
			return m, err
		}
		m, err := train(pipeline(t.TempDir()), t.TempDir(), -1)
		check(t, err)
		want := weights(t, m)
		for life := 1; life < 21; life += 3 {
			state, dir := t.TempDir(), t.TempDir()
			m, err := train(pipeline(dir), state, life+1)
			check(t, err)
			lives := 1
			for ; m == nil; lives++ {
				m, err = train(pipeline(dir), state, life+1)
				check(t, err)
			}
			if !slices.Equal(weights(t, m), want) {
				t.Errorf("%d steps an epoch, ended after each %d steps: the weights differ after %d lives", perEpoch, life+1, lives)
			}
		}
	}
}

// TestAugment: layers change batches by numbers that follow from the epoch and
// the place, and are those of a Pipeline.
func TestAugment(t *testing.T) {
	x := tensor.FromBytes(op.Type{DType: dtype.Uint8, Shape: op.Shape{6, 5, 4, 3}}, bytes.Repeat([]byte{1, 20, 50, 200, 90}, 72))
	flat := keras.FromTensors(x, nil, nil)
	make := func() []layers.Layer {
		return []layers.Layer{&preprocessing.RandomFlip{}, &preprocessing.RandomErasing{}}
	}
	read := func(d keras.SeekableDataset, epoch, skip int) (all [][]byte) {
		for b, err := range d.Epoch(context.Background(), epoch, skip) {
			check(t, err)
			pixels, err := b.X.Bytes()
			check(t, err)
			all = append(all, pixels)
		}
		return all
	}
	d := data.Augment(data.FromDataset(flat).Batch(2), make()...).Prefetch(2)
	for epoch := range 2 {
		want := read(flat.Batch(2).Augment(make()...), epoch, 0)
		for skip := range 3 {
			got := read(d, epoch, skip)
			if len(got) != 3-skip {
				t.Fatalf("epoch %d from batch %d: got %d batches, want %d", epoch, skip, len(got), 3-skip)
			}
			for i, b := range got {
				if !bytes.Equal(b, want[skip+i]) {
					t.Errorf("epoch %d: batch %d has other pixels than that of a Pipeline", epoch, skip+i)
				}
			}
		}
	}
}
