package losses

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

// array is a float32 array.
func array(shape []int, data ...float64) tensortest.Array {
	return tensortest.Of(dtype.Float32, data, shape...)
}

func f32(shape []int, data ...float64) *tensor.Tensor { return array(shape, data...).Tensor() }

func i32(data ...int32) *tensor.Tensor { return tensor.New(data, len(data)) }

// failure returns the error of recording or computing f, or nil.
func failure(f func() *tensor.Tensor) (err error) {
	defer tensor.Catch(&err)
	_, err = f().Item()
	return err
}

func TestGolden(t *testing.T) {
	for _, c := range tensortest.Load(t, "../keras/testdata/golden/losses.json").Cases {
		loss, err := Get(c.Class())
		if err != nil {
			t.Fatal(err)
		}
		l := loss.(Weighted)
		c.Configure(t, l)
		pred := c.Tensor("y_pred")
		v := l.CallWeighted(c.Tensor("y_true"), pred, c.Tensor("sample_weight"))
		if v.DType() != dtype.Float32 {
			t.Errorf("%s: got %v, want float32", c.Name, v.Type())
		}
		tensortest.Close(t, c.Name, v, c.Outputs["loss"], 1)
		want, ok := c.Outputs["grad/y_pred"]
		if !ok {
			continue
		}
		g := tensor.GradientsAt(v, pred)[0]
		if g == nil {
			t.Errorf("%s: got no gradient", c.Name)
			continue
		}
		tensortest.Close(t, c.Name+" gradient", g, want, 1)
	}
}

