package onnx

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// value is a value of the graph while it is recorded: a tensor, or elements that are
// known already, such as a shape.
type value struct {
	t   *tensor.Tensor
	c   *constant
	typ int64 // its element type in the file
	w   *layers.Weight

	narrow *tensor.Tensor // the 16-bit tensor that t was cast from

	// base, if it is not nil, is the value with its axes in another order: t is base
	// transposed by perm, and is made when it is needed. Files have many transpositions
	// that undo each other: around convolutions, whose channels are last here, and in
	// what Export writes.
	base *tensor.Tensor
	perm []int
}

// evaluator records a graph.
type evaluator struct {
	layer   *Graph
	compute dtype.DType
	values  map[string]*value
	opset   int64
}

// call is a node that is recorded. Its methods read operands and attributes; they panic
// with *tensor.Error, as recording does, if these do not fit.
type call struct {
	*evaluator
	n  *nodeProto
	in []*value // nil: absent
}

// operation records a node and returns its results.
type operation func(c *call) []*value

// dtype returns the type that elements of the file are computed in.
func (e *evaluator) dtype(typ int64) dtype.DType {
	if typ == typeFloat {
		return e.compute
	}
	return elementTypes[typ].to
}

// compute records the graph on inputs.
func (g *Graph) compute(in []*tensor.Tensor) []*tensor.Tensor {
	e := &evaluator{layer: g, compute: g.ComputeDType(), values: map[string]*value{}, opset: g.program.opset}
	for i, v := range g.program.inputs {
		shape := in[i].Shape()
		if len(shape) != len(v.dims) {
			tensor.Fail("Call", "input %s is %v, want %d axes", safeio.Quote(v.name), in[i].Type(), len(v.dims))
		}
		for k, d := range v.dims {
			if k > 0 && d.size > 0 && int64(shape[k]) != d.size {
				tensor.Fail("Call", "input %s is %v, want size %d in axis %d", safeio.Quote(v.name), in[i].Type(), d.size, k)
			}
		}
		e.values[v.name] = &value{t: in[i].Cast(e.dtype(v.typ)), typ: v.typ}
	}
	for _, t := range g.program.initializers {
		if w := g.weights[t.name]; w != nil {
			v := &value{t: w.Variable.Value().Cast(e.dtype(t.typ)), typ: t.typ, w: w}
			if g.program.kernels[t.name] {
				v.t, v.base, v.perm = nil, v.t, kernelFirst(v.t.Rank()-2)
			}
			e.values[t.name] = v
		} else {
			if g.constants[t.name] == nil {
				g.constants[t.name] = &constant{proto: t}
			}
			e.values[t.name] = &value{c: g.constants[t.name], typ: t.typ}
		}
	}
	left := map[string]int{} // uses of a value that are still to come
	for _, n := range g.program.nodes {
		for _, s := range n.in {
			left[s]++
		}
	}
	for _, name := range g.program.outputs {
		left[name]++
	}
	for _, n := range g.program.nodes {
		e.node(n)
		for _, s := range n.in {
			if left[s]--; left[s] == 0 {
				delete(e.values, s)
			}
		}
	}
	out := make([]*tensor.Tensor, len(g.program.outputs))
	for i, name := range g.program.outputs {
		if e.values[name] == nil {
			tensor.Fail("Call", "output %s is an optional result that is not computed", safeio.Quote(name))
		}
		out[i] = e.tensor(e.values[name])
		if e.values[name].c != nil || e.values[name].w != nil {
			out[i] = tensor.Record(op.Identity, op.Attr{}, out[i])
		}
	}
	return out
}

// node records a node.
func (e *evaluator) node(n *nodeProto) {
	defer func() {
		if r := recover(); r != nil {
			at, ok := r.(*tensor.Error)
			if !ok {
				panic(r)
			}
			err := at.Err
			if at.Op != "" && at.Op != "Call" {
				err = fmt.Errorf("%s: %w", at.Op, err)
			}
			panic(&tensor.Error{Op: "Call", Err: safeio.Short(fmt.Errorf("node %s: %w", n.describe(), err))})
		}
	}()
	c := &call{evaluator: e, n: n, in: make([]*value, len(n.in))}
	for i, s := range n.in {
		if s == "" {
			continue
		}
		if c.in[i] = e.values[s]; c.in[i] == nil {
			c.fail("input %d, %s, is an optional result that is not computed", i, safeio.Quote(s))
		}
	}
	least := operationInputs[n.kind()]
	for i := range least {
		if i >= len(c.in) || c.in[i] == nil {
			c.fail("input %d is missing", i)
		}
	}
	out := foldNode(c)
	if out == nil {
		out = operations[n.kind()](c)
	}
	for i, s := range n.out {
		if s == "" {
			continue
		}
		if i < len(out) && out[i] != nil {
			e.values[s] = out[i]
		}
	}
}

