package ir

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Verify checks that g is a valid plan: the rules of a graph hold, every value
// lies where it may, and when run in order no value is read after something
// was written over it. Devices trust plans; tests and backend/null do not.
func (g *Graph) Verify() error {
	if err := g.check(); err != nil {
		return err
	}
	return checkMemory(g)
}

// content is memory that holds a value.
type content struct {
	value      *Value
	start, end int // bytes in the arena; 0 and the size elsewhere
}

// contents is what memory holds while a plan runs: for the arena (index 0) and
// every buffer.
type contents struct {
	arena           []content
	inputs, outputs []*Value
}

// checkMemory runs the plan on names instead of numbers: each write puts a
// value's name where it lies, each read looks whether it is still there.
func checkMemory(g *Graph) error {
	donatedTo := map[int]int{}
	for o, p := range g.Donated {
		if p < 0 {
			continue
		}
		if _, twice := donatedTo[p]; twice {
			return fmt.Errorf("input %d is donated twice", p)
		}
		if p >= len(g.Params) || g.Params[p] == nil || g.Params[p].Type.Bytes() != g.Outputs[o].Type.Bytes() {
			return fmt.Errorf("output %d, %v, cannot overwrite input %d", o, g.Outputs[o], p)
		}
		donatedTo[p] = o
	}
	mem := contents{inputs: slices.Clone(g.Params), outputs: make([]*Value, len(g.Outputs))}
	source := make(map[*Value]*Value, len(g.Values)) // who wrote the memory a value lies in
	for i, v := range g.Values {
		if v.ID != i {
			return fmt.Errorf("%v is at position %d", v, i)
		}
		if i >= g.Commit && !updates(v) {
			return fmt.Errorf("%v is in the commit phase, which begins at %d, but is not element-wise", v, g.Commit)
		}
		if v.Concurrent {
			if err := checkConcurrent(g, i); err != nil {
				return err
			}
		}
		if v.Joined {
			if err := checkJoined(g, i); err != nil {
				return err
			}
		}
		for _, a := range v.Args {
			if !mem.holds(a, source[a]) {
				return fmt.Errorf("%v reads %v at %v, which was overwritten", v, a, a.Slot)
			}
		}
		if err := checkSlot(g, v); err != nil {
			return err
		}
		if v.View() {
			source[v] = source[v.Args[0]]
			continue
		}
		source[v] = v
		if v.Op == op.Param || v.Op == op.Const || v.WrittenByArg() { // which wrote it
			continue
		}
		for _, r := range g.results(i) {
			if r.Slot.Place == Input && i < g.Commit {
				return fmt.Errorf("%v overwrites input %d at %d, before the commit phase, which begins at %d", r, r.Slot.Index, i, g.Commit)
			}
			if err := checkInPlace(v, r); err != nil {
				return err
			}
			mem.write(r)
		}
	}
	for o, v := range g.Outputs {
		want := Slot{Place: Output, Index: o}
		if p := g.Donated[o]; p >= 0 {
			want = Slot{Place: Input, Index: p}
		}
		if v.Slot != want {
			return fmt.Errorf("output %d, %v, lies at %v, want %v", o, v, v.Slot, want)
		}
		if !mem.holds(v, source[v]) {
			return fmt.Errorf("output %d, %v, was overwritten", o, v)
		}
	}
	return nil
}

// checkConcurrent verifies that value i can be computed at the same time as the one
// before it.
func checkConcurrent(g *Graph, i int) error {
	if i == 0 || g.Values[i-1].Concurrent {
		return fmt.Errorf("%v is concurrent with no value before it", g.Values[i])
	}
	pair := [2]*Value{g.Values[i-1], g.Values[i]}
	for j, v := range pair {
		for _, r := range g.results(i - 1 + j) {
			for _, a := range pair[1-j].Args {
				if a == v || overlap(r, a) {
					return fmt.Errorf("%v is concurrent with %v, but %v is written while %v is read", pair[1], pair[0], r, a)
				}
			}
		}
	}
	return nil
}

