package conv

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// wgradTiles is a wgradGEMM on the micro-kernels for tile registers (AMX), which read A from a
// list of block addresses. The inner dimension is pixels. A is the transposed gradient of the
// result; B is the input that a column of the window reads, as pairs of pixels. In B another
// row of the window is an offset, and so is, where that pays, another column that is an even
// number of pixels away. So everything that micro-kernels read begins at a cache line. The
// sums are those of the transposed result and are transposed at the end.
//
// After the pixels of a band the gradient is 0, and it is multiplied with whatever pixels of
// the input are there. (So an infinite pixel can give NaN in the gradients of elements of the
// window that do not read it.)
type wgradTiles struct {
	*wgradGEMM
	down   []int      // residues of the stride
	across []int      // first columns of copies of the input
	tap    []tapPlace // offsets of the elements of a plane of the window

	wide    int // pixels of a row of B
	pitch   int // pixels from a row to the next
	rows    int // of the input that a band reads, for a residue of the stride
	planes  int // of a block
	steps   int // of a block
	pixels  int // of the steps of a block
	bands   int // of a plane
	tapSpan int // pixels from the first element of the window to the last

	heights    int     // of 32 channels of the result's gradient, in a group
	partPanels int     // panels of a group in a part, at most
	places     []int64 // offsets of steps
	laneBytes  int     // of a panel of B
	transposed transposeSums
	direct     bool // there is one block: its sums are transposed to the result

	atGrads, atInput, atTransposed, atSums, atStage int // scratch memory
}

// tapPlace is the offset of an element of the window in B: the copy of the input, and the rows
// and pixels from its first.
type tapPlace struct{ array, row, pixel int }

// transposeSums is the task that adds up and transposes the sums of a panel for an element of
// the window.
type transposeSums struct{ *wgradTiles }

const (
	tileBytes      = 2048       // of a step, of A or B
	mostSteps      = 48         // of a block
	callBytes      = 64 << 10   // bytes of A and B for calls with a copy of the input; with fewer, loading and storing sums takes longer
	leastSteps     = 4          // of a call; with fewer, sums take longer than products
	sumsInCache    = 1 << 20    // bytes of sums; to larger ones more pixels are added at a time
	transposedMost = 768 << 10  // bytes of A and B, in L2 with sums
	directMost     = 1536 << 10 // bytes of A, B and the sums of a panel, if there is a single block
)

func newWgradTiles(b *exec.Builder, v *ir.Value, k *wgradGEMM) exec.Kernel {
	c := &wgradTiles{wgradGEMM: k}
	c.transposed.wgradTiles = c
	nr := k.tiles.NR
	k.panels = tiling.CeilDiv(k.perGroup, nr)
	k.tapRows = tiling.RoundUp(k.outsPerGroup, k.tiles.Unit)
	c.heights = tiling.CeilDiv(k.outsPerGroup, k.tiles.MR)
	behind := c.placeTaps()
	k.sumBytes = 4 * nr * k.groups * k.WindowSize * k.panels * k.tapRows
	most := max(1, min(mostSums, sumsBytes/max(1, k.sumBytes), tiling.CeilDiv(k.macs(), product.ChunkMACs<<4)))
	k.parts = min(k.panels, tiling.CeilDiv(tiling.MinChunks/2, most)) // each part transposes the gradient
	c.partPanels = tiling.CeilDiv(k.panels, k.parts)

	if !c.shapeAll(behind) {
		c.shapeBlock(behind)
	}
	for s := range c.steps {
		c.places = append(c.places, int64(s*k.pieces*tileBytes))
	}
	c.bands = tiling.CeilDiv(k.Out[1], k.block)
	k.blocks = tiling.CeilDiv(k.Batch*k.Out[0], c.planes) * c.bands
	k.sums = min(k.blocks, most)
	k.sums = tiling.CeilDiv(k.blocks, tiling.CeilDiv(k.blocks, k.sums))
	if parts := min(k.panels, tiling.CeilDiv(tiling.MinChunks/2, k.sums)); parts > k.parts {
		k.parts, c.partPanels = parts, tiling.CeilDiv(k.panels, parts)
	}
	c.direct = k.blocks == 1 && k.Size[0] == 1 && k.to == dtype.Float32 && v.Attr.Body == nil
	shared := product.FlagBytes
	if !c.direct {
		shared += k.sums * k.sumBytes
	}
	b.ReserveShared(shared)
	k.addEpilogue(b, v, c.layout(), k.outs)
	return c
}

