package layers

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// DepthwiseConv1D convolves each channel of sequences with DepthMultiplier
// kernels of its own: activation(channel convolved with its kernels + bias).
// Channel c·DepthMultiplier+i of the output is channel c convolved with its
// kernel i.
//
// Shapes: [batch steps channels] → [batch outputs channels·DepthMultiplier],
// with the outputs of [Conv1D].
// Weights: kernel [KernelSize… channels DepthMultiplier],
// bias [channels·DepthMultiplier].
type DepthwiseConv1D struct {
	KernelSize           PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides              PerAxis `default:"1"`             // from one window to the next
	Padding              string  `default:"valid"`         // or same: zeros around, the odd one after
	DepthMultiplier      *int    `default:"1"`             // kernels for each channel
	DataFormat           string  `default:"channels_last"` // or channels_first: [batch channels steps]
	DilationRate         PerAxis `default:"1"`             // between the elements of a window; not together with Strides
	Activation           string  `default:"linear"`
	UseBias              *bool   `default:"true"`
	DepthwiseInitializer string  `default:"glorot_uniform"`
	BiasInitializer      string  `default:"zeros"`
	DepthwiseRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	DepthwiseConstraint  string
	BiasConstraint       string
	Name, DType          string

	Base
	conv   convolution
	kernel *Weight
}

// DepthwiseConv2D is [DepthwiseConv1D] with two axes, for images.
//
// Shapes: [batch rows columns channels] → [batch rows' columns' channels·DepthMultiplier].
type DepthwiseConv2D struct {
	KernelSize           PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides              PerAxis `default:"1"`             // from one window to the next
	Padding              string  `default:"valid"`         // or same: zeros around, the odd one after
	DepthMultiplier      *int    `default:"1"`             // kernels for each channel
	DataFormat           string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	DilationRate         PerAxis `default:"1"`             // between the elements of a window; not together with Strides
	Activation           string  `default:"linear"`
	UseBias              *bool   `default:"true"`
	DepthwiseInitializer string  `default:"glorot_uniform"`
	BiasInitializer      string  `default:"zeros"`
	DepthwiseRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	DepthwiseConstraint  string
	BiasConstraint       string
	Name, DType          string

	Base
	conv   convolution
	kernel *Weight
}

// Config returns the fields Name and DType.
func (l *DepthwiseConv1D) Config() Config { return Config{l.Name, l.DType} }

// Config returns the fields Name and DType.
func (l *DepthwiseConv2D) Config() Config { return Config{l.Name, l.DType} }

// Build makes the weights for inputs of shape in.
func (l *DepthwiseConv1D) Build(in ...Shape) error { return l.make(1, in) }

// Build makes the weights for inputs of shape in.
func (l *DepthwiseConv2D) Build(in ...Shape) error { return (*DepthwiseConv1D)(l).make(2, in) }

// CheckInput requires rank 3 and the number of channels of the kernels.
func (l *DepthwiseConv1D) CheckInput(in ...Shape) error { return l.conv.check(1, in) }

// CheckInput requires rank 4 and the number of channels of the kernels.
func (l *DepthwiseConv2D) CheckInput(in ...Shape) error { return l.conv.check(2, in) }

// Call computes the layer on x.
func (l *DepthwiseConv1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	x = l.conv.windows.Field.ChannelsLast(x)
	if l.conv.static != nil {
		kernel := l.kernel.Variable.Value().Reshape(depthwiseShape(l.kernel.Shape())...)
		return l.conv.close(l.conv.quantized(x, kernel, l.conv.channels))
	}
	return l.conv.close(l.conv.depthwise(x, l.kernel))
}

// Call computes the layer on x.
func (l *DepthwiseConv2D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return (*DepthwiseConv1D)(l).Call(p, x)
}

func (l *DepthwiseConv1D) make(n int, in []Shape) error {
	c := Defaults(*l)
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
	if l.policy.Int8Static {
		l.kernel, err = l.AddWeight("kernel", shape, "zeros", Int8())
	} else {
		l.kernel, err = l.AddWeight("kernel", shape, c.DepthwiseInitializer,
			Regularizer(c.DepthwiseRegularizer), Constraint(c.DepthwiseConstraint))
	}
	if err == nil && *c.UseBias {
		l.conv.bias, err = l.AddWeight("bias", Shape{channels}, c.BiasInitializer,
			Regularizer(c.BiasRegularizer), Constraint(c.BiasConstraint))
	}
	if err == nil {
		l.conv.static, err = l.addStatic(channels)
	}
	return err
}
