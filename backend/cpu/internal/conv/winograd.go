package conv

import (
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// winograd is a convolution with dense 3x3 windows, or its gradient by the input, by
// Winograd's F(2x2, 3x3) (Lavin and Gray 2015, "Fast Algorithms for Convolutional Neural
// Networks"): 2x2 pixels of the result, which read 4x4 of the source, take 16 products for
// each pair of channels in place of 36. Transforms of the source, the kernels and the products
// are sums, differences and halves, which cost about two bits of float32. Results that
// overflow, or are not finite, are computed again without transforms.
//
// The products are sixteen matrix products, one for each element of a transformed tile: tiles
// by channels of the source, and channels of the source by channels of the result. Transforms
// are depthwise convolutions and use their loops.
type winograd struct {
	*implicitGEMM
	passes       []winogradPass
	across       int // tiles of a row
	down         int // rows of tiles of a band
	images       int // of a chunk
	most         int // tiles of a chunk, at most
	ldv          int // bytes from a transformed tile of the source to the next
	step         int // channels of the source in a call
	panelsAtOnce int // panels of kernels that are multiplied with a chunk's tiles at a time

	weights, spread [][]int64 // offsets of the terms of transforms

	sums *sumEpilogue // which is computed in the result, or nil

	atV, atM int // offsets of transformed sources and of products in scratch memory
}

// winogradPass is the task that computes a range of panels, whose transformed kernels are in
// shared memory at the same time.
type winogradPass struct {
	*winograd
	first, end int
}

// transformKernels is the task that transforms a panel of kernels of a pass.
type transformKernels struct{ *winogradPass }

// The transforms of a source tile, of a kernel and of products along an axis.
var (
	winogradSource = [][]float32{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}}
	winogradKernel = [][]float32{{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}}
	winogradResult = [][]float32{{1, 1, 1, 0}, {0, 1, -1, -1}}
)

// winogradFactors are the factors of the transforms along two axes, and winogradRows are the
// same, repeated for all channels of a vector loop.
var (
	winogradFactors = [...]float32{1, -1, .5, -.5, .25, -.25}
	winogradRows    = func() (rows [len(winogradFactors)][window.VectorChannels]float32) {
		for i, f := range winogradFactors {
			for j := range rows[i] {
				rows[i][j] = f
			}
		}
		return rows
	}()
)

// winogradPlaces returns, for each element of a transform along two axes, the offsets of its
// terms and of their factors; row and column are the bytes between rows and columns.
func winogradPlaces(m [][]float32, row, column int) [][]int64 {
	var all [][]int64
	for _, y := range m {
		for _, x := range m {
			var at []int64
			for i, fy := range y {
				for j, fx := range x {
					if f := slices.Index(winogradFactors[:], fy*fx); f >= 0 {
						at = append(at, int64(i*row+j*column), int64(4*window.VectorChannels*f))
					}
				}
			}
			all = append(all, at)
		}
	}
	return all
}

const (
	winogradSize         = 16        // elements of a transformed tile
	winogradBytes        = 768 << 10 // of the tiles and products of a chunk, which stay in L2 of processors with AVX-512
	winogradSmallBytes   = 320 << 10 // the same of other processors
	winogradTiles        = 48        // of a chunk, about, even if they exceed L2: transformed kernels are read once for so many
	winogradFewest       = 8         // of a chunk, at least
	winogradWide         = 128       // of a chunk, about, if transformed kernels come from L3
	winogradDepth        = 256       // channels of the source in a call: a panel of kernels stays in L1
	winogradKept         = 1 << 20   // bytes of transformed kernels that stay in L2
	winogradPanelsAtOnce = 8         // panels that are multiplied at a time, at most
	manyGroups           = 4         // of 32 channels
	winogradPassed       = 16 << 20  // bytes of transformed kernels of a pass, about, for 16-bit types
)

// winogradPanels returns how many panels of kernels are transformed at a time; bytes is the
// size of a transformed panel. Programs in 16 bits should need less memory than in float32, so
// their kernels are transformed in passes, and the source's tiles once for each pass.
func winogradPanels(stored gemm.Element, panels, bytes int) int {
	if stored == gemm.F32 {
		return panels
	}
	return tiling.CeilDiv(panels, tiling.CeilDiv(panels*bytes, winogradPassed))
}

// transforms reports whether there are transforms for the windows of k.
func (k *implicitGEMM) transforms() bool { return k.set.WinogradSource != nil && k.windows3x3() }

