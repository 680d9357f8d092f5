package preprocessing

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
	"github.com/mezzo-ml/mezzo/layers/resample"
)

// imageSize is the size that a layer gives images.
type imageSize struct {
	field    support.Field
	from, to [2]int // rows and columns
}

// of reads the fields of a layer, for images of known size.
func (s *imageSize) of(format string, height, width int, in []layers.Shape) error {
	if err := support.Positive("Height", height); err != nil {
		return err
	}
	if err := support.Positive("Width", width); err != nil {
		return err
	}
	shape, err := s.field.Of(format, in, 2)
	if err != nil {
		return err
	}
	s.to = [2]int{height, width}
	for i := range s.from {
		if s.from[i], err = support.SizedAxis(shape, s.field.First()+i); err != nil {
			return err
		}
	}
	return nil
}

// resize makes images of a size by interpolation, in float32 for 16 bits.
func (s *imageSize) resize(x *tensor.Tensor, how string, antialias bool) *tensor.Tensor {
	d := x.DType()
	x = x.Cast(d.Accumulator())
	for i, to := range s.to {
		axis := s.field.First() + i
		if from := x.Dim(axis); from != to {
			w, err := support.ResampleTable(how, antialias, from, to)
			if err != nil {
				tensor.Fail("Call", "%w", err)
			}
			x = support.Resampled(x, axis, w)
		}
	}
	return x.Cast(d)
}

// cut leaves a window of images.
func (s *imageSize) cut(x *tensor.Tensor, start, size [2]int) *tensor.Tensor {
	for i := range size {
		x = x.Slice(s.field.First()+i, start[i], start[i]+size[i])
	}
	return x
}

// cropped resizes the largest window of the right shape.
func (s *imageSize) cropped(x *tensor.Tensor, how string, antialias bool) *tensor.Tensor {
	window, start := resample.Fit(s.from, s.to, false)
	return s.resize(s.cut(x, start, window), how, antialias)
}

// Resizing makes images of one size, which must be known when the layer is
// called. Integers become floats of the compute type. It computes in float32
// at least and rounds once.
//
// Shapes: [batch rows columns channels] → [batch Height Width channels].
type Resizing struct {
	Height, Width     int     // required
	Interpolation     string  `default:"bilinear"` // or nearest, bicubic, area, lanczos3, lanczos5
	CropToAspectRatio bool    // cut off first what does not fit the shape
	PadToAspectRatio  bool    // fill up first what is missing of the shape
	FillMode          string  `default:"constant"` // the only one
	FillValue         float64 // of what PadToAspectRatio adds
	Antialias         bool    // whether every pixel counts where images become smaller
	DataFormat        string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType       string

	layers.Base
	size imageSize
}

// Config returns the fields Name and DType.
func (r *Resizing) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build checks the fields.
func (r *Resizing) Build(in ...layers.Shape) error {
	c := layers.Defaults(*r)
	switch {
	case c.CropToAspectRatio && c.PadToAspectRatio:
		return fmt.Errorf("CropToAspectRatio and PadToAspectRatio are set, want one at most")
	case c.FillMode != "constant":
		return fmt.Errorf("FillMode is %q, want constant", c.FillMode)
	}
	if _, err := resample.Weights(c.Interpolation, false, 1, 1); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput requires rank 4 and at least one pixel.
func (r *Resizing) CheckInput(in ...layers.Shape) error {
	return r.size.of(layers.Defaults(*r).DataFormat, r.Height, r.Width, in)
}

// Call computes the layer on x.
func (r *Resizing) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	c := layers.Defaults(*r)
	if x.DType() != r.ComputeDType() {
		x = x.Cast(r.ComputeDType()) // integers
	}
	switch {
	case c.CropToAspectRatio:
		return r.size.cropped(x, c.Interpolation, c.Antialias)
	case c.PadToAspectRatio:
		_, start := resample.Fit(r.size.from, r.size.to, true)
		// As in Keras: as much after the image as before it.
		margin := r.size.field.Place(start[:], 0)
		x = x.Pad(margin, margin, c.FillValue)
	}
	return r.size.resize(x, c.Interpolation, c.Antialias)
}

// CenterCrop crops images to their center. For an image that is too small it
// resizes the largest window with the right aspect ratio. Integers become
// floats of the compute type.
//
// Shapes: [batch rows columns channels] → [batch Height Width channels].
type CenterCrop struct {
	Height, Width int    // required
	DataFormat    string `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	layers.Base
	size imageSize
}

// Config returns the fields Name and DType.
func (c *CenterCrop) Config() layers.Config { return layers.Config{Name: c.Name, DType: c.DType} }

// Build checks the fields.
func (c *CenterCrop) Build(in ...layers.Shape) error { return c.CheckInput(in...) }

// CheckInput requires rank 4 and at least one pixel.
func (c *CenterCrop) CheckInput(in ...layers.Shape) error {
	return c.size.of(layers.Defaults(*c).DataFormat, c.Height, c.Width, in)
}

// Call computes the layer on x.
func (c *CenterCrop) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	if x.DType() != c.ComputeDType() {
		x = x.Cast(c.ComputeDType())
	}
	s := &c.size
	if s.from[0] < s.to[0] || s.from[1] < s.to[1] {
		return s.cropped(x, "bilinear", false)
	}
	return s.cut(x, [2]int{(s.from[0] - s.to[0]) / 2, (s.from[1] - s.to[1]) / 2}, s.to)
}
