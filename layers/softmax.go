package layers

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Softmax is eˣ/Σeˣ, with the sum over Axis, in float32 or better.
//
// A mask of x with as many axes as x takes elements out: they are 0, and the
// others sum to 1. A mask of fewer axes, such as the mask of an Embedding, is
// only passed on.
//
// Shapes: any → the same.
type Softmax struct {
	Axis        []int `default:"-1"` // axes that sum to 1 together
	Name, DType string

	Base
	PassesMask
	axes []int
}

// Config returns the fields Name and DType.
func (s *Softmax) Config() Config { return Config{s.Name, s.DType} }

// Build checks the axes.
func (s *Softmax) Build(in ...Shape) error { return s.CheckInput(in...) }

// CheckInput requires an input that has the axes of Axis.
func (s *Softmax) CheckInput(in ...Shape) error {
	shape, err := support.Single(in, 1)
	if err == nil {
		s.axes, err = someAxes(shape, Defaults(*s).Axis)
	}
	return err
}

// Call computes the layer on x.
func (s *Softmax) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	m := x.Mask()
	if m != nil && m.Rank() < x.Rank() {
		m = nil
	}
	if m == nil && len(s.axes) == 1 {
		return x.Softmax(s.axes[0]) // a loss finds its logits
	}
	return maskedSoftmax(x.Cast(x.DType().Accumulator()), m, s.axes...).Cast(x.DType())
}

// maskedSoftmax is the softmax over axes of the elements that keep, bool and broadcast
// to x, keeps; the others are 0, also if none is kept. nil keeps all. x is float32 or
// wider.
//
// The mask is a Where inside the softmax, not a large negative number that is added: no
// number that fits 16 bits is certain to hide every score.
// score is so low that a number that fits 16 bits would surely hide it.
func maskedSoftmax(x, keep *tensor.Tensor, axes ...int) *tensor.Tensor {
	zero := tensor.Scalar(x.DType(), 0)
	if keep != nil {
		// The least float32 and not -∞, which would make NaN of all-masked rows.
		x = tensor.Where(keep, x, tensor.Scalar(x.DType(), -math.MaxFloat32))
	}
	var y *tensor.Tensor
	if len(axes) == 1 {
		y = x.Softmax(axes[0])
	} else {
		// The softmax does not depend on the subtrahend.
		e := x.Sub(x.MaxKeep(axes...).StopGradient()).Exp()
		y = e.Div(e.SumKeep(axes...))
	}
	if keep != nil {
		y = tensor.Where(keep, y, zero)
	}
	return y
}
