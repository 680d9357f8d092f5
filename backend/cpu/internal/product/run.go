package product

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// Run computes a product stripe by stripe.
func (k *product) Run(r *exec.Run) {
	if k.batches*k.m*k.N == 0 {
		return
	}
	kept := false
	if k.caches {
		var changed bool
		if kept, changed = r.PackedCopy(k.cache, k.b.pos); changed {
			k.uncached.Run(r)
			return
		}
	}
	for i := range k.stripes {
		p := &k.stripes[i]
		if k.sharesB && !kept {
			r.Parallel(&p.packing, p.packings(), p.cols*k.k)
		}
		// A multiplication takes a small part of an element operation's time.
		r.Parallel(p, k.batches*k.down*p.across*k.slices, k.batches*k.m*p.cols*max(k.k, 1)/16)
	}
	if k.slices > 1 {
		r.Parallel(&k.sums, k.sums.chunks(), k.slices*k.m*k.N)
	}
}

// sharedB is the memory in which B is packed for all workers.
func (k *product) sharedB(r *exec.Run) []byte {
	if k.caches {
		return r.Packed[k.cache].Data
	}
	return r.Shared
}

// Packing goes through a matrix in blocks of this many steps of the inner
// dimension: so it reads rows that lie k by k from end to end, which processors
// foresee for about as many rows, and not a column of them at a time.
const packDepth = 32

// packGroup is the number of panels of a transposed B that are packed as one
// chunk.
const packGroup = 4

// packing is the task of packing a stripe of B into the shared memory: panels
// of NR columns one after the other, each with all of the inner dimension.
type packing struct{ *stripe }

// packings is the number of its chunks.
func (k *stripe) packings() int {
	if k.b.trans {
		return tiling.CeilDiv(k.cols, packGroup*k.tiles.NR)
	}
	return tiling.CeilDiv(k.k, packDepth)
}

func (k *packing) Chunk(r *exec.Run, _ *exec.Worker, i int) {
	cells := k.cells(k.k)
	first, cols, p, depth := 0, k.cols, i*packDepth, min(packDepth, k.k-i*packDepth)
	if k.b.trans {
		first = i * packGroup * k.tiles.NR
		cols = min(packGroup*k.tiles.NR, k.cols-first)
		p, depth = 0, k.k
	}
	d := unsafe.Pointer(&k.sharedB(r)[4*(first*cells+k.cells(p)*k.tiles.NR)])
	k.packB(d, 4*cells*k.tiles.NR, r.Values[k.b.pos], 0, k.col+first, cols, p, depth)
}

// packB packs depth steps from p on of columns from col on. Panels are size
// bytes apart.
func (k *product) packB(d unsafe.Pointer, size int, data []byte, batch, col, cols, p, depth int) {
	b, nr := &k.b, k.tiles.NR
	src, lds := unsafe.Pointer(unsafe.SliceData(data)), b.stride*b.size
	if b.trans {
		src = unsafe.Add(src, (b.starts[batch]+col*b.stride+p)*b.size)
		for j := 0; j < cols; j += nr {
			to := unsafe.Add(d, j/nr*size)
			for i := 0; i < nr; i += 16 {
				from, load, store := src, max(0, min(16, cols-j-i)), min(16, nr-i)
				if load > 0 {
					from = unsafe.Add(src, (j+i)*lds)
				}
				k.Set.Transpose[b.element](unsafe.Add(to, 4*i), 4*nr, from, lds, depth, 1<<load-1, 1<<store-1)
			}
		}
		return
	}
	src = unsafe.Add(src, (b.starts[batch]+p*b.stride+col)*b.size)
	for q := 0; q < depth; q += packDepth {
		n := min(packDepth, depth-q)
		for j := 0; j < cols; j += nr {
			to := unsafe.Add(d, j/nr*size+4*nr*k.cells(q))
			k.Set.Lanes[b.element](to, 4*nr, unsafe.Add(src, q*lds+j*b.size), lds, n, 1<<min(nr, cols-j)-1, 1<<nr-1)
		}
	}
}

