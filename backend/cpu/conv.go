package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// slide is how windows slide over the three spatial axes of a tensor; axes
// that are missing have one element. Position p of the input lies under
// element k of window y where p = y·stride + k·dilation - low.
type slide struct {
	batch                       int
	in, size, out               [3]int
	stride, dilation, low       [3]int
	inSize, windowSize, outSize int // products
}

// newSlide is the geometry of windows over x with a result of shape y.
func newSlide(a *op.Attr, x, window, y op.Shape) slide {
	s := slide{
		batch: x[0], in: [3]int{1, 1, 1}, size: [3]int{1, 1, 1}, out: [3]int{1, 1, 1},
		stride: [3]int{1, 1, 1}, dilation: [3]int{1, 1, 1},
	}
	first := 3 - len(window)
	for i, w := range window {
		j := first + i
		s.in[j], s.size[j], s.out[j] = x[i+1], w, y[i+1]
		s.stride[j], s.dilation[j], s.low[j] = a.Stride[i], a.Dilation[i], a.Low[i]
	}
	volume := func(d [3]int) int { return d[0] * d[1] * d[2] }
	s.inSize, s.windowSize, s.outSize = volume(s.in), volume(s.size), volume(s.out)
	return s
}

// at is the position along an axis under element k of window y, and whether
// there is one.
func (s *slide) at(axis, y, k int) (int, bool) {
	p := y*s.stride[axis] + k*s.dilation[axis] - s.low[axis]
	return p, p >= 0 && p < s.in[axis]
}

// within is how many elements of window y along an axis lie on the source.
func (s *slide) within(axis, y int) int {
	apart, first := s.dilation[axis], s.low[axis]-y*s.stride[axis] // from the window's beginning to that of the source
	lo := tiling.CeilDiv(max(0, first), apart)
	hi := min(s.size[axis], tiling.CeilDiv(max(0, first+s.in[axis]), apart))
	return max(0, hi-lo)
}

// window is the number of the window along an axis whose element k lies on
// position p, and whether there is one.
func (s *slide) window(axis, p, k int) (int, bool) {
	y := p + s.low[axis] - k*s.dilation[axis]
	if y < 0 || y%s.stride[axis] != 0 {
		return 0, false
	}
	y /= s.stride[axis]
	return y, y < s.out[axis]
}

// under is the windows of a row, from the first to behind the last, whose
// element kx lies on a pixel, and the pixel of the first.
func (s *slide) under(kx int) (lo, hi, x int) {
	d := s.low[2] - kx*s.dilation[2] // a pixel is y·stride - d
	lo = tiling.CeilDiv(max(0, d), s.stride[2])
	hi = min(s.out[2], tiling.CeilDiv(max(0, s.in[2]+d), s.stride[2]))
	return lo, max(lo, hi), lo*s.stride[2] - d
}

// split takes a row apart: number row of n images with rows over two axes.
func split(row int, dims [3]int) (image, z, y int) {
	y = row % dims[1]
	row /= dims[1]
	return row / dims[0], row % dims[0], y
}

// convolution is what all kernels of a convolution and its gradients share.
type convolution struct {
	slide
	code           op.Code
	channels, outs int // of the input and of the result
	groups         int
	perGroup       int // input channels of a group
	outsPerGroup   int
	a, b, dst      int // positions of the operands and of the result
	from, to       dtype.DType
	after          *epilogue // or nil
}

func newConvolution(b *exec.Builder, v *ir.Value) convolution {
	x, w, y := v.Args[0].Type.Shape, v.Args[1].Type.Shape, v.Type.Shape
	switch v.Op {
	case op.ConvInputGrad:
		x, y = y, x
	case op.ConvKernelGrad:
		w, y = y, w
	}
	n := len(w) - 2
	k := convolution{
		slide: newSlide(&v.Attr, x, w[:n], y), code: v.Op,
		channels: x[n+1], outs: w[n+1], groups: max(v.Attr.Groups, 1), perGroup: w[n],
		a: b.At(v.Args[0]), b: b.At(v.Args[1]), dst: b.At(v), from: v.Args[0].Type.DType, to: v.Type.DType,
	}
	k.outsPerGroup = k.outs / k.groups
	if v.Attr.Body != nil {
		k.to = v.Attr.DType // of what the body reads
	}
	return k
}

