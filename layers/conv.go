package layers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Conv1D computes activation(x convolved with kernels + bias) for sequences.
// As in Keras the kernels are not flipped.
//
// Shapes: [batch steps channels] → [batch outputs Filters], with
// ⌊(steps-e)/stride⌋+1 outputs for "valid" and ⌈steps/stride⌉ for "same" and
// "causal", e being (KernelSize-1)·DilationRate+1.
// Weights: kernel [KernelSize… channels/Groups Filters] in both data formats,
// bias [Filters]. Quantized to int8 (see [QuantizeStatic]) kernel is int8, and there are
// kernel_scale [Filters], inputs_scale [] and inputs_zero_point [].
type Conv1D struct {
	Filters             int     // channels of the output; required
	KernelSize          PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides             PerAxis `default:"1"`             // from one window to the next
	Padding             string  `default:"valid"`         // or same: zeros around, the odd one after; or, on sequences, causal: zeros before
	DataFormat          string  `default:"channels_last"` // or channels_first: [batch channels steps]
	DilationRate        PerAxis `default:"1"`             // between the elements of a window; not together with Strides
	Groups              *int    `default:"1"`             // parts of the channels, each with kernels of its own
	Activation          string  `default:"linear"`
	UseBias             *bool   `default:"true"`
	KernelInitializer   string  `default:"glorot_uniform"`
	BiasInitializer     string  `default:"zeros"`
	KernelRegularizer   string
	BiasRegularizer     string
	ActivityRegularizer string
	KernelConstraint    string
	BiasConstraint      string
	Name, DType         string

	Base
	conv   convolution
	kernel *Weight
	groups int
}

// Conv2D is [Conv1D] with two axes, for images, without causal padding.
//
// Shapes: [batch rows columns channels] → [batch rows' columns' Filters].
type Conv2D struct {
	Filters             int     // channels of the output; required
	KernelSize          PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides             PerAxis `default:"1"`             // from one window to the next
	Padding             string  `default:"valid"`         // or same: zeros around, the odd one after
	DataFormat          string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	DilationRate        PerAxis `default:"1"`             // between the elements of a window; not together with Strides
	Groups              *int    `default:"1"`             // parts of the channels, each with kernels of its own
	Activation          string  `default:"linear"`
	UseBias             *bool   `default:"true"`
	KernelInitializer   string  `default:"glorot_uniform"`
	BiasInitializer     string  `default:"zeros"`
	KernelRegularizer   string
	BiasRegularizer     string
	ActivityRegularizer string
	KernelConstraint    string
	BiasConstraint      string
	Name, DType         string

	Base
	conv   convolution
	kernel *Weight
	groups int
}

// Conv3D is [Conv1D] with three axes, for volumes, without causal padding.
//
// Shapes: [batch depth rows columns channels] → [batch depth' rows' columns' Filters].
type Conv3D struct {
	Filters             int     // channels of the output; required
	KernelSize          PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides             PerAxis `default:"1"`             // from one window to the next
	Padding             string  `default:"valid"`         // or same: zeros around, the odd one after
	DataFormat          string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	DilationRate        PerAxis `default:"1"`             // between the elements of a window; not together with Strides
	Groups              *int    `default:"1"`             // parts of the channels, each with kernels of its own
	Activation          string  `default:"linear"`
	UseBias             *bool   `default:"true"`
	KernelInitializer   string  `default:"glorot_uniform"`
	BiasInitializer     string  `default:"zeros"`
	KernelRegularizer   string
	BiasRegularizer     string
	ActivityRegularizer string
	KernelConstraint    string
	BiasConstraint      string
	Name, DType         string

	Base
	conv   convolution
	kernel *Weight
	groups int
}

// Config returns the fields Name and DType.
func (l *Conv1D) Config() Config { return Config{l.Name, l.DType} }

// Config returns the fields Name and DType.
func (l *Conv2D) Config() Config { return Config{l.Name, l.DType} }

// Config returns the fields Name and DType.
func (l *Conv3D) Config() Config { return Config{l.Name, l.DType} }

// Build makes the weights for inputs of shape in.
func (l *Conv1D) Build(in ...Shape) error { return l.make(1, in, "valid", "same", "causal") }

// Build makes the weights for inputs of shape in.
func (l *Conv2D) Build(in ...Shape) error { return (*Conv1D)(l).make(2, in, "valid", "same") }

// Build makes the weights for inputs of shape in.
func (l *Conv3D) Build(in ...Shape) error { return (*Conv1D)(l).make(3, in, "valid", "same") }

// CheckInput requires rank 3 and the number of channels of the kernels.
func (l *Conv1D) CheckInput(in ...Shape) error { return l.conv.check(1, in) }

// CheckInput requires rank 4 and the number of channels of the kernels.
func (l *Conv2D) CheckInput(in ...Shape) error { return l.conv.check(2, in) }

// CheckInput requires rank 5 and the number of channels of the kernels.
func (l *Conv3D) CheckInput(in ...Shape) error { return l.conv.check(3, in) }

// Call computes the layer on x.
func (l *Conv1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	x = l.conv.windows.Field.ChannelsLast(x)
	if l.conv.static != nil {
		return l.conv.close(l.conv.quantized(x, l.kernel.Variable.Value(), l.groups))
	}
	return l.conv.close(l.conv.conv(x, l.kernel.Value(), l.groups))
}

// Call computes the layer on x.
func (l *Conv2D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor { return (*Conv1D)(l).Call(p, x) }

// Call computes the layer on x.
func (l *Conv3D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor { return (*Conv1D)(l).Call(p, x) }

func (l *Conv1D) make(n int, in []Shape, paddings ...string) error {
	c := Defaults(*l)
	if c.Filters <= 0 {
		return fmt.Errorf("Filters is %d, want a positive number", c.Filters)
	}
	l.groups = *c.Groups
	if l.groups <= 0 {
		return fmt.Errorf("Groups is %d, want a positive number", l.groups)
	}
	if c.Filters%l.groups != 0 {
		return fmt.Errorf("Filters is %d, want a multiple of Groups, %d", c.Filters, l.groups)
	}
	if err := l.conv.windows.Of(n, "KernelSize", c.KernelSize, c.Strides, c.DilationRate, c.Padding, paddings...); err != nil {
		return err
	}
	if err := l.conv.open(n, c.DataFormat, in); err != nil {
		return err
	}
	if l.conv.channels%l.groups != 0 {
		return fmt.Errorf("input %v has %d channels, want a multiple of Groups, %d", in[0], l.conv.channels, l.groups)
	}
	if err := l.conv.output(&l.Base, c.Activation, c.ActivityRegularizer); err != nil {
		return err
	}
	shape := slices.Concat(Shape(l.conv.windows.Size), Shape{l.conv.channels / l.groups, c.Filters})
	var err error
	if l.policy.Int8Static {
		l.kernel, err = l.AddWeight("kernel", shape, "zeros", Int8())
	} else {
		l.kernel, err = l.AddWeight("kernel", shape, c.KernelInitializer,
			Regularizer(c.KernelRegularizer), Constraint(c.KernelConstraint))
	}
	if err == nil && *c.UseBias {
		l.conv.bias, err = l.AddWeight("bias", Shape{c.Filters}, c.BiasInitializer,
			Regularizer(c.BiasRegularizer), Constraint(c.BiasConstraint))
	}
	if err == nil {
		l.conv.static, err = l.addStatic(c.Filters)
	}
	return err
}
