package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var background = context.Background()

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("got error\n\t%v\nwant\n\t%s", err, text)
	}
}

// setting is a training in all its detail. Each call of its functions makes
// everything anew, as a new process would.
type setting struct {
	policy    string
	optimizer func() optimizers.Optimizer
	data      func() keras.Dataset
	config    keras.FitConfig
	nonFinite keras.NonFinite
}

// settings cover what a state must hold: every kind of optimizer state, each
// policy, samples in memory, generators, epochs that end within the data.
func settings() map[string]setting {
	dataset := func() keras.Dataset { return data(36, 1) }
	return map[string]setting{
		"float32, Adam, schedule, averages": {"float32", func() optimizers.Optimizer {
			return &optimizers.Adam{UseEMA: true, EMAMomentum: 0.9, EMAOverwriteFrequency: 7,
				Schedule: &optimizers.ExponentialDecay{InitialLearningRate: 0.05, DecaySteps: 3, DecayRate: 0.9}}
		}, dataset, keras.FitConfig{BatchSize: 8, Epochs: 3, Seed: 5, ValidationData: data(8, 3)}, 0},
		// The scale grows until steps are skipped, and falls again.
		"mixed_float16, loss scale": {"mixed_float16", func() optimizers.Optimizer {
			return &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{UseEMA: true},
				InitialScale: 1 << 20, DynamicGrowthSteps: 2, Growth: 8}
		}, dataset, keras.FitConfig{BatchSize: 8, Epochs: 3, ValidationSplit: 0.2}, 0},
		"mixed_bfloat16, accumulation, epochs of 4 steps": {"mixed_bfloat16", func() optimizers.Optimizer {
			return &optimizers.SGD{LearningRate: 0.05, Momentum: 0.9, GradientAccumulationSteps: 3}
		}, dataset, keras.FitConfig{BatchSize: 8, Epochs: 4, StepsPerEpoch: 4}, 0},
		"bfloat16, Nadam, cosine": {"bfloat16", func() optimizers.Optimizer {
			return &optimizers.Nadam{Schedule: &optimizers.CosineDecay{InitialLearningRate: 0.05, DecaySteps: 12}}
		}, func() keras.Dataset { return data(36, 1).Shuffle(10, 3).Batch(8).Prefetch(2) }, keras.FitConfig{Epochs: 3, ValidationData: data(8, 3), ValidationFreq: 2}, 0},
		"float16, generator, class weights": {"float16", func() optimizers.Optimizer { return &optimizers.RMSprop{} },
			func() keras.Dataset { return epochs{} },
			keras.FitConfig{Epochs: 3, ClassWeight: map[int]float64{0: 0.5}}, 0},
		// Some batches are not finite.
		"float32, batches skipped": {"float32", func() optimizers.Optimizer { return &optimizers.Adam{} },
			func() keras.Dataset { return data(36, 1).Shuffle(36, 3).Batch(8).Map(spoil) },
			keras.FitConfig{Epochs: 3, MaxSkipsAtFloor: 4}, keras.NonFiniteSkip},
	}
}

// data is a dataset of n samples of 6 features and 3 classes.
func data(n int, seed uint32) *keras.Pipeline {
	x, y := make([]float32, 6*n), make([]int32, n)
	for i := range x {
		seed = seed*1664525 + 1013904223
		x[i] = float32(seed>>8)/(1<<23) - 1
	}
	for i := range y {
		y[i] = int32(i % 3)
		x[6*i] += float32(y[i])
	}
	return keras.FromTensors(keras.NewTensor(x, n, 6), keras.NewTensor(y, n), nil)
}

// spoil puts a NaN into some batches.
func spoil(b keras.Batch) (keras.Batch, error) {
	x, err := b.X.Values()
	if err != nil {
		return b, err
	}
	if x[5] > 0.4 {
		x[0] = float32(math.NaN())
	}
	return keras.Batch{X: keras.NewTensor(x, b.X.Shape()...), Y: b.Y}, nil
}