// TestVectors checks the numbers that Keras's own unit tests assert.
func TestVectors(t *testing.T) {
	two3, three3 := []int{2, 3}, []int{3, 3}
	bt, bp := []float64{1, 9, 2, -5, -2, 6}, []float64{4, 8, 12, 8, 1, 3}
	baseT, baseP := f32(two3, bt...), f32(two3, bp...)
	steps := []int{2, 3, 1}
	eye := f32(three3, 1, 0, 0, 0, 1, 0, 0, 0, 1)
	probs := f32(three3, 0.9, 0.05, 0.05, 0.5, 0.89, 0.6, 0.05, 0.01, 0.94)
	logits := f32(three3, 8, 1, 1, 0, 9, 1, 2, 3, 5)
	column := func(w ...float64) *tensor.Tensor { return f32([]int{len(w), 1}, w...) }
	hT, hP := f32(two3, 1, 0, 1, 1, 0, 0), f32(two3, 0.9, 0.2, 0.2, 0.8, 0.4, 0.6)
	gT, gP, square := f32([]int{2, 2}, 0, 1, 0, 0), f32([]int{2, 2}, 0.6, 0.4, 0.4, 0.6), []int{2, 2}
	var ctcLogits []float64
	for i := range 24 {
		ctcLogits = append(ctcLogits, float64(i-12)/100)
	}
	maskT := f32([]int{4, 4}, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1)
	maskP := f32([]int{4, 4}, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1)
	faces := f32([]int{5, 4},
		0.70014004, -0.42008403, 0.14002801, 0.56011203, 0.17609018, 0.70436073, -0.52827054, 0.44022545,
		-0.34050261, 0.25537696, -0.68100522, 0.59587957, 0.32163376, -0.75047877, 0.53605627, -0.21442251,
		0.51261459, -0.34174306, 0.17087153, 0.76892189)
	pairs := f32([]int{4, 2}, 0.7, 0.3, 0.2, 0.8, 0.6, 0.4, 0.4, 0.6)
	for _, c := range []struct {
		name    string
		loss    Weighted
		t, p, w *tensor.Tensor
		want    []float64
	}{
		{"68 mse", &MeanSquaredError{}, baseT, baseP, nil, []float64{49.5}},
		{"68 mse scalar weight", &MeanSquaredError{}, baseT, baseP, f32(nil, 2.3), []float64{113.85}},
		{"68 mse weights", &MeanSquaredError{}, baseT, baseP, column(1.2, 3.4), []float64{127.96667}},
		{"68 mse none", &MeanSquaredError{Reduction: "none"}, baseT, baseP, f32(nil, 2.3), []float64{84.3333, 143.3666}},
		{"68 mse sum", &MeanSquaredError{Reduction: "sum"}, baseT, baseP, f32(nil, 2.3), []float64{227.7}},
		{"68 mse weighted mean", &MeanSquaredError{Reduction: "mean_with_sample_weight"}, baseT, baseP, column(1.2, 3.4), []float64{(110./3*1.2 + 187./3*3.4) / 4.6}},
		{"68 mse steps", &MeanSquaredError{}, f32(steps, bt...), f32(steps, bp...), f32(two3, 3, 6, 5, 0, 4, 2), []float64{97.833336}},
		{"68 mse mean", &MeanSquaredError{Reduction: "mean"}, baseT, baseP, nil, []float64{49.5}},
		{"69 mae", &MeanAbsoluteError{}, baseT, baseP, nil, []float64{5.5}},
		{"69 mae scalar weight", &MeanAbsoluteError{}, baseT, baseP, f32(nil, 2.3), []float64{12.65}},
		{"69 mae weights", &MeanAbsoluteError{}, baseT, baseP, column(1.2, 3.4), []float64{13.5667}},
		{"69 mae steps", &MeanAbsoluteError{}, f32(steps, bt...), f32(steps, bp...), f32(two3, 3, 6, 5, 0, 4, 2), []float64{13.83333}},
		{"75 huber", &Huber{}, hT, hP, nil, []float64{0.1041667}},
		{"75 huber scalar weight", &Huber{}, hT, hP, f32(nil, 2.3), []float64{0.2395833}},
		{"75 huber weights", &Huber{}, hT, hP, f32([]int{2}, 1.2, 3.4), []float64{0.2276667}},
		{"78 bce", &BinaryCrossentropy{}, eye, f32(three3, 0.9, 0.1, 0.2, 0.3, 0.8, 0.1, 0.1, 0.2, 0.7), nil, []float64{0.20046903}},
		{"78 bce clipped", &BinaryCrossentropy{}, f32([]int{2, 2}, 1, 0, 1, 0), f32([]int{2, 2}, 1, 1, 1, 0), nil, []float64{3.98559}},
		{"79 bce logits", &BinaryCrossentropy{FromLogits: true}, f32(two3, 1, 0, 1, 0, 1, 1), f32(two3, 10, -10, 10, 10, 10, -10), nil, []float64{3.33333}},
		{"79 bce logits none", &BinaryCrossentropy{FromLogits: true, Reduction: "none"}, f32(two3, 1, 0, 1, 0, 1, 1), f32(two3, 10, -10, 10, 10, 10, -10), nil, []float64{0, 6.66666}},
		{"79 bce smoothing", &BinaryCrossentropy{FromLogits: true, LabelSmoothing: 0.1}, f32([]int{1, 3}, 1, 0, 1), f32([]int{1, 3}, 10, -10, -10), nil, []float64{3.5}},
		{"80 bce none", &BinaryCrossentropy{Reduction: "none"}, column(0.1, 0.9, 0.2, 1), column(0.1, 0.2, 0.3, 0.4), nil, []float64{0.32508277, 1.47080801, 0.52613434, 0.91629048}},
		{"80 bce none logits", &BinaryCrossentropy{Reduction: "none", FromLogits: true}, column(0.1, 0.9, 0.2, 1), column(0.1, 0.2, 0.3, 0.4), nil, []float64{0.73439666, 0.61813887, 0.79435524, 0.51301525}},
		{"81 cce", &CategoricalCrossentropy{}, eye, probs, nil, []float64{0.3239}},
		{"81 cce weights", &CategoricalCrossentropy{}, eye, probs, column(1.2, 3.4, 5.6), []float64{1.0696}},
		{"81 sparse", &SparseCategoricalCrossentropy{}, i32(0, 1, 2), probs, nil, []float64{0.3239}},
		{"81 sparse weights", &SparseCategoricalCrossentropy{}, i32(0, 1, 2), probs, column(1.2, 3.4, 5.6), []float64{1.0696}},
		{"82 cce logits", &CategoricalCrossentropy{FromLogits: true}, eye, logits, nil, []float64{0.0573}},
		{"82 cce logits none", &CategoricalCrossentropy{FromLogits: true, Reduction: "none"}, eye, logits, nil, []float64{0.001822, 0.000459, 0.169846}},
		{"82 cce logits weights", &CategoricalCrossentropy{FromLogits: true}, eye, logits, column(1.2, 3.4, 5.6), []float64{0.31829}},
		{"82 sparse logits", &SparseCategoricalCrossentropy{FromLogits: true}, i32(0, 1, 2), logits, nil, []float64{0.0573}},
		{"82 cce smoothing", &CategoricalCrossentropy{FromLogits: true, LabelSmoothing: 0.1}, f32([]int{1, 3}, 1, 0, 0), f32([]int{1, 3}, 100, -100, -100), nil, []float64{13.3333}},
		{"83 cce", &CategoricalCrossentropy{Reduction: "none"}, f32(two3, 0.33008796, 0.0391289, 0.9503603, 0.80376694, 0.92363342, 0.19147756), f32(two3, 0.23446431, 0.35822914, 0.06683268, 0.3413979, 0.05420256, 0.81619654), nil, []float64{2.54095299, 3.96374412}},
		{"83 cce axis 0", &CategoricalCrossentropy{Reduction: "none", Axis: new(0)}, f32(two3, 0.33008796, 0.0391289, 0.9503603, 0.80376694, 0.92363342, 0.19147756), f32(two3, 0.23446431, 0.35822914, 0.06683268, 0.3413979, 0.05420256, 0.81619654), nil, []float64{0.71683073, 1.87988172, 2.46810762}},
		{"84 ignore", &SparseCategoricalCrossentropy{FromLogits: true, IgnoreClass: new(-1), Reduction: "none"}, tensor.New([]int32{-1, 2}, 1, 2), f32([]int{1, 2, 3}, 0.854, 0.698, 0.598, 0.088, 0.86, 0.018), nil, []float64{0, 1.480129}},
		{"70 mape", &MeanAbsolutePercentageError{}, baseT, baseP, nil, []float64{211.8518}},
		{"70 mape scalar weight", &MeanAbsolutePercentageError{}, baseT, baseP, f32(nil, 2.3), []float64{487.259}},
		{"70 mape weights", &MeanAbsolutePercentageError{}, baseT, baseP, column(1.2, 3.4), []float64{422.8888}},
		{"70 mape steps", &MeanAbsolutePercentageError{}, f32(steps, bt...), f32(steps, bp...), f32(two3, 3, 6, 5, 0, 4, 2), []float64{694.4444}},
		{"71 msle", &MeanSquaredLogarithmicError{}, baseT, baseP, nil, []float64{1.4370}},
		{"71 msle scalar weight", &MeanSquaredLogarithmicError{}, baseT, baseP, f32(nil, 2.3), []float64{3.3051}},
		{"71 msle weights", &MeanSquaredLogarithmicError{}, baseT, baseP, column(1.2, 3.4), []float64{3.7856}},
		{"71 msle steps", &MeanSquaredLogarithmicError{}, f32(steps, bt...), f32(steps, bp...), f32(two3, 3, 6, 5, 0, 4, 2), []float64{2.647374}},
		{"72 log cosh", &LogCosh{}, baseT, baseP, nil, []float64{4.829245}},
		{"72 log cosh weights", &LogCosh{}, baseT, baseP, column(1.2, 3.4), []float64{12.001115}},
		{"73 cosine", &CosineSimilarity{}, baseT, baseP, nil, []float64{-0.187219}},
		{"73 cosine weights", &CosineSimilarity{}, baseT, baseP, f32([]int{2}, 1.2, 3.4), []float64{0.155992}},
		{"74 hinge", &Hinge{}, gT, gP, nil, []float64{1.3}},
		{"74 hinge none", &Hinge{Reduction: "none"}, gT, gP, nil, []float64{1.1, 1.5}},
		{"74 hinge weights", &Hinge{}, gT, gP, f32([]int{2}, 1, 0), []float64{0.55}},
		{"74 squared hinge", &SquaredHinge{}, gT, gP, nil, []float64{1.86}},
		{"74 squared hinge none", &SquaredHinge{Reduction: "none"}, gT, gP, nil, []float64{1.46, 2.26}},
		{"74 squared hinge weights", &SquaredHinge{}, gT, gP, f32([]int{2}, 1, 0), []float64{0.73}},
		{"74 categorical hinge", &CategoricalHinge{}, gT, gP, nil, []float64{1.4}},
		{"74 categorical hinge none", &CategoricalHinge{Reduction: "none"}, gT, gP, nil, []float64{1.2, 1.6}},
		{"74 categorical hinge weights", &CategoricalHinge{}, gT, gP, f32([]int{2}, 1, 0), []float64{0.6}},
		{"76 kl", &KLDivergence{}, f32(two3, 0.5, 0.8, 0.12, 0.7, 0.43, 0.8), f32(two3, 0.4, 0.9, 0.12, 0.36, 0.3, 0.4), nil, []float64{0.596074}},
		{"76 kl weights", &KLDivergence{}, f32(two3, 0.5, 0.8, 0.12, 0.7, 0.43, 0.8), f32(two3, 0.4, 0.9, 0.12, 0.36, 0.3, 0.4), f32([]int{2}, 1.2, 3.4), []float64{2.007571}},
		{"77 poisson", &Poisson{}, baseP, f32(two3, 1, 9, 2, 5, 2, 6), nil, []float64{-3.306582}},
		{"77 poisson weights", &Poisson{}, baseP, f32(two3, 1, 9, 2, 5, 2, 6), f32([]int{2}, 1.2, 3.4), []float64{-6.147339}},
		{"85 binary focal", &BinaryFocalCrossentropy{}, f32(square, 1, 0, 1, 0), f32(square, 0.9, 0.8, 0.7, 0.2), nil, []float64{0.268}},
		{"85 binary focal none", &BinaryFocalCrossentropy{Reduction: "none"}, f32(square, 1, 0, 1, 0), f32(square, 0.9, 0.8, 0.7, 0.2), nil, []float64{0.515547, 0.020513}},
		{"85 binary focal logits", &BinaryFocalCrossentropy{FromLogits: true, Gamma: new(3.0)}, f32(two3, 1, 1, 0, 0, 1, 0), f32(two3, 1.5, -2.7, 2.9, -3.8, 1.2, -4.5), nil, []float64{0.799}},
		{"86 categorical focal", &CategoricalFocalCrossentropy{}, eye, probs, nil, []float64{0.02059}},
		{"86 categorical focal logits", &CategoricalFocalCrossentropy{FromLogits: true, Reduction: "none"}, eye, logits, nil, []float64{1.5096e-9, 2.4137e-11, 1.03606e-3}},
		{"87 ctc", &CTC{}, tensor.New([]int32{1, 2, 1, 0, 1, 2, 0, 2}, 2, 4), f32([]int{2, 4, 3}, ctcLogits...), nil, []float64{2.448645}},
		{"87 ctc none", &CTC{Reduction: "none"}, tensor.New([]int32{1, 2, 1, 0, 1, 2, 0, 2}, 2, 4), f32([]int{2, 4, 3}, ctcLogits...), nil, []float64{2.442931, 2.454360}},
		{"88 ctc", &CTC{}, tensor.New([]int32{1, 2, 1}, 1, 3), f32([]int{1, 3, 3}, .4, .8, .4, .2, .8, .3, .9, .4, .5), nil, []float64{3.4411672}},
		{"88 ctc shorter", &CTC{}, tensor.New([]int32{1, 2, 0}, 1, 3), f32([]int{1, 2, 3}, .4, .8, .4, .2, .3, .3), nil, []float64{1.91680186}},
		{"89 dice", &Dice{}, f32(square, 1, 2, 1, 2), f32(square, 4, 1, 6, 1), nil, []float64{-0.55555546}},
		{"89 dice binary", &Dice{}, maskT, maskP, nil, []float64{0.77777773}},
		{"90 tversky", &Tversky{}, f32(square, 1, 2, 1, 2), f32(square, 4, 1, 6, 1), nil, []float64{-0.55555558}},
		{"90 tversky weights", &Tversky{Alpha: new(0.2), Beta: new(0.8)}, f32(square, 1, 2, 1, 2), f32(square, 4, 1, 6, 1), nil, []float64{-0.94444442}},
		{"90 tversky binary", &Tversky{}, maskT, maskP, nil, []float64{0.77777779}},
		{"90 tversky binary weights", &Tversky{Alpha: new(0.2), Beta: new(0.8)}, maskT, maskP, nil, []float64{0.76190472}},
		{"91 circle", &Circle{}, i32(1, 1, 2, 2, 3), faces, nil, []float64{188.3883}},
		{"91 circle weights", &Circle{}, i32(1, 1, 2, 2, 3), faces, f32([]int{5}, 2, 2, 1, 1, 0.5), []float64{244.91918}},
		{"91 circle 256", &Circle{Gamma: 256, Margin: new(0.25)}, i32(1, 1, 2, 2, 3), faces, nil, []float64{652.7617}},
		{"92 generalized", &CategoricalGeneralizedCrossEntropy{}, i32(0, 1, 0, 1), pairs, nil, []float64{0.35985972}},
		{"92 generalized .8", &CategoricalGeneralizedCrossEntropy{Q: 0.8}, i32(0, 1, 0, 1), pairs, nil, []float64{0.33832816}},
	} {
		got, err := c.loss.CallWeighted(c.t, c.p, c.w).Float64s()
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
			continue
		}
		for i := range got {
			// One unit of the fourth decimal: Keras's tests print no more for
			// some, and cut off what follows. Large ones have seven digits.
			if math.Abs(got[i]-c.want[i]) > 1e-4+1e-6*math.Abs(c.want[i]) {
				t.Errorf("%s: element %d: got %v, want %v", c.name, i, got[i], c.want[i])
			}
		}
	}
}

