package conv

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// tileGEMM is the implicit GEMM of a convolution, or of its gradient by the input, for
// micro-kernels on tile registers (AMX), which multiply many pixels by blocks of channels and
// read A from a list of block addresses. A band of the source is copied once into an input
// tile, one block of channels after the other, so that consecutive pixels of the result have
// the same distance in memory, also from the end of a row to the next row. A micro-kernel then
// takes pixels across rows; the sums of pixels between two rows are discarded. Each element of
// the window reads a block at a fixed offset from the pixel, so that one call adds up the
// whole window.
//
// Where channels do not fill blocks, or windows have strides, the elements of a row of the
// window are stored side by side instead (side): a pixel's vector in the input tile holds them
// all, and there are no pixels between rows. If the whole window fits in a block, all of its
// elements are stored side by side (patch).
//
// Where blocks are full and windows do not extend beyond the source, the source is read in
// place.
type tileGEMM struct {
	*implicitGEMM
	bf16Split
	phases      []tilePhase
	chunks      []int  // by phase
	interleaved bool   // chunk i is chunk i of every phase
	least       [3]int // first source position that the first pixel of a phase reads
	most        [3]int // last source position that the first pixel of a phase reads
	weigh       packTileWeights
	parts       int // of the columns; each is a task
	ld          int // bytes from a row of accumulators to the next

	atTile, atLine int // offsets in scratch memory
}

// tilePhase is a phase and the layout of its source in an input tile.
type tilePhase struct {
	stridedPhase
	taps    [3][]tap
	side    bool          // the elements of a row of the window are side by side
	patch   bool          // and those of the whole window
	down    []regionPiece // cuts of a column, for patches
	across  []regionPiece // cuts of a row, for patches
	vector  int           // elements of a pixel in the input tile
	blocks  int           // that a pixel fills
	starts  int           // elements of the window at which blocks begin
	rows    int           // of each residue of the stride, in a plane of the input tile
	pitch   int           // pixels of a row of the input tile
	block   int           // bytes of a block of all pixels
	piece   int           // bytes of one bfloat16 piece of an input tile
	bytes   int           // of the input tile of an image
	pixels  int           // from the first pixel of the result in an input tile to the end of the last
	steps   int           // blocks × starts
	first   int           // index of the first step among those of all phases
	at      []int64
	placed  []int64 // like at, for reading the source in place; nil if it must be copied
	images  int     // of a chunk
	whole   bool
	chunkOf int // steps of a call, at most
}

const (
	cellBytes      = 64         // of a row of a block: cellElements
	cellElements   = 32         // 16-bit elements of a row of a block
	sideSaves      = 8          // elements are stored side by side if that saves one of this many steps
	panelSteps     = 18         // of packed kernels that stay in L1
	inputTileBytes = 768 << 10  // of the input tiles of a chunk, in L2 with everything else
	streamBytes    = 1088 << 10 // of the input tiles, if packed kernels do not stay in L2
	sumBytes       = 640 << 10  // of the accumulators of a chunk
	keptBytes      = 320 << 10  // of packed kernels that stay in L2, too
	groupBytes     = 64 << 10   // of accumulators that share a panel of kernels and are stored together
	shortBytes     = 24 << 10   // of these accumulators with panels of at most shortSteps: they stay in L1
	shortSteps     = 4
	placedBytes    = 512 // of a pixel of a source that is read in place: the lines of 16 pixels fit in L1
)

// newTileGEMM makes the kernel of k. It returns nil if images are so small that most rows of a
// micro-kernel would lie between rows of pixels.
func newTileGEMM(b *exec.Builder, v *ir.Value, k *implicitGEMM, pieces bf16Split) *tileGEMM {
	c := &tileGEMM{implicitGEMM: k, bf16Split: pieces}
	k.panels = tiling.CeilDiv(k.lanes, k.tiles.NR)
	c.prefetchRange()
	k.eachPhase(c.phase)
	for i := range c.phases {
		if c.phases[i].pixels < k.tiles.Unit {
			return nil
		}
	}
	c.weigh.tileGEMM = c
	c.layout(b, v)
	return c
}

