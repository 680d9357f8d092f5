package optimizers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// RMSprop divides the gradient by a moving average of its size: Keras's
// RMSprop.
//
//	v = Rho·v + (1-Rho)·g²
//	Centered: a = Rho·a + (1-Rho)·g;  d = v - a² + Epsilon;  otherwise d = v + Epsilon
//	i = rate·g/√d
//	Momentum 0: w -= i;  otherwise m = Momentum·m + i;  w -= m
//
// Slots: velocity, momentum if Momentum is not 0, average_gradient if
// Centered.
type RMSprop struct {
	LearningRate float64 `default:"0.001"` // of the first step; see SetLearningRate
	Rho          float64 `default:"0.9"`
	Momentum     float64 // 0 ≤ Momentum < 1
	Epsilon      float64 `default:"1e-7"`
	Centered     bool

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

func (o *RMSprop) setup() setup {
	given := o
	o = withDefaults(o)
	s := setup{
		class:        "rmsprop",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		elementwise:  true,
		fields:       []field{fraction("Rho", o.Rho), fraction("Momentum", o.Momentum), notNegative("Epsilon", o.Epsilon)},
		slots:        [][]slot{zeros("velocity")},
		update:       o.update,
	}
	if o.Momentum != 0 {
		s.slots = append(s.slots, zeros("momentum"))
	}
	if o.Centered {
		s.slots = append(s.slots, zeros("average_gradient"))
	}
	return s
}

func (o *RMSprop) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	d := u.blend("velocity", g.Square(), o.Rho)
	if o.Centered {
		d = d.Sub(u.blend("average_gradient", g, o.Rho).Square())
	}
	delta := g.Mul(u.rate).Div(d.AddScalar(o.Epsilon).Sqrt())
	if o.Momentum == 0 {
		return w.Sub(delta)
	}
	return w.Sub(u.assign("momentum", flush(u.value("momentum").MulScalar(o.Momentum).Add(delta))))
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *RMSprop) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *RMSprop) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *RMSprop) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *RMSprop) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
