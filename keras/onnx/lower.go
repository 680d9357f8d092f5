package onnx

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// lower writes the nodes and initializers of the graph.
func (e *exporter) lower() error {
	live := e.live()
	for _, v := range e.graph.Values {
		e.path = v.Path
		if _, done := e.names[v]; v.Op != op.Param && live[v] && !done {
			e.value(v)
		}
		if e.err != nil {
			return fmt.Errorf("layer %s: %v: %w", cmp.Or(v.Path, "?"), v.Op, e.err)
		}
	}
	e.path = ""
	renamed := map[string]string{}
	for i, o := range e.graph.Outputs {
		name, from := e.g.outputs[i].name, e.nameOf(o)
		if e.err != nil {
			return e.err
		}
		if at := e.producer(from); at != nil && renamed[from] == "" {
			renamed[from] = name
			continue
		}
		e.g.nodes = append(e.g.nodes, &nodeProto{op: "Identity", name: e.unique(name + "/Identity"), in: []string{cmp.Or(renamed[from], from)}, out: []string{name}})
	}
	for _, n := range e.g.nodes {
		for _, list := range [][]string{n.in, n.out} {
			for i, s := range list {
				if to, ok := renamed[s]; ok {
					list[i] = to
				}
			}
		}
	}
	e.removeUnread()
	return nil
}

// live returns the values that are lowered: weights of recurrent operations, and the
// product of their input with one, become a part of their node.
func (e *exporter) live() map[*ir.Value]bool {
	live := map[*ir.Value]bool{}
	for _, o := range e.graph.Outputs {
		live[o] = true
	}
	for _, v := range slices.Backward(e.graph.Values) {
		if !live[v] {
			continue
		}
		args := v.Args
		if v.Op == op.RNN {
			args = newRecurrence(v).read()
		}
		for _, a := range args {
			live[a] = true
		}
	}
	return live
}

// producer returns the node that computes the value of a name, nil for inputs and
// initializers.
func (e *exporter) producer(name string) *nodeProto {
	for _, n := range e.g.nodes {
		if slices.Contains(n.out, name) {
			return n
		}
	}
	return nil
}

// removeUnread removes nodes and initializers that nothing reads: what was lowered
// before it turned out to be part of something else.
func (e *exporter) removeUnread() {
	used := map[string]bool{}
	for _, o := range e.g.outputs {
		used[o.name] = true
	}
	for i := len(e.g.nodes) - 1; i >= 0; i-- {
		n := e.g.nodes[i]
		if !slices.ContainsFunc(n.out, func(s string) bool { return used[s] }) {
			e.g.nodes[i] = nil
			continue
		}
		for _, s := range n.in {
			used[s] = true
		}
	}
	e.g.nodes = slices.DeleteFunc(e.g.nodes, func(n *nodeProto) bool { return n == nil })
	e.g.initializers = slices.DeleteFunc(e.g.initializers, func(t *tensorProto) bool { return !used[t.name] })
}

// unique returns name, with a number if it is taken.
func (e *exporter) unique(name string) string {
	for {
		full := name
		if n := e.counts[name]; n > 0 {
			full = fmt.Sprintf("%s_%d", name, n)
		}
		e.counts[name]++
		if !e.taken[full] {
			e.taken[full] = true
			return full
		}
	}
}

// nameOf returns the name of a value. Inputs of the graph that are no inputs of the
// model become initializers, or constants, when they are read first.
func (e *exporter) nameOf(v *ir.Value) string {
	if name, ok := e.names[v]; ok {
		return name
	}
	if v.Op != op.Param {
		e.fail("%v is read before it is computed", v.Op)
		return ""
	}
	in := e.inputs[v.Attr.Index]
	if in.Variable != nil {
		raw, err := in.Variable.Bytes()
		if err != nil {
			e.fail("%w", err)
			return ""
		}
		e.names[v] = e.initializer(in.Variable, in.Variable.Name(), v.Type, raw)
		return e.names[v]
	}
	raw, err := in.Data.Bytes()
	if err != nil {
		e.fail("%w", err)
		return ""
	}
	e.names[v] = e.constantOf(v.Type, raw)
	return e.names[v]
}