// phase lays out the input tile of p.
func (k *tileGEMM) phase(p stridedPhase, taps [3][]tap) {
	q := tilePhase{stridedPhase: p, taps: taps}
	q.steps = 1
	for axis, list := range taps {
		q.steps *= len(list)
		if len(list) > 0 {
			q.low[axis], q.span[axis] = list[0].at, list[len(list)-1].at-list[0].at+1
		}
	}
	// Partly filled blocks take more steps, but a smaller input tile.
	q.side = q.move[2] != 1 || sideSaves*tiling.CeilDiv(k.depth*len(taps[2]), cellElements) < (sideSaves-1)*tiling.CeilDiv(k.depth, cellElements)*len(taps[2])
	if !q.side && q.steps > 0 {
		for axis := 1; axis < 3; axis++ { // along axis 0 input tiles hold only the planes that are read
			q.low[axis], q.span[axis] = k.least[axis], k.most[axis]-k.least[axis]+1
		}
	}
	if n := len(k.phases); n > 0 {
		q.first = k.phases[n-1].first + k.phases[n-1].steps
	}
	if k.code == op.Conv && k.groups == 1 && k.Dilation[2] == 1 && k.depth*k.WindowSize <= cellElements && k.WindowSize > len(taps[2]) {
		q.side, q.patch = true, true
		q.down, q.across = k.along(&q.stridedPhase, 1, taps[1]), k.along(&q.stridedPhase, 2, taps[2])
	}
	q.vector, q.pitch, q.starts = k.depth, q.count[2]+max(0, q.span[2]-1), q.steps
	if q.side && q.steps > 0 {
		q.starts = q.steps / len(taps[2])
		q.vector, q.pitch = k.depth*len(taps[2]), q.count[2]
	}
	if q.patch {
		q.starts, q.vector = 1, k.depth*k.WindowSize
	}
	q.blocks = tiling.CeilDiv(q.vector, cellElements)
	q.steps = q.blocks * q.starts
	q.chunkOf = tiling.Even(max(1, q.steps), panelSteps/k.pieces, 1)
	k.place(&q)
	q.band = q.count[1]
	k.fit(&q)
	budget, most := inputTileBytes, inputTileBytes/2
	if !k.inL2(&q) { // packed kernels are read once for a whole chunk
		budget, most = streamBytes, streamBytes
	}
	for q.band > 1 && (q.bytes > most || q.pixels > 512) {
		q.band = tiling.CeilDiv(q.band, 2)
		k.fit(&q)
	}
	q.band = tiling.Even(q.count[1], q.band, 1)
	k.fit(&q)
	q.bands = tiling.CeilDiv(q.count[1], q.band)
	q.images = 1
	if q.bands*q.count[0] == 1 {
		q.whole = true
		chunks := 2 * tiling.MinChunks
		if !k.inL2(&q) {
			chunks = tiling.MinChunks
		}
		for 2*q.images*q.bytes <= budget && 2*q.images*q.pixels*4*k.lanes <= sumBytes && k.Batch >= chunks*2*q.images && q.images*q.pixels < 256 {
			q.images *= 2
		}
	}
	q.chunks = tiling.CeilDiv(k.Batch, q.images) * q.count[0] * q.bands
	k.phases, k.chunks = append(k.phases, q), append(k.chunks, q.chunks)
}

// fit sizes the input tile for the rows of a band.
func (k *tileGEMM) fit(q *tilePhase) {
	q.rows = q.band + (q.span[1]-1)/q.move[1]
	row := q.pitch * cellBytes
	plane := q.move[1] * q.rows * row
	q.block = len(q.taps[0]) * plane
	if q.patch {
		q.rows, q.block = q.band, q.band*row
	}
	// Micro-kernels take whole units of pixels.
	q.piece = q.blocks*q.block + k.tiles.MR*cellBytes
	q.bytes = k.pieces * q.piece
	q.pixels = (q.band-1)*q.pitch + q.count[2]
	q.at = q.at[:0]
	if q.steps == 0 {
		return
	}
	if q.patch {
		q.at = append(q.at, 0)
		return
	}
	across := q.taps[2]
	if q.side {
		across = across[:1]
	}
	for b := range q.blocks {
		for i := range q.taps[0] {
			for _, ty := range q.taps[1] {
				y := ty.at - q.low[1]
				at := b*q.block + i*plane + (y%q.move[1]*q.rows+y/q.move[1])*row
				for _, tx := range across {
					q.at = append(q.at, int64(at+(tx.at-q.low[2])*cellBytes))
				}
			}
		}
	}
}