func TestGradientsAgainstDifferences(t *testing.T) {
	p := array([]int{3, 4}, 0.4, 0.1, 0.3, 0.2, 0.25, 0.3, 0.15, 0.9, 0.6, 0.35, 0.7, 0.45)
	oneHot := f32([]int{3, 4}, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0)
	soft := f32([]int{3, 4}, 0.1, 0.7, 0.1, 0.1, 0, 0.5, 0.25, 0.25, 1, 0, 0, 0)
	labels, w := i32(1, 3, 0), f32([]int{3}, 0.5, 2, 1)
	for _, c := range []struct {
		name string
		loss Weighted
		t    *tensor.Tensor
	}{
		{"mse", &MeanSquaredError{}, oneHot},
		{"mae", &MeanAbsoluteError{}, oneHot},
		{"huber", &Huber{Delta: 0.48}, oneHot},
		{"bce", &BinaryCrossentropy{}, soft},
		{"bce logits", &BinaryCrossentropy{FromLogits: true, LabelSmoothing: 0.1}, soft},
		{"cce", &CategoricalCrossentropy{LabelSmoothing: 0.1}, soft},
		{"cce logits", &CategoricalCrossentropy{FromLogits: true}, soft},
		{"cce axis", &CategoricalCrossentropy{Axis: new(0)}, soft},
		{"sparse", &SparseCategoricalCrossentropy{}, labels},
		{"sparse logits", &SparseCategoricalCrossentropy{FromLogits: true}, labels},
		{"sparse ignore", &SparseCategoricalCrossentropy{IgnoreClass: new(3)}, labels},
		{"mape", &MeanAbsolutePercentageError{}, soft.AddScalar(0.125)},
		{"msle", &MeanSquaredLogarithmicError{}, oneHot},
		{"cosine", &CosineSimilarity{}, soft},
		{"log cosh", &LogCosh{}, oneHot},
		{"hinge", &Hinge{}, oneHot},
		{"squared hinge", &SquaredHinge{}, soft},
		{"categorical hinge", &CategoricalHinge{}, oneHot},
		{"kl", &KLDivergence{}, soft},
		{"poisson", &Poisson{}, soft},
		{"binary focal", &BinaryFocalCrossentropy{ApplyClassBalancing: true}, soft},
		{"binary focal logits", &BinaryFocalCrossentropy{FromLogits: true, Gamma: new(1.5)}, oneHot},
		{"categorical focal", &CategoricalFocalCrossentropy{}, oneHot},
		{"categorical focal logits", &CategoricalFocalCrossentropy{FromLogits: true, LabelSmoothing: 0.1, Gamma: new(0.0)}, soft},
		{"dice", &Dice{Axis: []int{1}}, soft},
		{"tversky", &Tversky{Alpha: new(0.3), Beta: new(0.6), Axis: []int{-1}}, soft},
		{"circle", &Circle{Gamma: 3}, i32(1, 2, 1)},
		{"generalized", &CategoricalGeneralizedCrossEntropy{Q: 0.3}, labels},
		{"weighted mean", &SparseCategoricalCrossentropy{FromLogits: true, IgnoreClass: new(3), Reduction: "mean_with_sample_weight"}, labels},
	} {
		weight := w
		if c.name == "cce axis" {
			weight = nil // its losses are those of four columns
		}
		tensortest.CheckGradient(t, c.name, p, func(x *tensor.Tensor) *tensor.Tensor {
			return c.loss.CallWeighted(c.t, x, weight)
		})
	}
}

