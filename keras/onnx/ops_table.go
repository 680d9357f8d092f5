package onnx

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// operations has the operations that Import reads, by name, with the domain in front
// unless it is ONNX's own. operationInputs is how many inputs each must have.
var (
	operations      map[string]operation
	operationInputs map[string]int
)

func init() {
	unary := map[string]func(c *call, x *tensor.Tensor) *tensor.Tensor{
		"Tan":   func(_ *call, x *tensor.Tensor) *tensor.Tensor { return x.Sin().Div(x.Cos()) },
		"Sinh":  func(_ *call, x *tensor.Tensor) *tensor.Tensor { return x.Exp().Sub(x.Neg().Exp()).MulScalar(0.5) },
		"Cosh":  func(_ *call, x *tensor.Tensor) *tensor.Tensor { return x.Exp().Add(x.Neg().Exp()).MulScalar(0.5) },
		"IsNaN": func(_ *call, x *tensor.Tensor) *tensor.Tensor { return x.NotEqual(x) },
		"Elu": func(c *call, x *tensor.Tensor) *tensor.Tensor {
			return tensor.Where(x.GreaterScalar(0), x, x.Expm1().MulScalar(c.float("alpha", 1)))
		},
		"Selu": func(c *call, x *tensor.Tensor) *tensor.Tensor {
			y := tensor.Where(x.GreaterScalar(0), x, x.Expm1().MulScalar(c.float("alpha", 1.67326319217681884765625)))
			return y.MulScalar(c.float("gamma", 1.05070102214813232421875))
		},
		"Celu": func(c *call, x *tensor.Tensor) *tensor.Tensor {
			a := c.float("alpha", 1)
			return x.MaximumScalar(0).Add(x.DivScalar(a).Expm1().MulScalar(a).MinimumScalar(0))
		},
		"LeakyRelu": func(c *call, x *tensor.Tensor) *tensor.Tensor {
			return slope(x, tensor.Scalar(x.DType(), c.float("alpha", 0.01)))
		},
		"ThresholdedRelu": func(c *call, x *tensor.Tensor) *tensor.Tensor {
			return tensor.Where(x.GreaterScalar(c.float("alpha", 1)), x, tensor.Scalar(x.DType(), 0))
		},
		"HardSigmoid": func(c *call, x *tensor.Tensor) *tensor.Tensor {
			return x.MulScalar(c.float("alpha", 0.2)).AddScalar(c.float("beta", 0.5)).Clip(0, 1)
		},
		"HardSwish": func(_ *call, x *tensor.Tensor) *tensor.Tensor {
			return x.Mul(x.MulScalar(1./6).AddScalar(0.5).Clip(0, 1))
		},
		"Mish":     func(_ *call, x *tensor.Tensor) *tensor.Tensor { return x.Mul(x.Softplus().Tanh()) },
		"Softsign": func(_ *call, x *tensor.Tensor) *tensor.Tensor { return x.Div(x.Abs().AddScalar(1)) },
		"Swish": func(c *call, x *tensor.Tensor) *tensor.Tensor {
			return x.Mul(x.MulScalar(c.float("alpha", 1)).Sigmoid())
		},
	}
	square := func(x *tensor.Tensor) *tensor.Tensor { return x.Square() }
	operations = map[string]operation{
		"Identity": func(c *call) []*value { return []*value{c.in[0]} },
		"Dropout":  opDropout,
		"Constant": func(c *call) []*value { return foldConstant(c).result() },
		"Shape":    foldShape,
		"Size":     nil,
		"Reshape":  opReshape, "Flatten": opReshape, "Squeeze": opReshape, "Unsqueeze": opReshape,
		"Transpose": opTranspose, "Concat": opConcat, "Split": opSplit, "Slice": opSlice, "Pad": opPad,
		"Gather": opGather, "GatherElements": opGatherElements, "ScatterND": opScatterND, "GatherND": opGatherND,
		"Expand": opExpand, "Tile": opTile, "ConstantOfShape": opConstantOfShape, "Range": opRange,
		"Cast": opCast, "CastLike": opCast, "OneHot": opOneHot, "Trilu": opTrilu, "CumSum": opCumSum,
		"DepthToSpace": opDepthToSpace, "SpaceToDepth": opSpaceToDepth, "Resize": opResize, "Upsample": opResize,

		"Max": variadic(op.Maximum), "Min": variadic(op.Minimum), "Sum": variadic(op.Add), "Mean": opMean,
		"Where": opWhere, "Xor": opXor, "Pow": opPow, "Mod": opMod, "Clip": opClip, "PRelu": opPRelu,
		"Gelu": opGelu, "IsInf": opIsInf, "Softmax": opSoftmax(op.Softmax), "LogSoftmax": opSoftmax(op.LogSoftmax),

		"ReduceSum": reduction(op.Sum, nil, nil), "ReduceMean": meanReduction, "ReduceMax": reduction(op.Max, nil, nil),
		"ReduceMin": reduction(op.Min, nil, nil), "ReduceProd": reduction(op.Prod, nil, nil),
		"ReduceSumSquare": reduction(op.Sum, square, nil),
		"ReduceL2":        reduction(op.Sum, square, (*tensor.Tensor).Sqrt),
		"ReduceL1":        reduction(op.Sum, (*tensor.Tensor).Abs, nil),
		"ReduceLogSum":    reduction(op.Sum, nil, (*tensor.Tensor).Log),
		"ReduceLogSumExp": opLogSumExp, "ArgMax": opArg(op.ArgMax), "ArgMin": opArg(op.ArgMin),

		"MatMul": opMatMul, "Gemm": opGemm, "Einsum": opEinsum,
		"Conv": opConv, "ConvTranspose": opConvTranspose, "MaxPool": opPool, "AveragePool": opPool,
		"GlobalAveragePool": opGlobalPool(op.Mean), "GlobalMaxPool": opGlobalPool(op.Max),
		"BatchNormalization": opBatchNormalization, "InstanceNormalization": opInstanceNormalization,
		"GroupNormalization": opGroupNormalization, "LayerNormalization": opLayerNormalization,
		"RMSNormalization": opLayerNormalization, "LRN": opLRN,
		"RNN": opRNN, "LSTM": opRNN, "GRU": opRNN,

		"QuantizeLinear": opQuantize, "DequantizeLinear": opDequantize,

		"ai.onnx.ml.LinearClassifier": opLinearClassifier, "ai.onnx.ml.LinearRegressor": opLinearRegressor,
		"ai.onnx.ml.Scaler": opScaler, "ai.onnx.ml.Normalizer": opNormalizer,
		"ai.onnx.ml.ArrayFeatureExtractor": opFeatureExtractor, "ai.onnx.ml.ZipMap": opZipMap,

		ownDomain + ".Attention": opAttention, ownDomain + ".GroupNorm": opGroupNorm,
		ownDomain + ".GELU": func(c *call) []*value { return opGelu(c) },
	}
	operationInputs = map[string]int{
		"Constant": 0, "Max": 1, "Min": 1, "Sum": 1, "Mean": 1, "Concat": 1,
		"CastLike": 2, "Gather": 2, "GatherElements": 2, "GatherND": 2, "ScatterND": 3, "Expand": 2, "Tile": 2, "Range": 3, "OneHot": 3,
		"CumSum": 2, "Where": 3, "Xor": 2, "Pow": 2, "Mod": 2, "PRelu": 2, "MatMul": 2, "Gemm": 2, "Einsum": 2,
		"Conv": 2, "ConvTranspose": 2, "BatchNormalization": 5, "InstanceNormalization": 3, "GroupNormalization": 3,
		"LayerNormalization": 2, "RMSNormalization": 2, "RNN": 3, "LSTM": 3, "GRU": 3,
		"QuantizeLinear": 2, "DequantizeLinear": 2, "ai.onnx.ml.ArrayFeatureExtractor": 2, ownDomain + ".Attention": 3, ownDomain + ".GroupNorm": 5,
	}
	operations["Size"] = func(c *call) []*value { return foldNode(c) }
	for name, f := range unary {
		operations[name] = floatUnary(f)
	}
	// The operations of one node with the same operands, and those that rewrite finds.
	for code, name := range direct {
		if operations[name] != nil {
			continue
		}
		if code.Info().Args == 2 {
			operations[name] = binaryOp(code)
			operationInputs[name] = 2
		} else {
			operations[name] = recorded(code)
		}
	}
	for code := range composites {
		name := ownDomain + "." + code.String()
		if code.Info().Args == 2 {
			operations[name] = binaryOp(code)
			operationInputs[name] = 2
		} else {
			operations[name] = recorded(code)
		}
	}
	for name := range operations {
		if _, ok := operationInputs[name]; !ok {
			operationInputs[name] = 1
		}
	}
}

