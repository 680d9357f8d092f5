package preprocessing

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Layers of random images change their input while training only, every image
// by numbers of its own; like Dropout's these differ in each call of each step
// of a Function, and are functions of the layer's seed. Integers become floats
// of the compute type.

// Factor is the range of a random number: one number f for -f … f, or two
// numbers for the ends.
type Factor []float64

// MarshalJSON implements json.Marshaler. One number is written without a list,
// as in Keras.
func (f Factor) MarshalJSON() ([]byte, error) { return oneOrList(f) }

// oneOrList writes a list of one number as that number, and none as null.
func oneOrList(f []float64) ([]byte, error) {
	if len(f) == 1 {
		return json.Marshal(f[0])
	}
	return json.Marshal(f)
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

// span is what Factor says, of a layer that also has a ValueRange.
type span struct{ from, to float64 }

func (s *span) of(f Factor, low, high float64, between []float64) (err error) {
	if s.from, s.to, err = f.ends("Factor", low, high); err != nil {
		return err
	}
	return pair("ValueRange", between)
}

// randomImage is what layers of random images have in common.
type randomImage struct {
	field support.Field
	state *tensor.Variable
}

// augmentation is a layer that changes images by random numbers. transform does
// so, after check, for images of any float type.
type augmentation interface {
	check(in []layers.Shape) error
	transform(d *draws, x *tensor.Tensor) *tensor.Tensor
}

// floats makes floats of the compute type of b of integers.
func floats(b *layers.Base, x *tensor.Tensor) *tensor.Tensor {
	if x.DType().IsFloat() {
		return x
	}
	return x.Cast(b.ComputeDType())
}

// seeded makes the state of the random numbers of layer b, unless it cannot be
// built: what fails in a Function is recorded again, and must not leave states.
func (r *randomImage) seeded(b *layers.Base, seed *int64, err error) error {
	if err == nil {
		r.state = b.AddRandomState(seed)
	}
	return err
}

// still reports whether images stay as they are.
func still(p layers.Pass, x *tensor.Tensor) bool { return !p.Training || x.Symbolic() }

// draws returns the random numbers of a call on x.
func (r *randomImage) draws(x *tensor.Tensor) *draws {
	return &draws{now: layers.NextState(r.state, x), batch: x.Dim(0)}
}

// call changes images of layer b while training.
func (r *randomImage) call(b *layers.Base, p layers.Pass, x *tensor.Tensor, transform func(*draws, *tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	if x = floats(b, x); still(p, x) {
		return x
	}
	return transform(r.draws(x), x)
}

// last is x with the channels in the last axis, and back undoes it.
func (r *randomImage) last(x *tensor.Tensor) *tensor.Tensor {
	if r.field.ChannelsFirst {
		return x.Transpose(0, 2, 3, 1)
	}
	return x
}

func (r *randomImage) back(x *tensor.Tensor) *tensor.Tensor {
	if r.field.ChannelsFirst {
		return x.Transpose(0, 3, 1, 2)
	}
	return x
}

// channels is the axis of the channels.
func (r *randomImage) channels() int {
	if r.field.ChannelsFirst {
		return 1
	}
	return 3
}

// colors wants images of 3 channels, or of one of the given numbers.
func (r *randomImage) colors(format string, in []layers.Shape, or ...int) error {
	s, err := r.field.Of(format, in, 2)
	if err != nil {
		return err
	}
	axis := r.channels()
	if n := s[axis]; n != 3 && n != tensor.Unknown && !slices.Contains(or, n) {
		want := "3"
		for _, n := range or {
			want = fmt.Sprintf("%d or %s", n, want)
		}
		return fmt.Errorf("axis %d of input %v is %d, want %s channels", axis, s, s[axis], want)
	}
	return nil
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

	layers.Base
	image randomImage
}

// Config returns the fields Name and DType.
func (r *RandomFlip) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomFlip) Build(in ...layers.Shape) error {
	switch m := layers.Defaults(*r).Mode; m {
	case "horizontal", "vertical", "horizontal_and_vertical":
	default:
		return fmt.Errorf("Mode is %q, want horizontal, vertical or horizontal_and_vertical", m)
	}
	return r.image.seeded(&r.Base, r.Seed, r.CheckInput(in...))
}

// CheckInput requires rank 4.
func (r *RandomFlip) CheckInput(in ...layers.Shape) error {
	_, err := r.image.field.Of(layers.Defaults(*r).DataFormat, in, 2)
	return err
}

// Call computes the layer on x.
func (r *RandomFlip) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return r.image.call(&r.Base, p, x, func(d *draws, x *tensor.Tensor) *tensor.Tensor {
		y := r.image.last(x)
		flip := d.place(0, 1).LessEqual(tensor.Scalar(dtype.Float32, 0.5))
		row := tensor.Iota(dtype.Int32, y.Dim(1)).Reshape(1, y.Dim(1), 1)
		column := tensor.Iota(dtype.Int32, 1, 1, y.Dim(2))
		mirror := func(at *tensor.Tensor, n int) *tensor.Tensor {
			return tensor.Where(flip, at.Neg().AddScalar(float64(n-1)), at)
		}
		if mode := layers.Defaults(*r).Mode; mode != "vertical" {
			column = mirror(column, y.Dim(2))
		}
		if mode := layers.Defaults(*r).Mode; mode != "horizontal" {
			row = mirror(row, y.Dim(1))
		}
		return r.image.back(pick(y, row, column))
	})
}

