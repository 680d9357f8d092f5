package saving

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/activations"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// function computes an operation of keras.ops.
type function struct {
	params  []string // of the call, in order; then those of the constructor
	rest    bool     // any number of operands
	compute func(c call) *keras.Tensor
}

// most is how many tensors an operation takes apart into.
const most = 4096

// Kinds of operations by their parameters.

// one is an operation on a tensor x.
func one(f func(x *keras.Tensor) *keras.Tensor) function {
	return function{params: []string{"x"}, compute: func(c call) *keras.Tensor { return f(c.tensor("x")) }}
}

// real is an operation on a tensor x of floats.
func real(f func(x *keras.Tensor) *keras.Tensor) function {
	return function{params: []string{"x"}, compute: func(c call) *keras.Tensor { return f(c.floats("x")) }}
}

// scaled is an operation on floats x with a number.
func scaled(f func(x *keras.Tensor, n float64) *keras.Tensor, name string, otherwise float64) function {
	return function{params: []string{"x", name}, compute: func(c call) *keras.Tensor { return f(c.floats("x"), c.number(name, otherwise)) }}
}

// along is an operation on floats x along an axis.
func along(f func(x *keras.Tensor, axis int) *keras.Tensor, otherwise int) function {
	return function{params: []string{"x", "axis"}, compute: func(c call) *keras.Tensor {
		x := c.floats("x")
		return f(x, c.axis(x, "axis", otherwise))
	}}
}

// two is an operation on the elements of tensors x1 and x2 of one type.
func two(f func(x, y *keras.Tensor) *keras.Tensor) function {
	return function{params: []string{"x1", "x2"}, compute: func(c call) *keras.Tensor {
		x, y := c.pair()
		all := sized(x, y)
		return f(all[0], all[1])
	}}
}

// sized are tensors that broadcast. While axes have no size yet they are placeholders of
// the shape that all have together, since an axis without a size may turn out to have that
// of another tensor.
func sized(all ...*keras.Tensor) []*keras.Tensor {
	var shape op.Shape
	unknown := false
	for _, t := range all {
		for len(shape) < t.Rank() {
			shape = slices.Insert(shape, 0, 1)
		}
	}
	for _, t := range all {
		unknown = unknown || t.Symbolic() && !t.Shape().Known()
		for i, n := range t.Shape() {
			k := len(shape) - t.Rank() + i
			switch {
			case shape[k] == 1 || shape[k] == tensor.Unknown && n > 1:
				shape[k] = n
			case n > 1 && n != shape[k]:
				return all // the operation says what is wrong
			}
		}
	}
	if !unknown {
		return all
	}
	out := make([]*keras.Tensor, len(all))
	for i, t := range all {
		out[i] = tensor.Placeholder(t.DType(), shape...)
	}
	return out
}

// twoReal is an operation on floats x1 and x2 of one type.
func twoReal(f func(x, y *keras.Tensor) *keras.Tensor) function {
	return two(func(x, y *keras.Tensor) *keras.Tensor {
		d := floor(x.DType())
		return f(x.Cast(d), y.Cast(d))
	})
}

// logical is an operation on bools x1 and x2.
func logical(f func(x, y *keras.Tensor) *keras.Tensor) function {
	return function{params: []string{"x1", "x2"}, compute: func(c call) *keras.Tensor { return f(truth(c.tensor("x1")), truth(c.tensor("x2"))) }}
}

// reduction is an operation on x over axes.
func reduction(f func(x *keras.Tensor, axes []int) *keras.Tensor) function {
	return function{params: []string{"x", "axis", "keepdims"}, compute: func(c call) *keras.Tensor {
		x := c.tensor("x")
		return kept(c, f(x, c.axes(x)), x)
	}}
}

// realReduction is a reduction of floats.
func realReduction(f func(x *keras.Tensor, axes []int) *keras.Tensor) function {
	return reduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return f(x.Cast(floor(x.DType())), axes) })
}

// kept is y with axes of size 1 where x has those that y lacks, if keepdims is true.
func kept(c call, y, x *keras.Tensor) *keras.Tensor {
	if !c.flag("keepdims") {
		return y
	}
	axes := c.axes(x)
	slices.Sort(axes)
	for _, a := range slices.Compact(axes) {
		y = y.ExpandDims(a)
	}
	return y
}

// truth is x as bools.
func truth(x *keras.Tensor) *keras.Tensor {
	if x.DType() == dtype.Bool {
		return x
	}
	return x.NotEqual(tensor.Full(x.DType(), 0))
}

// countable is x in a type that sums: int32 for bools.
func countable(x *keras.Tensor) *keras.Tensor { return x.Cast(dtype.Promote(x.DType(), dtype.Int32)) }

