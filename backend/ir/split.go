package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// split gives each result of a multi-result value a slot of its own, if the device has
// kernels for it (Options.Packs) and every
// user of the value is a Result (as scalar replacement of aggregates does). The
// kernel then writes each result to its slot, so that an output needs no copy. A
// cast to 16 bits that is the only user of a Result is folded into it.
func split(g *Graph) {
	users, outputs := g.users(), g.outputs()
	gone := map[*Value]bool{}
	for _, v := range g.Values {
		results := v.Op.Info().Results
		if results == nil || outputs[v] || v.Type.Bytes() == 0 || g.packs != nil && g.packs(v.Op) {
			continue
		}
		types := make([]op.Type, len(v.Args))
		for i, a := range v.Args {
			types[i] = a.Type
		}
		sections := results(v.Attr, types)
		taken := map[int]bool{}
		v.Split = !slices.ContainsFunc(users[v], func(u *Value) bool {
			i := slices.IndexFunc(sections, func(s op.Section) bool {
				return u.Op == op.Result && s.Start == u.Attr.Start[0] && s.Shape.Equal(u.Attr.Dims)
			})
			other := i < 0 || taken[i]
			taken[i] = true
			return other
		})
		if !v.Split {
			continue
		}
		for _, p := range users[v] {
			if readers := users[p]; len(readers) == 1 && readers[0].Op == op.Cast && readers[0].Type.DType.Is16() && !outputs[p] {
				c := readers[0]
				c.Op, c.Attr, c.Args = op.Result, p.Attr, p.Args
				c.Attr.DType = c.Type.DType
				gone[p] = true
			}
		}
	}
	g.Values = slices.DeleteFunc(g.Values, func(v *Value) bool { return gone[v] })
}

// hasResultSlot reports whether v is a Result with its own slot, which the kernel
// of its argument writes.
func (v *Value) hasResultSlot() bool { return v.Op == op.Result && v.Args[0].Split }

// WrittenByArg reports whether v needs no kernel because that of its argument
// writes it: an ExtraOutput, or a Result of a split value.
func (v *Value) WrittenByArg() bool { return v.Op == op.ExtraOutput || v.hasResultSlot() }
