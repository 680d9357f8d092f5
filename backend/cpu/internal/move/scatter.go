package move

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// scatterAdd is the kernel of ScatterAdd. Floats of up to 32 bits are summed in
// float32, in an order that depends on the shape alone.
type scatterAdd struct {
	indices
	src, dst int
	dtype    dtype.DType
	inner    int // elements of a row
	chunks   int
	rows     int // rows of the result per chunk
	plus     func(dst []float32, src []byte)

	// If the operand has many more rows than the result, its rows are cut into parts,
	// each of which adds to its own table: so they are read in order, and once. The
	// tables are then joined in order. Otherwise a chunk is a range of rows of the
	// result. Long rows are each computed at once from the operand rows that sorted
	// lists, and written once; for short rows the chunk reads all indices.
	parts, part int
	join        joinTables
	sorted      *sortedRows
}

func NewScatterAdd(b *exec.Builder, v *ir.Value) exec.Kernel {
	x, idx := v.Args[0].Type, v.Args[1].Type
	k := &scatterAdd{indices: newIndices(b, v, v.Attr.Size), src: b.At(v.Args[0]), dst: b.At(v), dtype: x.DType}
	k.inner = x.Shape[len(idx.Shape):].Size()
	k.plus = adder(k.dtype)
	k.chunks = min(8, max(1, k.limit))
	k.rows = (k.limit + k.chunks - 1) / k.chunks
	k.join.scatterAdd = k
	width := lanes.TypeOf(k.dtype).Size()
	if k.plus != nil && k.n >= 16*k.limit && k.limit > 0 && !isa.PortableBits() {
		k.parts = min(8, k.n/(8*k.limit))
		k.part = (k.n + k.parts - 1) / k.parts
		b.ReserveShared(k.parts * k.limit * k.inner * width)
	} else if k.plus != nil && k.inner >= LongRow {
		k.sorted = newSortedRows(b, k, v.Type)
		return k
	} else if !lanes.Native(k.dtype) {
		b.ReserveShared(k.limit * k.inner * width)
	}
	b.ReserveScratch(lanes.Block * 8)
	return k
}

func (k *scatterAdd) Run(r *exec.Run) {
	if k.limit == 0 && k.n > 0 {
		k.at(r, 0)
	}
	if k.sorted != nil {
		k.sorted.Run(r)
	} else if k.parts > 0 {
		r.Parallel(k, k.parts, k.n*k.inner)
		r.Parallel(&k.join, k.chunks, k.parts*k.limit*k.inner)
	} else {
		r.Parallel(k, k.chunks, k.limit*k.inner+k.n*k.inner)
	}
	k.Check(r)
}

func (k *scatterAdd) Chunk(r *exec.Run, w *exec.Worker, c int) {
	if k.parts > 0 {
		k.table(r, c)
		return
	}
	lo, hi := min(k.limit, c*k.rows), min(k.limit, (c+1)*k.rows)
	switch lanes.TypeOf(k.dtype) {
	case lanes.F32:
		scatterRows[float32](k, r, w, lo, hi)
	case lanes.F64:
		scatterRows[float64](k, r, w, lo, hi)
	default:
		scatterRows[int64](k, r, w, lo, hi)
	}
}

// adder returns assembly that adds elements of type d to float32, or nil.
func adder(d dtype.DType) func(dst []float32, src []byte) {
	v := vec.Native()
	if v == nil {
		return nil
	}
	switch d {
	case dtype.Float32:
		return func(dst []float32, src []byte) { v.Add(dst, dst, dtype.View[float32](src)) }
	case dtype.Float16:
		return func(dst []float32, src []byte) { v.PlusF16(dst, dtype.View[uint16](src)) }
	case dtype.BFloat16:
		return func(dst []float32, src []byte) { v.PlusBF16(dst, dtype.View[uint16](src)) }
	}
	return nil
}

