package keras

import (
	"iter"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/flow"
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
	for _, p := range t.Parts() {
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
		a.n = n
		data, err := p.Host()
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

// pick assembles a batch from one tensor per column.
func (a *arrays) pick(columns []*Tensor) Batch {
	get := func(g group) *Tensor {
		switch {
		case g.count == 0:
			return nil
		case g.tuple:
			return tensor.Tuple(columns[g.first : g.first+g.count : g.first+g.count]...)
		}
		return columns[g.first]
	}
	return Batch{get(a.x), get(a.y), get(a.weight)}
}

// batches yields batches of up to size rows in the given order (nil: as they
// lie), without the first skip. For ring see flow.Opener.
func (a *arrays) batches(size int, drop bool, order []int32, skip, ring int) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		full := make([]Batch, 0, ring)
		for at, k := skip*size, 0; at < a.n; at, k = at+size, k+1 {
			n := min(size, a.n-at)
			if n < size && drop {
				return
			}
			var b Batch
			var err error
			if n == size && ring != flow.Forever && len(full) == ring {
				b = full[k%ring]
			} else {
				if b, err = a.alloc(n); err == nil && n == size && ring != flow.Forever {
					full = append(full, b)
				}
			}
			if err == nil {
				err = a.fill(b, at, n, order)
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

func (a *arrays) alloc(n int) (Batch, error) {
	columns := make([]*Tensor, len(a.columns))
	for i, c := range a.columns {
		var err error
		if columns[i], err = tensor.Uninitialized(c.row.DType, append(Shape{n}, c.row.Shape...)...); err != nil {
			return Batch{}, err
		}
	}
	return a.pick(columns), nil
}

// fill copies n rows, from position at of the order, into b.
func (a *arrays) fill(b Batch, at, n int, order []int32) error {
	i := 0
	for _, t := range [...]*Tensor{b.X, b.Y, b.Weight} {
		if t == nil {
			continue
		}
		for _, part := range t.Parts() {
			c := a.columns[i]
			i++
			size := c.row.Bytes()
			err := part.Overwrite(func(dst []byte) error {
				if order == nil {
					copy(dst, c.data[(a.lo+at)*size:][:n*size])
					return nil
				}
				for k, row := range order[at : at+n] {
					copy(dst[k*size:(k+1)*size], c.data[(a.lo+int(row))*size:][:size])
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
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
