package preprocessing

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// luminance is the brightness of red, green and blue, with one channel; what
// has one already stays.
func (r *randomImage) luminance(x *tensor.Tensor) *tensor.Tensor {
	axis := r.channels()
	if x.Dim(axis) == 1 {
		return x
	}
	shape := layers.Shape{1, 1, 1, 1}
	shape[axis] = 3
	return x.Mul(support.Constant(x.DType(), []float64{0.2989, 0.587, 0.114}, shape...)).SumKeep(axis)
}

// ranged moves pixels from one range of values to another, in the order of
// Keras's operations: what is cut off to integers next depends on it.
func ranged(x *tensor.Tensor, from, to []float64) *tensor.Tensor {
	if from[0] == to[0] && from[1] == to[1] {
		return x
	}
	return x.AddScalar(-from[0]).DivScalar(from[1] - from[0]).MulScalar(to[1] - to[0]).AddScalar(to[0])
}

// eightBits is the range of values of pixels with 8 bits.
var eightBits = []float64{0, 255}

// hsv is a color as hue, from 0 to 1 around the circle, saturation, from 0 to
// 1, and value, the largest of red, green and blue.
type hsv struct{ h, s, v *tensor.Tensor }

// toHSV splits the three channels of x, which lie in an axis, as TensorFlow
// does: grays have hue 0, and what is not above 0 has saturation 0.
func toHSV(x *tensor.Tensor, axis int) hsv {
	r, g, b := x.Slice(axis, 0, 1), x.Slice(axis, 1, 2), x.Slice(axis, 2, 3)
	scalar := func(v float64) *tensor.Tensor { return tensor.Scalar(x.DType(), v) }
	value := r.Maximum(g).Maximum(b)
	chroma := value.Sub(r.Minimum(g).Minimum(b))
	some, light := chroma.GreaterScalar(0), value.GreaterScalar(0)
	// The divisors are 1 where nothing is divided, so that gradients are finite.
	saturation := tensor.Where(light, chroma.Div(tensor.Where(light, value, scalar(1))), scalar(0))
	by := tensor.Where(some, chroma, scalar(1)).MulScalar(6).Reciprocal()
	turn := func(a, b *tensor.Tensor, at float64) *tensor.Tensor { return a.Sub(b).Mul(by).AddScalar(at / 6) }
	hue := tensor.Where(r.Equal(value), turn(g, b, 0), tensor.Where(g.Equal(value), turn(b, r, 2), turn(r, g, 4)))
	hue = tensor.Where(some, hue, scalar(0))
	return hsv{tensor.Where(hue.LessScalar(0), hue.AddScalar(1), hue), saturation, value}
}

// rgb is the way back.
func (c hsv) rgb(axis int) *tensor.Tensor {
	around := c.h.MulScalar(6)
	ramp := func(center, sign, shift float64) *tensor.Tensor {
		full := around.AddScalar(-center).Abs().MulScalar(sign).AddScalar(shift).Clip(0, 1)
		return c.s.Neg().AddScalar(1).Add(c.s.Mul(full)).Mul(c.v)
	}
	return tensor.Concat(axis, ramp(3, 1, -1), ramp(2, -1, 2), ramp(4, -1, 2))
}
