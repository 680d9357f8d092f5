package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// panelPacking is the task of packing a stripe of B into the shared memory:
// panel after panel, each with all of the inner dimension.
type panelPacking struct{ *panelStripe }

// packings is the number of its chunks: panels of a transposed B, else steps
// of the inner dimension, so that memory is read from end to end.
func (k *panelStripe) packings() int {
	if k.b.trans {
		return tiling.CeilDiv(k.cols, packGroup*gemm.PanelCols)
	}
	return tiling.CeilDiv(k.result.k, gemm.PanelDepth)
}

func (k *panelPacking) Chunk(r *exec.Run, w *exec.Worker, i int) {
	first, cols, p, end := 0, k.cols, i*gemm.PanelDepth, min((i+1)*gemm.PanelDepth, k.result.k)
	if k.b.trans {
		first, p, end = i*packGroup*gemm.PanelCols, 0, k.result.k
		cols = min(packGroup*gemm.PanelCols, cols-first)
	}
	found := (*uint32)(unsafe.Pointer(&r.Shared[0]))
	for ; p < end; p += k.depth {
		step := p / k.depth * k.depth
		size := k.panelBytes(min(k.depth, k.result.k-step))
		d := unsafe.Add(k.packed(r, step, k.col+first), k.panelBytes(p-step))
		k.packB(w, d, size, found, r.Values[k.b.pos], 0, k.col+first, cols, p, min(k.depth, end-p))
	}
}

// packed is where the panels from a column on lie in shared memory, for the
// step of the inner dimension from p on. Panels of a step follow each other.
func (k *panelStripe) packed(r *exec.Run, p, col int) unsafe.Pointer {
	size := k.panelBytes(min(k.depth, k.result.k-p))
	before := tiling.CeilDiv(k.cols, gemm.PanelCols) * k.panelBytes(p)
	return unsafe.Pointer(&r.Shared[flagBytes+before+(col-k.col)/gemm.PanelCols*size])
}

// packB packs depth steps from p on of columns from col on. Panels are size
// bytes apart.
func (k *panelProduct) packB(_ *exec.Worker, d unsafe.Pointer, size int, found *uint32, data []byte, batch, col, cols, p, depth int) {
	b, set := &k.b, k.result.set
	if b.trans {
		src := unsafe.Pointer(&data[2*(b.starts[batch]+col*b.stride+p)])
		turnPanels(set, d, size, k.parts, src, 2*b.stride, cols, depth, unsafe.Pointer(found))
		return
	}
	src := unsafe.Pointer(&data[2*(b.starts[batch]+p*b.stride+col)])
	packPanels(set, d, size, k.parts, src, 2*b.stride, cols, depth, unsafe.Pointer(found))
}

// turnPanels is packPanels of columns that are rows of memory, distance bytes
// apart.
func turnPanels(set *gemm.Set, d unsafe.Pointer, size, pieces int, src unsafe.Pointer, distance, cols, depth int, found unsafe.Pointer) {
	clearTails(d, size, pieces, cols, depth)
	wide := cols
	if pieces == 2 {
		wide = tiling.RoundUp(cols, gemm.PanelCols) // all of a panel is split
	}
	for j := 0; j < wide; j += 16 {
		n := max(0, min(16, cols-j))
		from := unsafe.Add(src, min(j, cols-1)*distance)
		to := unsafe.Add(d, j/gemm.PanelCols*size+j%gemm.PanelCols*4)
		for q := 0; q < depth; q += gemm.PanelDepth {
			set.Transpose[gemm.Pairs](unsafe.Add(to, q/gemm.PanelDepth*pieces*gemm.PanelStep), 4*gemm.PanelCols,
				unsafe.Add(from, 2*q), distance, min(gemm.PanelDepth, depth-q), 1<<n-1, 1<<16-1)
		}
	}
	splitPanels(set, d, size, pieces, cols, depth, found)
}

// splitCols is the columns that are packed before they are split: they are in the
// first cache then.
const splitCols = 8 * gemm.PanelCols

// packPanels packs depth rows of columns, distance bytes apart at src, to panels
// of so many pieces of a number, size bytes apart.
func packPanels(set *gemm.Set, d unsafe.Pointer, size, pieces int, src unsafe.Pointer, distance, cols, depth int, found unsafe.Pointer) {
	clearTails(d, size, pieces, cols, depth)
	for q := 0; q < depth; q += gemm.PanelDepth {
		n := min(gemm.PanelDepth, depth-q)
		from, to := unsafe.Add(src, q*distance), unsafe.Add(d, q/gemm.PanelDepth*pieces*gemm.PanelStep)
		for j := 0; j < cols; j += splitCols {
			width, first := min(splitCols, cols-j), unsafe.Add(to, j/gemm.PanelCols*size)
			for i := 0; i < width; i += gemm.PanelCols {
				panel := unsafe.Add(first, i/gemm.PanelCols*size)
				set.Lanes[gemm.Pairs](panel, 4*gemm.PanelCols, unsafe.Add(from, 2*(j+i)), distance, n, 1<<min(gemm.PanelCols, width-i)-1, 1<<gemm.PanelCols-1)
			}
			if pieces == 2 {
				set.Panels.Split(first, size, gemm.PanelStep, first, size, tiling.CeilDiv(width, gemm.PanelCols), gemm.PanelStep/2, found)
			}
		}
	}
}

