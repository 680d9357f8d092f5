package op

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// AttentionSizes is the sizes of an attention, and which optional operands it has.
// After an operation's named operands may come, in this order,
//
//   - a bool mask of four axes that broadcasts to [B H T S]: a query sees only keys
//     where it is true;
//   - a random state int64[2], for Attr.DropoutRate above 0: draw i of RandomUniform
//     decides whether weight i of [B H T S] is kept, and divided by 1-DropoutRate
//     ([DropDraw]); a rate of 1 keeps nothing.
//
// Scores are Attr.Scale·Q·Kᵀ. Positions of queries and keys are their indices along the
// axes T and S. With Attr.Causal a query sees keys up to its own position, with
// Attr.SlidingWindow > 0 keys less than that many positions away. Head h of the queries
// attends to head h/(H/G) of the keys and values. A query that sees no key has result
// 0.
//
// Scores, their softmax and sums are in the accumulator's type; a device may round
// weights to the operands' type before it multiplies. Weights are exponentials of
// differences of products, multiplied by the factor last, and the gradient uses the
// same differences. So weights are correct whenever the differences are finite. If a
// product is infinite, they are those of a softmax of infinities.
type AttentionSizes struct {
	Batch, Queries, Keys    int // B, T, S
	Heads, KeyHeads         int // H, G
	Features, ValueFeatures int // D, E
	Mask, State             int // indices of arguments, or -1
}

// SizesOfAttention checks the arguments of Attention or AttentionForward (3 named
// operands), or of AttentionGrad (6).
func SizesOfAttention(operands int, a Attr, t []Type) (AttentionSizes, error) {
	s := AttentionSizes{Mask: -1, State: -1}
	if len(t) < operands {
		return s, fmt.Errorf("takes at least %d arguments, got %d", operands, len(t))
	}
	q, k, v := t[0], t[1], t[2]
	for _, u := range t[:3] {
		if !u.DType.IsFloat() || u.DType != q.DType || len(u.Shape) != 4 {
			return s, fmt.Errorf("query %v, key %v and value %v must be of one float type and have four axes: batch, steps, heads, features", q, k, v)
		}
	}
	s.Batch, s.Queries, s.Heads, s.Features = q.Shape[0], q.Shape[1], q.Shape[2], q.Shape[3]
	s.Keys, s.KeyHeads, s.ValueFeatures = k.Shape[1], k.Shape[2], v.Shape[3]
	if k.Shape[0] != s.Batch || !v.Shape[:3].Equal(k.Shape[:3]) || k.Shape[3] != s.Features {
		return s, fmt.Errorf("query %v, key %v and value %v do not fit: want one batch size, keys of the features of queries, values of the steps and heads of keys", q, k, v)
	}
	if s.KeyHeads < 1 || s.Heads < 1 || s.Heads%s.KeyHeads != 0 {
		return s, fmt.Errorf("query %v has %d heads, want a positive multiple of the %d of key %v", q, s.Heads, s.KeyHeads, k)
	}
	if !(a.DropoutRate >= 0 && a.DropoutRate <= 1) {
		return s, fmt.Errorf("the rate is %v, want a number from 0 to 1", a.DropoutRate)
	}
	if a.SlidingWindow < 0 {
		return s, fmt.Errorf("the window is %d, want 0 or more", a.SlidingWindow)
	}
	rest := t[operands:]
	if len(rest) > 0 && rest[0].DType == dtype.Bool {
		m := rest[0]
		if all := s.scores(); len(m.Shape) != 4 || !slices.EqualFunc(m.Shape, all, func(d, n int) bool { return d == 1 || d == n || d == Unknown || n == Unknown }) {
			return s, fmt.Errorf("mask %v does not broadcast to scores %v", m, all)
		}
		s.Mask = operands
		rest = rest[1:]
	}
	if a.DropoutRate > 0 {
		if len(rest) == 0 || rest[0].DType != dtype.Int64 || !rest[0].Shape.Equal(Shape{2}) {
			return s, fmt.Errorf("rate %v wants a random state int64[2] as the last argument", a.DropoutRate)
		}
		s.State = len(t) - len(rest)
		rest = rest[1:]
	}
	if len(rest) > 0 {
		return s, fmt.Errorf("argument %d, %v, is neither mask nor random state", len(t)-len(rest), rest[0])
	}
	return s, nil
}

