package ir

import (
	"iter"
	"maps"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// schedule decides the order. Params come first, the commit phase last. Cheap work on
// params and constants alone, such as the cast of a weight, is delayed to its first
// user to shorten its live range. The rest has one of four orders, the one that packs
// best: as recorded, or eager, with values that free memory as soon as their arguments
// exist; and with values that only the commit phase reads in place, or at the end.
// Eager helps unscaled gradients, which are recorded after the whole backward pass and
// would keep their arguments alive until then, and sums, which find their argument in
// the cache.
//
// In each order exchanges with other ranks begin as soon as what they send can be computed,
// and the program waits for them where it was recorded: gradients are on their way during
// the rest of the backward pass.
func schedule(g *Graph) {
	g.sort()
	commit, _ := g.commitOrder() // after donate there is no cycle
	s := scheduler{g: g, late: make(map[*Value]bool, len(commit)), users: g.users(), outputs: g.outputs()}
	for _, v := range commit {
		s.late[v] = true
	}
	s.findExchanges()
	recorded := g.Values
	var best []*Value
	var smallest int
	for i, eager := range []bool{true, true, false, false} {
		g.Values = recorded
		g.Values = s.order(commit, eager, i%2 == 1)
		g.settleCommit()
		assignSlots(g)
		shareBuffers(g)
		saves := 1
		if len(s.needs) > 0 { // eager work is done while others are on their way
			saves += smallest / 64
		}
		if best == nil || g.ArenaBytes <= smallest-saves {
			best, smallest = g.Values, g.ArenaBytes
		}
	}
	g.Values = best
	g.settleCommit()
	for _, v := range g.Values {
		v.Slot = Slot{} // assigned by the next passes
	}
	g.ArenaBytes = 0
}

// scheduler makes orders of a graph.
type scheduler struct {
	g       *Graph
	late    map[*Value]bool // of the commit phase
	users   map[*Value][]*Value
	outputs map[*Value]bool

	sends map[*Value][]*Value // exchanges, and what they send, by the values that they wait for
	needs map[*Value]int      // number of these values

	// Of one order:
	done    map[*Value]bool
	list    []*Value
	waiting map[*Value]int // readers of a value or its views that are not yet listed
	missing map[*Value]int // of needs, those that are not yet listed
}

// starts reports whether v begins an exchange with other ranks.
func starts(v *Value) bool { return v.Op == op.AllReduceStart || v.Op == op.AllGatherStart }

// findExchanges finds what exchanges send, gradients mostly, behind cheap work such as a
// cast or a sum of two shards; the values that each exchange waits for; and those that
// each gradient waits for, whose place as recorded is too late if such work is its
// epilogue.
func (s *scheduler) findExchanges() {
	s.sends, s.needs = map[*Value][]*Value{}, map[*Value]int{}
	needs := func(v, a *Value) {
		s.sends[a] = append(s.sends[a], v)
		s.needs[v]++
	}
	for _, v := range s.g.Values {
		if !starts(v) || s.late[v] {
			continue
		}
		seen := map[*Value]bool{}
		var visit func(a *Value)
		visit = func(a *Value) {
			if seen[a] {
				return
			}
			seen[a] = true
			switch a.Op.Info().Class {
			case op.Leaf:
			case op.Elementwise, op.Movement:
				for _, b := range a.Args {
					visit(b)
				}
			default:
				needs(v, a)
				if starts(a) || s.needs[a] > 0 || s.late[a] {
					return
				}
				for b := range sources(a) {
					if b.Op != op.Param && b.Op != op.Const && !sinks(b) {
						needs(a, b)
					}
				}
			}
		}
		for _, a := range v.Args {
			visit(a)
		}
	}
}

// little is the size of results that are computed as soon as possible even if that
// frees nothing: the sums that tell whether gradients are finite.
const little = Align

// order returns an order: as recorded, or with values first that free memory (eager),
// and with values last that only the commit phase reads (lazy).
func (s *scheduler) order(commit []*Value, eager, lazy bool) []*Value {
	g := s.g
	s.done = make(map[*Value]bool, len(g.Values))
	s.list = make([]*Value, 0, len(g.Values))
	s.waiting = make(map[*Value]int, len(g.Values))
	s.missing = maps.Clone(s.needs)
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
	// The rest are values that sink: outputs made of constants and, if dead values were
	// not removed, values without users.
	for _, v := range g.Values {
		if !s.late[v] {
			s.visit(v, eager)
		}
	}
	return append(s.list, commit...)
}

// waits reports whether v is a result for the commit phase, or sums up one that is not
// yet listed.
func (s *scheduler) waits(v *Value) bool {
	if v.Op.Info().Class == op.Collective || v.Op == op.Result && v.Args[0].Op.Info().Class == op.Collective {
		return false // other buckets are still on their way
	}
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

// visit lists v after its arguments and, if eager, other values that are better
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
	for _, u := range s.sends[v] {
		if s.missing[u]--; s.missing[u] == 0 {
			s.visit(u, eager)
		}
	}
	if !eager {
		return
	}
	// Readers of v may be ready now, and readers of v's arguments may now be the last
	// ones.
	for _, u := range s.users[v] {
		s.hurry(u)
	}
	for a := range sources(v) {
		for _, u := range s.users[a] {
			s.hurry(u)
		}
	}
}

// hurry lists v if its arguments are listed and it frees as much as it needs.
func (s *scheduler) hurry(v *Value) {
	if alias(v) {
		for _, u := range s.users[v] {
			s.hurry(u)
		}
		return
	}
	if s.done[v] || s.late[v] || sinks(v) || v.Op == op.AllReduceDone || v.Op == op.AllGatherDone {
		return // the program should not wait before it must
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

// near reports whether a costs nothing: a view of a listed value, or a value that sinks
// with listed arguments.
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

// bytes returns the bytes that a value takes in the arena.
func (s *scheduler) bytes(v *Value) int {
	if v.Op == op.Param || v.Op == op.Const || s.outputs[v] {
		return 0
	}
	return aligned(v.Type.Bytes())
}

// sources returns the values that v reads, directly or through views, each once.
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

// sinks reports whether v may be delayed to its first user. That prolongs no live
// range: params and constants are not in the arena.
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
