// Command vae trains a variational autoencoder (Kingma and Welling 2014): an encoder maps
// a picture of a digit to a normal distribution over a plane, and a decoder draws a
// picture for each point of the plane. Fit runs a training step of the program's own,
// which logs both parts of the loss.
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
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_float16", "policy: mixed_float16, mixed_bfloat16 or float32")
	units      = flag.Int("units", 256, "units of the hidden layers")
	batch      = flag.Int("batch", 128, "pictures per step")
	epochs     = flag.Int("epochs", 20, "epochs")
	images     = flag.Int("images", 6000, "pictures to train on, which are drawn; a tenth as many to test on")
	seed       = flag.Uint64("seed", 0, "seed of first weights, shuffling and noise")
)

const pixels = 28

func main() { interrupt.Main(run) }

func run(ctx context.Context) error {
	if _, err := policy.Parse(*policyName); err != nil {
		return err
	}
	policy.SetGlobal(*policyName)
	input := keras.Input(pixels * pixels)
	h := keras.Apply(&layers.Dense{Units: *units, Activation: "relu"}, input)
	// An exponential of the variance needs float32's range.
	mean := keras.Apply(&layers.Dense{Units: 2, DType: "float32", Name: "mean"}, h)
	logVariance := keras.Apply(&layers.Dense{Units: 2, DType: "float32", Name: "log_variance"}, h)
	encoder, err := keras.NewModel(input, keras.Tuple(mean, logVariance))
	if err != nil {
		return err
	}
	decoder := keras.Sequential(
		&layers.Dense{Units: *units, Activation: "relu"},
		&layers.Dense{Units: pixels * pixels, DType: "float32"}, // logits
	).Named("decoder")
	noise := &layers.GaussianNoise{Stddev: 1, DType: "float32"}
	parts := keras.Apply(encoder.Named("encoder").Layer(), input).Unpack()
	vae, err := keras.NewModel(input, keras.Tuple(keras.Apply(decoder.Layer(), keras.Apply(noise, parts[0])), parts[1]))
	if err != nil {
		return err
	}
	if err := vae.SetSeed(*seed); err != nil {
		return err
	}
	crossentropy := &losses.BinaryCrossentropy{FromLogits: true}
	judge := func(b keras.Batch, pass layers.Pass) (loss *keras.Tensor, logs keras.StepLogs) {
		var options []keras.CallOption
		if pass.Training {
			options = append(options, keras.Training)
		}
		code := encoder.Call(b.X, options...).Unpack()
		mean, logVariance := code[0], code[1]
		// The noise has the standard deviation 1: scaled, it is that of the code.
		deviation := logVariance.MulScalar(0.5).Exp()
		z := mean.Add(noise.Call(pass, mean).Sub(mean).Mul(deviation))
		reconstruction := crossentropy.Call(b.X, decoder.Call(z, options...)).MulScalar(pixels * pixels)
		divergence := mean.Square().Add(logVariance.Exp()).Sub(logVariance).AddScalar(-1).MulScalar(0.5).Sum(1).Mean()
		loss = reconstruction.Add(divergence)
		return loss, keras.StepLogs{"loss": loss, "reconstruction_loss": reconstruction, "kl_loss": divergence}
	}
	err = vae.Compile(keras.CompileConfig{
		Optimizer: &optimizers.Adam{},
		TrainStep: func(m *keras.Model, b keras.Batch) keras.StepLogs {
			loss, logs := judge(b, layers.Pass{Training: true})
			optimizers.Minimize(m.Optimizer(), loss, m.TrainableVariables())
			return logs
		},
		TestStep: func(_ *keras.Model, b keras.Batch) keras.StepLogs {
			_, logs := judge(b, layers.Pass{})
			return logs
		},
	})
	if err != nil {
		return err
	}
	train, test := digits.Dataset(*images, *seed), digits.Dataset(max(*images/10, 1), *seed+1)
	_, err = vae.Fit(ctx, train, keras.FitConfig{BatchSize: *batch, Epochs: *epochs, Seed: *seed, ValidationData: test, Checkpoint: interrupt.Checkpoint("")})
	if err != nil {
		return err
	}
	fmt.Println("Pictures for points of the plane:")
	for _, y := range []float32{1.2, 0, -1.2} {
		var points []float32
		for _, x := range []float32{-1.5, -0.75, 0, 0.75, 1.5} {
			points = append(points, x, y)
		}
		logits, err := decoder.Predict(ctx, keras.NewTensor(points, 5, 2))
		if err != nil {
			return err
		}
		if err := models.Draw(os.Stdout, logits.Sigmoid(), pixels, pixels); err != nil {
			return err
		}
	}
	scores, err := vae.Evaluate(ctx, test)
	if err != nil {
		return err
	}
	fmt.Printf("Test loss: %.2f nats a picture\n", scores.Get("loss"))
	return nil
}
