package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// apart gives the parts of a flat result memory of their own, where nobody reads
// it but through them: what computes it writes them to their places, and an
// output, or a part that is wanted in 16 bits, is no copy. A cast to 16 bits that
// is the only reader of a part becomes one with it.
func apart(g *Graph) {
	users, outputs := g.users(), g.outputs()
	gone := map[*Value]bool{}
	for _, v := range g.Values {
		parts := v.Op.Info().Parts
		if parts == nil || outputs[v] || v.Type.Bytes() == 0 {
			continue
		}
		types := make([]op.Type, len(v.Args))
		for i, a := range v.Args {
			types[i] = a.Type
		}
		sections := parts(v.Attr, types)
		taken := map[int]bool{}
		v.Apart = !slices.ContainsFunc(users[v], func(u *Value) bool {
			i := slices.IndexFunc(sections, func(s op.Section) bool {
				return u.Op == op.Part && s.Start == u.Attr.Start[0] && s.Shape.Equal(u.Attr.Dims)
			})
			other := i < 0 || taken[i]
			taken[i] = true
			return other
		})
		if !v.Apart {
			continue
		}
		for _, p := range users[v] {
			if readers := users[p]; len(readers) == 1 && readers[0].Op == op.Cast && readers[0].Type.DType.Is16() && !outputs[p] {
				c := readers[0]
				c.Op, c.Attr, c.Args = op.Part, p.Attr, p.Args
				c.Attr.DType = c.Type.DType
				gone[p] = true
			}
		}
	}
	g.Values = slices.DeleteFunc(g.Values, func(v *Value) bool { return gone[v] })
}

// writtenApart reports whether v is a Part with memory of its own, which the
// kernel of its argument writes.
func (v *Value) writtenApart() bool { return v.Op == op.Part && v.Args[0].Apart }

// WithArgument reports whether v needs no kernel because that of its argument
// writes it: an Extra, or a Part of what exists only as its parts.
func (v *Value) WithArgument() bool { return v.Op == op.Extra || v.writtenApart() }