func (c *call) fail(format string, a ...any) { tensor.Fail("", format, a...) }

// tensor returns a value as a tensor.
func (e *evaluator) tensor(v *value) *tensor.Tensor {
	switch {
	case v.t != nil:
	case v.base != nil:
		v.t = v.base.Transpose(v.perm...)
	default:
		v.t = v.c.tensor(e.dtype(v.typ))
	}
	return v.t
}

// transposed returns a value with its axes permuted, as a tensor and the permutation
// that is left.
func (e *evaluator) transposed(v *value, perm []int) (base *tensor.Tensor, left []int) {
	if v.base == nil {
		return e.tensor(v), perm
	}
	left = make([]int, len(perm))
	for i, p := range perm {
		left[i] = v.perm[p]
	}
	return v.base, left
}

// permuted returns a value with its axes permuted.
func (e *evaluator) permuted(v *value, perm ...int) *tensor.Tensor {
	base, left := e.transposed(v, perm)
	if slices.IsSorted(left) {
		return base
	}
	return base.Transpose(left...)
}

// channelsLast returns a value with its channels, axis 1, at the end, for operands of a
// rank: one with fewer axes gets axes of size 1 in front.
func (e *evaluator) channelsLast(v *value, rank int) *tensor.Tensor {
	_, last := channels(rank - 2)
	if v.base != nil && v.base.Rank() == rank {
		return e.permuted(v, last...)
	}
	t := e.tensor(v)
	if t.Shape().Size() == 1 && t.Rank() <= rank {
		return t // it broadcasts however it lies
	}
	if n := rank - t.Rank(); n > 0 {
		t = t.Reshape(slices.Concat(slices.Repeat([]int{1}, n), t.Shape())...)
	}
	return t.Transpose(last...)
}

// operands returns operands of an element-wise node in one layout: with channels last if
// one of them lies so already, and the others fit. rank is the number of axes then, else
// 0.
func (c *call) operands(indices ...int) (all []*tensor.Tensor, rank int) {
	widest := 0
	for _, i := range indices {
		if !c.has(i) {
			c.fail("input %d is missing", i)
		}
		widest = max(widest, c.rank(i))
	}
	for _, i := range indices {
		if first, _ := channels(widest - 2); c.in[i].base != nil && slices.Equal(c.in[i].perm, first) {
			rank = widest
		}
	}
	for _, i := range indices {
		if rank > 0 {
			all = append(all, c.channelsLast(c.in[i], rank))
		} else {
			all = append(all, c.tensor(c.in[i]))
		}
	}
	return all, rank
}

// laid returns a result that lies as operands returned them.
func (c *call) laid(t *tensor.Tensor, rank int, typ int64) []*value {
	out := c.as(t, typ)
	if rank > 0 && t.Rank() == rank {
		first, _ := channels(rank - 2)
		out[0].t, out[0].base, out[0].perm = nil, t, first
	}
	return out
}

// has reports whether operand i is given.
func (c *call) has(i int) bool { return i < len(c.in) && c.in[i] != nil }

// x returns operand i as a tensor.
func (c *call) x(i int) *tensor.Tensor {
	if !c.has(i) {
		c.fail("input %d is missing", i)
	}
	return c.tensor(c.in[i])
}

// both returns operands i and j as tensors of one type, the wider one of two float types,
// or that of the tensor where the other is a constant; and their layout as operands does.
func (c *call) both(i, j int) (x, y *tensor.Tensor, rank int) {
	all, rank := c.operands(i, j)
	x, y = all[0], all[1]
	a, b := x.DType(), y.DType()
	switch {
	case a == b:
	case c.in[i].c != nil && a.IsFloat() && b.IsFloat():
		x = x.Cast(b)
	case c.in[j].c != nil && a.IsFloat() && b.IsFloat():
		y = y.Cast(a)
	case a.IsFloat() && b.IsFloat() && a.Size() != b.Size():
		wide := a
		if b.Size() > a.Size() {
			wide = b
		}
		x, y = x.Cast(wide), y.Cast(wide)
	case !a.IsFloat() && !b.IsFloat() && a != dtype.Bool && b != dtype.Bool:
		wide := a
		if b.Size() > a.Size() {
			wide = b
		}
		x, y = x.Cast(wide), y.Cast(wide)
	}
	return x, y, rank
}

// accumulator returns operand i in the accumulator's type: a weight without rounding.
func (c *call) accumulator(i int, d dtype.DType) *tensor.Tensor {
	if v := c.in[i]; v.w != nil {
		return v.w.Variable.Value().Cast(d)
	}
	return c.x(i).Cast(d)
}

// rank returns the number of axes of operand i.
func (c *call) rank(i int) int { return len(c.shape(i)) }

