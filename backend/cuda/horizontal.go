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

// update is a chain that waits, with its parameters but for the gate.
type update struct {
	v    *ir.Value
	c    ptx.Chain
	args []any
	key  string // chains that one kernel can do have the same
}

// mostWaiting bounds how many values each new one is compared with.
const mostWaiting = 512

// update makes the call of a chain, or has it wait if it goes through a
// contiguous array, with operands of that size or of one element.
func (b *builder) update(v *ir.Value, c ptx.Chain, args []any) {
	n := v.Type.Shape.Size()
	waits := c.Eight == nil && len(c.Dims) == 1 && n < 1<<30 && !b.p.graph.Watched && b.pos[v] >= b.p.graph.Commit
	key := op.Attr{Body: c.Body}.AppendKey(nil)
	for _, s := range c.Strides {
		waits = waits && (s[0] == 0 || s[0] == 1)
		if waits {
			key = append(key, byte(s[0]))
		}
	}
	if !waits {
		b.launch(v, c, args, n)
		return
	}
	key = append(key, byte(number(c.Predicated)), byte(number(c.Vector())))
	b.updates = append(b.updates, update{v, c, args, string(key)})
	if len(b.updates) == mostWaiting {
		b.flushUpdates()
	}
}

// flushUpdates makes the calls of all that waits.
func (b *builder) flushUpdates() {
	b.foldWholes()
	for len(b.updates) > 0 {
		first := b.updates[0]
		g := &ptx.Group{}
		var args []any
		n, most := 0, api.MaxParameters-1
		rest := slices.DeleteFunc(slices.Clone(b.updates), func(u update) bool {
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
		b.updates = rest
		if len(g.Sizes) == 1 {
			b.launch(first.v, first.c, first.args, n)
			continue
		}
		g.Addresses = len(args)
		first.c.Group = g
		b.launch(first.v, first.c, args, 0)
	}
}

// delays reports whether v reads or overwrites what something that waits writes,
// or overwrites what that reads.
func (b *builder) delays(v *ir.Value) bool {
	results := b.results(v)
	has := func(list []*ir.Value, y *ir.Value) bool {
		return slices.ContainsFunc(list, func(x *ir.Value) bool { return b.meet(x, y) })
	}
	meets := func(w *ir.Value, written []*ir.Value) bool {
		return slices.ContainsFunc(written, func(y *ir.Value) bool { return has(v.Args, y) || has(results, y) }) ||
			slices.ContainsFunc(w.Args, func(y *ir.Value) bool { return has(results, y) })
	}
	return slices.ContainsFunc(b.wholes, func(w *ir.Value) bool { return meets(w, []*ir.Value{w}) }) ||
		slices.ContainsFunc(b.updates, func(u update) bool { return meets(u.v, b.results(u.v)) })
}

// results is v with its extra results, which come right after it.
func (b *builder) results(v *ir.Value) []*ir.Value {
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
