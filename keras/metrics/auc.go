package metrics

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/portablemath"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// AUC is the area under a curve through the rates at many thresholds, as a sum
// over the steps between them. Default name: auc.
//
//   - ROC (receiver operating characteristic): recall over the rate of false
//     positives. It is the probability that a sample of class 1 is predicted to
//     be larger than one of class 0.
//   - PR: precision over recall. Between thresholds it is interpolated by the
//     rule of Davis and Goadrich (2006).
//   - PRGAIN: precision gain over recall gain (Flach and Kull 2015).
//
// Shapes: yTrue and yPred equal, up to a last axis of 1, of predictions from 0
// to 1; every element is a sample. With MultiLabel [batch labels].
type AUC struct {
	NumThresholds   int       // in even steps, counting one below 0 and one above 1; default: 200
	Curve           string    // ROC, PR or PRGAIN; default: ROC
	SummationMethod string    // height of a step: interpolation between its ends, minoring: the lower, majoring: the higher; default: interpolation
	Thresholds      []float64 // 0 … 1, between one below and one above; default: NumThresholds of them
	MultiLabel      bool      // the mean of the areas of the labels, rather than that of all together
	NumLabels       int       // with MultiLabel; default: those of the first batch
	LabelWeights    []float64 // of the last axis: in the mean of MultiLabel, else of the samples
	FromLogits      bool      // the predictions are logits
	Name            string

	confusion
}

// MetricName implements Accumulator.
func (m *AUC) MetricName() string { return cmp.Or(m.Name, "auc") }

// Variables implements Accumulator.
func (m *AUC) Variables() []*tensor.Variable {
	switch n := len(m.cutoffs().at); {
	case !m.MultiLabel:
		return m.variables(m, n)
	case m.NumLabels > 0:
		return m.variables(m, n, m.NumLabels)
	case m.histogram == nil: // until the first batch tells
		return nil
	}
	return []*tensor.Variable{m.histogram}
}

// cutoffs are the thresholds.
func (m *AUC) cutoffs() cutoffs {
	inner := []float64{}
	if m.Thresholds != nil {
		inner = slices.Sorted(slices.Values(m.Thresholds))
	} else if n := cmp.Or(m.NumThresholds, 200); n > 2 {
		inner = steps(n)[1 : n-1]
	}
	even := m.Thresholds == nil || isEven(slices.Concat([]float64{0}, inner, []float64{1}))
	return cutoffs{slices.Concat([]float64{-lossmath.Epsilon}, inner, []float64{1 + lossmath.Epsilon}), even, true}
}

// Update implements Metric.
func (m *AUC) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *AUC) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	const class = "AUC"
	checkRange(class, m.Thresholds)
	switch {
	case m.NumThresholds < 0 || m.NumThresholds == 1:
		tensor.Fail(class, "got NumThresholds %d, want 2 or more", m.NumThresholds)
	case !slices.Contains([]string{"", "ROC", "PR", "PRGAIN"}, strings.ToUpper(m.Curve)):
		tensor.Fail(class, "got Curve %q, want one of ROC, PR, PRGAIN", m.Curve)
	case !slices.Contains([]string{"", "interpolation", "minoring", "majoring"}, strings.ToLower(m.SummationMethod)):
		tensor.Fail(class, "got SummationMethod %q, want one of interpolation, minoring, majoring", m.SummationMethod)
	case m.NumLabels != 0 && !m.MultiLabel:
		tensor.Fail(class, "got NumLabels %d, want MultiLabel with it", m.NumLabels)
	}
	m.Variables()
	check(class, yTrue, yPred)
	d := decision{cutoffs: m.cutoffs(), perLabel: m.MultiLabel}
	if !m.MultiLabel {
		d.labelWeights = m.LabelWeights
	} else if n := len(m.LabelWeights); n != 0 && (yPred.Rank() == 0 || n != yPred.Dim(-1)) {
		tensor.Fail(class, "got %d LabelWeights for predictions %v, want one for each label", n, yPred.Type())
	}
	if m.FromLogits {
		yPred = lossshape.Float(yPred).Sigmoid()
	}
	m.update(m, class, d, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *AUC) Result() (float64, error) {
	all, err := m.at(len(m.cutoffs().at))
	if err != nil {
		return 0, err
	}
	var sum, weights float64
	for i, at := range all {
		w := 1.
		if m.MultiLabel && i < len(m.LabelWeights) {
			w = m.LabelWeights[i]
		}
		sum += float64(w * m.area(at))
		weights += w
	}
	return ratioOf(sum, weights), nil
}

// area is that of one label.
func (m *AUC) area(at []counts) (sum float64) {
	curve, method := strings.ToUpper(m.Curve), strings.ToLower(m.SummationMethod)
	if curve == "PR" && (method == "" || method == "interpolation") {
		return interpolatedPR(at)
	}
	point := map[string]func(counts) (x, y float64){"": roc, "ROC": roc, "PR": pr, "PRGAIN": prGain}[curve]
	if point == nil {
		return math.NaN() // Update reports it
	}
	for i := range at[1:] {
		x, y := point(at[i])
		nextX, nextY := point(at[i+1])
		height := (y + nextY) / 2
		switch method {
		case "minoring":
			height = min(y, nextY)
		case "majoring":
			height = max(y, nextY)
		}
		sum += float64((x - nextX) * height)
	}
	return sum
}

func roc(c counts) (x, y float64) { return ratioOf(c.fp, c.fp+c.tn), c.recall() }

func pr(c counts) (x, y float64) { return c.recall(), c.precision() }

func prGain(c counts) (x, y float64) {
	if c.tp == 0 {
		return 0, 1
	}
	odds := ratioOf(c.tp+c.fn, c.tn+c.fp)
	return max(1-odds*c.fn/c.tp, 0), 1 - odds*c.fp/c.tp
}

// interpolatedPR is the area under precision over recall when true positives
// grow in proportion to positives between two thresholds.
func interpolatedPR(at []counts) (sum float64) {
	for i, next := range at[1:] {
		c := at[i]
		p, nextP := c.tp+c.fp, next.tp+next.fp
		slope := ratioOf(c.tp-next.tp, max(p-nextP, 0))
		ratio := 1.
		if p > 0 && nextP > 0 {
			ratio = p / nextP
		}
		sum += ratioOf(slope*(c.tp-next.tp+float64((next.tp-float64(slope*nextP))*portablemath.Log(ratio))), next.tp+next.fn)
	}
	return sum
}
