package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TruePositives is the number of targets that are 1 and predicted so, or the
// sum of their sample weights. Default name: true_positives.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type TruePositives struct {
	Thresholds []float64 // 0 … 1; predictions above, not at, one count as 1; default: 0.5
	Name       string

	confusion
}

// MetricName implements Accumulator.
func (m *TruePositives) MetricName() string { return cmp.Or(m.Name, "true_positives") }

// Variables implements Accumulator.
func (m *TruePositives) Variables() []*tensor.Variable {
	return m.variables(m, len(thresholds(m.Thresholds, 0.5)))
}

// Update implements Metric.
func (m *TruePositives) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *TruePositives) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateCounts(&m.confusion, m, "TruePositives", m.Thresholds, yTrue, yPred, sampleWeight)
}

// Results implements Vector.
func (m *TruePositives) Results() ([]float64, error) {
	return m.each(thresholds(m.Thresholds, 0.5), func(c counts) float64 { return c.tp })
}

// Result implements Accumulator.
func (m *TruePositives) Result() (float64, error) { return mean(m.Results()) }

// TrueNegatives is the number of targets that are 0 and predicted so, or the
// sum of their sample weights. Default name: true_negatives.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type TrueNegatives struct {
	Thresholds []float64 // 0 … 1; predictions above, not at, one count as 1; default: 0.5
	Name       string

	confusion
}

// MetricName implements Accumulator.
func (m *TrueNegatives) MetricName() string { return cmp.Or(m.Name, "true_negatives") }

// Variables implements Accumulator.
func (m *TrueNegatives) Variables() []*tensor.Variable {
	return m.variables(m, len(thresholds(m.Thresholds, 0.5)))
}

// Update implements Metric.
func (m *TrueNegatives) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *TrueNegatives) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateCounts(&m.confusion, m, "TrueNegatives", m.Thresholds, yTrue, yPred, sampleWeight)
}

// Results implements Vector.
func (m *TrueNegatives) Results() ([]float64, error) {
	return m.each(thresholds(m.Thresholds, 0.5), func(c counts) float64 { return c.tn })
}

// Result implements Accumulator.
func (m *TrueNegatives) Result() (float64, error) { return mean(m.Results()) }

// FalsePositives is the number of targets that are 0 and predicted to be 1, or
// the sum of their sample weights. Default name: false_positives.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type FalsePositives struct {
	Thresholds []float64 // 0 … 1; predictions above, not at, one count as 1; default: 0.5
	Name       string

	confusion
}

// MetricName implements Accumulator.
func (m *FalsePositives) MetricName() string { return cmp.Or(m.Name, "false_positives") }

// Variables implements Accumulator.
func (m *FalsePositives) Variables() []*tensor.Variable {
	return m.variables(m, len(thresholds(m.Thresholds, 0.5)))
}

// Update implements Metric.
func (m *FalsePositives) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *FalsePositives) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateCounts(&m.confusion, m, "FalsePositives", m.Thresholds, yTrue, yPred, sampleWeight)
}

// Results implements Vector.
func (m *FalsePositives) Results() ([]float64, error) {
	return m.each(thresholds(m.Thresholds, 0.5), func(c counts) float64 { return c.fp })
}

// Result implements Accumulator.
func (m *FalsePositives) Result() (float64, error) { return mean(m.Results()) }

// FalseNegatives is the number of targets that are 1 and predicted to be 0, or
// the sum of their sample weights. Default name: false_negatives.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type FalseNegatives struct {
	Thresholds []float64 // 0 … 1; predictions above, not at, one count as 1; default: 0.5
	Name       string

	confusion
}

// MetricName implements Accumulator.
func (m *FalseNegatives) MetricName() string { return cmp.Or(m.Name, "false_negatives") }

// Variables implements Accumulator.
func (m *FalseNegatives) Variables() []*tensor.Variable {
	return m.variables(m, len(thresholds(m.Thresholds, 0.5)))
}

// Update implements Metric.
func (m *FalseNegatives) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *FalseNegatives) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateCounts(&m.confusion, m, "FalseNegatives", m.Thresholds, yTrue, yPred, sampleWeight)
}

// Results implements Vector.
func (m *FalseNegatives) Results() ([]float64, error) {
	return m.each(thresholds(m.Thresholds, 0.5), func(c counts) float64 { return c.fn })
}

// Result implements Accumulator.
func (m *FalseNegatives) Result() (float64, error) { return mean(m.Results()) }

func updateCounts(c *confusion, m named, class string, field []float64, yTrue, yPred, weight *tensor.Tensor) {
	at := thresholds(field, 0.5)
	checkRange(class, at)
	c.update(m, class, decision{cutoffs: newCutoffs(at)}, yTrue, yPred, weight)
}
