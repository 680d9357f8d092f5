package optimizers

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// update is one variable's view of a step. Its tensors have the type of the
// arithmetic.
type update struct {
	rate     *tensor.Tensor // learning rate
	step     *tensor.Tensor // 1 in the first step
	slot     map[string]*tensor.Variable
	shared   map[string]*tensor.Variable // see setup
	variable *tensor.Variable
	decay    float64        // weight decay in front of the update, or 0
	at       *tensor.Tensor // indices of the rows that are updated, see [tensor.SparseRows]; nil: all
}

// of is the value of a variable, or of the rows that are updated.
func (u *update) of(v *tensor.Variable) *tensor.Tensor {
	if u.at != nil {
		return v.Rows(u.at)
	}
	return v.Value()
}

// set changes the result of of.
func (u *update) set(v *tensor.Variable, x *tensor.Tensor) {
	if u.at != nil {
		v.AssignRows(u.at, x)
	} else {
		v.Assign(x)
	}
}

// value returns the value of a slot.
func (u *update) value(slot string) *tensor.Tensor { return u.of(u.slot[slot]) }

// Both forms of a moving average are equal except for rounding; Keras uses the first in
// some classes and the second in others.
//
// A value that must be complete before the weight can be updated, for a norm or a
// matrix product, must not be computed from the slot's new value: that would have to
// exist beside the old one, while all other slots are updated in place. Such classes
// compute the slot in one form and the complete value in the other.

// move is v + (x-v)·(1-beta).
func move(v, x *tensor.Tensor, beta float64) *tensor.Tensor {
	return v.Add(x.Sub(v).MulScalar(1 - beta))
}

// blend is v·beta + x·(1-beta).
func blend(v, x *tensor.Tensor, beta float64) *tensor.Tensor {
	return v.MulScalar(beta).Add(x.MulScalar(1 - beta))
}

// flushed is the number that flush adds: far below numbers that matter, and so far
// above subnormal ones that its product with a rate is normal.
const flushed = 0x1p-80

// flush is x without numbers that are almost 0: in float32 they are rounded to
// multiples of 2⁻¹⁰³, while those from 2⁻⁵⁵ on stay as they are. A slot that does
// nothing but decay, because its unit is never active, would else end among the
// subnormal numbers, with which processors compute a hundred times more slowly:
// after some 700 steps for a beta of 0.9.
func flush(x *tensor.Tensor) *tensor.Tensor {
	if x.DType() != dtype.Float32 {
		return x
	}
	c := tensor.Scalar(x.DType(), flushed)
	return x.Add(c).Sub(c)
}

// assign changes a slot and returns its new value.
func (u *update) assign(slot string, x *tensor.Tensor) *tensor.Tensor {
	u.set(u.slot[slot], x)
	if u.at != nil { // not the state that a skipped step keeps: it has no use
		return x
	}
	return u.slot[slot].Value()
}

// move assigns a slot its move towards x, flushed, and returns it.
func (u *update) move(slot string, x *tensor.Tensor, beta float64) *tensor.Tensor {
	return u.assign(slot, flush(move(u.value(slot), x, beta)))
}

// blend assigns a slot its blend with x, flushed, and returns it.
func (u *update) blend(slot string, x *tensor.Tensor, beta float64) *tensor.Tensor {
	return u.assign(slot, flush(blend(u.value(slot), x, beta)))
}

// sumSquares is Σw² of the decayed weight, computed from the stored one so
// that the decayed one need not exist as a whole.
func (u *update) sumSquares() *tensor.Tensor {
	s := u.variable.Value().SumSquares()
	if u.decay == 0 {
		return s
	}
	kept := tensor.Scalar(s.DType(), 1).Sub(u.rate.MulScalar(u.decay))
	return s.Mul(kept.Square())
}

// rounded is beta as the type of the arithmetic holds it. 1-beta is another
// number after that: 0.00099998713 for 0.999 in float32. Keras rounds in some
// places and not in others.
func rounded(beta float64, d dtype.DType) float64 {
	if d == dtype.Float32 {
		return float64(float32(beta))
	}
	return beta
}

// correction is 1-betaᵗ. Keras rounds beta first, and so does this; but where
// it takes a power and subtracts, which cancels all but a few digits in early
// steps, this is exact to the last ones.
func correction(beta float64, t *tensor.Tensor) *tensor.Tensor {
	beta = rounded(beta, t.DType())
	if beta == 0 {
		return tensor.Scalar(t.DType(), 1)
	}
	return t.MulScalar(portablemath.Log(beta)).Expm1().Neg()
}
