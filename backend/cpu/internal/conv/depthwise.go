package conv

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// depthwise is a depthwise convolution, or a gradient of one, in portable loops. There are no
// sums over channels, so it uses the loops of element-wise operations: a row of pixels times
// the weights of an element of the window, repeated for each pixel, is added to another row.
type depthwise[T lanes.Real] struct {
	convolution
	wideA, wideB wide[T]
	mul, add     func(dst, a, b []T)
	most         int // pixels of a row, of the input or the result
	repeat       repeatWeights[T]
	atRepeat     int // offset of repeated weights, or of sums, in shared memory
	sums         int // number of partial sums of the gradient by the kernels
	finish       foldSums[T]
}

// repeatWeights is the task that repeats the weights of an element of the window for all
// pixels of a row.
type repeatWeights[T lanes.Real] struct{ *depthwise[T] }

// foldSums is the task that adds up the partial sums of an element of the window.
type foldSums[T lanes.Real] struct{ *depthwise[T] }

// depthwise reports whether each channel has its own kernel.
func (k *convolution) depthwise() bool { return k.groups > 1 && k.perGroup == 1 && k.outsPerGroup == 1 }

func newDepthwise[T lanes.Real](b *exec.Builder, v *ir.Value, c convolution, l *lanes.Table[T]) exec.Kernel {
	k := &depthwise[T]{convolution: c, mul: l.Binary[op.Mul], add: l.Binary[op.Add], most: max(c.In[2], c.Out[2])}
	k.wideA = wide[T]{pos: k.a, dtype: k.from, n: v.Args[0].Type.Shape.Size()}
	k.wideB = wide[T]{pos: k.b, dtype: k.from, n: v.Args[1].Type.Shape.Size(), offset: k.wideA.bytes()}
	k.repeat.depthwise, k.finish.depthwise = k, k
	k.atRepeat = k.wideA.bytes() + k.wideB.bytes()
	k.sums = 1
	if k.code == op.ConvKernelGrad {
		k.sums = max(1, min(mostSums, k.Batch*k.Out[0]*k.Out[1]))
	}
	row := lanes.SizeOf[T]() * k.most * k.channels
	b.ReserveShared(k.atRepeat + k.sums*k.WindowSize*row)
	k.addEpilogue(b, v, 2*row, k.most*k.channels)
	return k
}

func (k *depthwise[T]) Run(r *exec.Run) {
	k.wideA.Run(r)
	k.wideB.Run(r)
	if k.code == op.ConvKernelGrad {
		r.Parallel(k, k.sums, k.macs())
		r.Parallel(&k.finish, k.WindowSize, k.sums*k.WindowSize*k.most*k.channels)
		return
	}
	r.Parallel(&k.repeat, k.WindowSize, k.WindowSize*k.most*k.channels)
	rows := k.Batch * k.Out[0] * k.Out[1]
	if k.code == op.ConvInputGrad {
		rows = k.Batch * k.In[0] * k.In[1]
	}
	r.Parallel(k, rows, k.macs()/4)
}

// shared returns the repeated weights, or row s of the partial sums, for an element of the
// window.
func (k *depthwise[T]) shared(r *exec.Run, s, tap int) []T {
	n := k.most * k.channels
	return lanes.ViewOf[T](r.Shared[k.atRepeat+(s*k.WindowSize+tap)*n*lanes.SizeOf[T]():], n)
}

func (k *repeatWeights[T]) Chunk(r *exec.Run, _ *exec.Worker, tap int) {
	to := k.shared(r, 0, tap)
	copy(to, k.wideB.view(r)[tap*k.channels:][:k.channels])
	for n := k.channels; n > 0 && n < len(to); n *= 2 {
		copy(to[n:], to[:n])
	}
}