// table sums a part of the operand's rows, which it prefetches some at a time in long
// runs.
func (k *scatterAdd) table(r *exec.Run, c int) {
	size := k.dtype.Size()
	row, src, v := k.inner*size, r.Values[k.src], vec.Native()
	sums := lanes.ViewOf[float32](r.Shared, k.parts*k.limit*k.inner)[c*k.limit*k.inner:][:k.limit*k.inner]
	clear(sums)
	if k.inner == 1 && k.dtype == dtype.Float32 { // a histogram
		one := dtype.View[float32](src)
		for i := min(k.n, c*k.part); i < min(k.n, (c+1)*k.part); i++ {
			if at, ok := k.at(r, i); ok {
				sums[at] += one[i]
			}
		}
		return
	}
	near := max(1, 4*tiling.Grain/max(1, row))
	for lo, end := min(k.n, c*k.part), min(k.n, (c+1)*k.part); lo < end; lo += near {
		hi := min(end, lo+near)
		v.PrefetchLoad(src[lo*row : hi*row])
		for i := lo; i < hi; i++ {
			if at, ok := k.at(r, i); ok {
				k.plus(sums[at*k.inner:(at+1)*k.inner], src[i*row:(i+1)*row])
			}
		}
	}
}

// joinTables adds the tables of a range of rows and stores them.
type joinTables struct{ *scatterAdd }

func (k *joinTables) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	lo, hi := min(k.limit, c*k.rows)*k.inner, min(k.limit, (c+1)*k.rows)*k.inner
	all, plus := lanes.ViewOf[float32](r.Shared, k.parts*k.limit*k.inner), vec.Native().Add
	for ; lo < hi; lo += lanes.Block {
		n := min(lanes.Block, hi-lo)
		sum := all[lo : lo+n]
		for p := range k.parts - 1 {
			plus(sum, sum, all[(p+1)*k.limit*k.inner+lo:][:n])
		}
		size := k.dtype.Size()
		out := r.Values[k.dst][lo*size : (lo+n)*size]
		if size == 4 {
			copy(dtype.View[float32](out), sum)
		} else {
			lanes.FromF32(out, sum, k.dtype)
		}
	}
}

func scatterRows[T lanes.Number](k *scatterAdd, r *exec.Run, w *exec.Worker, lo, hi int) {
	width, size := lanes.SizeOf[T](), k.dtype.Size()
	src, dst := r.Values[k.src], r.Values[k.dst]
	sums := r.Shared
	if lanes.Native(k.dtype) {
		sums = dst
	}
	clear(sums[lo*k.inner*width : hi*k.inner*width])
	for i := range k.n {
		at, ok := k.at(r, i)
		if !ok || at < lo || at >= hi {
			continue
		}
		row := sums[at*k.inner*width : (at+1)*k.inner*width]
		x := src[i*k.inner*size : (i+1)*k.inner*size]
		for len(row) > 0 {
			n := min(lanes.Block, len(row)/width)
			if k.plus != nil {
				k.plus(dtype.View[float32](row[:n*width]), x[:n*size])
				row, x = row[n*width:], x[n*size:]
				continue
			}
			part := x[:n*size]
			if !lanes.Native(k.dtype) {
				part = w.Scratch[:n*width]
				lanes.Load(part, x[:n*size], k.dtype, lanes.TypeOf(k.dtype))
			}
			sum := dtype.View[T](row[:n*width])
			lanes.Add(sum, sum, dtype.View[T](part))
			row, x = row[n*width:], x[n*size:]
		}
	}
	if !lanes.Native(k.dtype) {
		from, to := lo*k.inner, hi*k.inner
		if k.dtype.IsInt() {
			lanes.Wrap(dtype.View[int64](sums[from*width:to*width]), k.dtype)
		}
		lanes.Store(dst[from*size:to*size], sums[from*width:to*width], k.dtype)
	}
}

