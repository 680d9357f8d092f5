package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// winogradGrad is the gradient by the kernels of a convolution for winograd, by Winograd's
// F(3x3, 2x2) with the transposed transforms. 2x2 pixels of the result's gradient and the 4x4
// of the input that they read take 16 products for each pair of channels, which are added up
// over all tiles before they are transformed.
//
// The products are sixteen matrix products: channels of the input by tiles, and tiles by
// channels of the result. Blocks of tiles are distributed, by their index, over a fixed number
// of partial sums, and elements of transformed tiles over parts.
type winogradGrad struct {
	convolution
	set    *gemm.Set
	input  *implicitGEMM // bands of the input; grads has those of the result's gradient
	grads  *implicitGEMM
	across int // tiles of a row
	down   int // rows of tiles of a band
	bands  int
	images int // of a block
	most   int // tiles of a block, at most
	blocks int
	sums   int
	parts  int
	passes []winogradGradPass
	direct bool

	inPanels, outPanels int // of 32 channels; those of a pass, at most

	ofInput, ofGrads, ofSums [][]int64      // offsets of the terms of transforms
	byInput, byGrads         gemm.Transform // transforms of all elements at once, if there is one part

	row           int // bytes of a row of 32 channels of transformed tiles and of sums, padded to whole micro-kernels
	sumBytes      int
	atIn, atGrads int // offsets of transformed tiles in scratch memory

	atColumns             int // of the sums of exact
	atGradsBand, atDirect int // of the bands and sums of directly
}

// winogradGradPass is the task that computes the sums of the channels [first, end) of the
// result.
type winogradGradPass struct {
	*winogradGrad
	first, end int
}

// transformSums is the task that adds up the partial sums of a pass and transforms them: a
// panel of channels of the result, for an element of the window.
type transformSums struct{ *winogradGradPass }

const (
	gradBytes = 768 << 10 // of the transformed tiles of a block
	gradTiles = 64        // of a block, about, at least: sums are read and written once for so many
	mostTiles = 192       // of a block, at most: those of 32 channels stay in L1
)

// transposed returns the transpose of a transform.
func transposed[T any](m [][]T) [][]T {
	t := make([][]T, len(m[0]))
	for i := range t {
		for _, row := range m {
			t[i] = append(t[i], row[i])
		}
	}
	return t
}

// gradTransforms reports whether there are transforms for a gradient by the kernels.
func (k *convolution) gradTransforms(set *gemm.Set) bool {
	return set.WinogradGrads != nil && set.F32.Inner != nil && k.windows3x3()
}

// winogradGradPays is winogradPays of a gradient by the kernels.
func (k *convolution) winogradGradPays(set *gemm.Set) bool {
	direct, tiles := k.bandsOf(set, k.a, true).tileProducts()
	if !set.Ordered && set.F32.NR < window.VectorChannels {
		// Measured with AVX2: products take longer, so transforms cost less of them, but the more
		// the shorter rows of tiles are; and the sums of a pair of channels are stored and
		// transformed, for few tiles as for many.
		transform := 14 + 14/float64(tiling.CeilDiv(k.Out[2], 2))
		tiles = float64(tiles*(1+transform/float64(k.outs)+transform/float64(k.channels))) + winogradSize*25
		return 6*tiles < 7*direct
	}
	return 6*tiles*(1+16/float64(k.outs)+16/float64(k.channels)) < 7*direct // direct products run at six sevenths of the rate
}

// bandsOf returns the bands of the input, or of the result's gradient.
func (k *convolution) bandsOf(set *gemm.Set, source int, input bool) *implicitGEMM {
	p := &implicitGEMM{
		convolution: *k, set: set, tiles: set.F32, source: source, stored: gemm.ElementOf[k.from], element: gemm.ElementOf[k.from], bytes: 4,
		dims: k.In, depth: k.channels, srcAll: k.channels,
	}
	p.code = op.Conv
	if !input {
		p.dims, p.depth, p.srcAll = k.Out, k.outs, k.outs
		p.Size, p.Low = [3]int{1, 1, 1}, [3]int{}
	}
	return p
}