// scores returns the shape of the scores.
func (s AttentionSizes) scores() Shape { return Shape{s.Batch, s.Heads, s.Queries, s.Keys} }

// Result returns the shape of Attention.
func (s AttentionSizes) Result() Shape {
	return Shape{s.Batch, s.Queries, s.Heads, s.ValueFeatures}
}

// Statistics returns the shape of AttentionForward's second result: of each query the
// largest product, then the reciprocal of the sum.
func (s AttentionSizes) Statistics() Shape { return Shape{2, s.Batch, s.Heads, s.Queries} }

// PerQuery returns the shape of one number for each query.
func (s AttentionSizes) PerQuery() Shape { return s.Statistics()[1:] }

// Seen returns the range [lo, hi) of keys that the attributes allow query t to see.
func (s AttentionSizes) Seen(a Attr, t int) (lo, hi int) {
	hi = s.Keys
	if a.SlidingWindow > 0 {
		lo, hi = min(max(0, t-a.SlidingWindow+1), s.Keys), min(hi, t+a.SlidingWindow)
	}
	if a.Causal {
		hi = min(hi, t+1)
	}
	return lo, max(lo, hi)
}

// ScoreFactors returns the sign and the magnitude of Scale. Products times the sign
// have the order of the scores.
func (a Attr) ScoreFactors() (sign, magnitude float64) {
	switch {
	case a.Scale > 0:
		return 1, a.Scale
	case a.Scale < 0:
		return -1, -a.Scale
	}
	return a.Scale, 1
}

// KeepScale returns the factor of kept weights.
func (a Attr) KeepScale() float64 {
	if a.DropoutRate < 1 {
		return 1 / (1 - a.DropoutRate)
	}
	return 1 // nothing is kept
}

func inferAttention(a Attr, t []Type) (Type, error) {
	s, err := SizesOfAttention(3, a, t)
	if err != nil {
		return Type{}, err
	}
	return Type{t[0].DType, s.Result()}, nil
}

func inferAttentionForward(a Attr, t []Type) (Type, error) {
	s, err := SizesOfAttention(3, a, t)
	if err != nil {
		return Type{}, err
	}
	if !s.scores().Known() || !s.Result().Known() {
		return Type{}, fmt.Errorf("query %v, key %v and value %v must be of known shapes", t[0], t[1], t[2])
	}
	return Type{t[0].DType.Accumulator(), Shape{s.Result().Size() + s.Statistics().Size()}}, nil
}

// attentionForwardResults are the result and the statistics.
func attentionForwardResults(a Attr, t []Type) []Section {
	s, _ := SizesOfAttention(3, a, t)
	return []Section{{0, s.Result()}, {s.Result().Size(), s.Statistics()}}
}

// attentionGradResults are the gradients of query, key and value.
func attentionGradResults(_ Attr, t []Type) []Section {
	q, k := t[0].Shape.Size(), t[1].Shape.Size()
	return []Section{{0, t[0].Shape}, {q, t[1].Shape}, {q + k, t[2].Shape}}
}

func inferAttentionGrad(a Attr, t []Type) (Type, error) {
	s, err := SizesOfAttention(6, a, t)
	if err != nil {
		return Type{}, err
	}
	d := t[0].DType
	for i, want := range []Type{{d, s.Result()}, {d.Accumulator(), s.Statistics()}, {d, s.Result()}} {
		if !t[3+i].Equal(want) {
			return Type{}, fmt.Errorf("argument %d is %v, want %v", 3+i, t[3+i], want)
		}
	}
	return Type{d, Shape{t[0].Shape.Size() + t[1].Shape.Size() + t[2].Shape.Size()}}, nil
}

// expandAttention is the first result of AttentionForward.
func expandAttention(r Recorder, a Attr, args []Ref) Ref {
	t := types(r, args)
	s, _ := SizesOfAttention(3, a, t)
	return r.Record(Cast, Attr{DType: t[0].DType}, r.Record(Result, Attr{Start: []int{0}, Dims: s.Result()}, r.Record(AttentionForward, a, args...)))
}

func types(r Recorder, args []Ref) []Type {
	t := make([]Type, len(args))
	for i, x := range args {
		t[i] = r.TypeOf(x)
	}
	return t
}

// attention records the common steps of the expansions. Tensors are grouped by head of
// the keys: [B G H/G·T …] for queries, [B G S …] for keys.
type attention struct {
	Recorder
	AttentionSizes
	attr Attr
	wide dtype.DType
	args []Ref
}

