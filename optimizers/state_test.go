package optimizers

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// parts has Adam for vectors such as biases and SGD for the rest.
func parts(steps int) *MultiOptimizer {
	o := options{GradientAccumulationSteps: steps}
	return &MultiOptimizer{OptimizerMap: OptimizerMap{
		Default: with(&SGD{Momentum: 0.9}, o),
		Entries: []OptimizerEntry{{"(.*/)?(bias|w)", with(&Adam{}, o)}},
	}}
}

// every returns one optimizer for each update rule and option.
func every() map[string]Optimizer {
	return map[string]Optimizer{
		"sgd":                  &SGD{},
		"sgd momentum":         &SGD{Momentum: 0.9},
		"sgd nesterov":         &SGD{Momentum: 0.9, Nesterov: true},
		"rmsprop":              &RMSprop{},
		"rmsprop all":          &RMSprop{Momentum: 0.9, Centered: true},
		"adam":                 &Adam{},
		"adam amsgrad":         &Adam{AMSGrad: true},
		"adamw":                &AdamW{},
		"adam without beta1":   &Adam{Beta1: new(0.0)},
		"adamax":               &Adamax{},
		"nadam":                &Nadam{},
		"adagrad":              &Adagrad{},
		"adadelta":             &Adadelta{},
		"adafactor":            &Adafactor{},
		"ftrl":                 &Ftrl{},
		"ftrl all":             &Ftrl{LearningRatePower: new(-0.3), L2ShrinkageRegularizationStrength: 0.1, WeightDecay: new(0.1)},
		"lion":                 &Lion{},
		"lamb":                 &Lamb{},
		"lamb decayed":         &Lamb{WeightDecay: new(0.1)},
		"muon":                 &Muon{},
		"muon plain":           &Muon{Nesterov: new(false)},
		"schedule free":        &ScheduleFreeAdamW{WarmupSteps: 3},
		"scaled schedule free": &LossScaleOptimizer{Inner: &ScheduleFreeAdamW{}},
		"scaled nadam":         &LossScaleOptimizer{Inner: &Nadam{}},
		"scaled ftrl":          &LossScaleOptimizer{Inner: &Ftrl{}},
		"scaled lamb":          &LossScaleOptimizer{Inner: &Lamb{}},
		"scaled muon":          &LossScaleOptimizer{Inner: &Muon{GradientAccumulationSteps: 2}},
		"multi":                parts(0),
		"scaled multi":         &LossScaleOptimizer{Inner: parts(3)},
		"clip norm":            &Adam{ClipNorm: 1},
		"clip global norm":     &Adam{GlobalClipNorm: 1},
		"average":              &Adam{UseEMA: true},
		"average overwrites":   &Adam{UseEMA: true, EMAOverwriteFrequency: 2},
		"accumulate":           &Adam{GradientAccumulationSteps: 3},
		"scaled":               &LossScaleOptimizer{Inner: &Adam{}},
		"scaled and decayed":   &LossScaleOptimizer{Inner: &AdamW{}},
		"scaled rmsprop":       &LossScaleOptimizer{Inner: &RMSprop{Momentum: 0.5, Centered: true}},
		"scaled, accumulate":   &LossScaleOptimizer{Inner: &Adam{GradientAccumulationSteps: 3}},
		"scaled with averages": &LossScaleOptimizer{Inner: &SGD{UseEMA: true}},
	}
}

