package tensor

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Loop iterates over the steps of sequences as one operation of the graph, whatever
// their number. f is called once and records a step: it gets the elements of the
// sequences and the states, and returns the step's results and the next states. Loop
// returns the results of all steps and the last states. With reverse it begins at the
// last step; results keep the order of the sequences. Operations in f that depend on
// neither elements nor states, such as a cast of a weight, are computed once.
//
// Gradients iterate backwards and compute f again at each step, so only the states
// before each step are saved. f must not assign variables anything that depends on the
// step. It is scan in JAX.
//
// Shapes: sequences [T …], at least one; states any; results of a step any, and [T …]
// of all. Results are floats, or all of one type.
func Loop(sequences, states []*Tensor, reverse bool, f func(x, states []*Tensor) (y, next []*Tensor)) (y, last []*Tensor) {
	return loop(sequences, states, reverse, true, f)
}

// loop is Loop; unless it is to keep the states, it has no gradient but through
// its expansion.
func loop(sequences, states []*Tensor, reverse, keep bool, f func(x, states []*Tensor) (y, next []*Tensor)) (y, last []*Tensor) {
	if len(sequences) == 0 {
		Fail("Loop", "got no sequences, want at least one")
	}
	for _, t := range slices.Concat(sequences, states) {
		if t.err != nil || t.parts != nil || !t.typ.Shape.Known() {
			Fail("Loop", "got %v, want tensors of known shape", t.describe())
		}
	}
	steps := sequences[0].Dim(0)
	for _, t := range sequences {
		if t.Rank() == 0 || t.typ.Shape[0] != steps {
			Fail("Loop", "got a sequence %v, want %d steps as in the first one", t.typ, steps)
		}
	}
	if eager() {
		return eachStep(sequences, states, reverse, f)
	}
	b := &loopBody{since: SequencePoint(), number: map[*Tensor]int{}, variesMemo: map[*Tensor]bool{}}
	x, before := make([]*Tensor, len(sequences)), make([]*Tensor, len(states))
	for i, t := range sequences {
		x[i] = b.leaf(op.Type{DType: t.typ.DType, Shape: t.typ.Shape[1:]}, t.scaled)
	}
	for i, t := range states {
		before[i] = b.leaf(t.typ, t.scaled)
	}
	outputs, next := f(x, before)
	if len(next) != len(states) {
		Fail("Loop", "the step returned %d states, want %d", len(next), len(states))
	}
	results := slices.Concat(outputs, next)
	d := resultType(results)
	for i, t := range next {
		if !t.typ.Shape.Equal(states[i].typ.Shape) {
			Fail("Loop", "state %d becomes %v, want shape %v as it was", i, t.typ, states[i].typ.Shape)
		}
	}
	l := &op.LoopBody{Steps: steps, Sequences: len(x), States: len(before), Reverse: reverse}
	if keep {
		l.Kept = len(before)
	}
	// An output that is also a state is read from the kept states.
	same := make([]int, len(outputs))
	var own []*Tensor
	for i, t := range outputs {
		same[i] = slices.Index(next, t)
		if same[i] < 0 || !keep {
			same[i] = -1
			own = append(own, t)
		}
	}
	l.Outputs = len(own)
	args := slices.Clone(sequences)
	for _, t := range states {
		args = append(args, t.Cast(d))
	}
	args = append(args, b.write(l, d, before, slices.Concat(own, next))...)
	all := Record(op.Loop, op.Attr{Loop: l}, args...)
	at := l.Sections(typesOf(args))
	for i, t := range outputs {
		var s op.Section
		if k := same[i]; k >= 0 {
			s = rowsAfter(l, at.States[k])
		} else {
			s, at.Outputs = at.Outputs[0], at.Outputs[1:]
		}
		y = append(y, all.part(s).Cast(t.typ.DType))
	}
	for i, t := range next {
		s := at.States[i]
		if i < l.Kept {
			s = lastRow(l, s)
		}
		last = append(last, all.part(s).Cast(t.typ.DType))
	}
	return y, last
}

// rowsBefore are the values of a kept state before each step, rowsAfter after
// it, and lastRow after the one that comes last.
func rowsBefore(l *op.LoopBody, s op.Section) op.Section {
	if l.Reverse {
		return s.Rows(1, l.Steps+1)
	}
	return s.Rows(0, l.Steps)
}

func rowsAfter(l *op.LoopBody, s op.Section) op.Section {
	if l.Reverse {
		return s.Rows(0, l.Steps)
	}
	return s.Rows(1, l.Steps+1)
}

func lastRow(l *op.LoopBody, s op.Section) op.Section {
	if l.Reverse {
		return s.Row(0)
	}
	return s.Row(l.Steps)
}

