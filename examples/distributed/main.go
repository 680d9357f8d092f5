// Command distributed trains a digit classifier on several ranks, each on its rows of
// every batch. With -shards fixed the weights have the same bits for any number of
// ranks: the program prints their hash.
//
//	MEZZO_DISTRIBUTION=local:4 go run ./examples/distributed
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/datasets/mnist"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_bfloat16", "policy: mixed_float16, mixed_bfloat16 or float32")
	shards     = flag.Int("shards", 4, "parts of a batch, at least the number of ranks")
	units      = flag.Int("units", 64, "units of the hidden layers")
	batch      = flag.Int("batch", 256, "samples per step, of all ranks together")
	epochs     = flag.Int("epochs", 3, "epochs")
	saveTo     = flag.String("checkpoint", "", "directory to save the training in, and to resume it from")
	data       = flag.String("data", "digits", `data: "digits" (built in), "mnist" (downloaded once), or a directory with the MNIST files`)
)

func main() {
	flag.Parse()
	if _, err := policy.Parse(*policyName); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	policy.SetGlobal(*policyName)
	distribution.Main(run)
}

func load(ctx context.Context) (train, test *keras.Pipeline, err error) {
	switch *data {
	case "digits":
		return digits.Load()
	case "mnist":
		return mnist.LoadContext(ctx, "", mnist.Progbar(os.Stderr))
	}
	return mnist.Load(*data)
}

func run(ctx context.Context, world *distribution.Group) error {
	train, test, err := load(ctx)
	if err != nil {
		return err
	}
	model := keras.Sequential(
		&layers.Dense{Units: *units, Activation: "relu"},
		&layers.Dropout{Rate: 0.2},
		&layers.Dense{Units: *units, Activation: "relu"},
		&layers.BatchNormalization{},
		&layers.Dense{Units: 10},
		&layers.Activation{Activation: "softmax", DType: "float32"},
	)
	if err := model.SetSeed(1); err != nil {
		return err
	}
	err = model.Compile(keras.CompileConfig{
		Optimizer:    &optimizers.Adam{},
		Loss:         &losses.SparseCategoricalCrossentropy{},
		Metrics:      []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
		Distribution: &distribution.DataParallel{Group: world, Shards: *shards},
	})
	if err != nil {
		return err
	}
	fit := keras.FitConfig{BatchSize: *batch, Epochs: *epochs, ValidationData: test}
	if *saveTo != "" {
		fit.Checkpoint = &checkpoint.Directory{Path: *saveTo}
	}
	h, err := model.Fit(ctx, train, fit)
	if err != nil {
		return err
	}
	return report(world, model, h)
}

// report prints what rank 0 knows, after a check that all ranks have the same weights.
func report(world *distribution.Group, model *keras.Model, h *keras.History) error {
	if err := world.Same(model, model.Optimizer()); err != nil {
		return err
	}
	out := io.Writer(os.Stdout)
	if world.Rank() != 0 {
		out = io.Discard
	}
	hash := sha256.New()
	for _, v := range model.Variables() {
		b, err := v.Bytes()
		if err != nil {
			return err
		}
		hash.Write(b)
	}
	if n := len(h.Logs); n > 0 {
		fmt.Fprintf(out, "Test accuracy: %.4f\n", h.Logs[n-1].Get("val_accuracy"))
	}
	fmt.Fprintf(out, "%d ranks, %d shards: weights %x\n", world.Size(), *shards, hash.Sum(nil)[:8])
	return nil
}
