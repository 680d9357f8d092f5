package optimizers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// SGD is stochastic gradient descent: Keras's SGD.
//
//	Momentum 0: w -= rate·g
//	otherwise:  m = Momentum·m - rate·g;  w += m
//	Nesterov:   the same m;  w += Momentum·m - rate·g
//
// Slot: momentum, if Momentum is not 0.
type SGD struct {
	LearningRate float64 `default:"0.01"` // of the first step; see SetLearningRate
	Momentum     float64 // 0 ≤ Momentum < 1
	Nesterov     bool

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

func (o *SGD) setup() setup {
	given := o
	o = withDefaults(o)
	s := setup{
		class:        "sgd",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		elementwise:  true,
		fields:       []field{fraction("Momentum", o.Momentum)},
		update:       o.update,
		still:        o.Momentum == 0,
	}
	if o.Momentum != 0 {
		s.slots = [][]slot{zeros("momentum")}
	}
	return s
}

func (o *SGD) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	delta := g.Mul(u.rate)
	if o.Momentum == 0 {
		return w.Sub(delta)
	}
	m := u.assign("momentum", flush(u.value("momentum").MulScalar(o.Momentum).Sub(delta)))
	if o.Nesterov {
		// Another form of delta: a value shared by two updates would need its own
		// memory.
		return w.Add(m.MulScalar(o.Momentum).Sub(u.rate.Mul(g)))
	}
	return w.Add(m)
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *SGD) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *SGD) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *SGD) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *SGD) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
