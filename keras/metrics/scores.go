package metrics

import (
	"cmp"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// FBetaScore is the weighted harmonic mean of precision P and recall R of each
// class: (1+Beta²)·P·R/(Beta²·P+R). Default name: fbeta_score.
//
// Shapes: yTrue and yPred [batch classes], several classes of which may be 1.
type FBetaScore struct {
	Beta float64 // weight of recall against precision; default: 1
	// Average combines the results of the classes: "macro" is their mean,
	// "weighted" their mean weighted by the number of their targets, "micro"
	// counts all classes as one. Default: none, a result for each class.
	Average string
	// Threshold, above 0 and at most 1: predictions above, not at, it count as
	// 1. Default: the largest prediction of a sample does.
	Threshold *float64
	Name      string

	sums
}

// MetricName implements Accumulator.
func (m *FBetaScore) MetricName() string { return cmp.Or(m.Name, "fbeta_score") }

// Variables implements Accumulator.
func (m *FBetaScore) Variables() []*tensor.Variable { return m.variables() }

// Update implements Metric.
func (m *FBetaScore) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *FBetaScore) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateF(&m.sums, m, "FBetaScore", cmp.Or(m.Beta, 1), m.Average, m.Threshold, yTrue, yPred, sampleWeight)
}

// Results implements Vector.
func (m *FBetaScore) Results() ([]float64, error) {
	return m.fScores(cmp.Or(m.Beta, 1), m.Average)
}

// Result implements Accumulator.
func (m *FBetaScore) Result() (float64, error) { return mean(m.Results()) }

// F1Score is FBetaScore with Beta 1: the harmonic mean of precision and recall
// of each class. Default name: f1_score.
//
// Shapes: yTrue and yPred [batch classes], several classes of which may be 1.
type F1Score struct {
	// Average combines the results of the classes: "macro" is their mean,
	// "weighted" their mean weighted by the number of their targets, "micro"
	// counts all classes as one. Default: none, a result for each class.
	Average string
	// Threshold, above 0 and at most 1: predictions above, not at, it count as
	// 1. Default: the largest prediction of a sample does.
	Threshold *float64
	Name      string

	sums
}

// MetricName implements Accumulator.
func (m *F1Score) MetricName() string { return cmp.Or(m.Name, "f1_score") }

// Variables implements Accumulator.
func (m *F1Score) Variables() []*tensor.Variable { return m.variables() }

// Update implements Metric.
func (m *F1Score) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *F1Score) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	updateF(&m.sums, m, "F1Score", 1, m.Average, m.Threshold, yTrue, yPred, sampleWeight)
}

// Results implements Vector.
func (m *F1Score) Results() ([]float64, error) {
	return m.fScores(1, m.Average)
}

// Result implements Accumulator.
func (m *F1Score) Result() (float64, error) { return mean(m.Results()) }

func updateF(s *sums, m named, class string, beta float64, average string, threshold *float64, yTrue, yPred, weight *tensor.Tensor) {
	if !(beta > 0) {
		tensor.Fail(class, "got Beta %v, want a positive number", beta)
	}
	switch average {
	case "", "none", "micro", "macro", "weighted":
	default:
		tensor.Fail(class, "got Average %q, want one of none, micro, macro, weighted", average)
	}
	check(class, yTrue, yPred)
	since := tensor.SequencePoint()
	t, p := lossshape.Floats(class, yTrue, yPred)
	if p.Rank() != 2 {
		tensor.Fail(class, "got predictions %v, want [batch classes]", yPred.Type())
	}
	var one *tensor.Tensor
	if threshold == nil {
		one = p.GreaterEqual(p.MaxKeep(-1)).And(p.Abs().GreaterScalar(1e-9))
	} else {
		if !(*threshold > 0 && *threshold <= 1) {
			tensor.Fail(class, "got Threshold %v, want a number above 0 and at most 1", *threshold)
		}
		one = p.GreaterScalar(*threshold)
	}
	hit, zero := one.Cast(t.DType()), tensor.Scalar(t.DType(), 0)
	var w *tensor.Tensor
	if weight != nil {
		w = spread(class, weight, p.Shape())
	}
	sum := func(x *tensor.Tensor) *tensor.Tensor { return weightedSum(x, w) }
	s.add(m, class, since, []string{"true_positives", "false_positives", "false_negatives", "intermediate_weights"}, []*tensor.Tensor{
		sum(tensor.Where(one, t, zero)), sum(hit.Sub(hit.Mul(t))), sum(tensor.Where(one, zero, t)), sum(t),
	})
}

// fScores reads the scores back.
func (s *sums) fScores(beta float64, average string) ([]float64, error) {
	v, err := s.values()
	if v == nil {
		return nil, err
	}
	tp, fp, fn, weights := v[0], v[1], v[2], v[3]
	if average == "micro" {
		tp, fp, fn = []float64{total(tp)}, []float64{total(fp)}, []float64{total(fn)}
	}
	scores := make([]float64, len(tp))
	for i := range scores {
		p, r := tp[i]/(tp[i]+fp[i]+lossmath.Epsilon), tp[i]/(tp[i]+fn[i]+lossmath.Epsilon)
		scores[i] = (1 + float64(beta*beta)) * p * r / (float64(beta*beta*p) + r + lossmath.Epsilon)
	}
	switch average {
	case "macro":
		return []float64{total(scores) / float64(len(scores))}, nil
	case "weighted":
		var sum float64
		for i, w := range weights {
			sum += float64(scores[i] * w)
		}
		return []float64{sum / (total(weights) + lossmath.Epsilon)}, nil
	}
	return scores, nil
}

