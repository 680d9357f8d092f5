package conv

import (
	"fmt"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// depthwiseVector is a depthwise convolution, or a gradient of one, in vector loops over
// channels that keep the sums over the whole window in registers. A band of the source that is
// not float32 is converted first.
//
// For the gradient by the kernels, bands are distributed, by their index, over a fixed number
// of partial sums, which are added up in order at the end. In an ordered set, and where there is
// no loop of its own, it is sums over the pixels of a row of the loop that sums up windows: their
// elements are the row's pixels, and its pixels the elements of a row of the window.
type depthwiseVector struct {
	windowRegions
	add     addPartials
	sums    int
	grad    bool // it is the gradient by the kernels
	byRows  bool // it is sums over the pixels of rows
	plus    func(dst, a, b []float32)
	atGrads int     // in scratch memory
	atRow   int     // in scratch memory: the sums over a row of pixels
	pixels  []int64 // of such a row: their offsets in the input and in the result's gradient

	nine bool // regions of nine elements are computed by DepthwiseNine

	// Of a convolution whose epilogue a DepthwiseRow computes:
	bias   int // position of the bias, or -1
	relu   bool
	atBias int // in shared memory, or 0
}

// shortDepthwise is the pixels of a row up to which sums over rows of pixels take as long as loops
// over elements of the window or longer: measured 0.9 to 1.4 times.
const shortDepthwise = 4

// addPartials is the task that adds up the partial sums of an element of the window.
type addPartials struct{ *depthwiseVector }

func newDepthwiseVector(b *exec.Builder, v *ir.Value, c convolution, set *gemm.Set) exec.Kernel {
	k := &depthwiseVector{grad: c.code == op.ConvKernelGrad, plus: lanes.OfF32().Binary[op.Add]}
	p := &implicitGEMM{
		convolution: c, set: set, tiles: set.F32, source: c.a, windowLoops: true, bytes: 4,
		dims: c.In, depth: 1, lanes: 1, srcAll: c.channels, dstAll: c.channels,
	}
	k.implicitGEMM = p
	switch c.code {
	case op.ConvInputGrad:
		p.dims = c.Out
	case op.ConvKernelGrad:
		p.code = op.Conv // the gradient goes over the bands of the convolution
	}
	p.stored = gemm.ElementOf[k.from]
	p.element = p.stored
	k.padded = 4 * tiling.RoundUp(k.channels, window.VectorChannels)
	if !k.grad && window.VectorChannels%k.channels == 0 {
		k.times = window.VectorChannels / k.channels
	}
	// Regions with all of a window have elements at equal distances.
	k.nine = set.DepthwiseNine != nil && k.Size == [3]int{1, 3, 3} && (k.times <= 1 || k.channels%16 == 0)
	k.cutAll()
	k.add.depthwiseVector = k
	k.direct = k.to == dtype.Float32 && v.Attr.Body == nil && !k.grad
	shared := k.inRow(b, v)
	k.ld = 4 * k.channels
	box, tile, chunks := 0, 0, 0
	for i := range p.phases {
		q := &p.phases[i]
		chunks += q.chunks
		if q.copied {
			box = max(box, q.box[0]*q.box[1]*q.box[2]*4*k.channels)
		}
		if !k.direct && !k.grad {
			tile = max(tile, k.groupOf(q)*q.count[2]*k.ld)
		}
	}
	// Loops read whole vectors of channels.
	k.atTile = tiling.RoundUp(box+4*window.VectorChannels, 64)
	k.atGrads = k.atTile
	most := max(tile, 4*k.Out[2]*k.channels+4*window.VectorChannels)
	k.atRow = k.atTile + tiling.RoundUp(most, 64)
	k.sums = 1
	if k.grad {
		k.sums = max(1, min(mostSums, chunks))
	}
	end := k.atRow
	if k.byRows = k.grad && (set.Ordered || set.DepthwiseGrad == nil); k.byRows {
		end += k.Size[2] * k.padded
		for i := range k.Out[2] {
			k.pixels = append(k.pixels, int64(4*i*k.Stride[2]*k.channels), int64(4*i*k.channels))
		}
	}
	b.ReserveShared(max(shared, k.sums*k.WindowSize*k.padded))
	k.addEpilogue(b, v, end, k.channels)
	k.result = product.Writer{Set: k.set, N: k.dstAll, TileN: k.dstAll, Out: k.dst, To: k.to, After: k.after}
	return k
}

// inRow lets a DepthwiseRow compute the epilogue of v if it can, and returns the size of the
// shared memory for it.
func (k *depthwiseVector) inRow(b *exec.Builder, v *ir.Value) int {
	k.bias = -1
	bias, relu, ok := biasRelu(v, k.channels)
	if !ok || bias == nil && !relu || bias != nil && b.Produced[bias] != nil || k.to != dtype.Float32 || v.Op != op.Conv || k.set.DepthwiseRow == nil {
		return 0
	}
	k.direct, k.relu = true, relu
	if bias != nil {
		k.bias = b.At(bias)
	}
	k.atBias = k.WindowSize * k.padded
	return k.atBias + 4*rowBias + k.padded
}

// rowBias is the offset of the bias in the memory that a DepthwiseRow reads.
const rowBias = 8

// limits writes the least result and the bias to shared memory. Without a bias it writes -0,
// which changes no sum.
func (k *depthwiseVector) limits(r *exec.Run) {
	row := lanes.ViewOf[float32](r.Shared[k.atBias:], rowBias+k.padded/4)
	floor := negativeInf
	if k.relu {
		floor = 0
	}
	for i := range rowBias {
		row[i] = floor
	}
	n := 0
	if k.bias >= 0 {
		n = copy(row[rowBias:], lanes.ViewOf[float32](r.Values[k.bias], k.channels))
	}
	for i := rowBias + n; i < len(row); i++ {
		row[i] = negativeZero
	}
	for i := 1; i < k.times; i++ {
		copy(row[rowBias+i*k.channels:], row[rowBias:][:k.channels])
	}
}

func (k *depthwiseVector) Run(r *exec.Run) {
	chunks := 0
	for i := range k.phases {
		chunks += k.phases[i].chunks
	}
	if k.grad {
		r.Parallel(k, k.sums, k.macs()/4)
		r.Parallel(&k.add, k.WindowSize, k.sums*k.WindowSize*k.channels)
		return
	}
	k.begin(r)
	// Measured: what one core does in 12 µs takes two cores as long, since half of the
	// source, and of the result for its reader, lies in the other core's cache.
	r.Parallel(k, chunks, k.macs()/16)
}

// begin writes the kernels, the bias and the least result to shared memory.
func (k *depthwiseVector) begin(r *exec.Run) {
	k.widen.Run(r)
	if k.atBias > 0 {
		k.limits(r)
	}
}

func (k *depthwiseVector) Chunk(r *exec.Run, w *exec.Worker, i int) {
	if k.grad {
		clear(r.Shared[i*k.WindowSize*k.padded:][:k.WindowSize*k.padded])
		for j, end := tiling.Cut(i, k.sums, k.phases[0].chunks); j < end; j++ {
			k.addBand(r, w, i, j)
		}
		return
	}
	phase := 0
	for i >= k.phases[phase].chunks {
		i -= k.phases[phase].chunks
		phase++
	}
	p := &k.phases[phase]
	b := k.bandOf(r, w, p, i)
	ld, row, group := p.step[2]*k.ld, p.step[1]*k.rowPixels()*k.ld, b.rows
	d := unsafe.Pointer(&w.Scratch[k.atTile])
	if k.direct {
		d = unsafe.Pointer(&r.Values[k.dst][k.pixelOf(p, b.image, b.z, b.y, 0)*k.ld])
	} else {
		ld, row, group = k.ld, p.count[2]*k.ld, k.groupOf(p)
	}
	var bias unsafe.Pointer
	if k.atBias > 0 {
		bias = unsafe.Pointer(&r.Shared[k.atBias])
	}
	if k.direct && !p.copied && k.set.DepthwiseRow != nil {
		k.eachBox(phase, &b, func(x unsafe.Pointer, places []int64, n, xs int, at, ds int) {
			k.row(n, places, x, xs, unsafe.Pointer(&r.Shared[0]), bias, unsafe.Add(d, at), ds)
		}, row, ld)
		return
	}
	k.eachRow(r, w, p, &b, func(y int) {
		k.eachRegion(phase, &b, y, func(x unsafe.Pointer, places []int64, from, n int) {
			to := unsafe.Add(d, y%group*row+from*ld)
			if k.set.DepthwiseRow != nil {
				k.row(n, places, x, p.move[2]*b.pixel, unsafe.Pointer(&r.Shared[0]), bias, to, ld)
				return
			}
			for c := 0; c < k.channels; c += window.VectorChannels {
				mask := uint(1)<<min(window.VectorChannels, k.channels-c) - 1
				k.set.Depthwise(n, len(places)/2, unsafe.Pointer(unsafe.SliceData(places)), unsafe.Add(x, 4*c), p.move[2]*b.pixel,
					unsafe.Pointer(&r.Shared[4*c]), 0, unsafe.Add(to, 4*c), ld, mask)
			}
		})
		if rows := y%group + 1; !k.direct && (rows == group || y == b.rows-1) {
			k.putBand(r, w, p, &band{image: b.image, z: b.z, y: b.y + y + 1 - rows, rows: rows}, d)
		}
	})
}

// row computes n pixels by DepthwiseRow. Pixels that follow each other in memory and fill a
// vector together are a single one of more channels, for which kernels and bias are repeated.
func (k *depthwiseVector) row(n int, places []int64, x unsafe.Pointer, xs int, y, bias, d unsafe.Pointer, ds int) {
	taps, at, pixel := len(places)/2, unsafe.Pointer(unsafe.SliceData(places)), 4*k.channels
	if k.nine && taps == 9 && n > 0 {
		k.set.DepthwiseNine(n, taps, at, x, xs, y, bias, d, ds, k.channels)
		return
	}
	if times := k.times; times > 1 && xs == pixel && ds == pixel {
		whole := n / times
		k.set.DepthwiseRow(whole, taps, at, x, times*pixel, y, bias, d, times*pixel, times*k.channels)
		n, x, d = n%times, unsafe.Add(x, whole*times*pixel), unsafe.Add(d, whole*times*pixel)
	}
	if n > 0 {
		k.set.DepthwiseRow(n, taps, at, x, xs, y, bias, d, ds, k.channels)
	}
}

// Separable is a depthwise convolution and the product of its pixels behind it. A worker computes
// some rows of the first one, which stay in its L1, and then those of the product, whose rows
// are pixels.
type Separable struct {
	depthwise *depthwiseVector
	second    exec.Kernel
	product   product.RowsOnDemand
	group     int // rows of pixels that are computed at a time
	band      int // of a chunk
	bands     int // of an image
	macs      int
}

const (
	pixelBytes  = 24 << 10 // of the rows of pixels: they stay in L1
	leastPixels = 64       // of an image
)

// NewSeparable makes the kernel of a depthwise convolution and the product with the kernels w, in
// float32, or returns nil if it does not pay.
func NewSeparable(b *exec.Builder, first, second exec.Kernel, w *ir.Value) *Separable {
	d, ok := first.(*depthwiseVector)
	p, is := product.NewRowsOnDemand(second)
	if !ok || !is || d.code != op.Conv || d.grad || !d.direct || d.set.DepthwiseRow == nil || d.stored != gemm.F32 || d.phases[0].copied || d.phases[0].count[0] != 1 || d.OutSize < leastPixels {
		return nil
	}
	rows, width := d.Out[1], d.Out[2]
	k := &Separable{depthwise: d, second: second, product: p, macs: d.macs() + d.Batch*d.OutSize*w.Type.Shape.Size()}
	wanted := min(tiling.MinChunks, tiling.CeilDiv(k.macs, product.ChunkMACs))
	k.band = tiling.Even(rows, tiling.CeilDiv(rows, tiling.CeilDiv(wanted, d.Batch)), 1)
	k.bands = tiling.CeilDiv(rows, k.band)
	k.group = max(1, min(k.band, pixelBytes/(width*d.ld)))
	b.ReserveScratch((p.Tile()-1+k.group*width)*d.ld + 4*window.VectorChannels)
	return k
}

// Run computes both. What two cores gain is a task less, and sources in their own L2; one core
// computes larger parts of each faster.
func (k *Separable) Run(r *exec.Run) {
	if r.Procs == 1 {
		k.depthwise.Run(r)
		k.second.Run(r)
		return
	}
	k.depthwise.begin(r)
	r.Parallel(k, k.depthwise.Batch*k.bands, k.macs/16)
}

// Chunk computes a band of an image.
func (k *Separable) Chunk(r *exec.Run, w *exec.Worker, i int) {
	d := k.depthwise
	p := &d.phases[0]
	var bias unsafe.Pointer
	if d.atBias > 0 {
		bias = unsafe.Pointer(&r.Shared[d.atBias])
	}
	pixels, width := unsafe.Pointer(&w.Scratch[0]), d.Out[2]
	image, first := i/k.bands, i%k.bands*k.band
	end := min(first+k.band, d.Out[1])
	row, have := d.pixelOf(p, image, 0, first, 0), 0
	for y := first; y < end; y += k.group {
		b := band{image: image, y: y, rows: min(k.group, end-y)}
		d.locate(r, nil, p, &b)
		d.eachBox(0, &b, func(x unsafe.Pointer, places []int64, n, xs int, at, ds int) {
			d.row(n, places, x, xs, unsafe.Pointer(&r.Shared[0]), bias, unsafe.Add(pixels, have*d.ld+at), ds)
		}, width*d.ld, d.ld)
		have += b.rows * width
		n := have
		if y+k.group < end {
			n -= have % k.product.Tile()
		}
		k.product.Rows(r, pixels, d.ld, row, n)
		// The rest fills a tile with the next pixels.
		row, have = row+n, have-n
		copy(w.Scratch[:have*d.ld], w.Scratch[n*d.ld:][:have*d.ld])
	}
}

// String describes the cuts.
func (k *Separable) String() string {
	return fmt.Sprintf("bands of %d rows of pixels, %d at a time", k.band, k.group)
}

// groupOf returns the rows of a phase that are stored together: their sums stay in L1.
func (k *depthwiseVector) groupOf(p *stridedPhase) int {
	return max(1, min(p.band, laneBytes/(p.count[2]*k.ld)))
}

// addBand adds the products of a band with the result's gradient to partial sum s.
func (k *depthwiseVector) addBand(r *exec.Run, w *exec.Worker, s, i int) {
	p := &k.phases[0]
	b := k.bandOf(r, w, p, i)
	size := k.from.Size()
	n := k.Out[2] * k.channels
	k.eachRow(r, w, p, &b, func(y int) {
		from := k.pixelOf(p, b.image, b.z, b.y+y, 0) * k.channels * size
		own := lanes.ViewOf[float32](w.Scratch[k.atGrads:], n)
		grads := lanes.RealView(r.Values[k.b][from:from+n*size], k.from, own)
		if k.byRows && k.channels%window.VectorChannels > 0 && k.stored == gemm.F32 { // loops read whole vectors
			copy(own, grads)
			grads = own
		}
		k.eachRegion(0, &b, y, func(x unsafe.Pointer, places []int64, from, n int) {
			if k.byRows {
				k.addPixels(r, w, s, x, places, unsafe.Pointer(&grads[from*k.channels]), n)
				return
			}
			for c := 0; c < k.channels && len(places) > 0; c += window.VectorChannels {
				mask := uint(1)<<min(window.VectorChannels, k.channels-c) - 1
				k.set.DepthwiseGrad(n, len(places)/2, unsafe.Pointer(&places[0]), unsafe.Add(x, 4*c), p.move[2]*b.pixel,
					unsafe.Pointer(&grads[from*k.channels+c]), 4*k.channels, unsafe.Pointer(&r.Shared[s*k.WindowSize*k.padded+4*c]), 0, mask)
			}
		})
	})
}

// addPixels adds the sums over n pixels of a row to partial sum s. Elements of the window whose
// pixels have equal distances are one call.
func (k *depthwiseVector) addPixels(r *exec.Run, w *exec.Worker, s int, x unsafe.Pointer, places []int64, grads unsafe.Pointer, n int) {
	for len(places) > 0 {
		taps, step := 1, 0
		for ; 2*taps < len(places) && taps < k.Size[2] && places[2*taps+1] == places[1]+int64(taps*k.padded); taps++ {
			if taps == 1 {
				step = int(places[2] - places[0])
			}
			if places[2*taps] != places[0]+int64(taps*step) {
				break
			}
		}
		row := w.Scratch[k.atRow:][:taps*k.padded]
		for c := 0; c < k.channels; c += window.VectorChannels {
			mask := uint(1)<<min(window.VectorChannels, k.channels-c) - 1
			k.set.Depthwise(taps, n, unsafe.Pointer(&k.pixels[0]), unsafe.Add(x, int(places[0])+4*c), step, unsafe.Add(grads, 4*c), 0, unsafe.Pointer(&row[4*c]), k.padded, mask)
		}
		sums := lanes.ViewOf[float32](r.Shared[s*k.WindowSize*k.padded+int(places[1]):], len(row)/4)
		k.plus(sums, sums, lanes.ViewOf[float32](row, len(sums)))
		places = places[2*taps:]
	}
}

func (k *addPartials) Chunk(r *exec.Run, w *exec.Worker, tap int) {
	total := lanes.ViewOf[float32](r.Shared[tap*k.padded:], k.channels)
	for s := 1; s < k.sums; s++ {
		for i, x := range lanes.ViewOf[float32](r.Shared[(s*k.WindowSize+tap)*k.padded:], k.channels) {
			total[i] += x
		}
	}
	putRow(&k.convolution, r, w, tap*k.channels, total)
}
