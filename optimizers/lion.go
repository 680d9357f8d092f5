package optimizers

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Lion moves all weights by the same distance, the learning rate: Keras's Lion
// (Chen et al., 2023). Its rate should be 3 to 10 times smaller than Adam's.
//
//	w -= rate·sign(Beta1·m + (1-Beta1)·g)
//	m = Beta2·m + (1-Beta2)·g
//
// Slot: momentum.
type Lion struct {
	LearningRate float64 `default:"0.001"` // of the first step; see SetLearningRate
	Beta1        float64 `default:"0.9"`   // 0 < Beta1 ≤ 1
	Beta2        float64 `default:"0.99"`

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

func (o *Lion) setup() setup {
	given := o
	o = withDefaults(o)
	return setup{
		class:        "lion",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		elementwise:  true,
		fields: []field{
			{"Beta1", o.Beta1, math.SmallestNonzeroFloat64, 1, "more than 0 and at most 1"},
			fraction("Beta2", o.Beta2),
		},
		slots: [][]slot{zeros("momentum")},
		update: func(u *update, w, g *tensor.Tensor) *tensor.Tensor {
			// The weight follows the old momentum.
			direction := blend(u.value("momentum"), g, rounded(o.Beta1, g.DType())).Sign()
			u.blend("momentum", g, rounded(o.Beta2, g.DType()))
			return w.Sub(direction.Mul(u.rate))
		},
	}
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Lion) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Lion) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Lion) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Lion) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
