package optimizers

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Numbers from Keras's own tests, optimizers/*_test.py; they are given with
// four decimals.
const fourDecimals = 1e-4

func within(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tol) {
			t.Errorf("%s: got %v, want %v, within %v", what, got, want, tol)
			return
		}
	}
}

func f32(data ...float32) *tensor.Tensor { return tensor.New(data, len(data)) }

func TestKerasSingleStep(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Optimizer
		want []float64
	}{
		{"SGD", &SGD{LearningRate: 0.5}, []float64{0.5, -1.0, -0.5, 3.0}},
		{"RMSprop", &RMSprop{LearningRate: 0.5}, []float64{-0.5811, 0.4189, 1.4189, 2.4189}},
		{"Adam", &Adam{LearningRate: 0.5}, []float64{0.5, 1.5, 2.5, 3.5}},
		{"AdamW", &AdamW{LearningRate: 0.5, WeightDecay: new(0.004)}, []float64{0.498, 1.496, 2.494, 3.492}},
		{"AdamW default", &AdamW{LearningRate: 0.5}, []float64{0.498, 1.496, 2.494, 3.492}},
		{"AdamW off", &AdamW{LearningRate: 0.5, WeightDecay: new(0.0)}, []float64{0.5, 1.5, 2.5, 3.5}},
		{"Adamax", &Adamax{LearningRate: 0.5}, []float64{0.5, 1.5, 2.5, 3.5}},
		{"Lion", &Lion{LearningRate: 0.5}, []float64{0.5, 1.5, 2.5, 3.5}},
		{"Adadelta", &Adadelta{LearningRate: 0.5}, []float64{0.9993, 1.9993, 2.9993, 3.9993}},
		{"Adagrad", &Adagrad{LearningRate: 0.5}, []float64{0.5233, 1.5007, 2.5005, 3.5061}},
		{"Nadam", &Nadam{LearningRate: 0.5}, []float64{0.4686, 1.4686, 2.4686, 3.4686}},
		{"Ftrl", &Ftrl{LearningRate: 0.5}, []float64{0.2218, 1.3954, 2.3651, 2.8814}},
		{"Adafactor", &Adafactor{LearningRate: 0.5}, []float64{-0.3693, 0.6307, 1.6307, 2.6307}},
		{"Lamb", &Lamb{LearningRate: 0.5}, []float64{-0.3693, 0.6306, 1.6306, 2.6306}},
		{"Muon, by AdamW", &Muon{LearningRate: 0.5, AdamWeightDecay: new(0.0)}, []float64{0.5, 1.5, 2.5, 3.5}},
		{"LossScaleOptimizer", &LossScaleOptimizer{Inner: &SGD{LearningRate: 0.5}}, []float64{0.5, -1.0, -0.5, 3.0}},
	} {
		v := variable("v", dtype.Float32, []float64{1, 2, 3, 4}, 4)
		run(t, applier(c.o, v), f32(1, 6, 7, 2))
		within(t, c.name, floats(t, v), c.want, fourDecimals)
	}
}

