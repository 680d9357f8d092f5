package op

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// NotIndex is the int32 index for a float that is NaN or has a fraction: it is out of
// range of every axis, so operations with indices fail on it.
const NotIndex = math.MinInt32

// Attr is the attributes of an operation. Each operation reads only the fields that its
// row in the table names; the rest must be zero. One flat struct for all operations
// lets keys, printing and the checks between passes be written once.
type Attr struct {
	Axes          []int   // reductions, Softmax, LogSoftmax, Concat: resolved, ascending
	Dims          Shape   // Param, Const, Iota, Reshape, Broadcast, RandomUniform, gradients of convolution and pooling, Result: its shape; RNNGrad: steps, batch, units and perhaps features
	Perm          []int   // Transpose: axis i of the result is axis Perm[i] of the argument
	Start         []int   // Slice: first index per axis; Result: first element
	Limit         []int   // Slice: index after the last, per axis
	Stride        []int   // Slice: step per axis, at least 1; convolution, pooling: of the windows, per spatial axis
	Low           []int   // Pad: elements before, per axis; convolution, pooling: per spatial axis, negative ones are cut off
	High          []int   // Pad: elements after, per axis; convolution, pooling: per spatial axis, negative ones are cut off
	Window        []int   // pooling: size of the windows, per spatial axis
	Dilation      []int   // convolution, pooling: steps between the elements of a window, per spatial axis, at least 1
	Groups        int     // convolution: parts into which the channels are cut, 0 = 1; BatchNorm: groups of adjacent columns with common moments, 0 = as many as columns
	Value         float64 // Const: every element, when Data is nil; Pad: the elements around
	Epsilon       float64 // normalization: added to the variance
	Scale         float64 // attention: factor of the scores
	DropoutRate   float64 // attention: share of the weights that is dropped
	Data          []byte  // Const: elements, little-endian; must not change
	Size          int     // ScatterAdd, ScatterAlongAxis: of the axis of the result that the indices point into
	Padding       int     // Unique: fills the list of distinct values
	SlidingWindow int     // attention: a query sees keys less than this many positions away, 0 = all
	Index         int     // Param: which input of the program; ExtraOutput: which of the extra outputs
	Stream        uint64  // RandomUniform, attention: which of the independent streams of a state

	// Fields of a byte, together: a graph has thousands of these structs.

	KeepDims   bool        // reductions: reduced axes stay, with size 1
	TransA     bool        // MatMul: the last two axes of the first argument are swapped
	TransB     bool        // MatMul: the last two axes of the second argument are swapped
	Causal     bool        // attention: a query sees no key after its own position
	Uncentered bool        // normalization: the mean counts as 0
	Requantize bool        // QuantizedConv: the result is int8, by the scale and the zero point that are the last two arguments; set by a pass
	DType      dtype.DType // Param, Const, Iota, Cast, ExtraOutput: result; Sum, Mean, Prod, SumSquares, MatMul, convolution, Softmax, LogSoftmax: result, Invalid = that of the argument; Result: 16-bit type to round to, set by a pass, Invalid = none
	Bits       int8        // RandomUniform: of a number, 16 or 0 = 24

	Scan      *Scan      // RNN, RNNGrad: which cell, and which arguments there are
	Loop      *LoopBody  // Loop: what a step does
	AllReduce *AllReduce // AllReduceStart, AllGatherStart and their Done: of what, among whom
	Body      *Body      // Fused: what it computes; contractions: what follows the product, which is operand 0 of it
}

// check returns an error for integers beyond Limit, which no memory can hold.
func (a *Attr) check() error {
	for _, list := range [...][]int{a.Dims, a.Start, a.Limit, a.Stride, a.Low, a.High, a.Window, a.Dilation, {a.Groups, a.Size, a.Padding, a.SlidingWindow}} {
		for _, n := range list {
			if n < -Limit || n > Limit {
				return fmt.Errorf("got the size %d, want at most 2^%d", n, bits.Len(Limit))
			}
		}
	}
	return nil
}

// Body is a fused chain of element-wise operations: a small program that a device runs
// over the elements of its operands in one pass over memory. Every instruction rounds
// to its own element type, so a fused chain has the bits of its separate operations.
type Body struct {
	Inputs       []dtype.DType // element types of the operands
	Code         []Instr       // in order; the last one is the result
	ExtraOutputs []int32       // further instructions that are outputs, numbered as operands are: each is an ExtraOutput
}

// Instr is one instruction of a [Body].
type Instr struct {
	Op    Code        // class Elementwise
	DType dtype.DType // of its result
	Args  [3]int32    // 0 … len(Inputs)-1: an operand; above: result of instruction i-len(Inputs)
}

// String prints the body as "Add(%0 %1):float16; Relu(%2):float16".
func (b *Body) String() string {
	var s strings.Builder
	for i, in := range b.Code {
		if i > 0 {
			s.WriteString("; ")
		}
		s.WriteString(in.Op.String())
		for j := range in.Op.Info().Args {
			s.WriteByte("( "[min(j, 1)])
			fmt.Fprintf(&s, "%%%d", in.Args[j])
		}
		fmt.Fprintf(&s, "):%v", in.DType)
	}
	for i, x := range b.ExtraOutputs {
		s.WriteString([...]string{"; also", ""}[min(i, 1)])
		fmt.Fprintf(&s, " %%%d", x)
	}
	return s.String()
}

