//go:build cuda && linux && amd64

package cuda

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Operations of many calls have operands that are no values of the graph:
// sections of arguments and of the result, and arrays in scratch memory. They
// are values of the builder alone.

// section is the elements of v from one on, as an array of a shape.
func (b *builder) section(v *ir.Value, start int, shape ...int) *ir.Value {
	u := &ir.Value{Op: op.Result, Path: v.Path, Type: op.Type{DType: v.Type.DType, Shape: shape}, Slot: v.Slot}
	b.pos[u] = b.pos[v]
	offset := start * v.Type.DType.Size()
	if at, ok := b.temporary[v]; ok {
		b.temporary[u] = at + scratch(offset)
	} else if v.Slot.Place == ir.Static {
		b.p.static[u] = b.p.static[v] + offset
	} else {
		u.Slot.Offset += offset
	}
	return u
}

// working reserves scratch memory for an array while v is built.
func (b *builder) working(v *ir.Value, t dtype.DType, shape ...int) *ir.Value {
	u := &ir.Value{Op: op.Result, Path: v.Path, Type: op.Type{DType: t, Shape: shape}}
	b.pos[u] = b.pos[v]
	b.temporary[u] = scratch(b.reserved)
	b.reserved += aligned(u.Type.Bytes())
	b.scratch = max(b.scratch, b.reserved)
	return u
}

// into makes the calls of an operation whose result lies where out does.
func (b *builder) into(out *ir.Value, c op.Code, a op.Attr, args ...*ir.Value) error {
	u := b.section(out, 0, out.Type.Shape...)
	u.Op, u.Attr, u.Args = c, a, args
	if u.Type.Shape.Size() == 0 {
		return nil
	}
	return builders[c](b, u)
}

// times is x·y, either transposed if wanted, into out.
func (b *builder) times(out, x, y *ir.Value, transX, transY bool) error {
	return b.into(out, op.MatMul, op.Attr{TransA: transX, TransB: transY, DType: out.Type.DType}, x, y)
}

// columns copies columns from lo to hi of the matrix x into out.
func (b *builder) columns(out, x *ir.Value, lo, hi int) error {
	return b.into(out, op.Slice, op.Attr{Start: []int{0, lo}, Limit: []int{x.Type.Shape[0], hi}, Stride: []int{1, 1}}, x)
}

// pointer is v as a parameter, 0 where there is none.
func pointer(v *ir.Value) any {
	if v == nil {
		return uint64(0)
	}
	return v
}

// argument is an argument of v, or nil for -1.
func argument(v *ir.Value, i int) *ir.Value {
	if i < 0 {
		return nil
	}
	return v.Args[i]
}
