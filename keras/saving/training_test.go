package saving_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// training is one that Keras has saved after some steps, and how it goes on;
// see testdata/training.py.
type training struct {
	path       string
	X, Y       []float32
	Losses     []float64
	Head       []float32
	Scale      float64
	optimizer  func() optimizers.Optimizer
	loss       keras.DType // the type that rounds most
	iterations int64       // in the file
}

// trainings unpacks testdata/training.zip.
func trainings(t *testing.T) map[string]training {
	t.Helper()
	half, single := keras.Float16, keras.Float32
	out := map[string]training{
		"mixed_float16": {optimizer: func() optimizers.Optimizer { return &optimizers.Adam{LearningRate: 0.05} }, loss: half, iterations: 3},
		"overflowed": {optimizer: func() optimizers.Optimizer {
			return &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{LearningRate: 0.1, Momentum: 0.9}, DynamicGrowthSteps: 4}
		}, loss: half, iterations: 4},
		"accumulating": {optimizer: func() optimizers.Optimizer { return &optimizers.Adam{LearningRate: 0.05, GradientAccumulationSteps: 2} }, loss: single, iterations: 1},
		"accumulating_3": {optimizer: func() optimizers.Optimizer {
			return &optimizers.SGD{LearningRate: 0.1, Momentum: 0.9, Nesterov: true, GradientAccumulationSteps: 3}
		}, loss: single, iterations: 1},
		"accumulated": {optimizer: func() optimizers.Optimizer {
			return &optimizers.AdamW{LearningRate: 0.05, GradientAccumulationSteps: 2}
		}, loss: single, iterations: 2},
		"mixed_accumulating": {optimizer: func() optimizers.Optimizer { return &optimizers.Adam{LearningRate: 0.05, GradientAccumulationSteps: 2} }, loss: half, iterations: 1},
		"parts": {optimizer: func() optimizers.Optimizer {
			return &optimizers.MultiOptimizer{OptimizerMap: optimizers.OptimizerMap{
				Default: &optimizers.Adam{LearningRate: 0.05, GradientAccumulationSteps: 2},
				Entries: []optimizers.OptimizerEntry{{Variables: ".*bias", Optimizer: &optimizers.SGD{LearningRate: 0.1, Momentum: 0.9, GradientAccumulationSteps: 2}}},
			}}
		}, loss: single, iterations: 1},
		"transfer": {optimizer: func() optimizers.Optimizer { return &optimizers.Adam{LearningRate: 0.05} }, loss: single, iterations: 2},
	}
	z, err := zip.OpenReader("testdata/training.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for name, c := range out {
		c.path = filepath.Join(t.TempDir(), name+".keras")
		if err := json.Unmarshal(memberOf(t, &z.Reader, name+".json"), &c); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.path, memberOf(t, &z.Reader, name+".keras"), 0o600); err != nil {
			t.Fatal(err)
		}
		out[name] = c
	}
	if n := len(z.File); n != 2*len(out) {
		t.Errorf("got %d files, want those of %d trainings", n, len(out))
	}
	return out
}

// begin loads the model, compiles it and makes its slots with one step.
func (c training) begin(t *testing.T) *keras.Model {
	t.Helper()
	m, err := saving.Load(c.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: c.optimizer()}); err != nil {
		t.Fatal(err)
	}
	c.step(t, m)
	return m
}

