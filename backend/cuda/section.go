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

// parts returns where the results of v lie, in the order of op.Info.Results: sections of v,
// or, where v is split, values of their own, nil for a result that nothing reads.
func (b *builder) parts(v *ir.Value) []*ir.Value {
	types := make([]op.Type, len(v.Args))
	for i, x := range v.Args {
		types[i] = x.Type
	}
	var list []*ir.Value
	for _, s := range v.Op.Info().Results(v.Attr, types) {
		if !v.Split {
			list = append(list, b.section(v, s.Start, s.Shape...))
			continue
		}
		list = append(list, nil)
		for _, u := range b.users[v] {
			if u.Attr.Start[0] == s.Start && s.Shape.Equal(u.Attr.Dims) {
				list[len(list)-1] = u
			}
		}
	}
	return list
}

// narrowed calls f with a place for a result of a kernel that writes the accumulator's
// type, or that of its operands, and whether the place is of the latter. If r is of
// another type a chain casts it.
func (b *builder) narrowed(r *ir.Value, acc, operands dtype.DType, f func(to *ir.Value, narrow bool)) {
	if r == nil || r.Type.DType == acc || r.Type.DType == operands {
		f(r, r != nil && r.Type.DType != acc)
		return
	}
	defer func(held int) { b.reserved = held }(b.reserved)
	u := b.working(r, acc, r.Type.Shape...)
	f(u, false)
	cast := op.Instr{Op: op.Cast, DType: r.Type.DType}
	b.chain(r, &op.Body{Inputs: []dtype.DType{acc}, Code: []op.Instr{cast}}, []*ir.Value{u})
}

// isTemporary reports whether v lies in scratch memory.
func (b *builder) isTemporary(v *ir.Value) bool {
	_, ok := b.temporary[v]
	return ok
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
