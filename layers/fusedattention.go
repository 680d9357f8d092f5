package layers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// heads are the operands of multi-head dot-product attention by tensor.Attention, which
// does not keep the scores.
//
// Shapes: q [batch T H d], k [batch S G d], v [batch S G e] → [batch T H e].
type heads struct {
	q, k, v *tensor.Tensor
	scale   float64
	causal  bool
	window  int            // 0: any
	keep    *tensor.Tensor // bool, broadcasts to [batch H T S]; nil: all
	queries *tensor.Tensor // bool [batch T]: queries that see anything; nil: all
	dropout *Dropout       // nil: none
}

func (h heads) attend(p Pass) *tensor.Tensor {
	o := tensor.AttentionOptions{Scale: h.scale, Causal: h.causal, Window: h.window, Mask: h.keep}
	if d := h.dropout; d != nil && d.drops(p, h.q) {
		o.Dropout, o.State = d.Rate, NextState(d.state, h.q)
	}
	y := tensor.Attention(h.q, h.k, h.v, o)
	if h.queries != nil {
		y = tensor.Where(spreadMask(h.queries, y), y, tensor.Scalar(y.DType(), 0))
	}
	return y
}

// keyMask returns the combined mask of keys and values, [batch S], or nil.
func keyMask(of ...*tensor.Tensor) *tensor.Tensor {
	var keep *tensor.Tensor
	for _, t := range of {
		keep = both(keep, t.Mask())
	}
	return keep
}

// overHeads adds the axes of heads and queries to a mask [batch S], and the axis of
// heads to a mask [batch T S].
func overHeads(mask *tensor.Tensor) *tensor.Tensor {
	for mask != nil && mask.Rank() < 4 {
		mask = mask.ExpandDims(1)
	}
	return mask
}
