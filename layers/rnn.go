package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// RNN runs a cell over the steps of a sequence. At a masked step the states do
// not change and the output is that of the step before, 0 at the start. As in Keras 3,
// a call with initial states does not use the mask that the sequence has, though the
// result has it too: such a call takes its mask from Args.Mask.
//
// LSTM and GRU with Keras's default activations, and SimpleRNN with tanh or
// relu, are one operation of the graph. Any other cell is recorded once, as the body of a loop
// (tensor.Loop), and the length of the sequence must be known. Each step is
// recorded by itself with Unroll, and if the cell uses random numbers, has
// moving statistics or adds losses.
//
// Inputs: a sequence [batch steps features…], optionally followed by the
// initial states, zeros by default. Result: the last output [batch units…], or
// with ReturnSequences all outputs [batch steps units…]; with ReturnState a
// tuple of that and the last states. Weights: those of Cell.
type RNN struct {
	Cell              Layer // a [Cell]; required
	ReturnSequences   bool  // return the output of each step
	ReturnState       bool  // return the last states too
	GoBackwards       bool  // start at the last step; outputs are in that order
	Stateful          bool  // begin where the last call ended; batches must have one size
	Unroll            bool  // record each step by itself
	ZeroOutputForMask bool  // outputs of steps that are masked out are zero
	Name, DType       string

	Base
	SetsMask
	recurrent
}

// Config returns the fields Name and DType.
func (r *RNN) Config() Config { return Config{r.Name, r.DType} }

// Build builds the cell.
func (r *RNN) Build(in ...Shape) error {
	cell, ok := r.Cell.(Cell)
	if !ok {
		if r.Cell == nil {
			return fmt.Errorf("Cell is nil, want a cell such as LSTMCell")
		}
		return fmt.Errorf("Cell is a %s, which has no method StateShapes, want a cell such as LSTMCell", Class(r.Cell))
	}
	r.scanOptions = scanOptions{r.ReturnSequences, r.ReturnState, r.GoBackwards, r.Stateful, r.Unroll, r.ZeroOutputForMask}
	return r.prepare(&r.Base, SnakeClass(cell), cell, in)
}

// CheckInput requires a sequence like the first one, and a state for each of
// the cell's, or none.
func (r *RNN) CheckInput(in ...Shape) error { return r.check(in) }

// Call computes the layer on x.
func (r *RNN) Call(p Pass, x *tensor.Tensor) *tensor.Tensor { return r.call(&r.Base, p, x) }

// scanOptions are the fields of RNN that control the scan of a sequence.
type scanOptions struct {
	sequences, state, backwards, stateful, unroll, zeroOutput bool
}

// recurrent is the part that all recurrent layers share.
type recurrent struct {
	scanOptions
	cell     Cell
	features Shape              // of a step
	shapes   []Shape            // of the states
	carried  []*tensor.Variable // states of a stateful layer
	inOrder  bool               // outputs are in the order of the input whatever direction
}

func (r *recurrent) scan() *recurrent { return r }

// recurrentLayer is a layer that processes sequences.
type recurrentLayer interface {
	Layer
	scan() *recurrent
}

// prepare makes cell a part of b and builds it.
func (r *recurrent) prepare(b *Base, name string, cell Cell, in []Shape) error {
	if len(in) == 0 || len(in[0]) < 3 {
		return fmt.Errorf("got inputs %v, want a sequence [batch steps features]", in)
	}
	r.cell, r.features = cell, in[0][2:].Clone()
	step := append(Shape{in[0][0]}, r.features...)
	if err := b.AddBuilt(name, cell, step); err != nil {
		return err
	}
	r.shapes = cell.StateShapes()
	inner := cell.base()
	inner.inputs = []Shape{step}
	for _, s := range r.shapes {
		inner.inputs = append(inner.inputs, append(Shape{in[0][0]}, s...))
	}
	return r.check(in)
}

// check checks the shapes of inputs.
func (r *recurrent) check(in []Shape) error {
	if len(in) != 1 && len(in) != 1+len(r.shapes) {
		return fmt.Errorf("got %d inputs, want a sequence, or a sequence and %d states", len(in), len(r.shapes))
	}
	if len(in[0]) < 3 || !fitsShape(in[0][2:], r.features) {
		return fmt.Errorf("got sequence %v, want steps of shape %v", in[0], r.features)
	}
	for i, s := range in[1:] {
		if len(s) == 0 || !fitsShape(s[1:], r.shapes[i]) {
			return fmt.Errorf("state %d is %v, want the shape %v in each sample", i, s, r.shapes[i])
		}
	}
	return nil
}

