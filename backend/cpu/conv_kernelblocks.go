package cpu

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// kernelBlocks is kernelProduct on kernels that read A from a list of blocks:
// those for AMX. The inner dimension is pixels, so the input is transposed:
// once for all elements of the window, as a row of all pixels for each channel,
// in which another element of the window is another place to begin. For that
// the result's gradient has as many pixels to a row as the input, with zeros
// for those between rows. (So an infinite pixel of the input can make NaNs of
// the gradients under elements of the window that do not reach it.)
//
// With strides, the pixels of each residue have rows of their own.
type kernelBlocks struct {
	*kernelProduct
	packed  []tapPlace // of the elements of a plane of the window
	across  []int      // residues of the stride
	down    []int
	pitch   int     // pixels from a row to the next
	rows    int     // of the input that a band reads, of a residue
	steps   int     // of a plane of a block
	pixels  int     // of a plane in a row of the transposed input
	planes  int     // of a block
	bands   int     // of a plane
	places  []int64 // of steps
	lda     int     // bytes from a row of the transposed input to the next
	side    bool    // channels are few: all elements of the window make the rows of a product
	direct  bool    // sums are the result
	atStage int
	atSide  int
}

// tapPlace is where an element of the window begins in the transposed input.
type tapPlace struct{ residue, shift int }

const (
	mostSteps   = 16        // of packed gradients that stay in the first cache
	sumsInCache = 1 << 20   // bytes
	turnedMost  = 512 << 10 // bytes of the transposed input, in the second cache with all else
	sideRows    = 48        // channels times elements of the window that are few
)

func newKernelBlocks(b *builder, v *ir.Value, k *kernelProduct) kernel {
	c := &kernelBlocks{kernelProduct: k}
	t := k.tiles
	var most [2]int
	residues := [2][]int{}
	place := func(axis, i int) (residue, shift int) {
		d := i * k.dilation[axis+1]
		r := slices.Index(residues[axis], d%k.stride[axis+1])
		if r < 0 {
			r = len(residues[axis])
			residues[axis] = append(residues[axis], d%k.stride[axis+1])
		}
		most[axis] = max(most[axis], d/k.stride[axis+1])
		return r, d / k.stride[axis+1]
	}
	for y := range k.size[1] {
		place(0, y)
	}
	for x := range k.size[2] {
		place(1, x)
	}
	c.down, c.across = residues[0], residues[1]
	c.pitch = roundUp(k.out[2]+most[1], 2)
	for y := range k.size[1] {
		for x := range k.size[2] {
			ry, qy := place(0, y)
			rx, qx := place(1, x)
			c.packed = append(c.packed, tapPlace{ry*len(c.across) + rx, qy*c.pitch + qx})
		}
	}
	c.side = k.groups == 1 && k.windowSize*k.perGroup <= sideRows
	shape := func(band, planes int) int {
		c.rows = band + most[0]
		c.steps = ceilDiv((band-1)*c.pitch+k.out[2], cellHalfs)
		c.pixels = roundUp(max(c.rows*c.pitch, cellHalfs*c.steps+most[0]*c.pitch+most[1]), cellHalfs)
		c.lda = 2*planes*c.pixels + rowPad
		if c.lda%128 == 0 {
			c.lda += rowPad
		}
		return len(c.down) * len(c.across) * k.channels * c.lda
	}
	k.tapRows, k.width = roundUp(k.perGroup, t.Unit), roundUp(k.outsPerGroup, t.NR)
	rows := k.windowSize * k.tapRows
	if c.side {
		k.tapRows = k.perGroup
		rows = roundUp(k.windowSize*k.perGroup, t.Unit)
	}
	k.panels = ceilDiv(k.outsPerGroup, t.NR)
	k.sumBytes = 4 * k.groups * rows * k.width
	// Sums that do not stay in the second cache are read and written for more
	// pixels at a time.
	stepsOf := mostSteps
	if k.sumBytes > sumsInCache {
		stepsOf *= 3
	}
	k.block, c.planes = k.out[1], 1
	for k.block > 1 && (shape(k.block, 1) > turnedMost || c.steps > 3*mostSteps) {
		k.block = ceilDiv(k.block, 2)
	}
	k.block = even(k.out[1], k.block, 1)
	if k.block == k.out[1] {
		shape(k.block, 1)
		for (c.planes+1)*c.steps <= stepsOf && shape(k.block, c.planes+1) <= turnedMost && k.batch*k.out[0] >= 4*(c.planes+1) {
			c.planes++
		}
	}
	shape(k.block, c.planes)
	for i := range c.planes {
		for s := range c.steps {
			c.places = append(c.places, int64(2*(i*c.pixels+s*cellHalfs)))
		}
	}
	c.bands = ceilDiv(k.out[1], k.block)
	k.blocks = ceilDiv(k.batch*k.out[0], c.planes) * c.bands

	k.sums = max(1, min(k.blocks, mostSums, sumsBytes/max(1, k.sumBytes), ceilDiv(k.macs(), chunkMACs<<4)))
	k.sums = ceilDiv(k.blocks, ceilDiv(k.blocks, k.sums))
	k.parts = min(k.panels, ceilDiv(wantChunks/2, k.sums)) // each turns the input
	c.direct = k.sums == 1 && k.groups == 1 && k.to == dtype.Float32 && v.Attr.Body == nil && !c.side && k.tapRows == k.perGroup && k.width == k.outs
	k.finish.kernelProduct = k
	if !c.direct {
		b.wantShared(k.sums * k.sumBytes)
	}
	k.follow(b, v, c.layout(), k.outs)
	return c
}