// TestInPlace: weights and slots are overwritten where they are, steady steps
// allocate nothing, and the learning rate changes without compiling again.
func TestInPlace(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	const n = 32 * 32
	for name, o := range every() {
		v := variable("layer/kernel", dtype.Float32, nil, 32, 32)
		w := variable("layer/bias", dtype.Float32, nil, 3)
		fn := applier(o, v, w)
		g := []*tensor.Tensor{tensor.Ones(dtype.Float32, 32, 32), f32(1, 2, 3)}
		plan, err := fn.Plan(g)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, in := range plan.Donated {
			if in < 0 && plan.Outputs[i].Type.Shape.Size() != 1 { // the norm is not read, so it has no place
				t.Errorf("%s: output %d, %v, is not in place", name, i, plan.Outputs[i].Type)
			}
		}
		for i, out := range plan.Outputs {
			// A copy at the end of the step says that the value could not be
			// computed over the old one.
			if out.Op == op.Identity && out.Type.Shape.Size() == n {
				t.Errorf("%s: output %d, %v of %s, is copied into place", name, i, out.Type, out.Args[0].Path)
			}
		}
		ctx := context.Background()
		run(t, fn, g...)
		if allocs := testing.AllocsPerRun(10, func() {
			if err := fn.Run(ctx, g); err != nil {
				t.Fatal(err)
			}
		}); allocs != 0 {
			t.Errorf("%s: %v allocations per step, want 0", name, allocs)
		}
		if fn.Programs() != 1 {
			t.Errorf("%s: %d programs, want 1", name, fn.Programs())
		}
		err = SetLearningRate(o, 0.5)
		if strings.HasSuffix(name, "multi") {
			if err == nil {
				t.Errorf("%s: SetLearningRate: got no error", name)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		run(t, fn, g...)
		if rate, err := CurrentLearningRate(o); rate != 0.5 || err != nil || fn.Programs() != 1 {
			t.Errorf("%s: rate %v, %v after setting it to 0.5; %d programs, want 1", name, rate, err, fn.Programs())
		}
	}
}

// TestWorkingMemory: most updates need no memory of the size of a weight, and
// Lamb, whose norm needs one value as a whole, only that of one variable.
func TestWorkingMemory(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	const n = 64 * 64
	for name, o := range every() {
		most := 4 * n
		switch _, scaled := o.(*LossScaleOptimizer); {
		case scaled, name == "clip norm", name == "clip global norm", name == "accumulate":
			continue // what is computed from all elements of a gradient comes first
		case name == "average overwrites":
			continue // both the average and what replaces it read the updated weight
		case name == "adafactor", strings.HasPrefix(name, "muon"):
			continue // their direction is a product, or needed for a norm
		case strings.HasPrefix(name, "lamb"):
			most *= 2
		}
		var vars owner
		var g []*tensor.Tensor
		for _, v := range []string{"a", "b", "c"} {
			vars = append(vars, variable(v, dtype.Float32, nil, 64, 64))
			g = append(g, tensor.Ones(dtype.Float32, 64, 64))
		}
		need, err := applier(o, vars...).MemoryOf(g)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if need.Arena >= most {
			t.Errorf("%s: needs %d bytes, want less than %d", name, need.Arena, most)
		}
	}
}

// reference is Adam in float64 with the constants of Keras's float32.
func reference(w float64, grads []float64, single bool) float64 {
	round := func(x float64) float64 {
		if single {
			return float64(float32(x))
		}
		return x
	}
	m, v := 0.0, 0.0
	b1, b2 := round(0.9), round(0.999)
	rate := float64(float32(0.05)) // the rate is float32 for all types
	for i, g := range grads {
		step := float64(i + 1)
		m += (g - m) * round(1-0.9)
		v += (g*g - v) * round(1-0.999)
		alpha := rate * math.Sqrt(1-math.Pow(b2, step)) / (1 - math.Pow(b1, step))
		w -= alpha * m / (math.Sqrt(v) + 1e-7)
	}
	return w
}

// TestVariableTypes: slots are float32, float64 for float64, and the
// arithmetic is theirs.
func TestVariableTypes(t *testing.T) {
	grads := []float64{0.5, -0.25, 2, 1, 0.125}
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64} {
		v := variable("v", d, []float64{1.5}, 1)
		o := &Adam{LearningRate: 0.05}
		fn := applier(o, v)
		for _, g := range grads {
			run(t, fn, tensor.New([]float64{g}, 1).Cast(d))
		}
		want := reference(1.5, grads, d != dtype.Float64)
		if d.Is16() {
			// Each step rounds the weight to 16 bits: half an epsilon of a number
			// below 2, which is one of 1.
			within(t, d.String(), floats(t, v), []float64{want}, float64(len(grads))*d.Epsilon())
		} else {
			// A dozen operations in each step, at most half an epsilon of 2 each.
			within(t, d.String(), floats(t, v), []float64{want}, 12*float64(len(grads))*d.Epsilon())
		}
		for _, s := range o.Variables() {
			if strings.HasPrefix(s.Name(), "adam/v_") && s.DType() != d.Accumulator() {
				t.Errorf("%s of %v is %v, want %v", s.Name(), d, s.DType(), d.Accumulator())
			}
		}
	}
}

// TestMovingSlotKeepsSmallUpdates: float16 slots would stand still.
func TestMovingSlotKeepsSmallUpdates(t *testing.T) {
	v := variable("v", dtype.Float16, []float64{1}, 1)
	o := &Adam{}
	fn := applier(o, v)
	g := tensor.New([]float32{0x1p-12}, 1).Cast(dtype.Float16)
	run(t, fn, g)
	// g²/1000 is 6e-11, far below the smallest float16 of 6e-8.
	if got, want := item(t, find(t, o, "v_velocity")), 0x1p-24*0.001; math.Abs(got-want) > want*0x1p-22 {
		t.Errorf("velocity: got %v, want %v", got, want)
	}
}

// TestOrderOfVariables is the order of Keras's files.
func TestOrderOfVariables(t *testing.T) {
	all := options{UseEMA: true, GradientAccumulationSteps: 2}
	noRate := options{Schedule: &ExponentialDecay{InitialLearningRate: 1, DecaySteps: 1, DecayRate: 1}}
	for _, c := range []struct {
		o    Optimizer
		want string
	}{
		{&SGD{}, "iteration learning_rate"},
		{with(&SGD{}, noRate), "iteration"},
		{&SGD{Momentum: 0.9}, "iteration learning_rate dense_kernel_momentum b_momentum"},
		{&RMSprop{Momentum: 0.9, Centered: true}, "iteration learning_rate dense_kernel_velocity b_velocity dense_kernel_momentum b_momentum dense_kernel_average_gradient b_average_gradient"},
		{with(&Adam{AMSGrad: true}, all), "iteration learning_rate dense_kernel_average b_average dense_kernel_gradient_accumulator b_gradient_accumulator " +
			"dense_kernel_momentum dense_kernel_velocity b_momentum b_velocity dense_kernel_velocity_hat b_velocity_hat"},
		{&Nadam{}, "iteration learning_rate dense_kernel_momentum dense_kernel_velocity b_momentum b_velocity u_product"},
		{&Adamax{}, "iteration learning_rate dense_kernel_momentum dense_kernel_norm b_momentum b_norm"},
		{&Ftrl{}, "iteration learning_rate dense_kernel_accumulator dense_kernel_linear b_accumulator b_linear"},
		{&Adadelta{}, "iteration learning_rate dense_kernel_accumulated_grad dense_kernel_accumulated_delta_var b_accumulated_grad b_accumulated_delta_var"},
		{&Muon{}, "iteration learning_rate dense_kernel_momentum b_momentum b_velocity"},
		{&Adafactor{}, "iteration learning_rate dense_kernel_r dense_kernel_c b_velocity"}, // Keras has three more
	} {
		v, w := variable("dense/kernel", dtype.Float32, nil, 1, 1), variable("b", dtype.Float32, nil, 1)
		run(t, tensor.Function(func(g []*tensor.Tensor) struct{} {
			c.o.ApplyGradients([]*tensor.Tensor{nil, g[0]}, owner{v, w}) // slots are made for both
			return struct{}{}
		}, c.o, owner{v, w}), f32(1))
		var got []string
		keras := c.o.(interface{ kerasVariables() []*tensor.Variable }).kerasVariables()
		for i, v := range keras {
			if c.o.Variables()[i] != v {
				t.Errorf("%T: Variables does not start with those of Keras", c.o)
			}
			got = append(got, v.Name()[strings.Index(v.Name(), "/")+1:])
		}
		if g := strings.Join(got, " "); g != c.want {
			t.Errorf("%T:\ngot  %s\nwant %s", c.o, g, c.want)
		}
	}
}

// TestNilGradient leaves its variable alone.
func TestNilGradient(t *testing.T) {
	v, w := variable("v", dtype.Float32, []float64{1}, 1), variable("w", dtype.Float32, []float64{1}, 1)
	o := &LossScaleOptimizer{Inner: &SGD{LearningRate: 1, WeightDecay: new(0.5), UseEMA: true}}
	fn := tensor.Function(func(struct{}) struct{} {
		g := tensor.Gradients(o.GetScaledLoss(w.Value().Sum()), owner{v, w})
		o.ApplyGradients(o.GetUnscaledGradients(g), owner{v, w})
		return struct{}{}
	}, o, owner{v, w})
	if err := fn.Run(t.Context(), struct{}{}); err != nil {
		t.Fatal(err)
	}
	if err := o.FinalizeVariables(); err != nil {
		t.Fatal(err)
	}
	within(t, "weights", []float64{item(t, v), item(t, w)}, []float64{1, -0.5}, 0)
}

// TestConstantGradient: a gradient need not depend on the recording.
func TestConstantGradient(t *testing.T) {
	for name, o := range every() {
		v := variable("v", dtype.Float32, []float64{1, 1}, 2)
		fn := tensor.Function(func(struct{}) struct{} {
			o.ApplyGradients([]*tensor.Tensor{tensor.Ones(dtype.Float32, 2)}, owner{v})
			return struct{}{}
		}, o, owner{v})
		for range 3 {
			if err := fn.Run(t.Context(), struct{}{}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if w := floats(t, v); !(w[0] < 1 && w[0] == w[1]) {
			t.Errorf("%s: got %v", name, w)
		}
	}
}

func TestConstraint(t *testing.T) {
	v := variable("v", dtype.Float16, []float64{1, -1}, 2)
	v.SetConstraint(func(w *tensor.Tensor) *tensor.Tensor { return w.MaximumScalar(0) })
	o := &SGD{LearningRate: 1, UseEMA: true}
	run(t, applier(o, v), f32(-1, 1).Cast(dtype.Float16))
	within(t, "weights", floats(t, v), []float64{2, 0}, 0)
	within(t, "average", floats(t, find(t, o, "v_average")), []float64{2, -2}, 0) // Keras averages first
}

// TestSwapEMA gives weights and averages back to the bit, even where the
// averages have more of them.
func TestSwapEMA(t *testing.T) {
	v := variable("v", dtype.BFloat16, []float64{1, -1}, 2)
	o := &SGD{LearningRate: 0.3, UseEMA: true, EMAMomentum: 0.7}
	if err := o.SwapEMA(); err != nil { // nothing to swap yet
		t.Fatal(err)
	}
	fn := applier(o, v)
	for range 3 {
		run(t, fn, f32(0.7, 0.1).Cast(dtype.BFloat16))
	}
	avg := find(t, o, "v_average")
	w0, a0 := floats(t, v), floats(t, avg)
	if err := o.SwapEMA(); err != nil {
		t.Fatal(err)
	}
	// Once rounded to bfloat16.
	within(t, "swapped", floats(t, v), a0, dtype.BFloat16.Epsilon())
	within(t, "weights", floats(t, avg), w0, 0)
	if err := o.FinalizeVariables(); err == nil {
		t.Error("FinalizeVariables while swapped: got no error")
	}
	if err := o.SwapEMA(); err != nil {
		t.Fatal(err)
	}
	within(t, "weights again", floats(t, v), w0, 0)
	within(t, "averages again", floats(t, avg), a0, 0)
	if err := o.FinalizeVariables(); err != nil {
		t.Fatal(err)
	}
	within(t, "final", floats(t, v), a0, dtype.BFloat16.Epsilon())
}

// TestFinalizeBeforeFirstStep keeps the weights.
func TestFinalizeBeforeFirstStep(t *testing.T) {
	v := variable("v", dtype.Float32, []float64{1}, 1)
	o := &LossScaleOptimizer{Inner: &SGD{UseEMA: true}}
	if err := o.FinalizeVariables(); err != nil {
		t.Fatal(err)
	}
	run(t, applier(o, v), f32(nan)) // skipped
	if err := o.FinalizeVariables(); err != nil {
		t.Fatal(err)
	}
	within(t, "weights", floats(t, v), []float64{1}, 0)
}

// TestRestored: an optimizer with the state of another continues as that one
// would, to the bit.
func TestRestored(t *testing.T) {
	more := options{UseEMA: true, GradientAccumulationSteps: 2}
	make := func() (*LossScaleOptimizer, *tensor.Variable, *stepFunc) {
		o := &LossScaleOptimizer{Inner: with(&Adam{}, more), DynamicGrowthSteps: 2}
		v := variable("v", dtype.Float32, []float64{1}, 1)
		return o, v, applier(o, v)
	}
	o, v, fn := make()
	p, w, other := make()
	for _, g := range []float32{1, inf, 3, 2, 1} {
		run(t, fn, f32(g))
	}
	if _, err := other.Plan([]*tensor.Tensor{f32(1)}); err != nil { // makes the slots
		t.Fatal(err)
	}
	from := snapshot(t, append(o.Variables(), v))
	for _, x := range append(p.Variables(), w) {
		if err := x.SetBytes(from[x.Name()]); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range []float32{1, 2, 3, inf, 5} {
		run(t, fn, f32(g))
		run(t, other, f32(g))
	}
	got := snapshot(t, append(p.Variables(), w))
	for name, want := range snapshot(t, append(o.Variables(), v)) {
		if string(got[name]) != string(want) {
			t.Errorf("%s: got %x, want %x", name, got[name], want)
		}
	}
}

// TestJSON: the exported fields are the configuration.
func TestJSON(t *testing.T) {
	o := &RMSprop{LearningRate: 0.5, Centered: true, WeightDecay: new(0.0), ClipNorm: 2, Name: "mine"}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var p RMSprop
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(&p)
	if err != nil || string(again) != string(b) || !strings.Contains(string(b), `"LearningRate":0.5`) {
		t.Errorf("got %s, %v, want %s", again, err, b)
	}
}

// TestCloneParts: optimizers of parts are cloned once each, without state.
func TestCloneParts(t *testing.T) {
	shared := &Adam{LearningRate: 0.5}
	o := &MultiOptimizer{OptimizerMap: OptimizerMap{Default: &SGD{}, Entries: []OptimizerEntry{{"a", shared}, {"b", shared}}}}
	run(t, applier(o, variable("a", dtype.Float32, nil, 1)), f32(1))
	c := Clone(o).(*MultiOptimizer)
	parts := c.Optimizers()
	if len(parts) != 2 || parts[0] == Optimizer(shared) || parts[0].(*Adam).LearningRate != 0.5 {
		t.Fatalf("got parts %v, want clones of an Adam and an SGD", parts)
	}
	if n, err := Iterations(parts[0]); n != 0 || err != nil {
		t.Errorf("got %d steps, %v, of a clone, want none", n, err)
	}
}

// TestLearningRateField: the rate is taken from the field once. A change of the
// field after that is an error before the next step, also of a compiled one,
// until SetLearningRate says what is meant.
func TestLearningRateField(t *testing.T) {
	for _, c := range []struct {
		name string
		of   func(o *SGD) Optimizer
	}{
		{"sgd", func(o *SGD) Optimizer { return o }},
		{"scaled", func(o *SGD) Optimizer { return &LossScaleOptimizer{Inner: o} }},
		{"default of multi", func(o *SGD) Optimizer { return &MultiOptimizer{OptimizerMap: OptimizerMap{Default: o}} }},
		{"part of multi", func(o *SGD) Optimizer {
			return &MultiOptimizer{OptimizerMap: OptimizerMap{Default: &Adam{}, Entries: []OptimizerEntry{{"v", o}}}}
		}},
	} {
		sgd := &SGD{LearningRate: 0.5}
		o := c.of(sgd)
		v := variable("v", dtype.Float32, []float64{1}, 1)
		fn := applier(o, v)
		run(t, fn, f32(1))
		within(t, c.name, floats(t, v), []float64{0.5}, 0)
		sgd.LearningRate = 0.25
		const want = "optimizer sgd: the field LearningRate is 0.25, but the optimizer has begun with 0.5 and does not read it again; call SetLearningRate(0.25)"
		_, err := sgd.CurrentLearningRate()
		for what, err := range map[string]error{
			"a step":          fn.Run(t.Context(), []*tensor.Tensor{f32(1)}),
			"a recorded step": applier(c.of(sgd), v).Run(t.Context(), []*tensor.Tensor{f32(1)}),
			"the rate":        err,
		} {
			if err == nil || err.Error() != want {
				t.Errorf("%s: %s: got  %v\nwant %s", c.name, what, err, want)
			}
		}
		within(t, c.name+" after the error", floats(t, v), []float64{0.5}, 0)
		if err := sgd.SetLearningRate(0.25); err != nil {
			t.Fatal(err)
		}
		run(t, fn, f32(1))
		within(t, c.name+" after SetLearningRate", floats(t, v), []float64{0.25}, 0)
		if err := sgd.SetLearningRate(0.125); err != nil { // the field need not follow
			t.Fatal(err)
		}
		run(t, fn, f32(1))
		within(t, c.name+" after SetLearningRate alone", floats(t, v), []float64{0.125}, 0)
	}
	// Before the first step the field is free, and to write down the default
	// changes nothing.
	o := &SGD{LearningRate: 3}
	o.LearningRate = 0
	v := variable("v", dtype.Float32, []float64{1}, 1)
	fn := applier(o, v)
	run(t, fn, f32(1))
	o.LearningRate = 0.01
	run(t, fn, f32(1))
	within(t, "default", floats(t, v), []float64{0.98}, 1e-6)
	scheduled := &SGD{Schedule: &ExponentialDecay{1, 1, 0.5, false}}
	fn = applier(scheduled, v)
	run(t, fn, f32(1))
	scheduled.LearningRate = 2
	const want = "optimizer sgd: the field LearningRate is 2, but the optimizer has begun with 0.01 and does not read it again; the rate is determined by the Schedule *optimizers.ExponentialDecay"
	if err := fn.Run(t.Context(), []*tensor.Tensor{f32(1)}); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestLearningRatePlanned: variables that are made to list them, or to plan a
// step, do not settle the rate; the first step that is applied does.
func TestLearningRatePlanned(t *testing.T) {
	scaled := func(o *SGD) Optimizer { return &LossScaleOptimizer{Inner: o, AllowUnscaledLoss: true} }
	for name, of := range map[string]func(o *SGD) Optimizer{
		"sgd":    func(o *SGD) Optimizer { return o },
		"scaled": scaled,
		"multi":  func(o *SGD) Optimizer { return &MultiOptimizer{OptimizerMap: OptimizerMap{Default: o}} },
	} {
		for _, rate := range []float64{0.25, 0, math.Copysign(0, -1)} {
			sgd := &SGD{LearningRate: 0.5}
			v := variable("v", dtype.Float32, []float64{1}, 1)
			fn := applier(of(sgd), v)
			if _, err := fn.MemoryOf([]*tensor.Tensor{f32(1)}); err != nil {
				t.Fatal(err)
			}
			if _, err := sgd.CurrentLearningRate(); err != nil {
				t.Fatal(err)
			}
			sgd.LearningRate = rate
			run(t, fn, f32(1))
			want := rate
			switch {
			case math.Signbit(rate):
				want = 0
			case rate == 0:
				want = 0.01 // the default
			}
			within(t, name, floats(t, v), []float64{1 - want}, 1e-7)
			sgd.LearningRate = 0.125
			if err := fn.Run(t.Context(), []*tensor.Tensor{f32(1)}); err == nil || !strings.Contains(err.Error(), "does not read it again") {
				t.Errorf("%s: got error %v after a step, want that of a changed field", name, err)
			}
		}
	}
	// A step that was skipped was not applied.
	sgd := &SGD{LearningRate: 0.5}
	v := variable("v", dtype.Float32, []float64{1}, 1)
	fn := applier(scaled(sgd), v)
	run(t, fn, f32(float32(math.Inf(1))))
	sgd.LearningRate = 0.25
	run(t, fn, f32(1))
	within(t, "after a skipped step", floats(t, v), []float64{0.75}, 0)
	nothing := &SGD{Schedule: (*CosineDecay)(nil)}
	if _, err := nothing.CurrentLearningRate(); err == nil || !strings.Contains(err.Error(), "got a nil *optimizers.CosineDecay") {
		t.Errorf("got error %v, want that of a nil schedule", err)
	}
	// What makes no sense is an error, whenever it is set.
	sgd = &SGD{LearningRate: 0.5}
	fn = applier(sgd, v)
	if _, err := sgd.CurrentLearningRate(); err != nil {
		t.Fatal(err)
	}
	sgd.LearningRate = math.NaN()
	if err := fn.Run(t.Context(), []*tensor.Tensor{f32(1)}); err == nil || !strings.Contains(err.Error(), "LearningRate: got NaN") {
		t.Errorf("got error %v, want that of NaN", err)
	}
}

// TestCheck finds fields that make no sense before a step is recorded.
func TestCheck(t *testing.T) {
	nan := math.NaN()
	var none *Adam
	for want, o := range map[string]Optimizer{
		"optimizer sgd: LearningRate: got NaN, want a positive float32 number":      &SGD{LearningRate: nan},
		"optimizer adam: LearningRate: got +Inf, want a positive float32 number":    &Adam{LearningRate: math.Inf(1)},
		"optimizer adamw: LearningRate: got 5e-324, want a positive float32 number": &AdamW{LearningRate: 5e-324},
		"optimizer lion: LearningRate: got 1e+39, want a positive float32 number":   &LossScaleOptimizer{Inner: &Lion{LearningRate: 1e39}},
		"optimizer muon: LearningRate: got -1, want a positive float32 number": &MultiOptimizer{OptimizerMap: OptimizerMap{
			Default: &Adam{}, Entries: []OptimizerEntry{{"v", &Muon{LearningRate: -1}}}}},
		"ExponentialDecay: InitialLearningRate: got NaN, want a positive number": &SGD{Schedule: &ExponentialDecay{nan, 1, 1, false}},
		"Schedule: got a nil *optimizers.CosineDecay, want a schedule, or nil for none": &LossScaleOptimizer{
			Inner: &SGD{Schedule: (*CosineDecay)(nil)}},
		"optimizer adam: Beta1: got 1.5, want at least 0 and less than 1":                      &Adam{Beta1: new(1.5)},
		"optimizer loss_scale_optimizer: Inner: got a nil *optimizers.Adam, want an optimizer": &LossScaleOptimizer{Inner: none},
		"optimizer loss_scale_optimizer: Backoff: got NaN, want more than 0 and at most 1":     &LossScaleOptimizer{Inner: &Adam{}, Backoff: nan},
		"optimizer multi_optimizer: Default: got a nil *optimizers.Adam, want an optimizer":    &MultiOptimizer{OptimizerMap: OptimizerMap{Default: none}},
		"got a nil *optimizers.Adam, want an optimizer":                                        none,
		"got nil, want an optimizer": nil,
	} {
		if err := Check(o); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	for _, class := range Names() {
		if o, err := Get(class); err == nil && Check(o) != nil {
			t.Errorf("%s: %v", class, Check(o))
		}
	}
	if err := Check(&LossScaleOptimizer{Inner: &foreign{}}); err != nil {
		t.Error(err)
	}
}
