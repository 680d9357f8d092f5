package layers_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

const channelsFirst = "channels_first"

// n writes sizes on the axes of a field.
func n(sizes ...int) layers.PerAxis { return sizes }

// convLayers are cases of TestEveryLayer.
func convLayers() []layerCase {
	type layer = layers.Layer
	one := func(shape ...int) []op.Type { return []op.Type{f32(shape...)} }
	sequence, image, volume := one(2, 6, 4), one(2, 5, 4, 4), one(2, 3, 4, 4, 2)
	return []layerCase{
		{"conv 1", func() layer { return &layers.Conv1D{Filters: 3, KernelSize: n(3)} }, sequence},
		{"conv 1, causal", func() layer {
			return &layers.Conv1D{Filters: 2, KernelSize: n(2), Padding: "causal", DilationRate: n(2), DataFormat: channelsFirst, Activation: "softmax"}
		}, sequence},
		{"conv 2", func() layer { return &layers.Conv2D{Filters: 3, KernelSize: n(2, 3)} }, image},
		{"conv 2, all fields", func() layer {
			return &layers.Conv2D{Filters: 4, KernelSize: n(3), Strides: n(2, 1), Padding: "same", Groups: new(2), Activation: "tanh", UseBias: new(true),
				KernelInitializer: "he_normal", BiasInitializer: "random_normal(stddev=0.5)", KernelRegularizer: "l2", BiasRegularizer: "l1",
				ActivityRegularizer: "l2", KernelConstraint: "max_norm(3)", BiasConstraint: "non_neg", DataFormat: channelsFirst, Name: "stem"}
		}, one(2, 4, 5, 4)},
		{"conv 3", func() layer {
			return &layers.Conv3D{Filters: 2, KernelSize: n(2, 1, 2), Padding: "same", UseBias: new(false)}
		}, volume},
		{"conv 2, spectral", func() layer {
			return &layers.SpectralNormalization{Layer: &layers.Conv2D{Filters: 3, KernelSize: n(2)}}
		}, image},
		{"depthwise 1", func() layer { return &layers.DepthwiseConv1D{KernelSize: n(2), DepthMultiplier: new(2)} }, sequence},
		{"depthwise 2", func() layer {
			return &layers.DepthwiseConv2D{KernelSize: n(3), Strides: n(2), Padding: "same", DataFormat: channelsFirst,
				DepthwiseRegularizer: "l2", DepthwiseConstraint: "max_norm", Activation: "sigmoid"}
		}, image},
		{"separable 1", func() layer { return &layers.SeparableConv1D{Filters: 3, KernelSize: n(2)} }, sequence},
		{"separable 2", func() layer {
			return &layers.SeparableConv2D{Filters: 3, KernelSize: n(2, 3), Padding: "same", DepthMultiplier: new(2), DataFormat: channelsFirst,
				PointwiseInitializer: "he_normal", PointwiseRegularizer: "l1", PointwiseConstraint: "non_neg"}
		}, image},
		{"transpose 1", func() layer { return &layers.Conv1DTranspose{Filters: 3, KernelSize: n(3), Strides: n(2)} }, sequence},
		{"transpose 2", func() layer {
			return &layers.Conv2DTranspose{Filters: 2, KernelSize: n(2, 3), Strides: n(3, 2), Padding: "same", OutputPadding: n(2, 1), DataFormat: channelsFirst}
		}, image},
		{"transpose 3", func() layer {
			return &layers.Conv3DTranspose{Filters: 2, KernelSize: n(2), DilationRate: n(1, 2, 1), UseBias: new(false)}
		}, volume},
		{"max pooling 1", func() layer { return &layers.MaxPooling1D{} }, sequence},
		{"max pooling 2", func() layer {
			return &layers.MaxPooling2D{PoolSize: n(2, 3), Strides: n(2), Padding: "same", DataFormat: channelsFirst}
		}, image},
		{"max pooling 3", func() layer { return &layers.MaxPooling3D{Strides: n(1)} }, volume},
		{"average pooling 1", func() layer { return &layers.AveragePooling1D{PoolSize: n(4), Strides: n(2), Padding: "same"} }, sequence},
		{"average pooling 2", func() layer { return &layers.AveragePooling2D{PoolSize: n(2), DataFormat: channelsFirst} }, image},
		{"average pooling 3", func() layer { return &layers.AveragePooling3D{PoolSize: n(2), Padding: "same"} }, volume},
		{"global max 1", func() layer { return &layers.GlobalMaxPooling1D{} }, sequence},
		{"global max 2", func() layer { return &layers.GlobalMaxPooling2D{Keepdims: true} }, image},
		{"global max 3", func() layer { return &layers.GlobalMaxPooling3D{DataFormat: channelsFirst} }, volume},
		{"global average 1", func() layer { return &layers.GlobalAveragePooling1D{} }, sequence},
		{"global average 2", func() layer { return &layers.GlobalAveragePooling2D{DataFormat: channelsFirst, Keepdims: true} }, image},
		{"global average 3", func() layer { return &layers.GlobalAveragePooling3D{} }, volume},
		{"adaptive max 1", func() layer { return &layers.AdaptiveMaxPooling1D{OutputSize: n(4)} }, sequence},
		{"adaptive max 2", func() layer { return &layers.AdaptiveMaxPooling2D{OutputSize: n(3, 2)} }, image},
		{"adaptive max 3", func() layer { return &layers.AdaptiveMaxPooling3D{OutputSize: n(2), DataFormat: channelsFirst} }, volume},
		{"adaptive average 1", func() layer { return &layers.AdaptiveAveragePooling1D{OutputSize: n(3)} }, sequence},
		{"adaptive average 2", func() layer { return &layers.AdaptiveAveragePooling2D{OutputSize: n(3), DataFormat: channelsFirst} }, image},
		{"adaptive average 3", func() layer { return &layers.AdaptiveAveragePooling3D{OutputSize: n(2, 3, 1)} }, volume},
	}
}

