package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
)

// panelPacking is the task of packing a stripe of B into the shared memory:
// panel after panel, each with all of the inner dimension.
type panelPacking struct{ *panelStripe }

// packings is the number of its chunks: panels of a transposed B, else steps
// of the inner dimension, so that memory is read from end to end.
func (k *panelStripe) packings() int {
	if k.b.trans {
		return ceilDiv(k.cols, packGroup*gemm.PanelCols)
	}
	return ceilDiv(k.result.k, gemm.PanelDepth)
}

func (k *panelPacking) chunk(r *run, w *worker, i int) {
	first, cols, p, end := 0, k.cols, i*gemm.PanelDepth, min((i+1)*gemm.PanelDepth, k.result.k)
	if k.b.trans {
		first, p, end = i*packGroup*gemm.PanelCols, 0, k.result.k
		cols = min(packGroup*gemm.PanelCols, cols-first)
	}
	size := k.panelBytes(k.result.k)
	found := (*uint32)(unsafe.Pointer(&r.shared[0]))
	for ; p < end; p += k.depth {
		d := unsafe.Pointer(&r.shared[flagBytes+first/gemm.PanelCols*size+k.panelBytes(p)])
		k.packB(w, d, size, found, r.values[k.b.pos], 0, k.col+first, cols, p, min(k.depth, end-p))
	}
}

// halves is where rows of bfloat16 lie: the first parts of numbers, and the
// others low bytes on.
type halves struct {
	at       unsafe.Pointer
	low      int
	distance int // bytes from row to row
}

// split makes rows of n elements from s on what can be packed. Those of
// float16 become rows of their parts, in scratch memory.
func (k *panelProduct) split(w *worker, s unsafe.Pointer, distance, rows, n int, found *uint32) halves {
	if k.parts == 1 {
		return halves{s, 0, distance}
	}
	h := halves{unsafe.Pointer(&w.scratch[k.atSplit]), k.splitBytes(), 2 * n}
	for i := range rows {
		d := unsafe.Add(h.at, i*h.distance)
		k.panels.Split(d, unsafe.Add(d, h.low), unsafe.Add(s, i*distance), n, unsafe.Pointer(found))
	}
	return h
}

// packB packs depth steps from p on of columns from col on. Panels are size
// bytes apart.
func (k *panelProduct) packB(w *worker, d unsafe.Pointer, size int, found *uint32, data []byte, batch, col, cols, p, depth int) {
	const lanes = 4 * gemm.PanelCols // bytes of a row of pairs
	b, set, step := &k.b, k.result.set, k.parts*gemm.PanelStep
	if rest := depth % gemm.PanelDepth; rest != 0 {
		for j := 0; j < cols; j += gemm.PanelCols {
			last := unsafe.Add(d, j/gemm.PanelCols*size+depth/gemm.PanelDepth*step)
			clear(unsafe.Slice((*byte)(last), step))
		}
	}
	if b.trans {
		for j := 0; j < cols; j += 16 {
			n := min(16, cols-j)
			src := unsafe.Pointer(&data[2*(b.starts[batch]+(col+j)*b.stride+p)])
			h := k.split(w, src, 2*b.stride, n, depth, found)
			to := unsafe.Add(d, j/gemm.PanelCols*size+j%gemm.PanelCols*4)
			for q := 0; q < depth; q += gemm.PanelDepth {
				for part := range k.parts {
					set.Transpose[gemm.Pairs](unsafe.Add(to, q/gemm.PanelDepth*step+part*gemm.PanelStep), lanes,
						unsafe.Add(h.at, part*h.low+2*q), h.distance, min(gemm.PanelDepth, depth-q), 1<<n-1, 1<<16-1)
				}
			}
		}
		return
	}
	for q := 0; q < depth; q += gemm.PanelDepth {
		n := min(gemm.PanelDepth, depth-q)
		for first := 0; first < cols; first += splitCols {
			some := min(splitCols, cols-first)
			src := unsafe.Pointer(&data[2*(b.starts[batch]+(p+q)*b.stride+col+first)])
			h := k.split(w, src, 2*b.stride, n, some, found)
			for j := 0; j < some; j += gemm.PanelCols {
				to := unsafe.Add(d, (first+j)/gemm.PanelCols*size+q/gemm.PanelDepth*step)
				for part := range k.parts {
					set.Lanes[gemm.Pairs](unsafe.Add(to, part*gemm.PanelStep), lanes,
						unsafe.Add(h.at, part*h.low+2*j), h.distance, n, 1<<min(gemm.PanelCols, some-j)-1, 1<<gemm.PanelCols-1)
				}
			}
		}
	}
}

// packA packs rows for depth steps from p on: each part row by row. Steps
// beyond depth are zero.
func (k *panelProduct) packA(w *worker, d unsafe.Pointer, data []byte, batch, row, rows, p, depth int) {
	a := &k.a
	found := (*uint32)(unsafe.Pointer(&w.scratch[0]))
	if !a.trans {
		src := unsafe.Pointer(&data[2*(a.starts[batch]+row*a.stride+p)])
		pad := roundUp(depth, gemm.PanelDepth) - depth
		for i := range rows {
			from, to := unsafe.Add(src, 2*i*a.stride), unsafe.Add(d, i*k.leadA)
			if k.parts == 1 {
				k.copyRow(to, from, depth)
				continue
			}
			k.panels.Split(to, unsafe.Add(to, k.lowA), from, depth, unsafe.Pointer(found))
			for part := range k.parts {
				clear(unsafe.Slice((*uint16)(unsafe.Add(to, part*k.lowA+2*depth)), pad))
			}
		}
		return
	}
	for q := 0; q < depth; q += gemm.PanelDepth {
		n := min(gemm.PanelDepth, depth-q)
		for first := 0; first < rows; first += splitCols {
			some := min(splitCols, rows-first)
			src := unsafe.Pointer(&data[2*(a.starts[batch]+(p+q)*a.stride+row+first)])
			h := k.split(w, src, 2*a.stride, n, some, found)
			for part := range k.parts {
				k.turn(w, unsafe.Add(d, part*k.lowA+first*k.leadA+2*q), unsafe.Add(h.at, part*h.low), h.distance, some, n)
			}
		}
	}
}

// turn packs rows that are columns in memory, for a step of the inner
// dimension, 16 at a time: first as lanes of pairs, then transposed.
func (k *panelProduct) turn(w *worker, d, s unsafe.Pointer, distance, rows, depth int) {
	const lanes = 64 // bytes of a row of pairs
	set, turn := k.result.set, unsafe.Pointer(&w.scratch[k.atTurn])
	if depth < gemm.PanelDepth {
		clear(unsafe.Slice((*byte)(turn), lanes*gemm.PanelDepth/2))
	}
	for i := 0; i < rows; i += 16 {
		n := min(16, rows-i)
		set.Lanes[gemm.Pairs](turn, lanes, unsafe.Add(s, 2*i), distance, depth, 1<<n-1, 1<<16-1)
		set.Transpose[gemm.F32](unsafe.Add(d, i*k.leadA), k.leadA, turn, lanes, n, 1<<16-1, 1<<16-1)
	}
}
