package optimizers

import (
	"bytes"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// snapshot is the bytes of variables by name.
func snapshot(t *testing.T, vars []*tensor.Variable) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for _, v := range vars {
		b, err := v.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if out[v.Name()] != nil {
			t.Fatalf("two variables are called %s", v.Name())
		}
		out[v.Name()] = b
	}
	return out
}

var inf, nan = float32(math.Inf(1)), float32(math.NaN())

// TestSkippedStepMovesNothing: to the bit, except for scale, counters and
// norm.
func TestSkippedStepMovesNothing(t *testing.T) {
	more := options{WeightDecay: new(0.1), ClipNorm: 2, UseEMA: true, EMAOverwriteFrequency: 2}
	windowed := more
	windowed.GradientAccumulationSteps = 2
	for _, inner := range []Optimizer{
		with(&SGD{Momentum: 0.9, Nesterov: true}, more),
		with(&RMSprop{Momentum: 0.9, Centered: true}, more),
		with(&Adam{AMSGrad: true}, more),
		with(&AdamW{}, more),
		with(&Adam{}, windowed),
		with(&Adamax{}, more),
		with(&Nadam{}, more),
		with(&Adagrad{}, more),
		with(&Adadelta{}, more),
		with(&Adafactor{}, more),
		with(&Ftrl{}, more),
		with(&Lion{}, more),
		with(&Lamb{}, more),
		with(&Muon{}, more),
	} {
		o := &LossScaleOptimizer{Inner: inner}
		v0 := variable("a", dtype.Float32, []float64{1, -2}, 1, 2)
		v1 := variable("b", dtype.Float16, []float64{3}, 1)
		v0.SetConstraint(func(w *tensor.Tensor) *tensor.Tensor { return w.Clip(-3, 3) })
		mean := tensor.NewState("moving_mean", dtype.Float32, nil, nil)
		mean.SetStatistic(true)
		vars := []*tensor.Variable{v0, v1}
		fn := tensor.Function(func(g []*tensor.Tensor) struct{} {
			mean.Assign(mean.Value().AddScalar(1).Mul(g[0].Sum()))
			o.ApplyGradients(g, vars)
			return struct{}{}
		}, o, owner(vars), owner{mean})
		window := 1
		if inner, ok := inner.(*Adam); ok && inner.GradientAccumulationSteps > 1 {
			window = inner.GradientAccumulationSteps
		}
		for range 3 * window {
			run(t, fn, f32(1, 2).Reshape(1, 2), f32(3))
		}
		all := append(append(owner{mean}, vars...), o.Variables()...)
		before := snapshot(t, all)
		for _, bad := range [][2]float32{{inf, 1}, {1, nan}, {-inf, nan}} {
			run(t, fn, f32(bad[0], 1).Reshape(1, 2), f32(bad[1]))
			for range window - 1 { // the rest of the window is finite, and skipped
				run(t, fn, f32(1, 1).Reshape(1, 2), f32(1))
			}
			for name, now := range snapshot(t, all) {
				switch name {
				case "loss_scale_optimizer/loss_scale", "loss_scale_optimizer/good_steps", "loss_scale_optimizer/skipped_steps",
					"loss_scale_optimizer/consecutive_skips", "loss_scale_optimizer/gradient_norm":
					if name == "loss_scale_optimizer/loss_scale" && bytes.Equal(now, before[name]) {
						t.Errorf("%T: %s did not move", inner, name)
					}
					continue
				}
				if !bytes.Equal(now, before[name]) {
					t.Errorf("%T: %s moved in a skipped step: %x, was %x", inner, name, now, before[name])
				}
			}
		}
		r := result(t, o)
		if r.Applied || r.AppliedSteps != 3 || r.SkippedSteps != 3 || r.ConsecutiveSkips != 3 || r.LossScale != 4096 {
			t.Errorf("%T: got %+v", inner, r)
		}
	}
}

func TestResult(t *testing.T) {
	o := &LossScaleOptimizer{Inner: &SGD{}, InitialScale: 4}
	v := variable("v", dtype.Float32, []float64{1, 1}, 2)
	if got, want := result(t, o), (StepResult{LossScale: 4}); got != want {
		t.Errorf("before: got %+v, want %+v", got, want)
	}
	fn := applier(o, v)
	for i, want := range []StepResult{
		{true, 4, 5, 1, 0, 0, 0},
		{false, 2, math.Inf(1), 1, 1, 1, 0},
		{false, 1, math.Inf(1), 1, 2, 2, 0},
		{false, 1, math.Inf(1), 1, 3, 3, 1},
		{false, 1, math.Inf(1), 1, 4, 4, 2},
		{true, 1, 5, 2, 4, 0, 0},
		{false, 1, math.Inf(1), 2, 5, 1, 1},
	} {
		g := f32(3, 4)
		if !want.Applied {
			g = f32(3, inf)
		}
		run(t, fn, g)
		if got := result(t, o); got != want || got.Steps() != int64(i+1) {
			t.Errorf("step %d: got %+v, want %+v", i, got, want)
		}
	}
	// A fixed scale is always at its floor.
	fixed := &LossScaleOptimizer{Inner: &SGD{}, Fixed: true}
	run(t, applier(fixed, v), f32(nan, 0))
	r := result(t, fixed)
	if r.SkipsAtFloor != 1 || r.SkippedSteps != 1 || !math.IsNaN(r.GradientNorm) || r.LossScale != 32768 {
		t.Errorf("fixed: got %+v", r)
	}
}

