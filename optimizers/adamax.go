package optimizers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// Adamax is Adam with the largest recent gradient in place of the mean square:
// Keras's Adamax (Kingma and Ba, 2014, section 7). In step t = 1, 2 …
//
//	m += (g - m)·(1-Beta1);  u = max(Beta2·u, |g|)
//	w -= rate/(1-Beta1ᵗ) · m/(u + Epsilon)
//
// Slots: momentum, norm.
type Adamax struct {
	LearningRate float64  `default:"0.001"` // of the first step; see SetLearningRate
	Beta1        *float64 `default:"0.9"`   // 0 means no momentum: new(0.0)
	Beta2        float64  `default:"0.999"`
	Epsilon      float64  `default:"1e-7"`

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

func (o *Adamax) setup() setup {
	given := o
	o = withDefaults(o)
	return setup{
		class:        "adamax",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		elementwise:  true,
		fields:       moments(*o.Beta1, o.Beta2, o.Epsilon),
		slots:        [][]slot{zeros("momentum", "norm")},
		update:       o.update,
	}
}

func (o *Adamax) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	m := u.move("momentum", g, *o.Beta1)
	norm := u.assign("norm", u.value("norm").MulScalar(o.Beta2).Maximum(g.Abs()))
	alpha := u.rate.Div(correction(*o.Beta1, u.step))
	return w.Sub(m.Mul(alpha).Div(norm.AddScalar(o.Epsilon)))
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Adamax) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Adamax) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Adamax) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Adamax) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
