package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// headResult is a result of rows of so many features, which come from scratch
// memory and are multiplied and rounded.
type headResult struct {
	resultPart
	features int
	scaled   passes
	scale    vec.RowScale // of many rows, or nil
}

func newHeadResult(p resultPart, features int) headResult {
	h := headResult{resultPart: p, features: features, scaled: p.rows(features)}
	v := vec.Current()
	if v == nil || v.Scores == nil || h.scaled.staged {
		return h
	}
	all := &v.RowScales
	if h.scaled.around {
		all = &v.RowScalesAround
	}
	switch {
	case p.DType == dtype.Float32:
		h.scale = all.F32
	case p.DType == dtype.Float16:
		h.scale = all.F16
	default:
		h.scale = all.BF16
	}
	return h
}

// store writes rows of x, lead bytes apart, row i times by[i*step], to row first,
// first+apart and so on. It may change x; s is scratch memory for numbers.
func (h *headResult) store(r *run, first, apart int, x unsafe.Pointer, lead, rows int, by []float32, step int, s []float32) {
	size, out := h.features*h.DType.Size(), h.in(r)
	if size == 0 || rows == 0 {
		return
	}
	if h.scale != nil {
		h.scale(unsafe.Pointer(&out[first*size]), x, apart*size, lead, h.features, rows, unsafe.Pointer(&by[0]), 4*step)
		return
	}
	for i := range rows {
		row, to := floatsAt(unsafe.Add(x, i*lead), h.features), out[(first+i*apart)*size:][:size]
		if !h.scaled.staged {
			h.scaled.scaleRow(to, row, by[i*step], s)
			continue
		}
		scaleRow(row, by[i*step])
		fromF32(to, row, h.DType)
	}
}

// storeAll is store with one factor for all rows.
func (h *headResult) storeAll(r *run, first, apart int, x unsafe.Pointer, lead, rows int, by float32, s []float32) {
	one := s[passNumbers-1:][:1]
	one[0] = by
	h.store(r, first, apart, x, lead, rows, one, 0, s)
}

// clear makes a row 0.
func (h *headResult) clear(r *run, row int) {
	size := h.features * h.DType.Size()
	clear(h.in(r)[row*size : (row+1)*size])
}

// ahead has rows of the result fetched, unless they are written around the
// caches.
func (h *headResult) ahead(r *run, a *ahead, batch, steps, heads, head, step, rows int) {
	if !h.scaled.around {
		a.add(h.in(r), h.DType.Size(), batch, steps, heads, head, step, rows, h.features)
	}
}
