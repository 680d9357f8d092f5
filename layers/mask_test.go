package layers_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

// TestMaskRules checks the type of the mask that each kind of layer leaves on
// its result, on placeholders.
func TestMaskRules(t *testing.T) {
	x := tensor.Placeholder(dtype.Float32, -1, 5, 4).WithMask(tensor.Placeholder(dtype.Bool, -1, 5))
	bare := tensor.Placeholder(dtype.Float32, -1, 5, 4)
	for _, c := range []struct {
		layer layers.Layer
		in    *tensor.Tensor
		want  tensor.Shape // nil: no mask
	}{
		{&layers.Dense{Units: 2}, x, tensor.Shape{-1, 5}},
		{&layers.Dense{Units: 2, DType: "mixed_bfloat16"}, x, tensor.Shape{-1, 5}},
		{&layers.Identity{}, x, tensor.Shape{-1, 5}},
		{&layers.Dropout{Rate: 0.5}, x, tensor.Shape{-1, 5}},
		{&layers.Softmax{}, x, tensor.Shape{-1, 5}},
		{&layers.GroupNormalization{Groups: new(2)}, x, tensor.Shape{-1, 5}},
		{&layers.Reshape{TargetShape: []int{5, 4}}, x, nil}, // the same tensor
		{&layers.RMSNormalization{}, x, nil},
		{&layers.Flatten{}, x, nil},
		{&layers.EinsumDense{Equation: "...x,xy->...y", OutputShape: layers.PerAxis{3}}, x, nil},
		{&layers.Add{}, tensor.Tuple(x, x), tensor.Shape{-1, 5}},
		{&layers.Add{}, tensor.Tuple(x, bare), nil},
		{&layers.Concatenate{Axis: new(1)}, tensor.Tuple(bare, x), tensor.Shape{-1, 10}},
		{&layers.Concatenate{}, tensor.Tuple(bare, x), nil},
		{&layers.Concatenate{}, tensor.Tuple(x, x), tensor.Shape{-1, 5}},
		{&layers.Concatenate{}, tensor.Tuple(bare, bare), nil},
		{&layers.Attention{}, tensor.Tuple(x, bare), tensor.Shape{-1, 5}},
		{&layers.Attention{}, tensor.Tuple(bare, x), nil},
		{&layers.MultiHeadAttention{NumHeads: 1, KeyDim: 2}, tensor.Tuple(x, bare), tensor.Shape{-1, 5}},
		{&layers.MultiHeadAttention{NumHeads: 1, KeyDim: 2, ReturnAttentionScores: true}, tensor.Tuple(bare, x), nil},
		{&layers.SpectralNormalization{Layer: &layers.Dense{Units: 2}}, x, tensor.Shape{-1, 5}},
		{&layers.SpectralNormalization{Layer: &layers.EinsumDense{Equation: "abc,cd->abd", OutputShape: layers.PerAxis{-1, 2}}}, x, nil},
		{&layers.Masking{}, bare, tensor.Shape{-1, 5}},
		{&layers.Embedding{InputDim: 3, OutputDim: 2, MaskZero: true}, tensor.Placeholder(dtype.Int32, -1, 5), tensor.Shape{-1, 5}},
		{&layers.Embedding{InputDim: 3, OutputDim: 2}, tensor.Placeholder(dtype.Int32, -1, 5).WithMask(x.Mask()), nil},
	} {
		for i, y := range layers.Apply(c.layer, layers.Pass{}, c.in).Unpack() {
			want := c.want
			if i > 0 {
				want = nil // scores
			}
			m := y.Mask()
			if (m == nil) != (want == nil) || m != nil && !m.Shape().Equal(want) {
				t.Errorf("%s: result %d: got mask %v, want shape %v", layers.Class(c.layer), i, m, want)
			}
		}
	}
	// A result that lost the axes of the mask has none.
	y := layers.Apply(&layers.Dense{Units: 2}, layers.Pass{}, x.WithMask(tensor.Placeholder(dtype.Bool, -1, 5, 4)))
	if y.Mask() != nil {
		t.Errorf("Dense with a mask of its features: got mask %v, want none", y.Mask())
	}
}

// call computes l on x in a Function; masks of x must be attached inside.
func call(t *testing.T, l layers.Layer, p layers.Pass, prepare func(x *tensor.Tensor) *tensor.Tensor, x *tensor.Tensor) *tensor.Tensor {
	t.Helper()
	f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor { return layers.Apply(l, p, prepare(x)) }, layers.BaseOf(l))
	y, err := f.Call(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	return y
}

