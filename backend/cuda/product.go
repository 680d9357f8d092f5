//go:build cuda && linux && amd64

package cuda

import (
	"slices"

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

func (b *builder) matmul(v *ir.Value) error {
	if v.Type.Shape.Size() == 0 {
		return nil
	}
	g := productOf(v)
	if b.libraryProduct(v, g) {
		return nil
	}
	xb, err := box(v, g.batch.sizes, g.batch.strides[0])
	if err != nil {
		return err
	}
	yb, err := box(v, g.batch.sizes, g.batch.strides[1])
	if err != nil {
		return err
	}
	am, ak, bk, bn := g.k, 1, g.n, 1
	if g.transA {
		am, ak = 1, g.m
	}
	if g.transB {
		bk, bn = 1, g.k
	}
	batches := op.Shape(g.batch.sizes).Size()
	args := []any{v.Args[0], v.Args[1], v, int(v.Type.DType), g.m, g.n, g.k, am, ak, bk, bn, batches}
	b.call(v, "matmul_"+v.Args[0].Type.DType.String(), [3]int{(g.m + 63) / 64, (g.n + 63) / 64, min(batches, 65535)}, [3]int{256, 1, 1}, slices.Concat(args, xb, yb)...)
	return nil
}

// FusesEpilogue implements driver.EpilogueFuser: a library may add a bias and
// apply an activation to a product, and what else follows a contraction is
// computed where its result lies.
func (d *Device) FusesEpilogue() bool { return true }

// followed makes the calls of a contraction with a body: the contraction, and
// a chain whose operand 0 is its result.
func (b *builder) followed(v *ir.Value) error {
	if v.Type.Shape.Size() == 0 || v.Op == op.MatMul && b.libraryProduct(v, productOf(v)) {
		return nil
	}
	own := v.Op.Info().Args
	u := &ir.Value{Op: v.Op, Attr: v.Attr, Args: v.Args[:own], Path: v.Path, Slot: v.Slot}
	u.Type = op.Type{DType: v.Attr.DType, Shape: v.Type.Shape}
	u.Attr.Body = nil
	b.pos[u] = b.pos[v]
	if !b.inPlace(v, u) {
		b.temporary[u] = 0
		b.reserved = aligned(u.Type.Bytes())
		b.scratch = max(b.scratch, b.reserved)
	}
	err := builders[v.Op](b, u)
	b.reserved = 0
	if err != nil {
		return err
	}
	b.chain(v, v.Attr.Body, append([]*ir.Value{u}, v.Args[own:]...))
	return nil
}

// inPlace reports whether the product u may lie where the result v does, for a
// chain that reads and writes it element by element: they need elements of
// one size, and no other operand may lie there.
func (b *builder) inPlace(v, u *ir.Value) bool {
	if u.Type.Bytes() != v.Type.Bytes() {
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