// layBands lays out bands of down rows of across tiles, whose tiles are more pixels larger
// than two, and returns the bytes of a copied band and of its rows.
func (k *implicitGEMM) layBands(down, across, more int) (box, row int) {
	k.eachPhase(func(p stridedPhase, taps [3][]tap) {
		p.copied = k.stored != gemm.F32 || p.count[1]%2+p.count[2]%2 > 0
		for axis, list := range taps {
			p.low[axis], p.span[axis] = list[0].at, len(list)
			p.copied = p.copied || p.low[axis] < 0 || p.low[axis]+p.count[axis]-1+p.span[axis] > k.dims[axis]
		}
		p.box = [3]int{1, 2*down + more, 2*across + more}
		k.phases = append(k.phases, p)
	})
	p := &k.phases[0]
	pixel := k.srcAll * k.bytes
	if p.copied {
		return p.box[1] * p.box[2] * pixel, p.box[2] * pixel
	}
	return 0, k.dims[2] * pixel
}

func newWinogradGrad(b *exec.Builder, v *ir.Value, c convolution, set *gemm.Set) exec.Kernel {
	k := &winogradGrad{convolution: c, set: set, input: c.bandsOf(set, c.a, true), grads: c.bandsOf(set, c.b, false)}
	const row = 4 * window.VectorChannels // cuts do not depend on the padding, which has another size on other levels
	k.row = 4 * tiling.RoundUp(window.VectorChannels, set.F32.NR)
	k.inPanels = tiling.CeilDiv(k.channels, window.VectorChannels)
	k.outPanels = winogradPanels(k.input.stored, tiling.CeilDiv(k.outs, window.VectorChannels), winogradSize*k.channels*row)
	for first := 0; first < k.outs; first += k.outPanels * window.VectorChannels {
		k.passes = append(k.passes, winogradGradPass{k, first, min(first+k.outPanels*window.VectorChannels, k.outs)})
	}
	k.sumBytes = winogradSize * k.outPanels * k.channels * k.row
	k.sums = max(1, min(mostSums/2, sumsBytes/(winogradSize*k.outPanels*k.channels*row), tiling.CeilDiv(k.macs(), product.ChunkMACs<<2)))
	k.parts = min(winogradSize, tiling.CeilDiv(tiling.MinChunks, k.sums))

	tile := winogradSize / k.parts * (k.inPanels + k.outPanels) * row
	k.most = min(max(gradBytes/tile, gradTiles), mostTiles)
	rows := tiling.CeilDiv(k.Out[1], 2)
	k.across = tiling.CeilDiv(k.Out[2], 2)
	k.down = tiling.Even(rows, max(1, k.most/k.across), 1)
	k.images = 1
	if k.down == rows && k.Out[0] == 1 {
		k.images = tiling.Even(k.Batch, min(max(1, k.most/(rows*k.across)), tiling.CeilDiv(k.Batch, tiling.MinChunks)), 1)
	}
	k.most = k.images * k.down * k.across
	k.bands = tiling.CeilDiv(rows, k.down)
	k.blocks = tiling.CeilDiv(k.Batch, k.images) * k.Out[0] * k.bands
	k.sums = min(k.sums, k.blocks)
	k.sums = tiling.CeilDiv(k.blocks, tiling.CeilDiv(k.blocks, k.sums))

	boxIn, lineIn := k.input.layBands(k.down, k.across, 2)
	boxGrads, lineGrads := k.grads.layBands(k.down, k.across, 0)
	if k.parts == 1 {
		k.byInput, k.byGrads = set.WinogradSource, set.WinogradGrads
	}
	k.ofInput = winogradPlaces(winogradSource, lineIn, 4*k.channels)
	k.ofGrads = winogradPlaces(transposed(winogradResult), lineGrads, 4*k.outs)
	element := k.sumBytes / winogradSize
	for _, at := range winogradPlaces(transposed(winogradKernel), 4*element, element) {
		var all []int64
		for s := range k.sums {
			for i := 0; i < len(at); i += 2 {
				all = append(all, at[i]+int64(s*k.sumBytes), at[i+1])
			}
		}
		k.ofSums = append(k.ofSums, all)
	}
	k.direct = k.to == dtype.Float32 && v.Attr.Body == nil
	k.atIn = tiling.RoundUp(max(boxIn, boxGrads), 64)
	elements := tiling.CeilDiv(winogradSize, k.parts)
	k.atGrads = k.atIn + elements*k.inPanels*k.most*k.row
	b.ReserveShared(k.sums * k.sumBytes)
	k.atColumns = k.channels * k.row
	k.atGradsBand = tiling.RoundUp(boxIn, 64)
	k.atDirect = k.atGradsBand + tiling.RoundUp(boxGrads, 64)
	scratch := max(k.atGrads+elements*k.outPanels*k.most*k.row, k.atColumns+8*window.VectorChannels, k.atDirect+(k.channels+k.Out[2])*k.row)
	k.addEpilogue(b, v, scratch, k.outs)
	return k
}

