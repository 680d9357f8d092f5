package layers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// SeparableConv1D is a depthwise convolution of sequences followed by one that
// mixes the channels at each step, with bias and activation after both.
//
// Shapes: [batch steps channels] → [batch outputs Filters], with the outputs
// of [Conv1D].
// Weights: depthwise_kernel [KernelSize… channels DepthMultiplier],
// pointwise_kernel [1… channels·DepthMultiplier Filters], bias [Filters].
type SeparableConv1D struct {
	Filters              int     // channels of the output; required
	KernelSize           PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides              PerAxis `default:"1"`             // from one window to the next
	Padding              string  `default:"valid"`         // or same: zeros around, the odd one after
	DataFormat           string  `default:"channels_last"` // or channels_first: [batch channels steps]
	DilationRate         PerAxis `default:"1"`             // between the elements of a window; not together with Strides
	DepthMultiplier      *int    `default:"1"`             // depthwise kernels for each channel
	Activation           string  `default:"linear"`
	UseBias              *bool   `default:"true"`
	DepthwiseInitializer string  `default:"glorot_uniform"`
	PointwiseInitializer string  `default:"glorot_uniform"`
	BiasInitializer      string  `default:"zeros"`
	DepthwiseRegularizer string
	PointwiseRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	DepthwiseConstraint  string
	PointwiseConstraint  string
	BiasConstraint       string
	Name, DType          string

	Base
	conv                 convolution
	depthwise, pointwise *Weight
}

// SeparableConv2D is [SeparableConv1D] with two axes, for images.
//
// Shapes: [batch rows columns channels] → [batch rows' columns' Filters].
type SeparableConv2D struct {
	Filters              int     // channels of the output; required
	KernelSize           PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides              PerAxis `default:"1"`             // from one window to the next
	Padding              string  `default:"valid"`         // or same: zeros around, the odd one after
	DataFormat           string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	DilationRate         PerAxis `default:"1"`             // between the elements of a window; not together with Strides
	DepthMultiplier      *int    `default:"1"`             // depthwise kernels for each channel
	Activation           string  `default:"linear"`
	UseBias              *bool   `default:"true"`
	DepthwiseInitializer string  `default:"glorot_uniform"`
	PointwiseInitializer string  `default:"glorot_uniform"`
	BiasInitializer      string  `default:"zeros"`
	DepthwiseRegularizer string
	PointwiseRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	DepthwiseConstraint  string
	PointwiseConstraint  string
	BiasConstraint       string
	Name, DType          string

	Base
	conv                 convolution
	depthwise, pointwise *Weight
}

// Config returns the fields Name and DType.
func (l *SeparableConv1D) Config() Config { return Config{l.Name, l.DType} }

// Config returns the fields Name and DType.
func (l *SeparableConv2D) Config() Config { return Config{l.Name, l.DType} }

// Build makes the weights for inputs of shape in.
func (l *SeparableConv1D) Build(in ...Shape) error { return l.make(1, in) }

// Build makes the weights for inputs of shape in.
func (l *SeparableConv2D) Build(in ...Shape) error {
	return (*SeparableConv1D)(l).make(2, in)
}

// CheckInput requires rank 3 and the number of channels of the kernels.
func (l *SeparableConv1D) CheckInput(in ...Shape) error { return l.conv.check(1, in) }

// CheckInput requires rank 4 and the number of channels of the kernels.
func (l *SeparableConv2D) CheckInput(in ...Shape) error { return l.conv.check(2, in) }

// Call computes the layer on x.
func (l *SeparableConv1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	y := l.conv.depthwise(l.conv.windows.Field.ChannelsLast(x), l.depthwise)
	return l.conv.close(y.Conv(l.pointwise.Value(), tensor.ConvOptions{}))
}

// Call computes the layer on x.
func (l *SeparableConv2D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return (*SeparableConv1D)(l).Call(p, x)
}

func (l *SeparableConv1D) make(n int, in []Shape) error {
	c := Defaults(*l)
	if c.Filters <= 0 {
		return fmt.Errorf("Filters is %d, want a positive number", c.Filters)
	}
	if err := l.conv.windows.Of(n, "KernelSize", c.KernelSize, c.Strides, c.DilationRate, c.Padding, "valid", "same"); err != nil {
		return err
	}
	if err := l.conv.open(n, c.DataFormat, in); err != nil {
		return err
	}
	channels, err := l.conv.multiplied(*c.DepthMultiplier)
	if err != nil {
		return err
	}
	if err := l.conv.output(&l.Base, c.Activation, c.ActivityRegularizer); err != nil {
		return err
	}
	shape := slices.Concat(Shape(l.conv.windows.Size), Shape{l.conv.channels, *c.DepthMultiplier})
	l.depthwise, err = l.AddWeight("depthwise_kernel", shape, c.DepthwiseInitializer,
		Regularizer(c.DepthwiseRegularizer), Constraint(c.DepthwiseConstraint))
	if err != nil {
		return err
	}
	shape = append(slices.Repeat(Shape{1}, n), channels, c.Filters)
	l.pointwise, err = l.AddWeight("pointwise_kernel", shape, c.PointwiseInitializer,
		Regularizer(c.PointwiseRegularizer), Constraint(c.PointwiseConstraint))
	if err != nil || !*c.UseBias {
		return err
	}
	l.conv.bias, err = l.AddWeight("bias", Shape{c.Filters}, c.BiasInitializer,
		Regularizer(c.BiasRegularizer), Constraint(c.BiasConstraint))
	return err
}
