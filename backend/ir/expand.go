package ir

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// Expand replaces v, whose operation must have an expansion, by its expansion, at v's
// place in the order.
func (g *Graph) Expand(v *Value) {
	at := slices.Index(g.Values, v)
	r := &recorder{path: v.Path}
	args := make([]op.Ref, len(v.Args))
	for i, a := range v.Args {
		args[i] = a
	}
	result := v.Op.Info().Expand(r, v.Attr, args).(*Value)
	g.Values = slices.Replace(g.Values, at, at+1, r.values...)
	for _, u := range g.Values {
		for i, a := range u.Args {
			if a == v {
				u.Args[i] = result
			}
		}
	}
	for i, o := range g.Outputs {
		if o == v {
			g.Outputs[i] = result
		}
	}
	for i, u := range g.Values {
		u.ID = i
	}
}

type recorder struct {
	path   string
	values []*Value
}

func (r *recorder) TypeOf(x op.Ref) op.Type { return x.(*Value).Type }

func (r *recorder) Record(c op.Code, a op.Attr, args ...op.Ref) op.Ref {
	v := &Value{Op: c, Attr: a, Path: r.path, Args: make([]*Value, len(args))}
	types := make([]op.Type, len(args))
	for i, x := range args {
		v.Args[i] = x.(*Value)
		types[i] = v.Args[i].Type
	}
	t, err := op.Infer(c, a, types...)
	if err != nil {
		panic(fmt.Sprintf("ir: expansion of %v: %v", c, err)) // a mistake in the table
	}
	v.Type = t
	r.values = append(r.values, v)
	return v
}
