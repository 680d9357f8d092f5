package preprocessing

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// RandomContrast multiplies the differences of pixels from the mean of their
// channel and image by a number from 1-Factor[0] to 1+Factor[1], and limits
// the result to ValueRange.
//
// Shapes: [batch rows columns channels] → the same.
type RandomContrast struct {
	Factor      Factor    // required; from 0 to 1; 1 number f: 1 to 1+f
	ValueRange  []float64 `default:"[0, 255]"`
	Seed        *int64    // default: derived from the model's seed and the layer's path
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	layers.Base
	image randomImage
	span  span
}

// Config returns the fields Name and DType.
func (r *RandomContrast) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomContrast) Build(in ...layers.Shape) error {
	return r.image.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomContrast) check(in []layers.Shape) error {
	if err := r.span.of(r.Factor, 0, 1, layers.Defaults(*r).ValueRange); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput requires rank 4.
func (r *RandomContrast) CheckInput(in ...layers.Shape) error {
	_, err := r.image.field.Of(layers.Defaults(*r).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomContrast) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, r.transform)
}

func (r *RandomContrast) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	wide := x.Cast(x.DType().Accumulator())
	first := r.image.field.First()
	mean := wide.MeanKeep(first, first+1)
	factor := d.each(1-r.span.from, 1+r.span.to).CastLike(wide)
	between := layers.Defaults(*r).ValueRange
	return wide.Sub(mean).Mul(factor).Add(mean).Clip(between[0], between[1]).Cast(x.DType())
}

// RandomBrightness adds a number from Factor, times the width of ValueRange,
// to all pixels of an image, and limits the result to ValueRange.
//
// Shapes: [batch rows columns channels] → the same.
type RandomBrightness struct {
	Factor      Factor    // required; from -1 to 1
	ValueRange  []float64 `default:"[0, 255]"`
	Seed        *int64    // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	image randomImage
	span  span
}

// Config returns the fields Name and DType.
func (r *RandomBrightness) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomBrightness) Build(in ...layers.Shape) error {
	return r.image.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomBrightness) check(in []layers.Shape) error {
	if err := r.span.of(r.Factor, -1, 1, layers.Defaults(*r).ValueRange); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput requires rank 4.
func (r *RandomBrightness) CheckInput(in ...layers.Shape) error {
	_, err := r.image.field.Of("channels_last", in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomBrightness) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, r.transform)
}

func (r *RandomBrightness) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	between := layers.Defaults(*r).ValueRange
	width := between[1] - between[0]
	wide := x.Cast(x.DType().Accumulator())
	more := d.each(r.span.from*width, r.span.to*width).CastLike(wide)
	return wide.Add(more).Clip(between[0], between[1]).Cast(x.DType())
}

// pair wants two numbers in order.
func pair(field string, v []float64) error {
	if len(v) != 2 || !(v[0] < v[1]) {
		return fmt.Errorf("%s is %v, want 2 numbers in order", field, v)
	}
	return nil
}
