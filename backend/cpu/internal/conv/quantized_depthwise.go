package conv

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// quantizedDepthwise is an op.QuantizedConv with one kernel for each channel. Instructions
// that multiply bytes add products of neighbouring bytes, which are other channels here. But
// float32 holds the sums of exactWindow products exactly, whatever their order. So the rows
// of a chunk are integers in float32, less the zero point, with zeros around them, and the
// sums are those of the vector loop of depthwise convolutions.
type quantizedDepthwise struct {
	*quantizedConv
	loop      gemm.Windows // or nil: in Go
	places    []int64      // of the elements of a window, in staged rows and in the kernels
	kernelRow int          // bytes of the kernels of an element of the window
	atKernels int          // in shared memory
	atBytes   int          // in scratch memory: a quantized row
	task      depthwiseRows
}

// depthwiseRows is the task that computes chunks of rows.
type depthwiseRows struct{ *quantizedDepthwise }

// exactWindow is the most products of -255 to 255 and -128 to 127 whose sum float32 holds.
const exactWindow = 1 << 24 / (255 * 128)

// newQuantizedDepthwise makes the kernel of v, whose operands c has.
func newQuantizedDepthwise(b *exec.Builder, v *ir.Value, c *quantizedConv) exec.Kernel {
	k := &quantizedDepthwise{quantizedConv: c, kernelRow: 4 * tiling.RoundUp(c.channels, window.VectorChannels)}
	k.task.quantizedDepthwise = k
	if set := gemm.Current(); set != nil {
		k.loop = set.Depthwise
	}
	k.side, k.set, k.wide = 1, gemm.PortableBytes, 4
	k.layTaps()
	k.cut()
	for t, at := range k.taps {
		k.places = append(k.places, int64(4*at), int64(t*k.kernelRow))
	}
	k.ld = k.outs
	k.period = k.outs * max(512/max(k.outs, 1), 1)
	k.atKernels = tiling.RoundUp(2*4*k.period, 64)
	k.bias, k.relu = -1, false
	b.ReserveShared(k.atKernels + k.WindowSize*k.kernelRow)
	// Loops read whole vectors of channels.
	var scratch tiling.Layout
	k.atPixels = scratch.Take(4 * (k.staged(k.rows) + window.VectorChannels))
	k.atSums = scratch.Take(4 * (k.strip*k.outs + window.VectorChannels))
	k.atFloats = scratch.Take(4 * max(k.strip*k.outs, lanes.Block))
	k.atBytes = scratch.Take(k.pitch)
	k.addEpilogue(b, v, int(scratch), k.strip*k.outs)
	return k
}

// String describes the kernel for MEZZO_DEBUG=plan.
func (k *quantizedDepthwise) String() string { return "depthwise, exact in float32" }

// Run computes the convolution.
func (k *quantizedDepthwise) Run(r *exec.Run) {
	if k.Batch*k.OutSize*k.outs == 0 {
		return
	}
	k.fillRescales(r)
	w := lanes.ViewOf[int8](r.Values[k.b], k.WindowSize*k.outs)
	for t := range k.WindowSize {
		to := lanes.ViewOf[float32](r.Shared[k.atKernels+t*k.kernelRow:], k.kernelRow/4)
		for c, x := range w[t*k.outs:][:k.outs] {
			to[c] = float32(x)
		}
		clear(to[k.outs:])
	}
	r.Parallel(&k.task, k.Batch*k.Out[0]*tiling.CeilDiv(k.Out[1], k.rows), k.macs()/16+k.Batch*k.OutSize*k.outs)
}

// Chunk computes the rows of chunk i.
func (k *depthwiseRows) Chunk(r *exec.Run, w *exec.Worker, i int) {
	image, z, first, rows := k.chunkOf(i)
	k.stageFloats(r, w, image, z, first)
	for y := range rows {
		pixel := ((image*k.Out[0]+z)*k.Out[1] + first + y) * k.Out[2]
		for x := 0; x < k.Out[2]; x += k.strip {
			n := min(k.strip, k.Out[2]-x)
			k.floatSums(r, w, y*k.Stride[1]*k.pitch+x*k.Stride[2]*k.channels, n)
			values, product := k.valuesOf(r, w, pixel+x, n)
			k.rescaleFloats(r, w, values)
			k.storeValues(r, w, (pixel+x)*k.outs, values, product)
		}
	}
}

// stageFloats is stage for integers in float32, less the zero point.
func (k *quantizedDepthwise) stageFloats(r *exec.Run, w *exec.Worker, image, z, first int) {
	scale, zero, size := k.inputScale(r), k.zeroPoint(r), k.from.Size()
	k.eachStaged(image, z, first, func(row, lo, hi, at int) {
		to := lanes.ViewOf[float32](w.Scratch[k.atPixels+4*row:], k.pitch)
		clear(to[:lo])
		clear(to[hi:])
		to = to[lo:hi]
		if len(to) == 0 {
			return
		}
		bytes := w.Scratch[k.atBytes:][:len(to)] // with 128 added
		if k.from == dtype.Int8 {
			copyBytes(bytes, r.Values[k.a][at:], 128)
		} else {
			k.quantize(w, bytes, r.Values[k.a][at*size:], scale, zero, 128)
		}
		if v := vec.Current(); v != nil {
			v.FromU8(to, bytes)
			v.AddScalar(to, to, float32(-128-zero))
			return
		}
		for i, x := range bytes {
			to[i] = float32(int32(x) - 128 - zero)
		}
	})
}

// floatSums computes the sums of n pixels whose first window lies at some offset of the
// staged rows.
func (k *quantizedDepthwise) floatSums(r *exec.Run, w *exec.Worker, offset, n int) {
	step := k.Stride[2] * k.channels
	if k.loop != nil {
		for c := 0; c < k.channels; c += window.VectorChannels {
			mask := uint(1)<<min(window.VectorChannels, k.channels-c) - 1
			k.loop(n, len(k.taps), unsafe.Pointer(&k.places[0]), unsafe.Pointer(&w.Scratch[k.atPixels+4*(offset+c)]), 4*step,
				unsafe.Pointer(&r.Shared[k.atKernels+4*c]), 0, unsafe.Pointer(&w.Scratch[k.atSums+4*c]), 4*k.outs, mask)
		}
		return
	}
	sums := lanes.ViewOf[float32](w.Scratch[k.atSums:], n*k.outs)
	clear(sums)
	for t, tap := range k.taps {
		kernel := lanes.ViewOf[float32](r.Shared[k.atKernels+t*k.kernelRow:], k.channels)
		for i := range n {
			x := lanes.ViewOf[float32](w.Scratch[k.atPixels+4*(offset+tap+i*step):], k.channels)
			to := sums[i*k.outs:][:k.channels]
			for c, y := range kernel {
				to[c] += float32(x[c] * y)
			}
		}
	}
}

// rescaleFloats rescales sums.
func (k *quantizedDepthwise) rescaleFloats(r *exec.Run, w *exec.Worker, values []float32) {
	sums, rescales := lanes.ViewOf[float32](w.Scratch[k.atSums:], len(values)), k.rescales(r)
	for at := 0; at < len(values); at += k.period {
		to := values[at:min(at+k.period, len(values))]
		if v := vec.Current(); v != nil {
			v.Mul(to, sums[at:], rescales)
			continue
		}
		for i := range to {
			to[i] = sums[at+i] * rescales[i]
		}
	}
}