// fillsTiles reports whether micro-kernels write no columns beyond those of the result.
func (k *implicitGEMM) fillsTiles() bool { return k.tiles.Masked || k.lanes%k.tiles.NR == 0 }

// winogradPays reports whether k has enough channels and tiles for transforms to cost less
// than they save.
func (k *implicitGEMM) winogradPays() bool {
	direct, tiles := k.tileProducts()
	// Measured: transforms of the source and of products, in products of a tile, for each
	// channel of the other side.
	result, source := 16.0, 10.0
	if !k.set.Ordered && k.lanes <= k.tiles.NarrowNR { // the choice must be that of every level
		result, source = 8, 8
	}
	cost := float64(tiles * (1 + result/float64(k.lanes) + source/float64(k.depth)))
	if k.code != op.Conv { // whose choice must not depend on the batch: predictions transform kernels once
		cost += winogradSize * 6
	}
	return cost < direct
}

// winogradProducts returns the micro-kernels for the products of transformed tiles: those of a
// narrow panel if the result has no more channels.
func (k *implicitGEMM) winogradProducts() *gemm.Tiles {
	t := *k.tiles
	if k.lanes <= t.NarrowNR {
		t.NR, t.Rows, t.Prefetch = t.NarrowNR, t.NarrowRows, gemm.PrefetchKernels{}
	}
	return &t
}

// windows3x3 reports whether winograd has transforms for the windows of k.
func (k *convolution) windows3x3() bool {
	ones := [3]int{1, 1, 1}
	return k.groups == 1 && k.Size == [3]int{1, 3, 3} && k.Stride == ones && k.Dilation == ones
}

// tileProducts returns the products for a pair of channels with elements of the window within
// the source, and those with transformed tiles. With portable bits padding is multiplied, too.
func (k *implicitGEMM) tileProducts() (direct, tiles float64) {
	k.eachPhase(func(p stridedPhase, taps [3][]tap) {
		n, covered := k.Batch*p.count[0], 1
		for axis := 1; axis < 3; axis++ {
			sum := 0
			for _, t := range taps[axis] {
				if k.set.Ordered {
					sum += p.count[axis]
					continue
				}
				sum += max(0, min(p.count[axis], k.dims[axis]-t.at)-max(0, -t.at))
			}
			covered *= sum
		}
		direct = float64(n * covered)
		tiles = float64(n * tiling.CeilDiv(p.count[1], 2) * tiling.CeilDiv(p.count[2], 2) * winogradSize)
	})
	return direct, tiles
}

