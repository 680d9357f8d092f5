package product

import (
	"math"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// FusedOps is what follows a product most often, in the product's own type: a
// term is added, or none; then the result is the relu of the sum, or the sum
// where something is positive and 0 elsewhere, or the sum. Or the result is the
// quotient by a number.
type FusedOps struct {
	Add, Positive, Over *ir.Value // or nil
	Relu                bool
}

// FusedOpsOf reports whether that is all that follows v, and what it is.
func FusedOpsOf(v *ir.Value) (f FusedOps, ok bool) {
	body, t := v.Attr.Body, v.Type.DType
	if body == nil {
		return f, true
	}
	if v.Attr.DType != t || len(body.ExtraOutputs) > 0 {
		return f, false
	}
	operand := func(i int32) *ir.Value { // of the body, unless it is the product or computed there
		if i <= 0 || int(i) >= len(body.Inputs) || body.Inputs[i] != t {
			return nil
		}
		return v.Args[1+i]
	}
	zero := func(i int32) bool {
		c := operand(i)
		return c != nil && c.Op == op.Const && c.Attr.Data == nil && math.Float64bits(c.Attr.Value) == 0
	}
	last := int32(0) // what the next instruction goes on from
	for i, ins := range body.Code {
		left := body.Code[i:]
		switch a := ins.Args; {
		case i == 0 && ins.Op == op.Add && ins.DType == t && a[0]+a[1] > 0 && (a[0] == 0 || a[1] == 0):
			if f.Add = operand(a[0] + a[1]); f.Add == nil {
				return f, false
			}
		case len(body.Code) == 1 && ins.Op == op.Div && ins.DType == t && a[0] == 0:
			f.Over = operand(a[1])
			return f, f.Over != nil && f.Over.Type.Shape.Size() == 1
		case len(left) == 1 && ins.Op == op.Relu && ins.DType == t && a[0] == last:
			f.Relu = true
		case len(left) == 2 && ins.Op == op.Greater && zero(a[1]):
			where, mask := left[1], int32(len(body.Inputs)+i)
			f.Positive = operand(a[0])
			return f, f.Positive != nil && where.Op == op.Where && where.DType == t && where.Args[0] == mask && where.Args[1] == last && zero(where.Args[2])
		default:
			return f, false
		}
		last = int32(len(body.Inputs) + i)
	}
	return f, true
}

// tileEpilogue is a follower that kernels and routines of package gemm compute where
// the result lies: the term is what kernels begin with, a sum of a single step
// then, and what is left is done while a tile is in L1. Bits are
// those of the chain.
type tileEpilogue struct {
	add   int // position of the term, or -1
	ld    int // bytes from a row of it to the next
	then  gemm.Epilogue
	reads int  // position of what that reads, or -1
	along bool // element by element, else a number
}

// newTileEpilogue is what follows the product v of n columns, or nil if chains do it.
func newTileEpilogue(b *exec.Builder, v *ir.Value, set *gemm.Set, n int) *tileEpilogue {
	f, ok := FusedOpsOf(v)
	if v.Attr.Body == nil || !ok || v.Type.DType != dtype.Float32 || set.Relu == nil {
		return nil
	}
	k := &tileEpilogue{add: -1, reads: -1}
	if f.Add != nil {
		o := elementwise.NewOperand(b.At(f.Add), f.Add, v.Type.Shape)
		switch k.add = o.Pos; {
		case b.Produced[f.Add] != nil:
			return nil
		case o.Access == elementwise.Full:
			k.ld = 4 * n
		case o.Access != elementwise.ByRow || o.Period != n || o.Every != 0:
			return nil
		}
	}
	if f.Relu {
		k.then = set.Relu
	}
	if y := f.Positive; y != nil {
		// It is read when the product has been written.
		if b.Produced[y] != nil || y.Type.Shape.Size() != v.Type.Shape.Size() || y.Slot == v.Slot {
			return nil
		}
		k.then, k.reads, k.along = set.ReluGrad, b.At(y), true
	}
	if f.Over != nil {
		if b.Produced[f.Over] != nil {
			return nil
		}
		k.then, k.reads = set.Divide, b.At(f.Over)
	}
	return k
}

// term is where the term for row and column of the result lies, of n columns,
// or nil.
func (k *tileEpilogue) term(r *exec.Run, row, col int) unsafe.Pointer {
	if k.add < 0 {
		return nil
	}
	return unsafe.Pointer(&r.Values[k.add][row*k.ld+4*col])
}

// tile does what is left for rows of up to 32 columns, from row and col of the
// result on, which lie at d.
func (k *tileEpilogue) tile(r *exec.Run, row, col, rows, ld int, d unsafe.Pointer, mask uint) {
	var y unsafe.Pointer
	if k.reads >= 0 {
		at := 0
		if k.along {
			at = row*ld + 4*col
		}
		y = unsafe.Pointer(&r.Values[k.reads][at])
	}
	if k.then != nil {
		k.then(rows, d, ld, y, ld, mask)
	}
}

// lowEpilogue is a follower of a product of 16 bits, which a routine does where sums
// are rounded: they are read once. Bits are those of the chain.
type lowEpilogue struct {
	do    gemm.LowPrecisionEpilogue
	reads int // position of what it reads besides
	ld    int // bytes from a row of that to the next
}

// newLowEpilogue is what follows the product v of n columns, or nil if chains do it.
func newLowEpilogue(b *exec.Builder, v *ir.Value, set *gemm.Set, n int) *lowEpilogue {
	f, ok := FusedOpsOf(v)
	if v.Attr.Body == nil || !ok || !v.Type.DType.Is16() || (f.Add == nil) == (f.Positive == nil) {
		return nil
	}
	routines, y := &set.LowPrecision[gemm.ElementOf[v.Type.DType]], f.Add
	k := &lowEpilogue{do: routines.Add}
	switch {
	case f.Relu:
		k.do = routines.AddRelu
	case f.Positive != nil:
		k.do, y = routines.Grad, f.Positive
	}
	o := elementwise.NewOperand(b.At(y), y, v.Type.Shape)
	k.reads = o.Pos
	switch {
	case k.do == nil || b.Produced[y] != nil:
		return nil
	case o.Access == elementwise.Full:
		k.ld = 2 * n
	case o.Access != elementwise.ByRow || o.Period != n || o.Every != 0:
		return nil
	}
	return k
}

// storeLow is the store of a product that a lowEpilogue follows.
func (k *product) storeLow(r *exec.Run, _ *exec.Worker, t Tile) {
	f, step := k.lowEpilogue, max(1, t.Step)
	out, reads := r.Values[k.Out], r.Values[f.reads]
	for j := 0; j < t.Cols; j += 32 {
		col, mask := t.Col+j, uint(1)<<min(32, t.Cols-j)-1
		d, y := unsafe.Pointer(&out[2*(t.Row*k.N+col)]), unsafe.Pointer(&reads[t.Row*f.ld+2*col])
		f.do(t.Rows, d, 2*k.N*step, unsafe.Add(t.Data, 4*j), t.LD, y, f.ld*step, mask)
	}
}
