// Package lossmath, without compatibility promise, holds the formulas that are losses and metrics alike: how
// far predictions are from targets, sample by sample, before weights and
// reductions. Losses and metrics share it: neither imports the other.
//
// Each function takes the class that calls it, for messages, then targets and
// predictions, and returns float32 (float64 for float64 predictions), one
// value for each sample or each of its steps.
//
// Rules:
//   - 16-bit predictions are widened, not rounded first (see lossshape.Float).
//   - Shapes: targets and predictions equal, up to a last axis of 1; that axis
//     is averaged or summed. What does not fit panics with *tensor.Error.
//   - Formulas are Keras's, written so that neither they nor their derivatives
//     overflow or cancel where Keras's would.
package lossmath

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// Epsilon keeps logarithms and quotients finite; Keras's fuzz factor.
const Epsilon = 1e-7

// Error is yPred-yTrue, not averaged.
func Error(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	t, p := lossshape.Floats(class, yTrue, yPred)
	return p.Sub(t)
}

// Squared is the mean of (yTrue-yPred)² over the last axis.
func Squared(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return lossshape.LastMean(Error(class, yTrue, yPred).Square())
}

// Absolute is the mean of |yTrue-yPred| over the last axis.
func Absolute(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return lossshape.LastMean(Error(class, yTrue, yPred).Abs())
}

// AbsolutePercentage is 100 times the mean of |yTrue-yPred|/max(|yTrue|, 1e-7)
// over the last axis.
func AbsolutePercentage(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	t, p := lossshape.Floats(class, yTrue, yPred)
	return lossshape.LastMean(t.Sub(p).Div(t.Abs().MaximumScalar(Epsilon)).Abs()).MulScalar(100)
}

// SquaredLogarithmic is the mean of (ln(1+yPred)-ln(1+yTrue))² over the last
// axis, both limited below to 1e-7.
func SquaredLogarithmic(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	t, p := lossshape.Floats(class, yTrue, yPred)
	log := func(x *tensor.Tensor) *tensor.Tensor { return x.MaximumScalar(Epsilon).Log1p() }
	return lossshape.LastMean(log(p).Sub(log(t)).Square())
}

// LogCosh is the mean of ln cosh(yPred-yTrue) over the last axis.
func LogCosh(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	// a + ln((1+e^-2a)/2) for a = |e|, with what cancels near 0 left out.
	a := Error(class, yTrue, yPred).Abs()
	return lossshape.LastMean(a.Add(a.MulScalar(-2).Expm1().MulScalar(0.5).Log1p()))
}

// Cosine is the cosine of the angle between yTrue and yPred as vectors along
// axis (nil: the last): 1 for one direction, -1 for opposite ones, 0 where one
// of them is 0.
func Cosine(class string, yTrue, yPred *tensor.Tensor, axis *int) *tensor.Tensor {
	t, p := lossshape.Floats(class, yTrue, yPred)
	a := Axis(class, axis, p)
	unit := func(x *tensor.Tensor) *tensor.Tensor {
		return x.Mul(x.Square().SumKeep(a).MaximumScalar(Epsilon * Epsilon).Rsqrt())
	}
	return unit(t).Mul(unit(p)).Sum(a)
}

// Hinge is the mean of max(1-yTrue·yPred, 0) over the last axis. Targets are
// -1 and 1; if all of a batch are 0 or 1, 0 stands for -1.
func Hinge(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return lossshape.LastMean(margin(class, yTrue, yPred))
}

// SquaredHinge is the mean of max(1-yTrue·yPred, 0)² over the last axis, with
// targets as for Hinge.
func SquaredHinge(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return lossshape.LastMean(margin(class, yTrue, yPred).Square())
}

// margin is max(1-t·p, 0).
func margin(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	t, p := lossshape.Floats(class, yTrue, yPred)
	zero, one := tensor.Scalar(t.DType(), 0), tensor.Scalar(t.DType(), 1)
	binary := t.Equal(zero).Or(t.Equal(one)).Min()
	t = tensor.Where(binary, t.MulScalar(2).AddScalar(-1), t)
	return not(t.Mul(p)).MaximumScalar(0)
}

// CategoricalHinge is max(1 + max((1-yTrue)·yPred) - Σ yTrue·yPred, 0) over
// the last axis, for one-hot targets: how far the best wrong class comes
// within 1 of the right one.
func CategoricalHinge(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	t, p := lossshape.Floats(class, yTrue, yPred)
	a := Axis(class, nil, p)
	return not(t).Mul(p).Max(a).Sub(t.Mul(p).Sum(a)).AddScalar(1).MaximumScalar(0)
}

// KLDivergence is Σ yTrue·ln(yTrue/yPred) over the last axis (Kullback and
// Leibler 1951), for probabilities; both are limited to 1e-7 … 1.
func KLDivergence(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	t, p := lossshape.Floats(class, yTrue, yPred)
	a := Axis(class, nil, p)
	t, p = t.Clip(Epsilon, 1), p.Clip(Epsilon, 1)
	return t.Mul(t.Div(p).Log()).Sum(a)
}

// Poisson is the mean of yPred - yTrue·ln(yPred+1e-7) over the last axis: the
// negative log-likelihood of counts, without what does not depend on yPred.
func Poisson(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	t, p := lossshape.Floats(class, yTrue, yPred)
	return lossshape.LastMean(p.Sub(t.Mul(p.AddScalar(Epsilon).Log())))
}

// Power returns xʸ for x ≥ 0 and a constant y, with a derivative by x that is
// finite at 0 for y ≥ 1.
func Power(x *tensor.Tensor, y float64) *tensor.Tensor {
	switch y {
	case 1:
		return x
	case 2:
		return x.Square()
	}
	return x.Pow(tensor.Scalar(x.DType(), y))
}

// not returns 1-x.
func not(x *tensor.Tensor) *tensor.Tensor { return x.Neg().AddScalar(1) }

// Axis resolves the field Axis of class for the predictions; nil is the last.
func Axis(class string, axis *int, yPred *tensor.Tensor) int {
	a := -1
	if axis != nil {
		a = *axis
	}
	r, err := yPred.Shape().Axis(a)
	if err != nil {
		tensor.Fail(class, "got predictions %v, want axis %d in them", yPred.Type(), a)
	}
	return r
}

// smooth moves targets by the share s towards 1 of classes.
func smooth(class string, t *tensor.Tensor, s float64, classes int) *tensor.Tensor {
	if !(s >= 0 && s <= 1) {
		tensor.Fail(class, "got LabelSmoothing %v, want a number from 0 to 1", s)
	}
	if s == 0 {
		return t
	}
	return t.MulScalar(1 - s).AddScalar(s / float64(classes))
}