// TestGradientOfCTC has a repeated label, an inner blank, and no labels at all.
func TestGradientOfCTC(t *testing.T) {
	x := array([]int{3, 4, 3})
	for i := range 36 {
		x.Data = append(x.Data, math.Sin(float64(7*i)))
	}
	labels := tensor.New([]int32{1, 1, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0}, 3, 4)
	for _, w := range []*tensor.Tensor{nil, f32([]int{3}, 0.5, 2, 1)} {
		tensortest.CheckGradient(t, "ctc", x, func(x *tensor.Tensor) *tensor.Tensor { return (&CTC{}).CallWeighted(labels, x, w) })
	}
}

// Long sequences of confident predictions: float32 keeps its digits, and what
// cannot be keeps out of it.
func TestLongCTC(t *testing.T) {
	const steps = 60
	var x []float64
	for i := range steps {
		x = append(x, 30*math.Cos(float64(i)), 30*math.Sin(float64(3*i)), -30)
	}
	labels := tensor.New([]int32{1, 1, 2, 0}, 1, 4)
	loss := func(d dtype.DType) *tensor.Tensor {
		return (&CTC{}).Call(labels, tensortest.Of(dtype.Float32, x, 1, steps, 3).As(d).Tensor())
	}
	want, err := loss(dtype.Float64).Item()
	if err != nil {
		t.Fatal(err)
	}
	// Each step adds a rounding of the sum so far.
	tensortest.Close(t, "ctc", loss(dtype.Float32), tensortest.Of(dtype.Float64, []float64{want}), 2)
}

