package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// schedule settles the order: as recorded, with params in front, and cheap
// work on params and constants alone (the cast of a weight, say) moved down to
// its first user, so that it lives no longer than it must. The commit phase
// comes last.
func schedule(g *Graph) {
	g.sort()
	commit, _ := g.commitOrder() // donate left nothing stuck
	late := make(map[*Value]bool, len(commit))
	for _, v := range commit {
		late[v] = true
	}
	w := walk{seen: make(map[*Value]bool, len(g.Values))}
	for _, p := range g.Params {
		if p != nil {
			w.visit(p)
		}
	}
	for _, v := range g.Values {
		if !sinks(v) && !late[v] {
			w.visit(v)
		}
	}
	for _, v := range commit {
		for _, a := range v.Args {
			if !late[a] {
				w.visit(a)
			}
		}
	}
	// What is left only sinks: outputs made of constants, or, when dead
	// values were not dropped, what nobody uses.
	for _, v := range g.Values {
		if !late[v] {
			w.visit(v)
		}
	}
	g.Values = append(w.order, commit...)
	overwrites := make(map[*Value]bool, len(commit))
	for o, p := range g.Donated {
		overwrites[g.Outputs[o]] = p >= 0
	}
	g.Commit = slices.IndexFunc(g.Values, func(v *Value) bool { return overwrites[v] })
	if g.Commit < 0 {
		g.Commit = len(g.Values)
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
