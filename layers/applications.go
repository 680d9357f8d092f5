package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// StochasticDepth sets whole samples to 0 while training, each with probability
// DropPathRate, and multiplies the others by 1/(1-DropPathRate), so that the expected
// sum stays (Huang et al. 2016). When not training it changes nothing. It is a layer
// of ConvNeXt in keras.applications.
//
// Shapes: any → the same.
type StochasticDepth struct {
	DropPathRate float64 // share of the samples that is dropped, from 0 to 1
	Name, DType  string

	Base
	PassesMask
	state *tensor.Variable
}

// Config returns the fields Name and DType.
func (s *StochasticDepth) Config() Config { return Config{s.Name, s.DType} }

// Build makes the state of the random numbers.
func (s *StochasticDepth) Build(in ...Shape) (err error) {
	if _, err = support.Single(in, 1); err != nil {
		return err
	}
	if !(s.DropPathRate >= 0 && s.DropPathRate <= 1) {
		return fmt.Errorf("DropPathRate is %v, want a number from 0 to 1", s.DropPathRate)
	}
	s.state, err = s.rateState(s.DropPathRate, nil)
	return err
}

// Call computes the layer on x.
func (s *StochasticDepth) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	if !p.Training || s.DropPathRate == 0 || x.Symbolic() {
		return x
	}
	shape := Shape{x.Dim(0)}
	for range x.Rank() - 1 {
		shape = append(shape, 1)
	}
	return drop(x, s.state, s.DropPathRate, shape)
}

// LayerScale multiplies its input by a weight for each feature of the last axis
// (Touvron et al. 2021). It is a layer of
// ConvNeXt in keras.applications.
//
// Shapes: [… ProjectionDim] → the same. Weight: gamma [ProjectionDim].
type LayerScale struct {
	InitValues    float64 // first value of the weights
	ProjectionDim int     // number of features; required
	Name, DType   string

	Base
	gamma *Weight
}

// Config returns the fields Name and DType.
func (l *LayerScale) Config() Config { return Config{l.Name, l.DType} }

// Build makes the weight.
func (l *LayerScale) Build(in ...Shape) (err error) {
	if err := support.Positive("ProjectionDim", l.ProjectionDim); err != nil {
		return err
	}
	if _, err := support.Finite("InitValues", l.InitValues); err != nil {
		return err
	}
	if err := l.CheckInput(in...); err != nil {
		return err
	}
	l.gamma, err = l.AddWeight("gamma", Shape{l.ProjectionDim}, fmt.Sprintf("constant(%v)", l.InitValues))
	return err
}

// CheckInput requires ProjectionDim features.
func (l *LayerScale) CheckInput(in ...Shape) error {
	s, err := support.Single(in, 1)
	if err != nil {
		return err
	}
	if n := s[len(s)-1]; n != l.ProjectionDim && n != tensor.Unknown {
		return fmt.Errorf("the last axis of input %v is %d, want ProjectionDim %d", s, n, l.ProjectionDim)
	}
	return nil
}

// Call computes the layer on x.
func (l *LayerScale) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	return x.Mul(l.gamma.Value())
}

// CustomScaleLayer adds its second input, times Scale, to the first. It is a layer of
// InceptionResNetV2 in keras.applications.
//
// Shapes: ([batch …], [batch …]) → [batch …].
type CustomScaleLayer struct {
	Scale       float64 // factor of the second input
	Name, DType string

	Base
}

// Config returns the fields Name and DType.
func (c *CustomScaleLayer) Config() Config { return Config{c.Name, c.DType} }

// Build checks the field and the inputs.
func (c *CustomScaleLayer) Build(in ...Shape) error {
	if _, err := support.Finite("Scale", c.Scale); err != nil {
		return err
	}
	return c.CheckInput(in...)
}

// CheckInput requires two inputs of one shape.
func (c *CustomScaleLayer) CheckInput(in ...Shape) error {
	if len(in) != 2 {
		return fmt.Errorf("got %d inputs, want a tuple of 2", len(in))
	}
	if !fitsShape(in[0], in[1]) {
		return fmt.Errorf("got inputs %v, want one shape", in)
	}
	return nil
}

// Call computes the layer on the tuple x.
func (c *CustomScaleLayer) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	parts := x.Unpack()
	for _, p := range parts {
		support.CheckFloats(p)
	}
	return parts[0].Add(parts[1].MulScalar(c.Scale))
}
