package onnx

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
)

// The model is recorded for two sizes of batches: a size that differs between the two
// recordings depends on the batch. They are odd and share no divisor, so that sizes of
// other axes are no reason for equal numbers.
const sizeA, sizeB = 5, 7

// exporter lowers a recording to ONNX.
type exporter struct {
	graph         *ir.Graph
	inputs        []tensor.RecordedInput
	twin          map[*ir.Value]*ir.Value // values of the second recording
	uses          map[*ir.Value]int
	g             *graphProto
	names         map[*ir.Value]string // of values that were lowered
	taken         map[string]bool      // names
	counts        map[string]int       // of names with a number
	initializerOf map[*tensor.Variable]string
	constants     map[string]string // names of constant nodes by their bytes
	quantized     map[string]string // names of values that were quantized
	batch         string            // name of the int64[1] with the size of the batch
	path          string            // of the value that is being lowered
	err           error             // the first one
}

// newExporter records m.
func newExporter(m *keras.Model, o ExportOptions) (*exporter, error) {
	sizes := []int{sizeA, sizeB}
	if o.Batch < 0 {
		return nil, fmt.Errorf("Batch is %d, want a size, or 0 for any", o.Batch)
	}
	if o.Batch > 0 {
		sizes = []int{o.Batch, o.Batch}
	}
	names := m.InputNames()
	for _, name := range sortedKeys(o.Shapes) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("Shapes has an input %q; the model has %q", name, names)
		}
	}
	call := keras.Function(func(x *keras.Tensor) *keras.Tensor { return m.Call(x) }, m)
	var both [2]*tensor.Recorded
	for i, n := range sizes {
		var in []*keras.Tensor
		for k, t := range m.InputTypes() {
			shape := t.Shape.Clone()
			shape[0] = n
			if given, ok := o.Shapes[names[k]]; ok {
				if len(given) != len(shape)-1 {
					return nil, fmt.Errorf("Shapes of input %q is %v, want the shape of a sample of %v", names[k], given, t)
				}
				copy(shape[1:], given)
			}
			if !shape.Known() {
				return nil, fmt.Errorf("input %q is %v: the exported graph has fixed sizes except for the batch; give them in ExportOptions.Shapes", names[k], t)
			}
			in = append(in, tensor.Placeholder(t.DType, shape...))
		}
		x := in[0]
		if len(in) > 1 {
			x = tensor.Tuple(in...)
		}
		var err error
		if both[i], err = call.Recorded(x); err != nil {
			return nil, err
		}
		if len(both[i].Assigned) > 0 {
			return nil, fmt.Errorf("it assigns %s when it is called: a graph of ONNX has no state", both[i].Assigned[0].Name())
		}
		if err := expand(both[i].Graph); err != nil {
			return nil, err
		}
	}
	e := &exporter{
		graph: both[0].Graph, inputs: both[0].Inputs, twin: map[*ir.Value]*ir.Value{}, uses: map[*ir.Value]int{}, g: &graphProto{name: m.Name()},
		names: map[*ir.Value]string{}, taken: map[string]bool{}, counts: map[string]int{},
		initializerOf: map[*tensor.Variable]string{}, constants: map[string]string{}, quantized: map[string]string{},
	}
	a, b := both[0].Graph.Values, both[1].Graph.Values
	for i, v := range a {
		if i >= len(b) || b[i].Op != v.Op || len(b[i].Type.Shape) != len(v.Type.Shape) {
			return nil, fmt.Errorf("layer %s: what it computes depends on the size of the batch; fix it with ExportOptions.Batch", cmp.Or(v.Path, "?"))
		}
		e.twin[v] = b[i]
		for _, x := range v.Args {
			e.uses[x]++
		}
	}
	return e, e.nameEnds(m)
}

// nameEnds names the inputs and outputs.
func (e *exporter) nameEnds(m *keras.Model) error {
	inputs := m.InputNames()
	for _, name := range inputs {
		e.taken[name] = true
	}
	for _, v := range e.graph.Values {
		if v.Op == op.Param && e.inputs[v.Attr.Index].Argument >= 0 {
			e.names[v] = inputs[e.inputs[v.Attr.Index].Argument]
		}
	}
	for i, t := range m.InputTypes() {
		info := &valueInfo{name: inputs[i], typ: elements[t.DType]}
		found := false
		for v, name := range e.names {
			if name == inputs[i] {
				info.dims, found = e.dims(v), true
			}
		}
		if !found { // nothing reads it
			info.dims = append(info.dims, dim{name: "N"})
			for _, d := range t.Shape[1:] {
				info.dims = append(info.dims, dim{size: int64(max(d, 1))})
			}
		}
		e.g.inputs = append(e.g.inputs, info)
	}
	for i, name := range m.OutputNames() {
		e.g.outputs = append(e.g.outputs, &valueInfo{name: e.unique(name), typ: elements[e.graph.Outputs[i].Type.DType], dims: e.dims(e.graph.Outputs[i])})
	}
	return e.err
}

// expanded are operations that ONNX has no counterpart of: they are replaced by what
// they consist of. Recurrent operations with a mask are computed step by step.
func expanded(v *ir.Value) bool {
	switch v.Op {
	case op.RNN:
		return v.Attr.Scan.Masked
	case op.AttentionForward, op.Moments, op.BatchNormReduce, op.Loop:
		return true
	}
	return false
}