func newAttention(r Recorder, operands int, a Attr, args []Ref) attention {
	s, _ := SizesOfAttention(operands, a, types(r, args))
	return attention{r, s, a, r.TypeOf(args[0]).DType.Accumulator(), args}
}

// byHead transposes [B steps heads features] to [B G rows features], in the wide type.
func (a attention) byHead(x Ref) Ref {
	s := a.TypeOf(x).Shape
	x = a.Record(Cast, Attr{DType: a.wide}, x)
	x = a.Record(Transpose, Attr{Perm: []int{0, 2, 1, 3}}, x)
	return a.Record(Reshape, Attr{Dims: Shape{s[0], a.KeyHeads, s[2] / a.KeyHeads * s[1], s[3]}}, x)
}

// bySteps undoes byHead for steps, and flattens.
func (a attention) bySteps(x Ref, steps int) Ref {
	s := a.TypeOf(x).Shape
	heads := a.KeyHeads
	if steps > 0 {
		heads = s[1] * s[2] / steps
	}
	x = a.Record(Reshape, Attr{Dims: Shape{s[0], heads, steps, s[3]}}, x)
	return a.vector(a.Record(Transpose, Attr{Perm: []int{0, 2, 1, 3}}, x))
}

func (a attention) vector(x Ref) Ref {
	return a.Record(Reshape, Attr{Dims: Shape{a.TypeOf(x).Shape.Size()}}, x)
}

func (a attention) product(x, y Ref, transX, transY bool) Ref {
	return a.Record(MatMul, Attr{TransA: transX, TransB: transY}, x, y)
}

func (a attention) number(d dtype.DType, v float64) Ref {
	return a.Record(Const, Attr{DType: d, Dims: Shape{}, Value: v})
}

// grouped reshapes [B H T S] to [B G H/G·T S].
func (a attention) grouped(x Ref) Ref {
	return a.Record(Reshape, Attr{Dims: Shape{a.Batch, a.KeyHeads, a.Heads / a.KeyHeads * a.Queries, a.Keys}}, x)
}

// products returns sign·q·kᵀ, and the bool tensor of what queries see, or nil.
func (a attention) products(q, k Ref) (products, seen Ref) {
	all := a.AttentionSizes.scores()
	products = a.product(q, k, false, true)
	if sign, _ := a.attr.ScoreFactors(); sign != 1 {
		products = a.Record(Mul, Attr{}, products, a.number(a.wide, sign))
	}
	products = a.Record(Reshape, Attr{Dims: all}, products)
	and := func(x Ref) {
		if seen != nil {
			x = a.Record(And, Attr{}, seen, x)
		}
		seen = x
	}
	if a.Mask >= 0 {
		and(a.args[a.Mask])
	}
	if a.attr.Causal || a.attr.SlidingWindow > 0 {
		row := a.Record(Reshape, Attr{Dims: Shape{a.Queries, 1}}, a.Record(Iota, Attr{DType: dtype.Int32, Dims: Shape{a.Queries}}))
		away := a.Record(Sub, Attr{}, row, a.Record(Iota, Attr{DType: dtype.Int32, Dims: Shape{a.Keys}}))
		if a.attr.Causal {
			and(a.Record(GreaterEqual, Attr{}, away, a.number(dtype.Int32, 0)))
		}
		if a.attr.SlidingWindow > 0 {
			and(a.Record(Less, Attr{}, a.Record(Abs, Attr{}, away), a.number(dtype.Int32, float64(a.attr.SlidingWindow))))
		}
	}
	return products, seen
}

// powers returns exp(magnitude·(products - top)) where keys are seen, 0 elsewhere.
func (a attention) powers(products, seen, top Ref) Ref {
	x := a.Record(Sub, Attr{}, products, top)
	if _, factor := a.attr.ScoreFactors(); factor != 1 {
		x = a.Record(Mul, Attr{}, x, a.number(a.wide, factor))
	}
	return a.where(seen, a.Record(Exp, Attr{}, x), 0)
}

