package ir

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// ExpandFusedProducts expands the operations on float32 that contain products of what
// they compute, such as attention, so that RoundTF32 finds these.
func (g *Graph) ExpandFusedProducts() {
	for i := 0; i < len(g.Values); i++ {
		v := g.Values[i]
		info := v.Op.Info()
		if info.Class == op.Contraction && info.Expand != nil && v.Op != op.QuantizedMatMul && v.Args[0].Type.DType == dtype.Float32 {
			g.Expand(v)
			i-- // look at the value that took its place
		}
	}
}

// RoundTF32 rounds the operands of all products and convolutions of float32 to
// TensorFloat-32: what Tensor Cores do. An operand of several is rounded once.
func (g *Graph) RoundTF32() {
	rounded := map[*Value]*Value{}
	values := make([]*Value, 0, len(g.Values))
	for _, v := range g.Values {
		switch v.Op {
		case op.MatMul, op.Conv, op.ConvInputGrad, op.ConvKernelGrad:
			for i, a := range v.Args[:2] {
				if a.Type.DType != dtype.Float32 {
					continue
				}
				if rounded[a] == nil {
					r := &recorder{path: v.Path}
					rounded[a] = op.RoundTF32(r, a).(*Value)
					values = append(values, r.values...)
				}
				v.Args[i] = rounded[a]
			}
		}
		values = append(values, v)
	}
	g.Values = values
	for i, v := range g.Values {
		v.ID = i
	}
}
