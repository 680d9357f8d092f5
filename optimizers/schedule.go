package optimizers

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Schedule computes a learning rate. It is recorded in the training step.
type Schedule interface {
	// Rate is the rate of the step that follows step applied ones: a float
	// scalar computed from step, a float32 scalar.
	Rate(step *tensor.Tensor) *tensor.Tensor
}

// scheduled is the rate that s gives, checked, as float32.
func scheduled(s Schedule, step *tensor.Tensor) *tensor.Tensor {
	r := s.Rate(step)
	switch {
	case r == nil:
		tensor.Fail("Schedule", "%T: got nil, want a float scalar", s)
	case r.Err() == nil && (r.IsTuple() || !r.DType().IsFloat() || r.Rank() != 0):
		tensor.Fail("Schedule", "%T: got %v, want a float scalar", s, describe(r))
	}
	return r.Cast(dtype.Float32)
}

// ExponentialDecay multiplies the rate by DecayRate every DecaySteps steps,
// gradually or, with Staircase, at once:
// InitialLearningRate·DecayRate^(step/DecaySteps). It is Keras's
// ExponentialDecay. All numbers are required.
type ExponentialDecay struct {
	InitialLearningRate float64
	DecaySteps          float64
	DecayRate           float64
	Staircase           bool
}

// Rate is the rate after step applied steps.
func (s *ExponentialDecay) Rate(step *tensor.Tensor) *tensor.Tensor {
	for _, f := range []field{
		positive("InitialLearningRate", s.InitialLearningRate),
		positive("DecaySteps", s.DecaySteps),
		positive("DecayRate", s.DecayRate),
	} {
		if !(f.value >= f.lo && f.value <= f.hi) {
			tensor.Fail("ExponentialDecay", "%s: got %v, want %s", f.name, f.value, f.want)
		}
	}
	p := step.DivScalar(s.DecaySteps)
	if s.Staircase {
		p = p.Floor()
	}
	return tensor.Scalar(step.DType(), s.DecayRate).Pow(p).MulScalar(s.InitialLearningRate)
}
