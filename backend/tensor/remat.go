package tensor

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// segment is what Remat recorded, in that order, and its copy in the backward
// pass.
type segment struct {
	tensors []*Tensor
	again   map[*Tensor]*Tensor // nil until a gradient gets here
}

// Remat runs f, which records a part of a model, and returns its result, a
// tensor or a tuple. Gradients compute that part again from its inputs when
// they get to it (gradient checkpointing: Chen et al., "Training Deep Nets with
// Sublinear Memory Cost", 2016; Keras: remat), so that what is computed on the
// way need not be kept from the forward to the backward pass. The numbers are
// the same to the bit, random ones too. Inside another Remat it does nothing.
func Remat(f func() *Tensor) *Tensor {
	since := Mark()
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

// collect makes everything that leads to t and was recorded after since part
// of s.
func (s *segment) collect(t *Tensor, since uint64) {
	if t.seq <= since || len(t.args) == 0 || t.data != nil || t.segment == s {
		return
	}
	t.segment = s // the outermost segment wins
	s.tensors = append(s.tensors, t)
	for _, a := range t.args {
		s.collect(a, since)
	}
}

// add makes r, which records a tensor of s again, part of s too: what it is
// made of must not be kept for it.
func (s *segment) add(r *Tensor) {
	if s != nil && s.again == nil {
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

// recompute returns t, of the segment, as computed again after g is known: the
// gradient that got here first.
func (s *segment) recompute(t, g *Tensor) *Tensor {
	if s.again == nil {
		s.again = make(map[*Tensor]*Tensor, len(s.tensors))
		inside := make(map[*Tensor]bool, len(s.tensors))
		for _, u := range s.tensors {
			inside[u] = true
		}
		for _, u := range s.tensors {
			since := Mark()
			args := slices.Clone(u.args)
			for i, a := range args {
				c := s.again[a]
				if c == nil && !inside[a] && a.op != op.Const {
					// Not sooner, and not taken for the first time's.
					c = a.record(op.Barrier, op.Attr{}, a, g)
					c.scaled, c.gradient = a.scaled, a.gradient
					s.again[a] = c
				}
				if c != nil {
					args[i] = c
				}
			}
			c := u.record(u.op, u.attr, args...)
			c.stop, c.scaled, c.gradient = u.stop, u.scaled, u.gradient
			s.again[u] = c
			if u.path != "" {
				Label(u.path+"/again", since, c)
			}
		}
	}
	return s.again[t]
}
