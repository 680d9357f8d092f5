package onnx

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// product computes a contraction of two operands. ONNX cannot say that a sum is wider
// than its operands, so these are cast to the type of the result where that is wider.
func (e *exporter) product(kind string, v *ir.Value, in []string, attrs ...*attribute) string {
	d, to := v.Args[0].Type.DType, v.Type.DType
	if to.Size() <= d.Size() {
		return e.castFrom(e.emit(kind, in, attrs...), d, to)
	}
	wide := make([]string, len(in))
	for i := range in {
		wide[i] = e.cast(in[i], to)
	}
	return e.emit(kind, wide, attrs...)
}

func lowerMatMul(e *exporter, v, _ *ir.Value, in []string) string {
	for i, swap := range []bool{v.Attr.TransA, v.Attr.TransB} {
		if swap {
			n := len(v.Args[i].Type.Shape)
			perm := make([]int, n)
			for k := range perm {
				perm[k] = k
			}
			perm[n-1], perm[n-2] = n-2, n-1
			in[i] = e.transpose(in[i], perm...)
		}
	}
	return e.product("MatMul", v, in)
}

// channels returns the permutations that put the channels of n spatial axes first, and
// last again.
func channels(n int) (first, last []int) {
	first, last = []int{0, n + 1}, []int{0}
	for i := range n {
		first, last = append(first, 1+i), append(last, 2+i)
	}
	return first, append(last, 1)
}

// kernelFirst returns the permutation that puts the last two axes of kernels with n
// spatial axes, exchanged, before these.
func kernelFirst(n int) []int {
	perm := []int{n + 1, n}
	for i := range n {
		perm = append(perm, i)
	}
	return perm
}

// cropped cuts elements off x, [N spatial… C], where padding is negative, and returns
// the padding that is left.
func (e *exporter) cropped(x string, v *ir.Value) (y string, low, high []int) {
	low, high = slices.Clone(v.Attr.Low), slices.Clone(v.Attr.High)
	for i := range low {
		if low[i] >= 0 && high[i] >= 0 {
			continue
		}
		from, to := max(0, -low[i]), v.Args[0].Type.Shape[i+1]-max(0, -high[i])
		x = e.emit("Slice", []string{x, e.ints(from), e.ints(to), e.ints(i + 1), e.ints(1)})
		low[i], high[i] = max(0, low[i]), max(0, high[i])
	}
	return x, low, high
}

func lowerConv(e *exporter, v, _ *ir.Value, in []string) string {
	n := len(v.Type.Shape) - 2
	first, last := channels(n)
	x, low, high := e.cropped(in[0], v)
	x = e.transpose(x, first...)
	w := e.transpose(in[1], kernelFirst(n)...)
	return e.transpose(e.product("Conv", v, []string{x, w}, convAttrs(v, low, high)...), last...)
}

// convAttrs returns the attributes of the convolution v with some padding.
func convAttrs(v *ir.Value, low, high []int) []*attribute {
	kernel := v.Args[1].Type.Shape[:len(low)]
	return []*attribute{intsAttr("kernel_shape", kernel), intsAttr("strides", v.Attr.Stride),
		intsAttr("dilations", v.Attr.Dilation), intsAttr("pads", slices.Concat(low, high)), intAttr("group", max(v.Attr.Groups, 1))}
}

// lowerConvTranspose lowers the gradient of a convolution by its input, which is a
// transposed convolution.
func lowerConvTranspose(e *exporter, v, _ *ir.Value, in []string) string {
	n := len(v.Type.Shape) - 2
	first, last := channels(n)
	kernel := v.Args[1].Type.Shape[:n]
	low, high, more := slices.Clone(v.Attr.Low), make([]int, n), make([]int, n)
	for i := range n {
		all := v.Attr.Stride[i]*(v.Args[0].Type.Shape[i+1]-1) + (kernel[i]-1)*v.Attr.Dilation[i] + 1
		high[i] = all - low[i] - v.Type.Shape[i+1]
		if high[i] < 0 {
			more[i], high[i] = -high[i], 0
		}
		if low[i] < 0 {
			e.fail("a transposed convolution has negative padding")
		}
	}
	// Kernels are [window… C/Groups O], where O is the number of channels of x here.
	y := e.product("ConvTranspose", v, []string{e.transpose(in[0], first...), e.transpose(in[1], kernelFirst(n)...)},
		intsAttr("kernel_shape", kernel), intsAttr("strides", v.Attr.Stride), intsAttr("dilations", v.Attr.Dilation),
		intsAttr("pads", slices.Concat(low, high)), intsAttr("output_padding", more), intAttr("group", max(v.Attr.Groups, 1)))
	return e.transpose(y, last...)
}

