package layers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Conv1DTranspose computes activation(y + bias), where each step of x adds its
// multiple of the kernels to a window of y: the gradient of a [Conv1D] by its
// input, which makes sequences longer.
//
// Shapes: [batch steps channels] → [batch outputs Filters], with e being
// (KernelSize-1)·DilationRate+1:
//
//	Padding  OutputPadding none               OutputPadding p
//	valid    (steps-1)·stride+max(e, stride)  (steps-1)·stride+e+p
//	same     steps·stride                     (steps-1)·stride+e%2+p
//
// Weights: kernel [KernelSize… Filters channels], bias [Filters].
type Conv1DTranspose struct {
	Filters             int     // channels of the output; required
	KernelSize          PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides             PerAxis `default:"1"`     // from one window to the next
	Padding             string  `default:"valid"` // or same: without the edges that only some windows reach
	OutputPadding       PerAxis // steps more at the end, less than Strides; default: see above
	DataFormat          string  `default:"channels_last"` // or channels_first: [batch channels steps]
	DilationRate        PerAxis `default:"1"`             // between the elements of a window; not together with Strides
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
	extra  []int // OutputPadding on each axis
}

// Conv2DTranspose is [Conv1DTranspose] with two axes, for images.
//
// Shapes: [batch rows columns channels] → [batch rows' columns' Filters].
type Conv2DTranspose struct {
	Filters             int     // channels of the output; required
	KernelSize          PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides             PerAxis `default:"1"`     // from one window to the next
	Padding             string  `default:"valid"` // or same: without the edges that only some windows reach
	OutputPadding       PerAxis // steps more at the end, less than Strides; default: see above
	DataFormat          string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	DilationRate        PerAxis `default:"1"`             // between the elements of a window; not together with Strides
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
	extra  []int // OutputPadding on each axis
}

// Conv3DTranspose is [Conv1DTranspose] with three axes, for volumes.
//
// Shapes: [batch depth rows columns channels] → [batch depth' rows' columns' Filters].
type Conv3DTranspose struct {
	Filters             int     // channels of the output; required
	KernelSize          PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides             PerAxis `default:"1"`     // from one window to the next
	Padding             string  `default:"valid"` // or same: without the edges that only some windows reach
	OutputPadding       PerAxis // steps more at the end, less than Strides; default: see above
	DataFormat          string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	DilationRate        PerAxis `default:"1"`             // between the elements of a window; not together with Strides
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
	extra  []int // OutputPadding on each axis
}

// Config returns the fields Name and DType.
func (l *Conv1DTranspose) Config() Config { return Config{l.Name, l.DType} }

// Config returns the fields Name and DType.
func (l *Conv2DTranspose) Config() Config { return Config{l.Name, l.DType} }

// Config returns the fields Name and DType.
func (l *Conv3DTranspose) Config() Config { return Config{l.Name, l.DType} }

// Build makes the weights for inputs of shape in.
func (l *Conv1DTranspose) Build(in ...Shape) error { return l.make(1, in) }

// Build makes the weights for inputs of shape in.
func (l *Conv2DTranspose) Build(in ...Shape) error { return (*Conv1DTranspose)(l).make(2, in) }

// Build makes the weights for inputs of shape in.
func (l *Conv3DTranspose) Build(in ...Shape) error { return (*Conv1DTranspose)(l).make(3, in) }

// CheckInput requires rank 3 and the number of channels of the kernels.
func (l *Conv1DTranspose) CheckInput(in ...Shape) error { return l.conv.check(1, in) }

// CheckInput requires rank 4 and the number of channels of the kernels.
func (l *Conv2DTranspose) CheckInput(in ...Shape) error { return l.conv.check(2, in) }

// CheckInput requires rank 5 and the number of channels of the kernels.
func (l *Conv3DTranspose) CheckInput(in ...Shape) error { return l.conv.check(3, in) }

// Call computes the layer on x.
func (l *Conv1DTranspose) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	w := &l.conv.windows
	x = w.Field.ChannelsLast(x)
	shape := x.Shape().Clone()
	n := len(w.Size)
	shape[n+1] = l.kernel.Shape()[n]
	low, high := make([]int, n), make([]int, n)
	for i := range n {
		if x.Dim(i+1) != tensor.Unknown {
			shape[i+1], low[i], high[i] = l.axis(i, x.Dim(i+1))
		}
	}
	y := x.ConvTranspose(l.kernel.Value(), shape, tensor.ConvOptions{Stride: w.Stride, Dilation: w.Dilation, Low: low, High: high})
	return l.conv.close(y)
}

// axis gives the size of the output on axis i of the field, where the input
// has steps, and the padding of the convolution that this is the gradient of:
// with it, that convolution has as many windows as there are steps.
func (l *Conv1DTranspose) axis(i, steps int) (size, low, high int) {
	e, stride := l.conv.windows.Extent(i), l.conv.windows.Stride[i]
	all := (steps-1)*stride + e // extent of the windows
	switch {
	case l.conv.windows.Padding == "valid" && l.extra == nil:
		size = all - e + max(e, stride)
	case l.conv.windows.Padding == "valid":
		size = all + l.extra[i]
	case l.extra == nil:
		size, low = steps*stride, max(e-stride, 0)/2
	default:
		size, low = all-e+e%2+l.extra[i], max(e-e%2-l.extra[i], 0)/2
	}
	return size, low, all - size - low
}

// Call computes the layer on x.
func (l *Conv2DTranspose) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return (*Conv1DTranspose)(l).Call(p, x)
}

// Call computes the layer on x.
func (l *Conv3DTranspose) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return (*Conv1DTranspose)(l).Call(p, x)
}

func (l *Conv1DTranspose) make(n int, in []Shape) error {
	c := Defaults(*l)
	if c.Filters <= 0 {
		return fmt.Errorf("Filters is %d, want a positive number", c.Filters)
	}
	w := &l.conv.windows
	err := w.Of(n, "KernelSize", c.KernelSize, c.Strides, c.DilationRate, c.Padding, "valid", "same")
	if err != nil {
		return err
	}
	if c.OutputPadding != nil {
		if l.extra, err = support.EachAxis(c.OutputPadding, "OutputPadding", n, 0); err != nil {
			return err
		}
		for i, p := range l.extra {
			if p >= w.Stride[i] {
				return fmt.Errorf("OutputPadding is %v, want less than Strides, %v", []int(c.OutputPadding), []int(c.Strides))
			}
		}
	}
	if err := l.conv.open(n, c.DataFormat, in); err != nil {
		return err
	}
	if err := l.conv.output(&l.Base, c.Activation, c.ActivityRegularizer); err != nil {
		return err
	}
	shape := slices.Concat(Shape(w.Size), Shape{c.Filters, l.conv.channels})
	l.kernel, err = l.AddWeight("kernel", shape, c.KernelInitializer,
		Regularizer(c.KernelRegularizer), Constraint(c.KernelConstraint))
	if err != nil || !*c.UseBias {
		return err
	}
	l.conv.bias, err = l.AddWeight("bias", Shape{c.Filters}, c.BiasInitializer,
		Regularizer(c.BiasRegularizer), Constraint(c.BiasConstraint))
	return err
}
