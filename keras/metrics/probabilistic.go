package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
)

// BinaryCrossentropy is the mean of -yTrue·ln yPred - (1-yTrue)·ln(1-yPred).
// For the output of a sigmoid it is computed from the logits; other
// predictions are limited to 1e-7 … 1-1e-7. Default name: binary_crossentropy.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. As in Keras the last
// axis is averaged first, so that a vector counts as one sample.
type BinaryCrossentropy struct {
	FromLogits     bool    // the predictions are logits
	LabelSmoothing float64 // s in 0 … 1: targets become yTrue·(1-s) + s/2
	Name           string

	ratio
}

// MetricName implements Accumulator.
func (m *BinaryCrossentropy) MetricName() string { return cmp.Or(m.Name, "binary_crossentropy") }

// Variables implements Accumulator.
func (m *BinaryCrossentropy) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *BinaryCrossentropy) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *BinaryCrossentropy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	c := lossmath.Crossentropy{FromLogits: m.FromLogits, LabelSmoothing: m.LabelSmoothing}
	m.compare(m, "BinaryCrossentropy", yTrue, yPred, sampleWeight, c.Binary)
}

// CategoricalCrossentropy is the mean of -Σ yTrue·ln yPred over the classes,
// for targets that are one-hot or probabilities. For the output of a softmax
// it is computed from the logits; other predictions are divided by their sum
// and limited to 1e-7 … 1-1e-7. Default name: categorical_crossentropy.
//
// Shapes: yTrue and yPred [batch … classes].
type CategoricalCrossentropy struct {
	FromLogits     bool    // the predictions are logits
	LabelSmoothing float64 // s in 0 … 1: targets become yTrue·(1-s) + s/classes
	Axis           *int    // of the classes; default: -1
	Name           string

	ratio
}

// MetricName implements Accumulator.
func (m *CategoricalCrossentropy) MetricName() string {
	return cmp.Or(m.Name, "categorical_crossentropy")
}

// Variables implements Accumulator.
func (m *CategoricalCrossentropy) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *CategoricalCrossentropy) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *CategoricalCrossentropy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	c := lossmath.Crossentropy{FromLogits: m.FromLogits, LabelSmoothing: m.LabelSmoothing, Axis: m.Axis}
	m.compare(m, "CategoricalCrossentropy", yTrue, yPred, sampleWeight, c.Categorical)
}

// SparseCategoricalCrossentropy is the mean of -ln of the probability of the
// class that is the label. Predictions that are a softmax are judged by its
// logits, others limited to 1e-7 … 1-1e-7 and divided by their sum. Default
// name: sparse_categorical_crossentropy.
//
// Shapes: yTrue [batch …] or [batch … 1], class indices; yPred [batch …
// classes].
type SparseCategoricalCrossentropy struct {
	FromLogits bool // the predictions are logits
	// IgnoreClass is a label that does not count; default: none. (Keras counts
	// such samples with a loss of 0 unless there are sample weights.)
	IgnoreClass *int
	Axis        *int // of the classes; default: -1
	Name        string

	ratio
}

// MetricName implements Accumulator.
func (m *SparseCategoricalCrossentropy) MetricName() string {
	return cmp.Or(m.Name, "sparse_categorical_crossentropy")
}

// Variables implements Accumulator.
func (m *SparseCategoricalCrossentropy) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *SparseCategoricalCrossentropy) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *SparseCategoricalCrossentropy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compareSome(m, "SparseCategoricalCrossentropy", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) (values, counts *tensor.Tensor) {
		return lossmath.Sparse(class, t, p, m.FromLogits, m.IgnoreClass, m.Axis)
	})
}

// KLDivergence is the mean of Σ yTrue·ln(yTrue/yPred) over the classes; both
// are limited to 1e-7 … 1 first. Default name: kl_divergence.
//
// Shapes: yTrue and yPred [batch … classes].
type KLDivergence struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *KLDivergence) MetricName() string { return cmp.Or(m.Name, "kl_divergence") }

// Variables implements Accumulator.
func (m *KLDivergence) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *KLDivergence) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *KLDivergence) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "KLDivergence", yTrue, yPred, sampleWeight, lossmath.KLDivergence)
}

// Poisson is the mean of yPred - yTrue·ln(yPred+1e-7). Default name: poisson.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. As in Keras the last
// axis is averaged first, so that a vector counts as one sample.
type Poisson struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *Poisson) MetricName() string { return cmp.Or(m.Name, "poisson") }

// Variables implements Accumulator.
func (m *Poisson) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *Poisson) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *Poisson) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "Poisson", yTrue, yPred, sampleWeight, lossmath.Poisson)
}
