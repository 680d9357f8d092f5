package tensor

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Moments returns the mean and the biased variance of each column of some
// matrices, in float32 (float64 for float64), in one pass over t.
//
// Shapes: t [n rows columns] → [n columns] each.
func (t *Tensor) Moments() (mean, variance *Tensor) {
	both := t.record(op.Moments, op.Attr{}, t)
	return both.row(0), both.row(1)
}

// row returns t[i].
func (t *Tensor) row(i int) *Tensor {
	if t.err != nil {
		return t
	}
	return t.Slice(0, i, i+1).Reshape(t.typ.Shape[1:]...)
}

// BatchNormOptions are the options of [BatchNorm].
type BatchNormOptions struct {
	Epsilon float64     // added to the variance
	Groups  int         // of neighbouring columns with moments in common; default: each column has its own
	DType   dtype.DType // of the result; default: t's
}

// BatchNorm returns (t-mean)/√(variance+Epsilon)·gain + shift with the
// mean and the biased variance of each column of some matrices, or of each
// group of columns, in float32 (float64 for float64), rounded once.
//
// Shapes: t [n rows columns], gain and shift [columns], in float32 (float64
// for float64) → [n rows columns].
func BatchNorm(t, gain, shift *Tensor, o BatchNormOptions) *Tensor {
	return t.record(op.BatchNorm, op.Attr{Epsilon: o.Epsilon, Groups: o.Groups, DType: o.DType}, t, gain, shift)
}

// batchNormGradient: with h = (x-mean)·scale and u = g·gain, the gradient with
// respect to x is (u - mean(u) - h·mean(u·h))·scale. Both means follow from sums
// over the columns, so x and g are read twice in all.
func batchNormGradient(t, g *Tensor) []*Tensor {
	x, gain := t.args[0], t.args[1]
	moments := x.record(op.Moments, op.Attr{}, x)
	m, s := op.ColumnStatistics(recorder{}, t.attr, moments)
	mean, scale := m.(*Tensor), s.(*Tensor)
	sums := x.record(op.BatchNormReduce, op.Attr{}, x, mean, g)
	sum, along := sums.row(0), sums.row(1).Mul(scale)
	byGain, byShift := along.Sum(0), sum.Sum(0)

	n, rows, columns := x.typ.Shape[0], x.typ.Shape[1], x.typ.Shape[2]
	groups := t.attr.Groups
	if groups == 0 {
		groups = columns
	}
	// share returns, for each column, minus the mean over the columns of its group.
	share := func(sum *Tensor) *Tensor {
		sum = sum.Mul(gain)
		if groups < columns {
			sum = sum.Reshape(n, groups, columns/groups).SumKeep(2).BroadcastTo(n, groups, columns/groups).Reshape(n, columns)
		}
		return sum.Mul(scale).MulScalar(-1 / float64(rows*(columns/groups)))
	}
	each := func(x *Tensor) *Tensor { return x.Reshape(n, 1, columns) }
	// The forward pass computes x-mean too. The Barrier prevents common
	// subexpressions: x-mean would be saved in float32 next to x, which the sums
	// read anyway.
	x = x.record(op.Barrier, op.Attr{}, x, g)
	dx := g.CastLike(gain).Mul(each(scale.Mul(gain))).
		Add(x.accumulator().Sub(each(mean)).Mul(each(share(along).Mul(scale)))).
		Add(each(share(sum)))
	return []*Tensor{dx.CastLike(x), byGain, byShift}
}