// sortedRows is scatterAdd for long rows. The rows of the operand are sorted by target,
// in a stable order, so that each row of the result, most of which are zeros, is
// written once.
type sortedRows struct {
	*scatterAdd
	lanes.RowStore
	group       int // rows per chunk
	atSum, atTo int // in scratch memory
}

const (
	LongRow     = 64              // elements of a row from which on sorting pays
	sortedBytes = 1 << 18         // bytes of the result per chunk
	SortedPart  = 4 * lanes.Block // elements of a row summed at a time
)

func newSortedRows(b *exec.Builder, k *scatterAdd, result op.Type) *sortedRows {
	s := &sortedRows{scatterAdd: k, RowStore: lanes.NewRowStore(result)}
	s.group = max(1, sortedBytes/(k.inner*k.dtype.Size()))
	var l tiling.Layout
	s.atSum, s.atTo = l.Take(4*min(k.inner, SortedPart)), l.Take(2*min(k.inner, SortedPart))
	b.ReserveScratch(int(l))
	b.ReserveShared(4 * (k.limit + k.n))
	return s
}

// lists returns the sorted rows of the operand, and the end in it of each row of the
// result.
func (k *sortedRows) lists(r *exec.Run) (ends, order []int32) {
	s := lanes.ViewOf[int32](r.Shared, k.limit+k.n)
	return s[:k.limit], s[k.limit:]
}

func (k *sortedRows) Run(r *exec.Run) {
	ends, order := k.lists(r)
	clear(ends)
	for i := range k.n {
		if at, ok := k.at(r, i); ok {
			ends[at]++
		}
	}
	first := int32(0)
	for at, n := range ends {
		ends[at] = first
		first += n
	}
	for i := range k.n {
		if at := k.get(r, i); uint64(at) < uint64(k.limit) {
			order[ends[at]] = int32(i)
			ends[at]++
		}
	}
	r.Parallel(k, tiling.CeilDiv(k.limit, k.group), k.limit*k.inner+k.n*k.inner)
}

func (k *sortedRows) Chunk(r *exec.Run, w *exec.Worker, c int) {
	ends, order := k.lists(r)
	lo, hi := c*k.group, min(k.limit, (c+1)*k.group)
	first := int32(0)
	if lo > 0 {
		first = ends[lo-1]
	}
	size, v := k.inner*k.dtype.Size(), vec.Native()
	src, dst := r.Values[k.src], r.Values[k.dst]
	rowOf := func(i int32) []byte { return src[int(i)*size : (int(i)+1)*size] }
	for lo < hi {
		if ends[lo] == first {
			empty := lo
			for lo < hi && ends[lo] == first {
				lo++
			}
			k.zeros(dst[empty*size : lo*size])
			continue
		}
		if next := int(ends[lo]); next < int(ends[hi-1]) {
			v.Prefetch(rowOf(order[next]))
		}
		k.sum(dst[lo*size:(lo+1)*size], w, order[first:ends[lo]], rowOf)
		first = ends[lo]
		lo++
	}
	k.Fence()
}

// zeros clears rows of the result.
func (k *sortedRows) zeros(dst []byte) {
	if k.NonTemporal {
		vec.Native().FillNT(dst, 0)
		return
	}
	clear(dst)
}

// sum writes a row of the result: the sum of rows of of the operand.
func (k *sortedRows) sum(dst []byte, w *exec.Worker, of []int32, rowOf func(int32) []byte) {
	size := k.dtype.Size()
	for at := 0; at < k.inner; at += SortedPart {
		n := min(SortedPart, k.inner-at)
		to, sum := dst[at*size:(at+n)*size], w.Scratch[k.atSum:][:4*n]
		direct := k.dtype == dtype.Float32 && !k.NonTemporal
		if direct {
			sum = to
		}
		clear(sum)
		for _, i := range of {
			k.plus(dtype.View[float32](sum), rowOf(i)[at*size:(at+n)*size])
		}
		if !direct {
			k.Store(to, sum, w.Scratch[k.atTo:])
		}
	}
}
