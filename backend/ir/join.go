package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Limits of a Fused value with several results. Scalars, which updates have
// many of, cost a kernel little.
const (
	maxJoinedInputs = 24
	maxJoinedCode   = 96
)

// join makes one pass over memory of element-wise values that read the same
// memory or each other: an optimizer's slots, the weight and its average. It
// works on the settled order. A value may wait for a later one of its shape
// when nothing between the two reads it or overwrites what it reads; the later
// one then computes both. What only the joined values read is not stored at
// all; each other result but the last is an Extra, right behind the Fused value.
//
// Nothing waits for longer than over element-wise values, so that no large
// operand is kept alive during a product.
func join(g *Graph) {
	j := joiner{
		users:    g.users(),
		outputs:  g.outputs(),
		replaces: map[*Value]*Value{},
		taken:    map[*Value]bool{},
	}
	for o, p := range g.Donated {
		if p >= 0 {
			j.replaces[g.Outputs[o]] = g.Params[p]
		}
	}
	parts := map[*Value][]*Value{}
	for i, root := range slices.Backward(g.Values) {
		if !joinable(root) || j.taken[root] {
			continue
		}
		if members := j.gather(g.Values[:i+1]); len(members) > 1 {
			parts[root] = j.emit(members)
		}
	}
	var order []*Value
	for _, v := range g.Values {
		if !j.taken[v] {
			order = append(append(order, v), parts[v]...)
		}
	}
	g.Values = order
	g.settleCommit()
}

func joinable(v *Value) bool { return elementwise(v) && !viewable(v) && v.Op != op.Extra }

type joiner struct {
	users    map[*Value][]*Value
	outputs  map[*Value]bool
	replaces map[*Value]*Value // the Param that a value overwrites
	taken    map[*Value]bool   // part of a later value
}

// gather lists what the last of values is to compute, in order, itself last.
func (j *joiner) gather(values []*Value) []*Value {
	root := values[len(values)-1]
	members := []*Value{root}
	code := len(root.bodyOf().Code)
	var between []*Value
	for _, v := range slices.Backward(values[:len(values)-1]) {
		switch {
		case j.taken[v], v.Op == op.Param, v.Op == op.Const:
			continue
		case !elementwise(v) && v.Op != op.Reshape:
			return members
		}
		if joinable(v) && v.Type.Shape.Equal(root.Type.Shape) && related(v, members) && j.mayWait(v, between) {
			more := append([]*Value{v}, members...)
			if n := code + len(v.bodyOf().Code); n <= maxJoinedCode && len(inputs(more)) <= maxJoinedInputs {
				members, code = more, n
				continue
			}
		}
		between = append(between, v)
	}
	return members
}

// related reports whether v is read by one of members, or reads memory of its
// own shape that one of them reads too.
func related(v *Value, members []*Value) bool {
	for _, m := range members {
		for _, a := range m.Args {
			if a == v || a.Type.Shape.Equal(v.Type.Shape) && slices.Contains(v.Args, a) {
				return true
			}
		}
	}
	return false
}

// mayWait reports whether v can be computed after values that come after it.
func (j *joiner) mayWait(v *Value, after []*Value) bool {
	return !slices.ContainsFunc(after, func(u *Value) bool {
		if slices.Contains(u.Args, v) {
			return true
		}
		p := j.replaces[u]
		return p != nil && slices.ContainsFunc(v.Args, func(a *Value) bool { return source(a) == p })
	})
}

// inputs lists what members read of others, each once.
func inputs(members []*Value) []*Value {
	var list []*Value
	for _, m := range members {
		for _, a := range m.Args {
			if !slices.Contains(members, a) && !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list
}

// emit makes the last of members compute all. It returns its Extras.
func (j *joiner) emit(members []*Value) (parts []*Value) {
	root := members[len(members)-1]
	args := inputs(members)
	body := &op.Body{}
	register := map[*Value]int32{}
	for i, a := range args {
		register[a] = int32(i)
		body.Inputs = append(body.Inputs, a.Type.DType)
	}
	for _, m := range members {
		own := m.bodyOf()
		base := int32(len(args)+len(body.Code)) - int32(len(own.Inputs))
		for _, in := range own.Code {
			for k, a := range in.Args[:in.Op.Info().Args] {
				if int(a) < len(own.Inputs) {
					in.Args[k] = register[m.Args[a]]
				} else {
					in.Args[k] = a + base
				}
			}
			body.Code = append(body.Code, in)
		}
		register[m] = int32(len(args) + len(body.Code) - 1)
		if m == root {
			break
		}
		j.taken[m] = true
		outside := func(u *Value) bool { return !slices.Contains(members, u) }
		if j.outputs[m] || slices.ContainsFunc(j.users[m], outside) {
			body.Extra = append(body.Extra, register[m])
			parts = append(parts, m)
		}
	}
	for i, p := range parts {
		p.Op, p.Attr, p.Args = op.Extra, op.Attr{Index: i, DType: p.Type.DType}, []*Value{root}
	}
	root.Op, root.Attr, root.Args = op.Fused, op.Attr{Body: body}, args
	return parts
}

// results lists what is computed with v: v, and its Extras, which follow it.
func (g *Graph) results(i int) []*Value {
	n := 1
	if v := g.Values[i]; v.Op == op.Fused {
		n += len(v.Attr.Body.Extra)
	}
	return g.Values[i : i+n]
}
