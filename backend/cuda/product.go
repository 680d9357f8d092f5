//go:build cuda && linux && amd64

package cuda

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// product is a MatMul as matrices: m by k times k by n, for each element of a
// box.
type product struct {
	m, n, k        int
	transA, transB bool
	batch          dims // with the strides of A and B in elements
}

func productOf(v *ir.Value) product {
	x, y, out := v.Args[0].Type.Shape, v.Args[1].Type.Shape, v.Type.Shape
	rank := len(out)
	g := product{m: out[rank-2], n: out[rank-1], k: x[len(x)-1], transA: v.Attr.TransA, transB: v.Attr.TransB}
	if g.transA {
		g.k = x[len(x)-2]
	}
	batch := out[:rank-2]
	strides := func(s op.Shape) []int {
		r := len(s)
		list := broadcast(s[:r-2], batch)
		for i := range list {
			list[i] *= s[r-2] * s[r-1]
		}
		return list
	}
	g.batch = collapse(batch, strides(x), strides(y))
	// Products with one B, whose rows follow each other, are one product.
	if len(g.batch.sizes) == 1 && !g.transA && g.batch.strides[0][0] == g.m*g.k && g.batch.strides[1][0] == 0 {
		g.m *= g.batch.sizes[0]
		g.batch = collapse(nil, nil, nil)
	}
	return g
}

// contraction makes the calls of a MatMul, a Conv or one of its gradients.
func (b *builder) contraction(v *ir.Value) error {
	if b.projection(v) != nil {
		return nil
	}
	_, err := b.contract(v, following{})
	return err
}

// projection is the sum of a product, in another shape, and a bias of its columns, as
// projections to heads have it: nil, or a value that makes both. Between the two nothing
// may lie where the product's operands do.
func (b *builder) projection(v *ir.Value) *ir.Value {
	r := b.onlyUser(v)
	if v.Op != op.MatMul || v.Attr.Body != nil || r == nil || r.Op != op.Reshape || !r.View() || b.p.graph.Watched || b.current != nil {
		return nil
	}
	if _, eight := b.eight[v]; eight {
		return nil
	}
	sum := b.onlyUser(r)
	if sum == nil || sum.Op != op.Add || sum.Args[0] != r || sum.Type.DType != v.Type.DType || sum.Args[1].Type.DType != v.Type.DType {
		return nil
	}
	n, bias := v.Type.Shape[len(v.Type.Shape)-1], sum.Args[1].Type.Shape
	if bias.Size() != n || len(bias) > len(sum.Type.Shape) || !bias.Equal(sum.Type.Shape[len(sum.Type.Shape)-len(bias):]) {
		return nil
	}
	for _, x := range b.p.graph.Values[b.pos[v]+1 : b.pos[sum]+1] {
		if x != r && slices.ContainsFunc(v.Args, func(y *ir.Value) bool { return b.meet(x, y) }) {
			return nil
		}
	}
	return sum
}

// projected makes the calls of a sum whose product was left to it.
func (b *builder) projected(v *ir.Value) (done bool, err error) {
	if v.Op != op.Add || v.Args[0].Op != op.Reshape {
		return false, nil
	}
	c := v.Args[0].Args[0]
	if c.Op != op.MatMul || b.projection(c) != v {
		return false, nil
	}
	b.meetRowSums(v)
	u := &ir.Value{Op: c.Op, Attr: c.Attr, Args: c.Args, Path: c.Path, Type: c.Type, Slot: v.Slot}
	b.pos[u] = b.pos[v]
	if done, err = b.contract(u, following{bias: v.Args[1]}); done || err != nil {
		return done, err
	}
	_, err = b.contract(c, following{})
	return false, err
}

// contract makes the calls of a contraction with what follows it, or none if
// they cannot do that; nothing is always done.
func (b *builder) contract(v *ir.Value, f following) (done bool, err error) {
	defer func(calls, held int) {
		b.reserved = held
		if !done {
			b.pending = b.pending[:calls]
		}
	}(len(b.pending), b.reserved)
	switch {
	case v.Type.Shape.Size() == 0:
		return true, nil
	case v.Op == op.MatMul:
		return b.matmul(v, f)
	case v.Op == op.Conv || v.Op == op.ConvInputGrad || v.Op == op.ConvKernelGrad:
		return b.conv(v, f)
	}
	return false, nil
}

