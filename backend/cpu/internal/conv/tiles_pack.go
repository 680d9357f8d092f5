package conv

import (
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// prefetchRange finds the range of source positions that all phases read, so that they can
// share input tiles.
func (k *tileGEMM) prefetchRange() {
	for axis := range 3 {
		k.least[axis], k.most[axis] = math.MaxInt, math.MinInt
	}
	k.eachPhase(func(_ stridedPhase, taps [3][]tap) {
		for axis, list := range taps {
			if len(list) > 0 {
				k.least[axis], k.most[axis] = min(k.least[axis], list[0].at), max(k.most[axis], list[len(list)-1].at)
			}
		}
	})
}

// readsAs reports whether bands of p have the same input tiles as those of q.
func (p *tilePhase) readsAs(q *tilePhase) bool {
	if p.count != q.count || p.band != q.band || p.images != q.images {
		return false
	}
	axes := 3 // axes along which both must read the same elements
	if p.steps > 0 && q.steps > 0 && !p.side && !q.side && p.low == q.low && p.span == q.span {
		axes = 1
	}
	for axis := range axes {
		if !slices.EqualFunc(p.taps[axis], q.taps[axis], func(a, b tap) bool { return a.at == b.at }) {
			return false
		}
	}
	return true
}

// fill copies the source of a band of an image into an input tile, with zeros outside of the
// image.
func (k *tileGEMM) fill(r *exec.Run, w *exec.Worker, p *tilePhase, b *band, group, image int, tile []byte) {
	switch {
	case p.steps == 0:
		return
	case p.patch:
		k.fillPatches(r, p, b, image, tile)
		return
	case !p.side && k.pieces == 1:
		k.fillPlanes(r, p, b, group, image, tile)
		return
	}
	row := p.pitch * cellBytes
	for i, tz := range p.taps[0] {
		z := b.z*p.move[0] + tz.at
		for j := range (b.rows-1)*p.move[1] + p.span[1] {
			y := b.y*p.move[1] + p.low[1] + j
			at := ((i*p.move[1]+j%p.move[1])*p.rows + j/p.move[1]) * row
			if z < 0 || z >= k.dims[0] || y < 0 || y >= k.dims[1] {
				for c := range p.blocks {
					k.clearCells(p, tile[c*p.block+at:], row)
				}
				continue
			}
			line := (image*k.dims[0]+z)*k.dims[1] + y
			if p.side {
				k.fillSide(r, w, p, group, line, tile[at:])
			} else {
				k.fillRow(r, p, group, line, tile[at:])
			}
		}
	}
}

// inAxis returns the range [lo, hi) of n positions, first and then every step, that lie within
// an axis of the given size.
func inAxis(first, step, n, size int) (lo, hi int) {
	lo = min(n, tiling.CeilDiv(max(0, -first), step))
	return lo, max(lo, min(n, tiling.CeilDiv(max(0, size-first), step)))
}

// fillPlanes is fill for windows whose elements are not side by side: plane by plane of the
// window and block by block of channels.
func (k *tileGEMM) fillPlanes(r *exec.Run, p *tilePhase, b *band, group, image int, tile []byte) {
	row, pixel, data := p.pitch*cellBytes, 2*k.srcAll, r.Values[k.source]
	left, right := inAxis(p.low[2], 1, p.pitch, k.dims[2])
	reads := (b.rows-1)*p.move[1] + p.span[1]
	const all = 1<<cellElements - 1
	for i, tz := range p.taps[0] {
		z := b.z*p.move[0] + tz.at
		for residue := range min(p.move[1], reads) {
			rows := tiling.CeilDiv(reads-residue, p.move[1])
			y := b.y*p.move[1] + p.low[1] + residue
			lo, hi := 0, 0
			if z >= 0 && z < k.dims[0] {
				lo, hi = inAxis(y, p.move[1], rows, k.dims[1])
			}
			at := (i*p.move[1] + residue) * p.rows * row
			for c := range p.blocks {
				to := tile[c*p.block+at:][:rows*row]
				clear(to[:lo*row])
				clear(to[hi*row:])
				if lo == hi {
					continue
				}
				d := unsafe.Pointer(&to[lo*row])
				k.tiles.Copy(d, cellBytes, row, d, 0, 0, left, hi-lo, 0, all)
				if right < p.pitch {
					k.tiles.Copy(unsafe.Add(d, right*cellBytes), cellBytes, row, d, 0, 0, p.pitch-right, hi-lo, 0, all)
				}
			}
			if left == right {
				continue
			}
			// A few rows at a time, so that memory is read in order.
			for some := max(1, laneBytes/((right-left)*pixel)); lo < hi; lo += some {
				line := (image*k.dims[0]+z)*k.dims[1] + y + lo*p.move[1]
				from := (line*k.dims[2]+p.low[2]+left)*pixel + 2*group*k.depth
				for c := range p.blocks {
					d, n := unsafe.Pointer(&tile[c*p.block+at+lo*row+left*cellBytes]), min(cellElements, k.depth-c*cellElements)
					k.tiles.Copy(d, cellBytes, row, unsafe.Pointer(&data[from+c*cellBytes]), pixel, p.move[1]*k.dims[2]*pixel, right-left, min(some, hi-lo), 1<<n-1, all)
				}
			}
		}
	}
}

// fillPatches copies, for each pixel of a band, the elements of the whole window.
func (k *tileGEMM) fillPatches(r *exec.Run, p *tilePhase, b *band, image int, tile []byte) {
	for _, y := range p.down {
		y.from, y.to = max(y.from, b.y), min(y.to, b.y+b.rows)
		for _, x := range p.across {
			if y.from < y.to {
				k.fillPatch(r, p, b, image, tile, y, x)
			}
		}
	}
	k.split(r, unsafe.Pointer(&tile[0]), cellBytes, p.piece, b.rows*p.pitch, cellElements)
}

// fillPatch is fillPatches for pixels whose windows have the same elements within the source.
func (k *tileGEMM) fillPatch(r *exec.Run, p *tilePhase, b *band, image int, tile []byte, y, x regionPiece) {
	row, pixel, data := p.pitch*cellBytes, 2*k.srcAll, r.Values[k.source]
	line := k.dims[2] * pixel
	to := tile[(y.from-b.y)*row+x.from*cellBytes:]
	source := func(tz, ty, tx tap) unsafe.Pointer {
		plane := image*k.dims[0] + b.z*p.move[0] + tz.at
		return unsafe.Pointer(&data[(plane*k.dims[1]+y.from*p.move[1]+ty.at)*line+(x.from*p.move[2]+tx.at)*pixel])
	}
	copyTo := func(lane int, s unsafe.Pointer, load, store int) {
		if store > 0 {
			k.tiles.Copy(unsafe.Pointer(&to[2*lane]), cellBytes, row, s, p.move[2]*pixel, p.move[1]*line, x.to-x.from, y.to-y.from, 1<<load-1, 1<<store-1)
		}
	}
	all := len(p.taps[2]) * k.depth // elements of a row of the window
	if n := len(p.taps[1]); k.Size[0]*k.In[0] == 1 && y.hi-y.lo == n && x.hi-x.lo == len(p.taps[2]) && n <= gemm.PatchRuns {
		k.tiles.Patches(unsafe.Pointer(&to[0]), cellBytes, row, source(p.taps[0][0], p.taps[1][0], p.taps[2][0]), p.move[2]*pixel, p.move[1]*line,
			x.to-x.from, y.to-y.from, n, k.Dilation[1]*line, all)
		return
	}
	lane, zeros := 0, unsafe.Pointer(&tile[0]) // a valid address for lanes that load nothing
	before, n := x.lo*k.depth, (x.hi-x.lo)*k.depth
	for _, tz := range p.taps[0] {
		z := b.z*p.move[0] + tz.at
		for i, ty := range p.taps[1] {
			store := all
			if lane+all == p.vector {
				store = cellElements - lane
			}
			if z < 0 || z >= k.dims[0] || i < y.lo || i >= y.hi || n == 0 {
				copyTo(lane, zeros, 0, store)
			} else {
				copyTo(lane, zeros, 0, before)
				copyTo(lane+before, source(tz, ty, p.taps[2][x.lo]), n, store-before)
			}
			lane += all
		}
	}
}

// clearCells clears n bytes of each piece of an input tile.
func (k *tileGEMM) clearCells(p *tilePhase, tile []byte, n int) {
	for i := range k.pieces {
		clear(tile[i*p.piece:][:n])
	}
}

// fillRow copies a row of the source into the pieces of an input tile, block by block of
// channels.
func (k *tileGEMM) fillRow(r *exec.Run, p *tilePhase, group, line int, tile []byte) {
	left := min(max(0, -p.low[2]), p.pitch)
	cols := max(0, min(p.pitch, k.dims[2]-p.low[2])-left)
	for c := range p.blocks {
		to := tile[c*p.block:]
		k.clearCells(p, to, left*cellBytes)
		k.clearCells(p, to[(left+cols)*cellBytes:], (p.pitch-left-cols)*cellBytes)
		if cols == 0 {
			continue
		}
		from := (line*k.dims[2]+p.low[2]+left)*k.srcAll + group*k.depth + c*cellElements
		d, s := unsafe.Pointer(&to[left*cellBytes]), unsafe.Pointer(&r.Values[k.source][2*from])
		n := min(cellElements, k.depth-c*cellElements)
		k.splitter(d, cellBytes, p.piece, s, 2*k.srcAll, cols, n, unsafe.Pointer(k.found(r)))
	}
}

// fillSide copies, for each pixel of a row, the elements of a row of the window.
func (k *tileGEMM) fillSide(r *exec.Run, w *exec.Worker, p *tilePhase, group, line int, tile []byte) {
	pixels := (p.count[2]-1)*p.move[2] + p.span[2]
	pixel := 2 * k.srcAll
	var src unsafe.Pointer
	if p.low[2] >= 0 && p.low[2]+pixels <= k.dims[2] {
		src = unsafe.Pointer(&r.Values[k.source][2*((line*k.dims[2]+p.low[2])*k.srcAll+group*k.depth)])
	} else {
		src, pixel = k.padLine(r, w, p, group, line, pixels), 2*k.depth
	}
	runs, n := len(p.taps[2]), k.depth
	if pixel == 2*k.depth && runs == p.span[2] {
		runs, n = 1, p.vector
	}
	for i := range runs {
		at := unsafe.Add(src, (p.taps[2][i].at-p.low[2])*pixel)
		for v, end := i*n, i*n+n; v < end; {
			lane := v % cellElements
			load := min(end-v, cellElements-lane)
			store := load
			if v+load == p.vector {
				store = cellElements - lane
			}
			k.tiles.Copy(unsafe.Pointer(&tile[v/cellElements*p.block+2*lane]), cellBytes, 0, at, p.move[2]*pixel, 0, p.count[2], 1, 1<<load-1, 1<<store-1)
			v, at = v+load, unsafe.Add(at, 2*load)
		}
	}
	for c := range p.blocks {
		k.split(r, unsafe.Pointer(&tile[c*p.block]), cellBytes, p.piece, p.pitch, cellElements)
	}
}

// padLine copies a group's channels of a row of the source, with zeros for pixels outside of
// the image.
func (k *tileGEMM) padLine(r *exec.Run, w *exec.Worker, p *tilePhase, group, line, pixels int) unsafe.Pointer {
	pixel := 2 * k.depth
	to := w.Scratch[k.atLine:][:pixels*pixel]
	left := min(max(0, -p.low[2]), pixels)
	cols := max(0, min(pixels, k.dims[2]-p.low[2])-left)
	clear(to[:left*pixel])
	clear(to[(left+cols)*pixel:])
	from := ((line*k.dims[2]+p.low[2]+left)*k.srcAll + group*k.depth) * 2
	switch data := r.Values[k.source]; {
	case cols == 0:
	case k.groups == 1:
		copy(to[left*pixel:(left+cols)*pixel], data[from:])
	default:
		for c := 0; c < k.depth; c += cellElements {
			mask := uint(1)<<min(cellElements, k.depth-c) - 1
			k.tiles.Copy(unsafe.Pointer(&to[left*pixel+2*c]), pixel, 0, unsafe.Pointer(&data[from+2*c]), 2*k.srcAll, 0, cols, 1, mask, mask)
		}
	}
	return unsafe.Pointer(&to[0])
}

// place sets the offsets of p's blocks in the source if it can be read in place.
func (k *tileGEMM) place(p *tilePhase) {
	pixel := 2 * k.srcAll
	if k.pieces > 1 || p.side || p.steps == 0 || k.depth%cellElements != 0 || pixel > placedBytes || p.move[1] != 1 || p.pitch != k.dims[2] {
		return
	}
	for axis := range 3 {
		if p.low[axis] < 0 || p.low[axis]+p.span[axis]+(p.count[axis]-1)*p.move[axis] > k.dims[axis] {
			return
		}
	}
	for b := range p.blocks {
		for _, tz := range p.taps[0] {
			for _, ty := range p.taps[1] {
				for _, tx := range p.taps[2] {
					p.placed = append(p.placed, int64(((tz.at*k.dims[1]+ty.at)*k.dims[2]+tx.at)*pixel+b*cellBytes))
				}
			}
		}
	}
}

// inSource returns the offset of the first pixel of a band in the source, and whether
// micro-kernels can read the band in place: they take whole units of pixels, which may extend
// beyond the end of the source.
func (k *tileGEMM) inSource(r *exec.Run, p *tilePhase, b *band, group, image int) (int, bool) {
	if p.placed == nil {
		return 0, false
	}
	pixel := 2 * k.srcAll
	at := (((image*k.dims[0]+b.z*p.move[0])*k.dims[1]+b.y)*k.dims[2])*pixel + 2*group*k.depth
	pixels := tiling.RoundUp((b.rows-1)*p.pitch+p.count[2], k.tiles.Unit)
	return at, at+(pixels-1)*pixel+int(p.placed[len(p.placed)-1])+cellBytes <= len(r.Values[k.source])
}

// bf16Split describes the operands of convolutions on tile registers: a bfloat16 as it is, a
// float16 in two bfloat16 pieces, as in package product. A number that is not finite cannot be
// split. Splitting reports it, and fallback then computes the whole result in float32. A part
// of the result may have been written by then, so operands must not share the result's memory.
type bf16Split struct {
	pieces int // bfloat16 numbers that make up an element

	// For two pieces: gemm.Panels.Split, and the kernel in float32.
	splitter func(d unsafe.Pointer, ldd, low int, s unsafe.Pointer, lds, rows, n int, found unsafe.Pointer)
	fallback exec.Kernel
}

// found returns the flag for an element that is not finite, which is at the start of shared
// memory.
func (k *bf16Split) found(r *exec.Run) *uint32 { return (*uint32)(unsafe.Pointer(&r.Shared[0])) }

// clearFound clears the flag. It must be called before operands are split.
func (k *bf16Split) clearFound(r *exec.Run) { clear(r.Shared[:product.FlagBytes]) }

// lost reports whether an element was not finite: fallback must compute the result.
func (k *bf16Split) lost(r *exec.Run) bool {
	return k.pieces > 1 && atomic.LoadUint32(k.found(r)) != 0
}

// split splits rows of n elements, a multiple of 32, into two pieces if the operands are
// float16: the high piece in place, the low piece low bytes after it.
func (k *bf16Split) split(r *exec.Run, d unsafe.Pointer, ld, low, rows, n int) {
	if k.pieces > 1 {
		k.splitter(d, ld, low, d, ld, rows, n, unsafe.Pointer(k.found(r)))
	}
}

// prefetchRange is memory to be prefetched to L2, a part at a time.
type prefetchRange []byte

// stepPrefetch is the number of bytes that a micro-kernel prefetches in a step.
const stepPrefetch = 256

// next returns the address of the part for a call with the given number of steps,
// nil if there is none, and removes the part.
func (a *prefetchRange) next(steps int) unsafe.Pointer {
	n := steps * stepPrefetch
	if len(*a) < n {
		return nil
	}
	p := unsafe.Pointer(&(*a)[0])
	*a = (*a)[n:]
	return p
}

// prefetchOf returns data[from:to], limited to the length of data.
func prefetchOf(data []byte, from, to int) prefetchRange {
	return data[min(from, len(data)):min(to, len(data))]
}

// behindBand returns roughly the source of the band after b: as many bytes as b reads, after
// those of b.
func (k *tileGEMM) behindBand(r *exec.Run, p *tilePhase, b *band, images int) prefetchRange {
	line := 2 * k.dims[2] * k.srcAll
	from, n := (b.image*k.dims[0]+b.z*p.move[0])*k.dims[1]*line, images*k.dims[0]*k.dims[1]*line
	if p.bands > 1 || p.count[0] > 1 {
		from, n = from+max(0, b.y*p.move[1]+p.low[1])*line, p.reads(b.rows)*line
	}
	return prefetchOf(r.Values[k.source], from+n, from+2*n)
}

// prefetchBlock sets the operands of block j to be prefetched while block b is
// multiplied.
func (k *wgradTiles) prefetchBlock(r *exec.Run, b *pixelBlock, j int) {
	plane, y := j/k.bands*k.planes, j%k.bands*k.block
	line, from := 2*k.Out[2]*k.outs, plane*k.Out[1]+y
	b.prefetch[0] = prefetchOf(r.Values[k.b], from*line, (from+k.planes*k.block)*line)
	line, from = 2*k.In[2]*k.channels, (plane/k.Out[0]*k.In[0]+plane%k.Out[0]*k.Stride[0])*k.In[1]+y*k.Stride[1]
	rows := k.block * k.Stride[1]
	if k.planes > 1 {
		rows = k.planes * k.In[1]
	}
	b.prefetch[1] = prefetchOf(r.Values[k.a], from*line, (from+rows)*line)
}
