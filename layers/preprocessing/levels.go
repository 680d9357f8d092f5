package preprocessing

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// AutoContrast stretches each channel of each image, also at inference: its
// smallest value becomes the lower end of ValueRange, its largest value the
// upper end. A channel of equal pixels does not change.
//
// Shapes: [batch rows columns channels] → the same.
type AutoContrast struct {
	ValueRange  []float64 `default:"[0, 255]"`
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	layers.Base
	image randomImage
}

// Config returns the fields Name and DType.
func (a *AutoContrast) Config() layers.Config { return layers.Config{Name: a.Name, DType: a.DType} }

// Build checks the fields.
func (a *AutoContrast) Build(in ...layers.Shape) error { return a.check(in) }

func (a *AutoContrast) check(in []layers.Shape) error {
	if err := pair("ValueRange", layers.Defaults(*a).ValueRange); err != nil {
		return err
	}
	return a.CheckInput(in...)
}

// CheckInput requires rank 4 and at least one pixel.
func (a *AutoContrast) CheckInput(in ...layers.Shape) error {
	return a.image.fits(layers.Defaults(*a).DataFormat, in)
}

// Call computes the layer on x.
func (a *AutoContrast) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return a.transform(nil, floats(&a.Base, x))
}

func (a *AutoContrast) transform(_ *draws, x *tensor.Tensor) *tensor.Tensor {
	wide, first := x.Cast(x.DType().Accumulator()), a.image.field.First()
	low, high := wide.Neg().MaxKeep(first, first+1).Neg(), wide.MaxKeep(first, first+1)
	some := low.Less(high)
	width := tensor.Where(some, high.Sub(low), tensor.Scalar(wide.DType(), 1))
	between := layers.Defaults(*a).ValueRange
	y := wide.Sub(low).Div(width).MulScalar(between[1]-between[0]).AddScalar(between[0]).Clip(between[0], between[1])
	return tensor.Where(some, y, wide).Cast(x.DType())
}

// Solarization adds to images, limits the sums to ValueRange, and inverts
// those that are not below a threshold. With pixels x from 0 to 255 (others are
// scaled to these and back), y = min(x+a, 255), and 255-y where y ≥ t. The
// addition a is drawn from the lower end of AdditionFactor to 255 times its
// upper end, as in Keras, and so is t from ThresholdFactor.
//
// Shapes: [batch rows columns channels] → the same.
type Solarization struct {
	AdditionFactor  Factor    `default:"0"` // from 0 to 1; 1 number f: 0 to f
	ThresholdFactor Factor    `default:"0"` // the same
	ValueRange      []float64 `default:"[0, 255]"`
	Seed            *int64    // default: derived from the model's seed and the layer's path
	DataFormat      string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType     string

	layers.Base
	image     randomImage
	addition  span
	threshold span
}

// Config returns the fields Name and DType.
func (s *Solarization) Config() layers.Config { return layers.Config{Name: s.Name, DType: s.DType} }

// Build makes the state of the random numbers.
func (s *Solarization) Build(in ...layers.Shape) error {
	return s.image.seeded(&s.Base, s.Seed, s.check(in))
}

func (s *Solarization) check(in []layers.Shape) (err error) {
	c := layers.Defaults(*s)
	if s.addition.from, s.addition.to, err = c.AdditionFactor.ends("AdditionFactor", 0, 1); err != nil {
		return err
	}
	if s.threshold.from, s.threshold.to, err = c.ThresholdFactor.ends("ThresholdFactor", 0, 1); err != nil {
		return err
	}
	if err := pair("ValueRange", c.ValueRange); err != nil {
		return err
	}
	return s.CheckInput(in...)
}

// CheckInput requires rank 4.
func (s *Solarization) CheckInput(in ...layers.Shape) error {
	_, err := s.image.field.Of(layers.Defaults(*s).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (s *Solarization) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return s.image.call(&s.Base, p, x, s.transform)
}

func (s *Solarization) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	addition := d.each(s.addition.from, 255*s.addition.to)
	threshold := d.each(s.threshold.from, 255*s.threshold.to)
	wide, between := x.Cast(x.DType().Accumulator()), layers.Defaults(*s).ValueRange
	y := ranged(wide, between, eightBits).Add(addition.CastLike(wide)).Clip(0, 255)
	y = tensor.Where(y.Less(threshold.CastLike(wide)), y, y.Neg().AddScalar(255))
	return ranged(y, eightBits, between).Cast(x.DType())
}

// RandomPosterization keeps a random number of the 8 bits of pixels: a whole
// number from the lower end of Factor, inclusive, to the upper end, exclusive,
// as in Keras, or that number if both are equal. Pixels of another ValueRange
// are scaled to 0 … 255 and back.
//
// Shapes: [batch rows columns channels] → the same.
type RandomPosterization struct {
	Factor      Factor    // required; whole numbers from 1 to 8; 1 number f: 1 to f
	ValueRange  []float64 `default:"[0, 255]"`
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Seed        *int64    // default: derived from the model's seed and the layer's path
	Name, DType string

	layers.Base
	image randomImage
	span  span
}

// Config returns the fields Name and DType.
func (r *RandomPosterization) Config() layers.Config {
	return layers.Config{Name: r.Name, DType: r.DType}
}

// Build makes the state of the random numbers.
func (r *RandomPosterization) Build(in ...layers.Shape) error {
	return r.image.seeded(&r.Base, r.Seed, r.check(in))
}

func (r *RandomPosterization) check(in []layers.Shape) error {
	if err := r.span.of(r.Factor, 1, 8, layers.Defaults(*r).ValueRange); err != nil {
		return err
	}
	if r.span.from != math.Floor(r.span.from) || r.span.to != math.Floor(r.span.to) {
		return fmt.Errorf("Factor is %v, want whole numbers", []float64(r.Factor))
	}
	return r.CheckInput(in...)
}

// CheckInput requires rank 4.
func (r *RandomPosterization) CheckInput(in ...layers.Shape) error {
	_, err := r.image.field.Of(layers.Defaults(*r).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomPosterization) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, r.transform)
}

func (r *RandomPosterization) transform(d *draws, x *tensor.Tensor) *tensor.Tensor {
	from, n := r.span.from, max(r.span.to-r.span.from, 1)
	// A number below 1 times n may be rounded up to it.
	bits := d.each(0, n).Floor().MinimumScalar(n - 1).AddScalar(from)
	wide, between := x.Cast(x.DType().Accumulator()), layers.Defaults(*r).ValueRange
	// A power of two from a table: others would be rounded.
	steps := support.Constant(wide.DType(), []float64{256, 128, 64, 32, 16, 8, 4, 2, 1}, 9)
	step := steps.Gather(bits.Cast(dtype.Int32))
	y := ranged(wide, between, eightBits).Clip(0, 255).Div(step).Floor().Mul(step)
	return ranged(y, eightBits, between).Cast(x.DType())
}