func TestKerasGoldenRuns(t *testing.T) {
	column := func(rows ...float64) [][2]float64 {
		var out [][2]float64
		for _, r := range rows {
			out = append(out, [2]float64{r, r})
		}
		return out
	}
	for _, c := range []struct {
		name string
		o    Optimizer
		want [][2]float64 // first and last element after each step
	}{
		{"SGD", &SGD{Nesterov: true}, [][2]float64{{0.9999, 0.9999}, {0.9989, 0.9899}, {0.9979, 0.9799}, {0.9969, 0.9699}, {0.9959, 0.9599}}},
		{"RMSprop", &RMSprop{Centered: true}, column(0.9967, 0.9933, 0.9908, 0.9885, 0.9864)},
		{"Adam", &Adam{AMSGrad: true}, column(0.999, 0.9982, 0.9974, 0.9965, 0.9955)},
		{"AdamW", &AdamW{LearningRate: 1, Epsilon: 2, WeightDecay: new(0.5)},
			[][2]float64{{0.4998, 0.4998}, {0.2486, 0.2382}, {0.1223, 0.1003}, {0.0586, 0.0258}, {0.0263, -0.0159}}},
		{"Adadelta", &Adadelta{LearningRate: 1, Rho: 0.8, Epsilon: 1e-6}, column(0.9978, 0.9947, 0.9915, 0.9882, 0.9849)},
		{"Adagrad", &Adagrad{LearningRate: 0.2, InitialAccumulatorValue: new(0.3), Epsilon: 1e-6},
			[][2]float64{{0.9963, 0.9963}, {0.9604, 0.8209}, {0.9251, 0.6891}, {0.8903, 0.579}, {0.856, 0.4825}}},
		{"Adamax", &Adamax{LearningRate: 0.2, Beta1: new(0.85), Beta2: 0.95, Epsilon: 1e-6},
			[][2]float64{{0.8, 0.8}, {0.6827, 0.691}, {0.5333, 0.5466}, {0.368, 0.3848}, {0.1933, 0.2126}}},
		{"Nadam", &Nadam{LearningRate: 0.5, Beta1: new(0.5), Beta2: 0.67, Epsilon: 1e-5},
			[][2]float64{{0.4281, 0.4281}, {-0.1738, -0.1717}, {-0.7115, -0.7084}, {-1.2335, -1.2299}, {-1.7492, -1.7454}}},
		{"Ftrl", &Ftrl{LearningRate: 0.05, LearningRatePower: new(-0.2), InitialAccumulatorValue: new(0.4), L1RegularizationStrength: 0.05,
			L2RegularizationStrength: 0.15, L2ShrinkageRegularizationStrength: 0.01, Beta: 0.3},
			[][2]float64{{0, 0}, {-0.0034, -0.0354}, {-0.0078, -0.0685}, {-0.0121, -0.0999}, {-0.0164, -0.1299}}},
		{"Adafactor", &Adafactor{LearningRate: 0.5, Beta2Decay: -0.65, Epsilon1: 1e-15, Epsilon2: 1e-4, ClipThreshold: 0.9, RelativeStep: new(false)},
			[][2]float64{{0.55, 0.55}, {0.3031, 0.3024}, {0.1671, 0.1663}, {0.0923, 0.0914}, {0.0554, 0.0545}}},
		{"Lion", &Lion{}, column(0.999, 0.998, 0.997, 0.996, 0.995)},
		{"Lamb", &Lamb{}, column(0.9990, 0.9979, 0.9969, 0.9959, 0.9949)}, // by its formula; Keras's test has looser numbers
	} {
		ones, first, later := make([]float64, 10), make([]float32, 10), make([]float32, 10)
		for i := range ones {
			ones[i], first[i], later[i] = 1, 0.01, float32(i+1)/10
		}
		v := variable("v", dtype.Float32, ones, 10)
		fn := applier(c.o, v)
		for i, want := range c.want {
			g := later
			if i == 0 {
				g = first
			}
			run(t, fn, f32(g...))
			w := floats(t, v)
			// The tolerance of Keras's test_correctness_with_golden.
			within(t, c.name, []float64{w[0], w[9]}, want[:], 5e-4)
		}
	}
}

func TestKerasWeightDecay(t *testing.T) {
	v := variable("v", dtype.Float32, []float64{2}, 1)
	excluded := variable("layer/exclude_me", dtype.Float32, []float64{2}, 1)
	other := variable("other", dtype.Float32, []float64{2}, 1)
	steps := 0
	for class := range classes {
		switch class {
		case wrapper, divider: // have no such field
			continue
		case "Ftrl", "ScheduleFreeAdamW": // make the weight anew
			continue
		}
		o, err := UnmarshalConfig([]byte(`{"class_name": "` + class + `", "config": {"learning_rate": 1, "weight_decay": 0.004,
			"exclude_from_weight_decay": ["exclude", "^other$"]}}`))
		if err != nil {
			t.Fatal(err)
		}
		run(t, applier(o, v, excluded, other), f32(0), f32(0), f32(0))
		steps++
	}
	if steps < 12 {
		t.Errorf("got %d classes, want at least 12", steps)
	}
	// Keras has 1.9760959 after three; each step rounds twice.
	want := 2 * math.Pow(0.996, float64(steps))
	within(t, "decayed", floats(t, v), []float64{want}, 2*2*float64(steps)*dtype.Float32.Epsilon())
	within(t, "excluded", append(floats(t, excluded), floats(t, other)...), []float64{2, 2}, 0)
}

