package op

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// Code names an operation. Its properties are in its row, [Code.Info].
type Code uint16

// The operations. The comment says what the result is; x, y, z are the
// arguments in order. Element-wise operations broadcast their arguments.
//
// Integer arithmetic wraps. For bool, Add is or, Sub is exclusive or, Mul is
// and. Max of nothing is -∞ or the smallest integer, Min of nothing the
// opposite, Mean of nothing NaN. Sign(NaN) is NaN.
const (
	Invalid Code = iota

	Param         // input number Attr.Index of the program
	Const         // a constant: Attr.Data, or Attr.Value everywhere
	Iota          // 0, 1, 2 … along the last axis
	RandomUniform // numbers in [0, 1) from Philox4x32-10, of 24 bits or, with Attr.Bits = 16, of 16; x is int64[2]: seed and counter

	Identity   // x
	Cast       // x as another element type, rounded to nearest even
	Neg        // -x
	Abs        // |x|
	Sign       // -1, 0 or 1
	Exp        // eˣ
	Expm1      // eˣ-1, exact near 0
	Log        // ln x
	Log1p      // ln(1+x), exact near 0
	Sqrt       // √x
	Rsqrt      // 1/√x
	Reciprocal // 1/x
	Square     // x²
	Sin        // sin x
	Cos        // cos x
	Tanh       // tanh x
	Sigmoid    // 1/(1+e⁻ˣ)
	Softplus   // ln(1+eˣ)
	Relu       // max(x, 0); NaN stays
	Erf        // the error function
	NormalCDF  // the distribution function of the standard normal distribution: ½·erfc(-x/√2), with all digits where it is near 0
	NormalPDF  // its density: e^(-x²/2)/√(2π)
	Floor      // largest integer ≤ x
	Ceil       // smallest integer ≥ x
	Round      // nearest integer, ties to even
	RoundE4M3  // nearest number of float8_e4m3fn, ties to even, at most ±448; NaN for what is not finite
	RoundE5M2  // nearest number of float8_e5m2, ties to even, at most ±57344; NaN for what is not finite
	Not        // !x
	IsFinite   // neither NaN nor infinite

	Add          // x+y
	Sub          // x-y
	Mul          // x·y; for bool: and
	Div          // x/y; integers truncate, division by 0 gives 0
	Mod          // x - y·floor(x/y); integers: 0 when y is 0
	Pow          // xʸ
	Maximum      // max(x, y); NaN wins
	Minimum      // min(x, y); NaN wins
	Equal        // x == y
	NotEqual     // x != y
	Less         // x < y
	LessEqual    // x <= y
	Greater      // x > y
	GreaterEqual // x >= y
	And          // x && y
	Or           // x || y
	Where        // y where x, else z

	Sum        // Σ over Axes
	Mean       // Σ/n over Axes; 16-bit types accumulate in float32, so it cannot overflow before the division
	Prod       // ∏ over Axes
	Max        // maximum over Axes; NaN wins
	Min        // minimum over Axes; NaN wins
	ArgMax     // index of the first maximum over one axis, as int32; NaN wins
	ArgMin     // index of the first minimum over one axis, as int32; NaN wins
	SumSquares // Σx² of all elements, as a scalar
	AllFinite  // whether no element is NaN or infinite, as a scalar
	Stats      // what precision x has lost against its reference y: counts, extremes, sums and histograms, as a float64 vector; see stats.go

	MatMul // batched matrix product over the last two axes; leading axes broadcast

	QuantizedMatMul // x [M K] by the int8 matrix y [K N] with the scales z [N], rows of x quantized to int8 as they come: see quantize.go

	// Convolution and pooling slide windows over the spatial axes of
	// x [N spatial… C]: Stride, Dilation, Low and High have an entry for each of
	// them, one to three. Element i of output o lies at
	// o·Stride + i·Dilation - Low; what is outside is left out.
	Conv           // cross-correlation of x with the kernels y [window… C/Groups O]: [N outputs… O]
	ConvInputGrad  // gradient of Conv by its input, of shape Dims: x is that of the result, y the kernels; also a transposed convolution
	ConvKernelGrad // gradient of Conv by its kernels, of shape Dims: x is the input, y the gradient of the result

	// QuantizedConv is Conv of x, quantized to int8 as it comes or before, with the int8
	// kernels y, their scales [O], and the scale and the zero point of x: see quantize.go.
	QuantizedConv

	MaxPool         // maximum of each window; the first NaN wins; of nothing -∞
	MaxPoolGrad     // zeros like x, with y [N outputs… C] added at the places of the maxima: the first one of a window
	MaxPoolGradGrad // y [N spatial… C] at the places of the maxima of x: the first one of a window; of nothing 0
	AvgPool         // mean of the elements of each window that are not padding; of nothing NaN
	AvgPoolGrad     // gradient of AvgPool, of shape Dims: x is that of the result

	// RNN goes through the first axis of x, [T N Gates·U], with a recurrent
	// cell: see Cell and Scan. The other arguments are the recurrent kernel
	// [U Gates·U], the first output h [N U] and, as the cell and the scan have
	// them, the first c [N U], the bias b [U], the kernel w [F Gates·U] and bias v
	// [Gates·U] of an input [T N F], and a mask, bool [T N]: where it is false, h
	// and c stay. Sums, functions and c between steps are in float32
	// or better; h and q are rounded before they are multiplied, and all that is
	// stored. The result is flat and its parts are those of Scan.Sections.
	RNN
	RNNGrad // gradient of RNN by x and the first h and c, as Scan.GradSections says: of RNN's result, the recurrent kernel, the gradients by all outputs [T N U], the last one and the last c [N U], x and w if they are wanted, and the mask

	// Loop does the same at each step of sequences: see LoopBody. Its arguments
	// are the sequences [T …], the first values of the states, and what does not
	// change. Its results have one type; they are flat, and the parts are those of
	// LoopBody.Sections.
	Loop
	Result // the elements of flat x from Start on, in shape Dims: a result of an operation that has several; see Info.Results

	Softmax     // eˣ/Σeˣ over one axis, in float32 or better whatever the type
	SoftmaxGrad // the gradient of a Softmax whose result is x, from that of its result, y: x·(y-Σxy)
	LogSoftmax  // x - ln Σeˣ over one axis, in float32 or better whatever the type

	LayerNorm     // rows of x [rows features]: (x-mean)/√(variance+Epsilon)·y + z, with y and z [features]; rounded to DType
	LayerNormGrad // a vector in the accumulator's type: the gradients of LayerNorm by x, y and z, where y is that of LayerNorm and z is the gradient of its result

	// Of matrices x [O R C]; see columns.go.
	Moments         // mean and biased variance of each column, in the accumulator's type: [2 O C]
	BatchNormReduce // Σz and Σz·(x-y) of each column, with y [O C] and z as x, in the accumulator's type: [2 O C]
	BatchNorm       // (x-mean)/√(variance+Epsilon)·y + z, with y and z [C] and the moments of each column, or of all in its one of Groups; rounded to DType

	// Attention of Q [B T H D], K [B S G D] and V [B S G E], the first arguments;
	// see [AttentionSizes] for the others and the attributes.
	Attention        // softmax(Scale·Q·Kᵀ)·V for each head: [B T H E]
	AttentionForward // a vector in the accumulator's type: Attention, then what its softmax is of each query [2 B H T]: the largest product with a key that it sees, of Q·Kᵀ times the sign of Scale, and 1 over the sum of e to the power of the magnitude of Scale times what products are above that; 0 and 0 where nothing is seen
	AttentionGrad    // a vector: the gradients of Attention by Q, K and V; x, y, z are these, then come both parts of AttentionForward, the first in the type of x, and the gradient of the result

	Reshape          // the same elements in another shape
	Barrier          // x, for what must not be computed before y is known, nor be taken for the same computation made earlier
	Transpose        // axes permuted
	BroadcastTo      // repeated to a larger shape (NumPy's rule)
	Concat           // arguments one after the other along one axis
	Slice            // every Stride-th element between Start and Limit
	Pad              // Value around x
	Gather           // rows of x at the indices y: [y… x[1:]…]; an index out of range is an error of the run
	ScatterAdd       // zeros[N …], with row i of x added at index y[i]; in index order, accumulated wide and rounded once, so always the same bits
	TakeAlongAxis    // x[… y[…]]: one element of the last axis for each index; out of range is an error of the run
	ScatterAlongAxis // zeros[… N] with x[…] at y[…] of the last axis
	ScatterUpdate    // x[n …] with row i of z at index y[i]; indices out of range are left out, and of equal ones the last counts
	Unique           // [2 n] of n indices: for each the number of its value among the different ones, in the order of their first appearance; then these, filled up with Padding

	AllReduceStart // begins to add up its arguments over the ranks of a group: see AllReduce
	AllReduceDone  // a vector in the accumulator's type: the sums that an AllReduceStart has begun
	AllGatherStart // begins to send its arguments, parts of tensors, to the ranks of a group: see AllReduce
	AllGatherDone  // a vector in the argument's type: the tensors whose parts of all ranks an AllGatherStart sends

	Fused       // chains of element-wise operations in one pass: Attr.Body
	ExtraOutput // an output of the Fused value x besides its result: number Index of its Body.ExtraOutputs

	numCodes
)

