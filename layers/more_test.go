package layers_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

func i32(shape ...int) op.Type   { return op.Type{DType: dtype.Int32, Shape: shape} }
func bools(shape ...int) op.Type { return op.Type{DType: dtype.Bool, Shape: shape} }

// moreLayers are cases of TestEveryLayer.
func moreLayers() []layerCase {
	one := func(t op.Type) []op.Type { return []op.Type{t} }
	flat, sequence, image, volume := one(f32(3, 4)), one(f32(2, 5, 4)), one(f32(2, 3, 4, 4)), one(f32(2, 2, 3, 2, 4))
	ids := one(i32(3, 4))
	return []layerCase{
		{"embedding", func() layers.Layer { return &layers.Embedding{InputDim: 3, OutputDim: 4} }, ids},
		{"reversible embedding", func() layers.Layer { return &layers.ReversibleEmbedding{InputDim: 3, OutputDim: 4} }, ids},
		{"embedding, fields", func() layers.Layer {
			return &layers.Embedding{InputDim: 5, OutputDim: 2, EmbeddingsInitializer: "random_normal(stddev=0.5)",
				EmbeddingsRegularizer: "l2", EmbeddingsConstraint: "max_norm", ActivityRegularizer: "l1", MaskZero: true}
		}, one(i32(2, 3, 2))},
		{"masking", func() layers.Layer { return &layers.Masking{MaskValue: 1} }, sequence},
		{"group normalization", func() layers.Layer { return &layers.GroupNormalization{Groups: new(2)} }, image},
		{"group normalization, instance", func() layers.Layer {
			return &layers.GroupNormalization{Groups: new(-1), Axis: new(1), Epsilon: new(0.01), Center: new(false), GammaInitializer: "random_uniform"}
		}, image},
		{"rms normalization", func() layers.Layer { return &layers.RMSNormalization{} }, flat},
		{"rms normalization, axes", func() layers.Layer { return &layers.RMSNormalization{Axis: []int{-1, 1}, Epsilon: new(0.1)} }, image},
		{"unit normalization", func() layers.Layer { return &layers.UnitNormalization{} }, flat},
		{"unit normalization, axes", func() layers.Layer { return &layers.UnitNormalization{Axis: []int{1, 2}} }, image},
		{"spectral normalization", func() layers.Layer {
			return &layers.SpectralNormalization{Layer: &layers.Dense{Units: 3}, PowerIterations: new(2)}
		}, flat},
		{"spectral normalization, embedding", func() layers.Layer {
			return &layers.SpectralNormalization{Layer: &layers.Embedding{InputDim: 3, OutputDim: 2, EmbeddingsInitializer: "random_normal(stddev=1)"}}
		}, ids},
		{"spatial dropout 1", func() layers.Layer { return &layers.SpatialDropout1D{Rate: 0.4} }, sequence},
		{"spatial dropout 2", func() layers.Layer { return &layers.SpatialDropout2D{Rate: 0.4, DataFormat: "channels_first"} }, image},
		{"spatial dropout 3", func() layers.Layer { return &layers.SpatialDropout3D{Rate: 0.4} }, volume},
		{"gaussian dropout", func() layers.Layer { return &layers.GaussianDropout{Rate: 0.3} }, flat},
		{"gaussian noise", func() layers.Layer { return &layers.GaussianNoise{Stddev: 0.3} }, flat},
		{"alpha dropout", func() layers.Layer { return &layers.AlphaDropout{Rate: 0.3, NoiseShape: []int{-1, 1}} }, flat},
		{"activity regularization", func() layers.Layer { return &layers.ActivityRegularization{L1: 0.1, L2: 0.2} }, flat},
		{"einsum dense", func() layers.Layer {
			return &layers.EinsumDense{Equation: "abc,cd->abd", OutputShape: layers.PerAxis{-1, 3}, BiasAxes: "d", Activation: "tanh"}
		}, sequence},
		{"einsum dense, dots", func() layers.Layer {
			return &layers.EinsumDense{Equation: "...x,xy->...y", OutputShape: layers.PerAxis{3}, BiasAxes: "y"}
		}, image},
		{"einsum dense, batched", func() layers.Layer {
			return &layers.EinsumDense{Equation: "abcd,bde->aebc", OutputShape: layers.PerAxis{2, 3, 4}, BiasAxes: "eb", BiasInitializer: "random_normal"}
		}, image},
		{"einsum dense, summed", func() layers.Layer {
			return &layers.EinsumDense{Equation: "abc,bd->ad", OutputShape: layers.PerAxis{3}}
		}, sequence},
		{"zero padding 1", func() layers.Layer { return &layers.ZeroPadding1D{Padding: layers.PerAxis{1, 2}} }, sequence},
		{"zero padding 2", func() layers.Layer { return &layers.ZeroPadding2D{Padding: layers.PerAxis{1, 0, 2, 3}} }, image},
		{"zero padding 3", func() layers.Layer { return &layers.ZeroPadding3D{DataFormat: "channels_first"} }, volume},
		{"cropping 1", func() layers.Layer { return &layers.Cropping1D{} }, sequence},
		{"cropping 2", func() layers.Layer {
			return &layers.Cropping2D{Cropping: layers.PerAxis{1, 0, 2, 1}, DataFormat: "channels_first"}
		}, image},
		{"cropping 3", func() layers.Layer { return &layers.Cropping3D{Cropping: layers.PerAxis{0, 1, 0}} }, volume},
		{"up sampling 1", func() layers.Layer { return &layers.UpSampling1D{Size: new(3)} }, sequence},
		{"up sampling 2", func() layers.Layer { return &layers.UpSampling2D{Size: layers.PerAxis{2, 3}} }, image},
		{"up sampling 2, bilinear", func() layers.Layer {
			return &layers.UpSampling2D{Size: layers.PerAxis{3, 2}, Interpolation: "bilinear", DataFormat: "channels_first"}
		}, image},
		{"up sampling 2, lanczos", func() layers.Layer { return &layers.UpSampling2D{Interpolation: "lanczos3"} }, image},
		{"pipeline", func() layers.Layer {
			return &layers.Pipeline{Layers: []layers.Layer{&layers.ReLU{}, &layers.Pipeline{Layers: []layers.Layer{&layers.Dropout{Rate: 0.5}, &layers.UnitNormalization{}}}}}
		}, image},
		{"stochastic depth", func() layers.Layer { return &layers.StochasticDepth{DropPathRate: 0.4} }, image},
		{"layer scale", func() layers.Layer { return &layers.LayerScale{InitValues: 0.5, ProjectionDim: image[0].Shape[3]} }, image},
		{"custom scale", func() layers.Layer { return &layers.CustomScaleLayer{Scale: 0.5} }, []op.Type{f32(3, 4), f32(3, 4)}},
		{"up sampling 3", func() layers.Layer { return &layers.UpSampling3D{Size: layers.PerAxis{1, 2, 2}} }, volume},
		{"dot", func() layers.Layer { return &layers.Dot{Axes: []int{-1}} }, []op.Type{f32(3, 4), f32(3, 4)}},
		{"dot, cosine", func() layers.Layer { return &layers.Dot{Axes: []int{1, 2}, Normalize: true} }, []op.Type{f32(3, 4, 2), f32(3, 2, 4, 5)}},
		{"softmax, axes", func() layers.Layer { return &layers.Softmax{Axis: []int{1, -1}} }, image},
	}
}

