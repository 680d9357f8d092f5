package tensor

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// segment has the tensors that one call of Remat recorded, in order, and their
// copies in the backward pass.
type segment struct {
	tensors    []*Tensor
	recomputed map[*Tensor]*Tensor // nil until a gradient reaches the segment
	copies     []*Tensor           // those of recomputed, in order
}

// Remat runs f, which records a part of a model, and returns its result, a
// tensor or a tuple. Gradients recompute that part from its inputs (gradient
// checkpointing: Chen et al., "Training Deep Nets with Sublinear Memory Cost",
// 2016; Keras: remat), so its inner values are not kept from the forward to the
// backward pass. Results have the same bits, random numbers included. Inside
// another Remat it has no effect.
func Remat(f func() *Tensor) *Tensor {
	since := SequencePoint()
	y := f()
	if y.err != nil {
		return y
	}
	s := &segment{}
	for _, p := range y.Unpack() {
		s.collect(p, since)
	}
	slices.SortFunc(s.tensors, bySeq)
	return y
}

// collect adds t, and the tensors that it is computed from and that were recorded
// after since, to s.
func (s *segment) collect(t *Tensor, since uint64) {
	if t.seq <= since || len(t.args) == 0 || t.data != nil || t.segment == s {
		return
	}
	t.segment = s // the outermost segment wins
	s.tensors = append(s.tensors, t)
	for _, a := range t.args {
		s.collect(a, since)
	}
	if t.custom != nil { // a gradient may go to what t is not computed from, as that of ShardMean
		for _, a := range t.custom.args {
			s.collect(a, since)
		}
	}
}

// add adds r, a second recording of a tensor of s, to s, so that r's operands are
// not saved for it.
func (s *segment) add(r *Tensor) {
	if s != nil && s.recomputed == nil {
		r.segment = s
		s.tensors = append(s.tensors, r)
	}
}

// bySeq puts tensors into the order of their recording.
func bySeq(a, b *Tensor) int {
	if a.seq < b.seq {
		return -1
	}
	return 1
}

// recompute returns the copy of t. The copies are computed after g, the first
// gradient that reaches the segment.
func (s *segment) recompute(t, g *Tensor) *Tensor {
	if s.recomputed == nil {
		s.recomputed = make(map[*Tensor]*Tensor, len(s.tensors))
		inside := make(map[*Tensor]bool, len(s.tensors))
		for _, u := range s.tensors {
			inside[u] = true
		}
		for _, u := range s.tensors {
			since := SequencePoint()
			args := slices.Clone(u.args)
			for i, a := range args {
				c := s.recomputed[a]
				if c == nil && !inside[a] && a.op != op.Const {
					// It delays the copy, and common subexpressions do not merge it.
					c = a.record(op.Barrier, op.Attr{}, a, g)
					c.scaled, c.gradient = a.scaled, a.gradient
					s.recomputed[a] = c
					s.copies = append(s.copies, c)
				}
				if c != nil {
					args[i] = c
				}
			}
			c := u.record(u.op, u.attr, args...)
			c.stop, c.scaled, c.gradient = u.stop, u.scaled, u.gradient
			s.recomputed[u] = c
			s.copies = append(s.copies, c)
			if u.path != "" {
				Label(u.path+"/remat", since, c)
			}
		}
	}
	return s.recomputed[t]
}
