package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// moveReshapes moves a Reshape of a contraction behind the element-wise values that read it:
// they are computed in the contraction's shape, and their results are reshaped. So they can
// become its epilogue. For example, dense layers multiply matrices, and the residual sum and the
// activation behind them work on sequences.
//
// What it adds are Reshapes, which cost nothing. Results of 16 bits are left alone: chains of
// operations behind them are slower as epilogues, which round the sums first, than as passes.
// Programs that overwrite inputs, steps of trainings, are left alone, too: BERT's needs up to a
// sixth more memory when the casts of what it keeps for gradients are moved.
func moveReshapes(g *Graph) {
	if slices.ContainsFunc(g.Donate, func(i int) bool { return i >= 0 }) {
		return
	}
	g.sort()
	s := sinking{g: g, users: g.users(), outputs: g.outputs(), once: map[*Value]bool{}}
	for _, v := range g.Values {
		s.next = max(s.next, v.ID+1)
	}
	for list := g.Values; len(list) > 0; {
		before := len(g.Values)
		for _, r := range list {
			s.move(r)
		}
		list = slices.Clone(g.Values[before:]) // the Reshapes of results
	}
	if !s.moved {
		return
	}
	for _, v := range g.Values {
		for i, a := range v.Args {
			v.Args[i] = plain(a)
		}
	}
	g.sort()
	for dropped := -1; dropped != len(g.Values); {
		dropped = len(g.Values)
		dropUnused(g, func(v *Value) bool { return v.Op == op.Reshape || v.Op == op.BroadcastTo })
	}
}

// plain returns a, or if it is a Reshape of a value of its own shape, that value.
func plain(a *Value) *Value {
	for b := a; b.Op == op.Reshape; {
		if b = b.Args[0]; b.Type.Shape.Equal(a.Type.Shape) {
			return plain(b)
		}
	}
	return a
}

// move moves r, a Reshape, behind all that reads it, if that is element-wise and r is what
// a contraction, or an epilogue of one, is read by. It moves r behind a value once: the value
// may read contractions of several shapes.
func (s *sinking) move(r *Value) {
	if r.Op != op.Reshape || s.outputs[r] || len(s.users[r]) == 0 {
		return
	}
	v, from := r.Args[0], r.Type.Shape
	for v.Op == op.Reshape && !s.outputs[v] && len(s.users[v]) == 1 {
		v = v.Args[0]
	}
	to := v.Type.Shape
	if s.outputs[v] || len(s.users[v]) != 1 || !s.ofContraction(v) {
		return
	}
	for _, u := range s.users[r] {
		if !fusable(u) || s.once[u] || s.outputs[u] || !u.Type.Shape.Equal(from) || slices.ContainsFunc(u.Args, func(a *Value) bool { return a != r && !s.fitsTo(a, from, to) }) {
			return
		}
	}
	s.moved = true
	for _, u := range slices.Clone(s.users[r]) {
		reshaped := map[*Value]*Value{}
		for i, a := range u.Args {
			if reshaped[a] == nil {
				reshaped[a] = s.in(a, from, to, u.Path)
				s.reads(u, a, reshaped[a])
				s.drop(a)
			}
			u.Args[i] = reshaped[a]
		}
		u.Type.Shape, s.once[u] = to, true
		users := s.users[u]
		s.users[u] = nil
		n := s.reshape(u, from, u.Path)
		for _, w := range users {
			for i, a := range w.Args {
				if a == u {
					w.Args[i] = n
				}
			}
		}
		s.users[n] = users
	}
	s.drop(r)
}

// drop forgets that a reads its argument, if it is a Reshape that nothing reads any more.
func (s *sinking) drop(a *Value) {
	if a.Op == op.Reshape && len(s.users[a]) == 0 && !s.outputs[a] {
		of := a.Args[0]
		s.users[of] = slices.DeleteFunc(slices.Clone(s.users[of]), func(u *Value) bool { return u == a })
		s.drop(of)
	}
}

// ofContraction reports whether v may be the epilogue of a contraction, or is one: whether it is
// computed from one by values that nothing else reads.
func (s *sinking) ofContraction(v *Value) bool {
	if !fusable(v) {
		return v.Op.Info().Epilogue && !v.Type.DType.Is16()
	}
	chain := []*Value{v}
	for i := 0; i < len(chain) && len(chain) <= maxFusedCode; i++ {
		if v = chain[i]; v.Op.Info().Epilogue {
			return !v.Type.DType.Is16()
		}
		for _, a := range v.Args {
			if (a.Op.Info().Epilogue || fusable(a)) && !s.outputs[a] && a.Type.Shape.Equal(v.Type.Shape) && !slices.Contains(chain, a) &&
				!slices.ContainsFunc(s.users[a], func(u *Value) bool { return !slices.Contains(chain, u) }) {
				chain = append(chain, a)
			}
		}
	}
	return false
}

// fitsTo reports whether in returns an operand for a.
func (s *sinking) fitsTo(a *Value, from, to op.Shape) bool {
	switch n := a.Type.Shape.Size(); {
	case n == 1, fits(a.Type.Shape, from, to):
		return true
	case a.Op == op.BroadcastTo && n == from.Size():
		return s.fitsTo(a.Args[0], from, to)
	case n == from.Size():
		// What would be fused with its reader must go along.
		return !fusable(a) || len(s.users[a]) > 1 || !slices.ContainsFunc(a.Args, func(b *Value) bool { return !s.fitsTo(b, from, to) })
	}
	return tail(a.Type.Shape, from, to) != nil
}

// in returns a, an operand of an element-wise value of shape from, as one of a value of shape to.
func (s *sinking) in(a *Value, from, to op.Shape, path string) *Value {
	shape := a.Type.Shape
	switch n := shape.Size(); {
	case a.Op == op.BroadcastTo && n == from.Size() && n > 1:
		base := s.in(a.Args[0], from, to, path)
		return s.add(op.BroadcastTo, to, path, base)
	case n == from.Size():
		return s.reshape(a, to, path)
	case fits(shape, from, to), n == 1:
		if len(shape) > len(to) {
			return s.reshape(a, trimmed(shape), path)
		}
		return a
	}
	return s.reshape(a, tail(shape, from, to), path)
}

// tail returns the last axes of shape to that have the elements of an operand, which must be the
// last axes of shape from, or nil.
func tail(operand, from, to op.Shape) op.Shape {
	operand = trimmed(operand)
	if n := len(operand); n > len(from) || !from[len(from)-n:].Equal(operand) {
		return nil
	}
	for i := range to {
		if to[i:].Size() == operand.Size() {
			return to[i:]
		}
	}
	return nil
}

// add adds a value of a shape with the type of its argument.
func (s *sinking) add(c op.Code, shape op.Shape, path string, a *Value) *Value {
	n := &Value{ID: s.next, Op: c, Attr: op.Attr{Dims: shape}, Type: op.Type{DType: a.Type.DType, Shape: shape}, Args: []*Value{a}, Path: path}
	s.next++
	s.g.Values = append(s.g.Values, n)
	s.users[a] = append(s.users[a], n)
	return n
}
