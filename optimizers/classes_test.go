package optimizers

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

// Keras's adafactor_test.py and muon_test.py: one step on a matrix.
func TestKerasMatrixStep(t *testing.T) {
	for _, c := range []struct {
		name string
		o    Optimizer
		want []float64
		tol  float64
	}{
		{"Adafactor", &Adafactor{LearningRate: 0.5}, []float64{0.7007, -0.0081, 1.2492, 3.4407}, fourDecimals},
		// Keras's numbers are off by up to 1e-2, its test says; make_optimizers.py has exact ones.
		{"Muon", &Muon{LearningRate: 0.5, WeightDecay: new(0.0)}, []float64{0.988775, 1.887053, 2.873428, 3.97035}, 1e-2},
	} {
		v := variable("v", dtype.Float32, []float64{1, 2, 3, 4}, 2, 2)
		run(t, applier(c.o, v), tensor.New([]float32{1, 6, 7, 2}, 2, 2))
		within(t, c.name, floats(t, v), c.want, c.tol)
	}
	x, err := withDefaults(&Muon{}).orthogonal(tensor.New([]float32{0.2499, 0.9105, 0.2655, 0.8824}, 2, 2)).Float64s()
	if err != nil {
		t.Fatal(err)
	}
	within(t, "Newton-Schulz", x, []float64{-0.4422, 0.6457, 0.7285, 0.2968}, 1e-3) // as in Keras's test
}

// TestOrthogonal: the singular values end up near 1, and the transpose of a
// matrix gives the transpose of the result.
func TestOrthogonal(t *testing.T) {
	data := tensortest.Of(dtype.Float64, []float64{1, 2, -1, 0.5, 3, 1, 0, -2, 1, 1, 2, 0.25}, 4, 3).Tensor()
	o := withDefaults(&Muon{})
	x := o.orthogonal(data)
	flipped, err := o.orthogonal(data.Transpose()).Transpose().Float64s()
	if err != nil {
		t.Fatal(err)
	}
	got, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	// Five iterations multiply rounding errors by at most 3.5 each.
	within(t, "transposed", flipped, got, 12*math.Pow(3.5, 5)*dtype.Float64.Epsilon())
	gram, err := x.MatMulT(x, true, false).Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		// The iteration takes squares of singular values to 0.7² … 1.2² and no
		// closer (Jordan's coefficients).
		if d := gram[4*i]; d < 0.4 || d > 1.5 {
			t.Errorf("xᵀx: got %v, want about the identity", gram)
		}
	}
}

// TestMuonRules: what AdamW moves, which has a velocity, and how it decays.
func TestMuonRules(t *testing.T) {
	for _, c := range []struct {
		o     *Muon
		name  string
		shape []int
		adam  bool
	}{
		{&Muon{}, "dense/kernel", []int{2, 3}, false},
		{&Muon{}, "dense/bias", []int{3}, true},
		{&Muon{}, "scale", []int{}, true},
		{&Muon{}, "conv/kernel", []int{3, 3, 1, 2}, true},
		{&Muon{}, "token_Embedding/embeddings", []int{2, 3}, true},
		{&Muon{ExcludeEmbeddings: new(false)}, "embedding/embeddings", []int{2, 3}, false},
		{&Muon{ExcludeLayers: []string{"head", "^out"}}, "output/kernel", []int{2, 3}, true},
		{&Muon{ExcludeLayers: []string{"head", "^out"}}, "layout/kernel", []int{2, 3}, false},
	} {
		c.o.LearningRate, c.o.WeightDecay, c.o.AdamWeightDecay = 1, new(0.5), new(0.25)
		v := variable(c.name, dtype.Float32, []float64{1}, c.shape...)
		run(t, applier(c.o, v), tensor.Zeros(dtype.Float32, c.shape...))
		velocity := false
		for _, s := range c.o.Variables() {
			velocity = velocity || strings.HasSuffix(s.Name(), "_velocity")
		}
		want := 0.5
		if c.adam {
			want = 0.75
		}
		if got := floats(t, v)[0]; velocity != c.adam || got != want {
			t.Errorf("%s %v: got %v, velocity %v, want %v, %v", c.name, c.shape, got, velocity, want, c.adam)
		}
	}
}

