package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/activations"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// convolution is the part that layers of convolution share.
type convolution struct {
	windows    support.Windows
	channels   int // of inputs
	bias       *Weight
	static     *static // or nil
	activation activations.Func
}

// open reads the input and finds its channels.
func (c *convolution) open(n int, format string, in []Shape) (err error) {
	c.channels, err = c.windows.Field.Channels(format, in, n)
	return err
}

// output reads the fields for the activation of the sums.
func (c *convolution) output(b *Base, activation, activity string) (err error) {
	if c.activation, err = activations.Get(activation); err != nil {
		return err
	}
	return b.SetActivityRegularizer(activity)
}

// check requires n spatial axes and the channels the layer was built for.
func (c *convolution) check(n int, in []Shape) error { return c.windows.Field.Fits(in, n, c.channels) }

// conv slides kernels over x, channels last.
func (c *convolution) conv(x, kernel *tensor.Tensor, groups int) *tensor.Tensor {
	return c.windows.Conv(x, kernel, groups)
}

// depthwise slides kernels [window… channels multiplier] over each channel of
// x, channels last.
func (c *convolution) depthwise(x *tensor.Tensor, kernel *Weight) *tensor.Tensor {
	return c.conv(x, kernel.Value().Reshape(depthwiseShape(kernel.Shape())...), c.channels)
}

// depthwiseShape is the shape of depthwise kernels [window… channels multiplier] as those of a
// convolution with a group for each channel.
func depthwiseShape(s Shape) Shape {
	s = s.Clone()
	n := len(s) - 2
	s[n], s[n+1] = 1, s[n]*s[n+1]
	return s
}

// quantized slides kernels of int8 over x, channels last.
func (c *convolution) quantized(x, kernel *tensor.Tensor, groups int) *tensor.Tensor {
	s := c.static
	return c.windows.QuantizedConv(x, kernel, s.scale.Value(), s.inputsScale.Value(), s.inputsZeroPoint.Variable.Value(), groups)
}

// close turns the sums, channels last, into the result. Activations along an axis see
// the channels where the input has them, as in Keras.
func (c *convolution) close(y *tensor.Tensor) *tensor.Tensor {
	if c.bias != nil {
		y = y.Add(c.bias.Value())
	}
	return c.activation(c.windows.Field.Restore(y))
}

// multiplied is the number of channels that a depthwise convolution makes.
func (c *convolution) multiplied(multiplier int) (int, error) {
	if multiplier <= 0 {
		return 0, fmt.Errorf("DepthMultiplier is %d, want a positive number", multiplier)
	}
	return c.channels * multiplier, nil
}
