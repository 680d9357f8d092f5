package backendtest

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() { register(attentionCases, op.Attention, op.AttentionForward, op.AttentionGrad) }

// attentionClass is an attention; mask is nil for none.
type attentionClass struct {
	name    string
	b, t, s int
	h, g    int
	d, e    int
	mask    op.Shape
	attr    op.Attr
}

var attentionClasses = []attentionClass{
	{name: "one", b: 1, t: 1, s: 1, h: 1, g: 1, d: 1, e: 1},
	{name: "small", b: 2, t: 3, s: 5, h: 2, g: 2, d: 4, e: 4},
	{name: "odd", b: 2, t: 17, s: 19, h: 3, g: 3, d: 7, e: 5},
	{name: "even", b: 1, t: 32, s: 32, h: 2, g: 2, d: 16, e: 16},
	{name: "wideValues", b: 1, t: 9, s: 33, h: 2, g: 1, d: 33, e: 70},
	{name: "query", b: 3, t: 1, s: 70, h: 4, g: 2, d: 24, e: 24},
	{name: "groups", b: 2, t: 11, s: 13, h: 6, g: 2, d: 20, e: 20},
	{name: "causal", b: 1, t: 37, s: 37, h: 2, g: 2, d: 16, e: 16, attr: op.Attr{Causal: true}},
	{name: "causalLong", b: 1, t: 9, s: 40, h: 1, g: 1, d: 16, e: 16, attr: op.Attr{Causal: true}},
	{name: "causalShort", b: 1, t: 40, s: 9, h: 1, g: 1, d: 16, e: 16, attr: op.Attr{Causal: true}},
	{name: "window", b: 1, t: 41, s: 41, h: 2, g: 1, d: 16, e: 16, attr: op.Attr{SlidingWindow: 5}},
	{name: "windowShort", b: 1, t: 41, s: 11, h: 1, g: 1, d: 8, e: 8, attr: op.Attr{SlidingWindow: 5, Causal: true}},
	{name: "padding", b: 3, t: 13, s: 21, h: 2, g: 2, d: 16, e: 16, mask: op.Shape{3, 1, 1, 21}},
	{name: "rows", b: 2, t: 13, s: 21, h: 2, g: 2, d: 16, e: 16, mask: op.Shape{2, 1, 13, 1}},
	{name: "matrix", b: 2, t: 13, s: 21, h: 2, g: 2, d: 16, e: 16, mask: op.Shape{1, 1, 13, 21}},
	{name: "full", b: 2, t: 9, s: 10, h: 4, g: 2, d: 8, e: 8, mask: op.Shape{2, 4, 9, 10}, attr: op.Attr{Causal: true}},
	{name: "dropout", b: 2, t: 13, s: 21, h: 2, g: 2, d: 16, e: 16, attr: op.Attr{DropoutRate: 0.3}},
	{name: "dropoutAll", b: 1, t: 3, s: 5, h: 1, g: 1, d: 4, e: 4, attr: op.Attr{DropoutRate: 1}},
	{name: "dropoutMask", b: 2, t: 13, s: 23, h: 4, g: 2, d: 16, e: 16, mask: op.Shape{2, 1, 1, 23}, attr: op.Attr{DropoutRate: 0.1, Stream: 3, Causal: true}},
	{name: "emptyBatch", b: 0, t: 3, s: 5, h: 2, g: 2, d: 4, e: 4},
	{name: "emptyQueries", b: 2, t: 0, s: 5, h: 2, g: 2, d: 4, e: 4},
	{name: "emptyKeys", b: 2, t: 3, s: 0, h: 2, g: 2, d: 4, e: 4},
	{name: "largeBlocks", b: 1, t: 150, s: 600, h: 2, g: 1, d: 64, e: 64},
	{name: "largeCausal", b: 1, t: 530, s: 530, h: 1, g: 1, d: 32, e: 32, attr: op.Attr{Causal: true}},
	{name: "largeWindow", b: 1, t: 600, s: 600, h: 1, g: 1, d: 16, e: 16, attr: op.Attr{SlidingWindow: 40, DropoutRate: 0.2}},
	{name: "largeHead", b: 1, t: 65, s: 130, h: 1, g: 1, d: 256, e: 200},
	{name: "largeMany", b: 3, t: 64, s: 64, h: 4, g: 4, d: 32, e: 32, mask: op.Shape{3, 1, 1, 64}},
}

func attentionCases(b *builder) {
	for _, c := range attentionClasses {
		b.attention(c, numbers).Large = large(c.name)
	}
	// The softmax of such scores is all but one-hot, and exponentials of them
	// overflow.
	b.attention(attentionClass{name: "peaked", b: 1, t: 20, s: 30, h: 1, g: 1, d: 8, e: 8, attr: op.Attr{Scale: 4}}, numbers)
	b.attention(attentionClass{name: "negative", b: 2, t: 13, s: 70, h: 2, g: 1, d: 8, e: 8, mask: op.Shape{2, 1, 1, 70}, attr: op.Attr{Scale: -0.7}}, numbers)
	b.farAttentions()
	if b.op != op.AttentionGrad {
		b.attention(attentionClass{name: "nan", b: 1, t: 5, s: 6, h: 1, g: 1, d: 4, e: 4}, values(1, 2, -1, 0.5, 3, 1, math.NaN(), 1, 2, 1, 1, 1))
		b.attention(attentionClass{name: "huge", b: 1, t: 2, s: 3, h: 1, g: 1, d: 4, e: 4}, constant(min(b.dtype.Max()/4, 0x1p50)))
		// Keys with products of -∞ are not seen, unless a query sees no others; with ∞
		// there is no softmax.
		b.infinite("infinity", attentionClass{t: 9, s: 20, attr: op.Attr{Causal: true}}, math.Inf(1), 5, 6)
		b.infinite("minusInfinity", attentionClass{t: 9, s: 20, attr: op.Attr{Causal: true}}, math.Inf(-1), 0, 4)
		b.infinite("minusInfinityBlocks", attentionClass{t: 3, s: 650}, math.Inf(-1), 0, 640)
	}
}

