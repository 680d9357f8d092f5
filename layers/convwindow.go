package layers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/activations"
)

// windows is how a layer slides windows over a field.
type windows struct {
	field                  field
	size, stride, dilation []int
	padding                string
}

// of reads the fields of a layer on n axes; name is that of size. Without a
// stride windows touch each other.
func (w *windows) of(n int, name string, size, stride, dilation PerAxis, padding string, paddings ...string) (err error) {
	if w.size, err = size.each(name, n, 1); err != nil {
		return err
	}
	if stride == nil {
		stride = size
	}
	if w.stride, err = stride.each("Strides", n, 1); err != nil {
		return err
	}
	if w.dilation, err = dilation.each("DilationRate", n, 1); err != nil {
		return err
	}
	if slices.Max(w.stride) > 1 && slices.Max(w.dilation) > 1 {
		return fmt.Errorf("Strides is %v and DilationRate is %v, want 1 in one of the two", []int(stride), []int(dilation))
	}
	if !slices.Contains(paddings, padding) {
		last := len(paddings) - 1
		return fmt.Errorf("Padding is %q, want %s or %s", padding, strings.Join(paddings[:last], ", "), paddings[last])
	}
	w.padding = padding
	return nil
}

// extent is how many elements a window reaches over on axis i of the field.
func (w *windows) extent(i int) int { return (w.size[i]-1)*w.dilation[i] + 1 }

// pads is the padding for x, channels last: a word, or numbers where sizes are
// not known yet.
func (w *windows) pads(x *tensor.Tensor) (word string, low, high []int) {
	spatial := x.Shape()[1 : x.Rank()-1]
	if w.padding != "same" || unknowns(spatial) == 0 {
		return w.padding, nil, nil
	}
	// Such tensors have no elements: only the sum on axes with a size matters.
	low, high = make([]int, len(spatial)), make([]int, len(spatial))
	for i, n := range spatial {
		if n != tensor.Unknown {
			high[i] = max((n+w.stride[i]-1)/w.stride[i]*w.stride[i]-w.stride[i]+w.extent(i)-n, 0)
		}
	}
	return "", low, high
}

// channelsLast moves the channels of x to the last axis.
func (f *field) channelsLast(x *tensor.Tensor) *tensor.Tensor {
	if !f.channelsFirst {
		return x
	}
	order := []int{0}
	for i := 2; i < x.Rank(); i++ {
		order = append(order, i)
	}
	return x.Transpose(append(order, 1)...)
}

// restore undoes channelsLast.
func (f *field) restore(x *tensor.Tensor) *tensor.Tensor {
	if !f.channelsFirst {
		return x
	}
	order := []int{0, x.Rank() - 1}
	for i := 1; i < x.Rank()-1; i++ {
		order = append(order, i)
	}
	return x.Transpose(order...)
}

// channelAxis is the axis of the channels in a shape.
func (f *field) channelAxis(s Shape) int {
	if f.channelsFirst {
		return 1
	}
	return len(s) - 1
}

// convolution is the part that layers of convolution share.
type convolution struct {
	windows    windows
	channels   int // of inputs
	bias       *Weight
	activation activations.Func
}

// open reads the input and finds its channels.
func (c *convolution) open(n int, format string, in []Shape) (err error) {
	s, err := c.windows.field.of(format, in, n)
	if err != nil {
		return err
	}
	c.channels, err = knownAxis(s, c.windows.field.channelAxis(s))
	return err
}

// output reads the fields that say what becomes of the sums.
func (c *convolution) output(b *Base, activation, activity string) (err error) {
	if c.activation, err = activations.Get(activation); err != nil {
		return err
	}
	return b.SetActivityRegularizer(activity)
}

// check wants n axes and the channels the layer was built for.
func (c *convolution) check(n int, in []Shape) error {
	format := "channels_last"
	if c.windows.field.channelsFirst {
		format = "channels_first"
	}
	s, err := new(field).of(format, in, n)
	if err != nil {
		return err
	}
	axis := c.windows.field.channelAxis(s)
	channels, err := knownAxis(s, axis)
	if err == nil && channels != c.channels {
		return fmt.Errorf("axis %d of input %v is %d, want %d channels", axis, s, channels, c.channels)
	}
	return err
}

// conv slides kernels over x, channels last.
func (c *convolution) conv(x, kernel *tensor.Tensor, groups int) *tensor.Tensor {
	w := &c.windows
	o := tensor.ConvOptions{Stride: w.stride, Dilation: w.dilation, Groups: groups}
	o.Padding, o.Low, o.High = w.pads(x)
	return x.Conv(kernel, o)
}

// depthwise slides kernels [window… channels multiplier] over each channel of
// x, channels last.
func (c *convolution) depthwise(x *tensor.Tensor, kernel *Weight) *tensor.Tensor {
	s := kernel.Shape().Clone()
	n := len(s) - 2
	s[n], s[n+1] = 1, s[n]*s[n+1]
	return c.conv(x, kernel.Value().Reshape(s...), c.channels)
}

// close makes a result of the sums, channels last. Activations along an axis
// see the channels where the input has them, as in Keras.
func (c *convolution) close(y *tensor.Tensor) *tensor.Tensor {
	if c.bias != nil {
		y = y.Add(c.bias.Value())
	}
	return c.activation(c.windows.field.restore(y))
}

// multiplied is the number of channels that a depthwise convolution makes.
func (c *convolution) multiplied(multiplier int) (int, error) {
	if multiplier <= 0 {
		return 0, fmt.Errorf("DepthMultiplier is %d, want a positive number", multiplier)
	}
	return c.channels * multiplier, nil
}
