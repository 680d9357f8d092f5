package layers

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// globalPooling is the part that layers of pooling over a whole field share.
type globalPooling struct {
	field support.Field
	axes  []int // of the field
}

// check requires n axes between batch and channels.
func (p *globalPooling) check(n int, format string, in []Shape) error {
	if _, err := p.field.Of(format, in, n); err != nil {
		return err
	}
	p.axes = nil
	for i := range n {
		p.axes = append(p.axes, p.field.First()+i)
	}
	return nil
}

// average is the mean of x over the field. Where x has a mask of steps, those
// that it hides do not count, and the mean of none is 0. Masks are on the first
// axes: with channels first there is none of steps.
func (p *globalPooling) average(x *tensor.Tensor, keep bool) *tensor.Tensor {
	support.CheckFloats(x)
	mask := x.Mask()
	switch {
	case mask != nil && mask.Rank() == 2 && x.Rank() == 3 && !p.field.ChannelsFirst:
		mask = mask.ExpandDims(2)
		wide := dtype.Promote(x.DType(), dtype.Float32)
		count := mask.Cast(wide).SumKeep(p.axes...).MaximumScalar(1)
		y := tensor.Where(mask, x.Cast(wide), tensor.Scalar(wide, 0)).SumKeep(p.axes...).Div(count).Cast(x.DType())
		if keep {
			return y
		}
		return y.Squeeze(p.axes[0])
	case keep:
		return x.MeanKeep(p.axes...)
	}
	return x.Mean(p.axes...)
}

// largest is the largest element of x over the field.
func (p *globalPooling) largest(x *tensor.Tensor, keep bool) *tensor.Tensor {
	if keep {
		return x.MaxKeep(p.axes...)
	}
	return x.Max(p.axes...)
}

// GlobalMaxPooling1D takes the largest element over all steps of sequences, in
// each channel.
//
// Shapes: [batch steps channels] → [batch channels], with Keepdims [batch 1
// channels].
type GlobalMaxPooling1D struct {
	DataFormat  string `default:"channels_last"` // or channels_first: [batch channels steps]
	Keepdims    bool   // leave axes of size 1
	Name, DType string

	Base
	pooling globalPooling
}

// GlobalMaxPooling2D is [GlobalMaxPooling1D] over rows and columns.
//
// Shapes: [batch rows columns channels] → [batch channels].
type GlobalMaxPooling2D struct {
	DataFormat  string `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Keepdims    bool   // leave axes of size 1
	Name, DType string

	Base
	pooling globalPooling
}

// GlobalMaxPooling3D is [GlobalMaxPooling1D] over depth, rows and columns.
//
// Shapes: [batch depth rows columns channels] → [batch channels].
type GlobalMaxPooling3D struct {
	DataFormat  string `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Keepdims    bool   // leave axes of size 1
	Name, DType string

	Base
	pooling globalPooling
}

// GlobalAveragePooling1D takes the mean over all steps of sequences, in each
// channel. Steps that the mask of the input hides do not count (channels_last);
// the mean of none is 0.
//
// Shapes: [batch steps channels] → [batch channels], with Keepdims [batch 1
// channels].
type GlobalAveragePooling1D struct {
	DataFormat  string `default:"channels_last"` // or channels_first: [batch channels steps]
	Keepdims    bool   // leave axes of size 1
	Name, DType string

	Base
	pooling globalPooling
}

// GlobalAveragePooling2D is [GlobalAveragePooling1D] over rows and columns,
// without masks.
//
// Shapes: [batch rows columns channels] → [batch channels].
type GlobalAveragePooling2D struct {
	DataFormat  string `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Keepdims    bool   // leave axes of size 1
	Name, DType string

	Base
	pooling globalPooling
}

// GlobalAveragePooling3D is [GlobalAveragePooling1D] over depth, rows and
// columns, without masks.
//
// Shapes: [batch depth rows columns channels] → [batch channels].
type GlobalAveragePooling3D struct {
	DataFormat  string `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Keepdims    bool   // leave axes of size 1
	Name, DType string

	Base
	pooling globalPooling
}

// Config returns the fields Name and DType.
func (l *GlobalMaxPooling1D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *GlobalMaxPooling1D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 3.
func (l *GlobalMaxPooling1D) CheckInput(in ...Shape) error {
	return l.pooling.check(1, Defaults(*l).DataFormat, in)
}

// Call computes the layer on x.
func (l *GlobalMaxPooling1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.largest(x, l.Keepdims)
}

// Config returns the fields Name and DType.
func (l *GlobalMaxPooling2D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *GlobalMaxPooling2D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 4.
func (l *GlobalMaxPooling2D) CheckInput(in ...Shape) error {
	return l.pooling.check(2, Defaults(*l).DataFormat, in)
}

// Call computes the layer on x.
func (l *GlobalMaxPooling2D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.largest(x, l.Keepdims)
}

// Config returns the fields Name and DType.
func (l *GlobalMaxPooling3D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *GlobalMaxPooling3D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 5.
func (l *GlobalMaxPooling3D) CheckInput(in ...Shape) error {
	return l.pooling.check(3, Defaults(*l).DataFormat, in)
}

// Call computes the layer on x.
func (l *GlobalMaxPooling3D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.largest(x, l.Keepdims)
}

// Config returns the fields Name and DType.
func (l *GlobalAveragePooling1D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *GlobalAveragePooling1D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 3.
func (l *GlobalAveragePooling1D) CheckInput(in ...Shape) error {
	return l.pooling.check(1, Defaults(*l).DataFormat, in)
}

// Call computes the layer on x.
func (l *GlobalAveragePooling1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.average(x, l.Keepdims)
}

// Config returns the fields Name and DType.
func (l *GlobalAveragePooling2D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *GlobalAveragePooling2D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 4.
func (l *GlobalAveragePooling2D) CheckInput(in ...Shape) error {
	return l.pooling.check(2, Defaults(*l).DataFormat, in)
}

// Call computes the layer on x.
func (l *GlobalAveragePooling2D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.average(x, l.Keepdims)
}

// Config returns the fields Name and DType.
func (l *GlobalAveragePooling3D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *GlobalAveragePooling3D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 5.
func (l *GlobalAveragePooling3D) CheckInput(in ...Shape) error {
	return l.pooling.check(3, Defaults(*l).DataFormat, in)
}

// Call computes the layer on x.
func (l *GlobalAveragePooling3D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.pooling.average(x, l.Keepdims)
}
