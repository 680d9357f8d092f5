package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// SensitivityAtSpecificity is the best sensitivity, TP/(TP+FN), at thresholds
// with a specificity, TN/(TN+FP), of at least that given; 0 if there are none.
// Default name: sensitivity_at_specificity.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type SensitivityAtSpecificity struct {
	Specificity   float64 // 0 … 1; required
	NumThresholds int     // in even steps from 0 to 1; 1 is 0.5 alone; default: 200
	ClassID       *int    // of the last axis, to judge alone; default: all of them
	Name          string

	confusion
}

// MetricName implements Accumulator.
func (m *SensitivityAtSpecificity) MetricName() string {
	return cmp.Or(m.Name, "sensitivity_at_specificity")
}

// Variables implements Accumulator.
func (m *SensitivityAtSpecificity) Variables() []*tensor.Variable {
	return m.variables(m, len(steps(m.NumThresholds)))
}

// Update implements Metric.
func (m *SensitivityAtSpecificity) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *SensitivityAtSpecificity) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateSteps(&m.confusion, m, "SensitivityAtSpecificity", "Specificity", m.Specificity, m.NumThresholds, m.ClassID, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *SensitivityAtSpecificity) Result() (float64, error) {
	return m.bestAt(steps(m.NumThresholds), m.Specificity, counts.specificity, counts.recall)
}

// SpecificityAtSensitivity is the best specificity, TN/(TN+FP), at thresholds
// with a sensitivity, TP/(TP+FN), of at least that given; 0 if there are none.
// Default name: specificity_at_sensitivity.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type SpecificityAtSensitivity struct {
	Sensitivity   float64 // 0 … 1; required
	NumThresholds int     // in even steps from 0 to 1; 1 is 0.5 alone; default: 200
	ClassID       *int    // of the last axis, to judge alone; default: all of them
	Name          string

	confusion
}

// MetricName implements Accumulator.
func (m *SpecificityAtSensitivity) MetricName() string {
	return cmp.Or(m.Name, "specificity_at_sensitivity")
}

// Variables implements Accumulator.
func (m *SpecificityAtSensitivity) Variables() []*tensor.Variable {
	return m.variables(m, len(steps(m.NumThresholds)))
}

// Update implements Metric.
func (m *SpecificityAtSensitivity) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *SpecificityAtSensitivity) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateSteps(&m.confusion, m, "SpecificityAtSensitivity", "Sensitivity", m.Sensitivity, m.NumThresholds, m.ClassID, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *SpecificityAtSensitivity) Result() (float64, error) {
	return m.bestAt(steps(m.NumThresholds), m.Sensitivity, counts.recall, counts.specificity)
}

// PrecisionAtRecall is the best precision, TP/(TP+FP), at thresholds with a
// recall, TP/(TP+FN), of at least that given; 0 if there are none. Default
// name: precision_at_recall.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type PrecisionAtRecall struct {
	Recall        float64 // 0 … 1; required
	NumThresholds int     // in even steps from 0 to 1; 1 is 0.5 alone; default: 200
	ClassID       *int    // of the last axis, to judge alone; default: all of them
	Name          string

	confusion
}

// MetricName implements Accumulator.
func (m *PrecisionAtRecall) MetricName() string { return cmp.Or(m.Name, "precision_at_recall") }

// Variables implements Accumulator.
func (m *PrecisionAtRecall) Variables() []*tensor.Variable {
	return m.variables(m, len(steps(m.NumThresholds)))
}

// Update implements Metric.
func (m *PrecisionAtRecall) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *PrecisionAtRecall) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateSteps(&m.confusion, m, "PrecisionAtRecall", "Recall", m.Recall, m.NumThresholds, m.ClassID, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *PrecisionAtRecall) Result() (float64, error) {
	return m.bestAt(steps(m.NumThresholds), m.Recall, counts.recall, counts.precision)
}

// RecallAtPrecision is the best recall, TP/(TP+FN), at thresholds with a
// precision, TP/(TP+FP), of at least that given; 0 if there are none. Default
// name: recall_at_precision.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1; every element is a
// sample.
type RecallAtPrecision struct {
	Precision     float64 // 0 … 1; required
	NumThresholds int     // in even steps from 0 to 1; 1 is 0.5 alone; default: 200
	ClassID       *int    // of the last axis, to judge alone; default: all of them
	Name          string

	confusion
}

// MetricName implements Accumulator.
func (m *RecallAtPrecision) MetricName() string { return cmp.Or(m.Name, "recall_at_precision") }

// Variables implements Accumulator.
func (m *RecallAtPrecision) Variables() []*tensor.Variable {
	return m.variables(m, len(steps(m.NumThresholds)))
}

// Update implements Metric.
func (m *RecallAtPrecision) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *RecallAtPrecision) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateSteps(&m.confusion, m, "RecallAtPrecision", "Precision", m.Precision, m.NumThresholds, m.ClassID, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *RecallAtPrecision) Result() (float64, error) {
	return m.bestAt(steps(m.NumThresholds), m.Precision, counts.precision, counts.recall)
}

// steps are n thresholds in even steps from 0 to 1.
func steps(n int) []float64 {
	switch {
	case n == 0:
		n = 200
	case n <= 1:
		return []float64{0.5}
	}
	at := make([]float64, n)
	for i := range at {
		at[i] = float64(i) / float64(n-1)
	}
	return at
}

func updateSteps(c *confusion, m named, class, field string, value float64, n int, classID *int, yTrue, yPred, weight *tensor.Tensor) {
	if !(value >= 0 && value <= 1) {
		tensor.Fail(class, "got %s %v, want a number from 0 to 1", field, value)
	}
	if n < 0 {
		tensor.Fail(class, "got NumThresholds %d, want a positive number", n)
	}
	at := steps(n)
	c.update(m, class, decision{cutoffs: cutoffs{at: at, even: len(at) > 1}, classID: classID}, yTrue, yPred, weight)
}

// bestAt is the largest of f at the thresholds where constrained is at least
// value. It compares in float32: the last digits of a sum of weights do not
// decide.
func (c *confusion) bestAt(thresholds []float64, value float64, constrained, f func(counts) float64) (float64, error) {
	all, err := c.at(len(thresholds))
	if err != nil {
		return 0, err
	}
	var top float64
	for _, at := range all[0] {
		if float32(constrained(at)) >= float32(value) {
			top = max(top, f(at))
		}
	}
	return top, nil
}
