package keras_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/datasets/mnist"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

//go:generate go test . -run TestErrors -update

var update = flag.Bool("update", false, "rewrite the messages in docs/errors.md")

// errorCases makes every message of docs/errors.md, by its heading there.
var errorCases = map[string]func(t *testing.T) error{
	"Wrong input shape": func(t *testing.T) error {
		_, err := classifier(t).Predict(context.Background(), keras.NewTensor(make([]float32, 3*5), 3, 5))
		return err
	},
	"Batch of another width": func(t *testing.T) error {
		d := keras.FromGenerator(func() iter.Seq2[keras.Batch, error] {
			return func(yield func(keras.Batch, error) bool) {
				for _, width := range []int{4, 6} {
					if !yield(keras.Batch{X: keras.NewTensor(make([]float32, 2*width), 2, width), Y: keras.NewTensor(make([]int32, 2), 2)}, nil) {
						return
					}
				}
			}
		}, true)
		_, err := classifier(t).Fit(context.Background(), d, quiet)
		return err
	},
	"A policy without 8-bit integers": func(t *testing.T) error {
		m := keras.Sequential(&layers.Dense{Units: 4}, &layers.Dense{Units: 2, Name: "head", DType: "mixed_float16"})
		if _, err := m.Predict(context.Background(), keras.NewTensor(make([]float32, 4), 1, 4)); err != nil {
			t.Fatal(err)
		}
		return m.Quantize("int8")
	},
	"Training a quantized model": func(t *testing.T) error {
		m := classifier(t)
		if _, err := m.Predict(context.Background(), keras.NewTensor(make([]float32, 4), 1, 4)); err != nil {
			t.Fatal(err)
		}
		if err := m.Quantize("int8"); err != nil {
			t.Fatal(err)
		}
		return m.TrainStep(context.Background(), keras.Batch{X: keras.NewTensor(make([]float32, 4), 1, 4), Y: keras.NewTensor([]int32{0}, 1)})
	},
	"Integers where floats are wanted": func(t *testing.T) error {
		x := keras.InputOf(keras.Int32, 4)
		_, err := keras.NewModel(x, keras.Apply(&layers.Dense{Units: 2}, x))
		return err
	},
	"Unknown policy": func(t *testing.T) error {
		return build(&layers.Dense{Units: 2, DType: "float8", Name: "head"})
	},
	"Unknown activation": func(t *testing.T) error {
		return build(&layers.Dense{Units: 2, Activation: "rleu", Name: "head"})
	},
	"Unknown initializer": func(t *testing.T) error {
		return build(&layers.Dense{Units: 2, KernelInitializer: "glorot", Name: "head"})
	},
	"Unknown argument of an initializer": func(t *testing.T) error {
		return build(&layers.Dense{Units: 2, KernelInitializer: "random_normal(sttdev=0.1)", Name: "head"})
	},
	"Negative units": func(t *testing.T) error { return build(&layers.Dense{Units: -1}) },
	"Layer used twice with other shapes": func(t *testing.T) error {
		shared := &layers.Dense{Units: 2, Name: "shared"}
		a, b := keras.Input(4), keras.Input(5)
		y := keras.Apply(&layers.Add{}, keras.Apply(shared, a), keras.Apply(shared, b))
		_, err := keras.NewModel(keras.Tuple(a, b), y)
		return err
	},
	"Operation between layers": func(t *testing.T) error {
		x := keras.Input(4)
		_, err := keras.NewModel(x, keras.Apply(&layers.Dense{Units: 2}, x.DivScalar(255)))
		return err
	},
	"Two layers of one name": func(t *testing.T) error {
		x := keras.Input(4)
		y := keras.Apply(&layers.Dense{Units: 2, Name: "head"}, keras.Apply(&layers.Dense{Units: 2, Name: "head"}, x))
		_, err := keras.NewModel(x, y)
		return err
	},
	"Not compiled": func(t *testing.T) error {
		m := keras.Sequential(&layers.Dense{Units: 3})
		_, err := m.Fit(context.Background(), samples(8, 4, 3), quiet)
		return err
	},
	"No loss": func(t *testing.T) error {
		return keras.Sequential(&layers.Dense{Units: 3}).Compile(keras.CompileConfig{})
	},
	"Wrapped twice": func(t *testing.T) error {
		inner := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}}
		return keras.Sequential(&layers.Dense{Units: 3}).Compile(keras.CompileConfig{
			Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.LossScaleOptimizer{Inner: inner}})
	},
	"Label out of range": func(t *testing.T) error {
		x := keras.NewTensor(make([]float32, 2*4), 2, 4)
		_, err := classifier(t).TrainOnBatch(context.Background(), keras.Batch{X: x, Y: keras.NewTensor([]int32{1, 12}, 2)})
		return err
	},
	"Label that is no whole number": func(t *testing.T) error {
		x := keras.NewTensor(make([]float32, 2*4), 2, 4)
		_, err := classifier(t).TrainOnBatch(context.Background(), keras.Batch{X: x, Y: keras.NewTensor([]float32{1, float32(math.NaN())}, 2)})
		return err
	},
	"Empty dataset": func(t *testing.T) error {
		_, err := classifier(t).Fit(context.Background(), samples(0, 4, 3), quiet)
		return err
	},
	"Sample counts that differ": func(t *testing.T) (err error) {
		defer tensor.Catch(&err)
		keras.FromTensors(keras.NewTensor(make([]float32, 8), 4, 2), keras.NewTensor(make([]int32, 3), 3), nil)
		return nil
	},
	"Bad argument of Fit": func(t *testing.T) error {
		_, err := classifier(t).Fit(context.Background(), samples(8, 4, 3), keras.FitConfig{BatchSize: -8})
		return err
	},
	"Validation split that leaves nothing": func(t *testing.T) error {
		_, err := classifier(t).Fit(context.Background(), samples(3, 4, 3), keras.FitConfig{ValidationSplit: 0.1, Verbose: keras.VerbositySilent})
		if err != nil {
			return err
		}
		_, err = classifier(t).Fit(context.Background(), samples(1, 4, 3), keras.FitConfig{ValidationSplit: 0.5, Verbose: keras.VerbositySilent})
		return err
	},
	"NaN in the input": func(t *testing.T) error {
		defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
		m := classifier(t)
		x := make([]float32, 40*4)
		x[5] = float32(math.NaN())
		d := keras.FromTensors(keras.NewTensor(x, 40, 4), keras.NewTensor(make([]int32, 40), 40), nil)
		_, err := m.Fit(context.Background(), d, keras.FitConfig{BatchSize: 40, Epochs: 40, Verbose: keras.VerbositySilent})
		return err
	},
	"Overflow at the lowest loss scale": func(t *testing.T) error {
		defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
		m := keras.Sequential(
			&layers.Dense{Units: 4, Name: "huge", KernelInitializer: "constant(300)"},
			&layers.Dense{Units: 3, Name: "head", KernelInitializer: "constant(300)"})
		if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{}}); err != nil {
			return err
		}
		ones := make([]float32, 8*4)
		for i := range ones {
			ones[i] = 1
		}
		d := keras.FromTensors(keras.NewTensor(ones, 8, 4), keras.NewTensor(make([]float32, 8*3), 8, 3), nil)
		_, err := m.Fit(context.Background(), d, keras.FitConfig{BatchSize: 8, Epochs: 40, Verbose: keras.VerbositySilent})
		return err
	},
	"Owner forgotten in Function's list": func(t *testing.T) error {
		m := classifier(t)
		opt := &optimizers.SGD{}
		loss := &losses.SparseCategoricalCrossentropy{}
		step := keras.Function(func(b keras.Batch) *keras.Tensor {
			l := loss.Call(b.Y, m.Call(b.X, keras.Training))
			opt.ApplyGradients(keras.Gradients(l, m.TrainableVariables()), m.TrainableVariables())
			return l
		}, m) // opt is missing
		_, err := step.Call(context.Background(), keras.Batch{X: keras.NewTensor(make([]float32, 8), 2, 4), Y: keras.NewTensor([]int32{0, 1}, 2)})
		return err
	},
	"Scaled gradients applied": func(t *testing.T) error {
		return scaledStep(t, func(o *optimizers.LossScaleOptimizer, g []*keras.Tensor, v []*keras.Variable) {
			o.ApplyGradients(g, v)
		})
	},
	"Gradients unscaled twice": func(t *testing.T) error {
		return scaledStep(t, func(o *optimizers.LossScaleOptimizer, g []*keras.Tensor, v []*keras.Variable) {
			o.GetUnscaledGradients(o.GetUnscaledGradients(g))
		})
	},
	"Loss that was not scaled": func(t *testing.T) error {
		return customStep(t, &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}})
	},
	"float16 without a loss scale": func(t *testing.T) error {
		defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
		return customStep(t, &optimizers.SGD{})
	},
	"Two loss scales": func(t *testing.T) error {
		other := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}, Name: "other"}
		return scaledStep(t, func(o *optimizers.LossScaleOptimizer, g []*keras.Tensor, v []*keras.Variable) {
			other.ApplyGradients(o.GetUnscaledGradients(g), v)
		})
	},
	"Loss scale of a layer that is not there": func(t *testing.T) error {
		o := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}, Groups: []optimizers.LossScaleGroup{{Layers: "encoder"}}}
		return scaledStepOf(t, o, func(_ *optimizers.LossScaleOptimizer, g []*keras.Tensor, v []*keras.Variable) {
			o.ApplyGradients(o.GetUnscaledGradients(g), v)
		})
	},
	"Metric read in a step": func(t *testing.T) (err error) {
		mean := &metrics.Mean{}
		step := keras.Function(func(x *keras.Tensor) *keras.Tensor {
			mean.Add(x)
			_, err = mean.Result()
			return x
		}, mean)
		if _, err := step.Call(context.Background(), keras.NewTensor([]float32{1}, 1)); err != nil {
			t.Fatal(err)
		}
		return err
	},
	"Nil owner": func(t *testing.T) error {
		var optimizer *optimizers.Adam
		_, err := keras.Function(func(x *keras.Tensor) *keras.Tensor { return x }, classifier(t), optimizer).
			Call(context.Background(), keras.NewTensor([]float32{1}, 1))
		return err
	},
	"Nil context": func(t *testing.T) error {
		var ctx context.Context
		_, err := classifier(t).Fit(ctx, samples(8, 4, 3), quiet)
		return err
	},
	"Learning rate that is not a number": func(t *testing.T) error {
		return keras.Sequential(&layers.Dense{Units: 3}).Compile(keras.CompileConfig{
			Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.Adam{LearningRate: math.NaN()}})
	},
	"Schedule that is not a number": func(t *testing.T) error {
		return keras.Sequential(&layers.Dense{Units: 3}).Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.Adam{
			Schedule: &optimizers.CosineDecay{InitialLearningRate: math.Inf(1), DecaySteps: 100}}})
	},
	"Class weight that is not a number": func(t *testing.T) error {
		c := quiet
		c.ClassWeight = map[int]float64{0: 1, 1: math.NaN()}
		_, err := classifier(t).Fit(context.Background(), samples(8, 4, 3), c)
		return err
	},
	"Frozen after Compile": func(t *testing.T) error {
		m := classifier(t)
		m.SetTrainable(false)
		_, err := m.Fit(context.Background(), samples(8, 4, 3), quiet)
		return err
	},
	"LearningRate set after the first step": func(t *testing.T) error {
		adam := &optimizers.Adam{}
		m := classifier(t)
		if err := m.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}, Optimizer: adam}); err != nil {
			return err
		}
		if _, err := m.Fit(context.Background(), samples(8, 4, 3), quiet); err != nil {
			return err
		}
		adam.LearningRate = 1e-4
		_, err := m.Fit(context.Background(), samples(8, 4, 3), quiet)
		return err
	},
	"Corrupt MNIST file": func(t *testing.T) error {
		return mnistError(t, func(b []byte) []byte { return append([]byte("not "), b...) }, false)
	},
	"Truncated MNIST file": func(t *testing.T) error {
		return mnistError(t, func(b []byte) []byte { return b[:len(b)/2] }, true)
	},
}

