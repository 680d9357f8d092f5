package lossmath

import (
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// Crossentropy holds the fields that cross-entropies share. All of them are
// computed from the logits where the predictions are a softmax (of classes) or
// a sigmoid (of yes-or-no questions), because that is exact where
// probabilities have already become 0 or 1; FromLogits says that the
// predictions are logits themselves.
type Crossentropy struct {
	FromLogits     bool
	LabelSmoothing float64 // s in 0 … 1: targets become yTrue·(1-s) + s/classes
	Axis           *int    // nil: the last
}

// Binary is -yTrue·ln yPred - (1-yTrue)·ln(1-yPred), averaged over the axis.
// Probabilities are limited to 1e-7 … 1-1e-7.
func (c Crossentropy) Binary(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	p, logits := scores(yPred, op.Sigmoid, c.FromLogits)
	t, p := lossshape.Floats(class, yTrue, p)
	t = smooth(class, t, c.LabelSmoothing, 2)
	return c.mean(class, binary(t, p, logits))
}

// BinaryFocal is Binary with each element multiplied by (1-pₜ)^gamma, where pₜ
// is the probability given to the target (Lin et al. 2017); and by alpha for
// targets of 1, 1-alpha for those of 0, if balance is set.
func (c Crossentropy) BinaryFocal(class string, yTrue, yPred *tensor.Tensor, balance bool, alpha, gamma float64) *tensor.Tensor {
	p, logits := scores(yPred, op.Sigmoid, c.FromLogits)
	t, p := lossshape.Floats(class, yTrue, p)
	t = smooth(class, t, c.LabelSmoothing, 2)
	v := binary(t, p, logits)
	q := not(p)
	if logits {
		p, q = p.Sigmoid(), p.Neg().Sigmoid() // 1-p would cancel
	}
	v = Power(t.Mul(q).Add(not(t).Mul(p)), gamma).Mul(v)
	if balance {
		v = t.MulScalar(alpha).Add(not(t).MulScalar(1 - alpha)).Mul(v)
	}
	return c.mean(class, v)
}

func (c Crossentropy) mean(class string, v *tensor.Tensor) *tensor.Tensor {
	if v.Rank() == 0 {
		return v
	}
	return v.Mean(Axis(class, c.Axis, v))
}

// binary is the cross-entropy of each element.
func binary(t, p *tensor.Tensor, logits bool) *tensor.Tensor {
	if logits {
		return Logistic(t, p)
	}
	p = p.Clip(Epsilon, 1-Epsilon)
	return t.Mul(p.Log()).Add(not(t).Mul(not(p).Log())).Neg()
}

// Logistic is the binary cross-entropy of targets t and logits x, element by
// element: ln(1+eˣ) - t·x.
func Logistic(t, x *tensor.Tensor) *tensor.Tensor {
	// max(x, 0) - x·t + ln(1+e^-|x|) cannot overflow. Where instead of Maximum
	// and Abs makes the derivative at x = 0 right: 1/2 - t.
	zero := tensor.Scalar(x.DType(), 0)
	positive := x.GreaterEqual(zero)
	return tensor.Where(positive, x, zero).Sub(x.Mul(t)).
		Add(tensor.Where(positive, x.Neg(), x).Exp().Log1p())
}

// Categorical is -Σ yTrue·ln yPred over the axis, for targets that are one-hot
// or probabilities. Predicted probabilities are divided by their sum, then
// limited to 1e-7 … 1-1e-7.
func (c Crossentropy) Categorical(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	t, logp, axis := c.categorical(class, yTrue, yPred)
	return t.Mul(logp).Sum(axis).Neg()
}

// CategoricalFocal is Categorical with the term of each class multiplied by
// alpha·(1-p)^gamma (Lin et al. 2017).
func (c Crossentropy) CategoricalFocal(class string, yTrue, yPred *tensor.Tensor, alpha, gamma float64) *tensor.Tensor {
	t, logp, axis := c.categorical(class, yTrue, yPred)
	// 1-p without cancelling, and not 0, as in Keras.
	q := logp.Expm1().Neg().MaximumScalar(Epsilon)
	return t.Mul(logp).Mul(Power(q, gamma)).Sum(axis).MulScalar(-alpha)
}

// categorical returns smoothed targets, logarithms of probabilities, and the
// axis of the classes.
func (c Crossentropy) categorical(class string, yTrue, yPred *tensor.Tensor) (t, logp *tensor.Tensor, axis int) {
	axis = Axis(class, c.Axis, yPred)
	kind := op.Softmax
	if axis != yPred.Rank()-1 {
		kind = op.Invalid // a softmax over another axis is not that of the classes
	}
	p, logits := scores(yPred, kind, c.FromLogits)
	t, p = lossshape.Floats(class, yTrue, p)
	axis = Axis(class, c.Axis, p)
	t = smooth(class, t, c.LabelSmoothing, p.Dim(axis))
	if logits {
		return t, p.LogSoftmax(axis), axis
	}
	return t, p.Div(p.SumKeep(axis)).Clip(Epsilon, 1-Epsilon).Log(), axis
}

// Sparse is -ln of the probability of the class that is the label. valid, if
// not nil, is false for samples of the class ignore, whose value is 0.
//
// Probabilities that do not add up to 1 are divided by their sum, after they
// were limited to 1e-7 … 1-1e-7 (as Keras does on TensorFlow).
//
// Shapes: yTrue [batch …] or [batch … 1], class indices; yPred
// [batch … classes], at least 2, or with the classes along another axis (nil:
// the last).
func Sparse(class string, yTrue, yPred *tensor.Tensor, fromLogits bool, ignore, axis *int) (values, valid *tensor.Tensor) {
	if axis != nil {
		yPred = classesLast(yPred, Axis(class, axis, yPred))
	}
	if yPred.Rank() > 0 && yPred.Dim(-1) == 1 { // of which every softmax is 1
		tensor.Fail(class, "got predictions %v of 1 class, want at least 2; for a head with 1 output use BinaryCrossentropy", yPred.Type())
	}
	labels := lossshape.Labels(class, yTrue, yPred)
	p, logits := scores(yPred, op.Softmax, fromLogits)
	zero := tensor.Scalar(p.DType(), 0)
	if ignore != nil {
		valid = labels.NotEqual(tensor.Scalar(labels.DType(), float64(*ignore)))
		// Neither a label such as -1 nor a prediction for it may do harm.
		labels = tensor.Where(valid, labels, tensor.Scalar(labels.DType(), 0))
		p = tensor.Where(valid.ExpandDims(-1), p, zero)
	}
	if !logits {
		p = p.Clip(Epsilon, 1-Epsilon).Log()
	}
	values = p.LogSoftmax(-1).TakeAlongAxis(labels).Neg()
	if valid != nil {
		values = tensor.Where(valid, values, zero)
	}
	return values, valid
}

// classesLast moves the axis a of the classes behind the others.
func classesLast(yPred *tensor.Tensor, a int) *tensor.Tensor {
	if a == yPred.Rank()-1 {
		return yPred // a softmax stays one
	}
	order := make([]int, 0, yPred.Rank())
	for i := range yPred.Rank() {
		if i != a {
			order = append(order, i)
		}
	}
	return yPred.Transpose(append(order, a)...)
}

// Generalized is (1-p^q)/q for the probability p of the class that is the
// label: |1-p| for q = 1, the cross-entropy in the limit of 0 (Zhang and
// Sabuncu 2018). q is above 0 and below 1.
//
// Shapes: as for Sparse.
func Generalized(class string, yTrue, yPred *tensor.Tensor, q float64) *tensor.Tensor {
	if !(q > 0 && q < 1) {
		tensor.Fail(class, "got Q %v, want a number above 0 and below 1", q)
	}
	labels := lossshape.Labels(class, yTrue, yPred)
	p, logits := scores(yPred, op.Softmax, false)
	if logits { // the derivative of p^q would be infinite where p is 0
		p = p.LogSoftmax(-1).TakeAlongAxis(labels).MulScalar(q).Exp()
	} else {
		p = Power(p.TakeAlongAxis(labels), q)
	}
	return not(p).DivScalar(q)
}

// scores returns what a cross-entropy computes with and whether that is
// logits: those behind the predictions when they were made by kind.
func scores(yPred *tensor.Tensor, kind op.Code, fromLogits bool) (s *tensor.Tensor, logits bool) {
	if x, k, ok := tensor.Logits(yPred); ok && k == kind {
		return lossshape.Float(x), true
	}
	return lossshape.Float(yPred), fromLogits
}