// fitsShape reports whether two shapes agree as far as they are known.
func fitsShape(a, b Shape) bool { return len(a) == len(b) && isPrefix(a, b) }

// ResetState makes the next call of a stateful layer begin with zeros.
func (r *recurrent) ResetState() error {
	for _, v := range r.carried {
		if err := v.Reset(); err != nil {
			return err
		}
	}
	return nil
}

// first is the states that a call on seq begins with, nil for zeros.
func (r *recurrent) first(b *Base, seq *tensor.Tensor, given []*tensor.Tensor) []*tensor.Tensor {
	if len(given) > 0 || !r.stateful || seq.Symbolic() {
		return given
	}
	if r.carried == nil {
		for _, s := range r.shapes {
			r.carried = append(r.carried, b.AddState(append(Shape{seq.Dim(0)}, s...)))
		}
	}
	var all []*tensor.Tensor
	for _, v := range r.carried {
		if want := v.Shape()[0]; seq.Dim(0) != want {
			tensor.Fail("Call", "got a batch of %d, want %d: a stateful layer carries the state of each sample to the next batch", seq.Dim(0), want)
		}
		all = append(all, v.Value().Cast(seq.DType()))
	}
	return all
}

// call processes x, a sequence and perhaps initial states.
func (r *recurrent) call(b *Base, p Pass, x *tensor.Tensor) *tensor.Tensor {
	seq := x.Unpack()[0]
	support.CheckFloats(seq)
	mask := seq.Mask()
	if mask != nil && mask.Rank() != 2 {
		tensor.Fail("Call", "got mask %v, want [batch steps]", mask.Type())
	}
	given := x.Unpack()[1:]
	states := r.first(b, seq, given)
	var steps *tensor.Tensor // of the mask
	if mask != nil && (len(given) == 0 || p.Mask.Has(0)) {
		steps = mask.Transpose(1, 0)
	}
	all, last, next := r.fused(p, seq, states, steps)
	if next == nil {
		all, last, next = r.loop(p, seq, states, steps)
	}
	for i, v := range r.carried {
		if r.stateful && inStep(seq, v) {
			v.Assign(next[i].Cast(v.DType()))
		}
	}
	y := last
	if r.sequences {
		if r.backwards && !r.inOrder && seq.Dim(1) != tensor.Unknown {
			all = flip(all)
		}
		y = swapFirst(all).WithMask(mask)
	}
	if r.state {
		return tensor.Tuple(append([]*tensor.Tensor{y}, next...)...)
	}
	return y
}

// swapFirst exchanges the first two axes of x.
func swapFirst(x *tensor.Tensor) *tensor.Tensor {
	perm := make([]int, x.Rank())
	for i := range perm {
		perm[i] = i
	}
	perm[0], perm[1] = 1, 0
	return x.Transpose(perm...)
}

// flip reverses the first axis of x.
func flip(x *tensor.Tensor) *tensor.Tensor {
	n := x.Dim(0)
	order := make([]int32, n)
	for i := range order {
		order[i] = int32(n - 1 - i)
	}
	return x.Gather(tensor.New(order, n))
}

// fused computes seq in one operation, if there is one for the cell: the outputs [steps
// batch units], the last one, and the last states.
func (r *recurrent) fused(p Pass, seq *tensor.Tensor, states []*tensor.Tensor, mask *tensor.Tensor) (all, last *tensor.Tensor, next []*tensor.Tensor) {
	f, ok := r.cell.(fusedCell)
	if !ok || r.unroll || seq.Rank() != 3 {
		return nil, nil, nil
	}
	c := f.core()
	if p.Training && c.recurrentDropout > 0 && !seq.Symbolic() {
		return nil, nil, nil
	}
	cell, bias, inner, ok := f.fused()
	if !ok {
		return nil, nil, nil
	}
	// The input's part of all steps is one product, or part of the operation.
	x := c.dropSequence(p, seq).Transpose(1, 0, 2)
	shape := x.Shape().Clone()
	o := tensor.RNNOptions{Cell: cell, Reverse: r.backwards, Bias: inner, Mask: mask}
	z := x
	if shape[2] <= 2*c.units { // the kernel stays in the cache with the recurrent one
		o.Kernel, o.Input = c.kernel.Value(), bias
	} else {
		fold := support.Unknowns(shape) <= 1
		if fold {
			x = x.Reshape(support.FoldedRows(shape), shape[2])
		}
		z = c.inputSum(x, bias)
		if fold {
			z = z.Reshape(shape[0], shape[1], c.gates*c.units)
		}
	}
	if len(states) > 0 {
		o.H = states[0]
		if cell.HasState() {
			o.C = states[1]
		}
	}
	y := tensor.RNN(z, c.recurrent.Value(), o)
	all, last, next = y.Outputs, y.Last, []*tensor.Tensor{y.Last}
	if cell.HasState() {
		next = append(next, y.State)
	}
	if mask == nil {
		return all, last, next
	}
	// Outputs of steps that are masked out are those before, which the
	// operation gives; zeros before the first; or all of them zeros.
	end := shape[0] - 1
	if r.backwards {
		end = 0
	}
	var some *tensor.Tensor
	switch {
	case r.zeroOutput:
		some = mask
	case len(states) > 0 && shape[0] != tensor.Unknown:
		some = seen(mask, r.backwards)
	default:
		return all, last, next
	}
	zero := tensor.Scalar(all.DType(), 0)
	all = tensor.Where(some.ExpandDims(-1), all, zero)
	if shape[0] != tensor.Unknown && shape[0] > 0 {
		last = tensor.Where(some.Slice(0, end, end+1).Reshape(shape[1], 1), last, zero)
	}
	return all, last, next
}

