package tensor

import "slices"

// GradientTag describes the loss scaling of the gradients that a tensor is
// computed from. Gradients tags its results. Everything computed from them in the
// same recording has the tag, and so has an argument of a Function that is the
// result of another one. A variable that was assigned in an earlier step, a
// constant and the forward pass have none. Optimizers read it when a step is
// recorded.
type GradientTag struct {
	Unscaled   bool  // some are gradients of a loss without a loss scale (see TagScaled)
	Float16    bool  // some of these passed through float16, where small gradients become 0
	UnscaledBy []any // the optimizers that unscaled others; see Untag
	Scaled     bool  // some had the tag of TagScaled when a Function returned them
}

// GradientTagOf returns the tag of t, zero if t is not computed from gradients.
func GradientTagOf(t *Tensor) GradientTag {
	if t.gradient == nil {
		return GradientTag{}
	}
	return *t.gradient
}

// ClearGradientTag removes the tag of t, in place: for gradients of a loss that is
// unscaled on purpose.
func ClearGradientTag(t *Tensor) { t.gradient = nil }

// with returns the tag of a tensor computed from tensors with the tags m and o.
// Tags are immutable, so they may be shared.
func (m *GradientTag) with(o *GradientTag) *GradientTag {
	switch {
	case o == nil || o == m:
		return m
	case m == nil:
		return o
	}
	both := GradientTag{m.Unscaled || o.Unscaled, m.Float16 || o.Float16, m.UnscaledBy, m.Scaled || o.Scaled}
	for _, by := range o.UnscaledBy {
		if !slices.Contains(both.UnscaledBy, by) {
			both.UnscaledBy = append(slices.Clip(both.UnscaledBy), by)
		}
	}
	return &both
}

// equal reports whether two tags are the same. Tags of arguments are part of a
// plan's key, so checks made while recording hold for all calls of the plan.
func (m *GradientTag) equal(o *GradientTag) bool {
	if m == o {
		return true
	}
	return m != nil && o != nil && m.Unscaled == o.Unscaled && m.Float16 == o.Float16 && m.Scaled == o.Scaled && slices.Equal(m.UnscaledBy, o.UnscaledBy)
}

// returned is the tag of t as the result of a Function.
func (t *Tensor) returned() *GradientTag {
	if t.scaled == nil {
		return t.gradient
	}
	return t.gradient.with(&GradientTag{Scaled: true})
}
