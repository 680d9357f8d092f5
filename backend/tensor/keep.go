package tensor

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// keeping decides what a backward pass keeps of the forward pass. Gradient
// rules name whatever forward value is handy: of a gelu in 16 bits, four
// float32 ones. But most of them are element-wise functions of a few others,
// and cost less to compute again, fused into the backward pass, than to keep.
// What is kept is the set of least bytes from which the rest follows: a minimum
// cut between what must be computed once (products, reductions, random numbers)
// and what the rules name (Jain et al., "Checkmate", 2020, and PyTorch's
// min-cut partitioner have the idea; here only element-wise operations are
// computed twice). No bit changes: the operations are the same.
type keeping struct {
	start    uint64              // forward tensors were recorded until then
	backward []*Tensor           // what was recorded since and is needed, in that order
	kept     map[*Tensor]bool    // forward tensors that the backward pass reads as they are
	again    map[*Tensor]*Tensor // others, computed again
	barriers map[*Tensor]*Tensor // kept ones, for what is computed again
	rules    []struct {          // of gradients, in the order they were applied
		until uint64 // the last tensor that the rule recorded
		g     *Tensor
	}
}

// forward reports whether t is of the forward pass.
func (k *keeping) forward(t *Tensor) bool { return t.seq <= k.start }

// repeatable reports whether t may be computed again: it costs a pass over
// memory at most, which fusion saves.
func repeatable(t *Tensor) bool {
	return len(t.args) > 0 && t.data == nil &&
		(t.op.Info().Class == op.Elementwise || t.op == op.Reshape || t.op == op.BroadcastTo)
}

// applied notes that a rule for the gradient g has recorded what it does.
func (k *keeping) applied(g *Tensor) {
	k.rules = append(k.rules, struct {
		until uint64
		g     *Tensor
	}{Mark(), g})
}

// least rewrites the backward pass that led to grads so that it keeps least.
func (k *keeping) least(grads []*Tensor) {
	seen := map[*Tensor]bool{}
	stack := slices.DeleteFunc(slices.Clone(grads), func(t *Tensor) bool { return t == nil })
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[t] || k.forward(t) {
			continue
		}
		if t.data != nil {
			return // eager: all is there
		}
		seen[t] = true
		k.backward = append(k.backward, t)
		stack = append(stack, t.args...)
	}
	slices.SortFunc(k.backward, bySeq)
	if !k.cut() {
		return
	}
	k.again, k.barriers = map[*Tensor]*Tensor{}, map[*Tensor]*Tensor{}
	rule := 0
	for _, u := range k.backward {
		for rule < len(k.rules)-1 && k.rules[rule].until < u.seq {
			rule++
		}
		cloned := false
		for i, a := range u.args {
			if k.forward(a) && !k.kept[a] && repeatable(a) {
				if !cloned { // rules share the slices of what they repeat
					u.args, cloned = slices.Clone(u.args), true
				}
				u.args[i] = k.repeat(a, k.rules[rule].g)
			}
		}
		u.seq = sequence.Add(1) // after what was just recorded
	}
}

// cut finds what to keep, and reports whether that saves anything.
func (k *keeping) cut() bool {
	k.kept = map[*Tensor]bool{}
	var named []*Tensor // by element-wise operations
	seen := map[*Tensor]bool{}
	for _, u := range k.backward {
		for _, a := range u.args {
			switch {
			case !k.forward(a):
			case !repeatable(u):
				k.kept[a] = true // whole, for a product, say
			case !seen[a]:
				seen[a] = true
				named = append(named, a)
			}
		}
	}
	var net network
	in := map[*Tensor]int{} // node of a tensor's making; the next is of having it
	var tensors []*Tensor
	var add func(t *Tensor) int
	add = func(t *Tensor) int {
		if n, ok := in[t]; ok {
			return n
		}
		n := net.nodes(2)
		in[t] = n
		tensors = append(tensors, t)
		cost := t.typ.Bytes()
		if k.kept[t] || t.op == op.Param || t.op == op.Const || t.data != nil {
			cost = 0
		}
		net.edge(n, n+1, cost)
		if k.kept[t] || !repeatable(t) {
			net.edge(origin, n, math.MaxInt)
			return n
		}
		for _, a := range t.args {
			net.edge(add(a)+1, n, math.MaxInt)
		}
		return n
	}
	net.nodes(2) // source and sink
	before := 0
	for _, t := range named {
		n := add(t)
		net.edge(n+1, sink, math.MaxInt)
		before += net.capacity(n)
	}
	after := net.maxFlow()
	if after >= before {
		return false
	}
	reaches := net.reachesSink()
	for _, t := range tensors {
		if n := in[t]; !reaches[n] && reaches[n+1] {
			k.kept[t] = true
		}
	}
	return true
}

// repeat records forward tensor t again, for a rule that was applied to g.
func (k *keeping) repeat(t, g *Tensor) *Tensor {
	if c := k.again[t]; c != nil {
		return c
	}
	args := slices.Clone(t.args)
	for i, a := range args {
		switch {
		case a.op == op.Const && len(a.args) == 0:
		case k.kept[a] || !repeatable(a):
			if k.barriers[a] == nil {
				b := a.record(op.Barrier, op.Attr{}, a, k.before(g))
				b.path, b.scaled, b.gradient = a.path, a.scaled, a.gradient
				k.barriers[a] = b
			}
			args[i] = k.barriers[a]
		default:
			args[i] = k.repeat(a, g)
		}
	}
	c := t.record(t.op, t.attr, args...)
	c.path, c.stop, c.scaled, c.gradient = t.path, t.stop, t.scaled, t.gradient
	k.again[t] = c
	return c
}

// before is a gradient that is known before g: what is computed again waits
// for it, but does not stand between a product that makes g and what follows
// it.
func (k *keeping) before(g *Tensor) *Tensor {
	for {
		next := (*Tensor)(nil)
		for _, a := range g.args {
			if !k.forward(a) && a.op != op.Barrier {
				next = a
				break
			}
		}
		if next == nil || !repeatable(g) {
			if next != nil {
				g = next
			}
			return g
		}
		g = next
	}
}
