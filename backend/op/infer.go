package op

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

func inferLeaf(a Attr, _ []Type) (Type, error) {
	if a.DType == dtype.Invalid {
		return Type{}, fmt.Errorf("no element type given")
	}
	return Type{a.DType, a.Dims}, checkDims(a.Dims)
}

// checkDims checks given shapes: sizes must be Unknown or not negative.
func checkDims(s Shape) error {
	for _, d := range s {
		if d < Unknown {
			return fmt.Errorf("shape %v has a negative axis", s)
		}
	}
	return nil
}

func inferConst(a Attr, args []Type) (Type, error) {
	t, err := inferLeaf(a, args)
	if err == nil && a.Data != nil && len(a.Data) != t.Bytes() {
		return t, fmt.Errorf("%v takes %d bytes of data, got %d", t, t.Bytes(), len(a.Data))
	}
	return t, err
}

func inferIota(a Attr, args []Type) (Type, error) {
	if len(a.Dims) == 0 {
		return Type{}, fmt.Errorf("wants at least one axis")
	}
	return inferLeaf(a, args)
}

func inferRandom(a Attr, args []Type) (Type, error) {
	if want := (Type{dtype.Int64, Shape{2}}); !args[0].Equal(want) {
		return Type{}, fmt.Errorf("the random state is %v, want %v", args[0], want)
	}
	if a.Bits != 0 && a.Bits != 16 {
		return Type{}, fmt.Errorf("numbers are to have %d bits, want 16 or 0, which is 24", a.Bits)
	}
	return Type{dtype.Float32, a.Dims}, checkDims(a.Dims)
}

func inferSame(_ Attr, t []Type) (Type, error) { return t[0], nil }

func inferCast(a Attr, t []Type) (Type, error) {
	if a.DType == dtype.Invalid {
		return Type{}, fmt.Errorf("no element type given")
	}
	return Type{a.DType, t[0].Shape}, nil
}

func inferNumber(_ Attr, t []Type) (Type, error) {
	if t[0].DType == dtype.Bool {
		return t[0], fmt.Errorf("wants numbers, got %v", t[0])
	}
	return t[0], nil
}

func inferFloat(_ Attr, t []Type) (Type, error) {
	if !t[0].DType.IsFloat() {
		return t[0], fmt.Errorf("wants a float type, got %v", t[0])
	}
	return t[0], nil
}

func inferBool(_ Attr, t []Type) (Type, error) {
	if t[0].DType != dtype.Bool {
		return t[0], fmt.Errorf("wants bool, got %v", t[0])
	}
	return t[0], nil
}

func inferTest(_ Attr, t []Type) (Type, error) { return Type{dtype.Bool, t[0].Shape}, nil }

// inferArith is for operations on every element type; on bool they are logical (Mul is
// and, Maximum is or).
func inferArith(_ Attr, t []Type) (Type, error) {
	if t[0].DType != t[1].DType {
		return Type{}, fmt.Errorf("element types differ: %v and %v", t[0], t[1])
	}
	s, err := Broadcast(t[0].Shape, t[1].Shape)
	return Type{t[0].DType, s}, err
}

func inferNumbers(a Attr, t []Type) (Type, error) {
	if t[0].DType == dtype.Bool {
		return Type{}, fmt.Errorf("wants numbers, got %v and %v", t[0], t[1])
	}
	return inferArith(a, t)
}

func inferFloats(a Attr, t []Type) (Type, error) {
	if !t[0].DType.IsFloat() {
		return Type{}, fmt.Errorf("wants float types, got %v and %v", t[0], t[1])
	}
	return inferArith(a, t)
}

func inferCompare(a Attr, t []Type) (Type, error) {
	r, err := inferArith(a, t)
	r.DType = dtype.Bool
	return r, err
}

func inferLogic(a Attr, t []Type) (Type, error) {
	if t[0].DType != dtype.Bool || t[1].DType != dtype.Bool {
		return Type{}, fmt.Errorf("wants bool, got %v and %v", t[0], t[1])
	}
	return inferArith(a, t)
}

func inferWhere(a Attr, t []Type) (Type, error) {
	if t[0].DType != dtype.Bool {
		return Type{}, fmt.Errorf("the condition is %v, want bool", t[0])
	}
	r, err := inferArith(a, t[1:])
	if err != nil {
		return r, err
	}
	r.Shape, err = Broadcast(t[0].Shape, r.Shape)
	return r, err
}

