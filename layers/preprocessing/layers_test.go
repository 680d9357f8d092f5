package preprocessing_test

import (
	"math"
	"slices"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/doctor/doctortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

func f32(shape ...int) op.Type { return op.Type{DType: dtype.Float32, Shape: shape} }
func i32(shape ...int) op.Type { return op.Type{DType: dtype.Int32, Shape: shape} }

// layerCase is a layertest.Case that literals need no names of fields for.
type layerCase layertest.Case

// everyLayer has at least one case for each class of package preprocessing.
func everyLayer() (all []layertest.Case) {
	flat, image, ids := []op.Type{f32(3, 4)}, []op.Type{f32(2, 3, 4, 4)}, []op.Type{i32(3, 4)}
	cases := []layerCase{
		{"boxes, fewer", func() layers.Layer { return &preprocessing.MaxNumBoundingBoxes{MaxNumber: 3} }, []op.Type{f32(2, 5, 4), f32(2, 5)}},
		{"boxes, more", func() layers.Layer { return &preprocessing.MaxNumBoundingBoxes{MaxNumber: 7, FillValue: new(-2)} }, []op.Type{f32(2, 5, 4), f32(2, 5)}},
		{"rescaling", func() layers.Layer { return &preprocessing.Rescaling{Scale: 1. / 255, Offset: -0.5} }, []op.Type{f32(3, 4, 5, 2)}},
		{"stft", func() layers.Layer { return &preprocessing.STFTSpectrogram{FrameLength: new(5)} }, []op.Type{f32(2, 14, 2)}},
		{"stft, fields", func() layers.Layer {
			return &preprocessing.STFTSpectrogram{Mode: "stft", FrameLength: new(4), FrameStep: new(3), FFTLength: new(6), Window: "blackman", Periodic: true,
				Scaling: "spectrum", Padding: "same", ExpandDims: true, DataFormat: "channels_first"}
		}, []op.Type{f32(2, 2, 14)}},
		{"mel spectrogram", func() layers.Layer {
			return &preprocessing.MelSpectrogram{FFTLength: new(16), SequenceStride: new(6), SequenceLength: new(12), SamplingRate: new(8000), NumMelBins: new(4), PowerToDB: new(false)}
		}, []op.Type{f32(2, 40)}},
		{"normalization", func() layers.Layer { return &preprocessing.Normalization{} }, flat},
		{"normalization, given", func() layers.Layer {
			return &preprocessing.Normalization{Axis: []int{1}, Mean: []float64{1, 2, 3}, Variance: []float64{0.5, 1, 4}}
		}, image},
		{"normalization, inverted", func() layers.Layer {
			return &preprocessing.Normalization{Axis: []int{}, Mean: []float64{1}, Variance: []float64{4}, Invert: true}
		}, image},
		{"category encoding", func() layers.Layer { return &preprocessing.CategoryEncoding{NumTokens: 3} }, ids},
		{"category encoding, one hot", func() layers.Layer { return &preprocessing.CategoryEncoding{NumTokens: 4, OutputMode: "one_hot"} }, []op.Type{i32(3, 1)}},
		{"category encoding, weights", func() layers.Layer { return &preprocessing.CategoryEncoding{NumTokens: 3, OutputMode: "count"} }, []op.Type{i32(3, 4), f32(3, 4)}},
		{"discretization", func() layers.Layer { return &preprocessing.Discretization{BinBoundaries: []float64{-1, 0, 0.5}} }, flat},
		{"discretization, count", func() layers.Layer {
			return &preprocessing.Discretization{BinBoundaries: []float64{0}, OutputMode: "count"}
		}, ids},
	}
	for _, c := range slices.Concat(cases, textLayers(), imageLayers(), everySpace()) {
		all = append(all, layertest.Case(c))
	}
	return all
}

// TestEveryLayer runs layertest on every class.
func TestEveryLayer(t *testing.T) {
	layertest.Classes(t, everyLayer())
	for _, c := range everyLayer() {
		t.Run(c.Name, func(t *testing.T) { layertest.Run(t, c.Make, c.In...) })
	}
}

func TestMistakes(t *testing.T) {
	layertest.Mistakes(t, everyLayer(), accepted, layertest.MistakesOptions{
		Wrong: func(now any) []any {
			switch now.(type) {
			case preprocessing.Factor:
				return []any{preprocessing.Factor{1, 2, 3}, preprocessing.Factor{math.NaN()}}
			case preprocessing.Fill:
				return []any{preprocessing.Fill{1, 2, 3, 4, 5, 6, 7, 8}}
			case preprocessing.NGrams:
				return []any{preprocessing.NGrams{-1}}
			case map[string]preprocessing.Feature:
				return []any{nil}
			case []preprocessing.Cross: // see TestFeatureSpaceErrors
				return []any{}
			case []layers.Layer:
				return []any{[]layers.Layer{nil}, []layers.Layer{&layers.Flatten{}}}
			case preprocessing.Salt:
				return []any{preprocessing.Salt{1, 2, 3}}
			}
			return nil
		},
		Open: func(l layers.Layer) bool {
			switch l := l.(type) {
			case *preprocessing.Discretization: // accepts any number
				return true
			case *preprocessing.IntegerLookup:
				l.NumOOVIndices, l.MaskToken = new(0), nil // no index for numbers outside of the vocabulary
				return l.Invert
			}
			return false
		},
	})
}

func TestAbsurdSizes(t *testing.T) { layertest.Sizes(t, everyLayer()) }

func TestErrors(t *testing.T) {
	pair := []op.Type{f32(-1, 3, 4), f32(-1, 5, 4)}
	for _, c := range []struct {
		layer layers.Layer
		in    []op.Type
		want  string
	}{
		{&preprocessing.Rescaling{}, nil, "layer rescaling: Build: Scale is 0, want another number"},
		{&preprocessing.Normalization{Mean: []float64{1}}, nil, "layer normalization: Build: got 1 numbers in Mean and 0 in Variance, want 1 or 4 in both"},
		{&preprocessing.Normalization{Mean: []float64{1}, Variance: []float64{-1}}, nil, "layer normalization: Build: Variance is [-1], want numbers from 0"},
		{&preprocessing.CategoryEncoding{}, nil, "layer category_encoding: Build: NumTokens is 0, want a positive number"},
		{&preprocessing.CategoryEncoding{NumTokens: 2, OutputMode: "hot"}, nil, `layer category_encoding: Build: OutputMode is "hot", want one of ["multi_hot" "one_hot" "count"]`},
		{&preprocessing.CategoryEncoding{NumTokens: 2}, []op.Type{f32(-1)}, "layer category_encoding: Build: input [?] has 1 axes, want at least 2"},
		{&preprocessing.CategoryEncoding{NumTokens: 2}, pair, `layer category_encoding: Build: got weights with OutputMode "multi_hot", want count for that`},
		{&preprocessing.Discretization{}, nil, "layer discretization: Build: BinBoundaries is empty, want boundaries, or NumBins and Adapt before the layer is used"},
		{&preprocessing.Discretization{BinBoundaries: []float64{2, 1}}, nil, "layer discretization: Build: BinBoundaries is [2 1], want numbers in order"},
	} {
		layertest.BadField(t, c.layer, c.want, c.in...)
	}
}

// apply returns the error of applying l to x.
func apply(l layers.Layer, p layers.Pass, x *tensor.Tensor) (err error) {
	return try(func() { layers.Apply(l, p, x) })
}

// TestHealthy examines steps of training through every class.
func TestHealthy(t *testing.T) { doctortest.Layers(t, 1./255, everyLayer()) }
