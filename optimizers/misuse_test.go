package optimizers

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestMisuse: what does not fit is an error when the step is recorded, with
// the cure.
func TestMisuse(t *testing.T) {
	v := variable("dense/kernel", dtype.Float32, make([]float64, 6), 2, 3)
	w := variable("dense/bias", dtype.Float32, make([]float64, 3), 3)
	n := tensor.NewState("count", dtype.Int64, nil, nil)
	vars := []*tensor.Variable{v, w}
	g := []*tensor.Tensor{tensor.Zeros(dtype.Float32, 2, 3), tensor.Zeros(dtype.Float32, 3)}
	sgd := &SGD{}
	lso := &LossScaleOptimizer{Inner: sgd}
	other := &LossScaleOptimizer{Inner: sgd, Name: "other"}
	loss := func() *tensor.Tensor { return v.Value().Square().Sum().Add(w.Value().Sum()) }
	scaled := func() []*tensor.Tensor { return tensor.Gradients(lso.GetScaledLoss(loss()), vars) }
	badPattern := &SGD{WeightDecay: new(0.1), ExcludeFromWeightDecay: []string{"("}}
	badLayers := &Muon{ExcludeLayers: []string{"("}}
	notScalar := &SGD{Schedule: vector{}}
	noSteps := &SGD{Schedule: &ExponentialDecay{InitialLearningRate: 1, DecayRate: 1}}
	multi := func(e ...OptimizerEntry) *MultiOptimizer {
		return &MultiOptimizer{OptimizerMap: OptimizerMap{Default: sgd, Entries: e}}
	}
	overlap := multi(OptimizerEntry{"dense/.*", &Adam{}}, OptimizerEntry{".*kernel", &Adam{}})
	nan := math.NaN()
	for _, c := range []struct {
		want string
		f    func()
	}{
		{"ApplyGradients: got 1 gradients, want 2: one for each variable", func() { sgd.ApplyGradients(g[:1], vars) }},
		{"ApplyGradients: variable 1 is nil", func() { sgd.ApplyGradients(g, []*tensor.Variable{v, nil}) }},
		{"ApplyGradients: variable dense/kernel is listed twice", func() { sgd.ApplyGradients([]*tensor.Tensor{g[0], g[0]}, []*tensor.Variable{v, v}) }},
		{"ApplyGradients: variable count: got int64[], want a float type", func() { sgd.ApplyGradients(g[:1], []*tensor.Variable{n}) }},
		{"ApplyGradients: gradient of dense/bias: got float32[2 3], want float32[3]", func() { sgd.ApplyGradients([]*tensor.Tensor{nil, g[0]}, vars) }},
		{"ApplyGradients: gradient of dense/bias: got int32[3], want float32[3]", func() { sgd.ApplyGradients([]*tensor.Tensor{g[0], tensor.Zeros(dtype.Int32, 3)}, vars) }},
		{"ApplyGradients: gradient of dense/kernel: got a tuple, want float32[2 3]", func() { sgd.ApplyGradients([]*tensor.Tensor{tensor.Tuple(g...), nil}, vars) }},
		{"ApplyGradients: got no gradient for any of 2 variables; does the loss depend on them?", func() { sgd.ApplyGradients([]*tensor.Tensor{nil, nil}, vars) }},
		{"ApplyGradients: got 0 variables; was the model built when they were listed? call Build first, or list them inside the Function", func() { sgd.ApplyGradients(nil, nil) }},
		{"ApplyGradients: got 0 variables; was the model built when they were listed? call Build first, or list them inside the Function", func() { lso.ApplyGradients(nil, nil) }},

		{"ApplyGradients: gradient of dense/kernel still carries the loss scale; call GetUnscaledGradients first", func() { sgd.ApplyGradients(scaled(), vars) }},
		{"ApplyGradients: gradient of dense/kernel still carries the loss scale; call GetUnscaledGradients first", func() { lso.ApplyGradients(scaled(), vars) }},
		{"ClipByValue: gradient 0 still carries the loss scale; call GetUnscaledGradients first", func() { ClipByValue(scaled(), 1) }},
		{"ClipByNorm: gradient 0 still carries the loss scale; call GetUnscaledGradients first", func() { ClipByNorm(scaled(), 1) }},
		{"ClipByGlobalNorm: gradient 0 still carries the loss scale; call GetUnscaledGradients first", func() { ClipByGlobalNorm(scaled(), 1) }},
		{"ClipByNorm: the limit: got 0, want a positive number", func() { ClipByNorm(g, 0) }},
		{"GetUnscaledGradients: gradient 0 was not scaled by this optimizer; compute it from GetScaledLoss", func() { lso.GetUnscaledGradients(tensor.Gradients(loss(), vars)) }},
		{"GetUnscaledGradients: gradient 0 was not scaled by this optimizer; compute it from GetScaledLoss", func() { other.GetUnscaledGradients(scaled()) }},
		{"GetUnscaledGradients: gradient 0 is already unscaled; call GetUnscaledGradients once", func() { lso.GetUnscaledGradients(lso.GetUnscaledGradients(scaled())) }},
		{"GetScaledLoss: the loss is already scaled", func() { lso.GetScaledLoss(lso.GetScaledLoss(loss())) }},
		{"GetScaledLoss: the loss is nil", func() { lso.GetScaledLoss(nil) }},
		{"GetScaledLoss: the loss: got int64[], want a float tensor", func() { lso.GetScaledLoss(n.Value()) }},

		{"GetScaledLoss: optimizer loss_scale_optimizer: Inner: got nil, want an optimizer", func() { (&LossScaleOptimizer{}).GetScaledLoss(loss()) }},
		{"ApplyGradients: optimizer loss_scale_optimizer: Inner: got nil, want an optimizer", func() { (&LossScaleOptimizer{}).ApplyGradients(g, vars) }},
		{"GetScaledLoss: optimizer loss_scale_optimizer: Inner: got a LossScaleOptimizer, want an optimizer without loss scaling", func() { (&LossScaleOptimizer{Inner: lso}).GetScaledLoss(loss()) }},
		{"GetScaledLoss: optimizer s: InitialScale: got 0.5, want MinScale 1 … MaxScale 1.6777216e+07", func() { (&LossScaleOptimizer{Inner: sgd, InitialScale: 0.5, Name: "s"}).GetScaledLoss(loss()) }},
		{"GetScaledLoss: optimizer s: InitialScale: got -1, want MinScale 1 … MaxScale 1.6777216e+07", func() { (&LossScaleOptimizer{Inner: sgd, InitialScale: -1, Name: "s"}).GetScaledLoss(loss()) }},
		{"GetScaledLoss: optimizer s: InitialScale: got NaN, want MinScale 1 … MaxScale 1.6777216e+07", func() { (&LossScaleOptimizer{Inner: sgd, InitialScale: nan, Name: "s"}).GetScaledLoss(loss()) }},
		{"GetScaledLoss: optimizer s: InitialScale: got 3.3554432e+07, want MinScale 1 … MaxScale 1.6777216e+07", func() { (&LossScaleOptimizer{Inner: sgd, InitialScale: 1 << 25, Name: "s"}).GetScaledLoss(loss()) }},
		{"GetScaledLoss: optimizer s: MaxScale: got +Inf, want at least MinScale, 1, and a finite float32 number", func() { (&LossScaleOptimizer{Inner: sgd, MaxScale: math.Inf(1), Name: "s"}).GetScaledLoss(loss()) }},
		{"GetScaledLoss: optimizer s: MinScale: got -2, want a positive float32 number", func() { (&LossScaleOptimizer{Inner: sgd, MinScale: -2, Name: "s"}).GetScaledLoss(loss()) }},
		{"GetScaledLoss: optimizer s: Growth: got 0.5, want at least 1", func() { (&LossScaleOptimizer{Inner: sgd, Growth: 0.5, Name: "s"}).GetScaledLoss(loss()) }},
		{"GetScaledLoss: optimizer s: Backoff: got 2, want more than 0 and at most 1", func() { (&LossScaleOptimizer{Inner: sgd, Backoff: 2, Name: "s"}).GetScaledLoss(loss()) }},
		{"GetScaledLoss: optimizer s: DynamicGrowthSteps: got -1, want a positive number", func() { (&LossScaleOptimizer{Inner: sgd, DynamicGrowthSteps: -1, Name: "s"}).GetScaledLoss(loss()) }},

		{"ApplyGradients: optimizer sgd: got ClipNorm and ClipValue, want at most one of ClipNorm, ClipValue and GlobalClipNorm", func() { (&SGD{ClipNorm: 1, ClipValue: 2}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer sgd: LearningRate: got -1, want a positive float32 number", func() { (&SGD{LearningRate: -1}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer sgd: Momentum: got 1, want at least 0 and less than 1", func() { (&SGD{Momentum: 1}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer mine: Rho: got NaN, want at least 0 and less than 1", func() { (&RMSprop{Rho: nan, Name: "mine"}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer adam: Beta1: got 1.5, want at least 0 and less than 1", func() { (&Adam{Beta1: new(1.5)}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer adamw: WeightDecay: got -1, want a number that is not negative", func() { (&AdamW{WeightDecay: new(-1.0)}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer adam: GradientAccumulationSteps: got 1, want 0 or at least 2", func() { (&Adam{GradientAccumulationSteps: 1}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer sgd: ExcludeFromWeightDecay: error parsing regexp: missing closing ): `(`", func() {
			badPattern.ApplyGradients(g, vars)
		}},
		{"ApplyGradients: optimizer lion: Beta1: got -1, want more than 0 and at most 1", func() { (&Lion{Beta1: -1}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer ftrl: LearningRatePower: got 1, want a number that is not positive", func() { (&Ftrl{LearningRatePower: new(1.0)}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer ftrl: L1RegularizationStrength: got -1, want a number that is not negative", func() { (&Ftrl{L1RegularizationStrength: -1}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer adagrad: InitialAccumulatorValue: got -1, want a number that is not negative", func() { (&Adagrad{InitialAccumulatorValue: new(-1.0)}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer adafactor: Beta2Decay: got 1, want a negative number", func() { (&Adafactor{Beta2Decay: 1}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer muon: NSSteps: got -1, want a positive number", func() { (&Muon{NSSteps: -1}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer muon: ExcludeLayers: error parsing regexp: missing closing ): `(`", func() { badLayers.ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer multi_optimizer: Default: got nil, want an optimizer", func() { (&MultiOptimizer{}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer m: Default: got a LossScaleOptimizer, want an optimizer without loss scaling; it goes around the MultiOptimizer", func() {
			(&MultiOptimizer{Name: "m", OptimizerMap: OptimizerMap{Default: lso}}).ApplyGradients(g, vars)
		}},
		{`ApplyGradients: optimizer multi_optimizer: Entries[0] "d": got a MultiOptimizer, want the optimizer of one part`, func() { multi(OptimizerEntry{"d", &MultiOptimizer{}}).ApplyGradients(g, vars) }},
		{`ApplyGradients: optimizer multi_optimizer: Entries[1]: got "d" a second time, want each once`, func() {
			multi(OptimizerEntry{"d", &Adam{}}, OptimizerEntry{"d", &Adam{}}).ApplyGradients(g, vars)
		}},
		{"ApplyGradients: optimizer multi_optimizer: Entries[0]: error parsing regexp: missing closing ): `(`", func() { multi(OptimizerEntry{"(", &Adam{}}).ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer multi_optimizer: GradientAccumulationSteps: got 2 and 0, want one number for all", func() {
			multi(OptimizerEntry{"d", &Adam{GradientAccumulationSteps: 2}}).ApplyGradients(g, vars)
		}},
		{`ApplyGradients: variable dense/kernel: got 2 entries that match, "dense/.*" and ".*kernel", want one at most`, func() { overlap.ApplyGradients(g, vars) }},
		{"ApplyGradients: optimizer schedule_free_adam_w: Beta1: got 1, want at least 0 and less than 1", func() { (&ScheduleFreeAdamW{Beta1: 1}).ApplyGradients(g, vars) }},
		{"Schedule: optimizers.vector: got float32[1], want a float scalar", func() { notScalar.ApplyGradients(g, vars) }},
		{"ExponentialDecay: DecaySteps: got 0, want a positive number", func() { noSteps.ApplyGradients(g, vars) }},
	} {
		fn := tensor.Function(func(struct{}) struct{} {
			c.f()
			return struct{}{}
		}, lso, other, badPattern, badLayers, notScalar, noSteps, overlap, owner{v, w, n})
		err := fn.Run(context.Background(), struct{}{})
		if err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

// TestApplyOutside: outside of a Function no optimizer applies gradients, and
// the error says where that belongs.
func TestApplyOutside(t *testing.T) {
	all := []Optimizer{&LossScaleOptimizer{Inner: &Adam{}}, &MultiOptimizer{OptimizerMap: OptimizerMap{Default: &SGD{}}}, &LossScaleOptimizer{Inner: &foreign{}}}
	for _, n := range Names() {
		if n == "LossScaleOptimizer" || n == "MultiOptimizer" {
			continue // Get makes none, they need an inner one
		}
		o, err := Get(n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
	for _, o := range all {
		v := variable("v", dtype.Float32, []float64{1, 2}, 1, 2)
		err := func() (err error) {
			defer tensor.Catch(&err)
			o.ApplyGradients([]*tensor.Tensor{tensor.Ones(dtype.Float32, 1, 2)}, []*tensor.Variable{v})
			return nil
		}()
		const want = ": ApplyGradients belongs in a keras.Function that lists it and the model"
		if err == nil || !strings.HasPrefix(err.Error(), "optimizer ") || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%T: got  %v\nwant optimizer NAME%s", o, err, want)
		}
	}
}

type vector struct{}

func (vector) Rate(step *tensor.Tensor) *tensor.Tensor { return step.Reshape(1) }

// TestMethodErrors: methods outside a Function return errors.
func TestMethodErrors(t *testing.T) {
	none := &LossScaleOptimizer{}
	const noInner = "optimizer loss_scale_optimizer: Inner: got nil, want an optimizer"
	for _, err := range []error{none.FinalizeVariables(), none.SwapEMA(), none.SetLearningRate(1)} {
		if err == nil || err.Error() != noInner {
			t.Errorf("got %v, want %s", err, noInner)
		}
	}
	for _, rate := range []float64{-1, math.NaN(), math.Inf(1)} {
		if err := (&SGD{}).SetLearningRate(rate); err == nil {
			t.Errorf("SetLearningRate(%v): got no error", rate)
		}
	}
	v := variable("v", dtype.Float32, []float64{1}, 1)
	o := &Adam{}
	fn := tensor.Function(func(g *tensor.Tensor) struct{} {
		o.ApplyGradients([]*tensor.Tensor{g}, owner{v})
		return struct{}{}
	}, owner{v})
	if err := fn.Run(t.Context(), f32(1)); err == nil {
		t.Error("an optimizer that is not in the Function's list: got no error")
	}
}
