package cpu

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// kernelBlocks is kernelProduct on kernels that read A from a list of blocks:
// those for AMX. The inner dimension is pixels. A is the result's gradient,
// transposed; B is the input that lies under a column of the window, as pairs
// of pixels, in which another row of the window is another place to begin. So
// all that kernels read begins where lines of the cache do. Sums are those of
// the transposed result, and are turned in the end.
//
// Behind the pixels of a band the gradient is 0, and what it is multiplied with
// may be anything of the input. (So an infinite pixel can make NaNs of the
// gradients under elements of the window that do not reach it.)
type kernelBlocks struct {
	*kernelProduct
	down []int      // residues of the stride
	tap  []tapPlace // of the elements of a plane of the window

	pitch  int // pixels from a row to the next
	rows   int // of the input that a band reads, of a residue of the stride
	steps  int // of a plane of a block
	pixels int // of it
	planes int // of a block
	bands  int // of a plane
	ahead  int // pixels that the last element of the window lies behind the first

	heights   int     // of 32 channels of the result's gradient, in a group
	mine      int     // panels of a group that a part has, at most
	places    []int64 // of steps
	laneBytes int     // of a panel of B
	turned    turnSums
	direct    bool // there is one block: sums are turned at once

	atGrads, atInput, atTurn, atStage int // scratch memory
}

// tapPlace is where an element of the window begins in B: in which copy of the
// input, and how many rows behind its first.
type tapPlace struct{ array, row int }

// turnSums is the task that adds up and turns the sums of a panel of a tap.
type turnSums struct{ *kernelBlocks }

const (
	tileBytes   = 2048      // of a step, of A or B
	mostSteps   = 48        // of a block
	callSteps   = 16        // of a call of a kernel, at most
	sumsInCache = 1 << 20   // bytes of sums to which more pixels are added at a time, else
	turnedMost  = 768 << 10 // bytes of A and B, in the second cache with sums
)

func newKernelBlocks(b *builder, v *ir.Value, k *kernelProduct) kernel {
	c := &kernelBlocks{kernelProduct: k}
	c.turned.kernelBlocks = c
	c.pitch = roundUp(k.out[2], 2)
	behind := 0
	for y := range k.size[1] {
		d := y * k.dilation[1]
		residue := slices.Index(c.down, d%k.stride[1])
		if residue < 0 {
			residue = len(c.down)
			c.down = append(c.down, d%k.stride[1])
		}
		behind = max(behind, d/k.stride[1])
		for x := range k.size[2] {
			c.tap = append(c.tap, tapPlace{residue*k.size[2] + x, d / k.stride[1]})
		}
	}
	c.ahead = behind * c.pitch
	nr := k.tiles.NR
	k.panels = ceilDiv(k.perGroup, nr)
	k.tapRows = roundUp(k.outsPerGroup, k.tiles.Unit)
	c.heights = ceilDiv(k.outsPerGroup, k.tiles.MR)
	k.sumBytes = 4 * nr * k.groups * k.windowSize * k.panels * k.tapRows
	most := max(1, min(mostSums, sumsBytes/max(1, k.sumBytes), ceilDiv(k.macs(), chunkMACs<<4)))
	k.parts = min(k.panels, ceilDiv(wantChunks/2, most)) // each turns the gradient
	c.mine = ceilDiv(k.panels, k.parts)

	// Sums that do not stay in the second cache are read and written once for
	// more pixels.
	limit := turnedMost
	if k.sumBytes > sumsInCache {
		limit *= 2
	}
	k.block, c.planes = k.out[1], 1
	for k.block > 1 && (c.shape(behind) > limit || c.steps > mostSteps) {
		k.block = ceilDiv(k.block, 2)
	}
	k.block = even(k.out[1], k.block, 1)
	for c.shape(behind); k.block == k.out[1] && k.batch*k.out[0] >= 4*(c.planes+1); {
		if c.planes++; c.shape(behind) > limit || c.planes*c.steps > mostSteps {
			c.planes--
			break
		}
	}
	c.shape(behind)
	for s := range c.planes * c.steps {
		c.places = append(c.places, int64(s*k.pieces*tileBytes))
	}
	c.bands = ceilDiv(k.out[1], k.block)
	k.blocks = ceilDiv(k.batch*k.out[0], c.planes) * c.bands
	k.sums = min(k.blocks, most)
	k.sums = ceilDiv(k.blocks, ceilDiv(k.blocks, k.sums))
	if parts := min(k.panels, ceilDiv(wantChunks/2, k.sums)); parts > k.parts {
		k.parts, c.mine = parts, ceilDiv(k.panels, parts)
	}
	c.direct = k.blocks == 1 && k.size[0] == 1 && k.to == dtype.Float32 && v.Attr.Body == nil
	shared := flagBytes
	if !c.direct {
		shared += k.sums * k.sumBytes
	}
	b.wantShared(shared)
	k.follow(b, v, c.layout(), k.outs)
	return c
}