// layout places input tiles, accumulators and a row of the source in scratch memory, and
// packed kernels in shared memory.
func (k *tileGEMM) layout(b *exec.Builder, v *ir.Value) {
	chunks, inputs, rows, line := 0, 0, 0, 0
	for i := range k.phases {
		p := &k.phases[i]
		chunks += p.chunks
		inputs = max(inputs, p.images*p.bytes)
		rows = max(rows, p.images*tiling.RoundUp(p.pixels, k.tiles.Unit))
		line = max(line, 2*k.depth*((p.count[2]-1)*p.move[2]+p.span[2]))
	}
	k.interleaved = len(k.chunks) > 1 && slices.Min(k.chunks) == slices.Max(k.chunks) && k.groups*k.chunks[0] >= 2*tiling.MinChunks
	k.parts = min(k.panels, max(1, tiling.CeilDiv(tiling.MinChunks, k.groups*chunks)))
	k.ld = 4 * tiling.CeilDiv(k.panels, k.parts) * k.tiles.NR
	if k.ld%product.Conflicts == 0 {
		k.ld += product.RowPad
	}
	k.atTile = inputs
	k.atLine = k.atTile + tiling.RoundUp(rows*k.ld, 64)
	k.addEpilogue(b, v, k.atLine+tiling.RoundUp(line, 64), k.lanes)
	k.result = product.Writer{Set: k.set, N: k.dstAll, TileN: k.lanes, Out: k.dst, To: k.to, After: k.after}
	b.ReserveShared(product.FlagBytes + k.groups*k.panels*k.allSteps()*k.pieces*k.stepBytes())
}

// stepBytes returns the size of one bfloat16 piece of the packed kernels of a step and panel.
func (k *tileGEMM) stepBytes() int { return 4 * k.tiles.Deep * k.tiles.NR }

// lowWeights returns the bytes from the high piece of a panel of packed kernels to its low
// piece.
func (k *tileGEMM) lowWeights() int { return k.allSteps() * k.stepBytes() }

func (k *tileGEMM) allSteps() int {
	last := &k.phases[len(k.phases)-1]
	return last.first + last.steps
}

func (k *tileGEMM) Run(r *exec.Run) {
	packs, chunks := 0, 0
	for i := range k.phases {
		packs += k.phases[i].starts * k.packsOf(&k.phases[i])
		chunks += k.phases[i].chunks
	}
	k.clearFound(r)
	r.Parallel(&k.weigh, k.groups*packs, k.WindowSize*k.perGroup*k.outs)
	if k.interleaved {
		chunks /= len(k.phases)
	}
	r.Parallel(k, k.groups*k.parts*chunks, k.macs()/16)
	if k.lost(r) {
		k.fallback.Run(r)
	}
}

// packTileWeights is the task that packs kernels. A chunk packs, for one element of the window
// at which blocks begin, a block of input channels for all panels, or for the gradient by the
// input all blocks of one panel. Both read the kernels in the order of memory.
type packTileWeights struct{ *tileGEMM }

// packsOf returns the number of chunks for an element of the window.
func (k *tileGEMM) packsOf(p *tilePhase) int {
	if k.code == op.Conv {
		return p.blocks
	}
	return k.panels
}

// panel returns the packed kernels of a step.
func (k *tileGEMM) panel(r *exec.Run, p *tilePhase, group, panel, step int) unsafe.Pointer {
	at := ((group*k.panels+panel)*k.pieces*k.allSteps() + p.first + step) * k.stepBytes()
	return unsafe.Pointer(&r.Shared[product.FlagBytes+at])
}

