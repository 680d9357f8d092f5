package tensor

import "slices"

// GradientMark tells from which losses the gradients come that a tensor is
// computed from, as far as loss scaling is concerned. What Gradients returns
// has the mark, and so has everything computed from that in the same
// recording, and what a Function is given of another one's results; a
// variable that was assigned in an earlier step, a constant and a forward
// pass have none. Optimizers read it when a step is recorded.
type GradientMark struct {
	Unscaled   bool  // some are gradients of a loss without a loss scale (see MarkScaled)
	Float16    bool  // some of these passed through float16, where small gradients become 0
	UnscaledBy []any // who took the marks of loss scales from others, each once; see Unmark
	Scaled     bool  // some still carried such a mark when a Function returned them
}

// GradientMarkOf returns the mark of t; it is zero where no gradient leads to t.
func GradientMarkOf(t *Tensor) GradientMark {
	if t.gradient == nil {
		return GradientMark{}
	}
	return *t.gradient
}

// ClearGradientMark takes the mark from t, in place: for gradients of a loss
// that is not scaled on purpose.
func ClearGradientMark(t *Tensor) { t.gradient = nil }

// with is the mark of what is computed from a tensor marked m and one marked
// o. Marks are never changed, so they may be shared.
func (m *GradientMark) with(o *GradientMark) *GradientMark {
	switch {
	case o == nil || o == m:
		return m
	case m == nil:
		return o
	}
	both := GradientMark{m.Unscaled || o.Unscaled, m.Float16 || o.Float16, m.UnscaledBy, m.Scaled || o.Scaled}
	for _, by := range o.UnscaledBy {
		if !slices.Contains(both.UnscaledBy, by) {
			both.UnscaledBy = append(slices.Clip(both.UnscaledBy), by)
		}
	}
	return &both
}

// equal reports whether two marks say the same: what is checked while a step is
// recorded holds for all arguments that the recording is used for.
func (m *GradientMark) equal(o *GradientMark) bool {
	if m == o {
		return true
	}
	return m != nil && o != nil && m.Unscaled == o.Unscaled && m.Float16 == o.Float16 && m.Scaled == o.Scaled && slices.Equal(m.UnscaledBy, o.UnscaledBy)
}

// returned is the mark of t as the result of a Function.
func (t *Tensor) returned() *GradientMark {
	if t.scaled == nil {
		return t.gradient
	}
	return t.gradient.with(&GradientMark{Scaled: true})
}
