package metrics

import (
	"cmp"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
)

// MeanSquaredError is the mean of (yTrue-yPred)². Default name:
// mean_squared_error.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. As in Keras the last
// axis is averaged first, so that a vector counts as one sample.
type MeanSquaredError struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *MeanSquaredError) MetricName() string { return cmp.Or(m.Name, "mean_squared_error") }

// Variables implements Accumulator.
func (m *MeanSquaredError) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *MeanSquaredError) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *MeanSquaredError) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "MeanSquaredError", yTrue, yPred, sampleWeight, lossmath.Squared)
}

// MeanAbsoluteError is the mean of |yTrue-yPred|. Default name:
// mean_absolute_error.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. As in Keras the last
// axis is averaged first, so that a vector counts as one sample.
type MeanAbsoluteError struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *MeanAbsoluteError) MetricName() string { return cmp.Or(m.Name, "mean_absolute_error") }

// Variables implements Accumulator.
func (m *MeanAbsoluteError) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *MeanAbsoluteError) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *MeanAbsoluteError) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "MeanAbsoluteError", yTrue, yPred, sampleWeight, lossmath.Absolute)
}

// RootMeanSquaredError is the square root of the mean of (yTrue-yPred)² over
// all samples so far. Default name: root_mean_squared_error.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. The elements of a
// vector are samples.
type RootMeanSquaredError struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *RootMeanSquaredError) MetricName() string {
	return cmp.Or(m.Name, "root_mean_squared_error")
}

// Variables implements Accumulator.
func (m *RootMeanSquaredError) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *RootMeanSquaredError) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *RootMeanSquaredError) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "RootMeanSquaredError", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		return lossmath.Error(class, t, p).Square()
	})
}

// Result implements Accumulator.
func (m *RootMeanSquaredError) Result() (float64, error) {
	v, err := m.ratio.Result()
	return math.Sqrt(v), err
}

// MeanAbsolutePercentageError is the mean of 100·|yTrue-yPred|/max(|yTrue|,
// 1e-7). Default name: mean_absolute_percentage_error.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. As in Keras the last
// axis is averaged first, so that a vector counts as one sample.
type MeanAbsolutePercentageError struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *MeanAbsolutePercentageError) MetricName() string {
	return cmp.Or(m.Name, "mean_absolute_percentage_error")
}

// Variables implements Accumulator.
func (m *MeanAbsolutePercentageError) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *MeanAbsolutePercentageError) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *MeanAbsolutePercentageError) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "MeanAbsolutePercentageError", yTrue, yPred, sampleWeight, lossmath.AbsolutePercentage)
}

// MeanSquaredLogarithmicError is the mean of (ln(1+yTrue)-ln(1+yPred))²; both
// are limited below to 1e-7 first. Default name:
// mean_squared_logarithmic_error.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. As in Keras the last
// axis is averaged first, so that a vector counts as one sample.
type MeanSquaredLogarithmicError struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *MeanSquaredLogarithmicError) MetricName() string {
	return cmp.Or(m.Name, "mean_squared_logarithmic_error")
}

// Variables implements Accumulator.
func (m *MeanSquaredLogarithmicError) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *MeanSquaredLogarithmicError) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *MeanSquaredLogarithmicError) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "MeanSquaredLogarithmicError", yTrue, yPred, sampleWeight, lossmath.SquaredLogarithmic)
}

// LogCoshError is the mean of ln cosh(yPred-yTrue). Default name: logcosh.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. As in Keras the last
// axis is averaged first, so that a vector counts as one sample.
type LogCoshError struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *LogCoshError) MetricName() string { return cmp.Or(m.Name, "logcosh") }

// Variables implements Accumulator.
func (m *LogCoshError) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *LogCoshError) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *LogCoshError) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "LogCoshError", yTrue, yPred, sampleWeight, lossmath.LogCosh)
}

// CosineSimilarity is the mean cosine of the angle between yTrue and yPred as
// vectors along Axis: 1 for one direction, -1 for opposite ones. (The loss of
// this name has the opposite sign.) Default name: cosine_similarity.
//
// Shapes: yTrue and yPred equal.
type CosineSimilarity struct {
	Axis *int // default: -1
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *CosineSimilarity) MetricName() string { return cmp.Or(m.Name, "cosine_similarity") }

// Variables implements Accumulator.
func (m *CosineSimilarity) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *CosineSimilarity) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *CosineSimilarity) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "CosineSimilarity", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		return lossmath.Cosine(class, t, p, m.Axis)
	})
}
