package losses_test

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/losses"
)

func Example() {
	yTrue := keras.NewTensor([]float32{1, 2, 3}, 3, 1)
	yPred := keras.NewTensor([]float32{1, 2, 5}, 3, 1)
	fmt.Println((&losses.MeanAbsoluteError{}).Call(yTrue, yPred))
	fmt.Println((&losses.MeanSquaredError{Reduction: "sum"}).Call(yTrue, yPred))
	// Output:
	// float32[] 0.666667
	// float32[] 4
}
