package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// AutoAccuracy is Keras's metrics=["accuracy"]: binary, categorical or sparse
// categorical accuracy, chosen by the targets and predictions of the first
// batch (see ResolveAccuracy). Its name is "accuracy".
type AutoAccuracy struct {
	Name string // default: "accuracy"

	kind Metric
}

// MetricName implements Accumulator.
func (a *AutoAccuracy) MetricName() string { return cmp.Or(a.Name, "accuracy") }

// Update implements Metric.
func (a *AutoAccuracy) Update(yTrue, yPred *tensor.Tensor) { a.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (a *AutoAccuracy) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	if a.kind == nil {
		a.kind = ResolveAccuracy(yTrue.Type(), yPred.Type())
	}
	a.kind.UpdateWeighted(yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (a *AutoAccuracy) Result() (float64, error) {
	if a.kind == nil {
		return 0, unread()
	}
	return a.kind.Result()
}

// Reset implements Accumulator. The kind stays what it was resolved to.
func (a *AutoAccuracy) Reset() error {
	if a.kind == nil {
		return nil
	}
	return a.kind.Reset()
}

// Variables implements Accumulator.
func (a *AutoAccuracy) Variables() []*tensor.Variable {
	if a.kind == nil {
		return nil
	}
	return a.kind.Variables()
}