// Class says how a compiler may treat an operation.
type Class uint8

// The classes.
const (
	Leaf        Class = iota // no arguments that it computes on, or random
	Elementwise              // element i of the result depends on element i of the arguments
	Reduction                // folds axes
	Contraction              // sums of products: 16-bit operands, float32 accumulation
	Movement                 // copies elements
	Collective               // exchanges elements with other ranks
)

// Precision is the list an operation is on in the sense of TensorFlow's
// auto_mixed_precision: what an automatic cast may do with it.
type Precision uint8

// The lists.
const (
	Clear    Precision = iota // safe in 16 bits, without gain: follows its neighbours
	Allow                     // faster in 16 bits and safe
	Inferred                  // safe in 16 bits when its neighbours are
	Deny                      // wants float32
)

// Info is the row of an operation.
type Info struct {
	Name      string
	Args      int       // number of arguments; -1: one or more
	Class     Class     // how it may be fused and scheduled
	Precision Precision // what an automatic cast may do
	Epilogue  bool      // a contraction, or a gradient of pooling, that can be followed by Attr.Body
	Grad      bool      // a gradient flows through it (to its float arguments)
	Costly    bool      // element-wise: takes many times as long as an addition
	Selects   bool      // element-wise: the result is one of the arguments or its sign, so that it needs no rounding
	InPlace   bool      // not element-wise, but its result may overwrite its first argument, and it cannot fail
	Widens    []int     // arguments that kernels widen to the accumulator's type themselves
	Infer     func(Attr, []Type) (Type, error)

	// Scalar is the formula of an element-wise operation, nil for Cast, Where,
	// comparisons and IsFinite.
	Scalar *Scalar

	// Results lists the results of an operation that packs several into a vector,
	// if devices may write each to a place of its own; nil for the rest.
	Results func(Attr, []Type) []Section

	// Expand says what a fused operation means in simpler ones. Devices
	// without a kernel of their own run this; nil for the rest.
	Expand func(r Recorder, a Attr, args []Ref) Ref
}

