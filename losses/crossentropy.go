package losses

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/align"
)

// epsilon keeps logarithms of probabilities finite; Keras's fuzz factor.
const epsilon = 1e-7

// SparseCategoricalCrossentropy is -ln of the probability of the class that is
// the label. Default name: sparse_categorical_crossentropy.
//
// Probabilities that do not add up to 1 are divided by their sum, after they
// were limited to 1e-7 … 1-1e-7 (as Keras does on TensorFlow).
//
// Shapes: yTrue [batch …] or [batch … 1], class indices of an integer type
// (floats are truncated); yPred [batch … classes].
type SparseCategoricalCrossentropy struct {
	FromLogits  bool   // the predictions are logits; see the package's rules
	IgnoreClass *int   // samples with this label have no part in the loss or its mean; default: none
	Reduction   string // one of Reductions; default: sum_over_batch_size
	Name        string
}

// LossName implements Weighted.
func (l *SparseCategoricalCrossentropy) LossName() string {
	return cmp.Or(l.Name, "sparse_categorical_crossentropy")
}

// Call implements Loss.
func (l *SparseCategoricalCrossentropy) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *SparseCategoricalCrossentropy) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return common{"SparseCategoricalCrossentropy", l.LossName(), l.Reduction, l.values}.call(yTrue, yPred, sampleWeight)
}

func (l *SparseCategoricalCrossentropy) values(yTrue, yPred *tensor.Tensor) (values, valid *tensor.Tensor) {
	labels := align.Labels("SparseCategoricalCrossentropy", yTrue, yPred)
	p, logits := scores(yPred, op.Softmax, l.FromLogits)
	zero := tensor.Scalar(p.DType(), 0)
	if l.IgnoreClass != nil {
		valid = labels.NotEqual(tensor.Scalar(labels.DType(), float64(*l.IgnoreClass)))
		// Neither a label such as -1 nor a prediction for it may do harm.
		labels = tensor.Where(valid, labels, tensor.Scalar(labels.DType(), 0))
		p = tensor.Where(valid.ExpandDims(-1), p, zero)
	}
	if !logits {
		p = p.Clip(epsilon, 1-epsilon).Log()
	}
	values = p.LogSoftmax(-1).TakeAlong(labels).Neg()
	if valid != nil {
		values = tensor.Where(valid, values, zero)
	}
	return values, valid
}

// CategoricalCrossentropy is -Σ yTrue·ln yPred over the classes, for targets
// that are one-hot or probabilities themselves. Default name:
// categorical_crossentropy.
//
// Probabilities are divided by their sum over the classes, then limited to
// 1e-7 … 1-1e-7.
//
// Shapes: yTrue and yPred [batch … classes].
type CategoricalCrossentropy struct {
	FromLogits     bool    // the predictions are logits; see the package's rules
	LabelSmoothing float64 // s in 0 … 1: targets become yTrue·(1-s) + s/classes
	Axis           *int    // of the classes; default: -1
	Reduction      string  // one of Reductions; default: sum_over_batch_size
	Name           string
}

// LossName implements Weighted.
func (l *CategoricalCrossentropy) LossName() string {
	return cmp.Or(l.Name, "categorical_crossentropy")
}

// Call implements Loss.
func (l *CategoricalCrossentropy) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *CategoricalCrossentropy) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return common{"CategoricalCrossentropy", l.LossName(), l.Reduction, l.values}.call(yTrue, yPred, sampleWeight)
}

func (l *CategoricalCrossentropy) values(yTrue, yPred *tensor.Tensor) (values, mask *tensor.Tensor) {
	const class = "CategoricalCrossentropy"
	axis := classAxis(class, l.Axis, yPred)
	kind := op.Softmax
	if axis != yPred.Rank()-1 {
		kind = op.Invalid // a softmax over another axis is not that of the classes
	}
	p, logits := scores(yPred, kind, l.FromLogits)
	t, p := align.Floats(class, yTrue, p)
	axis = classAxis(class, l.Axis, p)
	t = smooth(class, t, l.LabelSmoothing, p.Dim(axis))
	if logits {
		p = p.LogSoftmax(axis)
	} else {
		p = p.Div(p.SumKeep(axis)).Clip(epsilon, 1-epsilon).Log()
	}
	return t.Mul(p).Sum(axis).Neg(), nil
}

// BinaryCrossentropy is -yTrue·ln yPred - (1-yTrue)·ln(1-yPred), averaged over
// the last axis: each element is a yes-or-no question of its own. Default
// name: binary_crossentropy.
//
// Probabilities are limited to 1e-7 … 1-1e-7.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type BinaryCrossentropy struct {
	FromLogits     bool    // the predictions are logits; see the package's rules
	LabelSmoothing float64 // s in 0 … 1: targets become yTrue·(1-s) + s/2
	Axis           *int    // to average over; default: -1
	Reduction      string  // one of Reductions; default: sum_over_batch_size
	Name           string
}

// LossName implements Weighted.
func (l *BinaryCrossentropy) LossName() string { return cmp.Or(l.Name, "binary_crossentropy") }

// Call implements Loss.
func (l *BinaryCrossentropy) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *BinaryCrossentropy) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return common{"BinaryCrossentropy", l.LossName(), l.Reduction, l.values}.call(yTrue, yPred, sampleWeight)
}

func (l *BinaryCrossentropy) values(yTrue, yPred *tensor.Tensor) (values, mask *tensor.Tensor) {
	const class = "BinaryCrossentropy"
	p, logits := scores(yPred, op.Sigmoid, l.FromLogits)
	t, p := align.Floats(class, yTrue, p)
	t = smooth(class, t, l.LabelSmoothing, 2)
	var v *tensor.Tensor
	if logits {
		// max(x, 0) - x·t + ln(1+e^-|x|) cannot overflow. Where instead of
		// Maximum and Abs makes the derivative at x = 0 right: 1/2 - t.
		zero := tensor.Scalar(p.DType(), 0)
		positive := p.GreaterEqual(zero)
		v = tensor.Where(positive, p, zero).Sub(p.Mul(t)).
			Add(tensor.Where(positive, p.Neg(), p).Exp().Log1p())
	} else {
		p = p.Clip(epsilon, 1-epsilon)
		not := func(x *tensor.Tensor) *tensor.Tensor { return x.Neg().AddScalar(1) }
		v = t.Mul(p.Log()).Add(not(t).Mul(not(p).Log())).Neg()
	}
	if p.Rank() == 0 {
		return v, nil
	}
	return v.Mean(classAxis(class, l.Axis, p)), nil
}

// scores returns what a cross-entropy computes with and whether that is
// logits: those behind the predictions when they were made by kind.
func scores(yPred *tensor.Tensor, kind op.Code, fromLogits bool) (s *tensor.Tensor, logits bool) {
	if x, k, ok := yPred.Logits(); ok && k == kind {
		return align.Float(x), true
	}
	return align.Float(yPred), fromLogits
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

// classAxis resolves the field Axis for the predictions.
func classAxis(class string, axis *int, p *tensor.Tensor) int {
	a := -1
	if axis != nil {
		a = *axis
	}
	r, err := p.Shape().Axis(a)
	if err != nil {
		tensor.Fail(class, "got predictions %v, want axis %d in them", p.Type(), a)
	}
	return r
}
