package optimizers

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/portablemath"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// CosineDecay decreases the rate along half a cosine: Keras's CosineDecay
// (Loshchilov and Hutter, 2016).
//
//	InitialLearningRate·((1-Alpha)·(1 + cos(π·min(step/DecaySteps, 1)))/2 + Alpha)
//
// With WarmupTarget the rate first increases linearly from InitialLearningRate
// to WarmupTarget in WarmupSteps steps. Then it decreases from WarmupTarget in
// DecaySteps steps.
type CosineDecay struct {
	InitialLearningRate float64  // required without WarmupTarget
	DecaySteps          float64  // required
	Alpha               float64  // what is left at the end, as a fraction
	WarmupTarget        *float64 // nil: no warmup
	WarmupSteps         float64
}

// Rate is the rate after step applied steps.
func (s *CosineDecay) Rate(step *tensor.Tensor) *tensor.Tensor {
	const where = "CosineDecay"
	require(where, positive("DecaySteps", s.DecaySteps), notNegative("Alpha", s.Alpha), notNegative("WarmupSteps", s.WarmupSteps))
	if s.WarmupTarget == nil {
		require(where, firstRate("InitialLearningRate", s.InitialLearningRate))
		return half(step, s.DecaySteps).MulScalar(1 - s.Alpha).AddScalar(s.Alpha).MulScalar(s.InitialLearningRate)
	}
	require(where, notNegative("InitialLearningRate", s.InitialLearningRate), firstRate("WarmupTarget", *s.WarmupTarget))
	rate := half(step.AddScalar(-s.WarmupSteps), s.DecaySteps).MulScalar(1 - s.Alpha).AddScalar(s.Alpha).MulScalar(*s.WarmupTarget)
	if s.WarmupSteps == 0 {
		return rate
	}
	rising := step.DivScalar(s.WarmupSteps).MulScalar(*s.WarmupTarget - s.InitialLearningRate).AddScalar(s.InitialLearningRate)
	return tensor.Where(step.LessScalar(s.WarmupSteps), rising, rate)
}

// half falls along half a cosine from 1 to 0 in so many steps, and stays.
func half(step *tensor.Tensor, steps float64) *tensor.Tensor {
	return cosine(step.MinimumScalar(steps).DivScalar(steps))
}

// cosine is (1 + cos(π·p))/2.
func cosine(p *tensor.Tensor) *tensor.Tensor {
	return p.MulScalar(math.Pi).Cos().AddScalar(1).MulScalar(0.5)
}

// CosineDecayRestarts repeats a decrease along half a cosine: Keras's
// CosineDecayRestarts (Loshchilov and Hutter, 2016). Each period is TMul times
// as long as the one before and starts MMul times as high. In period i = 0, 1
// …, with p the fraction of the period that is done:
//
//	InitialLearningRate·((1-Alpha)·MMulⁱ·(1 + cos(π·p))/2 + Alpha)
type CosineDecayRestarts struct {
	InitialLearningRate float64 // required
	FirstDecaySteps     float64 // length of the first period; required
	TMul                float64 `default:"2"` // at least 1
	MMul                float64 `default:"1"`
	Alpha               float64 // what is left at the end of a period, as a fraction
}

// Rate is the rate after step applied steps.
func (s *CosineDecayRestarts) Rate(step *tensor.Tensor) *tensor.Tensor {
	s = withDefaults(s)
	require("CosineDecayRestarts", firstRate("InitialLearningRate", s.InitialLearningRate), positive("FirstDecaySteps", s.FirstDecaySteps),
		field{"TMul", s.TMul, 1, math.MaxFloat32, "at least 1"}, positive("MMul", s.MMul), notNegative("Alpha", s.Alpha))
	power := func(x float64, i *tensor.Tensor) *tensor.Tensor { return tensor.Scalar(step.DType(), x).Pow(i) }
	c := step.DivScalar(s.FirstDecaySteps)
	i := c.Floor()
	p := c.Sub(i)
	if s.TMul != 1 {
		start := func(i *tensor.Tensor) *tensor.Tensor { return power(s.TMul, i).AddScalar(-1).DivScalar(s.TMul - 1) }
		i = c.MulScalar(s.TMul - 1).AddScalar(1).Log().DivScalar(portablemath.Log(s.TMul)).Floor()
		// The logarithms may round to a whole number too early or too late.
		i = i.Sub(c.Less(start(i)).Cast(i.DType()))
		i = i.Add(c.GreaterEqual(start(i.AddScalar(1))).Cast(i.DType()))
		p = c.Sub(start(i)).Div(power(s.TMul, i))
	}
	return cosine(p).Mul(power(s.MMul, i)).MulScalar(1 - s.Alpha).AddScalar(s.Alpha).MulScalar(s.InitialLearningRate)
}

