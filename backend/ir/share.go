package ir

import (
	"cmp"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// shareBuffers packs the arena: an element-wise value is computed in place over
// an argument of its size that has no later use, and blocks with disjoint live
// ranges may overlap.
func shareBuffers(g *Graph) {
	blocks := g.blocks()
	within := map[*Value]int{} // offsets of views in their blocks
	for _, b := range blocks {
		for _, v := range b.values {
			within[v] = v.Slot.Offset - b.offset
		}
	}
	blocks = g.shareInPlace(blocks)
	g.ArenaBytes = pack(blocks)
	for _, b := range blocks {
		for _, v := range b.values {
			v.Slot.Offset = b.offset + within[v]
		}
	}
}

// shareInPlace merges the blocks of values that are computed in place.
func (g *Graph) shareInPlace(blocks []*block) []*block {
	of := map[*Value]*block{}
	for _, b := range blocks {
		for _, v := range b.values {
			of[v] = b
		}
	}
	gone := map[*block]bool{}
	for i, v := range g.Values {
		if !updates(v) || v.Op == op.ExtraOutput {
			continue
		}
		for _, r := range g.results(i) {
			b := of[r]
			if b == nil || b.first != i {
				continue
			}
			for _, a := range v.Args {
				old := of[a]
				if old == nil || old.last != i || a.Type.Bytes() != old.bytes || !readsElementwise(v, r, old, of) {
					continue
				}
				old.last = b.last
				old.values = append(old.values, b.values...)
				for _, u := range b.values {
					of[u] = old
				}
				gone[b] = true
				break
			}
		}
	}
	return slices.DeleteFunc(blocks, func(b *block) bool { return gone[b] })
}

// readsElementwise reports whether v reads all its arguments in block b element for
// element: with the shape and element size of its result r.
func readsElementwise(v, r *Value, b *block, of map[*Value]*block) bool {
	for i, a := range v.Args {
		if of[a] == b && (!v.inPlace(i) || !a.Type.Shape.Equal(r.Type.Shape) || a.Type.DType.Size() != r.Type.DType.Size()) {
			return false
		}
	}
	return true
}

// pack sets the offsets of blocks such that no two that are alive at the same
// time overlap, and returns the bytes needed. The largest go first, each into
// the smallest gap that holds it (greedy by size: Pisarchyk and Lee,
// "Efficient Memory Management for Deep Neural Net Inference", 2020).
func pack(blocks []*block) (arena int) {
	bySize := slices.Clone(blocks)
	slices.SortStableFunc(bySize, func(a, b *block) int { return cmp.Compare(b.bytes, a.bytes) })
	var placed []*block // by offset
	for _, b := range bySize {
		size := aligned(b.bytes)
		best, smallest, end := -1, 0, 0
		for _, p := range placed {
			if size == 0 || p.last < b.first || b.last < p.first {
				continue
			}
			if gap := p.offset - end; gap >= size && (best < 0 || gap < smallest) {
				best, smallest = end, gap
			}
			end = max(end, p.offset+aligned(p.bytes))
		}
		if best < 0 {
			best = end
		}
		b.offset = best
		arena = max(arena, best+size)
		at, _ := slices.BinarySearchFunc(placed, best, func(p *block, off int) int { return cmp.Compare(p.offset, off) })
		placed = slices.Insert(placed, at, b)
	}
	return arena
}
