package losses

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
)

// Hinge is max(1-yTrue·yPred, 0), averaged over the last axis. Targets are -1
// and 1; if all of a batch are 0 or 1, 0 stands for -1. Default name: hinge.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type Hinge struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *Hinge) LossName() string { return cmp.Or(l.Name, "hinge") }

// Call implements Loss.
func (l *Hinge) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *Hinge) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("Hinge", l.LossName(), l.Reduction, lossmath.Hinge).call(yTrue, yPred, sampleWeight)
}

// SquaredHinge is max(1-yTrue·yPred, 0)², averaged over the last axis. Targets
// are -1 and 1; if all of a batch are 0 or 1, 0 stands for -1. Default name:
// squared_hinge.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1.
type SquaredHinge struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *SquaredHinge) LossName() string { return cmp.Or(l.Name, "squared_hinge") }

// Call implements Loss.
func (l *SquaredHinge) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *SquaredHinge) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("SquaredHinge", l.LossName(), l.Reduction, lossmath.SquaredHinge).call(yTrue, yPred, sampleWeight)
}

// CategoricalHinge is max(1 + max((1-yTrue)·yPred) - Σ yTrue·yPred, 0) over the
// last axis, for one-hot targets: how far the best wrong class comes within 1
// of the right one. Default name: categorical_hinge.
//
// Shapes: yTrue and yPred [batch … classes].
type CategoricalHinge struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *CategoricalHinge) LossName() string { return cmp.Or(l.Name, "categorical_hinge") }

// Call implements Loss.
func (l *CategoricalHinge) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *CategoricalHinge) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("CategoricalHinge", l.LossName(), l.Reduction, lossmath.CategoricalHinge).call(yTrue, yPred, sampleWeight)
}