// TestAccumulationSkipsWindow: one micro-batch that is not finite skips the
// window it is in; the scale changes when the window ends, once.
func TestAccumulationSkipsWindow(t *testing.T) {
	o := &LossScaleOptimizer{Inner: &SGD{LearningRate: 1, GradientAccumulationSteps: 3}, InitialScale: 8, DynamicGrowthSteps: 2}
	v := variable("v", dtype.Float32, []float64{0}, 1)
	fn := scaledApplier(o, v)
	for i, c := range []struct {
		g                         float32
		v, scale, sum, steps, bad float64
	}{
		{3, 0, 8, 3, 0, 0}, {6, 0, 8, 9, 0, 0}, {9, -6, 8, 0, 1, 0},
		{3, -6, 8, 3, 1, 0}, {inf, -6, 8, math.Inf(1), 1, 1}, {9, -6, 4, 0, 1, 0},
		{nan, -6, 4, math.NaN(), 1, 1}, {nan, -6, 4, math.NaN(), 1, 2}, {nan, -6, 2, 0, 1, 0},
		{1, -6, 2, 1, 1, 0}, {1, -6, 2, 2, 1, 0}, {1, -7, 2, 0, 2, 0},
		{1, -7, 2, 1, 2, 0}, {1, -7, 2, 2, 2, 0}, {1, -8, 4, 0, 3, 0},
	} {
		run(t, fn, f32(c.g))
		got := []float64{item(t, v), result(t, o).LossScale, item(t, find(t, o, "v_gradient_accumulator")),
			item(t, find(t, o, "iteration")), item(t, find(t, o, "accumulated_non_finite"))}
		for j, want := range []float64{c.v, c.scale, c.sum, c.steps, c.bad} {
			if got[j] != want && !(math.IsNaN(got[j]) && math.IsNaN(want)) {
				t.Errorf("call %d: got %v, want %+v", i, got, c)
				break
			}
		}
	}
	if r := result(t, o); r.AppliedSteps != 3 || r.SkippedSteps != 2 || !r.Applied {
		t.Errorf("got %+v", r)
	}
}

// TestUnderflow is what the class is for: a float16 gradient of 2⁻³⁰ is 0
// without a loss scale.
func TestUnderflow(t *testing.T) {
	step := func(scaled bool) float64 {
		v := variable("v", dtype.Float32, []float64{1}, 1, 1)
		inner := &SGD{LearningRate: 1 << 35, AllowUnscaledLoss: true}
		o := &LossScaleOptimizer{Inner: inner}
		fn := tensor.Function(func(x *tensor.Tensor) struct{} {
			y := x.MatMul(v.Value().Cast(dtype.Float16)) // its gradient is x²
			loss := y.MatMul(x).MatMul(x).Cast(dtype.Float32).Sum()
			if scaled {
				o.ApplyGradients(o.GetUnscaledGradients(tensor.Gradients(o.GetScaledLoss(loss), owner{v})), owner{v})
			} else {
				inner.ApplyGradients(tensor.Gradients(loss, owner{v}), owner{v})
			}
			return struct{}{}
		}, o, owner{v})
		if err := fn.Run(t.Context(), tensor.New([]float32{0x1p-15}, 1, 1).Cast(dtype.Float16)); err != nil {
			t.Fatal(err)
		}
		return item(t, v)
	}
	if got := step(false); got != 1 {
		t.Errorf("without loss scaling: got %v, want 1: nothing moves", got)
	}
	if got, want := step(true), 1-0x1p-10; got != want { // 2³⁵·x³
		t.Errorf("with loss scaling: got %v, want %v", got, want)
	}
}

// TestTwoLosses: gradients are divided by the scale that their loss was
// multiplied by, even when a step in between has changed it.
func TestTwoLosses(t *testing.T) {
	o := &LossScaleOptimizer{Inner: &SGD{LearningRate: 1}, DynamicGrowthSteps: 1}
	v := variable("v", dtype.Float32, []float64{1})
	w := variable("w", dtype.Float32, []float64{1})
	fn := tensor.Function(func(struct{}) struct{} {
		a, b := o.GetScaledLoss(v.Value().MulScalar(0.5)), o.GetScaledLoss(w.Value().MulScalar(0.25))
		ga, gb := tensor.Gradients(a, owner{v}), tensor.Gradients(b, owner{w})
		o.ApplyGradients(o.GetUnscaledGradients(ga), owner{v})
		o.ApplyGradients(o.GetUnscaledGradients(gb), owner{w})
		return struct{}{}
	}, o, owner{v, w})
	if err := fn.Run(t.Context(), struct{}{}); err != nil {
		t.Fatal(err)
	}
	within(t, "weights", []float64{item(t, v), item(t, w)}, []float64{0.5, 0.75}, 0)
	if got := result(t, o).LossScale; got != 131072 {
		t.Errorf("scale: got %v, want 131072", got)
	}
}

// foreign is an optimizer from outside of this package.
type foreign struct{ SGD }

// setup hides what the package's own optimizers have.
//
//lint:ignore U1000 it is there not to be called
func (f *foreign) setup() int { return 0 }

func TestForeignInner(t *testing.T) {
	o := &LossScaleOptimizer{Inner: &foreign{SGD{LearningRate: 1}}}
	v := variable("v", dtype.Float32, []float64{1}, 1)
	fn := scaledApplier(o, v)
	for _, c := range []struct {
		g    float32
		want float64
	}{{1, 0}, {inf, 0}, {2, -2}} {
		run(t, fn, f32(c.g))
		within(t, "v", floats(t, v), []float64{c.want}, 0)
	}
	if n, err := o.Iterations(); n != 2 || err != nil {
		t.Errorf("iterations: got %d, %v, want 2", n, err)
	}
}
