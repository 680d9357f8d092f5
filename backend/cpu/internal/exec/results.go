package exec

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Result is one of the results of an operation with several: a section of the vector
// that the operation packs them into, or a value with its own slot.
type Result struct {
	op.Type     // as stored
	Pos     int // position of the value it lies in, or -1 if unused
	start   int // in bytes
}

// Results lists the results of v, in the order of op.Info.Results.
func (b *Builder) Results(v *ir.Value) (all []Result) {
	types := make([]op.Type, len(v.Args))
	for i, a := range v.Args {
		types[i] = a.Type
	}
	for _, s := range v.Op.Info().Results(v.Attr, types) {
		p := Result{op.Type{DType: v.Type.DType, Shape: s.Shape}, b.At(v), s.Start * v.Type.DType.Size()}
		if v.Split {
			p.Pos, p.start = slices.IndexFunc(b.Graph.Values, func(u *ir.Value) bool {
				return u.Op == op.Result && u.Args[0] == v && u.Attr.Start[0] == s.Start && u.Attr.Dims.Equal(s.Shape)
			}), 0
			if p.Pos >= 0 {
				p.DType = b.Graph.Values[p.Pos].Type.DType
			}
		}
		all = append(all, p)
	}
	return all
}

// In returns the result's memory in a run, or nil if it is unused.
func (p Result) In(r *Run) []byte {
	if p.Pos < 0 {
		return nil
	}
	return r.Values[p.Pos][p.start : p.start+p.Bytes()]
}

// Rows returns the loops that store rows of n elements of the result: by
// non-temporal stores if it is large and has its own slot, which is aligned.
func (p Result) Rows(n int) lanes.Rows {
	t := p.Type
	if p.start != 0 {
		t.Shape = op.Shape{n}
	}
	return lanes.NewRows(t, n, p.DType)
}
