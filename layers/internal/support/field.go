package support

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Channels reads DataFormat and the number of channels of an input with n axes
// between batch and channels.
func (f *Field) Channels(format string, in []tensor.Shape, n int) (int, error) {
	s, err := f.Of(format, in, n)
	if err != nil {
		return 0, err
	}
	return KnownAxis(s, f.channelAxis(s))
}

// Fits checks an input for n axes and so many channels.
func (f *Field) Fits(in []tensor.Shape, n, want int) error {
	format := "channels_last"
	if f.ChannelsFirst {
		format = "channels_first"
	}
	s, err := new(Field).Of(format, in, n)
	if err != nil {
		return err
	}
	axis := f.channelAxis(s)
	channels, err := KnownAxis(s, axis)
	if err == nil && channels != want {
		return fmt.Errorf("axis %d of input %v is %d, want %d channels", axis, s, channels, want)
	}
	return err
}

// ChannelsLast moves the channels of x to the last axis.
func (f *Field) ChannelsLast(x *tensor.Tensor) *tensor.Tensor {
	if !f.ChannelsFirst {
		return x
	}
	order := []int{0}
	for i := 2; i < x.Rank(); i++ {
		order = append(order, i)
	}
	return x.Transpose(append(order, 1)...)
}

// Restore undoes channelsLast.
func (f *Field) Restore(x *tensor.Tensor) *tensor.Tensor {
	if !f.ChannelsFirst {
		return x
	}
	order := []int{0, x.Rank() - 1}
	for i := 1; i < x.Rank()-1; i++ {
		order = append(order, i)
	}
	return x.Transpose(order...)
}

// channelAxis is the axis of the channels in a shape.
func (f *Field) channelAxis(s tensor.Shape) int {
	if f.ChannelsFirst {
		return 1
	}
	return len(s) - 1
}

// EachAxis returns one number for each of n axes.
func EachAxis(p []int, field string, n, least int) ([]int, error) {
	out := p
	if len(p) == 1 {
		out = make([]int, n)
		for i := range out {
			out[i] = p[0]
		}
	}
	if len(out) != n {
		return nil, fmt.Errorf("%s is %v, want 1 or %d numbers", field, p, n)
	}
	for _, v := range out {
		if v < least {
			return nil, fmt.Errorf("%s is %v, want numbers from %d", field, p, least)
		}
	}
	return out, nil
}

// Field is what layers on images and the like know of their axes.
type Field struct {
	ChannelsFirst bool
}

// Of reads DataFormat and wants an input with n axes between batch and
// channels.
func (f *Field) Of(format string, in []tensor.Shape, n int) (tensor.Shape, error) {
	s, err := Single(in, n+2)
	if err != nil {
		return nil, err
	}
	if len(s) != n+2 {
		return nil, fmt.Errorf("input %v has %d axes, want %d", s, len(s), n+2)
	}
	f.ChannelsFirst, err = IsChannelsFirst(format)
	return s, err
}

// First is the first of the axes between batch and channels.
func (f *Field) First() int {
	if f.ChannelsFirst {
		return 2
	}
	return 1
}

// Place puts one number for each axis of the field where that axis is in a
// list for all axes; the others get rest.
func (f *Field) Place(numbers []int, rest int) []int {
	out := make([]int, len(numbers)+2)
	for i := range out {
		out[i] = rest
	}
	copy(out[f.First():], numbers)
	return out
}

// IsChannelsFirst reads a DataFormat field.
func IsChannelsFirst(format string) (bool, error) {
	switch format {
	case "channels_last":
		return false, nil
	case "channels_first":
		return true, nil
	}
	return false, fmt.Errorf("DataFormat is %q, want channels_last or channels_first", format)
}