func (k *winogradGrad) Run(r *exec.Run) {
	for i := range k.passes {
		p := &k.passes[i]
		r.Parallel(p, k.sums*k.parts, k.macs()/32)
		r.Parallel(transformSums{p}, p.panels()*k.WindowSize, k.sums*winogradSize*k.channels*k.outs)
	}
}

// panels returns the number of panels of channels of a pass.
func (k *winogradGradPass) panels() int { return tiling.CeilDiv(k.end-k.first, window.VectorChannels) }

func (k *winogradGradPass) Chunk(r *exec.Run, w *exec.Worker, i int) {
	lo, hi := tiling.Cut(i%k.parts, k.parts, winogradSize)
	i /= k.parts
	row := k.row
	first, end := tiling.Cut(i, k.sums, k.blocks)
	for j := first; j < end; j++ {
		y := j % k.bands * 2 * k.down
		plane := j / k.bands
		b := band{image: plane / k.Out[0] * k.images, z: plane % k.Out[0], y: y, rows: tiling.RoundUp(min(2*k.down, k.Out[1]-y), 2)}
		images := min(k.images, k.Batch-b.image)
		tiles := b.rows / 2 * k.across // of an image
		for image := range images {
			for _, s := range []struct {
				*implicitGEMM
				by       gemm.Transform
				elements [][]int64
				at       int
				lo, hi   int
			}{{k.input, k.byInput, k.ofInput, k.atIn, 0, k.channels}, {k.grads, k.byGrads, k.ofGrads, k.atGrads, k.first, k.end}} {
				p, from := &s.phases[0], b
				from.image += image
				s.find(r, w.Scratch, p, &from)
				to := unsafe.Pointer(&w.Scratch[s.at+image*tiles*row])
				steps := tileSteps{tiling.CeilDiv(s.hi-s.lo, window.VectorChannels) * k.most * row, k.most * row, row}
				s.transformTiles(p, &from, k.across, s.lo, s.hi, s.by, s.elements[lo:hi], to, steps)
			}
		}
		sums := unsafe.Pointer(&r.Shared[i*k.sumBytes])
		for e := lo; e < hi; e++ {
			k.multiply(w, unsafe.Add(sums, e*(k.sumBytes/winogradSize)), e-lo, images*tiles, j == first)
		}
	}
}

// multiply adds the products of an element of some tiles to its sums, or begins the sums.
func (k *winogradGradPass) multiply(w *exec.Worker, sums unsafe.Pointer, element, tiles int, begins bool) {
	row := k.row
	t, panels := k.set.F32, k.panels()
	for out := range panels {
		b := unsafe.Pointer(&w.Scratch[k.atGrads+(element*panels+out)*k.most*row])
		cols := min(window.VectorChannels, k.end-k.first-out*window.VectorChannels)
		for in := range k.inPanels {
			a := unsafe.Pointer(&w.Scratch[k.atIn+(element*k.inPanels+in)*k.most*row])
			channels := min(window.VectorChannels, k.channels-in*window.VectorChannels)
			heights := tiling.CeilDiv(channels, t.MR)
			for h := range heights {
				lo, hi := tiling.Cut(h, heights, channels)
				d := unsafe.Add(sums, (out*k.channels+in*window.VectorChannels+lo)*row)
				s := d
				if begins {
					s = nil
				}
				k.inner(tiles, hi-lo, cols, unsafe.Add(a, 4*lo), row, b, s, d)
			}
		}
	}
}

// inner calls micro-kernels for n pixels or tiles, and so many of the 32 columns of rows of B, S
// and D, rounded up to whole micro-kernels.
func (k *winogradGrad) inner(n, rows, cols int, a unsafe.Pointer, lda int, b, s, d unsafe.Pointer) {
	t := k.set.F32
	for at := 0; at < 4*cols; at += 4 * t.NR {
		from := s
		if s != nil {
			from = unsafe.Add(s, at)
		}
		t.Inner[rows](n, a, lda, unsafe.Add(b, at), k.row, from, k.row, unsafe.Add(d, at), k.row, 1<<t.NR-1)
	}
}

