package keras_test

import (
	"context"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/policy"
)

// convModel is a model with convolutions of all kinds and normalization that has been
// trained for a few steps.
func convModel(t *testing.T, dtype string) *keras.Model {
	t.Helper()
	defer policy.SetGlobal(policy.SetGlobal(dtype))
	m := keras.Sequential(
		&layers.Conv2D{Filters: 8, KernelSize: layers.PerAxis{3}, Padding: "same", UseBias: new(false), Name: "first"},
		&layers.BatchNormalization{}, &layers.ReLU{},
		&layers.Conv2D{Filters: 16, KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{2}, Activation: "relu", Name: "second"},
		&layers.DepthwiseConv2D{KernelSize: layers.PerAxis{3}, Padding: "same", UseBias: new(false), Name: "depthwise"},
		&layers.BatchNormalization{}, &layers.ReLU{},
		&layers.MaxPooling2D{PoolSize: layers.PerAxis{2}},
		&layers.Conv2D{Filters: 6, KernelSize: layers.PerAxis{1}, Groups: new(2), Activation: "tanh"},
		&layers.Reshape{TargetShape: []int{4, 6}},
		&layers.Conv1D{Filters: 5, KernelSize: layers.PerAxis{2}, Padding: "causal", Name: "sequence"},
		&layers.Flatten{}, &layers.Dense{Units: 3, Name: "head"},
	)
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}}); err != nil {
		t.Fatal(err)
	}
	d := keras.FromTensors(ramp(32, 9, 10, 3), ramp(32, 3), nil).Batch(8)
	if _, err := m.Fit(context.Background(), d, keras.FitConfig{Epochs: 3, Verbose: keras.VerbositySilent}); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestQuantizeStatic: a statically quantized model computes nearly what the model did, by
// each method and under each policy that has a quantized form, and its clone does so to
// the bit.
func TestQuantizeStatic(t *testing.T) {
	ctx := context.Background()
	x := ramp(32, 9, 10, 3)
	for _, name := range []string{"float32", "mixed_bfloat16", "bfloat16"} {
		for _, method := range []string{"", keras.CalibrationPercentile, keras.CalibrationMSE} {
			t.Run(name+"/"+method, func(t *testing.T) {
				m := convModel(t, name)
				before := predicted(t, m, x)
				if err := m.QuantizeStatic(ctx, keras.FromTensors(x, nil, nil).Batch(10), keras.CalibrationConfig{Method: method}); err != nil {
					t.Fatal(err)
				}
				after := predicted(t, m, x)
				var square, wrong float64
				for i, y := range before {
					square += float64(y) * float64(y)
					wrong += float64(y-after[i]) * float64(y-after[i])
				}
				// Inputs and weights are rounded to a 255th of their ranges, and results are
				// small sums of larger terms.
				if wrong > square/100 || slices.Equal(before, after) {
					t.Errorf("the squares of the errors are %g of the squares", wrong/square)
				}
				for _, l := range m.Layers() {
					want := map[string]string{"Conv2D": "int8_static_from_" + name, "Conv1D": "int8_static_from_" + name, "DepthwiseConv2D": "int8_static_from_" + name, "Dense": "int8_from_" + name}[layers.Class(l)]
					if got := layers.BaseOf(l).Policy().Name; want != "" && got != want {
						t.Errorf("layer %s has policy %s, want %s", layers.BaseOf(l).Path(), got, want)
					}
				}
				clone, err := m.CloneUnder("", nil, false)
				if err != nil {
					t.Fatal(err)
				}
				if got := predicted(t, clone, x); !slices.Equal(got, after) {
					t.Error("the clone predicts something else")
				}
				const want = "layer first has policy int8_static_from_"
				if _, err := m.Fit(ctx, keras.FromTensors(x, ramp(32, 3), nil).Batch(8), keras.FitConfig{}); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Fit: got error %v, want %s…", err, want)
				}
			})
		}
	}
}

