package layers

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// GroupQueryAttention is MultiHeadAttention in which groups of neighbouring
// query heads share one head of keys and values (Ainslie et al. 2023). Inputs,
// masks and precision are those of MultiHeadAttention.
//
// Shapes: ([batch T d], [batch S e], [batch S f]) → [batch T d]; with
// ReturnAttentionScores a tuple with the scores [batch NumQueryHeads T S].
// Weights, each with a bias of the last axes if UseBias: query/kernel
// [d NumQueryHeads HeadDim], key/kernel [f NumKeyValueHeads HeadDim],
// gate/kernel [d NumQueryHeads HeadDim] with UseGate, value/kernel
// [e NumKeyValueHeads HeadDim], attention_output/kernel
// [NumQueryHeads HeadDim d].
type GroupQueryAttention struct {
	HeadDim               int     // size of a head; required
	NumQueryHeads         int     // required
	NumKeyValueHeads      int     // divides NumQueryHeads; required
	Dropout               float64 // share of the scores that is dropped while training
	UseBias               *bool   `default:"true"`
	SlidingWindow         *int    // how near a step must be to be seen: less than so many steps away; default: any
	UseGate               bool    // whether what the heads found is multiplied by sigmoid(query·gate)
	UseCausalMask         bool    // whether step t sees steps up to t only, in all calls; see Args
	UseAttentionMask      bool    // whether the last input is a mask; an argument of the call in Keras
	ReturnAttentionScores bool    // whether the result is a tuple with the scores, in all calls; see Args
	KernelInitializer     string  `default:"glorot_uniform"`
	BiasInitializer       string  `default:"zeros"`
	KernelRegularizer     string
	BiasRegularizer       string
	ActivityRegularizer   string // of each projection
	KernelConstraint      string
	BiasConstraint        string
	Seed                  *int64 // default: derived from the model's seed and the layer's path
	Name, DType           string

	Base
	SetsMask
	attends
	query, key, value, gate, out *EinsumDense
	dropout                      *Dropout
}

// Config returns the fields Name and DType.
func (g *GroupQueryAttention) Config() Config { return Config{g.Name, g.DType} }

// Build makes the projections.
func (g *GroupQueryAttention) Build(in ...Shape) (err error) {
	c := Defaults(*g)
	if err := support.Positive("HeadDim", c.HeadDim); err != nil {
		return err
	}
	if err := support.Positive("NumQueryHeads", c.NumQueryHeads); err != nil {
		return err
	}
	if c.NumKeyValueHeads <= 0 || c.NumQueryHeads%c.NumKeyValueHeads != 0 {
		return fmt.Errorf("NumKeyValueHeads is %d, want a positive number that divides the %d query heads", c.NumKeyValueHeads, c.NumQueryHeads)
	}
	if c.SlidingWindow != nil {
		if err := support.Positive("SlidingWindow", *c.SlidingWindow); err != nil {
			return err
		}
	}
	if err := g.CheckInput(in...); err != nil {
		return err
	}
	inputs, _ := attentionInputs(in, c.UseAttentionMask)
	q, v, k := inputs[0], inputs[1], inputs[2]
	features, err := support.KnownAxis(q, -1)
	if err != nil {
		return err
	}
	project := projection{c.UseBias, c.KernelInitializer, c.BiasInitializer, c.KernelRegularizer, c.BiasRegularizer,
		c.ActivityRegularizer, c.KernelConstraint, c.BiasConstraint, ""}
	if g.query, err = project.add(&g.Base, "query", q, 1, c.NumQueryHeads, c.HeadDim); err != nil {
		return err
	}
	if g.key, err = project.add(&g.Base, "key", k, 1, c.NumKeyValueHeads, c.HeadDim); err != nil {
		return err
	}
	if c.UseGate {
		if g.gate, err = project.gate().add(&g.Base, "gate", q, 1, c.NumQueryHeads, c.HeadDim); err != nil {
			return err
		}
	}
	if g.value, err = project.add(&g.Base, "value", v, 1, c.NumKeyValueHeads, c.HeadDim); err != nil {
		return err
	}
	heads := append(q[:2].Clone(), c.NumQueryHeads, c.HeadDim)
	if g.out, err = project.add(&g.Base, "attention_output", heads, 2, features); err != nil {
		return err
	}
	g.dropout, err = g.addDropout(c.Dropout, c.Seed)
	return err
}

// CheckInput requires inputs of rank 3.
func (g *GroupQueryAttention) CheckInput(in ...Shape) error {
	inputs, err := attentionInputs(in, g.UseAttentionMask)
	if err == nil && len(inputs[0]) != 3 {
		return fmt.Errorf("got inputs %v, want 3 axes each: batch, steps, features", in)
	}
	return err
}

// Call computes the layer on the tuple x.
func (g *GroupQueryAttention) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	q, k, v, keep := splitInputs(x, g.UseAttentionMask)
	if keep != nil && keep.Rank() != 3 {
		tensor.Fail("Call", "got mask %v for query %v, want [batch T S]", keep.Type(), q.Type())
	}
	queries, keys, values := Apply(g.query, p, q), Apply(g.key, p, k), Apply(g.value, p, v)
	window := 0
	if g.SlidingWindow != nil {
		window = *g.SlidingWindow
	}
	causal, withScores := g.UseCausalMask || p.UseCausalMask, g.ReturnAttentionScores || p.ReturnAttentionScores
	var y, weights *tensor.Tensor
	if withScores {
		keep = both(keep, carriedMasks(q, k, v))
		keep = both(overHeads(keep), band(q.Dim(1), k.Dim(1), causal, window))
		y, weights = g.withScores(p, queries, keys, values, keep)
	} else {
		y = heads{q: queries, k: keys, v: values, causal: causal, window: window,
			keep: both(overHeads(keep), overHeads(keyMask(v, k))), queries: q.Mask(), dropout: g.dropout}.attend(p)
	}
	if g.gate != nil {
		y = y.Mul(Apply(g.gate, p, q))
	}
	y = Apply(g.out, p, y).WithMask(q.Mask())
	if withScores {
		return tensor.Tuple(y, weights)
	}
	return y
}

// withScores attends and returns the weights [batch NumQueryHeads T S], too.
func (g *GroupQueryAttention) withScores(p Pass, queries, keys, values, keep *tensor.Tensor) (y, weights *tensor.Tensor) {
	batch, T, S := queries.Dim(0), queries.Dim(1), keys.Dim(1)
	// One product for all query heads of a group: head u is (u/share, u%share).
	share := g.NumQueryHeads / g.NumKeyValueHeads
	grouped := queries.Reshape(batch, T, g.NumKeyValueHeads, share, g.HeadDim)
	scores := tensor.Einsum("btghd,bsgd->bghts", grouped, keys).Widen()
	scores = scores.MulScalar(1/math.Sqrt(float64(g.HeadDim))).Reshape(batch, g.NumQueryHeads, T, S)
	weights = maskedSoftmax(scores, keep, -1).Cast(values.DType())
	used := weights
	if g.dropout != nil {
		used = Apply(g.dropout, p, used)
	}
	used = used.Reshape(batch, g.NumKeyValueHeads, share, T, S)
	return tensor.Einsum("bghts,bsgd->btghd", used, values).Reshape(batch, T, g.NumQueryHeads, g.HeadDim), weights
}
