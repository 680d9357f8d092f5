package layers_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

// matrix is a tensor of the given shape.
func matrix(shape []int, v ...float32) *tensor.Tensor { return tensor.New(v, shape...) }

// TestLayerVectors are the numbers that Keras's tests of other layers assert.
func TestLayerVectors(t *testing.T) {
	type ts = []*tensor.Tensor
	ones := func(l *layers.LayerNormalization) *layers.LayerNormalization {
		l.BetaInitializer, l.GammaInitializer = "ones", "ones"
		return l
	}
	groups := func(n int) layers.Layer {
		return &layers.GroupNormalization{Groups: new(n), Scale: new(false), Center: new(false)}
	}
	row := matrix([]int{1, 8}, -1, -1, 1, 1, 2, 2, 0, -2)
	two := []int{1, 2, 2}
	q, k, v := matrix(two, 1, 0, 0, 1), matrix(two, 0, 1, 1, 0), matrix(two, 1, 2, 3, 4)
	for _, v := range []vector{
		{name: "110", layer: ones(&layers.LayerNormalization{}), in: ts{arange(1, 1, 5)}, want: [][]float64{{-.41386, .29307, 1, 1.70693, 2.41386}}, tolerance: 2e-4},
		{name: "111", layer: &layers.RMSNormalization{}, in: ts{arange(1, 1, 10)}, want: [][]float64{scaled(0.18731716, 10)}},
		{name: "112", layer: &layers.GroupNormalization{Groups: new(2), Axis: new(1)}, in: ts{arange(1, 1, 4, 2, 2)}, tolerance: 1e-3,
			want: [][]float64{{-1.5274, -1.0910, -.6546, -.2182, .2182, .6546, 1.0910, 1.5274, -1.5274, -1.0910, -.6546, -.2182, .2182, .6546, 1.0910, 1.5274}}},
		{name: "113 one", layer: groups(1), in: ts{row}, want: [][]float64{{-.898, -.898, .539, .539, 1.257, 1.257, -.180, -1.616}}, tolerance: 1e-3},
		{name: "113 two", layer: groups(2), in: ts{row}, want: [][]float64{{-1, -1, 1, 1, .904, .904, -.301, -1.507}}, tolerance: 1e-3},
		{name: "116 dot", layer: &layers.Attention{ReturnAttentionScores: true}, in: ts{q, v, k}, tolerance: 1e-3,
			want: [][]float64{{2.462, 3.462, 1.538, 2.538}, {.269, .731, .731, .269}}},
		{name: "116 concat", layer: &layers.Attention{ScoreMode: "concat", ReturnAttentionScores: true}, in: ts{q, v, k}, tolerance: 1e-3,
			want: [][]float64{{1.727, 2.727, 2.272, 3.272}, {.636, .363, .363, .636}}},
		{name: "116 additive", layer: &layers.AdditiveAttention{UseScale: new(false), ReturnAttentionScores: true}, in: ts{q, v, k}, tolerance: 1e-3,
			want: [][]float64{{1.727, 2.727, 2.272, 3.272}, {.636, .363, .363, .636}}},
	} {
		t.Run(v.name, func(t *testing.T) { v.check(t) })
	}
}

// scaled is 0, 1, 2 … times factor.
func scaled(factor float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(i) * factor
	}
	return out
}

