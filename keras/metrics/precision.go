package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Precision is the share of right ones among predictions of 1: TP/(TP+FP), 0
// where there are none. Default name: precision.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type Precision struct {
	Thresholds []float64 // 0 … 1; predictions above, not at, one count as 1; default: 0.5, none with TopK
	TopK       int       // if not 0: only that many of the largest predictions of the last axis can count as 1
	ClassID    *int      // of the last axis, to judge alone; default: all of them
	Name       string

	confusion
}

// MetricName implements Accumulator.
func (m *Precision) MetricName() string { return cmp.Or(m.Name, "precision") }

// Variables implements Accumulator.
func (m *Precision) Variables() []*tensor.Variable { return m.variables(m, len(m.thresholds())) }

// Update implements Metric.
func (m *Precision) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *Precision) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	checkRange("Precision", m.Thresholds)
	d := decision{cutoffs: newCutoffs(m.thresholds()), topK: m.TopK, classID: m.ClassID}
	m.update(m, "Precision", d, yTrue, yPred, sampleWeight)
}

func (m *Precision) thresholds() []float64 {
	if m.TopK != 0 {
		return thresholds(m.Thresholds, notInTop)
	}
	return thresholds(m.Thresholds, 0.5)
}

// Results implements Vector.
func (m *Precision) Results() ([]float64, error) {
	return m.each(m.thresholds(), counts.precision)
}

// Result implements Accumulator.
func (m *Precision) Result() (float64, error) { return mean(m.Results()) }

// Recall is the share of targets of 1 that are predicted so: TP/(TP+FN), 0
// where there are none. Default name: recall.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type Recall struct {
	Thresholds []float64 // 0 … 1; predictions above, not at, one count as 1; default: 0.5, none with TopK
	TopK       int       // if not 0: only that many of the largest predictions of the last axis can count as 1
	ClassID    *int      // of the last axis, to judge alone; default: all of them
	Name       string

	confusion
}

// MetricName implements Accumulator.
func (m *Recall) MetricName() string { return cmp.Or(m.Name, "recall") }

// Variables implements Accumulator.
func (m *Recall) Variables() []*tensor.Variable { return m.variables(m, len(m.thresholds())) }

// Update implements Metric.
func (m *Recall) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *Recall) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	checkRange("Recall", m.Thresholds)
	d := decision{cutoffs: newCutoffs(m.thresholds()), topK: m.TopK, classID: m.ClassID}
	m.update(m, "Recall", d, yTrue, yPred, sampleWeight)
}

func (m *Recall) thresholds() []float64 {
	if m.TopK != 0 {
		return thresholds(m.Thresholds, notInTop)
	}
	return thresholds(m.Thresholds, 0.5)
}

// Results implements Vector.
func (m *Recall) Results() ([]float64, error) {
	return m.each(m.thresholds(), counts.recall)
}

// Result implements Accumulator.
func (m *Recall) Result() (float64, error) { return mean(m.Results()) }
