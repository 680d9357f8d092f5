package conv

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// implicitGEMM is a convolution, or its gradient by the input, on the micro-kernels of package
// gemm, without im2col: the pixels of a row of the result are the rows of a product. The
// elements of the source that a pixel reads in one row of the window, all channels of
// neighbouring pixels, are a run of memory, and runs of neighbouring pixels have a fixed
// distance. So micro-kernels can read A in place, as borderGEMM does. This type has the other
// ways: a source of one channel is packed with pixels in vectors (inLanes), and where
// micro-kernels take many rows at once, or images are tiny, the patches of some pixels are
// gathered. Where elements must be converted, a band of the source is copied first, with zeros
// around it.
//
// The gradient by the input is the convolution of the result's gradient with the kernels
// rotated by 180°. With strides it is cut into phases: the pixels of the input whose windows
// begin at the same position modulo the stride. Each phase is a convolution without stride by
// the elements of the window that reach its pixels.
type implicitGEMM struct {
	convolution
	set     *gemm.Set
	tiles   *gemm.Tiles
	element gemm.Element // that micro-kernels read
	stored  gemm.Element // of the source
	bytes   int          // of an element of A as micro-kernels read it
	source  int          // position of the source

	dims        [3]int // of the source
	depth       int    // channels of the source in a group
	lanes       int    // channels of the result in a group
	srcAll      int    // channels of the source in all
	dstAll      int    // channels of the result in all
	windowLoops bool   // computed by vector loops over windows, not by micro-kernels
	zeros       bool   // padding is zeros in a copy of the source, which are multiplied like it
	pad         int    // zeros after the channels of a copied pixel, which complete its last pair

	phases []stridedPhase
	panels int // of packed kernels, in a group
	weigh  packWeights
	few    bool           // the program does not change the kernels, and there are few pixels or kernels are small
	kept   bool           // packed kernels stay from run to run
	cache  int            // index of their copy in Run.Packed
	direct bool           // micro-kernels write the result themselves
	result product.Writer // writes the result otherwise, as a matrix with a row for each pixel
	ld     int            // bytes from a row of accumulators to the next

	atTile, atA int // offsets of accumulators and of packed A in scratch memory
}

// stridedPhase is the pixels of the result whose windows have the same position modulo the
// stride.
type stridedPhase struct {
	first, step, count [3]int // pixels of the result
	move               [3]int // pixels of the source from a pixel of the result to the next
	runs               []tapRun
	low, span          [3]int // of the source positions that the first pixel reads: the first one and their number
	cells              int    // of all runs
	weights            int    // offset of the packed kernels, in cells of a panel's column

	mode   sourceMode
	copied bool   // the source is read from a copy
	box    [3]int // sizes of the copy
	band   int    // rows of a chunk, or pixels if they are gathered
	bands  int    // of a plane, or of the phase if pixels are gathered
	chunks int
}

// tapRun is a run of elements that a pixel reads.
type tapRun struct {
	at     [3]int // source position of the first element, for the first pixel of the phase
	n      int    // elements
	cells  int
	offset int // cells of the previous runs
	tap    int // element of the window of the first element
}

// sourceMode says how micro-kernels get A.
type sourceMode uint8

const (
	gathered sourceMode = iota // the patches of some pixels are copied
	inLanes                    // pixels are in vectors: there is one channel
)

const (
	keptKernels = 256 << 10 // of kernels whose packed copy is kept for any number of pixels
	boxBytes    = 256 << 10 // of a copied band: it stays in L2
	laneBytes   = 16 << 10  // of accumulators that are converted to the result: they stay in L1
	shortRow    = 6         // pixels: with fewer a tile has unused rows
	convChunk   = 1 << 22   // multiplications of a chunk, at most
	blockSum    = 16        // elements of a sum, at least, for tileGEMM
	splitSum    = 48        // elements of a sum, at least, for splitting float16
	splitLanes  = 3         // channels of the result, at least, for splitting float16
	padDepth    = 3         // channels of the source, at least, for padding
)