func newWinograd(b *exec.Builder, v *ir.Value, c *implicitGEMM) exec.Kernel {
	k := &winograd{implicitGEMM: c}
	c.tiles = c.winogradProducts()
	k.eachPhase(func(p stridedPhase, taps [3][]tap) {
		for axis, list := range taps {
			p.low[axis], p.span[axis] = list[0].at, len(list)
		}
		k.phases = append(k.phases, p)
	})
	p := &k.phases[0]
	k.bytes = 4
	k.panels = tiling.CeilDiv(k.lanes, k.tiles.NR)
	k.direct = k.to == dtype.Float32 && v.Attr.Body == nil && k.fillsTiles()
	nr := 4 * k.tiles.NR
	most := k.panels
	if !k.set.Ordered { // where a row of tiles is computed again as a whole
		most = winogradPanels(k.stored, k.panels, winogradSize*k.depth*nr)
	}
	for first := 0; first < k.panels; first += most {
		k.passes = append(k.passes, winogradPass{k, first, min(first+most, k.panels)})
	}
	if !k.direct && k.to == dtype.Float32 && k.code == op.Conv && len(k.passes) == 1 {
		if k.sums = newSumEpilogue(b, v, k.set, k.lanes); k.sums != nil && k.sums.over(b, v) {
			k.sums = nil
		}
		k.direct = k.sums != nil
	}
	k.ld = 4 * k.lanes
	if !k.direct && (most < k.panels || !k.fillsTiles()) {
		k.ld = most * nr
	}
	k.step = tiling.Even(k.depth, winogradDepth, 1)
	if k.ldv = 4 * k.depth; k.ldv%product.Conflicts == 0 {
		k.ldv += product.RowPad
	}
	// Kernels that exceed L2 are multiplied element by element, for several panels at a time:
	// so the tiles stay in L2, and most of the products until they are transformed.
	k.panelsAtOnce = 1
	if k.panels*winogradSize*k.depth*nr > winogradKept {
		k.panelsAtOnce = tiling.Even(most, winogradPanelsAtOnce, 1)
	}
	k.cut(p)

	p.copied = k.stored != gemm.F32 || p.count[1]%2+p.count[2]%2 > 0
	for axis, low := range p.low {
		p.copied = p.copied || low < 0 || low+p.count[axis]-1+p.span[axis] > k.dims[axis]
	}
	p.box = [3]int{1, 2*k.down + 2, 2*k.across + 2}
	box := 0
	if p.copied {
		box = p.box[1] * p.box[2] * k.depth * k.bytes
	}
	k.weights = winogradPlaces(winogradKernel, 3*k.depth*nr, k.depth*nr)
	k.spread = winogradPlaces(winogradResult, 4*k.most*nr, k.most*nr)
	tile := 0
	switch {
	case !k.direct:
		tile = 4 * k.most * k.ld
	case k.sums != nil:
		tile = 4 * window.VectorChannels
	}
	k.atTile = tiling.RoundUp(box, 64)
	k.atV = k.atTile + tiling.RoundUp(tile, 64)
	k.atM = k.atV + tiling.RoundUp(winogradSize*k.most*k.ldv, 64)
	k.addEpilogue(b, v, max(k.atM+k.panelsAtOnce*winogradSize*k.most*nr, k.atV+9*k.depth*nr), k.lanes)
	k.result = product.Writer{Set: k.set, N: k.dstAll, TileN: k.lanes, Out: k.dst, To: k.to, After: k.after}
	k.few = k.few && len(k.passes) == 1
	k.reserveWeights(b, most*winogradSize*k.depth*nr)
	return k
}

// cut decides the tiles of a chunk.
func (k *winograd) cut(p *stridedPhase) {
	k.across = tiling.CeilDiv(p.count[2], 2)
	rows := tiling.CeilDiv(p.count[1], 2)
	all := k.Batch * p.count[0] * rows * k.across
	bytes := winogradBytes
	if !k.tiles.Masked {
		bytes = winogradSmallBytes
	}
	k.most = max(bytes/(winogradSize*(k.ldv+4*k.tiles.NR)+4*k.ld), winogradTiles)
	if k.panelsAtOnce > 1 {
		k.most = max(k.most, winogradWide)
	}
	// A few tiles are cut into halves for two cores: micro-kernels multiply halves as fast.
	fewest := min(winogradTiles, max(winogradFewest, tiling.CeilDiv(all, 2)))
	k.most = min(k.most, max(fewest, tiling.CeilDiv(all, tiling.MinChunks)))
	k.down = tiling.Even(rows, max(1, k.most/k.across), 1)
	k.down = balanced(rows, k.down)
	k.images = 1
	if k.down == rows && p.count[0] == 1 {
		k.images = balanced(k.Batch, tiling.Even(k.Batch, max(1, k.most/(rows*k.across)), 1))
	}
	// An odd number: the elements of a tile lie that many tiles apart, in different lines of L1.
	k.most = k.images*k.down*k.across | 1
	p.band, p.bands = 2*k.down, tiling.CeilDiv(rows, k.down)
	p.chunks = tiling.CeilDiv(k.Batch, k.images) * p.count[0] * p.bands
}

// balanced returns a size of parts of n that divides n, so that cores have equally much to do, if
// one is up to half larger than the given size. Else it returns that.
func balanced(n, size int) int {
	for i := size; i <= min(n, size+size/2); i++ {
		if n%i == 0 {
			return i
		}
	}
	return size
}

func (k *winograd) Run(r *exec.Run) {
	for i := range k.passes {
		p := &k.passes[i]
		good := false
		if k.kept {
			good, _ = r.PackedCopy(k.cache, k.b)
		}
		if !good {
			r.Parallel(transformKernels{p}, p.end-p.first, winogradSize*k.depth*k.lanes)
		}
		r.Parallel(p, k.phases[0].chunks, k.macs()/32)
	}
}

// panelAt returns the transformed kernels of a panel for an element of transformed tiles.
func (k *winogradPass) panelAt(r *exec.Run, panel, element int) unsafe.Pointer {
	return unsafe.Pointer(&k.packed(r)[4*k.tiles.NR*k.depth*(winogradSize*(panel-k.first)+element)])
}

