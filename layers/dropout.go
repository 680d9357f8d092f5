package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
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
	state *tensor.Variable
}

// Config returns the fields Name and DType.
func (d *Dropout) Config() Config { return Config{d.Name, d.DType} }

// Build makes the state of the random numbers.
func (d *Dropout) Build(in ...Shape) error {
	if !(d.Rate >= 0 && d.Rate <= 1) {
		return fmt.Errorf("Rate is %v, want a number from 0 to 1", d.Rate)
	}
	s, err := single(in, 0)
	if err != nil {
		return err
	}
	if d.NoiseShape != nil && len(d.NoiseShape) != len(s) {
		return fmt.Errorf("NoiseShape is %v, want %d axes as input %v has", d.NoiseShape, len(s), s)
	}
	for i, n := range d.NoiseShape {
		if n != -1 && n != 1 && (n < 1 || s[i] != tensor.Unknown && n != s[i]) {
			return fmt.Errorf("NoiseShape is %v, want 1, -1 or the size of the input in each axis of %v", d.NoiseShape, s)
		}
	}
	if d.Rate > 0 {
		d.state = d.AddRandomState(d.Seed)
	}
	return nil
}

// Call computes the layer on x.
func (d *Dropout) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if !x.DType().IsFloat() {
		tensor.Fail("Call", "got %v, want floats", x.Type())
	}
	if !p.Training || d.Rate == 0 || x.Symbolic() {
		return x
	}
	shape := x.Shape().Clone()
	for i, n := range d.NoiseShape {
		if n != -1 {
			shape[i] = n
		}
	}
	// The mask is drawn in float32 whatever the type of x: in 16 bits the share
	// would be a multiple of 2⁻⁸ or 2⁻¹¹. So is the product, since 1/(1-Rate)
	// rounded to 16 bits would bias every element the same way.
	u := tensor.RandomUniform(NextState(d.state, x), 0, shape...)
	keep := u.GreaterEqual(tensor.Scalar(u.DType(), d.Rate))
	scale := 1.0 // where nothing is kept: 1/0 would make NaN of the gradient
	if d.Rate < 1 {
		scale = 1 / (1 - d.Rate)
	}
	kept := x.Cast(x.DType().Accumulator()).MulScalar(scale).Cast(x.DType())
	return tensor.Where(keep, kept, tensor.Scalar(x.DType(), 0))
}
