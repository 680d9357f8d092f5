package tensor

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// AttentionOptions are the options of [Attention].
type AttentionOptions struct {
	Scale  float64 // factor of the scores; default 1/√D
	Causal bool    // whether a query sees no key after its own position
	Window int     // how near a key must be to be seen: less than so many positions away; default: any
	Mask   *Tensor // bool, broadcasts to [B H T S]: which keys a query may see; default: all

	// Dropout is the rate of weights that are dropped; the others are divided by
	// 1-Dropout. It requires State, a random state int64[2], from whose Stream it
	// draws.
	Dropout float64
	State   *Tensor
	Stream  uint64
}

// Attention returns softmax(Scale·Q·Kᵀ)·V for each head, with the softmax over
// the keys that a query sees (Vaswani et al. 2017; Keras:
// ops.dot_product_attention). A query that sees none gets 0. Head h of the
// queries attends to head h/(H/G) of the keys and values. Scores, softmax and
// sums are float32, or float64 for float64, and exact for scores of any size that
// do not overflow that.
//
// Neither it nor its gradient stores the scores: memory grows with T+S (Dao et
// al. 2022), but for masks of T and S, on devices with a kernel for it.
//
// Shapes: q [B T H D], k [B S G D], v [B S G E] → [B T H E]. Types: equal
// floats.
func Attention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	args := []*Tensor{q, k, v}
	if o.Mask != nil {
		args = append(args, o.Mask)
	}
	a := op.Attr{Scale: o.Scale, Causal: o.Causal, SlidingWindow: o.Window, DropoutRate: o.Dropout, Stream: o.Stream}
	if a.Scale == 0 && q.err == nil && len(q.typ.Shape) > 0 {
		a.Scale = 1 / math.Sqrt(float64(max(1, q.Dim(-1))))
	}
	if o.Dropout != 0 {
		if o.State == nil {
			Fail("Attention", "got dropout %v without a random state", o.Dropout)
		}
		args = append(args, o.State)
	}
	return Record(op.Attention, a, args...)
}

// attentionGradient reads the softmax statistics of AttentionForward, which also
// computes Attention.
func attentionGradient(t, g *Tensor) []*Tensor {
	q, k, v := t.args[0], t.args[1], t.args[2]
	n := t.typ.Shape.Size()
	b, h, steps := q.typ.Shape[0], q.typ.Shape[2], q.typ.Shape[1]
	forward := t.record(op.AttentionForward, t.attr, t.args...)
	statistics := forward.part(op.Section{Start: n, Shape: Shape{2, b, h, steps}})
	args := append([]*Tensor{q, k, v, t, statistics, g}, t.args[3:]...)
	all := t.record(op.AttentionGrad, t.attr, args...)
	out := make([]*Tensor, 3)
	at := 0
	for i, x := range []*Tensor{q, k, v} {
		out[i] = all.part(op.Section{Start: at, Shape: x.typ.Shape})
		at += x.typ.Shape.Size()
	}
	return out
}

// recorder is the op.Recorder of tensors.
type recorder struct{}

func (recorder) TypeOf(x op.Ref) op.Type { return x.(*Tensor).typ }

func (recorder) Record(c op.Code, a op.Attr, args ...op.Ref) op.Ref {
	ts := make([]*Tensor, len(args))
	for i, x := range args {
		ts[i] = x.(*Tensor)
	}
	return Record(c, a, ts...)
}

// throughExpansion is the gradient of an operation by way of its expansion, for
// gradients that are rarely needed.
func throughExpansion(t, g *Tensor) []*Tensor {
	leaves, refs := make([]*Tensor, len(t.args)), make([]op.Ref, len(t.args))
	for i, a := range t.args {
		// Do not differentiate past the arguments.
		leaves[i] = Record(op.Identity, op.Attr{}, a)
		refs[i] = leaves[i]
	}
	y := t.op.Info().Expand(recorder{}, t.attr, refs).(*Tensor)
	return GradientsAt(SumAs(y.Mul(g), g.typ.DType.Accumulator()), leaves...)
}
