// Command audit trains the guide's model with a journal, and then computes steps of it
// again: docs/reproducibility.md shows its commands.
//
//	go run ./examples/audit run /tmp/a
//	go run ./examples/audit run /tmp/b -flip 37
//	go run ./examples/audit diff /tmp/a /tmp/b
package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/journal"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

func main() { journal.Main(training) }

// training makes the training that the arguments describe.
func training(args []string) (*journal.Training, error) {
	flags := flag.NewFlagSet("audit run", flag.ContinueOnError)
	policyName := flags.String("policy", "mixed_float16", "policy: mixed_float16, mixed_bfloat16 or float32")
	units := flags.Int("units", 64, "units of the hidden layers")
	batch := flags.Int("batch", 128, "samples per step")
	epochs := flags.Int("epochs", 2, "epochs")
	every := flags.Int("every", 20, "steps between checkpoints")
	seed := flags.Uint64("seed", 0, "seed of the order of the samples")
	activation := flags.String("activation", "relu", "activation of the hidden layers")
	flip := flags.Int("flip", 0, "after this step flip a bit of a weight, as a fault of the memory would; 0: never")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if _, err := policy.Parse(*policyName); err != nil {
		return nil, err
	}
	policy.SetGlobal(*policyName)
	model := keras.Sequential(
		&layers.Dense{Units: *units, Activation: *activation, Name: "dense_1"},
		&layers.Dropout{Rate: 0.2},
		&layers.Dense{Units: *units, Activation: *activation, Name: "dense_2"},
		&layers.Dense{Units: 10, Name: "dense_logits"},
		&layers.Activation{Activation: "softmax", DType: "float32", Name: "predictions"},
	)
	err := model.Compile(keras.CompileConfig{
		Loss:      &losses.SparseCategoricalCrossentropy{},
		Optimizer: &optimizers.RMSprop{},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return nil, err
	}
	train, _, err := digits.Load()
	if err != nil {
		return nil, err
	}
	config := keras.FitConfig{BatchSize: *batch, Epochs: *epochs, SaveEvery: *every, Seed: *seed, ValidationSplit: 0.2}
	if *flip > 0 {
		config.Callbacks = append(config.Callbacks, flipBit(*flip))
	}
	return &journal.Training{Model: model, Data: train, Config: config}, nil
}

// flipBit is a callback that flips the lowest bit of element [300 7] of the first kernel
// after a step of the first epoch.
func flipBit(step int) keras.Callback {
	return keras.Callback{BatchEnd: func(_ context.Context, r *keras.Run) error {
		if r.Epoch != 0 || r.Step != step {
			return nil
		}
		kernel := r.Model.TrainableVariables()[0]
		b, err := kernel.Bytes()
		if err != nil {
			return err
		}
		at := 4 * (300*kernel.Shape()[1] + 7)
		if at >= len(b) {
			return fmt.Errorf("%s has no element [300 7]", kernel.Name())
		}
		b[at] ^= 1
		return kernel.SetBytes(b)
	}}
}
