//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// group is how many threads a row of n elements has in dense.cu.
func group(t dtype.DType, n int) int {
	if n <= 256 && t != dtype.Float64 {
		return 32
	}
	return 256
}

// paired reports whether dense.cu has kernels for two types.
func paired(a, b dtype.DType) bool {
	return a == b || a == dtype.Float32 && b.Is16() || a.Is16() && b == dtype.Float32
}

// vectors is 1 if rows of n elements are read and written several elements at
// a time: all of them begin where 16 bytes do.
func (b *builder) vectors(n int, values ...*ir.Value) int {
	for _, v := range values {
		if n%4 != 0 || b.alignment(v)%16 != 0 {
			return 0
		}
	}
	return 1
}

// groupsOf is how many blocks go through rows of n elements, at most so many, and how many
// groups of threads.
func groupsOf(from dtype.DType, rows, n, most int) (blocks, groups int) {
	each := 256 / group(from, n)
	blocks = max(1, min((rows+each-1)/each, most))
	return blocks, blocks * each
}

// pairName is the name of a kernel for two types.
func pairName(name string, x, y *ir.Value) string {
	return fmt.Sprintf("%s_%v_%v", name, x.Type.DType, y.Type.DType)
}

// dense calls a kernel of dense.cu on rows of n elements, with at most so many blocks.
func (b *builder) dense(v *ir.Value, name string, from dtype.DType, rows, n, most int, args []any, values ...*ir.Value) {
	blocks, _ := groupsOf(from, rows, n, most)
	args = append(args, rows, n, b.vectors(n, values...))
	b.call(v, name, [3]int{blocks, 1, 1}, [3]int{256, 1, 1}, args...)
}

const manyBlocks = 1 << 20

func (b *builder) softmax(v *ir.Value) error {
	x := v.Args[0]
	outer, n, inner := splitAt(x.Type.Shape, v.Attr.Axes[0])
	logarithm := 0
	if v.Op == op.LogSoftmax {
		logarithm = 1
	}
	switch {
	case outer*n*inner == 0:
	case inner == 1 && n <= math.MaxInt32 && paired(x.Type.DType, v.Type.DType):
		b.dense(v, pairName("softmax_rows", x, v), x.Type.DType, outer, n, manyBlocks, []any{x, v, logarithm}, x, v)
	default:
		b.call(v, "softmax_"+x.Type.DType.String(), [3]int{outer * inner, 1, 1}, [3]int{256, 1, 1}, x, v, int(v.Type.DType), logarithm, n, inner)
	}
	return nil
}

func (b *builder) softmaxGrad(v *ir.Value) error {
	y, g := v.Args[0], v.Args[1]
	outer, n, inner := splitAt(y.Type.Shape, v.Attr.Axes[0])
	switch from, to := y.Type.DType, g.Type.DType; {
	case outer*n*inner == 0:
	case inner == 1 && n <= math.MaxInt32 && to == v.Type.DType && paired(from, to):
		b.dense(v, pairName("softmax_grad_rows", y, g), from, outer, n, manyBlocks, []any{y, g, v}, y, g, v)
	default:
		b.call(v, "softmax_grad_"+from.String(), [3]int{outer * inner, 1, 1}, [3]int{256, 1, 1}, y, g, int(to), v, int(v.Type.DType), n, inner)
	}
	return nil
}

// uncentered is a parameter.
func uncentered(a op.Attr) int {
	if a.Uncentered {
		return 1
	}
	return 0
}

func (b *builder) normalize(v *ir.Value) error {
	x := v.Args[0]
	rows, n := x.Type.Shape[0], x.Type.Shape[1]
	if s := b.sums[v]; s != nil {
		b.dense(v, "add_normalize_"+x.Type.DType.String(), x.Type.DType, rows, n, manyBlocks,
			[]any{s.x, pointer(s.bias), s.mask, s.keep, s.residual, s.sum, v.Args[1], v.Args[2], v, v.Attr.Epsilon, uncentered(v.Attr)}, s.x, s.residual, s.sum, v)
		return nil
	}
	if from, to := x.Type.DType, v.Type.DType; !paired(from, to) {
		return &backend.UnsupportedError{Device: b.p.device.Name(), Op: v.Op, DType: to, Path: v.Path}
	}
	if rows*n > 0 {
		b.dense(v, pairName("normalize", x, v), x.Type.DType, rows, n, manyBlocks, []any{x, v.Args[1], v.Args[2], v, v.Attr.Epsilon, uncentered(v.Attr)}, x, v)
	}
	return nil
}

