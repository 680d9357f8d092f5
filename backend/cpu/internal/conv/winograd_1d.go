package conv

import (
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// winograd1D is a convolution whose windows have one axis, or its gradient by the input, by
// Winograd's F(m, r) (Winograd 1980, "Arithmetic Complexity of Computations"): m pixels of the
// result by windows of r elements read m+r-1 pixels of the source, and take as many products
// for each pair of channels in place of m·r. Windows of three and four elements take half of
// the products, of five 2/5.
//
// It is to a row of pixels what winograd is to an image: the products are m+r-1 matrix
// products, transforms are depthwise convolutions, and a chunk with results that are not
// finite is computed again directly.
type winograd1D struct {
	*implicitGEMM
	m, n     int // pixels of a tile of the result and of the source
	across   int // tiles of a row
	segments int // of a row; each is in a chunk of its own
	segment  int // tiles of a segment, at most
	rows     int // of a chunk
	most     int // tiles of a chunk, at most
	ldv      int // bytes from a transformed tile of the source to the next
	step     int // channels of the source in a call
	sums     *sumEpilogue

	ofSource, ofKernels, ofProducts transform

	atV, atM int // offsets of transformed sources and of products in scratch memory
}

// transformLine is the task that transforms a panel of kernels.
type transformLine struct{ *winograd1D }

// lineTransform is the matrices of F(m, r): of a tile of the source, of a kernel and of
// products.
type lineTransform struct {
	m, n                   int // pixels of the result and of the source
	source, kernel, result [][]float64
}

// linePoints are the points at which polynomials are evaluated, besides infinity. Those of a
// transform are the first ones. Of five points, 2 and -1/2 besides the first three make 0.8 of
// the rounding error that both signs of 2 make; of seven, these make the least.
var linePoints = []float64{0, 1, -1, 2, -.5, -2, .5}

const (
	mostLine  = 7        // elements of windows, at most
	lineDepth = 128      // channels of the source in a sum: transforms would lose more than two bits of longer ones
	lineBytes = 16 << 20 // of transformed kernels of 16-bit types
)

// newLineTransform returns the transform for windows of r elements, from 3 on, by Toom and
// Cook's method: polynomials are multiplied by multiplying their values at n points. Lagrange's
// interpolation, transposed, is the transform of the source; the divisors of its polynomials are
// in that of the kernels.
func newLineTransform(r int) *lineTransform {
	t := &lineTransform{n: 6}
	if r > 4 {
		t.n = 8
	}
	t.m = t.n + 1 - r
	points := linePoints[:t.n-1]
	all := []float64{1} // the product of x-p over all points p
	for _, p := range points {
		all = timesRoot(all, p)
		poly, divisor := []float64{1}, 1.0
		for _, q := range points {
			if q != p {
				poly = timesRoot(poly, q)
				divisor *= p - q
			}
		}
		t.source = append(t.source, append(poly, 0))
		t.kernel = append(t.kernel, powers(p, r, 1/divisor))
		t.result = append(t.result, powers(p, t.m, 1))
	}
	infinity := func(n int) []float64 { return append(make([]float64, n-1), 1) }
	t.source = append(t.source, all)
	t.kernel, t.result = append(t.kernel, infinity(r)), append(t.result, infinity(t.m))
	t.result = transposed(t.result)
	return t
}

// timesRoot returns the coefficients of poly times x-root.
func timesRoot(poly []float64, root float64) []float64 {
	product := append([]float64{0}, poly...)
	for i, c := range poly {
		product[i] -= float64(c * root)
	}
	return product
}

// powers returns the first n powers of x, times by.
func powers(x float64, n int, by float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i], by = by, float64(by*x)
	}
	return all
}

// transform is a matrix for depthwise loops: for each row the offsets of its terms and of
// their factors, and the factors, repeated for all channels of a vector loop.
type transform struct {
	terms   [][]int64
	factors [][window.VectorChannels]float32
}

