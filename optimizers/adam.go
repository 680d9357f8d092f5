package optimizers

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Adam is Keras's Adam (Kingma and Ba, 2014). In step t = 1, 2 …
//
//	m += (g - m)·(1-Beta1);  v += (g² - v)·(1-Beta2)
//	AMSGrad: h = max(h, v), and h stands for v below
//	w -= rate·√(1-Beta2ᵗ)/(1-Beta1ᵗ) · m/(√v + Epsilon)
//
// Slots: momentum, velocity, and velocity_hat if AMSGrad.
type Adam struct {
	LearningRate float64  // default 0.001; changes after the first step have no effect, see SetLearningRate
	Beta1        *float64 // default 0.9; a pointer because 0, no momentum, makes sense: new(0.0)
	Beta2        float64  // default 0.999
	Epsilon      float64  // default 1e-7
	AMSGrad      bool
	Options

	state
}

// AdamW is Adam with WeightDecay 0.004 by default: Keras's AdamW (Loshchilov
// and Hutter, 2017). Its fields are Adam's.
type AdamW Adam

func (o *Adam) setup() setup {
	s := setup{
		class:        "adam",
		learningRate: or(o.LearningRate, 0.001),
		options:      &o.Options,
		weightDecay:  o.decay(0),
		fields:       []field{fraction("Beta1", o.beta1()), fraction("Beta2", o.Beta2), notNegative("Epsilon", o.Epsilon)},
		slots:        [][]string{{"momentum", "velocity"}},
		update:       o.update,
	}
	if o.AMSGrad {
		s.slots = append(s.slots, []string{"velocity_hat"})
	}
	return s
}

func (o *AdamW) setup() setup {
	s := (*Adam)(o).setup()
	s.class, s.weightDecay = "adamw", o.decay(0.004)
	return s
}

func (o *Adam) beta1() float64 {
	if o.Beta1 != nil {
		return *o.Beta1
	}
	return 0.9
}

func (o *Adam) update(u *update, w, g *tensor.Tensor) *tensor.Tensor {
	beta1, beta2 := o.beta1(), or(o.Beta2, 0.999)
	mean := func(slot string, x *tensor.Tensor, beta float64) *tensor.Tensor {
		v := u.slot[slot]
		v.Assign(v.Value().Add(x.Sub(v.Value()).MulScalar(1 - beta)))
		return v.Value()
	}
	m, v := mean("momentum", g, beta1), mean("velocity", g.Square(), beta2)
	if o.AMSGrad {
		h := u.slot["velocity_hat"]
		h.Assign(h.Value().Maximum(v))
		v = h.Value()
	}
	alpha := u.rate.Mul(correction(beta2, u.step).Sqrt()).Div(correction(beta1, u.step))
	return w.Sub(m.Mul(alpha).Div(v.Sqrt().AddScalar(or(o.Epsilon, 1e-7))))
}

// correction is 1-betaᵗ. Keras rounds beta to the type of the arithmetic
// first, and so does this; but where it takes a power and subtracts, which
// cancels all but a few digits in early steps, this is exact to the last ones.
func correction(beta float64, t *tensor.Tensor) *tensor.Tensor {
	if t.DType() == dtype.Float32 {
		beta = float64(float32(beta))
	}
	if beta == 0 {
		return tensor.Scalar(t.DType(), 1)
	}
	return t.MulScalar(math.Log(beta)).Expm1().Neg()
}

// ApplyGradients records one update of vars; see Optimizer.
func (o *Adam) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *Adam) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *Adam) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate is the rate of the next step.
func (o *Adam) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }

// ApplyGradients records one update of vars; see Optimizer.
func (o *AdamW) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	o.apply(o.setup(), nil, grads, vars)
}

// Variables lists the state; see Optimizer.
func (o *AdamW) Variables() []*tensor.Variable { return o.variables(o.setup()) }

// SetLearningRate changes the rate from the next step on.
func (o *AdamW) SetLearningRate(rate float64) error { return o.setLearningRate(o.setup(), rate) }

// CurrentLearningRate is the rate of the next step.
func (o *AdamW) CurrentLearningRate() (float64, error) { return o.currentLearningRate(o.setup()) }
