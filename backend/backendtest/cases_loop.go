package backendtest

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() { register(loopCases, op.Loop) }

// instr is an operation of a loop's body.
func instr(c op.Code, args ...int) op.LoopInstr { return op.LoopInstr{Op: c, Args: args} }

func loopCases(b *builder) {
	small := each(uniform(-1, 1), fewInt)
	for i, c := range []struct {
		name              string
		steps, rows, cols int
	}{{"one", 1, 1, 1}, {"odd", 3, 5, 7}, {"lines", 4, 2, 32}, {"empty", 2, 0, 3}, {"noSteps", 0, 3, 4}, {"large", 5, 40, 64}} {
		reverse := i%2 == 1
		add := func(name string, l op.LoopBody, fills []fill, args ...op.Type) {
			l.Steps, l.Reverse = c.steps, reverse
			b.add(c.name+"/"+name, op.Attr{Loop: &l}, args, fills...).Large = large(c.name)
			reverse = !reverse
		}
		sequence, state := b.t(c.steps, c.rows, c.cols), b.t(c.rows, c.cols)
		// s ← tanh(x+s), y = s·x.
		add("sum", op.LoopBody{
			Sequences: 1, States: 1, Kept: 1, Outputs: 1, Results: []int{4, 3},
			Code: []op.LoopInstr{instr(op.Add, 0, 1), instr(op.Tanh, 2), instr(op.Mul, 3, 0)},
		}, []fill{small}, sequence, state)
		// s ← tanh(x + s·w), nothing kept, and s again as an output.
		add("product", op.LoopBody{
			Sequences: 1, States: 1, Outputs: 1, Results: []int{5, 5},
			Code: []op.LoopInstr{instr(op.MatMul, 1, 2), instr(op.Add, 0, 3), instr(op.Tanh, 4)},
		}, []fill{small, small, recurrentKernels(c.cols)}, sequence, state, b.t(c.cols, c.cols))
		// s ← s·x where the mask is true, r ← tanh s; r is not kept.
		add("masked", op.LoopBody{
			Sequences: 2, States: 2, Kept: 1, Results: []int{5, 6},
			Code: []op.LoopInstr{instr(op.Mul, 2, 0), instr(op.Where, 1, 4, 2), instr(op.Tanh, 2)},
		}, []fill{small, numbers, small, small}, sequence, op.Type{DType: dtype.Bool, Shape: sequence.Shape}, state, state)
		// States change places; no operation but for an output.
		add("exchange", op.LoopBody{
			Sequences: 1, States: 2, Kept: 2, Outputs: 1, Results: []int{3, 2, 1},
			Code: []op.LoopInstr{instr(op.Tanh, 0)},
		}, []fill{small}, sequence, state, state)
	}
}
