package op

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// scanRecorder records the expansion of [RNN] and [RNNGrad]. store is the type of the
// operands, acc the type of the computation.
type scanRecorder struct {
	Recorder
	*Scan
	store, acc dtype.DType
	steps      int
	batch      int
	units      int
	mask       Ref // or nil
}

func newScanRecorder(r Recorder, s *Scan, store dtype.DType, steps, batch, units int) *scanRecorder {
	return &scanRecorder{Recorder: r, Scan: s, store: store, acc: store.Accumulator(), steps: steps, batch: batch, units: units}
}

func (r *scanRecorder) un(c Code, x Ref) Ref       { return r.Record(c, Attr{}, x) }
func (r *scanRecorder) mul(x, y Ref) Ref           { return r.Record(Mul, Attr{}, x, y) }
func (r *scanRecorder) add(x, y Ref) Ref           { return r.Record(Add, Attr{}, x, y) }
func (r *scanRecorder) sub(x, y Ref) Ref           { return r.Record(Sub, Attr{}, x, y) }
func (r *scanRecorder) wide(x Ref) Ref             { return r.Record(Cast, Attr{DType: r.acc}, x) }
func (r *scanRecorder) round(x Ref) Ref            { return r.Record(Cast, Attr{DType: r.store}, x) }
func (r *scanRecorder) shaped(x Ref, s ...int) Ref { return r.Record(Reshape, Attr{Dims: s}, x) }

// slice returns x from lo to hi along an axis.
func (r *scanRecorder) slice(x Ref, axis, lo, hi int) Ref {
	s := r.TypeOf(x).Shape
	a := Attr{Start: make([]int, len(s)), Limit: slices.Clone(s), Stride: slices.Repeat([]int{1}, len(s))}
	a.Start[axis], a.Limit[axis] = lo, hi
	return r.Record(Slice, a, x)
}

// at returns element i of the first axis of x.
func (r *scanRecorder) at(x Ref, i int) Ref { return elementOf(r.Recorder, x, i) }

// part returns a section of a flat tensor.
func (r *scanRecorder) part(x Ref, s Section) Ref {
	return r.Record(Result, Attr{Start: []int{s.Start}, Dims: s.Shape}, x)
}

// gate returns part i of the last axis of x, a matrix of units·n columns.
func (r *scanRecorder) gate(x Ref, i int) Ref { return r.slice(x, 1, i*r.units, (i+1)*r.units) }

// product returns x·u, or x·uᵀ, of operands in the stored type.
func (r *scanRecorder) product(x, u Ref, trans bool) Ref {
	return r.Record(MatMul, Attr{TransB: trans, DType: r.acc}, r.round(x), u)
}

// less returns y·(1-x²), the gradient through a tanh.
func (r *scanRecorder) less(y, x Ref) Ref { return r.mul(y, r.oneMinus(r.un(Square, x))) }

// through returns y·x·(1-x), the gradient through a logistic function.
func (r *scanRecorder) through(y, x Ref) Ref { return r.mul(y, r.mul(x, r.oneMinus(x))) }

func (r *scanRecorder) oneMinus(x Ref) Ref {
	return r.sub(r.Record(Const, Attr{DType: r.acc, Value: 1}), x)
}

// keep returns x where the mask of step t is true, else y.
func (r *scanRecorder) keep(t int, x, y Ref) Ref {
	if r.mask == nil {
		return x
	}
	return r.Record(Where, Attr{}, r.shaped(r.at(r.mask, t), r.batch, 1), x, y)
}

// order lists the steps.
func (r *scanRecorder) order() []int {
	all := make([]int, r.steps)
	for i := range all {
		all[i] = i
		if r.Reverse {
			all[i] = r.steps - 1 - i
		}
	}
	return all
}

// before returns the position of h and c before step t, and after the one after it.
func (r *scanRecorder) before(t int) int {
	if r.Reverse {
		return t + 1
	}
	return t
}

func (r *scanRecorder) after(t int) int {
	if r.Reverse {
		return t
	}
	return t + 1
}

// flat concatenates tensors to one vector of type d.
func (r *scanRecorder) flat(d dtype.DType, all []Ref) Ref {
	var out []Ref
	for _, x := range all {
		out = append(out, r.shaped(r.Record(Cast, Attr{DType: d}, x), r.TypeOf(x).Shape.Size()))
	}
	return r.Record(Concat, Attr{Axes: []int{0}}, out...)
}

