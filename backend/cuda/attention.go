//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// attended is an attention as parameters of the kernels in attention.cu.
type attended struct {
	op.AttentionSizes
	v      *ir.Value
	kernel string // ending of the kernels' names
	args   []any  // that all kernels have
}

// attended reads the operands of v, of which the first ones are q, k and v, and
// others that are read like v.
func (b *builder) attended(v *ir.Value, operands int, others ...*ir.Value) (a attended, err error) {
	types := make([]op.Type, len(v.Args))
	for i, x := range v.Args {
		types[i] = x.Type
	}
	s, err := op.SizesOfAttention(operands, v.Attr, types)
	if err != nil {
		return a, err
	}
	if max(s.Queries, s.Keys, s.Heads*s.Features, s.Heads*s.ValueFeatures) > math.MaxInt32/2 {
		return a, fmt.Errorf("cuda: layer %s: %v of %v and %v, want less than 2^30 steps, and features of all heads", v.Path, v.Op, types[0], types[2])
	}
	q := v.Args[0]
	t := q.Type.DType
	how, _ := b.p.device.arithmetic(t)
	strides := make([]int, 4)
	if s.Mask >= 0 {
		strides = broadcast(v.Args[s.Mask].Type.Shape, op.Shape{s.Batch, s.Heads, s.Queries, s.Keys})
	}
	wideQ, wideV := min(b.wide(q, t, s.Features), b.wide(v.Args[1], t, s.Features)), b.wide(v.Args[2], t, s.ValueFeatures)
	for _, x := range others {
		wideV = min(wideV, b.wide(x, t, s.ValueFeatures))
	}
	bits, bound := op.DropDraw(v.Attr.DropoutRate)
	sign, factor := v.Attr.ScoreFactors()
	if v.Args[0].Type.DType.Accumulator() == dtype.Float32 {
		factor = max(factor, math.SmallestNonzeroFloat32) // infinities times 0 would be NaN
	}
	return attended{s, v, how + "_" + t.String(), []any{
		q, v.Args[1], v.Args[2], pointer(argument(v, s.Mask)), strides[0], strides[1], strides[2], strides[3],
		pointer(argument(v, s.State)), int(v.Attr.Stream), bits, bound, v.Attr.KeepScale(), sign, factor, number(v.Attr.Causal), min(v.Attr.SlidingWindow, max(s.Queries, s.Keys)),
		s.Queries, s.Keys, s.Heads, s.KeyHeads, s.Features, s.ValueFeatures, wideQ, wideV,
	}}, nil
}

// call calls a kernel with a block for each 64 rows of the heads and for each
// chunk of features.
func (a attended) call(b *builder, name string, rows, heads, features int, args ...any) {
	const tile, chunk = 64, 64
	if blocks := (rows + tile - 1) / tile * heads * a.Batch; blocks > 0 {
		b.call(a.v, name+a.kernel, [3]int{blocks, max(1, (features+chunk-1)/chunk), 1}, [3]int{128, 1, 1}, append(a.args[:len(a.args):len(a.args)], args...)...)
	}
}

func (b *builder) attention(v *ir.Value) error {
	a, err := b.attended(v, 3)
	if err != nil {
		return err
	}
	t, parts := v.Args[0].Type.DType, b.parts(v)
	b.narrowed(parts[0], v.Type.DType, t, func(y *ir.Value, narrow bool) {
		a.call(b, "attention_forward_", a.Queries, a.Heads, a.ValueFeatures, pointer(y), number(narrow), pointer(parts[1]))
	})
	return nil
}

func (b *builder) attentionGrad(v *ir.Value) error {
	y, statistics, g := v.Args[3], v.Args[4], v.Args[5]
	a, err := b.attended(v, 6, y, g)
	if err != nil {
		return err
	}
	defer func() { b.reserved = 0 }()
	rows := a.PerQuery().Size()
	means, inverses := b.working(v, statistics.Type.DType, a.PerQuery()...), b.section(statistics, rows, rows)
	queries, keys := v.Args[0].Type.Shape.Size(), v.Args[1].Type.Shape.Size()
	a.call(b, "attention_query_grad_", a.Queries, a.Heads, a.Features, y, g, statistics, inverses, means, v)
	a.call(b, "attention_key_grad_", a.Keys, a.KeyHeads, max(a.Features, a.ValueFeatures), g, statistics, inverses, means,
		b.section(v, queries, keys), b.section(v, queries+keys, v.Args[2].Type.Shape.Size()))
	return nil
}
