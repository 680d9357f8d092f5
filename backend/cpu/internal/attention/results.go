package attention

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// headResult is a result whose rows, of so many features, come from scratch memory and
// are scaled and rounded on their way.
type headResult struct {
	exec.Result
	features int
	scaled   lanes.Rows
	scale    vec.RowScale // scales many rows at once, or nil
}

func newHeadResult(p exec.Result, features int) headResult {
	h := headResult{Result: p, features: features, scaled: p.Rows(features)}
	v := vec.Native()
	if v == nil || v.Scores == nil || h.scaled.Staged {
		return h
	}
	all := &v.RowScales
	if h.scaled.NonTemporal {
		all = &v.RowScalesNT
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

// store multiplies row i of x by by[i*step] and writes it to row first+i*stride of the
// result. Rows of x are ld bytes apart. It may change x; s is scratch memory.
func (h *headResult) store(r *exec.Run, first, stride int, x unsafe.Pointer, ld, rows int, by []float32, step int, s []float32) {
	size, out := h.features*h.DType.Size(), h.In(r)
	if size == 0 || rows == 0 {
		return
	}
	if h.scale != nil {
		h.scale(unsafe.Pointer(&out[first*size]), x, stride*size, ld, h.features, rows, unsafe.Pointer(&by[0]), 4*step)
		return
	}
	for i := range rows {
		row, to := floatsAt(unsafe.Add(x, i*ld), h.features), out[(first+i*stride)*size:][:size]
		if !h.scaled.Staged {
			h.scaled.ScaleRow(to, row, by[i*step], s)
			continue
		}
		scaleRow(row, by[i*step])
		lanes.FromF32(to, row, h.DType)
	}
}

// storeAll is store with one factor for all rows.
func (h *headResult) storeAll(r *exec.Run, first, stride int, x unsafe.Pointer, ld, rows int, by float32, s []float32) {
	one := s[lanes.PassNumbers-1:][:1]
	one[0] = by
	h.store(r, first, stride, x, ld, rows, one, 0, s)
}

// clear sets a row to 0.
func (h *headResult) clear(r *exec.Run, row int) {
	size := h.features * h.DType.Size()
	clear(h.In(r)[row*size : (row+1)*size])
}

// prefetch adds rows of the result to a, unless they are written by non-temporal
// stores.
func (h *headResult) prefetch(r *exec.Run, a *prefetchList, batch, steps, heads, head, step, rows int) {
	if !h.scaled.NonTemporal {
		a.add(h.In(r), h.DType.Size(), batch, steps, heads, head, step, rows, h.features)
	}
}
