package tensor

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// NormalizeOptions are those of [Tensor.Normalize].
type NormalizeOptions struct {
	Epsilon    float64     // added to the variance
	Uncentered bool        // whether the mean counts as 0, so that the variance is the mean of the squares
	DType      dtype.DType // of the result; default: that of t
}

// Normalize returns (t-mean)/√(variance+Epsilon)·gain + shift with the mean and
// the biased variance of each row, in float32 (float64 for float64), rounded
// once.
//
// Shapes: t [rows features], gain and shift [features], in float32 (float64
// for float64) → [rows features].
func (t *Tensor) Normalize(gain, shift *Tensor, o NormalizeOptions) *Tensor {
	return t.record(op.Normalize, op.Attr{Value: o.Epsilon, Uncentered: o.Uncentered, DType: o.DType}, t, gain, shift)
}

func normalizeGradient(t, g *Tensor) []*Tensor {
	x, gain := t.args[0], t.args[1]
	a := t.attr
	a.DType = dtype.Invalid
	all := t.record(op.NormalizeGrad, a, x, gain, g)
	var parts []*Tensor
	for _, s := range op.NormalizeGrad.Info().Parts(a, []op.Type{x.typ, gain.typ, g.typ}) {
		parts = append(parts, all.part(s))
	}
	parts[0] = parts[0].CastLike(x)
	return parts
}
