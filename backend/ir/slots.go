package ir

import "github.com/mezzo-ml/mezzo/backend/op"

// assignSlots gives every value its slot. Constants are static, params lie in
// the inputs, and outputs in their own buffers or over the input that was donated
// to them. All other values lie in the arena, without overlap: shareBuffers packs
// them.
//
// A Reshape or Barrier lies where its argument does, and so does an Identity,
// unless it keeps the old value of an input that is overwritten later. A Result
// lies within its argument if that is in the arena and the offset is a multiple
// of Align; Results of a split value have their own slots. An output that is a
// view of a value without another slot has that value computed in its buffer.
func assignSlots(g *Graph) {
	g.ArenaBytes = 0
	overwritten := map[Slot]bool{}
	for _, v := range g.Values {
		v.Slot = Slot{}
	}
	for o, v := range g.Outputs {
		v.Slot = Slot{Place: Output, Index: o}
		if p := g.Donated[o]; p >= 0 {
			v.Slot = Slot{Place: Input, Index: p}
			overwritten[v.Slot] = true
		}
	}
	for _, v := range g.Outputs {
		if v.Slot.Place != Output {
			continue // its argument would be written before the commit phase
		}
		for viewable(v) {
			a := v.Args[0]
			if a.Slot.Place != Nowhere || a.Op == op.Param || a.Op == op.Const {
				break
			}
			a.Slot = v.Slot
			v = a
		}
	}
	for _, v := range g.Values {
		switch {
		case v.Slot.Place != Nowhere:
		case v.Op == op.Param:
			v.Slot = Slot{Place: Input, Index: v.Attr.Index}
		case v.Op == op.Const:
			v.Slot = Slot{Place: Static}
		case v.Split:
			v.Slot = Slot{Place: Split}
		case alias(v) || v.Op == op.Identity && !overwritten[v.Args[0].Slot]:
			v.Slot = v.Args[0].Slot
		case v.Op == op.Result && v.Args[0].Slot.Place == Arena && v.resultOffset()%Align == 0:
			v.Slot = v.Args[0].Slot
			v.Slot.Offset += v.resultOffset()
		default:
			v.Slot = Slot{Place: Arena, Offset: g.ArenaBytes}
			g.ArenaBytes += aligned(v.Type.Bytes())
		}
	}
}

func viewable(v *Value) bool { return alias(v) || v.Op == op.Identity }

// alias reports whether v certainly lies in its first argument's memory.
func alias(v *Value) bool { return v.Op == op.Reshape || v.Op == op.Barrier }

func aligned(bytes int) int { return (bytes + Align - 1) / Align * Align }

// Memory is the memory of a plan, in bytes.
type Memory struct {
	Arena   int // working memory of a run
	Inputs  int // inputs that are used, overwritten ones included
	Outputs int // outputs in their own buffers
	Static  int // constants
}

// Memory returns the memory of a plan.
func (g *Graph) Memory() Memory {
	m := Memory{Arena: g.ArenaBytes}
	for _, v := range g.Values {
		switch v.Op {
		case op.Param:
			m.Inputs += v.Type.Bytes()
		case op.Const:
			m.Static += v.Type.Bytes()
		}
	}
	for o, v := range g.Outputs {
		if g.Donated[o] < 0 {
			m.Outputs += v.Type.Bytes()
		}
	}
	return m
}

// Peak returns the largest number of bytes of the arena that are live at one time.
func (g *Graph) Peak() (peak int) {
	// A value that is computed over another overlaps it for one step at the same
	// offset: count the memory once.
	change := make([]map[int]int, len(g.Values)+1) // offset -> bytes live at that step
	for _, b := range g.blocks() {
		for i := b.first; i <= b.last; i++ {
			if change[i] == nil {
				change[i] = map[int]int{}
			}
			change[i][b.offset] = max(change[i][b.offset], aligned(b.bytes))
		}
	}
	for _, live := range change {
		sum := 0
		for _, bytes := range live {
			sum += bytes
		}
		peak = max(peak, sum)
	}
	return peak
}

// block is memory in the arena for the time that it is needed: from the
// position that writes it to the last one that reads it.
type block struct {
	first, last int
	bytes       int
	offset      int
	values      []*Value // that lie in it
}

// blocks lists the blocks of the arena; views belong to the block of their
// argument.
func (g *Graph) blocks() []*block {
	var list []*block
	of := map[*Value]*block{}
	splits := map[*Value]int{} // positions of split values
	// Exchanges that nothing waits for: other ranks read what is sent until the run ends.
	exchanges := map[*Value]*block{}
	for i, v := range g.Values {
		// Values that are computed at the same time are written from the first one on and
		// read until the second.
		start, end := i, i
		if v.Concurrent || v.Joined {
			start--
		}
		if i+1 < len(g.Values) && (g.Values[i+1].Concurrent || g.Values[i+1].Joined) {
			end++
		}
		if v.Split {
			splits[v] = start
		}
		if v.Op == op.AllReduceDone || v.Op == op.AllGatherDone {
			delete(exchanges, v.Args[0])
		}
		for _, a := range v.Args {
			if b := of[a]; b != nil {
				b.last = end
			}
		}
		if v.Slot.Place != Arena {
			continue
		}
		b := (*block)(nil)
		if v.View() {
			b = of[v.Args[0]]
		} else {
			b = &block{first: start, bytes: v.Type.Bytes(), offset: v.Slot.Offset}
			if v.Op == op.ExtraOutput { // written with the value it is part of
				b.first -= 1 + v.Attr.Index
			} else if v.hasResultSlot() {
				b.first = splits[v.Args[0]]
			}
			list = append(list, b)
		}
		b.last = max(b.last, end)
		b.values = append(b.values, v)
		of[v] = b
		if v.Op == op.AllReduceStart || v.Op == op.AllGatherStart {
			exchanges[v] = b
		}
	}
	for _, b := range exchanges {
		b.last = len(g.Values) - 1
	}
	return list
}