// newTransform returns the transform by m of elements that are step bytes apart.
func newTransform(m [][]float64, step int) (t transform) {
	var known []float32
	for _, row := range m {
		var terms []int64
		for i, x := range row {
			if x == 0 {
				continue
			}
			f := slices.Index(known, float32(x))
			if f < 0 {
				f = len(known)
				known = append(known, float32(x))
				t.factors = append(t.factors, [window.VectorChannels]float32(slices.Repeat([]float32{float32(x)}, window.VectorChannels)))
			}
			terms = append(terms, int64(i*step), int64(4*window.VectorChannels*f))
		}
		t.terms = append(t.terms, terms)
	}
	return t
}

// apply computes row i of the transform of n elements, xs bytes apart, with results ds bytes
// apart, for up to 32 channels.
func (t *transform) apply(set *gemm.Set, i, n int, x unsafe.Pointer, xs int, d unsafe.Pointer, ds, channels int) {
	at := t.terms[i]
	set.Depthwise(n, len(at)/2, unsafe.Pointer(&at[0]), x, xs, unsafe.Pointer(&t.factors[0]), 0, d, ds, 1<<channels-1)
}

// inLines reports whether there are transforms for the windows of k. Micro-kernels that do not
// mask columns must fill tiles, unless the choice must be that of every level.
func (k *implicitGEMM) inLines() bool {
	ones := [3]int{1, 1, 1}
	r := k.Size[2]
	if k.set.Depthwise == nil || k.groups > 1 || k.Stride != ones || k.Dilation != ones {
		return false
	}
	rows := k.Size[0] == 1 && k.Size[1] == 1 && k.In[0] == k.Out[0] && k.In[1] == k.Out[1] && k.Low[0] == 0 && k.Low[1] == 0
	return rows && r > 2 && r <= mostLine && (k.stored == gemm.F32 || 4*8*k.depth*k.lanes <= lineBytes)
}

// linesPay reports whether k has enough channels and tiles for transforms to cost less than
// they save. The choice must not depend on the batch. Measured: transforms of the source and of
// products, in products of a tile, for each channel of the other side, and of the ends of a row
// as much as another tile.
func (k *implicitGEMM) linesPay() bool {
	if !k.set.Ordered && !k.fillsTiles() && k.lanes < 2*k.tiles.NR {
		return false // measured: 20 channels take 1.2 times as long, 40 take 0.8
	}
	t := newLineTransform(k.Size[2])
	direct, tiles := 0.0, 0.0
	k.eachPhase(func(p stridedPhase, taps [3][]tap) {
		for _, t := range taps[2] {
			direct += float64(max(0, min(p.count[2], k.dims[2]-t.at)-max(0, -t.at)))
		}
		tiles = float64((tiling.CeilDiv(p.count[2], t.m) + 1) * t.n)
	})
	return float64(tiles*(1+12/float64(k.lanes)+12/float64(k.depth))) < direct
}

