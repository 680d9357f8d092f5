// Command rossmann predicts the daily sales of shops from 22 categories, each
// embedded, and 16 numbers. Its targets are raw sales of thousands, so the
// loss starts above 10,000,000: far beyond the 65504 of float16. Under
// mixed_float16 nothing need be done about it. The loss is computed in
// float32, and the loss scale falls in the first steps, which are skipped,
// until the gradients fit. As those grow it falls further, to 1, where they just
// fit: for sales ten times as high, in another currency say, either divide them
// or set MinScale in a LossScaleOptimizer to less than 1.
package main

import (
	"context"
	"flag"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/examples/cost"
	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_float16", "policy: mixed_float16, mixed_bfloat16 or float32")
	batch      = flag.Int("batch", 512, "rows per step")
	epochs     = flag.Int("epochs", 20, "epochs")
	rate       = flag.Float64("rate", 0.003, "highest learning rate of the one-cycle schedule")
	steps      = flag.Int("steps", 0, "steps per epoch (default: all rows)")
	seed       = flag.Uint64("seed", 0, "seed of first weights, shuffling and dropout")
	rows       = flag.Int("rows", 50000, "rows to generate, a tenth of them to validate on")
	data       = flag.String("data", "", "directory with train_clean.csv, of fast.ai's prepared Rossmann tables (default: generated rows)")
)

func main() { interrupt.Main(run) }

func run(ctx context.Context) error {
	if _, err := policy.Parse(*policyName); err != nil {
		return err
	}
	policy.SetGlobal(*policyName)
	t := generate(*rows, 0)
	if *data != "" {
		var err error
		if t, err = load(*data); err != nil {
			return err
		}
	}
	train, test := t.split(0.1)

	model, err := models.Rossmann(t.columns, len(models.RossmannNumbers))
	if err != nil {
		return err
	}
	fmt.Println("Parameters:", model.CountParams())
	if err := model.SetSeed(*seed); err != nil {
		return err
	}
	perEpoch := (train.Len() + *batch - 1) / *batch
	if *steps > 0 {
		perEpoch = *steps
	}
	// The learning rate rises for three tenths of the training and then falls.
	cycle := &optimizers.OneCycle{MaxLearningRate: *rate, TotalSteps: float64(max(2, *epochs*perEpoch))}
	err = model.Compile(keras.CompileConfig{
		Optimizer: &optimizers.Adam{Schedule: cycle},
		Loss:      &losses.MeanSquaredError{},
	})
	if err != nil {
		return err
	}
	history, err := model.Fit(ctx, train, keras.FitConfig{
		BatchSize: *batch, Epochs: *epochs, StepsPerEpoch: *steps, Seed: *seed, Callbacks: []keras.Callback{cost.Callback()}, Checkpoint: interrupt.Checkpoint("")})
	if err != nil {
		return err
	}
	result, err := model.StepResult()
	if err != nil {
		return err
	}
	fmt.Printf("Loss of the epochs: %.0f\n", history.Get("loss"))
	fmt.Printf("Applied steps: %d, skipped: %d, loss scale at the end: %v\n", result.AppliedSteps, result.SkippedSteps, result.LossScale)
	scores, err := model.Evaluate(ctx, test.Batch(*batch))
	if err != nil {
		return err
	}
	fmt.Println("Test loss:", scores.Get("loss"))
	fmt.Println("Root mean squared error of a day's sales:", math.Sqrt(scores.Get("loss")))
	return nil
}
