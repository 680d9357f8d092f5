// Command quickstart is the program at the beginning of the README.
package main

import (
	"context"
	"log"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

func main() {
	policy.SetGlobal("mixed_float16")
	train, _, err := digits.Load() // built in: 28 by 28 pixels
	if err != nil {
		log.Fatal(err)
	}
	model := keras.Sequential(
		&layers.Dense{Units: 512, Activation: "relu"},
		&layers.Dropout{Rate: 0.2},
		&layers.Dense{Units: 10, Activation: "softmax"},
	)
	err = model.Compile(keras.CompileConfig{
		Optimizer: &optimizers.Adam{},
		Loss:      &losses.SparseCategoricalCrossentropy{},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	_, err = model.Fit(context.Background(), train, keras.FitConfig{BatchSize: 128, Epochs: 2, ValidationSplit: 0.2})
	if err != nil {
		log.Fatal(err)
	}
}