func newWinograd1D(b *exec.Builder, v *ir.Value, c *implicitGEMM) exec.Kernel {
	line := newLineTransform(c.Size[2])
	k := &winograd1D{implicitGEMM: c, m: line.m, n: line.n}
	k.eachPhase(func(p stridedPhase, taps [3][]tap) {
		p.low[2] = taps[2][0].at
		k.phases = append(k.phases, p)
	})
	p := &k.phases[0]
	k.bytes = 4
	nr := 4 * k.tiles.NR
	k.panels = tiling.CeilDiv(k.lanes, k.tiles.NR)
	k.step = tiling.Even(k.depth, lineDepth, 1)
	if k.ldv = 4 * k.depth; k.ldv%product.Conflicts == 0 {
		k.ldv += product.RowPad
	}
	k.direct = k.to == dtype.Float32 && v.Attr.Body == nil && k.fillsTiles()
	if k.to == dtype.Float32 && v.Attr.Body != nil && k.fillsTiles() {
		if k.sums = newSumEpilogue(b, v, k.set, k.dstAll); k.sums != nil && k.sums.over(b, v) {
			k.sums = nil
		}
		k.direct = k.sums != nil
	}
	k.ld = 4 * k.lanes
	if !k.fillsTiles() {
		k.ld = k.panels * nr
	}
	k.cut(p)
	k.ofSource = newTransform(line.source, 4*k.depth)
	k.ofKernels = newTransform(line.kernel, k.depth*nr)
	k.ofProducts = newTransform(line.result, k.most*nr)
	box := 4 * k.depth * (k.segment*k.m + k.Size[2] - 1)
	tile := 0
	switch {
	case !k.direct:
		tile = k.most * k.m * k.ld
	case k.sums != nil:
		tile = 4 * window.VectorChannels
	}
	k.atTile = tiling.RoundUp(box, 64)
	k.atV = k.atTile + tiling.RoundUp(tile, 64)
	k.atM = k.atV + tiling.RoundUp(max(k.n*k.most*k.ldv, k.Size[2]*k.depth*nr), 64)
	k.addEpilogue(b, v, k.atM+k.n*k.most*nr, k.lanes)
	k.result = product.Writer{Set: k.set, N: k.dstAll, TileN: k.lanes, Out: k.dst, To: k.to, After: k.after}
	k.reserveWeights(b, k.panels*k.n*k.depth*nr)
	return k
}

// cut decides the tiles of a chunk.
func (k *winograd1D) cut(p *stridedPhase) {
	rows := k.Batch * p.count[0] * p.count[1]
	k.across = tiling.CeilDiv(p.count[2], k.m)
	bytes := winogradBytes
	if !k.tiles.Masked {
		bytes = winogradSmallBytes
	}
	most := max(bytes/(k.n*(k.ldv+4*k.tiles.NR)+k.m*k.ld), winogradTiles)
	// A few tiles are cut into halves for two cores: micro-kernels multiply halves as fast.
	all := rows * k.across
	fewest := min(winogradTiles, max(winogradFewest, tiling.CeilDiv(all, 2)))
	most = min(most, max(fewest, tiling.CeilDiv(all, tiling.MinChunks)))
	k.segment = tiling.Even(k.across, most, 1)
	k.segments = tiling.CeilDiv(k.across, k.segment)
	k.rows = 1
	if k.segments == 1 {
		k.rows = tiling.Even(rows, max(1, most/k.across), 1)
	}
	k.most = k.rows*k.segment | 1 // elements of a tile of products do not share lines of L1
	p.chunks = tiling.CeilDiv(rows, k.rows) * k.segments
}

func (k *winograd1D) Run(r *exec.Run) {
	good := false
	if k.kept {
		good, _ = r.PackedCopy(k.cache, k.b)
	}
	if !good {
		r.Parallel(transformLine{k}, k.panels, k.n*k.depth*k.lanes)
	}
	r.Parallel(k, k.phases[0].chunks, k.macs()/32)
}

// panelAt returns the transformed kernels of a panel for an element of transformed tiles.
func (k *winograd1D) panelAt(r *exec.Run, panel, element int) unsafe.Pointer {
	return unsafe.Pointer(&k.packed(r)[4*k.tiles.NR*k.depth*(k.n*panel+element)])
}

func (k transformLine) Chunk(r *exec.Run, w *exec.Worker, panel int) {
	nr, kernels := k.tiles.NR, unsafe.Pointer(&w.Scratch[k.atV])
	k.kernels(r, panel, kernels)
	for e := range k.n {
		k.ofKernels.apply(k.set, e, k.depth, kernels, 4*nr, k.panelAt(r, panel, e), 4*nr, nr)
	}
}