func lowerPool(e *exporter, v, _ *ir.Value, in []string) string {
	n := len(v.Type.Shape) - 2
	first, last := channels(n)
	x, low, high := e.cropped(in[0], v)
	x = e.transpose(x, first...)
	attrs := []*attribute{intsAttr("kernel_shape", v.Attr.Window), intsAttr("strides", v.Attr.Stride), intsAttr("pads", slices.Concat(low, high))}
	kind := "MaxPool"
	if v.Op == op.AvgPool {
		kind = "AveragePool"
		attrs = append(attrs, intAttr("count_include_pad", 0))
		if slices.Max(v.Attr.Dilation) > 1 {
			e.fail("opset %d has no average pooling with dilation", Opset)
		}
	} else {
		attrs = append(attrs, intsAttr("dilations", v.Attr.Dilation))
	}
	return e.transpose(e.emit(kind, []string{x}, attrs...), last...)
}

func lowerSoftmax(e *exporter, v, _ *ir.Value, in []string) string {
	d := v.Args[0].Type.DType
	wide := d.Accumulator()
	x := e.emit(v.Op.String(), []string{e.castFrom(in[0], d, wide)}, intAttr("axis", v.Attr.Axes[0]))
	return e.castFrom(x, wide, v.Type.DType)
}

func lowerLayerNorm(e *exporter, v, _ *ir.Value, in []string) string {
	d := v.Args[0].Type.DType
	wide := d.Accumulator()
	if v.Attr.Uncentered { // opset 23 has a node for it
		x := e.castFrom(in[0], d, wide)
		mean := e.emit("ReduceMean", []string{e.emit("Mul", []string{x, x})}, intsAttr("axes", []int{-1}))
		scale := e.emit("Reciprocal", []string{e.emit("Sqrt", []string{e.emit("Add", []string{mean, e.number(wide, v.Attr.Epsilon)})})})
		x = e.emit("Mul", []string{e.emit("Mul", []string{x, scale}), in[1]})
		if !isZero(v.Args[2]) {
			x = e.emit("Add", []string{x, in[2]})
		}
		return e.castFrom(x, wide, v.Type.DType)
	}
	x := e.emit("LayerNormalization", []string{e.castFrom(in[0], d, wide), in[1], in[2]}, intAttr("axis", -1), floatAttr("epsilon", v.Attr.Epsilon))
	return e.castFrom(x, wide, v.Type.DType)
}

// lowerBatchNorm lowers normalization of matrices [O R C] by groups of columns, as
// PyTorch writes it: instance normalization of the groups, then gain and shift.
func lowerBatchNorm(e *exporter, v, twin *ir.Value, in []string) string {
	d := v.Args[0].Type.DType
	wide := d.Accumulator()
	shape, other := v.Type.Shape, twin.Type.Shape
	groups := v.Attr.Groups
	if groups == 0 {
		groups = shape[2]
	}
	vector := func(x float64) string {
		raw := make([]byte, groups*wide.Size())
		dtype.FromF64(raw, slices.Repeat([]float64{x}, groups), wide)
		return e.constantOf(op.Type{DType: wide, Shape: op.Shape{groups}}, raw)
	}
	grouped := func(s op.Shape) op.Shape { return op.Shape{s[0], groups, s[2] / groups * s[1]} }
	first := func(s op.Shape) op.Shape { return op.Shape{s[0], s[2], s[1]} }
	x := e.transpose(e.castFrom(in[0], d, wide), 0, 2, 1)
	x = e.reshape(x, grouped(shape), grouped(other))
	x = e.emit("InstanceNormalization", []string{x, vector(1), vector(0)}, floatAttr("epsilon", v.Attr.Epsilon))
	x = e.reshape(x, first(shape), first(other))
	x = e.emit("Mul", []string{x, e.emit("Unsqueeze", []string{in[1], e.ints(1)})})
	x = e.emit("Add", []string{x, e.emit("Unsqueeze", []string{in[2], e.ints(1)})})
	return e.castFrom(e.transpose(x, 0, 2, 1), wide, v.Type.DType)
}

