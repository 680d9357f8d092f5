package layers

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// adaptivePooling is the part that layers of pooling to a given size share.
type adaptivePooling struct {
	field support.Field
	sizes []int // of the output
}

// check reads the fields of a layer on n spatial axes and requires an input with sizes.
func (p *adaptivePooling) check(n int, size PerAxis, format string, in []Shape) (err error) {
	if p.sizes, err = support.EachAxis(size, "OutputSize", n, 1); err != nil {
		return err
	}
	s, err := p.field.Of(format, in, n)
	for i := range n {
		if err == nil {
			_, err = support.KnownAxis(s, p.field.First()+i)
		}
	}
	return err
}

// pool reduces each window of x, one axis after the other: windows are
// products of ranges, and so a mean is one of means and a maximum one of
// maxima. Range i of o over n elements is from ⌊i·n/o⌋ to ⌈(i+1)·n/o⌉.
func (p *adaptivePooling) pool(x *tensor.Tensor, reduce func(x *tensor.Tensor, axes ...int) *tensor.Tensor) *tensor.Tensor {
	d := x.DType()
	x = x.Cast(dtype.Promote(d, dtype.Float32)) // rounded once
	for i, o := range p.sizes {
		axis := p.field.First() + i
		n := x.Dim(axis)
		if n%o == 0 { // ranges of one size
			shape := slices.Insert(x.Shape().Clone(), axis+1, n/o)
			shape[axis] = o
			x = reduce(x.Reshape(shape...), axis+1)
			continue
		}
		if err := wantRecorded("OutputSize", o); err != nil {
			tensor.Fail("Call", "%w", err)
		}
		parts := make([]*tensor.Tensor, o)
		for j := range parts {
			parts[j] = reduce(x.Slice(axis, j*n/o, ((j+1)*n+o-1)/o), axis).ExpandDims(axis)
		}
		x = tensor.Concat(axis, parts...)
	}
	return x.Cast(d)
}

// AdaptiveMaxPooling1D takes the largest element of each of OutputSize windows
// of sequences that cover all steps, in each channel. Windows overlap where the
// steps are no multiple of OutputSize.
//
// Shapes: [batch steps channels] → [batch OutputSize channels].
type AdaptiveMaxPooling1D struct {
	OutputSize  PerAxis // 1 number for all axes, or one for each; required
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels steps]
	Name, DType string

	Base
	pooling adaptivePooling
}

// AdaptiveMaxPooling2D is [AdaptiveMaxPooling1D] with two axes, for images.
//
// Shapes: [batch rows columns channels] → [batch OutputSize… channels].
type AdaptiveMaxPooling2D struct {
	OutputSize  PerAxis // 1 number for all axes, or one for each; required
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	Base
	pooling adaptivePooling
}

// AdaptiveMaxPooling3D is [AdaptiveMaxPooling1D] with three axes, for volumes.
//
// Shapes: [batch depth rows columns channels] → [batch OutputSize… channels].
type AdaptiveMaxPooling3D struct {
	OutputSize  PerAxis // 1 number for all axes, or one for each; required
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Name, DType string

	Base
	pooling adaptivePooling
}

// AdaptiveAveragePooling1D takes the mean of each of OutputSize windows of
// sequences that cover all steps, in each channel. Windows overlap where the
// steps are no multiple of OutputSize.
//
// Shapes: [batch steps channels] → [batch OutputSize channels].
type AdaptiveAveragePooling1D struct {
	OutputSize  PerAxis // 1 number for all axes, or one for each; required
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels steps]
	Name, DType string

	Base
	pooling adaptivePooling
}

// AdaptiveAveragePooling2D is [AdaptiveAveragePooling1D] with two axes, for
// images.
//
// Shapes: [batch rows columns channels] → [batch OutputSize… channels].
type AdaptiveAveragePooling2D struct {
	OutputSize  PerAxis // 1 number for all axes, or one for each; required
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	Base
	pooling adaptivePooling
}

// AdaptiveAveragePooling3D is [AdaptiveAveragePooling1D] with three axes, for
// volumes.
//
// Shapes: [batch depth rows columns channels] → [batch OutputSize… channels].
type AdaptiveAveragePooling3D struct {
	OutputSize  PerAxis // 1 number for all axes, or one for each; required
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Name, DType string

	Base
	pooling adaptivePooling
}

// Config returns the fields Name and DType.
func (l *AdaptiveMaxPooling1D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *AdaptiveMaxPooling1D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 3 and known sizes.
func (l *AdaptiveMaxPooling1D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(1, c.OutputSize, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *AdaptiveMaxPooling1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.pool(x, (*tensor.Tensor).Max)
}

// Config returns the fields Name and DType.
func (l *AdaptiveMaxPooling2D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *AdaptiveMaxPooling2D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 4 and known sizes.
func (l *AdaptiveMaxPooling2D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(2, c.OutputSize, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *AdaptiveMaxPooling2D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.pool(x, (*tensor.Tensor).Max)
}

// Config returns the fields Name and DType.
func (l *AdaptiveMaxPooling3D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *AdaptiveMaxPooling3D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 5 and known sizes.
func (l *AdaptiveMaxPooling3D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(3, c.OutputSize, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *AdaptiveMaxPooling3D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.pool(x, (*tensor.Tensor).Max)
}

// Config returns the fields Name and DType.
func (l *AdaptiveAveragePooling1D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *AdaptiveAveragePooling1D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 3 and known sizes.
func (l *AdaptiveAveragePooling1D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(1, c.OutputSize, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *AdaptiveAveragePooling1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.pool(x, (*tensor.Tensor).Mean)
}

// Config returns the fields Name and DType.
func (l *AdaptiveAveragePooling2D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *AdaptiveAveragePooling2D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 4 and known sizes.
func (l *AdaptiveAveragePooling2D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(2, c.OutputSize, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *AdaptiveAveragePooling2D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.pool(x, (*tensor.Tensor).Mean)
}

// Config returns the fields Name and DType.
func (l *AdaptiveAveragePooling3D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *AdaptiveAveragePooling3D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 5 and known sizes.
func (l *AdaptiveAveragePooling3D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	return l.pooling.check(3, c.OutputSize, c.DataFormat, in)
}

// Call computes the layer on x.
func (l *AdaptiveAveragePooling3D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.pool(x, (*tensor.Tensor).Mean)
}
