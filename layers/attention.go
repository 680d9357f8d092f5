package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Attention layers take a tuple of query and value, or query, value and key
// (tensor.Tuple); without a key the value is the key. Scores and their softmax
// are float32 (float64 for float64), products of 16-bit operands accumulate in
// float32, and masks are bool until they choose inside the softmax, where what
// they leave out is exactly 0.
//
// A mask of the value hides its steps from every query. The result has the
// mask of the query.

// Attention is dot-product attention without weights of its own (Luong et al.
// 2015): softmax(score(query, key))·value.
//
// Shapes: ([batch T d], [batch S e], [batch S d]) → [batch T e]; with
// ReturnAttentionScores a tuple with the scores [batch T S]. Weights: scale []
// with UseScale, concat_score_weight [] with ScoreMode concat.
type Attention struct {
	UseScale              bool    // whether scores have a learned factor; dot: scale·q·k, concat: tanh(scale·(q+k))
	ScoreMode             string  `default:"dot"` // q·k; or concat: weight·Σtanh(q+k)
	Dropout               float64 // share of the scores that is dropped while training
	Seed                  *int64  // default: derived from the model's seed and the layer's path
	UseCausalMask         bool    // whether step t sees steps up to t only, in all calls; see Args
	ReturnAttentionScores bool    // whether the result is a tuple with the scores, in all calls; see Args
	Name, DType           string

	Base
	SetsMask
	attends
	scale, weight *Weight
	dropout       *Dropout
}

// Config returns the fields Name and DType.
func (a *Attention) Config() Config { return Config{a.Name, a.DType} }

// Build makes the weights.
func (a *Attention) Build(in ...Shape) (err error) {
	c := Defaults(*a)
	if c.ScoreMode != "dot" && c.ScoreMode != "concat" {
		return fmt.Errorf("ScoreMode is %q, want dot or concat", c.ScoreMode)
	}
	if err := a.CheckInput(in...); err != nil {
		return err
	}
	if c.UseScale {
		if a.scale, err = a.AddWeight("scale", Shape{}, "ones"); err != nil {
			return err
		}
	}
	if c.ScoreMode == "concat" {
		if a.weight, err = a.AddWeight("concat_score_weight", Shape{}, "ones"); err != nil {
			return err
		}
	}
	a.dropout, err = a.addDropout(c.Dropout, c.Seed)
	return err
}

// CheckInput requires two or three sequences whose shapes agree.
func (a *Attention) CheckInput(in ...Shape) error { return sequences(in) }

// Call computes the layer on the tuple x.
func (a *Attention) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	q, k, v := queryKeyValue(x)
	causal, withScores := a.UseCausalMask || p.UseCausalMask, a.ReturnAttentionScores || p.ReturnAttentionScores
	if a.weight == nil && !withScores {
		scaled := q
		if a.scale != nil {
			wide := q.Cast(q.DType().Accumulator())
			scaled = wide.Mul(a.scale.Value().CastLike(wide)).CastLike(q)
		}
		y := heads{q: scaled.ExpandDims(2), k: k.ExpandDims(2), v: v.ExpandDims(2), scale: 1, causal: causal,
			keep: overHeads(v.Mask()), queries: q.Mask(), dropout: a.dropout}.attend(p)
		return y.Squeeze(2).WithMask(q.Mask())
	}
	var scores *tensor.Tensor
	if a.weight == nil {
		scores = q.MatMulT(k, false, true).Widen()
		if a.scale != nil {
			scores = scores.Mul(a.scale.Value().CastLike(scores))
		}
	} else {
		sum := pairs(q, k)
		if a.scale != nil {
			sum = sum.Mul(a.scale.Value().CastLike(sum))
		}
		scores = sum.Tanh().Sum(-1)
		scores = scores.Mul(a.weight.Value().CastLike(scores))
	}
	return attend(p, scores, q, v, a.dropout, causal, withScores)
}

// AdditiveAttention scores by Σ scale·tanh(query+key) (Bahdanau et al. 2015).
//
// Shapes: ([batch T d], [batch S e], [batch S d]) → [batch T e]; with
// ReturnAttentionScores a tuple with the scores [batch T S]. Weight: scale [d]
// with UseScale.
type AdditiveAttention struct {
	UseScale              *bool   `default:"true"` // whether features have learned factors
	Dropout               float64 // share of the scores that is dropped while training
	Seed                  *int64  // default: derived from the model's seed and the layer's path
	UseCausalMask         bool    // whether step t sees steps up to t only, in all calls; see Args
	ReturnAttentionScores bool    // whether the result is a tuple with the scores, in all calls; see Args
	Name, DType           string

	Base
	SetsMask
	attends
	scale   *Weight
	dropout *Dropout
}

// Config returns the fields Name and DType.
func (a *AdditiveAttention) Config() Config { return Config{a.Name, a.DType} }

// Build makes the weight.
func (a *AdditiveAttention) Build(in ...Shape) (err error) {
	c := Defaults(*a)
	if err := a.CheckInput(in...); err != nil {
		return err
	}
	if *c.UseScale {
		n, err := support.KnownAxis(in[0], -1)
		if err != nil {
			return err
		}
		if a.scale, err = a.AddWeight("scale", Shape{n}, "glorot_uniform"); err != nil {
			return err
		}
	}
	a.dropout, err = a.addDropout(c.Dropout, c.Seed)
	return err
}

