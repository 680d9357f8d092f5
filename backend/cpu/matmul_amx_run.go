package cpu

import (
	"runtime"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
)

// run computes a product stripe by stripe.
func (k *panelProduct) run(r *run) {
	p := &k.result
	if p.batches*p.m*p.n == 0 {
		return
	}
	for i := range k.stripes {
		s := &k.stripes[i]
		if k.sharesB {
			clear(r.shared[:flagBytes])
			r.parallel(&s.packing, s.packings(), s.cols*p.k)
		}
		r.parallel(s, p.batches*k.down*s.across, p.batches*p.m*s.cols*p.k/64)
	}
}

// chunk computes a part of the result.
func (k *panelStripe) chunk(r *run, w *worker, i int) {
	runtime.LockOSThread()
	k.panels.Begin()
	done := k.tile(r, w, i)
	k.panels.End()
	runtime.UnlockOSThread()
	if !done {
		k.fallback.stripes[k.index].chunk(r, w, i)
	}
}

// panelBlock is a part of a chunk that kernels compute: rows and columns of
// the result, and steps of the inner dimension from p on.
type panelPart struct {
	rows, cols int
	p, depth   int
	a          unsafe.Pointer
	lda        int
	b          unsafe.Pointer
	panel      int // bytes from a panel of B to the next
	last       bool
}

// tile computes chunk i, and reports whether all elements were finite or need
// not be. Every unsafe.Pointer points into its operand, also those not used in
// the end: the garbage collector stops the program at others.
func (k *panelStripe) tile(r *run, w *worker, i int) bool {
	p := &k.result
	col := k.col + i%k.across*k.tileN
	row := i / k.across % k.down * k.tileM
	batch := i / (k.across * k.down)
	t := resultTile{row: batch*p.m + row, col: col}
	part := panelPart{rows: min(k.tileM, p.m-row), cols: min(k.tileN, k.col+k.cols-col)}

	scratch := unsafe.Pointer(&w.scratch[0])
	found := (*uint32)(scratch)
	*found = 0
	if k.sharesB {
		*found = *(*uint32)(unsafe.Pointer(&r.shared[0]))
	}
	dataA, dataB := r.values[k.a.pos], r.values[k.b.pos]
	for part.p = 0; part.p < p.k; part.p += k.depth {
		part.depth = min(k.depth, p.k-part.p)
		part.last = part.p+part.depth >= p.k
		if k.sharesB {
			part.panel = k.panelBytes(p.k)
			part.b = unsafe.Pointer(&r.shared[flagBytes+(col-k.col)/gemm.PanelCols*part.panel+k.panelBytes(part.p)])
		} else {
			part.panel = k.panelBytes(part.depth)
			part.b = unsafe.Add(scratch, k.atB)
			k.packB(w, part.b, part.panel, found, dataB, batch, col, part.cols, part.p, part.depth)
		}
		if k.packsA {
			part.a, part.lda = unsafe.Add(scratch, k.atA), k.leadA
			k.packA(w, part.a, dataA, batch, row, part.rows, part.p, part.depth)
		} else {
			part.lda = 2 * k.a.stride
			part.a = unsafe.Pointer(&dataA[2*(k.a.starts[batch]+row*k.a.stride+part.p)])
			k.edges(w, &part)
		}
		if *found != 0 {
			return false
		}
		for at := 0; at < part.cols; at += k.blockN {
			k.columns(r, w, &part, at, min(k.blockN, part.cols-at), t)
		}
	}
	return true
}

// columns computes a block of columns of a part, from column at on.
func (k *panelProduct) columns(r *run, w *worker, part *panelPart, at, cols int, t resultTile) {
	scratch := unsafe.Pointer(&w.scratch[0])
	tail := part.depth % gemm.PanelDepth
	block := part.b
	if at > 0 {
		block = unsafe.Add(block, at/gemm.PanelCols*part.panel)
	}
	more := part.cols - at - cols // columns after these
	eighth := part.panel / 8
	kernels := &k.panels.Kernels[k.parts-1]
	for i := 0; i < part.rows; i += gemm.PanelRows {
		h := min(gemm.PanelRows, part.rows-i)
		a, lda, steps := unsafe.Add(part.a, i*part.lda), part.lda, part.depth/gemm.PanelDepth
		rest := unsafe.Pointer(nil)
		switch {
		case k.packsA:
			steps = ceilDiv(part.depth, gemm.PanelDepth)
		case h%16 != 0:
			a, lda, steps = unsafe.Add(scratch, k.atEdge), k.leadA, ceilDiv(part.depth, gemm.PanelDepth)
		case tail != 0:
			rest = unsafe.Add(scratch, k.atTail+i*2*gemm.PanelDepth)
		}
		sums := unsafe.Add(scratch, k.atSums)
		if k.depth < k.result.k {
			sums = unsafe.Add(sums, i*k.lead+4*at)
		}
		fetch := i / gemm.PanelRows * eighth
		for j := 0; j < cols; j += gemm.PanelCols {
			b := block
			if j > 0 {
				b = unsafe.Add(block, j/gemm.PanelCols*part.panel)
			}
			next := b
			if j < more && i < 8*gemm.PanelRows {
				next = unsafe.Add(b, k.blockN/gemm.PanelCols*part.panel+fetch)
			}
			d := unsafe.Add(sums, 4*j)
			s := d
			if part.p == 0 {
				s = nil
			}
			kernels[(h-1)/16][(min(gemm.PanelCols, cols-j)-1)/16](steps, a, lda, k.lowA, rest, b, s, d, k.lead, next)
		}
		if part.last {
			u := t
			u.row, u.rows, u.col, u.cols, u.data, u.lead = t.row+i, h, t.col+at, cols, sums, k.lead
			k.store(r, w, u)
		}
	}
}

// edges copies what kernels must not read from A in place: the last columns of
// rows, if they do not fill a step, and the last rows, if they do not fill a
// tile register.
func (k *panelProduct) edges(w *worker, part *panelPart) {
	scratch := unsafe.Pointer(&w.scratch[0])
	whole := part.depth / gemm.PanelDepth * gemm.PanelDepth
	rows := part.rows
	if edge := rows % gemm.PanelRows; edge%16 != 0 {
		rows -= edge
		d, s := unsafe.Add(scratch, k.atEdge), unsafe.Add(part.a, rows*part.lda)
		for i := range edge {
			k.copyRow(unsafe.Add(d, i*k.leadA), unsafe.Add(s, i*part.lda), part.depth)
		}
	}
	if n := (part.depth - whole) / 2; n > 0 && rows > 0 {
		k.result.set.Lanes[gemm.F32](unsafe.Add(scratch, k.atTail), 2*gemm.PanelDepth, unsafe.Add(part.a, 2*whole), part.lda, rows, 1<<n-1, 1<<16-1)
	}
}

// copyRow copies n bfloat16, and fills the last step with zeros.
func (k *panelProduct) copyRow(d, s unsafe.Pointer, n int) {
	copy(unsafe.Slice((*uint16)(d), n), unsafe.Slice((*uint16)(s), n))
	clear(unsafe.Slice((*uint16)(unsafe.Add(d, 2*n)), roundUp(n, gemm.PanelDepth)-n))
}