// R2Score is the coefficient of determination of each column: 1 less the
// squared error by the variance of the targets. 1 is perfect, 0 as good as
// always predicting the mean. It is 0 where the targets are constant and
// missed, NaN where they are constant and met. Default name: r2_score.
//
// Shapes: yTrue and yPred [batch columns]; vectors are one column.
type R2Score struct {
	// ClassAggregation combines the results of the columns:
	// "uniform_average" is their mean, "variance_weighted_average" their mean
	// weighted by the variances of their targets; "none" keeps them. Default: uniform_average.
	ClassAggregation string
	// NumRegressors, if not 0, is the number of independent variables of the
	// model; the score is adjusted for it: 1 - (1-R²)(n-1)/(n-1-NumRegressors).
	// It is not where the n samples are not more than NumRegressors+1. (n are
	// the rows, as in Keras from 3.16; before, it counted all elements.)
	NumRegressors int
	Name          string

	sums
}

// MetricName implements Accumulator.
func (m *R2Score) MetricName() string { return cmp.Or(m.Name, "r2_score") }

// Variables implements Accumulator.
func (m *R2Score) Variables() []*tensor.Variable { return m.variables() }

// Update implements Metric.
func (m *R2Score) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *R2Score) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	const class = "R2Score"
	switch m.ClassAggregation {
	case "", "none", "uniform_average", "variance_weighted_average":
	default:
		tensor.Fail(class, "got ClassAggregation %q, want one of none, uniform_average, variance_weighted_average", m.ClassAggregation)
	}
	if m.NumRegressors < 0 {
		tensor.Fail(class, "got NumRegressors %d, want 0 or more", m.NumRegressors)
	}
	check(class, yTrue, yPred)
	since := tensor.SequencePoint()
	t, p := lossshape.Floats(class, yTrue, yPred)
	if p.Rank() == 1 {
		t, p = t.ExpandDims(-1), p.ExpandDims(-1)
	}
	if p.Rank() != 2 {
		tensor.Fail(class, "got predictions %v, want [batch columns]", yPred.Type())
	}
	// In float64: the variance is a small difference of large sums.
	t, p = t.Cast(dtype.Float64), p.Cast(dtype.Float64)
	w := tensor.Ones(dtype.Float64, p.Shape()...)
	if sampleWeight != nil {
		w = spread(class, sampleWeight, p.Shape())
	}
	m.add(m, class, since, []string{"num_samples", "sum", "squared_sum", "residual", "count"}, []*tensor.Tensor{
		tensor.Scalar(dtype.Float64, float64(p.Dim(0))),
		weightedSum(t, w), weightedSum(t.Square(), w), weightedSum(p.Sub(t).Square(), w), w.Sum(0),
	})
}

// Results implements Vector.
func (m *R2Score) Results() ([]float64, error) {
	v, err := m.values()
	if v == nil {
		return nil, err
	}
	n := v[0][0]
	if n == 0 {
		return []float64{0}, nil
	}
	var sum, weight float64 // by variance
	scores := make([]float64, len(v[1]))
	for i := range scores {
		variance := v[2][i] - v[1][i]*v[1][i]/v[4][i]
		if scores[i] = 1 - v[3][i]/variance; math.IsInf(scores[i], 0) {
			scores[i] = 0
		}
		sum += float64(variance * scores[i])
		weight += variance
	}
	switch m.ClassAggregation {
	case "", "uniform_average":
		scores = []float64{total(scores) / float64(len(scores))}
	case "variance_weighted_average":
		scores = []float64{sum / weight}
	}
	if k := float64(m.NumRegressors); k > 0 && k < n-1 {
		for i, s := range scores {
			scores[i] = 1 - (1-s)*(n-1)/(n-1-k)
		}
	}
	return scores, nil
}

// Result implements Accumulator.
func (m *R2Score) Result() (float64, error) { return mean(m.Results()) }

// sums is the state of metrics that add up rows: how many numbers there are
// shows with the first batch.
type sums struct{ vars []*tensor.Variable }

func (s *sums) variables() []*tensor.Variable { return s.vars }

// add records that sums are added to those with these names.
func (s *sums) add(m named, class string, since uint64, names []string, added []*tensor.Tensor) {
	if s.vars == nil {
		for i, n := range names {
			s.vars = append(s.vars, tensor.NewState(m.MetricName()+"/"+n, dtype.Float64, added[i].Shape(), nil))
		}
	}
	for i, v := range s.vars {
		if !v.Shape().Equal(added[i].Shape()) {
			tensor.Fail(class, "got %d classes, want %d as before", added[i].Dim(0), v.Shape()[0])
		}
		addTo(m, v, added[i])
		tensor.Label("metrics/"+m.MetricName(), since, v.Value())
	}
}

// values reads all sums; nil before the first batch.
func (s *sums) values() (all [][]float64, err error) {
	if s.vars == nil {
		return nil, unread()
	}
	for _, v := range s.vars {
		data, err := v.Float64s()
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

// Reset implements Accumulator.
func (s *sums) Reset() error {
	for _, v := range s.vars {
		if err := v.Reset(); err != nil {
			return err
		}
	}
	return nil
}

// weightedSum adds up the rows of x, times w if there is one.
func weightedSum(x, w *tensor.Tensor) *tensor.Tensor {
	if w == nil {
		return tensor.SumAs(x, dtype.Float64, 0)
	}
	return x.Cast(dtype.Float64).Mul(w).Sum(0)
}

// total adds up numbers.
func total(x []float64) (sum float64) {
	for _, v := range x {
		sum += v
	}
	return sum
}
