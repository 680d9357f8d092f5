package keras

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestReadDuringFit: predictions, evaluations, copies of weights and saved states
// from other goroutines while a training goes on are of a time between two of its
// steps, and change no bit of it.
func TestReadDuringFit(t *testing.T) {
	const n, features = 64, 5
	x, y := NewTensor(numbers(n*features), n, features), NewTensor(numbers(n), n, 1)
	model := func() *Model {
		m := Sequential(&layers.Dense{Units: 8, Activation: "tanh"}, &layers.Dense{Units: 1})
		check(t, m.Build(features))
		check(t, m.SetSeed(3))
		check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.Adam{LearningRate: 0.01}}))
		return m
	}
	// What there is between steps, and what the model predicts then.
	var states [][]byte
	var predictions [][]byte
	join := func(ts []*Tensor) (all []byte) {
		for _, w := range ts {
			b, err := w.Bytes()
			check(t, err)
			all = append(all, b...)
		}
		return all
	}
	note := func(m *Model) {
		ws, err := m.GetWeights()
		check(t, err)
		states = append(states, join(ws))
		p, err := m.Predict(background, x)
		check(t, err)
		predictions = append(predictions, join([]*Tensor{p}))
	}
	config := FitConfig{Epochs: 6, BatchSize: 8, Verbose: VerbositySilent, Shuffle: new(false)}
	quiet := model()
	note(quiet)
	c := config
	c.Callbacks = []Callback{{BatchEnd: func(context.Context, *Run) error { note(quiet); return nil }}}
	_, err := quiet.Fit(background, FromTensors(x, y, nil), c)
	check(t, err)

	m := model()
	var done atomic.Bool
	var wg sync.WaitGroup
	var seen [3]atomic.Int64
	among := func(list [][]byte, b []byte) bool {
		return slices.ContainsFunc(list, func(a []byte) bool { return bytes.Equal(a, b) })
	}
	for i, f := range []func(){
		func() {
			p, err := m.Predict(background, x)
			check(t, err)
			if !among(predictions, join([]*Tensor{p})) {
				t.Error("a prediction that is of no time between two steps")
			}
		},
		func() {
			ws, err := m.GetWeights()
			check(t, err)
			if !among(states, join(ws)) {
				t.Error("weights that are of no time between two steps")
			}
		},
		func() {
			all, err := ArraysOf(m)
			check(t, err)
			var b []byte
			for _, a := range all {
				b = append(b, a.Data...)
			}
			if !among(states, b) {
				t.Error("a state that is of no time between two steps")
			}
		},
	} {
		wg.Go(func() {
			for !done.Load() {
				f()
				seen[i].Add(1)
			}
		})
	}
	for range 20 {
		again := model()
		ws, err := again.GetWeights()
		check(t, err)
		check(t, m.SetWeights(ws))
		_, err = again.Fit(background, FromTensors(x, y, nil), config) // beside it, with nothing in common
		check(t, err)
	}
	m2, err := m.GetWeights()
	check(t, err)
	if !bytes.Equal(join(m2), states[0]) {
		t.Error("reading has changed weights")
	}
	_, err = m.Fit(background, FromTensors(x, y, nil), config)
	check(t, err)
	done.Store(true)
	wg.Wait()
	last, err := m.GetWeights()
	check(t, err)
	if !bytes.Equal(join(last), states[len(states)-1]) {
		t.Error("a training that others have looked at ends with other weights")
	}
	t.Logf("read %d predictions, %d times weights, %d states", seen[0].Load(), seen[1].Load(), seen[2].Load())
}

// BenchmarkPredict predicts one sample from as many goroutines as there are
// processors: run it with -cpu 1,2,4. The first model computes for two microseconds,
// in which locks that goroutines share count; the second for a hundred.
func BenchmarkPredict(b *testing.B) {
	for _, c := range []struct {
		name  string
		shape []int
		model *Model
	}{
		{"dense", []int{1, 64}, Sequential(&layers.Dense{Units: 64, Activation: "relu"}, &layers.Dense{Units: 64, Activation: "relu"}, &layers.Dense{Units: 10, Activation: "softmax"})},
		{"lstm", []int{1, 32, 16}, Sequential(&layers.LSTM{Units: 48, ReturnSequences: true}, &layers.LSTM{Units: 48}, &layers.Dense{Units: 10, Activation: "softmax"})},
	} {
		b.Run(c.name, func(b *testing.B) {
			x := NewTensor(numbers(Shape(c.shape).Size()), c.shape...)
			if _, err := c.model.Predict(background, x); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					y, err := c.model.Predict(background, x)
					if err != nil {
						b.Error(err)
						return
					}
					y.Release()
				}
			})
		})
	}
}
