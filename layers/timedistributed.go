package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// TimeDistributed applies a layer to each step of a sequence. All steps are
// computed at once, as a larger batch. In training a layer with moving
// statistics, such as BatchNormalization or a model that contains one, is
// applied step by step, as in Keras: each step has its own statistics and
// updates the averages.
//
// Shapes: [batch steps features…] → [batch steps outputs…]. Weights: those of
// Layer. The mask of the sequence is passed on; Layer gets the part of it for
// the axes after the steps.
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

// product returns the product of two sizes, one of which may be unknown.
func product(a, b int) int {
	if a == tensor.Unknown || b == tensor.Unknown {
		return tensor.Unknown
	}
	return a * b
}

// CheckInput requires at least three axes.
func (t *TimeDistributed) CheckInput(in ...Shape) error {
	_, err := support.Single(in, 3)
	return err
}

// Call computes the layer on x.
func (t *TimeDistributed) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	mask := x.Mask()
	if mask != nil && mask.Rank() < 2 {
		tensor.Fail("Call", "got mask %v, want at least [batch steps]", mask.Type())
	}
	if p.Training && !x.Symbolic() && x.Dim(1) != tensor.Unknown && hasStatistics(t.Layer) {
		return t.stepByStep(p, x, mask)
	}
	in := joinSteps(x)
	if mask != nil && mask.Rank() > 2 {
		in = in.WithMask(joinSteps(mask))
	}
	y := Apply(t.Layer, p, in)
	out := make([]*tensor.Tensor, y.Len())
	for i, part := range y.Unpack() {
		// Not Reshape: batch and steps may both be unknown.
		dims := append(Shape{x.Dim(0), x.Dim(1)}, part.Shape()[1:]...)
		out[i] = tensor.Record(op.Reshape, op.Attr{Dims: dims}, part).WithMask(mask)
	}
	if !y.IsTuple() {
		return out[0]
	}
	return tensor.Tuple(out...)
}

// stepByStep applies the layer to each step by itself.
func (t *TimeDistributed) stepByStep(p Pass, x, mask *tensor.Tensor) *tensor.Tensor {
	var steps [][]*tensor.Tensor // of each output
	tuple := false
	for i := range x.Dim(1) {
		in := x.Slice(1, i, i+1).Squeeze(1)
		if mask != nil {
			in = in.WithMask(mask.Slice(1, i, i+1).Squeeze(1))
		}
		y := Apply(t.Layer, p, in)
		tuple = y.IsTuple()
		if steps == nil {
			steps = make([][]*tensor.Tensor, y.Len())
		}
		for k, part := range y.Unpack() {
			steps[k] = append(steps[k], part.ExpandDims(1))
		}
	}
	out := make([]*tensor.Tensor, len(steps))
	for k, parts := range steps {
		out[k] = tensor.Concat(1, parts...).WithMask(mask)
	}
	if !tuple {
		return out[0]
	}
	return tensor.Tuple(out...)
}

// joinSteps makes one axis of batch and steps.
func joinSteps(x *tensor.Tensor) *tensor.Tensor {
	dims := append(Shape{product(x.Dim(0), x.Dim(1))}, x.Shape()[2:]...)
	return tensor.Record(op.Reshape, op.Attr{Dims: dims}, x)
}
