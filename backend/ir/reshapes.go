package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// sinkReshapes changes the shape of an element-wise value whose only use is a Reshape
// that another element-wise value reads. Its arguments are reshaped instead, which
// costs nothing, and the two values can be fused. For example, batch normalizations
// work on matrices and activations on images.
//
// Readers of a contraction are left alone, since they may become its epilogue, and so
// are readers of random numbers, which may be fused into them.
func sinkReshapes(g *Graph) {
	g.sort()
	s := sinking{g: g, users: g.users(), outputs: g.outputs()}
	for _, v := range g.Values {
		s.next = max(s.next, v.ID+1)
	}
	for _, r := range slices.Backward(slices.Clone(g.Values)) {
		s.sink(r)
	}
	if !s.moved {
		return
	}
	g.sort()
	dropUnused(g, func(v *Value) bool { return v.Op == op.Reshape })
	dropUnused(g, func(v *Value) bool { return v.Op == op.Reshape }) // of Reshapes
}

type sinking struct {
	g       *Graph
	users   map[*Value][]*Value
	outputs map[*Value]bool
	next    int // ID
	moved   bool
}

// sink gives the argument of r, a Reshape, r's shape, if possible.
func (s *sinking) sink(r *Value) {
	if r.Op != op.Reshape || s.outputs[r] || !slices.ContainsFunc(s.users[r], fusable) {
		return
	}
	v := r.Args[0]
	if !fusable(v) || s.outputs[v] || len(s.users[v]) != 1 {
		return
	}
	to := r.Type.Shape
	if !s.sinks(v, to) {
		return
	}
	s.moved = true
	var reshaped []*Value
	from := slices.Clone(v.Args)
	for i, a := range from {
		switch {
		case slices.Index(from, a) < i:
			v.Args[i] = v.Args[slices.Index(from, a)]
			continue
		case a.Type.Shape.Size() == to.Size():
			v.Args[i] = s.reshape(a, to, v)
		case len(a.Type.Shape) > len(to):
			v.Args[i] = s.reshape(a, trimmed(a.Type.Shape), v)
		}
		if v.Args[i] != a {
			reshaped = append(reshaped, v.Args[i])
		}
	}
	v.Type.Shape = to
	for _, u := range s.users[r] {
		for i, a := range u.Args {
			if a == r {
				u.Args[i] = v
			}
		}
	}
	s.users[v], s.users[r] = s.users[r], nil
	for _, a := range reshaped {
		s.sink(a)
	}
}

// sinks reports whether v, and the values to be fused with it, can have another shape.
func (s *sinking) sinks(v *Value, to op.Shape) bool {
	full := false
	for _, a := range v.Args {
		switch {
		case a.Type.Shape.Size() != to.Size():
			if !fits(a.Type.Shape, v.Type.Shape, to) {
				return false
			}
			continue
		case a.Op.Info().Epilogue, a.Op == op.RandomUniform:
			return false
		case fusable(a) && !s.outputs[a] && len(s.users[a]) == 1 && !s.sinks(a, to):
			return false
		}
		full = true
	}
	return full // else its shape comes from several operands
}

// reshape returns a in another shape for user, which has read a so far.
func (s *sinking) reshape(a *Value, to op.Shape, user *Value) *Value {
	if a.Type.Shape.Equal(to) {
		return a
	}
	from := a
	for from.Op == op.Reshape {
		from = from.Args[0]
	}
	s.users[a] = slices.DeleteFunc(slices.Clone(s.users[a]), func(u *Value) bool { return u == user })
	if from.Type.Shape.Equal(to) {
		s.users[from] = append(s.users[from], user)
		return from
	}
	n := &Value{ID: s.next, Op: op.Reshape, Attr: op.Attr{Dims: to}, Type: op.Type{DType: a.Type.DType, Shape: to}, Args: []*Value{from}, Path: user.Path}
	s.next++
	s.g.Values = append(s.g.Values, n)
	s.users[n] = []*Value{user}
	s.users[from] = append(s.users[from], n)
	return n
}

// fits reports whether an operand that broadcasts to one shape broadcasts to another in
// the same way: both end with the operand's axes that are not 1.
func fits(operand, from, to op.Shape) bool {
	n := len(trimmed(operand))
	return n <= len(from) && n <= len(to) && from[len(from)-n:].Equal(to[len(to)-n:])
}

// trimmed is a shape without leading axes of 1.
func trimmed(s op.Shape) op.Shape {
	for len(s) > 0 && s[0] == 1 {
		s = s[1:]
	}
	return s
}
