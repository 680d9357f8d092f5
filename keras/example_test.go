package keras_test

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// A line is fitted to four points.
func Example() {
	x := keras.NewTensor([]float32{0, 1, 2, 3}, 4, 1)
	y := keras.NewTensor([]float32{1, 3, 5, 7}, 4, 1)
	model := keras.Sequential(&layers.Dense{Units: 1})
	if err := model.Compile(keras.CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 0.1}, Loss: &losses.MeanSquaredError{}}); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if _, err := model.Fit(ctx, keras.FromTensors(x, y, nil), keras.FitConfig{Epochs: 500, Verbose: keras.VerbositySilent}); err != nil {
		fmt.Println(err)
		return
	}
	prediction, err := model.Predict(ctx, keras.NewTensor([]float32{10}, 1, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	value, err := prediction.Item()
	fmt.Printf("%.2f %v\n", value, err)
	// Output: 21.00 <nil>
}

func ExampleNamed() {
	ages := keras.Named("ages", keras.Input(1))
	incomes := keras.Named("incomes", keras.Input(1))
	both := keras.Apply(&layers.Concatenate{}, ages, incomes)
	model, err := keras.NewModel(keras.Tuple(ages, incomes), keras.Apply(&layers.Dense{Units: 1}, both))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(model.InputNames())
	// Output: [ages incomes]
}

func ExampleFunction() {
	norm := keras.Function(func(x *keras.Tensor) *keras.Tensor { return x.Square().Sum().Sqrt() })
	y, err := norm.Call(context.Background(), keras.NewTensor([]float32{3, 4}, 2))
	fmt.Println(y, err)
	// Output: float32[] 5 <nil>
}
