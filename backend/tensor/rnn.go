package tensor

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// RNNOptions are the options of [RNN].
type RNNOptions struct {
	Cell    op.Cell // cell of each step
	Reverse bool    // from the last step to the first
	H, C    *Tensor // first output, and first state of cells that have one, [N U]; default: zeros
	Bias    *Tensor // of GRUCell, [U]; default: zeros
	Kernel  *Tensor // [F Gates·U]: the input is multiplied by it, and Input is added; default: none
	Input   *Tensor // with Kernel, [Gates·U]; default: zeros
	Mask    *Tensor // bool [T N]: where it is false a step is skipped, and repeats the output before
}

// RNNResult is the result of [RNN].
type RNNResult struct {
	Outputs *Tensor // [T N U]: the output after each step, in the order of the input whatever Reverse says
	Last    *Tensor // [N U]: h after the step computed last
	State   *Tensor // [N U]: the cell state then; nil for cells without one
}

// RNN applies a recurrent cell to the steps of a sequence, as one operation: t is the
// input times the cell's kernel plus its bias, u the recurrent kernel. 16-bit types
// apply to operands and stored results; the cell's arithmetic, and its state between
// steps, are in float32.
//
// With Kernel the input's product is part of the operation, which saves a tensor of its
// size. With many more features than units, one product for all steps is faster.
//
// Shapes: t [T N Gates·U], with Kernel [T N F]; u [U Gates·U].
func RNN(t, u *Tensor, o RNNOptions) RNNResult {
	if bad := brokenOf(t, u); bad != nil {
		return RNNResult{bad, bad, bad}
	}
	if len(t.typ.Shape) != 3 || len(u.typ.Shape) != 2 {
		Fail("RNN", "got input %v and recurrent kernel %v, want three and two axes", t.typ, u.typ)
	}
	steps, batch, units := t.typ.Shape[0], t.typ.Shape[1], u.typ.Shape[0]
	zeros := func(x *Tensor, shape ...int) *Tensor {
		if x == nil {
			// Not a constant of that shape: the batch may be unknown.
			x = Zeros(t.typ.DType).BroadcastTo(shape...)
		}
		return x
	}
	scan := &op.Scan{Cell: o.Cell, Reverse: o.Reverse, Masked: o.Mask != nil, Product: o.Kernel != nil}
	args := []*Tensor{t, u, zeros(o.H, batch, units)}
	if o.Cell.HasState() {
		args = append(args, zeros(o.C, batch, units))
	}
	if o.Cell.HasBias() {
		args = append(args, zeros(o.Bias, units))
	}
	if o.Kernel != nil {
		args = append(args, o.Kernel, zeros(o.Input, o.Cell.Gates()*units))
	}
	if o.Mask != nil {
		args = append(args, o.Mask)
	}
	all := t.record(op.RNN, op.Attr{Scan: scan}, args...)
	at := placesOf(scan, steps, batch, units)
	r := RNNResult{Outputs: all.part(at.outputs), Last: all.part(at.last)}
	if o.Cell.HasState() {
		r.State = all.part(at.state)
	}
	return r
}

// part returns a section of a flat tensor.
func (t *Tensor) part(s op.Section) *Tensor {
	return t.record(op.Result, op.Attr{Start: []int{s.Start}, Dims: s.Shape}, t)
}

// rnnPlaces are the sections of the result of RNN that are used.
type rnnPlaces struct {
	outputs, before op.Section // h after and before each step
	last, state     op.Section
}

func placesOf(s *op.Scan, steps, batch, units int) (p rnnPlaces) {
	all := s.Sections(steps, batch, units)
	next := steps
	if steps != Unknown {
		next++
	}
	first, last := all.Outputs.Rows(0, steps), all.Outputs.Rows(1, next)
	p.outputs, p.before = last, first
	end := steps
	if s.Reverse {
		p.outputs, p.before = first, last
		end = 0
	}
	p.last = all.Outputs.Row(end)
	if s.Cell.HasState() {
		p.state = all.States.Row(end)
	}
	return p
}

// partGradient is the gradient g of a Part of a result.
type partGradient struct{ part, g *Tensor }

// is reports whether the part is section s.
func (p partGradient) is(s op.Section) bool {
	return p.part.attr.Start[0] == s.Start && p.part.typ.Shape.Equal(s.Shape)
}

// weightBytes is the size of weights whose gradients RNNGrad adds up itself,
// step by step: they stay in a core's second cache. For larger ones products
// over all steps are faster.
const weightBytes = 1 << 20

