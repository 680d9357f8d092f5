package doctor

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// manyLost is the share of lost updates of all weights from which on they are an
// illness.
const manyLost = 0.1

// lost reports a step that is right but for its updates, which 16-bit weights lose.
func (e *examination) lost(r *observed) bool {
	var worst string
	var lost, all int64
	for i := range r.Assigned {
		a := &r.Assigned[i]
		if a.Change == nil || !a.Variable.DType().Is16() {
			continue
		}
		lost, all = lost+a.Change.Flushed, all+a.Change.Count
		if x := a.Lost(); x > 0 {
			if e.report.Lost == nil {
				e.report.Lost = map[string]float64{}
			}
			e.report.Lost[a.Variable.Name()] = x
			if worst == "" || x > e.report.Lost[worst] {
				worst = a.Variable.Name()
			}
		}
	}
	if float64(lost) <= manyLost*float64(all) {
		return false
	}
	e.report.Kind = LostUpdates
	e.report.Summary = fmt.Sprintf("The gradients are right, but %.0f %% of the updates are smaller than half the spacing of 16-bit numbers and leave weights as they are (%s: %.0f %%).", 100*float64(lost)/float64(all), worst, 100*e.report.Lost[worst])
	e.report.Remedy.Advice = "store weights in float32 and compute in 16 bits: policy mixed_float16 or mixed_bfloat16; or set the optimizer's StochasticRounding"
	return true
}

// spoiled reports a step that is right, but for statistics that it only updates: moving
// averages that are not finite spoil predictions, and stay so.
func (e *examination) spoiled(r *observed) (bool, error) {
	seen := map[*tensor.Variable]bool{} // the step reads it
	for i := range r.Values {
		if t := &r.Values[i]; t.Variable != nil && t.Shadow != nil {
			seen[t.Variable] = true
		}
	}
	for _, v := range e.statistics() {
		if !v.DType().IsFloat() || seen[v] {
			continue
		}
		x, err := v.Float64s()
		if err != nil {
			return false, err
		}
		bad := 0
		for _, x := range x {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				bad++
			}
		}
		if bad > 0 {
			e.report.Kind = Given
			e.report.Summary = fmt.Sprintf("The loss and the gradients are right, but variable %s has %d elements that are not finite: the step updates it, and predictions read it.", v.Name(), bad)
			e.report.Remedy.Advice = "restore it from a checkpoint"
			return true, nil
		}
	}
	return false, nil
}

// leap is the matrix whose update in float32 is the largest relative to it, as a norm, and
// how large that is. A shadow that does not take its own decisions skips the steps that
// the loss scale skips.
func (r *observed) leap() (variable string, times float64) {
	size := map[string]float64{}
	for i := range r.Values {
		if t := &r.Values[i]; t.Op == op.Param && t.Variable != nil && t.Shadow != nil {
			size[t.Variable.Name()] = norm(&t.Shadow.Y)
		}
	}
	for i := range r.Assigned {
		a := &r.Assigned[i]
		if a.Change == nil || len(a.Variable.Shape()) < 2 {
			continue
		}
		if x := norm(&a.Change.Y) / size[a.Variable.Name()]; x > times && !math.IsInf(x, 1) {
			variable, times = a.Variable.Name(), x
		}
	}
	return variable, times
}

// norm is about the norm of the finite elements, by their exponents.
func norm(m *op.Magnitudes) float64 {
	sum := 0.0
	for i, n := range m.Bins {
		sum += math.Ldexp(float64(n), 2*(i-127)+1)
	}
	return math.Sqrt(sum)
}
