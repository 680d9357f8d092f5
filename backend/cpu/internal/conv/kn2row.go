package conv

import (
	"runtime"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// kn2row is a convolution, or its gradient by the input, whose result has so few channels that
// most columns of a tile would be empty (Vasudevan, Anderson and Gregg 2017, "Parallel Multi
// Channel Convolution using General Matrix Multiplication"). First each pixel of the source is
// multiplied with all elements of the window, which gives a row of products. Then each pixel
// of the result adds up the products of its window.
//
// A chunk goes through its rows in blocks. Rows of products that the next block reads, too,
// are moved to the start of the buffer.
type kn2row struct {
	*implicitGEMM
	regions     [][]windowRegion // by phase
	weigh       packColumns
	cols        int     // of products: elements of the window times channels of the result
	line        int     // bytes of a pixel's products
	panelBytes  int     // of packed kernels
	convert     bool    // pixels are copied, to be converted or padded
	amx         bool    // products are computed on tile registers
	places      []int64 // offsets of the steps of tile registers
	least, most int     // rows of the source that the first row of a phase reads, relative to it
	block       int     // rows of a phase that are added up together
	band        int     // of a chunk
	bands       int
	images      int // of a chunk: more than one only if it has all of their rows
	rows        int // of the longest phase

	atStage int // scratch memory of pixels that are copied
}

// packColumns is the task that packs a panel of kernels, with a column for each element
// of the window and channel of the result.
type packColumns struct{ *kn2row }

const (
	kn2rowBytes  = 384 << 10 // of products, in L2
	kn2rowMost   = 768 << 10 // of products for a row of the result, at most
	kn2rowPixels = 56        // that are multiplied together, and of a block at least
)

// windowColumns returns the number of columns of kn2row's products.
func (k *implicitGEMM) windowColumns() int { return k.WindowSize * k.lanes }

// inColumns reports whether kn2row can compute k.
func (k *implicitGEMM) inColumns() bool {
	if k.groups != 1 || k.In[0]*k.Out[0]*k.Size[0] != 1 || k.WindowSize == 1 || k.lanes > window.VectorChannels ||
		k.set.Depthwise == nil || k.set.F32.NR != window.VectorChannels {
		return false
	}
	if k.stored == gemm.BF16 && k.set.Blocks != nil {
		return k.singlePanel()
	}
	reads := (k.Size[1]-1)*k.Dilation[1] + 1
	return reads*k.dims[2]*k.productLine() <= kn2rowMost
}

// singlePanel reports whether a gradient by the input has products of one panel.
func (k *implicitGEMM) singlePanel() bool {
	return k.code == op.ConvInputGrad && k.lanes <= smallDepth && k.windowColumns() <= window.VectorChannels
}

// productLine returns the bytes of a pixel's products.
func (k *implicitGEMM) productLine() int {
	return 4 * tiling.RoundUp(k.windowColumns(), window.VectorChannels/2)
}

// vectors returns the number of vectors of a row of a tile of n columns.
func vectors(n int) int { return tiling.CeilDiv(n, window.VectorChannels/2) }

// columnsPay reports whether kn2row is faster than other products.
func (k *implicitGEMM) columnsPay() bool {
	here, direct := k.columnsCost()
	return k.singlePanel() || here < direct
}

// columnsCost estimates the time of kn2row and that of other products, in products of a
// vector.
func (k *implicitGEMM) columnsCost() (here, direct float64) {
	taps, pixels := 0, 0 // elements of windows within the source, and pixels of the result
	k.eachPhase(func(p stridedPhase, list [3][]tap) {
		covered := k.Batch
		for axis := 1; axis < 3; axis++ {
			sum := 0
			for _, t := range list[axis] {
				sum += within(&p, axis, t.at, k.dims[axis])
			}
			covered *= sum
		}
		taps += covered
		pixels += k.Batch * p.count[1] * p.count[2]
	})
	sources := k.Batch * k.dims[1] * k.dims[2]
	steps := k.depth
	if k.inPairs() {
		steps = tiling.CeilDiv(steps, 2)
	}
	// In products of a vector. Measured: storing products and moving them takes as long as so
	// many of them, adding an element of the window as long as two. Other algorithms reach
	// less of the peak in tiles with unused rows.
	span := (k.Size[1] - 1) * k.Dilation[1]
	moved := 0
	if fit := kn2rowBytes / (k.dims[2] * k.productLine()); fit < k.dims[1] {
		moved = min(span, tiling.CeilDiv(span, max(1, fit-span)))
	}
	here = float64(sources*(steps+4+3*moved)*vectors(k.windowColumns()) + 2*taps + 8*pixels)
	direct = 1.1 * float64(taps*steps*vectors(k.lanes))
	if !k.oneChannel() && !k.inRegions() {
		direct *= 1.5 // patches are gathered
	}
	if !k.inPairs() && k.transforms() && k.winogradPays() {
		direct /= 2
	}
	return here, direct
}

// within returns the number of pixels of a phase along an axis for which an element of the
// window is within the source; at is its source position for the first pixel.
func within(p *stridedPhase, axis, at, size int) int {
	lo := tiling.CeilDiv(max(0, -at), p.move[axis])
	hi := min(p.count[axis], tiling.CeilDiv(max(0, size-at), p.move[axis]))
	return max(0, hi-lo)
}

// inPairs reports whether the products are of pairs of bfloat16.
func (k *implicitGEMM) inPairs() bool {
	return k.stored == gemm.BF16 && k.set.Pairs != nil && k.depth >= 4
}

func newKn2row(b *exec.Builder, v *ir.Value, p *implicitGEMM) exec.Kernel {
	k := &kn2row{implicitGEMM: p}
	k.weigh.kn2row = k
	k.cols, k.line = p.windowColumns(), p.productLine()
	p.tiles, p.element = p.set.F32, p.stored
	if k.inPairs() {
		p.tiles, p.element = p.set.Pairs, gemm.Pairs
	}
	if t := p.set.Blocks; t != nil && p.stored == gemm.BF16 && p.depth%cellElements == 0 && k.cols <= t.NR {
		k.amx, p.tiles, p.element = true, t, gemm.Pairs
		k.line = 4 * t.NR
		for s := range p.depth / cellElements {
			k.places = append(k.places, int64(s*cellBytes))
		}
	}
	k.convert = p.element != gemm.F32 && (p.element != gemm.Pairs || p.depth%2 > 0)
	p.bytes = 4
	if p.element == gemm.Pairs {
		p.bytes = 2
	}
	k.direct = k.to == dtype.Float32 && v.Attr.Body == nil
	k.ld = 4 * k.lanes
	move := 1
	k.eachPhase(func(p stridedPhase, taps [3][]tap) {
		for _, t := range taps[1] {
			k.least, k.most = min(k.least, t.at), max(k.most, t.at)
		}
		k.rows, move = max(k.rows, p.count[1]), p.move[1]
		k.cut(&p, taps)
		k.phases = append(k.phases, p)
	})
	k.cutRows(move)
	height, width := k.resultPlane()
	buffer := min(k.reads(k.block, move), k.dims[1])
	if k.images > 1 {
		buffer = k.images * k.dims[1]
	}
	tile := 0
	if !k.direct {
		tile = k.images * min(k.block*k.phases[0].step[1], height) * width * k.ld
	}
	k.atTile = tiling.RoundUp((buffer*k.dims[2]+k.tiles.MR)*k.line+4*window.VectorChannels, 64)
	k.atStage = k.atTile + tiling.RoundUp(tile, 64)
	k.addEpilogue(b, v, k.atStage+kn2rowPixels*k.pixelBytes(), k.lanes)
	k.result = product.Writer{Set: k.set, N: k.lanes, TileN: k.lanes, Out: k.dst, To: k.to, After: k.after}
	k.panels = tiling.CeilDiv(k.cols, k.tiles.NR)
	k.panelBytes = 4 * k.steps() * k.tiles.NR
	b.ReserveShared(k.panels * k.panelBytes)
	return k
}

// cutRows decides the chunks and their blocks.
func (k *kn2row) cutRows(move int) {
	row := k.dims[2] * k.line
	k.block = k.rows
	if most := kn2rowBytes / row; most < min(k.dims[1], k.reads(k.rows, move)) {
		k.block = max(1, (most-(k.most-k.least))/move, min(k.rows, tiling.CeilDiv(kn2rowPixels, k.dims[2]*move)))
	}
	wanted := min(4*tiling.MinChunks, tiling.CeilDiv(k.macs(), product.ChunkMACs))
	k.images, k.bands = 1, 1
	if k.block == k.rows {
		k.images = max(1, min(kn2rowBytes/(k.dims[1]*row), k.Batch/wanted))
	}
	if k.Batch < tiling.MinChunks {
		k.bands = tiling.CeilDiv(min(wanted, tiling.MinChunks), k.Batch)
		// Neighbouring chunks multiply some of the same rows of the source.
		k.bands = max(1, min(k.bands, k.rows*move/max(1, 3*(k.most-k.least))))
	}
	k.band = tiling.Even(k.rows, tiling.CeilDiv(k.rows, k.bands), 1)
	k.block = tiling.Even(k.band, k.block, 1)
	k.bands = tiling.CeilDiv(k.rows, k.band)
}

// reads returns the number of rows of the source that some rows of a phase read.
func (k *kn2row) reads(rows, move int) int { return (rows-1)*move + k.most - k.least + 1 }

// steps returns the number of steps of the inner dimension.
func (k *kn2row) steps() int { return tiling.CeilDiv(k.depth, k.tiles.Step) }

// pixelBytes returns the bytes of a copied pixel.
func (k *kn2row) pixelBytes() int { return tiling.RoundUp(k.depth*k.bytes, 4) }

// resultPlane returns the rows and columns of an image of the result.
func (k *kn2row) resultPlane() (height, width int) {
	if k.code == op.Conv {
		return k.Out[1], k.Out[2]
	}
	return k.In[1], k.In[2]
}

// cut cuts a phase into regions. Their offsets are those of products.
func (k *kn2row) cut(p *stridedPhase, taps [3][]tap) {
	row := k.dims[2] * k.line
	var all []windowRegion
	for _, y := range k.along(p, 1, taps[1]) {
		for _, x := range k.along(p, 2, taps[2]) {
			g := windowRegion{from: [3]int{0, y.from, x.from}, to: [3]int{1, y.to, x.to}}
			for _, ty := range taps[1][y.lo:y.hi] {
				for _, tx := range taps[2][x.lo:x.hi] {
					at := ty.at*row + (tx.at+x.from*p.move[2])*k.line + 4*k.lanes*(ty.element*k.Size[2]+tx.element)
					if len(g.places) == 0 {
						g.first = at
					}
					g.places = append(g.places, int64(at-g.first), 0)
				}
			}
			all = append(all, g)
		}
	}
	k.regions = append(k.regions, all)
}

func (k *kn2row) Run(r *exec.Run) {
	r.Parallel(&k.weigh, k.panels, k.WindowSize*k.perGroup*k.outs)
	r.Parallel(k, tiling.CeilDiv(k.Batch, k.images)*k.bands, k.macs()/16)
}

func (k *packColumns) Chunk(r *exec.Run, _ *exec.Worker, panel int) {
	nr, size := k.tiles.NR, k.from.Size()
	src := unsafe.Pointer(unsafe.SliceData(r.Values[k.b]))
	to := r.Shared[panel*k.panelBytes:][:k.panelBytes]
	dst := unsafe.Pointer(&to[0])
	lo, hi := panel*nr, min(k.cols, (panel+1)*nr)
	if k.code == op.Conv {
		if hi-lo < nr {
			clear(to)
		}
		for c := lo; c < hi; {
			tap := c / k.lanes
			n := min(hi, (tap+1)*k.lanes) - c
			at := tap*k.depth*k.lanes + c%k.lanes
			mask := uint(1)<<n - 1
			k.set.Lanes[k.element](unsafe.Add(dst, 4*(c-lo)), 4*nr, unsafe.Add(src, at*size), k.lanes*size, k.depth, mask, mask)
			c += n
		}
		return
	}
	for j := 0; j < nr; j += 16 {
		load := uint(1)<<max(0, min(16, hi-lo-j)) - 1
		row := min(lo+j, k.cols-1)
		k.set.Transpose[k.element](unsafe.Add(dst, 4*j), 4*nr, unsafe.Add(src, row*k.depth*size), k.depth*size, k.depth, load, 1<<16-1)
	}
}

func (k *kn2row) Chunk(r *exec.Run, w *exec.Worker, i int) {
	image := i / k.bands * k.images
	images := min(k.images, k.Batch-image)
	height, width := k.resultPlane()
	move, step := k.phases[0].move[1], k.phases[0].step[1]
	row := k.dims[2] * k.line
	from := i % k.bands * k.band
	to := min(k.rows, from+k.band)
	have := 0 // end of the rows of the source whose products are in the buffer
	start := 0
	for y := from; y < to; y += k.block {
		rows := min(k.block, to-y)
		first := max(0, min(k.dims[1], y*move+k.least))
		end := max(first, min(k.dims[1], (y+rows-1)*move+k.most+1))
		if k.images > 1 {
			first, end = 0, k.dims[1]
		}
		if have > first {
			copy(w.Scratch[:(have-first)*row], w.Scratch[(first-start)*row:(have-start)*row])
		}
		start, have = first, max(first, have)
		k.multiply(r, w, (image*k.dims[1]+have)*k.dims[2], images*max(0, end-have)*k.dims[2], (have-first)*row)
		have = max(have, end)

		pixel, pixels := (image*height+y*step)*width, min(rows*step, height-y*step)*width
		d := unsafe.Pointer(&w.Scratch[k.atTile])
		if k.direct {
			d = unsafe.Pointer(&r.Values[k.dst][pixel*k.ld])
		}
		for j := range images {
			for phase := range k.phases {
				p := &k.phases[phase]
				for z := range min(rows, p.count[1]-y) {
					to := (j*height+p.first[1]+z*step)*width + p.first[2]
					k.addUp(w, phase, y+z, (j*k.dims[1]-first)*row, unsafe.Add(d, to*k.ld))
				}
			}
		}
		if !k.direct {
			k.store(r, w, product.Tile{Row: pixel, Rows: (images-1)*height*width + pixels, Cols: k.lanes, Data: d, LD: k.ld})
		}
	}
}

// addUp adds up the products of a row of a phase. The products of row 0 of the source would
// begin at offset at of the buffer.
func (k *kn2row) addUp(w *exec.Worker, phase, y, at int, d unsafe.Pointer) {
	p := &k.phases[phase]
	ld := p.step[2] * k.ld
	for i := range k.regions[phase] {
		g := &k.regions[phase][i]
		if y < g.from[1] || y >= g.to[1] {
			continue
		}
		n, to := g.to[2]-g.from[2], unsafe.Add(d, g.from[2]*ld)
		if len(g.places) == 0 {
			for x := range n {
				clear(unsafe.Slice((*float32)(unsafe.Add(to, x*ld)), k.lanes))
			}
			continue
		}
		x := unsafe.Pointer(&w.Scratch[at+g.first+y*p.move[1]*k.dims[2]*k.line])
		sumChannels(k.set, n, g.places, x, p.move[2]*k.line, to, ld, k.lanes)
	}
}

// multiply computes the products of n pixels of the source into the buffer, from offset to on.
func (k *kn2row) multiply(r *exec.Run, w *exec.Worker, pixel, n, to int) {
	if n == 0 {
		return
	}
	line := k.depth * k.from.Size()
	source := r.Values[k.source][pixel*line:][:n*line]
	if k.amx {
		k.multiplyTiles(r, w, source, n, to)
		return
	}
	for at := 0; at < n; at += kn2rowPixels {
		rows := min(kn2rowPixels, n-at)
		a, lda := unsafe.Pointer(&source[at*line]), line
		if k.convert {
			a, lda = unsafe.Pointer(&w.Scratch[k.atStage]), k.pixelBytes()
			k.stage(w.Scratch[k.atStage:], source[at*line:][:rows*line], rows)
		}
		k.multiplyRows(r, w, a, lda, rows, to+at*k.line)
	}
}

// stage copies pixels in the layout that micro-kernels read.
func (k *kn2row) stage(dst, source []byte, rows int) {
	if k.element != gemm.Pairs {
		k.set.Widen[k.stored](unsafe.Pointer(&dst[0]), unsafe.Pointer(&source[0]), rows*k.depth)
		return
	}
	pixel := k.pixelBytes()
	k.padPixels(dst[:rows*pixel], source, pixel)
}

// multiplyRows computes the products of some pixels.
func (k *kn2row) multiplyRows(r *exec.Run, w *exec.Worker, a unsafe.Pointer, lda, rows, to int) {
	t, steps := k.tiles, k.steps()
	heights := tiling.CeilDiv(rows, t.MR)
	for panel := range k.panels {
		weights := unsafe.Pointer(&r.Shared[panel*k.panelBytes])
		cols := min(t.NR, k.cols-panel*t.NR)
		kernels := t.Rows
		if cols <= t.NarrowNR {
			kernels = t.NarrowRows
		}
		for from := 0; from < steps; from += product.MostDepth {
			for h := range heights {
				lo, hi := tiling.Cut(h, heights, rows)
				d := unsafe.Pointer(&w.Scratch[to+lo*k.line+4*panel*t.NR])
				s := d
				if from == 0 {
					s = nil
				}
				kernels[hi-lo](min(product.MostDepth, steps-from), unsafe.Add(a, lo*lda+4*from), lda,
					unsafe.Add(weights, 4*t.NR*from), 4*t.NR, s, k.line, d, k.line, 1<<cols-1)
			}
		}
	}
}

// multiplyTiles computes the products of n pixels on tile registers.
func (k *kn2row) multiplyTiles(r *exec.Run, w *exec.Worker, source []byte, n, to int) {
	line := len(source) / n
	weights := unsafe.Pointer(&r.Shared[0])
	runtime.LockOSThread()
	k.tiles.Begin()
	for at := 0; at < n; {
		rows := min(k.tiles.MR, (n-at)/k.tiles.Unit*k.tiles.Unit)
		a := unsafe.Pointer(&source[at*line])
		if rows == 0 { // the last pixels are copied, because kernels read whole units
			rows = k.tiles.Unit
			a = unsafe.Pointer(&w.Scratch[k.atStage])
			copy(w.Scratch[k.atStage:][:rows*line], source[at*line:])
		}
		d := unsafe.Pointer(&w.Scratch[to+at*k.line])
		k.tiles.Runs[0][rows](len(k.places), a, line, 0, unsafe.Pointer(&k.places[0]), weights, 0, nil, 0, d, k.line, nil)
		at += rows
	}
	k.tiles.End()
	runtime.UnlockOSThread()
}
