package attention

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// prefetchList lists rows to prefetch into L2, a few at a time. Rows of a head are too
// far apart for the hardware prefetcher.
type prefetchList struct {
	rows [8]struct {
		data       []byte
		at         int // offset in data
		bytes      int // per row
		rows, step int
	}
	n    int // used entries of rows
	all  int // rows not yet prefetched at the start
	most int // rows per part
}

// add appends rows of a head's features, from a step on.
func (a *prefetchList) add(data []byte, size, batch, steps, heads, head, step, rows, features int) {
	at := (((batch*steps+step)*heads + head) * features) * size
	if rows = min(rows, steps-step); rows <= 0 || at >= len(data) || vec.Native() == nil {
		return
	}
	r := &a.rows[a.n]
	a.n++
	a.all += rows
	r.data, r.at, r.bytes, r.rows, r.step = data, at, features*size, rows, heads*features*size
}

// part prefetches the next most rows.
func (a *prefetchList) part() {
	for n := a.most; n > 0 && a.n > 0; {
		r := &a.rows[a.n-1]
		rows := min(n, r.rows)
		vec.Native().PrefetchRows(unsafe.Pointer(&r.data[r.at]), r.bytes, rows, r.step)
		n -= rows
		r.at += rows * r.step
		if r.rows -= rows; r.rows == 0 {
			a.n--
		}
	}
}

// within returns how many micro-kernel calls multiply computes rows × cols sums in.
func (x *blocks) within(rows, cols int) int {
	return tiling.CeilDiv(tiling.RoundUp(rows, x.tiles.Unit), x.tiles.MR) * tiling.CeilDiv(cols, x.tiles.NR)
}
