package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// RandomInvert replaces images, each with a probability that is drawn from
// Factor, by what is missing to the upper end of ValueRange.
//
// Shapes: [batch rows columns channels] → the same.
type RandomInvert struct {
	Factor      Factor    `default:"1"` // from 0 to 1; 1 number f: 0 to f
	ValueRange  []float64 `default:"[0, 255]"`
	Seed        *int64    // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	image    randomImage
	from, to float64
}

// Config returns the fields Name and DType.
func (r *RandomInvert) Config() Config { return Config{r.Name, r.DType} }

// Build makes the state of the random numbers.
func (r *RandomInvert) Build(in ...Shape) (err error) {
	c := Defaults(*r)
	if r.from, r.to, err = c.Factor.ends("Factor", 0, 1); err != nil {
		return err
	}
	if err := pair("ValueRange", c.ValueRange); err != nil {
		return err
	}
	r.image.state = r.AddRandomState(r.Seed)
	return r.CheckInput(in...)
}

// CheckInput wants four axes.
func (r *RandomInvert) CheckInput(in ...Shape) error {
	_, err := r.image.field.of("channels_last", in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomInvert) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if r.image.still(p, x) {
		return x
	}
	now := NextState(r.image.state, x)
	probability := uniform(now, 0, x.Dim(0), r.from, r.to)
	invert := uniform(now, 1, x.Dim(0), 0, 1).Less(probability).ExpandDims(-1)
	wide := x.Cast(x.DType().Accumulator())
	return tensor.Where(invert, wide.Neg().AddScalar(Defaults(*r).ValueRange[1]).Cast(x.DType()), x)
}

// RandomGrayscale takes the color of images, each with probability Factor: all
// three channels become their luminance.
//
// Shapes: [batch rows columns 3] → the same.
type RandomGrayscale struct {
	Factor      *float64 `default:"0.5"`           // from 0 to 1
	DataFormat  string   `default:"channels_last"` // or channels_first: [batch 3 rows columns]
	Seed        *int64   // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	image randomImage
}

// Config returns the fields Name and DType.
func (r *RandomGrayscale) Config() Config { return Config{r.Name, r.DType} }

// Build makes the state of the random numbers.
func (r *RandomGrayscale) Build(in ...Shape) error {
	if f := *Defaults(*r).Factor; !(f >= 0 && f <= 1) {
		return fmt.Errorf("Factor is %v, want a number from 0 to 1", f)
	}
	r.image.state = r.AddRandomState(r.Seed)
	return r.CheckInput(in...)
}

// CheckInput wants four axes, and three channels.
func (r *RandomGrayscale) CheckInput(in ...Shape) error {
	s, err := r.image.field.of(Defaults(*r).DataFormat, in, 2)
	if err != nil {
		return err
	}
	if axis := r.channels(); s[axis] != 3 && s[axis] != tensor.Unknown {
		return fmt.Errorf("axis %d of input %v is %d, want 3 channels", axis, s, s[axis])
	}
	return nil
}

func (r *RandomGrayscale) channels() int {
	if r.image.field.channelsFirst {
		return 1
	}
	return 3
}

// Call computes the layer on x.
func (r *RandomGrayscale) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if r.image.still(p, x) {
		return x
	}
	wide := x.Cast(x.DType().Accumulator())
	shape := Shape{1, 1, 1, 1}
	shape[r.channels()] = 3
	gray := wide.Mul(constant(wide.DType(), []float64{0.2989, 0.587, 0.114}, shape...)).SumKeep(r.channels()).Cast(x.DType())
	fade := uniform(NextState(r.image.state, x), 0, x.Dim(0), 0, 1).Less(tensor.Scalar(dtype.Float32, *Defaults(*r).Factor))
	return tensor.Where(fade.ExpandDims(-1), gray, x)
}
