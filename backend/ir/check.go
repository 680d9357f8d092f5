package ir

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// check verifies the invariants between passes: order, types, and the rules for params
// and outputs.
func (g *Graph) check() error {
	at := make(map[*Value]int, len(g.Values))
	ids := make(map[int]*Value, len(g.Values))
	for i, v := range g.Values {
		if _, dup := at[v]; dup {
			return fmt.Errorf("%v is in the graph twice", v)
		}
		if u, dup := ids[v.ID]; dup {
			return fmt.Errorf("%v and %v have the same ID", u, v)
		}
		for _, a := range v.Args {
			if _, ok := at[a]; !ok {
				return fmt.Errorf("%v: its argument %v does not come before it", v, a)
			}
		}
		at[v], ids[v.ID] = i, v
		if err := checkType(v); err != nil {
			return fmt.Errorf("%v: %w", v, err)
		}
		if err := g.checkResults(i); err != nil {
			return fmt.Errorf("%v: %w", v, err)
		}
		if v.Op == op.Param && (v.Attr.Index < 0 || v.Attr.Index >= len(g.Params) || g.Params[v.Attr.Index] != v) {
			return fmt.Errorf("%v is not among the graph's %d params", v, len(g.Params))
		}
	}
	for i, p := range g.Params {
		if p == nil {
			continue
		}
		if _, ok := at[p]; !ok || p.Op != op.Param || p.Attr.Index != i {
			return fmt.Errorf("param %d is %v, want a Param of that index in the graph", i, p)
		}
	}
	if len(g.Donate) != len(g.Outputs) || len(g.Donated) != len(g.Outputs) {
		return fmt.Errorf("got %d wishes and %d decisions to donate for %d outputs", len(g.Donate), len(g.Donated), len(g.Outputs))
	}
	for i, v := range g.Outputs {
		_, ok := at[v]
		switch {
		case !ok:
			return fmt.Errorf("output %d, %v, is not in the graph", i, v)
		case v.Op == op.Param || v.Op == op.Const:
			return fmt.Errorf("output %d is %v; want an Identity of it", i, v)
		case slices.Contains(g.Outputs[:i], v):
			return fmt.Errorf("output %d, %v, is an output before; want an Identity of it", i, v)
		case g.Donate[i] < -1 || g.Donate[i] >= len(g.Params):
			return fmt.Errorf("output %d wishes for input %d of %d", i, g.Donate[i], len(g.Params))
		}
	}
	return nil
}

// checkType infers the type of v again.
func checkType(v *Value) error {
	if !v.Type.Shape.Known() {
		return fmt.Errorf("got type %v, want every axis known", v.Type)
	}
	types := make([]op.Type, len(v.Args))
	for i, a := range v.Args {
		types[i] = a.Type
	}
	t, err := op.Infer(v.Op, v.Attr, types...)
	if err != nil {
		return err
	}
	if !t.Equal(v.Type) {
		return fmt.Errorf("got type %v, want %v", v.Type, t)
	}
	if v.Op == op.Fused {
		return checkBody(v.Attr.Body)
	}
	return nil
}

// checkResults verifies that the ExtraOutputs of value i directly follow it, that
// an ExtraOutput follows its Fused value, and that a split value has no users but
// Results.
func (g *Graph) checkResults(i int) error {
	v := g.Values[i]
	if v.Op == op.Result && v.Attr.DType != dtype.Invalid && !v.Args[0].Split {
		return fmt.Errorf("is rounded, but %v is not split", v.Args[0])
	}
	if v.Op == op.ExtraOutput {
		at := i - 1 - v.Attr.Index
		if v.Attr.Index < 0 || at < 0 || g.Values[at] != v.Args[0] || v.Args[0].Op != op.Fused || v.Attr.Index >= len(v.Args[0].Attr.Body.ExtraOutputs) {
			return fmt.Errorf("is not where extra output %d of %v belongs", v.Attr.Index, v.Args[0])
		}
		return nil
	}
	for _, a := range v.Args {
		if a.Split && v.Op != op.Result || slices.ContainsFunc(g.Outputs, func(o *Value) bool { return o == a && a.Split }) {
			return fmt.Errorf("%v is split and has no memory of its own", a)
		}
	}
	if v.Op != op.Fused {
		return nil
	}
	body := v.Attr.Body
	for k, x := range body.ExtraOutputs {
		n := int(x) - len(body.Inputs)
		switch {
		case n < 0 || n >= len(body.Code)-1 || slices.Contains(body.ExtraOutputs[:k], x):
			return fmt.Errorf("extra output %d is %%%d: want an instruction in front of the last, each once", k, x)
		case i+1+k >= len(g.Values) || g.Values[i+1+k].Op != op.ExtraOutput || g.Values[i+1+k].Args[0] != v:
			return fmt.Errorf("extra output %d does not follow it", k)
		case g.Values[i+1+k].Type.DType != body.Code[n].DType:
			return fmt.Errorf("extra output %d is %v, want %v", k, g.Values[i+1+k].Type, body.Code[n].DType)
		}
	}
	return nil
}

// checkBody infers the element type of each instruction.
func checkBody(b *op.Body) error {
	var types []op.Type
	for _, d := range b.Inputs {
		types = append(types, op.Type{DType: d})
	}
	for i, in := range b.Code {
		info := in.Op.Info()
		if info.Class != op.Elementwise || in.Op == op.Fused || in.Op == op.ExtraOutput {
			return fmt.Errorf("instruction %d: %v cannot be fused", i, in.Op)
		}
		var args []op.Type
		for _, a := range in.Args[:info.Args] {
			if a < 0 || int(a) >= len(types) {
				return fmt.Errorf("instruction %d: operand %d does not come before it", i, a)
			}
			args = append(args, types[a])
		}
		// Cast is the one element-wise operation with an attribute.
		t, err := op.Infer(in.Op, op.Attr{DType: in.DType}, args...)
		if err != nil {
			return fmt.Errorf("instruction %d: %w", i, err)
		}
		if t.DType != in.DType {
			return fmt.Errorf("instruction %d: got type %v, want %v", i, in.DType, t.DType)
		}
		types = append(types, t)
	}
	return nil
}

// String names v in errors: "%3 MatMul (dense_1)".
func (v *Value) String() string {
	if v == nil {
		return "nothing"
	}
	if v.Path == "" {
		return fmt.Sprintf("%%%d %v", v.ID, v.Op)
	}
	return fmt.Sprintf("%%%d %v (%s)", v.ID, v.Op, v.Path)
}