func expandRNN(rec Recorder, a Attr, args []Ref) Ref {
	o := a.Scan.Operands()
	zt := rec.TypeOf(args[o.X])
	r := newScanRecorder(rec, a.Scan, zt.DType, zt.Shape[0], zt.Shape[1], rec.TypeOf(args[o.U]).Shape[0])
	if o.Mask >= 0 {
		r.mask = args[o.Mask]
	}
	outputs, states := make([]Ref, r.steps+1), make([]Ref, r.steps+1)
	saved := make([]Ref, r.steps*r.Cell.Saved())
	first := 0
	if r.Reverse {
		first = r.steps
	}
	outputs[first] = args[o.H]
	var c Ref
	if o.C >= 0 {
		states[first] = args[o.C]
		c = r.wide(args[o.C])
	}
	var bias Ref
	if o.B >= 0 {
		bias = r.wide(args[o.B])
	}
	for _, t := range r.order() {
		z, old := r.wide(r.at(args[o.X], t)), outputs[r.before(t)]
		if r.Product {
			z = r.add(r.product(z, args[o.W], false), r.wide(args[o.V]))
		}
		h, next, kept := r.step(z, args[o.U], old, c, bias)
		outputs[r.after(t)] = r.keep(t, r.round(h), old)
		if c != nil {
			c = r.keep(t, next, c)
			states[r.after(t)] = c
		}
		copy(saved[t*r.Cell.Saved():], kept)
	}
	all := outputs
	if c != nil {
		all = append(all, states...)
	}
	return r.flat(r.store, append(all, saved...))
}

// step computes the next h and c, and the saved values, from the input z, the kernel u,
// the last h and c and the bias b.
func (r *scanRecorder) step(z, u, h, c, b Ref) (out, state Ref, saved []Ref) {
	switch r.Cell {
	case LSTMCell:
		z = r.add(z, r.product(h, u, false))
		i, f := r.un(Sigmoid, r.gate(z, 0)), r.un(Sigmoid, r.gate(z, 1))
		g, o := r.un(Tanh, r.gate(z, 2)), r.un(Sigmoid, r.gate(z, 3))
		c = r.add(r.mul(f, c), r.mul(i, g))
		return r.mul(o, r.un(Tanh, c)), c, []Ref{i, f, g, o}
	case GRUCell, GRUBeforeCell:
		p := r.product(h, r.slice(u, 1, 0, 2*r.units), false)
		last := r.gate(u, 2)
		h = r.wide(h)
		x := r.un(Sigmoid, r.add(r.gate(z, 0), r.gate(p, 0)))
		e := r.un(Sigmoid, r.add(r.gate(z, 1), r.gate(p, 1)))
		var q, g Ref
		if r.Cell == GRUCell {
			q = r.add(r.product(h, last, false), b)
			g = r.un(Tanh, r.add(r.gate(z, 2), r.mul(e, q)))
		} else {
			q = r.mul(e, h)
			g = r.un(Tanh, r.add(r.gate(z, 2), r.product(q, last, false)))
		}
		return r.add(g, r.mul(x, r.sub(h, g))), nil, []Ref{x, e, g, q}
	case ReluCell:
		return r.un(Relu, r.add(z, r.product(h, u, false))), nil, nil
	}
	return r.un(Tanh, r.add(z, r.product(h, u, false))), nil, nil
}

func expandRNNGrad(rec Recorder, a Attr, args []Ref) Ref {
	o := a.Scan.GradOperands()
	steps, batch, units := a.Dims[0], a.Dims[1], a.Dims[2]
	r := newScanRecorder(rec, a.Scan, rec.TypeOf(args[o.S]).DType, steps, batch, units)
	if o.Mask >= 0 {
		r.mask = args[o.Mask]
	}
	at := r.Sections(steps, batch, units)
	outputs := r.part(args[o.S], at.Outputs)
	var saved, states Ref
	if r.Cell.Saved() > 0 {
		saved = r.part(args[o.S], at.Saved)
	}
	if r.Cell.HasState() {
		states = r.part(args[o.S], at.States)
	}
	zeros := r.Record(Const, Attr{DType: r.acc, Dims: Shape{batch, units}})
	dh, dc := zeros, zeros
	if o.Last >= 0 {
		dh = r.wide(args[o.Last])
	}
	if o.State >= 0 {
		dc = r.wide(args[o.State])
	}
	inputs, recurrent := make([]Ref, steps), make([]Ref, steps)
	for _, t := range slices.Backward(r.order()) {
		if o.Steps >= 0 {
			dh = r.add(dh, r.wide(r.at(args[o.Steps], t)))
		}
		s := &saves{h: r.wide(r.at(outputs, r.after(t))), last: r.wide(r.at(outputs, r.before(t)))}
		if saved != nil {
			all := r.wide(r.at(saved, t))
			for i := range s.gates {
				s.gates[i] = r.at(all, i)
			}
		}
		if states != nil {
			s.c, s.lastC = r.wide(r.at(states, r.after(t))), r.wide(r.at(states, r.before(t)))
		}
		z, q, next, nextC := r.stepGrad(s, args[o.U], dh, dc)
		none := r.Record(Const, Attr{DType: r.store, Dims: r.TypeOf(z).Shape})
		inputs[t], recurrent[t] = r.keep(t, z, none), r.keep(t, q, none)
		dh = r.keep(t, next, dh)
		if states != nil {
			dc = r.keep(t, nextC, dc)
		}
	}
	d, all := r.store, inputs
	switch {
	case r.Weights:
		d, all = r.acc, r.weights(args, o, inputs, recurrent, outputs, saved, a.Dims[3])
	case r.Cell == GRUCell:
		all = append(all, recurrent...)
	}
	all = append(all, dh)
	if states != nil {
		all = append(all, dc)
	}
	return r.flat(d, all)
}

