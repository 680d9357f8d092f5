package product

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// FusedOps is the most frequent epilogues, in the product's own type: an optional addition,
// then an optional relu, or the gradient of a relu: the sum where Positive is positive, 0
// elsewhere. Or the product is divided by a number.
type FusedOps struct {
	Add, Positive, Over *ir.Value // or nil
	Relu                bool
}

// FusedOpsOf returns the epilogue of v as FusedOps; ok is false if it is another one.
func FusedOpsOf(v *ir.Value) (f FusedOps, ok bool) {
	body, t := v.Attr.Body, v.Type.DType
	if body == nil {
		return f, true
	}
	if v.Attr.DType != t || len(body.ExtraOutputs) > 0 {
		return f, false
	}
	operand := func(i int32) *ir.Value { // operand i of the body, or nil if it is the product or a result of the body
		if i <= 0 || int(i) >= len(body.Inputs) || body.Inputs[i] != t {
			return nil
		}
		return v.Args[1+i]
	}
	zero := func(i int32) bool {
		c := operand(i)
		return c != nil && c.Op == op.Const && c.Attr.Data == nil && math.Float64bits(c.Attr.Value) == 0
	}
	last := int32(0) // value that the next instruction must read
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

// tileEpilogue is an epilogue that micro-kernels and routines of package gemm compute in the
// result: micro-kernels start the sums, which must be of a single step, with the added term,
// and then is applied while a tile is in L1. The bits are those of the chain.
type tileEpilogue struct {
	add   int // position of the term, or -1
	ld    int // bytes from a row of it to the next
	then  gemm.Epilogue
	relu  bool // that is what then does
	reads int  // position of the operand of then, or -1
	along bool // the operand is read element by element, else it is a number
}

// tileOps is FusedOps, or one of two more epilogues in the product's own type: the addition and
// then that of a value of the result's shape, such as the residual, or gelu.
type tileOps struct {
	FusedOps
	plus *ir.Value // or nil
	gelu bool
}

func tileOpsOf(v *ir.Value) (t tileOps, ok bool) {
	if t.FusedOps, ok = FusedOpsOf(v); ok || v.Attr.DType != v.Type.DType || len(v.Attr.Body.ExtraOutputs) > 0 {
		return t, ok
	}
	t.FusedOps = FusedOps{}
	body, d, last := v.Attr.Body, v.Type.DType, int32(0)
	for _, ins := range body.Code {
		if ins.DType != d {
			return t, false
		}
	}
	// added returns what an instruction adds to value last, if it is an operand.
	added := func(ins op.Instr) *ir.Value {
		i := ins.Args[0] + ins.Args[1] - last
		if ins.Op != op.Add || ins.Args[0] != last && ins.Args[1] != last || i <= 0 || int(i) >= len(body.Inputs) || body.Inputs[i] != d {
			return nil
		}
		return v.Args[1+i]
	}
	code, first := body.Code, int32(len(body.Inputs))
	if t.Add = added(code[0]); t.Add != nil {
		code, last = code[1:], first
		first++
	}
	switch len(code) {
	case 1:
		t.plus = added(code[0])
		return t, t.plus != nil && t.Add != nil && t.plus.Type.Shape.Size() == v.Type.Shape.Size()
	case 2:
		cdf, mul := code[0], code[1]
		a, b := mul.Args[0], mul.Args[1]
		t.gelu = cdf.Op == op.NormalCDF && cdf.Args[0] == last && mul.Op == op.Mul && (a == last && b == first || a == first && b == last)
		return t, t.gelu
	}
	return t, false
}

// geluTile is gelu as the epilogue of a tile, or nil.
func geluTile() gemm.Epilogue {
	rows := elementwise.GeluRows()
	if rows == nil {
		return nil
	}
	return func(n int, d unsafe.Pointer, ldd int, _ unsafe.Pointer, _ int, mask uint) {
		rows(d, ldd, n, bits.Len(mask))
	}
}

// newTileEpilogue returns the epilogue of the product v of n columns, or nil if chains must
// compute it.
func newTileEpilogue(b *exec.Builder, v *ir.Value, set *gemm.Set, n int) *tileEpilogue {
	if v.Attr.Body == nil || v.Type.DType != dtype.Float32 || set.Relu == nil {
		return nil
	}
	f, ok := tileOpsOf(v)
	if !ok {
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
		k.then, k.relu = set.Relu, true
	}
	y, then := f.Positive, set.ReluGrad
	if f.plus != nil {
		y, then = f.plus, set.Add
	}
	if y != nil {
		// The operand is read after the product has been written.
		if b.Produced[y] != nil || then == nil || y.Type.Shape.Size() != v.Type.Shape.Size() || y.Slot == v.Slot {
			return nil
		}
		k.then, k.reads, k.along = then, b.At(y), true
	}
	if f.Over != nil {
		if b.Produced[f.Over] != nil || set.Divide == nil {
			return nil
		}
		k.then, k.reads = set.Divide, b.At(f.Over)
	}
	if f.gelu {
		if k.then = geluTile(); k.then == nil {
			return nil
		}
	}
	return k
}

// term returns the address of the added term for row and column of the result, or nil.
func (k *tileEpilogue) term(r *exec.Run, row, col int) unsafe.Pointer {
	if k.add < 0 {
		return nil
	}
	return unsafe.Pointer(&r.Values[k.add][row*k.ld+4*col])
}

// tile applies then to rows of up to 32 columns, from row and col of the result on, at d.
func (k *tileEpilogue) tile(r *exec.Run, row, col, rows, ld int, d unsafe.Pointer, mask uint) {
	var y unsafe.Pointer
	if k.reads >= 0 {
		at := 0
		if k.along {
			at = row*ld + 4*col
		}
		y = unsafe.Pointer(&r.Values[k.reads][at])
	}
	switch {
	case k.then == nil:
	case k.reads >= 0 && !k.along:
		k.then(rows, d, ld, y, ld, mask)
	default:
		Then(k.then, rows, d, ld, y, ld, mask)
	}
}

// Then applies an epilogue whose operand, if there is one, has a row for each row of the result.
func Then(then gemm.Epilogue, rows int, d unsafe.Pointer, ld int, y unsafe.Pointer, ldy int, mask uint) {
	const half = 16 // columns
	if mask == 1<<half-1 && ld == 4*half && ldy == ld && rows > 1 {
		// Two rows at a time: the masked store of an empty half would delay the next row's load.
		then(rows/2, d, 2*ld, y, 2*ldy, 1<<(2*half)-1)
		done := rows / 2 * 2 * ld
		if rows%2 == 0 {
			return
		}
		if d = unsafe.Add(d, done); y != nil {
			y = unsafe.Add(y, done)
		}
		rows = 1
	}
	then(rows, d, ld, y, ldy, mask)
}

// lowEpilogue is an epilogue of a product of 16 bits that a routine computes while it rounds
// the sums. The bits are those of the chain.
type lowEpilogue struct {
	do    gemm.LowPrecisionEpilogue
	reads int // position of the operand
	ld    int // bytes from a row of the operand to the next
}

// newLowEpilogue returns the epilogue of the product v of n columns, or nil if chains must
// compute it.
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

// storeLow is the store of a product with a lowEpilogue.
func (k *product) storeLow(r *exec.Run, _ *exec.Worker, t Tile) {
	f, step := k.lowEpilogue, max(1, t.Step)
	out, reads := r.Values[k.Out], r.Values[f.reads]
	for j := 0; j < t.Cols; j += 32 {
		col, mask := t.Col+j, uint(1)<<min(32, t.Cols-j)-1
		d, y := unsafe.Pointer(&out[2*(t.Row*k.N+col)]), unsafe.Pointer(&reads[t.Row*f.ld+2*col])
		f.do(t.Rows, d, 2*k.N*step, unsafe.Add(t.Data, 4*j), t.LD, y, f.ld*step, mask)
	}
}
