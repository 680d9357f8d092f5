package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// PearsonCorrelation is the mean of Pearson's correlation coefficient of yTrue
// and yPred along Axis: their covariance by the product of their standard
// deviations. It is NaN where either is constant. Default name:
// pearson_correlation.
//
// Shapes: yTrue and yPred equal; the metric is the mean over the axes other
// than Axis.
type PearsonCorrelation struct {
	Axis *int // default: -1
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *PearsonCorrelation) MetricName() string { return cmp.Or(m.Name, "pearson_correlation") }

// Variables implements Accumulator.
func (m *PearsonCorrelation) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *PearsonCorrelation) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *PearsonCorrelation) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "PearsonCorrelation", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		c := moments(class, t, p, m.Axis)
		return c.covariance.Div(c.varTrue.Sqrt().Mul(c.varPred.Sqrt()))
	})
}

// ConcordanceCorrelation is the mean of the concordance correlation coefficient
// of yTrue and yPred along Axis: how near they are to yTrue = yPred, not only
// to a line (Lin 1989). With means μ and variances σ² it is 2·cov/(σ²true +
// σ²pred + (μtrue-μpred)² + 1e-7). Default name: concordance_correlation.
//
// Shapes: yTrue and yPred equal; the metric is the mean over the axes other
// than Axis.
type ConcordanceCorrelation struct {
	Axis *int // default: -1
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *ConcordanceCorrelation) MetricName() string {
	return cmp.Or(m.Name, "concordance_correlation")
}

// Variables implements Accumulator.
func (m *ConcordanceCorrelation) Variables() []*tensor.Variable { return m.variables(m) }

// Update implements Metric.
func (m *ConcordanceCorrelation) Update(yTrue, yPred *tensor.Tensor) {
	m.UpdateWeighted(yTrue, yPred, nil)
}

// UpdateWeighted implements Metric.
func (m *ConcordanceCorrelation) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.compare(m, "ConcordanceCorrelation", yTrue, yPred, sampleWeight, func(class string, t, p *tensor.Tensor) *tensor.Tensor {
		c := moments(class, t, p, m.Axis)
		norm := c.varTrue.Add(c.varPred).Add(c.apart.Square()).AddScalar(lossmath.Epsilon)
		return c.covariance.MulScalar(2).Div(norm)
	})
}

// moment holds covariance, variances and difference of the means.
type moment struct{ covariance, varTrue, varPred, apart *tensor.Tensor }

func moments(class string, yTrue, yPred *tensor.Tensor, axis *int) moment {
	t, p := lossshape.Floats(class, yTrue, yPred)
	a := lossmath.Axis(class, axis, p)
	meanTrue, meanPred := t.MeanKeep(a), p.MeanKeep(a)
	t, p = t.Sub(meanTrue), p.Sub(meanPred)
	return moment{t.Mul(p).Mean(a), t.Square().Mean(a), p.Square().Mean(a), meanTrue.Sub(meanPred).Squeeze(a)}
}