func (b *builder) normalizeGrad(v *ir.Value) error {
	x, g := v.Args[0], v.Args[2]
	rows, n := x.Type.Shape[0], x.Type.Shape[1]
	if from, to := x.Type.DType, g.Type.DType; !paired(from, to) {
		return &backend.UnsupportedError{Device: b.p.device.Name(), Op: v.Op, DType: to, Path: v.Path}
	}
	if n == 0 {
		return nil
	}
	defer func(held int) { b.reserved = held }(b.reserved)
	const most = 512 // blocks: what they add up by themselves has to be added up again
	blocks, groups := groupsOf(x.Type.DType, rows, n, most)
	t, parts := v.Type.DType, b.parts(v)
	var sums []rowSum
	for i, r := range parts[1:] {
		if r != nil {
			sums = append(sums, rowSum{v: v, in: i * n * t.Size(), out: r, writes: []*ir.Value{r}, from: t, to: r.Type.DType, how: sum, rows: groups, columns: n, stride: 2 * n, divisor: 1})
		}
	}
	var d dropped
	if r := parts[0]; r != nil && v.Split && r.Type.DType == x.Type.DType && r.Type.DType != t {
		d = b.droppedGrad(v, r)
	}
	// What a block adds up lies in memory of the sums that wait, or in that of the call.
	waits := !slices.ContainsFunc(sums, func(s rowSum) bool { return !s.may(b) })
	var first int
	from := func(at int) any { return scratch(first + at) }
	if bytes := groups * 2 * n * t.Size(); waits {
		first, from = int(b.partial(bytes)), func(at int) any { return partialSums(first + at) }
	} else {
		first = int(b.hold(bytes))
	}
	b.narrowed(parts[0], t, x.Type.DType, func(out *ir.Value, narrow bool) {
		values := []*ir.Value{x, g}
		if out != nil {
			values = append(values, out)
		}
		if d.to != nil {
			values = append(values, d.to)
		}
		b.dense(v, pairName("normalize_grad", x, g), x.Type.DType, rows, n, blocks,
			[]any{x, v.Args[1], g, pointer(out), number(narrow), pointer(d.mask), pointer(d.keep), pointer(d.to), from(0), v.Attr.Epsilon, uncentered(v.Attr)}, values...)
	})
	for _, s := range sums {
		s.in = from(s.in.(int))
		if waits {
			b.rowSums = append(b.rowSums, s)
		} else {
			b.sumRows(s)
		}
	}
	return nil
}

// A layer normalization in a residual network has a sum as its operand, of a residual and of
// what dropout leaves of a layer's result; and dropout takes its gradient. The kernels of
// dense.cu compute that too, on rows that a group of threads holds in registers, in the
// types and with the roundings of the chains: rows are written and read once less.

// held reports whether those kernels have rows of n elements of 16 bits.
func (b *builder) held(t dtype.DType, n int, values ...*ir.Value) bool {
	return t.Is16() && n > 0 && (n <= 256 || n <= 2048 && b.vectors(n, values...) == 1)
}

// droppedSum is a sum that a layer normalization computes: x with a bias, or nil, of which
// dropout leaves what a mask says, times a factor, and a residual.
type droppedSum struct{ x, bias, mask, keep, residual, sum *ir.Value }

// bodyOf walks through the instructions of a body.
type bodyOf struct {
	*op.Body
	operands []*ir.Value
}

// does returns the operands of instruction i, if it is one of a code and type.
func (m bodyOf) does(i int32, c op.Code, t dtype.DType) (args [3]int32, ok bool) {
	at := int(i) - len(m.Inputs)
	if at < 0 || at >= len(m.Code) || m.Code[at].Op != c || m.Code[at].DType != t {
		return args, false
	}
	return m.Code[at].Args, true
}

// operand is the operand that i is, of a type and so many elements; nil: it is none.
func (m bodyOf) operand(i int32, t dtype.DType, size int) *ir.Value {
	if int(i) >= len(m.Inputs) || m.operands[i].Type.DType != t || m.operands[i].Type.Shape.Size() != size {
		return nil
	}
	return m.operands[i]
}

// zero reports whether i is the constant 0.
func (m bodyOf) zero(i int32, t dtype.DType) bool {
	z := m.operand(i, t, 1)
	return z != nil && z.Op == op.Const && z.Attr.Data == nil && z.Attr.Value == 0
}

// scaled finds x in Cast(Cast(x)·keep), the rounding of a product with a float32 factor.
func (m bodyOf) scaled(i int32, t dtype.DType) (x int32, keep *ir.Value) {
	c, ok := m.does(i, op.Cast, t)
	p, ok2 := m.does(c[0], op.Mul, dtype.Float32)
	w, ok3 := m.does(p[0], op.Cast, dtype.Float32)
	if !ok || !ok2 || !ok3 {
		return 0, nil
	}
	return w[0], m.operand(p[1], dtype.Float32, 1)
}

