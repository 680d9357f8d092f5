package losses

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/align"
)

// MeanSquaredError is (yTrue-yPred)², averaged over the last axis. Default
// name: mean_squared_error.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type MeanSquaredError struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *MeanSquaredError) LossName() string { return cmp.Or(l.Name, "mean_squared_error") }

// Call implements Loss.
func (l *MeanSquaredError) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *MeanSquaredError) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return regression("MeanSquaredError", l.LossName(), l.Reduction, (*tensor.Tensor).Square).call(yTrue, yPred, sampleWeight)
}

// MeanAbsoluteError is |yTrue-yPred|, averaged over the last axis. Default
// name: mean_absolute_error.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type MeanAbsoluteError struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *MeanAbsoluteError) LossName() string { return cmp.Or(l.Name, "mean_absolute_error") }

// Call implements Loss.
func (l *MeanAbsoluteError) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *MeanAbsoluteError) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return regression("MeanAbsoluteError", l.LossName(), l.Reduction, (*tensor.Tensor).Abs).call(yTrue, yPred, sampleWeight)
}

// Huber is half the square of the error e = yTrue-yPred where |e| ≤ Delta and
// Delta·|e|-Delta²/2 beyond, averaged over the last axis (Huber 1964). Default
// name: huber_loss.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type Huber struct {
	Delta     float64 // where the square ends; default: 1
	Reduction string  // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *Huber) LossName() string { return cmp.Or(l.Name, "huber_loss") }

// Call implements Loss.
func (l *Huber) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *Huber) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	delta := l.Delta
	if delta == 0 {
		delta = 1
	}
	if !(delta > 0) {
		tensor.Fail("Huber", "got Delta %v, want a positive number", delta)
	}
	return regression("Huber", l.LossName(), l.Reduction, func(e *tensor.Tensor) *tensor.Tensor {
		a := e.Abs()
		return tensor.Where(a.GreaterScalar(delta),
			a.MulScalar(delta).AddScalar(-delta*delta/2),
			e.Square().MulScalar(0.5))
	}).call(yTrue, yPred, sampleWeight)
}

// regression is a loss that is the mean of f(yPred-yTrue) over the last axis.
func regression(class, name, reduction string, f func(e *tensor.Tensor) *tensor.Tensor) common {
	return common{class, name, reduction, func(yTrue, yPred *tensor.Tensor) (values, mask *tensor.Tensor) {
		t, p := align.Floats(class, yTrue, yPred)
		return align.LastMean(f(p.Sub(t))), nil
	}}
}