// follow makes what follows the convolution of v, if anything does. Its memory
// comes behind scratch bytes; rows of the result that are stored at a time have
// most elements at most.
func (k *convolution) follow(b *exec.Builder, v *ir.Value, scratch, most int) {
	b.ReserveScratch(scratch)
	if k.after = newEpilogue(b, v, 2, v.Type.Shape[len(v.Type.Shape)-1]); k.after != nil {
		k.after.place(b, scratch, most)
	}
}

// putRow stores elements of the result from element at on, or what follows.
func putRow[T lanes.Real](k *convolution, r *exec.Run, w *exec.Worker, at int, x []T) {
	size := k.to.Size()
	if k.after == nil {
		lanes.StoreReal(r.Values[k.dst][at*size:(at+len(x))*size], x, k.to)
		return
	}
	product := k.after.rows(w, len(x))
	putProduct(k.after, product, x)
	k.after.apply(r, w, at, len(x), len(x), product)
}

// macs is the number of multiplications, roughly: padding counts.
func (k *convolution) macs() int {
	return k.batch * k.outSize * k.windowSize * k.perGroup * k.outs
}

// directConv is a convolution, or a gradient of one, in portable Go: a loop
// over what it says. Its result is cut into rows of pixels, or of a kernel's
// elements, each summed up by one worker in a fixed order.
type directConv[T lanes.Real] struct {
	convolution
	wideA, wideB wide[T]
	work         func(k *directConv[T], a, b, acc []T, unit int)
	units, width int // rows of the result, elements of each
}

func makeConv[T lanes.Real](b *exec.Builder, v *ir.Value, c convolution) exec.Kernel {
	k := &directConv[T]{convolution: c}
	k.wideA = wide[T]{pos: k.a, dtype: k.from, n: v.Args[0].Type.Shape.Size()}
	k.wideB = wide[T]{pos: k.b, dtype: k.from, n: v.Args[1].Type.Shape.Size(), offset: k.wideA.bytes()}
	b.ReserveShared(k.wideA.bytes() + k.wideB.bytes())
	switch v.Op {
	case op.Conv:
		k.units, k.width, k.work = k.batch*k.outSize/k.out[2], k.out[2]*k.outs, forward[T]
	case op.ConvInputGrad:
		k.units, k.width, k.work = k.batch*k.in[0]*k.in[1], k.in[2]*k.channels, inputGrad[T]
	case op.ConvKernelGrad:
		k.units, k.width, k.work = k.windowSize*k.perGroup, k.outs, kernelGrad[T]
	}
	k.follow(b, v, k.width*lanes.SizeOf[T](), k.width)
	return k
}

func (k *directConv[T]) Run(r *exec.Run) {
	k.wideA.Run(r)
	k.wideB.Run(r)
	if k.width > 0 {
		r.Parallel(k, k.units, k.macs())
	}
}

func (k *directConv[T]) Chunk(r *exec.Run, w *exec.Worker, i int) {
	acc := lanes.ViewOf[T](w.Scratch, k.width)
	clear(acc)
	k.work(k, k.wideA.view(r), k.wideB.view(r), acc, i)
	putRow(&k.convolution, r, w, i*k.width, acc)
}

// forward is a row of pixels of the result.
func forward[T lanes.Real](k *directConv[T], x, w, acc []T, row int) {
	image, oz, oy := split(row, k.out)
	tap := 0
	for kz := range k.size[0] {
		z, inZ := k.at(0, oz, kz)
		for ky := range k.size[1] {
			y, inY := k.at(1, oy, ky)
			for kx := range k.size[2] {
				kernels := w[tap*k.perGroup*k.outs:]
				tap++
				if !inZ || !inY {
					continue
				}
				for ox := range k.out[2] {
					px, ok := k.at(2, ox, kx)
					if !ok {
						continue
					}
					pixel := x[(((image*k.in[0]+z)*k.in[1]+y)*k.in[2]+px)*k.channels:][:k.channels]
					sums := acc[ox*k.outs:][:k.outs]
					for g := range k.groups {
						o := g * k.outsPerGroup
						addScaled(sums[o:o+k.outsPerGroup], pixel[g*k.perGroup:][:k.perGroup], kernels[o:], 1, k.outs)
					}
				}
			}
		}
	}
}