// shape returns the shape of operand i.
func (c *call) shape(i int) op.Shape {
	if !c.has(i) {
		c.fail("input %d is missing", i)
	}
	switch v := c.in[i]; {
	case v.t != nil:
		return v.t.Shape()
	case v.base != nil:
		s := make(op.Shape, len(v.perm))
		for i, p := range v.perm {
			s[i] = v.base.Dim(p)
		}
		return s
	default:
		return v.c.shape()
	}
}

// axis resolves an axis of a rank.
func (c *call) axis(axis, rank int) int {
	a := axis
	if a < 0 {
		a += rank
	}
	if a < 0 || a >= rank {
		c.fail("axis %d does not exist in %d axes", axis, rank)
	}
	return a
}

// axes resolves axes, sorted and each once.
func (c *call) axes(axes []int, rank int) []int {
	out := make([]int, len(axes))
	for i, a := range axes {
		out[i] = c.axis(a, rank)
	}
	slices.Sort(out)
	if len(slices.Compact(slices.Clone(out))) != len(out) {
		c.fail("axes %v are not different", axes)
	}
	return out
}

func (n *nodeProto) attr(name string) *attribute {
	for _, a := range n.attrs {
		if a.name == name {
			return a
		}
	}
	return nil
}

// kindOf fails unless attribute a has the kind.
func (c *call) kindOf(a *attribute, kind int64) {
	if a.kind != kind {
		c.fail("attribute %s has the type %d, want %d", safeio.Quote(a.name), a.kind, kind)
	}
}

func (c *call) int(name string, otherwise int) int {
	a := c.n.attr(name)
	if a == nil {
		return otherwise
	}
	c.kindOf(a, kindInt)
	return c.small(a.i)
}

// small returns n as an int. Larger numbers than a size can be mean the end of an axis.
func (c *call) small(n int64) int { return int(max(min(n, op.Limit), -op.Limit)) }

func (c *call) ints(name string) []int {
	a := c.n.attr(name)
	if a == nil {
		return nil
	}
	c.kindOf(a, kindInts)
	out := make([]int, len(a.ints))
	for i, n := range a.ints {
		out[i] = c.small(n)
	}
	return out
}

func (c *call) float(name string, otherwise float64) float64 {
	a := c.n.attr(name)
	if a == nil {
		return otherwise
	}
	c.kindOf(a, kindFloat)
	return shortest(a.f)
}

// shortest returns the float64 with the fewest digits that rounds to f: 0.001 is written
// to files as a float32, and was a float64 before.
func shortest(f float32) float64 {
	var x float64
	if _, err := fmt.Sscan(fmt.Sprint(f), &x); err != nil {
		return float64(f)
	}
	return x
}

func (c *call) text(name, otherwise string) string {
	a := c.n.attr(name)
	if a == nil {
		return otherwise
	}
	c.kindOf(a, kindString)
	return a.s
}

// knownInts returns operand i, whose elements must be known: integers.
func (c *call) knownInts(i int) []int {
	if !c.has(i) {
		c.fail("input %d is missing", i)
	}
	k := c.in[i].c
	if k == nil {
		c.fail("input %d is computed from data; it must follow from shapes and constants", i)
	}
	all := k.ints()
	if all == nil {
		c.fail("input %d is %s with shape %v, want a few integers", i, typeName(c.in[i].typ), k.shape())
	}
	out := make([]int, len(all))
	for j, n := range all {
		out[j] = c.small(n)
	}
	return out
}

// knownFloats is knownInts for floats.
func (c *call) knownFloats(i int) []float64 {
	if !c.has(i) {
		c.fail("input %d is missing", i)
	}
	k := c.in[i].c
	if k == nil {
		c.fail("input %d is computed from data; it must be a constant", i)
	}
	all := k.floats()
	if all == nil {
		c.fail("input %d is %s with shape %v, want a few numbers", i, typeName(c.in[i].typ), k.shape())
	}
	return all
}

// intsOf returns an attribute of old operator sets that became operand i.
func (c *call) intsOf(name string, i int) (all []int, ok bool) {
	if c.has(i) {
		return c.knownInts(i), true
	}
	if c.n.attr(name) != nil {
		return c.ints(name), true
	}
	return nil, false
}

// one returns a result of the element type of operand 0.
func (c *call) one(t *tensor.Tensor) []*value {
	typ := int64(typeFloat)
	if c.has(0) {
		typ = c.in[0].typ
	}
	return c.as(t, typ)
}

// as returns a result of an element type.
func (c *call) as(t *tensor.Tensor, typ int64) []*value {
	if t.Err() != nil {
		panic(&tensor.Error{Err: t.Err()})
	}
	return []*value{{t: t, typ: typ}}
}
