package layers

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/activations"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Activation applies an activation function.
//
// Shapes: any → the same.
type Activation struct {
	Activation  string `default:"linear"` // see package activations
	Name, DType string

	Base
	PassesMask
	activation activations.Func
}

// Config returns the fields Name and DType.
func (a *Activation) Config() Config { return Config{a.Name, a.DType} }

// Build looks the function up.
func (a *Activation) Build(in ...Shape) (err error) {
	if _, err := support.Single(in, 0); err != nil {
		return err
	}
	a.activation, err = activations.Get(Defaults(*a).Activation)
	return err
}

// Call computes the layer on x.
func (a *Activation) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return a.activation(x) }

// Identity returns its input in the compute type.
//
// Shapes: any → the same.
type Identity struct {
	Name, DType string
	Base
	PassesMask
}

// Config returns the fields Name and DType.
func (i *Identity) Config() Config { return Config{i.Name, i.DType} }

// Build requires one input.
func (i *Identity) Build(in ...Shape) error {
	_, err := support.Single(in, 0)
	return err
}

// Call returns x.
func (i *Identity) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return x }
