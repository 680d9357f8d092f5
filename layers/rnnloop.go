package layers

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// loop processes seq with any cell.
func (r *recurrent) loop(p Pass, seq *tensor.Tensor, states []*tensor.Tensor, mask *tensor.Tensor) (all, last *tensor.Tensor, next []*tensor.Tensor) {
	n := seq.Dim(1)
	if n == tensor.Unknown && !seq.Symbolic() || n == 0 {
		tensor.Fail("Call", "got sequence %v, want at least one step", seq.Type())
	}
	batch := seq.Dim(0)
	if len(states) == 0 {
		for _, s := range r.shapes {
			states = append(states, tensor.Zeros(seq.DType()).BroadcastTo(append(Shape{batch}, s...)...))
		}
	}
	if s, ok := r.cell.(sequenceCell); ok {
		s.begin()
		defer s.end()
	}
	if seq.Symbolic() { // one step tells the types of all
		x := seq.Slice(1, 0, 1).Reshape(append(Shape{batch}, r.features...)...)
		y := Apply(r.cell, p, tensor.Tuple(append([]*tensor.Tensor{x}, states...)...)).Unpack()
		return y[0].ExpandDims(0).BroadcastTo(append(Shape{n}, y[0].Shape()...)...), y[0], y[1:]
	}
	if !r.unroll && steady(r.cell) && seq.Shape().Known() {
		var losses []*tensor.Tensor
		q := p
		if p.losses != nil {
			q = p.Collect(&losses)
		}
		if all, last, next = r.once(q, seq, states, mask); len(losses) == 0 {
			return all, last, next
		}
		// Losses of steps are not among the results of a loop.
	}
	return r.unrolled(p, seq, states, mask)
}

// steady reports whether steps of a cell can be recorded once for all of them:
// they assign no variables but the states of random numbers that are drawn
// once for a sequence.
func steady(c Cell) bool {
	b := c.base()
	if hasStatistics(c) {
		return false
	}
	return len(b.remembered()) == 0 && (len(b.RandomStates()) == 0 || drawsOnce(c))
}

// hasStatistics reports whether the forward pass of l assigns weights.
func hasStatistics(l Layer) bool {
	return slices.ContainsFunc(l.base().Weights(), func(w *Weight) bool { return w.Statistic() })
}

// drawsOnce reports whether all random numbers of a cell are drawn once for a
// sequence.
func drawsOnce(c Cell) bool {
	if s, ok := c.(*StackedRNNCells); ok {
		return !slices.ContainsFunc(s.cells, func(c Cell) bool { return !drawsOnce(c) && len(c.base().RandomStates()) > 0 })
	}
	_, ok := c.(sequenceCell)
	return ok
}

// once records a step once, for a loop in the graph.
func (r *recurrent) once(p Pass, seq *tensor.Tensor, states []*tensor.Tensor, mask *tensor.Tensor) (all, last *tensor.Tensor, next []*tensor.Tensor) {
	sequences := []*tensor.Tensor{swapFirst(seq)}
	if mask != nil {
		sequences = append(sequences, mask)
	}
	same := -1 // the state that is the output
	y, next := tensor.Loop(sequences, states, r.backwards, func(x, states []*tensor.Tensor) (y, next []*tensor.Tensor) {
		out := Apply(r.cell, p, tensor.Tuple(append([]*tensor.Tensor{x[0]}, states...)...)).Unpack()
		y, next = out[:1], slices.Clone(out[1:])
		r.checkStates(next)
		same = slices.Index(next, y[0])
		if mask != nil {
			for i := range next {
				next[i] = tensor.Where(spreadMask(x[1], next[i]), next[i], states[i])
			}
		}
		return y, next
	})
	all = y[0]
	switch {
	case mask == nil && same >= 0:
		return all, next[same], next
	case mask != nil && r.zeroOutput:
		all = tensor.Where(spreadMask(mask, all), all, tensor.Scalar(all.DType(), 0))
	case mask != nil: // the output before, or zero before the first one
		none := tensor.Zeros(all.DType()).BroadcastTo(all.Shape()[1:]...)
		y, o := tensor.Loop([]*tensor.Tensor{all, mask}, []*tensor.Tensor{none}, r.backwards, func(x, old []*tensor.Tensor) (y, next []*tensor.Tensor) {
			y = []*tensor.Tensor{tensor.Where(spreadMask(x[1], x[0]), x[0], old[0])}
			return y, y
		})
		return y[0], o[0], next
	}
	end := all.Dim(0) - 1
	if r.backwards {
		end = 0
	}
	return all, all.Slice(0, end, end+1).Reshape(all.Shape()[1:]...), next
}

// checkStates checks the number of states that the cell returned.
func (r *recurrent) checkStates(next []*tensor.Tensor) {
	if len(next) != len(r.shapes) {
		tensor.Fail("Call", "the cell returned %d states, want %d", len(next), len(r.shapes))
	}
}

// unrolled records every step.
func (r *recurrent) unrolled(p Pass, seq *tensor.Tensor, states []*tensor.Tensor, mask *tensor.Tensor) (all, last *tensor.Tensor, next []*tensor.Tensor) {
	n, batch := seq.Dim(1), seq.Dim(0)
	xs := swapFirst(seq).Unstack()
	var keeps []*tensor.Tensor
	if mask != nil {
		for i := range xs {
			keeps = append(keeps, mask.Slice(0, i, i+1).Reshape(batch))
		}
	}
	out := make([]*tensor.Tensor, n)
	for k := range out {
		i := k
		if r.backwards {
			i = n - 1 - k
		}
		y := Apply(r.cell, p, tensor.Tuple(append([]*tensor.Tensor{xs[i]}, states...)...)).Unpack()
		next = y[1:]
		r.checkStates(next)
		out[i] = y[0]
		if mask != nil {
			old := tensor.Scalar(y[0].DType(), 0)
			if last != nil && !r.zeroOutput {
				old = last
			}
			out[i] = tensor.Where(spreadMask(keeps[i], y[0]), y[0], old)
			next = slices.Clone(next)
			for s := range next {
				next[s] = tensor.Where(spreadMask(keeps[i], next[s]), next[s], states[s])
			}
		}
		states, last = next, out[i]
	}
	for i := range out {
		out[i] = out[i].ExpandDims(0)
	}
	return tensor.Concat(0, out...), last, next
}
