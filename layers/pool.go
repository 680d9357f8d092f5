package layers

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// pooling is the part that layers of pooling share.
type pooling struct{ windows support.Windows }

// check reads the fields of a layer on n spatial axes and requires an input that fits.
func (p *pooling) check(n int, size, stride PerAxis, padding, format string, in []Shape) error {
	if err := p.windows.Of(n, "PoolSize", size, stride, PerAxis{1}, padding, "valid", "same"); err != nil {
		return err
	}
	_, err := p.windows.Field.Of(format, in, n)
	return err
}

// slide computes pool over the windows of x.
func (p *pooling) slide(x *tensor.Tensor, pool func(*tensor.Tensor, tensor.PoolOptions) *tensor.Tensor) *tensor.Tensor {
	x = p.windows.Field.ChannelsLast(x)
	o := tensor.PoolOptions{Window: p.windows.Size, Stride: p.windows.Stride}
	o.Padding, o.Low, o.High = p.windows.Pads(x)
	return p.windows.Field.Restore(pool(x, o))
}

// MaxPooling1D takes the largest element of each window of sequences, in each
// channel; padding is never the largest.
//
// Shapes: [batch steps channels] → [batch outputs channels], with ⌊(steps-
// PoolSize)/stride⌋+1 outputs for "valid" and ⌈steps/stride⌉ for "same".
type MaxPooling1D struct {
	PoolSize    PerAxis `default:"2"` // size of the windows: 1 number for all axes, or one for each
	Strides     PerAxis // from one window to the next; default: PoolSize
	Padding     string  `default:"valid"`         // or same: added around, the odd one after
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels steps]
	Name, DType string

	Base
	pooling pooling
}

// MaxPooling2D is [MaxPooling1D] with two axes, for images.
//
// Shapes: [batch rows columns channels] → [batch rows' columns' channels].
type MaxPooling2D struct {
	PoolSize    PerAxis `default:"2"` // size of the windows: 1 number for all axes, or one for each
	Strides     PerAxis // from one window to the next; default: PoolSize
	Padding     string  `default:"valid"`         // or same: added around, the odd one after
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	Base
	pooling pooling
}

// MaxPooling3D is [MaxPooling1D] with three axes, for volumes.
//
// Shapes: [batch depth rows columns channels] → [batch depth' rows' columns'
// channels].
type MaxPooling3D struct {
	PoolSize    PerAxis `default:"2"` // size of the windows: 1 number for all axes, or one for each
	Strides     PerAxis // from one window to the next; default: PoolSize
	Padding     string  `default:"valid"`         // or same: added around, the odd one after
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Name, DType string

	Base
	pooling pooling
}

// AveragePooling1D takes the mean of each window of sequences, in each channel,
// of the elements that are not padding.
//
// Shapes: [batch steps channels] → [batch outputs channels], with ⌊(steps-
// PoolSize)/stride⌋+1 outputs for "valid" and ⌈steps/stride⌉ for "same".
type AveragePooling1D struct {
	PoolSize    PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides     PerAxis // from one window to the next; default: PoolSize
	Padding     string  `default:"valid"`         // or same: added around, the odd one after
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels steps]
	Name, DType string

	Base
	pooling pooling
}

// AveragePooling2D is [AveragePooling1D] with two axes, for images.
//
// Shapes: [batch rows columns channels] → [batch rows' columns' channels].
type AveragePooling2D struct {
	PoolSize    PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides     PerAxis // from one window to the next; default: PoolSize
	Padding     string  `default:"valid"`         // or same: added around, the odd one after
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	Base
	pooling pooling
}

// AveragePooling3D is [AveragePooling1D] with three axes, for volumes.
//
// Shapes: [batch depth rows columns channels] → [batch depth' rows' columns'
// channels].
type AveragePooling3D struct {
	PoolSize    PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides     PerAxis // from one window to the next; default: PoolSize
	Padding     string  `default:"valid"`         // or same: added around, the odd one after
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Name, DType string

	Base
	pooling pooling
}

// Config returns the fields Name and DType.
func (l *MaxPooling1D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *MaxPooling1D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 3.
func (l *MaxPooling1D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(1, c.PoolSize, c.Strides, c.Padding, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *MaxPooling1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.slide(x, (*tensor.Tensor).MaxPool)
}

// Config returns the fields Name and DType.
func (l *MaxPooling2D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *MaxPooling2D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 4.
func (l *MaxPooling2D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(2, c.PoolSize, c.Strides, c.Padding, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *MaxPooling2D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.slide(x, (*tensor.Tensor).MaxPool)
}

// Config returns the fields Name and DType.
func (l *MaxPooling3D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *MaxPooling3D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 5.
func (l *MaxPooling3D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(3, c.PoolSize, c.Strides, c.Padding, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *MaxPooling3D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.slide(x, (*tensor.Tensor).MaxPool)
}

// Config returns the fields Name and DType.
func (l *AveragePooling1D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *AveragePooling1D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 3.
func (l *AveragePooling1D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(1, c.PoolSize, c.Strides, c.Padding, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *AveragePooling1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.slide(x, (*tensor.Tensor).AvgPool)
}

// Config returns the fields Name and DType.
func (l *AveragePooling2D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *AveragePooling2D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 4.
func (l *AveragePooling2D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(2, c.PoolSize, c.Strides, c.Padding, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *AveragePooling2D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.slide(x, (*tensor.Tensor).AvgPool)
}

// Config returns the fields Name and DType.
func (l *AveragePooling3D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *AveragePooling3D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 5.
func (l *AveragePooling3D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(3, c.PoolSize, c.Strides, c.Padding, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *AveragePooling3D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.slide(x, (*tensor.Tensor).AvgPool)
}
