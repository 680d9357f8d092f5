package op

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// A quantized number is an integer q from -127 to 127 that stands for q/scale. The
// scale of a row, or of a column of weights, is 127 over its largest magnitude, so
// that no number is clipped (Keras: keras.quantizers.AbsMaxQuantizer). With every
// operation rounded to the type T of x, QuantizedMatMul is
//
//	scale[i] = 127 / (max |x[i]| + QuantizeEpsilon)
//	q[i][k]  = clip(round(x[i][k]·scale[i]), -127, 127), ties to even, NaN to 0
//	s[i][j]  = Σ q[i][k]·y[k][j], in int32, modulo 2³²
//	d[i][j]  = T(float32(s[i][j])) / (z[j]·scale[i])
//
// so a row of x with a number that is not finite gives a row of NaN: its scale is 0
// or NaN, and its integers are 0.

// QuantizedConv is static: its input has one scale xs and one zero point z, which are known
// beforehand (ONNX: QLinearConv; Jacob et al. 2018). With float32 operations, x being
// float32 or bfloat16 and T its type,
//
//	q[n][p][c] = z + round(clip(x[n][p][c]·xs, -128-z, 127-z)), ties to even, NaN to -128
//	s[n][o][j] = Σ (q[n][p][c] - z)·y[w][c][j], in int32, modulo 2³²; padding is z
//	d[n][o][j] = T(float32(s[n][o][j])·(1 / (ys[j]·xs)))
//
// X may also be q itself, of int8; T is then Attr.DType. With Attr.Requantize the result, d
// or what the epilogue makes of it, is quantized in the same way by the scale and the zero
// point of its readers, the last two arguments.

// QuantizeEpsilon is added to the largest magnitude of a row, for rows of zeros
// (Keras: keras.config.epsilon()).
const QuantizeEpsilon = 1e-7

// QuantizeLimit is the largest magnitude of a quantized number.
const QuantizeLimit = 127

func inferQuantizedMatMul(_ Attr, t []Type) (Type, error) {
	x, y, scale := t[0], t[1], t[2]
	switch {
	case x.DType != dtype.Float32 && x.DType != dtype.BFloat16:
		return Type{}, fmt.Errorf("rows of %v cannot be quantized, want float32 or bfloat16", x)
	case y.DType != dtype.Int8:
		return Type{}, fmt.Errorf("the matrix is %v, want int8", y)
	case len(x.Shape) != 2 || len(y.Shape) != 2:
		return Type{}, fmt.Errorf("wants two axes each, got %v and %v", x, y)
	case x.Shape[1] != y.Shape[0]:
		return Type{}, fmt.Errorf("inner dimensions differ: %v and %v", x, y)
	case !scale.Equal(Type{x.DType, y.Shape[1:]}):
		return Type{}, fmt.Errorf("the scales are %v, want %v for %v by %v", scale, Type{x.DType, y.Shape[1:]}, x, y)
	}
	return Type{x.DType, Shape{x.Shape[0], y.Shape[1]}}, nil
}

// ExpandQuantize records the quantization of x over axes, which become 1 in the scale.
// The integers are returned in x's type.
func ExpandQuantize(r Recorder, x Ref, axes ...int) (q, scale Ref) {
	d := r.TypeOf(x).DType
	constant := func(v float64) Ref { return r.Record(Const, Attr{DType: d, Dims: Shape{}, Value: v}) }
	largest := r.Record(Max, Attr{Axes: axes, KeepDims: true}, r.Record(Abs, Attr{}, x))
	largest = r.Record(Maximum, Attr{}, largest, constant(0)) // of nothing, too
	scale = r.Record(Div, Attr{}, constant(QuantizeLimit), r.Record(Add, Attr{}, largest, constant(QuantizeEpsilon)))
	q = r.Record(Round, Attr{}, r.Record(Mul, Attr{}, x, scale))
	q = r.Record(Minimum, Attr{}, r.Record(Maximum, Attr{}, q, constant(-QuantizeLimit)), constant(QuantizeLimit))
	return r.Record(Where, Attr{}, r.Record(IsFinite, Attr{}, q), q, constant(0)), scale
}

// expandQuantizedMatMul multiplies the integers in float64, which holds their sums
// exactly, and takes the result modulo 2³².
func expandQuantizedMatMul(r Recorder, _ Attr, args []Ref) Ref {
	d := r.TypeOf(args[0]).DType
	wide := Attr{DType: dtype.Float64}
	q, scale := ExpandQuantize(r, args[0], 1)
	s := r.Record(MatMul, Attr{}, r.Record(Cast, wide, q), r.Record(Cast, wide, args[1]))
	return r.Record(Div, Attr{}, ExpandQuantizedSum(r, s, d), r.Record(Mul, Attr{}, args[2], scale))
}

// ExpandQuantizedSum records the conversion of sums of products of integers, which are
// float64, to the type d: as int32, to float32, and to d.
func ExpandQuantizedSum(r Recorder, sums Ref, d dtype.DType) Ref {
	constant := func(v float64) Ref { return r.Record(Const, Attr{DType: dtype.Float64, Dims: Shape{}, Value: v}) }
	half := constant(1 << 31)
	// int32(s) wraps around: (s + 2³¹) mod 2³² - 2³¹.
	s := r.Record(Sub, Attr{}, r.Record(Mod, Attr{}, r.Record(Add, Attr{}, sums, half), constant(1<<32)), half)
	return r.Record(Cast, Attr{DType: d}, r.Record(Cast, Attr{DType: dtype.Float32}, s))
}

