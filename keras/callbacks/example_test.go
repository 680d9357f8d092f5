package callbacks_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/callbacks"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
)

// The program of docs/training.md.
func Example() {
	dir, err := os.MkdirTemp("", "training")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	train, _, err := digits.Load()
	if err != nil {
		log.Fatal(err)
	}
	model := keras.Sequential(&layers.Dense{Units: 16, Activation: "relu"}, &layers.Dense{Units: 10})
	err = model.Compile(keras.CompileConfig{
		Loss:    &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Metrics: []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		log.Fatal(err)
	}

	stop := &callbacks.EarlyStopping{Monitor: "val_accuracy", MinDelta: 0.02, Patience: 2, RestoreBestWeights: true}
	guard := keras.Callback{EpochEnd: func(_ context.Context, r *keras.Run) error {
		if r.Logs.Get("gradient_norm") > 1e3 {
			return fmt.Errorf("gradients explode in epoch %d", r.Epoch+1)
		}
		return nil
	}}
	_, err = model.Fit(context.Background(), train.Take(2000), keras.FitConfig{
		BatchSize:       128,
		Epochs:          50,
		ValidationSplit: 0.25,
		Verbose:         keras.VerbositySilent,
		Checkpoint:      &checkpoint.Directory{Path: filepath.Join(dir, "state")},
		SaveEvery:       100,
		Callbacks: callbacks.List(
			stop,
			&callbacks.ReduceLROnPlateau{Monitor: "loss", Patience: 1, MinDelta: new(0.05), Factor: 0.5},
			&callbacks.ModelCheckpoint{File: filepath.Join(dir, "best.ckpt"), Monitor: "val_accuracy", SaveBestOnly: true},
			&callbacks.CSVLogger{File: filepath.Join(dir, "log.csv")},
			guard,
		),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stopped before epoch 50:", stop.StoppedEpoch > 0 && stop.StoppedEpoch < 49)
	fmt.Println("epochs after the best:", stop.StoppedEpoch-stop.BestEpoch)
	table, err := os.ReadFile(filepath.Join(dir, "log.csv"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Split(string(table), "\r\n")[0])
	// Output:
	// stopped before epoch 50: true
	// epochs after the best: 2
	// epoch,accuracy,gradient_norm,learning_rate,loss,val_accuracy,val_loss
}
