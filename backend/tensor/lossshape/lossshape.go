// Package lossshape, without compatibility promise, brings targets, predictions and sample weights, as losses and
// metrics are given them, to element types and shapes that fit, by Keras's
// rules. Losses and metrics share it: neither imports the other.
//
// Rules: nothing broadcasts by accident. An extra last axis of size 1 is
// removed, or added to a vector; what still differs panics with
// *tensor.Error, naming the caller and both shapes.
package lossshape

import (
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Check returns the first tensor that is broken, or nil when none is. It
// panics when one is nil or a tuple.
func Check(where string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	for i, t := range []*tensor.Tensor{yTrue, yPred} {
		what := [...]string{"targets", "predictions"}[i]
		switch {
		case t == nil:
			tensor.Fail(where, "got nil %s, want a tensor", what)
		case t.Err() != nil:
			return t
		case t.IsTuple():
			tensor.Fail(where, "got a tuple of %d %s, want one tensor", t.Len(), what)
		}
	}
	return nil
}

// Float returns t as float32 without the detour through 16 bits (see
// tensor.Tensor.Widen); float64 stays.
func Float(t *tensor.Tensor) *tensor.Tensor {
	if t.DType() == dtype.Float64 {
		return t
	}
	return t.Widen().Cast(dtype.Float32)
}

// SameRank returns a and b with equally many axes where they differ by a last
// axis of size 1: it is removed, or added to the other one if that is a
// vector. Others are returned as they are (Keras squeeze_or_expand_to_same_rank).
func SameRank(a, b *tensor.Tensor) (*tensor.Tensor, *tensor.Tensor) {
	switch {
	case a.Rank() == b.Rank()+1:
		b, a = SameRank(b, a)
	case b.Rank() != a.Rank()+1 || b.Dim(-1) != 1:
	case a.Rank() == 1:
		a = a.ExpandDims(-1)
	default:
		b = b.Squeeze(-1)
	}
	return a, b
}

// Pair returns targets and predictions of one shape, or panics.
func Pair(where string, yTrue, yPred *tensor.Tensor) (t, p *tensor.Tensor) {
	t, p = SameRank(yTrue, yPred)
	if !t.Shape().Equal(p.Shape()) {
		hint := ""
		if n := yPred.Rank() - 1; yTrue.DType().IsInt() && n > 0 && yTrue.Shape().Equal(yPred.Shape()[:n]) && strings.HasPrefix(where, "Categorical") {
			hint = "; class indices are for the classes with Sparse in their name"
		}
		tensor.Fail(where, "got targets %v for predictions %v, want equal shapes%s", yTrue.Type(), yPred.Type(), hint)
	}
	return t, p
}

// Floats is Pair in the element type of Float(yPred).
func Floats(where string, yTrue, yPred *tensor.Tensor) (t, p *tensor.Tensor) {
	t, p = Pair(where, yTrue, yPred)
	p = Float(p)
	return t.Cast(p.DType()), p
}

// Indices returns x as int32 or int64, for operations that take indices. Floats
// that are NaN or have a fraction become op.NotIndex, which those refuse when
// they run, as they refuse an index out of range.
func Indices(x *tensor.Tensor) *tensor.Tensor {
	switch {
	case x.DType() == dtype.Int64:
		return x
	case x.DType().IsFloat():
		return tensor.Where(x.Equal(x.Floor()), x.Cast(dtype.Int32), tensor.Scalar(dtype.Int32, op.NotIndex))
	}
	return x.Cast(dtype.Int32)
}

// Whole returns labels, which Indices or Labels made of x, for comparisons
// rather than as indices: where x is NaN or has a fraction the run fails. Other
// labels are not checked; n, for the message, is the number of classes.
func Whole(labels, x *tensor.Tensor, n int) *tensor.Tensor {
	if !x.DType().IsFloat() {
		return labels
	}
	zero := tensor.Scalar(dtype.Int32, 0)
	bad := labels.Equal(tensor.Scalar(dtype.Int32, op.NotIndex))
	// Gather checks its indices: it returns zeros, or the run fails.
	return labels.Add(tensor.Zeros(dtype.Int32, n).Gather(tensor.Where(bad, labels, zero)))
}

// Labels returns class indices, one for each row of the predictions, by
// Indices. Targets may have an extra last axis of 1.
//
// Shapes: yTrue […] or [… 1], yPred [… classes] → […].
func Labels(where string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	if yPred.Rank() == 0 {
		tensor.Fail(where, "got predictions %v, want a last axis of classes", yPred.Type())
	}
	labels, rows := yTrue, yPred.Shape()[:yPred.Rank()-1]
	if labels.Rank() == yPred.Rank() && labels.Dim(-1) == 1 {
		labels = labels.Squeeze(-1)
	}
	if !labels.Shape().Equal(rows) {
		hint := ""
		if yTrue.Shape().Equal(yPred.Shape()) {
			hint = "; one-hot targets are for the classes without Sparse in their name"
		}
		tensor.Fail(where, "got labels %v for predictions %v, want shape %v%s", yTrue.Type(), yPred.Type(), rows, hint)
	}
	return Indices(labels)
}

// WholeLabels is Labels for comparisons: see Whole.
func WholeLabels(where string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return Whole(Labels(where, yTrue, yPred), yTrue, yPred.Dim(-1))
}

// LastMean averages over the last axis, which makes elements the value of a
// sample or of its step; a scalar has none.
func LastMean(v *tensor.Tensor) *tensor.Tensor {
	if v.Rank() == 0 {
		return v
	}
	return v.Mean(-1)
}

// Mask returns the mask that predictions carry (see tensor.Tensor.Mask) for the
// values that were computed from them, as bool in their shape; nil if there is
// none.
func Mask(where string, yPred, values *tensor.Tensor) *tensor.Tensor {
	m := yPred.Mask()
	if m == nil {
		return nil
	}
	n, shape := m.Rank(), values.Shape()
	if n > len(shape) || !m.Shape().Equal(shape[:n]) {
		tensor.Fail(where, "got a mask %v of predictions %v for values of shape %v, want the first axes of those", m.Type(), yPred.Type(), shape)
	}
	for m.Rank() < len(shape) {
		m = m.ExpandDims(-1)
	}
	return m.BroadcastTo(shape...)
}
