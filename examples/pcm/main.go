// Command pcm trains networks whose weights are conductances of simulated phase-change
// memory: noisy cells that drift, and that pulses change in coarse, random and uneven
// steps. Mixed precision makes them train as float32 does: updates are accumulated
// digitally, and transferred when they amount to a pulse (Nandakumar et al. 2020, who
// reach 97.73 % on MNIST with real cells, within 0.6 % of software). Without the
// accumulation training fails. The networks are classifiers of digits, and an LSTM that
// predicts the next character of a text.
//
//	go run ./examples/pcm
//	go run ./examples/pcm -data mnist -seeds 3 -epochs 10
//	go run ./examples/pcm -model cnn
//	go run ./examples/pcm -model lstm -data "$(go env GOROOT)/src/testdata/Isaac.Newton-Opticks.txt"
//
// Settings are to be chosen with -holdout, and with a -seed that is not reported.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/datasets/mnist"
)

var (
	model   = flag.String("model", "mlp", `network: "mlp", one hidden layer; "cnn", two convolutions; or "lstm", for text`)
	data    = flag.String("data", "", `data (default: built in); for digits "digits" (built in), "mnist" (downloaded once) or a directory with the MNIST files, for -model lstm a text file`)
	samples = flag.Int("samples", 0, "train with the first samples alone (default: all)")
	holdout = flag.Bool("holdout", false, "train without the last tenth of the training data, and report that instead of the test data: to choose settings")
	seeds   = flag.Int("seeds", 1, "trainings of each kind, with different seeds")
	seed    = flag.Uint64("seed", 0, "the first seed")
	only    = flag.String("only", "", "names of the kinds to train, between commas: float32, pcm … (default: all)")

	given settings // by flags; what is 0 is that of the network
)

func init() {
	flag.IntVar(&given.epochs, "epochs", 0, "epochs (default, as below: the network's)")
	flag.IntVar(&given.batch, "batch", 0, "samples per step")
	flag.IntVar(&given.units, "units", 0, "units of the hidden layer, or filters of the first convolution")
	flag.StringVar(&given.optimizer, "optimizer", "", "sgd or adam")
	flag.Float64Var(&given.rate, "rate", 0, "learning rate")
	flag.Float64Var(&given.decay, "decay", 0, "divides the learning rate in the course of the training, along half a cosine; 1: it is constant")
	flag.Float64Var(&given.clip, "clip", 0, "largest norm of the gradients")
	flag.Float64Var(&given.scale, "scale", 0, "difference of conductances that is a weight of 1 of the hidden layers, in µS")
	flag.Float64Var(&given.last, "output-scale", 0, "the same of the output layer, whose weights are larger")
	flag.Float64Var(&given.converters, "range", 0, "largest output of the arrays of the hidden layers; their converters have 8 bits")
	flag.Float64Var(&given.seconds, "seconds", 0, "seconds between two steps, for the drift")
}

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

// load returns the data of a network, and the number of its classes.
func (n network) load(ctx context.Context) (train, test *keras.Pipeline, classes int, err error) {
	switch {
	case n.text:
		text := sentences(5000, 1)
		if *data != "" {
			text, err = readText(*data)
		}
		if err == nil {
			train, test, classes = textData(text)
		}
		return train, test, classes, err
	case *data == "" || *data == "digits":
		train, test, err = digits.Load()
	case *data == "mnist":
		train, test, err = mnist.LoadContext(ctx, "", mnist.Progbar(os.Stderr))
	default:
		train, test, err = mnist.Load(*data)
	}
	return train, test, 10, err
}

// chosen returns the network of -model with the settings of flags.
func chosen() (n network, err error) {
	n, ok := networks[*model]
	if !ok {
		return n, fmt.Errorf("-model is %q, want one of %s", *model, strings.Join(slices.Sorted(maps.Keys(networks)), ", "))
	}
	bad := *seeds < 1 || *samples < 0
	whole := func(to *int, x int) {
		if bad = bad || x < 0; x != 0 {
			*to = x
		}
	}
	number := func(to *float64, x float64) {
		if bad = bad || !(x >= 0); x != 0 {
			*to = x
		}
	}
	whole(&n.epochs, given.epochs)
	whole(&n.batch, given.batch)
	whole(&n.units, given.units)
	number(&n.rate, given.rate)
	number(&n.decay, given.decay)
	number(&n.clip, given.clip)
	number(&n.scale, given.scale)
	number(&n.last, given.last)
	number(&n.converters, given.converters)
	number(&n.seconds, given.seconds)
	switch given.optimizer {
	case "":
	case "sgd", "adam":
		n.optimizer = given.optimizer
	default:
		return n, fmt.Errorf("-optimizer is %q, want sgd or adam", given.optimizer)
	}
	if bad {
		return n, fmt.Errorf("-seeds is %d, -samples %d, and the settings are %+v, want positive numbers", *seeds, *samples, given)
	}
	return n, nil
}

func run(ctx context.Context) error {
	all, err := selected(*only)
	if err != nil {
		return err
	}
	n, err := chosen()
	if err != nil {
		return err
	}
	train, test, classes, err := n.load(ctx)
	if err != nil {
		return err
	}
	if *samples > 0 {
		train = train.Take(*samples)
	}
	what := "test"
	if *holdout {
		cut := train.Len() * 9 / 10
		train, test, what = train.Take(cut), train.Skip(cut), "held-out"
	}
	for _, k := range all {
		r, err := n.repeated(ctx, k, train, test, classes)
		if err != nil {
			return err
		}
		mean, spread := statistics(r.scores)
		if n.text {
			fmt.Printf("%-15s  %s bits per character %.3f ± %.3f", k.name, what, mean, spread)
		} else {
			fmt.Printf("%-15s  %s accuracy %6.2f ± %.2f %%", k.name, what, mean, spread)
		}
		if k.device != nil {
			later, _ := statistics(r.later)
			if n.text {
				fmt.Printf(", a day later %.3f", later)
			} else {
				fmt.Printf(", a day later %6.2f %%", later)
			}
			fmt.Printf("; %.1f pulses a cell", r.pulses)
		}
		fmt.Println()
	}
	return nil
}

// results are what is known of trainings of one kind.
type results struct {
	scores, later []float64 // of each seed, at once and after a day
	pulses        float64   // mean of all cells
}

// repeated trains a network with each seed.
func (n network) repeated(ctx context.Context, k kind, train, test *keras.Pipeline, classes int) (r results, err error) {
	steps := n.epochs * ((train.Len() + n.batch - 1) / n.batch)
	for i := range *seeds {
		first := *seed + uint64(i)
		m, arrays, err := n.model(k, classes, steps, first)
		if err != nil {
			return r, err
		}
		if _, err = m.Fit(ctx, train, keras.FitConfig{BatchSize: n.batch, Epochs: n.epochs, Seed: first, Verbose: keras.VerbositySilent}); err != nil {
			return r, err
		}
		logs, err := m.Evaluate(ctx, test)
		if err != nil {
			return r, err
		}
		r.scores = append(r.scores, n.score(logs))
		for _, a := range arrays {
			pulses, err := a.Pulses()
			if err != nil {
				return r, err
			}
			r.pulses += pulses / float64(len(arrays)*a.Cells()) / float64(*seeds)
			if err := a.Wait(24 * 3600); err != nil {
				return r, err
			}
		}
		if len(arrays) == 0 {
			continue
		}
		if logs, err = m.Evaluate(ctx, test); err != nil {
			return r, err
		}
		r.later = append(r.later, n.score(logs))
	}
	return r, nil
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
