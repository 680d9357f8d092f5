package optimizers

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Ftrl is "follow the regularized leader", which makes weights exactly 0 under
// L1 regularization: Keras's Ftrl (McMahan et al., 2013). With p =
// -LearningRatePower
//
//	n' = n + g²
//	z += g + 2·L2Shrinkage·w - (n'ᵖ - nᵖ)/rate·w;  n = n'
//	w = (clip(z, ±L1) - z) / (nᵖ/rate + 2·L2 + Beta/rate)
//
// A rate of 0 divides by 0, and so does InitialAccumulatorValue 0 for a weight
// without a gradient so far and without L2, as in Keras.
//
// Slots: accumulator (n), linear (z).
type Ftrl struct {
	LearningRate                      float64  `default:"0.001"` // of the first step; see SetLearningRate
	LearningRatePower                 *float64 `default:"-0.5"`  // not positive; 0 means a rate that does not fall
	InitialAccumulatorValue           *float64 `default:"0.1"`   // where n starts
	L1RegularizationStrength          float64  `keras:"l1_regularization_strength"`
	L2RegularizationStrength          float64  `keras:"l2_regularization_strength"`
	L2ShrinkageRegularizationStrength float64  `keras:"l2_shrinkage_regularization_strength"`
	Beta                              float64

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

func (o *Ftrl) setup() setup {
	given := o
	o = withDefaults(o)
	return setup{
		class:        "ftrl",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		elementwise:  true,
		fields: []field{
			{"LearningRatePower", *o.LearningRatePower, -math.MaxFloat32, 0, "a number that is not positive"},
			notNegative("InitialAccumulatorValue", *o.InitialAccumulatorValue),
			notNegative("L1RegularizationStrength", o.L1RegularizationStrength),
			notNegative("L2RegularizationStrength", o.L2RegularizationStrength),
			notNegative("L2ShrinkageRegularizationStrength", o.L2ShrinkageRegularizationStrength),
			notNegative("Beta", o.Beta),
		},
		slots:  [][]slot{{{name: "accumulator", first: *o.InitialAccumulatorValue}, {name: "linear"}}},
		update: o.update,
	}
}

func (o *Ftrl) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	n, z := u.value("accumulator"), u.value("linear")
	pull := g
	if s := o.L2ShrinkageRegularizationStrength; s != 0 {
		pull = g.Add(w.MulScalar(2 * s))
	}
	// z needs n before and after. After it is computed from the start, in
	// another form, so that n can be overwritten.
	gained := o.power(g.Mul(g).Add(n)).Sub(o.power(n))
	z = u.assign("linear", z.Add(pull.Sub(gained.Div(u.rate).Mul(w))))
	n = u.assign("accumulator", n.Add(g.Square()))

	l2 := tensor.Scalar(u.rate.DType(), o.Beta).Div(u.rate).AddScalar(2 * o.L2RegularizationStrength)
	l1 := o.L1RegularizationStrength
	return z.Clip(-l1, l1).Sub(z).Div(o.power(n).Div(u.rate).Add(l2))
}

// power is nᵖ.
func (o *Ftrl) power(n *tensor.Tensor) *tensor.Tensor {
	if *o.LearningRatePower == -0.5 {
		return n.Sqrt()
	}
	return n.Pow(tensor.Scalar(n.DType(), -*o.LearningRatePower))
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Ftrl) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Ftrl) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Ftrl) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Ftrl) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
