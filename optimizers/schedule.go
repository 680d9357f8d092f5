package optimizers

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Schedule computes the learning rate from the number of applied steps. It is
// recorded as part of the training step. Skipped steps and calls that only
// accumulate gradients do not change the rate.
type Schedule interface {
	// Rate is the rate of the step that follows step applied ones: a float
	// scalar computed from step, a float32 scalar.
	Rate(step *tensor.Tensor) *tensor.Tensor
}

// scheduled is the rate that s gives, checked, as float32.
func scheduled(s Schedule, step *tensor.Tensor) *tensor.Tensor {
	if isNil(s) {
		tensor.Fail("", "Schedule: got %s, want a schedule, or nil for none", nilText(s))
	}
	r := s.Rate(step)
	switch {
	case r == nil:
		tensor.Fail("Schedule", "%T: got nil, want a float scalar", s)
	case r.Err() == nil && (r.IsTuple() || !r.DType().IsFloat() || r.Rank() != 0):
		tensor.Fail("Schedule", "%T: got %v, want a float scalar", s, describe(r))
	}
	return r.Cast(dtype.Float32)
}

// ExponentialDecay multiplies the rate by DecayRate every DecaySteps steps:
// Keras's ExponentialDecay.
//
//	InitialLearningRate · DecayRate^(step/DecaySteps)
//
// With Staircase step/DecaySteps is rounded down. InitialLearningRate,
// DecaySteps and DecayRate are required.
type ExponentialDecay struct {
	InitialLearningRate float64
	DecaySteps          float64
	DecayRate           float64
	Staircase           bool
}

// Rate is the rate after step applied steps.
func (s *ExponentialDecay) Rate(step *tensor.Tensor) *tensor.Tensor {
	require("ExponentialDecay", firstRate("InitialLearningRate", s.InitialLearningRate),
		positive("DecaySteps", s.DecaySteps), positive("DecayRate", s.DecayRate))
	p := periods(step, s.DecaySteps, s.Staircase)
	return tensor.Scalar(step.DType(), s.DecayRate).Pow(p).MulScalar(s.InitialLearningRate)
}

// InverseTimeDecay decreases the rate in proportion to 1/step: Keras's
// InverseTimeDecay.
//
//	InitialLearningRate / (1 + DecayRate·step/DecaySteps)
//
// With Staircase step/DecaySteps is rounded down. InitialLearningRate,
// DecaySteps and DecayRate are required.
type InverseTimeDecay struct {
	InitialLearningRate float64
	DecaySteps          float64
	DecayRate           float64
	Staircase           bool
}

// Rate is the rate after step applied steps.
func (s *InverseTimeDecay) Rate(step *tensor.Tensor) *tensor.Tensor {
	require("InverseTimeDecay", firstRate("InitialLearningRate", s.InitialLearningRate),
		positive("DecaySteps", s.DecaySteps), positive("DecayRate", s.DecayRate))
	p := periods(step, s.DecaySteps, s.Staircase)
	return tensor.Scalar(step.DType(), s.InitialLearningRate).Div(p.MulScalar(s.DecayRate).AddScalar(1))
}

// PiecewiseConstantDecay is a step function: Values[0] while step ≤
// Boundaries[0], Values[1] while step ≤ Boundaries[1] and so on, and the last
// value after the last boundary (Keras: PiecewiseConstantDecay). Boundaries
// must increase, and len(Values) must be len(Boundaries)+1.
type PiecewiseConstantDecay struct {
	Boundaries []float64
	Values     []float64
}

// Rate is the rate after step applied steps.
func (s *PiecewiseConstantDecay) Rate(step *tensor.Tensor) *tensor.Tensor {
	const where = "PiecewiseConstantDecay"
	if len(s.Values) != len(s.Boundaries)+1 {
		tensor.Fail(where, "Values: got %d, want %d: one more than there are Boundaries", len(s.Values), len(s.Boundaries)+1)
	}
	last := math.Inf(-1)
	for i, v := range s.Values {
		require(where, notNegative(fmt.Sprintf("Values[%d]", i), v))
	}
	for i, b := range s.Boundaries {
		require(where, field{fmt.Sprintf("Boundaries[%d]", i), b, -math.MaxFloat32, math.MaxFloat32, "a finite number"})
		if !(b > last) {
			tensor.Fail(where, "Boundaries[%d]: got %v, want more than %v", i, b, last)
		}
		last = b
	}
	scalar := func(x float64) *tensor.Tensor { return tensor.Scalar(step.DType(), x) }
	rate := scalar(s.Values[len(s.Boundaries)])
	for i := len(s.Boundaries) - 1; i >= 0; i-- {
		rate = tensor.Where(step.LessEqual(scalar(s.Boundaries[i])), scalar(s.Values[i]), rate)
	}
	return rate
}

// PolynomialDecay decreases the rate from InitialLearningRate to
// EndLearningRate in DecaySteps steps: Keras's PolynomialDecay.
//
//	(InitialLearningRate - EndLearningRate)·(1 - step/DecaySteps)^Power + EndLearningRate
//
// After DecaySteps the rate is EndLearningRate. With Cycle, DecaySteps is
// instead replaced by its next multiple that is at least step.
type PolynomialDecay struct {
	InitialLearningRate float64  // required
	DecaySteps          float64  // required
	EndLearningRate     *float64 `default:"1e-4"`
	Power               float64  `default:"1"`
	Cycle               bool
}

// Rate is the rate after step applied steps.
func (s *PolynomialDecay) Rate(step *tensor.Tensor) *tensor.Tensor {
	s = withDefaults(s)
	require("PolynomialDecay", firstRate("InitialLearningRate", s.InitialLearningRate), positive("DecaySteps", s.DecaySteps),
		notNegative("EndLearningRate", *s.EndLearningRate), positive("Power", s.Power))
	one := tensor.Scalar(step.DType(), 1)
	p := step.DivScalar(s.DecaySteps)
	if s.Cycle {
		total := p.Ceil().Maximum(one).MulScalar(s.DecaySteps)
		p = step.Div(total)
	} else {
		p = p.Minimum(one)
	}
	left := one.Sub(p)
	if s.Power != 1 {
		left = left.Pow(tensor.Scalar(step.DType(), s.Power))
	}
	return left.MulScalar(s.InitialLearningRate - *s.EndLearningRate).AddScalar(*s.EndLearningRate)
}

// periods is how many periods of so many steps have passed, whole ones only if
// staircase.
func periods(step *tensor.Tensor, steps float64, staircase bool) *tensor.Tensor {
	p := step.DivScalar(steps)
	if staircase {
		return p.Floor()
	}
	return p
}

// require fails when a field of a schedule makes no sense.
func require(class string, fields ...field) {
	for _, f := range fields {
		if !f.fits() {
			tensor.Fail(class, "%s: got %v, want %s", f.name, f.value, f.want)
		}
	}
}
