package losses

import (
	"cmp"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// Circle pulls the embeddings of samples with one label together and pushes
// others apart, the harder the further they are from where they should be (Sun
// et al. 2020). With the cosine distances d of a sample to all others, m the
// Margin and γ the Gamma, its loss is softplus(P + N), where P is ln Σ exp of
// -γ·max(m+d, 0)·(m-d) over the others of its label, and N that of
// γ·max(1+m-d, 0)·(1-m-d) over the rest. Samples whose loss is 0, such as
// those that are alone with their label, have no part in the mean. Default
// name: circle.
//
// Shapes: yTrue [batch] or [batch 1], labels; yPred [batch size], embeddings
// of length 1.
type Circle struct {
	Gamma          float64  // default: 80
	Margin         *float64 // default: 0.4
	RemoveDiagonal *bool    // leave the distance of a sample to itself out; default: true
	Reduction      string   // one of Reductions; default: sum_over_batch_size
	Name           string
}

// LossName implements Weighted.
func (l *Circle) LossName() string { return cmp.Or(l.Name, "circle") }

// Call implements Loss.
func (l *Circle) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *Circle) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	return common{class: "Circle", name: l.LossName(), reduction: l.Reduction, values: l.values}.call(yTrue, yPred, sampleWeight)
}

func (l *Circle) values(class string, yTrue, yPred *tensor.Tensor) (values, mask *tensor.Tensor) {
	gamma, m := cmp.Or(l.Gamma, 80), *cmp.Or(l.Margin, new(0.4))
	if yPred.Rank() != 2 {
		tensor.Fail(class, "got predictions %v, want embeddings [batch size]", yPred.Type())
	}
	labels, p := lossshape.WholeLabels(class, yTrue, yPred), lossshape.Float(yPred)
	row, column := labels.ExpandDims(-1), labels.ExpandDims(0)
	same := row.Equal(column)
	positive, negative := same, same.Not()
	if *cmp.Or(l.RemoveDiagonal, new(true)) {
		at := tensor.Iota(labels.DType(), labels.Dim(0))
		positive = positive.And(at.ExpandDims(-1).NotEqual(at.ExpandDims(0)))
	}
	d := p.MatMulT(p, false, true).Neg().AddScalar(1).MaximumScalar(0)
	pull := d.AddScalar(m).MaximumScalar(0).Mul(d.AddScalar(-m)).MulScalar(gamma)
	push := d.Neg().AddScalar(1 + m).MaximumScalar(0).Mul(d.Neg().AddScalar(1 - m)).MulScalar(gamma)
	near, hasNear := logSumExp(pull, positive)
	far, hasFar := logSumExp(push, negative)
	// Without a sample of either kind the sum is -∞ and its softplus 0.
	zero := tensor.Scalar(p.DType(), 0)
	both := hasNear.And(hasFar)
	values = tensor.Where(both, lossmath.Logistic(zero, tensor.Where(both, near.Add(far), zero)), zero)
	return values, values.GreaterScalar(0)
}

// logSumExp returns ln Σ eˣ over the last axis where mask is true, and whether
// it is so anywhere; if not, the logarithm is 0.
func logSumExp(x, mask *tensor.Tensor) (sum, any *tensor.Tensor) {
	zero, none := tensor.Scalar(x.DType(), 0), tensor.Scalar(x.DType(), math.Inf(-1))
	any = mask.Max(-1)
	// The maximum shifts numerator and denominator alike: no gradient.
	most := tensor.Where(any, tensor.Where(mask, x, none).Max(-1), zero).StopGradient()
	// Masked before the exponential, which could overflow to ∞ and make NaN of
	// a gradient of 0.
	total := tensor.Where(mask, x.Sub(most.ExpandDims(-1)), none).Exp().Sum(-1)
	return tensor.Where(any, total, tensor.Scalar(x.DType(), 1)).Log().Add(most), any
}
