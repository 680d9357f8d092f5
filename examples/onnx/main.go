// Command onnx exports a model as ONNX, imports the file, and fine-tunes the imported
// network on another task under mixed precision.
//
//	onnx [-file model.onnx] [-policy mixed_bfloat16]
//
// The first task is to read digits. The second has 200 images: is the digit even? The
// imported network is cut before its head, gets another one, and is trained again.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/keras/onnx"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

var (
	file   = flag.String("file", "", "where the model is written; default: a temporary directory")
	policy = flag.String("policy", "mixed_bfloat16", "policy of the fine-tuning")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	path := *file
	if path == "" {
		dir, err := os.MkdirTemp("", "onnx")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		path = filepath.Join(dir, "digits.onnx")
	}
	train, test, err := digits.Load()
	if err != nil {
		return err
	}

	// A network that reads digits.
	model := keras.Sequential(
		&layers.Dense{Units: 64, Activation: "relu", Name: "features"},
		&layers.Dense{Units: 10, Name: "digit"},
	).Named("digits")
	accuracy, err := fit(ctx, model, &losses.SparseCategoricalCrossentropy{FromLogits: true}, train, test, 2)
	if err != nil {
		return err
	}
	fmt.Printf("Digits: test accuracy %.2f\n", accuracy)

	// The file, for every runtime that reads ONNX.
	if err := onnx.Export(path, model, onnx.ExportOptions{}); err != nil {
		return err
	}
	same, err := onnx.Import(path, onnx.ImportOptions{})
	if err != nil {
		return err
	}
	if same.CountParams() != model.CountParams() {
		return fmt.Errorf("the imported model has %d weights, want %d", same.CountParams(), model.CountParams())
	}
	fmt.Printf("Imported: %d weights\n", same.CountParams())

	// Another head on the network's features, under mixed precision.
	base, err := onnx.Import(path, onnx.ImportOptions{Outputs: []string{"features/Relu"}, DType: *policy})
	if err != nil {
		return err
	}
	in := keras.Input(784)
	features := keras.Apply(base.Layer(), in)
	even, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 2, Name: "even"}, features))
	if err != nil {
		return err
	}
	few, err := parity(train.Take(200))
	if err != nil {
		return err
	}
	all, err := parity(test)
	if err != nil {
		return err
	}
	if accuracy, err = fit(ctx, even, &losses.SparseCategoricalCrossentropy{FromLogits: true}, few, all, 10); err != nil {
		return err
	}
	fmt.Printf("Even or odd: test accuracy %.2f\n", accuracy)
	return nil
}

// parity replaces digits by whether they are odd.
func parity(p *keras.Pipeline) (*keras.Pipeline, error) {
	x, y, _, err := p.Tensors()
	if err != nil {
		return nil, err
	}
	return keras.FromTensors(x, y.Mod(keras.NewTensor([]int32{2}, 1)), nil), nil
}

// fit trains a model and returns its accuracy on the test set.
func fit(ctx context.Context, m *keras.Model, loss losses.Loss, train, test keras.Dataset, epochs int) (float64, error) {
	err := m.Compile(keras.CompileConfig{
		Optimizer: &optimizers.Adam{},
		Loss:      loss,
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return 0, err
	}
	if _, err := m.Fit(ctx, train, keras.FitConfig{BatchSize: 32, Epochs: epochs, Verbose: keras.VerbositySilent}); err != nil {
		return 0, err
	}
	logs, err := m.Evaluate(ctx, test)
	return logs.Get("accuracy"), err
}