// seen tells whether the mask [steps batch] is true at a step or one that
// comes before it in the order of the computation.
func seen(mask *tensor.Tensor, backwards bool) *tensor.Tensor {
	n := mask.Dim(0)
	i := tensor.Iota(dtype.Float32, n, n)
	j := i.Transpose(1, 0)
	before := i.LessEqual(j)
	if backwards {
		before = i.GreaterEqual(j)
	}
	return before.Cast(dtype.Float32).MatMul(mask.Cast(dtype.Float32)).GreaterScalar(0)
}

// StackedRNNCells is a cell of several cells; each gets the output of the
// previous one. Its states are the states of all cells, in order.
//
// Shapes: the input of the first cell → the output of the last. Weights: the
// weights of Cells.
type StackedRNNCells struct {
	Cells       []Layer // each a [Cell]; required
	Name, DType string

	Base
	cells []Cell
}

// Config returns the fields Name and DType.
func (s *StackedRNNCells) Config() Config { return Config{s.Name, s.DType} }

// Build builds the cells.
func (s *StackedRNNCells) Build(in ...Shape) error {
	if len(s.Cells) == 0 || len(in) == 0 {
		return fmt.Errorf("Cells is empty, want at least one cell")
	}
	s.cells = nil
	used := map[string]int{}
	step := in[0]
	for i, l := range s.Cells {
		cell, ok := l.(Cell)
		if l == nil {
			return fmt.Errorf("Cells[%d] is nil, want a cell such as LSTMCell", i)
		}
		if !ok {
			return fmt.Errorf("Cells[%d] is a %s, which has no method StateShapes, want a cell such as LSTMCell", i, Class(l))
		}
		name := SnakeClass(cell)
		if n := used[name]; n > 0 {
			name = fmt.Sprintf("%s_%d", name, n)
		}
		used[SnakeClass(cell)]++
		if err := s.AddBuilt(name, cell, step); err != nil {
			return err
		}
		inner := cell.base()
		inner.inputs = []Shape{step}
		states := []*tensor.Tensor{tensor.Placeholder(s.ComputeDType(), step...)}
		for _, shape := range cell.StateShapes() {
			state := append(Shape{step[0]}, shape...)
			inner.inputs = append(inner.inputs, state)
			states = append(states, tensor.Placeholder(s.ComputeDType(), state...))
		}
		step = Apply(cell, Pass{}, tensor.Tuple(states...)).Unpack()[0].Shape()
		s.cells = append(s.cells, cell)
	}
	return nil
}

// CheckInput returns nil: the cells check their inputs.
func (s *StackedRNNCells) CheckInput(...Shape) error { return nil }

// StateShapes implements Cell.
func (s *StackedRNNCells) StateShapes() []Shape {
	var all []Shape
	for _, c := range s.cells {
		all = append(all, c.StateShapes()...)
	}
	return all
}

func (s *StackedRNNCells) begin() { s.each(sequenceCell.begin) }
func (s *StackedRNNCells) end()   { s.each(sequenceCell.end) }

func (s *StackedRNNCells) each(f func(sequenceCell)) {
	for _, c := range s.cells {
		if q, ok := c.(sequenceCell); ok {
			f(q)
		}
	}
}

// Call computes a step.
func (s *StackedRNNCells) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	y, states := unpackCell(x, len(s.StateShapes()))
	var next []*tensor.Tensor
	for _, c := range s.cells {
		n := len(c.StateShapes())
		out := Apply(c, p, tensor.Tuple(append([]*tensor.Tensor{y}, states[:n]...)...)).Unpack()
		y, states, next = out[0], states[n:], append(next, out[1:]...)
	}
	return tensor.Tuple(append([]*tensor.Tensor{y}, next...)...)
}
