package optimizers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// ScheduleFreeAdamW is AdamW without a learning rate schedule, which need not
// know when training ends: Keras's ScheduleFreeAdamW (Defazio et al., 2024).
// AdamW's steps move a point z, x is the average of all z, and the weights w,
// at which gradients are computed, lie between the two. In step t = 1, 2 …
//
//	rate' = rate·min(t/WarmupSteps, 1);  v += (g² - v)·(1-Beta2)
//	x = (w - (1-Beta1)·z)/Beta1;  z -= rate'·g/(√(v/(1-Beta2ᵗ)) + Epsilon)
//	x += (z - x)/t;  w = (1-Beta1)·z + Beta1·x
//
// z starts as the weights. x is computed from z before the step, as in the
// paper and in Keras with JAX; Keras with TensorFlow or PyTorch uses z after
// the step. As in Keras, the weights remain w after training, and weight decay
// (none by default) applies to w alone.
//
// Slots: momentum, which is z, and velocity.
type ScheduleFreeAdamW struct {
	LearningRate float64 `default:"0.0025"` // of the first step; see SetLearningRate
	Beta1        float64 `default:"0.9"`    // the share of x in w, more than 0
	Beta2        float64 `default:"0.999"`
	Epsilon      float64 `default:"1e-8"`
	WarmupSteps  int     // so many first steps have a rate that grows to the full one

	// The fields of every optimizer; see the package documentation.
	Schedule                  Schedule // computes the rate instead of LearningRate
	WeightDecay               *float64 // default: none
	ExcludeFromWeightDecay    []string // regular expressions for names
	ClipNorm                  float64  `keras:"clipnorm"`
	ClipValue                 float64  `keras:"clipvalue"`
	GlobalClipNorm            float64  `keras:"global_clipnorm"`
	UseEMA                    bool
	EMAMomentum               float64 `default:"0.99"`
	EMAOverwriteFrequency     int     // 0: never
	GradientAccumulationSteps int     // 0, or 2 and more
	AllowUnscaledLoss         bool
	StochasticRounding        *int64 // a seed; nil: weights are rounded to nearest
	Name                      string // prefix of the names of the state; default: the class in lower case

	state
}

func (o *ScheduleFreeAdamW) setup() setup {
	given := o
	o = withDefaults(o)
	return setup{
		class:        "schedule_free_adam_w",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		fields: append(moments(o.Beta1, o.Beta2, o.Epsilon),
			positive("Beta1", o.Beta1), notNegative("WarmupSteps", float64(o.WarmupSteps))),
		slots:  [][]slot{{{name: "momentum", copies: true}, {name: "velocity"}}},
		update: o.update,
	}
}

func (o *ScheduleFreeAdamW) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	d := w.DType()
	one, beta := tensor.Scalar(d, 1), rounded(o.Beta1, d)
	rest := rounded(1-beta, d)
	rate := u.rate
	if o.WarmupSteps > 0 {
		rate = rate.Mul(u.step.DivScalar(float64(o.WarmupSteps)).MinimumScalar(1))
	}
	v := u.move("velocity", g.Square(), rounded(o.Beta2, d))
	step := rate.Mul(g).Div(v.Div(correction(o.Beta2, u.step)).Sqrt().AddScalar(o.Epsilon))
	z := u.assign("momentum", u.value("momentum").Sub(step))
	// The old z is had from the new one, which lies over it.
	x := w.Sub(z.Add(step).MulScalar(rest)).DivScalar(beta)
	share := one.Div(u.step)
	x = x.Mul(one.Sub(share)).Add(z.Mul(share))
	return z.MulScalar(rest).Add(x.MulScalar(beta))
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *ScheduleFreeAdamW) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *ScheduleFreeAdamW) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *ScheduleFreeAdamW) SetLearningRate(rate float64) error {
	return o.setLearningRate(o.setup(), rate)
}

// CurrentLearningRate returns the rate of the next step.
func (o *ScheduleFreeAdamW) CurrentLearningRate() (float64, error) {
	return o.currentLearningRate(o.setup())
}
