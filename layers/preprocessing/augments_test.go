package preprocessing_test

import (
	"context"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// augmentations are one of each layer that changes images, for pixels in range.
func augmentations(between []float64, format string) []func() layers.Layer {
	f, half := preprocessing.Factor{0.3}, preprocessing.Factor{0.5, 0.5}
	return []func() layers.Layer{
		func() layers.Layer { return &preprocessing.AutoContrast{ValueRange: between, DataFormat: format} },
		func() layers.Layer {
			return &preprocessing.Equalization{ValueRange: between, Bins: 16, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.ContrastLimitedAdaptiveHistogramEqualization{ValueRange: between, TileGridSize: []int{2, 3}, DataFormat: format}
		},
		func() layers.Layer { return &preprocessing.MixUp{DataFormat: format} },
		func() layers.Layer { return &preprocessing.CutMix{DataFormat: format} },
		func() layers.Layer {
			return &preprocessing.RandomColorDegeneration{Factor: f, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.RandomColorJitter{BrightnessFactor: f, ContrastFactor: f, SaturationFactor: half, HueFactor: f, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.RandomElasticTransform{Factor: half, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.RandomErasing{Scale: preprocessing.Factor{0.3, 0.6}, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.RandomErasing{FillValue: preprocessing.Fill{1, 2, 3}, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.RandomGaussianBlur{Factor: half, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.RandomHue{Factor: f, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer { return &preprocessing.RandomPerspective{Factor: half, DataFormat: format} },
		func() layers.Layer {
			return &preprocessing.RandomPosterization{Factor: preprocessing.Factor{2, 7}, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.RandomSaturation{Factor: preprocessing.Factor{0.4, 0.6}, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.RandomSharpness{Factor: f, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer { return &preprocessing.RandomShear{XFactor: f, YFactor: f, DataFormat: format} },
		func() layers.Layer {
			return &preprocessing.Solarization{AdditionFactor: f, ThresholdFactor: f, ValueRange: between, DataFormat: format}
		},
		func() layers.Layer {
			return &preprocessing.RandAugment{ValueRange: between, DataFormat: format, Seed: new(int64(3))}
		},
		func() layers.Layer {
			return &preprocessing.AugMix{ValueRange: between, NumChains: 2, ChainDepth: 2, DataFormat: format}
		},
	}
}

// augmentLayers are cases of TestEveryLayer.
func augmentLayers() (cases []layerCase) {
	between := []float64{-6, 6} // around the numbers of layertest
	for _, c := range []struct {
		format string
		shape  op.Shape
	}{{"channels_last", op.Shape{2, 5, 4, 3}}, {"channels_first", op.Shape{2, 3, 5, 4}}} {
		in := []op.Type{{DType: dtype.Float32, Shape: c.shape}}
		for _, make := range augmentations(between, c.format) {
			cases = append(cases, layerCase{"augment, " + c.format + ", " + layers.Class(make()), make, in})
		}
	}
	in := []op.Type{{DType: dtype.Uint8, Shape: op.Shape{2, 5, 4, 3}}}
	return append(cases,
		layerCase{"augment, bytes, RandomHue", func() layers.Layer { return &preprocessing.RandomHue{Factor: preprocessing.Factor{0.5}} }, in},
		layerCase{"augment, bytes, AutoContrast", func() layers.Layer { return &preprocessing.AutoContrast{} }, in},
		layerCase{"augment, one channel, RandAugment", func() layers.Layer { return &preprocessing.RandAugment{ValueRange: between, NumOps: new(1)} },
			[]op.Type{{DType: dtype.Float32, Shape: op.Shape{2, 5, 4, 1}}}},
		layerCase{"augment, AugMix without some", func() layers.Layer {
			return &preprocessing.AugMix{ValueRange: between, AllOps: new(false), NumChains: 1}
		},
			[]op.Type{{DType: dtype.Float32, Shape: op.Shape{2, 5, 4, 3}}}})
}

// perImage are the numbers of each image of y.
func perImage(t *testing.T, y *tensor.Tensor) (all [][]float64) {
	t.Helper()
	v, err := y.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	n := len(v) / y.Dim(0)
	for i := range y.Dim(0) {
		all = append(all, v[i*n:(i+1)*n])
	}
	return all
}

// gradient is a batch of images whose pixels differ all, from 0 to 255.
func gradient(batch, rows, columns, channels int) *tensor.Tensor {
	data := make([]float32, batch*rows*columns*channels)
	for i := range data {
		data[i] = float32((i*7919)%2551) / 10
	}
	return tensor.New(data, batch, rows, columns, channels)
}

// TestAugmentations: what is not training leaves images, but of the two layers
// that always change them; training changes them, each step in another way;
// channels may come first; and pixels stay in their range.
func TestAugmentations(t *testing.T) {
	last, first := augmentations(nil, "channels_last"), augmentations(nil, "channels_first")
	x := gradient(4, 9, 8, 3)
	turned := x.Transpose(0, 3, 1, 2)
	ctx := context.Background()
	call := func(l layers.Layer, on bool, x *tensor.Tensor) [2][]float64 {
		f := layertest.Function(l, on)
		var steps [2][]float64
		for i := range steps {
			y, err := f.Call(ctx, x)
			if err == nil && y.Dim(1) == 3 {
				y = y.Transpose(0, 2, 3, 1)
			}
			if err == nil {
				steps[i], err = y.Float64s()
			}
			if err != nil {
				t.Fatalf("%s: %v", layers.Class(l), err)
			}
		}
		return steps
	}
	differ := func(a, b []float64) (n int) {
		for i := range a {
			if a[i] != b[i] {
				n++
			}
		}
		return n
	}
	before, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, make := range last {
		class := layers.Class(make())
		always := class == "AutoContrast" || class == "ContrastLimitedAdaptiveHistogramEqualization"
		fixed := always || class == "Equalization"
		if n := differ(call(make(), false, x)[0], before); n > 0 != always {
			t.Errorf("%s: inference changed %d pixels, want a change: %v", class, n, always)
		}
		got := call(make(), true, x)
		if differ(got[0], before) == 0 || (differ(got[0], got[1]) == 0) != fixed {
			t.Errorf("%s: training changed %d pixels, and %d from step to step", class, differ(got[0], before), differ(got[0], got[1]))
		}
		for _, v := range got[0] {
			// RandomSaturation may leave the range, as in Keras.
			if !(v >= -1e-3 && v <= 255+1e-3) && class != "RandomSaturation" {
				t.Errorf("%s: got a pixel of %v, want 0 to 255", class, v)
				break
			}
		}
		if class == "RandomErasing" && make().(*preprocessing.RandomErasing).FillValue == nil {
			continue // noise in the order of the pixels
		}
		other := call(first[i](), true, turned)[0]
		for j, want := range got[0] {
			// Sums over channels may be in another order.
			if g := other[j]; math.Abs(g-want) > 1e-3 {
				t.Errorf("%s, channels_first: element %d: got %v, want %v", class, j, g, want)
				break
			}
		}
	}
}

// TestMixing: MixUp and CutMix mix labels as they mix images.
func TestMixing(t *testing.T) {
	const batch = 64
	// Each image is of its number, and so is its label.
	number := tensor.Iota(dtype.Float32, batch)
	x := number.Reshape(batch, 1, 1, 1).BroadcastTo(batch, 10, 10, 1)
	for _, name := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		for _, l := range []layers.Layer{&preprocessing.MixUp{Alpha: 1, DType: name}, &preprocessing.CutMix{DType: name}} {
			f := layertest.Function(l, true)
			for range 3 {
				z, err := f.Call(context.Background(), tensor.Tuple(x, number))
				if err != nil {
					t.Fatal(err)
				}
				y := z.Unpack()[0]
				if y.DType() != layers.BaseOf(l).ComputeDType() || z.Unpack()[1].DType() != dtype.Float32 {
					t.Errorf("%s %s: got %v and %v, want the compute type and float32", name, layers.Class(l), y.Type(), z.Unpack()[1].Type())
				}
				labels := perImage(t, z.Unpack()[1])
				changed := 0
				for i, image := range perImage(t, y) {
					var mean, other float64
					for _, v := range image {
						mean += v / float64(len(image))
						if v != float64(i) {
							other = v
						}
					}
					// A rectangle covers up to a pixel more or less in each
					// direction than its area says, of 10; then there are the
					// roundings of 16 bits.
					off := 63 * float64(0x1p-7)
					if _, ok := l.(*preprocessing.CutMix); ok {
						off = 0.21 * math.Abs(other-float64(i))
					}
					if !(math.Abs(mean-labels[i][0]) <= off) {
						t.Errorf("%s %s: image %d has a mean of %v and label %v", name, layers.Class(l), i, mean, labels[i][0])
					}
					if mean != float64(i) {
						changed++
					}
				}
				if changed < batch/2 {
					t.Errorf("%s %s: got %d of %d images changed, want most", name, layers.Class(l), changed, batch)
				}
			}
		}
	}
}

func TestAugmentErrors(t *testing.T) {
	f := preprocessing.Factor{0.5}
	for _, c := range []struct {
		layer layers.Layer
		want  string
	}{
		{&preprocessing.AutoContrast{ValueRange: []float64{1, 0}}, "layer auto_contrast: Build: ValueRange is [1 0], want 2 numbers in order"},
		{&preprocessing.Equalization{Bins: -1}, "layer equalization: Build: Bins is -1, want a positive number"},
		{&preprocessing.ContrastLimitedAdaptiveHistogramEqualization{ClipLimit: new(-1.0)}, "layer contrast_limited_adaptive_histogram_equalization: Build: ClipLimit is -1, want a number from 0"},
		{&preprocessing.ContrastLimitedAdaptiveHistogramEqualization{TileGridSize: []int{8}}, "layer contrast_limited_adaptive_histogram_equalization: Build: TileGridSize is [8], want 2 positive numbers"},
		{&preprocessing.MixUp{Alpha: -1}, "layer mix_up: Build: Alpha is -1, want a number above 0"},
		{&preprocessing.CutMix{Factor: preprocessing.Factor{2}}, "layer cut_mix: Build: Factor is [2], want numbers from 0 to 1"},
		{&preprocessing.RandomErasing{Scale: preprocessing.Factor{0, 2}}, "layer random_erasing: Build: Scale is [0 2], want numbers from 0 to 1"},
		{&preprocessing.RandomErasing{FillValue: preprocessing.Fill{1, 2, 3}}, "layer random_erasing: Build: FillValue is [1 2 3], want 1 number, or 2 as axis 3 of input [2 5 4 2] has"},
		{&preprocessing.RandomColorDegeneration{Factor: f}, "layer random_color_degeneration: Build: axis 3 of input [2 5 4 2] is 2, want 1 or 3 channels"},
		{&preprocessing.RandomColorJitter{ContrastFactor: preprocessing.Factor{2}}, "layer random_color_jitter: Build: ContrastFactor: Factor is [2], want numbers from 0 to 1"},
		{&preprocessing.RandomColorJitter{HueFactor: f}, "layer random_color_jitter: Build: HueFactor: axis 3 of input [2 5 4 2] is 2, want 3 channels"},
		{&preprocessing.RandomElasticTransform{FillMode: "mirror"}, `layer random_elastic_transform: Build: FillMode is "mirror", want one of ["reflect" "wrap" "constant" "nearest"]`},
		{&preprocessing.RandomElasticTransform{Scale: preprocessing.Factor{-1, 1}}, "layer random_elastic_transform: Build: Scale is [-1 1], want numbers from 0 to 1"},
		{&preprocessing.RandomGaussianBlur{KernelSize: layers.PerAxis{4}}, "layer random_gaussian_blur: Build: KernelSize is [4], want odd numbers"},
		{&preprocessing.RandomGaussianBlur{Sigma: preprocessing.Factor{3}}, "layer random_gaussian_blur: Build: Sigma is [3], want numbers from 0 to 1"},
		{&preprocessing.RandomHue{}, "layer random_hue: Build: Factor is [], want 1 or 2 numbers"},
		{&preprocessing.RandomHue{Factor: f}, "layer random_hue: Build: axis 3 of input [2 5 4 2] is 2, want 3 channels"},
		{&preprocessing.RandomPerspective{Scale: new(2.0)}, "layer random_perspective: Build: Scale is 2, want a number from 0 to 1"},
		{&preprocessing.RandomPerspective{Interpolation: "area"}, `layer random_perspective: Build: Interpolation is "area", want nearest or bilinear`},
		{&preprocessing.RandomPosterization{Factor: preprocessing.Factor{9}}, "layer random_posterization: Build: Factor is [9], want numbers from 1 to 8"},
		{&preprocessing.RandomPosterization{Factor: preprocessing.Factor{1, 2.5}}, "layer random_posterization: Build: Factor is [1 2.5], want whole numbers"},
		{&preprocessing.RandomSaturation{Factor: preprocessing.Factor{2}}, "layer random_saturation: Build: Factor is [2], want numbers from -1 to 1"},
		{&preprocessing.RandomSharpness{Factor: f, DataFormat: "last"}, `layer random_sharpness: Build: DataFormat is "last", want channels_last or channels_first`},
		{&preprocessing.RandomShear{XFactor: preprocessing.Factor{2}}, "layer random_shear: Build: XFactor is [2], want numbers from -1 to 1"},
		{&preprocessing.Solarization{ThresholdFactor: preprocessing.Factor{2}}, "layer solarization: Build: ThresholdFactor is [2], want numbers from 0 to 1"},
		{&preprocessing.RandAugment{NumOps: new(-1)}, "layer rand_augment: Build: NumOps is -1, want a number from 0"},
		{&preprocessing.RandAugment{}, "layer rand_augment: Build: axis 3 of input [2 5 4 2] is 2, want 1 or 3 channels"},
		{&preprocessing.AugMix{NumChains: -1}, "layer aug_mix: Build: NumChains is -1, want a positive number"},
		{&preprocessing.AugMix{Alpha: -1}, "layer aug_mix: Build: Alpha is -1, want a number above 0"},
	} {
		layertest.BadField(t, c.layer, c.want, photos)
	}
	image := op.Type{DType: dtype.Float32, Shape: op.Shape{2, 5, 4, 3}}
	for _, c := range []struct {
		in   []op.Type
		want string
	}{
		{[]op.Type{image, {DType: dtype.Float32, Shape: op.Shape{3, 4}}}, "layer mix_up: Build: labels [3 4] do not fit images [2 5 4 3], want one for each image"},
		{[]op.Type{image, {DType: dtype.Int32, Shape: op.Shape{2}}}, "layer mix_up: Call: labels are int32[2], want floats, such as one-hot vectors"},
		{[]op.Type{image, image, image}, "layer mix_up: Build: got 3 inputs, want images, or images and labels"},
		{[]op.Type{{DType: dtype.Float32, Shape: op.Shape{2, 5, 4}}}, "layer mix_up: Build: input [2 5 4] has 3 axes, want at least 4"},
	} {
		layertest.BadField(t, &preprocessing.MixUp{}, c.want, c.in...)
	}
}