// RandomCrop crops images to a random window in training, the same window for
// a whole batch. If an image is not larger than the window in both directions,
// a fixed window of at most Height by Width is cropped and then resized. At
// inference images do not change, as in Keras 3.15, in spite of Keras's
// documentation. So layers after this one must accept both sizes, or
// CenterCrop or Resizing must follow.
//
// Shapes: [batch rows columns channels] → [batch Height Width channels] in
// training and in a model that is being built; unchanged at inference.
type RandomCrop struct {
	Height, Width int    // required
	Seed          *int64 // default: derived from the model's seed and the layer's path
	DataFormat    string `default:"channels_last"` // or channels_first: [batch channels rows columns]
	Name, DType   string

	layers.Base
	image randomImage
	size  imageSize
}

// Config returns the fields Name and DType.
func (r *RandomCrop) Config() layers.Config { return layers.Config{Name: r.Name, DType: r.DType} }

// Build makes the state of the random numbers.
func (r *RandomCrop) Build(in ...layers.Shape) error {
	return r.image.seeded(&r.Base, r.Seed, r.CheckInput(in...))
}

// CheckInput requires rank 4 and at least one pixel.
func (r *RandomCrop) CheckInput(in ...layers.Shape) error {
	err := r.size.of(layers.Defaults(*r).DataFormat, r.Height, r.Width, in)
	r.image.field = r.size.field
	return err
}

// Call computes the layer on x.
func (r *RandomCrop) Call(p layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	s := &r.size
	switch x = floats(&r.Base, x); {
	case !p.Training && !x.Symbolic():
		return x
	case x.Symbolic() || s.from[0] <= s.to[0] || s.from[1] <= s.to[1]:
		// Keras starts at the largest window of the right shape, but cuts off
		// Height and Width from there on.
		var start, size [2]int
		for i := range start {
			fits := s.from[1-i] * s.to[i] / s.to[1-i]
			start[i] = (s.from[i] - max(min(s.from[i], fits), 1)) / 2
			size[i] = min(s.to[i], s.from[i]-start[i])
		}
		return s.resize(s.cut(x, start, size), "bilinear", false)
	}
	d := r.image.draws(x)
	start := func(i int) *tensor.Tensor {
		n := float64(s.from[i] - s.to[i])
		// A number below 1 times n+1 may be rounded up to it.
		return d.between(0, n+1, 1, 1, 1).Floor().MinimumScalar(n).Cast(dtype.Int32)
	}
	row := start(0).Add(tensor.Iota(dtype.Int32, s.to[0]).Reshape(1, s.to[0], 1))
	column := start(1).Add(tensor.Iota(dtype.Int32, 1, 1, s.to[1]))
	return r.image.back(pick(r.image.last(x), row, column))
}
