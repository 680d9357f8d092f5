package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// borderGEMM is an implicitGEMM whose micro-kernels go through runs of memory: the sum over
// the whole window stays in registers. A window that extends over the border has fewer
// elements, so a phase is cut into regions, boxes of pixels whose windows have the same
// elements within the source. If sums must have one order on every level, padding is copied with
// the source instead, and multiplied. A micro-kernel takes consecutive pixels of a region along any
// axis, or the same pixel of several images, whichever fills its tiles best.
//
// Kernels that do not fit in L1 are cut into slices of the inner dimension: a slice is
// multiplied with all pixels of a chunk before the next slice.
type borderGEMM struct {
	*implicitGEMM
	cuts   []regionCuts // by phase
	chunks []int        // by phase
	ld     int          // bytes from a row of accumulators to the next
	sums   *sumEpilogue // which micro-kernels start with and end, or nil
}

// regionCuts is the cuts of a phase into regions and chunks.
type regionCuts struct {
	regions []borderRegion
	slices  int
	images  int // of a chunk
	parts   int // of the panels of all groups; each is a task
	chunks  int
	box     int // bytes of the copied source of an image
}

// borderRegion is a box of pixels of a phase, with the runs that they read in each slice.
type borderRegion struct {
	from, to [3]int
	slices   []regionSlice
}

// regionSlice is the runs of a slice. The offsets of runs count from the slice's first run,
// which begins first bytes after the source position of the phase's first pixel. The first
// slice with a run begins the sums.
type regionSlice struct {
	first  int
	begins bool
	runs   []int64
}

const (
	sliceCells  = 256       // of a slice, at most: its packed kernels stay in L1
	regionBytes = 768 << 10 // that a chunk reads and writes, about: they stay in L2
	patchPixels = 256       // of all images: with more of them patches are not gathered
	lowTile     = 6         // rows of a tile below which tiles take no less time
)

// byPixels reports whether micro-kernels take single pixels of k.
func (k *implicitGEMM) byPixels() bool {
	t := k.tiles
	return t.Unit == 1 && t.RowRuns != nil && !k.oneChannel() && (k.depth+k.pad)%t.Step == 0
}

// inRegions reports whether borderGEMM can compute k: micro-kernels take single pixels, and
// there is an axis along which tiles have enough rows. Gathered patches give the same bits.
func (k *implicitGEMM) inRegions() bool {
	if !k.byPixels() {
		return false
	}
	dims := k.Out
	if k.code == op.ConvInputGrad {
		for axis := range dims {
			dims[axis] = tiling.CeilDiv(k.In[axis], k.Stride[axis])
		}
	}
	return max(dims[2], dims[1], k.Batch) >= min(shortRow, k.tiles.MR)
}

func newBorderGEMM(b *exec.Builder, v *ir.Value, p *implicitGEMM) exec.Kernel {
	k := &borderGEMM{implicitGEMM: p}
	k.zeros = k.set.Ordered // as gathered patches have
	k.panels = tiling.CeilDiv(k.lanes, k.tiles.NR)
	k.weigh.implicitGEMM = p
	k.eachPhase(k.phase)
	if k.direct = k.inResult(v); !k.direct && k.storesResult() && k.wholeSums() {
		k.sums = newSumEpilogue(b, v, k.set, k.outs)
		k.direct = k.sums != nil
	}
	box, most := 0, 0
	for i := range k.phases {
		p, c := &k.phases[i], &k.cuts[i]
		box = max(box, c.box*c.images)
		most = max(most, c.images*p.band*p.count[2])
	}
	units := 0
	for i := range k.cuts {
		units = max(units, tiling.CeilDiv(k.groups*k.panels, k.cuts[i].parts))
	}
	k.ld = 4 * min(k.dstAll, units*k.tiles.NR)
	if !k.tiles.Masked { // the last panel is written without a mask
		k.ld = 4 * tiling.RoundUp(units*k.tiles.NR, k.tiles.NR)
	}
	tile := 0
	if !k.direct {
		tile = most * k.ld
	}
	k.atTile = tiling.RoundUp(box, 64)
	k.addEpilogue(b, v, k.atTile+tiling.RoundUp(tile, 64), k.dstAll)
	k.result = product.Writer{Set: k.set, N: k.dstAll, TileN: k.dstAll, Out: k.dst, To: k.to, After: k.after}
	k.reserveWeights(b, k.weightBytes())
	return k
}

// wholeSums reports whether each pixel is computed by one call: there is one slice, which is not
// empty.
func (k *borderGEMM) wholeSums() bool {
	for _, c := range k.cuts {
		for _, g := range c.regions {
			if c.slices > 1 || len(g.slices[0].runs) == 0 {
				return false
			}
		}
	}
	return true
}