// TestLambRatio: a variable of zeros, and a step of zeros, have the ratio 1.
func TestLambRatio(t *testing.T) {
	v, w := variable("v", dtype.Float32, []float64{0, 0}, 2), variable("w", dtype.Float32, []float64{3, 4}, 2)
	o := &Lamb{LearningRate: 1, Epsilon: 1, Beta1: new(0.5), Beta2: 0.5}
	run(t, applier(o, v, w), f32(1, 1), f32(0, 0))
	within(t, "zeros", floats(t, v), []float64{-0.5, -0.5}, dtype.Float32.Epsilon()) // r = 1/(1+Epsilon), a few times rounded
	within(t, "no gradient", floats(t, w), []float64{3, 4}, 0)
}

// TestAdafactorMemory: a matrix has a row and a column of state.
func TestAdafactorMemory(t *testing.T) {
	v := variable("v", dtype.Float32, nil, 5, 64, 32)
	o := &Adafactor{}
	run(t, applier(o, v), tensor.Ones(dtype.Float32, 5, 64, 32))
	for name, want := range map[string]tensor.Shape{"v_r": {5, 64}, "v_c": {5, 32}} {
		if got := find(t, o, name).Shape(); !got.Equal(want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if n := len(o.kerasVariables()); n != 4 {
		t.Errorf("got %d variables, want 4", n)
	}
}

// TestTypesOfAll: every class works on 16-bit and float64 variables, with
// slots of the type of the arithmetic, and gives about the same.
func TestTypesOfAll(t *testing.T) {
	for class := range classes {
		if class == wrapper || class == divider { // what they hold has the types
			continue
		}
		var exact []float64
		for _, d := range []dtype.DType{dtype.Float64, dtype.Float32, dtype.BFloat16} {
			o, err := Get(class)
			if err != nil {
				t.Fatal(err)
			}
			v := variable("v", d, []float64{1.5, -0.75, 0.5, 1, 2, -1}, 2, 3)
			fn := applier(o, v)
			for range 3 {
				run(t, fn, tensor.New([]float64{0.5, -0.25, 1, 2, 0.125, -1}, 2, 3).Cast(d))
			}
			own := o.(ruled).setup()
			for _, s := range o.Variables() {
				if strings.HasPrefix(s.Name(), own.name()+"/v_") && s.DType() != d.Accumulator() {
					t.Errorf("%s: %s of %v is %v, want %v", class, s.Name(), d, s.DType(), d.Accumulator())
				}
			}
			if exact == nil {
				exact = floats(t, v)
			}
			// Steps of 0.001 (SGD: 0.01) vanish in bfloat16, whose epsilon is 0.008,
			// so this is that of three roundings and three steps; in float32, of a
			// hundred operations on numbers up to 2.
			tol := 2 * 100 * d.Epsilon()
			if d == dtype.BFloat16 {
				tol = 3*d.Epsilon()*2 + 3*0.02
			}
			if class != "Ftrl" || d != dtype.BFloat16 { // from its slots it makes new weights in each step
				within(t, class+" "+d.String(), floats(t, v), exact, tol)
			}
		}
	}
}

// TestStateMakesTheStep: the state and the weights are all there is: an
// optimizer that is given another's goes on as that one would, to the bit.
func TestStateMakesTheStep(t *testing.T) {
	first, second := every(), every()
	for name, o := range first {
		p := second[name]
		v, w := variable("v", dtype.Float32, []float64{1, 2, 3, 4}, 2, 2), variable("v", dtype.Float32, nil, 2, 2)
		fn, other := applier(o, v), applier(p, w)
		g := func(i int) *tensor.Tensor { return tensor.New([]float32{float32(i), 1, -2, 0.5}, 2, 2) }
		for i := range 5 {
			run(t, fn, g(i))
		}
		if _, err := other.Plan([]*tensor.Tensor{g(0)}); err != nil { // makes the slots
			t.Fatal(err)
		}
		from := snapshot(t, append(o.Variables(), v))
		for _, x := range append(p.Variables(), w) {
			if err := x.SetBytes(from[x.Name()]); err != nil {
				t.Fatalf("%s: %s: %v", name, x.Name(), err)
			}
		}
		for i := range 3 {
			run(t, fn, g(i))
			run(t, other, g(i))
		}
		if got, want := snapshot(t, append(p.Variables(), w)), snapshot(t, append(o.Variables(), v)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %x, want %x", name, got, want)
		}
	}
}

// TestConfigs: every golden case survives being written down and read, and
// means what its fields mean.
func TestConfigs(t *testing.T) {
	f := tensortest.Load(t, golden+"optimizers.json")
	for _, c := range f.Cases {
		want, b := configured(t, &c), kerasConfig(t, &c)
		for range 2 { // as Keras has it, and as this package writes it
			got, err := UnmarshalConfig(b)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, want %+v from %s", c.Name, got, want, b)
			}
			if b, err = MarshalConfig(got); err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
		}
	}
}

func TestConfigTexts(t *testing.T) {
	for _, c := range []struct {
		o    Optimizer
		want string
	}{
		{&Adam{}, `{"class_name":"Adam","config":{}}`},
		{&Adam{LearningRate: 0.5, Beta1: new(0.0), AMSGrad: true, ClipNorm: 1, UseEMA: true, EMAMomentum: 0.5, GlobalClipNorm: 2, Name: "a"},
			`{"class_name":"Adam","config":{"amsgrad":true,"beta_1":0,"clipnorm":1,"ema_momentum":0.5,"global_clipnorm":2,"learning_rate":0.5,"name":"a","use_ema":true}}`},
		{&SGD{Schedule: &CosineDecay{InitialLearningRate: 0.1, DecaySteps: 10, WarmupTarget: new(0.5)}},
			`{"class_name":"SGD","config":{"learning_rate":{"class_name":"CosineDecay","config":{"decay_steps":10,"initial_learning_rate":0.1,"warmup_target":0.5}}}}`},
		{&LossScaleOptimizer{Inner: &Muon{NSSteps: 3, AdamLRRatio: 0.5, MuonA: 3, RMSRate: new(0.0), ExcludeLayers: []string{"head"}}, InitialScale: 8},
			`{"class_name":"LossScaleOptimizer","config":{"initial_scale":8,"inner_optimizer":{"class_name":"Muon","config":{"adam_lr_ratio":0.5,"exclude_layers":["head"],"muon_a":3,"ns_steps":3,"rms_rate":0}}}}`},
		{&Ftrl{L1RegularizationStrength: 1, LearningRatePower: new(0.0)},
			`{"class_name":"Ftrl","config":{"l1_regularization_strength":1,"learning_rate_power":0}}`},
		{&MultiOptimizer{OptimizerMap: OptimizerMap{&Lion{}, []OptimizerEntry{{"b/.*", &SGD{Momentum: 0.5}}, {"a/kernel", &Adam{}}}}},
			`{"class_name":"MultiOptimizer","config":{"optimizer_map":{"module":"keras.optimizers","class_name":"OptimizerMap","registered_name":null,"config":{` +
				`"default_optimizer":{"class_name":"Lion","config":{}},"optimizer_map":{"b/.*":{"class_name":"SGD","config":{"momentum":0.5}},"a/kernel":{"class_name":"Adam","config":{}}}}}}}`},
		{&ScheduleFreeAdamW{WarmupSteps: 5}, `{"class_name":"ScheduleFreeAdamW","config":{"warmup_steps":5}}`},
		{&Adafactor{Beta2Decay: -0.5, Epsilon1: 1e-20}, `{"class_name":"Adafactor","config":{"beta_2_decay":-0.5,"epsilon_1":1e-20}}`},
	} {
		got, err := MarshalConfig(c.o)
		if err != nil || string(got) != c.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, c.want)
			continue
		}
		if read, err := UnmarshalConfig(got); err != nil || !reflect.DeepEqual(read, c.o) {
			t.Errorf("got %+v, %v, want %+v", read, err, c.o)
		}
		c.o.Variables() // a used optimizer says the same
		if again, err := MarshalConfig(c.o); err != nil || string(again) != c.want {
			t.Errorf("used: got %s, %v\nwant %s", again, err, c.want)
		}
	}
}

