package metrics

import (
	"cmp"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/align"
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
	m.compare(m, "MeanSquaredError", yTrue, yPred, sampleWeight, func(t, p *tensor.Tensor) *tensor.Tensor {
		return align.LastMean(difference("MeanSquaredError", t, p).Square())
	})
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
	m.compare(m, "MeanAbsoluteError", yTrue, yPred, sampleWeight, func(t, p *tensor.Tensor) *tensor.Tensor {
		return align.LastMean(difference("MeanAbsoluteError", t, p).Abs())
	})
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
	m.compare(m, "RootMeanSquaredError", yTrue, yPred, sampleWeight, func(t, p *tensor.Tensor) *tensor.Tensor {
		return difference("RootMeanSquaredError", t, p).Square()
	})
}

// Result implements Accumulator.
func (m *RootMeanSquaredError) Result() (float64, error) {
	v, err := m.ratio.Result()
	return math.Sqrt(v), err
}

// difference is yPred-yTrue in float32 or better.
func difference(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	t, p := align.Floats(class, yTrue, yPred)
	return p.Sub(t)
}
