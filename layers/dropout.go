package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Dropout sets a random share of its input to 0 while training and multiplies
// the rest by 1/(1-Rate), so that the expected sum stays (Srivastava et al.
// 2014). When not training it changes nothing.
//
// Each call of each step of a Function draws another mask. Outside Functions
// the random state cannot advance: every call has the same mask.
//
// Shapes: any → the same.
type Dropout struct {
	Rate        float64 // share that is dropped, from 0 to 1
	NoiseShape  []int   // shape of the mask, which broadcasts; -1: as the input; default: as the input
	Seed        *int64  // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	PassesMask
	state *tensor.Variable
}

// Config returns the fields Name and DType.
func (d *Dropout) Config() Config { return Config{d.Name, d.DType} }

// Build makes the state of the random numbers.
func (d *Dropout) Build(in ...Shape) error {
	s, err := support.Single(in, 0)
	if err != nil {
		return err
	}
	if err := noiseFits(d.NoiseShape, s); err != nil {
		return err
	}
	d.state, err = d.rateState(d.Rate, d.Seed)
	return err
}

// Call computes the layer on x.
func (d *Dropout) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	if !d.drops(p, x) {
		return x
	}
	return drop(x, d.state, d.Rate, noiseShape(d.NoiseShape, x))
}

// drops reports whether a call on x would drop anything.
func (d *Dropout) drops(p Pass, x *tensor.Tensor) bool {
	return p.Training && d.Rate != 0 && !x.Symbolic()
}

// SpatialDropout1D drops whole channels of sequences (Tompson et al. 2015).
//
// Shapes: [batch steps channels] → the same.
type SpatialDropout1D struct {
	Rate        float64 // share of the channels that is dropped, from 0 to 1
	Seed        *int64  // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	PassesMask
	state *tensor.Variable
}

// Config returns the fields Name and DType.
func (d *SpatialDropout1D) Config() Config { return Config{d.Name, d.DType} }

// Build makes the state of the random numbers.
func (d *SpatialDropout1D) Build(in ...Shape) (err error) {
	if _, err = new(support.Field).Of("channels_last", in, 1); err != nil {
		return err
	}
	d.state, err = d.rateState(d.Rate, d.Seed)
	return err
}

// CheckInput requires rank 3.
func (d *SpatialDropout1D) CheckInput(in ...Shape) error {
	_, err := new(support.Field).Of("channels_last", in, 1)
	return err
}

// Call computes the layer on x.
func (d *SpatialDropout1D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return dropChannels(p, x, d.state, d.Rate, support.Field{})
}

// SpatialDropout2D drops whole channels of images (Tompson et al. 2015).
//
// Shapes: [batch rows columns channels] → the same.
type SpatialDropout2D struct {
	Rate        float64 // share of the channels that is dropped, from 0 to 1
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Seed        *int64  // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	PassesMask
	state *tensor.Variable
	field support.Field
}

// Config returns the fields Name and DType.
func (d *SpatialDropout2D) Config() Config { return Config{d.Name, d.DType} }

// Build makes the state of the random numbers.
func (d *SpatialDropout2D) Build(in ...Shape) (err error) {
	if err = d.CheckInput(in...); err != nil {
		return err
	}
	d.state, err = d.rateState(d.Rate, d.Seed)
	return err
}

// CheckInput requires rank 4.
func (d *SpatialDropout2D) CheckInput(in ...Shape) error {
	_, err := d.field.Of(Defaults(*d).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (d *SpatialDropout2D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return dropChannels(p, x, d.state, d.Rate, d.field)
}

// SpatialDropout3D drops whole channels of volumes (Tompson et al. 2015).
//
// Shapes: [batch depth rows columns channels] → the same.
type SpatialDropout3D struct {
	Rate        float64 // share of the channels that is dropped, from 0 to 1
	DataFormat  string  `default:"channels_last"` // or channels_first: [batch channels depth rows columns]
	Seed        *int64  // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	PassesMask
	state *tensor.Variable
	field support.Field
}

// Config returns the fields Name and DType.
func (d *SpatialDropout3D) Config() Config { return Config{d.Name, d.DType} }

// Build makes the state of the random numbers.
func (d *SpatialDropout3D) Build(in ...Shape) (err error) {
	if err = d.CheckInput(in...); err != nil {
		return err
	}
	d.state, err = d.rateState(d.Rate, d.Seed)
	return err
}

// CheckInput requires rank 5.
func (d *SpatialDropout3D) CheckInput(in ...Shape) error {
	_, err := d.field.Of(Defaults(*d).DataFormat, in, 3)
	return err
}

// Call computes the layer on x.
func (d *SpatialDropout3D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	return dropChannels(p, x, d.state, d.Rate, d.field)
}

// dropChannels is Dropout with one decision for each sample and channel.
func dropChannels(p Pass, x *tensor.Tensor, state *tensor.Variable, rate float64, f support.Field) *tensor.Tensor {
	support.CheckFloats(x)
	if !p.Training || rate == 0 || x.Symbolic() {
		return x
	}
	shape := x.Shape().Clone()
	for i := range len(shape) - 2 {
		shape[f.First()+i] = 1
	}
	return drop(x, state, rate, shape)
}

// rateState checks a dropout rate and makes the state of the random numbers,
// nil where none are needed.
func (b *Base) rateState(rate float64, seed *int64) (*tensor.Variable, error) {
	switch {
	case !(rate >= 0 && rate <= 1):
		return nil, fmt.Errorf("Rate is %v, want a number from 0 to 1", rate)
	case rate == 0:
		return nil, nil
	}
	return b.AddRandomState(seed), nil
}

// noiseFits checks a NoiseShape field for inputs of shape s.
func noiseFits(noise []int, s Shape) error {
	if noise != nil && len(noise) != len(s) {
		return fmt.Errorf("NoiseShape is %v, want %d axes as input %v has", noise, len(s), s)
	}
	for i, n := range noise {
		if n != -1 && n != 1 && (n < 1 || s[i] != tensor.Unknown && n != s[i]) {
			return fmt.Errorf("NoiseShape is %v, want 1, -1 or the size of the input in each axis of %v", noise, s)
		}
	}
	return nil
}

// noiseShape is the shape of the random numbers for x.
func noiseShape(noise []int, x *tensor.Tensor) Shape {
	shape := x.Shape().Clone()
	for i, n := range noise {
		if n != -1 {
			shape[i] = n
		}
	}
	return shape
}

// kept tells which elements, of a shape that broadcasts to x, a share rate of
// which is dropped, are kept. It is the same whatever the type of x.
func kept(x *tensor.Tensor, state *tensor.Variable, rate float64, shape Shape) *tensor.Tensor {
	return tensor.RandomKeep(NextState(state, x), 0, rate, shape...)
}

// drop sets a share of x to 0 and multiplies the rest so that the expected sum
// stays.
func drop(x *tensor.Tensor, state *tensor.Variable, rate float64, shape Shape) *tensor.Tensor {
	keep := kept(x, state, rate, shape)
	scale := 1.0 // where nothing is kept: 1/0 would make NaN of the gradient
	if rate < 1 {
		scale = 1 / (1 - rate)
	}
	// In float32: 1/(1-rate) rounded to 16 bits would bias every element the
	// same way.
	y := x.Cast(x.DType().Accumulator()).MulScalar(scale).Cast(x.DType())
	return tensor.Where(keep, y, tensor.Scalar(x.DType(), 0))
}
