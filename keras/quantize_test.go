package keras_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/policy"
)

// ramp is a tensor of numbers of both signs.
func ramp(shape ...int) *keras.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(math.Sin(float64(i) * 0.7))
	}
	return keras.NewTensor(x, shape...)
}

func predicted(t *testing.T, m *keras.Model, x *keras.Tensor) []float32 {
	t.Helper()
	y, err := m.Predict(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	v, err := y.Values()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mustQuantize(t *testing.T, m *keras.Model) {
	t.Helper()
	if err := m.Quantize("int8"); err != nil {
		t.Fatal(err)
	}
}

// TestQuantizeKinds: a quantized model computes nearly what the model did, wherever its
// layers are, and so does its clone, to the bit.
func TestQuantizeKinds(t *testing.T) {
	sequential := func(l ...layers.Layer) func() *keras.Model {
		return func() *keras.Model { return keras.Sequential(l...) }
	}
	for name, c := range map[string]struct {
		make  func() *keras.Model
		input *keras.Tensor
		int8s int
	}{
		"dense":       {sequential(&layers.Dense{Units: 40, Activation: "tanh"}, &layers.Dense{Units: 3}), ramp(5, 9), 2},
		"convolution": {sequential(&layers.Conv1D{Filters: 4, KernelSize: []int{3}}, &layers.Flatten{}, &layers.Dense{Units: 3}), ramp(5, 9, 2), 1},
		"distributed": {sequential(&layers.TimeDistributed{Layer: &layers.Dense{Units: 6}}, &layers.LSTM{Units: 4}), ramp(2, 5, 9), 1},
		"attention": {func() *keras.Model {
			x := keras.Input(5, 8)
			m, err := keras.NewModel(x, keras.Apply(&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 4}, x, x))
			if err != nil {
				t.Fatal(err)
			}
			return m
		}, ramp(3, 5, 8), 4},
		"nested": {func() *keras.Model {
			return keras.Sequential(keras.Sequential(&layers.Dense{Units: 6, Activation: "relu"}).Layer(), &layers.Dense{Units: 3})
		}, ramp(4, 7), 2},
		"spectral": {sequential(&layers.SpectralNormalization{Layer: &layers.Dense{Units: 6}}, &layers.Dense{Units: 3}), ramp(4, 7), 1},
		"shared": {func() *keras.Model {
			l, x := &layers.Dense{Units: 6}, keras.Input(6)
			m, err := keras.NewModel(x, keras.Apply(l, keras.Apply(l, x)))
			if err != nil {
				t.Fatal(err)
			}
			return m
		}, ramp(4, 6), 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.make()
			before := predicted(t, m, c.input)
			mustQuantize(t, m)
			n := 0
			for _, w := range m.Weights() {
				if w.DType() == keras.Int8 {
					n++
				}
			}
			if n != c.int8s {
				t.Errorf("%d weights are int8, want %d", n, c.int8s)
			}
			after := predicted(t, m, c.input)
			for i, y := range after {
				if math.Abs(float64(y-before[i])) > 0.05 {
					t.Errorf("element %d: got %v, want about %v", i, y, before[i])
					break
				}
			}
			clone, err := m.CloneUnder("", nil, false)
			if err != nil {
				t.Fatal(err)
			}
			if got := predicted(t, clone, c.input); !slices.Equal(got, after) {
				t.Errorf("the clone predicts %v, want %v", got, after)
			}
		})
	}
}

// TestQuantizeNonFinite: a row with a number that is not finite gives NaN, and no other
// row does.
func TestQuantizeNonFinite(t *testing.T) {
	m := keras.Sequential(&layers.Dense{Units: 5})
	predicted(t, m, ramp(3, 20))
	mustQuantize(t, m)
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		x, err := ramp(3, 20).Values()
		if err != nil {
			t.Fatal(err)
		}
		x[20+7] = bad
		for i, y := range predicted(t, m, keras.NewTensor(x, 3, 20)) {
			if (y != y) != (i/5 == 1) {
				t.Errorf("%v in row 1: element %d of row %d is %v", bad, i%5, i/5, y)
			}
		}
	}
}

