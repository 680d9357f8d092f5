package cpu

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// finiteSum is an AllFinite of what a SumSquares before it has read, as a step
// with a loss scale asks of each gradient: squares of floats of up to 32 bits
// add up to a finite float64 unless one of them is not finite.
type finiteSum struct{ at, out int }

func (k *finiteSum) run(r *run) {
	sum := r.sums[k.at]
	r.values[k.out][0] = truth(sum-sum == 0)
}

// readBy reports whether c of v comes later.
func (b *builder) readBy(c op.Code, v *ir.Value) bool {
	return slices.ContainsFunc(b.p.graph.Values[b.at(v)+1:], func(u *ir.Value) bool { return u.Op == c && u.Args[0] == v })
}