// placeTaps sets the offsets of the elements of the window in B, and returns the rows from the
// first element to the last.
func (k *wgradTiles) placeTaps() (behind int) {
	step := 2 * k.Stride[2] // columns that are multiples of this apart can share a copy
	column := func(x int, share bool) (first, pixel int) {
		d := x * k.Dilation[2]
		if !share {
			return d, 0
		}
		return d % step, d / step * 2
	}
	pitch := func(share bool) int {
		k.across, k.wide = k.across[:0], k.Out[2]
		for x := range k.Size[2] {
			first, pixel := column(x, share)
			if !slices.Contains(k.across, first) {
				k.across = append(k.across, first)
			}
			k.wide = max(k.wide, k.Out[2]+pixel)
		}
		return tiling.RoundUp(k.wide, 2)
	}
	// In cycles for a pixel, measured: a step of a kernel takes about 100 for 32 of them,
	// transposing 32 channels of the gradient 8, and copying a panel of the input 6.
	each := pitch(false)
	copies := len(k.across)
	shared := pitch(true)
	work := k.heights * (3*k.panels*k.Size[1]*k.Size[2] + 8)
	share := work*(shared-each) < 6*k.panels*(copies-len(k.across))*each
	k.pitch = pitch(share)
	for y := range k.Size[1] {
		d := y * k.Dilation[1]
		residue := slices.Index(k.down, d%k.Stride[1])
		if residue < 0 {
			residue = len(k.down)
			k.down = append(k.down, d%k.Stride[1])
		}
		behind = max(behind, d/k.Stride[1])
		for x := range k.Size[2] {
			first, pixel := column(x, share)
			k.tap = append(k.tap, tapPlace{residue*len(k.across) + slices.Index(k.across, first), d / k.Stride[1], pixel})
		}
	}
	k.tapSpan = behind*k.pitch + k.wide - k.Out[2]
	return behind
}

// shapeBlock decides the planes and rows of a block.
func (k *wgradTiles) shapeBlock(behind int) {
	// Sums that do not stay in L2 are read and written once for more pixels.
	limit := transposedMost
	if k.sumBytes > sumsInCache {
		limit *= 2
	}
	k.block, k.planes = k.Out[1], 1
	for k.block > 1 && (k.shape(behind) > limit || k.steps > mostSteps) {
		k.block = tiling.CeilDiv(k.block, 2)
	}
	k.block = tiling.Even(k.Out[1], k.block, 1)
	for k.shape(behind); k.block == k.Out[1] && k.Batch*k.Out[0] >= 4*(k.planes+1); {
		if k.planes++; k.shape(behind) > limit || k.steps > mostSteps {
			k.planes--
			break
		}
	}
	if all := k.Batch * k.Out[0]; k.planes > 1 { // workers get equally many blocks
		blocks := tiling.RoundUp(tiling.CeilDiv(all, k.planes), 2)
		if blocks > tiling.MinChunks {
			blocks = tiling.RoundUp(blocks, tiling.MinChunks)
		}
		k.planes = tiling.CeilDiv(all, blocks)
	}
	k.shape(behind)
}

// shapeAll makes all pixels one block if there are few pixels for many sums, which are then
// written once. It reports whether it did.
func (k *wgradTiles) shapeAll(behind int) bool {
	parts := min(k.panels, tiling.MinChunks/2)
	if k.sumBytes <= sumsInCache || parts < 2 || k.Size[0] > 1 {
		return false
	}
	partPanels := k.partPanels
	k.block, k.planes, k.partPanels = k.Out[1], k.Batch*k.Out[0], tiling.CeilDiv(k.panels, parts)
	if k.shape(behind)+k.panelSums() > directMost {
		k.partPanels = partPanels
		return false
	}
	k.parts = parts
	return true
}

// panelSums returns the bytes of the sums of a panel, for a group and plane of the window.
func (k *wgradTiles) panelSums() int { return 4 * k.tiles.NR * len(k.tap) * k.tapRows }

// shape sizes a block of some planes and rows, and returns the bytes of A and B.
func (k *wgradTiles) shape(behind int) int {
	k.rows = k.block + behind
	k.steps = k.stepsOf(k.planes, k.block)
	k.pixels = cellElements * k.steps
	k.laneBytes = 2 * k.tiles.NR * max(k.pixels+k.tapSpan, k.planes*k.rows*k.pitch)
	return k.pieces * (k.steps*tileBytes*k.groups*k.heights + k.lowInput())
}

// stepsOf returns the steps of some planes of so many rows. Planes have the distance of those
// in B, so that A has zeros between them.
func (k *wgradTiles) stepsOf(planes, rows int) int {
	return tiling.CeilDiv(((planes-1)*k.rows+rows-1)*k.pitch+k.Out[2], cellElements)
}

