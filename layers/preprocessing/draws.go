package preprocessing

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// draws are the random numbers of one call of a layer of images: each field of
// them has a stream of its own. They are float32.
type draws struct {
	now    *tensor.Tensor // the state of the call
	batch  int
	stream uint64 // of the next field
}

// field draws numbers from 0 to below 1.
func (d *draws) field(shape ...int) *tensor.Tensor {
	d.stream++
	return tensor.RandomUniform(d.now, d.stream-1, shape...)
}

// between draws numbers from one to the other: exactly that one where they are
// equal.
func (d *draws) between(from, to float64, shape ...int) *tensor.Tensor {
	return d.field(shape...).MulScalar(to - from).AddScalar(from)
}

// constant is a number for logGamma and beta.
func (d *draws) constant(v float64) *tensor.Tensor { return tensor.Scalar(dtype.Float32, v) }

// each draws a number for each image, [batch 1 1 1].
func (d *draws) each(from, to float64) *tensor.Tensor { return d.between(from, to, d.batch, 1, 1, 1) }

// place draws a number for each image, [batch 1 1].
func (d *draws) place(from, to float64) *tensor.Tensor { return d.between(from, to, d.batch, 1, 1) }

// shared draws a number for all images, [1 1 1 1].
func (d *draws) shared(from, to float64) *tensor.Tensor { return d.between(from, to, 1, 1, 1, 1) }

// chance says for each image, [batch 1 1 1], whether it is changed: with a
// probability that is drawn first.
func (d *draws) chance(from, to float64) *tensor.Tensor {
	probability := d.each(from, to)
	return d.each(0, 1).Less(probability)
}

// sign draws 1 or -1 for each image, [batch 1 1 1].
func (d *draws) sign() *tensor.Tensor {
	one := tensor.Scalar(dtype.Float32, 1)
	return tensor.Where(d.each(0, 1).GreaterScalar(0.5), one.Neg(), one)
}

// index draws a whole number from 0 to below n, for all images, [1 1 1 1].
func (d *draws) index(n int) *tensor.Tensor {
	// A number below 1 times n may be rounded up to it.
	return d.shared(0, float64(n)).Floor().MinimumScalar(float64(n - 1))
}

// normal draws numbers of mean 0 and deviation 1.
func (d *draws) normal(shape ...int) *tensor.Tensor {
	d.stream += 2
	return tensor.RandomNormal(d.now, d.stream-2, shape...)
}

// gammaTries is how often logGamma tries: each time it fails with a probability
// below 0.05, so that a number in 10¹⁰ is none of the distribution.
const gammaTries = 8

// logGamma draws logarithms of numbers of the gamma distribution with shape
// alpha > 0 (Marsaglia and Tsang 2000). Logarithms, because those of a small
// alpha are below what a float32 holds.
func (d *draws) logGamma(alpha *tensor.Tensor, shape ...int) *tensor.Tensor {
	// For alpha+1 the method has no limits; a power of a uniform number makes
	// it alpha.
	a := alpha.AddScalar(1 - 1./3)
	c := a.MulScalar(9).Rsqrt()
	var found *tensor.Tensor
	for range gammaTries {
		x := d.normal(shape...)
		v := x.Mul(c).AddScalar(1)
		logV := v.MaximumScalar(1e-30).Log().MulScalar(3)
		v3 := v.Mul(v).Mul(v)
		// 1-u is above 0.
		u := d.field(shape...).Neg().AddScalar(1).Log()
		good := v.GreaterScalar(0).And(u.Less(x.Square().MulScalar(0.5).Add(a.Mul(v3.Neg().AddScalar(1).Add(logV)))))
		y := a.Log().Add(logV)
		if found == nil {
			found = tensor.Where(good, y, tensor.Scalar(dtype.Float32, math.Inf(-1)))
		} else {
			found = tensor.Where(found.IsFinite(), found, tensor.Where(good, y, found))
		}
	}
	// Where all failed, the mean.
	found = tensor.Where(found.IsFinite(), found, alpha.AddScalar(1).Log())
	u := d.field(shape...).Neg().AddScalar(1).Log()
	return found.Add(u.Div(alpha))
}

// beta draws numbers of the beta distribution whose parameters are both alpha.
func (d *draws) beta(alpha *tensor.Tensor, shape ...int) *tensor.Tensor {
	// g/(g+h) of two gamma variables.
	return d.logGamma(alpha, shape...).Sub(d.logGamma(alpha, shape...)).Sigmoid()
}

// order draws a permutation of the batch, int32 [batch].
func (d *draws) order() *tensor.Tensor {
	// The rank of each number among all; equal ones by their place.
	u := d.field(d.batch)
	other := u.Reshape(1, d.batch)
	u = u.Reshape(d.batch, 1)
	place := tensor.Iota(dtype.Int32, d.batch)
	before := other.Less(u).Or(other.Equal(u).And(place.Reshape(1, d.batch).Less(place.Reshape(d.batch, 1))))
	return before.Cast(dtype.Int32).Sum(1)
}
