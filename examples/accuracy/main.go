// Command accuracy trains the two reference models on MNIST under each policy
// and prints the tables of docs/benchmarks/accuracy.md: the guide's model
// through Fit and through a loop of its own, whose weights must agree to the
// bit, a larger one with dropout, and the example programs on data of their
// own.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"time"

	"gonum.org/v1/gonum/stat"

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
	data   = flag.String("data", "mnist", `data: "mnist" (downloaded once), a directory with the MNIST files, or "digits" (built in)`)
	epochs = flag.Int("epochs", 10, "epochs of the larger model; 0 leaves it out")
	split  = flag.Float64("split", 0.2, "share of the images that the guide's model is validated on, and not trained")
	seeds  = flag.Int("seeds", 5, "how often the guide's model and the programs are trained, from other first weights")
	mlps   = flag.Bool("mnist", true, "the guide's model and the larger one")
	others = flag.Bool("programs", true, "the example programs; arguments after the flags are theirs")
	only   = flag.String("only", "", "the example program to run (default: all)")
	names  = flag.String("policies", "float32,mixed_bfloat16,mixed_float16", "policies, comma-separated")
)

var policies []string // of -policies

func main() { interrupt.Main(run) }

func run(ctx context.Context) error {
	policies = strings.Split(*names, ",")
	for _, name := range policies {
		if _, err := policy.Parse(name); err != nil {
			return fmt.Errorf("-policies: %w", err)
		}
	}
	fmt.Printf("%s, %s\n%s\n\n", time.Now().Format(time.DateOnly), runtime.Version(), policy.EffectiveText())
	if *mlps {
		if err := runMNIST(ctx); err != nil {
			return err
		}
	}
	if *others {
		return runPrograms(ctx, flag.Args())
	}
	return nil
}

