package preprocessing

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// RandomInvert inverts images, each with a probability drawn from Factor: x
// becomes ValueRange[1] - x.
//
// Shapes: [batch rows columns channels] → the same.
type RandomInvert struct {
	Factor      Factor    `default:"1"` // from 0 to 1; 1 number f: 0 to f
	ValueRange  []float64 `default:"[0, 255]"`
	Seed        *int64    // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	image randomImage
	span  span
}

// Config returns the fields Name and DType.
func (r *RandomInvert) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomInvert) Build(in ...layers.Shape) error {
	c := layers.Defaults(*r)
	if err := r.span.of(c.Factor, 0, 1, c.ValueRange); err != nil {
		return err
	}
	return r.image.seeded(&r.Base, r.Seed, r.CheckInput(in...))
}

// CheckInput requires rank 4.
func (r *RandomInvert) CheckInput(in ...layers.Shape) error {
	_, err := r.image.field.Of("channels_last", in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomInvert) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		wide := x.Cast(x.DType().Accumulator())
		return tensor.Where(d.chance(r.span.from, r.span.to), wide.Neg().AddScalar(layers.Defaults(*r).ValueRange[1]).Cast(x.DType()), x)
	})
}

// RandomGrayscale removes the color of images, each with probability Factor:
// all three channels become the luminance.
//
// Shapes: [batch rows columns 3] → the same.
type RandomGrayscale struct {
	Factor      *float64 `default:"0.5"`           // from 0 to 1
	DataFormat  string   `default:"channels_last"` // or channels_first: [batch 3 rows columns]
	Seed        *int64   // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	image randomImage
}

// Config returns the fields Name and DType.
func (r *RandomGrayscale) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomGrayscale) Build(in ...layers.Shape) error {
	if f := *layers.Defaults(*r).Factor; !(f >= 0 && f <= 1) {
		return fmt.Errorf("Factor is %v, want a number from 0 to 1", f)
	}
	return r.image.seeded(&r.Base, r.Seed, r.CheckInput(in...))
}

// CheckInput requires rank 4 and three channels.
func (r *RandomGrayscale) CheckInput(in ...layers.Shape) error {
	return r.image.colors(layers.Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomGrayscale) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		gray := r.image.luminance(x.Cast(x.DType().Accumulator())).Cast(x.DType())
		fade := d.each(0, 1).Less(tensor.Scalar(dtype.Float32, *layers.Defaults(*r).Factor))
		return tensor.Where(fade, gray, x)
	})
}

// RandomColorDegeneration mixes images with their luminance: y = x +
// f·(luminance - x), where f is drawn from Factor, limited to ValueRange. 1
// removes all color; negative factors increase it.
//
// Shapes: [batch rows columns channels] → the same, with 1 or 3 channels.
type RandomColorDegeneration struct {
	Factor      Factor    // required; from -1 to 1
	ValueRange  []float64 `default:"[0, 255]"`
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Seed        *int64    // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	image randomImage
	span  span
}

// Config returns the fields Name and DType.
func (r *RandomColorDegeneration) Config() layers.Config {
	return layers.Config{Name: r.Name, DType: r.DType}
}

// Build makes the state of the random numbers.
func (r *RandomColorDegeneration) Build(in ...layers.Shape) error {
	return r.image.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomColorDegeneration) check(in []layers.Shape) error {
	if err := r.span.of(r.Factor, -1, 1, layers.Defaults(*r).ValueRange); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput requires rank 4 and one or three channels.
func (r *RandomColorDegeneration) CheckInput(in ...layers.Shape) error {
	return r.image.colors(layers.Defaults(*r).DataFormat, in, 1)
}

// Call computes the layer on x.
func (r *RandomColorDegeneration) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, r.transform)
}

func (r *RandomColorDegeneration) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	wide := x.Cast(x.DType().Accumulator())
	by := d.each(r.span.from, r.span.to).CastLike(wide)
	between := layers.Defaults(*r).ValueRange
	return wide.Add(by.Mul(r.image.luminance(wide).Sub(wide))).Clip(between[0], between[1]).Cast(x.DType())
}

// RandomSaturation multiplies the saturation of images by f/(1-f), where f is
// drawn from Factor: ½ changes nothing, 0 and less remove all color, and
// numbers close to 1 leave only fully saturated colors. As in Keras the
// product is limited to ValueRange, so with the range 0 to 255 saturations
// above 1 are possible and make channels negative.
//
// Shapes: [batch rows columns 3] → the same.
type RandomSaturation struct {
	Factor      Factor    // required; from -1 to 1
	ValueRange  []float64 `default:"[0, 255]"`
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch 3 rows columns]
	Seed        *int64    // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	image randomImage
	span  span
}

// Config returns the fields Name and DType.
func (r *RandomSaturation) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomSaturation) Build(in ...layers.Shape) error {
	return r.image.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomSaturation) check(in []layers.Shape) error {
	if err := r.span.of(r.Factor, -1, 1, layers.Defaults(*r).ValueRange); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput requires rank 4 and three channels.
func (r *RandomSaturation) CheckInput(in ...layers.Shape) error {
	return r.image.colors(layers.Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomSaturation) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, r.transform)
}

