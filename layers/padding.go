package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// edges is how much is added or cut off at both ends of each axis.
type edges struct {
	field         support.Field
	before, after []int
}

// of reads the fields of a layer on n axes, for inputs of shapes in.
func (e *edges) of(name string, p PerAxis, format string, in []Shape, n int) (Shape, error) {
	s, err := e.field.Of(format, in, n)
	if err != nil {
		return nil, err
	}
	before, after, err := p.margins(name, n)
	if err != nil {
		return nil, err
	}
	e.before, e.after = e.field.Place(before, 0), e.field.Place(after, 0)
	return s, nil
}

// leave checks that cropping leaves something of inputs of shape s.
func (e *edges) leave(s Shape) error {
	for i, d := range s {
		if d != tensor.Unknown && d <= e.before[i]+e.after[i] {
			return fmt.Errorf("Cropping takes %d from axis %d of input %v, want something left", e.before[i]+e.after[i], i, s)
		}
	}
	return nil
}

func (e *edges) pad(x *tensor.Tensor) *tensor.Tensor {
	if x.Symbolic() {
		return e.resized(x, 1)
	}
	return x.Pad(e.before, e.after, 0)
}

// resized is x, which has no elements yet, with sign times the edges added to its axes.
// Axes without a size, such as the steps of sequences, keep none.
func (e *edges) resized(x *tensor.Tensor, sign int) *tensor.Tensor {
	s := x.Shape().Clone()
	for i, n := range s {
		if n != tensor.Unknown {
			s[i] += sign * (e.before[i] + e.after[i])
		}
	}
	return tensor.Placeholder(x.DType(), s...)
}

func (e *edges) crop(x *tensor.Tensor) *tensor.Tensor {
	if x.Symbolic() {
		return e.resized(x, -1)
	}
	for i, n := range x.Shape() {
		if e.before[i]+e.after[i] > 0 {
			x = x.Slice(i, e.before[i], n-e.after[i])
		}
	}
	return x
}

// ZeroPadding1D adds steps of sequences, of zeros, at the edges.
//
// Shapes: [batch steps channels] → the same with other steps.
type ZeroPadding1D struct {
	Padding     PerAxis `default:"1"` // 1 number for both ends, or 2 (start, end)
	Name, DType string

	Base
	edges edges
}

// Config returns the fields Name and DType.
func (l *ZeroPadding1D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *ZeroPadding1D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 3.
func (l *ZeroPadding1D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	_, err := l.edges.of("Padding", c.Padding, "channels_last", in, 1)
	return err
}

// Call computes the layer on x.
func (l *ZeroPadding1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return l.edges.pad(x) }

// ZeroPadding2D adds rows and columns of images, of zeros, at the edges.
//
// Shapes: [batch rows columns channels] → the same with other rows, columns.
type ZeroPadding2D struct {
	Padding     PerAxis `default:"1"`             // 1 number for all sides, 2 (top and bottom, left and right), or 4 (top, bottom, left, right)
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	Base
	edges edges
}

// Config returns the fields Name and DType.
func (l *ZeroPadding2D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *ZeroPadding2D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 4.
func (l *ZeroPadding2D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	_, err := l.edges.of("Padding", c.Padding, c.DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (l *ZeroPadding2D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return l.edges.pad(x) }

// ZeroPadding3D adds planes, rows and columns of volumes, of zeros, at the edges.
//
// Shapes: [batch depth rows columns channels] → the same with other depth, rows, columns.
type ZeroPadding3D struct {
	Padding     PerAxis `default:"1"`             // 1 number for all sides, 3 (one per axis), or 6 (start and end of each axis)
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Name, DType string

	Base
	edges edges
}

// Config returns the fields Name and DType.
func (l *ZeroPadding3D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *ZeroPadding3D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 5.
func (l *ZeroPadding3D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	_, err := l.edges.of("Padding", c.Padding, c.DataFormat, in, 3)
	return err
}

// Call computes the layer on x.
func (l *ZeroPadding3D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return l.edges.pad(x) }

// Cropping1D cuts steps of sequences off at the edges.
//
// Shapes: [batch steps channels] → the same with other steps.
type Cropping1D struct {
	Cropping    PerAxis `default:"1"` // 1 number for both ends, or 2 (start, end)
	Name, DType string

	Base
	edges edges
}

// Config returns the fields Name and DType.
func (l *Cropping1D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *Cropping1D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 3 and axes longer than the cropping.
func (l *Cropping1D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	s, err := l.edges.of("Cropping", c.Cropping, "channels_last", in, 1)
	if err != nil {
		return err
	}
	return l.edges.leave(s)
}

// Call computes the layer on x.
func (l *Cropping1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return l.edges.crop(x) }

// Cropping2D cuts rows and columns of images off at the edges.
//
// Shapes: [batch rows columns channels] → the same with other rows, columns.
type Cropping2D struct {
	Cropping    PerAxis `default:"0"`             // 1 number for all sides, 2 (top and bottom, left and right), or 4 (top, bottom, left, right)
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	Base
	edges edges
}

// Config returns the fields Name and DType.
func (l *Cropping2D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *Cropping2D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 4 and axes longer than the cropping.
func (l *Cropping2D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	s, err := l.edges.of("Cropping", c.Cropping, c.DataFormat, in, 2)
	if err != nil {
		return err
	}
	return l.edges.leave(s)
}

// Call computes the layer on x.
func (l *Cropping2D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return l.edges.crop(x) }

// Cropping3D cuts planes, rows and columns of volumes off at the edges.
//
// Shapes: [batch depth rows columns channels] → the same with other depth, rows, columns.
type Cropping3D struct {
	Cropping    PerAxis `default:"1"`             // 1 number for all sides, 3 (one per axis), or 6 (start and end of each axis)
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Name, DType string

	Base
	edges edges
}

// Config returns the fields Name and DType.
func (l *Cropping3D) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *Cropping3D) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires rank 5 and axes longer than the cropping.
func (l *Cropping3D) CheckInput(in ...Shape) error {
	c := Defaults(*l)
	s, err := l.edges.of("Cropping", c.Cropping, c.DataFormat, in, 3)
	if err != nil {
		return err
	}
	return l.edges.leave(s)
}

// Call computes the layer on x.
func (l *Cropping3D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return l.edges.crop(x) }
