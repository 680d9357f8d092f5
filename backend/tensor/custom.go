package tensor

import "github.com/mezzo-ml/mezzo/backend/op"

// custom is a gradient that replaces the operations' own.
type custom struct {
	args []*Tensor
	rule func(g *Tensor) []*Tensor
}

// WithGradient returns t with a custom gradient (tf.custom_gradient,
// torch.autograd.Function). If t, a float tensor, has the gradient g, the tensors args
// have the gradients that rule returns, of their types and shapes; nil is no gradient.
// The tensors that t was computed from get no other. Functions that round or clip pass
// gradients straight through with
//
//	y := x.Round().WithGradient(func(g *Tensor) []*Tensor { return []*Tensor{g} }, x)
//
// rule is called each time gradients are recorded, and may read tensors recorded
// before. It may assign variables: their owner must be listed in the Function, as
// always.
func (t *Tensor) WithGradient(rule func(g *Tensor) []*Tensor, args ...*Tensor) *Tensor {
	if t.err != nil {
		return t
	}
	if t.parts != nil || !t.typ.DType.IsFloat() {
		Fail("WithGradient", "got %v, want a float tensor", t.describe())
	}
	for i, a := range args {
		if a == nil || a.err != nil || a.parts != nil {
			Fail("WithGradient", "argument %d is no tensor that has a gradient", i)
		}
	}
	u := t.record(op.Identity, op.Attr{}, t)
	u.custom = &custom{args, rule}
	return u
}

// sources are the tensors that gradients of t go to.
func (t *Tensor) sources() []*Tensor {
	if t.custom != nil {
		return t.custom.args
	}
	return t.args
}