var quiet = keras.FitConfig{Verbose: keras.VerbositySilent, BatchSize: 2}

func build(l layers.Layer) error {
	x := keras.Input(4)
	_, err := keras.NewModel(x, keras.Apply(l, x))
	return err
}

// classifier returns a compiled model of 4 features and 3 classes.
func classifier(t *testing.T) *keras.Model {
	t.Helper()
	x := keras.Input(4)
	m, err := keras.NewModel(x, keras.Apply(&layers.Dense{Units: 3, Name: "head"}, x))
	if err == nil {
		err = m.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Optimizer: &optimizers.SGD{}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func samples(n, width, classes int) *keras.Pipeline {
	y := make([]int32, n)
	for i := range y {
		y[i] = int32(i % classes)
	}
	return keras.FromTensors(keras.NewTensor(make([]float32, n*width), n, width), keras.NewTensor(y, n), nil)
}

func scaledStep(t *testing.T, use func(*optimizers.LossScaleOptimizer, []*keras.Tensor, []*keras.Variable)) error {
	return scaledStepOf(t, &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}}, use)
}

// scaledStepOf is scaledStep of a given optimizer.
func scaledStepOf(t *testing.T, opt *optimizers.LossScaleOptimizer, use func(*optimizers.LossScaleOptimizer, []*keras.Tensor, []*keras.Variable)) error {
	m := classifier(t)
	loss := &losses.SparseCategoricalCrossentropy{FromLogits: true}
	step := keras.Function(func(b keras.Batch) *keras.Tensor {
		l := loss.Call(b.Y, m.Call(b.X))
		use(opt, keras.Gradients(opt.GetScaledLoss(l), m.TrainableVariables()), m.TrainableVariables())
		return l
	}, m, opt)
	_, err := step.Call(context.Background(), keras.Batch{X: keras.NewTensor(make([]float32, 8), 2, 4), Y: keras.NewTensor([]int32{0, 1}, 2)})
	return err
}

