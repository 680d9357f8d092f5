package losses

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
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
	return plain("MeanSquaredError", l.LossName(), l.Reduction, lossmath.Squared).call(yTrue, yPred, sampleWeight)
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
	return plain("MeanAbsoluteError", l.LossName(), l.Reduction, lossmath.Absolute).call(yTrue, yPred, sampleWeight)
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
	return plain("Huber", l.LossName(), l.Reduction, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		e := lossmath.Error(class, t, p)
		a := e.Abs()
		return lossshape.LastMean(tensor.Where(a.GreaterScalar(delta),
			a.MulScalar(delta).AddScalar(-delta*delta/2),
			e.Square().MulScalar(0.5)))
	}).call(yTrue, yPred, sampleWeight)
}

// MeanAbsolutePercentageError is 100·|yTrue-yPred|/max(|yTrue|, 1e-7), averaged
// over the last axis. Default name: mean_absolute_percentage_error.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type MeanAbsolutePercentageError struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *MeanAbsolutePercentageError) LossName() string {
	return cmp.Or(l.Name, "mean_absolute_percentage_error")
}

// Call implements Loss.
func (l *MeanAbsolutePercentageError) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *MeanAbsolutePercentageError) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("MeanAbsolutePercentageError", l.LossName(), l.Reduction, lossmath.AbsolutePercentage).call(yTrue, yPred, sampleWeight)
}

// MeanSquaredLogarithmicError is (ln(1+yTrue)-ln(1+yPred))², averaged over the
// last axis; both are limited below to 1e-7 first. Default name:
// mean_squared_logarithmic_error.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type MeanSquaredLogarithmicError struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *MeanSquaredLogarithmicError) LossName() string {
	return cmp.Or(l.Name, "mean_squared_logarithmic_error")
}

// Call implements Loss.
func (l *MeanSquaredLogarithmicError) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *MeanSquaredLogarithmicError) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("MeanSquaredLogarithmicError", l.LossName(), l.Reduction, lossmath.SquaredLogarithmic).call(yTrue, yPred, sampleWeight)
}

// LogCosh is ln cosh(yPred-yTrue), averaged over the last axis: half the square
// of small errors, the size of large ones. Default name: log_cosh.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type LogCosh struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *LogCosh) LossName() string { return cmp.Or(l.Name, "log_cosh") }

// Call implements Loss.
func (l *LogCosh) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *LogCosh) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("LogCosh", l.LossName(), l.Reduction, lossmath.LogCosh).call(yTrue, yPred, sampleWeight)
}

// Poisson is yPred - yTrue·ln(yPred+1e-7), averaged over the last axis: the
// negative log-likelihood of counts. Default name: poisson.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type Poisson struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *Poisson) LossName() string { return cmp.Or(l.Name, "poisson") }

// Call implements Loss.
func (l *Poisson) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *Poisson) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("Poisson", l.LossName(), l.Reduction, lossmath.Poisson).call(yTrue, yPred, sampleWeight)
}

// KLDivergence is Σ yTrue·ln(yTrue/yPred) over the last axis, for probabilities
// (Kullback and Leibler 1951); both are limited to 1e-7 … 1 first. Default
// name: kl_divergence.
//
// Shapes: yTrue and yPred [batch … classes].
type KLDivergence struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *KLDivergence) LossName() string { return cmp.Or(l.Name, "kl_divergence") }

// Call implements Loss.
func (l *KLDivergence) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *KLDivergence) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("KLDivergence", l.LossName(), l.Reduction, lossmath.KLDivergence).call(yTrue, yPred, sampleWeight)
}

// CosineSimilarity is the negative cosine of the angle between yTrue and yPred
// as vectors along Axis: -1 for one direction, 1 for opposite ones, 0 where
// one of them is 0. Default name: cosine_similarity.
//
// Shapes: yTrue and yPred equal.
type CosineSimilarity struct {
	Axis      *int   // default: -1
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *CosineSimilarity) LossName() string { return cmp.Or(l.Name, "cosine_similarity") }

// Call implements Loss.
func (l *CosineSimilarity) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *CosineSimilarity) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("CosineSimilarity", l.LossName(), l.Reduction, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		return lossmath.Cosine(class, t, p, l.Axis).Neg()
	}).call(yTrue, yPred, sampleWeight)
}
