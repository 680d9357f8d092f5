package tensor

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Element-wise operations. Both arguments have one element type and broadcast
// by NumPy's rule; Cast first where types differ.

// Cast returns t as another element type, rounded to nearest even.
func (t *Tensor) Cast(d dtype.DType) *Tensor {
	if t.err == nil && t.typ.DType == d {
		return t
	}
	return t.record(op.Cast, op.Attr{DType: d}, t).masked(t)
}

// CastLike returns t as the element type of u.
func (t *Tensor) CastLike(u *Tensor) *Tensor {
	if u.err != nil {
		return u
	}
	return t.Cast(u.typ.DType)
}

// Neg returns -t.
func (t *Tensor) Neg() *Tensor { return t.record(op.Neg, op.Attr{}, t) }

// Abs returns |t|.
func (t *Tensor) Abs() *Tensor { return t.record(op.Abs, op.Attr{}, t) }

// Sign returns -1, 0 or 1.
func (t *Tensor) Sign() *Tensor { return t.record(op.Sign, op.Attr{}, t) }

// Exp returns eᵗ.
func (t *Tensor) Exp() *Tensor { return t.record(op.Exp, op.Attr{}, t) }

// Expm1 returns eᵗ-1, exact near 0.
func (t *Tensor) Expm1() *Tensor { return t.record(op.Expm1, op.Attr{}, t) }

// Log returns ln t.
func (t *Tensor) Log() *Tensor { return t.record(op.Log, op.Attr{}, t) }

// Log1p returns ln(1+t), exact near 0.
func (t *Tensor) Log1p() *Tensor { return t.record(op.Log1p, op.Attr{}, t) }

// Sqrt returns √t.
func (t *Tensor) Sqrt() *Tensor { return t.record(op.Sqrt, op.Attr{}, t) }

// Rsqrt returns 1/√t.
func (t *Tensor) Rsqrt() *Tensor { return t.record(op.Rsqrt, op.Attr{}, t) }

// Reciprocal returns 1/t.
func (t *Tensor) Reciprocal() *Tensor { return t.record(op.Reciprocal, op.Attr{}, t) }

// Square returns t².
func (t *Tensor) Square() *Tensor { return t.record(op.Square, op.Attr{}, t) }

// Sin returns sin t.
func (t *Tensor) Sin() *Tensor { return t.record(op.Sin, op.Attr{}, t) }

// Cos returns cos t.
func (t *Tensor) Cos() *Tensor { return t.record(op.Cos, op.Attr{}, t) }

// Tanh returns tanh t.
func (t *Tensor) Tanh() *Tensor { return t.record(op.Tanh, op.Attr{}, t) }

// Sigmoid returns 1/(1+e⁻ᵗ).
func (t *Tensor) Sigmoid() *Tensor { return t.record(op.Sigmoid, op.Attr{}, t) }

// Relu returns max(t, 0).
func (t *Tensor) Relu() *Tensor { return t.record(op.Relu, op.Attr{}, t) }

// Softplus returns ln(1+eˣ), exact also where it is nearly 0 or nearly t (Keras:
// ops.softplus).
func (t *Tensor) Softplus() *Tensor { return t.record(op.Softplus, op.Attr{}, t) }

// Erf returns the error function of t.
func (t *Tensor) Erf() *Tensor { return t.record(op.Erf, op.Attr{}, t) }

// NormalCDF returns the distribution function of the standard normal
// distribution, ½·erfc(-t/√2), with all digits where it is near 0.
func NormalCDF(t *Tensor) *Tensor { return t.record(op.NormalCDF, op.Attr{}, t) }

// NormalPDF returns the density of the standard normal distribution,
// e^(-t²/2)/√(2π).
func NormalPDF(t *Tensor) *Tensor { return t.record(op.NormalPDF, op.Attr{}, t) }

// Floor returns the largest integers ≤ t.
func (t *Tensor) Floor() *Tensor { return t.record(op.Floor, op.Attr{}, t) }

// Ceil returns the smallest integers ≥ t.
func (t *Tensor) Ceil() *Tensor { return t.record(op.Ceil, op.Attr{}, t) }

// Round returns the nearest integers, ties to even.
func (t *Tensor) Round() *Tensor { return t.record(op.Round, op.Attr{}, t) }

// RoundE4M3 returns t rounded to numbers of float8_e4m3fn, ties to even, in t's own
// type, which represents them all. Numbers beyond ±448 become ±448, infinities NaN.
func RoundE4M3(t *Tensor) *Tensor { return t.record(op.RoundE4M3, op.Attr{}, t) }

