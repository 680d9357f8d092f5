package keras_test

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestEvaluateBetweenTrainings: what Evaluate and Predict say after each of several
// trainings is what they say when every variable has just been written with its
// own bytes, so that nothing derived from older weights is left: packed
// operands, 16-bit shadow weights, folded kernels.
func TestEvaluateBetweenTrainings(t *testing.T) {
	models := map[string]func() *keras.Model{
		"dense": func() *keras.Model {
			return keras.Sequential(&layers.Flatten{}, &layers.Dense{Units: 64, Activation: "relu"}, &layers.Dense{Units: 10, Activation: "softmax"})
		},
		"conv": func() *keras.Model { // few pixels, so that transformed and packed kernels are kept
			return keras.Sequential(
				&layers.Reshape{TargetShape: []int{4, 4, 49}},
				&layers.Conv2D{Filters: 64, KernelSize: layers.PerAxis{3}, Activation: "relu"},
				&layers.Conv2D{Filters: 80, KernelSize: layers.PerAxis{2}, Padding: "same", Activation: "relu"},
				&layers.Flatten{}, &layers.Dense{Units: 10, Activation: "softmax"})
		},
		"normalized": func() *keras.Model { // normalization that predictions fold into kernels
			return keras.Sequential(
				&layers.Reshape{TargetShape: []int{14, 14, 4}},
				&layers.Conv2D{Filters: 20, KernelSize: layers.PerAxis{3}, UseBias: new(false)}, &layers.BatchNormalization{}, &layers.ReLU{},
				&layers.DepthwiseConv2D{KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{2}}, &layers.BatchNormalization{}, &layers.ReLU{},
				&layers.Flatten{}, &layers.Dense{Units: 33}, &layers.BatchNormalization{}, &layers.ReLU{}, &layers.Dense{Units: 10, Activation: "softmax"})
		},
		"lstm": func() *keras.Model {
			return keras.Sequential(&layers.Reshape{TargetShape: []int{7, 112}}, &layers.LSTM{Units: 72}, &layers.Dense{Units: 10, Activation: "softmax"})
		},
		"gru": func() *keras.Model {
			return keras.Sequential(&layers.Reshape{TargetShape: []int{7, 112}}, &layers.GRU{Units: 96}, &layers.Dense{Units: 10, Activation: "softmax"})
		},
	}
	ctx := context.Background()
	data := digits.Dataset(128, 1)
	for _, name := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		for kind, model := range models {
			t.Run(fmt.Sprint(kind, "/", name), func(t *testing.T) {
				defer policy.SetGlobal(policy.SetGlobal(name))
				m := model()
				if err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.SparseCategoricalCrossentropy{}}); err != nil {
					t.Fatal(err)
				}
				evaluate := func() float64 {
					logs, err := m.Evaluate(ctx, data.Batch(32))
					if err != nil {
						t.Fatal(err)
					}
					return logs.Get("loss")
				}
				images, _ := digits.Raw(40, 2)
				pixels := make([]float32, len(images))
				for i, p := range images {
					pixels[i] = float32(p) / 255
				}
				x := keras.NewTensor(pixels, 40, 784)
				predict := func() []float64 {
					y, err := m.Predict(ctx, x)
					if err != nil {
						t.Fatal(err)
					}
					data, err := y.Float64s()
					if err != nil {
						t.Fatal(err)
					}
					return data
				}
				for round := range 3 {
					if _, err := m.Fit(ctx, data.Batch(64), keras.FitConfig{Epochs: 1, Output: io.Discard}); err != nil {
						t.Fatal(err)
					}
					evaluate()
					got := evaluate()
					predict()
					predicted := predict()
					for _, v := range m.Variables() {
						b, err := v.Bytes()
						if err == nil {
							err = v.SetBytes(b)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					if want := predict(); !slices.Equal(predicted, want) {
						t.Errorf("after training %d: predictions %v…, want %v…", round+1, predicted[:10], want[:10])
					}
					if want := evaluate(); got != want {
						t.Errorf("after training %d: loss %v, want %v, which the same weights have when they are written anew", round+1, got, want)
					}
				}
			})
		}
	}
}
