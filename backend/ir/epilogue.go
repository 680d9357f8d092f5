package ir

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// epilogue fuses element-wise values into the contraction that produces their
// operand: bias, activation, the mask of an activation's gradient, a cast. They
// are computed while the result is in the cache. The element-wise value must be
// the only user of the contraction. It becomes the contraction's body, with the
// product as operand 0, rounded to its own type as before, so no bit changes.
func epilogue(g *Graph) {
	users := g.users()
	outputs := g.outputs()
	inPlace := map[*Value]bool{} // outputs to donate an input to stay element-wise
	for i, v := range g.Outputs {
		if g.Donate[i] >= 0 {
			inPlace[v] = true
		}
	}
	gone := map[*Value]bool{}
	for _, v := range g.Values {
		if !elementwise(v) || inPlace[v] {
			continue
		}
		at := -1
		for i, a := range v.Args {
			if a.Op.Info().Epilogue && a.Attr.Body == nil && len(users[a]) == 1 && !outputs[a] && !gone[a] &&
				a.Type.Shape.Equal(v.Type.Shape) && !slices.Contains(v.Args[i+1:], a) && !slices.Contains(v.Args[:i], a) {
				at = i // the last one: its live range is the shortest
			}
		}
		if at >= 0 && fitsEpilogue(v, at) {
			gone[v.Args[at]] = true
			attach(v, at)
		}
	}
	g.Values = slices.DeleteFunc(g.Values, func(v *Value) bool { return gone[v] })
}

// fitsEpilogue reports whether v may be the epilogue of v.Args[at]. A gradient of a
// convolution whose window covers all of the image is a product of matrices, which lack
// axes that an operand may broadcast to.
func fitsEpilogue(v *Value, at int) bool {
	c := v.Args[at]
	var y op.Shape
	switch c.Op {
	case op.ConvInputGrad:
		y = c.Args[0].Type.Shape
	case op.ConvKernelGrad:
		y = c.Args[1].Type.Shape
	default:
		return true
	}
	if y[1:len(y)-1].Size() != 1 {
		return true
	}
	return !slices.ContainsFunc(v.Args, func(a *Value) bool {
		s := a.Type.Shape
		lanes := c.Op == op.ConvKernelGrad && len(s) > 0 && s[:len(s)-1].Size() == 1
		return s.Size() != 1 && s.Size() != v.Type.Shape.Size() && !lanes
	})
}

// attach fuses v into v.Args[at]: v becomes that contraction with v's computation
// as its epilogue.
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

// bodyOf returns the computation of an element-wise value.
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
