package ir

import (
	"iter"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// schedule settles the order. The commit phase comes last; params are in
// front, and cheap work on params and constants alone (the cast of a weight,
// say) waits for its first user, so that it lives no longer than it must. The
// rest comes in one of four orders, the one that packs best: as recorded or
// eager, with what frees memory as soon as its arguments are there (an unscaled
// gradient is recorded after all of the backward pass, and what it is made of
// would wait as long; sums find what was just computed in the cache, too); and
// with what only the commit phase reads at its place or at the end.
func schedule(g *Graph) {
	g.sort()
	commit, _ := g.commitOrder() // donate left nothing stuck
	s := scheduler{g: g, late: make(map[*Value]bool, len(commit)), users: g.users(), outputs: g.outputs()}
	for _, v := range commit {
		s.late[v] = true
	}
	recorded := g.Values
	var best []*Value
	var smallest int
	for i, eager := range []bool{true, true, false, false} {
		g.Values = recorded
		g.Values = s.order(commit, eager, i%2 == 1)
		g.settleCommit()
		assignSlots(g)
		shareBuffers(g)
		if best == nil || g.ArenaBytes < smallest {
			best, smallest = g.Values, g.ArenaBytes
		}
	}
	g.Values = best
	g.settleCommit()
	for _, v := range g.Values {
		v.Slot = Slot{} // the next passes place them
	}
	g.ArenaBytes = 0
}

// scheduler makes orders of a graph.
type scheduler struct {
	g       *Graph
	late    map[*Value]bool // of the commit phase
	users   map[*Value][]*Value
	outputs map[*Value]bool

	// Of one order.
	done    map[*Value]bool
	list    []*Value
	waiting map[*Value]int // readers of a value or its views that are to come
}

// little is the size of results that are computed as soon as they can be even
// if that frees nothing: the sums that tell whether gradients are finite.
const little = Align

// order makes an order, as recorded or with what frees memory first (eager)
// and what only the commit phase reads last (lazy).
func (s *scheduler) order(commit []*Value, eager, lazy bool) []*Value {
	g := s.g
	s.done = make(map[*Value]bool, len(g.Values))
	s.list = make([]*Value, 0, len(g.Values))
	s.waiting = make(map[*Value]int, len(g.Values))
	for _, v := range g.Values {
		if !alias(v) {
			for a := range sources(v) {
				s.waiting[a]++
			}
		}
	}
	for _, p := range g.Params {
		if p != nil {
			s.visit(p, false)
		}
	}
	for _, v := range g.Values {
		if !sinks(v) && !s.late[v] && !(lazy && s.waits(v)) {
			s.visit(v, eager)
		}
	}
	for _, v := range commit {
		for _, a := range v.Args {
			if !s.late[a] {
				s.visit(a, eager)
			}
		}
	}
	// What is left only sinks: outputs made of constants, or, when dead
	// values were not dropped, what nobody uses.
	for _, v := range g.Values {
		if !s.late[v] {
			s.visit(v, eager)
		}
	}
	return append(s.list, commit...)
}

// waits reports whether v is a result for the commit phase, or sums up one
// that is not there yet.
func (s *scheduler) waits(v *Value) bool {
	if s.bytes(v) <= little {
		return slices.ContainsFunc(v.Args, func(a *Value) bool { return !s.done[a] && s.waits(a) })
	}
	for _, u := range s.users[v] {
		if !s.late[u] && s.bytes(u) > little {
			return false
		}
	}
	return true
}

// visit adds v after its arguments and, if eager, whatever else is better
// computed now than later.
func (s *scheduler) visit(v *Value, eager bool) {
	if s.done[v] {
		return
	}
	for _, a := range v.Args {
		s.visit(a, eager)
	}
	if s.done[v] {
		return
	}
	s.add(v)
	if !eager {
		return
	}
	// Readers of v may be ready now, and readers of what v read may be the
	// last ones now.
	for _, u := range s.users[v] {
		s.hurry(u)
	}
	for a := range sources(v) {
		for _, u := range s.users[a] {
			s.hurry(u)
		}
	}
}

// hurry adds v if all it needs is there and it frees as much as it takes.
func (s *scheduler) hurry(v *Value) {
	if alias(v) {
		for _, u := range s.users[v] {
			s.hurry(u)
		}
		return
	}
	if s.done[v] || s.late[v] || sinks(v) {
		return
	}
	gain := -s.bytes(v)
	if -gain <= little {
		gain = 0
	}
	for a := range sources(v) {
		if s.waiting[a] == 1 {
			gain += s.bytes(a)
		}
	}
	if gain < 0 {
		return
	}
	for _, a := range v.Args {
		if !s.done[a] && !s.near(a) {
			return
		}
	}
	s.visit(v, true)
}

// near reports whether a costs nothing to have: a view or something that sinks,
// of what is there.
func (s *scheduler) near(a *Value) bool {
	if !alias(a) && !sinks(a) || s.late[a] {
		return false
	}
	for _, b := range a.Args {
		if !s.done[b] && !s.near(b) {
			return false
		}
	}
	return true
}

// add appends v.
func (s *scheduler) add(v *Value) {
	s.done[v] = true
	s.list = append(s.list, v)
	if !alias(v) {
		for a := range sources(v) {
			s.waiting[a]--
		}
	}
}

// bytes is what a value takes of the arena.
func (s *scheduler) bytes(v *Value) int {
	if v.Op == op.Param || v.Op == op.Const || s.outputs[v] {
		return 0
	}
	return aligned(v.Type.Bytes())
}

// sources are the values that v reads, itself or through views, each once.
func sources(v *Value) iter.Seq[*Value] {
	return func(yield func(*Value) bool) {
		for i, a := range v.Args {
			a = source(a)
			if !slices.ContainsFunc(v.Args[:i], func(b *Value) bool { return source(b) == a }) && !yield(a) {
				return
			}
		}
	}
}

// settleCommit finds where the commit phase begins.
func (g *Graph) settleCommit() {
	overwrites := make(map[*Value]bool, len(g.Outputs))
	for o, p := range g.Donated {
		overwrites[g.Outputs[o]] = p >= 0
	}
	g.Commit = slices.IndexFunc(g.Values, func(v *Value) bool { return overwrites[v] })
	if g.Commit < 0 {
		g.Commit = len(g.Values)
	} else if v := g.Values[g.Commit]; v.Op == op.ExtraOutput {
		g.Commit -= 1 + v.Attr.Index
	}
}

// sinks reports whether v may wait for its first user. Nothing lives longer
// for it: params and constants do not lie in the arena.
func sinks(v *Value) bool {
	switch v.Op.Info().Class {
	case op.Leaf, op.Elementwise, op.Movement:
		for _, a := range v.Args {
			if a.Op != op.Param && a.Op != op.Const {
				return false
			}
		}
		return true
	}
	return false
}
