package onnx

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// recorded returns the operation that records c on the operands.
func recorded(code op.Code) operation {
	return func(c *call) []*value {
		x, rank := c.operands(0)
		t := tensor.Record(code, op.Attr{}, x[0])
		typ := c.in[0].typ
		if t.DType() == dtype.Bool {
			typ = typeBool
		}
		return c.laid(t, rank, typ)
	}
}

// binaryOp returns the operation that records c on two operands of one type.
func binaryOp(code op.Code) operation {
	return func(c *call) []*value {
		x, y, rank := c.both(0, 1)
		if of, ok := onBools[code]; ok && x.DType() == dtype.Bool {
			c.fail("%s of bool, want numbers; ONNX has %s for that", c.n.op, of)
		}
		t := tensor.Record(code, op.Attr{}, x, y)
		if t.DType() == dtype.Bool {
			return c.laid(t, rank, typeBool)
		}
		typ := c.in[0].typ
		if c.in[0].c != nil && c.in[1].c == nil || t.DType() != x.DType() {
			typ = c.in[1].typ
		}
		return c.laid(t, rank, typ)
	}
}

// floatUnary returns the operation of a formula of floats.
func floatUnary(f func(c *call, x *tensor.Tensor) *tensor.Tensor) operation {
	return func(c *call) []*value {
		x, rank := c.operands(0)
		if !x[0].DType().IsFloat() {
			c.fail("got %v, want floats", x[0].Type())
		}
		return c.laid(f(c, x[0]), rank, c.in[0].typ)
	}
}

// variadic returns the operation that combines any number of operands.
func variadic(code op.Code) operation {
	return func(c *call) []*value {
		if len(c.in) == 0 {
			c.fail("it has no input")
		}
		all, rank := c.operands(identity(len(c.in))...)
		x := all[0]
		for _, y := range all[1:] {
			if y.DType() != x.DType() {
				if y.DType().IsFloat() != x.DType().IsFloat() {
					c.fail("operands %v and %v differ in type", x.Type(), y.Type())
				}
				y = y.Cast(x.DType())
			}
			x = tensor.Record(code, op.Attr{}, x, y)
		}
		return c.laid(x, rank, c.in[0].typ)
	}
}

func opMean(c *call) []*value {
	return c.one(c.tensor(variadic(op.Add)(c)[0]).DivScalar(float64(len(c.in))))
}

func opWhere(c *call) []*value {
	x, y, rank := c.both(1, 2)
	if rank > 0 { // the condition may lie otherwise
		x, y = c.x(1).Cast(x.DType()), c.x(2).Cast(y.DType())
	}
	typ := c.in[1].typ
	if c.in[1].c != nil {
		typ = c.in[2].typ
	}
	return c.as(tensor.Where(c.x(0), x, y), typ)
}

func opXor(c *call) []*value {
	x, y, rank := c.both(0, 1)
	return c.laid(tensor.Record(op.Sub, op.Attr{}, x, y), rank, typeBool)
}

func opPow(c *call) []*value {
	x, y := c.x(0), c.x(1)
	if p := c.in[1].scalar(); p == 2 && x.DType().IsFloat() {
		return c.one(x.Square())
	}
	switch {
	case x.DType() == y.DType() && x.DType().IsFloat():
	case x.DType().IsFloat():
		y = y.Cast(x.DType())
	default: // integers
		return c.one(x.Cast(dtype.Float64).Pow(y.Cast(dtype.Float64)).Cast(x.DType()))
	}
	return c.one(x.Pow(y))
}

// opMod is x - y·floor(x/y), or with fmod the remainder with the sign of x.
func opMod(c *call) []*value {
	x, y := c.x(0), c.x(1)
	m := x.Mod(y)
	if c.int("fmod", 0) == 0 {
		return c.one(m)
	}
	m = x.Abs().Mod(y.Abs())
	return c.one(tensor.Where(x.LessScalar(0), m.Neg(), m))
}

func opClip(c *call) []*value {
	all, rank := c.operands(0)
	x := all[0]
	lo, hi := c.float("min", math.Inf(-1)), c.float("max", math.Inf(1))
	for i, p := range []*float64{&lo, &hi} {
		if c.has(1 + i) {
			if *p = c.in[1+i].scalar(); math.IsNaN(*p) {
				c.fail("a limit is computed from data; it must be a constant")
			}
		}
	}
	if lo == 0 && math.IsInf(hi, 1) {
		return c.laid(x.Relu(), rank, c.in[0].typ)
	}
	if !math.IsInf(lo, -1) {
		x = x.MaximumScalar(lo)
	}
	if !math.IsInf(hi, 1) {
		x = x.MinimumScalar(hi)
	}
	return c.laid(x, rank, c.in[0].typ)
}