// lowInput returns the bytes of a piece of B.
func (k *wgradTiles) lowInput() int { return k.arrays() * k.groups * k.partPanels * k.laneBytes }

// arrays returns the number of copies of the input in B.
func (k *wgradTiles) arrays() int {
	return len(k.down) * len(k.across)
}

// layout places everything in scratch memory and returns its size.
func (k *wgradTiles) layout() int {
	need := 0
	take := func(n int) int {
		at := need
		need += tiling.RoundUp(n, 64)
		return at
	}
	k.atGrads = take(k.pieces * k.steps * tileBytes * k.groups * k.heights)
	k.atInput = take(k.pieces * k.lowInput())
	k.atTransposed = take(max(64*k.pixels, 4*k.tiles.NR*max(k.outsPerGroup, k.tiles.MR))) // transposed gradients, and transposed sums
	if k.direct {
		k.atSums = take(k.panelSums())
	}
	k.atStage = take(2 * k.wide * k.channels)
	return need
}

func (k *wgradTiles) Run(r *exec.Run) {
	k.clearFound(r)
	r.Parallel(k, k.sums*k.parts, k.macs()/16)
	switch {
	case k.lost(r):
		k.fallback.Run(r)
	case !k.direct:
		r.Parallel(&k.transposed, k.groups*k.WindowSize*k.panels, k.sums*k.WindowSize*k.perGroup*k.outs)
	}
}

func (k *wgradTiles) Chunk(r *exec.Run, w *exec.Worker, i int) {
	part := i % k.parts
	i /= k.parts
	var b pixelBlock
	b.lo, b.hi = tiling.Cut(part, k.parts, k.panels)
	if !k.direct {
		b.sums = unsafe.Pointer(&k.sumsOf(r, i)[0])
	}
	runtime.LockOSThread()
	k.tiles.Begin()
	first, end := tiling.Cut(i, k.sums, k.blocks)
	for j := first; j < end && !k.lost(r); j++ {
		plane, y := j/k.bands*k.planes, j%k.bands*k.block
		planes, rows := min(k.planes, k.Batch*k.Out[0]-plane), min(k.block, k.Out[1]-y)
		k.transposeGrads(r, w, plane, planes, y, rows)
		if j+1 < end && k.pieces == 1 {
			k.prefetchBlock(r, &b, j+1)
		}
		for kz := range k.Size[0] {
			for p := range planes {
				k.layRows(r, w, &b, kz, p, plane+p, y)
			}
			k.clearBehind(w, planes)
			steps := k.stepsOf(planes, rows)
			if k.direct {
				k.transposePlanes(r, w, &b, steps)
			} else {
				k.addPlanes(w, &b, kz, steps, j == first)
			}
		}
	}
	k.tiles.End()
	runtime.UnlockOSThread()
}

// gradsOf returns a step of A.
func (k *wgradTiles) gradsOf(w *exec.Worker, group, height, step int) unsafe.Pointer {
	return unsafe.Pointer(&w.Scratch[k.atGrads+((group*k.heights+height)*k.steps+step)*k.pieces*tileBytes])
}

// transposeGrads transposes the gradient of some planes of a block, with zeros after the
// existing rows: 32 channels at a time, first as pairs of pixels.
func (k *wgradTiles) transposeGrads(r *exec.Run, w *exec.Worker, plane, planes, y, rows int) {
	steps, mr := k.stepsOf(planes, rows), k.tiles.MR
	transposed := w.Scratch[k.atTransposed:][:2*mr*cellElements*steps]
	line := 2 * mr * k.pitch
	lines, pixels := rows, k.Out[2]
	if k.pitch == pixels { // rows are contiguous
		lines, pixels = 1, rows*pixels
	}
	for g := range k.groups {
		for h := range k.heights {
			outs := min(mr, k.outsPerGroup-h*mr)
			for p := range planes {
				at := (((plane+p)*k.Out[1]+y)*k.Out[2])*k.outs + g*k.outsPerGroup + h*mr
				to := transposed[p*k.rows*line:]
				for j := range lines {
					k.set.Lanes[gemm.Pairs](unsafe.Pointer(&to[j*line]), 4*mr, unsafe.Pointer(&r.Values[k.b][2*(at+j*k.Out[2]*k.outs)]), 2*k.outs, pixels, 1<<outs-1, 1<<mr-1)
					if used := 4 * mr * tiling.CeilDiv(k.Out[2], 2); used < line {
						clear(to[min(j*line+used, len(to)):min((j+1)*line, len(to))])
					}
				}
				clear(to[min(rows*line, len(to)):min(k.rows*line, len(to))])
			}
			clear(transposed[min(planes*k.rows*line, len(transposed)):])
			for s := range steps {
				for o := 0; o < outs; o += 16 {
					d, lanes := unsafe.Add(k.gradsOf(w, g, h, s), 64*o), min(16, outs-o)
					k.set.Transpose[gemm.F32](d, 64, unsafe.Pointer(&transposed[s*tileBytes+4*o]), 4*mr, lanes, 1<<16-1, 1<<16-1)
					k.split(r, d, 64, tileBytes, lanes, cellElements)
				}
			}
		}
	}
}