// layout places everything in scratch memory, and returns how much it needs.
func (k *kernelBlocks) layout() int {
	need := 0
	take := func(n int) int {
		at := need
		need += roundUp(n, 64)
		return at
	}
	k.atStage = take(2 * k.pixels * k.channels)
	// Kernels take whole units of rows.
	k.atPairs = take((len(k.down)*len(k.across)*k.channels + k.tiles.MR) * k.lda)
	k.atTurn = take(2 * k.pixels / 4 * 64)
	k.panelBytes = 4 * k.planes * k.steps * k.tiles.Deep * k.tiles.NR
	k.atB = take(k.panelBytes * k.groups * ceilDiv(k.panels, k.parts))
	if k.side {
		k.atSide = take(roundUp(k.windowSize*k.perGroup, k.tiles.Unit) * k.lda)
	}
	return need
}

func (k *kernelBlocks) run(r *run) {
	r.parallel(k, k.sums*k.parts, k.macs()/16)
	if !k.direct {
		r.parallel(&k.finish, k.windowSize*k.perGroup, k.sums*k.windowSize*k.perGroup*k.outs)
	}
}

func (k *kernelBlocks) chunk(r *run, w *worker, i int) {
	part := i % k.parts
	i /= k.parts
	var b pixelBlock
	b.lo, b.hi = span(part, k.parts, k.panels)
	if k.direct {
		b.sums = unsafe.Pointer(&r.values[k.dst][0])
	} else {
		b.sums = unsafe.Pointer(&r.shared[i*k.sumBytes])
	}
	runtime.LockOSThread()
	k.tiles.Begin()
	first, end := span(i, k.sums, k.blocks)
	for j := first; j < end; j++ {
		plane, y := j/k.bands*k.planes, j%k.bands*k.block
		planes, rows := min(k.planes, k.batch*k.out[0]-plane), min(k.block, k.out[1]-y)
		k.packPlanes(r, w, &b, plane, planes, y, rows)
		for kz := range k.size[0] {
			for p := range planes {
				k.turnPlane(r, w, kz, p, plane+p, y)
			}
			k.addPlanes(w, &b, kz, planes, j == first)
		}
	}
	k.tiles.End()
	runtime.UnlockOSThread()
}

// packPlanes packs the gradients of a block, with zeros for pixels between
// rows and behind the last.
func (k *kernelBlocks) packPlanes(r *run, w *worker, b *pixelBlock, plane, planes, y, rows int) {
	nr, src := k.tiles.NR, unsafe.Pointer(unsafe.SliceData(r.values[k.b]))
	line, used := 4*nr*k.pitch/2, ceilDiv(k.out[2], 2)
	all := 4 * nr * k.steps * k.tiles.Deep
	for g := range k.groups {
		for p := b.lo; p < b.hi; p++ {
			lanes := min(nr, k.outsPerGroup-p*nr)
			for i := range planes {
				d := k.gradsOf(w, b, g, p, i*k.steps)
				for j := range rows {
					at := ((plane+i)*k.out[1]+y+j)*k.out[2]*k.outs + g*k.outsPerGroup + p*nr
					to := unsafe.Add(d, j*line)
					k.set.Lanes[gemm.Pairs](to, 4*nr, unsafe.Add(src, 2*at), 2*k.outs, k.out[2], 1<<lanes-1, 1<<nr-1)
					if j < rows-1 {
						clear(unsafe.Slice((*byte)(unsafe.Add(to, 4*nr*used)), line-4*nr*used))
					}
				}
				behind := (rows-1)*line + 4*nr*used
				clear(unsafe.Slice((*byte)(unsafe.Add(d, behind)), all-behind))
			}
		}
	}
}

// gradsOf is where the packed gradients of a step begin.
func (k *kernelBlocks) gradsOf(w *worker, b *pixelBlock, group, panel, step int) unsafe.Pointer {
	at := k.atB + (group*(b.hi-b.lo)+panel-b.lo)*k.panelBytes + 4*step*k.tiles.Deep*k.tiles.NR
	return unsafe.Pointer(&w.scratch[at])
}