// A head in float16 gives what float32 gives for the same rounded logits: the
// loss does not round again.
func TestSixteenBits(t *testing.T) {
	data := []float64{2, -1.5, 0.25, -3, 4, 1.125, 0.5, 0.75, -0.375}
	labels := i32(0, 2, 1)
	oneHot := f32([]int{3, 3}, 1, 0, 0, 0, 0, 1, 0, 1, 0)
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		x := tensortest.Of(d, data, 3, 3)
		wide := x.As(dtype.Float32)
		for _, c := range []struct {
			name string
			loss Loss
			t    *tensor.Tensor
			head func(x *tensor.Tensor) *tensor.Tensor
		}{
			{"mse", &MeanSquaredError{}, oneHot, (*tensor.Tensor).Neg},
			{"huber", &Huber{}, oneHot, (*tensor.Tensor).Neg},
			{"bce logits", &BinaryCrossentropy{FromLogits: true}, oneHot, (*tensor.Tensor).Neg},
			{"bce sigmoid", &BinaryCrossentropy{}, oneHot, (*tensor.Tensor).Sigmoid},
			{"cce softmax", &CategoricalCrossentropy{}, oneHot, func(x *tensor.Tensor) *tensor.Tensor { return x.Softmax(-1) }},
			{"sparse softmax", &SparseCategoricalCrossentropy{}, labels, func(x *tensor.Tensor) *tensor.Tensor { return x.Softmax(-1) }},
			{"mape", &MeanAbsolutePercentageError{}, oneHot, (*tensor.Tensor).Neg},
			{"log cosh", &LogCosh{}, oneHot, (*tensor.Tensor).Neg},
			{"squared hinge", &SquaredHinge{}, oneHot, (*tensor.Tensor).Neg},
			{"poisson", &Poisson{}, oneHot, func(x *tensor.Tensor) *tensor.Tensor { return x.Softmax(-1) }},
			{"binary focal", &BinaryFocalCrossentropy{}, oneHot, (*tensor.Tensor).Sigmoid},
			{"categorical focal", &CategoricalFocalCrossentropy{}, oneHot, func(x *tensor.Tensor) *tensor.Tensor { return x.Softmax(-1) }},
			{"dice", &Dice{}, oneHot, (*tensor.Tensor).Sigmoid},
			{"circle", &Circle{Gamma: 2}, i32(1, 2, 1), func(x *tensor.Tensor) *tensor.Tensor { return x.Softmax(-1) }},
			{"generalized", &CategoricalGeneralizedCrossEntropy{}, labels, func(x *tensor.Tensor) *tensor.Tensor { return x.Softmax(-1) }},
			{"ctc", &CTC{}, tensor.New([]int32{1, 2, 0}, 3, 1), func(x *tensor.Tensor) *tensor.Tensor { return x.ExpandDims(1) }},
		} {
			in := x.Tensor()
			got := c.loss.Call(c.t, c.head(in))
			if got.DType() != dtype.Float32 {
				t.Errorf("%s: got a loss of %v for %v, want float32", c.name, got.Type(), d)
			}
			if g := tensor.GradientsAt(got, in)[0]; g == nil || g.DType() != d {
				t.Errorf("%s: got gradient %v for %v, want its type", c.name, g, d)
			}
			v, err := c.loss.Call(c.t, c.head(wide.Tensor())).Item()
			if err != nil {
				t.Fatal(err)
			}
			tensortest.Close(t, c.name, got, array(nil, v), 1)
		}
	}
}

