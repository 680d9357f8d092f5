//go:build cuda && linux && amd64

package cuda

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/ptx"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// An optimizer does the same for each variable. Folds and chains of that kind
// wait for each other, and what waits has nothing to do with each other, so that
// one launch can do it all in any order. All of it is done before a value that
// reads what one writes, or overwrites what one reads or writes. In a plan that
// shows every value nothing waits.
//
// The gradients are unscaled before that, in chains between other values of the
// backward pass. They wait, too, for each other and for the folds that read them. So do
// sums over the rows of matrices, the gradients of biases, which those chains read.

// update is a chain that waits, with its parameters but for the gate.
type update struct {
	v     *ir.Value
	c     ptx.Chain
	args  []any
	reads []*ir.Value
	key   string // chains that one kernel can do have the same
}

// mostWaiting bounds how many values each new one is compared with.
const mostWaiting = 512

// update makes the call of a chain, or has it wait if it goes through a
// contiguous array, with operands of that size or of one element.
func (b *builder) update(v *ir.Value, c ptx.Chain, args []any, operands []*ir.Value) {
	n := v.Type.Shape.Size()
	if len(c.Dims) == 0 { // one element
		c.Dims, c.Strides = []int{1}, slices.Repeat([][]int{{0}}, len(c.Strides))
	}
	early := b.waitsEarly(v)
	waits := c.Eight == nil && len(c.Dims) == 1 && n < 1<<30 && !b.p.graph.Watched && (early || b.pos[v] >= b.p.graph.Commit)
	key := op.Attr{Body: c.Body}.AppendKey(nil)
	for _, s := range c.Strides {
		waits = waits && (s[0] == 0 || s[0] == 1)
		if waits {
			key = append(key, byte(s[0]))
		}
	}
	if !waits {
		b.meetRowSums(v)
		b.launch(v, c, args, n)
		return
	}
	key = append(key, byte(number(c.Predicated)), byte(number(c.Vector())))
	list := &b.updates
	if early {
		list = &b.early
	}
	*list = append(*list, update{v, c, args, operands, string(key)})
	if len(*list) == mostWaiting {
		b.flushUpdates()
	}
}

// waitsEarly reports whether a chain before the updates waits: its result is one element,
// or is read by folds of whole arrays and by updates alone.
func (b *builder) waitsEarly(v *ir.Value) bool {
	late := func(u *ir.Value) bool { return b.pos[u] >= b.p.graph.Commit || folds(u) && b.foldWaits(u) }
	var all func(v *ir.Value) bool
	all = func(v *ir.Value) bool {
		return !slices.ContainsFunc(b.users[v], func(u *ir.Value) bool { return !late(u) && !(u.View() && all(u)) })
	}
	return v.Slot.Place == ir.Arena && b.pos[v] < b.p.graph.Commit && len(b.users[v]) > 0 && (v.Type.Shape.Size() == 1 || all(v))
}

// meetWaiting makes the calls of what waits and must be done before v.
func (b *builder) meetWaiting(v *ir.Value) {
	b.meetMasks(v)
	if b.delays(v) {
		b.flushUpdates()
		return
	}
	if folds(v) && b.foldWaits(v) {
		return // for those as well
	}
	var due []update
	b.early = slices.DeleteFunc(b.early, func(u update) bool {
		if b.meets(v, b.results(u.v), u.reads) {
			due = append(due, u)
			return true
		}
		return false
	})
	// A chain that waits comes after the sums: it calls this for itself if it does not.
	if len(due) > 0 || v.Op.Info().Class != op.Elementwise {
		b.meetRowSums(v, due...)
	}
	b.group(due)
}

// meetRowSums makes the calls of the sums that wait, if one of them must be done before v
// or a chain.
func (b *builder) meetRowSums(v *ir.Value, chains ...update) {
	if slices.ContainsFunc(b.rowSums, func(s rowSum) bool {
		return b.meets(v, s.writes, s.reads) || slices.ContainsFunc(chains, func(u update) bool { return b.meets(u.v, s.writes, s.reads) })
	}) {
		b.flushRowSums()
	}
}

