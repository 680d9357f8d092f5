package metrics

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

// TestScoreVectors checks the numbers that Keras's own unit tests assert of
// metrics that are not means.
func TestScoreVectors(t *testing.T) {
	row := func(data ...float64) *tensor.Tensor { return f32([]int{1, len(data)}, data...) }
	three3, four3, five4 := []int{3, 3}, []int{4, 3}, []int{4, 5}
	auc := func(curve, method string) Metric {
		return &AUC{NumThresholds: 3, Curve: curve, SummationMethod: method}
	}
	aucT, aucP, aucW := vector(0, 0, 1, 1), vector(0, 0.5, 0.3, 0.9), vector(1, 2, 3, 4)
	half := vector(0, 0, 0, 0, 0, 1, 1, 1, 1, 1)
	fT, fP := f32(three3, 0, 0, 1, 1, 1, 0, 1, 1, 1), f32(three3, 0.7, 0.7, 0.7, 1, 0, 0, 0.9, 0.8, 0)
	eT := f32([]int{6, 3}, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 1)
	eP := f32([]int{6, 3}, .9, .1, 0, .2, .6, .2, 0, 0, 1, .4, .3, .3, 0, .9, .1, 0, 0, 1)
	rT, rP := f32(three3, 0, 0, 1, 0, 1, 0, 1, 0, 0), f32(three3, .4, .5, .6, .1, .2, .3, .5, .8, .2)
	rP2 := f32(three3, .4, .9, 1.6, .1, 1.2, .6, 1.5, .8, .6)
	mT := f32(five4, 0, 1, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1)
	mP := f32(five4, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 1)
	cT, cP := f32(four3, 0, 1, .5, 1, 1, .2, 1, 1, .1, .1, .7, 0), f32(four3, .1, .9, .5, 1, .9, .2, .2, .8, 0, .3, .3, .9)
	at := new(0.66)
	for _, c := range []struct {
		name   string
		metric Metric
		b      batch
		want   []float64
	}{
		{"96 precision", &Precision{}, batch{vector(0, 1, 1, 0), vector(1, 0, 1, 0), nil}, []float64{0.5}},
		{"96 recall", &Recall{}, batch{vector(0, 1, 1, 0), vector(1, 0, 1, 0), nil}, []float64{0.5}},
		{"97 top 3", &Precision{TopK: 3}, batch{row(0, 1, 1, 0, 0), row(.2, .1, .5, 0, .2), nil}, []float64{1. / 3}},
		{"98 roc", auc("", ""), batch{aucT, aucP, nil}, []float64{0.75}},
		{"98 roc weighted", auc("ROC", "interpolation"), batch{aucT, aucP, aucW}, []float64{1 - (1-0.571428571)*0.5}},
		{"98 roc majoring", auc("roc", "majoring"), batch{aucT, aucP, aucW}, []float64{1}},
		{"98 roc minoring", auc("ROC", "minoring"), batch{aucT, aucP, aucW}, []float64{0.571428571}},
		{"98 pr majoring", auc("PR", "majoring"), batch{aucT, aucP, aucW}, []float64{1}},
		{"98 pr minoring", auc("PR", "minoring"), batch{aucT, aucP, aucW}, []float64{0.7 * 3 / 7}},
		{"98 pr", auc("pr", "Interpolation"), batch{aucT, aucP, aucW}, []float64{(0.5*(3+2*math.Log(2.5)) + 4) / 7}},
		{"99 high", &SensitivityAtSpecificity{Specificity: 0.8}, batch{half, vector(0, .1, .2, .3, .4, .1, .45, .5, .8, .9), nil}, []float64{0.8}},
		{"99 low", &SensitivityAtSpecificity{Specificity: 0.4}, batch{half, vector(0, .1, .2, .3, .4, .01, .02, .25, .26, .26), nil}, []float64{0.6}},
		{"100 half", &FBetaScore{Beta: 0.5, Threshold: at}, batch{fT, fP, nil}, []float64{.71428573, .5, .833334}},
		{"100", &FBetaScore{Threshold: at}, batch{fT, fP, nil}, []float64{.8, .5, .6666667}},
		{"100 micro", &FBetaScore{Threshold: at, Average: "micro"}, batch{fT, fP, nil}, []float64{.6666667}},
		{"100 macro", &F1Score{Threshold: at, Average: "macro"}, batch{fT, fP, nil}, []float64{.6555555}},
		{"100 twice", &FBetaScore{Beta: 2, Threshold: at}, batch{fT, fP, nil}, []float64{.9090904, .5, .555556}},
		{"100 twice macro", &FBetaScore{Beta: 2, Threshold: at, Average: "macro"}, batch{fT, fP, nil}, []float64{.6548822}},
		{"101", &F1Score{}, batch{eT, eP, nil}, []float64{.8, .6666667, 1}},
		{"101 micro", &F1Score{Average: "micro"}, batch{eT, eP, nil}, []float64{.833334}},
		{"101 macro", &F1Score{Average: "macro"}, batch{eT, eP, nil}, []float64{.822222}},
		{"101 weighted", &F1Score{Average: "weighted"}, batch{eT, eP, nil}, []float64{.844445}},
		{"102 none", &R2Score{ClassAggregation: "none"}, batch{rT, rP, nil}, []float64{.37, -1.295, .565}},
		{"102 adjusted", &R2Score{ClassAggregation: "none", NumRegressors: 1}, batch{rT, rP, nil}, []float64{-.26, -3.59, .13}},
		{"102 uniform", &R2Score{}, batch{rT, rP, nil}, []float64{-.12}},
		{"102 weighted", &R2Score{ClassAggregation: "none"}, batch{rT, rP2, vector(.8, .1, .4)}, []float64{.17305559, -8.836666, -.521}},
		{"104", &MeanSquaredLogarithmicError{}, batch{mT, mP, nil}, []float64{0.24022}},
		{"104 weighted", &MeanSquaredLogarithmicError{}, batch{mT, mP, vector(1, 1.5, 2, 2.5)}, []float64{0.26082}},
		{"105", &IoU{NumClasses: 2, TargetClassIDs: []int{0, 1}}, batch{vector(0, 0, 1, 1), vector(0, 1, 0, 1), nil}, []float64{1. / 3}},
		{"105 weighted", &IoU{NumClasses: 2, TargetClassIDs: []int{1, 0}}, batch{vector(0, 0, 1, 1), vector(0, 1, 0, 1), vector(.2, .3, .4, .1)}, []float64{(.1/.8 + .2/.9) / 2}},
		{"106 pearson", &PearsonCorrelation{}, batch{cT, cP, nil}, []float64{(1 + .99339927 + .69337525 - .60999428) / 4}},
		{"106 concordance", &ConcordanceCorrelation{}, batch{cT, cP, nil}, []float64{(.97560976 + .98765432 + .46511628 - .46376812) / 4}},
		{"106 pearson, a row", &PearsonCorrelation{}, batch{cT, cP, vector(0, 0, 0, 1)}, []float64{-.60999428}},
		{"106 concordance, a row", &ConcordanceCorrelation{}, batch{cT, cP, vector(0, 1, 0, 0)}, []float64{.98765432}},
	} {
		update(t, c.metric, c.b)
		got := results(t, c.metric)
		// A unit of the last digit that Keras's tests have: five for MSLE.
		unit := 2e-6
		if strings.HasPrefix(c.name, "104") {
			unit = 1e-5
		}
		if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return math.Abs(a-b) <= unit*math.Max(1, math.Abs(b)) }) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
		// The results of a batch are those of its parts, of any size.
		m := newOf(t, className(c.metric)).(Metric)
		copyFields(t, m, c.metric)
		f := step(m)
		for n, at := c.b.P.Dim(0), 0; at < n; at += 2 {
			part := func(x *tensor.Tensor) *tensor.Tensor {
				if x == nil {
					return nil
				}
				return x.Slice(0, at, min(at+2, n))
			}
			if n == 1 {
				break
			}
			if err := f.Run(context.Background(), batch{part(c.b.T), part(c.b.P), part(c.b.W)}); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		parts := results(t, m)
		for i := range parts {
			// Sums of the same float32 terms in float64, in another order.
			if c.b.P.Dim(0) > 1 && math.Abs(parts[i]-got[i]) > 1e-7*math.Max(1, math.Abs(got[i])) {
				t.Errorf("%s: in parts: got %v, want %v", c.name, parts, got)
			}
		}
	}
}