// epochs is a dataset of its own type, of other samples in each epoch.
type epochs struct{}

func (e epochs) Batches() iter.Seq2[keras.Batch, error] { panic("opened without a number") }

func (epochs) EpochBatches(epoch int) iter.Seq2[keras.Batch, error] {
	return data(20, uint32(epoch)+100).Batch(8).Batches()
}

// run trains from scratch, or from the newest state, and returns everything
// that training makes.
func (s setting) run(t testing.TB, c keras.Checkpointer, every int, callbacks ...keras.Callback) (result, error) {
	t.Helper()
	return s.runUntil(background, t, c, every, callbacks...)
}

// runUntil is run with a context.
func (s setting) runUntil(ctx context.Context, t testing.TB, c keras.Checkpointer, every int, callbacks ...keras.Callback) (result, error) {
	t.Helper()
	defer policy.SetGlobal(policy.SetGlobal(s.policy))
	m := keras.Sequential(&layers.Dense{Units: 8, Activation: "relu"}, &layers.BatchNormalization{}, &layers.Dropout{Rate: 0.3},
		&layers.Dense{Units: 3})
	check(t, m.Compile(keras.CompileConfig{Optimizer: s.optimizer(), Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Metrics: []metrics.Metric{&metrics.SparseCategoricalAccuracy{}}, NonFinite: s.nonFinite}))
	f := s.config
	f.Verbose, f.Output, f.Checkpoint, f.SaveEvery, f.Callbacks = keras.VerbositySilent, io.Discard, c, every, callbacks
	h, err := m.Fit(ctx, s.data(), f)
	if err != nil {
		return result{}, err
	}
	var r result
	r.history = text(t, h)
	arrays, err := keras.ArraysOf(m, m.Optimizer())
	check(t, err)
	sum := sha256.New()
	for _, a := range arrays {
		fmt.Fprintln(sum, a.Name, a.Type)
		sum.Write(a.Data)
	}
	r.sum = fmt.Sprintf("%x", sum.Sum(nil))
	return r, nil
}

// result is what a training makes: the SHA-256 of all variables of the model
// and the optimizer, and the history.
type result struct{ sum, history string }

func text(t testing.TB, x any) string {
	t.Helper()
	b, err := json.Marshal(x)
	check(t, err)
	return string(b)
}

// state is a small one with awkward values.
func state(epoch, step int, losses ...float64) *keras.State {
	s := &keras.State{Epoch: epoch, Step: step, Data: keras.Position{Epoch: epoch, Batch: step},
		Setup:     keras.RunConfig{BatchSize: 8, Shuffle: true, Seed: math.MaxUint64, Batches: -1},
		Callbacks: []keras.CallbackState{{Name: "a", Data: json.RawMessage(`{"x":1}`)}, {Name: "b", Arrays: []keras.Array{array("", 3)}}},
		Model:     []keras.Array{array("dense/kernel", 2, 3), array("dense/bias"), array("empty", 0, 5)},
		Optimizer: []keras.Array{array("m", 65)}}
	for i, l := range losses {
		s.History.Epochs = append(s.History.Epochs, i)
		s.History.Logs = append(s.History.Logs, keras.Logs{{Name: "loss", Value: l}, {Name: "val_loss", Value: math.Inf(-1)}})
	}
	return s
}

func array(name string, shape ...int) keras.Array {
	n := 4
	for _, d := range shape {
		n *= d
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*7 + 1)
	}
	a := keras.Array{Name: name, Data: data}
	a.Type.DType, a.Type.Shape = keras.Float32, append(keras.Shape{}, shape...)
	return a
}

// dense is a model with a random state.
func dense(t testing.TB, units int, policyName string) *keras.Model {
	t.Helper()
	defer policy.SetGlobal(policy.SetGlobal(policyName))
	m := keras.Sequential(&layers.Dense{Units: units, Name: "a", BiasInitializer: "ones"}, &layers.Dropout{Rate: 0.5})
	check(t, m.Build(2))
	return m
}
