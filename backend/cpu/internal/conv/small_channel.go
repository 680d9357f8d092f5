package conv

import (
	"math"
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

// smallForward is a convolution of a source with few channels, such as the first layer of a
// network: the sums of a row's pixels stay in registers over the whole window. A bias and a
// relu are applied in registers, too.
type smallForward struct {
	windowRegions
	taps   []gemm.Windows // by the number of pixels of a tile
	bias   int            // position of the bias, or -1
	relu   bool
	paired bool // kernels have the layout of gemm's Taps for bfloat16
	atBias int  // offset in shared memory of the bias, a row, and of the least result after it
}

var (
	negativeZero = float32(math.Copysign(0, -1))
	negativeInf  = float32(math.Inf(-1))
)

const (
	smallDepth = 4  // channels of the source, at most
	smallTaps  = 16 // elements of a sum, at most: of longer sums micro-tiles are faster
	narrowTaps = 80 // the same of tiles of 16 columns, whose runs of pixels are too short to start
)

// inTaps reports whether smallForward can compute k.
func (k *implicitGEMM) inTaps() bool {
	vector, taps := k.tiles.NR, smallTaps
	if vector < window.VectorChannels {
		taps = narrowTaps
	}
	last := k.lanes % vector // channels of a partial vector
	return k.code == op.Conv && k.groups == 1 && k.depth <= smallDepth && k.depth*k.WindowSize < taps && k.set.SmallChannel[gemm.F32] != nil && (last == 0 || last > vector/2)
}

func newSmallForward(b *exec.Builder, v *ir.Value, p *implicitGEMM) exec.Kernel {
	k := &smallForward{windowRegions: windowRegions{implicitGEMM: p}, bias: -1}
	p.windowLoops, p.element, p.bytes, p.tiles = true, p.stored, 4, p.set.F32
	p.zeros = p.set.Ordered // as gathered patches have
	k.cutAll()
	q := &k.phases[0]
	k.taps = k.set.SmallChannel[gemm.F32]
	if bias, relu, ok := biasRelu(v, k.outs); ok && k.to != dtype.Float64 && k.set.SmallChannel[gemm.ElementOf[k.to]] != nil {
		k.direct, k.relu, k.taps = true, relu, k.set.SmallChannel[gemm.ElementOf[k.to]]
		k.paired = k.to == dtype.BFloat16
		if bias != nil {
			k.bias = b.At(bias)
		}
	}
	box, tile := 0, 0
	if q.copied {
		box = q.box[0] * q.box[1] * q.box[2] * 4 * k.channels
	}
	k.ld = 4 * k.outs
	if !k.direct {
		tile = q.band * q.count[2] * k.ld
	}
	k.atTile = tiling.RoundUp(box, 64)
	k.atBias = k.widen.rows() * k.padded
	b.ReserveShared(k.atBias + 3*k.padded)
	b.ReserveScratch(k.atTile + tiling.RoundUp(tile, 64))
	if !k.direct {
		k.addEpilogue(b, v, k.atTile+tiling.RoundUp(tile, 64), k.outs)
	}
	k.result = product.Writer{Set: k.set, N: k.outs, TileN: k.outs, Out: k.dst, To: k.to, After: k.after}
	return k
}

// biasRelu returns ok if the epilogue of v, with so many columns, is at most the addition of a
// bias and a relu, in the type of v. The bias is nil if there is none.
func biasRelu(v *ir.Value, cols int) (bias *ir.Value, relu, ok bool) {
	f, ok := product.FusedOpsOf(v)
	if f.Add != nil {
		s := f.Add.Type.Shape
		ok = ok && s.Size() == cols && s[len(s)-1] == cols
	}
	return f.Add, f.Relu, ok && f.Positive == nil && f.Over == nil
}

func (k *smallForward) Run(r *exec.Run) {
	k.Begin(r)
	r.Parallel(k, k.phases[0].chunks, k.macs()/16)
}

// Cuts implements exec.BatchTiled.
func (k *smallForward) Cuts() (images, pieces, chunks int) { return k.Batch, k.Batch, k.Batch }

// Share implements exec.BatchTiled. The kernel is the first of its group, so base is 0.
func (k *smallForward) Share(int) int { return k.atBias + 3*k.padded }

// Begin implements exec.BatchTiled.
func (k *smallForward) Begin(r *exec.Run) {
	k.widen.Run(r)
	k.limits(r)
}

// Piece implements exec.BatchTiled.
func (k *smallForward) Piece(r *exec.Run, w *exec.Worker, i, pieces, _ int) {
	first, end := tiling.Cut(i, pieces, k.Batch)
	n := k.phases[0].chunks / k.Batch
	for j := first * n; j < end*n; j++ {
		k.Chunk(r, w, j)
	}
}

// End implements exec.BatchTiled.
func (k *smallForward) End(*exec.Run) {}

// limits writes the bias and the least result to shared memory. Without a bias it writes -0,
// which changes no sum. With a relu the least result is 0; sums that round to -0 are not less
// than 0.
func (k *smallForward) limits(r *exec.Run) {
	floor := map[dtype.DType]float32{dtype.Float32: 0, dtype.Float16: -0x1p-25, dtype.BFloat16: -0x1p-134}[k.to]
	if !k.relu {
		floor = negativeInf
	}
	var bias []float32
	if k.bias >= 0 {
		bias = lanes.RealView(r.Values[k.bias], k.to, lanes.ViewOf[float32](r.Shared[k.atBias+2*k.padded:], k.outs))
	}
	for c := 0; c < k.outs; c += window.VectorChannels {
		both := lanes.ViewOf[float32](r.Shared[k.atBias+8*c:], 2*window.VectorChannels)
		row := both[:window.VectorChannels]
		for i := range both {
			both[i] = negativeZero
		}
		copy(row, bias[min(c, len(bias)):])
		both[window.VectorChannels] = floor
		if k.paired {
			pairUp(row)
		}
	}
	if k.paired {
		for row := range k.widen.rows() {
			pairUp(lanes.ViewOf[float32](r.Shared[row*k.padded:], k.padded/4))
		}
	}
}

// pairUp moves the even ones of each VectorChannels numbers before the odd ones.
func pairUp(x []float32) {
	var y [window.VectorChannels]float32
	for ; len(x) > 0; x = x[window.VectorChannels:] {
		copy(y[:], x)
		for i := range window.VectorChannels / 2 {
			x[i], x[window.VectorChannels/2+i] = y[2*i], y[2*i+1]
		}
	}
}

func (k *smallForward) Chunk(r *exec.Run, w *exec.Worker, i int) {
	p := &k.phases[0]
	b := k.bandOf(r, w, p, i)
	size, ld := 4, k.ld
	var d unsafe.Pointer
	if k.direct {
		size = k.to.Size()
		ld = size * k.outs
		d = unsafe.Pointer(&r.Values[k.dst][k.pixelOf(p, b.image, b.z, b.y, 0)*ld])
	} else {
		d = unsafe.Pointer(&w.Scratch[k.atTile])
	}
	weights := unsafe.Pointer(&r.Shared[0])
	k.eachRow(r, w, p, &b, func(y int) {
		k.eachRegion(0, &b, y, func(x unsafe.Pointer, places []int64, from, n int) {
			to := unsafe.Add(d, (y*p.count[2]+from)*ld)
			for c := 0; c < k.outs; c += window.VectorChannels {
				k.pixels(n, places, x, p.move[2]*b.pixel, unsafe.Add(weights, 4*c), k.atBias+4*c, unsafe.Add(to, size*c), ld, uint(1)<<min(window.VectorChannels, k.outs-c)-1)
			}
		})
	})
	if !k.direct {
		k.putBand(r, w, p, &b, d)
	}
}

// pixels computes n neighbouring pixels of a row in tiles of about equal size.
func (k *smallForward) pixels(n int, places []int64, x unsafe.Pointer, xs int, weights unsafe.Pointer, bias int, d unsafe.Pointer, ds int, mask uint) {
	at := unsafe.Pointer(unsafe.SliceData(places))
	tiles := tiling.CeilDiv(n, len(k.taps)-1)
	for tiles > 0 {
		of := tiling.CeilDiv(n, tiles)
		times := tiles - (of*tiles - n) // tiles of that many pixels; the others have one less
		k.taps[of](times, len(places)/2, at, x, xs, weights, bias, d, ds, mask)
		n, tiles = n-times*of, tiles-times
		if tiles > 0 {
			x, d = unsafe.Add(x, times*of*xs), unsafe.Add(d, times*of*ds)
		}
	}
}
