package losses

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
)

// SparseCategoricalCrossentropy is -ln of the probability of the class that is
// the label. Default name: sparse_categorical_crossentropy.
//
// Probabilities that do not add up to 1 are divided by their sum, after they
// were limited to 1e-7 … 1-1e-7 (as Keras does on TensorFlow).
//
// Shapes: yTrue [batch …] or [batch … 1], class indices: integers, or floats
// without a fraction; yPred [batch … classes]. An index that is no class is an
// error of the run.
type SparseCategoricalCrossentropy struct {
	FromLogits  bool   // the predictions are logits; see the package's rules
	IgnoreClass *int   // samples with this label have no part in the loss or its mean; default: none
	Axis        *int   // of the classes; default: -1
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
	return common{class: "SparseCategoricalCrossentropy", name: l.LossName(), reduction: l.Reduction, values: l.values}.call(yTrue, yPred, sampleWeight)
}

func (l *SparseCategoricalCrossentropy) values(class string, yTrue, yPred *tensor.Tensor) (values, mask *tensor.Tensor) {
	return lossmath.Sparse(class, yTrue, yPred, l.FromLogits, l.IgnoreClass, l.Axis)
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
	c := lossmath.Crossentropy{FromLogits: l.FromLogits, LabelSmoothing: l.LabelSmoothing, Axis: l.Axis}
	return plain("CategoricalCrossentropy", l.LossName(), l.Reduction, c.Categorical).call(yTrue, yPred, sampleWeight)
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
	c := lossmath.Crossentropy{FromLogits: l.FromLogits, LabelSmoothing: l.LabelSmoothing, Axis: l.Axis}
	return plain("BinaryCrossentropy", l.LossName(), l.Reduction, c.Binary).call(yTrue, yPred, sampleWeight)
}

// BinaryFocalCrossentropy is BinaryCrossentropy with each element multiplied
// by (1-pₜ)^Gamma, where pₜ is the probability that was given to the target:
// easy samples count less (Lin et al. 2017). Default name:
// binary_focal_crossentropy.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type BinaryFocalCrossentropy struct {
	ApplyClassBalancing bool     // multiply by Alpha too, or by 1-Alpha where the target is 0
	Alpha               *float64 // default: 0.25
	Gamma               *float64 // default: 2
	FromLogits          bool     // the predictions are logits; see the package's rules
	LabelSmoothing      float64  // s in 0 … 1: targets become yTrue·(1-s) + s/2
	Axis                *int     // to average over; default: -1
	Reduction           string   // one of Reductions; default: sum_over_batch_size
	Name                string
}

// LossName implements Weighted.
func (l *BinaryFocalCrossentropy) LossName() string {
	return cmp.Or(l.Name, "binary_focal_crossentropy")
}

// Call implements Loss.
func (l *BinaryFocalCrossentropy) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *BinaryFocalCrossentropy) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("BinaryFocalCrossentropy", l.LossName(), l.Reduction, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		c := lossmath.Crossentropy{FromLogits: l.FromLogits, LabelSmoothing: l.LabelSmoothing, Axis: l.Axis}
		return c.BinaryFocal(class, t, p, l.ApplyClassBalancing, *cmp.Or(l.Alpha, new(0.25)), gamma(class, l.Gamma))
	}).call(yTrue, yPred, sampleWeight)
}

// CategoricalFocalCrossentropy is CategoricalCrossentropy with the term of
// each class multiplied by Alpha·(1-p)^Gamma: easy samples count less (Lin et
// al. 2017). Default name: categorical_focal_crossentropy.
//
// Shapes: yTrue and yPred [batch … classes].
type CategoricalFocalCrossentropy struct {
	Alpha          *float64 // default: 0.25
	Gamma          *float64 // default: 2
	FromLogits     bool     // the predictions are logits; see the package's rules
	LabelSmoothing float64  // s in 0 … 1: targets become yTrue·(1-s) + s/classes
	Axis           *int     // of the classes; default: -1
	Reduction      string   // one of Reductions; default: sum_over_batch_size
	Name           string
}

// LossName implements Weighted.
func (l *CategoricalFocalCrossentropy) LossName() string {
	return cmp.Or(l.Name, "categorical_focal_crossentropy")
}

// Call implements Loss.
func (l *CategoricalFocalCrossentropy) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *CategoricalFocalCrossentropy) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("CategoricalFocalCrossentropy", l.LossName(), l.Reduction, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		c := lossmath.Crossentropy{FromLogits: l.FromLogits, LabelSmoothing: l.LabelSmoothing, Axis: l.Axis}
		return c.CategoricalFocal(class, t, p, *cmp.Or(l.Alpha, new(0.25)), gamma(class, l.Gamma))
	}).call(yTrue, yPred, sampleWeight)
}

// gamma is the field Gamma of focal losses, or its default.
func gamma(class string, field *float64) float64 {
	g := *cmp.Or(field, new(2.0))
	if !(g >= 0) {
		tensor.Fail(class, "got Gamma %v, want a number that is not negative", g)
	}
	return g
}

// CategoricalGeneralizedCrossEntropy is (1-p^Q)/Q for the probability p of the
// class that is the label: between cross-entropy (Q near 0) and absolute error
// (Q near 1), which wrong labels mislead less (Zhang and Sabuncu 2018).
// Default name: categorical_generalized_cross_entropy.
//
// Shapes: yTrue [batch …] or [batch … 1], class indices; yPred
// [batch … classes], probabilities.
type CategoricalGeneralizedCrossEntropy struct {
	Q         float64 // above 0 and below 1; default: 0.5
	Reduction string  // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *CategoricalGeneralizedCrossEntropy) LossName() string {
	return cmp.Or(l.Name, "categorical_generalized_cross_entropy")
}

// Call implements Loss.
func (l *CategoricalGeneralizedCrossEntropy) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *CategoricalGeneralizedCrossEntropy) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("CategoricalGeneralizedCrossEntropy", l.LossName(), l.Reduction, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		return lossmath.Generalized(class, t, p, cmp.Or(l.Q, 0.5))
	}).call(yTrue, yPred, sampleWeight)
}
