package ir

import "github.com/mezzo-ml/mezzo/backend/op"

// horizontalBytes is the most memory of values that fuseHorizontally moves: they are
// live longer.
const horizontalBytes = 1 << 20

// fuseHorizontally is horizontal fusion of recurrent scans: it marks pairs that do not
// depend on each other, as the two directions of a bidirectional layer, as Concurrent.
// A scan of few sequences is one chain of small products, which cannot use a second
// core. The first scan of a pair is delayed to directly before the second, with all that
// reads it behind the second. The pass changes the order, so liveness must follow.
func fuseHorizontally(g *Graph) {
	for second := 1; second < len(g.Values); second++ {
		if g.Values[second].Op != op.RNN {
			continue
		}
		for first := second - 1; first >= 0; first-- {
			if v := g.Values[first]; v.Op == op.RNN {
				if !v.Concurrent {
					g.fuseScans(first, second)
				}
				break
			}
		}
	}
}

// fuseScans makes the scans at two positions a pair if the second needs nothing of the
// first and little lies between them.
func (g *Graph) fuseScans(first, second int) {
	depends := map[*Value]bool{g.Values[first]: true}
	var before, behind []*Value
	bytes := 0
	for _, v := range g.Values[first+1 : second+1] {
		depends[v] = false
		for _, a := range v.Args {
			depends[v] = depends[v] || depends[a]
		}
		switch {
		case v == g.Values[second]:
		case depends[v]:
			behind = append(behind, v)
		default:
			before = append(before, v)
		}
		if v != g.Values[second] && !alias(v) {
			bytes += v.Type.Bytes()
		}
	}
	if depends[g.Values[second]] || bytes > horizontalBytes {
		return
	}
	a, b := g.Values[first], g.Values[second]
	order := append(append(append([]*Value(nil), before...), a, b), behind...)
	copy(g.Values[first:], order)
	b.Concurrent = true
}
