package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/conv"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// separableEnd is the remaining step of a product that a conv.Separable has computed.
type separableEnd struct{}

func (separableEnd) Run(*exec.Run) {}

// joinSeparable joins the kernels of values that the plan marks as Joined. Runs that are watched
// use the kernels one by one.
func (b *compiler) joinSeparable(g *ir.Graph) {
	steps := b.program.steps
	for i := 1; i < len(steps); i++ {
		first, second := &steps[i-1], &steps[i]
		v := g.Values[second.pos]
		if !v.Joined || first.pos != second.pos-1 || first.alone != nil || second.alone != nil || first.watched || second.watched {
			continue
		}
		k := conv.NewSeparable(b.Builder, first.kernel, second.kernel, v.Args[1])
		if k == nil {
			continue
		}
		first.alone, first.kernel = first.kernel, k
		second.alone, second.kernel = second.kernel, separableEnd{}
		if c, ok := b.Choices[first.pos]; ok {
			c.Algorithm = "separable, " + k.String() + "; " + c.Algorithm
			b.Choices[first.pos] = c
		}
	}
}