func (k transformSums) Chunk(r *exec.Run, w *exec.Worker, i int) {
	row := k.row
	tap, out := i%k.WindowSize, i/k.WindowSize*window.VectorChannels
	n := min(window.VectorChannels, k.end-k.first-out)
	at := tap*k.channels*k.outs + k.first + out
	from := unsafe.Pointer(&r.Shared[out/window.VectorChannels*k.channels*row])
	to, step := unsafe.Pointer(&w.Scratch[0]), row
	if k.direct {
		to, step = unsafe.Pointer(&r.Values[k.dst][4*at]), 4*k.outs
	}
	sumChannels(k.set, k.channels, k.ofSums[tap], from, row, to, step, n)
	switch exact := k.exact(w, to, step, n); {
	case !exact:
		k.put(r, w, at, n, k.directly(r, w, tap, k.first+out, n))
	case !k.direct:
		k.put(r, w, at, n, to)
	}
}

// exact reports whether transformed sums are finite: rows of n channels at d, step bytes
// apart, one for each channel of the input.
func (k *winogradGradPass) exact(w *exec.Worker, d unsafe.Pointer, step, n int) bool {
	// Sums of float32 numbers in float64 are finite unless one of the numbers is not.
	if vec.Native() == nil {
		for c := range k.channels {
			if !finite(unsafe.Slice((*float32)(unsafe.Add(d, c*step)), n)) {
				return false
			}
		}
		return true
	}
	columns := lanes.ViewOf[float64](w.Scratch[k.atColumns:], n)
	clear(columns)
	x := unsafe.Slice((*float32)(d), (k.channels-1)*step/4+n)
	vec.Native().SumColumns(columns, x, k.channels, step/4)
	for _, v := range columns {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// directly returns the sum of products for an element of the window and n
// channels of the result from out on: rows of 32 channels, one for each channel
// of the input.
func (k *winogradGradPass) directly(r *exec.Run, w *exec.Worker, tap, out, n int) unsafe.Pointer {
	row := k.row
	in, grads := &k.input.phases[0], &k.grads.phases[0]
	t, width := k.set.F32, k.Out[2]
	sums := unsafe.Pointer(&w.Scratch[k.atDirect])
	pixels := lanes.ViewOf[float32](w.Scratch[k.atDirect+k.channels*row:], width*row/4)
	clear(pixels) // channels beyond n, too
	begins := true
	heights := tiling.CeilDiv(k.channels, t.MR)
	for j := range k.Batch * k.Out[0] * k.bands {
		y := j % k.bands * 2 * k.down
		plane := j / k.bands
		b := band{image: plane / k.Out[0], z: plane % k.Out[0], y: y, rows: tiling.RoundUp(min(2*k.down, k.Out[1]-y), 2)}
		x, g := b, b
		k.input.find(r, w.Scratch, in, &x)
		k.grads.find(r, w.Scratch[k.atGradsBand:], grads, &g)
		for i := range min(2*k.down, k.Out[1]-y) {
			for at := range width {
				from := unsafe.Slice((*float32)(g.from(g.first(grads)+i*g.row+at*g.pixel+4*out)), n)
				copy(pixels[at*row/4:], from)
			}
			a := x.from(x.first(in) + (i+tap/3)*x.row + tap%3*x.pixel)
			for h := range heights {
				lo, hi := tiling.Cut(h, heights, k.channels)
				d := unsafe.Add(sums, lo*row)
				s := d
				if begins {
					s = nil
				}
				k.inner(width, hi-lo, n, unsafe.Add(a, 4*lo), x.pixel, unsafe.Pointer(&pixels[0]), s, d)
			}
			begins = false
		}
	}
	return sums
}

// put stores sums of a tap for n channels of the result.
func (k *winogradGradPass) put(r *exec.Run, w *exec.Worker, at, n int, sums unsafe.Pointer) {
	row := k.row
	for c := range k.channels {
		putRow(&k.convolution, r, w, at+c*k.outs, unsafe.Slice((*float32)(unsafe.Add(sums, c*row)), n))
	}
}
