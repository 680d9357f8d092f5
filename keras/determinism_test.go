package keras_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// The training of the two user programs, on few digits: the last batch is
// ragged.
const (
	trainingSamples = 88
	batchSize       = 32
	epochs          = 2
)

func network() *keras.Model {
	return keras.Sequential(
		&layers.Dense{Units: 24, Activation: "relu"},
		&layers.BatchNormalization{},
		&layers.Dropout{Rate: 0.25},
		&layers.Dense{Units: 16, Activation: "gelu"},
		&layers.Dense{Units: 10},
		&layers.Activation{Activation: "softmax", DType: "float32"},
	)
}

// withFit trains by Model.Fit. The data are shuffled with seed 0.
func withFit(t *testing.T, data *keras.Pipeline, o ir.Options) [][]byte {
	t.Helper()
	m := network()
	err := m.Compile(keras.CompileConfig{
		Optimizer: &optimizers.RMSprop{},
		Loss:      &losses.SparseCategoricalCrossentropy{},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for b := range data.Batch(batchSize).Batches() {
		if err := keras.TrainOptions(m, b, o); err != nil {
			t.Fatal(err)
		}
		break
	}
	_, err = m.Fit(context.Background(), data, keras.FitConfig{BatchSize: batchSize, Epochs: epochs, Verbose: keras.VerbositySilent})
	if err != nil {
		t.Fatal(err)
	}
	return weights(t, m)
}

// withLoop trains by a loop of the user's.
func withLoop(t *testing.T, data *keras.Pipeline) [][]byte {
	t.Helper()
	m := network()
	scaler := &optimizers.LossScaleOptimizer{Inner: &optimizers.RMSprop{}}
	var optimizer optimizers.Optimizer = scaler.Inner
	if policy.Global().Compute == keras.Float16 {
		optimizer = scaler
	}
	lossObject := &losses.SparseCategoricalCrossentropy{}
	epochLoss := &metrics.Mean{}
	step := keras.Function(func(b keras.Batch) *keras.Tensor {
		predictions := m.Call(b.X, keras.Training)
		loss := lossObject.Call(b.Y, predictions)
		var gradients []*keras.Tensor
		if optimizer == scaler {
			scaled := keras.Gradients(scaler.GetScaledLoss(loss), m.TrainableVariables())
			gradients = scaler.GetUnscaledGradients(scaled)
		} else {
			gradients = keras.Gradients(loss, m.TrainableVariables())
		}
		optimizer.ApplyGradients(gradients, m.TrainableVariables())
		epochLoss.Add(loss)
		return loss
	}, m, optimizer, epochLoss)
	batches := data.Shuffle(trainingSamples).Batch(batchSize)
	for range epochs {
		if err := step.Each(context.Background(), batches.Batches()); err != nil {
			t.Fatal(err)
		}
	}
	if l, err := epochLoss.Result(); err != nil || math.IsNaN(l) || l > 5 {
		t.Fatalf("got loss %v, %v", l, err)
	}
	return weights(t, m)
}

func weights(t *testing.T, m *keras.Model) [][]byte {
	t.Helper()
	ws, err := m.GetWeights()
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for _, w := range ws {
		b, err := w.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

// TestSameBits trains in two ways, on several numbers of processors, and
// without each pass that may be left out. The weights are the same to the bit.
func TestSameBits(t *testing.T) {
	procs := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(procs)
	data := digits.Dataset(trainingSamples, 3)
	for _, p := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		previous := policy.SetGlobal(p)
		want := withFit(t, data, ir.Options{})
		compare := func(what string, got [][]byte) {
			t.Helper()
			if !slices.EqualFunc(got, want, slices.Equal[[]byte]) {
				t.Errorf("%s, %s: the weights are not those of Fit", p, what)
			}
		}
		for _, n := range []int{1, 2, 3, 8} {
			runtime.GOMAXPROCS(n)
			compare(fmt.Sprintf("Fit on %d processors", n), withFit(t, data, ir.Options{}))
			compare(fmt.Sprintf("a loop on %d processors", n), withLoop(t, data))
		}
		runtime.GOMAXPROCS(procs)
		for _, pass := range ir.OptionalPasses() {
			compare("without pass "+pass, withFit(t, data, ir.Options{Skip: []string{pass}}))
		}
		compare("without any pass", withFit(t, data, ir.Options{Skip: ir.OptionalPasses(), Check: true}))
		policy.SetGlobal(previous)
	}
}
