package optimizers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// Lamb is Adam with a rate for each variable that is proportional to the norm
// of its weights, for large batches: Keras's Lamb (You et al., 2019). In step
// t = 1, 2 …
//
//	m += (g - m)·(1-Beta1);  v += (g² - v)·(1-Beta2)
//	r = m/(1-Beta1ᵗ) / (√(v/(1-Beta2ᵗ)) + Epsilon)
//	w -= rate·r·‖w‖/‖r‖, or rate·r where one of the norms is 0
//
// Slots: momentum, velocity.
type Lamb struct {
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

func (o *Lamb) setup() setup {
	given := o
	o = withDefaults(o)
	return setup{
		class:        "lamb",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		fields:       moments(*o.Beta1, o.Beta2, o.Epsilon),
		slots:        [][]slot{zeros("momentum", "velocity")},
		update:       o.update,
	}
}

func (o *Lamb) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	correct1, correct2 := correction(*o.Beta1, u.step), correction(o.Beta2, u.step)
	direction := func(m, v *tensor.Tensor) *tensor.Tensor {
		return m.Div(correct1).Div(v.Div(correct2).Sqrt().AddScalar(o.Epsilon))
	}
	// Its norm is needed before the weight can move; see move and blend.
	m, v := u.value("momentum"), u.value("velocity")
	size := direction(blend(m, g, *o.Beta1), blend(v, g.Mul(g), o.Beta2)).SumSquares().Sqrt()
	weight := u.sumSquares().Sqrt()
	one := tensor.Scalar(size.DType(), 1)
	ratio := tensor.Where(weight.GreaterScalar(0).And(size.GreaterScalar(0)), weight.Div(size), one)

	r := direction(u.move("momentum", g, *o.Beta1), u.move("velocity", g.Square(), o.Beta2))
	return w.Sub(r.Mul(ratio.Mul(u.rate)))
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Lamb) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Lamb) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Lamb) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Lamb) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
