package keras_test

import (
	"context"
	"maps"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// What custom loops and losses get wrong.
func init() {
	maps.Copy(errorCases, map[string]func(t *testing.T) error{
		"Metric updated outside of a Function": func(*testing.T) (err error) {
			defer tensor.Catch(&err)
			new(metrics.Mean).Add(keras.NewTensor([]float32{1, 2}, 2))
			return nil
		},
		"Step that is not finite":        func(t *testing.T) error { return nonFinite(t, keras.NonFiniteError, 2) },
		"Only steps that are not finite": func(t *testing.T) error { return nonFinite(t, keras.NonFiniteSkip, 10) },
		"One output for classes": func(t *testing.T) error {
			m := keras.Sequential(&layers.Dense{Units: 1, Activation: "sigmoid"})
			if err := m.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}, Optimizer: &optimizers.SGD{}}); err != nil {
				return err
			}
			_, err := m.Fit(context.Background(), samples(8, 4, 2), quiet)
			return err
		},
		"Gradients applied outside of a Function": func(t *testing.T) (err error) {
			defer tensor.Catch(&err)
			m := classifier(t)
			loss := &losses.SparseCategoricalCrossentropy{FromLogits: true}
			l := loss.Call(keras.NewTensor([]int32{0, 1}, 2), m.Call(keras.NewTensor(make([]float32, 8), 2, 4)))
			new(optimizers.Adam).ApplyGradients(keras.Gradients(l, m.TrainableVariables()), m.TrainableVariables())
			return nil
		},
		"Shape that no memory holds": func(*testing.T) (err error) {
			defer tensor.Catch(&err)
			keras.NewTensor([]float32{}, 1<<32, 1<<32)
			return nil
		},
		"Model that does not fit into memory": func(t *testing.T) error {
			if err := keras.SetMemoryLimit(1 << 30); err != nil {
				return err
			}
			defer func() {
				if err := keras.SetMemoryLimit(0); err != nil {
					t.Error(err)
				}
			}()
			m := keras.Sequential(&layers.Dense{Units: 20000}, &layers.Dense{Units: 40000}, &layers.Dense{Units: 1})
			_, err := m.Predict(context.Background(), keras.NewTensor(make([]float32, 4), 1, 4))
			return err
		},
		"Variables listed before the model is built": func(*testing.T) error {
			m, opt, loss := keras.Sequential(&layers.Dense{Units: 3}), &optimizers.Adam{}, &losses.SparseCategoricalCrossentropy{FromLogits: true}
			vars := m.TrainableVariables()
			step := keras.Function(func(b keras.Batch) *keras.Tensor {
				l := loss.Call(b.Y, m.Call(b.X, keras.Training))
				opt.ApplyGradients(keras.Gradients(l, vars), vars)
				return l
			}, m, opt)
			_, err := step.Call(context.Background(), keras.Batch{X: keras.NewTensor(make([]float32, 8), 2, 4), Y: keras.NewTensor([]int32{0, 1}, 2)})
			return err
		},
	})
}

// nonFinite trains on batches of which the first that are not finite is the
// second, or all are.
func nonFinite(t *testing.T, action keras.NonFinite, batches int) error {
	m := keras.Sequential(&layers.Dense{Units: 3})
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, NonFinite: action}); err != nil {
		return err
	}
	x, y := make([]float32, 8*batches), make([]float32, 6*batches)
	if action == keras.NonFiniteError {
		x[12] = float32(math.NaN())
	} else {
		for i := range y {
			y[i] = float32(math.Inf(1))
		}
	}
	_, err := m.Fit(context.Background(), keras.FromTensors(keras.NewTensor(x, 2*batches, 4), keras.NewTensor(y, 2*batches, 3), nil),
		keras.FitConfig{Verbose: keras.VerbositySilent, BatchSize: 2, Shuffle: new(false)})
	return err
}
