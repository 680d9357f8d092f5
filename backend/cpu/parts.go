package cpu

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// resultPart is one of the results that an operation packs into a vector, within that
// or at a place of its own.
type resultPart struct {
	op.Type     // of what is stored
	pos     int // of the value that it lies in, or -1: nobody wants it
	start   int // in bytes
}

// parts lists those of v, in the order of op.Info.Parts.
func (b *builder) parts(v *ir.Value) (all []resultPart) {
	types := make([]op.Type, len(v.Args))
	for i, a := range v.Args {
		types[i] = a.Type
	}
	for _, s := range v.Op.Info().Results(v.Attr, types) {
		p := resultPart{op.Type{DType: v.Type.DType, Shape: s.Shape}, b.at(v), s.Start * v.Type.DType.Size()}
		if v.Split {
			p.pos, p.start = slices.IndexFunc(b.graph.Values, func(u *ir.Value) bool {
				return u.Op == op.Result && u.Args[0] == v && u.Attr.Start[0] == s.Start && u.Attr.Dims.Equal(s.Shape)
			}), 0
			if p.pos >= 0 {
				p.DType = b.graph.Values[p.pos].Type.DType
			}
		}
		all = append(all, p)
	}
	return all
}

// in is where the part lies in a run; nil if nobody wants it.
func (p resultPart) in(r *run) []byte {
	if p.pos < 0 {
		return nil
	}
	return r.values[p.pos][p.start : p.start+p.Bytes()]
}

// rows is the loops that store rows of n elements of the part: around the caches
// if it is large and has a place of its own, which begins with a line.
func (p resultPart) rows(n int) passes {
	t := p.Type
	if p.start != 0 {
		t.Shape = op.Shape{n}
	}
	return newPasses(t, n, p.DType)
}