// initializer adds an initializer for a variable.
func (e *exporter) initializer(of *tensor.Variable, name string, t op.Type, raw []byte) string {
	name = e.unique(name)
	if of != nil {
		e.initializerOf[of] = name
	}
	e.g.initializers = append(e.g.initializers, &tensorProto{name: name, typ: elements[t.DType], dims: sizes64(t.Shape), raw: raw})
	return name
}

func sizes64(shape []int) []int64 {
	all := make([]int64, len(shape))
	for i, d := range shape {
		all[i] = int64(d)
	}
	return all
}

// emits adds a node of several results and returns their names.
func (e *exporter) emits(results int, kind string, in []string, attrs ...*attribute) []string {
	path := e.path
	if path != "" {
		path += "/"
	}
	name := e.unique(path + kind)
	out := []string{name}
	for i := 1; i < results; i++ {
		out = append(out, e.unique(fmt.Sprintf("%s:%d", name, i)))
	}
	e.g.nodes = append(e.g.nodes, &nodeProto{name: name, op: kind, in: slices.Clone(in), out: out, attrs: attrs})
	return slices.Clone(out)
}

func (e *exporter) emit(kind string, in []string, attrs ...*attribute) string {
	return e.emits(1, kind, in, attrs...)[0]
}

// emitAs is emit of a node with a name of its own, which tells Import what it is part of.
func (e *exporter) emitAs(name, kind string, in []string, attrs ...*attribute) string {
	out := e.emit(kind, in, attrs...)
	n := e.g.nodes[len(e.g.nodes)-1]
	n.name = e.unique(n.name[:len(n.name)-len(lastSegment(n.name))] + name)
	return out
}

func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// constantOf returns the name of a constant; equal ones are one node.
func (e *exporter) constantOf(t op.Type, raw []byte) string {
	key := t.String() + string(raw)
	if name, ok := e.constants[key]; ok {
		return name
	}
	path := e.path
	e.path = ""
	name := e.emit("Constant", nil, &attribute{name: "value", kind: kindTensor, t: &tensorProto{typ: elements[t.DType], dims: sizes64(t.Shape), raw: raw}})
	e.path, e.constants[key] = path, name
	return name
}

// number returns the name of a scalar constant.
func (e *exporter) number(d dtype.DType, x float64) string {
	raw := make([]byte, d.Size())
	dtype.FromF64(raw, []float64{x}, d)
	return e.constantOf(op.Type{DType: d}, raw)
}

// ints returns the name of a constant int64 vector.
func (e *exporter) ints(x ...int) string {
	var raw []byte
	for _, i := range x {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(i))
	}
	return e.constantOf(op.Type{DType: dtype.Int64, Shape: op.Shape{len(x)}}, raw)
}

func (e *exporter) cast(x string, d dtype.DType) string {
	return e.emit("Cast", []string{x}, intAttr("to", int(elements[d])))
}

// castFrom is cast, if the type differs.
func (e *exporter) castFrom(x string, from, to dtype.DType) string {
	if from == to {
		return x
	}
	return e.cast(x, to)
}

func (e *exporter) transpose(x string, perm ...int) string {
	if slices.IsSorted(perm) {
		return x
	}
	return e.emit("Transpose", []string{x}, intsAttr("perm", perm))
}

// batchSize returns the name of the int64[1] with the size of the batch.
func (e *exporter) batchSize() string {
	if e.batch == "" {
		path := e.path
		e.path = ""
		for i, info := range e.g.inputs {
			if len(info.dims) > 0 && info.dims[0].name == "N" {
				e.batch = e.emit("Slice", []string{e.emit("Shape", []string{e.g.inputs[i].name}), e.ints(0), e.ints(1)})
				break
			}
		}
		e.path = path
	}
	return e.batch
}