// TestNothingVisible: a query all of whose steps are masked gets zeros and has
// zero gradients, under every policy; no NaN comes of it.
func TestNothingVisible(t *testing.T) {
	for _, policy := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		l := &layers.Attention{DType: policy}
		f := tensor.Function(func(x *tensor.Tensor) []*tensor.Tensor {
			m := tensor.Zeros(dtype.Bool, 1, 3)
			y := layers.Apply(l, layers.Pass{}, tensor.Tuple(x, x.WithMask(m)))
			return []*tensor.Tensor{y, tensor.GradientsAt(y.Widen().Sum(), x)[0]}
		})
		out, err := f.Call(context.Background(), tensor.New([]float32{1, 2, 3, 4, 5, 60000}, 1, 3, 2))
		if err != nil {
			t.Fatal(err)
		}
		for _, y := range out {
			tensortest.Close(t, policy, y, tensortest.Of(dtype.Float32, make([]float64, 6), 1, 3, 2), 0)
		}
	}
}

// TestScoresBeyondFloat16: scores may exceed the range of float16, and a
// masked score that is larger than all others does not show.
func TestScoresBeyondFloat16(t *testing.T) {
	l := &layers.Attention{DType: "mixed_float16"}
	y := call(t, l, layers.Pass{}, func(x *tensor.Tensor) *tensor.Tensor {
		return tensor.Tuple(x, x.WithMask(tensor.New([]bool{true, true, false}, 1, 3)))
	}, tensor.New([]float32{300, 1, 400, 2, 60000, 3}, 1, 3, 2))
	// Scores of 90,001 and more: the second step takes all.
	want := []float64{400, 2, 400, 2, 400, 2}
	tensortest.Close(t, "y", y, tensortest.Of(dtype.Float16, want, 1, 3, 2), 0)
}

// TestMaskedBatchNormalization: batches of two steps and two of padding have
// the statistics of the two (Keras's test_correctness with masks).
func TestMaskedBatchNormalization(t *testing.T) {
	l := &layers.BatchNormalization{Momentum: new(0.)}
	data := make([]float32, 0, 80)
	for range 10 {
		data = append(data, 1, 5, 2, 5, -1, -1, -1, -1)
	}
	masking := &layers.Masking{MaskValue: -1}
	call(t, l, layers.Pass{Training: true}, func(x *tensor.Tensor) *tensor.Tensor {
		return layers.Apply(masking, layers.Pass{}, x)
	}, tensor.New(data, 10, 4, 2))
	tensortest.Close(t, "moving_mean", l.NonTrainableWeights()[0].Variable.Value(), tensortest.Of(dtype.Float32, []float64{1.5, 5}, 2), 1)
	tensortest.Close(t, "moving_variance", l.NonTrainableWeights()[1].Variable.Value(), tensortest.Of(dtype.Float32, []float64{0.25, 0}, 2), 1)
	// Padding alone: no NaN.
	call(t, l, layers.Pass{Training: true}, func(x *tensor.Tensor) *tensor.Tensor {
		return layers.Apply(masking, layers.Pass{}, x)
	}, tensor.New([]float32{-1, -1, -1, -1}, 1, 2, 2))
	tensortest.Close(t, "moving_mean", l.NonTrainableWeights()[0].Variable.Value(), tensortest.Of(dtype.Float32, []float64{0, 0}, 2), 0)
}

