package onnx

import (
	"context"
	"errors"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// recurrence is a recurrent operation with the operands of ONNX's: x times w plus v is
// part of the node.
type recurrence struct {
	value   *ir.Value
	scan    *op.Scan
	at      op.RNNOperands
	x, w, v *ir.Value // w nil: x is the product already; v nil: zeros
	h, c    *ir.Value // nil: zeros
	u, b    *ir.Value // b nil: zeros
	units   int
	steps   int
	batch   int
}

func newRecurrence(v *ir.Value) *recurrence {
	s := v.Attr.Scan
	r := &recurrence{value: v, scan: s, at: s.Operands()}
	r.x, r.u, r.h = v.Args[r.at.X], v.Args[r.at.U], v.Args[r.at.H]
	if r.at.C >= 0 {
		r.c = v.Args[r.at.C]
	}
	if r.at.B >= 0 {
		r.b = v.Args[r.at.B]
	}
	r.steps, r.batch, r.units = r.x.Type.Shape[0], r.x.Type.Shape[1], r.u.Type.Shape[0]
	if s.Product {
		r.w, r.v = v.Args[r.at.W], v.Args[r.at.V]
	} else {
		r.findProduct()
	}
	for _, p := range []**ir.Value{&r.h, &r.c, &r.b, &r.v} {
		if *p != nil && isZero(*p) {
			*p = nil
		}
	}
	return r
}

// read lists the operands that are nodes of their own.
func (r *recurrence) read() []*ir.Value {
	all := []*ir.Value{r.x}
	for _, v := range []*ir.Value{r.h, r.c} {
		if v != nil {
			all = append(all, v)
		}
	}
	return all
}

// findProduct finds x·w+v that was computed for all steps at once, folded to a matrix.
func (r *recurrence) findProduct() {
	z := r.x
	if z.Op == op.Reshape {
		z = z.Args[0]
	}
	var bias *ir.Value
	if z.Op == op.Add && len(z.Args[1].Type.Shape) == 1 {
		z, bias = z.Args[0], z.Args[1]
	}
	if z.Op != op.MatMul || z.Attr.TransA || z.Attr.TransB || len(z.Args[1].Type.Shape) != 2 || z.Type.DType != r.x.Type.DType {
		return
	}
	x, w := z.Args[0], z.Args[1]
	if len(x.Type.Shape) == 2 && x.Op == op.Reshape {
		x = x.Args[0]
	}
	if want := (op.Shape{r.steps, r.batch, w.Type.Shape[0]}); x.Type.Shape.Equal(want) && isConstant(w) {
		r.x, r.w, r.v = x, w, bias
	}
}

func isZero(v *ir.Value) bool {
	for v.Op == op.BroadcastTo || v.Op == op.Cast || v.Op == op.Reshape {
		v = v.Args[0]
	}
	return v.Op == op.Const && v.Attr.Data == nil && v.Attr.Value == 0
}

// isConstant reports whether v depends on weights and constants alone, by operations
// that baked computes.
func isConstant(v *ir.Value) bool {
	switch v.Op {
	case op.Param, op.Const:
		return true
	case op.RNN, op.Result, joined, op.Loop:
		return false
	}
	return len(v.Args) > 0 && !slices.ContainsFunc(v.Args, func(a *ir.Value) bool { return !isConstant(a) })
}

// baked computes a value of weights and constants. of is the first variable in it.
func (e *exporter) baked(v *ir.Value) (t *tensor.Tensor, of *tensor.Variable) {
	switch v.Op {
	case op.Param:
		in := e.inputs[v.Attr.Index]
		switch {
		case in.Variable != nil:
			raw, err := in.Variable.Bytes()
			if err != nil {
				e.fail("%w", err)
				return tensor.Zeros(v.Type.DType, v.Type.Shape...), nil
			}
			return tensor.FromBytes(v.Type, raw), in.Variable
		case in.Data != nil:
			return in.Data, nil
		}
		e.fail("a weight of it is an input of the model")
		return tensor.Zeros(v.Type.DType, v.Type.Shape...), nil
	case op.RNN, op.Result, joined, op.Loop:
		e.fail("a weight of it is computed by %v", v.Op)
		return tensor.Zeros(v.Type.DType, v.Type.Shape...), nil
	}
	args := make([]*tensor.Tensor, len(v.Args))
	for i, a := range v.Args {
		var first *tensor.Variable
		if args[i], first = e.baked(a); of == nil {
			of = first
		}
	}
	return tensor.Record(v.Op, v.Attr, args...), of
}

// gateOrders has the order of the gates of ONNX's cells, in Mezzo's.
var gateOrders = map[op.Cell][]int{
	op.TanhCell: {0}, op.ReluCell: {0}, op.LSTMCell: {0, 3, 1, 2}, op.GRUCell: {0, 1, 2}, op.GRUBeforeCell: {0, 1, 2},
}

// byGate returns x with the gates along its last axis in another order.
func byGate(x *tensor.Tensor, order []int) *tensor.Tensor {
	if slices.IsSorted(order) {
		return x
	}
	units := x.Dim(-1) / len(order)
	var parts []*tensor.Tensor
	for _, g := range order {
		parts = append(parts, x.Slice(-1, g*units, (g+1)*units))
	}
	return tensor.Concat(-1, parts...)
}

// weight adds a computed tensor as an initializer.
func (e *exporter) weight(t *tensor.Tensor, of *tensor.Variable, fallback string) string {
	raw, err := t.Bytes()
	if err != nil {
		e.fail("%w", err)
		return ""
	}
	name := e.path + "/" + fallback
	if of != nil {
		name = of.Name()
	}
	return e.initializer(of, name, t.Type(), raw)
}

// lowerRNN lowers a recurrent operation to RNN, LSTM or GRU. Its results are read by
// lowerRNNResult.
func lowerRNN(e *exporter, v, _ *ir.Value, _ []string) string {
	r := newRecurrence(v)
	order, d, gates := gateOrders[r.scan.Cell], v.Type.DType, r.scan.Cell.Gates()
	kernel := func(from *ir.Value, fallback string) string {
		t, of := e.baked(from)
		return e.weight(byGate(t, order).Transpose().ExpandDims(0), of, fallback)
	}
	in := []string{e.nameOf(r.x), "", "", "", ""}
	if r.w != nil {
		in[1] = kernel(r.w, "kernel")
	} else {
		n := gates * r.units
		one := make([]float64, n*n)
		for i := range n {
			one[i*n+i] = 1
		}
		raw := make([]byte, n*n*d.Size())
		dtype.FromF64(raw, one, d)
		eye := tensor.FromBytes(op.Type{DType: d, Shape: op.Shape{n, n}}, raw)
		if err := tensor.Eval(context.Background(), eye); err != nil {
			e.fail("%w", err)
		}
		in[1] = e.weight(byGate(eye, order).Transpose().ExpandDims(0), nil, "identity")
	}
	in[2] = kernel(r.u, "recurrent_kernel")
	if r.v != nil || r.b != nil {
		in[3] = e.recurrentBias(r, order)
	}
	if r.h != nil || r.c != nil {
		in = append(in, e.state(r.h))
	}
	if r.c != nil {
		in = append(in, e.state(r.c))
	}
	for len(in) > 3 && in[len(in)-1] == "" {
		in = in[:len(in)-1]
	}
	attrs := []*attribute{intAttr("hidden_size", r.units)}
	if r.scan.Reverse {
		attrs = append(attrs, stringAttr("direction", "reverse"))
	}
	kind, results := "RNN", 2
	switch r.scan.Cell {
	case op.ReluCell:
		attrs = append(attrs, &attribute{name: "activations", kind: kindStrings, strings: []string{"Relu"}})
	case op.LSTMCell:
		kind, results = "LSTM", 3
	case op.GRUCell:
		kind, attrs = "GRU", append(attrs, intAttr("linear_before_reset", 1))
	case op.GRUBeforeCell:
		kind = "GRU"
	}
	return e.emits(results, kind, in, attrs...)[0]
}

// recurrentBias returns the bias of the input, followed by that of the recurrent
// product.
func (e *exporter) recurrentBias(r *recurrence, order []int) string {
	d, n := r.value.Type.DType, r.scan.Cell.Gates()*r.units
	input, recurrent := tensor.Zeros(d, n), tensor.Zeros(d, n)
	var of *tensor.Variable
	if r.v != nil {
		var t *tensor.Tensor
		t, of = e.baked(r.v)
		input = byGate(t, order)
	}
	if r.b != nil { // of the last gate of a GRU
		t, first := e.baked(r.b)
		if of == nil {
			of = first
		}
		recurrent = tensor.Concat(0, tensor.Zeros(d, 2*r.units), t)
	}
	return e.weight(tensor.Concat(0, input, recurrent).ExpandDims(0), of, "bias")
}

// state returns an initial state as [1 N U], "" for zeros.
func (e *exporter) state(v *ir.Value) string {
	if v == nil {
		return ""
	}
	return e.emit("Unsqueeze", []string{e.nameOf(v), e.ints(0)})
}

var errRNNResult = errors.New("states of steps before the last are read")

// lowerRNNResult returns the outputs of all steps, the last one, or the last cell state.
func lowerRNNResult(e *exporter, v *ir.Value) string {
	r := newRecurrence(v.Args[0])
	name := e.names[v.Args[0]]
	all := r.scan.Sections(r.steps, r.batch, r.units)
	outputs, end := all.Outputs.Rows(1, r.steps+1), r.steps
	if r.scan.Reverse {
		outputs, end = all.Outputs.Rows(0, r.steps), 0
	}
	is := func(s op.Section) bool { return v.Attr.Start[0] == s.Start && v.Type.Shape.Equal(s.Shape) }
	var y string
	switch {
	case is(outputs):
		y = e.emit("Squeeze", []string{name, e.ints(1)})
	case is(all.Outputs.Row(end)):
		y = e.emit("Squeeze", []string{name + ":1", e.ints(0)})
	case r.scan.Cell.HasState() && is(all.States.Row(end)):
		y = e.emit("Squeeze", []string{name + ":2", e.ints(0)})
	default:
		e.fail("%w", errRNNResult)
	}
	return e.castFrom(y, v.Args[0].Type.DType, v.Type.DType)
}