// Predictions of 16 bits are compared as what they are.
func TestScoresOfSixteenBits(t *testing.T) {
	p := []float64{0.50048828125, 0.5, 0.49951171875, 0.75} // the first and third in float16 only
	for d, want := range map[dtype.DType][2]float64{dtype.Float16: {2, 0.5}, dtype.BFloat16: {1, 0}} {
		pred := tensortest.Of(d, p, 4).Tensor()
		m, r := &TruePositives{}, &Recall{Thresholds: []float64{0.5}}
		update(t, m, batch{vector(1, 1, 1, 1), pred, nil})
		update(t, r, batch{vector(1, 1, 0, 0), pred, nil})
		if got := [2]float64{result(t, m), result(t, r)}; got != want {
			t.Errorf("%v: got %v, want %v", d, got, want)
		}
		wide := &FalseNegatives{}
		update(t, wide, batch{vector(1, 1, 1, 1), pred, f32([]int{4}, 60000, 60000, 60000, 60000)})
		if got := result(t, wide); got != (4-want[0])*60000 {
			t.Errorf("%v: got %v, want %v: totals must not overflow", d, got, (4-want[0])*60000)
		}
	}
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		data := []float64{0.25, 0.5, 0.75, 0.125, 0.375, 0.625, 0.5, 0.0625, 0.875}
		truth := f32([]int{3, 3}, 1, 0, 0, 0, 1, 0, 0, 0, 1)
		for _, n := range Names() {
			a, _ := Get(n)
			b, _ := Get(n)
			y := truth
			if strings.HasPrefix(a.MetricName(), "sparse_") {
				y = i32(2, 1, 0)
			}
			update(t, a, batch{y, tensortest.Of(d, data, 3, 3).Tensor(), nil})
			update(t, b, batch{y, tensortest.Of(dtype.Float32, data, 3, 3).Tensor(), nil})
			if x, y := result(t, a), result(t, b); x != y {
				t.Errorf("%s: got %v for %v, want %v as for float32", n, x, d, y)
			}
		}
	}
}