func (k *winograd1D) Chunk(r *exec.Run, w *exec.Worker, i int) {
	p := &k.phases[0]
	first := i / k.segments * k.rows
	rows := min(k.rows, k.Batch*p.count[0]*p.count[1]-first)
	lo, hi := tiling.Cut(i%k.segments, k.segments, k.across)
	tiles, pixels := hi-lo, min(hi*k.m, p.count[2])-lo*k.m // of a row
	for j := range rows {
		k.transformRow(r, w, first+j, lo, hi, unsafe.Pointer(&w.Scratch[k.atV+j*tiles*k.ldv]))
	}
	pixel := first*p.count[2] + lo*k.m
	d, at := unsafe.Pointer(&w.Scratch[k.atTile]), pixel*k.ld
	if k.direct {
		d = unsafe.Pointer(&r.Values[k.dst][at])
	}
	for panel := range k.panels {
		k.multiply(r, w, panel, rows*tiles)
		col := panel * k.tiles.NR
		channels := min(k.tiles.NR, k.lanes-col)
		for j := range rows {
			for y := range min(k.m, pixels) {
				to := unsafe.Add(d, (j*pixels+y)*k.ld+4*col)
				k.ofProducts.apply(k.set, y, (pixels-y+k.m-1)/k.m, k.productsOf(w, 0, j*tiles), 4*k.tiles.NR, to, k.m*k.ld, channels)
			}
		}
	}
	if !finiteRows(d, rows*pixels, k.lanes, k.ld) {
		for j := range rows {
			k.again(r, w, first+j, lo, pixels, unsafe.Add(d, j*pixels*k.ld))
		}
	}
	switch {
	case !k.direct:
		k.store(r, w, product.Tile{Row: pixel, Rows: rows * pixels, Cols: k.lanes, Data: d, LD: k.ld})
	case k.sums != nil:
		k.sums.whole(r, k.set, rows*pixels, d, at, w.Scratch[k.atTile:])
	}
}

// transformRow transforms tiles [lo, hi) of a row to v. Tiles that extend beyond the source,
// and all of 16 bits, are transformed from a copy with zeros around it.
func (k *winograd1D) transformRow(r *exec.Run, w *exec.Worker, row, lo, hi int, v unsafe.Pointer) {
	low, end := k.phases[0].low[2], k.dims[2]
	from, to := hi, hi // tiles that are read in place
	if k.stored == gemm.F32 && end >= k.n {
		from = min(max(lo, tiling.CeilDiv(max(0, -low), k.m)), hi)
		to = max(from, min(hi, (end-k.n-low+k.m)/k.m))
	}
	for _, c := range [2][2]int{{lo, from}, {to, hi}} {
		if n := c[1] - c[0]; n > 0 {
			k.copyPixels(r, w, row, low+c[0]*k.m, n*k.m+k.n-k.m)
			k.transformTiles(n, unsafe.Pointer(&w.Scratch[0]), unsafe.Add(v, (c[0]-lo)*k.ldv))
		}
	}
	if to > from {
		x := unsafe.Pointer(&r.Values[k.source][4*k.depth*(row*end+low+from*k.m)])
		k.transformTiles(to-from, x, unsafe.Add(v, (from-lo)*k.ldv))
	}
}

// copyPixels copies n pixels of a row of the source, from x on, to scratch memory, with zeros
// for those beyond the row.
func (k *winograd1D) copyPixels(r *exec.Run, w *exec.Worker, row, x, n int) {
	from, to := min(max(x, 0), k.dims[2]), max(0, min(x+n, k.dims[2]))
	pixel := 4 * k.depth
	box := w.Scratch[:n*pixel]
	if from >= to {
		clear(box)
		return
	}
	clear(box[:(from-x)*pixel])
	k.copySource(box[(from-x)*pixel:], r.Values[k.source][(row*k.dims[2]+from)*k.depth*k.from.Size():], (to-from)*k.depth)
	clear(box[(to-x)*pixel:])
}

