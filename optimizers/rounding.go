package optimizers

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// stored is the new value x of a weight, in the type of the arithmetic, as v stores it.
// With the option StochasticRounding a 16-bit weight is rounded up or down at random,
// by how far it is from the two: so an update that is smaller than the spacing of the
// weight's numbers is right in the mean, where rounding to nearest loses it every time
// (Gupta et al., "Deep Learning with Limited Numerical Precision", 2015).
//
// The random numbers are those of the seed, of the number of the step, and of the
// weight's place in the list of weights, so they are the same on every thread count and
// after resuming.
func (b *state) stored(v *tensor.Variable, place int, x *tensor.Tensor) *tensor.Tensor {
	d := v.DType()
	seed := b.setup.options.StochasticRounding
	if seed == nil || !d.Is16() {
		return x.Cast(d)
	}
	start := tensor.New([]int64{*seed, 0}, 2)
	count := b.iterations.Value().Reshape(1)
	counter := tensor.Concat(0, tensor.New([]int64{0}, 1), count)
	of := x.Shape()
	if b.partition != nil {
		of = v.Shape()
	}
	u := tensor.RandomUniform(start.Add(counter), uint64(place), of...)
	if b.partition != nil {
		u = b.partition.Own(u)
	}
	return roundStochastic(x, d, u)
}

// roundStochastic rounds x, which is wider, to d: to the number on the other side of x
// than the nearest one where u, of a uniform distribution on [0, 1), is less than the
// distance from the nearest one as a share of the distance of the two.
func roundStochastic(x *tensor.Tensor, d dtype.DType, u *tensor.Tensor) *tensor.Tensor {
	wide := x.DType()
	nearest := x.Cast(d).Cast(wide)
	e := x.Sub(nearest)
	// 0.7 of the spacing at a power of two is between 0.5 and 1.5 spacings everywhere in
	// [1, 2), and below 1, where the spacing is half of it: rounding it leads one number
	// further.
	step := nearest.Abs().MulScalar(0.7 * d.Epsilon()).MaximumScalar(0.7 * d.SmallestSubnormal())
	other := nearest.Add(tensor.Where(e.GreaterScalar(0), step, step.Neg())).Cast(d).Cast(wide)
	share := e.Div(other.Sub(nearest))
	return tensor.Where(u.Cast(wide).Less(share), other, nearest).Cast(d) // not where share is NaN
}
