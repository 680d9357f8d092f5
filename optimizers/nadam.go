package optimizers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// Nadam is Adam with Nesterov momentum: Keras's Nadam (Dozat, 2015). In step
// t = 1, 2 … with u(t) = Beta1·(1 - 0.96ᵗ/2)
//
//	m += (g - m)·(1-Beta1);  v += (g² - v)·(1-Beta2);  P *= u(t), once for all variables
//	n = u(t+1)·m/(1 - P·u(t+1)) + (1-u(t))·g/(1-P)
//	w -= rate · n/(√(v/(1-Beta2ᵗ)) + Epsilon)
//
// Slots: momentum, velocity. The product P is the scalar u_product.
type Nadam struct {
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

func (o *Nadam) setup() setup {
	given := o
	o = withDefaults(o)
	const product = "u_product"
	return setup{
		class:        "nadam",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		elementwise:  true,
		fields:       moments(*o.Beta1, o.Beta2, o.Epsilon),
		slots:        [][]slot{zeros("momentum", "velocity")},
		shared:       []slot{{name: product, first: 1}},
		before: func(u *update) {
			p := u.shared[product]
			p.Assign(p.Value().Mul(o.u(u.step)))
		},
		update: func(u *update, w, g *tensor.Tensor) *tensor.Tensor {
			d := u.step.DType()
			one := tensor.Scalar(d, 1)
			p, now, next := u.shared[product].Value().CastLike(one), o.u(u.step), o.u(u.step.AddScalar(1))
			m := u.move("momentum", g, rounded(*o.Beta1, d))
			v := u.move("velocity", g.Square(), rounded(o.Beta2, d))
			n := m.Mul(next.Div(one.Sub(p.Mul(next)))).Add(g.Mul(one.Sub(now).Div(one.Sub(p))))
			return w.Sub(n.Mul(u.rate).Div(v.Div(correction(o.Beta2, u.step)).Sqrt().AddScalar(o.Epsilon)))
		},
	}
}

// u is the momentum of step t.
func (o *Nadam) u(t *tensor.Tensor) *tensor.Tensor {
	p := tensor.Scalar(t.DType(), 0.96).Pow(t)
	return p.MulScalar(-0.5).AddScalar(1).MulScalar(*o.Beta1)
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Nadam) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Nadam) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Nadam) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Nadam) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