// splitPays reports whether products of float16 in two pieces on tile registers are faster
// than float32. Measured: 1.2 to 2.7 times with sums and lanes of at least these sizes, else
// down to 0.4 times.
func (k *implicitGEMM) splitPays() bool {
	if k.stored != gemm.F16 || k.set.Panels == nil || k.set.Blocks == nil {
		return false
	}
	return (k.depth%2 == 0 || k.code == op.Conv) && k.depth*k.WindowSize >= splitSum && k.lanes >= splitLanes
}

// inTiles reports whether k is computed on tile registers in bfloat16.
func (k *implicitGEMM) inTiles() bool {
	t := k.set.Blocks
	return k.stored == gemm.BF16 && t != nil && t.Runs[0] != nil && (k.depth%2 == 0 || k.code == op.Conv) && k.depth*k.WindowSize >= max(8, blockSum)
}

// byRuns makes the kernel that computes k run by run: borderGEMM if there are micro-kernels
// for it.
func (k *implicitGEMM) byRuns(b *exec.Builder, v *ir.Value) exec.Kernel {
	if k.inRegions() {
		return newBorderGEMM(b, v, k)
	}
	return k.newRuns(b, v)
}

// newRuns makes the kernel that computes k run by run.
func (k *implicitGEMM) newRuns(b *exec.Builder, v *ir.Value) exec.Kernel {
	k.direct = k.inResult(v)
	k.eachPhase(k.phase)
	k.panels = tiling.CeilDiv(k.lanes, k.tiles.NR)
	k.weigh.implicitGEMM = k
	k.layout(b, v)
	return k
}

// pairs reports whether micro-kernels on pairs can compute k run by run: no pair extends
// beyond the end of a run, and sums fill a step of the micro-kernels.
func (k *implicitGEMM) pairs(t *gemm.Tiles) bool {
	long := k.depth*k.WindowSize >= t.Deep*t.Step
	return long && (k.depth%2 == 0 || k.code == op.Conv && k.oneChannel())
}

// padded reports whether micro-kernels on pairs can compute k if the channels of each pixel are
// padded to an even number while they are copied.
func (k *implicitGEMM) padded(t *gemm.Tiles) bool {
	if t.Unit > 1 || k.groups > 1 || k.depth%2 == 0 || k.depth < padDepth {
		return false
	}
	p := *k
	p.tiles, p.pad = t, 1
	return p.byPixels()
}

// oneChannel reports whether neighbouring pixels are adjacent elements in the source, for
// micro-kernels and for packing.
func (k *implicitGEMM) oneChannel() bool {
	return k.srcAll == 1 && (k.code == op.ConvInputGrad || k.Stride[2] == 1)
}

// eachPhase calls f with each phase and its elements of the window.
func (k *implicitGEMM) eachPhase(f func(p stridedPhase, taps [3][]tap)) {
	if k.code == op.Conv {
		var taps [3][]tap
		for axis := range 3 {
			for i := range k.Size[axis] {
				taps[axis] = append(taps[axis], tap{i, i*k.Dilation[axis] - k.Low[axis]})
			}
		}
		f(stridedPhase{step: [3]int{1, 1, 1}, count: k.Out, move: k.Stride}, taps)
		return
	}
	s := k.Stride
	for z := range min(s[0], k.In[0]) {
		for y := range min(s[1], k.In[1]) {
			for x := range min(s[2], k.In[2]) {
				p := stridedPhase{first: [3]int{z, y, x}, step: s, move: [3]int{1, 1, 1}}
				var taps [3][]tap
				for axis, at := range p.first {
					p.count[axis] = tiling.CeilDiv(k.In[axis]-at, s[axis])
					for i := range k.Size[axis] {
						if d := at + k.Low[axis] - i*k.Dilation[axis]; d%s[axis] == 0 {
							taps[axis] = append(taps[axis], tap{i, d / s[axis]})
						}
					}
					slices.Reverse(taps[axis]) // in the order of the source
				}
				f(p, taps)
			}
		}
	}
}

// chunkOf returns the phase of chunk i and its index in that phase; chunks has the number of
// chunks of each phase. Phases with equally many chunks alternate: their pixels are neighbours
// and they read the same source.
func chunkOf(chunks []int, i int) (phase, chunk int) {
	if n := len(chunks); n > 1 && slices.Min(chunks) == slices.Max(chunks) {
		return i % n, i / n
	}
	for ; i >= chunks[phase]; phase++ {
		i -= chunks[phase]
	}
	return phase, i
}

