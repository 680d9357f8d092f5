package optimizers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// Adam is Keras's Adam (Kingma and Ba, 2014). In step t = 1, 2 …
//
//	m += (g - m)·(1-Beta1);  v += (g² - v)·(1-Beta2)
//	AMSGrad: h = max(h, v), and h stands for v below
//	w -= rate·√(1-Beta2ᵗ)/(1-Beta1ᵗ) · m/(√v + Epsilon)
//
// Slots: momentum, velocity, and velocity_hat if AMSGrad.
type Adam struct {
	LearningRate float64  `default:"0.001"` // of the first step; see SetLearningRate
	Beta1        *float64 `default:"0.9"`   // a pointer because 0, no momentum, makes sense: new(0.0)
	Beta2        float64  `default:"0.999"`
	Epsilon      float64  `default:"1e-7"`
	AMSGrad      bool     `keras:"amsgrad"`

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

// AdamW is Adam with WeightDecay 0.004 by default: Keras's AdamW (Loshchilov
// and Hutter, 2017).
type AdamW struct {
	LearningRate float64  `default:"0.001"` // of the first step; see SetLearningRate
	Beta1        *float64 `default:"0.9"`   // a pointer because 0, no momentum, makes sense: new(0.0)
	Beta2        float64  `default:"0.999"`
	Epsilon      float64  `default:"1e-7"`
	AMSGrad      bool     `keras:"amsgrad"`

	// The fields of every optimizer; see the package documentation.
	Schedule                  Schedule // computes the rate instead of LearningRate
	WeightDecay               *float64 `default:"0.004"`
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

func (o *Adam) setup() setup {
	given := o
	o = withDefaults(o)
	s := setup{
		class:        "adam",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		elementwise:  true,
		fields:       moments(*o.Beta1, o.Beta2, o.Epsilon),
		slots:        [][]slot{zeros("momentum", "velocity")},
		update:       o.update,
	}
	if o.AMSGrad {
		s.slots = append(s.slots, zeros("velocity_hat"))
	}
	return s
}

// moments are the fields that the relatives of Adam have in common.
func moments(beta1, beta2, epsilon float64) []field {
	return []field{fraction("Beta1", beta1), fraction("Beta2", beta2), notNegative("Epsilon", epsilon)}
}

func (o *AdamW) setup() setup {
	s := (*Adam)(withDefaults(o)).setup()
	s.class, s.given, s.again = "adamw", &o.LearningRate, o.setup
	return s
}

func (o *Adam) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	m, v := u.move("momentum", g, *o.Beta1), u.move("velocity", g.Square(), o.Beta2)
	if o.AMSGrad {
		v = u.assign("velocity_hat", u.value("velocity_hat").Maximum(v))
	}
	alpha := u.rate.Mul(correction(o.Beta2, u.step).Sqrt()).Div(correction(*o.Beta1, u.step))
	return w.Sub(m.Mul(alpha).Div(v.Sqrt().AddScalar(o.Epsilon)))
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Adam) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Adam) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Adam) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Adam) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }

// ApplyGradients records one update of vars; see Optimizer.
func (o *AdamW) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *AdamW) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *AdamW) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *AdamW) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
