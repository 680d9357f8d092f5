package layers

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Noise layers change their input while training only. Noise is drawn and
// applied in float32 whatever the compute type, and the result is rounded
// once; like Dropout's it differs in each call of each step of a Function.

// GaussianDropout multiplies its input by normal noise of mean 1 and standard
// deviation √(Rate/(1-Rate)), the deviation of Dropout's (Srivastava et al.
// 2014).
//
// Shapes: any → the same.
type GaussianDropout struct {
	Rate        float64 // from 0 to below 1
	Seed        *int64  // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	PassesMask
	state *tensor.Variable
}

// Config returns the fields Name and DType.
func (g *GaussianDropout) Config() Config { return Config{g.Name, g.DType} }

// Build makes the state of the random numbers.
func (g *GaussianDropout) Build(in ...Shape) (err error) {
	if _, err = support.Single(in, 0); err == nil {
		g.state, err = g.belowOneState(g.Rate, g.Seed)
	}
	return err
}

// Call computes the layer on x.
func (g *GaussianDropout) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	if !p.Training || g.Rate == 0 || x.Symbolic() {
		return x
	}
	wide := x.Cast(x.DType().Accumulator())
	z := tensor.RandomNormal(NextState(g.state, x), 0, x.Shape()...).CastLike(wide)
	return wide.Mul(z.MulScalar(math.Sqrt(g.Rate / (1 - g.Rate))).AddScalar(1)).Cast(x.DType())
}

// GaussianNoise adds normal noise of mean 0.
//
// Shapes: any → the same.
type GaussianNoise struct {
	Stddev      float64 // standard deviation, from 0 to 1
	Seed        *int64  // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	PassesMask
	state *tensor.Variable
}

// Config returns the fields Name and DType.
func (g *GaussianNoise) Config() Config { return Config{g.Name, g.DType} }

// Build makes the state of the random numbers.
func (g *GaussianNoise) Build(in ...Shape) error {
	if !(g.Stddev >= 0 && g.Stddev <= 1) {
		return fmt.Errorf("Stddev is %v, want a number from 0 to 1", g.Stddev)
	}
	if g.Stddev > 0 {
		g.state = g.AddRandomState(g.Seed)
	}
	_, err := support.Single(in, 0)
	return err
}

// Call computes the layer on x.
func (g *GaussianNoise) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	if !p.Training || g.Stddev == 0 || x.Symbolic() {
		return x
	}
	wide := x.Cast(x.DType().Accumulator())
	z := tensor.RandomNormal(NextState(g.state, x), 0, x.Shape()...).CastLike(wide)
	return wide.Add(z.MulScalar(g.Stddev)).Cast(x.DType())
}

// AlphaDropout sets a random share of its input to the limit of selu at -∞,
// then scales and shifts all elements so that mean and variance do not change:
// dropout for networks with selu (Klambauer et al. 2017).
//
// Shapes: any → the same.
type AlphaDropout struct {
	Rate        float64 // share that is dropped, from 0 to below 1
	NoiseShape  []int   // as of Dropout
	Seed        *int64  // default: derived from the model's seed and the layer's path
	Name, DType string

	Base
	PassesMask
	state *tensor.Variable
}

// Config returns the fields Name and DType.
func (a *AlphaDropout) Config() Config { return Config{a.Name, a.DType} }

// Build makes the state of the random numbers.
func (a *AlphaDropout) Build(in ...Shape) error {
	s, err := support.Single(in, 0)
	if err == nil {
		err = noiseFits(a.NoiseShape, s)
	}
	if err == nil {
		a.state, err = a.belowOneState(a.Rate, a.Seed)
	}
	return err
}

// dropped is selu's limit at -∞: -scale·alpha.
const dropped = -1.0507009873554804934193349852946 * 1.6732632423543772848170429916717

// Call computes the layer on x.
func (a *AlphaDropout) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	if !p.Training || a.Rate == 0 || x.Symbolic() {
		return x
	}
	scale := 1 / math.Sqrt((1-a.Rate)*(1+float64(a.Rate*dropped*dropped)))
	wide := x.Cast(x.DType().Accumulator())
	y := tensor.Where(kept(x, a.state, a.Rate, noiseShape(a.NoiseShape, x)), wide, tensor.Scalar(wide.DType(), dropped))
	return y.MulScalar(scale).AddScalar(-scale * dropped * a.Rate).Cast(x.DType())
}

// belowOneState is rateState for rates that must be below 1.
func (b *Base) belowOneState(rate float64, seed *int64) (*tensor.Variable, error) {
	if !(rate >= 0 && rate < 1) {
		return nil, fmt.Errorf("Rate is %v, want a number from 0 to below 1", rate)
	}
	return b.rateState(rate, seed)
}

// ActivityRegularization returns its input and adds L1·Σ|x| + L2·Σx², divided
// by the batch size, to the model's loss.
//
// Shapes: any → the same.
type ActivityRegularization struct {
	L1, L2      float64
	Name, DType string

	Base
	PassesMask
}

// Config returns the fields Name and DType.
func (a *ActivityRegularization) Config() Config { return Config{a.Name, a.DType} }

// Build sets the penalty.
func (a *ActivityRegularization) Build(in ...Shape) error {
	if _, err := support.NotNegative("L1", a.L1); err != nil {
		return err
	}
	if _, err := support.NotNegative("L2", a.L2); err != nil {
		return err
	}
	if _, err := support.Single(in, 1); err != nil {
		return err
	}
	return a.SetActivityRegularizer(fmt.Sprintf("l1l2(l1=%v, l2=%v)", a.L1, a.L2))
}

// Call returns x.
func (a *ActivityRegularization) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return x }