// opDropout is the identity; its mask, if it is read, is true everywhere.
func opDropout(c *call) []*value {
	out := []*value{c.in[0]}
	if len(c.n.out) > 1 && c.n.out[1] != "" {
		s := c.shape(0)
		out = append(out, &value{t: tensor.Full(dtype.Bool, 1, s...), typ: typeBool})
	}
	return out
}

// along gives a scale or zero point, a vector along an axis, the axes of x.
func (c *call) along(t *tensor.Tensor, x op.Shape) *tensor.Tensor {
	if t.Shape().Size() == 1 {
		return t.Reshape()
	}
	axis := c.axis(c.int("axis", 1), len(x))
	if t.Rank() != 1 || t.Dim(0) != x[axis] || c.int("block_size", 0) != 0 {
		c.fail("a scale or zero point %v of %v, want a number or one for each index of axis %d", t.Type(), x, axis)
	}
	s := make([]int, len(x))
	for i := range s {
		s[i] = 1
	}
	s[axis] = x[axis]
	return t.Reshape(s...)
}

// opQuantize computes what the integers are, in floats: round(x/scale) + zero point,
// limited to the range of the type.
func opQuantize(c *call) []*value {
	x := c.x(0)
	s := x.Shape()
	d := x.DType().Accumulator()
	typ, zero := int64(typeUint8), (*tensor.Tensor)(nil)
	if c.has(2) {
		typ, zero = c.in[2].typ, c.along(c.x(2), s).Cast(d)
	} else if to := c.int("output_dtype", 0); to != 0 {
		typ = int64(to)
	}
	var lo, hi float64
	switch typ {
	case typeUint8:
		hi = 255
	case typeInt8:
		lo, hi = -128, 127
	case typeUint16:
		hi = 65535
	case typeInt16:
		lo, hi = -32768, 32767
	default:
		c.fail("quantization to %s is not supported", typeName(typ))
	}
	y := x.Cast(d).Div(c.along(c.x(1), s).Cast(d)).Round()
	if zero != nil {
		y = y.Add(zero)
	}
	return c.as(y.Clip(lo, hi).Cast(dtype.Int32).Cast(c.dtype(typ)), typ)
}

