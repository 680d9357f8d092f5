package preprocessing

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Rescaling is x·Scale + Offset, for inputs in a range of their own such as
// the bytes of images. Integers become floats of the compute type.
//
// Shapes: any → the same.
type Rescaling struct {
	Scale       float64 // required
	Offset      float64
	Name, DType string

	layers.Base
	layers.PassesMask
}

// Config returns the fields Name and DType.
func (r *Rescaling) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build checks the fields.
func (r *Rescaling) Build(in ...layers.Shape) error {
	if _, err := support.Single(in, 0); err != nil {
		return err
	}
	if r.Scale == 0 {
		return fmt.Errorf("Scale is 0, want another number")
	}
	_, err := support.Finite("Scale", r.Scale)
	if err == nil {
		_, err = support.Finite("Offset", r.Offset)
	}
	return err
}

// Call computes the layer on x, in float32 where the compute type is 16-bit:
// Scale is rarely exact there.
func (r *Rescaling) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	d := r.ComputeDType()
	return x.Cast(d.Accumulator()).MulScalar(r.Scale).AddScalar(r.Offset).Cast(d)
}