// shape sizes a block of some planes and rows, and returns the bytes of A and B.
func (k *kernelBlocks) shape(behind int) int {
	k.rows = k.block + behind
	k.steps = ceilDiv((k.block-1)*k.pitch+k.out[2], cellHalfs)
	if k.planes > 1 { // steps go on from a plane to the next
		k.steps = ceilDiv(k.rows*k.pitch, cellHalfs)
	}
	k.pixels = cellHalfs * k.steps
	k.laneBytes = 2 * k.tiles.NR * max(k.planes*k.pixels+k.ahead, k.rows*k.pitch)
	return k.pieces * (k.planes*k.steps*tileBytes*k.groups*k.heights + k.lowInput())
}

// lowInput is the bytes of a piece of B.
func (k *kernelBlocks) lowInput() int { return k.arrays() * k.groups * k.mine * k.laneBytes }

// arrays is the copies of the input in B.
func (k *kernelBlocks) arrays() int {
	return len(k.down) * k.size[2]
}

// layout places everything in scratch memory, and returns how much it needs.
func (k *kernelBlocks) layout() int {
	need := 0
	take := func(n int) int {
		at := need
		need += roundUp(n, 64)
		return at
	}
	k.atGrads = take(k.pieces * k.planes * k.steps * tileBytes * k.groups * k.heights)
	k.atInput = take(k.pieces * k.lowInput())
	k.atTurn = take(max(32*k.pixels, 4*k.tiles.NR*max(k.outsPerGroup, k.tiles.MR))) // and of sums
	k.atStage = take(2 * k.out[2] * k.channels)
	return need
}

func (k *kernelBlocks) run(r *run) {
	k.clearFound(r)
	r.parallel(k, k.sums*k.parts, k.macs()/16)
	switch {
	case k.lost(r):
		k.fallback.run(r)
	case !k.direct:
		r.parallel(&k.turned, k.groups*k.windowSize*k.panels, k.sums*k.windowSize*k.perGroup*k.outs)
	}
}

func (k *kernelBlocks) chunk(r *run, w *worker, i int) {
	part := i % k.parts
	i /= k.parts
	var b pixelBlock
	b.lo, b.hi = span(part, k.parts, k.panels)
	if !k.direct {
		b.sums = unsafe.Pointer(&k.sumsOf(r, i)[0])
	}
	runtime.LockOSThread()
	k.tiles.Begin()
	first, end := span(i, k.sums, k.blocks)
	for j := first; j < end && !k.lost(r); j++ {
		plane, y := j/k.bands*k.planes, j%k.bands*k.block
		planes, rows := min(k.planes, k.batch*k.out[0]-plane), min(k.block, k.out[1]-y)
		for p := range planes {
			k.turnGrads(r, w, p, plane+p, y, rows)
		}
		for kz := range k.size[0] {
			for p := range planes {
				k.layRows(r, w, &b, kz, p, plane+p, y)
			}
			k.clearBehind(w, planes)
			if k.direct {
				k.turnPlanes(r, w, &b, planes)
			} else {
				k.addPlanes(w, &b, kz, planes, j == first)
			}
		}
	}
	k.tiles.End()
	runtime.UnlockOSThread()
}

// gradsOf is where a step of A begins.
func (k *kernelBlocks) gradsOf(w *worker, group, height, step int) unsafe.Pointer {
	return unsafe.Pointer(&w.scratch[k.atGrads+((group*k.heights+height)*k.planes*k.steps+step)*k.pieces*tileBytes])
}