// phase cuts a phase with the given elements of the window into regions.
func (k *borderGEMM) phase(p stridedPhase, taps [3][]tap) {
	k.addRuns(&p, taps)
	p.copied = k.element == k.stored && k.bytes != k.from.Size() || k.pad > 0 || k.zeros && !k.within(&p)
	c := regionCuts{slices: k.slices(&p)}
	var pieces [3][]regionPiece
	for axis := range 3 {
		pieces[axis] = k.along(&p, axis, taps[axis])
	}
	k.cut(&p, &c, pieces)
	k.phases = append(k.phases, p)
	for _, z := range pieces[0] {
		for _, y := range pieces[1] {
			for _, x := range pieces[2] {
				c.regions = append(c.regions, k.region(&p, &c, taps, [3]regionPiece{z, y, x}))
			}
		}
	}
	k.cuts, k.chunks = append(k.cuts, c), append(k.chunks, c.chunks)
}

// cut chooses the chunks of a phase.
func (k *borderGEMM) cut(p *stridedPhase, c *regionCuts, pieces [3][]regionPiece) {
	wanted := min(tiling.MinChunks, tiling.CeilDiv(k.macs(), product.ChunkMACs))
	bytes := 4 * (p.span[0]*min(k.dims[1]*k.dims[2], p.count[1]*p.move[1]*p.count[2]*p.move[2])*k.srcAll + p.count[1]*p.count[2]*k.dstAll)
	planes := k.Batch * p.count[0]
	band := tiling.Even(p.count[1], max(1, p.count[1]*regionBytes/max(1, bytes)), 1)
	p.band = min(band, tiling.CeilDiv(p.count[1], tiling.CeilDiv(wanted, max(1, planes))))
	p.band = tiling.Even(p.count[1], max(1, p.band), 1)
	c.images = 1
	if p.band == p.count[1] {
		c.images = tiling.Even(k.Batch, max(1, min(regionBytes/max(1, bytes), max(k.tiles.MR, tiling.CeilDiv(k.Batch, 2*tiling.MinChunks)))), 1)
	}
	// Where the border leaves few rows for a tile, the same pixel of several images gives
	// more. Then a chunk has fewer rows of more images.
	if images := tiling.Even(k.Batch, k.tiles.MR, 1); images > c.images {
		rows := tiling.Even(p.count[1], max(1, min(p.count[1], band/images)), 1)
		if k.regionsCost(pieces, images, rows)*10 < k.regionsCost(pieces, c.images, p.band)*9 {
			c.images, p.band = images, rows
		}
	}
	p.bands = tiling.CeilDiv(p.count[1], p.band)
	p.chunks = tiling.CeilDiv(k.Batch, c.images) * p.count[0] * p.bands
	c.parts = min(k.groups*k.panels, tiling.CeilDiv(wanted, max(1, p.chunks)))
	c.chunks = p.chunks * c.parts
	if p.copied {
		p.box = [3]int{p.span[0], (p.band-1)*p.move[1] + p.span[1], (p.count[2]-1)*p.move[2] + p.span[2]}
		c.box = p.box[0] * p.box[1] * p.box[2] * (k.srcAll + k.pad) * k.bytes
	}
}

// region returns the runs of a box of pixels. The phase lists the runs of all pixels, in the
// order of packed kernels. A run that continues the previous one is merged with it.
func (k *borderGEMM) region(p *stridedPhase, c *regionCuts, taps [3][]tap, piece [3]regionPiece) borderRegion {
	g := borderRegion{slices: make([]regionSlice, c.slices)}
	for axis := range 3 {
		g.from[axis], g.to[axis] = piece[axis].from, piece[axis].to
	}
	row, plane, pixel, low := k.steps(p)
	size := 4 * k.tiles.NR // of a row of packed kernels
	cells := (k.depth + k.pad) / k.tiles.Step
	for i := piece[0].lo; i < piece[0].hi; i++ {
		for j := piece[1].lo; j < piece[1].hi; j++ {
			for l := piece[2].lo; l < piece[2].hi; l++ {
				cell := ((i*len(taps[1])+j)*len(taps[2]) + l) * cells
				at := (taps[0][i].at-low[0])*plane + (taps[1][j].at-low[1])*row + (taps[2][l].at-low[2])*pixel
				for end := cell + cells; cell < end; {
					s := 0
					for cell >= k.sliceEnd(p, s) {
						s++
					}
					n := min(end, k.sliceEnd(p, s)) - cell
					g.slices[s].add(at, cell*size, n, size)
					cell, at = cell+n, at+4*n
				}
			}
		}
	}
	for s := range g.slices {
		if len(g.slices[s].runs) > 0 {
			g.slices[s].begins = true
			return g
		}
	}
	g.slices[0].begins = true // with an empty sum
	return g
}

