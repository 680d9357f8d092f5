package metrics

import (
	"cmp"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// Accuracy is the share of predictions that equal their targets exactly.
// Default name: accuracy.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. Targets are compared
// in the element type of the predictions.
type Accuracy struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *Accuracy) MetricName() string { return cmp.Or(m.Name, "accuracy") }

// Variables implements Accumulator.
func (m *Accuracy) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *Accuracy) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *Accuracy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "Accuracy", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		t, p = lossshape.Pair(class, t, p)
		return hits(t.CastLike(p).Equal(p))
	})
}

// BinaryAccuracy is the share of predictions on the right side of Threshold:
// above it, where the target is 1. Default name: binary_accuracy.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type BinaryAccuracy struct {
	Threshold *float64 // predictions above, not at, it count as 1; default: 0.5
	Name      string

	ratio
}

// MetricName implements Accumulator.
func (m *BinaryAccuracy) MetricName() string { return cmp.Or(m.Name, "binary_accuracy") }

// Variables implements Accumulator.
func (m *BinaryAccuracy) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *BinaryAccuracy) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *BinaryAccuracy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	threshold := 0.5
	if m.Threshold != nil {
		threshold = *m.Threshold
	}
	m.compare(m, "BinaryAccuracy", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		t, p = lossshape.Floats(class, t, p)
		return hits(p.GreaterScalar(threshold).CastLike(t).Equal(t))
	})
}

// CategoricalAccuracy is the share of samples in which the class with the
// largest prediction is the class with the largest target; of equal values the
// first counts. Default name: categorical_accuracy.
//
// Shapes: yTrue, one-hot or probabilities, and yPred [batch … classes].
type CategoricalAccuracy struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *CategoricalAccuracy) MetricName() string { return cmp.Or(m.Name, "categorical_accuracy") }

// Variables implements Accumulator.
func (m *CategoricalAccuracy) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *CategoricalAccuracy) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *CategoricalAccuracy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "CategoricalAccuracy", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		t, p = lossshape.Floats(class, t, p)
		return hits(t.ArgMax(-1).Equal(p.ArgMax(-1)))
	})
}

// SparseCategoricalAccuracy is the share of samples in which the class with the
// largest prediction is the label; of equal predictions the first counts. An
// integer that is no class is never right; a label of NaN, or with a
// fraction, is an error of the run. Default name: sparse_categorical_accuracy.
//
// Shapes: yTrue [batch …] or [batch … 1], class indices; yPred
// [batch … classes].
type SparseCategoricalAccuracy struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *SparseCategoricalAccuracy) MetricName() string {
	return cmp.Or(m.Name, "sparse_categorical_accuracy")
}

// Variables implements Accumulator.
func (m *SparseCategoricalAccuracy) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *SparseCategoricalAccuracy) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *SparseCategoricalAccuracy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "SparseCategoricalAccuracy", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		labels := lossshape.WholeLabels(class, t, p)
		return hits(lossshape.Float(p).ArgMax(-1).CastLike(labels).Equal(labels))
	})
}

// TopKCategoricalAccuracy is the share of samples where fewer than K classes
// have a larger prediction than the class with the largest target: classes
// that tie are all in. It is wrong where that class's prediction is NaN or
// infinite. Default name: top_k_categorical_accuracy.
//
// Shapes: yTrue, one-hot or probabilities, and yPred [batch … classes].
type TopKCategoricalAccuracy struct {
	K    int // default: 5
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *TopKCategoricalAccuracy) MetricName() string {
	return cmp.Or(m.Name, "top_k_categorical_accuracy")
}

// Variables implements Accumulator.
func (m *TopKCategoricalAccuracy) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *TopKCategoricalAccuracy) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *TopKCategoricalAccuracy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "TopKCategoricalAccuracy", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		t, p = lossshape.Floats(class, t, p)
		return inTopK(class, t.ArgMax(-1), p, m.K)
	})
}

// SparseTopKCategoricalAccuracy is TopKCategoricalAccuracy for targets that
// are class indices. An integer that is no class is never right; a label of NaN,
// or with a fraction, is an error of the run. Default name:
// sparse_top_k_categorical_accuracy.
//
// Shapes: yTrue [batch …] or [batch … 1]; yPred [batch … classes].
type SparseTopKCategoricalAccuracy struct {
	K    int // default: 5
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *SparseTopKCategoricalAccuracy) MetricName() string {
	return cmp.Or(m.Name, "sparse_top_k_categorical_accuracy")
}

// Variables implements Accumulator.
func (m *SparseTopKCategoricalAccuracy) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *SparseTopKCategoricalAccuracy) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *SparseTopKCategoricalAccuracy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "SparseTopKCategoricalAccuracy", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		return inTopK(class, lossshape.WholeLabels(class, t, p), lossshape.Float(p), m.K)
	})
}

// inTopK tells, as 1 or 0, whether fewer than k predictions are larger than
// that of the label. It counts instead of sorting. A NaN counts as larger, so
// that it never makes a prediction right.
func inTopK(class string, labels, p *tensor.Tensor, k int) *tensor.Tensor {
	if k == 0 {
		k = 5
	}
	if k < 0 {
		tensor.Fail(class, "got K %d, want a positive number", k)
	}
	at := labels.ExpandDims(-1).Equal(tensor.Iota(labels.DType(), p.Dim(-1)))
	target := tensor.Where(at, p, tensor.Scalar(p.DType(), math.Inf(-1))).MaxKeep(-1)
	larger := tensor.SumAs(p.LessEqual(target).Not(), dtype.Int32, -1)
	return hits(larger.LessScalar(float64(k)).And(target.Squeeze(-1).IsFinite()))
}

// hits counts true as 1.
func hits(b *tensor.Tensor) *tensor.Tensor { return b.Cast(dtype.Float32) }
