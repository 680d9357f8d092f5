package optimizers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// Adagrad divides the gradient by the root of the sum of all its squares:
// Keras's Adagrad (Duchi, Hazan and Singer, 2011).
//
//	a += g²;  w -= rate·g/√(a + Epsilon)
//
// Slot: accumulator.
type Adagrad struct {
	LearningRate            float64  `default:"0.001"` // of the first step; see SetLearningRate
	InitialAccumulatorValue *float64 `default:"0.1"`   // where a starts; a pointer because 0 makes sense: new(0.0)
	Epsilon                 float64  `default:"1e-7"`

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

func (o *Adagrad) setup() setup {
	given := o
	o = withDefaults(o)
	return setup{
		class:        "adagrad",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		elementwise:  true,
		fields:       []field{notNegative("InitialAccumulatorValue", *o.InitialAccumulatorValue), notNegative("Epsilon", o.Epsilon)},
		slots:        [][]slot{{{name: "accumulator", first: *o.InitialAccumulatorValue}}},
		still:        true,
		update: func(u *update, w, g *tensor.Tensor) *tensor.Tensor {
			a := u.assign("accumulator", u.value("accumulator").Add(g.Square()))
			return w.Sub(g.Mul(u.rate).Div(a.AddScalar(o.Epsilon).Sqrt()))
		},
	}
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Adagrad) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Adagrad) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Adagrad) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Adagrad) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