// Ref is a value of whoever records: *tensor.Tensor or *ir.Value.
type Ref any

// Recorder records operations; it is how [Info.Expand] is written once for
// tensors and for compiled graphs.
type Recorder interface {
	Record(c Code, a Attr, args ...Ref) Ref
	TypeOf(Ref) Type
}

// Info returns the row of c.
func (c Code) Info() *Info {
	if c >= numCodes || table[c].Name == "" {
		return &Info{Name: fmt.Sprintf("Code(%d)", c)}
	}
	return &table[c]
}

// String is the name of c.
func (c Code) String() string { return c.Info().Name }

// Codes lists all operations in order.
func Codes() []Code {
	var all []Code
	for c := Code(1); c < numCodes; c++ {
		all = append(all, c)
	}
	return all
}

// Infer gives the type of operation c on arguments of the given types, or an
// error that says what does not fit.
func Infer(c Code, a Attr, args ...Type) (Type, error) {
	info := c.Info()
	if info.Infer == nil {
		return Type{}, fmt.Errorf("unknown operation %v", c)
	}
	switch {
	case info.Args < 0 && len(args) == 0:
		return Type{}, fmt.Errorf("takes at least one argument")
	case a.Requantize:
		return inferRequantized(c, a, args)
	case a.Body != nil && info.Epilogue:
		return inferEpilogue(info, a, args)
	case info.Args >= 0 && len(args) != info.Args:
		return Type{}, fmt.Errorf("takes %d arguments, got %d", info.Args, len(args))
	}
	if err := a.check(); err != nil {
		return Type{}, err
	}
	t, err := info.Infer(a, args)
	if err == nil {
		err = t.Check()
	}
	return t, err
}