// turnPlane transposes the input that a plane of a block reads.
func (k *kernelBlocks) turnPlane(r *run, w *worker, kz, p, plane, y int) {
	image, oz := plane/k.out[0], plane%k.out[0]
	z, inside := k.at(0, oz, kz)
	stage, line := w.scratch[k.atStage:][:2*k.pixels*k.channels], 2*k.pitch*k.channels
	for i, ry := range k.down {
		for j, rx := range k.across {
			for row := range k.rows {
				sy := (y+row)*k.stride[1] + ry - k.low[1]
				to := stage[row*line:][:line]
				if !inside || sy < 0 || sy >= k.in[1] {
					clear(to)
					continue
				}
				k.line(r, to, (image*k.in[0]+z)*k.in[1]+sy, rx-k.low[2], k.stride[2], k.pitch)
			}
			clear(stage[k.rows*line:])
			d := unsafe.Pointer(&w.scratch[k.atPairs+(i*len(k.across)+j)*k.channels*k.lda+2*p*k.pixels])
			if k.channels == 1 {
				copy(unsafe.Slice((*byte)(d), len(stage)), stage)
				continue
			}
			k.turnAll(w, d, unsafe.Pointer(&stage[0]))
		}
	}
}

// turnAll makes a row of pixels of each channel, 16 channels at a time: first
// as lanes of pairs, then transposed.
func (k *kernelBlocks) turnAll(w *worker, d, src unsafe.Pointer) {
	turn := unsafe.Pointer(&w.scratch[k.atTurn])
	for c := 0; c < k.channels; c += 16 {
		lanes := min(16, k.channels-c)
		k.set.Lanes[gemm.Pairs](turn, 64, unsafe.Add(src, 2*c), 2*k.channels, k.pixels, 1<<lanes-1, 1<<16-1)
		for q := 0; q < k.pixels/2; q += 16 {
			k.set.Transpose[gemm.F32](unsafe.Add(d, c*k.lda+4*q), k.lda, unsafe.Add(turn, 64*q), 64, lanes, 1<<16-1, 1<<16-1)
		}
	}
}

// addPlanes adds the products of a block to the sums of the elements of a plane
// of the window, or begins them.
func (k *kernelBlocks) addPlanes(w *worker, b *pixelBlock, kz, planes int, begins bool) {
	t, lead := k.tiles, 4*k.width
	steps := planes * k.steps
	x := unsafe.Pointer(&w.scratch[k.atPairs])
	if k.side {
		k.laySide(w, planes)
		rows := len(k.packed) * k.perGroup
		for p := b.lo; p < b.hi; p++ {
			for step := 0; step < steps; step += panelSteps {
				k.addBlock(w, b, unsafe.Pointer(&w.scratch[k.atSide]), 0, p, step, min(panelSteps, steps-step), rows, unsafe.Add(b.sums, kz*rows*lead+4*p*t.NR), begins && step == 0)
			}
		}
		return
	}
	for g := range k.groups {
		for p := b.lo; p < b.hi; p++ {
			for step := 0; step < steps; step += panelSteps {
				n := min(panelSteps, steps-step)
				for c := 0; c < k.perGroup; c += t.MR {
					for i, tap := range k.packed {
						row := (g*k.windowSize+kz*len(k.packed)+i)*k.tapRows + c
						a := unsafe.Add(x, (tap.residue*k.channels+g*k.perGroup+c)*k.lda+2*tap.shift)
						k.addBlock(w, b, a, g, p, step, n, min(t.MR, k.perGroup-c), unsafe.Add(b.sums, row*lead+4*p*t.NR), begins && step == 0)
					}
				}
			}
		}
	}
}

// addBlock adds the products of some rows of A and of some steps of a panel.
func (k *kernelBlocks) addBlock(w *worker, b *pixelBlock, a unsafe.Pointer, group, panel, step, steps, rows int, d unsafe.Pointer, begins bool) {
	t, lead := k.tiles, 4*k.width
	for row := 0; row < rows; row += t.MR {
		h := min(t.MR, roundUp(rows-row, t.Unit))
		dh := unsafe.Add(d, row*lead)
		s := dh
		if begins {
			s = nil
		}
		t.Runs[h](steps, unsafe.Add(a, row*k.lda), k.lda, unsafe.Pointer(&k.places[step]), k.gradsOf(w, b, group, panel, step), s, lead, dh, lead)
	}
}

// laySide lays out the pixels under each element of a plane of the window, for
// each channel, as rows.
func (k *kernelBlocks) laySide(w *worker, planes int) {
	n := 2 * (planes*k.pixels - (k.pixels - cellHalfs*k.steps))
	for i, tap := range k.packed {
		for c := range k.perGroup {
			from := w.scratch[k.atPairs+(tap.residue*k.channels+c)*k.lda+2*tap.shift:]
			copy(w.scratch[k.atSide+(i*k.perGroup+c)*k.lda:][:n], from[:n])
		}
	}
}
