package keras_test

import (
	"context"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

func init() {
	for name, f := range map[string]func(t *testing.T) error{
		"Batch without samples": func(t *testing.T) (err error) {
			defer tensor.Catch(&err)
			classifier(t).Call(keras.NewTensor([]float32{}, 0, 4))
			return nil
		},
		"Index out of a vocabulary": func(t *testing.T) error {
			m := keras.Sequential(&layers.Embedding{InputDim: 10, OutputDim: 2, Name: "words"})
			_, err := m.Predict(context.Background(), keras.NewTensor([]int32{1, 12}, 2))
			return err
		},
		"Axis that is not there": func(*testing.T) error {
			return build(&layers.LayerNormalization{Axis: []int{2}})
		},
		"Mask of something else": func(t *testing.T) (err error) {
			defer tensor.Catch(&err)
			x := keras.NewTensor(make([]float32, 24), 2, 3, 4)
			keras.Apply(&layers.LSTM{Units: 2}, x.WithMask(tensor.Ones(keras.Bool, 2)))
			return nil
		},
		"Argument of a call that a layer does not take": func(*testing.T) error {
			return build(layers.With(&layers.Dense{Units: 2}, layers.Args{UseCausalMask: true}))
		},
	} {
		errorCases[name] = f
	}
}
