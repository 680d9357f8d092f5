package optimizers

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Adafactor stores the mean squares of a matrix's gradient by row and by
// column only, so its state is small: Keras's Adafactor (Shazeer and Stern,
// 2018). In step t = 1, 2 … with p = t^Beta2Decay
//
//	q = g² + Epsilon1
//	2 axes or more, r and c over the last and the one before:
//	    r = (1-p)·r + p·mean(q, last);  c = (1-p)·c + p·mean(q, one before);  v = r/mean(r)⊗c
//	otherwise: v = (1-p)·v + p·q
//	u = g/√v
//	w -= max(Epsilon2, rms(w)) · min(rate, 1/√t) · u/max(1, rms(u)/ClipThreshold)
//
// Slots: r and c, or velocity for variables with fewer axes. Keras stores
// velocity for all variables, although v follows from r and c in every step.
// That would take the memory that Adafactor saves, so Keras's files of this
// class have more variables than Mezzo's.
type Adafactor struct {
	LearningRate  float64 `default:"0.001"`                     // of the first step; see SetLearningRate
	Beta2Decay    float64 `default:"-0.8" keras:"beta_2_decay"` // negative
	Epsilon1      float64 `default:"1e-30"`
	Epsilon2      float64 `default:"1e-3"`
	ClipThreshold float64 `default:"1"`
	RelativeStep  *bool   `default:"true"` // an argument of Keras without effect, there and here: the rate is never above 1/√t

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

func (o *Adafactor) setup() setup {
	given := o
	o = withDefaults(o)
	without := func(s tensor.Shape, fromEnd int) tensor.Shape {
		return slices.Delete(s.Clone(), len(s)-fromEnd, len(s)-fromEnd+1)
	}
	return setup{
		class:        "adafactor",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		fields: []field{
			{"Beta2Decay", o.Beta2Decay, -math.MaxFloat32, -math.SmallestNonzeroFloat64, "a negative number"},
			notNegative("Epsilon1", o.Epsilon1), notNegative("Epsilon2", o.Epsilon2), positive("ClipThreshold", o.ClipThreshold),
		},
		slots: [][]slot{{
			{name: "r", of: factored, shape: func(s tensor.Shape) tensor.Shape { return without(s, 1) }},
			{name: "c", of: factored, shape: func(s tensor.Shape) tensor.Shape { return without(s, 2) }},
			{name: "velocity", of: func(v *tensor.Variable) bool { return !factored(v) }},
		}},
		update: o.update,
	}
}

// factored tells whether v's mean squares are kept for rows and columns.
func factored(v *tensor.Variable) bool { return len(v.Shape()) >= 2 }

func (o *Adafactor) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	p := u.step.Pow(tensor.Scalar(u.step.DType(), o.Beta2Decay))
	mean := func(slot string, x *tensor.Tensor) *tensor.Tensor {
		v := u.value(slot)
		return u.assign(slot, v.Add(x.Sub(v).Mul(p)))
	}
	q := g.Square().AddScalar(o.Epsilon1)
	var v *tensor.Tensor
	if factored(u.variable) {
		r, c := mean("r", q.Mean(-1)), mean("c", q.Mean(-2))
		v = r.Div(r.MeanKeep(-1)).ExpandDims(-1).Mul(c.ExpandDims(-2))
	} else {
		v = mean("velocity", q)
	}
	x := g.Div(v.Sqrt())
	rms := func(sumSquares *tensor.Tensor) *tensor.Tensor {
		return sumSquares.DivScalar(float64(g.Shape().Size())).Sqrt()
	}
	one := tensor.Scalar(g.DType(), 1)
	alpha := rms(u.sumSquares()).MaximumScalar(o.Epsilon2).Mul(u.rate.Minimum(one.Div(u.step.Sqrt())))
	return w.Sub(x.Mul(alpha.Div(rms(x.SumSquares()).DivScalar(o.ClipThreshold).Maximum(one))))
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Adafactor) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Adafactor) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Adafactor) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Adafactor) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