func TestConvErrors(t *testing.T) {
	image := []op.Type{f32(-1, 5, 4, 4)}
	k := n(3)
	for _, c := range []struct {
		layer layers.Layer
		in    []op.Type
		want  string
	}{
		{&layers.Conv2D{KernelSize: k}, image, "layer conv2d: Build: Filters is 0, want a positive number"},
		{&layers.Conv2D{Filters: 2}, image, "layer conv2d: Build: KernelSize is [], want 1 or 2 numbers"},
		{&layers.Conv2D{Filters: 2, KernelSize: n(0)}, image, "layer conv2d: Build: KernelSize is [0], want numbers from 1"},
		{&layers.Conv2D{Filters: 2, KernelSize: n(1, 2, 3)}, image, "layer conv2d: Build: KernelSize is [1 2 3], want 1 or 2 numbers"},
		{&layers.Conv2D{Filters: 2, KernelSize: k, Strides: n(0)}, image, "layer conv2d: Build: Strides is [0], want numbers from 1"},
		{&layers.Conv2D{Filters: 2, KernelSize: k, DilationRate: n(0)}, image, "layer conv2d: Build: DilationRate is [0], want numbers from 1"},
		{&layers.Conv2D{Filters: 2, KernelSize: k, Strides: n(2, 1), DilationRate: n(1, 2)}, image, "layer conv2d: Build: Strides is [2 1] and DilationRate is [1 2], want 1 in one of the two"},
		{&layers.Conv2D{Filters: 2, KernelSize: k, Padding: "causal"}, image, `layer conv2d: Build: Padding is "causal", want valid or same`},
		{&layers.Conv1D{Filters: 2, KernelSize: k, Padding: "full"}, []op.Type{f32(-1, 5, 4)}, `layer conv1d: Build: Padding is "full", want valid, same or causal`},
		{&layers.Conv2D{Filters: 2, KernelSize: k, Groups: new(0)}, image, "layer conv2d: Build: Groups is 0, want a positive number"},
		{&layers.Conv2D{Filters: 3, KernelSize: k, Groups: new(2)}, image, "layer conv2d: Build: Filters is 3, want a multiple of Groups, 2"},
		{&layers.Conv2D{Filters: 3, KernelSize: k, Groups: new(3)}, image, "layer conv2d: Build: input [? 5 4 4] has 4 channels, want a multiple of Groups, 3"},
		{&layers.Conv2D{Filters: 3, KernelSize: k, DataFormat: "NCHW"}, image, `layer conv2d: Build: DataFormat is "NCHW", want channels_last or channels_first`},
		{&layers.Conv2D{Filters: 3, KernelSize: k}, []op.Type{f32(-1, 5, 4)}, "layer conv2d: Build: input [? 5 4] has 3 axes, want at least 4"},
		{&layers.Conv1D{Filters: 3, KernelSize: k}, image, "layer conv1d: Build: input [? 5 4 4] has 4 axes, want 3"},
		{&layers.Conv2D{Filters: 3, KernelSize: k}, []op.Type{f32(-1, 5, 4, -1)}, "layer conv2d: Build: axis 3 of input [? 5 4 ?] has no size, want one: weights depend on it"},
		{&layers.Conv2D{Filters: 2, KernelSize: n(9)}, image, "layer conv2d: Conv: axis 1 of float32[? 5 4 4]: a window of 9 elements, 1 apart, does not fit into 5 elements with padding 0 and 0"},
		{&layers.MaxPooling2D{PoolSize: n(9)}, image, "layer max_pooling2d: MaxPool: axis 1 of float32[? 5 4 4]: a window of 9 elements, 1 apart, does not fit into 5 elements with padding 0 and 0"},
		{&layers.MaxPooling2D{}, []op.Type{i32(-1, 5, 4, 4)}, "layer max_pooling2d: MaxPool: wants a float type, got int32[? 5 4 4]"},
		{&layers.DepthwiseConv2D{}, image, "layer depthwise_conv2d: Build: KernelSize is [], want 1 or 2 numbers"},
		{&layers.DepthwiseConv2D{KernelSize: k, DepthMultiplier: new(0)}, image, "layer depthwise_conv2d: Build: DepthMultiplier is 0, want a positive number"},
		{&layers.SeparableConv2D{KernelSize: k}, image, "layer separable_conv2d: Build: Filters is 0, want a positive number"},
		{&layers.SeparableConv2D{Filters: 2, KernelSize: k, DepthMultiplier: new(-1)}, image, "layer separable_conv2d: Build: DepthMultiplier is -1, want a positive number"},
		{&layers.Conv2DTranspose{KernelSize: k}, image, "layer conv2d_transpose: Build: Filters is 0, want a positive number"},
		{&layers.Conv2DTranspose{Filters: 2, KernelSize: k, Strides: n(2), OutputPadding: n(1, 2)}, image, "layer conv2d_transpose: Build: OutputPadding is [1 2], want less than Strides, [2]"},
		{&layers.Conv2DTranspose{Filters: 2, KernelSize: k, OutputPadding: n(-1)}, image, "layer conv2d_transpose: Build: OutputPadding is [-1], want numbers from 0"},
		{&layers.MaxPooling2D{PoolSize: n(0)}, image, "layer max_pooling2d: Build: PoolSize is [0], want numbers from 1"},
		{&layers.MaxPooling2D{Padding: "causal"}, image, `layer max_pooling2d: Build: Padding is "causal", want valid or same`},
		{&layers.AveragePooling2D{}, image, "layer average_pooling2d: Build: PoolSize is [], want 1 or 2 numbers"},
		{&layers.AveragePooling3D{PoolSize: n(2)}, image, "layer average_pooling3d: Build: input [? 5 4 4] has 4 axes, want at least 5"},
		{&layers.GlobalMaxPooling1D{}, image, "layer global_max_pooling1d: Build: input [? 5 4 4] has 4 axes, want 3"},
		{&layers.AdaptiveMaxPooling2D{}, image, "layer adaptive_max_pooling2d: Build: OutputSize is [], want 1 or 2 numbers"},
	} {
		layertest.BadField(t, c.layer, c.want, c.in...)
	}
}