func (k transformKernels) Chunk(r *exec.Run, w *exec.Worker, i int) {
	nr, panel := k.tiles.NR, k.first+i
	k.kernels(r, panel, unsafe.Pointer(&w.Scratch[0]))
	for i, at := range k.weights {
		sumChannels(k.set, k.depth, at, unsafe.Pointer(&w.Scratch[0]), 4*nr, k.panelAt(r, panel, i), 4*nr, nr)
	}
}

// kernels converts a panel of kernels to float32 at d: for each element of the window a row of
// the panel's channels for each channel of the source.
func (k *implicitGEMM) kernels(r *exec.Run, panel int, d unsafe.Pointer) {
	nr := k.tiles.NR
	first := panel * nr
	cols := min(nr, k.lanes-first)
	src, size := unsafe.Pointer(unsafe.SliceData(r.Values[k.b])), k.from.Size()
	for tap := range k.WindowSize {
		at := tap * k.perGroup
		if k.code == op.Conv {
			k.set.Lanes[k.element](unsafe.Add(d, 4*nr*k.depth*tap), 4*nr, unsafe.Add(src, (at*k.outs+first)*size), k.outs*size, k.depth, 1<<cols-1, 1<<nr-1)
			continue
		}
		d := unsafe.Add(d, 4*nr*k.depth*(k.WindowSize-1-tap)) // in the order of the source
		for j := 0; j < nr; j += 16 {
			load := max(0, min(16, cols-j))
			lane := (at + first + min(j, cols-1)) * k.outs
			k.set.Transpose[k.element](unsafe.Add(d, 4*j), 4*nr, unsafe.Add(src, lane*size), k.outs*size, k.depth, 1<<load-1, 1<<min(16, nr-j)-1)
		}
	}
}

// sumChannels applies a transform to n elements, xs bytes apart, with results ds bytes apart,
// for up to 32 channels.
func sumChannels(set *gemm.Set, n int, at []int64, x unsafe.Pointer, xs int, d unsafe.Pointer, ds, channels int) {
	set.Depthwise(n, len(at)/2, unsafe.Pointer(&at[0]), x, xs, unsafe.Pointer(&winogradRows[0]), 0, d, ds, 1<<channels-1)
}

func (k *winogradPass) Chunk(r *exec.Run, w *exec.Worker, i int) {
	p := &k.phases[0]
	y := i % p.bands * p.band
	i /= p.bands
	b := band{image: i / p.count[0] * k.images, z: i % p.count[0], y: y}
	images, rows := min(k.images, k.Batch-b.image), min(p.band, p.count[1]-y)
	b.rows = tiling.RoundUp(rows, 2)
	tiles := b.rows / 2 * k.across // of an image
	for j := range images {
		from := b
		from.image += j
		k.find(r, w.Scratch, p, &from)
		k.transformTiles(p, &from, k.across, 0, k.srcAll, k.set.WinogradSource, nil, unsafe.Pointer(&w.Scratch[k.atV+j*tiles*k.ldv]), tileSteps{k.most * k.ldv, 4 * window.VectorChannels, k.ldv})
	}
	first, left := k.pixelOf(p, b.image, b.z, y, 0), k.first*k.tiles.NR
	d, ld := unsafe.Pointer(&w.Scratch[k.atTile]), k.ld
	if k.direct {
		d = unsafe.Pointer(&r.Values[k.dst][4*(first*k.dstAll+left)])
	}
	// The memory between the rows of a chunk's images belongs to the chunk, too.
	image := rows * p.count[2] * ld
	for panel := k.first; panel < k.end; panel++ {
		if (panel-k.first)%k.panelsAtOnce == 0 {
			k.multiply(r, w, panel, images*tiles)
		}
		col := panel * k.tiles.NR
		for j := range images {
			for ty := range b.rows / 2 {
				from := k.productsOf(w, panel, 0, j*tiles+ty*k.across)
				to := unsafe.Add(d, j*image+2*ty*p.count[2]*ld+4*(col-left))
				k.spreadTiles(from, to, p.count[2], min(2, rows-2*ty), ld, min(k.tiles.NR, k.lanes-col))
			}
		}
	}
	cols := min(k.lanes, k.end*k.tiles.NR) - left
	if row := p.count[2] * ld; !finiteRows(d, images*rows*p.count[2], cols, ld) {
		for y := range images * b.rows / 2 { // a row of tiles, so that other images have the same bits in every batch
			from := b
			from.image, from.y = b.image+y/(b.rows/2), b.y+y%(b.rows/2)*2
			n := min(2, b.y+rows-from.y)
			if to := unsafe.Add(d, y/(b.rows/2)*image+(from.y-b.y)*row); !finiteRows(to, n*p.count[2], cols, ld) {
				k.directly(r, w, from, n, to)
			}
		}
	}
	if k.sums != nil {
		k.sums.whole(r, k.set, images*rows*p.count[2], d, first*k.ld, w.Scratch[k.atTile:])
	}
	if !k.direct {
		k.store(r, w, product.Tile{Row: first, Col: left, Rows: images * rows * p.count[2], Cols: cols, Data: d, LD: ld})
	}
}

