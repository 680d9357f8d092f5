// Command train makes the model of examples/predict, in the directory where it is run:
//
//	cd examples/predict && go run ./train
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	policy.SetGlobal("float32") // the fastest policy where there is no 16-bit arithmetic
	model := models.DigitsCNN([2]int{8, 16})
	err := model.Compile(keras.CompileConfig{
		Optimizer: &optimizers.Adam{},
		Loss:      &losses.SparseCategoricalCrossentropy{},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return err
	}
	train, test, err := digits.Load()
	if err != nil {
		return err
	}
	if _, err := model.Fit(ctx, train, keras.FitConfig{BatchSize: 64, Epochs: 12}); err != nil {
		return err
	}
	scores, err := model.Evaluate(ctx, test)
	if err != nil {
		return err
	}
	fmt.Println("Test accuracy:", scores.Get("accuracy"))
	return saving.Save("digits.keras", model)
}
