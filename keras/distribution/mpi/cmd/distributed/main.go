// Command distributed trains a digit classifier on several processes, each on its part of
// every batch:
//
//	go build ./cmd/distributed
//	mpirun --bind-to none -n 4 ./distributed
//	MEZZO_DISTRIBUTION=none ./distributed
//
// With -shards, which fixes in how many parts a batch is cut, weights have the same bits
// for any number of processes. The hash in the last line shows it.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/datasets/mnist"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	_ "github.com/mezzo-ml/mezzo/keras/distribution/mpi" // an engine
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_bfloat16", "policy: mixed_float16, mixed_bfloat16 or float32")
	shards     = flag.Int("shards", 4, "parts of a batch: at least the number of processes; 0: their number")
	batch      = flag.Int("batch", 512, "samples of a step, of all processes together")
	samples    = flag.Int("samples", 0, "so many samples of the data; 0: all")
	epochs     = flag.Int("epochs", 3, "epochs")
	data       = flag.String("data", "digits", `data: "digits" (built in), or a directory with the MNIST files`)
	directory  = flag.String("checkpoint", "", "directory of checkpoints: training goes on from the last one, on any number of processes")
	saveEvery  = flag.Int("save", 0, "steps between two checkpoints; 0: one after each epoch")
)

func main() {
	flag.Parse()
	distribution.Main(run)
}

// newModel returns a compiled model.
func newModel(world *distribution.Group) (*keras.Model, error) {
	p, err := policy.Parse(*policyName)
	if err != nil {
		return nil, err
	}
	policy.SetGlobal(p.Name)
	model := keras.Sequential(
		&layers.Reshape{TargetShape: []int{28, 28, 1}},
		&layers.Conv2D{Filters: 8, KernelSize: []int{3}, Strides: []int{2}},
		&layers.BatchNormalization{},
		&layers.Activation{Activation: "relu"},
		&layers.Flatten{},
		&layers.Dense{Units: 64, Activation: "relu"},
		&layers.Dropout{Rate: 0.25},
		&layers.Dense{Units: 10, DType: "float32", Name: "logits"},
	)
	if err := model.SetSeed(7); err != nil {
		return nil, err
	}
	return model, model.Compile(keras.CompileConfig{
		Optimizer:    &optimizers.Adam{},
		Loss:         &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Metrics:      []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
		Distribution: &distribution.DataParallel{Group: world, Shards: *shards},
	})
}

func load() (train, test *keras.Pipeline, err error) {
	if *data == "digits" {
		train, test, err = digits.Load()
	} else {
		train, test, err = mnist.Load(*data)
	}
	if err == nil && *samples > 0 {
		train, test = train.Take(*samples), test.Take(*samples)
	}
	return train, test, err
}

func run(ctx context.Context, world *distribution.Group) error {
	model, err := newModel(world)
	if err != nil {
		return err
	}
	train, test, err := load()
	if err != nil {
		return err
	}
	config := keras.FitConfig{BatchSize: *batch, Epochs: *epochs, SaveEvery: *saveEvery}
	if *directory != "" {
		config.Checkpoint = &checkpoint.Directory{Path: *directory}
	}
	if _, err := model.Fit(ctx, train, config); err != nil {
		return err
	}
	scores, err := model.Evaluate(ctx, test)
	if err != nil {
		return err
	}
	// All ranks have the same variables.
	if err := world.Same(model, model.Optimizer()); err != nil {
		return err
	}
	hash := sha256.New()
	for _, owner := range []keras.Stateful{model, model.Optimizer()} {
		for _, v := range owner.Variables() {
			b, err := v.Bytes()
			if err != nil {
				return err
			}
			hash.Write(b)
		}
	}
	if world.Rank() == 0 {
		fmt.Printf("processes: %d, test accuracy: %.4f, weights and optimizer: %x\n", world.Size(), scores.Get("accuracy"), hash.Sum(nil)[:8])
	}
	return nil
}
