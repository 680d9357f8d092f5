package ir

import "slices"

// deadCode removes values that no output depends on. A removed Param becomes nil
// in g.Params.
func deadCode(g *Graph) {
	w := walk{seen: make(map[*Value]bool, len(g.Values))}
	for _, o := range g.Outputs {
		w.visit(o)
	}
	g.Values = slices.DeleteFunc(g.Values, func(v *Value) bool { return !w.seen[v] })
	for i, p := range g.Params {
		if p != nil && !w.seen[p] {
			g.Params[i] = nil
		}
	}
}