// step is one call of Keras's train_on_batch.
func (c training) step(t *testing.T, m *keras.Model) float64 {
	t.Helper()
	logs, err := m.TrainOnBatch(t.Context(), keras.Batch{X: keras.NewTensor(c.X, 8, 3), Y: keras.NewTensor(c.Y, 8, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return logs.Get("loss")
}

// optimizerIn is what a weight file holds of the optimizer.
func optimizerIn(t *testing.T, path string) map[string][]byte {
	t.Helper()
	root, closeFile, err := hdf5.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFile()
	out := map[string][]byte{}
	for _, group := range []string{"optimizer/vars", "optimizer/inner_optimizer/vars"} {
		g := root.Group(group)
		if g == nil {
			continue
		}
		for name, d := range g.Datasets {
			b, err := d.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			out[group+"/"+name] = append([]byte(d.Type.String()+" "), b...)
		}
	}
	return out
}

// TestGoldenTraining goes on with trainings of Keras: the losses are Keras's,
// and what is saved of the optimizer at once is what was read, to the bit.
func TestGoldenTraining(t *testing.T) {
	for name, c := range trainings(t) {
		t.Run(name, func(t *testing.T) {
			m := c.begin(t)
			if err := saving.LoadWeights(c.path, m, saving.WithOptimizer(m.Optimizer())); err != nil {
				t.Fatal(err)
			}
			if n, err := optimizers.Iterations(m.Optimizer()); n != c.iterations || err != nil {
				t.Errorf("got %d applied steps, want %d, error %v", n, c.iterations, err)
			}
			if r, err := optimizers.Result(m.Optimizer()); r.AppliedSteps != c.iterations || r.SkippedSteps != 0 || err != nil {
				t.Errorf("got %+v, want %d applied steps and none skipped, error %v", r, c.iterations, err)
			}
			dir := t.TempDir()
			again, keras := filepath.Join(dir, "again.weights.h5"), filepath.Join(dir, "keras.weights.h5")
			if err := saving.SaveWeights(again, m, saving.WithOptimizer(m.Optimizer())); err != nil {
				t.Fatal(err)
			}
			z, err := zip.OpenReader(c.path)
			if err != nil {
				t.Fatal(err)
			}
			defer z.Close()
			if err := os.WriteFile(keras, memberOf(t, &z.Reader, "model.weights.h5"), 0o600); err != nil {
				t.Fatal(err)
			}
			if got, want := optimizerIn(t, again), optimizerIn(t, keras); !maps.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("saved again, the optimizer is\n%x\nwant\n%x", got, want)
			}
			// Some ten roundings in a step, of numbers that the steps before have
			// moved: 16 for each.
			rel, abs := c.loss.Tolerance()
			for i, want := range c.Losses {
				if got := c.step(t, m); !(math.Abs(got-want) <= 16*float64(i+1)*(abs+rel*want)) {
					t.Errorf("loss of call %d: got %v, want %v", i, got, want)
				}
			}
			i := slices.IndexFunc(m.Weights(), func(w *layers.Weight) bool { return w.Name() == "head/kernel" })
			head, err := m.Weights()[i].Values()
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range c.Head {
				if diff := math.Abs(float64(head[i]) - float64(want)); !(diff <= 16*float64(len(c.Losses))*(abs+rel*math.Abs(float64(want)))) {
					t.Errorf("weight %d of the head: got %v, want %v", i, head[i], want)
				}
			}
			if r, err := optimizers.Result(m.Optimizer()); c.Scale != 0 && r.LossScale != c.Scale || err != nil {
				t.Errorf("got %+v, want a loss scale of %v, error %v", r, c.Scale, err)
			}
		})
	}
}

// dense is a compiled model of one layer that has had one step on x.
func dense(t *testing.T, dtype string, o optimizers.Optimizer, x ...float32) *keras.Model {
	t.Helper()
	m := keras.Sequential(&layers.Dense{Units: 1, DType: dtype})
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: o}); err != nil {
		t.Fatal(err)
	}
	denseStep(t, m, x...)
	return m
}

func denseStep(t *testing.T, m *keras.Model, x ...float32) {
	t.Helper()
	if _, err := m.TrainOnBatch(t.Context(), keras.Batch{X: keras.NewTensor(x, 1, len(x)), Y: keras.NewTensor([]float32{1}, 1, 1)}); err != nil {
		t.Fatal(err)
	}
}

// passed saves the weights and the optimizer of one model and loads them into another.
func passed(t *testing.T, from, to *keras.Model) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.weights.h5")
	if err := saving.SaveWeights(path, from, saving.WithOptimizer(from.Optimizer())); err != nil {
		t.Fatal(err)
	}
	return saving.LoadWeights(path, to, saving.WithOptimizer(to.Optimizer()))
}

// TestLossScaleTravels: the scale goes with the state of the optimizer, within
// the bounds that it has where it is read, and between optimizers with and
// without loss scaling the rest does.
func TestLossScaleTravels(t *testing.T) {
	scaled := func(o optimizers.LossScaleOptimizer) *keras.Model {
		o.Inner = &optimizers.Adam{}
		return dense(t, "mixed_float16", &o, 1, 2)
	}
	from := scaled(optimizers.LossScaleOptimizer{InitialScale: 1 << 10, DynamicGrowthSteps: 3})
	denseStep(t, from, 1, 2)
	for name, c := range map[string]struct {
		to    *keras.Model
		scale float64
	}{
		"defaults":        {scaled(optimizers.LossScaleOptimizer{}), 1 << 10},
		"smaller maximum": {scaled(optimizers.LossScaleOptimizer{InitialScale: 4, MaxScale: 8}), 8},
		"larger minimum":  {scaled(optimizers.LossScaleOptimizer{MinScale: 1 << 12}), 1 << 12},
		"fixed":           {scaled(optimizers.LossScaleOptimizer{InitialScale: 2, Fixed: true}), 2},
		"none":            {dense(t, "float32", &optimizers.Adam{}, 1, 2), 1},
	} {
		if err := passed(t, from, c.to); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r, err := optimizers.Result(c.to.Optimizer()); r.LossScale != c.scale || r.AppliedSteps != 2 || err != nil {
			t.Errorf("%s: got %+v, want a scale of %v and 2 applied steps, error %v", name, r, c.scale, err)
		}
	}
	// What counts good steps came along: the scale doubles after the third.
	to := scaled(optimizers.LossScaleOptimizer{DynamicGrowthSteps: 3})
	if err := passed(t, from, to); err != nil {
		t.Fatal(err)
	}
	denseStep(t, to, 1, 2)
	if r, err := optimizers.Result(to.Optimizer()); r.LossScale != 1<<11 || err != nil {
		t.Errorf("got a scale of %v after the third good step, want %v, error %v", r.LossScale, 1<<11, err)
	}
	// Without loss scaling in the file the scale stays.
	to = scaled(optimizers.LossScaleOptimizer{InitialScale: 1 << 5})
	if err := passed(t, dense(t, "float32", &optimizers.Adam{}, 1, 2), to); err != nil {
		t.Fatal(err)
	}
	if r, err := optimizers.Result(to.Optimizer()); r.LossScale != 1<<5 || err != nil {
		t.Errorf("got a scale of %v from a file without one, want %v, error %v", r.LossScale, 1<<5, err)
	}
}