// expand replaces operations by their expansions, and removes what nothing reads.
func expand(g *ir.Graph) error {
	for i := 0; i < len(g.Values); i++ {
		if v := g.Values[i]; expanded(v) {
			g.Expand(v)
			i--
		}
		if len(g.Values) > maxNodes {
			return fmt.Errorf("the graph has more than %d operations: sequences of masked and custom recurrent layers are written step by step", maxNodes)
		}
	}
	removeUnused(g)
	for i := 0; i < len(g.Values); i++ {
		if v := g.Values[i]; v.Op == op.Result {
			if rows := unpack(v); rows != nil {
				g.Values = slices.Insert(g.Values, i, rows)
				i++
			}
		}
	}
	removeUnused(g)
	return nil
}

// unpack makes a Result of a Concat of flat vectors the vector that it came from: an
// expansion packs its results into one vector, whose parts depend on the batch. A Result
// of a flattened tensor becomes rows of that, which unpack returns.
func unpack(v *ir.Value) (rows *ir.Value) {
	c := v.Args[0]
	if len(c.Type.Shape) != 1 {
		return nil
	}
	lo, hi := v.Attr.Start[0], v.Attr.Start[0]+v.Type.Shape.Size()
	if c.Op == op.Reshape && len(c.Args[0].Type.Shape) > 1 {
		return rowsOf(v, c.Args[0], lo, hi)
	}
	if c.Op != op.Concat {
		return nil
	}
	var parts []*ir.Value
	at := 0
	for _, a := range c.Args {
		if n := a.Type.Shape[0]; at >= lo && at+n <= hi && n > 0 {
			parts = append(parts, a)
		}
		at += a.Type.Shape[0]
	}
	n := 0
	for _, p := range parts {
		n += p.Type.Shape[0]
	}
	switch {
	case n != hi-lo:
	case len(parts) == 1:
		v.Op, v.Args, v.Attr = op.Reshape, parts, op.Attr{Dims: v.Type.Shape}
	case len(parts) > 1:
		v.Op, v.Args, v.Attr = joined, parts, op.Attr{Dims: v.Type.Shape}
	}
	return nil
}

// rowsOf makes v, the elements lo to hi of x, a Reshape of rows of x, if these are whole
// rows.
func rowsOf(v, x *ir.Value, lo, hi int) *ir.Value {
	s := x.Type.Shape
	n := s[1:].Size()
	if n == 0 || lo%n != 0 || hi%n != 0 {
		return nil
	}
	a := op.Attr{Start: make([]int, len(s)), Limit: s.Clone(), Stride: slices.Repeat([]int{1}, len(s))}
	a.Start[0], a.Limit[0] = lo/n, hi/n
	t := op.Type{DType: x.Type.DType, Shape: append(op.Shape{(hi - lo) / n}, s[1:]...)}
	rows := &ir.Value{Op: op.Slice, Attr: a, Type: t, Args: []*ir.Value{x}, Path: v.Path}
	v.Op, v.Args, v.Attr = op.Reshape, []*ir.Value{rows}, op.Attr{Dims: v.Type.Shape}
	return rows
}

// joined is the operation that unpack makes of a Result of several vectors: a Concat and
// a Reshape. No graph of package ir has it.
const joined = op.Invalid

func removeUnused(g *ir.Graph) {
	used := map[*ir.Value]bool{}
	for _, o := range g.Outputs {
		used[o] = true
	}
	for _, v := range slices.Backward(g.Values) {
		if used[v] {
			for _, a := range v.Args {
				used[a] = true
			}
		}
	}
	g.Values = slices.DeleteFunc(g.Values, func(v *ir.Value) bool { return !used[v] })
}

// size is how an axis depends on the batch: times·N + plus.
type size struct{ times, plus int }

// sizeOf reconciles the sizes of an axis in the two recordings.
func (e *exporter) sizeOf(d, twin int) size {
	if d == twin {
		return size{0, d}
	}
	s := size{times: (twin - d) / (sizeB - sizeA)}
	if s.plus = d - s.times*sizeA; s.times < 0 || s.plus < 0 || s.times*sizeB+s.plus != twin {
		e.fail("a size is %d for a batch of %d and %d for one of %d; fix it with ExportOptions.Batch", d, sizeA, twin, sizeB)
	}
	return s
}

func (e *exporter) fail(format string, a ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, a...)
	}
}

// dims describes the shape of v for a file.
func (e *exporter) dims(v *ir.Value) (all []dim) {
	for i, d := range v.Type.Shape {
		switch s := e.sizeOf(d, e.twin[v].Type.Shape[i]); {
		case s.times == 0:
			all = append(all, dim{size: int64(d)})
		case s == size{1, 0}:
			all = append(all, dim{name: "N"})
		case s.plus == 0:
			all = append(all, dim{name: fmt.Sprintf("%d*N", s.times)})
		default:
			all = append(all, dim{name: fmt.Sprintf("%d*N + %d", s.times, s.plus)})
		}
	}
	return all
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