// checkJoined verifies that value i can be computed together with the one before it.
func checkJoined(g *Graph, i int) error {
	v := g.Values[i]
	if i == 0 || len(v.Args) == 0 || v.Args[0] != g.Values[i-1] {
		return fmt.Errorf("%v is joined to no argument before it", v)
	}
	for _, a := range v.Args[0].Args {
		for _, r := range g.results(i) {
			if overlap(r, a) {
				return fmt.Errorf("%v is joined to %v, but %v is written while %v is read", v, v.Args[0], r, a)
			}
		}
	}
	for j, u := range g.Values {
		if j != i && slices.Contains(u.Args, v.Args[0]) {
			return fmt.Errorf("%v is joined to %v, which %v reads", v, v.Args[0], u)
		}
	}
	return nil
}

// checkSlot verifies that v may lie where it does.
func checkSlot(g *Graph, v *Value) error {
	ok := true
	switch v.Slot.Place {
	case Arena:
		ok = v.Slot.Offset >= 0 && v.Slot.Offset%Align == 0 && v.Slot.Offset+v.Type.Bytes() <= g.ArenaBytes
	case Input:
		i := v.Slot.Index
		ok = i >= 0 && i < len(g.Params) && g.Params[i] != nil &&
			(v == g.Params[i] || v.View() || slices.ContainsFunc(g.Outputs, func(o *Value) bool { return o == v }))
	case Output:
		ok = v.Slot.Index >= 0 && v.Slot.Index < len(g.Outputs) && g.Donated[v.Slot.Index] < 0 &&
			v.Type.Bytes() == g.Outputs[v.Slot.Index].Type.Bytes()
	case Static:
		ok = v.Op == op.Const || v.View()
	case Split:
		ok = v.Split
	default:
		ok = false
	}
	if v.Op == op.Param {
		ok = v.Slot == Slot{Place: Input, Index: v.Attr.Index}
	}
	if v.Op == op.Const {
		ok = v.Slot == Slot{Place: Static}
	}
	if !ok {
		return fmt.Errorf("%v of %d bytes must not lie at %v; the arena has %d bytes", v, v.Type.Bytes(), v.Slot, g.ArenaBytes)
	}
	return nil
}

// checkInPlace verifies that v, if its result r is written over an argument,
// reads that argument element for element.
func checkInPlace(v, r *Value) error {
	for i, a := range v.Args {
		if !overlap(r, a) {
			continue
		}
		if r.Slot != a.Slot || !v.inPlace(i) || !r.Type.Shape.Equal(a.Type.Shape) || r.Type.DType.Size() != a.Type.DType.Size() {
			return fmt.Errorf("%v at %v is written over its argument %v at %v", r, r.Slot, a, a.Slot)
		}
	}
	return nil
}

func overlap(v, a *Value) bool {
	if v.Slot.Place != a.Slot.Place || v.Slot.Index != a.Slot.Index || v.Slot.Place == Static {
		return false
	}
	return v.Slot.Offset < a.Slot.Offset+a.Type.Bytes() && a.Slot.Offset < v.Slot.Offset+v.Type.Bytes()
}

// holds reports whether memory at v's slot still holds what source wrote.
func (m *contents) holds(v, source *Value) bool {
	if v.Type.Bytes() == 0 {
		return true
	}
	switch v.Slot.Place {
	case Arena:
		return slices.ContainsFunc(m.arena, func(c content) bool { // of which v may be a part
			return c.value == source && c.start <= v.Slot.Offset && v.Slot.Offset+v.Type.Bytes() <= c.end
		})
	case Input:
		return m.inputs[v.Slot.Index] == source
	case Output:
		return m.outputs[v.Slot.Index] == source
	}
	return true
}

// write puts v where it lies; what lay there is gone.
func (m *contents) write(v *Value) {
	switch v.Slot.Place {
	case Arena:
		c := content{v, v.Slot.Offset, v.Slot.Offset + v.Type.Bytes()}
		m.arena = slices.DeleteFunc(m.arena, func(o content) bool { return c.start < o.end && o.start < c.end })
		if c.start < c.end {
			m.arena = append(m.arena, c)
		}
	case Input:
		m.inputs[v.Slot.Index] = v
	case Output:
		m.outputs[v.Slot.Index] = v
	}
}