func typesOf(ts []*Tensor) []op.Type {
	types := make([]op.Type, len(ts))
	for i, t := range ts {
		types[i] = t.typ
	}
	return types
}

// resultType is the type that holds all results of a step.
func resultType(results []*Tensor) dtype.DType {
	d := dtype.Invalid
	for _, t := range results {
		switch {
		case t.err != nil || t.parts != nil:
			Fail("Loop", "a step returned %v, want tensors", t.describe())
		case d == dtype.Invalid:
			d = t.typ.DType
		case t.typ.DType == d:
		case !d.IsFloat() || !t.typ.DType.IsFloat():
			Fail("Loop", "a step returned %v and %v, want floats, or one type", d, t.typ.DType)
		case d == dtype.Float64 || t.typ.DType == dtype.Float64:
			d = dtype.Float64
		default:
			d = dtype.Float32
		}
	}
	if d == dtype.Invalid {
		Fail("Loop", "a step returned nothing, want outputs or states")
	}
	return d
}

// loopBody is a recorded step.
type loopBody struct {
	since      uint64
	leaves     []*Tensor
	number     map[*Tensor]int
	variesMemo map[*Tensor]bool
}

// leaf returns the placeholder of an input of the step.
func (b *loopBody) leaf(t op.Type, scaled any) *Tensor {
	x := &Tensor{op: op.Param, typ: t, seq: sequence.Add(1), trace: current(), argument: -1, scaled: scaled}
	b.leaves = append(b.leaves, x)
	b.variesMemo[x] = true
	return x
}

// varies reports whether t depends on the step.
func (b *loopBody) varies(t *Tensor) bool {
	v, ok := b.variesMemo[t]
	if !ok && t.seq > b.since {
		for _, a := range t.args {
			v = b.varies(a) || v
		}
		b.variesMemo[t] = v
	}
	return v
}

// write writes the operations that the results depend on to l, with states and results
// of type d, and returns the tensors that the step reads from outside.
func (b *loopBody) write(l *op.LoopBody, d dtype.DType, states, results []*Tensor) (captured []*Tensor) {
	if tr := current(); tr != nil {
		for _, v := range tr.assigned {
			if b.varies(v.bound) {
				Fail("Loop", "the step assigns %s what depends on the step; return it as a state", v.name)
			}
		}
	}
	var steps, constants []*Tensor
	seen := map[*Tensor]bool{}
	var find func(t *Tensor)
	find = func(t *Tensor) {
		if seen[t] || slices.Contains(b.leaves, t) {
			return
		}
		seen[t] = true
		switch {
		case b.varies(t):
			steps = append(steps, t)
			for _, a := range t.args {
				find(a)
			}
		case t.op == op.Const && t.data == nil:
			constants = append(constants, t)
		default:
			captured = append(captured, t)
		}
	}
	for _, t := range results {
		find(t)
	}
	for _, list := range [][]*Tensor{steps, constants, captured} {
		slices.SortFunc(list, bySeq)
	}
	for i, t := range slices.Concat(b.leaves, captured) {
		b.number[t] = i
	}
	n := len(b.number)
	add := func(in op.LoopInstr) int {
		l.Code = append(l.Code, in)
		return n + len(l.Code) - 1
	}
	for _, t := range states {
		if t.typ.DType != d {
			b.number[t] = add(op.LoopInstr{Op: op.Cast, Attr: op.Attr{DType: t.typ.DType}, Args: []int{b.number[t]}})
		}
	}
	for _, t := range append(constants, steps...) {
		if t.custom != nil {
			Fail("Loop", "the step uses WithGradient, which a Loop cannot; use Unstack and a loop in Go")
		}
		args := make([]int, len(t.args))
		for i, a := range t.args {
			args[i] = b.number[a]
		}
		b.number[t] = add(op.LoopInstr{Op: t.op, Attr: t.attr, Args: args, Stop: t.stop, Path: t.path})
	}
	for _, t := range results {
		k := b.number[t]
		if t.typ.DType != d {
			k = add(op.LoopInstr{Op: op.Cast, Attr: op.Attr{DType: d}, Args: []int{k}})
		}
		l.Results = append(l.Results, k)
	}
	return captured
}

// eachStep is Loop, an operation for each step: in eager mode.
func eachStep(sequences, states []*Tensor, reverse bool, f func(x, states []*Tensor) (y, next []*Tensor)) (y, last []*Tensor) {
	steps := sequences[0].Dim(0)
	var all [][]*Tensor // by result, in the order of the sequences
	for i := range steps {
		t := i
		if reverse {
			t = steps - 1 - i
		}
		var x []*Tensor
		for _, s := range sequences {
			x = append(x, s.Slice(0, t, t+1).Reshape(s.typ.Shape[1:]...))
		}
		var out []*Tensor
		out, states = f(x, states)
		if all == nil {
			all = make([][]*Tensor, len(out))
		}
		for k, r := range out {
			if all[k] == nil {
				all[k] = make([]*Tensor, steps)
			}
			all[k][t] = r.ExpandDims(0)
		}
	}
	for _, rows := range all {
		y = append(y, Concat(0, rows...))
	}
	return y, states
}

