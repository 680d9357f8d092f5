package backendtest

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// loopReference computes the body of a loop on bounded numbers: every
// operation stores its result.
func loopReference(a op.Attr, t op.Type, args []array) result {
	l, b := a.Loop, boundsOf(t.DType)
	types := make([]op.Type, len(args))
	values := make([][]bounded, len(args)) // of the arguments
	for i, x := range args {
		types[i] = x.Type
		if x.DType.IsFloat() {
			values[i] = exact(x.floats())
			continue
		}
		for _, n := range x.ints() {
			values[i] = append(values[i], bounded{v: float64(n)})
		}
	}
	at := l.Sections(types)
	out := make([]bounded, at.Elements)
	put := func(s op.Section, row int, x []bounded) { copy(out[s.Start+row*len(x):], x) }
	states := slices.Clone(values[l.Sequences : l.Sequences+l.States])
	for k := range l.Kept {
		row := 0
		if l.Reverse {
			row = l.Steps
		}
		put(at.States[k], row, states[k])
	}
	for i := range l.Steps {
		step, _, after := l.Place(i)
		all, shapes := slices.Clone(values), l.Inputs(types)
		for k := range l.Sequences {
			n := shapes[k].Shape.Size()
			all[k] = all[k][step*n : (step+1)*n]
		}
		copy(all[l.Sequences:], states)
		for _, in := range l.Code {
			var operands [][]bounded
			var of []op.Type
			for _, v := range in.Args {
				operands, of = append(operands, all[v]), append(of, shapes[v])
			}
			ty, err := op.Infer(in.Op, in.Attr, of...)
			if err != nil {
				panic(err)
			}
			all, shapes = append(all, b.instruction(in.Op, operands, of, ty)), append(shapes, ty)
		}
		for k, s := range at.Outputs {
			put(s, step, all[l.Results[k]])
		}
		for k, s := range at.States {
			states[k] = all[l.Results[l.Outputs+k]]
			if k < l.Kept {
				put(s, after, states[k])
			}
		}
	}
	for k := l.Kept; k < l.States; k++ {
		put(at.States[k], 0, states[k])
	}
	return flatResult(t, out)
}

// instruction computes an operation of the bodies of loopCases.
func (b bounds) instruction(c op.Code, x [][]bounded, types []op.Type, t op.Type) []bounded {
	out := make([]bounded, t.Shape.Size())
	for i := range out {
		switch c {
		case op.Add:
			out[i] = b.add(x[0][i], x[1][i])
		case op.Mul:
			out[i] = b.mul(x[0][i], x[1][i])
		case op.Tanh:
			out[i] = b.tanh(x[0][i])
		case op.Where:
			out[i] = x[1][i]
			if x[0][i].v == 0 {
				out[i] = x[2][i]
			}
		case op.MatMul:
			inner, cols := types[1].Shape[0], types[1].Shape[1]
			out[i] = b.dot(bounded{}, inner, strip{x[0][i/cols*inner:], 1}, strip{x[1][i%cols:], cols})
		default:
			panic(fmt.Sprintf("no reference for %v in a loop", c))
		}
		out[i] = b.stored(out[i])
	}
	return out
}
