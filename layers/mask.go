package layers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// MaskRule says what becomes of the masks of a layer's inputs (see
// tensor.Mask). Call sees them on its inputs whatever the rule.
type MaskRule uint8

// The rules. A layer that declares nothing drops masks.
const (
	// MaskRuleDrop: results have none. It is for layers after which the axes of a
	// mask mean something else.
	MaskRuleDrop MaskRule = iota
	// MaskRulePass: a result has the mask of the input in its place (Keras:
	// supports_masking), unless it lost the axes of the mask.
	MaskRulePass
	// MaskRuleSet: Call attaches the masks of its results itself, by WithMask.
	MaskRuleSet
)

// Masker is a Layer that declares its rule. Embed PassesMask or SetsMask, or
// write the method where the rule depends on fields.
type Masker interface {
	MaskRule() MaskRule
}

// PassesMask is embedded by layers whose result has the mask of their input.
type PassesMask struct{}

// MaskRule returns MaskRulePass.
func (PassesMask) MaskRule() MaskRule { return MaskRulePass }

// SetsMask is embedded by layers whose Call attaches the mask of the result.
type SetsMask struct{}

// MaskRule returns MaskRuleSet.
func (SetsMask) MaskRule() MaskRule { return MaskRuleSet }

// ruleOf is the rule of a layer.
func ruleOf(l Layer) MaskRule {
	l, _ = Unwrap(l)
	if m, ok := l.(Masker); ok {
		return m.MaskRule()
	}
	return MaskRuleDrop
}

// maskResult returns y, l's result for x, with the masks by l's rule.
func maskResult(l Layer, x, y *tensor.Tensor) *tensor.Tensor {
	rule := ruleOf(l)
	if rule == MaskRuleSet {
		return y
	}
	in := x.Unpack()
	out := make([]*tensor.Tensor, y.Len())
	for i, p := range y.Unpack() {
		var m *tensor.Tensor
		if rule == MaskRulePass && i < len(in) {
			if m = in[i].Mask(); m != nil && !isPrefix(m.Shape(), p.Shape()) {
				m = nil
			}
		}
		out[i] = p.WithMask(m)
	}
	if !y.IsTuple() {
		return out[0]
	}
	return tensor.Tuple(out...)
}

// isPrefix reports whether the axes of a are the first axes of b.
func isPrefix(a, b Shape) bool {
	if len(a) > len(b) {
		return false
	}
	for i, d := range a {
		if d != b[i] && d != tensor.Unknown && b[i] != tensor.Unknown {
			return false
		}
	}
	return true
}

// label names whoever recorded y and its masks.
func label(path string, since uint64, y *tensor.Tensor) {
	tensor.Label(path, since, y)
	for _, p := range y.Unpack() {
		if m := p.Mask(); m != nil {
			tensor.Label(path, since, m)
		}
	}
}

// spreadMask gives the mask m of x trailing axes of size 1, so that it
// broadcasts to x.
func spreadMask(m, x *tensor.Tensor) *tensor.Tensor {
	for m.Rank() < x.Rank() {
		m = m.ExpandDims(-1)
	}
	return m
}