// withWeights is a layer that is built for x and has the given weights.
func withWeights(t *testing.T, l layers.Layer, x *tensor.Tensor, weights ...[]float64) {
	t.Helper()
	if err := apply(l, layers.Pass{}, layertest.Symbols(x)); err != nil {
		t.Fatal(err)
	}
	for i, w := range layers.BaseOf(l).Weights() {
		if err := w.Set(weights[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWeightVectors are those of layers that are given weights.
func TestWeightVectors(t *testing.T) {
	x := matrix([]int{1, 2}, -1, 2)
	dense := vector{layer: &layers.Dense{Units: 2, Activation: "relu"}, in: []*tensor.Tensor{x}, want: [][]float64{{10, 0}}} // 109
	withWeights(t, dense.layer, x, []float64{1, -2, 3, -4}, []float64{5, -6})
	dense.check(t)

	x = matrix([]int{2, 3}, .1, .2, .3, .4, .5, .6)
	norm := vector{layer: &layers.BatchNormalization{Epsilon: new(1e-7)}, in: []*tensor.Tensor{x}, want: [][]float64{{4.5, 9.5, 14.625, 6, 11, 15.75}}} // 114
	withWeights(t, norm.layer, x, []float64{10, 20, 30}, []float64{5, 10, 15}, []float64{.2, .3, .4}, []float64{4, 16, 64})
	norm.check(t)

	// 117: in head h all but the projections' kernels is plain.
	eye := make([]float64, 8*8*8) // [i j k]: 1 where i is k
	identity := make([]float32, 8*8)
	for i := range 8 {
		identity[9*i] = 1
		for j := range 8 {
			eye[64*i+8*j+i] = 1
		}
	}
	query, value := matrix([]int{1, 8, 8}, identity...), arange(0.01, 1, 8, 8)
	var outs, scores []float64
	for t, v := range []float64{2.406, 2.440, 2.473, 2.504, 2.535, 2.568, 2.602, 2.633} {
		outs = append(outs, each(8, v)...)
		for s := range 8 {
			scores = append(scores, map[bool]float64{true: .1691, false: .1187}[s == t])
		}
	}
	scores = slices.Repeat(scores, 8)
	zeros := make([]float64, 64)
	heads := vector{layer: &layers.MultiHeadAttention{NumHeads: 8, KeyDim: 8, DType: "mixed_float16", ReturnAttentionScores: true},
		in: []*tensor.Tensor{query, value, query}, want: [][]float64{outs, scores}, tolerance: 1e-2 / 3.5}
	withWeights(t, heads.layer, tensor.Tuple(heads.in...), eye, zeros, eye, zeros, eye, zeros, eye, zeros[:8])
	heads.check(t)
}

// TestMaskedStatisticsVector is vector 115: statistics of the steps that
// Masking leaves, after five epochs.
func TestMaskedStatisticsVector(t *testing.T) {
	const pad = -1
	var data []float32
	for range 10 {
		data = append(data, 1, 5, 2, 5, pad, pad, pad, pad)
	}
	mask, norm := &layers.Masking{MaskValue: pad}, &layers.BatchNormalization{Momentum: new(0.0)}
	x := tensor.New(data, 10, 4, 2)
	run := tensor.Function(func(struct{}) *tensor.Tensor {
		p := layers.Pass{Training: true}
		return layers.Apply(norm, p, layers.Apply(mask, p, x))
	}, layers.BaseOf(norm))
	if err := apply(norm, layers.Pass{}, layertest.Symbols(x)); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := run.Call(context.Background(), struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range [][]float64{{1.5, 5}, {.25, 0}} {
		got, err := layers.BaseOf(norm).NonTrainableWeights()[i].Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for j, w := range want {
			if !(math.Abs(got[j]-w) <= 1e-6) {
				t.Errorf("statistic %d: got %v, want %v", i, got, want)
			}
		}
	}
}

// TestVarianceVector is vector 118: a variance beyond float16, which Keras's
// function clips to 65504, is float32 here and has its own value.
func TestVarianceVector(t *testing.T) {
	x := matrix([]int{8, 1}, -741, 353.2, 1099, -1807, 502.8, -83.4, 333.5, -130.9)
	norm := &layers.BatchNormalization{Momentum: new(0.0), DType: "mixed_float16"}
	build(t, norm, -1, 1)
	y, err := layertest.Function(norm, true).Call(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	values, err := y.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	variance, err := layers.BaseOf(norm).NonTrainableWeights()[1].Float64s()
	if err != nil {
		t.Fatal(err)
	}
	// In float64: mean -59.225, variance 688,368.
	if want := 688368.; math.Abs(variance[0]-want) > 1e-4*want {
		t.Errorf("got variance %v, want %v", variance[0], want)
	}
	if want := (-741 + 59.225) / math.Sqrt(688368); y.DType() != dtype.Float16 || math.Abs(values[0]-want) > 1e-3 {
		t.Errorf("got %v, %v first, want %v", y.Type(), values[0], want)
	}
}

// TestActivationVectors are vectors 119 and 120.
func TestActivationVectors(t *testing.T) {
	for _, c := range []struct {
		name     string
		in, want []float64
	}{
		{"sigmoid", []float64{-1, 0, 1, 2, 3}, []float64{.26894143, .5, .7310586, .880797, .95257413}},
		{"softplus", []float64{-1, 0, 1, 2, 3}, []float64{.31326166, .6931472, 1.3132616, 2.126928, 3.0485873}},
		{"silu", []float64{-1, 0, 1, 2, 3}, []float64{-.26894143, 0, .7310586, 1.7615942, 2.8577223}},
		{"gelu(approximate=True)", []float64{-1, 0, 1, 2, 3}, []float64{-.15880796, 0, .841192, 1.9545977, 2.9963627}},
		{"elu", []float64{-1}, []float64{-.63212055}},
		{"elu(alpha=0.5)", []float64{-1}, []float64{-.31606027}},
		{"selu", []float64{-1, 1}, []float64{-1.1113307, 1.050701}},
		{"hard_sigmoid", []float64{-1, 0, 1, 2, 3}, []float64{.33333334, .5, .6666667, .8333334, 1}},
		{"softsign", []float64{-1, 0, 1, 2, 3}, []float64{-.5, 0, .5, .6666667, .75}},
		{"tanh_shrink", []float64{2}, []float64{1.035972}},
		{"leaky_relu", []float64{-1}, []float64{-.2}},
		{"softmax", []float64{1, 2, 3}, []float64{.09003057, .24472848, .66524094}},
		{"log_softmax", []float64{1, 2, 3}, []float64{-2.407606, -1.407606, -.407606}},
		{"squareplus(b=4)", []float64{-.5, 0, 1, 2, 3}, []float64{.780776, 1, 1.618034, 2.414214, 3.302776}},
		{"soft_shrink", []float64{-.5, 0, 1, 2, 3}, []float64{0, 0, .5, 1.5, 2.5}},
	} {
		in := make([]float32, len(c.in))
		for i, x := range c.in {
			in[i] = float32(x)
		}
		v := vector{layer: &layers.Activation{Activation: c.name}, in: []*tensor.Tensor{matrix([]int{1, len(in)}, in...)}, want: [][]float64{c.want}, tolerance: 1e-6}
		t.Run(c.name, func(t *testing.T) { v.check(t) })
	}
}

// TestTransposeVector is vector 132: shapes of transposed convolutions.
func TestTransposeVector(t *testing.T) {
	for _, c := range []struct {
		layer *layers.Conv1DTranspose
		want  string
	}{
		{&layers.Conv1DTranspose{Filters: 5, KernelSize: layers.PerAxis{2}, Strides: layers.PerAxis{2}}, "[2 16 5]"},
		{&layers.Conv1DTranspose{Filters: 6, KernelSize: layers.PerAxis{2}, Strides: layers.PerAxis{3}, Padding: "same", OutputPadding: layers.PerAxis{2}}, "[2 23 6]"},
	} {
		if got := fmt.Sprint(layers.Apply(c.layer, layers.Pass{}, tensor.Placeholder(dtype.Float32, 2, 8, 4)).Shape()); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