// opDequantize is (x - zero point)·scale.
func opDequantize(c *call) []*value {
	x := c.x(0)
	s := x.Shape()
	scale := c.along(c.x(1), s)
	y := x.Cast(dtype.Float32)
	if c.has(2) {
		y = y.Sub(c.along(c.x(2), s).Cast(dtype.Float32))
	}
	return c.as(y.Mul(scale.Cast(dtype.Float32)).Cast(scale.DType()), c.in[1].typ)
}

// vector returns an attribute of floats as a tensor of a shape.
func (c *call) vector(name string, d dtype.DType, shape ...int) *tensor.Tensor {
	a := c.n.attr(name)
	if a == nil || a.kind != kindFloats || len(a.floats) != op.Shape(shape).Size() {
		c.fail("attribute %s does not have the %d numbers of %v", name, op.Shape(shape).Size(), op.Shape(shape))
	}
	x := make([]float64, len(a.floats))
	for i, f := range a.floats {
		x[i] = float64(f)
	}
	return newFloats(typeFloat, shape, x).tensor(d)
}

// samples returns operand 0 as floats [batch features].
func (c *call) samples() *tensor.Tensor {
	x := c.x(0)
	if x.Rank() != 2 {
		c.fail("got %v, want [batch features]", x.Type())
	}
	if !x.DType().IsFloat() {
		x = x.Cast(c.compute)
	}
	return x
}

