package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// While a panel of the result is computed, kernels bring to the second cache
// what is needed after it: the next panel of the second operand, and what an
// epilogue reads and writes. The processor does not foresee any of these: rows
// are a few lines long there, and far apart.

// fetchPiece is the bytes that kernels fetch at a time, every four steps.
const fetchPiece = 128

// fetchList is memory to be fetched, in parts of n pieces, stride bytes apart.
type fetchList struct {
	parts [8]struct {
		data          unsafe.Pointer
		at, stride, n int
	}
	n, next int
}

// add appends n pieces of data, the first at bytes behind its beginning.
func (f *fetchList) add(data []byte, at, stride, n int) {
	if f.n == len(f.parts) || at < 0 || at >= len(data) || stride <= 0 {
		return
	}
	p := &f.parts[f.n]
	p.data, p.at, p.stride, p.n = unsafe.Pointer(unsafe.SliceData(data)), at, stride, min(n, tiling.CeilDiv(len(data)-at, stride))
	f.n++
}

// take is where the next n pieces lie, and how far apart, or nil if nothing is
// left to fetch.
func (f *fetchList) take(n int) (unsafe.Pointer, int) {
	if f.next >= f.n {
		return nil, 0
	}
	p := &f.parts[f.next]
	at := unsafe.Add(p.data, p.at)
	if p.n -= n; p.n > 0 {
		p.at += n * p.stride
	} else {
		f.next++
	}
	return at, p.stride
}

// fetches lists what is needed after the panel of tile t that begins with its
// column j, for depth steps of the inner dimension from p on: the next panel of
// B, if B is shared, or packed meanwhile, and the memory of what follows the
// product.
func (k *part) fetches(f *fetchList, r *exec.Run, t resultTile, batch, j, p, depth int, packs bool) {
	f.n, f.next = 0, 0
	nr, col := k.tiles.NR, t.col+j+k.tiles.NR
	switch b := &k.b; {
	case k.sharesB && j+nr < t.cols:
		panel := 4 * nr * k.cells(k.k)
		at := ((t.col-k.col+j)/nr+1)*panel + 4*nr*k.cells(p)
		stride := fetchPiece
		if tiling.CeilDiv(t.rows, k.tiles.MR) >= 8 {
			stride /= 2
		}
		f.add(k.sharedB(r), at, stride, 4*nr*k.cells(depth)/stride)
	case packs && col < k.n && b.trans && b.stride == depth:
		f.add(r.Values[b.pos], (b.starts[batch]+p+col*b.stride)*b.size, fetchPiece, min(nr, k.n-col)*depth*b.size/fetchPiece)
	case packs && col < k.n && !b.trans:
		f.add(r.Values[b.pos], (b.starts[batch]+p*b.stride+col)*b.size, b.stride*b.size, depth)
	}
	if k.after != nil && k.slices == 1 {
		k.after.fetches(f, r, t.row*k.n+t.col+j, k.n, t.rows)
	}
}

// fetches lists what the epilogue reads and writes: rows of the result's
// shape, from element at on, n elements from one to the next.
func (e *epilogue) fetches(f *fetchList, r *exec.Run, at, n, rows int) {
	for i := range e.operands[1:] {
		if o := &e.operands[i+1]; o.access == full && o.made == nil {
			f.add(r.Values[o.pos], at*o.dtype.Size(), n*o.dtype.Size(), rows)
		}
	}
	for i, out := range e.outs {
		if size := e.variants[0].results[i].dtype.Size(); out >= 0 {
			f.add(r.Values[out], at*size, n*size, rows)
		}
	}
}