// RoundE5M2 is RoundE4M3 for numbers of float8_e5m2, up to ±57344.
func RoundE5M2(t *Tensor) *Tensor { return t.record(op.RoundE5M2, op.Attr{}, t) }

// Not returns !t.
func (t *Tensor) Not() *Tensor { return t.record(op.Not, op.Attr{}, t) }

// IsFinite tells which elements are neither NaN nor infinite.
func (t *Tensor) IsFinite() *Tensor { return t.record(op.IsFinite, op.Attr{}, t) }

// StopGradient returns t; no gradient flows back through it.
func (t *Tensor) StopGradient() *Tensor {
	u := t.record(op.Identity, op.Attr{}, t)
	u.stop = true
	return u
}

// Add returns t+u.
func (t *Tensor) Add(u *Tensor) *Tensor { return t.record(op.Add, op.Attr{}, t, u) }

// Sub returns t-u.
func (t *Tensor) Sub(u *Tensor) *Tensor { return t.record(op.Sub, op.Attr{}, t, u) }

// Mul returns t·u, element by element.
func (t *Tensor) Mul(u *Tensor) *Tensor { return t.record(op.Mul, op.Attr{}, t, u) }

// Div returns t/u.
func (t *Tensor) Div(u *Tensor) *Tensor { return t.record(op.Div, op.Attr{}, t, u) }

// Mod returns t - u·floor(t/u).
func (t *Tensor) Mod(u *Tensor) *Tensor { return t.record(op.Mod, op.Attr{}, t, u) }

// Pow returns tᵘ.
func (t *Tensor) Pow(u *Tensor) *Tensor { return t.record(op.Pow, op.Attr{}, t, u) }

// Maximum returns the larger of t and u; NaN wins. Where both are equal, the
// gradient goes to t, as in TensorFlow.
func (t *Tensor) Maximum(u *Tensor) *Tensor { return t.record(op.Maximum, op.Attr{}, t, u) }

// Minimum returns the smaller of t and u; NaN wins. Where both are equal, the
// gradient goes to t, as in TensorFlow.
func (t *Tensor) Minimum(u *Tensor) *Tensor { return t.record(op.Minimum, op.Attr{}, t, u) }

// Equal returns t == u.
func (t *Tensor) Equal(u *Tensor) *Tensor { return t.record(op.Equal, op.Attr{}, t, u) }

// NotEqual returns t != u.
func (t *Tensor) NotEqual(u *Tensor) *Tensor { return t.record(op.NotEqual, op.Attr{}, t, u) }

// Less returns t < u.
func (t *Tensor) Less(u *Tensor) *Tensor { return t.record(op.Less, op.Attr{}, t, u) }

// LessEqual returns t <= u.
func (t *Tensor) LessEqual(u *Tensor) *Tensor { return t.record(op.LessEqual, op.Attr{}, t, u) }

// Greater returns t > u.
func (t *Tensor) Greater(u *Tensor) *Tensor { return t.record(op.Greater, op.Attr{}, t, u) }

// GreaterEqual returns t >= u.
func (t *Tensor) GreaterEqual(u *Tensor) *Tensor { return t.record(op.GreaterEqual, op.Attr{}, t, u) }

// And returns t && u.
func (t *Tensor) And(u *Tensor) *Tensor { return t.record(op.And, op.Attr{}, t, u) }

// Or returns t || u.
func (t *Tensor) Or(u *Tensor) *Tensor { return t.record(op.Or, op.Attr{}, t, u) }

// Where returns a where cond, else b.
func Where(cond, a, b *Tensor) *Tensor { return Record(op.Where, op.Attr{}, cond, a, b) }

// like returns the constant c in the element type of t.
func (t *Tensor) like(c float64) *Tensor {
	if t.err != nil {
		return t
	}
	return Scalar(t.typ.DType, c)
}

// AddScalar returns t+c, with c rounded to the type of t.
func (t *Tensor) AddScalar(c float64) *Tensor { return t.Add(t.like(c)) }

// MulScalar returns t·c, with c rounded to the type of t.
func (t *Tensor) MulScalar(c float64) *Tensor { return t.Mul(t.like(c)) }

// DivScalar returns t/c, with c rounded to the type of t.
func (t *Tensor) DivScalar(c float64) *Tensor { return t.Div(t.like(c)) }