// turnGrads transposes the gradient of plane p of a block, with zeros behind the
// rows that there are: 16 channels at a time, first as pairs of pixels.
func (k *kernelBlocks) turnGrads(r *run, w *worker, p, plane, y, rows int) {
	turn := w.scratch[k.atTurn:][:32*k.pixels]
	line := 32 * k.pitch
	clear(turn[rows*line:])
	for g := range k.groups {
		for o := 0; o < k.outsPerGroup; o += 16 {
			lanes := min(16, k.outsPerGroup-o)
			for j := range rows {
				at := ((plane*k.out[1]+y+j)*k.out[2])*k.outs + g*k.outsPerGroup + o
				k.set.Lanes[gemm.Pairs](unsafe.Pointer(&turn[j*line]), 64, unsafe.Pointer(&r.values[k.b][2*at]), 2*k.outs, k.out[2], 1<<lanes-1, 1<<16-1)
			}
			for s := range k.steps {
				d := unsafe.Add(k.gradsOf(w, g, o/k.tiles.MR, p*k.steps+s), o%k.tiles.MR*64)
				k.set.Transpose[gemm.F32](d, 64, unsafe.Pointer(&turn[s*1024]), 64, lanes, 1<<16-1, 1<<16-1)
				k.split(r, d, 64, tileBytes, lanes, cellHalfs)
			}
		}
	}
}

// inputOf is where a panel of B begins, from a pixel on, whose number is even.
func (k *kernelBlocks) inputOf(w *worker, b *pixelBlock, array, group, panel, pixel int) unsafe.Pointer {
	at := ((array*k.groups+group)*k.mine+panel-b.lo)*k.laneBytes + 2*k.tiles.NR*pixel
	return unsafe.Pointer(&w.scratch[k.atInput+at])
}

// rowUnder is the input that lies under column kx of the window for a row of the
// result: where its first channel lies, and the bytes from a pixel to the next.
// Nil is zeros.
func (k *kernelBlocks) rowUnder(r *run, w *worker, plane, kz, y, kx int) (unsafe.Pointer, int) {
	z, ok := k.at(0, plane%k.out[0], kz)
	if !ok || y < 0 || y >= k.in[1] {
		return nil, 0
	}
	row := (plane/k.out[0]*k.in[0]+z)*k.in[1] + y
	x := kx*k.dilation[2] - k.low[2]
	if x >= 0 && x+(k.out[2]-1)*k.stride[2] < k.in[2] {
		return unsafe.Pointer(&r.values[k.a][2*(row*k.in[2]+x)*k.channels]), 2 * k.channels * k.stride[2]
	}
	stage := w.scratch[k.atStage:][:2*k.out[2]*k.channels]
	k.line(r, stage, row, x, k.stride[2], k.out[2])
	return unsafe.Pointer(&stage[0]), 2 * k.channels
}

// layRows lays out what a plane of a block reads of the input, for each column
// of the window.
func (k *kernelBlocks) layRows(r *run, w *worker, b *pixelBlock, kz, p, plane, y int) {
	nr := k.tiles.NR
	for i, ry := range k.down {
		for kx := range k.size[2] {
			for row := range k.rows {
				x, pixel := k.rowUnder(r, w, plane, kz, (y+row)*k.stride[1]+ry-k.low[1], kx)
				for g := range k.groups {
					for panel := b.lo; panel < b.hi; panel++ {
						d := k.inputOf(w, b, i*k.size[2]+kx, g, panel, p*k.pixels+row*k.pitch)
						if x == nil {
							for piece := range k.pieces {
								clear(unsafe.Slice((*byte)(unsafe.Add(d, piece*k.lowInput())), 2*nr*k.pitch))
							}
							continue
						}
						lanes := min(nr, k.perGroup-panel*nr)
						k.set.Lanes[gemm.Pairs](d, 4*nr, unsafe.Add(x, 2*(g*k.perGroup+panel*nr)), pixel, k.out[2], 1<<lanes-1, 1<<nr-1)
						k.split(r, d, 0, k.lowInput(), 1, nr*k.pitch)
					}
				}
			}
		}
	}
}