// packA packs rows for depth steps from p on: row by row; step by step if A is
// transposed and kernels read it so; or in panels of the rows that a kernel
// takes, if A is transposed or to become so.
func (k *product) packA(d unsafe.Pointer, data []byte, batch, row, rows, p, depth int) {
	a, cells := &k.a, k.cells(depth)
	src, lds := unsafe.Pointer(unsafe.SliceData(data)), a.stride*a.size
	if a.trans {
		src = unsafe.Add(src, (a.starts[batch]+p*a.stride+row)*a.size)
		for q := 0; a.stored && q < depth; q++ {
			k.Set.Widen[a.element](unsafe.Add(d, q*a.lead), unsafe.Add(src, q*lds), rows)
		}
		if a.stored {
			return
		}
		heights := tiling.CeilDiv(rows, k.tiles.MR)
		for q := 0; q < depth; q += packDepth {
			n := min(packDepth, depth-q)
			from := unsafe.Add(src, q*lds)
			for i := range heights {
				at, end := tiling.Cut(i, heights, rows)
				h := end - at
				k.Set.Lanes[a.element](unsafe.Add(d, 4*(at*cells+k.cells(q)*h)), 4*h, unsafe.Add(from, at*a.size), lds, n, 1<<h-1, 1<<h-1)
			}
		}
		return
	}
	src = unsafe.Add(src, (a.starts[batch]+row*a.stride+p)*a.size)
	if a.panels {
		heights := tiling.CeilDiv(rows, k.tiles.MR)
		for i := range heights {
			at, end := tiling.Cut(i, heights, rows)
			h := end - at
			k.Set.Transpose[a.element](unsafe.Add(d, 4*at*cells), 4*h, unsafe.Add(src, at*lds), lds, depth, 1<<h-1, 1<<h-1)
		}
		return
	}
	if widen := k.Set.Widen[a.element]; widen != nil && a.stride == depth && a.lead == 4*depth {
		widen(d, src, rows*depth) // rows follow each other
		return
	}
	for i := range rows {
		from, to := unsafe.Add(src, i*lds), unsafe.Add(d, i*a.lead)
		switch {
		case a.element.Converts():
			k.Set.Widen[a.element](to, from, depth)
		default:
			n := depth * a.size
			copy(unsafe.Slice((*byte)(to), n), unsafe.Slice((*byte)(from), n))
			clear(unsafe.Slice((*byte)(unsafe.Add(to, n)), 4*cells-n))
		}
	}
}

// prefetchNext is the operands that the next chunk reads, where chunks are small
// products of a batch that the caches have no room for: they are fetched while
// this one is computed.
func (k *stripe) prefetchNext(batch int, dataA, dataB []byte) (operands [2][]byte) {
	if k.down*k.across*k.slices > 1 || len(k.stripes) > 1 || batch+1 >= k.batches || k.depth < k.k || len(dataA)+len(dataB) <= 2*smallBytes {
		return operands
	}
	for i, of := range []*operandOf{&k.a, &k.b} {
		from, to := of.starts[batch]*of.size, of.starts[batch+1]*of.size
		data := [2][]byte{dataA, dataB}[i]
		if from < to && 2*to-from <= len(data) {
			operands[i] = data[to : 2*to-from]
		}
	}
	return operands
}

// panelB is the panel of B for the columns of tile t from column j of it on, and
// depth steps from p on, and the distance of its rows: where B lies, shared, or
// packed, the worker's own. That is written when first is set, for the first rows
// of a tile, if packs is: here, or by a kernel, which reads the panel where it
// lies and copies it to copied.
func (k *stripe) panelB(r *exec.Run, t Tile, batch, j, p, depth int, packed unsafe.Pointer, first, packs bool) (b unsafe.Pointer, ldb int, copied unsafe.Pointer) {
	nr, col := k.tiles.NR, t.Col+j
	cols := min(nr, t.Cols-j)
	if k.sharesB {
		return unsafe.Pointer(&k.sharedB(r)[4*((col-k.col)*k.cells(k.k)+nr*k.cells(p))]), 4 * nr, nil
	}
	data := r.Values[k.b.pos]
	if k.b.packed && !k.onePanel {
		packed = unsafe.Add(packed, 4*j*k.cells(depth))
	}
	inPlace := !k.b.packed && cols == nr // rows of B must be whole
	if copies := first && packs && k.copies && cols == nr; inPlace || copies {
		b = unsafe.Add(unsafe.Pointer(unsafe.SliceData(data)), (k.b.starts[batch]+p*k.b.stride+col)*k.b.size)
		if inPlace {
			return b, k.b.stride * k.b.size, nil
		}
		return b, k.b.stride * k.b.size, packed
	}
	if first && (packs || !k.b.packed) {
		k.packB(packed, 0, data, batch, col, cols, p, depth)
	}
	return packed, 4 * nr, nil
}