// attentionLayers are cases of TestEveryLayer.
func attentionLayers() []layerCase {
	two, three := []op.Type{f32(2, 3, 4), f32(2, 5, 4)}, []op.Type{f32(2, 3, 4), f32(2, 5, 6), f32(2, 5, 4)}
	masked := []op.Type{f32(2, 3, 4), f32(2, 5, 4), bools(2, 3, 5)}
	byHead := []op.Type{f32(2, 3, 4), f32(2, 5, 4), f32(2, 5, 4), bools(2, 2, 3, 5)}
	return []layerCase{
		{"attention", func() layers.Layer { return &layers.Attention{} }, two},
		{"attention, concat", func() layers.Layer {
			return &layers.Attention{UseScale: true, ScoreMode: "concat", Dropout: 0.3, ReturnAttentionScores: true}
		}, three},
		{"attention, scale, causal", func() layers.Layer { return &layers.Attention{UseScale: true, UseCausalMask: true} }, two},
		{"additive attention", func() layers.Layer { return &layers.AdditiveAttention{} }, two},
		{"additive attention, fields", func() layers.Layer {
			return &layers.AdditiveAttention{UseScale: new(false), Dropout: 0.2, UseCausalMask: true, ReturnAttentionScores: true}
		}, three},
		{"multi-head attention", func() layers.Layer { return &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 3} }, two},
		{"multi-head attention, fields", func() layers.Layer {
			return &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 3, ValueDim: 2, Dropout: 0.2, OutputShape: layers.PerAxis{3, 2},
				SlidingWindow: new(2), UseGate: true, UseCausalMask: true, ReturnAttentionScores: true, BiasInitializer: "random_normal",
				KernelRegularizer: "l2", ActivityRegularizer: "l2"}
		}, three},
		{"multi-head attention, mask", func() layers.Layer {
			return &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 3, UseBias: new(false), UseAttentionMask: true}
		}, masked},
		{"multi-head attention, mask by head", func() layers.Layer {
			return &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 3, UseCausalMask: true, UseAttentionMask: true}
		}, byHead},
		{"multi-head attention, two axes", func() layers.Layer { return &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 2} },
			[]op.Type{f32(2, 2, 3, 4), f32(2, 3, 2, 4)}},
		{"multi-head attention, one axis of two", func() layers.Layer {
			return &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 2, AttentionAxes: []int{2}, UseCausalMask: true}
		}, []op.Type{f32(2, 2, 3, 4), f32(2, 2, 4, 4)}},
		{"group query attention", func() layers.Layer {
			return &layers.GroupQueryAttention{HeadDim: 3, NumQueryHeads: 4, NumKeyValueHeads: 2}
		}, two},
		{"group query attention, fields", func() layers.Layer {
			return &layers.GroupQueryAttention{HeadDim: 2, NumQueryHeads: 4, NumKeyValueHeads: 2, Dropout: 0.2, UseBias: new(false),
				SlidingWindow: new(2), UseGate: true, UseCausalMask: true, UseAttentionMask: true, ReturnAttentionScores: true}
		}, masked},
	}
}