// TestQuantizeTrained: a compiled model is evaluated after Quantize, and not trained.
func TestQuantizeTrained(t *testing.T) {
	ctx := context.Background()
	m := keras.Sequential(&layers.Dense{Units: 8, Activation: "relu", Name: "hidden"}, &layers.Dense{Units: 1})
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}}); err != nil {
		t.Fatal(err)
	}
	d := keras.FromTensors(ramp(32, 4), ramp(32, 1), nil).Batch(8)
	if _, err := m.Fit(ctx, d, keras.FitConfig{Epochs: 2, Verbose: keras.VerbositySilent}); err != nil {
		t.Fatal(err)
	}
	before, err := m.Evaluate(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	mustQuantize(t, m)
	after, err := m.Evaluate(ctx, d)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := before.Get("loss"), after.Get("loss"); a == b || math.Abs(a-b) > 0.01*a {
		t.Errorf("loss %v before and %v after Quantize", a, b)
	}
	const want = "layer hidden has policy int8_from_float32, which only predicts: 8-bit integers have no gradient"
	_, fit := m.Fit(ctx, d, keras.FitConfig{Verbose: keras.VerbositySilent})
	for _, err := range []error{fit, m.TrainStep(ctx, keras.Batch{X: ramp(8, 4), Y: ramp(8, 1)})} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	var s strings.Builder
	if err := m.Summary(&s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"int8, float32", "Total params: "} {
		if !strings.Contains(s.String(), want) {
			t.Errorf("no %q in\n%s", want, s.String())
		}
	}
}

// TestQuantizeErrors: errors name the layer, and nothing changes.
func TestQuantizeErrors(t *testing.T) {
	built := func(l ...layers.Layer) *keras.Model {
		m := keras.Sequential(l...)
		predicted(t, m, ramp(2, 4))
		return m
	}
	twice := built(&layers.Dense{Units: 2})
	mustQuantize(t, twice)
	mixed := built(&layers.Dense{Units: 3}, &layers.Dense{Units: 2, DType: "mixed_float16", Name: "half"})
	for _, c := range []struct {
		m    *keras.Model
		mode string
		want string
	}{
		{built(&layers.Dense{Units: 2}), "int4", `Quantize: got mode "int4", want "int8"`},
		{keras.Sequential(&layers.Dense{Units: 2}), "int8", "Quantize: the model is not built"},
		{built(&layers.ReLU{}), "int8", "Quantize: no layer has a quantized form; Dense, EinsumDense and Embedding have"},
		{mixed, "int8", "Quantize: layer half: policy: int8 does not work well with compute type float16 of mixed_float16"},
		{built(&layers.Dense{Units: 2, DType: "float64"}), "int8", "compute type float64"},
		{twice, "int8", "Quantize: layer dense: policy: int8_from_float32 is quantized already"},
	} {
		if err := c.m.Quantize(c.mode); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
	if d := mixed.Weights()[0].DType(); d != keras.Float32 {
		t.Errorf("after an error the first weight is %v", d)
	}
	if err := layers.Quantize(&layers.Dense{Units: 1}); err == nil || !strings.Contains(err.Error(), "the layer is not built") {
		t.Errorf("got error %v", err)
	}
	if err := layers.Quantize(&layers.ReLU{}); err == nil || !strings.Contains(err.Error(), "ReLU has no quantized form") {
		t.Errorf("got error %v", err)
	}
	type own struct{ layers.Dense }
	if layers.Quantizable(&own{}) {
		t.Error("a type that embeds Dense has a quantized form")
	}
}

// TestQuantizedPolicy: a layer can be built with a quantized policy, for weights that are
// loaded.
func TestQuantizedPolicy(t *testing.T) {
	m := keras.Sequential(&layers.Dense{Units: 3, DType: "int8_from_mixed_bfloat16"})
	if y := predicted(t, m, ramp(2, 4)); slices.ContainsFunc(y, func(f float32) bool { return f != 0 }) {
		t.Errorf("zeros give %v", y)
	}
	p := layers.BaseOf(m.Layers()[0]).Policy()
	if want := (policy.Policy{Name: "int8_from_mixed_bfloat16", Compute: keras.BFloat16, Variable: keras.Float32, Int8: true}); p != want || p.Source() != "mixed_bfloat16" {
		t.Errorf("got policy %+v, source %s", p, p.Source())
	}
	for _, name := range []string{"int8_from_mixed_float16", "int8_from_float64", "int8_from_mixed_float32", "int8_from_mixed_float8", "int8_from_int8_from_float32", "int8_from_x"} {
		if p, err := policy.Parse(name); err == nil {
			t.Errorf("Parse(%q) is %v", name, p)
		}
	}
}