// inputOf returns a panel of B from a pixel on; the index of the pixel must be even.
func (k *wgradTiles) inputOf(w *exec.Worker, b *pixelBlock, array, group, panel, pixel int) unsafe.Pointer {
	at := ((array*k.groups+group)*k.partPanels+panel-b.lo)*k.laneBytes + 2*k.tiles.NR*pixel
	return unsafe.Pointer(&w.Scratch[k.atInput+at])
}

// rowUnder returns the address of the input that a column of the window reads for a row of the
// result and beyond, and the bytes between pixels. It returns nil for zeros.
func (k *wgradTiles) rowUnder(r *exec.Run, w *exec.Worker, plane, kz, y, column int) (unsafe.Pointer, int) {
	z, ok := k.At(0, plane%k.Out[0], kz)
	if !ok || y < 0 || y >= k.In[1] {
		return nil, 0
	}
	row := (plane/k.Out[0]*k.In[0]+z)*k.In[1] + y
	x := column - k.Low[2]
	if x >= 0 && x+(k.wide-1)*k.Stride[2] < k.In[2] {
		return unsafe.Pointer(&r.Values[k.a][2*(row*k.In[2]+x)*k.channels]), 2 * k.channels * k.Stride[2]
	}
	stage := w.Scratch[k.atStage:][:2*k.wide*k.channels]
	k.line(r, stage, row, x, k.Stride[2], k.wide)
	return unsafe.Pointer(&stage[0]), 2 * k.channels
}

// layRows lays out the input of a plane of a block, for each column of the window.
func (k *wgradTiles) layRows(r *exec.Run, w *exec.Worker, b *pixelBlock, kz, p, plane, y int) {
	nr := k.tiles.NR
	for i, ry := range k.down {
		for j, column := range k.across {
			for row := range k.rows {
				x, pixel := k.rowUnder(r, w, plane, kz, (y+row)*k.Stride[1]+ry-k.Low[1], column)
				for g := range k.groups {
					for panel := b.lo; panel < b.hi; panel++ {
						d := k.inputOf(w, b, i*len(k.across)+j, g, panel, (p*k.rows+row)*k.pitch)
						if x == nil {
							for piece := range k.pieces {
								clear(unsafe.Slice((*byte)(unsafe.Add(d, piece*k.lowInput())), 2*nr*k.pitch))
							}
							continue
						}
						lanes := min(nr, k.perGroup-panel*nr)
						k.set.Lanes[gemm.Pairs](d, 4*nr, unsafe.Add(x, 2*(g*k.perGroup+panel*nr)), pixel, k.wide, 1<<lanes-1, 1<<nr-1)
						k.split(r, d, 0, k.lowInput(), 1, nr*k.pitch)
					}
				}
			}
		}
	}
}

// clearBehind clears B after the rows of some planes: the memory can hold NaN.
func (k *wgradTiles) clearBehind(w *exec.Worker, planes int) {
	from := 2 * k.tiles.NR * planes * k.rows * k.pitch
	for i := range k.pieces * k.arrays() * k.groups * k.partPanels {
		clear(w.Scratch[k.atInput+i*k.laneBytes:][from:k.laneBytes])
	}
}

// tapSums is the location of the sums of the elements of a plane of the window: the address of
// the first element's, and the bytes to the next element's.
type tapSums struct {
	first unsafe.Pointer
	next  int
}

// addPlanes adds the products of a block to the sums of the elements of a plane of the window,
// or begins the sums.
func (k *wgradTiles) addPlanes(w *exec.Worker, b *pixelBlock, kz, steps int, begins bool) {
	one := 4 * k.tiles.NR * k.tapRows
	for g := range k.groups {
		for panel := b.lo; panel < b.hi; panel++ {
			at := (g*k.WindowSize+kz*len(k.tap))*k.panels + panel
			k.addPanel(w, b, g, panel, steps, begins, tapSums{unsafe.Add(b.sums, at*one), k.panels * one})
		}
	}
}