func reduced(a Attr, s Shape) (Shape, error) {
	var out Shape
	j := 0
	for i, d := range s {
		if j < len(a.Axes) && a.Axes[j] == i {
			j++
			if a.KeepDims {
				out = append(out, 1)
			}
			continue
		}
		out = append(out, d)
	}
	if j != len(a.Axes) {
		return nil, fmt.Errorf("axes %v do not exist in shape %v, or are not in order", a.Axes, s)
	}
	return out, nil
}

func inferReduce(a Attr, t []Type) (Type, error) {
	s, err := reduced(a, t[0].Shape)
	return Type{t[0].DType, s}, err
}

// inferReduceOut lets the sum of a 16-bit tensor be stored in float32, and
// that of bool be counted.
func inferReduceOut(a Attr, t []Type) (Type, error) {
	r, err := inferReduce(a, t)
	if a.DType != dtype.Invalid {
		r.DType = a.DType
	}
	switch {
	case r.DType == dtype.Bool:
		return r, fmt.Errorf("the result would be bool; set the element type to count in")
	case t[0].DType.IsFloat() && !r.DType.IsFloat():
		return r, fmt.Errorf("the result of %v would be %v, want a float type", t[0], r.DType)
	}
	return r, err
}

func inferMean(a Attr, t []Type) (Type, error) {
	r, err := inferReduceOut(a, t)
	if err == nil && !r.DType.IsFloat() {
		return r, fmt.Errorf("the mean of %v wants a float result type", t[0])
	}
	return r, err
}

func inferArg(a Attr, t []Type) (Type, error) {
	if len(a.Axes) != 1 {
		return Type{}, fmt.Errorf("wants one axis, got %v", a.Axes)
	}
	r, err := inferReduce(a, t)
	if err == nil && t[0].Shape[a.Axes[0]] == 0 {
		return r, fmt.Errorf("axis %d of %v is empty", a.Axes[0], t[0])
	}
	r.DType = dtype.Int32
	return r, err
}

func inferSumSquares(a Attr, t []Type) (Type, error) {
	out := a.DType
	if out == dtype.Invalid {
		out = t[0].DType
	}
	if !out.IsFloat() {
		return Type{}, fmt.Errorf("wants a float type, got %v", t[0])
	}
	return Type{DType: out}, nil
}

func inferAllFinite(Attr, []Type) (Type, error) { return Type{DType: dtype.Bool}, nil }

func inferMatMul(a Attr, t []Type) (Type, error) {
	x, y := t[0], t[1]
	if x.DType != y.DType || !x.DType.IsFloat() {
		return Type{}, fmt.Errorf("wants two tensors of one float type, got %v and %v", x, y)
	}
	if len(x.Shape) < 2 || len(y.Shape) < 2 {
		return Type{}, fmt.Errorf("wants at least two axes each, got %v and %v", x, y)
	}
	m, k := last2(x.Shape, a.TransA)
	l, n := last2(y.Shape, a.TransB)
	if k != l {
		return Type{}, fmt.Errorf("inner dimensions differ: %v and %v", describe(x, a.TransA), describe(y, a.TransB))
	}
	batch, err := Broadcast(x.Shape[:len(x.Shape)-2], y.Shape[:len(y.Shape)-2])
	if err != nil {
		return Type{}, fmt.Errorf("batch axes of %v and %v do not broadcast", x, y)
	}
	out, err := floatResult(a, x)
	return Type{out, append(batch, m, n)}, err
}

func last2(s Shape, trans bool) (rows, cols int) {
	rows, cols = s[len(s)-2], s[len(s)-1]
	if trans {
		rows, cols = cols, rows
	}
	return rows, cols
}

func describe(t Type, trans bool) string {
	if trans {
		return t.String() + " transposed"
	}
	return t.String()
}

func inferSoftmax(a Attr, t []Type) (Type, error) {
	if len(a.Axes) != 1 || a.Axes[0] < 0 || a.Axes[0] >= len(t[0].Shape) {
		return Type{}, fmt.Errorf("wants one axis of %v, got %v", t[0], a.Axes)
	}
	r, err := inferFloat(a, t)
	if err != nil {
		return r, err
	}
	r.DType, err = floatResult(a, t[0])
	return r, err
}

// floatResult returns the element type of a result that may be wider or narrower than
// the argument.
func floatResult(a Attr, t Type) (dtype.DType, error) {
	switch {
	case a.DType == dtype.Invalid:
		return t.DType, nil
	case !a.DType.IsFloat():
		return a.DType, fmt.Errorf("the result would be %v, want a float type", a.DType)
	}
	return a.DType, nil
}

