package attention

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// prefetchList asks the second cache, little by little, for what is read or written
// soon: rows of a head lie so far apart that processors do not fetch them by
// themselves.
type prefetchList struct {
	rows [8]struct {
		data       []byte
		at         int // in data
		bytes      int // of a row
		rows, step int
	}
	n    int // of rows
	all  int // rows of all
	most int // of a part
}

// add has rows of features of a head fetched, from a step on.
func (a *prefetchList) add(data []byte, size, batch, steps, heads, head, step, rows, features int) {
	at := (((batch*steps+step)*heads + head) * features) * size
	if rows = min(rows, steps-step); rows <= 0 || at >= len(data) || vec.Current() == nil {
		return
	}
	r := &a.rows[a.n]
	a.n++
	a.all += rows
	r.data, r.at, r.bytes, r.rows, r.step = data, at, features*size, rows, heads*features*size
}

// part asks for the next of as many parts as were announced by most.
func (a *prefetchList) part() {
	for n := a.most; n > 0 && a.n > 0; {
		r := &a.rows[a.n-1]
		rows := min(n, r.rows)
		vec.Current().PrefetchRows(unsafe.Pointer(&r.data[r.at]), r.bytes, rows, r.step)
		n -= rows
		r.at += rows * r.step
		if r.rows -= rows; r.rows == 0 {
			a.n--
		}
	}
}

// within is how many parts a matrix of as many rows and columns is multiplied in.
func (x *blocks) within(rows, cols int) int {
	return tiling.CeilDiv(tiling.RoundUp(rows, x.tiles.Unit), x.tiles.MR) * tiling.CeilDiv(cols, x.tiles.NR)
}
