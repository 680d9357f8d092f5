package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Float8Format is a format of the operands of products under mixed_float8.
type Float8Format int

// The formats, from the narrowest range to the widest.
const (
	E4M3   Float8Format = iota // float8_e4m3fn: 4 bits of exponent, 3 of fraction
	E5M2                       // float8_e5m2: 5 and 2
	Wide16                     // not 8 bits, but bfloat16
)

// String returns "E4M3", "E5M2" or "bfloat16".
func (f Float8Format) String() string {
	switch f {
	case E4M3:
		return "E4M3"
	case E5M2:
		return "E5M2"
	case Wide16:
		return "bfloat16"
	}
	return fmt.Sprintf("Float8Format(%d)", int(f))
}

// Largest is the largest number of the format, which the largest magnitude of a tensor
// is scaled to: 448, 57344, and 1 for bfloat16, whose tensors are not scaled.
func (f Float8Format) Largest() float64 {
	switch f {
	case E4M3:
		return dtype.MaxE4M3
	case E5M2:
		return dtype.MaxE5M2
	}
	return 1
}

// Under mixed_float8_adaptive each tensor has a format of its own. A tensor suits a format
// if nearly all of its elements do: an element is lost if it is rounded by more than an
// eighth of itself. E5M2 rounds normal numbers by at most a ninth and E4M3 by a
// seventeenth, so these are the elements that are too small beside the largest one.
// Every float8Interval steps a tensor gets the narrowest format that it suits.
const (
	float8Interval = 32   // steps between two decisions
	float8Momentum = 0.9  // of the mean share of lost elements
	float8Leave    = 0.05 // a format with a larger share of lost elements is left
	float8Enter    = 0.01 // another one is chosen with at most this share; between the two everything stays
	float8Lost     = 1.0 / 8
)

// Elements of the weight choice.
const (
	choiceFormat = iota // a Float8Format
	choiceE4M3          // mean share of lost elements in E4M3
	choiceE5M2          // … and in E5M2
	choiceAge           // steps since the last decision
	choiceSize
)

// addFloat8Choices adds the weights that choose formats.
func (b *Base) addFloat8Choices(f *float8) (err error) {
	for _, s := range f.scales() {
		first := adjusted(func(dst []float64) { dst[choiceFormat] = float64(s.format) })
		if s.choice, err = b.AddWeight(s.name+"_format", Shape{choiceSize}, "zeros", Statistic(), KeepDType(), first); err != nil {
			return err
		}
	}
	return nil
}

// rounding is how a tensor is rounded in this step, once it is divided by its scale.
func (s *float8Scale) rounding() func(*tensor.Tensor) *tensor.Tensor {
	if s.choice == nil {
		return s.format.round
	}
	format := element(s.choice.Value(), choiceFormat)
	return func(x *tensor.Tensor) *tensor.Tensor {
		eight := tensor.Where(is(format, E4M3), E4M3.round(x), E5M2.round(x))
		return tensor.Where(is(format, Wide16), x, eight)
	}
}

// round rounds x to the format; Wide16 leaves that to a cast.
func (f Float8Format) round(x *tensor.Tensor) *tensor.Tensor {
	if f == E4M3 {
		return tensor.RoundE4M3(x)
	}
	return tensor.RoundE5M2(x)
}

// element is an element of a vector.
func element(v *tensor.Tensor, i int) *tensor.Tensor { return v.Slice(0, i, i+1).Squeeze(0) }

// is reports whether a number is that of a format.
func is(format *tensor.Tensor, f Float8Format) *tensor.Tensor {
	return format.Equal(tensor.Scalar(format.DType(), float64(f)))
}

// choose notes how well t suits each format, and makes format and scale of the next step.
// largest is the largest magnitude of t in the history; good says that scales can be made
// from it.
func (s *float8Scale) choose(t, largest, good *tensor.Tensor) {
	old := s.choice.Value()
	t = t.CastLike(old)
	mean := func(f Float8Format, at int) *tensor.Tensor {
		scale := largest.DivScalar(f.Largest())
		wrong := f.round(t.Div(scale)).Mul(scale).Sub(t).Abs().Greater(t.Abs().MulScalar(float8Lost))
		some := t.Abs().GreaterScalar(0).Cast(old.DType()).Sum()
		share := wrong.Cast(old.DType()).Sum().Div(some.MaximumScalar(1))
		before := element(old, at)
		return tensor.Where(good, before.MulScalar(float8Momentum).Add(share.MulScalar(1-float8Momentum)), before)
	}
	lost4, lost5 := mean(E4M3, choiceE4M3), mean(E5M2, choiceE5M2)
	now := element(old, choiceFormat)
	suits := func(f Float8Format, lost *tensor.Tensor) *tensor.Tensor {
		limit := tensor.Where(is(now, f), tensor.Scalar(old.DType(), float8Leave), tensor.Scalar(old.DType(), float8Enter))
		return lost.LessEqual(limit)
	}
	number := func(f Float8Format) *tensor.Tensor { return tensor.Scalar(old.DType(), float64(f)) }
	narrowest := tensor.Where(suits(E4M3, lost4), number(E4M3), tensor.Where(suits(E5M2, lost5), number(E5M2), number(Wide16)))
	age := element(old, choiceAge).AddScalar(1)
	due := age.GreaterEqual(tensor.Scalar(old.DType(), float8Interval))
	next := tensor.Where(due, narrowest, now)
	age = tensor.Where(due, tensor.Scalar(old.DType(), 0), age)
	s.choice.Assign(tensor.Concat(0, next.Reshape(1), lost4.Reshape(1), lost5.Reshape(1), age.Reshape(1)))

	scale := tensor.Where(is(next, E4M3), largest.DivScalar(E4M3.Largest()), largest.DivScalar(E5M2.Largest()))
	scale = tensor.Where(good, scale, s.scale.Value())
	s.scale.Assign(tensor.Where(is(next, Wide16), tensor.Scalar(old.DType(), 1), scale))
}

// Float8Formats returns the formats that a layer under mixed_float8 rounds its inputs,
// its kernel and the gradient of its result to. ok is false for other layers. Under
// mixed_float8_adaptive they are those of the next step.
func Float8Formats(l Layer) (formats [3]Float8Format, ok bool, err error) {
	f := BaseOf(l).float8
	if f == nil {
		return formats, false, nil
	}
	for i, s := range f.scales() {
		formats[i] = s.format
		if s.choice == nil {
			continue
		}
		v, err := s.choice.Float64s()
		if err != nil {
			return formats, false, err
		}
		formats[i] = Float8Format(v[choiceFormat])
	}
	return formats, true, nil
}
