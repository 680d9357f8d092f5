package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// epilogue lets a contraction apply what follows it while the result is still
// in the cache: bias, activation, the mask of an activation's gradient, a
// cast. The element-wise value that is the contraction's only reader becomes
// its body; the product is operand 0 of it, rounded to its own type as before,
// so no bit changes.
func epilogue(g *Graph) {
	users := g.users()
	outputs := g.outputs()
	wished := map[*Value]bool{} // outputs that should overwrite an input stay element-wise
	for i, v := range g.Outputs {
		if g.Donate[i] >= 0 {
			wished[v] = true
		}
	}
	gone := map[*Value]bool{}
	for _, v := range g.Values {
		if !elementwise(v) || wished[v] {
			continue
		}
		at := -1
		for i, a := range v.Args {
			if a.Op.Info().Epilogue && a.Attr.Body == nil && len(users[a]) == 1 && !outputs[a] && !gone[a] &&
				a.Type.Shape.Equal(v.Type.Shape) && !slices.Contains(v.Args[i+1:], a) && !slices.Contains(v.Args[:i], a) {
				at = i // the last one: it has waited the shortest
			}
		}
		if at >= 0 {
			gone[v.Args[at]] = true
			attach(v, at)
		}
	}
	g.Values = slices.DeleteFunc(g.Values, func(v *Value) bool { return gone[v] })
}

// attach makes v the contraction that is its argument number at, followed by
// what v computes.
func attach(v *Value, at int) {
	c := v.Args[at]
	body := v.bodyOf()
	// The product goes first; the others keep their order.
	moved := func(i int32) int32 {
		switch {
		case i == int32(at):
			return 0
		case i < int32(at):
			return i + 1
		}
		return i
	}
	out := &op.Body{Code: slices.Clone(body.Code)}
	out.Inputs = append(out.Inputs, body.Inputs[at])
	out.Inputs = append(append(out.Inputs, body.Inputs[:at]...), body.Inputs[at+1:]...)
	for i := range out.Code {
		for j := range out.Code[i].Args {
			out.Code[i].Args[j] = moved(out.Code[i].Args[j])
		}
	}
	args := slices.Clone(c.Args)
	args = append(append(args, v.Args[:at]...), v.Args[at+1:]...)
	v.Op, v.Attr, v.Args, v.Path = c.Op, c.Attr, args, c.Path
	v.Attr.DType, v.Attr.Body = c.Type.DType, out
}

// bodyOf is what an element-wise value computes.
func (v *Value) bodyOf() *op.Body {
	if v.Op == op.Fused {
		return v.Attr.Body
	}
	b := &op.Body{Code: []op.Instr{{Op: v.Op, DType: v.Type.DType}}}
	for i, a := range v.Args {
		b.Inputs = append(b.Inputs, a.Type.DType)
		b.Code[0].Args[i] = int32(i)
	}
	return b
}
