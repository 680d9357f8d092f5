package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// UpSampling1D repeats each step of sequences.
//
// Shapes: [batch steps channels] → [batch steps·Size channels].
type UpSampling1D struct {
	Size        *int `default:"2"` // how often
	Name, DType string

	Base
}

// Config returns the fields Name and DType.
func (u *UpSampling1D) Config() Config { return Config{u.Name, u.DType} }

// Build checks the fields.
func (u *UpSampling1D) Build(in ...Shape) error {
	if n := *Defaults(*u).Size; n < 1 {
		return fmt.Errorf("Size is %d, want a positive number", n)
	}
	return u.CheckInput(in...)
}

// CheckInput requires rank 3.
func (u *UpSampling1D) CheckInput(in ...Shape) error {
	_, err := new(support.Field).Of("channels_last", in, 1)
	return err
}

// Call computes the layer on x.
func (u *UpSampling1D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return repeat(x, []int{1, *Defaults(*u).Size, 1})
}

// UpSampling2D makes images larger by whole factors.
//
// Shapes: [batch rows columns channels] → [batch rows·Size[0] columns·Size[1] channels].
type UpSampling2D struct {
	Size          PerAxis `default:"2"`             // factors: 1 number for both axes, or 2
	Interpolation string  `default:"nearest"`       // or bilinear, bicubic, lanczos3, lanczos5: between the centres of pixels
	DataFormat    string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	Base
	field   support.Field
	factors []int
	smooth  bool // Interpolation is not nearest
}

// Config returns the fields Name and DType.
func (u *UpSampling2D) Config() Config { return Config{u.Name, u.DType} }

// Build checks the fields.
func (u *UpSampling2D) Build(in ...Shape) error {
	c := Defaults(*u)
	switch c.Interpolation {
	case "nearest", "bilinear", "bicubic", "lanczos3", "lanczos5":
		u.smooth = c.Interpolation != "nearest"
	default:
		return fmt.Errorf("Interpolation is %q, want nearest, bilinear, bicubic, lanczos3 or lanczos5", c.Interpolation)
	}
	return u.CheckInput(in...)
}

// CheckInput requires rank 4.
func (u *UpSampling2D) CheckInput(in ...Shape) error {
	c := Defaults(*u)
	s, err := u.field.Of(c.DataFormat, in, 2)
	if err != nil {
		return err
	}
	factors, err := support.EachAxis(c.Size, "Size", 2, 1)
	if err != nil {
		return err
	}
	u.factors = u.field.Place(factors, 1)
	for i, f := range u.factors {
		if u.smooth && f > 1 {
			if _, err := support.SizedAxis(s, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// Call computes the layer on x.
func (u *UpSampling2D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	if !u.smooth {
		return repeat(x, u.factors)
	}
	// In float32: weights such as ⅓ are not exact in 16 bits.
	y := x.Cast(x.DType().Accumulator())
	for axis, f := range u.factors {
		if f > 1 {
			n := y.Dim(axis)
			w, err := support.ResampleTable(u.Interpolation, false, n, n*f)
			if err != nil {
				tensor.Fail("Call", "%w", err)
			}
			y = support.Resampled(y, axis, w)
		}
	}
	return y.Cast(x.DType())
}

// UpSampling3D repeats planes, rows and columns of volumes.
//
// Shapes: [batch depth rows columns channels] → [batch depth·Size[0]
// rows·Size[1] columns·Size[2] channels].
type UpSampling3D struct {
	Size        PerAxis `default:"2"`             // how often: 1 number for all axes, or 3
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Name, DType string

	Base
	field   support.Field
	factors []int
}

// Config returns the fields Name and DType.
func (u *UpSampling3D) Config() Config { return Config{u.Name, u.DType} }

// Build checks the fields.
func (u *UpSampling3D) Build(in ...Shape) error { return u.CheckInput(in...) }

// CheckInput requires rank 5.
func (u *UpSampling3D) CheckInput(in ...Shape) error {
	c := Defaults(*u)
	if _, err := u.field.Of(c.DataFormat, in, 3); err != nil {
		return err
	}
	factors, err := support.EachAxis(c.Size, "Size", 3, 1)
	u.factors = u.field.Place(factors, 1)
	return err
}

// Call computes the layer on x.
func (u *UpSampling3D) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return repeat(x, u.factors) }

// repeat repeats each element along each axis, by an axis more after each.
func repeat(x *tensor.Tensor, factors []int) *tensor.Tensor {
	var ones, more, folded Shape
	for i, f := range factors {
		n := x.Dim(i)
		ones, more = append(ones, n), append(more, n)
		if f > 1 {
			ones, more = append(ones, 1), append(more, f)
		}
		if n != tensor.Unknown {
			n *= f
		}
		folded = append(folded, n)
	}
	return x.Reshape(ones...).BroadcastTo(more...).Reshape(folded...)
}
