// Command pcm trains a classifier of digits whose weights are conductances of simulated
// phase-change memory: noisy cells that drift, and that pulses change in coarse, random
// and uneven steps. Mixed precision makes them train as float32 does: updates are
// accumulated digitally, and transferred when they amount to a pulse (Nandakumar et al.
// 2020, who reach 97.73 % on MNIST with real cells, within 0.6 % of software). Without
// the accumulation training fails.
//
//	go run ./examples/pcm
//	go run ./examples/pcm -data mnist -seeds 3 -epochs 10
//	go run ./examples/pcm -model cnn -rate 0.5
package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/datasets/mnist"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

var (
	data    = flag.String("data", "digits", `data: "digits" (built in), "mnist" (downloaded once), or a directory with the MNIST files`)
	epochs  = flag.Int("epochs", 5, "epochs")
	network = flag.String("model", "mlp", `network: "mlp", one hidden layer, or "cnn", two convolutions`)
	batch   = flag.Int("batch", 32, "pictures per step")
	rate    = flag.Float64("rate", 1, "learning rate of SGD")
	units   = flag.Int("units", 250, "units of the hidden layer")
	seeds   = flag.Int("seeds", 1, "trainings of each kind, with different seeds")
	only    = flag.String("only", "", "names of the kinds to train, between commas: float32, pcm … (default: all)")
	scale   = flag.Float64("scale", 8, "difference of conductances that is a weight of 1 of the hidden layer, in µS")
	last    = flag.Float64("output-scale", 4, "the same of the output layer, whose weights are larger")
	seconds = flag.Float64("seconds", 1, "seconds between two steps, for the drift")
)

func main() { interrupt.Main(run) }

// A kind is a way of training.
type kind struct {
	name     string
	device   *Device // nil: Dense layers in float32
	transfer Transfer
}

// kinds are float32, the architecture, and what becomes of it when a part is changed.
func kinds() []kind {
	quiet, steady, even := PCM, PCM, PCM
	quiet.Noise, quiet.NoiseFloor = 0, 0
	steady.Drift = 0
	even.Slope, even.Spread, even.SpreadStep = 0, 0, 0
	return []kind{
		{"float32", nil, ""},
		{"pcm", &PCM, Accumulate},
		{"no-read-noise", &quiet, Accumulate},
		{"no-drift", &steady, Accumulate},
		{"even-pulses", &even, Accumulate},
		{"stochastic", &PCM, Stochastic},
		{"no-accumulation", &PCM, Discard},
	}
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

func run(ctx context.Context) error {
	all, err := selected(*only)
	if err != nil {
		return err
	}
	if *seeds < 1 || *epochs < 1 || *batch < 1 || *units < 1 {
		return fmt.Errorf("-seeds, -epochs, -batch and -units: got %d, %d, %d and %d, want 1 or more", *seeds, *epochs, *batch, *units)
	}
	if *network != "mlp" && *network != "cnn" {
		return fmt.Errorf("-model is %q, want mlp or cnn", *network)
	}
	train, test, err := load(ctx)
	if err != nil {
		return err
	}
	for _, k := range all {
		var accuracies []float64
		var pulses, later float64
		for seed := range *seeds {
			model, arrays, err := k.model(uint64(seed))
			if err != nil {
				return err
			}
			_, err = model.Fit(ctx, train, keras.FitConfig{BatchSize: *batch, Epochs: *epochs, Seed: uint64(seed), Verbose: keras.VerbositySilent})
			if err != nil {
				return err
			}
			accuracy, err := evaluate(ctx, model, test)
			if err != nil {
				return err
			}
			accuracies = append(accuracies, 100*accuracy)
			for _, a := range arrays {
				n, err := a.Pulses()
				if err != nil {
					return err
				}
				pulses += n / float64(len(arrays)*a.Cells()) / float64(*seeds)
				if err := a.Wait(24 * 3600); err != nil {
					return err
				}
			}
			if accuracy, err = evaluate(ctx, model, test); err != nil {
				return err
			}
			later += 100 * accuracy / float64(*seeds)
		}
		mean, spread := statistics(accuracies)
		fmt.Printf("%-15s  test accuracy %6.2f ± %.2f %%", k.name, mean, spread)
		if k.device != nil {
			fmt.Printf(", a day later %6.2f %%; %.1f pulses a cell", later, pulses)
		}
		fmt.Println()
	}
	return nil
}

// selected returns the kinds with these names; all of them for "".
func selected(names string) (some []kind, err error) {
	if names == "" {
		return kinds(), nil
	}
	for name := range strings.SplitSeq(names, ",") {
		found := false
		for _, k := range kinds() {
			if k.name == strings.TrimSpace(name) {
				some, found = append(some, k), true
			}
		}
		if !found {
			var have []string
			for _, k := range kinds() {
				have = append(have, k.name)
			}
			return nil, fmt.Errorf("-only: got %q, want some of %s", name, strings.Join(have, ", "))
		}
	}
	return some, nil
}

// model returns a compiled classifier, and its arrays.
func (k kind) model(seed uint64) (*keras.Model, []*Crossbar, error) {
	var arrays []*Crossbar
	dense := func(units int, scale float64) layers.Layer {
		if k.device == nil {
			return &layers.Dense{Units: units}
		}
		c := &Crossbar{Units: units, Device: k.device, Transfer: k.transfer, Scale: scale, Seconds: *seconds}
		arrays = append(arrays, c)
		return c
	}
	var model *keras.Model
	if *network == "cnn" {
		// What goes into an array lies between 0 and 1.
		limited := func() layers.Layer { return &layers.ReLU{MaxValue: new(1.0)} }
		model = keras.Sequential(&layers.Reshape{TargetShape: []int{28, 28, 1}},
			&Convolution{Size: 5, Array: dense(12, *scale)}, limited(), &layers.MaxPooling2D{},
			&Convolution{Size: 3, Array: dense(24, *scale)}, limited(), &layers.MaxPooling2D{},
			&layers.Flatten{}, dense(10, *last))
	} else {
		model = keras.Sequential(dense(*units, *scale), &layers.Activation{Activation: "sigmoid"}, dense(10, *last))
	}
	if err := model.SetSeed(seed); err != nil {
		return nil, nil, err
	}
	err := model.Compile(keras.CompileConfig{
		Loss:      &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Optimizer: &optimizers.SGD{LearningRate: *rate},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
		TrainStep: func(m *keras.Model, b keras.Batch) keras.StepLogs {
			predictions, loss := m.ComputeLoss(b, keras.Training)
			optimizers.Minimize(m.Optimizer(), loss, m.TrainableVariables())
			for _, a := range arrays {
				a.Program()
			}
			return m.ComputeMetrics(b, predictions)
		},
	})
	return model, arrays, err
}

func evaluate(ctx context.Context, m *keras.Model, test *keras.Pipeline) (float64, error) {
	scores, err := m.Evaluate(ctx, test)
	return scores.Get("accuracy"), err
}

// statistics returns the mean and the standard deviation, 0 of one number.
func statistics(xs []float64) (mean, deviation float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	if len(xs) < 2 {
		return mean, 0
	}
	for _, x := range xs {
		deviation += (x - mean) * (x - mean) / float64(len(xs)-1)
	}
	return mean, math.Sqrt(deviation)
}
