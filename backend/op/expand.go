package op

import "github.com/mezzo-ml/mezzo/backend/dtype"

// This file says what fused operations mean in simpler ones. An expansion is
// the fallback of devices without a kernel of their own, and the reference
// that such a kernel is tested against.

// expandSoftplus is max(x, 0) + ln(1+e^-|x|), computed in the accumulator type.
func expandSoftplus(r Recorder, _ Attr, args []Ref) Ref {
	t := r.TypeOf(args[0]).DType
	x := r.Record(Cast, Attr{DType: t.Accumulator()}, args[0])
	zero := r.Record(Const, Attr{DType: t.Accumulator(), Dims: Shape{}})
	tail := r.Record(Log1p, Attr{}, r.Record(Exp, Attr{}, r.Record(Minimum, Attr{}, r.Record(Neg, Attr{}, x), x)))
	return r.Record(Cast, Attr{DType: t}, r.Record(Add, Attr{}, r.Record(Maximum, Attr{}, x, zero), tail))
}

// expandSoftmax is exp(x-max)/Σexp(x-max), computed in the accumulator type.
func expandSoftmax(r Recorder, a Attr, args []Ref) Ref {
	e, out := shifted(r, a, args[0])
	e = r.Record(Exp, Attr{}, e)
	sum := r.Record(Sum, Attr{Axes: a.Axes, KeepDims: true}, e)
	return r.Record(Cast, Attr{DType: out}, r.Record(Div, Attr{}, e, sum))
}

// expandLogSoftmax is (x-max) - ln Σexp(x-max), computed in the accumulator
// type.
func expandLogSoftmax(r Recorder, a Attr, args []Ref) Ref {
	d, out := shifted(r, a, args[0])
	sum := r.Record(Sum, Attr{Axes: a.Axes, KeepDims: true}, r.Record(Exp, Attr{}, d))
	return r.Record(Cast, Attr{DType: out}, r.Record(Sub, Attr{}, d, r.Record(Log, Attr{}, sum)))
}

// shifted returns x minus its maximum, in the accumulator type, and the result's type.
func shifted(r Recorder, a Attr, x Ref) (Ref, dtype.DType) {
	t := r.TypeOf(x)
	out := t.DType
	if a.DType != dtype.Invalid {
		out = a.DType
	}
	x = r.Record(Cast, Attr{DType: t.DType.Accumulator()}, x)
	top := r.Record(Max, Attr{Axes: a.Axes, KeepDims: true}, x)
	return r.Record(Sub, Attr{}, x, top), out
}

// expandSoftmaxGrad is y·(g-Σgy), computed in the accumulator type: the sum
// cancels.
func expandSoftmaxGrad(r Recorder, a Attr, args []Ref) Ref {
	t := r.TypeOf(args[0])
	out := t.DType
	if a.DType != dtype.Invalid {
		out = a.DType
	}
	wide := Attr{DType: t.DType.Accumulator()}
	y, g := r.Record(Cast, wide, args[0]), r.Record(Cast, wide, args[1])
	p := r.Record(Mul, Attr{}, g, y)
	sum := r.Record(Sum, Attr{Axes: a.Axes, KeepDims: true}, p)
	return r.Record(Cast, Attr{DType: out}, r.Record(Sub, Attr{}, p, r.Record(Mul, Attr{}, y, sum)))
}
