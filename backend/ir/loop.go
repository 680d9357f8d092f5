package ir

import (
	"cmp"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// LoopBody returns the graph of a step of v, a Loop: its inputs are the body's inputs,
// its outputs the body's results.
func LoopBody(v *Value) *Graph {
	l := v.Attr.Loop
	types := make([]op.Type, len(v.Args))
	for i, a := range v.Args {
		types[i] = a.Type
	}
	g := New(len(v.Args))
	r := &recorder{path: v.Path}
	for i, t := range l.Inputs(types) {
		g.Params[i] = &Value{Op: op.Param, Type: t, Attr: op.Attr{Index: i, DType: t.DType, Dims: t.Shape}, Path: v.Path}
	}
	values := make([]op.Ref, len(g.Params))
	for i, p := range g.Params {
		values[i] = p
	}
	for _, in := range l.Code {
		args := make([]op.Ref, len(in.Args))
		for i, a := range in.Args {
			args[i] = values[a]
		}
		r.path = cmp.Or(in.Path, v.Path)
		values = append(values, r.Record(in.Op, in.Attr, args...))
	}
	r.path = v.Path
	for _, k := range l.Results {
		x := values[k].(*Value)
		if x.Op == op.Param || x.Op == op.Const || slices.Contains(g.Outputs, x) {
			x = r.Record(op.Identity, op.Attr{}, x).(*Value)
		}
		g.Output(x, -1)
	}
	g.Values = append(slices.Clone(g.Params), r.values...)
	for i, x := range g.Values {
		x.ID = i
	}
	return g
}
