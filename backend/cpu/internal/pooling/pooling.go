// Package pooling has max and average pooling and their gradients.
//
// Where to look: pooling.go is the portable form for all types, vector.go the kernels
// in assembly, epilogue.go applies the epilogue of gradients.
package pooling

import (
	"bytes"
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/window"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// pooling is a pooling over one to three spatial axes, or one of its gradients. Results
// are computed row by row: a row of pixels of the result of pooling, or of the input's
// gradient.
//
// Non-overlapping windows of MaxPool scatter their gradients. All other gradients
// gather: an element visits the windows that cover it, so that sums have a fixed order
// and rows are independent. For MaxPool a first task records each window's largest
// element.
type pooling[T lanes.Real] struct {
	window.Geometry
	channels int
	x, y     int // positions in Run.Values; y is -1 if there is one operand
	dst      int
	dtype    dtype.DType
	loops    *lanes.Table[T]
	work     func(k *pooling[T], r *exec.Run, w *exec.Worker, row int)
	rows     int
	counts   [3][]int // elements that are not padding, by axis and window
	places   *places[T]
}

// places is the task that records, for each element of the result of MaxPool, the index
// in its window of the largest element.
type places[T lanes.Real] struct{ *pooling[T] }

// problem is the input of the choice of an algorithm.
type problem struct {
	b      *exec.Builder
	v      *ir.Value
	double bool // float64
}

// New returns the kernel of pooling or of one of its gradients.
func New(b *exec.Builder, v *ir.Value) exec.Kernel {
	return exec.Choose(b, v, "pool", algorithms, problem{b, v, v.Args[0].Type.DType == dtype.Float64})
}

// algorithms are the algorithms of pooling and its gradients.
var algorithms = []exec.Algorithm[problem]{
	{
		Name: "vector",
		Applies: func(p problem) string {
			if p.double {
				return "float64"
			}
			return ""
		},
		Build: func(p problem) exec.Kernel {
			k := makePool(p.b, p.v, lanes.OfF32())
			switch c := newVector(p.b, p.v, k); {
			case c == nil:
				return nil
			case c.after != nil || c.positive:
				return c
			default:
				return newPooledChain(p.b, p.v, k, c)
			}
		},
	},
	{
		Name:    "portable",
		Applies: func(problem) string { return "" },
		Build: func(p problem) exec.Kernel {
			if p.double {
				k := makePool(p.b, p.v, lanes.F64Table)
				return newPooledChain(p.b, p.v, k, k)
			}
			k := makePool(p.b, p.v, lanes.OfF32())
			return newPooledChain(p.b, p.v, k, k)
		},
	},
}

func makePool[T lanes.Real](b *exec.Builder, v *ir.Value, l *lanes.Table[T]) *pooling[T] {
	x, y := v.Args[0].Type.Shape, v.Type.Shape
	k := &pooling[T]{x: b.At(v.Args[0]), y: -1, dst: b.At(v), dtype: v.Args[0].Type.DType, loops: l}
	if v.Op.Info().Args > 1 {
		k.y = b.At(v.Args[1])
	}
	switch v.Op {
	case op.MaxPool:
		k.work = maxPool[T]
		if isa.PortableBits() {
			k.work = maxPoolInOrder[T]
		}
	case op.AvgPool:
		k.work = avgPool[T]
		if isa.PortableBits() && k.dtype != dtype.Float64 {
			k.work = avgPoolInOrder[T]
		}
	case op.AvgPoolGrad:
		x, y = y, x
		k.work = avgPoolGrad[T]
	case op.MaxPoolGradGrad:
		k.work = maxPoolGradGrad[T]
	case op.MaxPoolGrad:
		y = v.Args[1].Type.Shape
		k.work = maxPoolGrad[T]
	}
	k.Geometry = window.New(&v.Attr, x, v.Attr.Window, y)
	k.channels = x[len(x)-1]
	k.rows = k.Batch * k.OutSize / k.Out[2]
	scratch := (8 + 2*8) * k.channels // see scratch
	switch {
	case v.Op == op.AvgPoolGrad:
		k.rows = k.Batch * k.In[0] * k.In[1]
		if isa.PortableBits() && k.dtype != dtype.Float64 && k.disjoint() {
			k.work = avgPoolGradApart[T]
		}
	case v.Op == op.MaxPoolGrad && k.disjoint():
		k.work = maxPoolGradApart[T]
		scratch = 8*k.channels*(2*k.In[2]+(4+k.WindowSize)*k.Out[2]) + k.channels*k.Out[2]
	case v.Op == op.MaxPool:
		scratch = 8 * k.channels * (2*k.In[2] + k.Out[2]) // see lines
	case v.Op == op.MaxPoolGrad:
		k.rows = k.Batch * k.In[0] * k.In[1]
		k.places = &places[T]{k}
	}
	for axis := range 3 {
		for o := range k.Out[axis] {
			k.counts[axis] = append(k.counts[axis], k.Within(axis, o))
		}
	}
	if k.places != nil {
		b.ReserveShared(4 * k.Batch * k.OutSize * k.channels)
	}
	b.ReserveScratch(scratch)
	return k
}

func (k *pooling[T]) Run(r *exec.Run) {
	if k.channels == 0 {
		return
	}
	work := k.Batch * k.OutSize * k.WindowSize * k.channels
	if k.places != nil {
		r.Parallel(k.places, k.Batch*k.OutSize/k.Out[2], work)
	}
	r.Parallel(k, k.rows, work)
}

func (k *pooling[T]) Chunk(r *exec.Run, w *exec.Worker, i int) { k.work(k, r, w, i) }

// scratch returns room for 8 bytes per channel, and twice for a T per channel.
func (k *pooling[T]) scratch(w *exec.Worker) (sums []byte, a, b []T) {
	c := k.channels
	rest := w.Scratch[8*c:]
	return w.Scratch[:8*c], lanes.ViewOf[T](rest, c), lanes.ViewOf[T](rest[c*lanes.SizeOf[T]():], c)
}

// pixel returns the channels of a pixel of operand pos, converted into conv if
// necessary.
func (k *pooling[T]) pixel(r *exec.Run, pos, pixel int, conv []T) []T {
	n := k.channels * k.dtype.Size()
	return lanes.RealView(r.Values[pos][pixel*n:(pixel+1)*n], k.dtype, conv)
}

// put stores the channels of a pixel of the result.
func (k *pooling[T]) put(r *exec.Run, pixel int, x []T) {
	n := k.channels * k.dtype.Size()
	lanes.StoreReal(r.Values[k.dst][pixel*n:(pixel+1)*n], x, k.dtype)
}

// eachTap calls f for the elements of window ox of a row of windows that are not
// padding, in order, with their index in the window and their pixel.
func (k *pooling[T]) eachTap(row, ox int, f func(tap, pixel int)) {
	image, oz, oy := window.SplitRow(row, k.Out)
	for kz := range k.Size[0] {
		z, ok := k.At(0, oz, kz)
		if !ok {
			continue
		}
		for ky := range k.Size[1] {
			y, ok := k.At(1, oy, ky)
			if !ok {
				continue
			}
			for kx := range k.Size[2] {
				if x, ok := k.At(2, ox, kx); ok {
					f((kz*k.Size[1]+ky)*k.Size[2]+kx, ((image*k.In[0]+z)*k.In[1]+y)*k.In[2]+x)
				}
			}
		}
	}
}

// eachWindow calls f for the windows that cover pixel x of a row of the input, with the
// pixel's index in the window, the window's own pixel, and the number of the window's
// elements that are not padding.
func (k *pooling[T]) eachWindow(row, x int, f func(tap, pixel, count int)) {
	image, z, y := window.SplitRow(row, k.In)
	for kz := range k.Size[0] {
		oz, ok := k.Window(0, z, kz)
		if !ok {
			continue
		}
		for ky := range k.Size[1] {
			oy, ok := k.Window(1, y, ky)
			if !ok {
				continue
			}
			for kx := range k.Size[2] {
				if ox, ok := k.Window(2, x, kx); ok {
					f((kz*k.Size[1]+ky)*k.Size[2]+kx, ((image*k.Out[0]+oz)*k.Out[1]+oy)*k.Out[2]+ox,
						k.counts[0][oz]*k.counts[1][oy]*k.counts[2][ox])
				}
			}
		}
	}
}

// maxPool computes the maximum of the rows under a row of windows, and then that of
// adjacent pixels.
func maxPool[T lanes.Real](k *pooling[T], r *exec.Run, w *exec.Worker, row int) {
	larger := k.loops.Binary[op.Maximum]
	acc, conv, top := k.lines(w)
	if k.dtype.Size() == lanes.SizeOf[T]() { // in place
		top = k.line(r, k.dst, row, k.Out[2], nil)
	}
	lowest(top)
	first := true
	k.eachLine(row, func(_, line int) {
		x := k.line(r, k.x, line, k.In[2], conv)
		if first {
			copy(acc, x)
		} else {
			larger(acc, acc, x)
		}
		first = false
	})
	c := k.channels
	for kx := range k.Size[2] {
		lo, hi, x := k.Under(kx)
		n, step := hi-lo, k.Stride[2]
		if step == 1 && n > 0 { // contiguous
			larger(top[lo*c:hi*c], top[lo*c:hi*c], acc[x*c:(x+n)*c])
			continue
		}
		for i := range n {
			to := top[(lo+i)*c:][:c]
			larger(to, to, acc[(x+i*step)*c:][:c])
		}
	}
	if first {
		lowest(top)
	}
	if k.dtype.Size() != lanes.SizeOf[T]() {
		size := k.dtype.Size()
		lanes.StoreReal(r.Values[k.dst][row*len(top)*size:(row+1)*len(top)*size], top, k.dtype)
	}
}

// maxPoolInOrder computes what vector loops compute: the first of the largest elements of a window,
// which decides the sign of zeros.
func maxPoolInOrder[T lanes.Real](k *pooling[T], r *exec.Run, w *exec.Worker, row int) {
	larger := k.loops.Binary[op.Maximum] // returns its second operand if both are equal
	_, conv, top := k.lines(w)
	size, c := k.dtype.Size(), k.channels
	if size == lanes.SizeOf[T]() { // in place
		top = k.line(r, k.dst, row, k.Out[2], nil)
	}
	lowest(top)
	k.eachLine(row, func(_, line int) {
		from := k.line(r, k.x, line, k.In[2], conv)
		for kx := range k.Size[2] {
			lo, hi, x := k.Under(kx)
			n, pixels := hi-lo, 1 // of a call
			if k.Stride[2] == 1 {
				pixels = max(n, 1)
			}
			for i := 0; i < n; i += pixels {
				to := top[(lo+i)*c:][:pixels*c]
				larger(to, from[(x+i*k.Stride[2])*c:][:len(to)], to)
			}
		}
	})
	if size != lanes.SizeOf[T]() {
		lanes.StoreReal(r.Values[k.dst][row*len(top)*size:(row+1)*len(top)*size], top, k.dtype)
	}
}

// lowest sets all elements to -∞, the maximum of nothing.
func lowest[T lanes.Real](x []T) {
	if len(x) == 0 {
		return
	}
	x[0] = T(math.Inf(-1))
	for n := 1; n < len(x); n *= 2 {
		copy(x[n:], x[:n])
	}
}

// lines returns room for two rows of the input and one of the result.
func (k *pooling[T]) lines(w *exec.Worker) (a, b, y []T) {
	in, out := k.In[2]*k.channels, k.Out[2]*k.channels
	all := lanes.ViewOf[T](w.Scratch, 2*in+out)
	return all[:in], all[in : 2*in], all[2*in:]
}

// line returns row i of an operand, of n pixels, converted into conv if necessary.
func (k *pooling[T]) line(r *exec.Run, pos, i, n int, conv []T) []T {
	n *= k.channels * k.dtype.Size()
	return lanes.RealView(r.Values[pos][i*n:(i+1)*n], k.dtype, conv)
}

// eachLine calls f with the rows of the input under a row of windows, and the index of
// their first element in the window.
func (k *pooling[T]) eachLine(row int, f func(tap, line int)) {
	image, oz, oy := window.SplitRow(row, k.Out)
	for kz := range k.Size[0] {
		z, inZ := k.At(0, oz, kz)
		for ky := range k.Size[1] {
			if y, inY := k.At(1, oy, ky); inZ && inY {
				f((kz*k.Size[1]+ky)*k.Size[2], (image*k.In[0]+z)*k.In[1]+y)
			}
		}
	}
}

// find sets best to the maxima of a window, and place to the index of the first element
// equal to it, or -1 if there is none.
func (k *pooling[T]) find(r *exec.Run, row, ox int, place []int32, best, conv []T) {
	for c := range place {
		place[c] = -1
	}
	k.eachTap(row, ox, func(tap, pixel int) {
		x := k.pixel(r, k.x, pixel, conv)
		place, best := place[:len(x)], best[:len(x)]
		for c, v := range x {
			// A NaN is larger than any number, and nothing is larger than a NaN.
			if b := best[c]; place[c] < 0 || v > b || v != v && b == b {
				best[c], place[c] = v, int32(tap)
			}
		}
	})
}

func (k *places[T]) Chunk(r *exec.Run, w *exec.Worker, row int) {
	all := lanes.ViewOf[int32](r.Shared, k.Batch*k.OutSize*k.channels)
	_, best, conv := k.scratch(w)
	for ox := range k.Out[2] {
		k.find(r, row, ox, all[(row*k.Out[2]+ox)*k.channels:][:k.channels], best, conv)
	}
}

func maxPoolGradGrad[T lanes.Real](k *pooling[T], r *exec.Run, w *exec.Worker, row int) {
	sums, best, conv := k.scratch(w)
	place := lanes.ViewOf[int32](sums, k.channels)
	for ox := range k.Out[2] {
		k.find(r, row, ox, place, best, conv)
		clear(best)
		k.eachTap(row, ox, func(tap, pixel int) {
			v := k.pixel(r, k.y, pixel, conv)
			for c, p := range place {
				if int(p) == tap {
					best[c] = v[c]
				}
			}
		})
		k.put(r, row*k.Out[2]+ox, best)
	}
}

func maxPoolGrad[T lanes.Real](k *pooling[T], r *exec.Run, w *exec.Worker, row int) {
	all := lanes.ViewOf[int32](r.Shared, k.Batch*k.OutSize*k.channels)
	_, sum, conv := k.scratch(w)
	for x := range k.In[2] {
		clear(sum)
		k.eachWindow(row, x, func(tap, pixel, _ int) {
			g := k.pixel(r, k.y, pixel, conv)
			sum, place := sum[:len(g)], all[pixel*k.channels:][:len(g)]
			for c, v := range g {
				if int(place[c]) == tap {
					sum[c] += v
				}
			}
		})
		k.put(r, row*k.In[2]+x, sum)
	}
}

// disjoint reports whether windows are small and do not overlap, over at most two axes: an
// element then has the gradient of at most one window.
func (k *pooling[T]) disjoint() bool {
	for axis, n := range k.Size {
		if (n-1)*k.Dilation[axis] >= k.Stride[axis] {
			return false
		}
	}
	return k.In[0] == 1 && k.Low[0] == 0 && k.WindowSize*k.Out[2]*k.channels <= 1<<17
}

// maxPoolGradApart is the gradient of a row of non-overlapping windows: of the rows of
// pixels from its first to the next windows' first. It processes one element of all
// windows of the row at a time.
func maxPoolGradApart[T lanes.Real](k *pooling[T], r *exec.Run, w *exec.Worker, row int) {
	image, _, oy := window.SplitRow(row, k.Out)
	from, to := 0, k.In[1]
	if oy > 0 {
		from = oy*k.Stride[1] - k.Low[1]
	}
	if oy < k.Out[1]-1 {
		to = (oy+1)*k.Stride[1] - k.Low[1]
	}
	from, to = min(max(0, from), k.In[1]), min(max(0, to), k.In[1])
	size := k.dtype.Size()
	rowBytes := k.In[2] * k.channels * size
	clear(r.Values[k.dst][(image*k.In[1]+from)*rowBytes : (image*k.In[1]+max(from, to))*rowBytes])

	c, n := k.channels, k.Out[2]*k.channels
	grad, conv, _ := k.lines(w)
	rest := lanes.ViewOf[T](w.Scratch[2*len(grad)*lanes.SizeOf[T]():], (4+k.WindowSize)*n)
	top, left, zero, part, taps := rest[:n], rest[n:2*n], rest[2*n:3*n], rest[3*n:4*n], rest[4*n:]
	mask := w.Scratch[(2*len(grad)+len(rest))*lanes.SizeOf[T]():][:n]
	larger, equal, where := k.loops.Binary[op.Maximum], k.loops.Compare[op.Equal], k.loops.Where
	clear(zero)
	lowest(top)
	k.eachLine(row, func(tap, line int) {
		x := k.line(r, k.x, line, k.In[2], conv)
		for kx := range k.Size[2] {
			lo, hi, at := k.Under(kx)
			under := taps[(tap+kx)*n:][lo*c : hi*c]
			for i := range hi - lo {
				copy(under[i*c:(i+1)*c], x[(at+i*k.Stride[2])*c:])
			}
			larger(top[lo*c:hi*c], top[lo*c:hi*c], under)
		}
	})
	copy(left, k.line(r, k.y, row, k.Out[2], part))
	equal(mask, top, top)
	nan := bytes.IndexByte(mask, 0) >= 0
	k.eachLine(row, func(tap, line int) {
		clear(grad)
		for kx := range k.Size[2] {
			// The first equal element takes the gradient that is left.
			lo, hi, at := k.Under(kx)
			x, m, p, l := taps[(tap+kx)*n:][lo*c:hi*c], mask[lo*c:hi*c], part[lo*c:hi*c], left[lo*c:hi*c]
			equal(m, x, top[lo*c:hi*c])
			if nan {
				sameNaN(m, x, top[lo*c:hi*c])
			}
			where(p, m, l, zero[:len(p)])
			where(l, m, zero[:len(p)], l)
			for i := range hi - lo {
				copy(grad[(at+i*k.Stride[2])*c:][:c], p[i*c:])
			}
		}
		lanes.StoreReal(r.Values[k.dst][line*rowBytes:(line+1)*rowBytes], grad, k.dtype)
	})
}

// sameNaN sets mask where both elements are NaN.
func sameNaN[T lanes.Real](mask []byte, x, y []T) {
	for i := range mask {
		if x[i] != x[i] && y[i] != y[i] {
			mask[i] = 1
		}
	}
}

func avgPool[T lanes.Real](k *pooling[T], r *exec.Run, w *exec.Worker, row int) {
	wide, mean, conv := k.scratch(w)
	sums := lanes.ViewOf[float64](wide, k.channels)
	for ox := range k.Out[2] {
		clear(sums)
		n := 0
		k.eachTap(row, ox, func(_, pixel int) {
			n++
			x := k.pixel(r, k.x, pixel, conv)
			sums := sums[:len(x)]
			for c, v := range x {
				sums[c] += float64(v)
			}
		})
		for c, s := range sums {
			mean[c] = T(s / float64(n))
		}
		k.put(r, row*k.Out[2]+ox, mean)
	}
}

// avgPoolInOrder computes what vector loops compute: elements of a window times the inverse of
// their number are added with a single rounding, one after the other.
func avgPoolInOrder[T lanes.Real](k *pooling[T], r *exec.Run, w *exec.Worker, row int) {
	_, mean, conv := k.scratch(w)
	_, oz, oy := window.SplitRow(row, k.Out)
	for ox := range k.Out[2] {
		clear(mean)
		n := k.counts[0][oz] * k.counts[1][oy] * k.counts[2][ox]
		if n == 0 {
			for c := range mean {
				mean[c] = T(math.NaN())
			}
		}
		inverse := 1 / float32(n)
		k.eachTap(row, ox, func(_, pixel int) {
			x := k.pixel(r, k.x, pixel, conv)
			mean := mean[:len(x)]
			for c, v := range x {
				mean[c] = T(portablemath.FMA32(float32(v), inverse, float32(mean[c])))
			}
		})
		k.put(r, row*k.Out[2]+ox, mean)
	}
}

// avgPoolGradApart is avgPoolGrad of windows that do not overlap, as vector loops compute it.
func avgPoolGradApart[T lanes.Real](k *pooling[T], r *exec.Run, w *exec.Worker, row int) {
	_, mean, conv := k.scratch(w)
	for x := range k.In[2] {
		clear(mean)
		k.eachWindow(row, x, func(_, pixel, count int) {
			g, inverse := k.pixel(r, k.x, pixel, conv), 1/float32(count)
			mean := mean[:len(g)]
			for c, v := range g {
				mean[c] = T(portablemath.FMA32(float32(v), inverse, 0))
			}
		})
		k.put(r, row*k.In[2]+x, mean)
	}
}

func avgPoolGrad[T lanes.Real](k *pooling[T], r *exec.Run, w *exec.Worker, row int) {
	wide, mean, conv := k.scratch(w)
	sums := lanes.ViewOf[float64](wide, k.channels)
	for x := range k.In[2] {
		clear(sums)
		k.eachWindow(row, x, func(_, pixel, count int) {
			g := k.pixel(r, k.x, pixel, conv)
			sums, n := sums[:len(g)], float64(count)
			for c, v := range g {
				sums[c] += float64(v) / n
			}
		})
		for c, s := range sums {
			mean[c] = T(s)
		}
		k.put(r, row*k.In[2]+x, mean)
	}
}

// Algorithms returns the names of the algorithms.
func Algorithms() []string { return exec.Names(algorithms) }
