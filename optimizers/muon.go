package optimizers

import (
	"math"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Muon moves matrices along the nearest orthogonal matrix to their momentum,
// and everything else as AdamW does: Keras's Muon (Jordan et al., 2024; Liu et
// al., 2025). For a matrix
//
//	m = Momentum·m + g;  x = g + Momentum·m if Nesterov, else m
//	x = x/(‖x‖ + 1e-7); NSSteps times: A = x·xᵀ;  x = MuonA·x + (MuonB·A + MuonC·A²)·x
//	w -= rate·x·√max(rows, columns)·RMSRate
//
// AdamW moves variables that are not matrices, variables of embeddings, and
// variables that ExcludeLayers names; the last layer of a classifier should be among
// them. It works with AdamLRRatio·rate, AdamBeta1, AdamBeta2 and Epsilon.
//
// Slots: momentum, and velocity for what AdamW moves.
type Muon struct {
	LearningRate      float64  `default:"0.001"` // of the first step; see SetLearningRate
	AdamBeta1         *float64 `default:"0.9"`
	AdamBeta2         float64  `default:"0.999"`
	AdamWeightDecay   *float64 `default:"0.004"` // of what AdamW moves
	Epsilon           float64  `default:"1e-7"`  // of AdamW
	ExcludeLayers     []string // regular expressions; a variable in whose path one is found is moved by AdamW
	ExcludeEmbeddings *bool    `default:"true"` // variables with "embedding" in their path, in any case, are moved by AdamW
	MuonA             float64  `default:"3.4445"`
	MuonB             float64  `default:"-4.775"`
	MuonC             float64  `default:"2.0315"`
	AdamLRRatio       float64  `default:"1"`
	Momentum          *float64 `default:"0.95"` // 0 ≤ Momentum < 1
	NSSteps           int      `default:"5"`
	Nesterov          *bool    `default:"true"`
	RMSRate           *float64 `default:"0.2"` // 0 leaves out the factor √max(rows, columns)·RMSRate: Keras's None

	// The fields of every optimizer; see the package documentation.
	Schedule                  Schedule // computes the rate instead of LearningRate
	WeightDecay               *float64 `default:"0.004"` // of matrices
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

func (o *Muon) setup() setup {
	given := o
	o = withDefaults(o)
	s := setup{
		class:        "muon",
		learningRate: o.LearningRate,
		given:        &given.LearningRate,
		again:        given.setup,
		options:      optionsOf(o),
		fields: []field{
			fraction("AdamBeta1", *o.AdamBeta1), fraction("AdamBeta2", o.AdamBeta2),
			notNegative("AdamWeightDecay", *o.AdamWeightDecay), notNegative("Epsilon", o.Epsilon),
			{"MuonA", o.MuonA, -math.MaxFloat32, math.MaxFloat32, "a finite number"},
			{"MuonB", o.MuonB, -math.MaxFloat32, math.MaxFloat32, "a finite number"},
			{"MuonC", o.MuonC, -math.MaxFloat32, math.MaxFloat32, "a finite number"},
			positive("AdamLRRatio", o.AdamLRRatio), fraction("Momentum", *o.Momentum),
			positive("NSSteps", float64(o.NSSteps)), notNegative("RMSRate", *o.RMSRate),
		},
		update: o.update,
	}
	byAdam := func(v *tensor.Variable) bool {
		return len(v.Shape()) != 2 ||
			*o.ExcludeEmbeddings && strings.Contains(strings.ToLower(v.Name()), "embedding") ||
			s.matcher("ExcludeLayers", o.ExcludeLayers)(v)
	}
	s.slots = [][]slot{{{name: "momentum"}, {name: "velocity", of: byAdam}}}
	s.decayOf = func(v *tensor.Variable) float64 {
		if byAdam(v) {
			return *o.AdamWeightDecay
		}
		return s.weightDecay()
	}
	return s
}

func (o *Muon) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	if u.slot["velocity"] != nil {
		u.rate = u.rate.MulScalar(o.AdamLRRatio)
		adam := Adam{Beta1: o.AdamBeta1, Beta2: o.AdamBeta2, Epsilon: o.Epsilon}
		return adam.update(u, w, g)
	}
	// x is needed as a whole before the weight can move, so it is computed from
	// the old momentum and in another form than the new one.
	m, mu := u.value("momentum"), *o.Momentum
	x := m.MulScalar(mu).Add(g)
	if *o.Nesterov {
		x = m.MulScalar(mu * mu).Add(g.MulScalar(1 + mu))
	}
	x = o.orthogonal(x)
	u.assign("momentum", m.Add(g.Add(m.MulScalar(mu-1))))

	rate := u.rate
	if *o.RMSRate != 0 {
		rate = rate.MulScalar(math.Sqrt(float64(max(w.Dim(0), w.Dim(1)))) * *o.RMSRate)
	}
	return w.Sub(x.Mul(rate))
}

// orthogonal makes the singular values of x about 1 by the Newton-Schulz
// iteration. Where there are more rows than columns it multiplies by xᵀ·x from
// the right, which is the same and smaller.
func (o *Muon) orthogonal(x *tensor.Tensor) *tensor.Tensor {
	x = x.Div(x.SumSquares().Sqrt().AddScalar(1e-7))
	tall := x.Dim(0) > x.Dim(1)
	for range o.NSSteps {
		a := x.MatMulT(x, tall, !tall)
		b := a.MulScalar(o.MuonB).Add(a.MatMul(a).MulScalar(o.MuonC))
		y := b.MatMul
		if tall {
			y = func(x *tensor.Tensor) *tensor.Tensor { return x.MatMul(b) }
		}
		x = x.MulScalar(o.MuonA).Add(y(x))
	}
	return x
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Muon) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Muon) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Muon) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate returns the rate of the next step.
func (o *Muon) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
