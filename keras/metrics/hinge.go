package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
)

// Hinge is the mean of max(1-yTrue·yPred, 0). Targets are -1 and 1; if all of a
// batch are 0 or 1, 0 stands for -1. Default name: hinge.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. As in Keras the last
// axis is averaged first, so that a vector counts as one sample.
type Hinge struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *Hinge) MetricName() string { return cmp.Or(m.Name, "hinge") }

// Variables implements Accumulator.
func (m *Hinge) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *Hinge) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *Hinge) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "Hinge", yTrue, yPred, sampleWeight, lossmath.Hinge)
}

// SquaredHinge is the mean of max(1-yTrue·yPred, 0)². Targets are -1 and 1; if
// all of a batch are 0 or 1, 0 stands for -1. Default name: squared_hinge.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. As in Keras the last
// axis is averaged first, so that a vector counts as one sample.
type SquaredHinge struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *SquaredHinge) MetricName() string { return cmp.Or(m.Name, "squared_hinge") }

// Variables implements Accumulator.
func (m *SquaredHinge) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *SquaredHinge) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *SquaredHinge) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "SquaredHinge", yTrue, yPred, sampleWeight, lossmath.SquaredHinge)
}

// CategoricalHinge is the mean of max(1 + max((1-yTrue)·yPred) - Σ yTrue·yPred,
// 0) over the last axis, for one-hot targets: how far the best wrong class
// comes within 1 of the right one. Default name: categorical_hinge.
//
// Shapes: yTrue and yPred [batch … classes].
type CategoricalHinge struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *CategoricalHinge) MetricName() string { return cmp.Or(m.Name, "categorical_hinge") }

// Variables implements Accumulator.
func (m *CategoricalHinge) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *CategoricalHinge) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *CategoricalHinge) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "CategoricalHinge", yTrue, yPred, sampleWeight, lossmath.CategoricalHinge)
}
