package doctor

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// ScaleAdvice says which loss scales suit the float16 gradients of a step.
type ScaleAdvice struct {
	// Low and High are exponents: 2^Low is the smallest scale at which the elements of
	// each gradient that become 0 are at most 1 % of its norm, 2^High the largest at
	// which all fit.
	// Without a float16 gradient Known is false.
	Known     bool
	Low, High int

	Present float64 // the loss scale of the step; 1 if there is none
	Flushed float64 // share of the elements that become 0 at the present scale
	// LowAt and HighAt are the values that set the two limits.
	LowAt, HighAt string
}

// Fits reports whether a scale suits all gradients.
func (a ScaleAdvice) Fits() bool { return a.Known && a.Low <= a.High }

func (a ScaleAdvice) String() string {
	switch {
	case !a.Known:
		return "no float16 gradients"
	case !a.Fits():
		return fmt.Sprintf("no loss scale fits: %s needs at least 2^%d, %s overflows beyond 2^%d; use bfloat16 or float32 at one of the two", a.LowAt, a.Low, a.HighAt, a.High)
	}
	return fmt.Sprintf("loss scales from 2^%d to 2^%d fit; now %.2g %% of the elements of gradients become 0", a.Low, a.High, 100*a.Flushed)
}

// largestScale bounds the scales that are tried: that of LossScaleOptimizer.
const largestScale = 24

// scaleAdvice looks at the shadows of all float16 values that carry the loss scale.
func (r *observed) scaleAdvice(scale float64) ScaleAdvice {
	a := ScaleAdvice{Present: scale, Low: math.MinInt, High: math.MaxInt}
	var flushed, count int64
	at := math.Log2(scale)
	for _, t := range r.Values {
		s := t.Shadow
		if !r.scaled(&t) || t.Type.DType != dtype.Float16 || s == nil || t.Op == op.Const || s.Y.Largest == 0 {
			continue
		}
		a.Known = true
		if high := int(math.Floor(math.Log2(dtype.Float16.Max()/s.Y.Largest) + at)); high < a.High {
			a.High, a.HighAt = high, string(t.ID)
		}
		if low := int(math.Ceil(at)) - 24 - smallest(&s.Y); low > a.Low {
			a.Low, a.LowAt = low, string(t.ID)
		}
		flushed, count = flushed+s.Flushed, count+s.Count-s.Y.Zeros
	}
	if count > 0 {
		a.Flushed = float64(flushed) / float64(count)
	}
	return a
}

// smallest is the exponent below which the elements are 1 % of the norm.
func smallest(m *op.Magnitudes) int {
	var all, below float64
	for i, n := range m.Bins {
		all += math.Ldexp(float64(n), 2*(i-127))
	}
	for i, n := range m.Bins {
		if below += math.Ldexp(float64(n), 2*(i-127)); below > 1e-4*all {
			return i - 127
		}
	}
	return 0
}