// tap is an element of the window along an axis, and its source position for the first pixel
// of a phase.
type tap struct{ element, at int }

// phase adds the runs of the given elements of the window to p, and p to k.
func (k *implicitGEMM) phase(p stridedPhase, taps [3][]tap) {
	k.addRuns(&p, taps)
	k.shape(&p)
	k.phases = append(k.phases, p)
}

// addRuns adds the runs of the given elements of the window to p, which comes after the
// existing phases.
func (k *implicitGEMM) addRuns(p *stridedPhase, taps [3][]tap) {
	if len(k.phases) > 0 {
		last := &k.phases[len(k.phases)-1]
		p.weights = last.weights + last.cells
	}
	for axis, list := range taps {
		if len(list) == 0 {
			continue
		}
		p.low[axis], p.span[axis] = list[0].at, list[len(list)-1].at-list[0].at+1
	}
	for _, tz := range taps[0] {
		for _, ty := range taps[1] {
			for i := 0; i < len(taps[2]); {
				// Adjacent elements of the source make one run, if a group reads all channels.
				n := 1
				for k.groups == 1 && i+n < len(taps[2]) && taps[2][i+n].at == taps[2][i].at+n {
					n++
				}
				tap := (tz.element*k.Size[1]+ty.element)*k.Size[2] + taps[2][i].element
				p.addRun(tapRun{at: [3]int{tz.at, ty.at, taps[2][i].at}, n: n * (k.depth + k.pad), cells: tiling.CeilDiv(n*(k.depth+k.pad), k.tiles.Step), tap: tap})
				i += n
			}
		}
	}
	if len(p.runs) == 0 { // no element of the window reaches the pixels: they are 0
		p.addRun(tapRun{})
		p.span = [3]int{1, 1, 1}
		p.low = [3]int{}
	}
	p.cells = tiling.RoundUp(p.cells, k.tiles.Deep)
}

func (p *stridedPhase) addRun(r tapRun) {
	r.offset = p.cells
	p.cells += r.cells
	p.runs = append(p.runs, r)
}

// regionPiece is the pixels [from, to) along an axis whose windows have the same elements [lo,
// hi) within the source, or in its copy.
type regionPiece struct{ from, to, lo, hi int }

// along cuts an axis of a phase into region pieces.
func (k *implicitGEMM) along(p *stridedPhase, axis int, taps []tap) []regionPiece {
	if k.zeros {
		return []regionPiece{{0, p.count[axis], 0, len(taps)}}
	}
	var all []regionPiece
	for i := range p.count[axis] {
		at := func(tap tap) int { return i*p.move[axis] + tap.at }
		lo, hi := 0, len(taps)
		for lo < hi && at(taps[lo]) < 0 {
			lo++
		}
		for hi > lo && at(taps[hi-1]) >= k.dims[axis] {
			hi--
		}
		if lo == hi {
			lo, hi = 0, 0
		}
		if n := len(all); n > 0 && all[n-1].lo == lo && all[n-1].hi == hi {
			all[n-1].to = i + 1
		} else {
			all = append(all, regionPiece{i, i + 1, lo, hi})
		}
	}
	return all
}

