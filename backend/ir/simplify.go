package ir

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// simplify removes casts to a value's own type, casts through a type that holds
// every value of the first (float16 to float32 to float16), casts that widen an
// argument that the operation widens itself, products with the constant 1, and
// identities. An Identity stays if it is an output and its argument may not be
// one: a Param, a Const, or another output.
func simplify(g *Graph) {
	g.sort()
	outputs := g.outputs()
	instead := map[*Value]*Value{}
	for _, v := range g.Values {
		for i, a := range v.Args {
			if b, ok := instead[a]; ok {
				v.Args[i] = b
			}
		}
		readUnwidened(v)
		if v.Op == op.Cast {
			if in := v.Args[0]; in.Op == op.Cast && in.Args[0].Type.DType.Widens(in.Type.DType) {
				// Rounding an exact copy rounds the original.
				v.Args[0] = in.Args[0]
			}
			if v.Args[0].Type.DType == v.Type.DType {
				v.Op, v.Attr = op.Identity, op.Attr{}
			}
		}
		if v.Op == op.Mul {
			for i, a := range v.Args {
				if b := v.Args[1-i]; isOne(a) && b.Type.Equal(v.Type) {
					v.Op, v.Attr, v.Args = op.Identity, op.Attr{}, []*Value{b}
					break
				}
			}
		}
		if v.Op != op.Identity {
			continue
		}
		a := v.Args[0]
		if outputs[v] {
			if a.Op == op.Param || a.Op == op.Const || outputs[a] {
				continue
			}
			delete(outputs, v)
			outputs[a] = true
		}
		instead[v] = a
	}
	g.replace(instead)
}

// isOne reports whether all elements of v are the constant 1: the gradient of a
// loss by itself.
func isOne(v *Value) bool {
	for v.Op == op.Reshape || v.Op == op.BroadcastTo {
		v = v.Args[0]
	}
	return v.Op == op.Const && v.Attr.Data == nil && v.Attr.Value == 1
}

// readUnwidened replaces widened arguments of an operation by the narrower values if
// its kernel widens them itself ([op.Info.Widens]). The type of the result is
// unchanged.
func readUnwidened(v *Value) {
	replaced := false
	for _, i := range v.Op.Info().Widens {
		a := v.Args[i]
		if a.Op != op.Cast {
			continue
		}
		from, to := a.Args[0].Type.DType, a.Type.DType
		if from != to && from.IsFloat() && from.Widens(to) && from.Accumulator() == to.Accumulator() {
			v.Args[i], replaced = a.Args[0], true
		}
	}
	if replaced {
		v.Attr.DType = v.Type.DType
	}
}

// replace removes the keys of instead, and puts their replacements in their place. All
// arguments must have been replaced before.
func (g *Graph) replace(instead map[*Value]*Value) {
	kept := g.Values[:0]
	for _, v := range g.Values {
		if _, gone := instead[v]; !gone {
			kept = append(kept, v)
		}
	}
	clear(g.Values[len(kept):])
	g.Values = kept
	for i, o := range g.Outputs {
		if b, ok := instead[o]; ok {
			g.Outputs[i] = b
		}
	}
}

// mergePrecisions replaces a contraction or reduction with a 16-bit result by a cast of
// the same one with a float32 result, where the graph computes that too. The
// bits are the same because both accumulate in float32 and a kernel with a
// 16-bit result rounds its accumulator once, at the end. That rules out
// arguments with a wider accumulator, and operations with an expansion, which
// may work in a wider type than their result's.
func mergePrecisions(g *Graph) {
	type duplicates struct{ wide, narrow []*Value }
	byKey := map[string]*duplicates{}
	var order []*duplicates
	for _, v := range g.Values {
		info := v.Op.Info()
		if info.Class != op.Reduction && info.Class != op.Contraction || info.Expand != nil {
			continue
		}
		if v.Args[0].Type.DType.Accumulator() != dtype.Float32 || v.Type.DType != dtype.Float32 && !v.Type.DType.Is16() {
			continue
		}
		key := v.key(dtype.Invalid)
		t := byKey[key]
		if t == nil {
			t = &duplicates{}
			byKey[key] = t
			order = append(order, t)
		}
		if v.Type.DType == dtype.Float32 {
			t.wide = append(t.wide, v)
		} else {
			t.narrow = append(t.narrow, v)
		}
	}
	for _, t := range order {
		if len(t.wide) == 0 {
			continue
		}
		wide := t.wide[0]
		for _, w := range t.wide[1:] { // without cse there may be several
			if w.ID < wide.ID {
				wide = w
			}
		}
		for _, v := range t.narrow {
			v.Op, v.Attr, v.Args = op.Cast, op.Attr{DType: v.Type.DType}, []*Value{wide}
		}
	}
	g.sort() // a wide value may have come after its narrow duplicate
}
