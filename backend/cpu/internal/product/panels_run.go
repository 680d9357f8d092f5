package product

import (
	"runtime"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// Run computes a product stripe by stripe.
func (k *panelProduct) Run(r *exec.Run) {
	p := &k.result
	if p.batches*p.m*p.N == 0 {
		return
	}
	for i := range k.stripes {
		s := &k.stripes[i]
		if k.sharesB() {
			clear(r.Shared[:FlagBytes])
			r.Parallel(&s.packing, s.packings(), s.cols*p.k)
		}
		r.Parallel(s, p.batches*k.Tiles.Down*s.across*p.Slices.N, p.batches*k.m*s.cols*p.k/64)
	}
	if p.Slices.N > 1 {
		r.Parallel(&p.sums, p.sums.chunks(), p.Slices.N*p.m*p.N)
	}
}

// Chunk computes a tile of the result.
func (k *panelStripe) Chunk(r *exec.Run, w *exec.Worker, i int) {
	runtime.LockOSThread()
	k.panels.Begin()
	done := k.tile(r, w, i)
	k.panels.End()
	runtime.UnlockOSThread()
	if !done {
		w.PackedA, w.PackedB = exec.PackedBlock{}, exec.PackedBlock{} // the fallback uses the same memory for its own
		k.fallback.stripes[k.index].Chunk(r, w, i)
	}
}

// panelChunk is the part of a tile that kernels compute: rows and columns of the result, and
// steps of the inner dimension from p on.
type panelChunk struct {
	rows, cols int
	p, depth   int
	a          unsafe.Pointer
	lda        int
	b          unsafe.Pointer
	panel      int // bytes from a panel of B to the next
	first      bool
	last       bool
	out        unsafe.Pointer // the result, if kernels write to it
	slice      int
	next       unsafe.Pointer // the next panels of B, to be prefetched
	nextPanel  int            // bytes from one of them to the next
	nextCols   int
}

// tile computes tile i. It returns false if an element of float16 was not finite. Every
// unsafe.Pointer must point into its operand, even if it is not used: the garbage collector
// stops the program otherwise.
func (k *panelStripe) tile(r *exec.Run, w *exec.Worker, i int) bool {
	p := &k.result
	part := panelChunk{slice: i % p.Slices.N}
	i /= p.Slices.N
	col := k.col + i%k.across*k.Tiles.Cols
	row := i / k.across % k.Tiles.Down * k.Tiles.Rows
	batch := i / (k.across * k.Tiles.Down)
	part.rows, part.cols = min(k.Tiles.Rows, k.m-row), min(k.Tiles.Cols, k.col+k.cols-col)
	t := Tile{Row: batch*p.m + row, Col: col}
	if k.Transpose {
		t.Row, t.Col = batch*p.m+col, row
	}
	if p.Direct && p.Slices.N == 1 {
		part.out = unsafe.Pointer(&r.Values[p.Out][4*(t.Row*p.N+t.Col)])
	}

	scratch := unsafe.Pointer(&w.Scratch[0])
	found := (*uint32)(scratch)
	*found = 0
	if k.sharesB() {
		*found = *(*uint32)(unsafe.Pointer(&r.Shared[0]))
	}
	begin, end := part.slice*p.Slices.K, min(p.k, (part.slice+1)*p.Slices.K)
	if k.Order == BlocksFirst {
		packs := w.PackedA.Packs(exec.PackedBlock{Batch: batch, First: row, Lanes: part.rows, P: 0, Depth: p.k})
		for at := 0; at < part.cols; at += k.BlockCols {
			cols := min(k.BlockCols, part.cols-at)
			for part.p = 0; part.p < p.k; part.p += k.Depth {
				if !k.operands(r, w, &part, row, col, batch, packs && at == 0) {
					return false
				}
				next, from := part.p+k.Depth, at
				part.nextCols = cols
				if part.last {
					next, from = 0, at+cols
					part.nextCols = min(k.BlockCols, part.cols-from)
				}
				if part.nextCols > 0 {
					part.next, part.nextPanel = k.packed(r, next, col+from), k.panelBytes(min(k.Depth, p.k-next))
				}
				k.columns(r, w, &part, at, cols, t)
			}
		}
		return true
	}
	for part.p = begin; part.p < end; part.p += k.Depth {
		if !k.operands(r, w, &part, row, col, batch, true) {
			return false
		}
		for at := 0; at < part.cols; at += k.BlockCols {
			cols := min(k.BlockCols, part.cols-at)
			part.nextCols = min(k.BlockCols, part.cols-at-cols)
			if part.nextCols > 0 {
				part.next, part.nextPanel = unsafe.Add(part.b, (at+cols)/gemm.PanelCols*part.panel), part.panel
			}
			k.columns(r, w, &part, at, cols, t)
			if part.last && (k.Transpose || p.Slices.N > 1) {
				k.storeSums(r, w, &part, at, cols, t)
			}
		}
	}
	return true
}

// operands prepares a step of the inner dimension, from part.p on. It packs A if the blocking
// packs A and packs is set. It returns false if an element of float16 was not finite.
func (k *panelStripe) operands(r *exec.Run, w *exec.Worker, part *panelChunk, row, col, batch int, packs bool) bool {
	p := &k.result
	scratch := unsafe.Pointer(&w.Scratch[0])
	found := (*uint32)(scratch)
	begin, end := part.slice*p.Slices.K, min(p.k, (part.slice+1)*p.Slices.K)
	part.depth = min(k.Depth, end-part.p)
	part.first, part.last = part.p == begin, part.p+part.depth >= end
	part.panel = k.panelBytes(part.depth)
	if k.sharesB() {
		part.b = k.packed(r, part.p, col)
	} else {
		part.b = unsafe.Add(scratch, k.atB)
		k.packB(w, part.b, part.panel, found, r.Values[k.b.pos], batch, col, part.cols, part.p, part.depth)
	}
	dataA := r.Values[k.a.pos]
	if k.packsA() {
		part.a, part.lda = unsafe.Add(scratch, k.atA), k.ldA
		if k.Order == BlocksFirst {
			part.a = unsafe.Add(part.a, part.p/k.Depth*k.stepA)
		}
		if packs {
			k.packA(w, part.a, dataA, batch, row, part.rows, part.p, part.depth)
		}
	} else {
		part.lda = 2 * k.a.stride
		part.a = unsafe.Pointer(&dataA[2*(k.a.starts[batch]+row*k.a.stride+part.p)])
		k.edges(w, part)
	}
	return *found == 0
}

// columns computes a block of columns of part, from column at on.
func (k *panelProduct) columns(r *exec.Run, w *exec.Worker, part *panelChunk, at, cols int, t Tile) {
	scratch := unsafe.Pointer(&w.Scratch[0])
	tail := part.depth % gemm.PanelDepth
	block := part.b
	if at > 0 {
		block = unsafe.Add(block, at/gemm.PanelCols*part.panel)
	}
	eighth := part.nextPanel / 8
	kernels := &k.panels.Kernels[k.pieces-1]
	for i := 0; i < part.rows; i += gemm.PanelRows {
		h := min(gemm.PanelRows, part.rows-i)
		a, lda, steps := unsafe.Add(part.a, i*part.lda), part.lda, part.depth/gemm.PanelDepth
		rest := unsafe.Pointer(nil)
		switch {
		case k.packsA():
			steps = tiling.CeilDiv(part.depth, gemm.PanelDepth)
		case h%16 != 0:
			a, lda, steps = unsafe.Add(scratch, k.atEdge), k.ldA, tiling.CeilDiv(part.depth, gemm.PanelDepth)
		case tail != 0:
			rest = unsafe.Add(scratch, k.atTail+i*2*gemm.PanelDepth)
		}
		sums, ld := unsafe.Add(scratch, k.atSums), k.ld
		switch {
		case k.Direct:
			ld = 4 * k.result.N
			sums = unsafe.Add(part.out, i*ld+4*at)
		case k.Order == BlocksFirst:
			sums = unsafe.Add(sums, i*ld)
		case k.Transpose || k.Depth < k.result.k:
			sums = unsafe.Add(sums, i*ld+4*at)
		}
		done := i / gemm.PanelRows * eighth
		for j := 0; j < cols; j += gemm.PanelCols {
			b := block
			if j > 0 {
				b = unsafe.Add(block, j/gemm.PanelCols*part.panel)
			}
			next := b
			if j < part.nextCols && i < 8*gemm.PanelRows {
				next = unsafe.Add(part.next, j/gemm.PanelCols*part.nextPanel+done)
			}
			d := unsafe.Add(sums, 4*j)
			s := d
			if part.first {
				s = nil
			}
			width := min(gemm.PanelCols, cols-j)
			kernels[(h-1)/16][(width-1)/16](steps, a, lda, k.lowA, rest, b, s, d, ld, next)
			if k.tileEpilogue != nil && k.Direct {
				k.tileEpilogue.tile(r, t.Row+i, t.Col+at+j, h, ld, d, 1<<width-1)
			}
		}
		if part.last && !k.Direct && !k.Transpose && k.result.Slices.N == 1 {
			u := t
			u.Row, u.Rows, u.Col, u.Cols, u.Data, u.LD = t.Row+i, h, t.Col+at, cols, sums, ld
			k.store(r, w, u)
		}
	}
}

// storeSums stores the sums of a block of columns, from column at on, in the transposed result or
// in the result of a slice.
func (k *panelProduct) storeSums(r *exec.Run, w *exec.Worker, part *panelChunk, at, cols int, t Tile) {
	p := &k.result
	sums := unsafe.Add(unsafe.Pointer(&w.Scratch[k.atSums]), 4*at)
	if !k.Transpose {
		for i := range part.rows {
			to := r.Shared[part.slice*p.partBytes()+(t.Row+i)*p.Slices.LD+4*(t.Col+at):][:4*cols]
			copy(to, unsafe.Slice((*byte)(unsafe.Add(sums, i*k.ld)), 4*cols))
		}
		return
	}
	t.Row += at
	var d unsafe.Pointer
	ld := k.ldTransposed
	switch {
	case p.Slices.N > 1:
		d, ld = unsafe.Pointer(&r.Shared[part.slice*p.partBytes()+t.Row*p.Slices.LD]), p.Slices.LD
	case p.Direct:
		ld = 4 * p.N
		d = unsafe.Add(part.out, at*ld)
	default:
		d = unsafe.Pointer(&w.Scratch[k.atTransposed])
	}
	for i := 0; i < part.rows; i += 16 {
		h := min(16, part.rows-i)
		p.Set.Transpose[gemm.F32](unsafe.Add(d, 4*i), ld, unsafe.Add(sums, i*k.ld), k.ld, cols, 1<<h-1, 1<<h-1)
	}
	if p.Slices.N == 1 && !p.Direct {
		t.Rows, t.Cols, t.Data, t.LD = cols, part.rows, d, ld
		k.store(r, w, t)
	}
}

// edges copies the parts of A that kernels must not read in place: the last columns of rows,
// if they do not fill a step, and the last rows, if they do not fill a tile register.
func (k *panelProduct) edges(w *exec.Worker, part *panelChunk) {
	scratch := unsafe.Pointer(&w.Scratch[0])
	whole := part.depth / gemm.PanelDepth * gemm.PanelDepth
	rows := part.rows
	if edge := rows % gemm.PanelRows; edge%16 != 0 {
		rows -= edge
		d, s := unsafe.Add(scratch, k.atEdge), unsafe.Add(part.a, rows*part.lda)
		for i := range edge {
			k.copyRow(unsafe.Add(d, i*k.ldA), unsafe.Add(s, i*part.lda), part.depth)
		}
	}
	if n := (part.depth - whole) / 2; n > 0 && rows > 0 {
		k.result.Set.Lanes[gemm.F32](unsafe.Add(scratch, k.atTail), 2*gemm.PanelDepth, unsafe.Add(part.a, 2*whole), part.lda, rows, 1<<n-1, 1<<16-1)
	}
}

// copyRow copies n bfloat16, and pads the last step with zeros.
func (k *panelProduct) copyRow(d, s unsafe.Pointer, n int) {
	copy(unsafe.Slice((*uint16)(d), n), unsafe.Slice((*uint16)(s), n))
	clear(unsafe.Slice((*uint16)(unsafe.Add(d, 2*n)), tiling.RoundUp(n, gemm.PanelDepth)-n))
}
