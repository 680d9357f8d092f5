//go:build cuda && linux && amd64

package cuda

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Recurrent operations: one product with the input's kernel for all steps, then
// for each step the product with the recurrent kernel and one call of
// recurrent.cu. The gradient goes back likewise; the gradients by the kernels
// are one product over all steps each.

// beforeSecond is the second part of the step of the cell op.GRUBeforeCell.
const beforeSecond = int(op.GRUBeforeCell) + 1

// scan is what the builders of RNN and RNNGrad share.
type scan struct {
	*builder
	*op.Scan
	v                          *ir.Value
	steps, batch, units, gates int
	kernel                     string // ending of the kernels' names
	acc                        dtype.DType
	mask                       *ir.Value // or nil

	// The recurrent kernel, and the products with it for one step. The cell
	// whose reset gate acts before the product has two: u is the part of the
	// first two gates, second that of the third.
	u, second       *ir.Value
	products, apart *ir.Value
}

func (b *builder) newScan(v, u, mask *ir.Value, store dtype.DType, steps, batch, units int) (*scan, error) {
	s := &scan{builder: b, Scan: v.Attr.Scan, v: v, steps: steps, batch: batch, units: units, mask: mask}
	s.gates, s.acc, s.kernel, s.u = s.Cell.Gates(), store.Accumulator(), "_"+store.String(), u
	if s.Cell != op.GRUBeforeCell || steps == 0 {
		return s, nil
	}
	s.u, s.second = b.working(v, store, units, 2*units), b.working(v, store, units, units)
	if err := b.columns(s.u, u, 0, 2*units); err != nil {
		return nil, err
	}
	return s, b.columns(s.second, u, 2*units, 3*units)
}

// at is step i in the order of computation, and where h and c before and after
// it lie.
func (s *scan) at(i int) (t, before, after int) {
	if s.Reverse {
		t = s.steps - 1 - i
		return t, t + 1, t
	}
	return i, i, i + 1
}

// matrix is element i of the first axis of a section of v.
func (s *scan) matrix(v *ir.Value, in op.Section, i int) *ir.Value {
	return s.section(v, in.Start+i*s.batch*s.units, s.batch, s.units)
}

// maskAt is the mask of step t, nil where there is none or no such step.
func (s *scan) maskAt(t int) *ir.Value {
	if s.mask == nil || t < 0 || t >= s.steps {
		return nil
	}
	return s.section(s.mask, t*s.batch, s.batch)
}

func (b *builder) rnn(v *ir.Value) error {
	o := v.Attr.Scan.Operands()
	x, u := v.Args[o.X], v.Args[o.U]
	steps, batch, units := x.Type.Shape[0], x.Type.Shape[1], u.Type.Shape[0]
	if batch*units == 0 {
		return nil
	}
	defer func() { b.reserved = 0 }()
	s, err := b.newScan(v, u, argument(v, o.Mask), v.Type.DType, steps, batch, units)
	if err != nil {
		return err
	}
	places := s.Sections(steps, batch, units)
	if steps == 0 { // there is nothing but what came before
		if err = b.into(s.matrix(v, places.Outputs, 0), op.Reshape, op.Attr{}, v.Args[o.H]); err == nil && o.C >= 0 {
			err = b.into(s.matrix(v, places.States, 0), op.Reshape, op.Attr{}, v.Args[o.C])
		}
		return err
	}
	wide := s.gates * units
	z := b.section(x, 0, steps*batch, x.Type.Shape[2])
	if s.Product {
		all := b.working(v, s.acc, steps*batch, wide)
		if err := b.times(all, z, v.Args[o.W], false, false); err != nil {
			return err
		}
		z = all
	}
	s.products = b.working(v, s.acc, batch, s.u.Type.Shape[1])
	var carry *ir.Value
	if s.second != nil {
		s.apart = b.working(v, s.acc, batch, units)
	}
	if s.Cell.HasState() {
		carry = b.working(v, s.acc, batch, units)
	}
	for i := range steps {
		t, before, after := s.at(i)
		last, first, state := s.matrix(v, places.Outputs, before), (*ir.Value)(nil), (*ir.Value)(nil)
		var states, firstState, saved, second *ir.Value
		if i == 0 {
			last, first, state = v.Args[o.H], last, argument(v, o.C)
		}
		if s.Cell.HasState() {
			states, firstState = s.matrix(v, places.States, after), s.matrix(v, places.States, before)
		}
		if s.Cell.Saved() > 0 {
			saved = s.matrix(v, places.Saved, t*s.Cell.Saved())
		}
		if s.second != nil {
			second = s.matrix(v, places.Saved, t*s.Cell.Saved()+3)
		}
		if err := b.times(s.products, last, s.u, false, false); err != nil {
			return err
		}
		step := func(cell int) {
			b.each(v, "rnn_step"+s.kernel, batch*units, cell, batch*units, units, b.section(z, t*batch*wide, batch, wide), pointer(argument(v, o.V)),
				s.products, pointer(s.apart), pointer(argument(v, o.B)), pointer(s.maskAt(t)), last, s.matrix(v, places.Outputs, after), pointer(first),
				pointer(state), pointer(carry), pointer(states), pointer(firstState), pointer(saved))
		}
		step(int(s.Cell))
		if second == nil {
			continue
		}
		if err := b.times(s.apart, second, s.second, false, false); err != nil {
			return err
		}
		step(beforeSecond)
	}
	return nil
}

