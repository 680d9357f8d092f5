package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Rescaling is x·Scale + Offset, for inputs in a range of their own such as
// the bytes of images. Integers become floats of the compute type.
//
// Shapes: any → the same.
type Rescaling struct {
	Scale       float64 // required
	Offset      float64
	Name, DType string

	Base
	PassesMask
}

// Config returns the fields Name and DType.
func (r *Rescaling) Config() Config { return Config{r.Name, r.DType} }

// Build checks the fields.
func (r *Rescaling) Build(in ...Shape) error {
	if _, err := single(in, 0); err != nil {
		return err
	}
	if r.Scale == 0 {
		return fmt.Errorf("Scale is 0, want another number")
	}
	_, err := finite("Scale", r.Scale)
	if err == nil {
		_, err = finite("Offset", r.Offset)
	}
	return err
}

// Call computes the layer on x, in float32 where the compute type is 16-bit:
// Scale is rarely exact there.
func (r *Rescaling) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	d := r.ComputeDType()
	return x.Cast(d.Accumulator()).MulScalar(r.Scale).AddScalar(r.Offset).Cast(d)
}