// FusesEpilogue implements driver.EpilogueFuser: products and convolutions add
// a bias and apply an activation, and what else follows a contraction is
// computed where its result lies.
func (d *Device) FusesEpilogue() bool { return true }

// followed makes the calls of a contraction with a body: one that does it all,
// or the contraction and a chain whose operand 0 is its result.
func (b *builder) followed(v *ir.Value) error {
	if b.addedProduct(v) {
		return nil
	}
	if s := v.Type.Shape; len(s) > 0 {
		if f, ok := simple(v, s[len(s)-1]); ok {
			if done, err := b.contract(v, f); done || err != nil {
				return err
			}
			if f.bias != nil && f.relu {
				if done, err := b.biased(v, f.bias); done || err != nil {
					return err
				}
			}
		}
	}
	own := v.Op.Info().Args
	if reluPool(v) {
		u := &ir.Value{Op: v.Op, Attr: v.Attr, Args: v.Args[:own], Path: v.Path, Type: v.Type, Slot: v.Slot}
		if b.pos[u] = b.pos[v]; b.inPlace(v, u) {
			return b.pooling(u, true)
		}
	}
	u := &ir.Value{Op: v.Op, Attr: v.Attr, Args: v.Args[:own], Path: v.Path, Slot: v.Slot}
	u.Type = op.Type{DType: v.Attr.DType, Shape: v.Type.Shape}
	u.Attr.Body = nil
	if u.Type.Shape.Size() == 0 {
		return nil
	}
	b.pos[u] = b.pos[v]
	held := b.reserved
	if !b.inPlace(v, u) {
		b.temporary[u] = b.hold(u.Type.Bytes())
	}
	err := builders[v.Op](b, u)
	b.reserved = held
	if err != nil {
		return err
	}
	operands := append([]*ir.Value{u}, v.Args[own:]...)
	if _, apart := b.temporary[u]; !apart && b.waitsEarly(v) {
		c, args := b.chainOf(v, v.Attr.Body, operands)
		b.update(v, c, args, operands)
		return nil
	}
	if !b.addsToNormalize(v, v.Attr.Body, operands) {
		b.chain(v, v.Attr.Body, operands)
	}
	return nil
}

// biased makes the calls of a contraction with its bias and of a chain for the ReLU that
// follows, where a library adds a bias but its ReLU makes zeros of NaNs.
func (b *builder) biased(v, bias *ir.Value) (done bool, err error) {
	u := &ir.Value{Op: v.Op, Attr: v.Attr, Args: v.Args, Path: v.Path, Slot: v.Slot}
	u.Type = op.Type{DType: v.Attr.DType, Shape: v.Type.Shape}
	b.pos[u] = b.pos[v]
	held := b.reserved
	if !b.inPlace(v, u) {
		b.temporary[u] = b.hold(u.Type.Bytes())
	}
	done, err = b.contract(u, following{bias: bias})
	b.reserved = held
	if done && err == nil {
		relu := op.Instr{Op: op.Relu, DType: u.Type.DType}
		b.chain(v, &op.Body{Inputs: []dtype.DType{u.Type.DType}, Code: []op.Instr{relu}}, []*ir.Value{u})
	}
	return done, err
}

// inPlace reports whether the product u may lie where the result v does, for a
// chain that reads and writes it element by element: they need elements of
// one size, and no other operand may lie there.
func (b *builder) inPlace(v, u *ir.Value) bool {
	if _, packed := b.packed[v]; packed || u.Type.Bytes() != v.Type.Bytes() {
		return false
	}
	for _, a := range v.Args {
		if a.Slot.Place != v.Slot.Place || a.Slot.Index != v.Slot.Index {
			continue
		}
		if a.Slot.Place != ir.Arena || a.Slot.Offset < v.Slot.Offset+v.Type.Bytes() && v.Slot.Offset < a.Slot.Offset+a.Type.Bytes() {
			return false
		}
	}
	return true
}
