package optimizers

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// ClipByValue limits each element of the gradients to -limit … limit. nil
// gradients stay nil; 16-bit gradients become float32.
func ClipByValue(grads []*tensor.Tensor, limit float64) []*tensor.Tensor {
	return clipEach("ClipByValue", grads, limit, func(g *tensor.Tensor) *tensor.Tensor { return g.Clip(-limit, limit) })
}

// ClipByNorm multiplies each gradient whose L2 norm is larger than limit so
// that the norm becomes limit: g·limit/max(‖g‖, limit). nil gradients stay
// nil; 16-bit gradients become float32.
func ClipByNorm(grads []*tensor.Tensor, limit float64) []*tensor.Tensor {
	return clipEach("ClipByNorm", grads, limit, func(g *tensor.Tensor) *tensor.Tensor {
		return g.MulScalar(limit).Div(sumSquares(g).Sqrt().MaximumScalar(limit))
	})
}

// ClipByGlobalNorm multiplies all gradients by one factor so that their joint
// L2 norm is at most limit. It returns them and the norm before clipping, a
// float32 scalar. If that norm is not finite, all elements become NaN, as in
// Keras. nil gradients stay nil; 16-bit gradients become float32.
func ClipByGlobalNorm(grads []*tensor.Tensor, limit float64) (clipped []*tensor.Tensor, norm *tensor.Tensor) {
	norm = globalNorm(unscaled("ClipByGlobalNorm", grads, limit))
	one := tensor.Scalar(dtype.Float32, 1)
	factor := one.Div(norm).MinimumScalar(1 / limit).MulScalar(limit).Add(norm.Sub(norm))
	return clipEach("ClipByGlobalNorm", grads, limit, func(g *tensor.Tensor) *tensor.Tensor {
		return g.Mul(factor.CastLike(g))
	}), norm
}

func clipEach(where string, grads []*tensor.Tensor, limit float64, f func(*tensor.Tensor) *tensor.Tensor) []*tensor.Tensor {
	out := unscaled(where, grads, limit)
	for i, g := range out {
		if g != nil {
			out[i] = f(g)
		}
	}
	return out
}

// unscaled checks gradients before they are clipped: a limit on scaled ones
// would depend on the loss scale.
func unscaled(where string, grads []*tensor.Tensor, limit float64) []*tensor.Tensor {
	if !(limit > 0) {
		tensor.Fail(where, "the limit: got %v, want a positive number", limit)
	}
	out := make([]*tensor.Tensor, len(grads))
	for i, g := range grads {
		if g == nil {
			continue
		}
		if tensor.ScaledBy(g) != nil {
			tensor.Fail(where, "gradient %d still carries the loss scale; call GetUnscaledGradients first", i)
		}
		out[i] = g.Widen()
	}
	return out
}

// globalNorm is the L2 norm of all gradients together, a float32 scalar. It is
// infinite when the sum of squares is more than float32 holds.
func globalNorm(grads []*tensor.Tensor) *tensor.Tensor { return sumOfAll(grads).Sqrt() }

// sumOfAll is the sum of the squares of all elements of all gradients, a float32 scalar.
func sumOfAll(grads []*tensor.Tensor) *tensor.Tensor {
	sum := tensor.Scalar(dtype.Float32, 0)
	first := true
	for _, g := range grads {
		if g == nil {
			continue
		}
		s := sumSquares(g).Cast(dtype.Float32)
		if !first {
			s = sum.Add(s)
		}
		sum, first = s, false
	}
	return sum
}

// sumSquares is the sum of the squares of all elements. Of a gradient that is 0
// but for some rows those alone are read.
func sumSquares(g *tensor.Tensor) *tensor.Tensor { return occupied(g).SumSquares() }

// allFinite reports whether all elements are finite.
func allFinite(g *tensor.Tensor) *tensor.Tensor { return occupied(g).AllFinite() }

// AllFinite returns a bool scalar: whether no element of gradients is NaN or
// infinite. It returns nil if all gradients are nil.
func AllFinite(gradients []*tensor.Tensor) *tensor.Tensor {
	var finite *tensor.Tensor
	for _, g := range gradients {
		switch {
		case g == nil:
		case finite == nil:
			finite = allFinite(g)
		default:
			finite = finite.And(allFinite(g))
		}
	}
	return finite
}

// occupied returns the rows of g that are not 0 for certain, or g.
func occupied(g *tensor.Tensor) *tensor.Tensor {
	if _, rows, ok := tensor.SparseRows(g); ok {
		return rows
	}
	return g
}

// clip applies the clipping option that is set.
func (s *setup) clip(g []*tensor.Tensor) []*tensor.Tensor {
	o := s.options
	switch {
	case o.ClipValue != 0:
		return ClipByValue(g, o.ClipValue)
	case o.ClipNorm != 0:
		return ClipByNorm(g, o.ClipNorm)
	case o.GlobalClipNorm != 0:
		g, _ = ClipByGlobalNorm(g, o.GlobalClipNorm)
	}
	return g
}
