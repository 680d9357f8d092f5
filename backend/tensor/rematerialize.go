package tensor

import (
	"maps"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// rematerializer chooses which forward values the backward pass saves and which
// it computes again. Gradient rules read many forward values: four float32
// values for a gelu in 16 bits. Most of them are element-wise functions of a few
// others. To compute them again, fused into the backward pass, costs less than
// to save them. The saved values are those of fewest bytes from which the others
// follow: a minimum cut between the values that are computed once (products,
// reductions, random numbers) and the values that the rules read. The idea is in
// Jain et al., "Checkmate", 2020, and in PyTorch's min-cut partitioner; here only
// element-wise operations are recomputed. No bit changes, because the recomputed
// operations are the same. What Remat computes again counts as forward values, too.
type rematerializer struct {
	start      uint64              // forward tensors have a sequence number up to this one
	segments   map[*segment]bool   // of Remat
	copies     map[*Tensor]bool    // forward tensors that segments compute again, after start
	backward   []*Tensor           // backward tensors that the gradients depend on, in order
	saved      map[*Tensor]bool    // forward tensors that the backward pass reads as they are
	recomputed map[*Tensor]*Tensor // other forward tensors and their copies in the backward pass
	barriers   map[*Tensor]*Tensor // of saved tensors, as operands of copies
	rules      []appliedRule       // in the order in which they were applied
}

// appliedRule is one application of a gradient rule.
type appliedRule struct {
	end uint64  // sequence number of the last tensor that the rule recorded
	g   *Tensor // the gradient that it was applied to
}

// forward reports whether t belongs to the forward pass.
func (r *rematerializer) forward(t *Tensor) bool { return t.seq <= r.start || r.copies[t] }

// recomputes notes that the copies of a segment have been recorded.
func (r *rematerializer) recomputes(s *segment) {
	if r.segments[s] {
		return
	}
	if r.segments == nil {
		r.segments, r.copies = map[*segment]bool{}, map[*Tensor]bool{}
	}
	r.segments[s] = true
	for _, c := range s.copies {
		r.copies[c] = true
	}
}

// recomputable reports whether t may be computed twice: it costs at most a pass
// over memory, which fusion saves.
func recomputable(t *Tensor) bool {
	return len(t.args) > 0 && t.data == nil &&
		(t.op.Info().Class == op.Elementwise || t.op == op.Reshape || t.op == op.BroadcastTo)
}

// ruleApplied notes that the rule for gradient g has recorded its operations.
func (r *rematerializer) ruleApplied(g *Tensor) {
	r.rules = append(r.rules, appliedRule{SequencePoint(), g})
}

// rewrite replaces forward operands of the backward pass that led to grads by
// recomputed copies, where that saves memory.
func (r *rematerializer) rewrite(grads []*Tensor) {
	seen := map[*Tensor]bool{}
	stack := slices.DeleteFunc(slices.Clone(grads), func(t *Tensor) bool { return t == nil })
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[t] || r.forward(t) {
			continue
		}
		if t.data != nil {
			return // eager: every value has been computed
		}
		seen[t] = true
		r.backward = append(r.backward, t)
		stack = append(stack, t.args...)
	}
	slices.SortFunc(r.backward, bySeq)
	if !r.minCut() {
		return
	}
	r.recomputed, r.barriers = map[*Tensor]*Tensor{}, map[*Tensor]*Tensor{}
	rule := 0
	all := slices.AppendSeq(slices.Clone(r.backward), maps.Keys(r.copies))
	slices.SortFunc(all, bySeq)
	for _, u := range all {
		if r.copies[u] {
			u.seq = sequence.Add(1)
			continue
		}
		for rule < len(r.rules)-1 && r.rules[rule].end < u.seq {
			rule++
		}
		cloned := false
		for i, a := range u.args {
			if r.forward(a) && !r.saved[a] && recomputable(a) {
				if !cloned { // rules share the slices of operands
					u.args, cloned = slices.Clone(u.args), true
				}
				u.args[i] = r.recompute(a, r.rules[rule].g)
			}
		}
		u.seq = sequence.Add(1) // after the copies
	}
}

// minCut chooses the saved tensors, and reports whether that saves memory.
func (r *rematerializer) minCut() bool {
	r.saved = map[*Tensor]bool{}
	var read []*Tensor // by element-wise operations of the backward pass
	seen := map[*Tensor]bool{}
	for _, u := range r.backward {
		for _, a := range u.args {
			switch {
			case !r.forward(a):
			case !recomputable(u):
				r.saved[a] = true // the operand of a product or a reduction
			case !seen[a]:
				seen[a] = true
				read = append(read, a)
			}
		}
	}
	var net network
	in := map[*Tensor]int{} // node of computing a tensor; the next node is its value
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
		if r.saved[t] || t.op == op.Param || t.op == op.Const || t.data != nil {
			cost = 0
		}
		net.edge(n, n+1, cost)
		if r.saved[t] || !recomputable(t) {
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
	for _, t := range read {
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
			r.saved[t] = true
		}
	}
	return true
}

// recompute returns a copy of forward tensor t for a rule that was applied to g.
func (r *rematerializer) recompute(t, g *Tensor) *Tensor {
	if c := r.recomputed[t]; c != nil {
		return c
	}
	args := slices.Clone(t.args)
	for i, a := range args {
		switch {
		case a.op == op.Const && len(a.args) == 0:
		case r.saved[a] || !recomputable(a):
			if r.barriers[a] == nil {
				b := a.record(op.Barrier, op.Attr{}, a, r.before(g))
				b.path, b.scaled, b.gradient = a.path, a.scaled, a.gradient
				r.barriers[a] = b
			}
			args[i] = r.barriers[a]
		default:
			args[i] = r.recompute(a, g)
		}
	}
	c := t.record(t.op, t.attr, args...)
	c.path, c.stop, c.scaled, c.gradient = t.path, t.stop, t.scaled, t.gradient
	r.recomputed[t] = c
	return c
}

// before returns a gradient that is computed before g. Barriers of recomputed
// tensors depend on it: it delays them, but they do not prevent the fusion of an
// epilogue into the product that computes g.
func (r *rematerializer) before(g *Tensor) *Tensor {
	for {
		next := (*Tensor)(nil)
		for _, a := range g.args {
			if !r.forward(a) && a.op != op.Barrier {
				next = a
				break
			}
		}
		if next == nil || !recomputable(g) {
			if next != nil {
				g = next
			}
			return g
		}
		g = next
	}
}
