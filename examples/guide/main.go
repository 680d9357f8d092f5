// Command guide trains a digit classifier in mixed precision with Model.Fit:
// the program of docs/mixed-precision.md. Without flags it draws its own
// digits and is done in seconds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/datasets/mnist"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_float16", "policy: mixed_float16, mixed_bfloat16 or float32")
	units      = flag.Int("units", 0, "units of the hidden layers (default 64 on a CPU, 4096 on a GPU)")
	batch      = flag.Int("batch", 0, "samples per step (default 8192 for mnist, 512 for digits)")
	epochs     = flag.Int("epochs", 5, "epochs")
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
	p := policy.Global()
	fmt.Println("Compute dtype:", p.Compute, " Variable dtype:", p.Variable)

	n := *units
	if n == 0 {
		n = 64 // few enough for a CPU
		if slices.Contains(backend.Devices(), "cuda") {
			n = 4096
		}
	}
	inputs := keras.Input(784)
	dense1 := &layers.Dense{Units: n, Activation: "relu", Name: "dense_1"}
	x := keras.Apply(dense1, inputs)
	dense2 := &layers.Dense{Units: n, Activation: "relu", Name: "dense_2"}
	x = keras.Apply(dense2, x)
	if x.Err() == nil {
		fmt.Println(dense1.Policy(), "x:", x.DType(), "kernel:", dense1.Weights()[0].DType())
	}

	// Softmax and the model's output are float32.
	x = keras.Apply(&layers.Dense{Units: 10, Name: "dense_logits"}, x)
	outputs := keras.Apply(&layers.Activation{Activation: "softmax", DType: "float32", Name: "predictions"}, x)

	model, err := keras.NewModel(inputs, outputs)
	if err != nil {
		return err
	}
	err = model.Compile(keras.CompileConfig{
		Loss:      &losses.SparseCategoricalCrossentropy{},
		Optimizer: &optimizers.RMSprop{},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return err
	}

	train, test, err := load(ctx)
	if err != nil {
		return err
	}
	size := *batch
	if size == 0 {
		size = 8192
		if *data == "digits" {
			size = 512
		}
	}
	_, err = model.Fit(ctx, train, keras.FitConfig{
		BatchSize:       size,
		Epochs:          *epochs,
		ValidationSplit: 0.2,
		Checkpoint:      interrupt.Checkpoint(""),
	})
	if err != nil {
		return err
	}
	scores, err := model.Evaluate(ctx, test)
	if err != nil {
		return err
	}
	fmt.Println("Test loss:", scores.Get("loss"))
	fmt.Println("Test accuracy:", scores.Get("accuracy"))
	return nil
}