// addsToNormalize reports whether the layer normalization that comes next computes c, whose
// last computation is a body, in which operands are what b.chain takes.
func (b *builder) addsToNormalize(c *ir.Value, body *op.Body, operands []*ir.Value) bool {
	t, size := c.Type.DType, c.Type.Shape.Size()
	if len(body.ExtraOutputs) > 0 || c.Slot.Place != ir.Arena || b.p.graph.Watched || b.packed[c] != (packing{}) {
		return false
	}
	var v *ir.Value
	for _, u := range b.p.graph.Values[b.pos[c]+1:] {
		if u.Op != op.Const && u.Op != op.Param && !u.View() {
			v = u
			break
		}
	}
	if v == nil || v.Op != op.LayerNorm || source(v.Args[0]) != c || v.Type.DType != t || v.Args[0].Type.DType != t {
		return false
	}
	n := v.Type.Shape[1]
	m := bodyOf{body, operands}
	s := &droppedSum{sum: c}
	last := int32(len(m.Inputs) + len(m.Code) - 1)
	a, ok := m.does(last, op.Add, t)
	for i := range 2 {
		w, selects := m.does(a[i], op.Where, t)
		r := m.operand(a[1-i], t, size)
		if !ok || !selects || r == nil || !m.zero(w[2], t) {
			continue
		}
		x, keep := m.scaled(w[1], t)
		if biased, ok := m.does(x, op.Add, t); ok && keep != nil {
			x, s.bias = biased[0], m.operand(biased[1], t, n)
			if s.bias == nil {
				x, s.bias = biased[1], m.operand(biased[0], t, n)
			}
			if s.bias == nil || s.bias.Type.Shape[len(s.bias.Type.Shape)-1] != n {
				return false
			}
		}
		s.x, s.mask, s.keep, s.residual = m.operand(x, t, size), m.operand(w[0], dtype.Bool, size), keep, r
	}
	if s.x != nil && b.isTemporary(s.x) && len(b.wholes) > 0 { // which may be called before v, in scratch memory
		return false
	}
	if s.x == nil || s.mask == nil || s.keep == nil || !b.held(t, n, s.x, s.residual, c, v) {
		return false
	}
	for _, o := range operands {
		if b.mayOverlap(v, o, o == s.x || o == s.residual) || b.mayOverlap(c, o, o == s.x || o == s.residual) {
			return false
		}
	}
	b.sums[v] = s
	return true
}

// mayOverlap reports whether out may overlap an operand of a kernel that writes a row when it
// has read it: where the operand has such rows they may be the same memory.
func (b *builder) mayOverlap(out, operand *ir.Value, rows bool) bool {
	if b.isTemporary(operand) || !b.meet(out, operand) {
		return false
	}
	return !rows || out.Slot != operand.Slot || out.Type.Bytes() != operand.Type.Bytes()
}

// dropped is what dropout leaves of a gradient, and its mask and factor.
type dropped struct{ to, mask, keep *ir.Value }

// droppedGrad finds what dropout makes of a gradient x, a result of v: a value that is
// computed soon after. It is computed with v then.
func (b *builder) droppedGrad(v, x *ir.Value) (d dropped) {
	t, size := x.Type.DType, x.Type.Shape.Size()
	const soon = 16
	between := b.p.graph.Values[b.pos[v]+1:]
	between = between[:min(soon, len(between))]
	at := slices.IndexFunc(between, func(u *ir.Value) bool {
		return u.Op == op.Fused && slices.ContainsFunc(u.Args, func(a *ir.Value) bool { return source(a) == x })
	})
	if at < 0 {
		return dropped{}
	}
	d.to = between[at]
	if len(d.to.Attr.Body.ExtraOutputs) > 0 || d.to.Slot.Place != ir.Arena || b.p.graph.Watched || b.packed[d.to] != (packing{}) ||
		d.to.Type.DType != t || b.pos[d.to] >= b.p.graph.Commit {
		return dropped{}
	}
	m := bodyOf{d.to.Attr.Body, d.to.Args}
	i, keep := m.scaled(int32(len(m.Inputs)+len(m.Code)-1), t)
	w, ok := m.does(i, op.Where, t)
	if keep == nil || !ok || !m.zero(w[2], t) {
		return dropped{}
	}
	d.keep, d.mask = keep, m.operand(w[0], dtype.Bool, size)
	g := m.operand(w[1], t, size)
	if d.mask == nil || g == nil || source(g) != x || !b.held(t, v.Args[0].Type.Shape[1], v.Args[0], v.Args[2], x, d.to) || b.meet(d.to, x) {
		return dropped{}
	}
	for i, o := range append(slices.Clone(v.Args), d.mask, d.keep) {
		if b.mayOverlap(d.to, o, i == 0 || i == 2) {
			return dropped{}
		}
	}
	for _, w := range between[:at] { // its memory may be another's until it is computed
		if w.Op != op.Const && w.Op != op.Param && !w.View() && (slices.ContainsFunc(b.results(w), func(y *ir.Value) bool { return b.meet(d.to, y) }) ||
			slices.ContainsFunc(w.Args, func(y *ir.Value) bool { return b.meet(d.to, y) })) {
			return dropped{}
		}
	}
	b.meetWaiting(d.to)
	b.meetRowSums(d.to)
	b.computed[d.to] = true
	return d
}

// source is the value that views lead to.
func source(v *ir.Value) *ir.Value {
	for v.View() {
		v = v.Args[0]
	}
	return v
}