// slope is x where it is positive, else a·x.
func slope(x, a *tensor.Tensor) *tensor.Tensor {
	return tensor.Where(x.GreaterScalar(0), x, x.Mul(a))
}

func opPRelu(c *call) []*value {
	x, a, rank := c.both(0, 1)
	return c.laid(slope(x, a), rank, c.in[0].typ)
}

// opSoftmax takes one axis; before opset 13 all axes from it on are one.
func opSoftmax(code op.Code) operation {
	return func(c *call) []*value {
		x := c.x(0)
		if !x.DType().IsFloat() {
			c.fail("got %v, want floats", x.Type())
		}
		s := x.Shape()
		record := func(x *tensor.Tensor, axis int) *tensor.Tensor {
			return tensor.Record(code, op.Attr{Axes: []int{axis}}, x)
		}
		if c.opset >= 13 {
			return c.one(record(x, c.axis(c.int("axis", -1), len(s))))
		}
		axis := c.axis(c.int("axis", 1), len(s))
		if axis == len(s)-1 {
			return c.one(record(x, axis))
		}
		flat := x.Reshape(s[:axis].Size(), s[axis:].Size())
		return c.one(record(flat, 1).Reshape(s...))
	}
}

func opGelu(c *call) []*value {
	x := c.x(0)
	if c.text("approximate", "none") == "tanh" {
		inner := x.Add(x.Mul(x).Mul(x).MulScalar(0.044715)).MulScalar(math.Sqrt(2 / math.Pi))
		return c.one(x.MulScalar(0.5).Mul(inner.Tanh().AddScalar(1)))
	}
	return c.one(x.Mul(tensor.NormalCDF(x)))
}

func opIsInf(c *call) []*value {
	x := c.x(0)
	up, down := x.Equal(tensor.Scalar(x.DType(), math.Inf(1))), x.Equal(tensor.Scalar(x.DType(), math.Inf(-1)))
	switch {
	case c.int("detect_negative", 1) == 0:
		return c.as(up, typeBool)
	case c.int("detect_positive", 1) == 0:
		return c.as(down, typeBool)
	}
	return c.as(up.Or(down), typeBool)
}

// reduceAxes returns the axes of a reduction: none given are all, or with
// noop_with_empty_axes none.
func (c *call) reduceAxes(x *tensor.Tensor) (axes []int, none bool) {
	axes, _ = c.intsOf("axes", 1)
	if len(axes) == 0 {
		return identity(x.Rank()), c.int("noop_with_empty_axes", 0) != 0
	}
	return c.axes(axes, x.Rank()), false
}

// reduction returns the operation that folds axes, with what is computed of each element
// before and of each result after.
func reduction(code op.Code, before, after func(x *tensor.Tensor) *tensor.Tensor) operation {
	return func(c *call) []*value {
		x := c.x(0)
		if x.DType() == dtype.Bool {
			c.fail("got %v, want numbers", x.Type())
		}
		axes, none := c.reduceAxes(x)
		if before != nil {
			x = before(x)
		}
		if !none {
			x = tensor.Record(code, op.Attr{Axes: axes, KeepDims: c.int("keepdims", 1) != 0}, x)
		}
		if after != nil {
			x = after(x)
		}
		return c.one(x)
	}
}

// meanReduction is the mean; of integers it is rounded to 0.
func meanReduction(c *call) []*value {
	x := c.x(0)
	if x.DType().IsFloat() {
		return reduction(op.Mean, nil, nil)(c)
	}
	c.fail("got %v, want floats", x.Type())
	return nil
}

func opArg(code op.Code) operation {
	return func(c *call) []*value {
		x := c.x(0)
		if c.int("select_last_index", 0) != 0 {
			c.fail("select_last_index is not supported")
		}
		axis := c.axis(c.int("axis", 0), x.Rank())
		y := tensor.Record(code, op.Attr{Axes: []int{axis}, KeepDims: c.int("keepdims", 1) != 0}, x)
		return c.as(y.Cast(dtype.Int64), typeInt64)
	}
}

// opLogSumExp subtracts the maximum first.
func opLogSumExp(c *call) []*value {
	x := c.x(0)
	axes, none := c.reduceAxes(x)
	if none || len(axes) == 0 {
		return c.one(x)
	}
	top := tensor.Record(op.Max, op.Attr{Axes: axes, KeepDims: true}, x)
	y := tensor.Record(op.Sum, op.Attr{Axes: axes, KeepDims: true}, x.Sub(top).Exp()).Log().Add(top)
	if c.int("keepdims", 1) == 0 {
		s := op.Shape{}
		for i, d := range y.Shape() {
			if !slices.Contains(axes, i) {
				s = append(s, d)
			}
		}
		y = y.Reshape(s...)
	}
	return c.one(y)
}
