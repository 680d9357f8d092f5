package layers

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Layers of random images change their input while training only, every image
// by numbers of its own; like Dropout's these differ in each call of each step
// of a Function, and are functions of the layer's seed. Images are floats.

// Factor is how far a random number goes from its middle: 1 number f for -f to
// f, or 2 for the ends.
type Factor []float64

// MarshalJSON implements json.Marshaler: 1 number is no list in Keras.
func (f Factor) MarshalJSON() ([]byte, error) {
	if len(f) == 1 {
		return json.Marshal(f[0])
	}
	return json.Marshal([]float64(f))
}

// ends returns the least and the largest number, which are from low to high.
func (f Factor) ends(field string, low, high float64) (from, to float64, err error) {
	switch len(f) {
	case 1:
		to = math.Abs(f[0])
		from = max(-to, low)
	case 2:
		from, to = min(f[0], f[1]), max(f[0], f[1])
	default:
		return 0, 0, fmt.Errorf("%s is %v, want 1 or 2 numbers", field, []float64(f))
	}
	if !(from >= low && to <= high) {
		return 0, 0, fmt.Errorf("%s is %v, want numbers from %v to %v", field, []float64(f), low, high)
	}
	return from, to, nil
}

// randomImage is what layers of random images have in common.
type randomImage struct {
	field field
	state *tensor.Variable
}

// still reports whether x stays as it is.
func (r *randomImage) still(p Pass, x *tensor.Tensor) bool {
	wantFloats(x)
	return !p.Training || x.Symbolic()
}

// last is x with the channels in the last axis, and back undoes it.
func (r *randomImage) last(x *tensor.Tensor) *tensor.Tensor {
	if r.field.channelsFirst {
		return x.Transpose(0, 2, 3, 1)
	}
	return x
}

func (r *randomImage) back(x *tensor.Tensor) *tensor.Tensor {
	if r.field.channelsFirst {
		return x.Transpose(0, 3, 1, 2)
	}
	return x
}

// uniform draws a number for each image, [batch 1 1], of a stream of the state
// of this call.
func uniform(now *tensor.Tensor, stream uint64, batch int, from, to float64) *tensor.Tensor {
	return tensor.RandomUniform(now, stream, batch, 1, 1).MulScalar(to - from).AddScalar(from)
}

// RandomFlip mirrors images, each with probability ½; in both directions at
// once where Mode has both, as in Keras.
//
// Shapes: [batch rows columns channels] → the same.
type RandomFlip struct {
	Mode        string `default:"horizontal_and_vertical"` // or horizontal, vertical
	Seed        *int64 // default: derived from the model's seed and the layer's path
	DataFormat  string `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	Base
	image randomImage
}

// Config returns the fields Name and DType.
func (r *RandomFlip) Config() Config { return Config{r.Name, r.DType} }

// Build makes the state of the random numbers.
func (r *RandomFlip) Build(in ...Shape) error {
	switch m := Defaults(*r).Mode; m {
	case "horizontal", "vertical", "horizontal_and_vertical":
	default:
		return fmt.Errorf("Mode is %q, want horizontal, vertical or horizontal_and_vertical", m)
	}
	r.image.state = r.AddRandomState(r.Seed)
	return r.CheckInput(in...)
}

// CheckInput wants four axes.
func (r *RandomFlip) CheckInput(in ...Shape) error {
	_, err := r.image.field.of(Defaults(*r).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomFlip) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if r.image.still(p, x) {
		return x
	}
	y := r.image.last(x)
	flip := uniform(NextState(r.image.state, x), 0, y.Dim(0), 0, 1).LessEqual(tensor.Scalar(dtype.Float32, 0.5))
	row := tensor.Iota(dtype.Int32, y.Dim(1)).Reshape(1, y.Dim(1), 1)
	column := tensor.Iota(dtype.Int32, 1, 1, y.Dim(2))
	mirror := func(at *tensor.Tensor, n int) *tensor.Tensor {
		return tensor.Where(flip, at.Neg().AddScalar(float64(n-1)), at)
	}
	if mode := Defaults(*r).Mode; mode != "vertical" {
		column = mirror(column, y.Dim(2))
	}
	if mode := Defaults(*r).Mode; mode != "horizontal" {
		row = mirror(row, y.Dim(1))
	}
	return r.image.back(pick(y, row, column))
}

// RandomCrop leaves a window of images, the same of all in a batch. When not
// training, and of images that are not larger, it leaves the largest window of
// the right shape in the middle and resizes it.
//
// Shapes: [batch rows columns channels] → [batch Height Width channels].
type RandomCrop struct {
	Height, Width int    // required
	Seed          *int64 // default: derived from the model's seed and the layer's path
	DataFormat    string `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	Base
	image randomImage
	size  imageSize
}

// Config returns the fields Name and DType.
func (r *RandomCrop) Config() Config { return Config{r.Name, r.DType} }

