// Package models holds the networks that several example programs use:
// examples/bench times what the others train.
package models

import (
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// DigitsCNN is a classifier of flat 28x28 images: two 3x3 convolutions with
// filters[0] and filters[1] kernels, each with a ReLU and a 2x2 max-pooling,
// and a softmax over ten classes.
//
// Shapes: [batch 784] → [batch 10], probabilities. 9,098 weights with 8 and 16
// filters; 4,275,210 with 420 and 1000.
func DigitsCNN(filters [2]int) *keras.Model {
	return keras.Sequential(
		&layers.Reshape{TargetShape: []int{28, 28, 1}},
		&layers.Conv2D{Filters: filters[0], KernelSize: layers.PerAxis{3}, Padding: "same", Activation: "relu"},
		&layers.MaxPooling2D{},
		&layers.Conv2D{Filters: filters[1], KernelSize: layers.PerAxis{3}, Padding: "same", Activation: "relu"},
		&layers.MaxPooling2D{},
		&layers.Flatten{},
		&layers.Dense{Units: 10},
		// Softmax and the model's output are float32.
		&layers.Activation{Activation: "softmax", DType: "float32"},
	)
}
