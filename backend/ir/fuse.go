package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Limits of a fused operation: registers and stack of a kernel that reads all operands
// at once. A chain of scalars costs a call and little else: it may be longer. An
// optimizer adds up a norm of each gradient so.
const (
	maxFusedInputs = 12
	maxFusedCode   = 48
	maxScalarFused = 256 // inputs, and instructions
)

// fusedLimits returns the most inputs and instructions of a fused operation with a result of a shape.
func fusedLimits(s op.Shape) (inputs, code int) {
	if len(s) == 0 {
		return maxScalarFused, maxScalarFused
	}
	return maxFusedInputs, maxFusedCode
}

// fuse merges element-wise operations into one pass over memory. A value joins the
// group of its users if all of them are in one group of its shape and it is not an
// output. No bit changes: every instruction of the body rounds to its own type.
//
// A BroadcastTo of an operand is removed if the element-wise operation broadcasts by
// itself.
func fuse(g *Graph) {
	sinkReshapes(g)
	users := g.users()
	outputs := g.outputs()
	absorbed := map[*Value]bool{}
	// Backwards, so that the users of a value are grouped before it is.
	for _, root := range slices.Backward(g.Values) {
		if absorbed[root] || !fusable(root) {
			continue
		}
		grp := grow(root, users, outputs)
		for _, v := range grp.members[1:] {
			absorbed[v] = true
		}
		grp.emit()
	}
	g.Values = slices.DeleteFunc(g.Values, func(v *Value) bool { return absorbed[v] })
	dropUnused(g, func(v *Value) bool { return v.Op == op.BroadcastTo })
}

func fusable(v *Value) bool { return elementwise(v) && v.Op != op.Fused }

// group is the values that become one Fused value.
type group struct {
	root    *Value
	members []*Value // root first
	in      map[*Value]bool
}

func grow(root *Value, users map[*Value][]*Value, outputs map[*Value]bool) *group {
	grp := &group{root: root, members: []*Value{root}, in: map[*Value]bool{root: true}}
	inside := map[*Value]int{} // how many users of a value are in the group
	mostInputs, mostCode := fusedLimits(root.Type.Shape)
	for i := 0; i < len(grp.members); i++ {
		m := grp.members[i]
		for j, a := range m.Args {
			if slices.Contains(m.Args[:j], a) {
				continue
			}
			inside[a]++
			if inside[a] < len(users[a]) || !fusable(a) || outputs[a] || !a.Type.Shape.Equal(root.Type.Shape) {
				continue
			}
			if len(grp.members) == mostCode {
				continue
			}
			grp.members = append(grp.members, a)
			grp.in[a] = true
			if len(grp.inputs()) > mostInputs {
				grp.members = grp.members[:len(grp.members)-1]
				delete(grp.in, a)
			}
		}
	}
	return grp
}

// inputs lists the arguments of the group, each once.
func (grp *group) inputs() []*Value {
	var list []*Value
	for _, m := range grp.members {
		for _, a := range m.Args {
			if !grp.in[a] && !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	return list
}

// emit makes the root compute the whole group.
func (grp *group) emit() {
	from := grp.unbroadcast(grp.inputs())
	if len(grp.members) == 1 {
		for i, a := range grp.root.Args {
			grp.root.Args[i] = from[a]
		}
		return
	}
	body := &op.Body{}
	var args []*Value
	index := map[*Value]int32{} // of inputs, after removal of BroadcastTo, and of members
	w := walk{seen: map[*Value]bool{}}
	for _, a := range grp.inputs() {
		w.seen[a] = true
		b := from[a]
		if _, ok := index[b]; !ok {
			index[b] = int32(len(args))
			args = append(args, b)
			body.Inputs = append(body.Inputs, b.Type.DType)
		}
	}
	w.visit(grp.root)
	for _, m := range w.order {
		in := op.Instr{Op: m.Op, DType: m.Type.DType}
		for i, a := range m.Args {
			if !grp.in[a] {
				a = from[a]
			}
			in.Args[i] = index[a]
		}
		index[m] = int32(len(args) + len(body.Code))
		body.Code = append(body.Code, in)
	}
	r := grp.root
	r.Op, r.Attr, r.Args = op.Fused, op.Attr{Body: body}, args
}

// unbroadcast maps inputs of the group to the operands of the Fused value: the argument
// of a BroadcastTo, if the other operands still give the result its shape.
func (grp *group) unbroadcast(inputs []*Value) map[*Value]*Value {
	from := make(map[*Value]*Value, len(inputs))
	shapes := make([]op.Shape, len(inputs))
	for i, a := range inputs {
		from[a] = a
		shapes[i] = a.Type.Shape
	}
	for i, a := range inputs {
		if a.Op != op.BroadcastTo {
			continue
		}
		shapes[i] = a.Args[0].Type.Shape
		var all op.Shape
		for _, s := range shapes {
			all, _ = op.Broadcast(all, s) // they broadcast: the group has a shape
		}
		if all.Equal(grp.root.Type.Shape) {
			from[a] = a.Args[0]
		} else {
			shapes[i] = a.Type.Shape
		}
	}
	return from
}

// dropUnused removes values that a pass has left without users.
func dropUnused(g *Graph, which func(*Value) bool) {
	used := g.outputs()
	for _, v := range g.Values {
		for _, a := range v.Args {
			used[a] = true
		}
	}
	g.Values = slices.DeleteFunc(g.Values, func(v *Value) bool { return which(v) && !used[v] })
}