// Build makes the state of the random numbers.
func (r *RandomCrop) Build(in ...Shape) error {
	r.image.state = r.AddRandomState(r.Seed)
	return r.CheckInput(in...)
}

// CheckInput wants four axes, and pixels.
func (r *RandomCrop) CheckInput(in ...Shape) error {
	err := r.size.of(Defaults(*r).DataFormat, r.Height, r.Width, in)
	r.image.field = r.size.field
	return err
}

// Call computes the layer on x.
func (r *RandomCrop) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	s := &r.size
	if r.image.still(p, x) || s.from[0] <= s.to[0] || s.from[1] <= s.to[1] {
		return s.cropped(x, "bilinear", false)
	}
	now := NextState(r.image.state, x)
	start := func(i int) *tensor.Tensor {
		n := float64(s.from[i] - s.to[i])
		// A number below 1 times n+1 may be rounded up to it.
		return uniform(now, uint64(i), 1, 0, n+1).Floor().MinimumScalar(n).Cast(dtype.Int32)
	}
	row := start(0).Add(tensor.Iota(dtype.Int32, s.to[0]).Reshape(1, s.to[0], 1))
	column := start(1).Add(tensor.Iota(dtype.Int32, 1, 1, s.to[1]))
	return r.image.back(pick(r.image.last(x), row, column))
}

// RandomContrast multiplies what distinguishes pixels from the mean of their
// channel and image by a number from 1-Factor[0] to 1+Factor[1], and limits the
// result to ValueRange.
//
// Shapes: [batch rows columns channels] → the same.
type RandomContrast struct {
	Factor      Factor    // required; from 0 to 1; 1 number f: 1 to 1+f
	ValueRange  []float64 `default:"[0, 255]"`
	Seed        *int64    // default: derived from the model's seed and the layer's path
	DataFormat  string    `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType string

	Base
	image    randomImage
	from, to float64
}

// Config returns the fields Name and DType.
func (r *RandomContrast) Config() Config { return Config{r.Name, r.DType} }

// Build makes the state of the random numbers.
func (r *RandomContrast) Build(in ...Shape) error {
	low, high, err := r.Factor.ends("Factor", 0, 1)
	if err != nil {
		return err
	}
	if err := pair("ValueRange", Defaults(*r).ValueRange); err != nil {
		return err
	}
	r.from, r.to = 1-low, 1+high
	r.image.state = r.AddRandomState(r.Seed)
	return r.CheckInput(in...)
}

// CheckInput wants four axes.
func (r *RandomContrast) CheckInput(in ...Shape) error {
	_, err := r.image.field.of(Defaults(*r).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomContrast) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if r.image.still(p, x) {
		return x
	}
	wide := x.Cast(x.DType().Accumulator())
	first := r.image.field.first()
	mean := wide.MeanKeep(first, first+1)
	factor := uniform(NextState(r.image.state, x), 0, x.Dim(0), r.from, r.to).ExpandDims(-1).CastLike(wide)
	between := Defaults(*r).ValueRange
	return wide.Sub(mean).Mul(factor).Add(mean).Clip(between[0], between[1]).Cast(x.DType())
}

// RandomBrightness adds a number from Factor, times the width of ValueRange, to
// all of an image, and limits the result to ValueRange.
//
// Shapes: [batch rows columns channels] → the same.
type RandomBrightness struct {
	Factor      Factor    // required; from -1 to 1
	ValueRange  []float64 `default:"[0, 255]"`
	Seed        *int64    // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	image    randomImage
	from, to float64
}

// Config returns the fields Name and DType.
func (r *RandomBrightness) Config() Config { return Config{r.Name, r.DType} }

// Build makes the state of the random numbers.
func (r *RandomBrightness) Build(in ...Shape) (err error) {
	if r.from, r.to, err = r.Factor.ends("Factor", -1, 1); err != nil {
		return err
	}
	if err := pair("ValueRange", Defaults(*r).ValueRange); err != nil {
		return err
	}
	r.image.state = r.AddRandomState(r.Seed)
	return r.CheckInput(in...)
}

// CheckInput wants four axes.
func (r *RandomBrightness) CheckInput(in ...Shape) error {
	_, err := r.image.field.of("channels_last", in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomBrightness) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if r.image.still(p, x) {
		return x
	}
	between := Defaults(*r).ValueRange
	width := between[1] - between[0]
	wide := x.Cast(x.DType().Accumulator())
	more := uniform(NextState(r.image.state, x), 0, x.Dim(0), r.from*width, r.to*width).ExpandDims(-1).CastLike(wide)
	return wide.Add(more).Clip(between[0], between[1]).Cast(x.DType())
}

// pair wants two numbers in order.
func pair(field string, v []float64) error {
	if len(v) != 2 || !(v[0] < v[1]) {
		return fmt.Errorf("%s is %v, want 2 numbers in order", field, v)
	}
	return nil
}