// TestEmbeddingIndices: indices that 16-bit floats do not hold find their
// rows, and those out of range are an error that names the layer.
func TestEmbeddingIndices(t *testing.T) {
	l := &layers.Embedding{InputDim: 5000, OutputDim: 1, DType: "mixed_float16", Name: "words"}
	build(t, l, -1, 1)
	table := make([]float64, 5000)
	for i := range table {
		table[i] = float64(i) / 4096 // exact in float16 for multiples of 4
	}
	if err := l.Weights()[0].Set(table); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*tensor.Tensor{
		tensor.New([]float32{4096, 2052}, 2, 1), tensor.New([]int32{4096, 2052}, 2, 1), tensor.New([]int64{4096, 2052}, 2, 1),
	} {
		y, err := layertest.Function(l, false).Call(context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		tensortest.Close(t, "y", y, tensortest.Of(dtype.Float16, []float64{1, 2052. / 4096}, 2, 1, 1), 0)
	}
	for _, bad := range []int32{5000, -1} {
		_, err := layertest.Function(l, false).Call(context.Background(), tensor.New([]int32{bad}, 1, 1))
		if err == nil || !strings.Contains(err.Error(), "words") {
			t.Errorf("index %d: got error %v, want one that names the layer", bad, err)
		}
	}
}

// TestNoise checks mean, deviation and scale of noise on ones.
func TestNoise(t *testing.T) {
	const n = 100_000
	for _, policy := range []string{"float32", "mixed_float16"} {
		for _, c := range []struct {
			layer     layers.Layer
			mean, dev float64
			fourth    float64 // standardized: 3 for normal noise
		}{
			{&layers.GaussianNoise{Stddev: 0.5, DType: policy}, 1, 0.5, 3},
			{&layers.GaussianDropout{Rate: 0.2, DType: policy}, 1, 0.5, 3},
		} {
			build(t, c.layer, n)
			ones := tensor.Ones(dtype.Float32, n)
			y, err := layertest.Function(c.layer, true).Call(context.Background(), ones)
			if err != nil {
				t.Fatal(err)
			}
			data, err := y.Float64s()
			if err != nil {
				t.Fatal(err)
			}
			var mean, square, fourth float64
			for _, v := range data {
				mean += v / n
			}
			for _, v := range data {
				square += (v - mean) * (v - mean) / n
				fourth += math.Pow(v-mean, 4) / n
			}
			// Five standard errors of n normal numbers: of the mean dev/√n, of
			// the variance dev²·√(2/n), of the fourth moment dev⁴·√(96/n).
			if math.Abs(mean-c.mean) > 5*c.dev/math.Sqrt(n) || math.Abs(square-c.dev*c.dev) > 5*c.dev*c.dev*math.Sqrt(2./n) ||
				math.Abs(fourth/math.Pow(c.dev, 4)-c.fourth) > 5*math.Sqrt(96./n) {
				t.Errorf("%s, %s: got mean %v, variance %v, fourth moment %v", layers.Class(c.layer), policy, mean, square, fourth)
			}
		}
	}
}

// TestAlphaDropout: what is dropped has one value, and mean and variance of
// normal inputs stay.
func TestAlphaDropout(t *testing.T) {
	const n, rate = 100_000, 0.3
	l := &layers.AlphaDropout{Rate: rate}
	build(t, l, n)
	x := tensor.RandomUniform(tensor.New([]int64{1, 2}, 2), 0, n).AddScalar(-0.5).MulScalar(math.Sqrt(12))
	y, err := layertest.Function(l, true).Call(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	data, err := y.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[float64]int{}
	var mean, square float64
	for _, v := range data {
		counts[v]++
		mean += v / n
		square += v * v / n
	}
	most := 0
	for _, k := range counts {
		most = max(most, k)
	}
	// Five standard deviations of a binomial distribution; the dropped value is
	// not among the others but by chance.
	if math.Abs(float64(most)-n*rate) > 5*math.Sqrt(n*rate*(1-rate)) {
		t.Errorf("got %d equal elements, want about %v dropped", most, n*rate)
	}
	if e := 5 * 2 / math.Sqrt(n); math.Abs(mean) > e || math.Abs(square-1) > 2*e {
		t.Errorf("got mean %v and mean square %v, want 0 and 1", mean, square)
	}
}

// TestSpatialDropout: channels are dropped as a whole.
func TestSpatialDropout(t *testing.T) {
	for _, c := range []struct {
		layer   layers.Layer
		shape   []int
		channel int // axis
	}{
		{&layers.SpatialDropout1D{Rate: 0.5}, []int{4, 5, 16}, 2},
		{&layers.SpatialDropout2D{Rate: 0.5}, []int{4, 2, 3, 16}, 3},
		{&layers.SpatialDropout2D{Rate: 0.5, DataFormat: "channels_first"}, []int{4, 16, 2, 3}, 1},
		{&layers.SpatialDropout3D{Rate: 0.5}, []int{4, 2, 1, 2, 16}, 4},
	} {
		build(t, c.layer, c.shape...)
		y, err := layertest.Function(c.layer, true).Call(context.Background(), tensor.Ones(dtype.Float32, c.shape...))
		if err != nil {
			t.Fatal(err)
		}
		var axes []int
		for a := 1; a < len(c.shape); a++ {
			if a != c.channel {
				axes = append(axes, a)
			}
		}
		low, errLow := y.Min(axes...).Values()
		high, errHigh := y.Max(axes...).Values()
		if err := errors.Join(errLow, errHigh); err != nil {
			t.Fatal(err)
		}
		seen := map[float32]int{}
		for i := range low {
			if low[i] != high[i] {
				t.Fatalf("%s: channel %d: got %v and %v, want one value", layers.Class(c.layer), i, low[i], high[i])
			}
			seen[low[i]]++
		}
		if len(seen) != 2 || seen[0] == 0 || seen[2] == 0 { // each has a chance of 2⁻⁶⁴
			t.Errorf("%s: got channels %v, want some of 0 and some of 2", layers.Class(c.layer), seen)
		}
	}
}