// opLinearClassifier returns the label and the scores of each class.
func opLinearClassifier(c *call) []*value {
	x := c.samples()
	labels := c.n.attr("classlabels_ints")
	if labels == nil || labels.kind != kindInts || len(labels.ints) < 2 {
		c.fail("want at least two classes with labels that are integers")
	}
	classes := len(labels.ints)
	rows := classes
	if b := c.n.attr("intercepts"); b != nil && len(b.floats) == 1 && classes == 2 {
		rows = 1
	}
	d := x.DType()
	scores := x.MatMulT(c.vector("coefficients", d, rows, x.Dim(1)), false, true)
	if c.n.attr("intercepts") != nil {
		scores = scores.Add(c.vector("intercepts", d, rows))
	}
	post := c.text("post_transform", "NONE")
	index := scores.ArgMax(-1)
	if rows == 1 { // of the second class
		one := scores.Squeeze(-1)
		index = one.GreaterScalar(0).Cast(dtype.Int32)
		if post == "LOGISTIC" {
			p := scores.Sigmoid()
			scores, post = tensor.Concat(1, p.Neg().AddScalar(1), p), "NONE"
		} else {
			scores = tensor.Concat(1, scores.Neg(), scores)
		}
	}
	switch post {
	case "NONE":
	case "LOGISTIC":
		scores = scores.Sigmoid()
	case "SOFTMAX":
		scores = scores.Softmax(-1)
	default:
		c.fail("post_transform %q is not supported", post)
	}
	table := tensor.New(labels.ints, classes)
	return append(c.as(table.Gather(index), typeInt64), c.as(scores, typeFloat)...)
}

func opLinearRegressor(c *call) []*value {
	x := c.samples()
	targets := c.int("targets", 1)
	if targets < 1 || targets > maxFolded || c.text("post_transform", "NONE") != "NONE" {
		c.fail("%d targets, want at least 1, and no post_transform", targets)
	}
	y := x.MatMulT(c.vector("coefficients", x.DType(), targets, x.Dim(1)), false, true)
	if c.n.attr("intercepts") != nil {
		y = y.Add(c.vector("intercepts", x.DType(), targets))
	}
	return c.as(y, typeFloat)
}

// opScaler is (x - offset)·scale.
func opScaler(c *call) []*value {
	x := c.samples()
	each := func(name string) *tensor.Tensor {
		if a := c.n.attr(name); a != nil && len(a.floats) == 1 {
			return c.vector(name, x.DType(), 1)
		}
		return c.vector(name, x.DType(), x.Dim(1))
	}
	if c.n.attr("offset") != nil {
		x = x.Sub(each("offset"))
	}
	if c.n.attr("scale") != nil {
		x = x.Mul(each("scale"))
	}
	return c.as(x, typeFloat)
}

// opNormalizer divides rows by their norm.
func opNormalizer(c *call) []*value {
	x := c.samples()
	var norm *tensor.Tensor
	switch kind := c.text("norm", "MAX"); kind {
	case "MAX":
		norm = x.MaxKeep(1)
	case "L1":
		norm = x.Abs().SumKeep(1)
	case "L2":
		norm = x.Square().SumKeep(1).Sqrt()
	default:
		c.fail("norm %q is not supported", kind)
	}
	zero := norm.Equal(tensor.Scalar(norm.DType(), 0))
	return c.as(x.Div(tensor.Where(zero, tensor.Scalar(norm.DType(), 1), norm)), typeFloat)
}

// opFeatureExtractor takes elements of the last axis.
func opFeatureExtractor(c *call) []*value {
	x := c.x(0)
	if x.Rank() == 0 {
		c.fail("got a scalar")
	}
	n := x.Dim(-1)
	at := c.index(1, n)
	at = at.Reshape(at.Shape().Size())
	y := gather(x, at, x.Rank()-1)
	if x.Rank() == 1 {
		y = y.ExpandDims(0)
	}
	return c.one(y)
}

// opZipMap returns the tensor that it would make maps of.
func opZipMap(c *call) []*value { return []*value{c.in[0]} }
