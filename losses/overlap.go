package losses

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// Dice is 1 - 2·Σ yTrue·yPred/(Σ yTrue + Σ yPred + 1e-7): how little two sets
// overlap, such as the pixels of a segmentation (Milletari et al. 2016).
// Default name: dice.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. The sums are over all
// elements, which makes one loss of the whole batch; Axis []int{1, 2, 3} for
// images makes one for each sample.
type Dice struct {
	Axis      []int  // to sum over; default: all
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *Dice) LossName() string { return cmp.Or(l.Name, "dice") }

// Call implements Loss.
func (l *Dice) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *Dice) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("Dice", l.LossName(), l.Reduction, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		return overlap(class, t, p, l.Axis, 0.5, 0.5, lossmath.Epsilon/2)
	}).call(yTrue, yPred, sampleWeight)
}

// Tversky is 1 - I/(I + Alpha·FP + Beta·FN + 1e-7) with I = Σ yTrue·yPred,
// FP = Σ yPred - I and FN = Σ yTrue - I: a Dice loss that weighs what was
// predicted wrongly and what was missed (Salehi et al. 2017). Default name:
// tversky.
//
// Alpha weighs what was predicted wrongly, as in the paper; Keras before 3.16
// has the two exchanged.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1. The sums are over all
// elements, which makes one loss of the whole batch; Axis []int{1, 2, 3} for
// images makes one for each sample.
type Tversky struct {
	Alpha     *float64 // default: 0.5
	Beta      *float64 // default: 0.5
	Axis      []int    // to sum over; default: all
	Reduction string   // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *Tversky) LossName() string { return cmp.Or(l.Name, "tversky") }

// Call implements Loss.
func (l *Tversky) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *Tversky) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return plain("Tversky", l.LossName(), l.Reduction, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		alpha, beta := *cmp.Or(l.Alpha, new(0.5)), *cmp.Or(l.Beta, new(0.5))
		return overlap(class, t, p, l.Axis, alpha, beta, lossmath.Epsilon)
	}).call(yTrue, yPred, sampleWeight)
}

// overlap is 1 - I/(I + alpha·FP + beta·FN + epsilon). Dice is that with
// weights of a half.
func overlap(class string, yTrue, yPred *tensor.Tensor, axes []int, alpha, beta, epsilon float64) *tensor.Tensor {
	t, p := lossshape.Floats(class, yTrue, yPred)
	for _, a := range axes {
		lossmath.Axis(class, &a, p)
	}
	both := t.Mul(p).Sum(axes...)
	falsePositives, falseNegatives := p.Sum(axes...).Sub(both), t.Sum(axes...).Sub(both)
	union := both.Add(falsePositives.MulScalar(alpha)).Add(falseNegatives.MulScalar(beta)).AddScalar(epsilon)
	return both.Div(union).Neg().AddScalar(1)
}
