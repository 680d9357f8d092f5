package reduce

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// reusedSum is what a sum of squares says that a step before has formed and left in
// run.sums: an AllFinite and a SumSquares of one value, as a step with a loss scale
// asks for of each gradient, read it once.
type reusedSum struct {
	at, out int
	to      dtype.DType
}

// newReusedSum makes the kernel of the second of such a pair, or returns nil.
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

// finiteSquares reports whether a sum of squares is one of finite numbers: squares
// of floats of up to 32 bits add up to a finite float64 unless one of them is not
// finite.
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

// readBy reports whether c of what v reads comes after v.
func readBy(b *exec.Builder, c op.Code, v *ir.Value) bool {
	return slices.ContainsFunc(b.Graph.Values[b.At(v)+1:], func(u *ir.Value) bool { return u.Op == c && u.Args[0] == v.Args[0] })
}