func (k *packTileWeights) Chunk(r *exec.Run, _ *exec.Worker, i int) {
	p, group := &k.phases[0], 0
	for j := range k.phases {
		p = &k.phases[j]
		n := k.groups * p.starts * k.packsOf(p)
		if i < n {
			break
		}
		i -= n
	}
	group, i = i%k.groups, i/k.groups
	start, unit := i%p.starts, i/p.starts
	nx := len(p.taps[2])
	ix := 0
	if !p.side {
		ix = start % nx
		start /= nx
	}
	ty, tz := p.taps[1][start%len(p.taps[1])], p.taps[0][start/len(p.taps[1])]
	row := (tz.element*k.Size[1] + ty.element) * k.Size[2]
	start = i % p.starts
	t, src := k.tiles, unsafe.Pointer(unsafe.SliceData(r.Values[k.b]))
	nr := t.NR
	if k.code == op.Conv {
		// The elements of the window that are side by side are consecutive in memory.
		from := (row+p.taps[2][ix].element)*k.perGroup + unit*cellElements
		n := min(cellElements, p.vector-unit*cellElements)
		for panel := range k.panels {
			cols := min(nr, k.lanes-panel*nr)
			d := k.panel(r, p, group, panel, unit*p.starts+start)
			k.pad(d, n)
			at := from*k.outs + group*k.outsPerGroup + panel*nr
			k.set.Lanes[gemm.Pairs](d, 4*nr, unsafe.Add(src, 2*at), 2*k.outs, n, 1<<cols-1, 1<<nr-1)
			k.splitStep(r, d)
		}
		return
	}
	cols := min(nr, k.lanes-unit*nr)
	last := p.blocks - 1
	k.pad(k.panel(r, p, group, unit, last*p.starts+start), p.vector-last*cellElements)
	for x, tx := range p.taps[2] {
		if !p.side && x != ix {
			continue
		}
		at := ((row+tx.element)*k.perGroup+unit*nr)*k.outs + group*k.outsPerGroup
		v := 0
		if p.side {
			v = x * k.depth
		}
		for from := 0; from < k.depth; {
			n := min(k.depth-from, cellElements-v%cellElements)
			d := unsafe.Add(k.panel(r, p, group, unit, v/cellElements*p.starts+start), 4*nr*(v%cellElements/2))
			for j := 0; j < nr; j += 16 {
				load := max(0, min(16, cols-j))
				lane := at + min(j, cols-1)*k.outs + from
				k.set.Transpose[gemm.Pairs](unsafe.Add(d, 4*j), 4*nr, unsafe.Add(src, 2*lane), 2*k.outs, n, 1<<load-1, 1<<16-1)
			}
			from, v = from+n, v+n
		}
	}
	for block := range p.blocks {
		k.splitStep(r, k.panel(r, p, group, unit, block*p.starts+start))
	}
}

// splitStep splits the packed float16 kernels of a step into two bfloat16 pieces.
func (k *packTileWeights) splitStep(r *exec.Run, d unsafe.Pointer) {
	k.split(r, d, 0, k.lowWeights(), 1, k.stepBytes()/2)
}

// pad clears the rows of packed kernels of a step after the first n elements.
func (k *packTileWeights) pad(d unsafe.Pointer, n int) {
	used := tiling.CeilDiv(n, 2)
	clear(unsafe.Slice((*uint32)(unsafe.Add(d, 4*k.tiles.NR*used)), k.tiles.NR*(k.tiles.Deep-used)))
}

func (k *tileGEMM) Chunk(r *exec.Run, w *exec.Worker, i int) {
	group, part := i%k.groups, i/k.groups%k.parts
	i /= k.groups * k.parts
	if !k.interleaved {
		phase, i := chunkOf(k.chunks, i)
		k.bandOf(r, w, group, part, phase, i, true)
		return
	}
	for phase := range k.phases {
		k.bandOf(r, w, group, part, phase, i, phase == 0 || !k.phases[phase].readsAs(&k.phases[phase-1]))
	}
}

// bandOf computes band i of a phase. fill is false if the input tiles of the previous phase
// can be used again.
func (k *tileGEMM) bandOf(r *exec.Run, w *exec.Worker, group, part, phase, i int, fill bool) {
	p := &k.phases[phase]
	y := i % p.bands * p.band
	i /= p.bands
	b := band{image: i / p.count[0] * p.images, z: i % p.count[0], y: y, rows: min(p.band, p.count[1]-y)}
	images := min(p.images, k.Batch-b.image)
	for j := range images {
		if _, ok := k.inSource(r, p, &b, group, b.image+j); fill && !ok {
			k.fill(r, w, p, &b, group, b.image+j, w.Scratch[j*p.bytes:][:p.bytes])
		}
	}
	if k.lost(r) {
		return
	}
	runtime.LockOSThread()
	k.tiles.Begin()
	// If all packed kernels stay in L2, sums of a few rows are computed and stored while they
	// are in L1; else the packed kernels are read once for all rows.
	lo, hi := tiling.Cut(part, k.parts, k.panels)
	rows := (b.rows-1)*p.pitch + p.count[2]
	if k.inL2(p) {
		var next prefetchRange
		if fill && k.pieces == 1 {
			next = k.behindBand(r, p, &b, images)
		}
		group32 := groupBytes
		if p.steps <= shortSteps {
			group32 = shortBytes
		}
		group32 = max(1, group32/(k.ld*k.tiles.MR)) * k.tiles.MR
		for j := range images {
			for at := 0; at < rows; at += group32 {
				k.compute(r, w, p, &b, group, lo, hi, j, j+1, at, min(at+group32, rows), &next)
				k.put(r, w, p, &b, group, lo, hi, j, j+1, at, min(at+group32, rows))
			}
		}
	} else {
		k.compute(r, w, p, &b, group, lo, hi, 0, images, 0, rows, nil)
		k.put(r, w, p, &b, group, lo, hi, 0, images, 0, rows)
	}
	k.tiles.End()
	runtime.UnlockOSThread()
}