// String prints the fields that are set, in the syntax of golden files.
func (a Attr) String() string {
	var s strings.Builder
	put := func(format string, v ...any) {
		if s.Len() > 0 {
			s.WriteByte(' ')
		}
		fmt.Fprintf(&s, format, v...)
	}
	if a.Index != 0 {
		put("index=%d", a.Index)
	}
	if a.Axes != nil {
		put("axes=%v", a.Axes)
	}
	if a.KeepDims {
		put("keepdims")
	}
	if a.Perm != nil {
		put("perm=%v", a.Perm)
	}
	if a.Window != nil {
		put("window=%v", a.Window)
	}
	switch {
	case a.Limit != nil:
		put("start=%v limit=%v", a.Start, a.Limit)
	case a.Start != nil:
		put("start=%v", a.Start)
	}
	if a.Stride != nil {
		put("stride=%v", a.Stride)
	}
	if a.Dilation != nil {
		put("dilation=%v", a.Dilation)
	}
	if a.Low != nil {
		put("low=%v high=%v", a.Low, a.High)
	}
	if a.Groups != 0 {
		put("groups=%d", a.Groups)
	}
	if a.TransA {
		put("transA")
	}
	if a.TransB {
		put("transB")
	}
	if a.Value != 0 {
		put("value=%v", a.Value)
	}
	if a.Epsilon != 0 {
		put("epsilon=%v", a.Epsilon)
	}
	if a.Scale != 0 {
		put("scale=%v", a.Scale)
	}
	if a.Causal {
		put("causal")
	}
	if a.Uncentered {
		put("uncentered")
	}
	if a.Requantize {
		put("requantize")
	}
	if a.DropoutRate != 0 {
		put("dropout=%v", a.DropoutRate)
	}
	if a.Data != nil {
		put("data=%x", sha256.Sum256(a.Data))
	}
	for _, f := range [...]struct {
		name  string
		value int
	}{{"bits", int(a.Bits)}, {"size", a.Size}, {"padding", a.Padding}, {"window", a.SlidingWindow}} {
		if f.value != 0 {
			put("%s=%d", f.name, f.value)
		}
	}
	if a.Stream != 0 {
		put("stream=%d", a.Stream)
	}
	if a.Scan != nil {
		put("scan=(%v)", a.Scan)
	}
	if a.Loop != nil {
		put("loop=(%v)", a.Loop)
	}
	if a.AllReduce != nil {
		put("allreduce=(%v)", a.AllReduce)
	}
	if a.Body != nil {
		put("{%v}", a.Body)
	}
	return s.String()
}

// AppendKey appends an unambiguous encoding of a, for keys of caches and of
// common-subexpression elimination.
func (a Attr) AppendKey(k []byte) []byte {
	ints := func(v []int) {
		k = binary.AppendUvarint(k, uint64(len(v)))
		for _, x := range v {
			k = binary.AppendVarint(k, int64(x))
		}
	}
	ints(a.Axes)
	ints(a.Dims)
	ints(a.Perm)
	ints(a.Start)
	ints(a.Limit)
	ints(a.Stride)
	ints(a.Low)
	ints(a.High)
	ints(a.Window)
	ints(a.Dilation)
	flags := byte(0)
	for i, f := range [...]bool{a.KeepDims, a.TransA, a.TransB, a.Data != nil, a.Body != nil, a.Scan != nil, a.Causal, a.Uncentered} {
		if f {
			flags |= 1 << i
		}
	}
	k = append(k, flags, byte(a.DType))
	for _, x := range [...]float64{a.Value, a.Epsilon, a.Scale, a.DropoutRate} {
		k = binary.LittleEndian.AppendUint64(k, math.Float64bits(x))
	}
	for _, n := range [...]int{a.Groups, int(a.Bits), a.Size, a.Padding, a.SlidingWindow, a.Index} {
		k = binary.AppendVarint(k, int64(n))
	}
	if a.Requantize {
		k = append(k, "requantize"...)
	}
	k = binary.AppendUvarint(k, a.Stream)
	if a.Data != nil {
		sum := sha256.Sum256(a.Data)
		k = append(k, sum[:]...)
	}
	if a.Scan != nil {
		k = append(k, byte(a.Scan.Cell))
		for _, f := range a.Scan.flags() {
			on := byte(0)
			if f {
				on = 1
			}
			k = append(k, on)
		}
	}
	if a.Loop == nil {
		k = append(k, 0)
	} else {
		k = a.Loop.appendKey(append(k, 1))
	}
	if a.AllReduce != nil {
		k = a.AllReduce.appendKey(append(k, "allreduce "...))
	}
	if a.Body != nil {
		s := a.Body.String()
		k = binary.AppendUvarint(k, uint64(len(s)))
		k = append(k, s...)
		k = binary.AppendUvarint(k, uint64(len(a.Body.Inputs)))
		for _, d := range a.Body.Inputs {
			k = append(k, byte(d))
		}
	}
	return k
}
