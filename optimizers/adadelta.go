package optimizers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// Adadelta moves each weight by about as much as it has moved before: Keras's
// Adadelta (Zeiler, 2012).
//
//	a = Rho·a + (1-Rho)·g²
//	δ = √(d + Epsilon)·g/√(a + Epsilon)
//	d = Rho·d + (1-Rho)·δ²;  w -= rate·δ
//
// Slots: accumulated_grad (a), accumulated_delta_var (d).
type Adadelta struct {
	LearningRate float64 `default:"0.001"` // the paper has 1; of the first step; see SetLearningRate
	Rho          float64 `default:"0.95"`
	Epsilon      float64 `default:"1e-7"`

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

func (o *Adadelta) setup() setup {
	given := o
	o = withDefaults(o)
	return setup{
		class:        "adadelta",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		elementwise:  true,
		fields:       []field{fraction("Rho", o.Rho), notNegative("Epsilon", o.Epsilon)},
		slots:        [][]slot{zeros("accumulated_grad", "accumulated_delta_var")},
		update:       o.update,
	}
}

func (o *Adadelta) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	a, d := u.blend("accumulated_grad", g.Square(), o.Rho), u.value("accumulated_delta_var")
	delta := d.AddScalar(o.Epsilon).Sqrt().Mul(g).Div(a.AddScalar(o.Epsilon).Sqrt())
	// δ² is computed from the start and in another form: a value shared by two updates
	// would need its own memory.
	epsilon := tensor.Scalar(g.DType(), o.Epsilon)
	u.blend("accumulated_delta_var", epsilon.Add(d).Mul(g.Mul(g)).Div(epsilon.Add(a)), o.Rho)
	return w.Sub(delta.Mul(u.rate))
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Adadelta) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Adadelta) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Adadelta) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Adadelta) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
