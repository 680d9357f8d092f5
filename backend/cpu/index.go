package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// indices is the argument of indices of an operation. They are data, so they
// are the one thing that kernels check.
type indices struct {
	pos, n int
	limit  int // of the axis that they point into
	wide   bool
	op     op.Code
	path   string
}

func newIndices(b *builder, v *ir.Value, limit int) indices {
	t := v.Args[1].Type
	return indices{b.at(v.Args[1]), t.Shape.Size(), limit, t.DType == dtype.Int64, v.Op, v.Path}
}

// at is index i. The second result is false, and the run is going to fail,
// when it is out of range.
func (x *indices) at(r *run, i int) (int, bool) {
	got := x.get(r, i)
	if got >= 0 && got < int64(x.limit) {
		return int(got), true
	}
	// The first one is reported, whichever worker was faster.
	for {
		old := r.badIndex.Load()
		if old != 0 && old <= int64(i)+1 || r.badIndex.CompareAndSwap(old, int64(i)+1) {
			return 0, false
		}
	}
}

func (x *indices) get(r *run, i int) int64 {
	if x.wide {
		return dtype.View[int64](r.values[x.pos])[i]
	}
	return int64(dtype.View[int32](r.values[x.pos])[i])
}

// check makes the run fail if an index was out of range.
func (x *indices) check(r *run) {
	bad := int(r.badIndex.Swap(0)) - 1
	if bad >= 0 {
		r.failed = &driver.IndexError{Path: x.path, Op: x.op, Got: x.get(r, bad), Position: bad, Size: x.limit}
	}
}

// gather is Gather: row by row. TakeAlong is Gather of single elements, each
// from a row of its own.
type gather struct {
	indices
	src, dst int
	bytes    int // of what an index names
	along    int // bytes from the axis that one index points into to that of the next; 0 for Gather
	group    int // indices of a chunk
}

func newGather(b *builder, v *ir.Value) kernel {
	x := v.Args[0].Type
	k := &gather{indices: newIndices(b, v, x.Shape[0]), src: b.at(v.Args[0]), dst: b.at(v)}
	k.bytes = x.Shape[1:].Size() * x.DType.Size()
	k.group = max(1, 4*moveGrain/max(1, k.bytes))
	return k
}

func newTakeAlong(b *builder, v *ir.Value) kernel {
	x := v.Args[0].Type
	axis, size := x.Shape[len(x.Shape)-1], x.DType.Size()
	return &gather{newIndices(b, v, axis), b.at(v.Args[0]), b.at(v), size, axis * size, moveGrain}
}

func (k *gather) run(r *run) {
	r.parallel(k, (k.n+k.group-1)/k.group, k.n*(1+k.bytes/8))
	k.check(r)
}

func (k *gather) chunk(r *run, _ *worker, c int) {
	src, dst := r.values[k.src], r.values[k.dst]
	for i := c * k.group; i < min(k.n, (c+1)*k.group); i++ {
		if at, ok := k.at(r, i); ok {
			from := i*k.along + at*k.bytes
			copy(dst[i*k.bytes:(i+1)*k.bytes], src[from:from+k.bytes])
		}
	}
}

// putAlong is PutAlong.
type putAlong struct {
	indices
	src, dst, size int
}

func newPutAlong(b *builder, v *ir.Value) kernel {
	return &putAlong{newIndices(b, v, v.Attr.N), b.at(v.Args[0]), b.at(v), v.Type.DType.Size()}
}

const putGrain = 1 << 10

func (k *putAlong) run(r *run) {
	r.parallel(k, (k.n+putGrain-1)/putGrain, k.n*(4+k.limit/8))
	k.check(r)
}

func (k *putAlong) chunk(r *run, _ *worker, c int) {
	src, dst := r.values[k.src], r.values[k.dst]
	row := k.limit * k.size
	for i := c * putGrain; i < min(k.n, (c+1)*putGrain); i++ {
		clear(dst[i*row : (i+1)*row])
		if at, ok := k.at(r, i); ok {
			copy(dst[i*row+at*k.size:], src[i*k.size:(i+1)*k.size])
		}
	}
}

// scatterAdd is ScatterAdd. A chunk is a range of rows of the result: it reads
// all indices and adds what belongs to its rows, in order. 16-bit types add up
// in float32, in memory that the workers share.
type scatterAdd struct {
	indices
	src, dst int
	dtype    dtype.DType
	inner    int // elements of a row
	chunks   int
	rows     int // of a chunk
}

func newScatterAdd(b *builder, v *ir.Value) kernel {
	x, idx := v.Args[0].Type, v.Args[1].Type
	k := &scatterAdd{indices: newIndices(b, v, v.Attr.N), src: b.at(v.Args[0]), dst: b.at(v), dtype: x.DType}
	k.inner = x.Shape[len(idx.Shape):].Size()
	// Each chunk reads all indices, so there are only a few.
	k.chunks = min(8, max(1, k.limit))
	k.rows = (k.limit + k.chunks - 1) / k.chunks
	if !native(k.dtype) {
		b.wantShared(k.limit * k.inner * domainOf(k.dtype).size())
		b.wantScratch(block * 8)
	}
	return k
}

func (k *scatterAdd) run(r *run) {
	if k.limit == 0 && k.n > 0 {
		k.at(r, 0)
	}
	r.parallel(k, k.chunks, k.limit*k.inner+k.n*k.inner)
	k.check(r)
}

func (k *scatterAdd) chunk(r *run, w *worker, c int) {
	lo, hi := min(k.limit, c*k.rows), min(k.limit, (c+1)*k.rows)
	switch domainOf(k.dtype) {
	case inF32:
		scatterRows[float32](k, r, w, lo, hi)
	case inF64:
		scatterRows[float64](k, r, w, lo, hi)
	default:
		scatterRows[int64](k, r, w, lo, hi)
	}
}

func scatterRows[T number](k *scatterAdd, r *run, w *worker, lo, hi int) {
	width, size := sizeOf[T](), k.dtype.Size()
	src, dst := r.values[k.src], r.values[k.dst]
	sums := r.shared
	if native(k.dtype) {
		sums = dst
	}
	clear(sums[lo*k.inner*width : hi*k.inner*width])
	plus := ofF32().binary[op.Add]
	for i := range k.n {
		at, ok := k.at(r, i)
		if !ok || at < lo || at >= hi {
			continue
		}
		row := sums[at*k.inner*width : (at+1)*k.inner*width]
		x := src[i*k.inner*size : (i+1)*k.inner*size]
		for len(row) > 0 {
			n := min(block, len(row)/width)
			part := x[:n*size]
			if !native(k.dtype) {
				part = w.scratch[:n*width]
				load(part, x[:n*size], k.dtype, domainOf(k.dtype))
			}
			sum := dtype.View[T](row[:n*width])
			if x, ok := any(sum).([]float32); ok {
				plus(x, x, dtype.View[float32](part))
			} else {
				add(sum, sum, dtype.View[T](part))
			}
			row, x = row[n*width:], x[n*size:]
		}
	}
	if !native(k.dtype) {
		from, to := lo*k.inner, hi*k.inner
		if k.dtype.IsInt() {
			wrap(dtype.View[int64](sums[from*width:to*width]), k.dtype)
		}
		store(dst[from*size:to*size], sums[from*width:to*width], k.dtype)
	}
}
