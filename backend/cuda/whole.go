//go:build cuda && linux && amd64

package cuda

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// wholePart is how many elements a block of fold_arrays has.
const wholePart = 8192

// foldWhole folds all elements of v's argument. An optimizer has such folds of every
// gradient, one after the other: they wait for each other, for one launch to do
// them all, until a value is built that has to do with what they read or write.
// In a plan that shows every value none waits.
func (b *builder) foldWhole(v *ir.Value) {
	b.wholes = append(b.wholes, v)
	// Of what lies in the caller's buffers the address is known too late for a
	// table.
	if !b.foldWaits(v) {
		last := len(b.wholes) - 1
		waiting := b.wholes[:last]
		b.wholes = b.wholes[last:]
		b.foldWholes()
		b.wholes = waiting
	}
}

// folds reports whether v is a fold of a whole array as foldWhole has it.
func folds(v *ir.Value) bool {
	return (v.Op == op.SumSquares || v.Op == op.AllFinite) && wide(v.Args[0].Type.DType) == dtype.Float32 && v.Type.DType != dtype.Float64
}

// foldWaits reports whether a fold waits for others.
func (b *builder) foldWaits(v *ir.Value) bool {
	in := v.Args[0].Slot.Place
	return v.Slot.Place == ir.Arena && (in == ir.Arena || in == ir.Static) && !b.p.graph.Watched
}

// foldWholes makes the calls of the folds that wait.
func (b *builder) foldWholes() {
	if len(b.wholes) == 0 {
		return
	}
	var words []any
	first, most := 0, 1
	var in, out any = uint64(0), uint64(0)
	for _, v := range b.wholes {
		x := v.Args[0]
		n := x.Type.Shape.Size()
		parts := max(1, (n+wholePart-1)/wholePart)
		from, to := any(x), any(v)
		if x.Slot.Place == ir.Input || x.Slot.Place == ir.Output { // there is but this one
			from, in = uint64(0), x
		}
		if v.Slot.Place == ir.Output {
			to, out = uint64(0), v
		}
		words = append(words, from, to, n, int(x.Type.DType), reductions[v.Op], first, parts, int(v.Type.DType))
		first, most = first+parts, max(most, parts)
	}
	at := b.tableOf(words)
	v, count := b.wholes[0], len(b.wholes)
	var parts any = uint64(0)
	if most > 1 {
		parts = scratch(0)
		b.scratch = max(b.scratch, 4*first)
	}
	b.call(v, "fold_arrays", [3]int{first, 1, 1}, [3]int{256, 1, 1}, at, count, parts, in, out)
	if most > 1 {
		b.call(v, "fold_parts", [3]int{(count + 7) / 8, 1, 1}, [3]int{256, 1, 1}, at, count, parts, out)
	}
	b.wholes = b.wholes[:0]
}