// unlessBlind returns x, [B H T 1], with 0 for queries that see no key.
func (a attention) unlessBlind(seen, x Ref) Ref {
	var sees Ref
	switch {
	case a.Keys == 0:
		return a.Record(Const, Attr{DType: a.wide, Dims: append(a.PerQuery(), 1)})
	case seen == nil:
		return x
	}
	sees = a.Record(Cast, Attr{DType: a.wide}, a.Record(BroadcastTo, Attr{Dims: a.AttentionSizes.scores()}, seen))
	sees = a.Record(Greater, Attr{}, a.Record(Max, Attr{Axes: []int{3}, KeepDims: true}, sees), a.number(a.wide, 0))
	return a.where(sees, x, 0)
}

// where returns x where cond is true, else v; x if cond is nil.
func (a attention) where(cond, x Ref, v float64) Ref {
	if cond == nil {
		return x
	}
	return a.Record(Where, Attr{}, cond, x, a.number(a.wide, v))
}

// dropped applies dropout to x, which has the shape of the scores.
func (a attention) dropped(x Ref) Ref {
	if a.State < 0 {
		return x
	}
	bits, bound := DropDraw(a.attr.DropoutRate)
	u := a.Record(RandomUniform, Attr{Dims: a.AttentionSizes.scores(), Stream: a.attr.Stream, Bits: int8(bits)}, a.args[a.State])
	keep := a.Record(GreaterEqual, Attr{}, u, a.number(dtype.Float32, bound))
	return a.where(keep, a.Record(Mul, Attr{}, x, a.number(a.wide, a.attr.KeepScale())), 0)
}

func expandAttentionForward(r Recorder, attr Attr, args []Ref) Ref {
	a := newAttention(r, 3, attr, args)
	products, seen := a.products(a.byHead(args[0]), a.byHead(args[1]))
	last := Attr{Axes: []int{3}, KeepDims: true}
	// The smallest number instead of -∞, from which nothing can be subtracted.
	top := r.Record(Max, last, a.where(seen, products, -a.wide.Max()))
	top = a.unlessBlind(seen, top)
	weights := a.powers(products, seen, top)
	inverse := r.Record(Div, Attr{}, a.number(a.wide, 1), r.Record(Sum, last, weights))
	inverse = a.unlessBlind(seen, inverse)
	weights = a.dropped(r.Record(Mul, Attr{}, weights, inverse))
	y := a.product(a.grouped(weights), a.byHead(args[2]), false, false)
	return r.Record(Concat, Attr{Axes: []int{0}}, a.bySteps(y, a.Queries), a.vector(top), a.vector(inverse))
}

func expandAttentionGrad(r Recorder, attr Attr, args []Ref) Ref {
	a := newAttention(r, 6, attr, args)
	out := r.TypeOf(args[0]).DType
	q, k, v, y, g := a.byHead(args[0]), a.byHead(args[1]), a.byHead(args[2]), a.byHead(args[3]), a.byHead(args[5])
	products, seen := a.products(q, k)
	each := append(a.PerQuery(), 1)
	statistic := func(i int) Ref {
		one := Attr{Start: []int{i, 0, 0, 0}, Limit: append([]int{i + 1}, a.PerQuery()...), Stride: []int{1, 1, 1, 1}}
		return r.Record(Reshape, Attr{Dims: each}, r.Record(Slice, one, args[4]))
	}
	weights := r.Record(Mul, Attr{}, a.powers(products, seen, statistic(0)), statistic(1))
	dv := a.product(a.grouped(a.dropped(weights)), g, true, false)
	// The gradient of a softmax subtracts the weighted mean of its weights' gradients,
	// which is the dot product of the result and its gradient.
	mean := r.Record(Sum, Attr{Axes: []int{3}, KeepDims: true}, r.Record(Mul, Attr{}, y, g))
	mean = r.Record(Reshape, Attr{Dims: each}, mean)
	dw := r.Record(Reshape, Attr{Dims: a.AttentionSizes.scores()}, a.product(g, v, false, true))
	ds := r.Record(Mul, Attr{}, weights, r.Record(Sub, Attr{}, a.dropped(dw), mean))
	ds = a.grouped(a.where(seen, r.Record(Mul, Attr{}, ds, a.number(a.wide, attr.Scale)), 0))
	dq, dk := a.product(ds, k, false, false), a.product(ds, q, true, false)
	all := r.Record(Concat, Attr{Axes: []int{0}}, a.bySteps(dq, a.Queries), a.bySteps(dk, a.Keys), a.bySteps(dv, a.Keys))
	return r.Record(Cast, Attr{DType: out}, all)
}