// MaximumScalar returns max(t, c), with c rounded to the type of t.
func (t *Tensor) MaximumScalar(c float64) *Tensor { return t.Maximum(t.like(c)) }

// MinimumScalar returns min(t, c), with c rounded to the type of t.
func (t *Tensor) MinimumScalar(c float64) *Tensor { return t.Minimum(t.like(c)) }

// GreaterScalar returns t > c, with c rounded to the type of t.
func (t *Tensor) GreaterScalar(c float64) *Tensor { return t.Greater(t.like(c)) }

// LessScalar returns t < c, with c rounded to the type of t.
func (t *Tensor) LessScalar(c float64) *Tensor { return t.Less(t.like(c)) }

// Clip returns t limited to lo … hi. It passes the gradient of elements from lo
// to hi, both included, as tf.clip_by_value does.
func (t *Tensor) Clip(lo, hi float64) *Tensor { return t.MaximumScalar(lo).MinimumScalar(hi) }

// Reductions. Axes may be negative; no axes means all of them. 16-bit types
// accumulate in float32 or better and round once.

func (t *Tensor) axes(where string, axes []int) []int {
	if t.err != nil || t.parts != nil {
		return nil // record reports it
	}
	out := make([]int, 0, len(t.typ.Shape))
	if len(axes) == 0 {
		for i := range t.typ.Shape {
			out = append(out, i)
		}
		return out
	}
	for _, a := range axes {
		r, err := t.typ.Shape.Axis(a)
		if err != nil {
			Fail(where, "%v", err)
		}
		out = append(out, r)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (t *Tensor) reduce(c op.Code, keep bool, out dtype.DType, axes []int) *Tensor {
	return t.record(c, op.Attr{Axes: t.axes(c.String(), axes), KeepDims: keep, DType: out}, t)
}

// Sum returns Σt over axes.
func (t *Tensor) Sum(axes ...int) *Tensor { return t.reduce(op.Sum, false, dtype.Invalid, axes) }

// SumKeep returns Σt over axes, which stay with size 1.
func (t *Tensor) SumKeep(axes ...int) *Tensor { return t.reduce(op.Sum, true, dtype.Invalid, axes) }

// SumAs returns Σt over axes in element type d, without rounding through the
// type of t.
func SumAs(t *Tensor, d dtype.DType, axes ...int) *Tensor { return t.reduce(op.Sum, false, d, axes) }

// Mean returns Σt/n over axes.
func (t *Tensor) Mean(axes ...int) *Tensor { return t.reduce(op.Mean, false, dtype.Invalid, axes) }

// MeanKeep returns Σt/n over axes, which stay with size 1.
func (t *Tensor) MeanKeep(axes ...int) *Tensor { return t.reduce(op.Mean, true, dtype.Invalid, axes) }

// Prod returns ∏t over axes.
func (t *Tensor) Prod(axes ...int) *Tensor { return t.reduce(op.Prod, false, dtype.Invalid, axes) }

// Max returns the maximum over axes; for bool: any.
func (t *Tensor) Max(axes ...int) *Tensor { return t.reduce(op.Max, false, dtype.Invalid, axes) }

// MaxKeep returns the maximum over axes, which stay with size 1.
func (t *Tensor) MaxKeep(axes ...int) *Tensor { return t.reduce(op.Max, true, dtype.Invalid, axes) }

// Min returns the minimum over axes; for bool: all.
func (t *Tensor) Min(axes ...int) *Tensor { return t.reduce(op.Min, false, dtype.Invalid, axes) }

// ArgMax returns the index of the first maximum along axis, as int32.
func (t *Tensor) ArgMax(axis int) *Tensor {
	return t.reduce(op.ArgMax, false, dtype.Invalid, []int{axis})
}

// ArgMin returns the index of the first minimum along axis, as int32.
func (t *Tensor) ArgMin(axis int) *Tensor {
	return t.reduce(op.ArgMin, false, dtype.Invalid, []int{axis})
}

// SumSquares returns Σt² of all elements as a float32 scalar (float64 for
// float64).
func (t *Tensor) SumSquares() *Tensor {
	return t.record(op.SumSquares, op.Attr{DType: t.typ.DType.Accumulator()}, t)
}

// AllFinite tells whether no element is NaN or infinite, as a bool scalar.
func (t *Tensor) AllFinite() *Tensor { return t.record(op.AllFinite, op.Attr{}, t) }

// Stats compares x, of a float type, with its reference y, of the same shape and of
// float32, float64 or x's type: how many elements are NaN, infinite, 0, flushed to 0
// or subnormal, the extremes of the magnitudes, the sums that the relative error
// and the cosine consist of, and histograms of the binary exponents. The result is a
// float64 vector that [op.DecodeStatistics] reads. It has no gradient.
func Stats(x, y *Tensor) *Tensor { return x.record(op.Stats, op.Attr{}, x, y) }

// Softmax returns eᵗ/Σeᵗ along axis.
func (t *Tensor) Softmax(axis int) *Tensor {
	return t.record(op.Softmax, op.Attr{Axes: t.axes("Softmax", []int{axis})}, t)
}

// LogSoftmax returns t - ln Σeᵗ along axis.
func (t *Tensor) LogSoftmax(axis int) *Tensor {
	return t.record(op.LogSoftmax, op.Attr{Axes: t.axes("LogSoftmax", []int{axis})}, t)
}

// MatMul returns the matrix product over the last two axes; leading axes
// broadcast. 16-bit operands accumulate in float32 and round once.
//
// Shapes: [… m k] · [… k n] → [… m n].
func (t *Tensor) MatMul(u *Tensor) *Tensor { return t.record(op.MatMul, op.Attr{}, t, u) }

// MatMulT is MatMul with the last two axes of t or u swapped first.
func (t *Tensor) MatMulT(u *Tensor, transT, transU bool) *Tensor {
	return t.record(op.MatMul, op.Attr{TransA: transT, TransB: transU}, t, u)
}

// QuantizedMatMul returns the product of t [m k], float32 or bfloat16, with the int8
// matrix kernel [k n], whose column j stands for kernel/scale[j] (Keras: the int8 form of
// Dense). Rows of t are quantized to int8 as they come, sums are int32; op/quantize.go has
// the formula. A row with a number that is not finite gives NaN. There is no gradient.
//
// Shapes: [m k] · [k n], scale [n] of t's type → [m n] of t's type.
func (t *Tensor) QuantizedMatMul(kernel, scale *Tensor) *Tensor {
	return t.record(op.QuantizedMatMul, op.Attr{}, t, kernel, scale)
}

// Reshape returns the elements in another shape. One axis may be -1 and is then
// inferred. If axes of t have no size yet, several may be -1 and stay unknown.
func (t *Tensor) Reshape(shape ...int) *Tensor {
	if t.err != nil {
		return t
	}
	s := Shape(shape).Clone()
	known, hole := 1, -1
	for i, d := range s {
		switch {
		case d == -1 && hole >= 0 && t.typ.Shape.Known():
			Fail("Reshape", "shape %v has more than one -1", s)
		case d == -1:
			hole = i
		case d < 0:
			Fail("Reshape", "shape %v has a negative axis", s)
		default:
			known = op.Times(known, d)
		}
	}
	if n := t.typ.Shape.Size(); hole >= 0 && n != Unknown {
		if known == 0 || n%known != 0 {
			Fail("Reshape", "%v has %d elements, which do not fill %v", t.typ, n, s)
		}
		s[hole] = n / known
	}
	if s.Equal(t.typ.Shape) {
		return t
	}
	return t.record(op.Reshape, op.Attr{Dims: s}, t)
}

// ExpandDims inserts an axis of size 1 before axis; -1 appends one.
func (t *Tensor) ExpandDims(axis int) *Tensor {
	if t.err != nil {
		return t
	}
	if axis < 0 {
		axis += len(t.typ.Shape) + 1
	}
	if axis < 0 || axis > len(t.typ.Shape) {
		Fail("ExpandDims", "axis %d does not exist in the result of %v", axis, t.typ)
	}
	return t.record(op.Reshape, op.Attr{Dims: slices.Insert(t.typ.Shape.Clone(), axis, 1)}, t)
}

// Squeeze removes an axis of size 1.
func (t *Tensor) Squeeze(axis int) *Tensor {
	if t.err != nil {
		return t
	}
	a, err := t.typ.Shape.Axis(axis)
	if err != nil || t.typ.Shape[a] != 1 {
		Fail("Squeeze", "axis %d of %v does not have size 1", axis, t.typ)
	}
	return t.record(op.Reshape, op.Attr{Dims: slices.Delete(t.typ.Shape.Clone(), a, a+1)}, t)
}

// Transpose permutes the axes; without arguments it reverses them.
func (t *Tensor) Transpose(perm ...int) *Tensor {
	if len(perm) == 0 {
		for i := len(t.typ.Shape) - 1; i >= 0; i-- {
			perm = append(perm, i)
		}
	}
	return t.record(op.Transpose, op.Attr{Perm: slices.Clone(perm)}, t)
}

// BroadcastTo repeats t to a larger shape by NumPy's rule.
func (t *Tensor) BroadcastTo(shape ...int) *Tensor {
	if t.err == nil && t.typ.Shape.Equal(shape) {
		return t
	}
	return t.record(op.BroadcastTo, op.Attr{Dims: Shape(shape).Clone()}, t)
}

// Concat joins tensors along axis.
func Concat(axis int, ts ...*Tensor) *Tensor {
	if len(ts) == 0 {
		Fail("Concat", "no tensors given")
	}
	return Record(op.Concat, op.Attr{Axes: ts[0].axes("Concat", []int{axis})}, ts...)
}

// Slice returns the elements from start to limit (not included) along axis. A
// negative start counts from the end of the axis, and a limit of -1 is the end:
// x.Slice(1, -3, -1) is NumPy's x[:, -3:].
func (t *Tensor) Slice(axis, start, limit int) *Tensor {
	if t.err != nil {
		return t
	}
	ax := t.axes("Slice", []int{axis})[0]
	n := len(t.typ.Shape)
	a := op.Attr{Start: make([]int, n), Limit: t.typ.Shape.Clone(), Stride: make([]int, n)}
	for i := range a.Stride {
		a.Stride[i] = 1
	}
	if size := t.typ.Shape[ax]; start < 0 && size != Unknown {
		if start+size < 0 {
			Fail("Slice", "start %d is outside axis %d of %v", start, ax, t.typ)
		}
		start += size
	}
	a.Start[ax] = start
	if limit != -1 {
		a.Limit[ax] = limit
	}
	return t.record(op.Slice, a, t)
}

// At returns element i along axis, without that axis. A negative i counts from
// the end: x.At(1, -1) is NumPy's x[:, -1].
func (t *Tensor) At(axis, i int) *Tensor {
	if t.err != nil {
		return t
	}
	ax := t.axes("At", []int{axis})[0]
	n := t.typ.Shape[ax]
	at := i
	if i < 0 {
		at += n
	}
	if n == Unknown || at < 0 || at >= n {
		Fail("At", "index %d is outside axis %d of %v", i, ax, t.typ)
	}
	return t.Slice(ax, at, at+1).Squeeze(ax)
}

// SliceAll returns every stride-th element between start and limit, given for
// each axis.
func (t *Tensor) SliceAll(start, limit, stride []int) *Tensor {
	return t.record(op.Slice, op.Attr{Start: slices.Clone(start), Limit: slices.Clone(limit), Stride: slices.Clone(stride)}, t)
}

// Pad adds low[i] elements of the given value before and high[i] after axis i.
func (t *Tensor) Pad(low, high []int, value float64) *Tensor {
	return t.record(op.Pad, op.Attr{Low: slices.Clone(low), High: slices.Clone(high), Value: value}, t)
}

// Gather returns rows of t: element i of the result is t[indices[i]]. An
// index out of range is an error of the run.
//
// Shapes: t [n …], indices [i…] int32 or int64 → [i… …].
func (t *Tensor) Gather(indices *Tensor) *Tensor {
	return t.record(op.Gather, op.Attr{}, t, indices)
}

// ScatterAdd returns n rows of zeros with row i of t added at indices[i]: the
// gradient of Gather.
func (t *Tensor) ScatterAdd(indices *Tensor, n int) *Tensor {
	return t.record(op.ScatterAdd, op.Attr{Size: n}, t, indices)
}

// TakeAlongAxis returns one element of the last axis for each index. An index out
// of range is an error of the run.
//
// Shapes: t [… n], indices […] int32 or int64 → […].
func (t *Tensor) TakeAlongAxis(indices *Tensor) *Tensor {
	return t.record(op.TakeAlongAxis, op.Attr{}, t, indices)
}

// ScatterAlongAxis returns zeros with a new last axis of size n that hold t at the
// indices: the gradient of TakeAlongAxis, and one-hot of ones.
func (t *Tensor) ScatterAlongAxis(indices *Tensor, n int) *Tensor {
	return t.record(op.ScatterAlongAxis, op.Attr{Size: n}, t, indices)
}