func TestKerasClipping(t *testing.T) {
	eps := dtype.Float32.Epsilon()
	for _, c := range []struct {
		options options
		grad    []float32
		want    []float64
	}{
		{options{ClipNorm: 1}, []float32{100, 100}, []float64{0.70710678, 0.70710678}},
		{options{ClipValue: 1}, []float32{100, 100}, []float64{1, 1}},
		{options{GlobalClipNorm: 1}, []float32{50, 100}, []float64{50 / 111.80339887, 100 / 111.80339887}},
		{options{GlobalClipNorm: 1000}, []float32{50, 100}, []float64{50, 100}},
		{options{ClipNorm: 1}, []float32{0, 0}, []float64{0, 0}},
	} {
		v := variable("v", dtype.Float32, []float64{0, 0}, 2)
		run(t, applier(with(&SGD{LearningRate: 1}, c.options), v), f32(c.grad...))
		got := floats(t, v)
		for i := range got {
			// A square root, a division and two products, each rounded once.
			within(t, "clipped", []float64{-got[i]}, c.want[i:i+1], 4*eps*max(1, c.want[i]))
		}
	}
}

func TestGlobalNormOverAllGradients(t *testing.T) {
	a, b := variable("a", dtype.Float32, []float64{0}, 1), variable("b", dtype.Float32, []float64{0}, 1)
	o := &SGD{LearningRate: 1, GlobalClipNorm: 1}
	run(t, applier(o, a, b), f32(3), f32(4))
	within(t, "clipped", append(floats(t, a), floats(t, b)...), []float64{-0.6, -0.8}, 4*dtype.Float32.Epsilon())
	if r := result(t, o); r != (StepResult{Applied: true, LossScale: 1, GradientNorm: 5, AppliedSteps: 1}) {
		t.Errorf("got %+v", r)
	}
}

func TestKerasEMA(t *testing.T) {
	v := variable("v", dtype.Float32, []float64{3, 4, 5, 6}, 2, 2)
	o := &SGD{LearningRate: 1, UseEMA: true, EMAMomentum: 0.9, EMAOverwriteFrequency: 3}
	fn := applier(o, v)
	tol := 3 * 2 * dtype.Float32.Epsilon() * 5
	for _, want := range [][2][]float64{
		{{2, 3, 4, 5}, {2, 3, 4, 5}},
		{{1, 2, 3, 4}, {1.9, 2.9, 3.9, 4.9}},
		{{1.71, 2.71, 3.71, 4.71}, {1.71, 2.71, 3.71, 4.71}},
	} {
		run(t, fn, tensor.New([]float32{1, 1, 1, 1}, 2, 2))
		within(t, "weights", floats(t, v), want[0], tol)
		within(t, "average", floats(t, find(t, o, "v_average")), want[1], tol)
	}
}

func TestKerasAccumulation(t *testing.T) {
	v := variable("v", dtype.Float32, []float64{1, 2, 3, 4}, 2, 2)
	o := &SGD{LearningRate: 1, GradientAccumulationSteps: 3}
	fn := applier(o, v)
	for _, want := range []struct{ first, accumulator, iterations float64 }{{1, 1, 0}, {1, 2, 0}, {0, 0, 1}, {0, 1, 1}} {
		run(t, fn, tensor.New([]float32{1, 1, 1, 1}, 2, 2))
		n := want.first
		within(t, "weights", floats(t, v), []float64{n, n + 1, n + 2, n + 3}, 0)
		within(t, "accumulator", floats(t, find(t, o, "v_gradient_accumulator")), []float64{want.accumulator, want.accumulator, want.accumulator, want.accumulator}, 0)
		if got := item(t, find(t, o, "iteration")); got != want.iterations {
			t.Errorf("iterations: got %v, want %v", got, want.iterations)
		}
	}
}

// The example of TensorFlow's LossScaleOptimizer: one step on v² from 1 with
// rate 0.25 gives 0.5, the next 0.25.
func TestTensorFlowExample(t *testing.T) {
	o := &LossScaleOptimizer{Inner: &SGD{LearningRate: 0.25}}
	v := variable("v", dtype.Float32, []float64{1})
	vars := []*tensor.Variable{v}
	fn := tensor.Function(func(struct{}) *tensor.Tensor {
		loss := v.Value().Square()
		g := tensor.Gradients(o.GetScaledLoss(loss), vars)
		o.ApplyGradients(o.GetUnscaledGradients(g), vars)
		return loss
	}, o, owner(vars))
	for _, want := range []float64{0.5, 0.25} {
		if _, err := fn.Call(t.Context(), struct{}{}); err != nil {
			t.Fatal(err)
		}
		within(t, "v", floats(t, v), []float64{want}, 0)
	}
}

