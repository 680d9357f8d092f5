package keras

import (
	"iter"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// arrays are samples in memory: columns of the same number of rows.
type arrays struct {
	n       int
	lo      int // first row, of a part of the columns
	columns []column
	x, y    group
	weight  group
}

// column is the rows of one tensor.
type column struct {
	data []byte
	row  op.Type // of one sample
}

// group says which columns make up X, Y or Weight.
type group struct {
	first, count int
	tuple        bool
}

func newArrays(x, y, weight *Tensor) *arrays {
	a := &arrays{n: -1}
	a.x = a.add("X", x)
	a.y = a.add("Y", y)
	a.weight = a.add("Weight", weight)
	if a.n < 0 {
		tensor.Fail("FromTensors", "no X given")
	}
	return a
}

func (a *arrays) add(what string, t *Tensor) group {
	g := group{first: len(a.columns)}
	if t == nil {
		return g
	}
	g.tuple = t.IsTuple()
	for _, p := range t.Unpack() {
		if p.Err() != nil {
			panic(&tensor.Error{Op: "FromTensors", Err: p.Err()})
		}
		if p.Rank() == 0 {
			tensor.Fail("FromTensors", "%s is a scalar; axis 0 counts samples", what)
		}
		n := p.Dim(0)
		if a.n >= 0 && n != a.n {
			tensor.Fail("FromTensors", "%s has %d samples, X has %d", what, n, a.n)
		}
		if a.n = n; n > math.MaxInt32 {
			tensor.Fail("FromTensors", "%s has %d samples, want at most %d", what, n, math.MaxInt32)
		}
		data, err := tensor.HostBytes(p)
		if err != nil {
			if data, err = p.Bytes(); err != nil {
				panic(&tensor.Error{Op: "FromTensors", Err: err})
			}
		}
		a.columns = append(a.columns, column{data, op.Type{DType: p.DType(), Shape: p.Shape()[1:]}})
		g.count++
	}
	return g
}

// cut returns the rows lo … hi-1.
func (a *arrays) cut(lo, hi int) *arrays {
	c := *a
	c.lo, c.n = a.lo+lo, hi-lo
	return &c
}

// all returns one batch of all rows.
func (a *arrays) all() Batch {
	columns := make([]*Tensor, len(a.columns))
	for i, c := range a.columns {
		t := op.Type{DType: c.row.DType, Shape: append(Shape{a.n}, c.row.Shape...)}
		size := c.row.Bytes()
		columns[i] = tensor.FromBytes(t, c.data[a.lo*size:(a.lo+a.n)*size])
	}
	return a.pick(columns)
}

// pick assembles a batch from one tensor per column.
func (a *arrays) pick(columns []*Tensor) Batch {
	get := func(g group) *Tensor {
		switch {
		case g.count == 0:
			return nil
		case g.tuple:
			return tensor.Tuple(slices.Clone(columns[g.first : g.first+g.count])...)
		}
		return columns[g.first]
	}
	return Batch{get(a.x), get(a.y), get(a.weight)}
}

// batches yields batches of up to size rows in the given order (nil: as they
// lie), without the first skip. Of a batch of n rows it reads those from first to end-1
// of own(n) alone, or all if own is nil; what the others hold is undefined.
func (a *arrays) batches(size int, drop bool, order []int32, skip int, hold pipeline.Hold, own func(rows int) (first, end int)) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		w := &batchWriter{arrays: a, order: order, own: own, memory: batchMemory{hold: hold}}
		w.fill = w.copyRows
		for at := skip * size; at < a.n; at += size {
			n := min(size, a.n-at)
			if n < size && drop {
				return
			}
			b, err := w.write(at, n)
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// batchWriter copies rows into batches. It holds everything that is the same for all
// batches, so that a batch allocates nothing.
type batchWriter struct {
	*arrays
	order  []int32
	own    func(rows int) (first, end int)
	memory batchMemory
	types  []op.Type // of the columns of a batch, with their axis of samples

	// The rows that are copied now, by fill, which is copyRows.
	at, n  int
	first  int // of the rows that are read
	end    int
	column *column
	fill   func(dst []byte) error
}

// write returns the batch of n rows from position at of the order.
func (w *batchWriter) write(at, n int) (Batch, error) {
	if w.types == nil || n != w.n {
		w.types = make([]op.Type, len(w.columns))
		for i, c := range w.columns {
			w.types[i] = op.Type{DType: c.row.DType, Shape: append(Shape{n}, c.row.Shape...)}
		}
	}
	w.at, w.n, w.first, w.end = at, n, 0, n
	if w.own != nil {
		w.first, w.end = w.own(n)
	}
	c, err := w.memory.next(w.types, w.pick)
	if err != nil {
		return Batch{}, err
	}
	for i, t := range c.parts {
		w.column = &w.columns[i]
		if err := tensor.Overwrite(t, w.fill); err != nil {
			return Batch{}, err
		}
	}
	return c.batch, nil
}

func (w *batchWriter) copyRows(dst []byte) error {
	data, size := w.column.data, w.column.row.Bytes()
	if w.order == nil {
		copy(dst[w.first*size:], data[(w.lo+w.at+w.first)*size:][:(w.end-w.first)*size])
		return nil
	}
	for k := w.first; k < w.end; k++ {
		copy(dst[k*size:(k+1)*size], data[(w.lo+int(w.order[w.at+k]))*size:][:size])
	}
	return nil
}

// samples yields rows one by one, without a batch axis and without the first
// skip.
func (a *arrays) samples(order []int32, skip int) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for i := skip; i < a.n; i++ {
			row := a.lo + i
			if order != nil {
				row = a.lo + int(order[i])
			}
			columns := make([]*Tensor, len(a.columns))
			for k, c := range a.columns {
				size := c.row.Bytes()
				columns[k] = tensor.FromBytes(c.row, c.data[row*size:][:size])
			}
			if !yield(a.pick(columns), nil) {
				return
			}
		}
	}
}