// inputGrad is a row of pixels of the input's gradient.
func inputGrad[T lanes.Real](k *directConv[T], g, w, acc []T, row int) {
	image, z, y := split(row, k.in)
	tap := 0
	for kz := range k.size[0] {
		oz, inZ := k.window(0, z, kz)
		for ky := range k.size[1] {
			oy, inY := k.window(1, y, ky)
			for kx := range k.size[2] {
				kernels := w[tap*k.perGroup*k.outs:]
				tap++
				if !inZ || !inY {
					continue
				}
				for x := range k.in[2] {
					ox, ok := k.window(2, x, kx)
					if !ok {
						continue
					}
					pixel := g[(((image*k.out[0]+oz)*k.out[1]+oy)*k.out[2]+ox)*k.outs:][:k.outs]
					sums := acc[x*k.channels:][:k.channels]
					for c := range sums {
						o := c / k.perGroup * k.outsPerGroup
						sums[c] += dot(pixel[o:o+k.outsPerGroup], kernels[c%k.perGroup*k.outs+o:])
					}
				}
			}
		}
	}
}

// kernelGrad is the gradient of all weights that read one channel of a group
// under one element of the window.
func kernelGrad[T lanes.Real](k *directConv[T], x, g, acc []T, unit int) {
	c, tap := unit%k.perGroup, unit/k.perGroup
	kz, ky, kx := tap/(k.size[1]*k.size[2]), tap/k.size[2]%k.size[1], tap%k.size[2]
	lo, hi, first := k.under(kx)
	if lo == hi {
		return
	}
	for row := range k.batch * k.out[0] * k.out[1] {
		image, oz, oy := split(row, k.out)
		z, inZ := k.at(0, oz, kz)
		y, inY := k.at(1, oy, ky)
		if !inZ || !inY {
			continue
		}
		pixels := x[(((image*k.in[0]+z)*k.in[1]+y)*k.in[2]+first)*k.channels:]
		grads := g[(row*k.out[2]+lo)*k.outs:]
		step := k.stride[2] * k.channels
		for group := range k.groups {
			o := group * k.outsPerGroup
			from := pixels[group*k.perGroup+c:][:(hi-lo-1)*step+1]
			addScaled(acc[o:o+k.outsPerGroup], from, grads[o:], step, k.outs)
		}
	}
}

// addScaled adds Σ x[i·step]·row i to acc, for rows that are ld apart. Four rows
// at a time halve the loads and stores of acc.
func addScaled[T lanes.Real](acc, x, rows []T, step, ld int) {
	n := len(acc)
	i, at := 0, 0
	for ; i+3*step < len(x); i, at = i+4*step, at+4*ld {
		x0, x1, x2, x3 := x[i], x[i+step], x[i+2*step], x[i+3*step]
		r0, r1, r2, r3 := rows[at:][:n], rows[at+ld:][:n], rows[at+2*ld:][:n], rows[at+3*ld:][:n]
		for j := range acc {
			acc[j] += x0*r0[j] + x1*r1[j] + (x2*r2[j] + x3*r3[j])
		}
	}
	for ; i < len(x); i, at = i+step, at+ld {
		x0, r0 := x[i], rows[at:][:n]
		for j := range acc {
			acc[j] += x0 * r0[j]
		}
	}
}

// dot is Σ a·b over the elements of a.
func dot[T lanes.Real](a, b []T) T {
	var s0, s1, s2, s3 T
	b = b[:len(a)]
	for len(a) >= 4 && len(b) >= 4 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		a, b = a[4:], b[4:]
	}
	for i := range a {
		s0 += a[i] * b[i]
	}
	return s0 + s1 + (s2 + s3)
}

// wide is an operand as elements of type T: itself, or converted in the shared
// memory from offset on.
type wide[T lanes.Real] struct {
	pos, n, offset int
	dtype          dtype.DType
}

func (w *wide[T]) bytes() int {
	if w.dtype.Size() == lanes.SizeOf[T]() {
		return 0
	}
	return tiling.RoundUp(w.n*lanes.SizeOf[T](), 64)
}

func (w *wide[T]) Run(r *exec.Run) {
	if w.bytes() > 0 {
		r.Parallel(w, tiling.CeilDiv(w.n, moveGrain), w.n)
	}
}

func (w *wide[T]) Chunk(r *exec.Run, _ *exec.Worker, i int) {
	lo, hi := i*moveGrain, min(w.n, (i+1)*moveGrain)
	size := w.dtype.Size()
	lanes.RealView(r.Values[w.pos][lo*size:hi*size], w.dtype, w.view(r)[lo:hi])
}

func (w *wide[T]) view(r *exec.Run) []T {
	if w.bytes() == 0 {
		return lanes.ViewOf[T](r.Values[w.pos], w.n)
	}
	return lanes.ViewOf[T](r.Shared[w.offset:], w.n)
}