func (b *builder) rnnGrad(v *ir.Value) error {
	o := v.Attr.Scan.GradOperands()
	all := v.Args[o.S]
	steps, batch, units := v.Attr.Dims[0], v.Attr.Dims[1], v.Attr.Dims[2]
	defer func() { b.reserved = 0 }()
	s, err := b.newScan(v, v.Args[o.U], argument(v, o.Mask), all.Type.DType, steps, batch, units)
	if err != nil {
		return err
	}
	from, to := s.Sections(steps, batch, units), s.GradSections(v.Attr.Dims)
	g := &scanGrad{scan: s, operands: o, from: from, to: to, all: all}
	g.room()
	n := batch * units
	adds, begin := s.Cell == op.GRUCell || s.Cell == op.GRUBeforeCell, 1
	var after *ir.Value // the mask of the step after
	for i := steps - 1; i >= 0 && n > 0; i-- {
		if err := g.step(i, begin, after); err != nil {
			return err
		}
		t, _, _ := s.at(i)
		after, begin = s.maskAt(t), 0
	}
	var state *ir.Value
	if s.Cell.HasState() {
		state = s.matrix(v, to.State, 0)
	}
	b.each(v, "rnn_grad_end"+s.kernel, n, n, units, begin, number(adds), pointer(argument(v, o.Last)), pointer(argument(v, o.State)),
		pointer(s.products), pointer(after), pointer(g.pass), pointer(g.carry), int(v.Type.DType), s.matrix(v, to.Output, 0), pointer(state))
	if s.Weights {
		return g.weights()
	}
	return nil
}

// number is a bool as a parameter.
func number(x bool) int {
	if x {
		return 1
	}
	return 0
}

// scanGrad is what the calls of a gradient share.
type scanGrad struct {
	*scan
	operands op.RNNGradOperands
	from     op.RNNSections
	to       op.RNNGradSections
	all      *ir.Value // the result of RNN

	z, recurrent *ir.Value // [T N Gates·U]: the gradients by z and by what h·u gave
	pass, carry  *ir.Value // [N U]: the gradients by h, less the products with u, and by c
	dp, joined   *ir.Value // of the cell with two products, [T N U] and [N 2·U]: the gradients by what they gave
}

// room says where the gradients of the steps lie.
func (g *scanGrad) room() {
	rows, wide := g.steps*g.batch, g.gates*g.units
	if g.Weights {
		g.z = g.working(g.v, g.all.Type.DType, rows, wide)
		g.recurrent = g.z
		if g.Cell == op.GRUCell {
			g.recurrent = g.working(g.v, g.all.Type.DType, rows, wide)
		}
	} else {
		g.z, g.recurrent = g.section(g.v, g.to.Input.Start, rows, wide), g.section(g.v, g.to.Recurrent.Start, rows, wide)
	}
	g.products, g.pass = g.working(g.v, g.acc, g.batch, g.units), g.working(g.v, g.acc, g.batch, g.units)
	if g.Cell.HasState() {
		g.carry = g.working(g.v, g.acc, g.batch, g.units)
	}
	if g.second != nil {
		g.dp, g.joined = g.working(g.v, g.all.Type.DType, rows, g.units), g.working(g.v, g.all.Type.DType, g.batch, 2*g.units)
		g.apart = g.working(g.v, g.acc, g.batch, g.units)
	}
}