// loopGradient is the gradient of Loop: a Loop in the other direction. Its states are
// the gradients of the states and the summed gradients of the constants; its step
// computes the step of t again from the states before it.
func loopGradient(t *Tensor, parts []partGradient, needs map[*Tensor]bool) []*Tensor {
	l := t.attr.Loop
	if l.Kept < l.States {
		return throughExpansion(t, joinParts(t, parts))
	}
	at := l.Sections(typesOf(t.args))
	shared := t.args[l.Sequences+l.States:]
	// The sequences: those of t, the states before each step, the gradients of outputs
	// and of the states after each step. rooted lists the results that these are
	// gradients of.
	sequences := slices.Clone(t.args[:l.Sequences])
	for _, s := range at.States {
		sequences = append(sequences, t.part(rowsBefore(l, s)))
	}
	states := make([]*Tensor, l.States)
	var rooted []int
	byStep := map[int]*Tensor{}
	for _, p := range parts {
		known := false
		for i, s := range at.States {
			switch {
			case p.is(lastRow(l, s)):
				states[i], known = plus(states[i], p.g), true
			case p.is(rowsAfter(l, s)):
				byStep[l.Outputs+i], known = plus(byStep[l.Outputs+i], p.g), true
			}
			if known {
				break
			}
		}
		for i, s := range at.Outputs {
			if !known && p.is(s) {
				byStep[i], known = plus(byStep[i], p.g), true
			}
		}
		if !known {
			Fail("Gradients", "a part of Loop, %v from element %d on, is none of its results", p.part.typ, p.part.attr.Start[0])
		}
	}
	for i := range l.Outputs + l.States {
		if g := byStep[i]; g != nil {
			rooted = append(rooted, i)
			sequences = append(sequences, g)
		}
	}
	for i, s := range states {
		if s == nil {
			first := t.args[l.Sequences+i].typ
			states[i] = Zeros(first.DType).BroadcastTo(first.Shape...)
		}
	}
	var summed []int
	for i, a := range shared {
		if needs[a] {
			summed = append(summed, i)
			states = append(states, Zeros(a.typ.DType.Accumulator()).BroadcastTo(a.typ.Shape...))
		}
	}
	var wanted []int
	for i, a := range t.args[:l.Sequences] {
		if needs[a] {
			wanted = append(wanted, i)
		}
	}
	y, last := loop(sequences, states, !l.Reverse, false, func(x, states []*Tensor) (y, next []*Tensor) {
		values := slices.Clone(x[:l.Sequences+l.States])
		for _, a := range shared {
			// Do not differentiate past the step's inputs.
			values = append(values, Record(op.Identity, op.Attr{}, a))
		}
		at := slices.Clone(values)
		for _, in := range l.Code {
			args := make([]*Tensor, len(in.Args))
			for i, v := range in.Args {
				args[i] = values[v]
			}
			r := Record(in.Op, in.Attr, args...)
			r.stop = in.Stop
			values = append(values, r)
		}
		var roots, seeds []*Tensor
		for k, i := range rooted {
			roots, seeds = append(roots, values[l.Results[i]]), append(seeds, x[l.Sequences+l.States+k])
		}
		for i, g := range states[:l.States] {
			roots, seeds = append(roots, values[l.Results[l.Outputs+i]]), append(seeds, g)
		}
		grads, _, _ := differentiate(roots, seeds, at, nil, &rematerializer{})
		for i, g := range grads {
			if g == nil {
				g = Zeros(at[i].typ.DType).BroadcastTo(at[i].typ.Shape...)
			}
			grads[i] = g
		}
		for _, i := range wanted {
			y = append(y, grads[i])
		}
		next = slices.Clone(grads[l.Sequences : l.Sequences+l.States])
		for k, i := range summed {
			sum := states[l.States+k]
			next = append(next, sum.Add(grads[l.Sequences+l.States+i].Widen().Cast(sum.typ.DType)))
		}
		return y, next
	})
	grads := make([]*Tensor, len(t.args))
	for k, i := range wanted {
		grads[i] = y[k]
	}
	copy(grads[l.Sequences:], last[:l.States])
	for k, i := range summed {
		grads[l.Sequences+l.States+i] = last[l.States+k].Cast(shared[i].typ.DType)
	}
	return grads
}

// plus is a+b, where nil is zero.
func plus(a, b *Tensor) *Tensor {
	if a == nil {
		return b
	}
	return a.Add(b)
}
