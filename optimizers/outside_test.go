package optimizers_test

import (
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestCheckGradients: what an optimizer of another package must refuse.
func TestCheckGradients(t *testing.T) {
	v := tensor.NewVariable("v", dtype.Float32, tensor.Shape{2}, nil)
	lso := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}}
	for want, gradient := range map[string]func() *tensor.Tensor{
		"": func() *tensor.Tensor { return tensor.Gradients(v.Value().Sum(), []*tensor.Variable{v})[0] },
		"ApplyGradients: gradient of v: got float32[3], want float32[2]": func() *tensor.Tensor { return tensor.Ones(dtype.Float32, 3) },
		"ApplyGradients: gradient of v still carries the loss scale; call GetUnscaledGradients first": func() *tensor.Tensor {
			return tensor.Gradients(lso.GetScaledLoss(v.Value().Sum()), []*tensor.Variable{v})[0]
		},
		"ApplyGradients: optimizer mine: the gradient of v passed through float16 and its loss was not scaled, so small gradients are lost; " +
			"use a LossScaleOptimizer, with GetScaledLoss and GetUnscaledGradients, or set AllowUnscaledLoss": func() *tensor.Tensor {
			return tensor.Gradients(v.Value().Cast(dtype.Float16).Sum(), []*tensor.Variable{v})[0]
		},
	} {
		f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor {
			optimizers.CheckGradients("mine", []*tensor.Tensor{gradient()}, []*tensor.Variable{v})
			return x
		}, lso)
		_, err := f.Call(t.Context(), tensor.Ones(dtype.Float32, 1))
		if got := ""; err != nil {
			if got = err.Error(); got != want {
				t.Errorf("got error %q, want %q", got, want)
			}
		} else if want != "" {
			t.Errorf("got no error, want %q", want)
		}
	}
}