// transformTiles transforms n tiles of the source at x to v. Tiles of many channels are
// transformed one by one: so memory is written in order.
func (k *winograd1D) transformTiles(n int, x, v unsafe.Pointer) {
	const group = 4 * window.VectorChannels
	c, groups, tile := 0, k.depth/window.VectorChannels, 4*k.depth*k.m
	if groups >= manyGroups {
		for t := range n {
			for e := range k.n {
				k.ofSource.apply(k.set, e, groups, unsafe.Add(x, t*tile), group, unsafe.Add(v, e*k.most*k.ldv+t*k.ldv), group, window.VectorChannels)
			}
		}
		c = groups * window.VectorChannels
	}
	for ; c < k.depth; c += window.VectorChannels {
		for e := range k.n {
			k.ofSource.apply(k.set, e, n, unsafe.Add(x, 4*c), tile, unsafe.Add(v, e*k.most*k.ldv+4*c), k.ldv, min(window.VectorChannels, k.depth-c))
		}
	}
}

// productsOf returns the products of an element of tiles, from a tile on.
func (k *winograd1D) productsOf(w *exec.Worker, element, tile int) unsafe.Pointer {
	return unsafe.Pointer(&w.Scratch[k.atM+4*k.tiles.NR*(element*k.most+tile)])
}

// multiply computes the products of a chunk's tiles with a panel of kernels.
func (k *winograd1D) multiply(r *exec.Run, w *exec.Worker, panel, tiles int) {
	t, nr := k.tiles, 4*k.tiles.NR
	heights := tiling.CeilDiv(tiles, t.MR)
	for e := range k.n {
		for c := 0; c < k.depth; c += k.step {
			n := min(k.step, k.depth-c)
			weights := unsafe.Add(k.panelAt(r, panel, e), c*nr)
			for h := range heights {
				lo, hi := tiling.Cut(h, heights, tiles)
				d := k.productsOf(w, e, lo)
				s := d
				if c == 0 {
					s = nil
				}
				t.Rows[hi-lo](n, unsafe.Pointer(&w.Scratch[k.atV+(e*k.most+lo)*k.ldv+4*c]), k.ldv, weights, nr, s, nr, d, nr, 1<<t.NR-1)
			}
		}
	}
}

// again computes the tiles of a segment of a row directly that are not finite: tile by tile, as
// the segment can depend on the batch.
func (k *winograd1D) again(r *exec.Run, w *exec.Worker, row, lo, pixels int, d unsafe.Pointer) {
	for x := 0; x < pixels; {
		from := x
		for x < pixels && !finiteRows(unsafe.Add(d, x*k.ld), min(k.m, pixels-x), k.lanes, k.ld) {
			x = min(x+k.m, pixels)
		}
		if x > from {
			k.directly(r, w, row, 1, lo*k.m+from, x-from, unsafe.Add(d, from*k.ld))
		}
		x += k.m
	}
}

// directly computes pixels [x, x+pixels) of some rows at d, as the sum over the window of
// products of source pixels and kernels.
func (k *winograd1D) directly(r *exec.Run, w *exec.Worker, first, rows, x, pixels int, d unsafe.Pointer) {
	t, nr := k.tiles, 4*k.tiles.NR
	kernels := unsafe.Pointer(&w.Scratch[k.atV]) // the memory of transformed tiles is free
	heights := tiling.CeilDiv(pixels, t.MR)
	for panel := range k.panels {
		k.kernels(r, panel, kernels)
		col := panel * t.NR
		mask := uint(1)<<min(t.NR, k.lanes-col) - 1
		for j := range rows {
			k.copyPixels(r, w, first+j, x+k.phases[0].low[2], pixels+k.Size[2]-1)
			for tap := range k.Size[2] {
				for h := range heights {
					lo, hi := tiling.Cut(h, heights, pixels)
					d := unsafe.Add(d, (j*pixels+lo)*k.ld+4*col)
					s := d
					if tap == 0 {
						s = nil
					}
					t.Rows[hi-lo](k.depth, unsafe.Pointer(&w.Scratch[(lo+tap)*4*k.depth]), 4*k.depth, unsafe.Add(kernels, tap*k.depth*nr), nr, s, k.ld, d, k.ld, mask)
				}
			}
		}
	}
}