// clearTails fills the last step of panels with zeros, if packing does not
// fill it.
func clearTails(d unsafe.Pointer, size, pieces, cols, depth int) {
	if depth%gemm.PanelDepth == 0 {
		return
	}
	step := pieces * gemm.PanelStep
	for j := 0; j < cols; j += gemm.PanelCols {
		last := unsafe.Add(d, j/gemm.PanelCols*size+depth/gemm.PanelDepth*step)
		clear(unsafe.Slice((*byte)(last), step))
	}
}

// splitPanels makes two pieces of packed numbers, if there are to be two.
func splitPanels(set *gemm.Set, d unsafe.Pointer, size, pieces, cols, depth int, found unsafe.Pointer) {
	if pieces == 1 {
		return
	}
	// Whether elements lie as pairs is nothing to their parts.
	step := pieces * gemm.PanelStep
	for j := 0; j < cols; j += gemm.PanelCols {
		panel := unsafe.Add(d, j/gemm.PanelCols*size)
		set.Panels.Split(panel, step, gemm.PanelStep, panel, step, tiling.CeilDiv(depth, gemm.PanelDepth), gemm.PanelStep/2, found)
	}
}

// packA packs rows for depth steps from p on: each part row by row. Steps
// beyond depth are zero.
func (k *panelProduct) packA(w *exec.Worker, d unsafe.Pointer, data []byte, batch, row, rows, p, depth int) {
	a, found := &k.a, unsafe.Pointer(&w.Scratch[0])
	wide := tiling.RoundUp(depth, gemm.PanelDepth)
	switch {
	case a.trans:
		src := unsafe.Pointer(&data[2*(a.starts[batch]+p*a.stride+row)])
		for q := 0; q < depth; q += gemm.PanelDepth {
			k.turn(w, unsafe.Add(d, 2*q), unsafe.Add(src, 2*q*a.stride), 2*a.stride, rows, min(gemm.PanelDepth, depth-q))
		}
		if k.parts == 2 {
			k.panels.Split(d, k.leadA, k.lowA, d, k.leadA, rows, wide, found)
		}
	case k.parts == 2:
		src := unsafe.Pointer(&data[2*(a.starts[batch]+row*a.stride+p)])
		k.panels.Split(d, k.leadA, k.lowA, src, 2*a.stride, rows, depth, found)
	default:
		src := unsafe.Pointer(&data[2*(a.starts[batch]+row*a.stride+p)])
		for i := range rows {
			k.copyRow(unsafe.Add(d, i*k.leadA), unsafe.Add(src, 2*i*a.stride), depth)
		}
	}
}

// turn packs rows that are columns in memory, for a step of the inner
// dimension.
func (k *panelProduct) turn(w *exec.Worker, d, s unsafe.Pointer, distance, rows, depth int) {
	turnPairs(k.result.set, unsafe.Pointer(&w.Scratch[k.atTurn]), d, k.leadA, s, distance, rows, depth)
}

// turnPairs packs rows that are columns at s, distance bytes from one to the
// next, for a step of the inner dimension, 32 at a time: first as lanes of
// pairs, in turnBytes at turn, then transposed to rows lead bytes apart.
func turnPairs(set *gemm.Set, turn, d unsafe.Pointer, lead int, s unsafe.Pointer, distance, rows, depth int) {
	const lanes = 4 * gemm.PanelCols // bytes of a row of pairs
	if depth < gemm.PanelDepth {
		clear(unsafe.Slice((*byte)(turn), turnBytes))
	}
	for i := 0; i < rows; i += gemm.PanelCols {
		n := min(gemm.PanelCols, rows-i)
		set.Lanes[gemm.Pairs](turn, lanes, unsafe.Add(s, 2*i), distance, depth, 1<<n-1, 1<<gemm.PanelCols-1)
		for j := 0; j < n; j += 16 {
			set.Transpose[gemm.F32](unsafe.Add(d, (i+j)*lead), lead, unsafe.Add(turn, 4*j), lanes, min(16, n-j), 1<<16-1, 1<<16-1)
		}
	}
}
