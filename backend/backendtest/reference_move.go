package backendtest

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/philox"
)

// pick copies the elements of a at the given positions, in order.
func pick(a array, at []int) []byte {
	size := a.DType.Size()
	out := make([]byte, 0, len(at)*size)
	for _, i := range at {
		out = append(out, a.data[i*size:][:size]...)
	}
	return out
}

// filled is n elements of the value v, converted after the rules of dtype.
func filled(d dtype.DType, n int, v float64) []byte {
	f := make([]float64, n)
	for i := range f {
		f[i] = v
	}
	out := make([]byte, n*d.Size())
	dtype.FromF64(out, f, d)
	return out
}

// movements are the operations that copy elements, and the leaves.
var movements = map[op.Code]func(op.Attr, op.Type, []array) (result, error){
	op.Const: func(a op.Attr, t op.Type, _ []array) (result, error) {
		data := a.Data
		if data == nil {
			data = filled(t.DType, t.Shape.Size(), a.Value)
		}
		// Through Identity, which may quieten a NaN: constants are no outputs.
		return elementwise(op.Identity, t, []array{{t, data}})
	},
	op.Iota: func(_ op.Attr, t op.Type, _ []array) (result, error) {
		r := result{Type: t, raw: make([]byte, t.Bytes())}
		n := make([]int64, t.Shape.Size())
		for i := range n {
			n[i] = int64(i % t.Shape[len(t.Shape)-1])
		}
		dtype.FromI64(r.raw, n, t.DType)
		return r, nil
	},
	op.RandomUniform: func(a op.Attr, t op.Type, x []array) (result, error) {
		state := x[0].ints()
		u := make([]float32, t.Shape.Size())
		if a.Bits == 16 {
			philox.Uniform16(uint64(state[0]), uint64(state[1]), a.Stream, u)
		} else {
			philox.Uniform(uint64(state[0]), uint64(state[1]), a.Stream, u)
		}
		r := result{Type: t, raw: make([]byte, t.Bytes())}
		dtype.FromF32(r.raw, u, dtype.Float32)
		return r, nil
	},
	op.Barrier: func(_ op.Attr, t op.Type, x []array) (result, error) {
		return result{Type: t, raw: slices.Clone(x[0].data)}, nil
	},
	op.Reshape: func(_ op.Attr, t op.Type, x []array) (result, error) {
		return result{Type: t, raw: slices.Clone(x[0].data)}, nil
	},
	op.Transpose: func(a op.Attr, t op.Type, x []array) (result, error) {
		st := strides(x[0].Shape)
		return moved(t, x[0], func(index []int) (at int) {
			for i, p := range a.Perm {
				at += index[i] * st[p]
			}
			return at
		}), nil
	},
	op.BroadcastTo: func(_ op.Attr, t op.Type, x []array) (result, error) {
		return result{Type: t, raw: pick(x[0], broadcastIndex(x[0].Shape, t.Shape))}, nil
	},
	op.Slice: func(a op.Attr, t op.Type, x []array) (result, error) {
		st := strides(x[0].Shape)
		return moved(t, x[0], func(index []int) (at int) {
			for i := range index {
				at += (a.Start[i] + index[i]*a.Stride[i]) * st[i]
			}
			return at
		}), nil
	},
	op.Result: func(a op.Attr, t op.Type, x []array) (result, error) {
		size := t.DType.Size()
		return result{Type: t, raw: slices.Clone(x[0].data[a.Start[0]*size:][:t.Bytes()])}, nil
	},
	op.Concat: concat,
	op.Pad:    pad,
	op.Gather: func(_ op.Attr, t op.Type, x []array) (result, error) {
		row := x[0].Shape[1:].Size()
		idx := x[1].ints()
		if err := checkIndices(op.Gather, idx, x[0].Shape[0]); err != nil {
			return result{}, err
		}
		var at []int
		for _, i := range idx {
			for j := range row {
				at = append(at, int(i)*row+j)
			}
		}
		return result{Type: t, raw: pick(x[0], at)}, nil
	},
	op.TakeAlongAxis: func(_ op.Attr, t op.Type, x []array) (result, error) {
		n := x[0].Shape[len(x[0].Shape)-1]
		idx := x[1].ints()
		if err := checkIndices(op.TakeAlongAxis, idx, n); err != nil {
			return result{}, err
		}
		var at []int
		for r, i := range idx {
			at = append(at, r*n+int(i))
		}
		return result{Type: t, raw: pick(x[0], at)}, nil
	},
	op.ScatterAlongAxis: func(a op.Attr, t op.Type, x []array) (result, error) {
		out := newArray(t)
		size := t.DType.Size()
		idx := x[1].ints()
		if err := checkIndices(op.ScatterAlongAxis, idx, a.Size); err != nil {
			return result{}, err
		}
		for r, i := range idx {
			copy(out.data[(r*a.Size+int(i))*size:], x[0].data[r*size:][:size])
		}
		return result{Type: t, raw: out.data}, nil
	},
	op.ScatterAdd: scatterAdd,
	op.ScatterUpdate: func(_ op.Attr, t op.Type, x []array) (result, error) {
		out := slices.Clone(x[0].data)
		row := t.Shape[1:].Size() * t.DType.Size()
		for k, i := range x[1].ints() {
			if i >= 0 && i < int64(t.Shape[0]) {
				copy(out[int(i)*row:], x[2].data[k*row:][:row])
			}
		}
		return result{Type: t, raw: out}, nil
	},
	op.Unique: func(a op.Attr, t op.Type, x []array) (result, error) {
		n := t.Shape[1]
		var distinct []int64
		r := result{Type: t, raw: make([]byte, t.Bytes())}
		out := make([]int64, 2*n)
		for k, i := range x[0].ints() {
			at := slices.Index(distinct, i)
			if at < 0 {
				at = len(distinct)
				distinct = append(distinct, i)
			}
			out[k] = int64(at)
		}
		for k := range n {
			out[n+k] = int64(a.Padding)
			if k < len(distinct) {
				out[n+k] = distinct[k]
			}
		}
		dtype.FromI64(r.raw, out, t.DType)
		return r, nil
	},
}