func inferReshape(a Attr, t []Type) (Type, error) {
	if err := checkDims(a.Dims); err != nil {
		return Type{}, err
	}
	from, to := t[0].Shape.Size(), a.Dims.Size()
	if t[0].Shape.Known() && a.Dims.Known() && from != to {
		return Type{}, fmt.Errorf("%v has %d elements, %v takes %d", t[0], from, a.Dims, to)
	}
	return Type{t[0].DType, a.Dims}, nil
}

// inferBarrier: y may be of any type and shape.
func inferBarrier(_ Attr, t []Type) (Type, error) { return t[0], nil }

func inferTranspose(a Attr, t []Type) (Type, error) {
	s := t[0].Shape
	seen := make([]bool, len(s))
	out := make(Shape, len(s))
	if len(a.Perm) != len(s) {
		return Type{}, fmt.Errorf("the permutation %v does not fit %v", a.Perm, t[0])
	}
	for i, p := range a.Perm {
		if p < 0 || p >= len(s) || seen[p] {
			return Type{}, fmt.Errorf("%v is not a permutation of the axes of %v", a.Perm, t[0])
		}
		seen[p] = true
		out[i] = s[p]
	}
	return Type{t[0].DType, out}, nil
}

func inferBroadcast(a Attr, t []Type) (Type, error) {
	if err := checkDims(a.Dims); err != nil {
		return Type{}, err
	}
	s, err := Broadcast(t[0].Shape, a.Dims)
	if err != nil || !s.Equal(a.Dims) {
		return Type{}, fmt.Errorf("%v does not broadcast to %v", t[0], a.Dims)
	}
	return Type{t[0].DType, a.Dims}, nil
}

func inferConcat(a Attr, t []Type) (Type, error) {
	out := t[0].Shape.Clone()
	if len(a.Axes) != 1 || a.Axes[0] < 0 || a.Axes[0] >= len(out) {
		return Type{}, fmt.Errorf("wants one axis of %v, got %v", t[0], a.Axes)
	}
	axis := a.Axes[0]
	for _, u := range t[1:] {
		if u.DType != t[0].DType || len(u.Shape) != len(out) {
			return Type{}, fmt.Errorf("%v and %v do not concatenate", t[0], u)
		}
		for i, d := range u.Shape {
			switch {
			case i != axis && d != out[i]:
				return Type{}, fmt.Errorf("%v and %v differ in axis %d; only axis %d may differ", t[0], u, i, axis)
			case i == axis && (d == Unknown || out[i] == Unknown):
				out[i] = Unknown
			case i == axis:
				out[i] += d
			}
		}
	}
	return Type{t[0].DType, out}, nil
}

func inferSlice(a Attr, t []Type) (Type, error) {
	s := t[0].Shape
	if len(a.Start) != len(s) || len(a.Limit) != len(s) || len(a.Stride) != len(s) {
		return Type{}, fmt.Errorf("start, limit and stride must name each axis of %v", t[0])
	}
	out := s.Clone()
	for i, d := range s {
		lo, hi, step := a.Start[i], a.Limit[i], a.Stride[i]
		if d == Unknown && lo == 0 && hi == Unknown && step == 1 {
			continue // all of an axis without a size
		}
		if step < 1 || lo < 0 || hi < lo || d != Unknown && hi > d {
			return Type{}, fmt.Errorf("slice %d:%d:%d of axis %d is outside %v", lo, hi, step, i, t[0])
		}
		out[i] = (hi - lo + step - 1) / step
	}
	return Type{t[0].DType, out}, nil
}

func inferPad(a Attr, t []Type) (Type, error) {
	out := t[0].Shape.Clone()
	if len(a.Low) != len(out) || len(a.High) != len(out) {
		return Type{}, fmt.Errorf("low and high must name each axis of %v", t[0])
	}
	for i := range out {
		if a.Low[i] < 0 || a.High[i] < 0 {
			return Type{}, fmt.Errorf("padding %d, %d of axis %d is negative", a.Low[i], a.High[i], i)
		}
		if out[i] != Unknown {
			out[i] += a.Low[i] + a.High[i]
		} else if a.Low[i]+a.High[i] != 0 {
			return Type{}, fmt.Errorf("axis %d of %v has no size yet and cannot be padded", i, t[0])
		}
	}
	return Type{t[0].DType, out}, nil
}

