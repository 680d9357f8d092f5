// Package initializers makes the first values of weights, by Keras name:
// "glorot_uniform", "random_normal(stddev=0.02)", "constant(0.5)".
//
// The main type is [Initializer], the main function [Get].
//
// Rules:
//   - Values are computed in float64; storing rounds them once to the type of
//     the weight.
//   - A value depends on the seed, the shape and its place alone, not on how
//     many processors fill the weight. Random numbers are Philox's (package
//     philox); distributions are the same as in Keras,
//     the numbers are not.
//   - A seed in the spec replaces the seed that the Initializer is called
//     with: two weights with one seed then start alike, as in Keras.
//   - Fans are Keras's: a matrix has its rows as inputs and its columns as
//     outputs, and the axes of a kernel before the last two multiply both.
package initializers

import (
	"errors"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// Initializer fills dst with the first values, in row-major order, of a
// weight of the given shape. It is an error when it cannot make that shape.
type Initializer func(dst []float64, shape tensor.Shape, seed uint64) error

// Get returns the initializer of a Keras name, with its arguments if any:
//
//	zeros, zero, ones, one
//	constant(value=0)
//	identity(gain=1)                                    matrices only
//	orthogonal(gain=1, seed=None)                       rank 2 and up
//	random_uniform(minval=-0.05, maxval=0.05, seed=None), uniform
//	random_normal(mean=0, stddev=0.05, seed=None), normal
//	truncated_normal(mean=0, stddev=0.05, seed=None)    within 2 stddev
//	variance_scaling(scale=1, mode=fan_in, distribution=truncated_normal, seed=None, input_axes=None, output_axes=None)
//	{glorot,he,lecun}_{uniform,normal}(seed=None, input_axes=None, output_axes=None)
//
// variance_scaling has the modes fan_in, fan_out and fan_avg and the
// distributions uniform, truncated_normal (or normal) and untruncated_normal;
// glorot is scale 1 with fan_avg, he scale 2 with fan_in, lecun scale 1 with
// fan_in.
func Get(text string) (Initializer, error) {
	if text == "" {
		return nil, errors.New("no initializer given")
	}
	f, err := table.Get(text)
	if err != nil {
		return nil, err
	}
	return func(dst []float64, shape tensor.Shape, seed uint64) error {
		if n := shape.Size(); n != len(dst) {
			return fmt.Errorf("initializer %s: got %d elements and shape %v, want known axes and as many elements", text, len(dst), shape)
		}
		if err := f(dst, shape, seed); err != nil {
			return fmt.Errorf("initializer %s: %w", text, err)
		}
		return nil
	}, nil
}

// Names lists what Get knows, sorted; aliases too.
func Names() []string { return table.Names() }

var table = callspec.Table[Initializer]{Kind: "initializer", Make: map[string]func(callspec.Spec) (Initializer, error){
	"zeros":                  filled(0),
	"zero":                   filled(0),
	"ones":                   filled(1),
	"one":                    filled(1),
	"constant":               constant,
	"identity":               identity,
	"orthogonal":             orthogonal,
	"orthogonal_initializer": orthogonal,
	"random_uniform":         randomUniform,
	"uniform":                randomUniform,
	"random_normal":          randomNormal(false),
	"normal":                 randomNormal(false),
	"truncated_normal":       randomNormal(true),
	"variance_scaling":       varianceScaling,
	"glorot_uniform":         preset(1, "fan_avg", "uniform"),
	"glorot_normal":          preset(1, "fan_avg", "truncated_normal"),
	"he_uniform":             preset(2, "fan_in", "uniform"),
	"he_normal":              preset(2, "fan_in", "truncated_normal"),
	"lecun_uniform":          preset(1, "fan_in", "uniform"),
	"lecun_normal":           preset(1, "fan_in", "truncated_normal"),
	"stft":                   stft,
}}

// fill is the Initializer that stores one number everywhere.
func fill(value float64) Initializer {
	return func(dst []float64, _ tensor.Shape, _ uint64) error {
		for i := range dst {
			dst[i] = value
		}
		return nil
	}
}

func filled(value float64) func(callspec.Spec) (Initializer, error) {
	return func(s callspec.Spec) (Initializer, error) { return fill(value), s.Bind() }
}

func constant(s callspec.Spec) (Initializer, error) {
	value := 0.0
	err := s.Bind(callspec.Optional("value", &value))
	return fill(value), err
}

func identity(s callspec.Spec) (Initializer, error) {
	gain := 1.0
	err := s.Bind(callspec.Optional("gain", &gain))
	return func(dst []float64, shape tensor.Shape, _ uint64) error {
		if len(shape) != 2 {
			return fmt.Errorf("got shape %v of rank %d, want a matrix", shape, len(shape))
		}
		clear(dst)
		for i := range min(shape[0], shape[1]) {
			dst[i*shape[1]+i] = gain
		}
		return nil
	}, err
}

// seeded gives f the seed of the spec in place of that of the call.
func seeded(seed **int64, f Initializer) Initializer {
	return func(dst []float64, shape tensor.Shape, s uint64) error {
		if *seed != nil {
			s = uint64(**seed)
		}
		return f(dst, shape, s)
	}
}

func randomUniform(s callspec.Spec) (Initializer, error) {
	low, high := -0.05, 0.05
	seed := new(*int64)
	err := s.Bind(callspec.Optional("minval", &low), callspec.Optional("maxval", &high), callspec.Optional("seed", seed))
	if err == nil && low > high {
		err = s.Reject("minval", low, fmt.Sprintf("at most maxval, %v", high))
	}
	return seeded(seed, func(dst []float64, _ tensor.Shape, seed uint64) error {
		drawUniform(dst, seed, low, high)
		return nil
	}), err
}

func randomNormal(truncate bool) func(callspec.Spec) (Initializer, error) {
	return func(s callspec.Spec) (Initializer, error) {
		mean, stddev := 0.0, 0.05
		seed := new(*int64)
		err := s.Bind(callspec.Optional("mean", &mean), callspec.Optional("stddev", &stddev), callspec.Optional("seed", seed))
		if err == nil {
			err = s.NotNegative("stddev", stddev)
		}
		draw := drawNormal
		if truncate {
			draw = drawTruncated
		}
		return seeded(seed, func(dst []float64, _ tensor.Shape, seed uint64) error {
			draw(dst, seed, mean, stddev)
			return nil
		}), err
	}
}

// scaling is Keras's VarianceScaling: values of variance scale/n, where n is
// a number of inputs or outputs of one unit.
type scaling struct {
	scale              float64
	mode, distribution string
	seed               *int64
	inputs, outputs    []int // axes; both nil: by the rule of fans
}

func (v *scaling) params() []callspec.Param {
	return []callspec.Param{callspec.Optional("seed", &v.seed), callspec.Optional("input_axes", &v.inputs), callspec.Optional("output_axes", &v.outputs)}
}

func preset(scale float64, mode, distribution string) func(callspec.Spec) (Initializer, error) {
	return func(s callspec.Spec) (Initializer, error) {
		v := &scaling{scale: scale, mode: mode, distribution: distribution}
		err := s.Bind(v.params()...)
		return seeded(&v.seed, v.fill), err
	}
}

func varianceScaling(s callspec.Spec) (Initializer, error) {
	v := &scaling{scale: 1, mode: "fan_in", distribution: "truncated_normal"}
	err := s.Bind(append([]callspec.Param{callspec.Optional("scale", &v.scale), callspec.Optional("mode", &v.mode),
		callspec.Optional("distribution", &v.distribution)}, v.params()...)...)
	if err != nil {
		return nil, err
	}
	if v.distribution == "normal" {
		v.distribution = "truncated_normal"
	}
	if v.scale <= 0 {
		return nil, s.Reject("scale", v.scale, "more than 0")
	}
	if err := s.OneOf("mode", v.mode, "fan_in", "fan_out", "fan_avg"); err != nil {
		return nil, err
	}
	if err := s.OneOf("distribution", v.distribution, "uniform", "truncated_normal", "untruncated_normal"); err != nil {
		return nil, err
	}
	return seeded(&v.seed, v.fill), nil
}

func (v *scaling) fill(dst []float64, shape tensor.Shape, seed uint64) error {
	in, out, err := v.fans(shape)
	if err != nil {
		return err
	}
	n := (in + out) / 2
	switch v.mode {
	case "fan_in":
		n = in
	case "fan_out":
		n = out
	}
	stddev := math.Sqrt(v.scale / max(1, n))
	switch v.distribution {
	case "uniform":
		limit := math.Sqrt(3) * stddev
		drawUniform(dst, seed, -limit, limit)
	case "truncated_normal":
		// The deviation of a unit normal cut at ±2, so that what is left has
		// the wanted one.
		drawTruncated(dst, seed, 0, stddev/0.87962566103423978)
	default:
		drawNormal(dst, seed, 0, stddev)
	}
	return nil
}

// fans returns the numbers of inputs and outputs of a weight.
func (v *scaling) fans(shape tensor.Shape) (in, out float64, err error) {
	product := func(sizes []int) float64 {
		p := 1.0
		for _, d := range sizes {
			p *= float64(d)
		}
		return p
	}
	if v.inputs != nil && v.outputs != nil {
		pick := func(axes []int) (sizes []int) {
			for _, a := range axes {
				r, e := shape.Axis(a)
				if e != nil {
					err = e
					return nil
				}
				sizes = append(sizes, shape[r])
			}
			return sizes
		}
		return product(pick(v.inputs)), product(pick(v.outputs)), err
	}
	switch n := len(shape); n {
	case 0:
		return 1, 1, nil
	case 1:
		return float64(shape[0]), float64(shape[0]), nil
	default:
		field := product(shape[:n-2])
		return field * float64(shape[n-2]), field * float64(shape[n-1]), nil
	}
}