// slices returns the number of slices of the inner dimension of a phase.
func (k *implicitGEMM) slices(p *stridedPhase) int {
	if k.set.Ordered {
		return tiling.CeilDiv(max(1, p.cells), product.MostDepth)
	}
	return tiling.CeilDiv(max(1, p.cells), sliceCells)
}

// sliceEnd returns the cell after slice s.
func (k *implicitGEMM) sliceEnd(p *stridedPhase, s int) int {
	if k.set.Ordered {
		return min(p.cells, (s+1)*product.MostDepth)
	}
	return (s + 1) * p.cells / k.slices(p)
}

// add adds a run of n cells.
func (s *regionSlice) add(a, b, n, size int) {
	l := len(s.runs)
	if l == 0 {
		s.first = a
	}
	a -= s.first
	if l > 0 && s.runs[l-3]+4*s.runs[l-1] == int64(a) && s.runs[l-2]+s.runs[l-1]*int64(size) == int64(b) {
		s.runs[l-1] += int64(n)
		return
	}
	s.runs = append(s.runs, int64(a), int64(b), int64(n))
}

// steps returns the bytes from a row, a plane and a pixel of the source, or its copy, to the
// next, and the position of its first element.
func (k *borderGEMM) steps(p *stridedPhase) (row, plane, pixel int, low [3]int) {
	pixel = (k.srcAll + k.pad) * k.bytes
	if p.copied {
		return p.box[2] * pixel, p.box[1] * p.box[2] * pixel, pixel, p.low
	}
	return k.dims[2] * pixel, k.dims[1] * k.dims[2] * pixel, pixel, low
}

func (k *borderGEMM) Run(r *exec.Run) {
	k.packWeights(r)
	n := 0
	for i := range k.cuts {
		n += k.cuts[i].chunks
	}
	r.Parallel(k, n, k.macs()/16)
}

// regionBand is a band of some images: the addresses that micro-kernels read and write, and
// the strides in bytes along each axis, images first.
type regionBand struct {
	band
	images int
	d      unsafe.Pointer // of the first column
	at     int            // bytes of the result before d, if micro-kernels write the result
	read   [4]int
	write  [4]int
}

func (k *borderGEMM) Chunk(r *exec.Run, w *exec.Worker, i int) {
	phase, i := chunkOf(k.chunks, i)
	p, c := &k.phases[phase], &k.cuts[phase]
	lo, hi := tiling.Cut(i%c.parts, c.parts, k.groups*k.panels)
	i /= c.parts
	y := i % p.bands * p.band
	i /= p.bands
	var b regionBand
	b.image, b.z, b.y, b.rows = i/p.count[0]*c.images, i%p.count[0], y, min(p.band, p.count[1]-y)
	b.images = min(c.images, k.Batch-b.image)
	k.sources(r, w, p, c, &b)
	first, col := k.pixelOf(p, b.image, b.z, b.y, 0), k.column(lo)
	pixels := p.count[2]
	image := k.pixelOf(p, 1, 0, 0, 0) - k.pixelOf(p, 0, 0, 0, 0)
	down := p.step[1] * k.rowPixels()
	if k.direct {
		ld := 4 * k.dstAll
		b.at = first*ld + 4*col
		b.d = unsafe.Pointer(&r.Values[k.dst][b.at])
		b.write = [4]int{image * ld, 0, down * ld, p.step[2] * ld}
	} else {
		b.d = unsafe.Pointer(&w.Scratch[k.atTile])
		b.write = [4]int{b.rows * pixels * k.ld, 0, pixels * k.ld, k.ld}
	}
	all, group := b, k.groupOf(p, c, &b)
	for y := 0; y < all.rows; y += group {
		b.y, b.start, b.rows = all.y+y, all.start+y*all.read[2], min(group, all.rows-y)
		if !k.direct {
			b.write[0] = b.rows * pixels * k.ld
		}
		for unit := lo; unit < hi; unit++ {
			k.panelOf(r, p, c, &b, unit, 4*(k.column(unit)-col))
		}
		if !k.direct {
			k.put(r, w, p, &b, lo, hi, first+y*down, image, down)
		}
	}
}

