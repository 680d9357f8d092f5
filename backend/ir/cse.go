package ir

import (
	"encoding/binary"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// cse, common-subexpression elimination, merges values of the same operation,
// attributes and arguments into the first recorded one. Random numbers merge too: they
// are a function of their state and stream. If both values are outputs, the second
// becomes an Identity, since no value may be an output twice. And and Or of one value,
// as masks of several layers come to, are that value.
func cse(g *Graph) {
	g.sort()
	outputs := g.outputs()
	first := make(map[string]*Value, len(g.Values))
	instead := map[*Value]*Value{}
	for _, v := range g.Values {
		for i, a := range v.Args {
			if b, ok := instead[a]; ok {
				v.Args[i] = b
			}
		}
		if v.Op == op.Param {
			continue
		}
		if (v.Op == op.And || v.Op == op.Or) && v.Args[0] == v.Args[1] && !outputs[v] {
			instead[v] = v.Args[0]
			continue
		}
		key := v.key(v.Type.DType)
		f, ok := first[key]
		switch {
		case !ok:
			first[key] = v
		case !outputs[v]:
			instead[v] = f
		case outputs[f]:
			v.Op, v.Attr, v.Args = op.Identity, op.Attr{}, []*Value{f}
		default:
			delete(outputs, v)
			outputs[f] = true
			instead[v] = f
		}
	}
	g.replace(instead)
}

// key encodes the computation of v; d replaces the element type in the attributes,
// which may be explicit or the default.
func (v *Value) key(d dtype.DType) string {
	a := v.Attr
	a.DType = d
	k := a.AppendKey(binary.AppendUvarint(nil, uint64(v.Op)))
	for _, x := range v.Args {
		k = binary.AppendUvarint(k, uint64(x.ID))
	}
	return string(k)
}
