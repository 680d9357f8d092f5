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
// of a chunk are integers in float32, and the sums are those of the vector loop of depthwise
// convolutions. A row loop adds what the zero point contributes to each sum, as its bias; for
// the others the zero point is subtracted from the integers.
type quantizedDepthwise struct {
	*quantizedConv
	row       gemm.DepthwiseRow // or nil
	loop      gemm.Windows      // if row is nil; or nil: in Go
	places    []int64           // of the elements of a window, in staged rows and in the kernels
	kernelRow int               // bytes of the kernels of an element of the window
	atKernels int               // in shared memory
	atZeros   int               // in shared memory: what the zero point contributes, as a row's bias
	atBytes   int               // in scratch memory: a quantized row
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
		k.row, k.loop = set.DepthwiseRow, set.Depthwise
		if set.DepthwiseNine != nil && k.Size == [3]int{1, 3, 3} {
			k.row = set.DepthwiseNine
		}
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
	k.bias, k.relu = biasOf(b, v)
	k.atZeros = k.atKernels + k.WindowSize*k.kernelRow
	b.ReserveShared(k.atZeros + 4*rowBias + k.kernelRow)
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
	k.fillBiases(r)
	row := lanes.ViewOf[float32](r.Shared[k.atZeros:], rowBias+k.kernelRow/4)
	zeros, zero, set := row[rowBias:], float32(k.zeroPoint(r)), vec.Current()
	for i := range rowBias {
		row[i] = negativeInf
	}
	clear(zeros)
	for t := range k.WindowSize {
		to := lanes.ViewOf[float32](r.Shared[k.atKernels+t*k.kernelRow:], k.kernelRow/4)
		lanes.ToF32(to[:k.outs], r.Values[k.b][t*k.outs:][:k.outs], dtype.Int8)
		clear(to[k.outs:])
		if set != nil {
			set.Add(zeros, zeros, to)
			continue
		}
		for c, x := range to {
			zeros[c] += x
		}
	}
	for c, x := range zeros {
		zeros[c] = float32(-zero * x) // all are integers that float32 holds
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
			if k.requantize && k.storeAtOnce(r, w, pixel+x, n, true) {
				continue
			}
			values, product := k.valuesOf(r, w, pixel+x, n)
			k.rescaleFloats(r, w, values)
			k.storeValues(r, w, (pixel+x)*k.outs, values, product)
		}
	}
}

// stageFloats is stage for integers in float32.
func (k *quantizedDepthwise) stageFloats(r *exec.Run, w *exec.Worker, image, z, first int) {
	scale, zero, size := k.inputScale(r), k.zeroPoint(r), k.from.Size()
	padding := float32(0)
	if k.row != nil {
		padding = float32(zero)
	}
	k.eachStaged(image, z, first, func(row, lo, hi, at int) {
		to := lanes.ViewOf[float32](w.Scratch[k.atPixels+4*row:], k.pitch)
		fillFloats(to[:lo], padding)
		fillFloats(to[hi:], padding)
		to = to[lo:hi]
		if len(to) == 0 {
			return
		}
		bytes := r.Values[k.a][at*size:]
		if k.from != dtype.Int8 {
			bytes = w.Scratch[k.atBytes:]
			k.quantize(w, bytes[:len(to)], r.Values[k.a][at*size:], scale, zero, 0)
		}
		lanes.ToF32(to, bytes[:len(to)], dtype.Int8)
		if k.row == nil {
			lanes.AddScalar(to, float32(-zero))
		}
	})
}

func fillFloats(to []float32, x float32) {
	const first = 16
	for i := range min(first, len(to)) {
		to[i] = x
	}
	repeatFirst(to, first)
}

// floatSums computes the sums of n pixels whose first window lies at some offset of the
// staged rows.
func (k *quantizedDepthwise) floatSums(r *exec.Run, w *exec.Worker, offset, n int) {
	step := k.Stride[2] * k.channels
	if k.row != nil {
		k.row(n, len(k.taps), unsafe.Pointer(&k.places[0]), unsafe.Pointer(&w.Scratch[k.atPixels+4*offset]), 4*step,
			unsafe.Pointer(&r.Shared[k.atKernels]), unsafe.Pointer(&r.Shared[k.atZeros]), unsafe.Pointer(&w.Scratch[k.atSums]), 4*k.outs, k.channels)
		return
	}
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
