// Command gan trains a generative adversarial network that draws digits: a generator
// makes pictures from random numbers, and a critic learns to tell them from real ones.
// Fit runs a training step of the program's own, which has two optimizers and, under
// mixed_float16, two loss scales.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/keras/ops"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_float16", "policy: mixed_float16, mixed_bfloat16 or float32")
	units      = flag.Int("units", 128, "units of the hidden layers")
	batch      = flag.Int("batch", 128, "pictures per step")
	epochs     = flag.Int("epochs", 40, "epochs")
	images     = flag.Int("images", 6000, "real pictures, which are drawn")
	seed       = flag.Uint64("seed", 0, "seed of first weights, shuffling, noise and dropout")
)

const (
	pixels = 28
	latent = 32 // random numbers for a picture
)

func main() { interrupt.Main(run) }

func run(ctx context.Context) error {
	if _, err := policy.Parse(*policyName); err != nil {
		return err
	}
	policy.SetGlobal(*policyName)
	generator := keras.Sequential(
		&layers.Dense{Units: *units, Activation: "relu"},
		&layers.BatchNormalization{},
		&layers.Dense{Units: *units, Activation: "relu"},
		&layers.BatchNormalization{},
		&layers.Dense{Units: pixels * pixels},
		&layers.Activation{Activation: "sigmoid", DType: "float32"},
	).Named("generator")
	critic := keras.Sequential(
		&layers.Dense{Units: *units, Activation: "leaky_relu"},
		&layers.Dropout{Rate: 0.3},
		&layers.Dense{Units: *units, Activation: "leaky_relu"},
		&layers.Dropout{Rate: 0.3},
		&layers.Dense{Units: 1, DType: "float32"},
	).Named("critic")
	noise := &layers.GaussianNoise{Stddev: 1}
	input := keras.Input(latent)
	gan, err := keras.NewModel(input, keras.Apply(critic.Layer(), keras.Apply(generator.Layer(), keras.Apply(noise, input))))
	if err != nil {
		return err
	}
	if err := gan.SetSeed(*seed); err != nil {
		return err
	}
	optimizer := func(name string, rate float64) optimizers.Optimizer {
		adam := &optimizers.Adam{LearningRate: rate, Beta1: new(0.5), Name: name}
		if *policyName != "mixed_float16" {
			return adam
		}
		return &optimizers.LossScaleOptimizer{Inner: adam, Name: name}
	}
	forCritic, forGenerator := optimizer("critic", 3e-4), optimizer("generator", 3e-4)
	crossentropy := &losses.BinaryCrossentropy{FromLogits: true}
	judge := func(logits *keras.Tensor, real float64) *keras.Tensor {
		return crossentropy.Call(ops.Full(logits.DType(), real, logits.Shape()...), logits)
	}
	deceived := &metrics.Mean{Name: "deceived"}
	err = gan.Compile(keras.CompileConfig{
		Parts: []keras.Stateful{forCritic, forGenerator},
		TrainStep: func(_ *keras.Model, b keras.Batch) keras.StepLogs {
			z := noise.Call(layers.Pass{Training: true}, ops.Zeros(keras.Float32, b.X.Dim(0), latent))
			fake := generator.Call(z, keras.Training)

			real, made := critic.Call(b.X, keras.Training), critic.Call(fake.StopGradient(), keras.Training)
			criticLoss := judge(real, 0.9).Add(judge(made, 0)).MulScalar(0.5)
			optimizers.Minimize(forCritic, criticLoss, critic.TrainableVariables())

			logits := critic.Call(fake, keras.Training)
			generatorLoss := judge(logits, 1)
			optimizers.Minimize(forGenerator, generatorLoss, generator.TrainableVariables())
			deceived.Add(logits.GreaterScalar(0).Cast(keras.Float32))
			return keras.StepLogs{"critic_loss": criticLoss, "generator_loss": generatorLoss, "deceived": deceived}
		},
	})
	if err != nil {
		return err
	}
	real := digits.Dataset(*images, *seed)
	if _, err := gan.Fit(ctx, real, keras.FitConfig{BatchSize: *batch, Epochs: *epochs, Seed: *seed, Checkpoint: interrupt.Checkpoint("")}); err != nil {
		return err
	}
	pictures, err := generator.Predict(ctx, ops.RandomNormal(keras.NewTensor([]int64{1, int64(*seed)}, 2), 0, 5, latent))
	if err != nil {
		return err
	}
	fmt.Println("Drawn by the generator:")
	return models.Draw(os.Stdout, pictures, pixels, pixels)
}
