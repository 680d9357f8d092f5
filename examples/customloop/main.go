// Command customloop trains the same digit classifier as examples/guide with a
// training loop of its own: GetScaledLoss, Gradients, GetUnscaledGradients.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

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
	units      = flag.Int("units", 64, "units of the hidden layers")
	batch      = flag.Int("batch", 512, "samples per step")
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

	train, test, err := load(ctx)
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

	done, err := resume(trainDataset, trainStep, model, optimizer, epochLoss)
	if err != nil {
		return err
	}
	for epoch := done / trainDataset.Len(); epoch < *epochs; epoch++ {
		skip := done % trainDataset.Len()
		if done = 0; skip == 0 {
			if err := epochLoss.Reset(); err != nil {
				return err
			}
		}
		if err := testAccuracy.Reset(); err != nil {
			return err
		}
		if err := trainStep.Each(ctx, trainDataset.Epoch(ctx, epoch, skip)); err != nil {
			return interrupt.SaveLoop(err, model, optimizer, epochLoss)
		}
		if err := testStep.Each(ctx, testDataset.Batches()); err != nil {
			return interrupt.SaveLoop(err, model, optimizer, epochLoss)
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

// resume goes on from where the loop was interrupted, if it was: after so many
// steps.
func resume(data *keras.Pipeline, step *keras.Func[keras.Batch, *keras.Tensor], model *keras.Model,
	optimizer *optimizers.LossScaleOptimizer, loss *metrics.Mean) (done int, err error) {
	for b, err := range data.Batches() {
		if err != nil {
			return 0, err
		}
		if _, err := step.MemoryOf(b); err != nil { // recorded, the optimizer has its slots
			return 0, err
		}
		break
	}
	if ok, err := interrupt.LoadLoop(model, optimizer, loss); !ok || err != nil {
		return 0, err
	}
	r, err := optimizer.Result()
	return int(r.Steps()), err
}