// moved builds a result of copied elements: from gives the position in x of
// the element at an index.
func moved(t op.Type, x array, from func(index []int) int) result {
	at := make([]int, t.Shape.Size())
	walk(t.Shape, func(pos int, index []int) { at[pos] = from(index) })
	return result{Type: t, raw: pick(x, at)}
}

// checkIndices reports the first index outside 0 … n-1.
func checkIndices(c op.Code, idx []int64, n int) error {
	for pos, i := range idx {
		if i < 0 || i >= int64(n) {
			return &driver.IndexError{Op: c, Got: i, Position: pos, Size: n}
		}
	}
	return nil
}

func concat(a op.Attr, t op.Type, x []array) (result, error) {
	axis, size := a.Axes[0], t.DType.Size()
	outer := t.Shape[:axis].Size()
	r := result{Type: t, raw: make([]byte, 0, t.Bytes())}
	for i := range outer {
		for _, p := range x {
			chunk := p.Shape[axis:].Size() * size
			r.raw = append(r.raw, p.data[i*chunk:][:chunk]...)
		}
	}
	return r, nil
}

func pad(a op.Attr, t op.Type, x []array) (result, error) {
	size := t.DType.Size()
	r := result{Type: t, raw: filled(t.DType, t.Shape.Size(), a.Value)}
	st := strides(t.Shape)
	walk(x[0].Shape, func(pos int, index []int) {
		at := 0
		for i, d := range index {
			at += (d + a.Low[i]) * st[i]
		}
		copy(r.raw[at*size:], x[0].data[pos*size:][:size])
	})
	return r, nil
}

// scatterAdd adds in the accumulator type and rounds once.
func scatterAdd(a op.Attr, t op.Type, x []array) (result, error) {
	n := t.Shape.Size()
	row := t.Shape[1:].Size()
	idx := x[1].ints()
	if err := checkIndices(op.ScatterAdd, idx, a.Size); err != nil {
		return result{}, err
	}
	r := result{Type: t}
	if !t.DType.IsFloat() {
		r.i = make([]int64, n)
		v := x[0].ints()
		for k, i := range idx {
			for j := range row {
				at := int(i)*row + j
				r.i[at] = wrap(r.i[at]+v[k*row+j], t.DType)
			}
		}
		return r, nil
	}
	acc := make([]accumulator, n)
	v := x[0].floats()
	for k, i := range idx {
		for j := range row {
			acc[int(i)*row+j].add(v[k*row+j])
		}
	}
	for _, s := range acc {
		r.f = append(r.f, s.value())
		r.tol = append(r.tol, sumTolerance(t.DType, t.DType, s.value(), math.Abs(s.magnitude)))
	}
	return r, nil
}
