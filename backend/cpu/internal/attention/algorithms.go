package attention

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// problem is the input of the choice of an algorithm.
type problem struct {
	b     *exec.Builder
	v     *ir.Value
	set   *gemm.Set
	pairs bool // multiply pairs of bfloat16
}

// algorithms are the algorithms of AttentionForward and AttentionGrad, named after the
// element type of their products.
var algorithms = []exec.Algorithm[problem]{
	{
		Name: "pairs",
		Applies: func(p problem) string {
			switch d := p.v.Args[0].Type.DType; {
			case d != dtype.BFloat16:
				return fmt.Sprintf("elements of %v", d)
			case p.set.Blocks == nil:
				return "no kernels for blocks of bfloat16"
			}
			return ""
		},
		Build: func(p problem) exec.Kernel {
			p.pairs = true
			return p.build()
		},
	},
	{
		Name:    "float32",
		Applies: func(problem) string { return "" },
		Build:   problem.build,
	},
}

func (p problem) build() exec.Kernel {
	if p.v.Op == op.AttentionGrad {
		return newGradient(p)
	}
	return newForward(p)
}

// New returns the kernel of AttentionForward or AttentionGrad.
func New(b *exec.Builder, v *ir.Value) exec.Kernel {
	set := gemm.Products()
	if set == nil {
		set = gemm.Portable
	}
	return exec.Choose(b, v, "attention", algorithms, problem{b: b, v: v, set: set})
}

// Algorithms returns the names of the algorithms.
func Algorithms() []string { return exec.Names(algorithms) }
