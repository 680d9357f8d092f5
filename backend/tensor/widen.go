package tensor

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Widen returns a 16-bit tensor as float32 without the detour through 16 bits
// where there is a wider value to be had: a contraction, a reduction or a
// softmax that made t stores float32 directly, and a bias added to it is added
// in float32. It is how weight gradients reach their optimizer, and logits
// their loss. Tensors of other types are returned as they are.
func (t *Tensor) Widen() *Tensor {
	if t.err != nil || t.parts != nil || !t.typ.DType.Is16() {
		return t
	}
	if w := t.widened(); w != nil {
		return w.masked(t)
	}
	return t.Cast(dtype.Float32)
}

// widened records the computation of t again with a float32 result, or returns nil if
// that would change nothing.
func (t *Tensor) widened() *Tensor {
	wide := func(a op.Attr, args ...*Tensor) *Tensor {
		r := t.record(t.op, a, args...)
		r.path, r.stop, r.scaled, r.gradient = t.path, t.stop, t.scaled, t.gradient
		t.segment.add(r)
		return r
	}
	a := t.attr
	switch t.op {
	case op.MatMul, op.Conv, op.ConvInputGrad, op.ConvKernelGrad, op.Sum, op.Mean, op.SumSquares, op.Prod:
		a.DType = dtype.Float32
		return wide(a, t.args[0:len(t.args):len(t.args)]...)
	case op.Softmax, op.LogSoftmax:
		a.DType = dtype.Invalid
		return wide(a, t.args[0].Widen())
	case op.Sigmoid:
		return wide(a, t.args[0].Widen())
	case op.Reshape, op.Transpose, op.BroadcastTo:
		if w := t.args[0].widened(); w != nil {
			return wide(a, w)
		}
	case op.Add:
		x, y := t.args[0].widened(), t.args[1].widened()
		if x == nil && y == nil {
			return nil
		}
		if x == nil {
			x = t.args[0].castWide()
		}
		if y == nil {
			y = t.args[1].castWide()
		}
		return wide(a, x, y)
	case op.Identity:
		if t.custom != nil {
			return nil
		}
		if w := t.args[0].widened(); w != nil {
			return wide(a, w)
		}
	}
	return nil
}

// castWide is the plain cast of a 16-bit tensor, under the path of t.
func (t *Tensor) castWide() *Tensor {
	u := t.Cast(dtype.Float32)
	u.path = t.path
	return u
}

// Logits returns the argument of the softmax (or, elementwise, the sigmoid) that t is,
// for losses that are computed from logits, which is exact where probabilities are not.
// ok is false if t was computed otherwise, or its softmax is not over the last axis.
func Logits(t *Tensor) (logits *Tensor, kind op.Code, ok bool) {
	for t.err == nil && t.parts == nil && !t.stop && t.custom == nil && (t.op == op.Cast && t.args[0].typ.DType.Widens(t.typ.DType) || t.op == op.Identity) && len(t.args) == 1 {
		t = t.args[0]
	}
	switch {
	case t.err != nil || t.parts != nil || t.stop || t.custom != nil:
	case t.op == op.Softmax && t.attr.Axes[0] == len(t.typ.Shape)-1, t.op == op.Sigmoid:
		return t.args[0], t.op, true
	}
	return nil, 0, false
}