// groupOf returns the rows of a band that are stored together: their sums stay in L1, if they
// are computed in one go.
func (k *borderGEMM) groupOf(p *stridedPhase, c *regionCuts, b *regionBand) int {
	if k.direct || c.slices > 1 || b.images > 1 {
		return b.rows
	}
	return tiling.Even(b.rows, max(k.tiles.MR, laneBytes/max(1, p.count[2]*k.ld)), 1)
}

// put stores the sums of a band for units [lo, hi). The first pixel of the band is pixel first
// of the result; image and down are the pixels from an image and a row to the next.
func (k *borderGEMM) put(r *exec.Run, w *exec.Worker, p *stridedPhase, b *regionBand, lo, hi, first, image, down int) {
	pixels, col := p.count[2], k.column(lo)
	tile := product.Tile{Col: col, Cols: k.column(hi-1) + min(k.tiles.NR, k.lanes-(hi-1)%k.panels*k.tiles.NR) - col, Data: b.d, LD: k.ld}
	if p.step == [3]int{1, 1, 1} && (b.images == 1 || b.rows*pixels == image) { // rows follow each other
		tile.Row, tile.Rows = first, b.images*b.rows*pixels
		k.store(r, w, tile)
		return
	}
	tile.Rows, tile.Step = pixels, p.step[2]
	for j := range b.images {
		for y := range b.rows {
			tile.Row = first + j*image + y*down
			tile.Data = unsafe.Add(b.d, (j*b.rows+y)*pixels*k.ld)
			k.store(r, w, tile)
		}
	}
}

// column returns the first column of the result of a unit, which is a panel of a group.
func (k *borderGEMM) column(unit int) int {
	return unit/k.panels*k.lanes + unit%k.panels*k.tiles.NR
}

// sources finds the source of a band of some images, or copies it.
func (k *borderGEMM) sources(r *exec.Run, w *exec.Worker, p *stridedPhase, c *regionCuts, b *regionBand) {
	image := b.image
	for j := range b.images {
		b.image = image + j
		if k.find(r, w.Scratch[j*c.box:], p, &b.band); !p.copied {
			break
		}
	}
	b.image = image
	b.read = [4]int{k.dims[0] * b.plane, b.plane, p.move[1] * b.row, p.move[2] * b.pixel}
	if p.copied {
		b.data, b.read[0] = unsafe.Pointer(unsafe.SliceData(w.Scratch)), c.box
	}
}

// panelOf computes the pixels of a band for a panel of a group. The panel's columns begin col
// bytes after the first column of the band.
func (k *borderGEMM) panelOf(r *exec.Run, p *stridedPhase, c *regionCuts, b *regionBand, unit, col int) {
	group, panel := unit/k.panels, unit%k.panels
	weights := k.panel(r, p, group, panel)
	cols := min(k.tiles.NR, k.lanes-panel*k.tiles.NR)
	for s := range c.slices {
		for i := range c.regions {
			g := &c.regions[i]
			lo, hi := max(g.from[1], b.y), min(g.to[1], b.y+b.rows)
			part := &g.slices[s]
			if b.z < g.from[0] || b.z >= g.to[0] || lo >= hi || len(part.runs) == 0 && !part.begins {
				continue
			}
			n := [4]int{b.images, 1, hi - lo, g.to[2] - g.from[2]}
			at := col + (lo-b.y)*b.write[2] + g.from[2]*b.write[3]
			d := unsafe.Add(b.d, at)
			if len(part.runs) == 0 {
				k.clear(b, n, d, cols)
				continue
			}
			a := b.from(part.first + group*k.depth*k.bytes + (lo-b.y)*b.read[2] + g.from[2]*b.read[3])
			k.box(r, b, part, n, a, weights, d, b.at+at, cols)
		}
	}
}

// clear clears pixels without any element of the window within the source.
func (k *borderGEMM) clear(b *regionBand, n [4]int, d unsafe.Pointer, cols int) {
	if !k.tiles.Masked {
		cols = k.tiles.NR
	}
	for i := range n[0] {
		for y := range n[2] {
			for x := range n[3] {
				clear(unsafe.Slice((*float32)(unsafe.Add(d, i*b.write[0]+y*b.write[2]+x*b.write[3])), cols))
			}
		}
	}
}

