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

// implicitGEMM is a convolution, or its gradient by the input, on the matrix
// kernels of package gemm, without a matrix of all patches: the pixels of a
// row of the result are the rows of a product. What a pixel reads of a row of
// the source, its channels under neighbouring elements of the window, is one
// run of memory, and from a pixel to the next it is always the same distance.
// So kernels can read A from where the source lies, as those of borderGEMM do.
// Here are the others: if there is one channel, pixels are packed side by side;
// if kernels take many rows at once, or images are tiny, the patches of some
// pixels are gathered. Where elements must be converted, a band of the source is
// copied first, with zeros around it.
//
// The gradient by the input is the convolution of the result's gradient with
// the kernels turned round. With strides, the pixels of the input whose
// windows begin at the same place modulo the stride make a phase: each phase
// is a convolution without stride, by those elements of the window that reach
// it.
type implicitGEMM struct {
	convolution
	set     *gemm.Set
	tiles   *gemm.Tiles
	element gemm.Element // that the kernels read
	stored  gemm.Element // that the source has
	bytes   int          // of an element that kernels read of A
	source  int          // position of the source

	dims   [3]int // of the source
	depth  int    // channels of the source that a group reads
	lanes  int    // channels of the result of a group
	srcAll int    // channels of the source
	dstAll int    // channels of the result
	own    bool   // channels have one kernel each
	pad    int    // zeros behind the channels of a copied pixel: they fill up its last pair

	phases []stridedPhase
	panels int // of kernels, in a group
	weigh  packWeights
	few    bool           // the program does not change the kernels, and there are few pixels
	kept   bool           // packed kernels stay from run to run
	cache  int            // where
	direct bool           // kernels write the result themselves
	result product.Writer // writes it else: the result as a matrix, with a row for each pixel
	ld     int            // bytes from a row of accumulators to the next

	atTile, atA int // where the scratch memory has accumulators, and what is packed of A
}

// stridedPhase is a part of the result whose pixels are computed alike.
type stridedPhase struct {
	first, step, count [3]int // pixels of the result
	move               [3]int // pixels of the source from a pixel of the result to the next
	runs               []tapRun
	low, span          [3]int // of what the first pixel reads: its first element, and how many
	cells              int    // of all runs
	weights            int    // where the packed kernels begin, in cells of a panel's column

	mode   sourceMode
	copied bool   // the source is read from a copy
	box    [3]int // of the copy
	band   int    // rows of a chunk, or pixels if they are gathered
	bands  int    // of a plane, or in all
	chunks int
}

// tapRun is a run of elements that a pixel reads.
type tapRun struct {
	at     [3]int // the first one, for the first pixel of the phase
	n      int    // elements
	cells  int
	offset int // cells of the runs before
	tap    int // element of the window that the first one lies under
}

// sourceMode is how A gets to the kernel.
type sourceMode uint8

const (
	gathered sourceMode = iota // the patches of some pixels are copied
	inLanes                    // pixels side by side: there is one channel
)

const (
	boxBytes   = 256 << 10 // of a copied band: it stays in L2
	laneBytes  = 16 << 10  // of accumulators on their way to the result: they stay in L1
	shortRow   = 6         // pixels: fewer make a low tile
	convChunk  = 1 << 22   // multiplications of a chunk, at most
	blockSum   = 16        // elements of a sum that are worth the boxes of tileGEMM
	splitSum   = 48        // elements of a sum that are worth splitting float16 for
	splitLanes = 3         // channels of the result that are
	padDepth   = 3         // channels of the source that are worth padding
)

// splitPays reports whether products of float16 in two pieces are faster on tile
// registers than float32 is. Measured: where sums are long enough to fill steps
// and lanes are more than a few, 1.2 to 2.7 times, else down to 0.4.
func (k *implicitGEMM) splitPays() bool {
	if k.stored != gemm.F16 || k.set.Panels == nil || k.set.Blocks == nil {
		return false
	}
	return (k.depth%2 == 0 || k.code == op.Conv) && k.depth*k.WindowSize >= splitSum && k.lanes >= splitLanes
}

// inTiles reports whether tile registers compute k in bfloat16.
func (k *implicitGEMM) inTiles() bool {
	t := k.set.Blocks
	return k.stored == gemm.BF16 && t != nil && t.Runs[0] != nil && (k.depth%2 == 0 || k.code == op.Conv) && k.depth*k.WindowSize >= max(8, blockSum)
}

// byRuns is k run by run, by regions of the border if there are micro-kernels for them.
func (k *implicitGEMM) byRuns(b *exec.Builder, v *ir.Value) exec.Kernel {
	if k.inRegions() {
		return newBorderGEMM(b, v, k)
	}
	return k.newRuns(b, v)
}

