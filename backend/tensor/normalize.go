package tensor

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// LayerNormOptions are the options of [Tensor.LayerNorm].
type LayerNormOptions struct {
	Epsilon    float64     // added to the variance
	Uncentered bool        // whether the mean counts as 0, so that the variance is the mean of the squares
	DType      dtype.DType // of the result; default: t's
}

// LayerNorm returns (t-mean)/√(variance+Epsilon)·gain + shift with the mean and
// the biased variance of each row, in float32 (float64 for float64), rounded
// once.
//
// Shapes: t [rows features], gain and shift [features], in float32 (float64
// for float64) → [rows features].
func (t *Tensor) LayerNorm(gain, shift *Tensor, o LayerNormOptions) *Tensor {
	return t.record(op.LayerNorm, op.Attr{Epsilon: o.Epsilon, Uncentered: o.Uncentered, DType: o.DType}, t, gain, shift)
}

func normalizeGradient(t, g *Tensor) []*Tensor {
	x, gain := t.args[0], t.args[1]
	a := t.attr
	a.DType = dtype.Invalid
	all := t.record(op.LayerNormGrad, a, x, gain, g)
	var parts []*Tensor
	for _, s := range op.LayerNormGrad.Info().Results(a, []op.Type{x.typ, gain.typ, g.typ}) {
		parts = append(parts, all.part(s))
	}
	parts[0] = parts[0].CastLike(x)
	return parts
}
