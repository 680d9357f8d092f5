package product

import (
	"encoding/binary"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// Run computes a product stripe by stripe.
func (k *product) Run(r *exec.Run) {
	if k.batches*k.m*k.N == 0 {
		return
	}
	packed := false
	if k.Pack.B == BCached {
		var changed bool
		if packed, changed = r.PackedCopy(k.cache, k.b.pos); changed {
			k.uncached.Run(r)
			return
		}
	}
	for i := range k.stripes {
		p := &k.stripes[i]
		if k.Pack.B >= BShared && !packed {
			r.Parallel(&p.packing, p.packings(), p.cols*k.k)
		}
		// A multiplication takes a small part of an element operation's time.
		r.Parallel(p, k.batches*k.Tiles.Down*p.across*k.Slices.N, k.batches*k.m*tiling.RoundUp(p.cols, k.tiles.NR)*max(k.k, writeMACs)/16)
	}
	if k.Slices.N > 1 {
		r.Parallel(&k.sums, k.sums.chunks(), k.Slices.N*k.m*k.N)
	}
}

// sharedB returns the memory of the B that is packed for all workers.
func (k *product) sharedB(r *exec.Run) []byte {
	if k.Pack.B == BCached {
		return r.Packed[k.cache].Data
	}
	return r.Shared
}

// packDepth is the steps of the inner dimension that are packed at a time: consecutive rows
// are read in blocks, which the hardware prefetcher follows for about as many rows, and not in
// whole columns.
const packDepth = 32

// packGroup is the panels of a transposed B in a chunk of the packing.
const packGroup = 4

// packing is the task of packing a stripe of B into shared memory: panels of NR columns, one
// after the other, each over the whole inner dimension.
type packing struct{ *stripe }

// packings returns the number of its chunks.
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

// packB packs depth elements of the inner dimension from p on, for columns from col on. Panels
// are size bytes apart.
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

// packA packs rows for depth elements of the inner dimension from p on, in the layout of the
// blocking: row by row, in the stored rows of a transposed A, or in panels of the rows of a
// micro-kernel.
func (k *product) packA(d unsafe.Pointer, data []byte, batch, row, rows, p, depth int) {
	a, cells := &k.a, k.cells(depth)
	src, lds := unsafe.Pointer(unsafe.SliceData(data)), a.stride*a.size
	if a.trans {
		src = unsafe.Add(src, (a.starts[batch]+p*a.stride+row)*a.size)
		for q := 0; (k.Pack.A == AStored) && q < depth; q++ {
			k.Set.Widen[a.element](unsafe.Add(d, q*k.ldA), unsafe.Add(src, q*lds), rows)
		}
		if k.Pack.A == AStored {
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
	if k.Pack.A == APanels {
		heights := tiling.CeilDiv(rows, k.tiles.MR)
		for i := range heights {
			at, end := tiling.Cut(i, heights, rows)
			h := end - at
			k.Set.Transpose[a.element](unsafe.Add(d, 4*at*cells), 4*h, unsafe.Add(src, at*lds), lds, depth, 1<<h-1, 1<<h-1)
		}
		return
	}
	if widen := k.Set.Widen[a.element]; widen != nil && a.stride == depth && k.ldA == 4*depth {
		widen(d, src, rows*depth) // rows are contiguous
		return
	}
	for i := range rows {
		from, to := unsafe.Add(src, i*lds), unsafe.Add(d, i*k.ldA)
		switch {
		case a.element.Converts():
			k.Set.Widen[a.element](to, from, depth)
		case cells <= shortRow:
			copyPairs(to, from, depth)
		default:
			n := depth * a.size
			copy(unsafe.Slice((*byte)(to), n), unsafe.Slice((*byte)(from), n))
			if n < 4*cells { // complete the last pair
				*(*uint16)(unsafe.Add(to, n)) = 0
			}
		}
	}
}

// shortRow is the number of pairs up to which a loop copies a row faster than copy does.
const shortRow = 32

// copyPairs copies n elements of 16 bits, and a zero if n is odd.
func copyPairs(to, from unsafe.Pointer, n int) {
	for i := range n / 2 {
		*(*uint32)(unsafe.Add(to, 4*i)) = *(*uint32)(unsafe.Add(from, 4*i))
	}
	if n%2 == 1 {
		*(*uint32)(unsafe.Add(to, 2*(n-1))) = uint32(*(*uint16)(unsafe.Add(from, 2*(n-1))))
	}
}

// rowsOnDemand returns the address at which micro-kernels read h rows of A, from row at of the
// tile on, and the bytes between rows. It packs the rows, except pairs of an odd number of
// elements: these are read in place if the elements after the rows, which complete the last
// pairs, are finite. B has zeros for them.
func (c *chunk) rowsOnDemand(at, h int) (unsafe.Pointer, int) {
	k := c.stripe
	if a := &k.a; a.element == gemm.Pairs && c.depth%2 == 1 {
		first := a.starts[c.batch] + (c.row+at)*a.stride + c.p
		if after := first + c.depth; after+(h-1)*a.stride < len(c.dataA)/2 {
			finite := true
			for i := range h {
				const infinite = 0x7f80 // the exponent of infinities and NaN
				finite = finite && binary.NativeEndian.Uint16(c.dataA[2*(after+i*a.stride):])&infinite != infinite
			}
			if finite {
				return unsafe.Pointer(&c.dataA[2*first]), 2 * a.stride
			}
		}
	}
	k.packA(c.a, c.dataA, c.batch, c.row+at, h, c.p, c.depth)
	return c.a, c.lda
}

// prefetchNext returns the operands of the next chunk, if chunks are small products of a batch
// that exceeds the caches. Micro-kernels prefetch them while this chunk is computed.
func (k *stripe) prefetchNext(batch int, dataA, dataB []byte) (operands [2][]byte) {
	if k.Tiles.Down*k.across*k.Slices.N > 1 || len(k.stripes) > 1 || batch+1 >= k.batches || k.Depth < k.k || len(dataA)+len(dataB) <= 2*smallBytes {
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

// chunk is a tile of the result that is being computed, and a step of its inner dimension.
// Every unsafe.Pointer must point into its operand, even if it is not used: the garbage
// collector stops the program otherwise.
type chunk struct {
	*stripe
	r     *exec.Run
	w     *exec.Worker
	tile  Tile
	batch int
	row   int // first row, in the result of its batch

	scratch      unsafe.Pointer
	dataA, dataB []byte
	heights      int       // micro-tiles from top to bottom
	inner        bool      // micro-kernels read A transposed
	following    [2][]byte // operands of the next chunk, which are prefetched

	// Of the part of a step.
	p, depth, cells int
	more            uint // gemm.Continue unless the part is the first of its step
	a               unsafe.Pointer
	lda, rowA       int            // bytes from an element of the inner dimension, or a row, to the next
	s, d            unsafe.Pointer // sums so far, or nil; sums or the result
	ldd             int
	packed          unsafe.Pointer // the worker's own packed B
	packs           bool           // the worker must pack it
	b               unsafe.Pointer // whole panels of B
	ldb, nextPanel  int            // bytes from a row to the next, and from a panel
}

// Chunk computes a tile of the result, step by step of the inner dimension.
func (k *stripe) Chunk(r *exec.Run, w *exec.Worker, i int) {
	c := chunk{stripe: k, r: r, w: w, dataA: r.Values[k.a.pos], dataB: r.Values[k.b.pos]}
	slice := i % k.Slices.N
	i /= k.Slices.N
	tile := &c.tile
	tile.Col = k.col + i%k.across*k.TileN
	c.row = i / k.across % k.Tiles.Down * k.Tiles.Rows
	c.batch = i / (k.across * k.Tiles.Down)
	tile.Row, tile.Rows = c.batch*k.m+c.row, min(k.Tiles.Rows, k.m-c.row)
	tile.Cols = min(k.TileN, k.col+k.cols-tile.Col)
	if k.scratch > 0 {
		c.scratch = unsafe.Pointer(&w.Scratch[0])
	}
	tile.Data, tile.LD = c.scratch, k.ldSums
	if k.Slices.N > 1 {
		tile.Data, tile.LD = unsafe.Pointer(&r.Shared[slice*k.partBytes()+c.row*k.Slices.LD+4*tile.Col]), k.Slices.LD
	}
	var out unsafe.Pointer
	ldOut := 4 * k.N
	if k.Direct {
		out = unsafe.Pointer(&r.Values[k.Out][4*(tile.Row*k.N+tile.Col)])
	}
	if k.k == 0 {
		// The sum is empty; there are no elements to point at.
		d, ld := tile.Data, tile.LD
		if k.Direct {
			d, ld = out, ldOut
		}
		for i := range tile.Rows {
			clear(unsafe.Slice((*float32)(unsafe.Add(d, i*ld)), tile.Cols))
		}
	}
	c.heights = tiling.CeilDiv(tile.Rows, k.tiles.MR)
	c.inner = (k.a.trans || k.Pack.A == APanels) && k.tiles.Inner != nil
	c.packed = unsafe.Add(c.scratch, k.atB)
	c.following = k.prefetchNext(c.batch, c.dataA, c.dataB)
	first, end := slice*k.Slices.K, min(k.k, (slice+1)*k.Slices.K)
	for c.p = first; c.p < end; c.p += c.depth {
		done := (c.p - first) % k.Step
		c.depth = min(k.Depth, k.Step-done, end-c.p)
		c.more = 0
		if done > 0 {
			c.more = gemm.Continue
		}
		c.cells = k.cells(c.depth)
		c.operandA()
		// Sums of earlier steps are added; the last step writes the result.
		if c.p > first {
			c.s = tile.Data
		}
		c.d, c.ldd = tile.Data, tile.LD
		if k.Direct && k.Slices.N == 1 && c.p+c.depth >= k.k {
			c.d, c.ldd = out, ldOut
		}
		c.packs = k.Pack.B == BPanel ||
			(k.Pack.B == BTile || k.Pack.B == BPerWorker) && w.PackedB.Packs(exec.PackedBlock{Batch: c.batch, First: tile.Col, Lanes: tile.Cols, P: c.p, Depth: c.depth})
		switch {
		case k.Strips:
			c.multiplyStrips()
		case c.tall():
			c.multiplyTall()
		default:
			c.multiply()
		}
	}
	if k.Slices.N == 1 && k.store != nil {
		k.store(r, w, *tile)
	}
}

// operandA sets the address of A, and packs it unless the worker packed it for its last chunk.
func (c *chunk) operandA() {
	k := c.stripe
	base, size := unsafe.Pointer(unsafe.SliceData(c.dataA)), k.a.size
	switch {
	case k.Pack.A != AInPlace:
		c.a, c.lda, c.rowA = unsafe.Add(c.scratch, k.atA), k.ldA, k.ldA
		switch {
		case k.Pack.A == AOnDemand:
			c.rowA = 0
			return
		case k.Pack.A == AStored:
			c.rowA = 4
		case c.inner:
			c.rowA = 4 * c.cells
		}
		if c.w.PackedA.Packs(exec.PackedBlock{Batch: c.batch, First: c.row, Lanes: c.tile.Rows, P: c.p, Depth: c.depth}) {
			k.packA(c.a, c.dataA, c.batch, c.row, c.tile.Rows, c.p, c.depth)
		}
	case c.inner:
		c.lda, c.rowA = k.a.stride*size, size
		c.a = unsafe.Add(base, (k.a.starts[c.batch]+c.p*k.a.stride+c.row)*size)
	default:
		c.lda, c.rowA = k.a.stride*size, k.a.stride*size
		c.a = unsafe.Add(base, (k.a.starts[c.batch]+c.row*k.a.stride+c.p)*size)
	}
}

// operandB sets the address of whole panels of B.
func (c *chunk) operandB() {
	k, nr := c.stripe, c.tiles.NR
	c.ldb, c.nextPanel = 4*nr, 4*nr*c.cells
	switch k.Pack.B {
	case BShared, BCached:
		cells := k.cells(k.k)
		c.b = unsafe.Pointer(&k.sharedB(c.r)[4*((c.tile.Col-k.col)*cells+nr*k.cells(c.p))])
		c.nextPanel = 4 * nr * cells
	case BInPlace:
		c.b, c.ldb, c.nextPanel = c.sourceB(0), k.b.stride*k.b.size, nr*k.b.size
	case BPanel:
		c.b, c.nextPanel = c.packed, 0
	default:
		c.b = c.packed
	}
}

// sourceB returns the address of column j of the tile in B.
func (c *chunk) sourceB(j int) unsafe.Pointer {
	b := &c.stripe.b
	return unsafe.Add(unsafe.Pointer(unsafe.SliceData(c.dataB)), (b.starts[c.batch]+c.p*b.stride+c.tile.Col+j)*b.size)
}

// panelB returns the panel of B for the columns of the tile from column j on, and the bytes
// between its rows: in place, shared, or packed by the worker. If first is set and the worker
// packs, the panel is packed: here, or by a micro-kernel, which reads b in place and writes
// the packed panel to copied.
func (c *chunk) panelB(panel, cols int, first bool) (b unsafe.Pointer, ldb int, copied unsafe.Pointer) {
	k, nr := c.stripe, c.tiles.NR
	b, ldb = unsafe.Add(c.b, panel*c.nextPanel), c.ldb
	inPlace := k.Pack.B == BInPlace
	if inPlace && cols < nr { // micro-kernels read whole rows of B
		b, ldb = c.packed, 4*nr
	}
	if !first || !c.packs && (!inPlace || cols == nr) {
		return b, ldb, nil
	}
	if j := panel * nr; k.Pack.CopyB && cols == nr {
		return c.sourceB(j), k.b.stride * k.b.size, b
	} else {
		k.packB(b, 0, c.dataB, c.batch, c.tile.Col+j, cols, c.p, c.depth)
	}
	return b, ldb, nil
}

// prefetchRows returns the memory that a micro-kernel prefetches in the order RowsFirst, or
// nil: this panel's share of the rows of A after rows at to end.
func (c *chunk) prefetchRows(panel, at, end int) unsafe.Pointer {
	k, from, rowBytes := c.stripe, c.a, c.rowA
	if k.Pack.A == AOnDemand {
		rowBytes = k.a.stride * k.a.size
		from = unsafe.Add(unsafe.Pointer(unsafe.SliceData(c.dataA)), k.a.starts[c.batch]*k.a.size+c.row*rowBytes+c.p*k.a.size)
	}
	if done := panel * (c.cells / 4) * exec.PrefetchPiece; done < min(end-at, k.m-c.row-end)*rowBytes {
		return unsafe.Add(from, end*rowBytes+done)
	}
	return nil
}

// prefetchOperands is prefetchRows for the operands of the next chunk; n is the index of the
// micro-tile.
func (c *chunk) prefetchOperands(n int) unsafe.Pointer {
	done := n * (c.cells / 4) * exec.PrefetchPiece
	if done < len(c.following[0]) {
		return unsafe.Pointer(&c.following[0][done])
	}
	if done -= len(c.following[0]); done < len(c.following[1]) {
		return unsafe.Pointer(&c.following[1][done])
	}
	return nil
}

// rowsCut iterates over the rows of a tile, micro-tile by micro-tile: see [tiling.Cut].
type rowsCut struct{ size, extra, parts, at, end, carry int }

func newRowsCut(rows, parts int) rowsCut {
	return rowsCut{size: rows / parts, extra: rows % parts, parts: parts}.next()
}

// next returns the next part.
func (c rowsCut) next() rowsCut {
	c.at, c.end, c.carry = c.end, c.end+c.size, c.carry+c.extra
	if c.carry >= c.parts {
		c.end, c.carry = c.end+1, c.carry-c.parts
	}
	return c
}

// multiplyStrips computes the tile, strip by strip, and writes the result: with the panels of
// B that fit in L2, then with the next ones.
func (c *chunk) multiplyStrips() {
	k, tile, nr := c.stripe, &c.tile, c.tiles.NR
	c.operandB()
	size, group := 4*nr*c.cells, k.stripCols()
	for col := 0; col < tile.Cols; col += group {
		cols := min(group, tile.Cols-col)
		panels := tiling.CeilDiv(cols, nr)
		last := cols - (panels-1)*nr
		mask := uint(1)<<last - 1
		whole := panels // panels for the strip kernels; the last panel may be narrow
		if k.narrowStrips != nil && last <= k.tiles.NarrowNR {
			whole--
		}
		b := unsafe.Add(c.b, col/nr*c.nextPanel)
		if c.packs {
			k.packB(b, size, c.dataB, c.batch, tile.Col+col, cols, c.p, c.depth)
		}
		rows := newRowsCut(tile.Rows, c.heights)
		for range c.heights {
			at, h := rows.at, rows.end-rows.at
			a, lda := unsafe.Add(c.a, at*c.rowA), c.lda
			if k.Pack.A == AOnDemand {
				a, lda = c.rowsOnDemand(at, h)
			}
			to := unsafe.Pointer(&c.r.Values[k.Out][2*((tile.Row+at)*k.N+tile.Col+col)])
			switch {
			case whole == panels:
				k.strips[h](c.cells, a, lda, b, panels, to, 2*k.N, mask)
			case whole > 0:
				k.strips[h](c.cells, a, lda, b, whole, to, 2*k.N, 1<<nr-1)
			}
			if whole < panels {
				k.narrowStrips[h](c.cells, a, lda, unsafe.Add(b, whole*size), 1, unsafe.Add(to, 2*whole*nr), 2*k.N, mask)
			}
			rows = rows.next()
		}
	}
}

// multiply computes all micro-tiles of the tile for a step.
func (c *chunk) multiply() {
	k, tile, t, nr := c.stripe, &c.tile, c.tiles, c.tiles.NR
	kernels, narrowKernels, prefetching, copying := t.Rows, t.NarrowRows, t.Prefetch.Rows, t.Copies.Rows
	if c.inner {
		kernels, narrowKernels, prefetching, copying = t.Inner, t.NarrowInner, t.Prefetch.Inner, t.Copies.Inner
	}
	epilogue := k.tileEpilogue
	if !k.Direct {
		epilogue = nil
	}
	rowsFirst, following := k.Order == RowsFirst, c.following[0] != nil || c.following[1] != nil
	// The last row of an odd number has no partner for a pair, and is multiplied after the
	// others: micro-kernels that pack B must not add s before it.
	late := c.depth%t.Step > 0 && c.more == 0 && (c.s != nil || epilogue != nil)
	lists := !rowsFirst && prefetching != nil
	cells, lda, stride := c.cells, c.lda, exec.PrefetchPiece
	prefetchesRows := rowsFirst && cells >= 4 // with fewer cells, calls do not prefetch a whole piece
	panels := tiling.CeilDiv(tile.Cols, nr)
	c.operandB()
	firstRows := newRowsCut(tile.Rows, c.heights)
	rows, panel, i := firstRows, 0, 0
	var strip unsafe.Pointer // address of the rows of A
	for n := range panels * c.heights {
		if n > 0 {
			// Advance to the next micro-tile without a division.
			if rowsFirst {
				if panel++; panel == panels {
					panel, i, rows = 0, i+1, rows.next()
				}
			} else if i++; i == c.heights {
				panel, i, rows = panel+1, 0, firstRows
			} else {
				rows = rows.next()
			}
		}
		j := panel * nr
		cols := min(nr, tile.Cols-j)
		at, end := rows.at, rows.end
		h := end - at
		b, ldb, copied := c.panelB(panel, cols, i == 0)
		if copied != nil && (copying[h] == nil || late) {
			k.packB(copied, 0, c.dataB, c.batch, tile.Col+j, cols, c.p, c.depth)
			b, ldb, copied = copied, 4*nr, nil
		}
		if k.Pack.A == AOnDemand {
			if panel == 0 {
				strip, lda = c.rowsOnDemand(at, h)
			}
		} else {
			strip = unsafe.Add(c.a, at*c.rowA)
		}
		var next unsafe.Pointer
		if lists {
			if i == 0 {
				k.prefetches(&c.w.Prefetch, c.r, *tile, c.batch, j, c.p, c.depth, c.packs)
			}
			if copied == nil {
				next, stride = c.w.Prefetch.Take(cells / 4)
			}
		}
		switch {
		case following:
			next, stride = c.prefetchOperands(n), exec.PrefetchPiece
		case prefetchesRows:
			next = c.prefetchRows(panel, at, end)
		}
		if c.inner && k.Pack.A == APanels {
			lda = 4 * h
		}
		var s unsafe.Pointer
		lds := tile.LD
		switch {
		case c.s != nil:
			s = unsafe.Add(c.s, at*lds+4*j)
		case epilogue != nil:
			s, lds = epilogue.term(c.r, tile.Row+at, tile.Col+j), epilogue.ld
		}
		mask := uint(1)<<cols - 1 | c.more
		to := at*c.ldd + 4*j
		if k.Round {
			to = 0 // one micro-tile at a time
		}
		a, d := strip, unsafe.Add(c.d, to)
		switch narrow := cols <= t.NarrowNR; {
		case copied != nil:
			whole := c.depth / t.Step
			copying[h](whole, a, lda, b, ldb, s, lds, d, c.ldd, mask, copied)
			if whole < cells { // the last row has no partner for a pair
				last := unsafe.Add(copied, 4*nr*whole)
				k.packB(last, 0, c.dataB, c.batch, tile.Col+j, cols, c.p+t.Step*whole, c.depth%t.Step)
				kernels[h](1, unsafe.Add(a, 4*whole), lda, last, 4*nr, d, c.ldd, d, c.ldd, mask|gemm.Continue)
			}
		case next != nil && !narrow && prefetching != nil && prefetching[h] != nil:
			prefetching[h](cells, a, lda, b, ldb, s, lds, d, c.ldd, mask, next, stride)
		case narrow:
			narrowKernels[h](cells, a, lda, b, ldb, s, lds, d, c.ldd, mask)
		default:
			kernels[h](cells, a, lda, b, ldb, s, lds, d, c.ldd, mask)
		}
		if k.Round {
			to := unsafe.Pointer(&c.r.Values[k.Out][2*((tile.Row+at)*k.N+tile.Col+j)])
			k.narrow(to, 2*k.N, d, c.ldd, h, mask, mask)
		}
		if epilogue != nil {
			epilogue.tile(c.r, tile.Row+at, tile.Col+j, h, 4*k.N, d, mask)
		}
	}
	if lists {
		c.w.Prefetch = exec.PrefetchList{} // a worker must not keep memory alive
	}
}
