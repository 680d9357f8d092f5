package product

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// FoldCasts finds casts of inputs to float16 that need not be made, with what they
// are of: only products read them, which compute in float32 and convert what
// they pack. Those round as they pack, to the same numbers: to write a batch in
// float16 and to read that again costs more than to read it twice as it is.
func FoldCasts(b *exec.Builder) map[*ir.Value]*ir.Value {
	set := gemm.Current()
	if set == nil || set.Panels != nil {
		return nil // tile registers want numbers of 16 bits
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
			// Products by a vector take operands as they are.
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