// Chunk computes a tile of the result. Every unsafe.Pointer in it points into
// its operand, also those not used in the end: the garbage collector stops the
// program at others.
func (k *stripe) Chunk(r *exec.Run, w *exec.Worker, i int) {
	slice := i % k.slices
	i /= k.slices
	tile := Tile{Col: k.col + i%k.across*k.TileN}
	row := i / k.across % k.down * k.tileM
	batch := i / (k.across * k.down)
	rows := min(k.tileM, k.m-row)
	tile.Row, tile.Rows = batch*k.m+row, rows
	tile.Cols = min(k.TileN, k.col+k.cols-tile.Col)

	t, nr := k.tiles, k.tiles.NR
	var scratch unsafe.Pointer
	if k.scratch > 0 {
		scratch = unsafe.Pointer(&w.Scratch[0])
	}
	tile.Data, tile.LD = scratch, k.ldSums
	if k.slices > 1 {
		tile.Data, tile.LD = unsafe.Pointer(&r.Shared[slice*k.partBytes()+row*k.ldSlice+4*tile.Col]), k.ldSlice
	}
	var out unsafe.Pointer
	outLead := 4 * k.N
	if k.direct {
		out = unsafe.Pointer(&r.Values[k.Out][4*(tile.Row*k.N+tile.Col)])
	}
	if k.k == 0 {
		// A sum of nothing; there are no elements to point at.
		d, lead := tile.Data, tile.LD
		if k.direct {
			d, lead = out, outLead
		}
		for i := range rows {
			clear(unsafe.Slice((*float32)(unsafe.Add(d, i*lead)), tile.Cols))
		}
	}

	dataA, dataB := r.Values[k.a.pos], r.Values[k.b.pos]
	baseA := unsafe.Pointer(unsafe.SliceData(dataA))
	heights := tiling.CeilDiv(rows, t.MR)
	inner := (k.a.trans || k.a.panels) && t.Inner != nil
	fetching, copying, stride := t.Prefetch.Rows, t.Copies.Rows, exec.PrefetchPiece
	if inner {
		fetching, copying = t.Prefetch.Inner, t.Copies.Inner
	}
	finish := k.tileEpilogue
	if !k.direct {
		finish = nil
	}
	var list exec.PrefetchList
	ahead := k.prefetchNext(batch, dataA, dataB)
	first, end := slice*k.sliceK, min(k.k, (slice+1)*k.sliceK)
	for p := first; p < end; p += k.depth {
		depth := min(k.depth, end-p)
		cells := k.cells(depth)
		a, lda, rowA := unsafe.Pointer(nil), 0, 0
		switch {
		case k.packsRows:
			a, lda = unsafe.Add(scratch, k.atA), k.a.lead
		case k.a.packed:
			a, lda, rowA = unsafe.Add(scratch, k.atA), k.a.lead, k.a.lead
			switch {
			case k.a.stored:
				rowA = 4
			case inner:
				rowA = 4 * cells
			}
			if w.PackedA.Packs(exec.PackedBlock{Batch: batch, First: row, Lanes: rows, P: p, Depth: depth}) {
				k.packA(a, dataA, batch, row, rows, p, depth)
			}
		case inner:
			a, lda, rowA = unsafe.Add(baseA, (k.a.starts[batch]+p*k.a.stride+row)*k.a.size), k.a.stride*k.a.size, k.a.size
		default:
			a, lda = unsafe.Add(baseA, (k.a.starts[batch]+row*k.a.stride+p)*k.a.size), k.a.stride*k.a.size
			rowA = lda
		}
		// Sums of earlier steps are added; the last step writes the result.
		var s unsafe.Pointer
		if p > first {
			s = tile.Data
		}
		d, ldd := tile.Data, tile.LD
		if k.direct && k.slices == 1 && p+depth >= k.k {
			d, ldd = out, outLead
		}
		packed := unsafe.Add(scratch, k.atB)
		fresh := k.b.packed && !k.sharesB && (k.onePanel || w.PackedB.Packs(exec.PackedBlock{Batch: batch, First: tile.Col, Lanes: tile.Cols, P: p, Depth: depth}))
		panels := tiling.CeilDiv(tile.Cols, nr)
		for c := range panels * heights {
			panel, i := c/heights, c%heights
			if k.rowsFirst {
				panel, i = c%panels, c/panels
			}
			j := panel * nr
			cols := min(nr, tile.Cols-j)
			at, end := tiling.Cut(i, heights, rows)
			h := end - at
			b, ldb, copied := k.panelB(r, tile, batch, j, p, depth, packed, i == 0, fresh)
			if copied != nil && copying[h] == nil {
				k.packB(copied, 0, dataB, batch, tile.Col+j, cols, p, depth)
				b, ldb, copied = copied, 4*nr, nil
			}
			if k.packsRows && panel == 0 {
				k.packA(a, dataA, batch, row+at, h, p, depth)
			}
			var next unsafe.Pointer
			switch {
			case k.rowsFirst || fetching == nil:
			case i == 0:
				k.prefetches(&list, r, tile, batch, j, p, depth, fresh)
				fallthrough
			default:
				if copied == nil {
					next, stride = list.Take(cells / 4)
				}
			}
			if k.rowsFirst {
				next, stride = nil, exec.PrefetchPiece
				from, apart := a, rowA
				if k.packsRows {
					apart = k.a.stride * k.a.size
					from = unsafe.Add(baseA, k.a.starts[batch]*k.a.size+row*apart+p*k.a.size)
				}
				if done := panel * (cells / 4) * stride; done < min(h, k.m-row-end)*apart {
					next = unsafe.Add(from, end*apart+done)
				}
			}
			if ahead[0] != nil || ahead[1] != nil {
				next, stride = nil, exec.PrefetchPiece
				if done := c * (cells / 4) * stride; done < len(ahead[0]) {
					next = unsafe.Pointer(&ahead[0][done])
				} else if done -= len(ahead[0]); done < len(ahead[1]) {
					next = unsafe.Pointer(&ahead[1][done])
				}
			}
			kernels := t.Rows
			switch narrow := cols <= t.NarrowNR; {
			case inner && narrow:
				kernels = t.NarrowInner
			case inner:
				kernels = t.Inner
			case narrow:
				kernels = t.NarrowRows
			}
			mask := uint(1)<<cols - 1
			if inner && k.a.packed && !k.a.stored {
				lda = 4 * h
			}
			var si unsafe.Pointer
			lds := tile.LD
			switch {
			case s != nil:
				si = unsafe.Add(s, at*lds+4*j)
			case finish != nil:
				si, lds = finish.term(r, tile.Row+at, tile.Col+j), finish.lead
			}
			ai, di := unsafe.Add(a, at*rowA), unsafe.Add(d, at*ldd+4*j)
			switch {
			case copied != nil:
				copying[h](cells, ai, lda, b, ldb, si, lds, di, ldd, mask, copied)
			case next != nil && cols > t.NarrowNR && fetching != nil && fetching[h] != nil:
				fetching[h](cells, ai, lda, b, ldb, si, lds, di, ldd, mask, next, stride)
			default:
				kernels[h](cells, ai, lda, b, ldb, si, lds, di, ldd, mask)
			}
			if finish != nil {
				finish.tile(r, tile.Row+at, tile.Col+j, h, outLead, di, mask)
			}
		}
	}
	if k.slices == 1 && k.store != nil {
		k.store(r, w, tile)
	}
}
