package metrics

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

func className(m Accumulator) string { return reflect.TypeOf(m).Elem().Name() }

// copyFields sets the exported fields of one metric to those of another.
func copyFields(t *testing.T, dst, src Metric) {
	t.Helper()
	b, err := json.Marshal(src)
	if err == nil {
		err = json.Unmarshal(b, dst)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The histogram gives what comparing each prediction with each threshold does.
func TestCountsAgainstComparisons(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	truth := []float64{1, 0, 1, 0, 1, 1, 0, 2, -1, 1, 0}
	pred := []float64{0, 0.25, 0.25, 0.5, 0.75, 1, 1, nan, inf, -inf, 0.3}
	for _, at := range [][]float64{{0.5}, {0.25, 0.75}, {0.75, 0.25}, {0.3, 0.3}, {0, 1}, {0, 0.5, 1}, {0, 0.25, 0.5, 0.75, 1}} {
		tp, fp, tn, fn := &TruePositives{Thresholds: at}, &FalsePositives{Thresholds: at}, &TrueNegatives{Thresholds: at}, &FalseNegatives{Thresholds: at}
		want := make([][]float64, 4)
		for _, x := range at {
			var n [4]float64
			for i, p := range pred {
				if isEven(at) { // Keras limits these to 0 … 1
					p = min(max(p, 0), 1)
				}
				k := 0
				if p > x {
					k = 1
				}
				if truth[i] != 0 {
					k += 2
				}
				n[k]++
			}
			for k := range n {
				want[k] = append(want[k], n[k])
			}
		}
		for k, m := range []Vector{tn, fp, fn, tp} {
			update(t, m, batch{vector(truth...), vector(pred...), nil})
			got, err := m.Results()
			if err != nil || !slices.Equal(got, want[k]) {
				t.Errorf("%s at %v: got %v, %v, want %v", m.MetricName(), at, got, err, want[k])
			}
			if sum, err := m.Result(); err != nil || sum != mustMean(want[k]) {
				t.Errorf("%s at %v: got mean %v, %v, want %v", m.MetricName(), at, sum, err, mustMean(want[k]))
			}
		}
	}
}

func mustMean(x []float64) float64 { return total(x) / float64(len(x)) }

func TestBest(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		p    []float64
		k    int
		want []float64 // which are chosen
	}{
		{[]float64{1, 3, 2}, 1, []float64{0, 1, 0}},
		{[]float64{1, 3, 2}, 2, []float64{0, 1, 1}},
		{[]float64{1, 3, 2}, 3, []float64{1, 1, 1}},
		{[]float64{2, 2, 2}, 2, []float64{1, 1, 0}},
		{[]float64{-inf, 1, -inf}, 2, []float64{0, 1, 0}},
	} {
		got, err := best("T", f32([]int{1, 3}, c.p...), c.k).GreaterScalar(notInTop).Float64s()
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v of %v: got %v, %v, want %v", c.k, c.p, got, err, c.want)
		}
	}
}

