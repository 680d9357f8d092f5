package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Limits of a Fused value with several outputs. Scalars, which updates have many of,
// cost a kernel little.
const (
	maxMultiInputs = 24
	maxMultiCode   = 96
)

// fuseOutputs is multi-output fusion: element-wise values of one shape that read
// the same memory or each other become one Fused value with several outputs, for
// example an optimizer's slots, the weight and its average. It works on the
// scheduled order. A value may be delayed to a later one if no value between the
// two reads it or overwrites its arguments; the later one then computes both.
// Values that only members of the group read are not stored. Every other output
// but the last is an ExtraOutput, directly after the Fused value.
//
// Values are delayed over element-wise values only, so that no large operand
// stays alive during a product.
func fuseOutputs(g *Graph) {
	j := multiFuser{
		users:       g.users(),
		outputs:     g.outputs(),
		overwriters: map[*Value]*Value{},
		position:    make(map[*Value]int, len(g.Values)),
		taken:       map[*Value]bool{},
	}
	for o, p := range g.Donated {
		if p >= 0 {
			j.overwriters[g.Params[p]] = g.Outputs[o]
		}
	}
	first := make([]int, len(g.Values)) // the first value that may be delayed to value i
	for i, v := range g.Values {
		j.position[v] = i
		if i > 0 {
			first[i] = first[i-1]
			if w := g.Values[i-1]; !elementwise(w) && w.Op != op.Reshape && w.Op != op.Param && w.Op != op.Const {
				first[i] = i
			}
		}
	}
	extra := map[*Value][]*Value{} // outputs
	for i, root := range slices.Backward(g.Values) {
		if !multiFusable(root) || j.taken[root] {
			continue
		}
		if members := j.gather(root, first[i]); len(members) > 1 {
			extra[root] = j.emit(members)
		}
	}
	var order []*Value
	for _, v := range g.Values {
		if !j.taken[v] {
			order = append(append(order, v), extra[v]...)
		}
	}
	g.Values = order
	g.settleCommit()
}

func multiFusable(v *Value) bool { return elementwise(v) && !viewable(v) && v.Op != op.ExtraOutput }

type multiFuser struct {
	users       map[*Value][]*Value
	outputs     map[*Value]bool
	overwriters map[*Value]*Value // of Params
	position    map[*Value]int
	taken       map[*Value]bool // fused into a later value
}

// gather lists the values that root is to compute, in order, itself last: of the values
// from position first on that are related to it, as many as can be delayed to it. A
// value may be related to root only through an earlier one, which in turn can be
// delayed only if the value is; so relations are determined first.
func (j *multiFuser) gather(root *Value, first int) []*Value {
	members := j.related(root, func(v *Value) bool {
		return j.position[v] >= first && multiFusable(v) && !j.taken[v] && v.Type.Shape.Equal(root.Type.Shape)
	})
	for {
		waiting := j.waiting(members)
		in := make(map[*Value]bool, len(waiting))
		for _, v := range waiting {
			in[v] = true
		}
		// The removed values may have been all that related others to root.
		connected := j.related(root, func(v *Value) bool { return in[v] })
		if len(connected) == len(members) {
			return members
		}
		members = connected
	}
}

// related lists, in order, the eligible values up to root that are related to root,
// directly or through each other: one reads the other, or both read the same memory of
// their shape.
func (j *multiFuser) related(root *Value, eligible func(*Value) bool) []*Value {
	list := []*Value{root}
	seen := map[*Value]bool{root: true}
	visit := func(v *Value) {
		if !seen[v] && j.position[v] < j.position[root] && eligible(v) {
			list = append(list, v)
			seen[v] = true
		}
	}
	readers := map[*Value]bool{} // values whose readers were visited
	visitReaders := func(v *Value) {
		if !readers[v] {
			readers[v] = true
			for _, u := range j.users[v] {
				visit(u)
			}
		}
	}
	for i := 0; i < len(list); i++ {
		v := list[i]
		visitReaders(v)
		for _, a := range v.Args {
			visit(a)
			if a.Type.Shape.Equal(root.Type.Shape) {
				visitReaders(a)
			}
		}
	}
	slices.SortFunc(list, func(a, b *Value) int { return j.position[a] - j.position[b] })
	return list
}

// waiting lists the members that can be computed at the position of the last one, as
// many as the limits of a Fused value allow.
func (j *multiFuser) waiting(members []*Value) []*Value {
	root := members[len(members)-1]
	list := []*Value{root} // the last first
	in := map[*Value]bool{root: true}
	code := len(root.bodyOf().Code)
	reads := map[*Value]bool{} // arguments of the list from outside
	for _, a := range root.Args {
		reads[a] = true
	}
	// between reports whether u is computed before root and separately.
	between := func(u *Value) bool { return !in[u] && !j.taken[u] && j.position[u] < j.position[root] }
	for _, v := range slices.Backward(members[:len(members)-1]) {
		if slices.ContainsFunc(j.users[v], between) || slices.ContainsFunc(v.Args, func(a *Value) bool {
			u := j.overwriters[source(a)]
			return u != nil && u != v && between(u)
		}) {
			continue
		}
		args := inputs([]*Value{v})
		n, m := code+len(v.bodyOf().Code), len(reads)
		if reads[v] {
			m--
		}
		for _, a := range args {
			if !reads[a] {
				m++
			}
		}
		if n > maxMultiCode || m > maxMultiInputs {
			continue
		}
		list, code, in[v] = append(list, v), n, true
		delete(reads, v)
		for _, a := range args {
			reads[a] = true
		}
	}
	slices.Reverse(list)
	return list
}

// inputs lists the arguments of members from outside, each once.
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

// emit makes the last member compute all. It returns its ExtraOutputs.
func (j *multiFuser) emit(members []*Value) (extra []*Value) {
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
			body.ExtraOutputs = append(body.ExtraOutputs, register[m])
			extra = append(extra, m)
		}
	}
	for i, p := range extra {
		p.Op, p.Attr, p.Args = op.ExtraOutput, op.Attr{Index: i, DType: p.Type.DType}, []*Value{root}
	}
	root.Op, root.Attr, root.Args = op.Fused, op.Attr{Body: body}, args
	return extra
}

// results lists the values that the kernel of value i writes: itself and its
// ExtraOutputs, which follow it, or the Results of a split value.
func (g *Graph) results(i int) []*Value {
	n := 1
	switch v := g.Values[i]; {
	case v.Op == op.Fused:
		n += len(v.Attr.Body.ExtraOutputs)
	case v.Split:
		var all []*Value
		for _, u := range g.Values[i+1:] {
			if u.hasResultSlot() && u.Args[0] == v {
				all = append(all, u)
			}
		}
		return all
	}
	return g.Values[i : i+n]
}
