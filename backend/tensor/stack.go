package tensor

import "github.com/mezzo-ml/mezzo/backend/dtype"

// Stack joins tensors of one shape along a new axis (Keras: ops.stack). A
// negative axis counts from the end of the result.
//
// Shapes: n times [… …] → [… n …].
func Stack(axis int, ts ...*Tensor) *Tensor {
	if len(ts) == 0 {
		Fail("Stack", "no tensors given")
	}
	out := make([]*Tensor, len(ts))
	for i, t := range ts {
		if t.err == nil && !t.typ.Shape.Equal(ts[0].typ.Shape) {
			Fail("Stack", "tensor %d is %v, want the shape of the first, %v", i, t.typ, ts[0].typ)
		}
		out[i] = t.ExpandDims(axis)
	}
	return Concat(axis, out...)
}

// Split cuts t into n equal parts along axis (Keras: ops.split).
//
// Shapes: [… k …] → n times [… k/n …].
func (t *Tensor) Split(n, axis int) []*Tensor {
	out := make([]*Tensor, max(n, 0))
	if t.err != nil {
		for i := range out {
			out[i] = t
		}
		return out
	}
	k := t.Dim(t.axes("Split", []int{axis})[0])
	if n <= 0 || k == Unknown || k%n != 0 {
		Fail("Split", "%v cannot be cut into %d equal parts along axis %d", t.typ, n, axis)
	}
	for i := range out {
		out[i] = t.Slice(axis, i*k/n, (i+1)*k/n)
	}
	return out
}

// OneHot has, for each index, a row with 1 at that place and 0 elsewhere
// (Keras: ops.one_hot). The row of an index out of range has no 1.
//
// Shapes: t […] int32 or int64 → [… n] of type d.
func (t *Tensor) OneHot(n int, d dtype.DType) *Tensor {
	if t.err == nil && !t.typ.DType.IsInt() {
		Fail("OneHot", "got %v, want integers", t.typ)
	}
	return t.ExpandDims(-1).Equal(Iota(t.DType(), n)).Cast(d)
}