// shapeOf returns the name of an int64 vector with these sizes.
func (e *exporter) shapeOf(sizes, twins []int) string {
	if slices.Equal(sizes, twins) {
		return e.ints(sizes...)
	}
	var parts []string
	var known []int
	flush := func() {
		if known != nil {
			parts = append(parts, e.ints(known...))
			known = nil
		}
	}
	for i, d := range sizes {
		s := e.sizeOf(d, twins[i])
		if s.times == 0 {
			known = append(known, d)
			continue
		}
		flush()
		x := e.batchSize()
		if s.times != 1 {
			x = e.emit("Mul", []string{x, e.ints(s.times)})
		}
		if s.plus != 0 {
			x = e.emit("Add", []string{x, e.ints(s.plus)})
		}
		parts = append(parts, x)
	}
	flush()
	if len(parts) == 1 {
		return parts[0]
	}
	return e.emit("Concat", parts, intAttr("axis", 0))
}

// reshape gives x the shape of v, or of one that has these sizes.
func (e *exporter) reshape(x string, sizes, twins []int) string {
	free := 0
	to := slices.Clone(sizes)
	for i := range sizes {
		if sizes[i] != twins[i] {
			free++
			to[i] = -1
		}
	}
	if free > 1 || free == 1 && slices.Contains(sizes, 0) {
		return e.emit("Reshape", []string{x, e.shapeOf(sizes, twins)})
	}
	if slices.Contains(to, 0) {
		return e.emit("Reshape", []string{x, e.ints(to...)}, intAttr("allowzero", 1))
	}
	return e.emit("Reshape", []string{x, e.ints(to...)})
}

// direct are the operations that are one node of ONNX with the same operands.
var direct = map[op.Code]string{
	op.Identity: "Identity", op.Neg: "Neg", op.Abs: "Abs", op.Sign: "Sign", op.Exp: "Exp", op.Log: "Log", op.Sqrt: "Sqrt",
	op.Reciprocal: "Reciprocal", op.Sin: "Sin", op.Cos: "Cos", op.Tanh: "Tanh", op.Sigmoid: "Sigmoid", op.Softplus: "Softplus",
	op.Relu: "Relu", op.Erf: "Erf", op.Floor: "Floor", op.Ceil: "Ceil", op.Round: "Round", op.Not: "Not",
	op.Add: "Add", op.Sub: "Sub", op.Mul: "Mul", op.Div: "Div", op.Pow: "Pow", op.Maximum: "Max", op.Minimum: "Min",
	op.Equal: "Equal", op.Less: "Less", op.LessEqual: "LessOrEqual", op.Greater: "Greater", op.GreaterEqual: "GreaterOrEqual",
	op.And: "And", op.Or: "Or", op.Where: "Where",
}

// onBools are the nodes for operations on bool, where they differ.
var onBools = map[op.Code]string{op.Add: "Or", op.Sub: "Xor", op.Mul: "And", op.Maximum: "Or", op.Minimum: "And"}

// reductions are the nodes of reductions.
var reductions = map[op.Code]string{
	op.Sum: "ReduceSum", op.Mean: "ReduceMean", op.Max: "ReduceMax", op.Min: "ReduceMin", op.Prod: "ReduceProd",
	op.ArgMax: "ArgMax", op.ArgMin: "ArgMin", op.SumSquares: "ReduceSumSquare",
}

// lowerings are the operations that take more than one node, or attributes.
var lowerings map[op.Code]func(e *exporter, v, twin *ir.Value, in []string) string