func wantIndices(t Type) error {
	if t.DType != dtype.Int32 && t.DType != dtype.Int64 {
		return fmt.Errorf("the indices are %v, want int32 or int64", t)
	}
	return nil
}

func inferGather(_ Attr, t []Type) (Type, error) {
	if len(t[0].Shape) == 0 {
		return Type{}, fmt.Errorf("a scalar has no rows")
	}
	return Type{t[0].DType, append(t[1].Shape.Clone(), t[0].Shape[1:]...)}, wantIndices(t[1])
}

func inferScatterAdd(a Attr, t []Type) (Type, error) {
	x, idx := t[0].Shape, t[1].Shape
	if len(x) < len(idx) || !x[:len(idx)].Equal(idx) {
		return Type{}, fmt.Errorf("%v does not start with the axes of the indices %v", t[0], t[1])
	}
	if t[0].DType == dtype.Bool {
		return Type{}, fmt.Errorf("wants numbers, got %v", t[0])
	}
	if a.Size < 0 {
		return Type{}, fmt.Errorf("the result would have %d rows", a.Size)
	}
	return Type{t[0].DType, append(Shape{a.Size}, x[len(idx):]...)}, wantIndices(t[1])
}

func inferTakeAlongAxis(_ Attr, t []Type) (Type, error) {
	s := t[0].Shape
	if len(s) == 0 || !s[:len(s)-1].Equal(t[1].Shape) {
		return Type{}, fmt.Errorf("the indices are %v, want one for each row of %v", t[1], t[0])
	}
	return Type{t[0].DType, t[1].Shape}, wantIndices(t[1])
}

func inferScatterAlongAxis(a Attr, t []Type) (Type, error) {
	if !t[0].Shape.Equal(t[1].Shape) {
		return Type{}, fmt.Errorf("values %v and indices %v differ in shape", t[0], t[1])
	}
	if a.Size < 0 {
		return Type{}, fmt.Errorf("the last axis of the result would have size %d", a.Size)
	}
	return Type{t[0].DType, append(t[0].Shape.Clone(), a.Size)}, wantIndices(t[1])
}

func inferScatterUpdate(_ Attr, t []Type) (Type, error) {
	x, idx, rows := t[0].Shape, t[1].Shape, t[2]
	if len(x) == 0 {
		return Type{}, fmt.Errorf("a scalar has no rows")
	}
	if want := (Type{t[0].DType, append(idx.Clone(), x[1:]...)}); !rows.Equal(want) {
		return Type{}, fmt.Errorf("the rows are %v, want %v for indices %v into %v", rows, want, t[1], t[0])
	}
	return t[0], wantIndices(t[1])
}

func inferUnique(_ Attr, t []Type) (Type, error) {
	return Type{t[0].DType, Shape{2, t[0].Shape.Size()}}, wantIndices(t[0])
}

// inferEpilogue is for a contraction with a body: arguments after its own are the
// body's arguments after the product.
func inferEpilogue(info *Info, a Attr, t []Type) (Type, error) {
	if len(t) < info.Args {
		return Type{}, fmt.Errorf("takes %d arguments, got %d", info.Args, len(t))
	}
	product, err := info.Infer(a, t[:info.Args])
	if err != nil {
		return Type{}, err
	}
	r, err := inferFused(a, append([]Type{product}, t[info.Args:]...))
	if err == nil && !r.Shape.Equal(product.Shape) {
		return Type{}, fmt.Errorf("what follows the product %v has shape %v", product, r.Shape)
	}
	return r, err
}

func inferFused(a Attr, t []Type) (Type, error) {
	if a.Body == nil || len(a.Body.Code) == 0 || len(a.Body.Inputs) != len(t) {
		return Type{}, fmt.Errorf("body and arguments do not fit")
	}
	var s Shape
	for i, u := range t {
		if u.DType != a.Body.Inputs[i] {
			return Type{}, fmt.Errorf("argument %d is %v, the body wants %v", i, u, a.Body.Inputs[i])
		}
		var err error
		if s, err = Broadcast(s, u.Shape); err != nil {
			return Type{}, err
		}
	}
	return Type{a.Body.Code[len(a.Body.Code)-1].DType, s}, nil
}

func inferSoftmaxGrad(a Attr, t []Type) (Type, error) {
	if !t[1].DType.IsFloat() || !t[1].Shape.Equal(t[0].Shape) {
		return Type{}, fmt.Errorf("gradient %v of %v, want floats of its shape", t[1], t[0])
	}
	return inferSoftmax(a, t[:1])
}