func (k *depthwise[T]) Chunk(r *exec.Run, w *exec.Worker, i int) {
	if k.code == op.ConvKernelGrad {
		rows := k.Batch * k.Out[0] * k.Out[1]
		for tap := range k.WindowSize {
			clear(k.shared(r, i, tap))
		}
		for row, end := tiling.Cut(i, k.sums, rows); row < end; row++ {
			k.kernels(r, w, i, row)
		}
		return
	}
	dims, source := k.Out, k.In
	if k.code == op.ConvInputGrad {
		dims, source = source, dims
	}
	acc := lanes.ViewOf[T](w.Scratch, dims[2]*k.channels)
	rest := w.Scratch[k.most*k.channels*lanes.SizeOf[T]():]
	clear(acc)
	image, z, y := window.SplitRow(i, dims)
	data := k.wideA.view(r)
	k.eachRow(z, y, func(sz, sy, tap int) {
		from := data[((image*source[0]+sz)*source[1]+sy)*source[2]*k.channels:]
		for kx := range k.Size[2] {
			lo, hi, x := k.Under(kx)
			to, src, toStep, srcStep := lo, x, 1, k.Stride[2]
			if k.code == op.ConvInputGrad {
				to, src, toStep, srcStep = x, lo, k.Stride[2], 1
			}
			weights := k.shared(r, 0, tap+kx)
			length := 1 // pixels of a call
			if toStep == 1 && srcStep == 1 {
				length = max(1, hi-lo)
			}
			for j := 0; j < hi-lo; j += length {
				a := from[(src+j*srcStep)*k.channels:][:length*k.channels]
				d := acc[(to+j*toStep)*k.channels:][:len(a)]
				product := lanes.ViewOf[T](rest, len(a))
				k.mul(product, a, weights[:len(a)])
				k.add(d, d, product)
			}
		}
	})
	putRow(&k.convolution, r, w, i*len(acc), acc)
}

// eachRow calls f with the rows of the source that row z, y of the result reads, and the first
// element of the window on each.
func (k *depthwise[T]) eachRow(z, y int, f func(sz, sy, tap int)) {
	for kz := range k.Size[0] {
		sz, inZ := k.reads(0, z, kz)
		for ky := range k.Size[1] {
			if sy, inY := k.reads(1, y, ky); inZ && inY {
				f(sz, sy, (kz*k.Size[1]+ky)*k.Size[2])
			}
		}
	}
}

// reads returns the source position that position p of the result reads with an element of the
// window, and whether it is within the source.
func (k *depthwise[T]) reads(axis, p, element int) (int, bool) {
	if k.code == op.ConvInputGrad {
		return k.Window(axis, p, element)
	}
	return k.At(axis, p, element)
}

// kernels adds the products of a row of the result's gradient to partial sums with one element
// for each of the row's pixels.
func (k *depthwise[T]) kernels(r *exec.Run, w *exec.Worker, s, row int) {
	image, z, y := window.SplitRow(row, k.Out)
	data, grads := k.wideA.view(r), k.wideB.view(r)[row*k.Out[2]*k.channels:]
	k.eachRow(z, y, func(sz, sy, tap int) {
		from := data[((image*k.In[0]+sz)*k.In[1]+sy)*k.In[2]*k.channels:]
		for kx := range k.Size[2] {
			lo, hi, x := k.Under(kx)
			length := 1
			if k.Stride[2] == 1 {
				length = max(1, hi-lo)
			}
			for j := 0; j < hi-lo; j += length {
				a := from[(x+j*k.Stride[2])*k.channels:][:length*k.channels]
				at := (lo + j) * k.channels
				sums := k.shared(r, s, tap+kx)[at : at+len(a)]
				product := lanes.ViewOf[T](w.Scratch, len(a))
				k.mul(product, a, grads[at:at+len(a)])
				k.add(sums, sums, product)
			}
		}
	})
}

func (k *foldSums[T]) Chunk(r *exec.Run, w *exec.Worker, tap int) {
	c := k.channels
	total := k.shared(r, 0, tap)
	for s := range k.sums {
		all := k.shared(r, s, tap)
		for x := range k.Out[2] {
			if s+x > 0 {
				k.add(total[:c], total[:c], all[x*c:][:c])
			}
		}
	}
	putRow(&k.convolution, r, w, tap*c, total[:c])
}
