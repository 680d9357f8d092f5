package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// sinkReshapes changes the shape of element-wise values whose only use is a Reshape if
// another element-wise value reads that, or a contraction of the Reshape's shape is what
// they read. Their arguments are reshaped instead, which costs nothing, and the values
// can be fused. For example, batch normalizations work on matrices and activations on
// images, and the gradient of an activation is the epilogue of the product before it.
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
	once    map[*Value]bool // values whose shape is final
}

// sink gives the argument of r, a Reshape, r's shape, if possible, and with it the values
// that only it uses.
func (s *sinking) sink(r *Value) {
	if r.Op != op.Reshape || s.outputs[r] {
		return
	}
	v, to := r.Args[0], r.Type.Shape
	if !fusable(v) || s.outputs[v] || len(s.users[v]) != 1 {
		return
	}
	members, within := s.within(v)
	useful := slices.ContainsFunc(s.users[r], fusable)
	for _, m := range members {
		full := false // else its shape comes from several operands
		for _, a := range m.Args {
			switch {
			case a.Type.Shape.Size() != to.Size():
				if !fits(a.Type.Shape, m.Type.Shape, to) {
					return
				}
				continue
			case a.Op.Info().Epilogue, a.Op == op.RandomUniform:
				return
			case a.Op == op.Reshape && within[a] == len(s.users[a]):
				c := a.Args[0]
				useful = useful || c.Op.Info().Epilogue && len(s.users[c]) == 1 && c.Type.Shape.Equal(to)
			}
			full = true
		}
		if !full {
			return
		}
	}
	if !useful {
		return
	}
	s.moved = true
	reshaped := map[*Value]*Value{}
	var made []*Value
	for _, m := range members {
		for i, a := range m.Args {
			switch {
			case slices.Contains(members, a):
				continue
			case reshaped[a] != nil:
			case a.Type.Shape.Size() == to.Size():
				reshaped[a] = s.reshape(a, to, m.Path)
				made = append(made, reshaped[a])
			case len(a.Type.Shape) > len(to):
				reshaped[a] = s.reshape(a, trimmed(a.Type.Shape), m.Path)
			default:
				continue
			}
			s.reads(m, a, reshaped[a])
			m.Args[i] = reshaped[a]
		}
	}
	for _, m := range members {
		m.Type.Shape = to
	}
	for _, u := range s.users[r] {
		for i, a := range u.Args {
			if a == r {
				u.Args[i] = v
			}
		}
	}
	s.users[v], s.users[r] = s.users[r], nil
	for _, n := range made {
		s.sink(n)
	}
}

// within lists v and the values that only those in the list use, and counts how many of
// them use a value.
func (s *sinking) within(v *Value) (list []*Value, count map[*Value]int) {
	list, count = []*Value{v}, map[*Value]int{}
	for i := 0; i < len(list); i++ {
		m := list[i]
		for j, a := range m.Args {
			if slices.Contains(m.Args[:j], a) {
				continue
			}
			count[a]++
			if count[a] == len(s.users[a]) && fusable(a) && !s.outputs[a] && a.Type.Shape.Equal(v.Type.Shape) {
				list = append(list, a)
			}
		}
	}
	return list, count
}

// reads records that user reads b instead of a.
func (s *sinking) reads(user, a, b *Value) {
	if a == b {
		return
	}
	s.users[a] = slices.DeleteFunc(slices.Clone(s.users[a]), func(u *Value) bool { return u == user })
	if !slices.Contains(s.users[b], user) {
		s.users[b] = append(s.users[b], user)
	}
}

// reshape returns a in another shape.
func (s *sinking) reshape(a *Value, to op.Shape, path string) *Value {
	for !a.Type.Shape.Equal(to) && a.Op == op.Reshape {
		a = a.Args[0]
	}
	if a.Type.Shape.Equal(to) {
		return a
	}
	return s.add(op.Reshape, to, path, a)
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