// TestConvShapes compares predicted shapes with Keras's, also where sizes are
// not known yet (-1).
func TestConvShapes(t *testing.T) {
	for _, c := range []struct {
		layer    layers.Layer
		in, want []int
	}{
		{&layers.Conv2D{Filters: 3, KernelSize: n(3)}, []int{-1, -1, 9, 4}, []int{-1, -1, 7, 3}},
		{&layers.Conv2D{Filters: 3, KernelSize: n(3), Strides: n(2), Padding: "same"}, []int{-1, -1, 9, 4}, []int{-1, -1, 5, 3}},
		{&layers.Conv2D{Filters: 3, KernelSize: n(3), Strides: n(2), Padding: "same", DataFormat: channelsFirst}, []int{-1, 4, -1, 9}, []int{-1, 3, -1, 5}},
		{&layers.Conv1D{Filters: 3, KernelSize: n(3), Strides: n(2), Padding: "causal"}, []int{-1, 10, 4}, []int{-1, 5, 3}},
		{&layers.Conv1DTranspose{Filters: 5, KernelSize: n(2), Strides: n(2)}, []int{2, 8, 4}, []int{2, 16, 5}},
		{&layers.Conv1DTranspose{Filters: 6, KernelSize: n(2), Strides: n(3), OutputPadding: n(2), Padding: "same"}, []int{2, 8, 4}, []int{2, 23, 6}},
		{&layers.Conv2DTranspose{Filters: 6, KernelSize: n(2), Strides: n(3)}, []int{-1, -1, 2, 4}, []int{-1, -1, 6, 6}},
		{&layers.MaxPooling2D{Padding: "same"}, []int{-1, -1, 5, 4}, []int{-1, -1, 3, 4}},
		{&layers.AveragePooling1D{PoolSize: n(3), Strides: n(2)}, []int{-1, -1, 4}, []int{-1, -1, 4}},
		{&layers.GlobalMaxPooling2D{}, []int{-1, -1, -1, 4}, []int{-1, 4}},
		{&layers.GlobalAveragePooling2D{Keepdims: true}, []int{-1, -1, -1, 4}, []int{-1, 1, 1, 4}},
	} {
		y := layers.Apply(c.layer, layers.Pass{}, tensor.Placeholder(dtype.Float32, c.in...))
		if got := y.Shape(); !got.Equal(c.want) {
			t.Errorf("%s on %v: got %v, want %v", layers.Class(c.layer), c.in, got, c.want)
		}
	}
}