// TestWindowTravels: an open window of accumulated gradients goes on where it
// was; one that will be skipped begins again; and one of another length is an
// error.
func TestWindowTravels(t *testing.T) {
	window := func(dtype string, n int, x ...float32) *keras.Model {
		var o optimizers.Optimizer = &optimizers.SGD{LearningRate: 0.5, GradientAccumulationSteps: n}
		if dtype != "float32" {
			o = &optimizers.LossScaleOptimizer{Inner: o, InitialScale: 8}
		}
		return dense(t, dtype, o, x...)
	}
	kernel := func(m *keras.Model) []float32 {
		t.Helper()
		v, err := m.Weights()[0].Values()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	from, to := window("float32", 3, 1, 2), window("float32", 3, 3, 4)
	if err := passed(t, from, to); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		denseStep(t, from, 2, 1)
		denseStep(t, to, 2, 1)
	}
	if got, want := kernel(to), kernel(from); !slices.Equal(got, want) {
		t.Errorf("after the window: got %v, want %v", got, want)
	}

	if err := passed(t, window("float32", 3, 1, 2), window("float32", 0, 1, 2)); err == nil {
		t.Error("a window was loaded into an optimizer without one")
	}
	from = window("float32", 3, 1, 2)
	denseStep(t, from, 2, 1)
	const want = "optimizer sgd: after 2 calls no window of GradientAccumulationSteps 2 is open, but sgd/dense_kernel_gradient_accumulator is not 0"
	if err := passed(t, from, window("float32", 2, 1, 2)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want one with %q", err, want)
	}

	inf := float32(math.Inf(1))
	from, to = window("mixed_float16", 2, inf, 1), window("mixed_float16", 2, 1, 2)
	if err := passed(t, from, to); err != nil {
		t.Fatal(err)
	}
	before := kernel(to)
	denseStep(t, to, 1, 2) // the first of its window
	if got := kernel(to); !slices.Equal(got, before) {
		t.Errorf("got %v after the first call of a window, want %v", got, before)
	}
	denseStep(t, to, 1, 2)
	got := kernel(to)
	if slices.Equal(got, before) || math.IsNaN(float64(got[0])) {
		t.Errorf("got %v after a window without overflow, want a step from %v", got, before)
	}
}

// TestRateZero: a rate of 0 in a file of Keras is 0 here, moves nothing, and is 0 in the
// file that is saved.
func TestRateZero(t *testing.T) {
	z, err := zip.OpenReader("testdata/graphs.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := t.TempDir()
	path := filepath.Join(dir, "m.keras")
	if err := os.WriteFile(path, memberOf(t, &z.Reader, "frozen_rate.keras"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{LearningRate: 0.5}}); err != nil {
		t.Fatal(err)
	}
	step := func() {
		if _, err := m.TrainOnBatch(t.Context(), keras.Batch{X: keras.NewTensor([]float32{1, 2, 3, 4}, 1, 4), Y: keras.NewTensor([]float32{1, 2}, 1, 2)}); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if err := saving.LoadWeights(path, m, saving.WithOptimizer(m.Optimizer())); err != nil {
		t.Fatal(err)
	}
	want := must(t, m.Weights()[0])
	step()
	if got := must(t, m.Weights()[0]); !slices.Equal(got, want) {
		t.Errorf("a step with a rate of 0 moved a weight from %v to %v", want, got)
	}
	saved := filepath.Join(dir, "m.weights.h5")
	if err := saving.SaveWeights(saved, m, saving.WithOptimizer(m.Optimizer())); err != nil {
		t.Fatal(err)
	}
	rate := optimizerIn(t, saved)["optimizer/vars/1"] // after iteration, as in Keras
	if !bytes.HasSuffix(rate, make([]byte, 4)) || !bytes.HasPrefix(rate, []byte("float32")) {
		t.Errorf("saved a rate of %q, want the float32 0", rate)
	}
}