// rnnGradient is the gradient of RNN for the gradients of its results. If RNNGrad does
// not sum the gradients of the weights, each of these is one large product over all
// steps: of the recurrent kernel and, by way of the input's gradient, of the kernel and
// the sequence.
func rnnGradient(t *Tensor, parts []partGradient, needs map[*Tensor]bool) []*Tensor {
	o := t.attr.Scan.Operands()
	u := t.args[o.U]
	x := t.args[o.X]
	steps, batch, units := x.typ.Shape[0], x.typ.Shape[1], u.typ.Shape[0]
	scan := *t.attr.Scan
	places := placesOf(&scan, steps, batch, units)
	var all, last, state *Tensor
	for _, p := range parts {
		to := &state
		switch {
		case p.is(places.outputs):
			to = &all
		case p.is(places.last):
			to = &last
		}
		if *to == nil {
			*to = p.g
		} else {
			*to = (*to).Add(p.g)
		}
	}
	product, features := scan.Product, x.typ.Shape[2]
	scan.Steps, scan.Last, scan.State, scan.Product = all != nil, last != nil, state != nil, false
	dims := Shape{steps, batch, units}
	if product && x.typ.DType.Accumulator().Size()*(features+1+units)*scan.Cell.Gates()*units <= weightBytes {
		scan.Weights, scan.Features = true, needs[x]
		dims = append(dims, features)
	}
	args := []*Tensor{t, u}
	for _, g := range []*Tensor{all, last, state} {
		if g != nil {
			args = append(args, g)
		}
	}
	if scan.Weights {
		args = append(args, x)
	}
	if scan.Features {
		args = append(args, t.args[o.W])
	}
	if o.Mask >= 0 {
		args = append(args, t.args[o.Mask])
	}
	flat := t.record(op.RNNGrad, op.Attr{Scan: &scan, Dims: dims}, args...)
	at := scan.GradSections(dims)
	grads := make([]*Tensor, len(t.args))
	// With Weights parts are of the type that is computed in.
	take := func(i int, s op.Section) {
		if i >= 0 && s.Shape != nil {
			grads[i] = flat.part(s).Cast(x.typ.DType)
		}
	}
	take(o.H, at.Output)
	take(o.C, at.State)
	if scan.Weights {
		take(o.X, at.X)
		take(o.U, at.U)
		take(o.W, at.W)
		take(o.V, at.V)
		take(o.B, at.B)
		return grads
	}
	rows := func(x *Tensor) *Tensor { return x.Reshape(steps*batch, x.typ.Shape[2]) }
	if z := flat.part(at.Input); !product {
		grads[o.X] = z
	} else {
		z = rows(z)
		grads[o.X] = z.MatMulT(t.args[o.W], false, true).Reshape(x.typ.Shape...)
		grads[o.W] = rows(x).MatMulT(z, true, false)
		grads[o.V] = z.Sum(0)
	}
	h, g := rows(t.part(places.before)), rows(flat.part(at.Recurrent))
	if scan.Cell == op.GRUBeforeCell {
		q := t.part(scan.Sections(steps, batch, units).Saved).Slice(1, 3, 4).Reshape(steps*batch, units)
		grads[o.U] = Concat(1, h.MatMulT(g.Slice(1, 0, 2*units), true, false), q.MatMulT(g.Slice(1, 2*units, 3*units), true, false))
	} else {
		grads[o.U] = h.MatMulT(g, true, false)
	}
	if o.B >= 0 {
		grads[o.B] = g.Slice(1, 2*units, 3*units).Sum(0)
	}
	return grads
}

// Unstack returns the elements of the first axis of t, which must have a size.
// Elements of a multiple of 64 bytes need no copy, and their gradients are
// joined once.
func (t *Tensor) Unstack() []*Tensor {
	if len(t.typ.Shape) == 0 || t.typ.Shape[0] == Unknown {
		Fail("Unstack", "got %v, want a first axis with a size", t.typ)
	}
	flat := t.record(op.Reshape, op.Attr{Dims: Shape{t.typ.Shape.Size()}}, t)
	whole := op.Section{Shape: t.typ.Shape}
	all := make([]*Tensor, t.typ.Shape[0])
	for i := range all {
		all[i] = flat.part(whole.Row(i))
	}
	return all
}

// joinParts returns the gradient of a flat tensor from the gradients of its parts.
func joinParts(t *Tensor, parts []partGradient) *Tensor {
	slices.SortStableFunc(parts, func(a, b partGradient) int { return a.part.attr.Start[0] - b.part.attr.Start[0] })
	var sum *Tensor
	add := func(g *Tensor) {
		if sum != nil {
			g = sum.Add(g)
		}
		sum = g
	}
	// Parts that follow each other make one tensor, with zeros between them;
	// others, which overlap, are added.
	all := t.typ.Shape[0]
	for len(parts) > 0 {
		var row []*Tensor
		var rest []partGradient
		at := 0
		fill := func(to int) {
			if to > at {
				row = append(row, Zeros(t.typ.DType, to-at))
			}
		}
		for _, p := range parts {
			start, n := p.part.attr.Start[0], p.part.typ.Shape.Size()
			if start < at {
				rest = append(rest, p)
				continue
			}
			fill(start)
			row, at = append(row, p.g.Reshape(n)), start+n
		}
		fill(all)
		add(Concat(0, row...))
		parts = rest
	}
	return sum
}