// step makes the calls of step i.
func (g *scanGrad) step(i, begin int, maskAfter *ir.Value) error {
	v, o, n := g.v, g.operands, g.batch*g.units
	t, before, after := g.at(i)
	var steps, state, stateBefore, saved, recurrent, dp *ir.Value
	if o.Steps >= 0 {
		steps = g.section(v.Args[o.Steps], t*n, g.batch, g.units)
	}
	if g.Cell.HasState() {
		state, stateBefore = g.matrix(g.all, g.from.States, after), g.matrix(g.all, g.from.States, before)
	}
	if g.Cell.Saved() > 0 {
		saved = g.matrix(g.all, g.from.Saved, t*g.Cell.Saved())
	}
	wide := g.gates * g.units
	z := g.section(g.z, t*g.batch*wide, g.batch, wide)
	by := z
	if g.Cell == op.GRUCell {
		recurrent = g.section(g.recurrent, t*g.batch*wide, g.batch, wide)
		by = recurrent
	}
	if g.second != nil {
		dp, by = g.section(g.dp, t*n, g.batch, g.units), g.joined
	}
	last := g.matrix(g.all, g.from.Outputs, before)
	g.each(v, "rnn_grad"+g.kernel, n, int(g.Cell), n, g.units, begin, pointer(argument(v, o.Last)), pointer(argument(v, o.State)), pointer(steps),
		g.products, pointer(maskAfter), pointer(g.maskAt(t)), g.pass, pointer(g.carry), g.matrix(g.all, g.from.Outputs, after), last,
		pointer(state), pointer(stateBefore), pointer(saved), z, pointer(recurrent), pointer(dp))
	if g.second != nil {
		if err := g.times(g.apart, dp, g.second, false, true); err != nil {
			return err
		}
		g.each(v, "rnn_grad_reset"+g.kernel, n, n, g.units, g.apart, pointer(g.maskAt(t)), g.pass, last, saved, z, g.joined)
	}
	return g.times(g.products, by, g.u, false, true)
}

// weights makes the calls of the gradients by the weights, and by x.
func (g *scanGrad) weights() error {
	v, o := g.v, g.operands
	rows, wide := g.steps*g.batch, g.gates*g.units
	features := v.Attr.Dims[3]
	part := func(s op.Section) *ir.Value { return g.section(v, s.Start, s.Shape...) }
	if err := g.times(part(g.to.W), g.section(v.Args[o.X], 0, rows, features), g.z, true, false); err != nil {
		return err
	}
	first := 0
	if g.Reverse {
		first = 1
	}
	h := g.matrix(g.all, g.from.Outputs, first)
	h.Type.Shape = op.Shape{rows, g.units}
	if err := g.times(part(g.to.U), h, g.recurrent, true, false); err != nil {
		return err
	}
	if g.second != nil { // its columns of the third gate come from q
		q, u := g.working(v, g.all.Type.DType, g.steps, 1, g.batch, g.units), g.working(v, g.acc, g.units, g.units)
		saved := g.section(g.all, g.from.Saved.Start, g.from.Saved.Shape...)
		limit := saved.Type.Shape.Clone()
		if err := g.into(q, op.Slice, op.Attr{Start: []int{0, 3, 0, 0}, Limit: limit, Stride: []int{1, 1, 1, 1}}, saved); err != nil {
			return err
		}
		if err := g.times(u, g.section(q, 0, rows, g.units), g.dp, true, false); err != nil {
			return err
		}
		if err := g.distribute(part(g.to.U), u, 2*g.units); err != nil {
			return err
		}
	}
	if err := g.into(part(g.to.V), op.Sum, op.Attr{Axes: []int{0}}, g.z); err != nil {
		return err
	}
	if g.Cell.HasBias() {
		third := g.section(g.recurrent, 2*g.units, rows, wide)
		kept, folded := dims{[]int{g.units}, [][]int{{1}}}, dims{[]int{rows}, [][]int{{wide}}}
		if err := g.fold(part(g.to.B), third, sum, kept, folded); err != nil {
			return err
		}
	}
	if o.W >= 0 {
		return g.times(g.section(v, g.to.X.Start, rows, features), g.z, v.Args[o.W], false, true)
	}
	return nil
}
