package layers_test

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

func Example() {
	x := keras.Input(28, 28, 1)
	y := keras.Apply(&preprocessing.Rescaling{Scale: 1. / 255}, x)
	y = keras.Apply(&layers.Conv2D{Filters: 8, KernelSize: []int{3}, Activation: "relu"}, y)
	y = keras.Apply(&layers.MaxPooling2D{}, y)
	fmt.Println(y)
	y = keras.Apply(&layers.Flatten{}, y)
	fmt.Println(keras.Apply(&layers.Dense{Units: 10, KernelRegularizer: "l2(0.01)"}, y))
	// Output:
	// float32[? 13 13 8]
	// float32[? 10]
}