// TestKerasConfig reads what Keras's optimizers.serialize writes, with all
// that is off as null.
func TestKerasConfig(t *testing.T) {
	const text = `{"module": "keras.optimizers", "class_name": "Muon", "registered_name": null, "config": {"name": "muon",
		"learning_rate": {"module": "keras.optimizers.schedules", "class_name": "PolynomialDecay", "registered_name": null, "config":
			{"initial_learning_rate": 0.1, "decay_steps": 100, "end_learning_rate": 0.0, "power": 2.0, "cycle": false, "name": "PolynomialDecay"}},
		"weight_decay": null, "clipnorm": null, "global_clipnorm": null, "clipvalue": null, "use_ema": false, "ema_momentum": 0.99,
		"ema_overwrite_frequency": null, "loss_scale_factor": null, "gradient_accumulation_steps": null, "adam_beta_1": 0.9,
		"adam_beta_2": 0.999, "epsilon": 1e-07, "exclude_layers": [], "muon_a": 3.4445, "muon_b": -4.775, "muon_c": 2.0315,
		"adam_lr_ratio": 1, "momentum": 0.95, "ns_steps": 5, "nesterov": true, "exclude_embeddings": true, "adam_weight_decay": 0.004,
		"rms_rate": null}}`
	got, err := UnmarshalConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := withDefaults(&Muon{RMSRate: new(0.0), ExcludeLayers: []string{}, Name: "muon", WeightDecay: new(0.0),
		Schedule: &PolynomialDecay{InitialLearningRate: 0.1, DecaySteps: 100, EndLearningRate: new(0.0), Power: 2}})
	want.LearningRate = 0
	if !reflect.DeepEqual(got, Optimizer(want)) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, c := range []struct{ text, want string }{
		{`{"class_name": "Adam"`, "optimizer config: unexpected end of JSON input"},
		{`{"class_name": "Adan"}`, `unknown optimizer "Adan"; did you mean "Adam"? have Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Ftrl, Lamb, Lion, LossScaleOptimizer, MultiOptimizer, Muon, Nadam, RMSprop, SGD, ScheduleFreeAdamW`},
		{`{"class_name": "Adam", "config": {"beta_2": "x"}}`, `optimizer Adam: field "beta_2": got "x", want float64`},
		{`{"class_name": "Adam", "config": {"epsilon": 0.0}}`, `optimizer Adam: field "epsilon": got 0.0, want another value: the field's zero means the default 1e-7`},
		{`{"class_name": "SGD", "config": {"loss_scale_factor": 8}}`, `optimizer SGD: unknown field "loss_scale_factor"; have allow_unscaled_loss, clipnorm, clipvalue, ema_momentum, ` +
			`ema_overwrite_frequency, exclude_from_weight_decay, global_clipnorm, gradient_accumulation_steps, learning_rate, momentum, name, nesterov, stochastic_rounding, use_ema, weight_decay`},
		{`{"class_name": "SGD", "config": {"learning_rate": {"class_name": "Cosine"}}}`, `optimizer SGD: field "learning_rate": unknown schedule "Cosine"; did you mean "CosineDecay" or "CosineDecayRestarts"? have CosineDecay, ` +
			`CosineDecayRestarts, ExponentialDecay, InverseTimeDecay, OneCycle, PiecewiseConstantDecay, PolynomialDecay`},
	} {
		if _, err := UnmarshalConfig([]byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
	if _, err := MarshalConfig(&foreign{}); err == nil || err.Error() != "optimizer config: got *optimizers.foreign, want a class of this package" {
		t.Errorf("got %v", err)
	}
	if _, err := MarshalConfig(&SGD{Schedule: vector{}}); err == nil ||
		err.Error() != `optimizer SGD: field "learning_rate": schedule config: got optimizers.vector, want a class of this package` {
		t.Errorf("got %v", err)
	}
}

// TestZeroLearningRate: Keras's learning_rate=0.0 is a rate of 0 and not the
// default, in a clone and in the config that is written too.
func TestZeroLearningRate(t *testing.T) {
	for class := range classes {
		if class == wrapper || class == divider || class == "Ftrl" { // Ftrl divides by the rate; Keras's weights are NaN
			continue
		}
		o, err := UnmarshalConfig([]byte(`{"class_name": "` + class + `", "config": {"learning_rate": 0.0}}`))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := MarshalConfig(o); err != nil || string(b) != `{"class_name":"`+class+`","config":{"learning_rate":0.0}}` {
			t.Errorf("%s: got config %s, %v", class, b, err)
		}
		o = Clone(o)
		v := variable("v", dtype.Float32, []float64{1, -2}, 2)
		fn := applier(o, v)
		run(t, fn, f32(3, 4))
		within(t, class, floats(t, v), []float64{1, -2}, 0)
		if rate, err := CurrentLearningRate(o); rate != 0 || math.Signbit(rate) || err != nil {
			t.Errorf("%s: got a rate of %v, want 0, error %v", class, rate, err)
		}
		if err := SetLearningRate(o, 0.5); err != nil {
			t.Fatal(err)
		}
		run(t, fn, f32(3, 4))
		if w := floats(t, v); !(w[0] < 1 && w[1] < -2) {
			t.Errorf("%s: got %v after a step with a rate of 0.5", class, w)
		}
	}
}
