package conv

import (
	"runtime"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Run packs the kernels and computes the phases.
func (k *implicitGEMM) Run(r *exec.Run) {
	k.packWeights(r)
	n := 0
	for i := range k.phases {
		n += k.phases[i].chunks
	}
	r.Parallel(k, n, k.macs()/16)
}

// reserveWeights reserves the memory for packed kernels. They are kept until the kernels
// change if there are so few pixels that packing takes as long as a part of the product.
func (k *implicitGEMM) reserveWeights(b *exec.Builder, bytes int) {
	if k.kept = k.few && bytes >= product.CacheBytes && backend.Keeps(backend.PackedOperands); k.kept {
		k.cache = b.ReservePacked(bytes)
	}
	b.ReserveShared(bytes)
}

// weightBytes returns the size of the kernels packed for runs.
func (k *implicitGEMM) weightBytes() int { return 4 * k.groups * k.panels * k.allCells() * k.tiles.NR }

// packWeights packs the kernels unless the kept copy is valid.
func (k *implicitGEMM) packWeights(r *exec.Run) {
	if k.kept {
		if good, _ := r.PackedCopy(k.cache, k.b); good {
			return
		}
	}
	r.Parallel(&k.weigh, len(k.phases)*k.groups*k.panels, k.WindowSize*k.perGroup*k.outs)
}

// packed returns the memory of packed kernels: the copy that is kept, or shared memory while
// the kernels change.
func (k *implicitGEMM) packed(r *exec.Run) []byte {
	if k.kept {
		if data := r.Kept(k.cache, k.b); data != nil {
			return data
		}
	}
	return r.Shared
}

// packWeights is the task that packs a panel of kernels of a phase and group: NR channels of
// the result for all elements of the window of the phase.
type packWeights struct{ *implicitGEMM }

// panel returns a packed panel of a phase.
func (k *implicitGEMM) panel(r *exec.Run, p *stridedPhase, group, panel int) unsafe.Pointer {
	if p.cells == 0 { // an empty panel would begin after the end
		return nil
	}
	at := 4 * k.tiles.NR * ((group*k.panels+panel)*k.allCells() + p.weights)
	return unsafe.Pointer(&k.packed(r)[at])
}

func (k *packWeights) Chunk(r *exec.Run, _ *exec.Worker, i int) {
	p := &k.phases[i/(k.groups*k.panels)]
	group, panel := i/k.panels%k.groups, i%k.panels
	nr := k.tiles.NR
	first := panel * nr
	cols := min(nr, k.lanes-first)
	dst := k.panel(r, p, group, panel)
	src := unsafe.Pointer(unsafe.SliceData(r.Values[k.b]))
	size := k.from.Size()
	for i := range p.runs {
		run := &p.runs[i]
		if run.n == 0 {
			continue
		}
		if k.code == op.Conv {
			// The elements of the window of a run are consecutive. Without padding they are
			// packed together.
			n := run.n
			if k.pad > 0 {
				n = k.depth
			}
			at := run.tap*k.perGroup*k.outs + group*k.outsPerGroup + first
			for cell := run.offset; cell < run.offset+run.cells; cell += tiling.CeilDiv(n, k.tiles.Step) {
				k.set.Lanes[k.element](unsafe.Add(dst, 4*nr*cell), 4*nr, unsafe.Add(src, at*size), k.outs*size, n, 1<<cols-1, 1<<nr-1)
				at += k.perGroup * k.outs
			}
			continue
		}
		cell := run.offset
		tap, from := run.tap, 0
		for left := run.n; left > 0; {
			n := min(left, k.depth-from)
			at := (tap*k.perGroup+first)*k.outs + group*k.outsPerGroup + from
			for j := 0; j < nr; j += 16 {
				load, store := max(0, min(16, cols-j)), min(16, nr-j)
				lane := at + min(j, cols-1)*k.outs
				k.set.Transpose[k.element](unsafe.Add(dst, 4*(nr*cell+j)), 4*nr, unsafe.Add(src, lane*size), k.outs*size, n, 1<<load-1, 1<<store-1)
			}
			cell += tiling.CeilDiv(n, k.tiles.Step)
			tap, from, left = tap+k.tapStep(), 0, left-n-k.pad
		}
	}
	last := &p.runs[len(p.runs)-1]
	used := last.offset + last.cells
	clear(unsafe.Slice((*float32)(unsafe.Add(dst, 4*nr*used)), nr*(p.cells-used)))
}

func (k *implicitGEMM) Chunk(r *exec.Run, w *exec.Worker, i int) {
	p := &k.phases[0]
	for j := range k.phases {
		p = &k.phases[j]
		if i < p.chunks {
			break
		}
		i -= p.chunks
	}
	if p.mode == gathered {
		k.patches(r, w, p, i)
		return
	}
	y0 := i % p.bands * p.band
	i /= p.bands
	b := band{image: i / p.count[0], z: i % p.count[0], y: y0, rows: min(p.band, p.count[1]-y0)}
	k.find(r, w.Scratch, p, &b)
	for group := range k.groups {
		k.rows(r, w, p, &b, group)
	}
}

// band is some rows of pixels of a phase, and their source: the element from which the offsets
// of runs count, and the distances of rows, planes and pixels in bytes. No pointer is made to
// a place outside of the source: the garbage collector would stop the program.
type band struct {
	image, z, y, rows int
	data              unsafe.Pointer
	start             int // from data, in bytes; outside of it where the first pixel reads padding
	row, plane, pixel int
	low               [3]int // of offsets, at base
}

// from returns the address n bytes after the start.
func (b *band) from(n int) unsafe.Pointer { return unsafe.Add(b.data, b.start+n) }

// find finds the source of a band, or copies it.
func (k *implicitGEMM) find(r *exec.Run, scratch []byte, p *stridedPhase, b *band) {
	k.locate(r, scratch, p, b)
	k.copyRows(r, scratch, p, b, 0, p.reads(b.rows))
}

// reads returns the number of rows of the source that some rows of the result read.
func (p *stridedPhase) reads(rows int) int { return (rows-1)*p.move[1] + p.span[1] }

// locate finds the source of a band, or the memory for its copy.
func (k *implicitGEMM) locate(r *exec.Run, scratch []byte, p *stridedPhase, b *band) {
	data := r.Values[k.source]
	b.pixel = (k.srcAll + k.pad) * k.bytes
	if !p.copied {
		b.row = k.dims[2] * b.pixel
		b.plane = k.dims[1] * b.row
		b.data = unsafe.Pointer(unsafe.SliceData(data))
		b.start = (b.image*k.dims[0]+b.z*p.move[0])*b.plane + b.y*p.move[1]*b.row
		return
	}
	b.low = p.low
	b.row = p.box[2] * b.pixel
	b.plane = p.box[1] * b.row
	b.data = unsafe.Pointer(unsafe.SliceData(scratch))
}

// copyRows copies rows [from, to) of a band's source, if it is to be copied.
func (k *implicitGEMM) copyRows(r *exec.Run, scratch []byte, p *stridedPhase, b *band, from, to int) {
	if !p.copied {
		return
	}
	data, size := r.Values[k.source], k.from.Size()
	x := p.low[2]
	left := min(max(0, -x), p.box[2])
	cols := max(0, min(p.box[2], k.dims[2]-x)-left)
	for i := range p.box[0] {
		sz := b.z*p.move[0] + p.low[0] + i
		for j := from; j < to; j++ {
			if j%p.move[1] >= p.span[1] {
				continue // between windows
			}
			sy := b.y*p.move[1] + p.low[1] + j
			row := scratch[i*b.plane+j*b.row:][:b.row]
			if sz < 0 || sz >= k.dims[0] || sy < 0 || sy >= k.dims[1] || cols == 0 {
				clear(row)
				continue
			}
			clear(row[:left*b.pixel])
			from := (((b.image*k.dims[0]+sz)*k.dims[1]+sy)*k.dims[2] + x + left) * k.srcAll * size
			if k.pad > 0 {
				k.padPixels(row[left*b.pixel:][:cols*b.pixel], data[from:], b.pixel)
			} else {
				k.copySource(row[left*b.pixel:], data[from:], cols*k.srcAll)
			}
			clear(row[(left+cols)*b.pixel:])
		}
	}
}

// memmovePixel is the size of a pixel in bytes above which copy is faster than Tiles.Copy.
const memmovePixel = 2 * 64

// padPixels copies pixels of an odd number of channels with a zero after the last one; pixel
// is the bytes of a padded pixel.
func (k *implicitGEMM) padPixels(dst, src []byte, pixel int) {
	n := k.srcAll * k.bytes
	if n > memmovePixel {
		for len(dst) > 0 {
			copy(dst[:n], src)
			clear(dst[n:pixel])
			dst, src = dst[pixel:], src[n:]
		}
		return
	}
	d, s := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	for c := 0; c < k.srcAll; c += window.VectorChannels {
		n := min(window.VectorChannels, k.srcAll-c)
		load := uint(1)<<n - 1
		k.tiles.Copy(unsafe.Add(d, 2*c), pixel, 0, unsafe.Add(s, 2*c), 2*k.srcAll, 0, len(dst)/pixel, 1, load, 1<<tiling.RoundUp(n, 2)-1)
	}
}

// copySource copies n elements of the source in the type that micro-kernels read.
func (k *implicitGEMM) copySource(dst, src []byte, n int) {
	if k.element == k.stored && k.element != gemm.F32 {
		k.set.Widen[k.stored](unsafe.Pointer(&dst[0]), unsafe.Pointer(&src[0]), n)
		return
	}
	copy(dst[:n*k.bytes], src[:n*k.bytes])
}

// rows computes a group's channels of a band.
func (k *implicitGEMM) rows(r *exec.Run, w *exec.Worker, p *stridedPhase, b *band, group int) {
	t := k.tiles
	var d unsafe.Pointer
	ld, row := 4*p.step[2]*k.dstAll, 4*p.step[1]*k.rowPixels()*k.dstAll
	if k.inPlace(p) {
		d = unsafe.Pointer(&r.Values[k.dst][4*(k.pixelOf(p, b.image, b.z, b.y, 0)*k.dstAll+group*k.lanes)])
	} else {
		d, ld, row = unsafe.Pointer(&w.Scratch[k.atTile]), k.ld, p.count[2]*k.ld
	}
	for panel := range k.panels {
		k.lanesOf(w, p, b, k.panel(r, p, group, panel), unsafe.Add(d, 4*panel*t.NR), ld, row, min(t.NR, k.lanes-panel*t.NR))
	}
	if k.inPlace(p) {
		return
	}
	tile := product.Tile{Col: group * k.lanes, Cols: k.lanes, Data: d, LD: ld}
	if p.step == [3]int{1, 1, 1} { // rows are contiguous
		tile.Row, tile.Rows = k.pixelOf(p, b.image, b.z, b.y, 0), b.rows*p.count[2]
		k.store(r, w, tile)
		return
	}
	tile.Rows, tile.Step = p.count[2], p.step[2]
	for y := range b.rows {
		tile.Row = k.pixelOf(p, b.image, b.z, b.y+y, 0)
		tile.Data = unsafe.Add(d, y*p.count[2]*ld)
		k.store(r, w, tile)
	}
}

// rowPixels returns the number of pixels of a row of the result.
func (k *implicitGEMM) rowPixels() int {
	if k.code == op.Conv {
		return k.Out[2]
	}
	return k.In[2]
}

// pixelOf returns the index in the result of pixel z, y, x of a phase.
func (k *implicitGEMM) pixelOf(p *stridedPhase, image, z, y, x int) int {
	dims := k.Out
	if k.code != op.Conv {
		dims = k.In
	}
	z, y, x = p.first[0]+z*p.step[0], p.first[1]+y*p.step[1], p.first[2]+x*p.step[2]
	return ((image*dims[0]+z)*dims[1]+y)*dims[2] + x
}

// laneBlock is the pixels of a row of packed lanes.
const laneBlock = 32

// lanesOf computes a panel of a band whose source has one channel: runs are packed with pixels
// in vectors, so that one call adds up all of them.
func (k *implicitGEMM) lanesOf(w *exec.Worker, p *stridedPhase, b *band, weights, d unsafe.Pointer, ld, row, cols int) {
	t := k.tiles
	element := k.element
	if p.copied && element != gemm.Pairs {
		element = gemm.F32
	}
	kernels := t.Inner
	if cols <= t.NarrowNR {
		kernels = t.NarrowInner
	}
	mask := uint(1)<<cols - 1
	a := unsafe.Pointer(unsafe.SliceData(w.Scratch[k.atA:]))
	blocks := tiling.CeilDiv(p.count[2], min(laneBlock, 2*t.MR))
	for y := range b.rows {
		for i := range blocks {
			x, end := tiling.Cut(i, blocks, p.count[2])
			for j := range p.runs {
				run := &p.runs[j]
				from := (run.at[0]-b.low[0])*b.plane + (run.at[1]-b.low[1]+y*p.move[1])*b.row + (run.at[2]-b.low[2]+x)*b.pixel
				lanes := uint(1)<<(end-x) - 1
				k.set.Lanes[element](unsafe.Add(a, 4*laneBlock*run.offset), 4*laneBlock, b.from(from), b.pixel, run.n, lanes, lanes)
			}
			heights := tiling.CeilDiv(end-x, t.MR)
			for h := range heights {
				lo, hi := tiling.Cut(h, heights, end-x)
				kernels[hi-lo](p.cells, unsafe.Add(a, 4*lo), 4*laneBlock, weights, 4*t.NR, nil, 0, unsafe.Add(d, y*row+(x+lo)*ld), ld, mask)
			}
		}
	}
}

// patches computes a chunk of pixels whose patches are gathered.
func (k *implicitGEMM) patches(r *exec.Run, w *exec.Worker, p *stridedPhase, i int) {
	t := k.tiles
	first := i * p.band
	n := min(p.band, k.Batch*p.count[0]*p.count[1]*p.count[2]-first)
	lda := 4*p.cells + product.RowPad
	units := tiling.CeilDiv(n, t.Unit)
	heights := tiling.CeilDiv(units*t.Unit, t.MR)
	direct, slices := k.inPlace(p), k.byPixels() || k.set.Ordered
	if t.Begin != nil {
		runtime.LockOSThread()
		t.Begin()
		defer func() {
			t.End()
			runtime.UnlockOSThread()
		}()
	}
	for group := range k.groups {
		for j := range n {
			row, x := (first+j)/p.count[2], (first+j)%p.count[2]
			image, z, y := window.SplitRow(row, p.count)
			k.gather(r, p, w.Scratch[k.atA+j*lda:][:4*p.cells], image, [3]int{z * p.move[0], y * p.move[1], x * p.move[2]}, group)
		}
		d, ld := unsafe.Pointer(nil), k.ld
		if direct {
			d, ld = unsafe.Pointer(&r.Values[k.dst][4*(first*k.dstAll+group*k.lanes)]), 4*k.dstAll
		} else {
			d = unsafe.Pointer(&w.Scratch[k.atTile])
		}
		for panel := range k.panels {
			cols := min(t.NR, k.lanes-panel*t.NR)
			kernels := t.Rows
			if cols <= t.NarrowNR {
				kernels = t.NarrowRows
			}
			weights := k.panel(r, p, group, panel)
			for slice, at := 0, 0; slice == 0 || at < p.cells; slice++ {
				end := min(p.cells, at+product.MostDepth)
				if slices { // as borderGEMM does, whose results have the same bits
					end = k.sliceEnd(p, slice)
				}
				for h := range heights {
					lo, hi := tiling.Cut(h, heights, units)
					lo, hi = lo*t.Unit, hi*t.Unit
					dh := unsafe.Add(d, lo*ld+4*panel*t.NR)
					s := dh
					if at == 0 {
						s = nil
					}
					a := unsafe.Pointer(unsafe.SliceData(w.Scratch[k.atA:]))
					kernels[hi-lo](end-at, unsafe.Add(a, lo*lda+4*at), lda,
						unsafe.Add(weights, 4*t.NR*at), 4*t.NR, s, ld, dh, ld, 1<<cols-1)
				}
				at = end
			}
		}
		if direct {
			continue
		}
		tile := product.Tile{Col: group * k.lanes, Cols: k.lanes, LD: ld}
		if p.step == [3]int{1, 1, 1} {
			tile.Row, tile.Rows, tile.Data = first, n, d
			k.store(r, w, tile)
			continue
		}
		for j := range n {
			image, z, y := window.SplitRow((first+j)/p.count[2], p.count)
			tile.Row, tile.Rows, tile.Data = k.pixelOf(p, image, z, y, (first+j)%p.count[2]), 1, unsafe.Add(d, j*ld)
			k.store(r, w, tile)
		}
	}
}

// gather copies the patch of the pixel at position at, run by run, with zeros for positions
// outside of the source.
func (k *implicitGEMM) gather(r *exec.Run, p *stridedPhase, dst []byte, image int, at [3]int, group int) {
	data := r.Values[k.source]
	size := k.from.Size()
	last := &p.runs[len(p.runs)-1]
	clear(dst[4*(last.offset+last.cells):])
	for i := range p.runs {
		run := &p.runs[i]
		to := dst[4*run.offset:][:4*run.cells]
		z, y := at[0]+run.at[0], at[1]+run.at[1]
		if z < 0 || z >= k.dims[0] || y < 0 || y >= k.dims[1] {
			clear(to)
			continue
		}
		x, from := at[2]+run.at[2], 0
		if run.n > 0 && k.groups == 1 && k.pad == 0 && x >= 0 && x*k.depth+from+run.n <= k.dims[2]*k.depth {
			pixel := ((image*k.dims[0]+z)*k.dims[1]+y)*k.dims[2] + x
			k.copySource(to, data[(pixel*k.srcAll+from)*size:], run.n)
			continue
		}
		for left := run.n; left > 0; {
			n := min(left, k.depth-from)
			if x >= 0 && x < k.dims[2] {
				pixel := ((image*k.dims[0]+z)*k.dims[1]+y)*k.dims[2] + x
				k.copySource(to, data[(pixel*k.srcAll+group*k.depth+from)*size:], n)
			} else {
				clear(to[:n*k.bytes])
			}
			to = to[n*k.bytes:]
			clear(to[:k.pad*k.bytes])
			to = to[k.pad*k.bytes:]
			x, from, left = x+1, 0, left-n-k.pad
		}
	}
}

// store writes a tile of accumulators to the result.
func (k *implicitGEMM) store(r *exec.Run, w *exec.Worker, t product.Tile) {
	follows := t.Cols == k.dstAll && t.LD == 4*t.Cols && t.Step <= 1 // rows are contiguous in the accumulators and in the result
	narrow := k.narrow()
	switch {
	case k.after != nil:
		k.result.StoreEpilogue(r, w, t)
		return
	case narrow == nil && follows:
		t.Cols, t.Rows = t.Cols*t.Rows, 1
	}
	if narrow == nil {
		k.result.Convert(r, w, t)
		return
	}
	d := unsafe.Pointer(&r.Values[k.dst][2*(t.Row*k.dstAll+t.Col)])
	if n := t.Rows * t.Cols; follows { // in rows of the channels of a vector loop
		narrow(d, 2*window.VectorChannels, t.Data, 4*window.VectorChannels, n/window.VectorChannels, 0, 1<<window.VectorChannels-1)
		if rest := n % window.VectorChannels; rest > 0 {
			narrow(unsafe.Add(d, 2*(n-rest)), 0, unsafe.Add(t.Data, 4*(n-rest)), 0, 1, 0, 1<<rest-1)
		}
		return
	}
	for c := 0; c < t.Cols; c += window.VectorChannels {
		narrow(unsafe.Add(d, 2*c), 2*max(1, t.Step)*k.dstAll, unsafe.Add(t.Data, 4*c), t.LD, t.Rows, 0, 1<<min(window.VectorChannels, t.Cols-c)-1)
	}
}

// narrow returns the routine that rounds rows of lanes to the type of the result, or nil.
func (k *implicitGEMM) narrow() gemm.Pack {
	switch k.to {
	case dtype.BFloat16:
		return k.set.NarrowLanes[gemm.BF16]
	case dtype.Float16:
		return k.set.NarrowLanes[gemm.F16]
	}
	return nil
}
