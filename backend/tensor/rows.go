package tensor

import "github.com/mezzo-ml/mezzo/backend/op"

// Unique numbers the values of indices in the order of their first appearance. places
// holds the number of each index's value, distinct the values, followed by n up to its
// length.
//
// Shapes: t [i…] int32 or int64, of k elements → places [k], distinct [k].
func Unique(t *Tensor, n int) (places, distinct *Tensor) {
	both := t.record(op.Unique, op.Attr{Padding: n}, t)
	if both.err != nil {
		return both, both
	}
	k := both.typ.Shape[1]
	return both.Slice(0, 0, 1).Reshape(k), both.Slice(0, 1, 2).Reshape(k)
}

// ScatterUpdate returns t with rows in the place of those at indices. Indices that
// are out of range are left out; of equal ones the last counts.
//
// Shapes: t [n …], indices [i…] int32 or int64, rows [i… …] → [n …].
func ScatterUpdate(t, indices, rows *Tensor) *Tensor {
	return t.record(op.ScatterUpdate, op.Attr{}, t, indices, rows)
}

// gatherKnown is Gather of rows at indices that end with ones out of range, as
// Unique makes them: there it returns some row.
func (t *Tensor) gatherKnown(indices *Tensor) *Tensor {
	last := Scalar(indices.typ.DType, float64(t.typ.Shape[0]-1))
	return t.Gather(indices.Minimum(last))
}

// Rows returns the rows of v at indices that [SparseRows] returned.
func (v *Variable) Rows(indices *Tensor) *Tensor { return v.Value().gatherKnown(indices) }

// AssignRows is Assign of v's value with other rows at indices that
// [SparseRows] returned. In a compiled step it reads and writes no others.
func (v *Variable) AssignRows(indices, rows *Tensor) {
	tr := v.assignable("AssignRows")
	if tr.predicate != nil {
		rows = Where(tr.predicate, rows, v.Rows(indices))
	}
	tr.rebind(v, ScatterUpdate(v.Value(), indices, rows))
}

// SparseRows splits a tensor that is zero except for some rows, such as the gradient of
// a table from which rows were gathered. rows holds the sums of the rows added at each
// of indices; indices of t.Dim(0), with rows of zeros, are padding. The elements have
// the same bits as t's. ok is false if t was computed otherwise, or if at least
// t.Dim(0) rows were added.
//
// Between ScatterAdd and t there may be sums, casts, clipping to limits on both sides
// of 0, and products and quotients with scalars. It assumes that these scalars keep 0
// at 0.
//
// Shapes: t [n …] → indices [k], rows [k …].
func SparseRows(t *Tensor) (indices, rows *Tensor, ok bool) {
	if t.err != nil || t.parts != nil || len(t.typ.Shape) == 0 {
		return nil, nil, false
	}
	var scattered []*Tensor
	seen := map[*Tensor]bool{}
	if !t.scatters(seen, &scattered) {
		return nil, nil, false
	}
	var all []*Tensor
	count := 0
	for _, s := range scattered {
		n := s.args[1].typ.Shape.Size()
		if count += n; s.args[1].typ.DType != scattered[0].args[1].typ.DType {
			return nil, nil, false
		}
		all = append(all, s.args[1].Reshape(n))
	}
	if count == 0 || count >= t.typ.Shape[0] {
		return nil, nil, false
	}
	places, indices := Unique(Concat(0, all...), t.typ.Shape[0])
	made := map[*Tensor]*Tensor{}
	at := 0
	for i, s := range scattered {
		n := all[i].typ.Shape[0]
		x := s.args[0].Reshape(append(Shape{n}, s.typ.Shape[1:]...)...)
		made[s] = x.ScatterAdd(places.Slice(0, at, at+n), count)
		at += n
	}
	return indices, t.onRows(made), true
}

// scatters reports whether t is zero wherever the ScatterAdds that it is made
// of are, and collects those.
func (t *Tensor) scatters(seen map[*Tensor]bool, list *[]*Tensor) bool {
	if done, ok := seen[t]; ok {
		return done
	}
	ok := false
	switch t.op {
	case op.ScatterAdd:
		*list = append(*list, t)
		ok = true
	case op.Identity, op.Cast, op.Neg:
		ok = t.typ.DType.IsFloat() && t.args[0].scatters(seen, list)
	case op.Add, op.Sub:
		ok = t.args[0].typ.Equal(t.args[1].typ) && t.args[0].scatters(seen, list) && t.args[1].scatters(seen, list)
	case op.Mul, op.Maximum, op.Minimum:
		x, by := t.args[0], t.args[1]
		if len(x.typ.Shape) == 0 {
			x, by = by, x
		}
		ok = len(by.typ.Shape) == 0 && x.scatters(seen, list)
		if t.op != op.Mul { // -limit … limit
			sign := by.attr.Value
			ok = ok && by.op == op.Const && by.attr.Data == nil && sign != 0 && (sign < 0) == (t.op == op.Maximum)
		}
	case op.Div:
		ok = len(t.args[1].typ.Shape) == 0 && t.args[0].scatters(seen, list)
	}
	seen[t] = ok
	return ok
}

// onRows records t again, of the rows made of the ScatterAdds that it is made
// of.
func (t *Tensor) onRows(made map[*Tensor]*Tensor) *Tensor {
	if r := made[t]; r != nil {
		return r
	}
	args := make([]*Tensor, len(t.args))
	for i, a := range t.args {
		args[i] = a
		if len(a.typ.Shape) > 0 {
			args[i] = a.onRows(made)
		}
	}
	r := t.record(t.op, t.attr, args...)
	r.path, r.stop, r.scaled, r.gradient = t.path, t.stop, t.scaled, t.gradient
	made[t] = r
	return r
}