// runMNIST prints the tables of the guide's model and of the larger one.
func runMNIST(ctx context.Context) error {
	train, test, err := load(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("784-64-64-10, RMSprop, batch %d, %d epochs, validation split %v\n\n", guideBatch, guideEpochs, *split)
	fmt.Printf("| policy | test accuracy | test loss | mean and spread of %d seeds | Fit and custom loop give the same weights |\n", *seeds)
	fmt.Println("|---|---|---|---|---|")
	for _, p := range policies {
		if err := guide(ctx, p, train, test); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if *epochs == 0 {
		return nil
	}
	fmt.Printf("\n784-512-512-10, dropout 0.2, Adam, batch 128, %d epochs\n\n", *epochs)
	fmt.Println("| policy | test accuracy | test loss | skipped steps | final loss scale |")
	fmt.Println("|---|---|---|---|---|")
	for _, p := range policies {
		if err := larger(ctx, p, train, test); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
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

func guideModel() *keras.Model {
	return keras.Sequential(
		&layers.Dense{Units: 64, Activation: "relu"},
		&layers.Dense{Units: 64, Activation: "relu"},
		&layers.Dense{Units: 10},
		&layers.Activation{Activation: "softmax", DType: "float32"},
	)
}

const (
	guideBatch  = 8192
	guideEpochs = 5
)

func guide(ctx context.Context, name string, train, test *keras.Pipeline) error {
	defer policy.SetGlobal(policy.SetGlobal(name))
	var first keras.Logs
	var fitted *keras.Model
	var accuracies []float64
	for seed := range *seeds {
		model, scores, err := fit(ctx, name, uint64(seed), train, test)
		if err != nil {
			return err
		}
		if seed == 0 {
			fitted, first = model, scores
		}
		accuracies = append(accuracies, 100*scores.Get("accuracy"))
	}
	mean, spread := stat.PopMeanStdDev(accuracies, nil)

	n := int(math.Floor(float64(train.Len()) * (1 - *split)))
	looped, err := loop(ctx, name, train.Take(n).Shuffle(n).Batch(guideBatch), guideEpochs)
	if err != nil {
		return err
	}
	a, err := digest(fitted)
	if err != nil {
		return err
	}
	b, err := digest(looped)
	if err != nil {
		return err
	}
	same := fmt.Sprintf("yes, %x", a[:6])
	if a != b {
		same = fmt.Sprintf("NO: %x and %x", a[:6], b[:6])
	}
	fmt.Printf("| %s | %.2f %% | %.4f | %.2f ± %.2f %% | %s |\n", name, 100*first.Get("accuracy"), first.Get("loss"), mean, spread, same)
	return nil
}

// fit trains the guide's model with Fit. Seed 0 is what a program that sets
// none gets.
func fit(ctx context.Context, name string, seed uint64, train, test *keras.Pipeline) (*keras.Model, keras.Logs, error) {
	model := guideModel()
	if err := model.SetSeed(seed); err != nil {
		return nil, nil, err
	}
	err := model.Compile(keras.CompileConfig{
		Loss:    &losses.SparseCategoricalCrossentropy{},
		Metrics: []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return nil, nil, err
	}
	_, err = model.Fit(ctx, train, keras.FitConfig{
		BatchSize: guideBatch, Epochs: guideEpochs, ValidationSplit: *split, Seed: seed, Verbose: keras.VerbositySilent,
		Checkpoint: interrupt.Checkpoint(fmt.Sprintf("guide-%s-%d", name, seed))})
	if err != nil {
		return nil, nil, err
	}
	scores, err := model.Evaluate(ctx, test)
	return model, scores, err
}

// loop trains the guide's model without Fit.
func loop(ctx context.Context, name string, train *keras.Pipeline, epochs int) (*keras.Model, error) {
	model := guideModel()
	loss := &losses.SparseCategoricalCrossentropy{}
	inner := &optimizers.RMSprop{}
	var step *keras.Func[keras.Batch, *keras.Tensor]
	if name == "mixed_float16" {
		optimizer := &optimizers.LossScaleOptimizer{Inner: inner}
		step = keras.Function(func(b keras.Batch) *keras.Tensor {
			l := loss.Call(b.Y, model.Call(b.X, keras.Training))
			scaled := optimizer.GetScaledLoss(l)
			gradients := optimizer.GetUnscaledGradients(keras.Gradients(scaled, model.TrainableVariables()))
			optimizer.ApplyGradients(gradients, model.TrainableVariables())
			return l
		}, model, optimizer)
	} else {
		step = keras.Function(func(b keras.Batch) *keras.Tensor {
			l := loss.Call(b.Y, model.Call(b.X, keras.Training))
			inner.ApplyGradients(keras.Gradients(l, model.TrainableVariables()), model.TrainableVariables())
			return l
		}, model, inner)
	}
	for range epochs {
		if err := step.Each(ctx, train.Batches()); err != nil {
			return nil, err
		}
	}
	return model, nil
}

func larger(ctx context.Context, name string, train, test *keras.Pipeline) error {
	defer policy.SetGlobal(policy.SetGlobal(name))
	model := keras.Sequential(
		&layers.Dense{Units: 512, Activation: "relu"},
		&layers.Dropout{Rate: 0.2},
		&layers.Dense{Units: 512, Activation: "relu"},
		&layers.Dropout{Rate: 0.2},
		&layers.Dense{Units: 10, Activation: "softmax"},
	)
	err := model.Compile(keras.CompileConfig{
		Optimizer: &optimizers.Adam{},
		Loss:      &losses.SparseCategoricalCrossentropy{},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return err
	}
	if _, err := model.Fit(ctx, train, keras.FitConfig{
		BatchSize: 128, Epochs: *epochs, Verbose: keras.VerbositySilent, Checkpoint: interrupt.Checkpoint("larger-" + name)}); err != nil {
		return err
	}
	scores, err := model.Evaluate(ctx, test)
	if err != nil {
		return err
	}
	step, err := model.StepResult()
	if err != nil {
		return err
	}
	fmt.Printf("| %s | %.2f %% | %.4f | %d | %v |\n", name, 100*scores.Get("accuracy"), scores.Get("loss"), step.SkippedSteps, step.LossScale)
	return nil
}

// digest is the SHA-256 of all weights.
func digest(m *keras.Model) (sum [sha256.Size]byte, err error) {
	h := sha256.New()
	ws, err := m.GetWeights()
	if err != nil {
		return sum, err
	}
	for _, w := range ws {
		b, err := w.Bytes()
		if err != nil {
			return sum, err
		}
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
