package tensor

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Mask returns the mask that t carries, or nil: bool, false for padding (Keras:
// get_keras_mask). Its axes are the first axes of t, usually [batch time].
//
// A mask is no operand: no operation reads it or passes it on, except Cast and Widen,
// whose results are t in another type. Layers decide what mask their results have
// (package layers, MaskRule). Arguments and results of a Function have none.
func (t *Tensor) Mask() *Tensor { return t.mask }

// WithMask returns t with the mask m in place of its own; nil removes the mask. It
// panics with *Error unless m is bool and has the first axes of t.
func (t *Tensor) WithMask(m *Tensor) *Tensor {
	switch {
	case t.err != nil || t.mask == m:
		return t
	case t.parts != nil:
		Fail("WithMask", "got a tuple of %d tensors; use Unpack", len(t.parts))
	case m != nil && m.err != nil:
		return m
	case m != nil && (m.parts != nil || m.typ.DType != dtype.Bool || !m.maskFits(t.typ.Shape)):
		Fail("WithMask", "got mask %v for %v, want bool with the first axes of it", m.describe(), t.typ)
	}
	u := t.record(op.Identity, op.Attr{}, t)
	u.mask, u.autocast = m, t.autocast // a mask outside of Autocast is no wall in it
	return u
}

// maskFits reports whether the axes of m are the first ones of s.
func (m *Tensor) maskFits(s Shape) bool {
	if len(m.typ.Shape) > len(s) {
		return false
	}
	for i, d := range m.typ.Shape {
		if d != s[i] && d != Unknown && s[i] != Unknown {
			return false
		}
	}
	return true
}

// masked gives t, which was just made, the mask of u.
func (t *Tensor) masked(u *Tensor) *Tensor {
	if u.mask != nil {
		t.mask = u.mask
	}
	return t
}
