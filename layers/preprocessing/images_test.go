package preprocessing_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// TestKerasImages compares resizing and cropping with Keras, cropping at random
// where nothing is left to chance, also of 16-bit types, where pixels are blended in float32 and rounded once.
func TestKerasImages(t *testing.T) {
	for _, c := range tensortest.Load(t, "../../keras/testdata/golden/images.json").Cases {
		switch c.Class() {
		case "Resizing", "CenterCrop", "RandomCrop":
		default:
			continue // TestAffine has these
		}
		t.Run(c.Name, func(t *testing.T) {
			var exact []float64
			for _, policy := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
				c.Policy = policy
				l, training := layertest.FromCase(t, &c)
				p := layers.Pass{Training: training}
				x := layertest.Inputs(&c, dtype.Float32)
				if err := apply(l, layers.Pass{}, layertest.Symbols(x)); err != nil {
					t.Fatal(err)
				}
				y := layers.Apply(l, p, x)
				if policy == "float32" {
					// TensorFlow's positions are float32: off by an epsilon of up
					// to 13 pixels, which kernels of slopes up to 2 and sums of up
					// to 25 pixels of magnitude 3 spread.
					tensortest.Close(t, "y", y, c.Outputs["y"], 50)
					continue
				}
				rounded := c.Inputs["x"].As(y.DType()).As(dtype.Float32)
				c.Policy = "float32"
				same, _ := layertest.FromCase(t, &c)
				var err error
				if exact, err = layers.Apply(same, p, rounded.Tensor()).Float64s(); err != nil {
					t.Fatal(err)
				}
				tensortest.Close(t, policy, y, tensortest.Of(dtype.Float64, exact, y.Shape()...), 1)
			}
		})
	}
}

var photos = op.Type{DType: dtype.Float32, Shape: op.Shape{2, 5, 4, 2}}

// imageLayers are cases of TestEveryLayer.
func imageLayers() (cases []layerCase) {
	wide := []float64{-100, 100}
	for _, make := range []func() layers.Layer{
		func() layers.Layer { return &preprocessing.Resizing{Height: 3, Width: 6} },
		func() layers.Layer {
			return &preprocessing.Resizing{Height: 3, Width: 6, PadToAspectRatio: true, Interpolation: "bicubic"}
		},
		func() layers.Layer {
			return &preprocessing.CenterCrop{Height: 3, Width: 2, DataFormat: "channels_first"}
		},
		func() layers.Layer { return &preprocessing.RandomCrop{Height: 3, Width: 2} },
		func() layers.Layer { return &preprocessing.RandomFlip{} },
		func() layers.Layer {
			return &preprocessing.RandomFlip{Mode: "horizontal", DataFormat: "channels_first"}
		},
		func() layers.Layer {
			return &preprocessing.RandomContrast{Factor: preprocessing.Factor{0.5}, ValueRange: wide}
		},
		func() layers.Layer {
			return &preprocessing.RandomBrightness{Factor: preprocessing.Factor{-0.1, 0.2}, ValueRange: wide}
		},
		func() layers.Layer { return &preprocessing.RandomInvert{Factor: preprocessing.Factor{0.5, 0.5}} },
		func() layers.Layer { return &preprocessing.RandomRotation{Factor: preprocessing.Factor{0.3}} },
		func() layers.Layer {
			return &preprocessing.RandomZoom{HeightFactor: preprocessing.Factor{0.3}, FillMode: "wrap", DataFormat: "channels_first"}
		},
		func() layers.Layer {
			return &preprocessing.RandomTranslation{HeightFactor: preprocessing.Factor{0.3}, WidthFactor: preprocessing.Factor{0.2}, FillMode: "constant", Seed: new(int64(7))}
		},
	} {
		cases = append(cases, layerCase{"image, " + layers.Class(make()), make, []op.Type{photos}})
	}
	for _, format := range []string{"channels_last", "channels_first"} {
		in := op.Type{DType: dtype.Float32, Shape: op.Shape{2, 3, 5, 3}}
		cases = append(cases, layerCase{"grayscale, " + format, func() layers.Layer { return &preprocessing.RandomGrayscale{DataFormat: format} }, []op.Type{in}})
	}
	cases = append(cases, augmentLayers()...)
	bytes := []op.Type{{DType: dtype.Uint8, Shape: op.Shape{2, 5, 4, 2}}}
	return append(cases,
		layerCase{"resizing, bytes", func() layers.Layer { return &preprocessing.Resizing{Height: 3, Width: 6} }, bytes},
		layerCase{"center crop, bytes", func() layers.Layer { return &preprocessing.CenterCrop{Height: 3, Width: 6} }, bytes})
}