// attentionName begins the names of the last products of attention.
const attentionName = "Attention"

// hidden is the score of a key that a query does not see: its weight is 0.
const hidden = -math.MaxFloat32

// lowerAttention lowers attention of [B T H D], [B S G D] and [B S G E] to two products
// and a softmax, in the accumulator's type.
func lowerAttention(e *exporter, v, twin *ir.Value, in []string) string {
	types := make([]op.Type, len(v.Args))
	for i, a := range v.Args {
		types[i] = a.Type
	}
	s, err := op.SizesOfAttention(3, v.Attr, types)
	if err != nil || v.Attr.DropoutRate > 0 {
		e.fail("attention with dropout: %w", err)
		return ""
	}
	d := v.Args[0].Type.DType
	wide := d.Accumulator()
	q := e.transpose(e.castFrom(in[0], d, wide), 0, 2, 1, 3)
	k := e.transpose(e.repeated(e.castFrom(in[1], d, wide), v.Args[1], twin.Args[1], s), 0, 2, 3, 1)
	values := e.transpose(e.repeated(e.castFrom(in[2], d, wide), v.Args[2], twin.Args[2], s), 0, 2, 1, 3)
	scores := e.emit("MatMul", []string{q, k})
	if v.Attr.Scale != 1 {
		scores = e.emit("Mul", []string{scores, e.number(wide, v.Attr.Scale)})
	}
	seen := ""
	if v.Attr.Causal || v.Attr.SlidingWindow > 0 {
		raw := make([]byte, 0, s.Queries*s.Keys)
		for t := range s.Queries {
			lo, hi := s.Seen(v.Attr, t)
			for k := range s.Keys {
				one := byte(0)
				if k >= lo && k < hi {
					one = 1
				}
				raw = append(raw, one)
			}
		}
		seen = e.constantOf(op.Type{DType: dtype.Bool, Shape: op.Shape{1, 1, s.Queries, s.Keys}}, raw)
	}
	switch {
	case s.Mask >= 0 && seen != "":
		seen = e.emit("And", []string{in[s.Mask], seen})
	case s.Mask >= 0:
		seen = in[s.Mask]
	}
	if seen != "" {
		scores = e.emit("Where", []string{seen, scores, e.number(wide, hidden)})
	}
	weights := e.emit("Softmax", []string{scores}, intAttr("axis", -1))
	if seen != "" { // a query that sees nothing has the result 0
		weights = e.emit("Where", []string{seen, weights, e.number(wide, 0)})
	}
	y := e.transpose(e.emitAs(attentionName, "MatMul", []string{weights, values}), 0, 2, 1, 3)
	return e.castFrom(y, wide, v.Type.DType)
}

// repeated repeats each head of keys or values [B S G D], so that there are as many as
// of the queries.
func (e *exporter) repeated(x string, v, twin *ir.Value, s op.AttentionSizes) string {
	times := s.Heads / s.KeyHeads
	if times == 1 {
		return x
	}
	shape, other := v.Type.Shape, twin.Type.Shape
	with := func(s op.Shape, n int) op.Shape { return op.Shape{s[0], s[1], s[2], n, s[3]} }
	x = e.reshape(x, with(shape, 1), with(other, 1))
	x = e.emit("Expand", []string{x, e.shapeOf(with(shape, times), with(other, times))})
	return e.reshape(x, op.Shape{shape[0], shape[1], s.Heads, shape[3]}, op.Shape{other[0], other[1], s.Heads, other[3]})
}