// Before the first batch the number of labels is not known; a Function finds
// the state that the first batch makes.
func TestAUCOfLabels(t *testing.T) {
	m := &AUC{MultiLabel: true, NumThresholds: 5}
	if vs := m.Variables(); vs != nil {
		t.Errorf("got %v before the first batch, want none", vs)
	}
	y, p := f32([]int{3, 2}, 1, 0, 0, 1, 1, 1), f32([]int{3, 2}, 0.9, 0.1, 0.2, 0.8, 0.7, 0.3)
	update(t, m, batch{y, p, nil}, batch{y, p, nil})
	if got := result(t, m); got != 1 || len(m.Variables()) != 1 || !m.Variables()[0].Shape().Equal(tensor.Shape{2, 2, 6}) {
		t.Errorf("got %v with %v, want 1 of [2 2 6]", got, m.Variables()[0].Type())
	}
	err := step(m).Run(context.Background(), batch{p.Slice(1, 0, 1), p.Slice(1, 0, 1), nil})
	if want := `AUC: got predictions float32[3 1], want 2 labels as before`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Argmax over another axis is that of the axis moved to the end.
func TestIoUAxis(t *testing.T) {
	var a, b []float64
	for i := range 24 {
		a, b = append(a, math.Sin(float64(5*i))), append(b, math.Cos(float64(3*i)))
	}
	y, p := f32([]int{2, 3, 4}, a...), f32([]int{2, 3, 4}, b...)
	m := &OneHotMeanIoU{NumClasses: 3, Axis: new(1)}
	n := &OneHotMeanIoU{NumClasses: 3}
	update(t, m, batch{y, p, nil})
	update(t, n, batch{y.Transpose(0, 2, 1), p.Transpose(0, 2, 1), nil})
	if got, want := result(t, m), result(t, n); got != want || got == 0 {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestR2Edges(t *testing.T) {
	for _, c := range []struct {
		name string
		m    *R2Score
		t, p *tensor.Tensor
		want float64
	}{
		{"perfect", &R2Score{}, vector(1, 2, 3), vector(1, 2, 3), 1},
		{"the mean", &R2Score{}, vector(1, 2, 3), vector(2, 2, 2), 0},
		{"constant and missed", &R2Score{}, vector(2, 2), vector(1, 2), 0},
		{"constant and met", &R2Score{}, vector(2, 2), vector(2, 2), math.NaN()},
		{"too few samples to adjust", &R2Score{NumRegressors: 2}, vector(1, 2, 3), vector(2, 2, 2), 0},
		{"far from 0", &R2Score{}, vector(10001, 10002, 10003), vector(10001, 10002, 10002), 0.5},
	} {
		update(t, c.m, batch{c.t, c.p, nil})
		if got := result(t, c.m); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestErrorsOfScores(t *testing.T) {
	p := f32([]int{2, 3}, 1, 0, 0.5, 0, 0.25, 1)
	good := batch{p, p, nil}
	for _, c := range []struct {
		metric Metric
		b      batch
		want   string
	}{
		{&Precision{Thresholds: []float64{0.5, 1.5}}, good, `Precision: got threshold 1.5, want numbers from 0 to 1`},
		{&Recall{TopK: 4}, good, `Recall: got TopK 4 for predictions float32[2 3], want at most as many as they are`},
		{&Recall{ClassID: new(3)}, good, `Recall: got ClassID 3 for predictions float32[2 3], want one of their classes`},
		{&TruePositives{}, batch{p, vector(1, 2), nil}, `TruePositives: got targets float32[2 3] for predictions float32[2], want equal shapes`},
		{&FalsePositives{}, batch{p, p, vector(1, 2, 3)}, `FalsePositives: got sample weights float32[3] for values of shape [2 3], want that shape, the start of it, or one that broadcasts to it`},
		{&SensitivityAtSpecificity{Specificity: 2}, good, `SensitivityAtSpecificity: got Specificity 2, want a number from 0 to 1`},
		{&RecallAtPrecision{NumThresholds: -1}, good, `RecallAtPrecision: got NumThresholds -1, want a positive number`},
		{&AUC{NumThresholds: 1}, good, `AUC: got NumThresholds 1, want 2 or more`},
		{&AUC{Curve: "DET"}, good, `AUC: got Curve "DET", want one of ROC, PR, PRGAIN`},
		{&AUC{SummationMethod: "simpson"}, good, `AUC: got SummationMethod "simpson", want one of interpolation, minoring, majoring`},
		{&AUC{NumLabels: 2}, good, `AUC: got NumLabels 2, want MultiLabel with it`},
		{&AUC{LabelWeights: []float64{1}}, good, `AUC: got 1 LabelWeights for predictions float32[2 3], want one for each label`},
		{&AUC{MultiLabel: true}, batch{vector(1), vector(1), nil}, `AUC: got predictions float32[1], want [batch labels] for MultiLabel`},
		{&F1Score{Average: "mean"}, good, `F1Score: got Average "mean", want one of none, micro, macro, weighted`},
		{&FBetaScore{Beta: -1}, good, `FBetaScore: got Beta -1, want a positive number`},
		{&FBetaScore{Threshold: new(0.0)}, good, `FBetaScore: got Threshold 0, want a number above 0 and at most 1`},
		{&F1Score{}, batch{vector(1), vector(1), nil}, `F1Score: got predictions float32[1], want [batch classes]`},
		{&R2Score{ClassAggregation: "sum"}, good, `R2Score: got ClassAggregation "sum", want one of none, uniform_average, variance_weighted_average`},
		{&R2Score{NumRegressors: -1}, good, `R2Score: got NumRegressors -1, want 0 or more`},
		{&MeanIoU{}, good, `MeanIoU: got NumClasses 0, want a positive number`},
		{&IoU{NumClasses: 2, TargetClassIDs: []int{2}}, good, `IoU: got 2 in TargetClassIDs, want 0 to 1`},
		{&OneHotIoU{NumClasses: 3}, batch{p, vector(1, 0, 1), nil}, `OneHotIoU: got targets int64[2] for predictions int64[], want equal shapes`},
		{&ConfusionMatrix{NumClasses: 2}, good, `ConfusionMatrix: got predictions float32[2 3], want 2 classes along the last axis, or set SparseYPred`},
		{&BinaryIoU{}, batch{p, nil, nil}, `BinaryIoU: got nil predictions, want a tensor`},
		{&CosineSimilarity{Axis: new(3)}, good, `CosineSimilarity: got predictions float32[2 3], want axis 3 in them`},
	} {
		err := step(c.metric).Run(context.Background(), c.b)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got  %v\nwant %s", c.metric.MetricName(), err, c.want)
		}
	}
	want := `metrics: got "MeanIoU", which has no default for NumClasses; want &metrics.MeanIoU{…} with that`
	if _, err := Get("MeanIoU"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestDirection(t *testing.T) {
	for name, want := range map[string]Better{
		"loss": BetterDown, "val_loss": BetterDown, "digits_loss": BetterDown, "mae": BetterDown, "val_mean_squared_error": BetterDown, "hinge_2": BetterDown, "kl_divergence": BetterDown,
		"accuracy": BetterUp, "val_acc": BetterUp, "val_digits_accuracy_1": BetterUp, "weighted_auc": BetterUp, "sparse_top_k_categorical_accuracy": BetterUp, "mean_io_u": BetterUp,
		"r2_score": BetterUp, "cosine_similarity": BetterUp, "fbeta_score": BetterUp, "true_positives": BetterUnknown, "mean": BetterUnknown, "learning_rate": BetterUnknown, "": BetterUnknown, "_": BetterUnknown,
	} {
		if got := Direction(name); got != want {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	for _, c := range []struct {
		m    Accumulator
		want string
	}{
		{&AutoAccuracy{}, "up"}, {&AUC{Name: "area"}, "up"}, {&Poisson{}, "down"}, {&FalseNegatives{}, "unknown"}, {&Mean{}, "unknown"},
	} {
		if got := DirectionOf(c.m).String(); got != c.want {
			t.Errorf("%T: got %s, want %s", c.m, got, c.want)
		}
	}
}

// Padding does not count in means, even where it is NaN.
func TestMask(t *testing.T) {
	y, x := f32([]int{2, 2, 1}, 0, 0, 0, 0), f32([]int{2, 2, 1}, 1, 2, 3, math.NaN())
	keep, w := f32([]int{2, 2}, 1, 1, 1, 0), f32([]int{2, 2}, 1, 0.5, 2, 9)
	for _, c := range []struct {
		w    *tensor.Tensor
		want float64
	}{{nil, 14. / 3}, {w, 6}} {
		m := &MeanSquaredError{}
		type in struct{ Y, P, Keep, W *tensor.Tensor }
		f := tensor.Function(func(b in) struct{} {
			m.UpdateWeighted(b.Y, b.P.WithMask(b.Keep.GreaterScalar(0.5)), b.W)
			return struct{}{}
		}, m)
		if err := f.Run(context.Background(), in{y, x, keep, c.w}); err != nil {
			t.Fatal(err)
		}
		if got := result(t, m); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
}

// TestConfusionMatrix: counts by hand, of predictions as scores, as classes and with
// weights.
func TestConfusionMatrix(t *testing.T) {
	truth := tensor.New([]int32{0, 1, 2, 2, 7}, 5) // 7 is no class
	scores := tensor.New([]float32{3, 1, 0, 0, 2, 1, 0, 9, 1, 0, 1, 4, 1, 0, 0}, 5, 3)
	chosen := tensor.New([]int32{0, 1, 1, 2, 0}, 5)
	want := [][]int{{1, 0, 0}, {0, 1, 0}, {0, 1, 1}}
	for _, sparse := range []bool{false, true} {
		m := &ConfusionMatrix{NumClasses: 3, SparseYPred: sparse}
		p := scores
		if sparse {
			p = chosen
		}
		update(t, m, batch{truth, p, nil})
		counts, err := m.Counts()
		if err != nil || !reflect.DeepEqual(counts, want) {
			t.Errorf("SparseYPred %v: got %v, %v, want %v", sparse, counts, err, want)
		}
		if got, err := m.Result(); err != nil || got != 0.75 {
			t.Errorf("SparseYPred %v: got %v, %v, want 3 of 4", sparse, got, err)
		}
	}
	m := &ConfusionMatrix{NumClasses: 3}
	update(t, m, batch{truth, scores, tensor.New([]float32{0.25, 1, 1, 2, 1}, 5)})
	weights, err := m.Weights()
	if err != nil || !reflect.DeepEqual(weights, [][]float64{{0.25, 0, 0}, {0, 1, 0}, {0, 1, 2}}) {
		t.Errorf("with weights: got %v, %v", weights, err)
	}
}
