package keras

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// MaxBatch returns the largest batch size for which a training step needs at
// most budget bytes according to PlanMemory, 0 if one sample needs more. Only
// types and shapes of b matter. policyName is the policy of the layers that
// name none of their own (see Clone); "" is the model's. Steps are planned and
// not run. The model must be compiled.
func (m *Model) MaxBatch(b Batch, budget Bytes, policyName string) (n int, err error) {
	defer tensor.Catch(&err)
	switch {
	case m.training == nil:
		return 0, m.errorf("%w; call Compile before MaxBatch", ErrNotCompiled)
	case budget < 1:
		return 0, m.errorf("MaxBatch: the budget is %d bytes, want a positive number", int64(budget))
	}
	for _, t := range []*Tensor{b.X, b.Y, b.Weight} {
		if t == nil {
			continue
		}
		for _, p := range t.Unpack() {
			if p.Rank() == 0 {
				return 0, m.errorf("MaxBatch: the batch has the scalar %v; axis 0 counts samples", p.Type())
			}
		}
	}
	at := m
	if policyName != "" {
		if len(m.training.config.Parts) > 0 {
			return 0, m.errorf("MaxBatch: it was compiled with Parts, which a copy under %s would share; give no policy", policyName)
		}
		if at, err = m.cloneCompiled(policyName); err != nil {
			return 0, err
		}
	}
	if err := at.ready(b); err != nil {
		return 0, err
	}
	return largest(budget, func(n int) (Bytes, error) {
		// A separate Function, whose plans are dropped with it.
		plan, err := at.planMemory(at.trainFunction(), b.resized(n))
		return plan.Peak, err
	})
}

// resized is a batch of n samples like b, without elements.
func (b Batch) resized(n int) Batch {
	one := func(t *Tensor) *Tensor {
		if t == nil {
			return nil
		}
		return eachPart(t, func(p *Tensor) *Tensor {
			shape := p.Shape().Clone()
			shape[0] = n
			return tensor.Placeholder(p.DType(), shape...)
		})
	}
	return Batch{X: one(b.X), Y: one(b.Y), Weight: one(b.Weight)}
}

// largest returns the n such that need(n) is at most budget and need(n+1) is not.
// Memory grows almost linearly, so interpolation between known points finds n in a few
// guesses; every third guess halves or doubles, for other cases.
func largest(budget Bytes, need func(n int) (Bytes, error)) (int, error) {
	const most = math.MaxInt32
	low, high := 0, most+1 // low fits, high does not
	var atLow, atHigh, atOne float64
	for i, n := 0, 1; ; i++ {
		bytes, err := need(n)
		if err != nil {
			return 0, err
		}
		if bytes <= budget {
			low, atLow = n, float64(bytes)
		} else {
			high, atHigh = n, float64(bytes)
		}
		if n == 1 {
			atOne = float64(bytes)
		}
		if low+1 >= high {
			return low, nil
		}
		guess := float64(low)
		switch {
		case high > most && (low == 1 || i%3 == 2):
			guess = 2 * guess
		case high > most:
			guess = 1 + float64(low-1)*(float64(budget)-atOne)/max(atLow-atOne, 1)
			guess = min(guess, 64*float64(low))
		case low == 0 || i%3 == 2:
			guess = float64(low) + float64(high-low)/2
		default:
			guess += float64(high-low) * (float64(budget) - atLow) / (atHigh - atLow)
		}
		n = min(max(int(guess), low+1), high-1)
	}
}