// TestQuantizeStaticFolds: normalization that Predict folds into the scales of a quantized
// kernel changes results by rounding alone.
func TestQuantizeStaticFolds(t *testing.T) {
	m := convModel(t, "float32")
	x := ramp(32, 9, 10, 3)
	if err := m.QuantizeStatic(context.Background(), keras.FromTensors(x, nil, nil).Batch(10), keras.CalibrationConfig{Filters: []string{"^first$"}}); err != nil {
		t.Fatal(err)
	}
	folded := predicted(t, m, x)
	fn := keras.Function(func(x *keras.Tensor) *keras.Tensor { return m.Call(x) }, m)
	y, err := fn.Call(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := y.Values()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range plain {
		if math.Abs(float64(p-folded[i])) > 1e-5 {
			t.Errorf("element %d: got %v, want %v", i, folded[i], p)
		}
	}
	for _, l := range m.Layers()[1:] {
		if layers.BaseOf(l).Policy().HasInt8() {
			t.Errorf("layer %s is quantized", layers.BaseOf(l).Path())
		}
	}
}

// calibrated returns the scale and the zero point that a convolution gets by data, in
// batches.
func calibrated(t *testing.T, c keras.CalibrationConfig, data []float32) (scale, zero float64) {
	t.Helper()
	x := keras.NewTensor(data, len(data), 1, 1)
	m := keras.Sequential(&layers.Conv1D{Filters: 1, KernelSize: layers.PerAxis{1}})
	predicted(t, m, x)
	if err := m.QuantizeStatic(context.Background(), keras.FromTensors(x, nil, nil).Batch(7), c); err != nil {
		t.Fatal(err)
	}
	for _, w := range layers.BaseOf(m.Layers()[0]).Weights() {
		v, err := w.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case strings.HasSuffix(w.Name(), "/inputs_scale"):
			scale = v[0]
		case strings.HasSuffix(w.Name(), "/inputs_zero_point"):
			zero = v[0]
		}
	}
	return scale, zero
}

// TestCalibration: min_max takes the extremes of all batches, and the others leave out what
// is far away.
func TestCalibration(t *testing.T) {
	data := make([]float32, 1000)
	for i := range data {
		data[i] = float32(i) / 1000 // from 0 to 1
	}
	data[77], data[500] = 100, -50
	normal := make([]float32, 1000)
	for i := range normal {
		normal[i] = float32(i-250) / 500 // from -0.5 to 1.5
	}
	for _, c := range []struct {
		name       string
		config     keras.CalibrationConfig
		data       []float32
		scale      [2]float64
		zero, near float64
	}{
		{"extremes", keras.CalibrationConfig{}, data, [2]float64{255. / 150, 255. / 150}, -43, 0},
		{"positive", keras.CalibrationConfig{Method: keras.CalibrationMinMax}, []float32{0.5, 2, 1}, [2]float64{127.5, 127.5}, -128, 0},
		{"negative", keras.CalibrationConfig{}, []float32{-0.5, -2, -1}, [2]float64{127.5, 127.5}, 127, 0},
		{"zeros", keras.CalibrationConfig{}, []float32{0, 0}, [2]float64{1, 1}, -128, 0},
		{"zeros by squares", keras.CalibrationConfig{Method: keras.CalibrationMSE}, []float32{0, 0}, [2]float64{1, 1}, -128, 0},
		{"percentile", keras.CalibrationConfig{Method: keras.CalibrationPercentile, Percentile: 99}, data, [2]float64{200, 260}, -128, 20},
		{"half", keras.CalibrationConfig{Method: keras.CalibrationPercentile, Percentile: 90}, normal, [2]float64{140, 143}, -73, 4},
		{"squares", keras.CalibrationConfig{Method: keras.CalibrationMSE}, normal, [2]float64{255. / 2, 255. / 1.8}, -64, 8},
	} {
		t.Run(c.name, func(t *testing.T) {
			scale, zero := calibrated(t, c.config, c.data)
			if low, high := c.scale[0]*(1-1e-6), c.scale[1]*(1+1e-6); scale < low || scale > high || math.Abs(zero-c.zero) > c.near {
				t.Errorf("got scale %v, want %v, and zero point %v, want %v", scale, c.scale, zero, c.zero)
			}
		})
	}
}