// flushUpdates makes the calls of all that waits.
func (b *builder) flushUpdates() {
	b.flushRowSums()
	early, updates := b.early, b.updates
	b.early, b.updates = nil, nil
	b.group(early)
	b.foldWholes()
	b.group(updates)
}

// group makes the calls of chains in any order, those with one key together.
func (b *builder) group(list []update) {
	for len(list) > 0 {
		first := list[0]
		g := &ptx.Group{}
		var args []any
		n, most := 0, api.MaxParameters-1
		list = slices.DeleteFunc(slices.Clone(list), func(u update) bool {
			if u.key != first.key || len(args)+len(u.args) > most {
				return false
			}
			var list []int
			for _, a := range u.args {
				at := slices.Index(args, a)
				if at < 0 {
					at = len(args)
					args = append(args, a)
				}
				list = append(list, at)
			}
			n = u.v.Type.Shape.Size()
			g.Sizes, g.Parameters = append(g.Sizes, n), append(g.Parameters, list)
			return true
		})
		if len(g.Sizes) == 1 {
			b.launch(first.v, first.c, first.args, n)
			continue
		}
		g.Addresses = len(args)
		first.c.Group = g
		b.launch(first.v, first.c, args, 0)
	}
}

// delays reports whether v reads or overwrites what a fold or an update that waits
// writes, or overwrites what that reads.
func (b *builder) delays(v *ir.Value) bool {
	return slices.ContainsFunc(b.wholes, func(w *ir.Value) bool { return b.meets(v, []*ir.Value{w}, w.Args) }) ||
		slices.ContainsFunc(b.updates, func(u update) bool { return b.meets(v, b.results(u.v), u.reads) })
}

// meets reports whether v reads or overwrites what is written, or overwrites what is read.
func (b *builder) meets(v *ir.Value, written, read []*ir.Value) bool {
	results := b.results(v)
	has := func(list []*ir.Value, y *ir.Value) bool {
		return slices.ContainsFunc(list, func(x *ir.Value) bool { return b.meet(x, y) })
	}
	return slices.ContainsFunc(written, func(y *ir.Value) bool { return has(v.Args, y) || has(results, y) }) ||
		slices.ContainsFunc(read, func(y *ir.Value) bool { return has(results, y) })
}

// results is v with its extra results, which come right after it, or the results of v that
// are split.
func (b *builder) results(v *ir.Value) []*ir.Value {
	if v.Split {
		return slices.DeleteFunc(slices.Clone(b.users[v]), func(u *ir.Value) bool { return !u.WrittenByArg() })
	}
	list := []*ir.Value{v}
	for _, u := range b.p.graph.Values[b.pos[v]+1:] {
		if u.Op != op.ExtraOutput {
			break
		}
		list = append(list, u)
	}
	return list
}

// meet reports whether two values may have memory in common: of the arena, or
// of one buffer. What is donated is one buffer with what it goes to.
func (b *builder) meet(x, y *ir.Value) bool {
	if x.Slot.Place == ir.Arena || y.Slot.Place == ir.Arena {
		return x.Slot.Place == y.Slot.Place && x.Slot.Offset < y.Slot.Offset+y.Type.Bytes() && y.Slot.Offset < x.Slot.Offset+x.Type.Bytes()
	}
	buffer := func(v *ir.Value) (ir.Place, int) {
		if v.Slot.Place == ir.Output && b.p.graph.Donated[v.Slot.Index] >= 0 {
			return ir.Input, b.p.graph.Donated[v.Slot.Index]
		}
		return v.Slot.Place, v.Slot.Index
	}
	place, i := buffer(x)
	other, k := buffer(y)
	return place == other && i == k && place != ir.Static
}
