package losses

import (
	"encoding/json"
	"errors"
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
			// some, and cut off what follows.
			if math.Abs(got[i]-c.want[i]) > 1e-4 {
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
		{func() *tensor.Tensor { return (&MeanSquaredError{}).Call(p, broken) },
			`layer dense: Units is -1, want a positive number`},
		{func() *tensor.Tensor { return (&SparseCategoricalCrossentropy{}).Call(i32(0, 12), p) },
			`layer loss/sparse_categorical_crossentropy: TakeAlong: index 12 at position 1 is out of range, want 0 to 2`},
		{func() *tensor.Tensor {
			return (&SparseCategoricalCrossentropy{Name: "digits"}).Call(tensor.New([]int64{-1, 1}, 2), p)
		},
			`layer loss/digits: TakeAlong: index -1 at position 0 is out of range, want 0 to 2`},
	} {
		if err := failure(c.call); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
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
		"categorical_crossentropy": "categorical_crossentropy", "SparseCategoricalCrossentropy": "sparse_categorical_crossentropy",
	} {
		if l, err := Get(alias); err != nil || l.(Weighted).LossName() != name {
			t.Errorf("Get(%q): got %v, %v, want %s", alias, l, err, name)
		}
	}
	_, err := Get("msee")
	want := `losses: got "msee", want one of ` + strings.Join(Names(), ", ")
	if err == nil || err.Error() != want || !slices.Contains(Names(), "mse") {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(&SparseCategoricalCrossentropy{FromLogits: true, IgnoreClass: new(255)})
	want := `{"FromLogits":true,"IgnoreClass":255,"Reduction":"","Name":""}`
	if err != nil || string(b) != want {
		t.Errorf("got %s, %v, want %s", b, err, want)
	}
}