func init() {
	lowerings = map[op.Code]func(e *exporter, v, twin *ir.Value, in []string) string{
		op.Const: lowerConst, op.Iota: lowerIota, op.Cast: lowerCast,
		op.Barrier:   func(e *exporter, _, _ *ir.Value, in []string) string { return e.emit("Identity", in[:1]) },
		op.AllFinite: lowerAllFinite,
		op.MatMul:    lowerMatMul, op.Conv: lowerConv, op.QuantizedConv: lowerQuantizedConv, op.ConvInputGrad: lowerConvTranspose,
		op.MaxPool: lowerPool, op.AvgPool: lowerPool,
		op.Softmax: lowerSoftmax, op.LogSoftmax: lowerSoftmax, op.LayerNorm: lowerLayerNorm, op.BatchNorm: lowerBatchNorm, op.Attention: lowerAttention,
		op.RNN: lowerRNN, op.Result: lowerResult, joined: lowerJoined,
		op.Reshape: func(e *exporter, v, twin *ir.Value, in []string) string {
			return e.reshape(in[0], v.Type.Shape, twin.Type.Shape)
		},
		op.Transpose: func(e *exporter, v, _ *ir.Value, in []string) string {
			return e.emit("Transpose", in, intsAttr("perm", v.Attr.Perm))
		},
		op.BroadcastTo: func(e *exporter, v, twin *ir.Value, in []string) string {
			return e.emit("Expand", []string{in[0], e.shapeOf(v.Type.Shape, twin.Type.Shape)})
		},
		op.Concat: func(e *exporter, v, _ *ir.Value, in []string) string {
			return e.emit("Concat", in, intAttr("axis", v.Attr.Axes[0]))
		},
		op.Slice: lowerSlice, op.Pad: lowerPad,
		op.Gather:     func(e *exporter, _, _ *ir.Value, in []string) string { return e.emit("Gather", in, intAttr("axis", 0)) },
		op.ScatterAdd: lowerScatterAdd, op.TakeAlongAxis: lowerTakeAlong, op.ScatterAlongAxis: lowerScatterAlong,
	}
	for c := range reductions {
		lowerings[c] = lowerReduction
	}
}

// value lowers v.
func (e *exporter) value(v *ir.Value) {
	in := make([]string, len(v.Args))
	for i, a := range v.Args {
		if v.Op == op.RNN || v.Op == op.Result && a.Op == op.RNN {
			break // they read what they need
		}
		in[i] = e.nameOf(a)
	}
	if e.err != nil {
		return
	}
	if name, ok := onBools[v.Op]; ok && v.Type.DType == dtype.Bool {
		e.names[v] = e.emit(name, in)
		return
	}
	if text, ok := composites[v.Op]; ok && (v.Op != op.Mod || v.Type.DType.IsFloat()) {
		e.names[v] = e.composite(text, v.Args[0].Type.DType, v.Type.DType, in)
		return
	}
	if name, ok := direct[v.Op]; ok {
		e.names[v] = e.emit(name, in)
		return
	}
	if v.Op == op.Mod {
		e.names[v] = e.emit("Mod", in)
		return
	}
	f, ok := lowerings[v.Op]
	if !ok {
		e.fail("ONNX has no counterpart of it")
		return
	}
	e.names[v] = f(e, v, e.twin[v], in)
}

func lowerConst(e *exporter, v, twin *ir.Value, _ []string) string {
	t := v.Type
	if v.Attr.Data != nil {
		if !t.Shape.Equal(twin.Type.Shape) {
			e.fail("a constant depends on the size of the batch")
		}
		return e.constantOf(t, v.Attr.Data)
	}
	if len(t.Shape) == 0 {
		return e.number(t.DType, v.Attr.Value)
	}
	one := make([]byte, t.DType.Size())
	dtype.FromF64(one, []float64{v.Attr.Value}, t.DType)
	value := &tensorProto{typ: elements[t.DType], dims: []int64{1}, raw: one}
	return e.emit("ConstantOfShape", []string{e.shapeOf(t.Shape, twin.Type.Shape)}, &attribute{name: "value", kind: kindTensor, t: value})
}