// spreadTiles transforms a row of tiles of products to one or two rows of pixels of the
// result.
func (k *winograd) spreadTiles(from, to unsafe.Pointer, pixels, rows, ld, channels int) {
	nr, row := 4*k.tiles.NR, pixels*ld
	whole := pixels / 2
	if rows < 2 {
		whole = 0
	}
	k.set.WinogradResult(whole, from, 4*k.most*nr, k.most*nr, nr, to, row, ld, 2*ld, 1<<channels-1)
	for e, at := range k.spread { // tiles can extend beyond the result
		dy, dx := e/2, e%2
		if n := (pixels-dx+1)/2 - whole; dy < rows && n > 0 {
			sumChannels(k.set, n, at, unsafe.Add(from, whole*nr), nr, unsafe.Add(to, dy*row+(2*whole+dx)*ld), 2*ld, channels)
		}
	}
}

// tileSteps is the layout of transformed tiles: bytes from an element to the next, from 32
// channels to the next, and from a tile to the next.
type tileSteps struct{ element, group, tile int }

// transformTiles transforms channels [lo, hi) of the tiles of a band, in rows of across tiles,
// to v: all elements with by, or, if by is nil, the given elements by the offsets of their
// terms. Tiles of many channels are transformed one by one: so memory is written in order, and
// not a few bytes of each page.
func (k *implicitGEMM) transformTiles(p *stridedPhase, b *band, across, lo, hi int, by gemm.Transform, elements [][]int64, v unsafe.Pointer, to tileSteps) {
	start := b.first(p)
	for ty := range b.rows / 2 {
		c := lo
		if n := (hi - lo) / window.VectorChannels; by != nil && n >= manyGroups {
			for tx := range across {
				x, d := b.from(start+2*ty*b.row+2*tx*b.pixel+4*c), unsafe.Add(v, (ty*across+tx)*to.tile)
				by(n, x, b.row, b.pixel, 4*window.VectorChannels, d, 4*to.element, to.element, to.group, 1<<window.VectorChannels-1)
			}
			c += n * window.VectorChannels
		}
		for ; c < hi; c += window.VectorChannels {
			x, d := b.from(start+2*ty*b.row+4*c), unsafe.Add(v, (c-lo)/window.VectorChannels*to.group+ty*across*to.tile)
			channels := min(window.VectorChannels, hi-c)
			if by != nil {
				by(across, x, b.row, b.pixel, 2*b.pixel, d, 4*to.element, to.element, to.tile, 1<<channels-1)
				continue
			}
			for e, at := range elements {
				sumChannels(k.set, across, at, x, 2*b.pixel, unsafe.Add(d, e*to.element), to.tile, channels)
			}
		}
	}
}

// productsOf returns the products of an element of tiles, from a tile on.
func (k *winogradPass) productsOf(w *exec.Worker, panel, element, tile int) unsafe.Pointer {
	return unsafe.Pointer(&w.Scratch[k.atM+4*k.tiles.NR*(((panel-k.first)%k.panelsAtOnce*winogradSize+element)*k.most+tile)])
}