func TestMoreErrors(t *testing.T) {
	many := func(shapes ...[]int) []op.Type {
		var all []op.Type
		for _, s := range shapes {
			all = append(all, f32(s...))
		}
		return all
	}
	image, pair := many([]int{-1, 4, 6, 4}), many([]int{-1, 3, 4}, []int{-1, 5, 4})
	for _, c := range []struct {
		layer layers.Layer
		in    []op.Type
		want  string
	}{
		{&layers.Embedding{OutputDim: 2}, nil, "layer embedding: Build: InputDim is 0, want a positive number"},
		{&layers.Embedding{InputDim: 2, OutputDim: -1}, nil, "layer embedding: Build: OutputDim is -1, want a positive number"},
		{&layers.Masking{}, many([]int{-1}), "layer masking: Build: input [?] has 1 axes, want at least 2"},
		{&layers.GroupNormalization{}, nil, "layer group_normalization: Build: Groups is 32, want -1 or a number that divides the 4 channels of input [? 4]"},
		{&layers.GroupNormalization{Axis: new(0)}, nil, "layer group_normalization: Build: Axis is 0, want an axis of input [? 4] after the batch"},
		{&layers.RMSNormalization{Axis: []int{}}, nil, "layer rms_normalization: Build: Axis is [], want at least one axis of input [? 4]"},
		{&layers.RMSNormalization{Epsilon: new(-1.)}, nil, "layer rms_normalization: Build: Epsilon is -1, want a number from 0"},
		{&layers.UnitNormalization{Axis: []int{2}}, nil, "layer unit_normalization: Build: Axis is [2], want axes of input [? 4]"},
		{&layers.SpectralNormalization{}, nil, "layer spectral_normalization: Build: Layer is nil, want a layer with a kernel"},
		{&layers.SpectralNormalization{Layer: &layers.ReLU{}}, nil, "layer spectral_normalization: Build: Layer is a ReLU without a kernel, want a layer with one"},
		{&layers.SpectralNormalization{Layer: &layers.Dense{}}, nil, "layer spectral_normalization: Build: layer spectral_normalization/dense: Build: Units is 0, want a positive number"},
		{&layers.SpatialDropout1D{Rate: 2}, many([]int{-1, 3, 4}), "layer spatial_dropout1d: Build: Rate is 2, want a number from 0 to 1"},
		{&layers.SpatialDropout2D{}, nil, "layer spatial_dropout2d: Build: input [? 4] has 2 axes, want at least 4"},
		{&layers.SpatialDropout3D{}, many([]int{1, 2, 3, 4, 5, 6}), "layer spatial_dropout3d: Build: input [1 2 3 4 5 6] has 6 axes, want 5"},
		{&layers.GaussianDropout{Rate: 1}, nil, "layer gaussian_dropout: Build: Rate is 1, want a number from 0 to below 1"},
		{&layers.GaussianNoise{Stddev: 1.5}, nil, "layer gaussian_noise: Build: Stddev is 1.5, want a number from 0 to 1"},
		{&layers.AlphaDropout{NoiseShape: []int{1}}, nil, "layer alpha_dropout: Build: NoiseShape is [1], want 2 axes as input [? 4] has"},
		{&layers.ActivityRegularization{L2: -1}, nil, "layer activity_regularization: Build: L2 is -1, want a number from 0"},
		{&layers.EinsumDense{Equation: "ab->ac"}, nil, `layer einsum_dense: Build: Equation is "ab->ac", want "x,y->z" with a letter for each axis, and "..." at the front of x and z, at the end of both, or nowhere`},
		{&layers.EinsumDense{Equation: "aa,ab->ab"}, nil, `layer einsum_dense: Build: Equation is "aa,ab->ab", want "x,y->z" with a letter for each axis, and "..." at the front of x and z, at the end of both, or nowhere`},
		{&layers.EinsumDense{Equation: "abc,cd->abd"}, nil, `layer einsum_dense: Build: Equation is "abc,cd->abd", want one for an input of 2 axes`},
		{&layers.EinsumDense{Equation: "ab,bcd->ac", OutputShape: layers.PerAxis{3}}, nil, `layer einsum_dense: Build: Equation is "ab,bcd->ac", want 'd' of the second operand in the first or in the result`},
		{&layers.EinsumDense{Equation: "ab,bc->ac", OutputShape: layers.PerAxis{3, 4}}, nil, `layer einsum_dense: Build: OutputShape is [3 4], want the axes of the result of Equation "ab,bc->ac" without the batch`},
		{&layers.EinsumDense{Equation: "ab,bc->abc", OutputShape: layers.PerAxis{3, 4}}, nil, `layer einsum_dense: Build: OutputShape is [3 4], want 4 for axis 'b' as input [? 4] has, or -1`},
		{&layers.EinsumDense{Equation: "ab,bc->ac", OutputShape: layers.PerAxis{-1}}, nil, `layer einsum_dense: Build: axis 'c' of Equation "ab,bc->ac" has no size in input [? 4] and OutputShape [-1], want one: weights depend on it`},
		{&layers.EinsumDense{Equation: "ab,bc->ac", OutputShape: layers.PerAxis{2}, BiasAxes: "b"}, nil, `layer einsum_dense: Build: BiasAxes is "b", want letters of the result of Equation "ab,bc->ac"`},
		{&layers.ZeroPadding1D{Padding: layers.PerAxis{1, 2, 3}}, many([]int{-1, 3, 4}), "layer zero_padding1d: Build: Padding is [1 2 3], want 1, 1 or 2 numbers"},
		{&layers.ZeroPadding2D{Padding: layers.PerAxis{-1}}, image, "layer zero_padding2d: Build: Padding is [-1], want numbers from 0"},
		{&layers.Cropping2D{Cropping: layers.PerAxis{2, 1}}, image, "layer cropping2d: Build: Cropping takes 4 from axis 1 of input [? 4 6 4], want something left"},
		{&layers.UpSampling1D{Size: new(0)}, many([]int{-1, 3, 4}), "layer up_sampling1d: Build: Size is 0, want a positive number"},
		{&layers.UpSampling2D{Interpolation: "cubic"}, image, `layer up_sampling2d: Build: Interpolation is "cubic", want nearest, bilinear, bicubic, lanczos3 or lanczos5`},
		{&layers.UpSampling2D{Size: layers.PerAxis{1, 2, 3}}, image, "layer up_sampling2d: Build: Size is [1 2 3], want 1 or 2 numbers"},
		{&layers.Dot{Axes: []int{1}}, many([]int{-1, 4}), "layer dot: Build: got 1 inputs, want a tuple of 2"},
		{&layers.Dot{}, pair, "layer dot: Build: Axes is [], want 1 or 2 numbers"},
		{&layers.Dot{Axes: []int{0}}, pair, "layer dot: Build: Axes is [0], want an axis after the batch of each of [[? 3 4] [? 5 4]]"},
		{&layers.Dot{Axes: []int{1}}, pair, "layer dot: Build: axis 1 of [? 3 4] and axis 1 of [? 5 4] differ, want one size"},
		{&layers.Attention{ScoreMode: "sum"}, pair, `layer attention: Build: ScoreMode is "sum", want dot or concat`},
		{&layers.Attention{Dropout: 2}, pair, "layer attention: Build: Dropout is 2, want a number from 0 to 1"},
		{&layers.Attention{}, nil, "layer attention: Build: got 1 inputs, want a tuple of query and value, or of query, value and key"},
		{&layers.AdditiveAttention{}, many([]int{-1, 3, 4}, []int{-1, 5, 3}), "layer additive_attention: Build: got query [? 3 4], value [? 5 3] and key [? 5 3], want one batch size, as many steps of the key as of the value, and as many features as of the query"},
		{&layers.MultiHeadAttention{KeyDim: 2}, pair, "layer multi_head_attention: Build: NumHeads is 0, want a positive number"},
		{&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 2, AttentionAxes: []int{2}}, pair, "layer multi_head_attention: Build: AttentionAxes is [2], want different axes between batch and features of 3 axes"},
		{&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 2, UseAttentionMask: true}, pair, "layer multi_head_attention: Build: got 2 inputs, want a tuple of query and value, or of query, value and key, and a mask"},
		{&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 2, UseAttentionMask: true}, append(pair, f32(-1, 3, 5)), "layer multi_head_attention: Call: got mask float32[? 3 5], want bool"},
		{&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 2, UseAttentionMask: true}, append(pair, bools(-1)), "layer multi_head_attention: Call: got mask bool[?] for query float32[? 3 4], want [batch T S]"},
		{&layers.GroupQueryAttention{HeadDim: 2, NumQueryHeads: 2, NumKeyValueHeads: 2, UseAttentionMask: true}, append(pair, bools(-1, 5)), "layer group_query_attention: Call: got mask bool[? 5] for query float32[? 3 4], want [batch T S]"},
		{&layers.GroupQueryAttention{HeadDim: 2, NumQueryHeads: 4, NumKeyValueHeads: 3}, pair, "layer group_query_attention: Build: NumKeyValueHeads is 3, want a positive number that divides the 4 query heads"},
	} {
		layertest.BadField(t, c.layer, c.want, c.in...)
	}
}
