package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TimeDistributed applies a layer to each step of a sequence: to all of them
// at once, with the steps as further samples. So layers with statistics of the
// batch (BatchNormalization) have those of all steps.
//
// Shapes: [batch steps features…] → [batch steps outputs…]. Weights: those of
// Layer. The mask of a sequence is passed on; Layer sees the axes of it that
// follow the steps.
type TimeDistributed struct {
	Layer       Layer // required
	Name, DType string

	Base
	SetsMask
}

// Config returns the fields Name and DType.
func (t *TimeDistributed) Config() Config { return Config{t.Name, t.DType} }

// Build builds the layer.
func (t *TimeDistributed) Build(in ...Shape) error {
	if t.Layer == nil {
		return fmt.Errorf("Layer is nil, want a layer")
	}
	if err := t.CheckInput(in...); err != nil {
		return err
	}
	t.SetAutocast(false) // Layer casts for itself
	return t.AddBuilt(SnakeClass(t.Layer), t.Layer, append(Shape{product(in[0][0], in[0][1])}, in[0][2:]...))
}

// product is the product of two sizes, of which one may be unknown.
func product(a, b int) int {
	if a == tensor.Unknown || b == tensor.Unknown {
		return tensor.Unknown
	}
	return a * b
}

// CheckInput wants at least three axes.
func (t *TimeDistributed) CheckInput(in ...Shape) error {
	_, err := single(in, 3)
	return err
}

// Call computes the layer on x.
func (t *TimeDistributed) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	mask := x.Mask()
	if mask != nil && mask.Rank() < 2 {
		tensor.Fail("Call", "got mask %v, want at least [batch steps]", mask.Type())
	}
	in := joinSteps(x)
	if mask != nil && mask.Rank() > 2 {
		in = in.WithMask(joinSteps(mask))
	}
	y := Apply(t.Layer, p, in)
	out := make([]*tensor.Tensor, y.Len())
	for i, part := range y.Parts() {
		// Not Reshape: batch and steps may both be unknown.
		dims := append(Shape{x.Dim(0), x.Dim(1)}, part.Shape()[1:]...)
		out[i] = tensor.Record(op.Reshape, op.Attr{Dims: dims}, part).WithMask(mask)
	}
	if !y.IsTuple() {
		return out[0]
	}
	return tensor.Tuple(out...)
}

// joinSteps makes one axis of batch and steps.
func joinSteps(x *tensor.Tensor) *tensor.Tensor {
	dims := append(Shape{product(x.Dim(0), x.Dim(1))}, x.Shape()[2:]...)
	return tensor.Record(op.Reshape, op.Attr{Dims: dims}, x)
}