// functions are the operations of keras.ops that can be read, by Keras's classes.
var functions = map[string]function{
	// Arithmetic.
	"Add":        two((*keras.Tensor).Add),
	"Subtract":   two((*keras.Tensor).Sub),
	"Multiply":   two((*keras.Tensor).Mul),
	"Divide":     twoReal((*keras.Tensor).Div),
	"TrueDivide": twoReal((*keras.Tensor).Div),
	"FloorDivide": two(func(x, y *keras.Tensor) *keras.Tensor {
		d := floor(x.DType())
		return x.Cast(d).Div(y.Cast(d)).Floor().Cast(x.DType())
	}),
	"Mod":       two((*keras.Tensor).Mod),
	"Power":     {params: []string{"x1", "x2"}, compute: power},
	"Maximum":   two((*keras.Tensor).Maximum),
	"Minimum":   two((*keras.Tensor).Minimum),
	"Logaddexp": twoReal(func(x, y *keras.Tensor) *keras.Tensor { return x.Maximum(y).Add(x.Sub(y).Abs().Neg().Exp().Log1p()) }),
	"SquaredDifference": two(func(x, y *keras.Tensor) *keras.Tensor {
		return x.Sub(y).Square()
	}),
	"Negative":   one((*keras.Tensor).Neg),
	"Absolute":   one((*keras.Tensor).Abs),
	"Abs":        one((*keras.Tensor).Abs),
	"Square":     one((*keras.Tensor).Square),
	"Sign":       one((*keras.Tensor).Sign),
	"Floor":      real((*keras.Tensor).Floor),
	"Ceil":       real((*keras.Tensor).Ceil),
	"Round":      {params: []string{"x", "decimals"}, compute: round},
	"Reciprocal": real((*keras.Tensor).Reciprocal),
	"Sqrt":       real((*keras.Tensor).Sqrt),
	"Rsqrt":      real((*keras.Tensor).Rsqrt),
	"Exp":        real((*keras.Tensor).Exp),
	"Exp2":       real(func(x *keras.Tensor) *keras.Tensor { return x.MulScalar(math.Ln2).Exp() }),
	"Expm1":      real((*keras.Tensor).Expm1),
	"Log":        real((*keras.Tensor).Log),
	"Log2":       real(func(x *keras.Tensor) *keras.Tensor { return x.Log().MulScalar(1 / math.Ln2) }),
	"Log10":      real(func(x *keras.Tensor) *keras.Tensor { return x.Log().MulScalar(1 / math.Ln10) }),
	"Log1p":      real((*keras.Tensor).Log1p),
	"Sin":        real((*keras.Tensor).Sin),
	"Cos":        real((*keras.Tensor).Cos),
	"Tan":        real(func(x *keras.Tensor) *keras.Tensor { return x.Sin().Div(x.Cos()) }),
	"Sinh":       real(func(x *keras.Tensor) *keras.Tensor { return x.Expm1().Sub(x.Neg().Expm1()).MulScalar(0.5) }),
	"Cosh":       real(func(x *keras.Tensor) *keras.Tensor { return x.Exp().Add(x.Neg().Exp()).MulScalar(0.5) }),
	"Erf":        real((*keras.Tensor).Erf),
	"Clip":       {params: []string{"x", "x_min", "x_max"}, compute: clip},

	// Comparisons and conditions.
	"Equal":        two((*keras.Tensor).Equal),
	"NotEqual":     two((*keras.Tensor).NotEqual),
	"Greater":      two((*keras.Tensor).Greater),
	"GreaterEqual": two((*keras.Tensor).GreaterEqual),
	"Less":         two((*keras.Tensor).Less),
	"LessEqual":    two((*keras.Tensor).LessEqual),
	"LogicalAnd":   logical((*keras.Tensor).And),
	"LogicalOr":    logical((*keras.Tensor).Or),
	"LogicalXor":   logical((*keras.Tensor).NotEqual),
	"LogicalNot":   one(func(x *keras.Tensor) *keras.Tensor { return truth(x).Not() }),
	"Isfinite":     real((*keras.Tensor).IsFinite),
	"Isnan":        real(func(x *keras.Tensor) *keras.Tensor { return x.NotEqual(x) }),
	"Where":        {params: []string{"condition", "x1", "x2"}, compute: where},

	// Reductions.
	"Sum": reduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return countable(x).Sum(axes...) }),
	"Prod": {params: []string{"x", "axis", "keepdims", "dtype"}, compute: func(c call) *keras.Tensor {
		x := c.tensor("x")
		return kept(c, x.Cast(c.dtype(dtype.Promote(x.DType(), dtype.Int32))).Prod(c.axes(x)...), x)
	}},
	"Mean": realReduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return x.Mean(axes...) }),
	"Max":  reduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return x.Max(axes...) }),
	"Amax": reduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return x.Max(axes...) }),
	"Min":  reduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return x.Min(axes...) }),
	"Amin": reduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return x.Min(axes...) }),
	"Any":  reduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return truth(x).Max(axes...) }),
	"All":  reduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return truth(x).Min(axes...) }),
	"CountNonzero": reduction(func(x *keras.Tensor, axes []int) *keras.Tensor {
		return truth(x).Cast(dtype.Int32).Sum(axes...)
	}),
	"Var":       realReduction(variance),
	"Std":       realReduction(func(x *keras.Tensor, axes []int) *keras.Tensor { return variance(x, axes).Sqrt() }),
	"Logsumexp": realReduction(logSumExp),
	"Argmax":    {params: []string{"x", "axis", "keepdims"}, compute: func(c call) *keras.Tensor { return extreme(c, (*keras.Tensor).ArgMax) }},
	"Argmin":    {params: []string{"x", "axis", "keepdims"}, compute: func(c call) *keras.Tensor { return extreme(c, (*keras.Tensor).ArgMin) }},
	"Average":   {params: []string{"x", "weights", "axis"}, compute: average},
	"Norm":      {params: []string{"x", "ord", "axis", "keepdims"}, compute: norm},
	"Normalize": {params: []string{"x", "axis", "order", "epsilon"}, compute: normalize},
	"Cumsum":    {params: []string{"x", "axis", "dtype"}, compute: cumulative},

	// Shapes.
	"Reshape":     {params: []string{"x", "newshape"}, compute: func(c call) *keras.Tensor { return reshaped(c, c.tensor("x"), c.integers("newshape")) }},
	"Ravel":       one(func(x *keras.Tensor) *keras.Tensor { return x.Reshape(-1) }),
	"Transpose":   {params: []string{"x", "axes"}, compute: transpose},
	"Swapaxes":    {params: []string{"x", "axis1", "axis2"}, compute: swapAxes},
	"Moveaxis":    {params: []string{"x", "source", "destination"}, compute: moveAxis},
	"ExpandDims":  {params: []string{"x", "axis"}, compute: expand},
	"Squeeze":     {params: []string{"x", "axis"}, compute: squeeze},
	"Concatenate": {params: []string{"xs", "axis"}, compute: concatenate},
	"Stack":       {params: []string{"x", "axis"}, compute: func(c call) *keras.Tensor { return tensor.Stack(c.integer("axis", 0), c.list("x")...) }},
	"Split":       {params: []string{"x", "indices_or_sections", "axis"}, compute: split},
	"Unstack":     {params: []string{"x", "num", "axis"}, compute: unstack},
	"BroadcastTo": {params: []string{"x", "shape"}, compute: broadcast},
	"Tile":        {params: []string{"x", "repeats"}, compute: tile},
	"Repeat":      {params: []string{"x", "repeats", "axis"}, compute: repeat},
	"Pad":         {params: []string{"x", "constant_values", "pad_width", "mode"}, compute: pad},
	"Flip":        {params: []string{"x", "axis"}, compute: flip},
	"Roll":        {params: []string{"x", "shift", "axis"}, compute: roll},
	"Take":        {params: []string{"x", "indices", "axis"}, compute: take},
	"GetItem":     {params: []string{"x", "key"}, compute: getItem},

	// Products.
	"Matmul": {params: []string{"x1", "x2"}, compute: func(c call) *keras.Tensor { x, y := c.pair(); return product(x, y) }},
	"Dot":    {params: []string{"x1", "x2"}, compute: func(c call) *keras.Tensor { x, y := c.pair(); return dot(x, y) }},
	"Einsum": {rest: true, params: []string{"subscripts"}, compute: einsum},

	// Types and constants.
	"Cast":         {params: []string{"x", "dtype"}, compute: func(c call) *keras.Tensor { return cast(c.tensor("x"), c.dtype(dtype.Float32)) }},
	"StopGradient": {params: []string{"variable"}, compute: func(c call) *keras.Tensor { return c.tensor("variable").StopGradient() }},
	"Copy":         one(func(x *keras.Tensor) *keras.Tensor { return x }),
	"Identity":     one(func(x *keras.Tensor) *keras.Tensor { return x }),
	"ZerosLike":    {params: []string{"x", "dtype"}, compute: func(c call) *keras.Tensor { return like(c, tensor.Full(dtype.Float32, 0)) }},
	"OnesLike":     {params: []string{"x", "dtype"}, compute: func(c call) *keras.Tensor { return like(c, tensor.Full(dtype.Float32, 1)) }},
	"FullLike":     {params: []string{"x", "fill_value", "dtype"}, compute: func(c call) *keras.Tensor { return like(c, c.tensorOf(c.values["fill_value"], dtype.Float32)) }},
	"OneHot":       {params: []string{"x", "num_classes", "axis", "dtype"}, compute: oneHot},

	// Networks.
	"Relu":          one((*keras.Tensor).Relu),
	"Relu6":         real(activations.Relu6),
	"Sigmoid":       real(activations.Sigmoid),
	"Tanh":          real(activations.Tanh),
	"Softplus":      real(activations.Softplus),
	"Softsign":      real(activations.Softsign),
	"Silu":          real(activations.Silu),
	"Mish":          real(activations.Mish),
	"LogSigmoid":    real(activations.LogSigmoid),
	"SparseSigmoid": real(activations.SparseSigmoid),
	"HardSigmoid":   real(activations.HardSigmoid),
	"HardSilu":      real(activations.HardSilu),
	"HardTanh":      real(activations.HardTanh),
	"TanhShrink":    real(activations.TanhShrink),
	"SparsePlus":    real(activations.SparsePlus),
	"Selu":          real(activations.Selu),
	"Elu":           scaled(activations.Elu, "alpha", 1),
	"Celu":          scaled(activations.Celu, "alpha", 1),
	"LeakyRelu":     scaled(activations.LeakyRelu, "negative_slope", 0.2),
	"Squareplus":    scaled(activations.Squareplus, "b", 4),
	"HardShrink":    scaled(activations.HardShrink, "threshold", 0.5),
	"SoftShrink":    scaled(activations.SoftShrink, "threshold", 0.5),
	"Softmax":       along(activations.Softmax, -1),
	"LogSoftmax":    along(activations.LogSoftmax, -1),
	"Sparsemax":     along(activations.Sparsemax, -1),
	"Glu":           along(activations.Glu, -1),
	"Gelu":          {params: []string{"x", "approximate"}, compute: func(c call) *keras.Tensor { return activations.Gelu(c.floats("x"), c.flag("approximate")) }},
	"Threshold":     {params: []string{"x", "threshold", "default_value"}, compute: threshold},
	"MaxPool":       {params: pooling, compute: func(c call) *keras.Tensor { return pool(c, (*keras.Tensor).MaxPool) }},
	"AveragePool":   {params: pooling, compute: func(c call) *keras.Tensor { return pool(c, (*keras.Tensor).AvgPool) }},
	"Resize":        {params: []string{"images", "size", "interpolation", "antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "fill_mode", "fill_value", "data_format"}, compute: resize},
}

// power is x1 to the power of x2. Small whole powers are products, which are exact for
// negative x1 too.
func power(c call) *keras.Tensor {
	if n, ok := c.values["x2"].(json.Number); ok {
		x := c.tensor("x1")
		f, err := n.Float64()
		if err == nil && x.DType().IsFloat() && f == math.Trunc(f) && f >= 1 && f <= 4 {
			y := x
			for range int(f) - 1 {
				y = y.Mul(x)
			}
			return y
		}
	}
	x, y := c.pair()
	return x.Pow(y)
}

func round(c call) *keras.Tensor {
	if c.integer("decimals", 0) != 0 {
		c.fail("decimals is %d, want 0", c.integer("decimals", 0))
	}
	return c.floats("x").Round()
}

func clip(c call) *keras.Tensor {
	all := c.together(c.values["x"], c.values["x_min"], c.values["x_max"])
	return all[0].Maximum(all[1]).Minimum(all[2])
}

func where(c call) *keras.Tensor {
	x, y := c.pair()
	all := sized(truth(c.tensor("condition")), x, y)
	return tensor.Where(all[0], all[1], all[2])
}

// variance is the mean square of the differences from the mean, as TensorFlow computes it.
func variance(x *keras.Tensor, axes []int) *keras.Tensor {
	wide := x.Cast(x.DType().Accumulator())
	return wide.Sub(wide.MeanKeep(axes...)).Square().Mean(axes...).Cast(x.DType())
}

func logSumExp(x *keras.Tensor, axes []int) *keras.Tensor {
	wide := x.Cast(x.DType().Accumulator())
	top := wide.MaxKeep(axes...).StopGradient()
	y := wide.Sub(top).Exp().SumKeep(axes...).Log().Add(top)
	return y.Max(axes...).Cast(x.DType()) // over axes of size 1
}

// extreme is the place of an extreme value.
func extreme(c call, f func(x *keras.Tensor, axis int) *keras.Tensor) *keras.Tensor {
	x := c.tensor("x")
	if !c.has("axis") {
		if c.flag("keepdims") {
			c.fail("keepdims is true without an axis, want false")
		}
		return f(x.Reshape(-1), 0)
	}
	a := c.axis(x, "axis", 0)
	y := f(x, a)
	if c.flag("keepdims") {
		y = y.ExpandDims(a)
	}
	return y
}

func average(c call) *keras.Tensor {
	x := c.floats("x")
	if c.has("weights") {
		c.fail("weights are given, want none")
	}
	return x.Mean(c.axes(x)...)
}

// norm is the Euclidean norm, or that of order 1 or 2 of vectors.
func norm(c call) *keras.Tensor {
	x := c.floats("x")
	axes := c.axes(x)
	wide := x.Cast(x.DType().Accumulator())
	var y *keras.Tensor
	switch order := c.values["ord"]; {
	case order == nil || order == "fro" && len(axes) == 2 || isNumber(order, 2) && len(axes) == 1:
		y = wide.Square().Sum(axes...).Sqrt()
	case isNumber(order, 1) && len(axes) == 1:
		y = wide.Abs().Sum(axes...)
	default:
		c.fail("ord is %v of %d axes, want None, or 1 or 2 of one axis", order, len(axes))
	}
	return kept(c, y.Cast(x.DType()), x)
}

func isNumber(v any, want float64) bool {
	n, ok := v.(json.Number)
	f, err := n.Float64()
	return ok && err == nil && f == want
}

// normalize divides by the norm, or by the root of epsilon where that is greater.
func normalize(c call) *keras.Tensor {
	x := c.floats("x")
	if o := c.number("order", 2); o != 2 {
		c.fail("order is %v, want 2", o)
	}
	epsilon := c.number("epsilon", 1e-7)
	wide := x.Cast(x.DType().Accumulator())
	sum := wide.Square().SumKeep(c.checked(x, c.integer("axis", -1)))
	return wide.Mul(sum.MaximumScalar(epsilon).Rsqrt()).Cast(x.DType())
}

// cumulative sums along an axis: products with a triangle of ones.
func cumulative(c call) *keras.Tensor {
	x := c.tensor("x")
	x = x.Cast(c.dtype(dtype.Promote(x.DType(), dtype.Int32)))
	if !c.has("axis") {
		x = x.Reshape(-1)
	}
	a := c.axis(x, "axis", 0)
	n := x.Dim(a)
	if x.Symbolic() || n == tensor.Unknown {
		return tensor.Placeholder(x.DType(), x.Shape()...)
	}
	if n > most {
		c.fail("axis %d of %v is longer than %d", a, x.Type(), most)
	}
	d := x.DType()
	wide := d.Accumulator()
	if !d.IsFloat() {
		wide = dtype.Float64 // exact up to 2⁵³
	}
	i := tensor.Iota(dtype.Int32, n)
	upper := i.ExpandDims(1).LessEqual(i).Cast(wide) // of row i and column k: i ≤ k
	y := swapped(x.Cast(wide), a, x.Rank()-1)
	if x.Rank() == 1 {
		y = y.ExpandDims(0).MatMul(upper).Squeeze(0)
	} else {
		y = y.MatMul(upper)
	}
	return swapped(y, a, x.Rank()-1).Cast(d)
}

// swapped is x with two axes exchanged.
func swapped(x *keras.Tensor, a, b int) *keras.Tensor {
	if a == b {
		return x
	}
	perm := make([]int, x.Rank())
	for i := range perm {
		perm[i] = i
	}
	perm[a], perm[b] = b, a
	return x.Transpose(perm...)
}

// reshaped is x in another shape. An axis of -1 is inferred.
func reshaped(c call, x *keras.Tensor, shape []int) *keras.Tensor {
	hole, known := -1, 1
	for i, n := range shape {
		switch {
		case n == -1 && hole < 0:
			hole = i
		case n < 0:
			c.fail("the shape is %v, want sizes, and -1 at most once", shape)
		default:
			known = op.Times(known, n)
		}
	}
	if !x.Shape().Known() && hole < 0 {
		return tensor.Placeholder(x.DType(), shape...) // its size is checked when the batch is known
	}
	return x.Reshape(shape...)
}

func transpose(c call) *keras.Tensor {
	x := c.tensor("x")
	if !c.has("axes") {
		return x.Transpose()
	}
	axes := c.integers("axes")
	for i, a := range axes {
		axes[i] = c.checked(x, a)
	}
	return x.Transpose(axes...)
}

func swapAxes(c call) *keras.Tensor {
	x := c.tensor("x")
	return swapped(x, c.axis(x, "axis1", 0), c.axis(x, "axis2", 0))
}

func moveAxis(c call) *keras.Tensor {
	x := c.tensor("x")
	from, to := c.integers("source"), c.integers("destination")
	if len(from) != len(to) {
		c.fail("source has %d axes and destination %d, want as many", len(from), len(to))
	}
	perm := make([]int, x.Rank())
	for i := range perm {
		perm[i] = -1
	}
	moved := map[int]bool{}
	for i := range from {
		a, b := c.checked(x, from[i]), c.checked(x, to[i])
		if moved[a] || perm[b] >= 0 {
			c.fail("source is %v and destination %v, want different axes", from, to)
		}
		perm[b], moved[a] = a, true
	}
	next := 0
	for i := range perm {
		if perm[i] >= 0 {
			continue
		}
		for moved[next] {
			next++
		}
		perm[i] = next
		next++
	}
	return x.Transpose(perm...)
}

func expand(c call) *keras.Tensor {
	x := c.tensor("x")
	axes := c.integers("axis")
	rank := x.Rank() + len(axes)
	for i, a := range axes {
		if a < 0 {
			axes[i] = a + rank
		}
		if axes[i] < 0 || axes[i] >= rank {
			c.fail("axis %d does not exist in the result of %v", a, x.Type())
		}
	}
	slices.Sort(axes)
	for _, a := range slices.Compact(axes) {
		x = x.ExpandDims(a)
	}
	return x
}

func squeeze(c call) *keras.Tensor {
	x := c.tensor("x")
	axes := c.axes(x)
	if !c.has("axis") {
		axes = slices.DeleteFunc(axes, func(a int) bool { return x.Dim(a) != 1 })
	}
	slices.Sort(axes)
	for _, a := range slices.Backward(slices.Compact(axes)) {
		x = x.Squeeze(a)
	}
	return x
}

func concatenate(c call) *keras.Tensor {
	all := c.list("xs")
	return tensor.Concat(c.integer("axis", -1), all...)
}

func split(c call) *keras.Tensor {
	x := c.tensor("x")
	a := c.axis(x, "axis", 0)
	if x.Dim(a) == tensor.Unknown {
		c.fail("axis %d of %v has no size", a, x.Type())
	}
	limits := c.integers("indices_or_sections")
	if _, ok := c.values["indices_or_sections"].([]any); !ok {
		n := limits[0]
		if n < 1 || n > most || x.Dim(a)%n != 0 {
			c.fail("axis %d of %v cannot be cut into %d equal parts", a, x.Type(), n)
		}
		limits = nil
		for i := 1; i < n; i++ {
			limits = append(limits, i*x.Dim(a)/n)
		}
	}
	var out []*keras.Tensor
	start := 0
	for _, end := range append(limits, x.Dim(a)) {
		if end <= start || end > x.Dim(a) {
			c.fail("indices_or_sections is %v, want increasing indices within axis %d of %v", limits, a, x.Type())
		}
		out, start = append(out, x.Slice(a, start, end)), end
	}
	return tensor.Tuple(out...)
}

func unstack(c call) *keras.Tensor {
	x := c.tensor("x")
	a := c.axis(x, "axis", 0)
	n := x.Dim(a)
	if n == tensor.Unknown || n > most || c.integer("num", n) != n {
		c.fail("axis %d of %v cannot be taken apart into %v tensors", a, x.Type(), c.values["num"])
	}
	out := make([]*keras.Tensor, n)
	for i := range out {
		out[i] = x.At(a, i)
	}
	return tensor.Tuple(out...)
}

func tile(c call) *keras.Tensor {
	x, repeats := c.tensor("x"), c.integers("repeats")
	for len(repeats) < x.Rank() {
		repeats = slices.Insert(repeats, 0, 1)
	}
	for x.Rank() < len(repeats) {
		x = x.ExpandDims(0)
	}
	for a, n := range repeats {
		if n > 1 {
			x = copies(c, x, a, n, true)
		} else if n < 1 {
			c.fail("repeats is %v, want positive numbers", repeats)
		}
	}
	return x
}

func repeat(c call) *keras.Tensor {
	x := c.tensor("x")
	if !c.has("axis") {
		x = x.Reshape(-1)
	}
	n := c.integers("repeats")
	if len(n) != 1 || n[0] < 1 {
		c.fail("repeats is %v, want one positive number", n)
	}
	return copies(c, x, c.axis(x, "axis", 0), n[0], false)
}

// copies is x n times along axis a: whole, or each element by itself.
func copies(c call, x *keras.Tensor, a, n int, whole bool) *keras.Tensor {
	shape := x.Shape().Clone()
	size := tensor.Unknown
	if shape[a] != tensor.Unknown {
		size = op.Times(shape[a], n)
	}
	if x.Symbolic() {
		shape[a] = size
		return tensor.Placeholder(x.DType(), shape...)
	}
	at := a + 1
	if whole {
		at = a
	}
	y := x.ExpandDims(at)
	wide := y.Shape().Clone()
	wide[at] = n
	shape[a] = size
	return y.BroadcastTo(wide...).Reshape(shape...)
}

func pad(c call) *keras.Tensor {
	x := c.tensor("x")
	if mode := c.text("mode", "constant"); mode != "constant" {
		c.fail("mode is %q, want constant", mode)
	}
	var low, high []int
	pairs, ok := c.values["pad_width"].([]any)
	for _, p := range pairs {
		both, isList := p.([]any)
		if !isList || len(both) != 2 {
			ok = false
			break
		}
		low, high = append(low, c.whole(both[0])), append(high, c.whole(both[1]))
	}
	if !ok || len(low) != x.Rank() {
		c.fail("pad_width is %v, want two numbers for each axis of %v", c.values["pad_width"], x.Type())
	}
	if x.Symbolic() { // axes without a size, such as the steps of sequences, keep none
		shape := slices.Clone(x.Shape())
		for i, n := range shape {
			if n != tensor.Unknown {
				shape[i] = n + low[i] + high[i]
			}
		}
		return tensor.Placeholder(x.DType(), shape...)
	}
	return x.Pad(low, high, c.number("constant_values", 0))
}

// picked is x with the elements at along axis a, which are numbered from 0.
func picked(x *keras.Tensor, a int, at *keras.Tensor) *keras.Tensor {
	if x.Symbolic() {
		shape := slices.Concat(x.Shape()[:a], at.Shape(), x.Shape()[a+1:])
		return tensor.Placeholder(x.DType(), shape...)
	}
	if a == 0 {
		return x.Gather(at)
	}
	perm := []int{a} // the axis first, then back after Gather, which puts the axes of at there
	for i := range x.Rank() {
		if i != a {
			perm = append(perm, i)
		}
	}
	y := x.Transpose(perm...).Gather(at)
	n := at.Rank()
	var back []int
	for i := range a {
		back = append(back, n+i)
	}
	for i := range n {
		back = append(back, i)
	}
	for i := a; i < x.Rank()-1; i++ {
		back = append(back, n+i)
	}
	return y.Transpose(back...)
}

// order are indices of axis a of x, each changed by f.
func order(c call, x *keras.Tensor, a int, f func(i, n *keras.Tensor) *keras.Tensor) *keras.Tensor {
	if x.Symbolic() {
		return x
	}
	n := x.Dim(a)
	return picked(x, a, f(tensor.Iota(dtype.Int32, n), tensor.Full(dtype.Int32, float64(n))))
}

func flip(c call) *keras.Tensor {
	x := c.tensor("x")
	for _, a := range c.axes(x) {
		x = order(c, x, a, func(i, n *keras.Tensor) *keras.Tensor { return n.AddScalar(-1).Sub(i) })
	}
	return x
}

func roll(c call) *keras.Tensor {
	x := c.tensor("x")
	shift := c.integers("shift")
	if len(shift) != 1 || !c.has("axis") || len(c.integers("axis")) != 1 {
		c.fail("shift is %v and axis %v, want one number each", c.values["shift"], c.values["axis"])
	}
	return order(c, x, c.axis(x, "axis", 0), func(i, n *keras.Tensor) *keras.Tensor {
		return i.Sub(tensor.Full(dtype.Int32, float64(shift[0]))).Mod(n)
	})
}

func take(c call) *keras.Tensor {
	x := c.tensor("x")
	at := c.tensor("indices")
	if !at.DType().IsInt() {
		c.fail("indices are %v, want integers", at.Type())
	}
	at = at.Cast(dtype.Promote(at.DType(), dtype.Int32))
	if !c.has("axis") {
		x = x.Reshape(-1)
	}
	a := c.axis(x, "axis", 0)
	if !x.Symbolic() && !at.Symbolic() {
		n := tensor.Full(at.DType(), float64(x.Dim(a)))
		at = tensor.Where(at.Less(tensor.Full(at.DType(), 0)), at.Add(n), at) // from the end
	}
	return picked(x, a, at)
}

// getItem is x[key].
func getItem(c call) *keras.Tensor {
	x := c.tensor("x")
	key, ok := c.values["key"].([]any)
	if !ok {
		key = []any{c.values["key"]}
	}
	takes := func(key []any) (axes int) {
		for _, k := range key {
			if k != nil && k != any(ellipsis{}) {
				axes++
			}
		}
		return axes
	}
	if n := takes(key); n > x.Rank() {
		c.fail("got %d indices, want at most %d for %v", n, x.Rank(), x.Type())
	}
	a := 0 // of x, whose axes change
	for i, k := range key {
		switch k := k.(type) {
		case nil:
			x = inserted(x, a)
			a++
		case ellipsis:
			a = max(a, x.Rank()-takes(key[i+1:]))
		case sliced:
			x = cut(c, x, a, k)
			a++
		case json.Number:
			x = element(c, x, a, c.whole(k))
		default:
			c.fail("got an index %v, want integers, slices, None and ...", k)
		}
	}
	return x
}

// inserted is x with an axis of size 1 before axis a.
func inserted(x *keras.Tensor, a int) *keras.Tensor {
	if x.Symbolic() {
		return tensor.Placeholder(x.DType(), slices.Insert(x.Shape().Clone(), a, 1)...)
	}
	return x.ExpandDims(a)
}

// element is x[i] of axis a.
func element(c call, x *keras.Tensor, a, i int) *keras.Tensor {
	if x.Symbolic() && x.Dim(a) == tensor.Unknown {
		return tensor.Placeholder(x.DType(), slices.Delete(x.Shape().Clone(), a, a+1)...)
	}
	return x.At(a, i)
}

// cut is x[start:stop:step] of axis a.
func cut(c call, x *keras.Tensor, a int, k sliced) *keras.Tensor {
	bound := func(v any, n, otherwise int) int {
		if v == nil {
			return otherwise
		}
		i := c.whole(v)
		if i < 0 {
			i += n
		}
		return min(max(i, 0), n)
	}
	step := 1
	if k.step != nil {
		step = c.whole(k.step)
	}
	if step < 1 {
		c.fail("a slice has the step %d, want a positive one", step)
	}
	if k.start == nil && k.stop == nil && step == 1 {
		return x
	}
	n := x.Dim(a)
	if n == tensor.Unknown {
		return tensor.Placeholder(x.DType(), x.Shape()...)
	}
	from, to := bound(k.start, n, 0), bound(k.stop, n, n)
	if from >= to {
		c.fail("the slice %v:%v of axis %d of %v is empty", k.start, k.stop, a, x.Type())
	}
	start, limit, stride := make([]int, x.Rank()), x.Shape().Clone(), make([]int, x.Rank())
	for i := range stride {
		stride[i] = 1
	}
	start[a], limit[a], stride[a] = from, to, step
	return x.SliceAll(start, limit, stride)
}

func broadcast(c call) *keras.Tensor {
	x, shape := c.tensor("x"), c.integers("shape")
	if x.Symbolic() {
		return tensor.Placeholder(x.DType(), shape...)
	}
	return x.BroadcastTo(shape...)
}

// product is the matrix product, of vectors too.
func product(x, y *keras.Tensor) *keras.Tensor {
	switch {
	case x.Rank() == 1 && y.Rank() > 1:
		return x.ExpandDims(0).MatMul(y).Squeeze(-2)
	case y.Rank() == 1 && x.Rank() > 1:
		return x.MatMul(y.ExpandDims(1)).Squeeze(-1)
	}
	return x.MatMul(y)
}

// dot is the product over the last axis of x and the one before the last of y.
func dot(x, y *keras.Tensor) *keras.Tensor {
	switch {
	case x.Rank() == 0 || y.Rank() == 0:
		return x.Mul(y)
	case x.Rank() == 1 || y.Rank() > 2:
		tensor.Fail("Dot", "got %v and %v, want a second tensor with 1 or 2 axes, and a first one with at least 2", x.Type(), y.Type())
	case y.Rank() == 1:
		return x.MatMul(y.ExpandDims(1)).Squeeze(-1)
	}
	return x.MatMul(y)
}

func einsum(c call) *keras.Tensor {
	all := c.together(c.operands...)
	if len(all) != 2 {
		c.fail("got %d operands, want 2", len(all))
	}
	return tensor.Einsum(strings.ReplaceAll(c.text("subscripts", ""), " ", ""), all[0], all[1])
}

// cast converts as Keras does: bools are true where x is not 0.
func cast(x *keras.Tensor, d dtype.DType) *keras.Tensor {
	if d == dtype.Bool {
		return truth(x)
	}
	return x.Cast(d)
}

// like is v with the shape of x, in the type that is asked for, or that of x.
func like(c call, v *keras.Tensor) *keras.Tensor {
	x := c.tensor("x")
	d := c.dtype(x.DType())
	if x.Symbolic() {
		return tensor.Placeholder(d, x.Shape()...)
	}
	return cast(v, d).BroadcastTo(x.Shape()...)
}

func oneHot(c call) *keras.Tensor {
	x := c.tensor("x")
	y := x.OneHot(c.integer("num_classes", 0), c.dtype(dtype.Float32))
	a := c.checked(y, c.integer("axis", -1))
	var perm []int
	for i := range x.Rank() {
		perm = append(perm, i)
	}
	return y.Transpose(slices.Insert(perm, a, x.Rank())...)
}

func threshold(c call) *keras.Tensor {
	return activations.Threshold(c.floats("x"), c.number("threshold", 0), c.number("default_value", 0))
}

var pooling = []string{"inputs", "pool_size", "strides", "padding", "data_format"}

// pool calls f on windows of the axes between batch and channels.
func pool(c call, f func(x *keras.Tensor, o tensor.PoolOptions) *keras.Tensor) *keras.Tensor {
	x := c.floats("inputs")
	n := x.Rank() - 2
	if n < 1 || n > 3 || c.text("data_format", "channels_last") != "channels_last" {
		c.fail("got %v with data_format %q, want 1 to 3 axes between batch and channels", x.Type(), c.text("data_format", ""))
	}
	each := func(name string) []int {
		if !c.has(name) {
			return nil
		}
		all := c.integers(name)
		for len(all) == 1 && n > 1 && len(all) < n {
			all = slices.Repeat(all, n)
		}
		if len(all) != n {
			c.fail("%s is %v, want %d numbers", name, all, n)
		}
		return all
	}
	size, strides := each("pool_size"), each("strides")
	if strides == nil {
		strides = size
	}
	return f(x, tensor.PoolOptions{Window: size, Stride: strides, Padding: c.text("padding", "valid")})
}

// resize is keras.ops.image.resize, which the layer Resizing has here.
func resize(c call) *keras.Tensor {
	size := c.integers("size")
	if len(size) != 2 || c.text("data_format", "channels_last") != "channels_last" || c.text("fill_mode", "constant") != "constant" {
		c.fail("size is %v with data_format %q and fill_mode %q, want two numbers, channels_last and constant", size, c.text("data_format", ""), c.text("fill_mode", ""))
	}
	x := c.tensor("images")
	l := &preprocessing.Resizing{Height: size[0], Width: size[1], Interpolation: c.text("interpolation", "bilinear"), Antialias: c.flag("antialias"),
		CropToAspectRatio: c.flag("crop_to_aspect_ratio"), PadToAspectRatio: c.flag("pad_to_aspect_ratio"), FillValue: c.number("fill_value", 0)}
	return layers.Apply(l, layers.Pass{}, x)
}
