package reduce

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// reusedSum reads a sum of squares that an earlier step has left in Run.Sums. A
// training step with a loss scale needs AllFinite and SumSquares of each gradient; with
// it the gradient is read once.
type reusedSum struct {
	at, out int
	to      dtype.DType
}

// newReusedSum returns the kernel of the second of such a pair, or nil.
func newReusedSum(b *exec.Builder, v *ir.Value) exec.Kernel {
	if at, ok := b.SquareSums[v.Args[0]]; ok && (v.Op == op.AllFinite || v.Op == op.SumSquares) {
		return &reusedSum{at: at, out: b.At(v), to: v.Type.DType}
	}
	return nil
}

func (k *reusedSum) Run(r *exec.Run) {
	sum := r.Sums[k.at : k.at+1]
	if k.to == dtype.Bool {
		r.Values[k.out][0] = finiteSquares(sum[0])
		return
	}
	dtype.FromF64(r.Values[k.out], sum, k.to)
}

// finiteSquares returns 1 if a sum of squares is one of finite numbers: squares of
// floats of up to 32 bits add up to a finite float64 unless one of them is not finite.
func finiteSquares(sum float64) byte { return lanes.Truth(sum-sum == 0) }

// alsoRead reports whether v is the first of such a pair.
func alsoRead(b *exec.Builder, v *ir.Value) bool {
	if lanes.TypeOf(v.Args[0].Type.DType) != lanes.F32 {
		return false
	}
	switch v.Op {
	case op.SumSquares:
		return readBy(b, op.AllFinite, v)
	case op.AllFinite:
		return readBy(b, op.SumSquares, v)
	}
	return false
}

// readBy reports whether a later value computes c of v's operand.
func readBy(b *exec.Builder, c op.Code, v *ir.Value) bool {
	return slices.ContainsFunc(b.Graph.Values[b.At(v)+1:], func(u *ir.Value) bool { return u.Op == c && u.Args[0] == v.Args[0] })
}