// TestLogitsBehindProbabilities uses logits whose probabilities are 0 and 1 in
// float32, where the loss from probabilities would be -ln 1e-7 ≈ 16.1 and its
// gradient 0.
func TestLogitsBehindProbabilities(t *testing.T) {
	x := f32([]int{2, 2}, 200, 0, 0, 300)
	for _, c := range []struct {
		name string
		loss Loss
		t    *tensor.Tensor
		head func() *tensor.Tensor
		want float64
	}{
		{"sparse", &SparseCategoricalCrossentropy{}, i32(1, 0), func() *tensor.Tensor { return x.Softmax(-1) }, 250},
		{"sparse from logits", &SparseCategoricalCrossentropy{FromLogits: true}, i32(1, 0), func() *tensor.Tensor { return x.Softmax(-1) }, 250},
		{"cce", &CategoricalCrossentropy{}, f32([]int{2, 2}, 0, 1, 1, 0), func() *tensor.Tensor { return x.Softmax(-1) }, 250},
		{"bce", &BinaryCrossentropy{}, f32([]int{2, 2}, 0, 0, 1, 0), func() *tensor.Tensor { return x.Sigmoid() }, (200 + 2*math.Ln2 + 300) / 4},
	} {
		loss := c.loss.Call(c.t, c.head())
		v, err := loss.Item()
		if err != nil || !tensortest.Within(dtype.Float32, v, c.want, 1) {
			t.Errorf("%s: got %v, %v, want %v", c.name, v, err, c.want)
		}
		g, err := tensor.GradientsAt(loss, x)[0].Float64s()
		if err != nil || g[0] == 0 || g[3] == 0 {
			t.Errorf("%s: got gradient %v, %v, want one that moves the wrong logits", c.name, g, err)
		}
	}
	// A softmax over another axis is not that of the classes.
	v, err := (&SparseCategoricalCrossentropy{}).Call(i32(1, 0), x.Softmax(0)).Item()
	if err != nil || v > 17 {
		t.Errorf("softmax over the batch: got %v, %v, want a loss of probabilities", v, err)
	}
}

// At a logit of 0, where networks with zero weights begin, the gradient is
// that of the formula, not of a kink in how it is computed.
func TestBinaryGradientAtZero(t *testing.T) {
	x := f32([]int{1, 2}, 0, 0)
	loss := (&BinaryCrossentropy{FromLogits: true}).Call(f32([]int{1, 2}, 1, 0), x)
	tensortest.Close(t, "gradient", tensor.GradientsAt(loss, x)[0], array([]int{1, 2}, -0.25, 0.25), 1)
}

func TestLabelTypes(t *testing.T) {
	p := f32([]int{2, 3}, 0.2, 0.3, 0.5, 0.1, 0.8, 0.1)
	want := -(math.Log(0.5) + math.Log(0.8)) / 2
	for _, labels := range []*tensor.Tensor{
		tensor.New([]uint8{2, 1}, 2), tensor.New([]int32{2, 1}, 2), tensor.New([]int64{2, 1}, 2, 1), f32([]int{2}, 2, 1),
	} {
		v, err := (&SparseCategoricalCrossentropy{}).Call(labels, p).Item()
		if err != nil || !tensortest.Within(dtype.Float32, v, want, 1) {
			t.Errorf("labels %v: got %v, %v, want %v", labels.Type(), v, err, want)
		}
	}
}

func TestDegenerateBatches(t *testing.T) {
	p := f32([]int{2, 2}, 0.5, math.NaN(), 0.25, 0.75)
	all := &SparseCategoricalCrossentropy{IgnoreClass: new(0)}
	for _, c := range []struct {
		name string
		loss *tensor.Tensor
		want float64
	}{
		{"everything ignored", all.Call(i32(0, 0), p), 0},
		{"a NaN ignored", all.Call(i32(0, 1), p), -math.Log(0.75)},
		{"no samples", (&MeanSquaredError{}).Call(f32([]int{0, 2}), f32([]int{0, 2})), 0},
		{"weights of zero", (&MeanSquaredError{Reduction: "mean_with_sample_weight"}).CallWeighted(f32([]int{1, 1}, 2), f32([]int{1, 1}, 3), f32([]int{1}, 0)), 0},
		{"a scalar", (&MeanAbsoluteError{}).Call(f32(nil, 2), f32(nil, 5)), 3},
	} {
		v, err := c.loss.Item()
		if err != nil || !tensortest.Within(dtype.Float32, v, c.want, 1) {
			t.Errorf("%s: got %v, %v, want %v", c.name, v, err, c.want)
		}
	}
}