func row1(name string, p Precision, f func(Attr, []Type) (Type, error)) Info {
	return Info{Name: name, Args: 1, Class: Elementwise, Precision: p, Grad: true, Infer: f}
}

func row2(name string, p Precision, grad bool, f func(Attr, []Type) (Type, error)) Info {
	return Info{Name: name, Args: 2, Class: Elementwise, Precision: p, Grad: grad, Infer: f}
}

func without(i Info) Info { i.Grad = false; return i }

var table [numCodes]Info

// The table is filled in init because Expand functions refer back to it.
func init() {
	table = [numCodes]Info{
		Param:         {Name: "Param", Class: Leaf, Infer: inferLeaf},
		Const:         {Name: "Const", Class: Leaf, Infer: inferConst},
		Iota:          {Name: "Iota", Class: Leaf, Infer: inferIota},
		RandomUniform: {Name: "RandomUniform", Args: 1, Class: Leaf, Infer: inferRandom},

		Identity:   row1("Identity", Clear, inferSame).unary(func(x float64) float64 { return x }).unaryInt(func(x int64) int64 { return x }).onBools(func(x, _ int64) int64 { return x }).selects(),
		Cast:       row1("Cast", Clear, inferCast),
		Neg:        row1("Neg", Clear, inferNumber).unary(func(x float64) float64 { return -x }).unaryInt(func(x int64) int64 { return -x }),
		Abs:        row1("Abs", Clear, inferNumber).unary(math.Abs).unaryInt(func(x int64) int64 { return max(x, -x) }),
		Sign:       without(row1("Sign", Clear, inferNumber)).unary(signOf).anyZero().unaryInt(func(x int64) int64 { return min(max(x, -1), 1) }).selects(),
		Exp:        row1("Exp", Deny, inferFloat).unary(portablemath.Exp).within(relative).costly(),
		Expm1:      row1("Expm1", Deny, inferFloat).unary(portablemath.Expm1).within(relative).costly(),
		Log:        row1("Log", Deny, inferFloat).unary(logarithm).within(relative).positive().costly(),
		Log1p:      row1("Log1p", Deny, inferFloat).unary(portablemath.Log1p).within(relative).positive().costly(),
		Sqrt:       row1("Sqrt", Inferred, inferFloat).unary(math.Sqrt).positive().costly(),
		Rsqrt:      row1("Rsqrt", Inferred, inferFloat).unary(func(x float64) float64 { return 1 / math.Sqrt(x) }).within(relative).positive().costly(),
		Reciprocal: row1("Reciprocal", Inferred, inferFloat).unary(func(x float64) float64 { return 1 / x }).within(relative).costly(),
		Square:     row1("Square", Inferred, inferNumber).unary(func(x float64) float64 { return x * x }).unaryInt(func(x int64) int64 { return x * x }),
		Sin:        row1("Sin", Inferred, inferFloat).unary(portablemath.Sin).within(trigonometricError).costly(),
		Cos:        row1("Cos", Inferred, inferFloat).unary(portablemath.Cos).within(trigonometricError).costly(),
		Tanh:       row1("Tanh", Inferred, inferFloat).unary(portablemath.Tanh).within(relative).costly(),
		Sigmoid:    row1("Sigmoid", Inferred, inferFloat).unary(sigmoid).within(relative).costly(),
		Softplus:   row1("Softplus", Deny, inferFloat).unary(softplus).within(relative).costly().expands(expandSoftplus),
		Relu:       row1("Relu", Clear, inferNumber).unary(func(x float64) float64 { return larger(x, 0) }).anyZero().unaryInt(func(x int64) int64 { return max(x, 0) }).selects(),
		Erf:        row1("Erf", Inferred, inferFloat).unary(portablemath.Erf).within(relative).costly(),
		NormalCDF:  row1("NormalCDF", Inferred, inferFloat).unary(normalCDF).within(normalError).costly(),
		NormalPDF:  row1("NormalPDF", Inferred, inferFloat).unary(normalPDF).within(normalError).costly(),
		Floor:      without(row1("Floor", Clear, inferFloat)).unary(math.Floor),
		Ceil:       without(row1("Ceil", Clear, inferFloat)).unary(math.Ceil),
		Round:      without(row1("Round", Clear, inferFloat)).unary(math.RoundToEven),
		RoundE4M3:  without(row1("RoundE4M3", Clear, inferFloat)).unary(dtype.RoundE4M3),
		RoundE5M2:  without(row1("RoundE5M2", Clear, inferFloat)).unary(dtype.RoundE5M2),
		Not:        without(row1("Not", Clear, inferBool)).onBools(func(x, _ int64) int64 { return 1 - x }),
		IsFinite:   without(row1("IsFinite", Clear, inferTest)),

		Add:          row2("Add", Inferred, true, inferArith).binary(func(x, y float64) float64 { return x + y }).binaryInt(func(x, y int64) int64 { return x + y }).onBools(or),
		Sub:          row2("Sub", Inferred, true, inferArith).binary(func(x, y float64) float64 { return x - y }).binaryInt(func(x, y int64) int64 { return x - y }).onBools(xor),
		Mul:          row2("Mul", Inferred, true, inferArith).binary(func(x, y float64) float64 { return x * y }).binaryInt(func(x, y int64) int64 { return x * y }).onBools(and),
		Div:          row2("Div", Inferred, true, inferNumbers).binary(func(x, y float64) float64 { return x / y }).binaryInt(divInt).costly(),
		Mod:          row2("Mod", Inferred, true, inferNumbers).binary(floorMod).anyZero().binaryInt(floorModInt).costly(),
		Pow:          row2("Pow", Deny, true, inferFloats).binary(power).within(powerError).positive().costly(),
		Maximum:      row2("Maximum", Clear, true, inferArith).binary(larger).anyZero().binaryInt(maxInt).onBools(maxInt).selects(),
		Minimum:      row2("Minimum", Clear, true, inferArith).binary(smaller).anyZero().binaryInt(minInt).onBools(minInt).selects(),
		Equal:        row2("Equal", Clear, false, inferCompare),
		NotEqual:     row2("NotEqual", Clear, false, inferCompare),
		Less:         row2("Less", Clear, false, inferCompare),
		LessEqual:    row2("LessEqual", Clear, false, inferCompare),
		Greater:      row2("Greater", Clear, false, inferCompare),
		GreaterEqual: row2("GreaterEqual", Clear, false, inferCompare),
		And:          row2("And", Clear, false, inferLogic).onBools(and),
		Or:           row2("Or", Clear, false, inferLogic).onBools(or),
		Where:        {Name: "Where", Args: 3, Class: Elementwise, Precision: Clear, Grad: true, Selects: true, Infer: inferWhere},

		Sum:        {Name: "Sum", Args: 1, Class: Reduction, Precision: Deny, Grad: true, Infer: inferReduceOut},
		Mean:       {Name: "Mean", Args: 1, Class: Reduction, Precision: Deny, Grad: true, Infer: inferMean},
		Prod:       {Name: "Prod", Args: 1, Class: Reduction, Precision: Deny, Grad: true, Infer: inferReduceOut},
		Max:        {Name: "Max", Args: 1, Class: Reduction, Precision: Clear, Grad: true, Infer: inferReduce},
		Min:        {Name: "Min", Args: 1, Class: Reduction, Precision: Clear, Grad: true, Infer: inferReduce},
		ArgMax:     {Name: "ArgMax", Args: 1, Class: Reduction, Precision: Clear, Infer: inferArg},
		ArgMin:     {Name: "ArgMin", Args: 1, Class: Reduction, Precision: Clear, Infer: inferArg},
		SumSquares: {Name: "SumSquares", Args: 1, Class: Reduction, Precision: Deny, Grad: true, Infer: inferSumSquares},
		AllFinite:  {Name: "AllFinite", Args: 1, Class: Reduction, Precision: Clear, Infer: inferAllFinite},

		Stats: {Name: "Stats", Args: 2, Class: Reduction, Precision: Clear, Infer: inferStats, Expand: expandStats},

		MatMul: {Name: "MatMul", Args: 2, Class: Contraction, Precision: Allow, Epilogue: true, Grad: true, Infer: inferMatMul},

		QuantizedMatMul: {Name: "QuantizedMatMul", Args: 3, Class: Contraction, Precision: Clear, Infer: inferQuantizedMatMul, Expand: expandQuantizedMatMul},

		Conv:           {Name: "Conv", Args: 2, Class: Contraction, Precision: Allow, Epilogue: true, Grad: true, Infer: inferConv},
		ConvInputGrad:  {Name: "ConvInputGrad", Args: 2, Class: Contraction, Precision: Allow, Epilogue: true, Grad: true, Infer: inferConvInputGrad},
		ConvKernelGrad: {Name: "ConvKernelGrad", Args: 2, Class: Contraction, Precision: Allow, Epilogue: true, Grad: true, Infer: inferConvKernelGrad},

		QuantizedConv: {Name: "QuantizedConv", Args: 5, Class: Contraction, Precision: Clear, Epilogue: true, Infer: inferQuantizedConv, Expand: expandQuantizedConv},

		MaxPool:         {Name: "MaxPool", Args: 1, Class: Reduction, Precision: Clear, Grad: true, Infer: inferPool},
		MaxPoolGrad:     {Name: "MaxPoolGrad", Args: 2, Class: Reduction, Precision: Clear, Epilogue: true, Grad: true, Infer: inferMaxPoolGrad},
		MaxPoolGradGrad: {Name: "MaxPoolGradGrad", Args: 2, Class: Reduction, Precision: Clear, Grad: true, Infer: inferMaxPoolGradGrad},
		AvgPool:         {Name: "AvgPool", Args: 1, Class: Reduction, Precision: Inferred, Grad: true, Infer: inferPool},
		AvgPoolGrad:     {Name: "AvgPoolGrad", Args: 1, Class: Reduction, Precision: Inferred, Grad: true, Infer: inferAvgPoolGrad},

		RNN:     {Name: "RNN", Args: -1, Class: Contraction, Precision: Allow, Grad: true, Infer: inferRNN, Expand: expandRNN},
		RNNGrad: {Name: "RNNGrad", Args: -1, Class: Contraction, Precision: Allow, Infer: inferRNNGrad, Expand: expandRNNGrad},
		Loop:    {Name: "Loop", Args: -1, Class: Contraction, Precision: Clear, Grad: true, Infer: inferLoop, Expand: expandLoop},
		Result:  {Name: "Result", Args: 1, Class: Movement, Grad: true, Infer: inferResult},

		Softmax:     {Name: "Softmax", Args: 1, Class: Reduction, Precision: Inferred, Grad: true, Infer: inferSoftmax, Expand: expandSoftmax},
		SoftmaxGrad: {Name: "SoftmaxGrad", Args: 2, Class: Reduction, Precision: Deny, Grad: true, Infer: inferSoftmaxGrad, Expand: expandSoftmaxGrad},
		LogSoftmax:  {Name: "LogSoftmax", Args: 1, Class: Reduction, Precision: Deny, Grad: true, Infer: inferSoftmax, Expand: expandLogSoftmax},

		LayerNorm:     {Name: "LayerNorm", Args: 3, Class: Reduction, Precision: Inferred, Grad: true, Widens: []int{0}, Infer: inferLayerNorm, Expand: expandLayerNorm},
		LayerNormGrad: {Name: "LayerNormGrad", Args: 3, Class: Reduction, Precision: Deny, Grad: true, Widens: []int{0, 2}, Infer: inferLayerNormGrad, Results: layerNormGradResults, Expand: expandLayerNormGrad},

		Moments:         {Name: "Moments", Args: 1, Class: Reduction, Precision: Deny, Grad: true, Infer: inferMoments, Expand: expandMoments},
		BatchNormReduce: {Name: "BatchNormReduce", Args: 3, Class: Reduction, Precision: Deny, Grad: true, Infer: inferBatchNormReduce, Expand: expandBatchNormReduce},
		BatchNorm:       {Name: "BatchNorm", Args: 3, Class: Reduction, Precision: Inferred, Grad: true, Infer: inferBatchNorm, Expand: expandBatchNorm},

		Attention:        {Name: "Attention", Args: -1, Class: Contraction, Precision: Allow, Grad: true, Infer: inferAttention, Expand: expandAttention},
		AttentionForward: {Name: "AttentionForward", Args: -1, Class: Contraction, Precision: Allow, Grad: true, Infer: inferAttentionForward, Results: attentionForwardResults, Expand: expandAttentionForward},
		AttentionGrad:    {Name: "AttentionGrad", Args: -1, Class: Contraction, Precision: Allow, Grad: true, Infer: inferAttentionGrad, Results: attentionGradResults, Expand: expandAttentionGrad},

		Reshape:          {Name: "Reshape", Args: 1, Class: Movement, Grad: true, Infer: inferReshape},
		Barrier:          {Name: "Barrier", Args: 2, Class: Movement, Grad: true, Infer: inferBarrier},
		Transpose:        {Name: "Transpose", Args: 1, Class: Movement, Grad: true, Infer: inferTranspose},
		BroadcastTo:      {Name: "BroadcastTo", Args: 1, Class: Movement, Grad: true, Infer: inferBroadcast},
		Concat:           {Name: "Concat", Args: -1, Class: Movement, Grad: true, Infer: inferConcat},
		Slice:            {Name: "Slice", Args: 1, Class: Movement, Grad: true, Infer: inferSlice},
		Pad:              {Name: "Pad", Args: 1, Class: Movement, Grad: true, Infer: inferPad},
		Gather:           {Name: "Gather", Args: 2, Class: Movement, Grad: true, Infer: inferGather},
		ScatterAdd:       {Name: "ScatterAdd", Args: 2, Class: Movement, Grad: true, Infer: inferScatterAdd},
		TakeAlongAxis:    {Name: "TakeAlongAxis", Args: 2, Class: Movement, Grad: true, Infer: inferTakeAlongAxis},
		ScatterAlongAxis: {Name: "ScatterAlongAxis", Args: 2, Class: Movement, Grad: true, Infer: inferScatterAlongAxis},
		ScatterUpdate:    {Name: "ScatterUpdate", Args: 3, Class: Movement, InPlace: true, Infer: inferScatterUpdate},
		Unique:           {Name: "Unique", Args: 1, Class: Movement, Infer: inferUnique},

		AllReduceStart: {Name: "AllReduceStart", Args: -1, Class: Collective, Infer: inferAllReduceStart},
		AllReduceDone:  {Name: "AllReduceDone", Args: 1, Class: Collective, Infer: inferAllReduceDone, Results: allReduceResults},
		AllGatherStart: {Name: "AllGatherStart", Args: -1, Class: Collective, Infer: inferAllGatherStart},
		AllGatherDone:  {Name: "AllGatherDone", Args: 1, Class: Collective, Infer: inferAllGatherDone, Results: allReduceResults},

		Fused:       {Name: "Fused", Args: -1, Class: Elementwise, Infer: inferFused},
		ExtraOutput: {Name: "ExtraOutput", Args: 1, Class: Elementwise, Infer: inferCast},
	}
}
