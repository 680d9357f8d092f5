package onnx

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// matMul records a product of operands that may have been cast to float32, or had their
// last axes exchanged: the operation does both itself.
func (c *call) matMul(i, j int) *tensor.Tensor {
	a := op.Attr{}
	x, y := c.x(i), c.x(j)
	if n, m := c.in[i].narrow, c.in[j].narrow; n != nil && m != nil && n.DType() == m.DType() {
		x, y, a.DType = n, m, dtype.Float32
	} else {
		if s := c.in[i].swapped(); s != nil {
			x, a.TransA = s, true
		}
		if s := c.in[j].swapped(); s != nil {
			y, a.TransB = s, true
		}
		if x.DType() != y.DType() && x.DType().IsFloat() && y.DType().IsFloat() {
			if c.in[j].c != nil || y.DType().Size() < x.DType().Size() {
				y = y.Cast(x.DType())
			} else {
				x = x.Cast(y.DType())
			}
		}
	}
	if !x.DType().IsFloat() {
		c.fail("got %v and %v, want floats", x.Type(), y.Type())
	}
	if x.Rank() > 2 && y.Rank() == 2 && !a.TransA { // one product for all rows
		s := x.Shape()
		t := tensor.Record(op.MatMul, a, x.Reshape(s[:len(s)-1].Size(), s[len(s)-1]), y)
		return t.Reshape(append(s[:len(s)-1].Clone(), t.Dim(1))...)
	}
	return tensor.Record(op.MatMul, a, x, y)
}

// swapped returns the tensor whose last two axes v exchanges, or nil.
func (v *value) swapped() *tensor.Tensor {
	n := len(v.perm)
	if v.base == nil || n < 2 || v.perm[n-1] != n-2 || v.perm[n-2] != n-1 || !slices.IsSorted(v.perm[:n-2]) {
		return nil
	}
	return v.base
}

func opMatMul(c *call) []*value {
	if c.rank(0) >= 2 && c.rank(1) >= 2 {
		return c.one(c.matMul(0, 1))
	}
	x, y := c.x(0), c.x(1)
	if x.Rank() == 0 || y.Rank() == 0 {
		c.fail("got %v and %v, want at least one axis each", x.Type(), y.Type())
	}
	row, column := x.Rank() == 1, y.Rank() == 1
	if row {
		x = x.ExpandDims(0)
	}
	if column {
		y = y.ExpandDims(1)
	}
	z := x.MatMul(y.Cast(x.DType()))
	if column {
		z = z.Squeeze(-1)
	}
	if row && column {
		z = z.Squeeze(-1)
	} else if row {
		z = z.Squeeze(-2)
	}
	return c.one(z)
}

// opGemm is alpha·A·B + beta·C, where A and B may be transposed.
func opGemm(c *call) []*value {
	x, w := c.x(0), c.x(1)
	if x.Rank() != 2 || w.Rank() != 2 {
		c.fail("got %v and %v, want matrices", x.Type(), w.Type())
	}
	if x.DType() != w.DType() {
		w = w.Cast(x.DType())
	}
	y := x.MatMulT(w, c.int("transA", 0) != 0, c.int("transB", 0) != 0)
	if alpha := c.float("alpha", 1); alpha != 1 {
		y = y.MulScalar(alpha)
	}
	if !c.has(2) {
		return c.one(y)
	}
	b := c.x(2).Cast(y.DType())
	if beta := c.float("beta", 1); beta != 1 {
		b = b.MulScalar(beta)
	}
	return c.one(y.Add(b))
}

func opEinsum(c *call) []*value {
	if len(c.in) != 2 {
		c.fail("it has %d inputs, want 2", len(c.in))
	}
	x, y, _ := c.both(0, 1)
	return c.one(tensor.Einsum(c.text("equation", ""), x, y))
}

// opAttention records what rewrite found: q [B H T D], k [B H D S], v [B H S E] and bool
// masks. Other numbers of axes are computed as they were written.
func opAttention(c *call) []*value {
	for i := range 3 {
		if c.rank(i) != 4 {
			return c.one(c.plainAttention())
		}
	}
	q, k, v := c.permuted(c.in[0], 0, 2, 1, 3), c.permuted(c.in[1], 0, 3, 1, 2), c.permuted(c.in[2], 0, 2, 1, 3)
	o := tensor.AttentionOptions{Scale: c.float("scale", 1)}
	if !q.DType().IsFloat() || k.DType() != q.DType() || v.DType() != q.DType() {
		return c.one(c.plainAttention())
	}
	scores := op.Shape{q.Dim(0), q.Dim(2), q.Dim(1), k.Dim(1)}
	if k.Dim(0) != scores[0] || v.Dim(0) != scores[0] || k.Dim(2) != scores[1] || v.Dim(2) != scores[1] || v.Dim(1) != scores[3] {
		return c.one(c.plainAttention())
	}
	if n, m, l := c.in[0].narrow, c.in[1].narrow, c.in[2].narrow; n != nil && m != nil && l != nil {
		q, k, v = n.Transpose(0, 2, 1, 3), m.Transpose(0, 3, 1, 2), l.Transpose(0, 2, 1, 3)
	}
	for i := 3; i < len(c.in); i++ {
		if known := c.in[i].c; known != nil && isCausal(known, scores) {
			o.Causal = true
			continue
		}
		m := c.x(i)
		if m.DType() != dtype.Bool || m.Rank() > 4 {
			return c.one(c.plainAttention())
		}
		m = m.Reshape(slices.Concat(slices.Repeat([]int{1}, 4-m.Rank()), m.Shape())...)
		for a, d := range m.Shape() {
			if d != 1 && d != scores[a] {
				return c.one(c.plainAttention())
			}
		}
		if o.Mask != nil {
			m = o.Mask.And(m)
		}
		o.Mask = m
	}
	return []*value{{base: tensor.Attention(q, k, v, o), perm: []int{0, 2, 1, 3}, typ: c.in[0].typ}}
}

// isCausal reports whether a mask lets each query see the keys up to its own position.
func isCausal(c *constant, scores op.Shape) bool {
	s := c.shape()
	if len(s) < 2 || s.Size() != scores[2]*scores[3] || s[len(s)-2] != scores[2] || s[len(s)-1] != scores[3] {
		return false
	}
	for i, x := range c.ints() {
		if (x != 0) != (i%scores[3] <= i/scores[3]) {
			return false
		}
	}
	return c.ints() != nil
}

// plainAttention records the nodes that rewrite found one by one.
func (c *call) plainAttention() *tensor.Tensor {
	x := c.matMul(0, 1)
	if s := c.float("scale", 1); s != 1 {
		x = x.MulScalar(s)
	}
	var seen *tensor.Tensor
	for i := 3; i < len(c.in); i++ {
		if m := c.x(i); seen == nil {
			seen = m
		} else {
			seen = seen.And(m)
		}
	}
	if seen != nil {
		x = tensor.Where(seen, x, tensor.Scalar(x.DType(), -x.DType().Max()))
	}
	x = x.Softmax(-1)
	if seen != nil {
		x = tensor.Where(seen, x, tensor.Scalar(x.DType(), 0))
	}
	return x.MatMul(c.x(2).Cast(x.DType()))
}
