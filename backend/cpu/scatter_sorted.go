package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// sortedRows is a scatterAdd of long rows. The rows of the operand are sorted by
// where they go, in order where that is the same, so that every row of the
// result is written once, and most are zeros.
type sortedRows struct {
	*scatterAdd
	lanes.RowStore
	group       int // rows of a chunk
	atSum, atTo int // in scratch memory
}

const (
	longRow     = 64              // elements of a row that is worth sorting
	sortedBytes = 1 << 18         // of the result, of a chunk
	sortedPart  = 4 * lanes.Block // elements of a row that are added up at a time
)

func newSortedRows(b *exec.Builder, k *scatterAdd, result op.Type) *sortedRows {
	s := &sortedRows{scatterAdd: k, RowStore: lanes.NewRowStore(result)}
	s.group = max(1, sortedBytes/(k.inner*k.dtype.Size()))
	var l tiling.Layout
	s.atSum, s.atTo = l.Take(4*min(k.inner, sortedPart)), l.Take(2*min(k.inner, sortedPart))
	b.ReserveScratch(int(l))
	b.ReserveShared(4 * (k.limit + k.n))
	return s
}

// lists is the rows of the operand in order, and where those of each row of the
// result end.
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
	size, v := k.inner*k.dtype.Size(), vec.Current()
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
		vec.Current().FillNT(dst, 0)
		return
	}
	clear(dst)
}

// sum makes a row of the result of some of the operand.
func (k *sortedRows) sum(dst []byte, w *exec.Worker, of []int32, rowOf func(int32) []byte) {
	size := k.dtype.Size()
	for at := 0; at < k.inner; at += sortedPart {
		n := min(sortedPart, k.inner-at)
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