// box computes a box of pixels in tiles along one axis. It begins at bytes after the result's
// first element.
func (k *borderGEMM) box(r *exec.Run, b *regionBand, part *regionSlice, n [4]int, a, weights, d unsafe.Pointer, at, cols int) {
	t := k.tiles
	kernels := t.RowRuns
	if cols <= t.NarrowNR {
		kernels = t.NarrowRowRuns
	}
	along := k.tileAxis(b, n)
	lda, ldd := b.read[along], b.write[along]
	heights := tiling.CeilDiv(n[along], t.MR)
	length := n[along]
	n[along] = 1
	runs, mask := unsafe.Pointer(&part.runs[0]), uint(1)<<cols-1
	for i := range n[0] {
		for y := range n[2] {
			for x := range n[3] {
				ax := unsafe.Add(a, i*b.read[0]+y*b.read[2]+x*b.read[3])
				to := i*b.write[0] + y*b.write[2] + x*b.write[3]
				dx := unsafe.Add(d, to)
				if k.sums != nil {
					first, lds := k.sums.term(r, 0, at+to, ldd)
					for h := range heights {
						lo, hi := tiling.Cut(h, heights, length)
						kernels[hi-lo](len(part.runs)/3, unsafe.Add(ax, lo*lda), lda, weights, 4*t.NR, unsafe.Add(first, lo*lds), lds, unsafe.Add(dx, lo*ldd), ldd, mask, runs)
					}
					k.sums.end(r, length, dx, at+to, ldd, mask)
					continue
				}
				for h := range heights {
					lo, hi := tiling.Cut(h, heights, length)
					dh := unsafe.Add(dx, lo*ldd)
					s := dh
					if part.begins {
						s = nil
					}
					kernels[hi-lo](len(part.runs)/3, unsafe.Add(ax, lo*lda), lda, weights, 4*t.NR, s, ldd, dh, ldd, mask, runs)
				}
			}
		}
	}
}

// patchesPay reports whether gathered patches of a few small images take less time than
// regions of pairs of bfloat16, whose tiles are low. Measured: 0.5 to 0.9 of their time.
func (k *implicitGEMM) patchesPay() bool {
	n := k.Out
	if k.code == op.ConvInputGrad {
		n = k.In
	}
	pixels := k.Batch * n[0] * n[1] * n[2]
	if k.groups > 1 || k.Stride != [3]int{1, 1, 1} || pixels > patchPixels {
		return false
	}
	regions := 0.0
	k.eachPhase(func(p stridedPhase, taps [3][]tap) {
		var pieces [3][]regionPiece
		for axis := range 3 {
			pieces[axis] = k.along(&p, axis, taps[axis])
		}
		regions += float64(float64(k.Batch) * k.regionsCost(pieces, min(k.Batch, k.tiles.MR), p.count[1]))
	})
	heights := tiling.CeilDiv(pixels, k.tiles.MR)
	products := k.WindowSize * heights * (8*tiling.CeilDiv(pixels, heights) + 12)
	// Copying a cell takes half the time of a step of one row; starting a run ten times as
	// much.
	cells, panels := float64(tiling.CeilDiv(k.depth, k.tiles.Step)), float64(tiling.CeilDiv(k.lanes, k.tiles.NR))
	copies := float64(pixels*k.WindowSize) * (0.5 + 70/cells) / panels
	return float64(products)+copies < 0.9*regions
}

// regionsCost estimates the time of the products of an image if chunks have so many images and
// rows.
func (k *implicitGEMM) regionsCost(pieces [3][]regionPiece, images, rows int) float64 {
	sum := 0
	for _, z := range pieces[0] {
		for _, y := range pieces[1] {
			for _, x := range pieces[2] {
				height := y.to - y.from
				n := [4]int{images, 1, min(rows, height), x.to - x.from}
				least := k.tilesCost(n, 3)
				for _, axis := range []int{2, 0} {
					least = min(least, k.tilesCost(n, axis))
				}
				sum += least * tiling.CeilDiv(height, rows) * (z.to - z.from) * (z.hi - z.lo) * (y.hi - y.lo) * (x.hi - x.lo)
			}
		}
	}
	return float64(sum) / float64(images)
}

// tilesCost estimates the time of a step of the tiles of a box along an axis.
func (k *implicitGEMM) tilesCost(n [4]int, axis int) int {
	heights := tiling.CeilDiv(n[axis], k.tiles.MR)
	return n[0] * n[2] * n[3] / n[axis] * heights * (8*max(lowTile, tiling.CeilDiv(n[axis], heights)) + 12)
}

// tileAxis returns the axis along which the tiles of a box take the least time. Rows that
// share lines of L1 take more.
func (k *borderGEMM) tileAxis(b *regionBand, n [4]int) int {
	best, least := 3, 0
	for _, axis := range []int{3, 2, 0} {
		cost := k.tilesCost(n, axis)
		if b.read[axis]%product.Conflicts == 0 && n[axis] > 1 {
			cost *= 2
		}
		if least == 0 || cost < least {
			best, least = axis, cost
		}
	}
	return best
}