// customStep is a step of a loop that scales no loss.
func customStep(t *testing.T, opt optimizers.Optimizer) error {
	m := classifier(t)
	loss := &losses.SparseCategoricalCrossentropy{FromLogits: true}
	step := keras.Function(func(b keras.Batch) *keras.Tensor {
		l := loss.Call(b.Y, m.Call(b.X, keras.Training))
		opt.ApplyGradients(keras.Gradients(l, m.TrainableVariables()), m.TrainableVariables())
		return l
	}, m, opt)
	_, err := step.Call(context.Background(), keras.Batch{X: keras.NewTensor(make([]float32, 8), 2, 4), Y: keras.NewTensor([]int32{0, 1}, 2)})
	return err
}

// mnistError loads a directory whose training images went through spoil.
func mnistError(t *testing.T, spoil func([]byte) []byte, inside bool) error {
	dir := t.TempDir()
	for _, f := range []struct {
		name  string
		count int
		dims  []uint32
	}{
		{"train-images-idx3-ubyte.gz", 4 * 784, []uint32{4, 28, 28}},
		{"train-labels-idx1-ubyte.gz", 4, []uint32{4}},
		{"t10k-images-idx3-ubyte.gz", 2 * 784, []uint32{2, 28, 28}},
		{"t10k-labels-idx1-ubyte.gz", 2, []uint32{2}},
	} {
		raw := []byte{0, 0, 8, byte(len(f.dims))}
		for _, d := range f.dims {
			raw = append(raw, byte(d>>24), byte(d>>16), byte(d>>8), byte(d))
		}
		raw = append(raw, make([]byte, f.count)...)
		first := strings.HasPrefix(f.name, "train-images")
		if first && inside {
			raw = spoil(raw)
		}
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		w.Write(raw)
		w.Close()
		b := z.Bytes()
		if first && !inside {
			b = spoil(b)
		}
		if err := os.WriteFile(filepath.Join(dir, f.name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := mnist.Load(dir)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.ReplaceAll(err.Error(), dir, "DIR"))
}

// TestErrors holds docs/errors.md to the messages that the code gives: every
// heading has a case, every case a heading, and the texts agree.
func TestErrors(t *testing.T) {
	const file = "../docs/errors.md"
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	entry := regexp.MustCompile("(?m)^### (.+)\n+```\n((?s:.*?))\n```\n")
	documented := map[string]string{}
	for _, m := range entry.FindAllStringSubmatch(string(doc), -1) {
		documented[m[1]] = m[2]
	}
	for _, name := range slices.Sorted(maps.Keys(errorCases)) {
		want, ok := documented[name]
		if !ok {
			t.Errorf("docs/errors.md has no entry %q", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			err := errorCases[name](t)
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); got != want {
				if *update {
					doc = bytes.Replace(doc, []byte("### "+name+"\n\n```\n"+want+"\n"), []byte("### "+name+"\n\n```\n"+got+"\n"), 1)
					return
				}
				t.Errorf("got\n%s\ndocs/errors.md has\n%s", got, want)
			}
		})
	}
	for name := range documented {
		if errorCases[name] == nil && !elsewhere[name] {
			t.Errorf("docs/errors.md has entry %q, which no case makes", name)
		}
	}
	if *update {
		if err := os.WriteFile(file, doc, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// elsewhere lists entries whose messages need a failing disk or server; the
// tests of keras/datasets/mnist compare them.
var elsewhere = map[string]bool{"Wrong checksum": true, "Full disk": true}

// TestErrorKinds: errors.Is and errors.As find what docs/errors.md promises.
func TestErrorKinds(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	unbuilt := keras.Sequential(&layers.Dense{Units: 1})
	for _, c := range []struct {
		heading string
		is      error
	}{
		{"Not compiled", keras.ErrNotCompiled}, {"Empty dataset", keras.ErrEmptyDataset}, {"Interrupted training", context.Canceled},
		{"Damaged checkpoint", checkpoint.ErrDamaged}, {"Truncated checkpoint", checkpoint.ErrTruncated}, {"File that is no checkpoint", checkpoint.ErrNoCheckpoint}, {"Newest checkpoint that cannot be read", checkpoint.ErrVersion},
	} {
		if err := errorCases[c.heading](t); !errors.Is(err, c.is) {
			t.Errorf("%s: errors.Is does not find %q in %v", c.heading, c.is, err)
		}
	}
	_, err := unbuilt.GetWeights()
	if !errors.Is(err, keras.ErrNotBuilt) {
		t.Errorf("errors.Is does not find ErrNotBuilt in %v", err)
	}
	if err := checkpoint.LoadWeights(filepath.Join(t.TempDir(), "none"), classifier(t)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("errors.Is does not find fs.ErrNotExist in %v", err)
	}
	m := classifier(t)
	if _, err := m.Fit(ended, samples(8, 4, 3), quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("Fit: got %v, want context.Canceled", err)
	}
	if _, err := m.Evaluate(ended, samples(8, 4, 3)); !errors.Is(err, context.Canceled) {
		t.Errorf("Evaluate: got %v, want context.Canceled", err)
	}
	var index *driver.IndexError
	if err := errorCases["Label out of range"](t); !errors.As(err, &index) || index.Got != 12 || index.Size != 3 {
		t.Errorf("errors.As does not find *driver.IndexError in %v", err)
	}
	var setup *keras.RunConfigError
	if err := errorCases["Resumed with another batch size"](t); !errors.As(err, &setup) || setup.Name != "BatchSize" || setup.Now != 4 || setup.Then != 2 {
		t.Errorf("errors.As does not find *keras.RunConfigError in %v", err)
	}
	var first *tensor.NonFinite
	if err := errorCases["Overflow at the lowest loss scale"](t); !errors.As(err, &first) || first.Path != "head/grad" {
		t.Errorf("errors.As does not find *tensor.NonFinite in %v", err)
	}
	var memory *keras.MemoryError
	if err := errorCases["Model that does not fit into memory"](t); !errors.As(err, &memory) || memory.Limit != 1<<30 || memory.Largest[0].Bytes != 4*20000*40000 {
		t.Errorf("errors.As does not find *keras.MemoryError in %v", err)
	}
	var shape *tensor.Error
	if err := errorCases["Integers where floats are wanted"](t); !errors.As(err, &shape) || shape.Path != "dense" {
		t.Errorf("errors.As does not find *tensor.Error in %v", err)
	}
	want := errors.New("mine")
	_, err = m.Fit(context.Background(), samples(8, 4, 3), keras.FitConfig{Verbose: keras.VerbositySilent,
		Callbacks: []keras.Callback{{EpochEnd: func(context.Context, *keras.Run) error { return want }}}})
	if !errors.Is(err, want) {
		t.Errorf("errors.Is does not find the error of a hook in %v", err)
	}
}
