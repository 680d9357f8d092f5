// Command mnistcnn trains a convolutional network on handwritten digits. The
// small model is done in seconds on a CPU; the big one, of 4.3 million weights
// and 744 million multiplications for each sample, is for comparing policies.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/mezzo-ml/mezzo/examples/cost"
	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/datasets/mnist"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_float16", "policy: mixed_float16, mixed_bfloat16 or float32")
	modelName  = flag.String("model", "small", "model: small (8 and 16 filters) or big (420 and 1000)")
	batch      = flag.Int("batch", 0, "samples per step (default 64 for the small model, 100 for the big one)")
	epochs     = flag.Int("epochs", 3, "epochs")
	steps      = flag.Int("steps", 0, "steps per epoch, and at most as many to measure the accuracies at the end (default: all samples)")
	rate       = flag.Float64("rate", 0, "learning rate of Adam (default 0.001 for the small model, 0.0003 for the big one)")
	seed       = flag.Uint64("seed", 0, "seed of first weights, shuffling and dropout")
	budget     = flag.Int("budget", 0, "print the largest batches whose steps need at most so many MiB, and train nothing")
	lint       = flag.Bool("lint", false, "print what costs the model time or precision under the policy, and train nothing")
	data       = flag.String("data", "digits", `data: "digits" (built in), "mnist" (downloaded once), or a directory with the MNIST files`)
)

// variant is what the two models differ in.
type variant struct {
	filters [2]int
	batch   int
	rate    float64
}

var variants = map[string]variant{
	"small": {[2]int{8, 16}, 64, 1e-3},
	"big":   {[2]int{420, 1000}, 100, 3e-4},
}

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
	v, ok := variants[*modelName]
	if !ok {
		return fmt.Errorf("-model is %q, want small or big", *modelName)
	}
	if _, err := policy.Parse(*policyName); err != nil {
		return err
	}
	if *budget > 0 {
		return fitting(v, keras.Bytes(*budget)*keras.MiB)
	}
	policy.SetGlobal(*policyName)
	model := models.DigitsCNN(v.filters)
	if err := model.Build(784); err != nil {
		return err
	}
	fmt.Println("Parameters:", model.CountParams())
	if err := model.SetSeed(*seed); err != nil {
		return err
	}
	size := cmp.Or(*batch, v.batch)
	err := model.Compile(keras.CompileConfig{
		Optimizer: &optimizers.Adam{LearningRate: cmp.Or(*rate, v.rate)},
		Loss:      &losses.SparseCategoricalCrossentropy{},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return err
	}
	if *lint {
		findings, err := model.Lint(keras.Batch{X: keras.NewTensor(make([]float32, size*784), size, 784)})
		for _, f := range findings {
			fmt.Println(f)
		}
		return err
	}
	train, test, err := load(ctx)
	if err != nil {
		return err
	}
	if _, err := model.Fit(ctx, train, keras.FitConfig{BatchSize: size, Epochs: *epochs, StepsPerEpoch: *steps, Seed: *seed, Callbacks: []keras.Callback{cost.Callback()}, Checkpoint: interrupt.Checkpoint("")}); err != nil {
		return err
	}
	for _, of := range []struct {
		name string
		data *keras.Pipeline
	}{{"Training", train}, {"Test", test}} {
		if n := *steps * size; n > 0 && n < of.data.Len() {
			of.data = of.data.Take(n)
		}
		scores, err := model.Evaluate(ctx, of.data)
		if err != nil {
			return err
		}
		fmt.Println(of.name, "loss:", scores.Get("loss"))
		fmt.Println(of.name, "accuracy:", scores.Get("accuracy"))
	}
	return nil
}

// fitting prints how many samples a step may have under each policy when it
// must not need more than so many bytes. Steps are planned, not run.
func fitting(v variant, bytes keras.Bytes) error {
	model := models.DigitsCNN(v.filters)
	err := model.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.SparseCategoricalCrossentropy{}})
	if err != nil {
		return err
	}
	like := keras.Batch{X: keras.NewTensor(make([]float32, 784), 1, 784), Y: keras.NewTensor(make([]int32, 1), 1)}
	for _, name := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		n, err := model.MaxBatch(like, bytes, name)
		if err != nil {
			return err
		}
		fmt.Printf("Largest batch under %s: %d\n", name, n)
	}
	return nil
}