// tapStep returns the step in the window between consecutive elements of a run.
func (k *implicitGEMM) tapStep() int {
	if k.code == op.Conv {
		return 1
	}
	// Of the elements that read the next source position, the nearest is that many earlier:
	// the least number of dilations that is a whole number of strides.
	return -k.Stride[2] / gcd(k.Stride[2], k.Dilation[2])
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// shape decides how A gets to the micro-kernels, and the chunks of a phase.
func (k *implicitGEMM) shape(p *stridedPhase) {
	p.copied = !k.within(p) && (k.zeros || !k.windowLoops) || k.element == gemm.F16 || k.element == gemm.BF16
	perPixel := max(1, p.cells*k.tiles.Step*k.dstAll)
	macs := min(convChunk, max(product.ChunkMACs, k.macs()/16))
	box := boxBytes
	switch {
	case k.windowLoops:
		box = bandBytes
		if p.copied && k.lanes == 1 {
			box = copiedBytes
		}
	case k.tiles.Unit == 1 && k.oneChannel():
		p.mode = inLanes
		if !k.direct {
			box = laneBytes
		}
	default:
		pixels := k.Batch * p.count[0] * p.count[1] * p.count[2]
		most := max(1, boxBytes/(4*p.cells+product.RowPad))
		p.band = min(tiling.RoundUp(max(1, macs/perPixel), k.tiles.MR), max(most, k.tiles.MR), max(1, pixels))
		p.band = tiling.Even(max(1, pixels), p.band, k.tiles.MR)
		p.bands = tiling.CeilDiv(pixels, p.band)
		p.chunks = p.bands
		return
	}
	rowBytes := 4 * p.count[2] * k.dstAll
	if p.copied {
		rowBytes = max(rowBytes, p.span[0]*p.move[1]*((p.count[2]-1)*p.move[2]+p.span[2])*k.srcAll*k.bytes)
	}
	p.band = max(1, min(box/max(1, rowBytes), p.count[1]))
	p.band = tiling.Even(p.count[1], max(1, min(p.band, tiling.CeilDiv(macs, perPixel*p.count[2]))), 1)
	p.bands = tiling.CeilDiv(p.count[1], p.band)
	p.chunks = k.Batch * p.count[0] * p.bands
	p.box = [3]int{p.span[0], (p.band-1)*p.move[1] + p.span[1], (p.count[2]-1)*p.move[2] + p.span[2]}
}

// within reports whether no window of a phase extends over the border of the source.
func (k *implicitGEMM) within(p *stridedPhase) bool {
	inside := true
	for axis := range 3 {
		last := p.low[axis] + p.span[axis] - 1 + (p.count[axis]-1)*p.move[axis]
		inside = inside && p.low[axis] >= 0 && last < k.dims[axis]
	}
	return inside
}

// inResult reports whether micro-kernels can write the result of v themselves.
func (k *implicitGEMM) inResult(v *ir.Value) bool { return v.Attr.Body == nil && k.storesResult() }

// storesResult reports whether micro-kernels can store sums in the result.
func (k *implicitGEMM) storesResult() bool {
	t := k.tiles
	return k.to == dtype.Float32 && t.Unit == 1 && (t.Masked || k.lanes%t.NR == 0)
}

// layout places accumulators and packed A in scratch memory, and packed kernels in shared
// memory.
func (k *implicitGEMM) layout(b *exec.Builder, v *ir.Value) {
	t := k.tiles
	k.ld = 4 * k.lanes
	if !t.Masked {
		k.ld = 4 * tiling.RoundUp(k.lanes, t.NR)
	}
	box, tile, packed := 0, 0, 0
	for i := range k.phases {
		p := &k.phases[i]
		rows := p.band * p.count[2]
		switch p.mode {
		case gathered:
			rows = p.band
			packed = max(packed, p.band*(4*p.cells+product.RowPad))
		case inLanes:
			packed = max(packed, 4*laneBlock*p.cells)
		}
		if p.copied && p.mode == inLanes {
			box = max(box, p.box[0]*p.box[1]*p.box[2]*k.srcAll*k.bytes)
		}
		if !k.inPlace(p) {
			tile = max(tile, rows*k.ld)
		}
	}
	k.atTile = tiling.RoundUp(box, 64)
	k.atA = k.atTile + tiling.RoundUp(tile, 64)
	k.addEpilogue(b, v, k.atA+tiling.RoundUp(packed, 64), k.lanes)
	k.result = product.Writer{Set: k.set, N: k.dstAll, TileN: k.lanes, Out: k.dst, To: k.to, After: k.after}
	k.reserveWeights(b, k.weightBytes())
}

// inPlace reports whether micro-kernels write the result of a phase themselves. With steps,
// gathered pixels have no fixed distance.
func (k *implicitGEMM) inPlace(p *stridedPhase) bool {
	return k.direct && (p.mode != gathered || p.step == [3]int{1, 1, 1})
}

// allCells returns the cells of the runs of all phases.
func (k *implicitGEMM) allCells() int {
	last := &k.phases[len(k.phases)-1]
	return last.weights + last.cells
}