// TestRandomImages: each image of a batch has numbers of its own, each step has
// others, all within their bounds, and inference changes nothing.
func TestRandomImages(t *testing.T) {
	const batch, height, width = 64, 3, 4
	data := make([]float32, batch*height*width)
	for i := range data {
		data[i] = float32(i % (height * width))
	}
	x := tensor.New(data, batch, height, width, 1)
	step := func(l layers.Layer, f *tensor.Func[*tensor.Tensor, *tensor.Tensor]) []float64 {
		t.Helper()
		y, err := f.Call(context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		v, err := y.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	flip := &preprocessing.RandomFlip{}
	f := layertest.Function(flip, true)
	first := step(flip, f)
	flipped := 0
	for i := range batch {
		image := first[i*12 : (i+1)*12]
		for j, v := range image {
			want := float64(j)
			if image[0] != 0 {
				want = float64(11 - j)
			}
			if v != want {
				t.Fatalf("RandomFlip: image %d is %v, want it as it was or flipped", i, image)
			}
		}
		if image[0] != 0 {
			flipped++
		}
	}
	// 64 fair coins: 32 ± 4, and 5 deviations.
	if flipped < 12 || flipped > 52 {
		t.Errorf("RandomFlip: got %d of 64 images flipped, want about half", flipped)
	}
	differ := 0
	for i, v := range step(flip, f) {
		if v != first[i] {
			differ++
		}
	}
	if differ == 0 {
		t.Errorf("RandomFlip: the second step flipped the same images")
	}

	crop := &preprocessing.RandomCrop{Height: 2, Width: 3}
	f = layertest.Function(crop, true)
	seen := map[float64]bool{}
	for range 64 {
		v := step(crop, f)
		for j, at := range []float64{0, 1, 2, 4, 5, 6} {
			if v[j] != v[0]+at {
				t.Fatalf("RandomCrop: got %v, want a window", v[:6])
			}
		}
		seen[v[0]] = true
	}
	for _, start := range []float64{0, 1, 4, 5} {
		if !seen[start] || len(seen) != 4 {
			t.Errorf("RandomCrop: got windows at %v, want 0, 1, 4 and 5", seen)
		}
	}

	bright := &preprocessing.RandomBrightness{Factor: preprocessing.Factor{0.2, 0.4}, ValueRange: []float64{0, 20}}
	for i, v := range step(bright, layertest.Function(bright, true)) {
		if more := v - float64(i%12); !(more >= 4-1e-5 && more <= 8+1e-5) {
			t.Fatalf("RandomBrightness: element %d got %v more, want 4 to 8", i, more)
		}
	}
	contrast := &preprocessing.RandomContrast{Factor: preprocessing.Factor{0.25, 0.5}, ValueRange: []float64{-20, 20}}
	for i, v := range step(contrast, layertest.Function(contrast, true)) {
		if by := (v - 5.5) / (float64(i%12) - 5.5); !(by >= 0.75-1e-4 && by <= 1.5+1e-4) {
			t.Fatalf("RandomContrast: element %d is %v times as far from the mean, want 0.75 to 1.5", i, by)
		}
	}
	for _, share := range []float64{0, 0.5, 1} {
		invert := &preprocessing.RandomInvert{Factor: preprocessing.Factor{share, share}, ValueRange: []float64{0, 11}}
		inverted := 0
		for i, v := range step(invert, layertest.Function(invert, true)) {
			if want := float64(11 - i%12); v == want {
				inverted++
			} else if v != float64(i%12) {
				t.Fatalf("RandomInvert: element %d: got %v, want %v or %v", i, v, i%12, want)
			}
		}
		// 64 coins of this probability, and 5 deviations.
		if n := float64(inverted) / 12; n < 64*share-80*share*(1-share) || n > 64*share+80*share*(1-share) {
			t.Errorf("RandomInvert: got %v of 64 images inverted, want a share of %v", n, share)
		}
	}
	gray := &preprocessing.RandomGrayscale{Factor: new(1.0), DType: "float32"}
	y, err := layertest.Function(gray, true).Call(context.Background(), tensor.New([]float32{100, 50, 200}, 1, 1, 1, 3))
	if err != nil {
		t.Fatal(err)
	}
	const luminance = 0.2989*100 + 0.587*50 + 0.114*200
	tensortest.Close(t, "RandomGrayscale", y, tensortest.Of(dtype.Float32, []float64{luminance, luminance, luminance}, 1, 1, 1, 3), 1)
	before, err := x.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []layers.Layer{flip, crop, bright, contrast, &preprocessing.RandomRotation{Factor: preprocessing.Factor{1}},
		&preprocessing.RandomZoom{HeightFactor: preprocessing.Factor{0.5}}, &preprocessing.RandomTranslation{HeightFactor: preprocessing.Factor{1}, WidthFactor: preprocessing.Factor{1}}} {
		y, err := layertest.Function(l, false).Call(context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		if after, err := y.Bytes(); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: inference changed images", layers.Class(l))
		}
	}
}

func TestImageErrors(t *testing.T) {
	f := preprocessing.Factor{0.5}
	for _, c := range []struct {
		layer layers.Layer
		want  string
	}{
		{&preprocessing.Resizing{Width: 3}, "layer resizing: Build: Height is 0, want a positive number"},
		{&preprocessing.Resizing{Height: 3, Width: -1}, "layer resizing: Build: Width is -1, want a positive number"},
		{&preprocessing.Resizing{Height: 3, Width: 3, Interpolation: "cubic"}, `layer resizing: Build: Interpolation is "cubic", want one of ["nearest" "bilinear" "bicubic" "area" "lanczos3" "lanczos5"]`},
		{&preprocessing.Resizing{Height: 3, Width: 3, CropToAspectRatio: true, PadToAspectRatio: true}, "layer resizing: Build: CropToAspectRatio and PadToAspectRatio are set, want one at most"},
		{&preprocessing.Resizing{Height: 3, Width: 3, FillMode: "wrap"}, `layer resizing: Build: FillMode is "wrap", want constant`},
		{&preprocessing.CenterCrop{Height: 3}, "layer center_crop: Build: Width is 0, want a positive number"},
		{&preprocessing.RandomCrop{Height: 3}, "layer random_crop: Build: Width is 0, want a positive number"},
		{&preprocessing.RandomFlip{Mode: "both"}, `layer random_flip: Build: Mode is "both", want horizontal, vertical or horizontal_and_vertical`},
		{&preprocessing.RandomContrast{}, "layer random_contrast: Build: Factor is [], want 1 or 2 numbers"},
		{&preprocessing.RandomContrast{Factor: preprocessing.Factor{-0.5, 0.2}}, "layer random_contrast: Build: Factor is [-0.5 0.2], want numbers from 0 to 1"},
		{&preprocessing.RandomContrast{Factor: f, ValueRange: []float64{1, 1}}, "layer random_contrast: Build: ValueRange is [1 1], want 2 numbers in order"},
		{&preprocessing.RandomInvert{Factor: preprocessing.Factor{0.5, 1.5}}, "layer random_invert: Build: Factor is [0.5 1.5], want numbers from 0 to 1"},
		{&preprocessing.RandomGrayscale{Factor: new(-1.0)}, "layer random_grayscale: Build: Factor is -1, want a number from 0 to 1"},
		{&preprocessing.RandomGrayscale{}, "layer random_grayscale: Build: axis 3 of input [2 5 4 2] is 2, want 3 channels"},
		{&preprocessing.RandomBrightness{Factor: preprocessing.Factor{2}}, "layer random_brightness: Build: Factor is [2], want numbers from -1 to 1"},
		{&preprocessing.RandomRotation{Factor: preprocessing.Factor{1, 2, 3}}, "layer random_rotation: Build: Factor is [1 2 3], want 1 or 2 numbers"},
		{&preprocessing.RandomRotation{Factor: f, FillMode: "mirror"}, `layer random_rotation: Build: FillMode is "mirror", want one of ["reflect" "wrap" "constant" "nearest"]`},
		{&preprocessing.RandomZoom{HeightFactor: f, Interpolation: "area"}, `layer random_zoom: Build: Interpolation is "area", want nearest or bilinear`},
		{&preprocessing.RandomTranslation{HeightFactor: f}, "layer random_translation: Build: WidthFactor is [], want 1 or 2 numbers"},
		{&preprocessing.RandomTranslation{HeightFactor: f, WidthFactor: f, DataFormat: "last"}, `layer random_translation: Build: DataFormat is "last", want channels_last or channels_first`},
	} {
		layertest.BadField(t, c.layer, c.want, photos)
	}
	for want, in := range map[string]op.Type{
		"layer resizing: Build: input [2 5 4] has 3 axes, want at least 4":       {DType: dtype.Float32, Shape: op.Shape{2, 5, 4}},
		"layer resizing: Build: axis 1 of input [2 ? 4 1] has no size, want one": {DType: dtype.Float32, Shape: op.Shape{2, op.Unknown, 4, 1}},
		"layer resizing: Build: axis 2 of input [2 5 0 1] is empty, want pixels": {DType: dtype.Float32, Shape: op.Shape{2, 5, 0, 1}},
	} {
		layertest.BadField(t, &preprocessing.Resizing{Height: 2, Width: 2}, want, in)
	}
}