// TestQuantizeStaticErrors: errors name the layer, and nothing changes.
func TestQuantizeStaticErrors(t *testing.T) {
	conv := func(name string) layers.Layer {
		return &layers.Conv1D{Filters: 2, KernelSize: layers.PerAxis{1}, Name: name}
	}
	built := func(l ...layers.Layer) *keras.Model {
		m := keras.Sequential(l...)
		predicted(t, m, ramp(2, 4, 1))
		return m
	}
	good := keras.FromTensors(ramp(8, 4, 1), nil, nil).Batch(4)
	inf := ramp(8, 4, 1)
	inf = inf.Div(inf.Sub(inf))
	twice := built(conv("a"))
	if err := twice.QuantizeStatic(context.Background(), good, keras.CalibrationConfig{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m    *keras.Model
		d    keras.Dataset
		c    keras.CalibrationConfig
		want string
	}{
		{built(conv("a")), nil, keras.CalibrationConfig{}, "QuantizeStatic: no dataset given"},
		{keras.Sequential(conv("a")), good, keras.CalibrationConfig{}, "QuantizeStatic: the model is not built"},
		{built(conv("a")), good, keras.CalibrationConfig{Method: "max"}, `QuantizeStatic: Method is "max", want "min_max", "percentile" or "mse"`},
		{built(conv("a")), good, keras.CalibrationConfig{Percentile: 20}, "QuantizeStatic: Percentile is 20, want more than 50 and at most 100"},
		{built(conv("a")), good, keras.CalibrationConfig{Filters: []string{"("}}, "QuantizeStatic: Filters: error parsing regexp"},
		{built(conv("a")), good, keras.CalibrationConfig{Filters: []string{"b"}}, "QuantizeStatic: no layer that the filters match has a quantized form"},
		{built(conv("a"), conv("b")), keras.FromTensors(inf, nil, nil).Batch(4), keras.CalibrationConfig{}, "QuantizeStatic: layer a: its inputs are from"},
		{built(&layers.Conv1D{Filters: 1, KernelSize: layers.PerAxis{1}, DType: "float64", Name: "a"}), good, keras.CalibrationConfig{}, "QuantizeStatic: layer a: policy: int8 does not work well with compute type float64"},
		{built(conv("a")), nothing{}, keras.CalibrationConfig{}, "QuantizeStatic: " + keras.ErrEmptyDataset.Error()},
		{built(conv("a")), keras.FromTensors(ramp(8, 4, 3), nil, nil).Batch(4), keras.CalibrationConfig{}, "QuantizeStatic: "},
		{twice, good, keras.CalibrationConfig{}, "QuantizeStatic: layer a: policy: int8_static_from_float32 is quantized already"},
	} {
		if err := c.m.QuantizeStatic(context.Background(), c.d, c.c); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %s", err, c.want)
		}
		if c.m != twice && len(c.m.Weights()) > 0 && c.m.Weights()[0].DType() == keras.Int8 {
			t.Errorf("the model is quantized after an error with %s", c.want)
		}
	}
	m := built(conv("a"))
	ended, end := context.WithCancel(context.Background())
	end()
	if err := m.QuantizeStatic(ended, good, keras.CalibrationConfig{}); err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("got error %v", err)
	}
	a := m.Layers()[0]
	for _, r := range [][2]float64{{0, math.Inf(1)}, {math.NaN(), 1}, {2, 1}} {
		if err := layers.QuantizeStatic(a, r[0], r[1]); err == nil || !strings.Contains(err.Error(), "want two finite numbers in order") {
			t.Errorf("%v: got error %v", r, err)
		}
	}
	if err := layers.QuantizeStatic(&layers.Dense{}, 0, 1); err == nil || !strings.Contains(err.Error(), "Dense has no statically quantized form; Conv1D, Conv2D, Conv3D and, with DepthMultiplier 1, DepthwiseConv1D and DepthwiseConv2D have") {
		t.Errorf("got error %v", err)
	}
}

// nothing is a dataset of no batches.
type nothing struct{}

func (nothing) Batches() iter.Seq2[keras.Batch, error] {
	return func(func(keras.Batch, error) bool) {}
}

// TestQuantizeStaticStale: kernels that are packed for a zero point, and folded scales, are
// those of the weights' present values.
func TestQuantizeStaticStale(t *testing.T) {
	x := ramp(32, 9, 10, 3)
	m := convModel(t, "float32")
	if err := m.QuantizeStatic(context.Background(), keras.FromTensors(x, nil, nil).Batch(10), keras.CalibrationConfig{}); err != nil {
		t.Fatal(err)
	}
	before := predicted(t, m, x)
	for _, name := range []string{"second/inputs_zero_point", "first/inputs_scale", "first/kernel_scale", "batch_normalization/gamma", "first/kernel", "depthwise/kernel", "depthwise/kernel_scale", "depthwise/inputs_zero_point"} {
		for _, w := range m.Weights() {
			if w.Name() != name {
				continue
			}
			v, err := w.Float64s()
			if err != nil {
				t.Fatal(err)
			}
			for i := range v {
				v[i] = math.Round(v[i]/2 + 1)
			}
			if err := w.Set(v); err != nil {
				t.Fatal(err)
			}
		}
		clone, err := m.CloneUnder("", nil, false)
		if err != nil {
			t.Fatal(err)
		}
		after := predicted(t, m, x)
		if !slices.Equal(after, predicted(t, clone, x)) {
			t.Errorf("a model and its copy predict different numbers after a change of %s", name)
		}
		if slices.Equal(after, before) {
			t.Errorf("a change of %s changes nothing", name)
		}
		before = after
	}
}