func TestErrors(t *testing.T) {
	p := f32([]int{2, 3}, 1, 2, 3, 4, 5, 6)
	broken := tensor.Broken(errors.New("layer dense: Units is -1, want a positive number"))
	for _, c := range []struct {
		call func() *tensor.Tensor
		want string
	}{
		{func() *tensor.Tensor { return (&SparseCategoricalCrossentropy{}).Call(i32(0, 1, 2), p) },
			`SparseCategoricalCrossentropy: got labels int32[3] for predictions float32[2 3], want shape [2]`},
		{func() *tensor.Tensor { return (&SparseCategoricalCrossentropy{}).Call(p, p) },
			`SparseCategoricalCrossentropy: got labels float32[2 3] for predictions float32[2 3], want shape [2]; one-hot targets are for the classes without Sparse in their name`},
		{func() *tensor.Tensor { return (&SparseCategoricalCrossentropy{}).Call(i32(0), f32(nil, 1)) },
			`SparseCategoricalCrossentropy: got predictions float32[], want a last axis of classes`},
		{func() *tensor.Tensor { return (&CategoricalCrossentropy{}).Call(f32([]int{2, 2}, 0, 1, 1, 0), p) },
			`CategoricalCrossentropy: got targets float32[2 2] for predictions float32[2 3], want equal shapes`},
		{func() *tensor.Tensor { return (&CategoricalCrossentropy{}).Call(i32(1, 2), p) },
			`CategoricalCrossentropy: got targets int32[2] for predictions float32[2 3], want equal shapes; class indices are for the classes with Sparse in their name`},
		{func() *tensor.Tensor { return (&CategoricalCrossentropy{Axis: new(2)}).Call(p, p) },
			`CategoricalCrossentropy: got predictions float32[2 3], want axis 2 in them`},
		{func() *tensor.Tensor { return (&CategoricalCrossentropy{LabelSmoothing: 2}).Call(p, p) },
			`CategoricalCrossentropy: got LabelSmoothing 2, want a number from 0 to 1`},
		{func() *tensor.Tensor { return (&BinaryCrossentropy{}).Call(f32([]int{3}, 0, 1, 1), p) },
			`BinaryCrossentropy: got targets float32[3] for predictions float32[2 3], want equal shapes`},
		{func() *tensor.Tensor { return (&MeanSquaredError{}).Call(f32([]int{2, 1}, 0, 1), p) },
			`MeanSquaredError: got targets float32[2 1] for predictions float32[2 3], want equal shapes`},
		{func() *tensor.Tensor { return (&MeanSquaredError{}).Call(nil, p) },
			`MeanSquaredError: got nil targets, want a tensor`},
		{func() *tensor.Tensor { return (&MeanSquaredError{}).Call(p, tensor.Tuple(p, p)) },
			`MeanSquaredError: got a tuple of 2 predictions, want one tensor`},
		{func() *tensor.Tensor { return (&MeanSquaredError{Reduction: "avg"}).Call(p, p) },
			`MeanSquaredError: got reduction "avg", want one of sum_over_batch_size, mean, sum, none, mean_with_sample_weight`},
		{func() *tensor.Tensor {
			return (&MeanAbsoluteError{}).CallWeighted(p, p, f32([]int{3}, 1, 2, 3))
		}, `MeanAbsoluteError: got sample weights float32[3] for losses of shape [2], want that shape or one that broadcasts to it`},
		{func() *tensor.Tensor { return (&Huber{Delta: -1}).Call(p, p) },
			`Huber: got Delta -1, want a positive number`},
		{func() *tensor.Tensor { return (&BinaryFocalCrossentropy{Gamma: new(-1.0)}).Call(p, p) },
			`BinaryFocalCrossentropy: got Gamma -1, want a number that is not negative`},
		{func() *tensor.Tensor { return (&CategoricalGeneralizedCrossEntropy{Q: 1}).Call(i32(0, 1), p) },
			`CategoricalGeneralizedCrossEntropy: got Q 1, want a number above 0 and below 1`},
		{func() *tensor.Tensor { return (&CosineSimilarity{Axis: new(2)}).Call(p, p) },
			`CosineSimilarity: got predictions float32[2 3], want axis 2 in them`},
		{func() *tensor.Tensor { return (&Dice{Axis: []int{-3}}).Call(p, p) },
			`Dice: got predictions float32[2 3], want axis -3 in them`},
		{func() *tensor.Tensor { return (&CTC{}).Call(i32(0, 1), p) },
			`CTC: got predictions float32[2 3], want logits [batch steps classes]`},
		{func() *tensor.Tensor { return (&CTC{}).Call(i32(0, 1), p.ExpandDims(1)) },
			`CTC: got labels int32[2] for predictions float32[2 1 3], want [batch labels], padded with 0`},
		{func() *tensor.Tensor { return (&CTC{}).Call(tensor.New([]int32{1, 3}, 2, 1), p.ExpandDims(1)) },
			`layer loss/ctc: Gather: index 3 at position 1 is out of range, want 0 to 2`},
		{func() *tensor.Tensor { return (&MeanSquaredError{}).Call(p, broken) },
			`layer dense: Units is -1, want a positive number`},
		{func() *tensor.Tensor { return (&SparseCategoricalCrossentropy{}).Call(i32(0, 12), p) },
			`layer loss/sparse_categorical_crossentropy: TakeAlongAxis: index 12 at position 1 is out of range, want 0 to 2`},
		{func() *tensor.Tensor {
			return (&SparseCategoricalCrossentropy{}).Call(i32(0, 1), f32([]int{2, 1}, 0.5, 0.5))
		},
			`SparseCategoricalCrossentropy: got predictions float32[2 1] of 1 class, want at least 2; for a head with 1 output use BinaryCrossentropy`},
		{func() *tensor.Tensor {
			return (&SparseCategoricalCrossentropy{Name: "digits"}).Call(tensor.New([]int64{-1, 1}, 2), p)
		},
			`layer loss/digits: TakeAlongAxis: index -1 at position 0 is out of range, want 0 to 2`},
	} {
		if err := failure(c.call); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// TestLabelsOfFloats: class indices may be floats, if they are whole numbers.
// NaN and fractions are errors that name the loss, in every float type.
func TestLabelsOfFloats(t *testing.T) {
	p := tensortest.Of(dtype.Float32, []float64{0.2, 0.5, 0.3, 0.6, 0.3, 0.1}, 2, 3).Tensor()
	wrong := "index -2147483648 at position 1 is out of range, want 0 to 2; NaN and numbers with a fraction count as -2147483648"
	for _, c := range []struct {
		name string
		loss Weighted
		p    *tensor.Tensor
		op   string
	}{
		{"sparse_categorical_crossentropy", &SparseCategoricalCrossentropy{}, p, "TakeAlongAxis"},
		{"logits", &SparseCategoricalCrossentropy{FromLogits: true, Name: "logits"}, p, "TakeAlongAxis"},
		{"softmax", &SparseCategoricalCrossentropy{Name: "softmax"}, p.Softmax(-1), "TakeAlongAxis"},
		{"ignoring", &SparseCategoricalCrossentropy{IgnoreClass: new(-1), Name: "ignoring"}, p, "TakeAlongAxis"},
		{"categorical_generalized_cross_entropy", &CategoricalGeneralizedCrossEntropy{}, p, "TakeAlongAxis"},
		{"circle", &Circle{}, p, "Gather"},
		{"ctc", &CTC{}, p.ExpandDims(1), "Gather"},
	} {
		for _, d := range []dtype.DType{dtype.Float64, dtype.Float32, dtype.BFloat16, dtype.Float16} {
			labels := func(v float64) *tensor.Tensor { return tensortest.Of(d, []float64{1, v}, 2, 1).Tensor() }
			got, err := c.loss.Call(labels(2), c.p).Item()
			want, err2 := c.loss.Call(tensor.New([]int32{1, 2}, 2, 1), c.p).Item()
			if err != nil || err2 != nil || got != want {
				t.Errorf("%s of %v: got %v, %v, want %v, %v as for integers", c.name, d, got, err, want, err2)
			}
			for _, v := range []float64{math.NaN(), -0.5, 0.5, 1.9921875, math.Inf(-1)} {
				err := failure(func() *tensor.Tensor { return c.loss.Call(labels(v), c.p) })
				if want := "layer loss/" + c.name + ": " + c.op + ": " + wrong; err == nil || err.Error() != want {
					t.Errorf("%s of %v label %v: got  %v\nwant %s", c.name, d, v, err, want)
				}
			}
			if c.name == "circle" {
				continue // its labels are any numbers
			}
			for v, index := range map[float64]int{-1: -1, 3: 3, math.Inf(1): math.MaxInt32} {
				if c.name == "ignoring" && v < 0 {
					continue
				}
				err := failure(func() *tensor.Tensor { return c.loss.Call(labels(v), c.p) })
				if want := fmt.Sprintf("layer loss/%s: %s: index %d at position 1 is out of range, want 0 to 2", c.name, c.op, index); err == nil || err.Error() != want {
					t.Errorf("%s of %v label %v: got  %v\nwant %s", c.name, d, v, err, want)
				}
			}
		}
	}
}

func TestGet(t *testing.T) {
	for _, n := range Names() {
		l, err := Get(n)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := l.(Weighted); !ok {
			t.Errorf("%s: %T is not Weighted", n, l)
		}
	}
	for alias, name := range map[string]string{
		"mse": "mean_squared_error", "MAE": "mean_absolute_error", "bce": "binary_crossentropy", "huber": "huber_loss",
		"mape": "mean_absolute_percentage_error", "MSLE": "mean_squared_logarithmic_error", "kld": "kl_divergence", "KLD": "kl_divergence",
		"logcosh": "log_cosh", "Hinge": "hinge", "ctc": "ctc", "Circle": "circle", "Dice": "dice", "tversky": "tversky",
		"categorical_crossentropy": "categorical_crossentropy", "SparseCategoricalCrossentropy": "sparse_categorical_crossentropy",
	} {
		if l, err := Get(alias); err != nil || l.(Weighted).LossName() != name {
			t.Errorf("Get(%q): got %v, %v, want %s", alias, l, err, name)
		}
	}
	_, err := Get("sparse_crossentropy")
	want := `losses: unknown loss "sparse_crossentropy"; did you mean "sparse_categorical_crossentropy"? have ` + strings.Join(Names(), ", ")
	if err == nil || err.Error() != want || !slices.Contains(Names(), "mse") {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(&SparseCategoricalCrossentropy{FromLogits: true, IgnoreClass: new(255)})
	want := `{"FromLogits":true,"IgnoreClass":255,"Axis":null,"Reduction":"","Name":""}`
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v, want %s", b, err, want)
	}
}

// TestSparseAxis: classes along another axis, as of channels_first pictures,
// are those along the last one of what is turned.
func TestSparseAxis(t *testing.T) {
	for _, fromLogits := range []bool{true, false} {
		labels := i32(0, 2, 1, 1, 2, 0).Reshape(1, 2, 3)
		var data []float64
		for i := range 18 {
			data = append(data, 0.1+float64(i*7%18)/20)
		}
		last := f32([]int{1, 2, 3, 3}, data...)
		want := (&SparseCategoricalCrossentropy{FromLogits: fromLogits, Reduction: "none", IgnoreClass: new(2)}).Call(labels, last)
		got := (&SparseCategoricalCrossentropy{FromLogits: fromLogits, Reduction: "none", IgnoreClass: new(2), Axis: new(1)}).Call(labels, last.Transpose(0, 3, 1, 2))
		w, err := want.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		tensortest.Close(t, "classes along axis 1", got, tensortest.Of(dtype.Float32, w, want.Shape()...), 0)
	}
}
