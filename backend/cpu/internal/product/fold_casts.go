package product

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// FoldCasts returns the casts of inputs to float16 that are folded into their consumers, with
// their operands. The consumers are products that compute in float32 and convert operands as
// they pack them: they round to float16 as they pack, with the same result. Writing a batch in
// float16 and reading it again takes longer than reading the float32 operand twice.
func FoldCasts(b *exec.Builder) map[*ir.Value]*ir.Value {
	set := gemm.Products()
	if set == nil || set.Panels != nil {
		return nil // products on tile registers need 16-bit operands
	}
	found := map[*ir.Value]*ir.Value{}
	g := b.Graph
	for _, v := range g.Values {
		if v.Op == op.Cast && v.Type.DType == dtype.Float16 && v.Args[0].Type.DType == dtype.Float32 && v.Slot.Place == ir.Arena && b.ReadOnly(v.Args[0]) {
			found[v] = v.Args[0]
		}
	}
	for _, v := range g.Values {
		s := v.Type.Shape
		for i, a := range v.Args {
			// Products with a vector read operands in place.
			if v.Op != op.MatMul || i > 1 || min(s[len(s)-2], s[len(s)-1]) == 1 {
				delete(found, a)
			}
		}
	}
	for _, v := range g.Outputs {
		delete(found, v)
	}
	return found
}