// weights returns the gradients of the weights and of x, for the gradients of z and h·u
// at each step.
func (r *scanRecorder) weights(args []Ref, o RNNGradOperands, inputs, recurrent []Ref, outputs, saved Ref, features int) []Ref {
	rows, wide := r.steps*r.batch, r.Cell.Gates()*r.units
	join := func(steps []Ref, cols int) Ref {
		if len(steps) == 0 {
			return r.Record(Const, Attr{DType: r.store, Dims: Shape{0, cols}})
		}
		return r.Record(Concat, Attr{Axes: []int{0}}, steps...)
	}
	z, g := join(inputs, wide), join(recurrent, wide)
	times := func(x, y Ref) Ref { return r.Record(MatMul, Attr{TransA: true, DType: r.acc}, x, y) }
	sum := func(x Ref) Ref { return r.Record(Sum, Attr{Axes: []int{0}, DType: r.acc}, x) }
	x := r.shaped(args[o.X], rows, features)
	first := 0
	if r.Reverse {
		first = 1
	}
	h := r.shaped(r.slice(outputs, 0, first, first+r.steps), rows, r.units)
	u := times(h, g)
	if r.Cell == GRUBeforeCell {
		q := r.shaped(r.slice(saved, 1, 3, 4), rows, r.units)
		u = r.Record(Concat, Attr{Axes: []int{1}}, times(h, r.slice(g, 1, 0, 2*r.units)), times(q, r.gate(g, 2)))
	}
	all := []Ref{times(x, z), u, sum(z)}
	if r.Cell.HasBias() {
		all = append(all, sum(r.gate(g, 2)))
	}
	if o.W >= 0 {
		all = append(all, r.Record(MatMul, Attr{TransB: true, DType: r.acc}, z, args[o.W]))
	}
	return all
}

// saves is the saved values of a step.
type saves struct {
	h, last  Ref // after and before it
	c, lastC Ref
	gates    [4]Ref
}

// stepGrad is the gradient of step: of z and of h·u, rounded, and of the last h and c.
func (r *scanRecorder) stepGrad(s *saves, u, dh, dc Ref) (z, recurrent, h, c Ref) {
	join := func(parts ...Ref) Ref { return r.round(r.Record(Concat, Attr{Axes: []int{1}}, parts...)) }
	switch r.Cell {
	case LSTMCell:
		i, f, g, o := s.gates[0], s.gates[1], s.gates[2], s.gates[3]
		t := r.un(Tanh, s.c)
		dc = r.add(dc, r.less(r.mul(dh, o), t))
		z = join(r.through(r.mul(dc, g), i), r.through(r.mul(dc, s.lastC), f), r.less(r.mul(dc, i), g), r.through(r.mul(dh, t), o))
		return z, z, r.product(z, u, true), r.mul(dc, f)
	case GRUCell, GRUBeforeCell:
		x, e, g, q := s.gates[0], s.gates[1], s.gates[2], s.gates[3]
		pass := r.mul(dh, x)
		dx := r.through(r.mul(dh, r.sub(s.last, g)), x)
		dp := r.less(r.mul(dh, r.oneMinus(x)), g)
		if r.Cell == GRUCell {
			de := r.through(r.mul(dp, q), e)
			z, recurrent = join(dx, de, dp), join(dx, de, r.mul(dp, e))
			return z, recurrent, r.add(pass, r.product(recurrent, u, true)), nil
		}
		dq := r.product(dp, r.gate(u, 2), true)
		de := r.through(r.mul(dq, s.last), e)
		pass = r.add(pass, r.mul(dq, e))
		z = join(dx, de, dp)
		h = r.add(pass, r.product(r.slice(z, 1, 0, 2*r.units), r.slice(u, 1, 0, 2*r.units), true))
		return z, z, h, nil
	case ReluCell:
		zero := r.Record(Const, Attr{DType: r.acc})
		z = r.round(r.Record(Where, Attr{}, r.Record(Greater, Attr{}, s.h, zero), dh, zero))
	default:
		z = r.round(r.less(dh, s.h))
	}
	return z, z, r.product(z, u, true), nil
}