// CheckInput requires two or three sequences whose shapes agree.
func (a *AdditiveAttention) CheckInput(in ...Shape) error {
	if err := sequences(in); err != nil {
		return err
	}
	if s := in[0]; a.scale != nil && s[2] != a.scale.Shape()[0] {
		return fmt.Errorf("the last axis of input %v is %d, want %d", s, s[2], a.scale.Shape()[0])
	}
	return nil
}

// Call computes the layer on the tuple x.
func (a *AdditiveAttention) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	q, k, v := queryKeyValue(x)
	sum := pairs(q, k).Tanh()
	if a.scale != nil {
		sum = sum.Mul(a.scale.Value().CastLike(sum))
	}
	return attend(p, sum.Sum(-1), q, v, a.dropout, a.UseCausalMask || p.UseCausalMask, a.ReturnAttentionScores || p.ReturnAttentionScores)
}

// sequences checks the inputs of Attention and AdditiveAttention.
func sequences(in []Shape) error {
	if len(in) != 2 && len(in) != 3 {
		return fmt.Errorf("got %d inputs, want a tuple of query and value, or of query, value and key", len(in))
	}
	q, v, k := in[0], in[1], in[len(in)-1]
	for _, s := range in {
		if len(s) != 3 {
			return fmt.Errorf("got inputs %v, want 3 axes each: batch, steps, features", in)
		}
	}
	if q[0] != v[0] || q[0] != k[0] || v[1] != k[1] || q[2] != k[2] {
		return fmt.Errorf("got query %v, value %v and key %v, want one batch size, as many steps of the key as of the value, and as many features as of the query", q, v, k)
	}
	return nil
}

// queryKeyValue takes the tuple of an attention layer apart.
func queryKeyValue(x *tensor.Tensor) (q, k, v *tensor.Tensor) {
	parts := x.Unpack()
	wantSequences(parts)
	if len(parts) > 2 {
		return parts[0], parts[2], parts[1]
	}
	return parts[0], parts[1], parts[1]
}

// wantSequences requires floats, and masks with an element per step.
func wantSequences(parts []*tensor.Tensor) {
	for _, t := range parts {
		support.CheckFloats(t)
		if m := t.Mask(); m != nil && t.Rank() == 3 && m.Rank() != 2 {
			tensor.Fail("Call", "got mask %v for %v, want [batch steps]", m.Type(), t.Type())
		}
	}
}

// pairs is q+k for each step of q and each of k, in float32 or wider:
// [batch T S features].
func pairs(q, k *tensor.Tensor) *tensor.Tensor {
	wide := q.DType().Accumulator()
	return q.Cast(wide).ExpandDims(2).Add(k.Cast(wide).ExpandDims(1))
}

// addDropout makes the dropout of scores, nil for a rate of 0.
func (b *Base) addDropout(rate float64, seed *int64) (*Dropout, error) {
	if !(rate >= 0 && rate <= 1) {
		return nil, fmt.Errorf("Dropout is %v, want a number from 0 to 1", rate)
	}
	if rate == 0 {
		return nil, nil
	}
	d := &Dropout{Rate: rate, Seed: seed}
	// Its state is needed where it is not called: see heads.
	return d, b.AddBuilt("dropout", d, Shape{tensor.Unknown})
}

// attend turns float32 scores [batch T S] into the result of an attention
// layer with query q and value v.
func attend(p Pass, scores, q, v *tensor.Tensor, dropout *Dropout, causal, returnScores bool) *tensor.Tensor {
	var keep *tensor.Tensor
	if m := v.Mask(); m != nil {
		keep = m.ExpandDims(1)
	}
	if causal {
		keep = both(keep, band(scores.Dim(1), scores.Dim(2), true, 0))
	}
	weights := maskedSoftmax(scores, keep, -1).Cast(v.DType())
	used := weights
	if dropout != nil {
		used = Apply(dropout, p, used)
	}
	y := used.MatMul(v)
	if m := q.Mask(); m != nil {
		y = tensor.Where(m.ExpandDims(-1), y, tensor.Scalar(y.DType(), 0)).WithMask(m)
	}
	if returnScores {
		return tensor.Tuple(y, weights)
	}
	return y
}

// both is a && b, where nil is true everywhere.
func both(a, b *tensor.Tensor) *tensor.Tensor {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return a.And(b)
}

// band tells which of S steps each of T steps sees, [T S]: with causal those up
// to itself, with window > 0 those less than window away.
func band(T, S int, causal bool, window int) *tensor.Tensor {
	rows := tensor.Iota(dtype.Int32, T).ExpandDims(-1)
	cols := tensor.Iota(dtype.Int32, S)
	var keep *tensor.Tensor
	if causal {
		keep = rows.GreaterEqual(cols)
	}
	if window > 0 {
		near := rows.Sub(cols).Abs().Less(tensor.Scalar(dtype.Int32, float64(window)))
		keep = both(keep, near)
	}
	return keep
}