// infinite adds a case in which products with the keys from lo on, up to hi, are v.
func (b *builder) infinite(name string, c attentionClass, v float64, lo, hi int) {
	c.name, c.b, c.h, c.g, c.d, c.e = name, 1, 1, 1, 1, 2
	keys := make([]float64, c.s)
	for i := range keys {
		if keys[i] = 0.5 + float64(i%3); i >= lo && i < hi {
			keys[i] = v
		}
	}
	k := b.attention(c, numbers)
	k.fill[0], k.fill[1] = constant(1), values(keys...)
}

// farAttentions adds cases whose products of queries and keys are all near a large
// number. Sums of their terms are exact in float32, in any order, so that nothing
// excuses weights that depend on that number.
func (b *builder) farAttentions() {
	small := attentionClass{b: 1, t: 20, s: 30, h: 2, g: 1, d: 8, e: 8}
	masked := attentionClass{b: 2, t: 21, s: 30, h: 2, g: 2, d: 8, e: 5, mask: op.Shape{2, 1, 21, 30}, attr: op.Attr{Causal: true, DropoutRate: 0.2}}
	blocks := attentionClass{b: 1, t: 30, s: 650, h: 1, g: 1, d: 8, e: 8}
	for _, far := range []struct {
		name   string
		class  attentionClass
		q, k   float64 // the first features, whose product it is
		unit   float64 // the other features are small multiples of this
		factor float64
	}{
		{"far3e4", blocks, 0x1p8, 0x1p7, 1, 0.4},
		{"far4e6", masked, 0x1p11, 0x1p11, 1, 0.4},
		{"far5e8", blocks, 0x1p15, 0x1p14, 0x1p3, 0.4 / 0x1p6},
		{"farTies5e8", masked, 0x1p15, 0x1p14, 0x1p3, 1}, // many weights are 0, some equal
		{"far7e10", blocks, 0x1p18, 0x1p18, 0x1p7, 0.4 / 0x1p14},
		{"farTies7e10", small, 0x1p18, 0x1p18, 0x1p7, 1},
		{"far1e36", masked, 0x1p60, 0x1p60, 0x1p49, 0.4 / 0x1p98},
		{"farTies1e36", blocks, 0x1p60, 0x1p60, 0x1p49, 1},
		{"farBelow1e36", small, -0x1p60, 0x1p60, 0x1p49, 0.4 / 0x1p98},
	} {
		if max(math.Abs(far.q), far.k) > b.dtype.Max() {
			continue
		}
		side := func(first float64) fill {
			return func(r *rand.Rand, t op.Type) []byte {
				v, n := make([]float64, t.Shape.Size()), t.Shape[len(t.Shape)-1]
				for i := range v {
					if v[i] = far.unit * float64(r.IntN(7)-3); i%n == 0 {
						v[i] = first
					}
				}
				a := newArray(t)
				dtype.FromF64(a.data, v, t.DType)
				return a.data
			}
		}
		c := far.class
		c.name, c.attr.Scale = far.name, far.factor
		k := b.attention(c, numbers)
		k.fill[0], k.fill[1] = side(far.q), side(far.k)
	}
}

// attention adds a case of an attention or of its gradient.
func (b *builder) attention(c attentionClass, f fill) *Case {
	a := c.attr
	if a.Scale == 0 {
		a.Scale = 1 / math.Sqrt(float64(c.d))
	}
	args := []op.Type{b.t(c.b, c.t, c.h, c.d), b.t(c.b, c.s, c.g, c.d), b.t(c.b, c.s, c.g, c.e)}
	fills := []fill{f, f, f}
	if b.op == op.AttentionGrad {
		y := b.t(c.b, c.t, c.h, c.e)
		args = append(args, y, op.Type{DType: b.dtype.Accumulator(), Shape: op.Shape{2, c.b, c.h, c.t}}, y)
		fills = append(fills, f, f, f)
	}
	if c.mask != nil {
		args, fills = append(args, op.Type{DType: dtype.Bool, Shape: c.mask}), append(fills, bits)
	}
	if a.DropoutRate > 0 {
		args, fills = append(args, op.Type{DType: dtype.Int64, Shape: op.Shape{2}}), append(fills, bits)
	}
	k := b.add(c.name, a, args, fills...)
	if b.op == op.AttentionGrad {
		k.derive = forwardOfGrad
	}
	return k
}

// forwardOfGrad makes of the arguments of AttentionGrad that AttentionForward
// returns what it does.
func forwardOfGrad(a op.Attr, args []array) {
	r := attentionForward(a, op.Type{DType: args[4].DType}, slices.Concat(args[:3], args[6:]))
	n := args[3].Shape.Size()
	dtype.FromF64(args[3].data, r.f[:n], args[3].DType)
	dtype.FromF64(args[4].data, r.f[n:], args[4].DType)
}