// multiply computes the products of a chunk's tiles with the panels of kernels from first on
// that are multiplied at a time. Kernels in L3 are prefetched while the previous ones are
// multiplied.
func (k *winogradPass) multiply(r *exec.Run, w *exec.Worker, first, tiles int) {
	t, end := k.tiles, min(first+k.panelsAtOnce, k.end)
	nr := 4 * t.NR
	heights := tiling.CeilDiv(tiles, t.MR)
	least, more := tiles/heights, tiles%heights // rows of a call, and calls with one more
	all := k.panelAt(r, first, 0)
	panelAt := func(panel, e, c int) unsafe.Pointer {
		return unsafe.Add(all, nr*(k.depth*(winogradSize*(panel-first)+e)+c))
	}
	for e := range winogradSize {
		for c := 0; c < k.depth; c += k.step {
			n := min(k.step, k.depth-c)
			for panel := first; panel < end; panel++ {
				weights, next := panelAt(panel, e, c), unsafe.Pointer(nil)
				switch {
				case k.panelsAtOnce == 1:
				case panel+1 < end:
					next = panelAt(panel+1, e, c)
				case c+n < k.depth:
					next = panelAt(first, e, c+n)
				case e+1 < winogradSize:
					next = panelAt(first, e+1, 0)
				}
				lo := 0
				for h := range heights {
					rows := least
					if h < more {
						rows++
					}
					a := unsafe.Pointer(&w.Scratch[k.atV+(e*k.most+lo)*k.ldv+4*c])
					d := k.productsOf(w, panel, e, lo)
					s := d
					if c == 0 {
						s = nil
					}
					// A call prefetches a quarter of a panel.
					if next != nil && h < 4 && t.Prefetch.Rows != nil && rows >= t.MR/2 {
						t.Prefetch.Rows[rows](n, a, k.ldv, weights, nr, s, nr, d, nr, 1<<t.NR-1, unsafe.Add(next, h*(n/4)*nr), nr)
					} else {
						t.Rows[rows](n, a, k.ldv, weights, nr, s, nr, d, nr, 1<<t.NR-1)
					}
					lo += rows
				}
			}
		}
	}
}

// Transforms add up to four elements of a tile along two axes. So they can overflow where a
// direct convolution does not, and an infinity or NaN can reach pixels that do not read it.
// Both are visible: an infinity or NaN in a transformed tile makes every pixel that depends on
// it infinite or NaN. So a finite pixel is right, and a row of tiles with another pixel is computed
// again without transforms.

// finiteRows reports whether all pixels of a part of the result are finite; there are cols channels,
// and rows of ld bytes.
func finiteRows(d unsafe.Pointer, pixels, cols, ld int) bool {
	if 4*cols == ld { // rows follow each other
		pixels, cols = 1, pixels*cols
	}
	for i := range pixels {
		if !finite(unsafe.Slice((*float32)(unsafe.Add(d, i*ld)), cols)) {
			return false
		}
	}
	return true
}

// finite reports whether all elements are finite.
func finite(x []float32) bool {
	if v := vec.Native(); v != nil {
		return v.Infinities(x) == 0
	}
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// directly computes a row of tiles, of so many rows of pixels, at d, as the sum over the window of
// products of source pixels and kernels.
func (k *winogradPass) directly(r *exec.Run, w *exec.Worker, b band, rows int, d unsafe.Pointer) {
	p, t := &k.phases[0], k.tiles
	nr, width := 4*t.NR, p.count[2]
	kernels := unsafe.Pointer(&w.Scratch[k.atV]) // the memory of transformed tiles is free
	heights := tiling.CeilDiv(width, t.MR)
	b.rows = 2
	k.find(r, w.Scratch, p, &b)
	start := b.first(p)
	for panel := k.first; panel < k.end; panel++ {
		k.kernels(r, panel, kernels)
		col := panel * t.NR
		mask := uint(1)<<min(t.NR, k.lanes-col) - 1
		for y := range rows {
			to := unsafe.Add(d, y*width*k.ld+4*(col-k.first*t.NR))
			for tap := range k.WindowSize {
				row := start + (y+tap/3)*b.row + tap%3*b.pixel
				for h := range heights {
					lo, hi := tiling.Cut(h, heights, width)
					d := unsafe.Add(to, lo*k.ld)
					s := d
					if tap == 0 {
						s = nil
					}
					t.Rows[hi-lo](k.depth, b.from(row+lo*b.pixel), b.pixel, unsafe.Add(kernels, tap*k.depth*nr), nr, s, k.ld, d, k.ld, mask)
				}
			}
		}
	}
}

// first returns the offset of the window of a band's first pixel from the band's start, in
// bytes.
func (b *band) first(p *stridedPhase) int {
	return (p.low[0]-b.low[0])*b.plane + (p.low[1]-b.low[1])*b.row + (p.low[2]-b.low[2])*b.pixel
}