// Keras's test_downscaling, test_upscaling, and TensorFlow's rule with its
// floor of 1.
func TestScaleSequences(t *testing.T) {
	for _, c := range []struct {
		o      LossScaleOptimizer
		finite string
		want   []float64
	}{
		{LossScaleOptimizer{InitialScale: 400}, "iiii", []float64{200, 100, 50, 25}},
		{LossScaleOptimizer{InitialScale: 2, DynamicGrowthSteps: 2}, "........", []float64{2, 4, 4, 8, 8, 16, 16, 32}},
		{LossScaleOptimizer{InitialScale: 4, DynamicGrowthSteps: 2}, "..iiii", []float64{4, 8, 4, 2, 1, 1}},
		{LossScaleOptimizer{InitialScale: 8, DynamicGrowthSteps: 1, MaxScale: 20, MinScale: 3}, "...iiii", []float64{16, 20, 20, 10, 5, 3, 3}},
		{LossScaleOptimizer{InitialScale: 8, DynamicGrowthSteps: 1, Growth: 3, Backoff: 0.25}, "..i", []float64{24, 72, 18}},
		{LossScaleOptimizer{InitialScale: 1, DynamicGrowthSteps: 1, Growth: math.MaxFloat32, MaxScale: math.MaxFloat32}, "...", []float64{math.MaxFloat32, math.MaxFloat32, math.MaxFloat32}},
		{LossScaleOptimizer{InitialScale: 0x1p-125, MinScale: 0x1p-126, Backoff: 0x1p-100}, "ii", []float64{0x1p-126, 0x1p-126}},
		{LossScaleOptimizer{InitialScale: 64, DynamicGrowthSteps: 1, Fixed: true}, "..i.", []float64{64, 64, 64, 64}},
	} {
		c.o.Inner = &SGD{LearningRate: 0.5}
		v := variable("v", dtype.Float32, []float64{1}, 1)
		fn := applier(&c.o, v)
		for i, f := range c.finite {
			g := float32(0)
			if f != '.' {
				g = float32(math.NaN())
			}
			run(t, fn, f32(g))
			if got := result(t, &c.o).LossScale; got != c.want[i] {
				t.Errorf("%v, step %d: scale: got %v, want %v", c.finite, i, got, c.want[i])
			}
		}
	}
}

// TestDefaults follows the user guide: the scale starts at 2¹⁵ and doubles
// after 2,000 good steps.
func TestDefaults(t *testing.T) {
	o := &LossScaleOptimizer{Inner: &SGD{}}
	v := variable("v", dtype.Float32, []float64{1}, 1)
	fn := applier(o, v)
	g := f32(0)
	run(t, fn, g)
	if err := find(t, o, "good_steps").Set([]float64{1998}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []float64{32768, 65536} {
		run(t, fn, g)
		if got := result(t, o).LossScale; got != want {
			t.Errorf("scale: got %v, want %v", got, want)
		}
	}
	for name, want := range map[string]float64{"sgd": 0.01, "rmsprop": 0.001, "ADAM": 0.001, "AdamW": 0.001, "lamb": 0.001, "muon": 0.001} {
		o, err := Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if rate, err := CurrentLearningRate(o); err != nil || float32(rate) != float32(want) {
			t.Errorf("%s: rate: got %v, %v, want %v", name, rate, err, want)
		}
	}
	const want = `unknown optimizer "lam"; did you mean "Lamb"? have Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Ftrl, Lamb, Lion, Muon, Nadam, RMSprop, SGD, ScheduleFreeAdamW`
	if _, err := Get("lam"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestLossScaleVectors are Keras's tests of a finite step, of an infinite one,
// and of a scale that stays.
func TestLossScaleVectors(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name  string
		o     *LossScaleOptimizer
		first []float64
		g     []float32
		want  []float64
	}{
		{"24", &LossScaleOptimizer{Inner: &SGD{LearningRate: 0.5}}, []float64{1, 2, 3, 4}, []float32{1, 6, 7, 2}, []float64{0.5, -1, -0.5, 3}},
		{"25", &LossScaleOptimizer{Inner: &SGD{LearningRate: 0.5}}, []float64{1, 2, 3, 4}, []float32{inf, inf, inf, inf}, []float64{1, 2, 3, 4}},
		{"32", &LossScaleOptimizer{Inner: &SGD{LearningRate: 1}, InitialScale: 1024, Fixed: true}, []float64{1, 2, 3, 4}, []float32{1, 2, 3, 4}, []float64{0, 0, 0, 0}},
	} {
		v := variable("v", dtype.Float32, c.first, 4)
		run(t, scaledApplier(c.o, v), f32(c.g...))
		within(t, c.name, floats(t, v), c.want, 0)
	}
}
