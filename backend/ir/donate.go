package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// donate decides which outputs overwrite inputs: those for which the caller asks, if
// the graph reads the input, it has the same size, and no other output overwrites it.
//
// An output can be computed directly over its input if it and everything computed from
// it can be computed in place, it reads the old value only element by element, and all
// other users of the old value can come first. Otherwise the output is computed in
// working memory, and an Identity copies it at the end, after the last use of the old
// value.
func donate(g *Graph) {
	g.sort()
	claimed := map[int]bool{}
	for o, p := range g.Donate {
		if p < 0 || g.Params[p] == nil || claimed[p] || g.Params[p].Type.Bytes() != g.Outputs[o].Type.Bytes() {
			continue
		}
		claimed[p] = true
		g.Donated[o] = p
	}
	users := g.users()
	for o, p := range g.Donated {
		if p >= 0 && !(committable(g.Outputs[o], users) && readsInPlace(g.Outputs[o], g.Params[p])) {
			g.copyOutput(o)
		}
	}
	for {
		_, stuck := g.commitOrder()
		if stuck < 0 {
			return
		}
		g.copyOutput(stuck)
	}
}

// committable reports whether v and everything computed from it may run after the point
// of no return.
func committable(v *Value, users map[*Value][]*Value) bool {
	seen := map[*Value]bool{}
	var ok func(v *Value) bool
	ok = func(v *Value) bool {
		if seen[v] {
			return true
		}
		seen[v] = true
		if !updates(v) {
			return false
		}
		for _, u := range users[v] {
			if !ok(u) {
				return false
			}
		}
		return true
	}
	return ok(v)
}

// readsInPlace reports whether v reads p only with v's own shape, if at all: element i
// of p then has no use after element i of v is computed.
func readsInPlace(v, p *Value) bool {
	for i, a := range v.Args {
		if source(a) == p && (!a.Type.Shape.Equal(v.Type.Shape) || !v.inPlace(i)) {
			return false
		}
	}
	return true
}

// source returns the value in whose memory v certainly lies: a Reshape lies in its
// argument.
func source(v *Value) *Value {
	for alias(v) {
		v = v.Args[0]
	}
	return v
}

// copyOutput makes output o an Identity of its value.
func (g *Graph) copyOutput(o int) {
	v := g.Outputs[o]
	g.Outputs[o] = g.add(op.Identity, op.Attr{}, v.Type, v.Path, v)
}

// commitOrder returns the commit phase in a valid order: the outputs that overwrite
// inputs, everything computed from them, and other values that can be computed there.
// Each comes after its arguments, and an overwriting one after the other readers of its
// input. If there is no such order, stuck is an output that is part of a cycle; else it
// is -1.
func (g *Graph) commitOrder() (order []*Value, stuck int) {
	over := map[*Value]int{} // output for each overwriting value
	writer := map[*Value]*Value{}
	for o, p := range g.Donated {
		if p >= 0 {
			over[g.Outputs[o]] = o
			writer[g.Params[p]] = g.Outputs[o]
		}
	}
	before := map[*Value][]*Value{} // within the phase: values that must come first
	var roots []*Value
	for _, v := range g.Values {
		_, in := over[v]
		for _, a := range v.Args {
			_, late := before[a]
			in = in || late
		}
		if in {
			before[v] = nil
			roots = append(roots, v)
		}
	}
	sunk := g.sinkLate(roots)
	for _, v := range sunk {
		before[v] = nil
	}
	phase := append(slices.Clone(roots), sunk...)
	for _, v := range phase {
		for _, a := range v.Args {
			if _, late := before[a]; late {
				before[v] = append(before[v], a)
			}
			if w := writer[source(a)]; w != nil && w != v {
				before[w] = append(before[w], v)
			}
		}
	}
	// Depth first, in the order of the graph; reaching a value that is still waiting
	// closes a cycle.
	done := map[*Value]bool{}
	var waiting []*Value
	var visit func(v *Value) bool
	visit = func(v *Value) bool {
		if done[v] {
			return true
		}
		if i := slices.Index(waiting, v); i >= 0 {
			stuck = g.breakCycle(waiting[i:], over)
			return false
		}
		waiting = append(waiting, v)
		for _, b := range before[v] {
			if !visit(b) {
				return false
			}
		}
		waiting = waiting[:len(waiting)-1]
		done[v] = true
		order = append(order, v)
		return true
	}
	for _, v := range roots {
		if !visit(v) {
			return nil, stuck
		}
	}
	return order, -1
}

// sinkLate lists element-wise values that only the commit phase uses and that keep no
// other memory alive. Computed right before their users they need less memory: for
// example, the new velocities of all weights need not exist at one time. They close no
// cycle, since only other such values come before them in the phase.
func (g *Graph) sinkLate(phase []*Value) (sunk []*Value) {
	in := make(map[*Value]bool, len(phase))
	alive := map[*Value]bool{}
	for _, v := range phase {
		in[v] = true
		for _, a := range v.Args {
			alive[a] = true
		}
	}
	users, outputs := g.users(), g.outputs()
	for _, v := range slices.Backward(g.Values) {
		if in[v] || outputs[v] || !elementwise(v) || len(users[v]) == 0 {
			continue
		}
		if slices.ContainsFunc(users[v], func(u *Value) bool { return !in[u] }) ||
			slices.ContainsFunc(v.Args, func(a *Value) bool { return !alive[a] && a.Op != op.Param && a.Op != op.Const }) {
			continue
		}
		in[v] = true
		sunk = append(sunk, v)
	}
	return sunk
}

// breakCycle picks the output to copy from a cycle of values that wait for each other:
// the smallest that waits for a reader of the input that it overwrites. There is one,
// since arguments form no cycle.
func (g *Graph) breakCycle(circle []*Value, over map[*Value]int) int {
	best := -1
	for i, v := range circle {
		o, ok := over[v]
		if !ok {
			continue
		}
		p := g.Params[g.Donated[o]]
		reader := circle[(i+1)%len(circle)]
		if slices.ContainsFunc(reader.Args, func(a *Value) bool { return source(a) == p }) &&
			(best < 0 || v.Type.Bytes() < g.Outputs[best].Type.Bytes()) {
			best = o
		}
	}
	return best
}