func lowerIota(e *exporter, v, twin *ir.Value, _ []string) string {
	n := len(v.Type.Shape)
	last := v.Type.Shape[n-1]
	if last != twin.Type.Shape[n-1] {
		size := e.emit("Squeeze", []string{e.shapeOf(v.Type.Shape[n-1:], twin.Type.Shape[n-1:]), e.ints(0)})
		r := e.emit("Range", []string{e.number(dtype.Int64, 0), size, e.number(dtype.Int64, 1)})
		return e.emit("Expand", []string{e.castFrom(r, dtype.Int64, v.Type.DType), e.shapeOf(v.Type.Shape, twin.Type.Shape)})
	}
	row := make([]float64, last)
	for i := range row {
		row[i] = float64(i)
	}
	raw := make([]byte, last*v.Type.DType.Size())
	dtype.FromF64(raw, row, v.Type.DType)
	x := e.constantOf(op.Type{DType: v.Type.DType, Shape: op.Shape{last}}, raw)
	if n == 1 {
		return x
	}
	return e.emit("Expand", []string{x, e.shapeOf(v.Type.Shape, twin.Type.Shape)})
}

func lowerCast(e *exporter, v, _ *ir.Value, in []string) string {
	if v.Args[0].Type.DType == v.Type.DType {
		return e.emit("Identity", in)
	}
	return e.cast(in[0], v.Type.DType)
}

func lowerAllFinite(e *exporter, v, _ *ir.Value, in []string) string {
	finite := e.composite(composites[op.IsFinite], v.Args[0].Type.DType, dtype.Bool, in)
	least := e.emit("ReduceMin", []string{e.cast(finite, dtype.Int32)}, intAttr("keepdims", 0))
	return e.cast(least, dtype.Bool)
}

// lowerReduction computes sums of 16-bit types in float32, as Mezzo does.
func lowerReduction(e *exporter, v, _ *ir.Value, in []string) string {
	x, d := in[0], v.Args[0].Type.DType
	sums := v.Op == op.Sum || v.Op == op.Mean || v.Op == op.Prod || v.Op == op.SumSquares
	now := d
	switch {
	case d == dtype.Bool:
		now = dtype.Int32
	case sums && d.Is16():
		now = dtype.Float32
	case sums && v.Type.DType != d:
		now = v.Type.DType
	}
	x = e.castFrom(x, d, now)
	kept := 0
	if v.Attr.KeepDims {
		kept = 1
	}
	keep := intAttr("keepdims", kept)
	switch v.Op {
	case op.ArgMax, op.ArgMin:
		return e.castFrom(e.emit(reductions[v.Op], []string{x}, intAttr("axis", v.Attr.Axes[0]), keep), dtype.Int64, v.Type.DType)
	case op.Sum:
		x = e.emit(reductions[v.Op], []string{x, e.ints(v.Attr.Axes...)}, keep)
	case op.SumSquares:
		x = e.emit(reductions[v.Op], []string{x}, keep)
	default:
		x = e.emit(reductions[v.Op], []string{x}, intsAttr("axes", v.Attr.Axes), keep)
	}
	return e.castFrom(x, now, v.Type.DType)
}

func lowerSlice(e *exporter, v, twin *ir.Value, in []string) string {
	var start, limit, axes, step []int
	const end = 1<<63 - 1
	for i, d := range v.Args[0].Type.Shape {
		free := d != twin.Args[0].Type.Shape[i]
		lo, hi := v.Attr.Start[i], v.Attr.Limit[i]
		if free && (lo != twin.Attr.Start[i] || hi != d && hi != twin.Attr.Limit[i]) {
			e.fail("a slice ends within the batch")
		}
		if lo == 0 && hi == d && v.Attr.Stride[i] == 1 {
			continue
		}
		if hi == d {
			hi = end
		}
		start, limit, axes, step = append(start, lo), append(limit, hi), append(axes, i), append(step, v.Attr.Stride[i])
	}
	if axes == nil {
		return e.emit("Identity", in)
	}
	return e.emit("Slice", []string{in[0], e.ints(start...), e.ints(limit...), e.ints(axes...), e.ints(step...)})
}

