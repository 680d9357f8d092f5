// Command quantize trains a digit classifier, replaces its weights by 8-bit
// integers with Model.Quantize, or with Model.QuantizeStatic where it has
// convolutions, and compares both models: the program of docs/quantization.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/datasets/mnist"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "float32", "policy of the training: float32 or mixed_bfloat16")
	modelName  = flag.String("model", "dense", "model: dense, three dense layers, or cnn, two convolutions and a dense layer, quantized statically")
	units      = flag.Int("units", 512, "units of the hidden layers of the dense model")
	method     = flag.String("method", keras.CalibrationMinMax, "calibration of the cnn: min_max, percentile or mse")
	epochs     = flag.Int("epochs", 3, "epochs")
	data       = flag.String("data", "digits", `data: "digits" (built in), "mnist" (downloaded once), or a directory with the MNIST files`)
)

func main() { interrupt.Main(run) }

func load(ctx context.Context) (train, test *keras.Pipeline, err error) {
	switch *data {
	case "digits":
		return digits.Load()
	case "mnist":
		return mnist.LoadContext(ctx, "", mnist.Progbar(os.Stderr))
	}
	return mnist.Load(*data)
}

func run(ctx context.Context) error {
	if _, err := policy.Parse(*policyName); err != nil {
		return err
	}
	policy.SetGlobal(*policyName)
	model := keras.Sequential(
		&layers.Dense{Units: *units, Activation: "relu"},
		&layers.Dense{Units: *units, Activation: "relu"},
		&layers.Dense{Units: 10},
	)
	switch *modelName {
	case "dense":
	case "cnn":
		model = keras.Sequential(
			&layers.Reshape{TargetShape: []int{28, 28, 1}},
			&layers.Conv2D{Filters: 32, KernelSize: layers.PerAxis{3}, Activation: "relu"},
			&layers.MaxPooling2D{},
			&layers.Conv2D{Filters: 64, KernelSize: layers.PerAxis{3}, UseBias: new(false)},
			&layers.BatchNormalization{},
			&layers.ReLU{},
			&layers.MaxPooling2D{},
			&layers.Flatten{},
			&layers.Dense{Units: 10},
		)
	default:
		return fmt.Errorf("-model is %q, want dense or cnn", *modelName)
	}
	err := model.Compile(keras.CompileConfig{
		Loss:      &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Optimizer: &optimizers.Adam{},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return err
	}
	train, test, err := load(ctx)
	if err != nil {
		return err
	}
	if _, err := model.Fit(ctx, train, keras.FitConfig{BatchSize: 128, Epochs: *epochs, Verbose: keras.VerbositySilent}); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "quantize")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	report := func(name string) error {
		scores, err := model.Evaluate(ctx, test)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name+".keras")
		if err := saving.Save(path, model); err != nil {
			return err
		}
		file, err := os.Stat(path)
		if err != nil {
			return err
		}
		fmt.Printf("%-7s test accuracy %.4f, file %7d bytes\n", name, scores.Get("accuracy"), file.Size())
		return nil
	}
	if err := report("float"); err != nil {
		return err
	}
	if *modelName == "cnn" {
		// Inputs of convolutions get scales from predictions of 512 samples.
		err = model.QuantizeStatic(ctx, train.Take(512), keras.CalibrationConfig{Method: *method})
	} else {
		err = model.Quantize("int8")
	}
	if err != nil {
		return err
	}
	if err := report("int8"); err != nil {
		return err
	}
	return model.Summary(os.Stdout)
}