func inferQuantizedConv(a Attr, t []Type) (Type, error) {
	x, y, scale, xscale, zero := t[0], t[1], t[2], t[3], t[4]
	switch {
	case x.DType == dtype.Int8:
		x.DType = a.DType
	case a.DType != dtype.Invalid && a.DType != x.DType:
		return Type{}, fmt.Errorf("the result of %v is %v, want its type", x, a.DType)
	}
	switch {
	case x.DType != dtype.Float32 && x.DType != dtype.BFloat16:
		return Type{}, fmt.Errorf("%v cannot be quantized, want float32 or bfloat16", x)
	case y.DType != dtype.Int8:
		return Type{}, fmt.Errorf("the kernels are %v, want int8", y)
	}
	s, err := convShape(a, x, Type{x.DType, y.Shape})
	switch {
	case err != nil:
		return Type{}, err
	case !scale.Equal(Type{dtype.Float32, y.Shape[len(y.Shape)-1:]}):
		return Type{}, fmt.Errorf("the scales are %v, want %v for kernels %v", scale, Type{dtype.Float32, y.Shape[len(y.Shape)-1:]}, y)
	case !xscale.Equal(Type{DType: dtype.Float32}):
		return Type{}, fmt.Errorf("the scale of the input is %v, want a float32", xscale)
	case !zero.Equal(Type{DType: dtype.Int8}):
		return Type{}, fmt.Errorf("the zero point of the input is %v, want an int8", zero)
	}
	return Type{x.DType, s}, nil
}

// inferRequantized is Infer for Attr.Requantize: the last two arguments are the scale and the
// zero point of the result.
func inferRequantized(c Code, a Attr, t []Type) (Type, error) {
	n := len(t) - 2
	if c != QuantizedConv || n < 0 {
		return Type{}, fmt.Errorf("%v of %d arguments cannot be quantized again", c, len(t))
	}
	a.Requantize = false
	r, err := Infer(c, a, t[:n]...)
	switch {
	case err != nil:
		return Type{}, err
	case r.DType != dtype.Float32 && r.DType != dtype.BFloat16:
		return Type{}, fmt.Errorf("%v cannot be quantized, want float32 or bfloat16", r)
	case !t[n].Equal(Type{DType: dtype.Float32}) || !t[n+1].Equal(Type{DType: dtype.Int8}):
		return Type{}, fmt.Errorf("the scale and the zero point of the result are %v and %v, want a float32 and an int8", t[n], t[n+1])
	}
	return Type{dtype.Int8, r.Shape}, nil
}

// expandQuantizedConv sums in float64, as expandQuantizedMatMul does.
func expandQuantizedConv(r Recorder, a Attr, args []Ref) Ref {
	d := r.TypeOf(args[0]).DType
	narrow, wide := Attr{DType: dtype.Float32}, Attr{DType: dtype.Float64}
	constant := func(v float64) Ref { return r.Record(Const, Attr{DType: dtype.Float32, Dims: Shape{}, Value: v}) }
	zero := r.Record(Cast, narrow, args[4])
	var x Ref
	if d == dtype.Int8 {
		d = a.DType
		x = r.Record(Sub, Attr{}, r.Record(Cast, narrow, args[0]), zero)
	} else {
		x = expandQuantizeStatic(r, args[0], args[3], zero)
	}
	requantize := a.Requantize
	a.DType, a.Requantize = dtype.Invalid, false
	s := r.Record(Conv, a, r.Record(Cast, wide, x), r.Record(Cast, wide, args[1]))
	rescale := r.Record(Div, Attr{}, constant(1), r.Record(Mul, Attr{}, args[2], args[3]))
	y := r.Record(Cast, Attr{DType: d}, r.Record(Mul, Attr{}, ExpandQuantizedSum(r, s, dtype.Float32), rescale))
	if !requantize {
		return y
	}
	zero = r.Record(Cast, narrow, args[6])
	return r.Record(Cast, Attr{DType: dtype.Int8}, r.Record(Add, Attr{}, expandQuantizeStatic(r, y, args[5], zero), zero))
}

// expandQuantizeStatic records q - z, as float32, of x with a scale and a zero point.
func expandQuantizeStatic(r Recorder, x, scale, zero Ref) Ref {
	constant := func(v float64) Ref { return r.Record(Const, Attr{DType: dtype.Float32, Dims: Shape{}, Value: v}) }
	lo, hi := r.Record(Sub, Attr{}, constant(-128), zero), r.Record(Sub, Attr{}, constant(127), zero)
	x = r.Record(Mul, Attr{}, r.Record(Cast, Attr{DType: dtype.Float32}, x), scale)
	x = r.Record(Where, Attr{}, r.Record(Greater, Attr{}, x, lo), x, lo) // NaN is not greater
	return r.Record(Round, Attr{}, r.Record(Minimum, Attr{}, x, hi))
}