// OneCycle increases the rate from MaxLearningRate/DivFactor to
// MaxLearningRate in the first PctStart of TotalSteps, and then decreases it
// to the initial rate divided by FinalDivFactor: PyTorch's OneCycleLR (Smith
// and Topin, 2017), with its defaults. With ThreePhase the rate first returns
// to the initial rate, in as many steps as it increased.
//
// As in PyTorch the first phase ends at step PctStart·TotalSteps-1 and the
// last at TotalSteps-1. After TotalSteps the rate stays; PyTorch fails there.
// PyTorch also cycles the momentum by default; OneCycle does not
// (cycle_momentum=False).
type OneCycle struct {
	MaxLearningRate float64 // required
	TotalSteps      float64 // applied steps of the whole training; required, at least 2
	PctStart        float64 `default:"0.3"` // a fraction, in spite of PyTorch's name
	AnnealStrategy  string  `default:"cos"` // "cos" or "linear": how the rate goes from one value to the next
	DivFactor       float64 `default:"25"`
	FinalDivFactor  float64 `default:"1e4"`
	ThreePhase      bool
}

// Rate is the rate after step applied steps.
func (s *OneCycle) Rate(step *tensor.Tensor) *tensor.Tensor {
	s = withDefaults(s)
	const where = "OneCycle"
	require(where, firstRate("MaxLearningRate", s.MaxLearningRate), field{"TotalSteps", s.TotalSteps, 2, math.MaxFloat32, "at least 2"},
		field{"PctStart", s.PctStart, math.SmallestNonzeroFloat64, 1, "more than 0 and at most 1"},
		positive("DivFactor", s.DivFactor), positive("FinalDivFactor", s.FinalDivFactor))
	if s.AnnealStrategy != "cos" && s.AnnealStrategy != "linear" {
		tensor.Fail(where, "AnnealStrategy: got %q, want \"cos\" or \"linear\"", s.AnnealStrategy)
	}
	top := s.MaxLearningRate
	first := top / s.DivFactor
	last := first / s.FinalDivFactor
	type phase struct{ from, to, end float64 }
	rise, end := float64(s.PctStart*s.TotalSteps)-1, s.TotalSteps-1
	phases := []phase{{first, top, rise}, {top, last, end}}
	if s.ThreePhase {
		phases = []phase{{first, top, rise}, {top, first, 2 * rise}, {first, last, end}}
	}
	// From the last phase to the first, as each is for the steps to its end
	// that none before it is for.
	var rate *tensor.Tensor
	for i := len(phases) - 1; i >= 0; i-- {
		start, ph := 0.0, phases[i]
		if i > 0 {
			start = phases[i-1].end
		}
		r := tensor.Scalar(step.DType(), ph.to) // of a phase without length
		if ph.end > start {
			p := step.AddScalar(-start).DivScalar(ph.end - start).MinimumScalar(1)
			left := tensor.Scalar(step.DType(), 1).Sub(p)
			if s.AnnealStrategy == "cos" {
				left = cosine(p)
			}
			r = left.MulScalar(ph.from - ph.to).AddScalar(ph.to)
		}
		if rate != nil {
			r = tensor.Where(step.LessEqual(tensor.Scalar(step.DType(), ph.end)), r, rate)
		}
		rate = r
	}
	return rate
}