// addPanel adds the products of a panel to its sums. All elements that read a copy of the
// input are computed while a part of the copy is in L1.
func (k *wgradTiles) addPanel(w *exec.Worker, b *pixelBlock, g, panel, steps int, begins bool, sums tapSums) {
	ld := 4 * k.tiles.NR
	call := tiling.Even(steps, k.callSteps(), 1)
	for step := 0; step < steps; step += call {
		for array := range k.arrays() {
			for h := range k.heights {
				for i := range k.tap {
					if k.tap[i].array != array {
						continue
					}
					d := unsafe.Add(sums.first, i*sums.next+h*k.tiles.MR*ld)
					s := d
					if begins && step == 0 {
						s = nil
					}
					k.multiply(w, b, g, panel, h, i, step, min(call, steps-step), s, d)
				}
			}
		}
	}
}

// callSteps returns the most steps of a call of a micro-kernel.
func (k *wgradTiles) callSteps() int {
	return max(leastSteps, (callBytes/k.pieces-2*k.tiles.NR*k.tapSpan)/(2*tileBytes))
}

// multiply adds the products of some steps to a tile of the sums of an element of the window.
func (k *wgradTiles) multiply(w *exec.Worker, b *pixelBlock, g, panel, h, tap, step, n int, s, d unsafe.Pointer) {
	t, place := k.tiles, k.tap[tap]
	rows := min(t.MR, k.tapRows-h*t.MR)
	input := k.inputOf(w, b, place.array, g, panel, step*cellElements+place.row*k.pitch+place.pixel)
	next := b.prefetch[0].next(n)
	if next == nil {
		next = b.prefetch[1].next(n)
	}
	t.Runs[k.pieces-1][rows](n, k.gradsOf(w, g, h, step), 64, tileBytes, unsafe.Pointer(&k.places[0]), input, k.lowInput(), s, 4*t.NR, d, 4*t.NR, next)
}

// transposePlanes computes the sums of a panel from all steps, and transposes them into the
// result.
func (k *wgradTiles) transposePlanes(r *exec.Run, w *exec.Worker, b *pixelBlock, steps int) {
	nr, one := k.tiles.NR, 4*k.tiles.NR*k.tapRows
	sums := unsafe.Pointer(&w.Scratch[k.atSums])
	for g := range k.groups {
		for panel := b.lo; panel < b.hi; panel++ {
			k.addPanel(w, b, g, panel, steps, true, tapSums{sums, one})
			for i := range k.tap {
				d := unsafe.Pointer(&r.Values[k.dst][4*((i*k.perGroup+panel*nr)*k.outs+g*k.outsPerGroup)])
				k.transpose(d, 4*k.outs, unsafe.Add(sums, i*one), k.outsPerGroup, min(nr, k.perGroup-panel*nr))
			}
		}
	}
}

// transpose transposes sums of some channels of the result and lanes of a panel.
func (k *wgradTiles) transpose(d unsafe.Pointer, ld int, sums unsafe.Pointer, outs, lanes int) {
	nr := k.tiles.NR
	for c := 0; c < lanes; c += 16 {
		for o := 0; o < outs; o += 16 {
			load := uint(1)<<min(16, outs-o) - 1
			k.set.Transpose[gemm.F32](unsafe.Add(d, c*ld+4*o), ld, unsafe.Add(sums, 4*(o*nr+c)), 4*nr, min(16, lanes-c), load, load)
		}
	}
}

func (k *transposeSums) Chunk(r *exec.Run, w *exec.Worker, i int) {
	nr := k.tiles.NR
	panel, tap, g := i%k.panels, i/k.panels%k.WindowSize, i/k.panels/k.WindowSize
	sum := func(s int) []float32 {
		return lanes.ViewOf[float32](k.sumsOf(r, s)[4*nr*i*k.tapRows:], nr*k.outsPerGroup)
	}
	total := sum(0)
	for s := 1; s < k.sums; s++ {
		lanes.OfF32().Binary[op.Add](total, total, sum(s))
	}
	channels, n := min(nr, k.perGroup-panel*nr), k.outsPerGroup
	transposed := lanes.ViewOf[float32](w.Scratch[k.atTransposed:], channels*n)
	k.transpose(unsafe.Pointer(&transposed[0]), 4*n, unsafe.Pointer(&total[0]), n, channels)
	for c := range channels {
		putRow(&k.convolution, r, w, (tap*k.perGroup+panel*nr+c)*k.outs+g*n, transposed[c*n:][:n])
	}
}