func lowerPad(e *exporter, v, twin *ir.Value, in []string) string {
	if !slices.Equal(v.Attr.Low, twin.Attr.Low) || !slices.Equal(v.Attr.High, twin.Attr.High) {
		e.fail("padding depends on the size of the batch")
	}
	return e.emit("Pad", []string{in[0], e.ints(slices.Concat(v.Attr.Low, v.Attr.High)...), e.number(v.Type.DType, v.Attr.Value)})
}

// zeros returns the name of zeros of the shape of v.
func (e *exporter) zeros(v, twin *ir.Value) string {
	value := &tensorProto{typ: elements[v.Type.DType], dims: []int64{1}, raw: make([]byte, v.Type.DType.Size())}
	return e.emit("ConstantOfShape", []string{e.shapeOf(v.Type.Shape, twin.Type.Shape)}, &attribute{name: "value", kind: kindTensor, t: value})
}

func lowerScatterAdd(e *exporter, v, twin *ir.Value, in []string) string {
	indices := e.emit("Unsqueeze", []string{e.castFrom(in[1], v.Args[1].Type.DType, dtype.Int64), e.ints(-1)})
	return e.emit("ScatterND", []string{e.zeros(v, twin), indices, in[0]}, stringAttr("reduction", "add"))
}

func lowerTakeAlong(e *exporter, v, _ *ir.Value, in []string) string {
	axis := e.ints(-1)
	x := e.emit("GatherElements", []string{in[0], e.emit("Unsqueeze", []string{in[1], axis})}, intAttr("axis", -1))
	return e.emit("Squeeze", []string{x, axis})
}

// lowerScatterAlong compares the indices with 0, 1, 2 …: one-hot.
func lowerScatterAlong(e *exporter, v, _ *ir.Value, in []string) string {
	axis, d := e.ints(-1), v.Args[1].Type.DType
	row := make([]float64, v.Attr.Size)
	for i := range row {
		row[i] = float64(i)
	}
	raw := make([]byte, len(row)*d.Size())
	dtype.FromF64(raw, row, d)
	at := e.emit("Equal", []string{e.emit("Unsqueeze", []string{in[1], axis}), e.constantOf(op.Type{DType: d, Shape: op.Shape{len(row)}}, raw)})
	return e.emit("Where", []string{at, e.emit("Unsqueeze", []string{in[0], axis}), e.number(v.Type.DType, 0)})
}

// lowerJoined joins vectors and gives them a shape; see unpack. Where each vector is an
// element of the first axis, they are stacked.
func lowerJoined(e *exporter, v, twin *ir.Value, in []string) string {
	inner, innerTwin := append(op.Shape{1}, v.Type.Shape[1:]...), append(op.Shape{1}, twin.Type.Shape[1:]...)
	rows := make([]string, len(in))
	for i, a := range v.Args {
		if len(in) != v.Type.Shape[0] || a.Type.Shape[0] != inner.Size() {
			if !v.Type.Shape.Equal(twin.Type.Shape) && len(in) > 1 {
				e.fail("how results are joined depends on the size of the batch")
			}
			return e.reshape(e.emit("Concat", in, intAttr("axis", 0)), v.Type.Shape, twin.Type.Shape)
		}
		rows[i] = e.reshape(in[i], inner, innerTwin)
	}
	return e.emit("Concat", rows, intAttr("axis", 0))
}

// lowerResult takes a part of an operation's results.
func lowerResult(e *exporter, v, twin *ir.Value, in []string) string {
	if v.Args[0].Op == op.RNN {
		return lowerRNNResult(e, v)
	}
	lo, n := v.Attr.Start[0], v.Type.Shape.Size()
	if lo != twin.Attr.Start[0] || n != twin.Type.Shape.Size() {
		e.fail("a part of a result depends on the size of the batch")
	}
	x := e.emit("Slice", []string{in[0], e.ints(lo), e.ints(lo + n), e.ints(0)})
	return e.castFrom(e.reshape(x, v.Type.Shape, twin.Type.Shape), v.Args[0].Type.DType, v.Type.DType)
}