// newRuns is k run by run.
func (k *implicitGEMM) newRuns(b *exec.Builder, v *ir.Value) exec.Kernel {
	k.direct = k.inResult(v)
	k.eachPhase(k.phase)
	k.panels = tiling.CeilDiv(k.lanes, k.tiles.NR)
	k.weigh.implicitGEMM = k
	k.layout(b, v)
	return k
}

// pairs reports whether kernels on pairs can compute k run by run: pairs do not
// reach over the end of a run, and sums fill a step of the kernels.
func (k *implicitGEMM) pairs(t *gemm.Tiles) bool {
	long := k.depth*k.WindowSize >= t.Deep*t.Step && k.Batch*k.OutSize >= t.Unit
	return long && (k.depth%2 == 0 || k.code == op.Conv && k.oneChannel())
}

// padded reports whether kernels on pairs can compute k by regions if the channels of
// each pixel are padded to an even number while they are copied.
func (k *implicitGEMM) padded(t *gemm.Tiles) bool {
	if t.Unit > 1 || k.groups > 1 || k.depth%2 == 0 || k.depth < padDepth || k.Batch*k.OutSize < t.Unit {
		return false
	}
	p := *k
	p.tiles, p.pad = t, 1
	return p.inRegions()
}

// oneChannel reports whether pixels lie side by side in the source, for
// kernels and for packing.
func (k *implicitGEMM) oneChannel() bool {
	return k.srcAll == 1 && (k.code == op.ConvInputGrad || k.Stride[2] == 1)
}

// eachPhase calls f with the phases and their elements of the window.
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

// chunkOf is chunk i as one of a phase, of which there are as many as the list
// says. Phases of as many chunks alternate: their pixels lie side by side, and
// they read the same source.
func chunkOf(chunks []int, i int) (phase, chunk int) {
	if n := len(chunks); n > 1 && slices.Min(chunks) == slices.Max(chunks) {
		return i % n, i / n
	}
	for ; i >= chunks[phase]; phase++ {
		i -= chunks[phase]
	}
	return phase, i
}

// tap is an element of the window along an axis, and what it lies on in
// the source for the first pixel of a phase.
type tap struct{ element, at int }

// phase adds the runs of the given elements of the window to p, and p to k.
func (k *implicitGEMM) phase(p stridedPhase, taps [3][]tap) {
	k.addRuns(&p, taps)
	k.shape(&p)
	k.phases = append(k.phases, p)
}

// addRuns adds the runs of the given elements of the window to p, which comes
// behind the phases that there are.
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
				// Neighbours in the source make one run, if a group reads all
				// channels.
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
	if len(p.runs) == 0 { // a pixel that no window covers: 0
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

// regionPiece is neighbours along an axis under which the same elements of the
// window lie within the source: those from lo to before hi.
type regionPiece struct{ from, to, lo, hi int }

// along cuts an axis of a phase.
func (k *implicitGEMM) along(p *stridedPhase, axis int, taps []tap) []regionPiece {
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

// tapStep is the step in the window from an element in a run to the next.
func (k *implicitGEMM) tapStep() int {
	if k.code == op.Conv {
		return 1
	}
	// Windows that begin later lie with an earlier element on a pixel: as many
	// earlier as it takes to come by a whole number of strides.
	return -k.Stride[2] / gcd(k.Stride[2], k.Dilation[2])
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// shape chooses how A gets to the kernel, and the chunks of a phase.
func (k *implicitGEMM) shape(p *stridedPhase) {
	inside := true
	for axis := range 3 {
		last := p.low[axis] + p.span[axis] - 1 + (p.count[axis]-1)*p.move[axis]
		inside = inside && p.low[axis] >= 0 && last < k.dims[axis]
	}
	p.copied = !inside && !k.own || k.element == gemm.F16 || k.element == gemm.BF16
	perPixel := max(1, p.cells*k.tiles.Step*k.dstAll)
	macs := min(convChunk, max(product.ChunkMACs, k.macs()/16))
	box := boxBytes
	switch {
	case k.own:
		box = ownBytes
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

// inResult reports whether kernels can write the result of v themselves.
func (k *implicitGEMM) inResult(v *ir.Value) bool {
	t := k.tiles
	return k.to == dtype.Float32 && t.Unit == 1 && v.Attr.Body == nil && (t.Masked || k.lanes%t.NR == 0)
}

// layout places accumulators and what is packed in scratch memory, and the
// packed kernels in the memory that workers share.
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

// inPlace reports whether kernels write the result of a phase themselves.
// Pixels that were gathered are not at equal distances if there are steps.
func (k *implicitGEMM) inPlace(p *stridedPhase) bool {
	return k.direct && (p.mode != gathered || p.step == [3]int{1, 1, 1})
}

// allCells is the cells of the runs of all phases.
func (k *implicitGEMM) allCells() int {
	last := &k.phases[len(k.phases)-1]
	return last.weights + last.cells
}