// TestConvAgain uses one layer for fields of two sizes, and wants its channels.
func TestConvAgain(t *testing.T) {
	l := &layers.Conv2D{Filters: 2, KernelSize: n(3)}
	for _, size := range []int{8, 5} {
		y := layers.Apply(l, layers.Pass{}, tensor.Placeholder(dtype.Float32, -1, size, size, 3))
		if want := (layers.Shape{-1, size - 2, size - 2, 2}); !y.Shape().Equal(want) {
			t.Errorf("got %v, want %v", y.Shape(), want)
		}
	}
	layertest.BadField(t, l, "layer conv2d: Call: axis 3 of input [? 8 8 4] is 4, want 3 channels", f32(-1, 8, 8, 4))
}

// TestGlobalAverageMask averages over the steps that a mask leaves.
func TestGlobalAverageMask(t *testing.T) {
	x := tensor.New([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 2, 3, 2)
	m := tensor.New([]bool{true, false, true, false, false, false}, 2, 3)
	for _, c := range []struct {
		l    layers.Layer
		want tensortest.Array
	}{
		{&layers.GlobalAveragePooling1D{}, tensortest.Of(dtype.Float32, []float64{3, 4, 0, 0}, 2, 2)},
		{&layers.GlobalAveragePooling1D{Keepdims: true}, tensortest.Of(dtype.Float32, []float64{3, 4, 0, 0}, 2, 1, 2)},
	} {
		y := layers.Apply(c.l, layers.Pass{}, x.WithMask(m))
		tensortest.Close(t, "mean", y, c.want, 0)
		if y.Mask() != nil {
			t.Errorf("got a mask, want none: the steps are gone")
		}
	}
}