// inL2 reports whether the packed kernels of a phase stay in L2.
func (k *tileGEMM) inL2(p *tilePhase) bool {
	return p.steps*k.panels*k.pieces*k.stepBytes() <= keptBytes
}

// compute computes the sums of panels lo to hi-1 for the pixels [from, to) of the input tiles
// of some images. It prefetches the next packed kernels, or behind if the kernels stay in L2.
func (k *tileGEMM) compute(r *exec.Run, w *exec.Worker, p *tilePhase, b *band, group, lo, hi, image, images, from, to int, behind *prefetchRange) {
	t := k.tiles
	units := tiling.CeilDiv(to-from, t.Unit)
	heights := tiling.CeilDiv(units*t.Unit, t.MR)
	if p.steps == 0 {
		clear(w.Scratch[k.atTile:][:(images-image)*units*t.Unit*k.ld])
		return
	}
	for panel := lo; panel < hi; panel++ {
		for step := 0; step < p.steps; step += p.chunkOf {
			n := min(p.chunkOf, p.steps-step)
			weights := k.panel(r, p, group, panel, step)
			next, steps, call := unsafe.Pointer(nil), 0, 0
			switch {
			case k.inL2(p):
			case step+n < p.steps:
				next, steps = k.panel(r, p, group, panel, step+n), min(p.chunkOf, p.steps-step-n)
			case panel+1 < hi:
				next, steps = k.panel(r, p, group, panel+1, 0), p.chunkOf
			}
			for j := image; j < images; j++ {
				d := unsafe.Pointer(&w.Scratch[k.atTile+(j-image)*units*t.Unit*k.ld+4*(panel-lo)*t.NR])
				a, lda, places := unsafe.Pointer(&w.Scratch[j*p.bytes+from*cellBytes]), cellBytes, p.at
				if at, ok := k.inSource(r, p, b, group, b.image+j); ok {
					lda, places = 2*k.srcAll, p.placed
					a = unsafe.Pointer(&r.Values[k.source][at+from*lda])
				}
				for h := range heights {
					first, end := tiling.Cut(h, heights, units)
					first, end = first*t.Unit, end*t.Unit
					dh := unsafe.Add(d, first*k.ld)
					s := dh
					if step == 0 {
						s = nil
					}
					part := unsafe.Pointer(nil)
					switch {
					case behind != nil:
						part = behind.next(n)
					case steps > 0 && call < 8:
						part = unsafe.Add(next, call*steps*k.stepBytes()/8)
					}
					t.Runs[k.pieces-1][end-first](n, unsafe.Add(a, first*lda), lda, p.piece, unsafe.Pointer(&places[step]), weights, k.lowWeights(), s, k.ld, dh, k.ld, part)
					call++
				}
			}
		}
	}
}

// put stores the sums of compute.
func (k *tileGEMM) put(r *exec.Run, w *exec.Worker, p *tilePhase, b *band, group, lo, hi, image, images, from, to int) {
	t := k.tiles
	rows := tiling.RoundUp(to-from, t.Unit)
	tile := product.Tile{Col: group*k.lanes + lo*t.NR, Cols: min(k.lanes, hi*t.NR) - lo*t.NR, LD: k.ld}
	for j := image; j < images; j++ {
		if p.pitch == p.count[2] && p.step == [3]int{1, 1, 1} { // rows are contiguous in the accumulators and in the result
			tile.Data = unsafe.Pointer(&w.Scratch[k.atTile+(j-image)*rows*k.ld])
			tile.Row, tile.Rows = k.pixelOf(&p.stridedPhase, b.image+j, b.z, b.y, 0)+from, to-from
			k.store(r, w, tile)
			continue
		}
		for y := from / p.pitch; y < b.rows; y++ {
			x0, x1 := max(0, from-y*p.pitch), min(p.count[2], to-y*p.pitch)
			if x1 <= x0 {
				continue
			}
			tile.Data = unsafe.Pointer(&w.Scratch[k.atTile+((j-image)*rows+y*p.pitch+x0-from)*k.ld])
			tile.Row, tile.Rows = k.pixelOf(&p.stridedPhase, b.image+j, b.z, b.y+y, x0), x1-x0
			tile.Step = p.step[2]
			k.store(r, w, tile)
		}
	}
}
