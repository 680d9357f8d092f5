package onnx

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// foldNode computes a node whose operands are known while the graph is recorded, such as
// those that compute shapes. It returns nil for others.
func foldNode(c *call) []*value {
	switch c.n.op {
	case "Shape":
		return foldShape(c)
	case "Size":
		return newInts(typeInt64, nil, []int64{int64(c.shape(0).Size())}).result()
	}
	f := folds[c.n.op]
	if f == nil || c.n.domain != "" {
		return nil
	}
	for i, v := range c.in {
		if v == nil {
			if c.n.op == "Concat" {
				return nil
			}
			continue
		}
		if v.c == nil || !v.c.small() || v.typ == typeFloat16 || v.typ == typeBFloat16 {
			return nil
		}
		if i == 0 && v.c.proto != nil && v.c.isFloat() && v.c.shape().Size() > 1 && c.n.op != "Identity" {
			return nil // a table, which is data
		}
	}
	if out := f(c); out != nil {
		return out.result()
	}
	return nil
}

// foldShape returns the shape of operand 0, or some of its axes.
func foldShape(c *call) []*value {
	s := c.shape(0)
	n := len(s)
	at := func(i int) int {
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	lo, hi := at(c.int("start", 0)), at(c.int("end", n))
	var out []int64
	for _, d := range s[lo:max(lo, hi)] {
		out = append(out, int64(d))
	}
	return newInts(typeInt64, []int{len(out)}, out).result()
}

// folds compute nodes on known operands; they return nil where they do not.
var folds map[string]func(c *call) *constant

func init() {
	folds = map[string]func(c *call) *constant{
		"Identity": func(c *call) *constant { return c.in[0].c },
		"Constant": foldConstant, "ConstantOfShape": foldConstantOfShape, "Range": foldRange, "Cast": foldCast,
		"Gather": foldGather, "Slice": foldSlice, "Concat": foldConcat, "Expand": foldExpand, "Transpose": foldTranspose,
		"Unsqueeze": foldReshaped, "Squeeze": foldReshaped, "Reshape": foldReshaped, "Flatten": foldReshaped,
		"Where": foldWhere, "NonZero": foldNonZero,
		"ReduceProd": foldReduce, "ReduceSum": foldReduce, "ReduceMax": foldReduce, "ReduceMin": foldReduce,
	}
	for name := range foldedBinary {
		folds[name] = foldBinary
	}
	for name := range foldedUnary {
		folds[name] = foldUnary
	}
}

// picked makes a constant like c of other elements; index i of the result is index
// order[i] of c.
func (c *constant) picked(dims op.Shape, order []int) *constant {
	if c.isFloat() {
		from := c.floats()
		out := make([]float64, len(order))
		for i, k := range order {
			out[i] = from[k]
		}
		return &constant{dims: dims, f: out, typ: c.elementType()}
	}
	from := c.ints()
	out := make([]int64, len(order))
	for i, k := range order {
		out[i] = from[k]
	}
	return &constant{dims: dims, i: out, typ: c.elementType()}
}

func (c *constant) elementType() int64 {
	if c.proto != nil {
		return c.proto.typ
	}
	return c.typ
}

// identity is 0, 1, 2 … n-1.
func identity(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func foldConstant(c *call) *constant {
	if a := c.n.attr("value"); a != nil && a.t != nil {
		if _, err := a.t.shape(); err != nil || a.t.external != nil {
			c.fail("attribute value: %v", err)
		}
		return &constant{proto: a.t, typ: a.t.typ}
	}
	if a := c.n.attr("value_int"); a != nil {
		return newInts(typeInt64, nil, []int64{a.i})
	}
	if a := c.n.attr("value_ints"); a != nil {
		return newInts(typeInt64, []int{len(a.ints)}, slices.Clone(a.ints))
	}
	if a := c.n.attr("value_float"); a != nil {
		return newFloats(typeFloat, nil, []float64{float64(a.f)})
	}
	if a := c.n.attr("value_floats"); a != nil {
		out := make([]float64, len(a.floats))
		for i, f := range a.floats {
			out[i] = float64(f)
		}
		return newFloats(typeFloat, []int{len(out)}, out)
	}
	c.fail("it has no value, or one of strings or sparse elements")
	return nil
}

// sizesOf returns operand i, which is a shape.
func (c *call) sizesOf(i int) op.Shape {
	s := op.Shape(c.knownInts(i))
	if len(s) > maxRank {
		c.fail("a shape has %d axes, more than %d", len(s), maxRank)
	}
	for _, d := range s {
		if d < 0 {
			c.fail("shape %v has a negative axis", s)
		}
	}
	return s
}

func foldConstantOfShape(c *call) *constant {
	s := c.sizesOf(0)
	n := s.Size()
	if n > maxFolded {
		return nil
	}
	if a := c.n.attr("value"); a != nil && a.t != nil {
		if shape, err := a.t.shape(); err != nil || op.Shape(shape).Size() != 1 || a.t.external != nil {
			c.fail("attribute value: want one element, %v", err)
		}
		one := &constant{proto: a.t}
		return one.picked(s, make([]int, n))
	}
	return newFloats(typeFloat, s, make([]float64, n))
}

func foldRange(c *call) *constant {
	var v [3]float64
	for i := range v {
		if v[i] = c.in[i].scalar(); math.IsNaN(v[i]) {
			return nil
		}
	}
	count := math.Ceil((v[1] - v[0]) / v[2])
	if !(count <= maxFolded) {
		return nil
	}
	n := max(int(count), 0)
	f, i := make([]float64, n), make([]int64, n)
	for k := range n {
		f[k] = v[0] + float64(k)*v[2]
		i[k] = int64(f[k])
	}
	if c.in[0].c.isFloat() {
		return newFloats(c.in[0].typ, []int{n}, f)
	}
	return newInts(c.in[0].typ, []int{n}, i)
}

func foldCast(c *call) *constant {
	to := int64(c.int("to", 0))
	e, ok := elementTypes[to]
	if !ok {
		return nil
	}
	from := c.in[0].c
	switch {
	case e.to.IsFloat():
		if to == typeFloat16 || to == typeBFloat16 {
			return nil
		}
		return newFloats(to, from.shape(), slices.Clone(from.floats()))
	case to == typeBool:
		out := make([]int64, 0, from.shape().Size())
		for _, x := range from.floats() {
			one := int64(0)
			if x != 0 {
				one = 1
			}
			out = append(out, one)
		}
		return newInts(to, from.shape(), out)
	case from.isFloat():
		out := make([]int64, 0, from.shape().Size())
		for _, x := range from.floats() {
			out = append(out, int64(x))
		}
		return newInts(to, from.shape(), out)
	}
	return newInts(to, from.shape(), slices.Clone(from.ints()))
}

func foldGather(c *call) *constant {
	x, at := c.in[0].c, c.in[1].c
	s := x.shape()
	axis := c.axis(c.int("axis", 0), len(s))
	index := at.ints()
	if index == nil {
		return nil
	}
	outer, inner := s[:axis].Size(), s[axis+1:].Size()
	dims := slices.Concat(s[:axis], at.shape(), s[axis+1:])
	if dims.Size() > maxFolded {
		return nil
	}
	order := make([]int, 0, dims.Size())
	for o := range outer {
		for _, k := range index {
			if k < 0 {
				k += int64(s[axis])
			}
			if k < 0 || k >= int64(s[axis]) {
				c.fail("index %d is outside of axis %d of %v", k, axis, s)
			}
			for i := range inner {
				order = append(order, (o*s[axis]+int(k))*inner+i)
			}
		}
	}
	return x.picked(dims, order)
}

func foldSlice(c *call) *constant {
	x := c.in[0].c
	s := x.shape()
	order, dims := identity(s.Size()), s.Clone()
	for _, cut := range c.slices(s) {
		var picked []int
		outer, inner := dims[:cut.axis].Size(), dims[cut.axis+1:].Size()
		for o := range outer {
			for i := range cut.count {
				at := (o*dims[cut.axis] + cut.start + i*cut.step) * inner
				picked = append(picked, order[at:at+inner]...)
			}
		}
		order, dims[cut.axis] = picked, cut.count
	}
	return x.picked(dims, order)
}

func foldConcat(c *call) *constant {
	first := c.in[0].c.shape()
	axis := c.axis(c.int("axis", 0), len(first))
	dims := first.Clone()
	dims[axis] = 0
	total := 0
	for _, v := range c.in {
		s := v.c.shape()
		if len(s) != len(first) || v.c.isFloat() != c.in[0].c.isFloat() {
			c.fail("operands differ in axes or type")
		}
		for i := range s {
			if i != axis && s[i] != first[i] {
				c.fail("operands %v and %v differ in axis %d", first, s, i)
			}
		}
		dims[axis] += s[axis]
		total += s.Size()
	}
	if total > maxFolded {
		return nil
	}
	out := &constant{dims: dims, typ: c.in[0].typ}
	for o := range dims[:axis].Size() {
		for _, v := range c.in {
			n := v.c.shape()[axis:].Size()
			if v.c.isFloat() {
				out.f = append(out.f, v.c.floats()[o*n:(o+1)*n]...)
			} else {
				out.i = append(out.i, v.c.ints()[o*n:(o+1)*n]...)
			}
		}
	}
	return out
}

// broadcastOrder returns for each element of dims the index of the element of s that is
// repeated there.
func broadcastOrder(s, dims op.Shape) []int {
	order := make([]int, dims.Size())
	off := len(dims) - len(s)
	for i := range order {
		rest, at, stride := i, 0, 1
		for k := len(dims) - 1; k >= 0; k-- {
			d := rest % dims[k]
			rest /= dims[k]
			if k >= off {
				if s[k-off] != 1 {
					at += d * stride
				}
				stride *= s[k-off]
			}
		}
		order[i] = at
	}
	return order
}

func foldExpand(c *call) *constant {
	x := c.in[0].c
	dims, err := op.Broadcast(x.shape(), c.sizesOf(1))
	if err != nil {
		c.fail("%w", err)
	}
	if dims.Size() > maxFolded {
		return nil
	}
	return x.picked(dims, broadcastOrder(x.shape(), dims))
}

func foldTranspose(c *call) *constant {
	x := c.in[0].c
	s := x.shape()
	perm := c.perm(len(s))
	dims := make(op.Shape, len(s))
	for i, p := range perm {
		dims[i] = s[p]
	}
	order := make([]int, s.Size())
	for i := range order {
		rest := i
		index := make([]int, len(s))
		for k := len(dims) - 1; k >= 0; k-- {
			index[perm[k]] = rest % dims[k]
			rest /= dims[k]
		}
		at := 0
		for k := range s {
			at = at*s[k] + index[k]
		}
		order[i] = at
	}
	return x.picked(dims, order)
}

func foldReshaped(c *call) *constant {
	x := c.in[0].c
	return x.picked(c.reshaped(), identity(x.shape().Size()))
}

func foldWhere(c *call) *constant {
	cond, a, b := c.in[0].c, c.in[1].c, c.in[2].c
	dims, err := op.Broadcast(a.shape(), b.shape())
	if err == nil {
		dims, err = op.Broadcast(cond.shape(), dims)
	}
	if err != nil {
		c.fail("%w", err)
	}
	if dims.Size() > maxFolded || a.isFloat() != b.isFloat() {
		return nil
	}
	is := cond.ints()
	at := [3][]int{broadcastOrder(cond.shape(), dims), broadcastOrder(a.shape(), dims), broadcastOrder(b.shape(), dims)}
	out := &constant{dims: dims, typ: c.in[1].typ}
	for i := range dims.Size() {
		from, k := b, at[2][i]
		if is[at[0][i]] != 0 {
			from, k = a, at[1][i]
		}
		if a.isFloat() {
			out.f = append(out.f, from.floats()[k])
		} else {
			out.i = append(out.i, from.ints()[k])
		}
	}
	return out
}

func foldNonZero(c *call) *constant {
	x := c.in[0].c
	s := x.shape()
	rows := make([][]int64, len(s))
	count := 0
	for i, v := range x.floats() {
		if v == 0 {
			continue
		}
		count++
		rest := i
		for k := len(s) - 1; k >= 0; k-- {
			rows[k] = append(rows[k], int64(rest%s[k]))
			rest /= s[k]
		}
	}
	return newInts(typeInt64, []int{len(s), count}, slices.Concat(rows...))
}

// foldReduce reduces all axes: that is how sizes are multiplied.
func foldReduce(c *call) *constant {
	x := c.in[0].c
	axes, given := c.intsOf("axes", 1)
	if given && len(c.axes(axes, len(x.shape()))) != len(x.shape()) || !given && c.int("noop_with_empty_axes", 0) != 0 {
		return nil
	}
	all := x.floats()
	if len(all) == 0 {
		return nil
	}
	y := all[0]
	for _, v := range all[1:] {
		switch c.n.op {
		case "ReduceProd":
			y *= v
		case "ReduceSum":
			y += v
		case "ReduceMax":
			y = max(y, v)
		case "ReduceMin":
			y = min(y, v)
		}
	}
	var dims op.Shape
	if c.int("keepdims", 1) != 0 {
		dims = slices.Repeat(op.Shape{1}, len(x.shape()))
	}
	if x.isFloat() {
		return newFloats(c.in[0].typ, dims, []float64{y})
	}
	return newInts(c.in[0].typ, dims, []int64{int64(y)})
}

// foldedUnary and foldedBinary are formulas of scalars. Those of integers return what
// they would as float64, which is exact for sizes.
var foldedUnary = map[string]func(x float64) float64{
	"Neg": func(x float64) float64 { return -x }, "Abs": math.Abs, "Floor": math.Floor, "Ceil": math.Ceil,
	"Sqrt": math.Sqrt, "Reciprocal": func(x float64) float64 { return 1 / x }, "Round": math.RoundToEven,
	"Not": func(x float64) float64 { return 1 - x }, "Exp": math.Exp, "Log": math.Log,
}

var foldedBinary = map[string]func(x, y float64) float64{
	"Add": func(x, y float64) float64 { return x + y }, "Sub": func(x, y float64) float64 { return x - y },
	"Mul": func(x, y float64) float64 { return x * y }, "Div": func(x, y float64) float64 { return x / y },
	"Pow": math.Pow, "Max": math.Max, "Min": math.Min,
	"Equal": func(x, y float64) float64 { return truth(x == y) }, "Less": func(x, y float64) float64 { return truth(x < y) },
	"Greater":     func(x, y float64) float64 { return truth(x > y) },
	"LessOrEqual": func(x, y float64) float64 { return truth(x <= y) }, "GreaterOrEqual": func(x, y float64) float64 { return truth(x >= y) },
	"And": func(x, y float64) float64 { return x * y }, "Or": math.Max, "Mod": nil,
}

func truth(x bool) float64 {
	if x {
		return 1
	}
	return 0
}

// logical are the nodes whose result is bool.
var logical = []string{"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "And", "Or", "Not"}

func foldUnary(c *call) *constant {
	x := c.in[0].c
	out := make([]float64, 0, x.shape().Size())
	for _, v := range x.floats() {
		out = append(out, foldedUnary[c.n.op](v))
	}
	return c.folded(x.shape(), out)
}

func foldBinary(c *call) *constant {
	if len(c.in) != 2 || c.in[0] == nil || c.in[1] == nil {
		return nil
	}
	a, b := c.in[0].c, c.in[1].c
	dims, err := op.Broadcast(a.shape(), b.shape())
	if err != nil {
		c.fail("%w", err)
	}
	if dims.Size() > maxFolded {
		return nil
	}
	f := foldedBinary[c.n.op]
	whole := !a.isFloat() && !b.isFloat()
	switch {
	case c.n.op == "Mod" && whole && c.int("fmod", 0) == 0:
		f = func(x, y float64) float64 { return x - y*math.Floor(x/y) }
	case c.n.op == "Mod":
		return nil
	}
	x, y := a.floats(), b.floats()
	xAt, yAt := broadcastOrder(a.shape(), dims), broadcastOrder(b.shape(), dims)
	out := make([]float64, len(xAt))
	for i := range out {
		if c.n.op == "Div" && whole {
			if y[yAt[i]] == 0 {
				c.fail("an integer is divided by 0")
			}
			out[i] = math.Trunc(x[xAt[i]] / y[yAt[i]])
			continue
		}
		out[i] = f(x[xAt[i]], y[yAt[i]])
	}
	return c.folded(dims, out)
}

// folded makes a constant of the result type of the node.
func (c *call) folded(dims op.Shape, x []float64) *constant {
	typ := c.in[0].typ
	if slices.Contains(logical, c.n.op) {
		typ = typeBool
	}
	if elementTypes[typ].to.IsFloat() {
		return newFloats(typ, dims, x)
	}
	out := make([]int64, len(x))
	for i, v := range x {
		out[i] = int64(v)
	}
	return newInts(typ, dims, out)
}