// clearBehind clears what B has behind the rows of some planes: what is there
// may be no number.
func (k *kernelBlocks) clearBehind(w *worker, planes int) {
	n := 2 * k.tiles.NR
	for i := range k.pieces * k.arrays() * k.groups * k.mine {
		panel := w.scratch[k.atInput+i*k.laneBytes:][:k.laneBytes]
		for p := range planes {
			end := (p + 1) * k.pixels * n
			if p == planes-1 {
				end = len(panel)
			}
			if from := (p*k.pixels + k.rows*k.pitch) * n; from < end {
				clear(panel[from:end])
			}
		}
	}
}

// addPlanes adds the products of a block to the sums of the elements of a plane
// of the window, or begins them.
func (k *kernelBlocks) addPlanes(w *worker, b *pixelBlock, kz, planes int, begins bool) {
	ld := 4 * k.tiles.NR
	steps := planes * k.steps
	call := even(steps, callSteps, 1)
	for g := range k.groups {
		for panel := b.lo; panel < b.hi; panel++ {
			for step := 0; step < steps; step += call {
				for h := range k.heights {
					for i := range k.tap {
						at := ((g*k.windowSize+kz*len(k.tap)+i)*k.panels+panel)*k.tapRows + h*k.tiles.MR
						d := unsafe.Add(b.sums, at*ld)
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
}

// multiply adds the products of some steps to a tile of the sums of an element
// of the window.
func (k *kernelBlocks) multiply(w *worker, b *pixelBlock, g, panel, h, tap, step, n int, s, d unsafe.Pointer) {
	t, place := k.tiles, k.tap[tap]
	rows := min(t.MR, k.tapRows-h*t.MR)
	input := k.inputOf(w, b, place.array, g, panel, step*cellHalfs+place.row*k.pitch)
	t.Runs[k.pieces-1][rows](n, k.gradsOf(w, g, h, step), 64, tileBytes, unsafe.Pointer(&k.places[0]), input, k.lowInput(), s, 4*t.NR, d, 4*t.NR, nil)
}

// turnPlanes computes tiles from all steps, and turns them into the result.
func (k *kernelBlocks) turnPlanes(r *run, w *worker, b *pixelBlock, planes int) {
	tile, nr := unsafe.Pointer(&w.scratch[k.atTurn]), k.tiles.NR
	for g := range k.groups {
		for panel := b.lo; panel < b.hi; panel++ {
			for h := range k.heights {
				for i := range k.tap {
					k.multiply(w, b, g, panel, h, i, 0, planes*k.steps, nil, tile)
					row, out := i*k.perGroup+panel*nr, h*k.tiles.MR
					d := unsafe.Pointer(&r.values[k.dst][4*(row*k.outs+g*k.outsPerGroup+out)])
					k.turn(d, 4*k.outs, tile, min(k.tiles.MR, k.outsPerGroup-out), min(nr, k.perGroup-panel*nr))
				}
			}
		}
	}
}

// turn transposes sums of some channels of the result and lanes of a panel.
func (k *kernelBlocks) turn(d unsafe.Pointer, ld int, sums unsafe.Pointer, outs, lanes int) {
	nr := k.tiles.NR
	for c := 0; c < lanes; c += 16 {
		for o := 0; o < outs; o += 16 {
			load := uint(1)<<min(16, outs-o) - 1
			k.set.Transpose[gemm.F32](unsafe.Add(d, c*ld+4*o), ld, unsafe.Add(sums, 4*(o*nr+c)), 4*nr, min(16, lanes-c), load, load)
		}
	}
}

func (k *turnSums) chunk(r *run, w *worker, i int) {
	nr := k.tiles.NR
	panel, tap, g := i%k.panels, i/k.panels%k.windowSize, i/k.panels/k.windowSize
	sum := func(s int) []float32 {
		return viewOf[float32](k.sumsOf(r, s)[4*nr*i*k.tapRows:], nr*k.outsPerGroup)
	}
	total := sum(0)
	for s := 1; s < k.sums; s++ {
		ofF32().binary[op.Add](total, total, sum(s))
	}
	lanes, n := min(nr, k.perGroup-panel*nr), k.outsPerGroup
	turned := viewOf[float32](w.scratch[k.atTurn:], lanes*n)
	k.turn(unsafe.Pointer(&turned[0]), 4*n, unsafe.Pointer(&total[0]), n, lanes)
	for c := range lanes {
		putRow(&k.convolution, r, w, (tap*k.perGroup+panel*nr+c)*k.outs+g*n, turned[c*n:][:n])
	}
}