func (r *RandomSaturation) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	f := d.each(r.span.from, r.span.to)
	by := f.Div(f.Neg().AddScalar(1 + 1e-7)) // Keras's epsilon, for 1
	axis, wide := r.image.channels(), x.Cast(x.DType().Accumulator())
	c := toHSV(wide, axis)
	between := layers.Defaults(*r).ValueRange
	c.s = c.s.Mul(by.CastLike(wide)).Clip(between[0], between[1])
	return c.rgb(axis).Cast(x.DType())
}

// RandomHue rotates the hue of images by f/2 of the circle, in either
// direction, where f is drawn from Factor: 1 gives the complementary color.
//
// Shapes: [batch rows columns 3] → the same.
type RandomHue struct {
	Factor      Factor    // required; from 0 to 1; 1 number f: 0 to f
	ValueRange  []float64 `default:"[0, 255]"`
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch 3 rows columns]
	Seed        *int64    // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	image randomImage
	span  span
}

// Config returns the fields Name and DType.
func (r *RandomHue) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomHue) Build(in ...layers.Shape) error {
	return r.image.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomHue) check(in []layers.Shape) error {
	if err := r.span.of(r.Factor, 0, 1, layers.Defaults(*r).ValueRange); err != nil {
		return err
	}
	return r.CheckInput(in...)
}

// CheckInput requires rank 4 and three channels.
func (r *RandomHue) CheckInput(in ...layers.Shape) error {
	return r.image.colors(layers.Defaults(*r).DataFormat, in)
}

// Call computes the layer on x.
func (r *RandomHue) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, r.transform)
}

func (r *RandomHue) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	sign := d.sign()
	return r.turn(x, d.each(r.span.from, r.span.to).Mul(sign).MulScalar(0.5))
}

// turn adds to the hue, from -½ to ½.
func (r *RandomHue) turn(x, by *tensor.Tensor) *tensor.Tensor {
	axis, wide := r.image.channels(), x.Cast(x.DType().Accumulator())
	between, unit := layers.Defaults(*r).ValueRange, []float64{0, 1}
	c := toHSV(ranged(wide, between, unit), axis)
	c.h = c.h.Add(by.CastLike(wide))
	c.h = tensor.Where(c.h.GreaterScalar(1), c.h.AddScalar(-1), c.h)
	c.h = tensor.Where(c.h.LessScalar(0), c.h.AddScalar(1), c.h)
	return ranged(c.rgb(axis).Clip(0, 1), unit, between).Cast(x.DType())
}

// RandomColorJitter is [RandomBrightness], [RandomContrast], [RandomSaturation]
// and [RandomHue], one after the other: those that have a factor.
//
// Shapes: [batch rows columns channels] → the same; with SaturationFactor or
// HueFactor there are 3 channels.
type RandomColorJitter struct {
	ValueRange       []float64 `default:"[0, 255]"`
	BrightnessFactor Factor    // from -1 to 1; default: no change
	ContrastFactor   Factor    // from 0 to 1; default: no change
	SaturationFactor Factor    // from -1 to 1; default: no change
	HueFactor        Factor    // from 0 to 1; default: no change
	Seed             *int64    // default: derived from the model's seed and the layer's path
	DataFormat       string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType      string

	layers.Base
	image randomImage
	parts []augmentation
}

// Config returns the fields Name and DType.
func (r *RandomColorJitter) Config() layers.Config {
	return layers.Config{Name: r.Name, DType: r.DType}
}

// Build makes the state of the random numbers.
func (r *RandomColorJitter) Build(in ...layers.Shape) error {
	c := layers.Defaults(*r)
	if err := pair("ValueRange", c.ValueRange); err != nil {
		return err
	}
	r.parts = nil
	for _, part := range []struct {
		field  string
		factor Factor
		layer  augmentation
	}{
		{"BrightnessFactor", c.BrightnessFactor, &RandomBrightness{Factor: c.BrightnessFactor, ValueRange: c.ValueRange}},
		{"ContrastFactor", c.ContrastFactor, &RandomContrast{Factor: c.ContrastFactor, ValueRange: c.ValueRange, DataFormat: c.DataFormat}},
		{"SaturationFactor", c.SaturationFactor, &RandomSaturation{Factor: c.SaturationFactor, ValueRange: c.ValueRange, DataFormat: c.DataFormat}},
		{"HueFactor", c.HueFactor, &RandomHue{Factor: c.HueFactor, ValueRange: c.ValueRange, DataFormat: c.DataFormat}},
	} {
		if part.factor == nil {
			continue
		}
		if err := part.layer.check(in); err != nil {
			return fmt.Errorf("%s: %w", part.field, err)
		}
		r.parts = append(r.parts, part.layer)
	}
	return r.image.seeded(&r.Base, r.Seed, r.CheckInput(in...))
}

// CheckInput requires rank 4 and three channels where saturation or hue
// change.
func (r *RandomColorJitter) CheckInput(in ...layers.Shape) error {
	if r.SaturationFactor != nil || r.HueFactor != nil {
		return r.image.colors(layers.Defaults(*r).DataFormat, in)
	}
	_, err := r.image.field.Of(layers.Defaults(*r).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomColorJitter) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		y := x.Cast(x.DType().Accumulator())
		for _, part := range r.parts {
			y = part.transform(d, y)
		}
		return y.Cast(x.DType())
	})
}
