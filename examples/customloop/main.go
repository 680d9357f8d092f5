// Command customloop trains the same digit classifier as examples/guide with a
// training loop of its own: GetScaledLoss, Gradients, GetUnscaledGradients.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

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
	units      = flag.Int("units", 64, "units of the hidden layers")
	batch      = flag.Int("batch", 512, "samples per step")
	epochs     = flag.Int("epochs", 5, "epochs")
	data       = flag.String("data", "digits", `data: "digits" (built in), "mnist" (downloaded once), or a directory with the MNIST files`)
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func load() (train, test *keras.Pipeline, err error) {
	switch *data {
	case "digits":
		return digits.Load()
	case "mnist":
		return mnist.Load("")
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
		&layers.Activation{Activation: "softmax", DType: "float32"},
	)

	optimizer := &optimizers.LossScaleOptimizer{Inner: &optimizers.RMSprop{}}
	lossObject := &losses.SparseCategoricalCrossentropy{}
	epochLoss := &metrics.Mean{}
	testAccuracy := &metrics.SparseCategoricalAccuracy{}

	train, test, err := load()
	if err != nil {
		return err
	}
	trainDataset := train.Shuffle(10000).Batch(*batch)
	testDataset := test.Batch(*batch)

	trainStep := keras.Function(func(b keras.Batch) *keras.Tensor {
		predictions := model.Call(b.X, keras.Training)
		loss := lossObject.Call(b.Y, predictions)
		scaledLoss := optimizer.GetScaledLoss(loss)
		scaledGradients := keras.Gradients(scaledLoss, model.TrainableVariables())
		gradients := optimizer.GetUnscaledGradients(scaledGradients)
		optimizer.ApplyGradients(gradients, model.TrainableVariables())
		epochLoss.Add(loss)
		return loss
	}, model, optimizer, epochLoss)

	testStep := keras.Function(func(b keras.Batch) *keras.Tensor {
		predictions := model.Call(b.X)
		testAccuracy.Update(b.Y, predictions)
		return predictions
	}, model, testAccuracy)

	for epoch := range *epochs {
		epochLoss.Reset()
		testAccuracy.Reset()
		if err := trainStep.Each(ctx, trainDataset.Batches()); err != nil {
			return err
		}
		if err := testStep.Each(ctx, testDataset.Batches()); err != nil {
			return err
		}
		loss, err := epochLoss.Result()
		if err != nil {
			return err
		}
		accuracy, err := testAccuracy.Result()
		if err != nil {
			return err
		}
		fmt.Printf("Epoch %d: loss=%.4f, test accuracy=%.4f\n", epoch, loss, accuracy)
	}
	step, err := optimizer.Result()
	if err != nil {
		return err
	}
	fmt.Printf("Loss scale %v; %d steps applied, %d skipped\n", step.LossScale, step.AppliedSteps, step.SkippedSteps)
	return nil
}
