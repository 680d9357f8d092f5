package reduce

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/move"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// softmax is the kernel of Softmax and LogSoftmax over one axis. A row is converted to
// float32 (float64 for float64), gathered if it is strided, and rounded once when it is
// stored.
type softmax[T lanes.Real] struct {
	lanes.RowStore
	src, out int
	from     dtype.DType
	n, inner int
	rows     int
	group    int
	between  int // offset of intermediates in scratch memory
	// row computes e from x; t is scratch memory of rowScratch elements.
	row   func(e, x, t []T)
	short func(e, x []T, n int) // many short rows in assembly, or nil
}

func NewSoftmax(b *exec.Builder, v *ir.Value) exec.Kernel {
	x, log := v.Args[0].Type, v.Op == op.LogSoftmax
	s, portable := vec.Native(), isa.PortableBits()
	switch n := x.Shape[v.Attr.Axes[0]]; {
	case x.DType == dtype.Float64:
		return makeSoftmax(b, v, softRow[float64](log))
	case n == 0 || s == nil && !portable:
		return makeSoftmax(b, v, softRow[float32](log))
	case (portable || n > s.Lanes) && x.Shape[v.Attr.Axes[0]+1:].Size() == 1:
		return newSoftmaxRows(b, v)
	case portable || n > s.Lanes:
		p := newSoftmaxPasses(op.Type{DType: dtype.Float32, Shape: op.Shape{n}}, n, log, dtype.Float32)
		return makeSoftmax(b, v, p.strided)
	case log:
		k := makeSoftmax(b, v, softRow[float32](log))
		k.short = s.LogSoftmaxRows
		return k
	}
	k := makeSoftmax(b, v, softRow[float32](log))
	k.short = s.SoftmaxRows
	return k
}

func makeSoftmax[T lanes.Real](b *exec.Builder, v *ir.Value, row func(e, x, t []T)) *softmax[T] {
	x, axis := v.Args[0].Type, v.Attr.Axes[0]
	k := &softmax[T]{
		RowStore: lanes.NewRowStore(v.Type), src: b.At(v.Args[0]), out: b.At(v), from: x.DType,
		n: x.Shape[axis], inner: x.Shape[axis+1:].Size(), row: row,
	}
	if size := x.Shape.Size(); size > 0 {
		k.rows = size / k.n
	}
	k.group = max(1, 4*lanes.Block/max(1, k.n))
	k.between = tiling.RoundUp(rowScratch(k.n)*lanes.SizeOf[T](), vec.Line)
	b.ReserveScratch(k.between + 2*k.group*k.n*lanes.SizeOf[T]())
	return k
}

func (k *softmax[T]) Run(r *exec.Run) {
	r.Parallel(k, (k.rows+k.group-1)/k.group, k.rows*k.n*8)
}

func (k *softmax[T]) Chunk(r *exec.Run, w *exec.Worker, c int) {
	src, dst := r.Values[k.src], r.Values[k.out]
	n, s, t := k.n, k.from.Size(), k.To.Size()
	lo, hi := c*k.group, min(k.rows, (c+1)*k.group)
	all := (hi - lo) * n
	raw := w.Scratch[:k.between]
	between := dtype.View[T](raw)
	atE := k.between + all*lanes.SizeOf[T]()
	x, e := lanes.ViewOf[T](w.Scratch[k.between:], all), lanes.ViewOf[T](w.Scratch[atE:], all)
	if k.inner == 1 {
		x = lanes.RealView(src[lo*n*s:hi*n*s], k.from, x)
		out := dst[lo*n*t : hi*n*t]
		direct := t == lanes.SizeOf[T]() && !k.NonTemporal
		if direct {
			e = dtype.View[T](out)
		}
		if k.short != nil {
			k.short(e, x, n)
		} else {
			for i := 0; i < all; i += n {
				k.row(e[i:i+n], x[i:i+n], between)
			}
		}
		if !direct { // x has been read
			k.Store(out, w.Scratch[atE:][:4*all], w.Scratch[k.between:])
			k.Fence()
		}
		return
	}
	x, e = x[:n], e[:n]
	for row := lo; row < hi; row++ {
		first := row/k.inner*n*k.inner + row%k.inner
		move.Scatter(raw[:n*s], src, s, first, 0, 1, n, 0, 0, k.inner, 1)
		copy(x, lanes.RealView(raw[:n*s], k.from, x))
		k.row(e, x, between)
		lanes.StoreReal(raw[:n*t], e, k.To)
		move.Scatter(dst, raw[:n*t], t, 0, first, 1, n, 0, 0, 1, k.inner)
	}
}

// softRow returns the function that computes a row's softmax, or its logarithm.
func softRow[T lanes.Real](log bool) func(e, x, t []T) {
	return func(e, x, t []T) {
		t = t[:len(x)]
		top := T(MaxRun(x))
		for i, v := range x {
			t[i] = v - top
		}
		if !log {
			lanes.ExpAll(e, t)
			scale := 1 / SumRun[T, float64](e)
			for i, v := range e {
				e[i] = T(float64(v) * scale)
			}
			return
		}
		lanes.ExpAll(e, t)
		ln := portablemath.Log(SumRun[T, float64](e))
		for i, v := range t {
			e[i] = T(float64(v) - ln)
		}
	}
}

// softmaxPasses computes the softmax of a row or its logarithm by the loops of lanes.Rows. It uses
// powers of two, scaled so that they are powers of e.
type softmaxPasses struct {
	lanes.Rows
	log     bool
	max     func(x []byte) float64 // NaN if the row has one
	extreme func(e, x, t []float32)
}

func newSoftmaxPasses(result op.Type, width int, log bool, from dtype.DType) *softmaxPasses {
	p := &softmaxPasses{Rows: lanes.NewRows(result, width, from), log: log, extreme: softRow[float32](log)}
	p.max = maxOf(p.In)
	return p
}

// maxOf returns the assembly for the largest element of a row, NaN if there is one.
func maxOf(d dtype.DType) func(x []byte) float64 {
	v := vec.Native()
	if v == nil {
		return func(x []byte) float64 { return MaxRun(dtype.View[float32](x)) }
	}
	switch d {
	case dtype.Float16:
		return func(x []byte) float64 { return v.F16.RowMax(dtype.View[uint16](x)) }
	case dtype.BFloat16:
		return func(x []byte) float64 { return v.BF16.RowMax(dtype.View[uint16](x)) }
	}
	return func(x []byte) float64 { return v.Max(dtype.View[float32](x)) }
}

// rowScratch returns the elements of scratch memory for a row of n.
func rowScratch(n int) int { return lanes.PassNumbers + 3*n }

// softmaxRow computes dst from x, with t of rowScratch elements, and prefetches ahead.
func (p *softmaxPasses) softmaxRow(dst, x []byte, t []float32, ahead []byte) {
	n := p.Length(x)
	s, e := t[:lanes.PassNumbers], t[lanes.PassNumbers:][:n]
	top := p.max(x)
	if !ordinary(top) {
		p.far(dst, x, e, t[lanes.PassNumbers+n:])
		return
	}
	shift := float32(-top * math.Log2E)
	sum := p.Exp2Sum(e, x, math.Log2E, shift, s, ahead)
	if !p.log {
		p.ScaleRow(dst, e, float32(1/sum), s)
		return
	}
	const scale = float32(math.Log2E)
	s[0] = float32(top)
	s[1] = float32(portablemath.Log(sum) - float64(math.Ln2*(float64(shift)+float64(top*float64(scale)))))
	p.LessRow(dst, x, s)
}

// ordinary reports whether the rounding errors of a row's elements times log₂e are a
// small common factor of its exponentials, which cancels. It is false for NaN.
func ordinary(top float64) bool { return math.Abs(top) < 1<<24 }

// far is softmaxRow for rows with elements of any size.
func (p *softmaxPasses) far(dst, x []byte, e, t []float32) {
	if p.In == dtype.Float32 {
		p.extreme(dtype.View[float32](dst), dtype.View[float32](x), t)
		return
	}
	n := len(e)
	lanes.ToF32(t[:n], x, p.In)
	p.extreme(e, t[:n], t[n:])
	lanes.FromF32(dst, e, p.In)
}

// strided is softmaxRow for a gathered row.
func (p *softmaxPasses) strided(e, x, t []float32) {
	p.softmaxRow(lanes.BytesOf(e), lanes.BytesOf(x), t, nil)
}

// softmaxRows is the kernel of Softmax and LogSoftmax of contiguous rows, in assembly.
type softmaxRows struct {
	*softmaxPasses
	src, out          int
	from              dtype.DType
	n, rows           int
	group             int // rows per chunk
	atX, atOut, atRaw int
	atE               [2]int // exponentials of rows that are stored while the next row's are computed
}

func newSoftmaxRows(b *exec.Builder, v *ir.Value) exec.Kernel {
	x := v.Args[0].Type
	n := x.Shape[v.Attr.Axes[0]]
	k := &softmaxRows{
		softmaxPasses: newSoftmaxPasses(v.Type, n, v.Op == op.LogSoftmax, x.DType),
		src:           b.At(v.Args[0]), out: b.At(v), from: x.DType, n: n, rows: x.Shape.Size() / n,
	}
	k.group = max(1, 4*lanes.Block/n)
	var l tiling.Layout
	l.Take(4 * rowScratch(n))
	k.atX, k.atOut, k.atRaw = l.Take(4*n), l.Take(4*n), l.Take(2*n)
	if k.Stores != nil && k.Stores.Exp2SumScale != nil && !k.log && !k.Staged && x.DType == k.In && k.Whole(n) == n && n <= 4*lanes.Block {
		k.group = max(k.group, min(16*k.group, k.rows/32))
		k.atE = [2]int{l.TakeApart(4 * n), l.TakeApart(4 * n)}
	}
	b.ReserveScratch(int(l))
	return k
}

func (k *softmaxRows) Run(r *exec.Run) {
	r.Parallel(k, tiling.CeilDiv(k.rows, k.group), k.rows*k.n*8)
}

func (k *softmaxRows) Chunk(r *exec.Run, w *exec.Worker, c int) {
	src, dst, size := r.Values[k.src], r.Values[k.out], k.n*k.To.Size()
	t := lanes.ViewOf[float32](w.Scratch, rowScratch(k.n))
	if k.atE[0] > 0 {
		e := [2][]float32{lanes.ViewOf[float32](w.Scratch[k.atE[0]:], k.n), lanes.ViewOf[float32](w.Scratch[k.atE[1]:], k.n)}
		k.pipelined(src, dst, c*k.group, min(k.rows, (c+1)*k.group), t, e)
		return
	}
	for i := c * k.group; i < min(k.rows, (c+1)*k.group); i++ {
		x := k.Row(src, i, k.n, k.from, w.Scratch[k.atX:])
		to := dst[i*size : (i+1)*size]
		out := to
		if k.Staged {
			out = w.Scratch[k.atOut:][:4*k.n]
		}
		k.softmaxRow(out, x, t, k.Next(src, i, k.n, k.from))
		if k.Staged {
			k.Store(to, out, w.Scratch[k.atRaw:])
		}
	}
	k.Fence()
}

// pipelined is softmaxRow for 16-bit rows from first to end. The exponentials of a row
// are computed while the row before, in the other of e, is stored and the next one's
// maximum is found. The first row is stored in place of a row before it, and then once
// more.
func (k *softmaxRows) pipelined(src, dst []byte, first, end int, t []float32, e [2][]float32) {
	size, s := k.n*k.In.Size(), t[:lanes.PassNumbers]
	open := -1 // the row whose exponentials are not yet stored
	finish := func() {
		if open >= 0 {
			k.ScaleRow(dst[open*size:(open+1)*size], e[open%2], 1/s[3], s)
		}
		open = -1
	}
	row := func(i int) []byte { return src[i*size : (i+1)*size] }
	top := k.max(row(first))
	for i := first; i < end; i++ {
		x, next := row(i), row(min(i+1, end-1))
		if !ordinary(top) {
			finish()
			k.far(dst[i*size:(i+1)*size], x, e[i%2], t[lanes.PassNumbers+k.n:])
			top = k.max(next)
			continue
		}
		to := open
		if s[2] = 1 / s[3]; open < 0 {
			to, s[2] = i, 0
		}
		s[0], s[1] = math.Log2E, float32(-top*math.Log2E)
		top = k.Stores.Exp2SumScale(dst[to*size:(to+1)*size], e[(i+1)%2], e[i%2], x, s, next, src[min(i+2, k.rows)*size:])
		open = i
	}
	finish()
	k.Fence()
}

// softmaxGrad is the kernel of SoftmaxGrad over one axis; strided rows are gathered in
// float32.
type softmaxGrad struct {
	lanes.Rows
	y, grad, out    int
	from, gradType  dtype.DType
	result          dtype.DType
	n, inner, rows  int
	group           int // rows per chunk
	atY, atG, atOut int
	atRaw           int
}

func NewSoftmaxGrad(b *exec.Builder, v *ir.Value) exec.Kernel {
	y, axis := v.Args[0].Type, v.Attr.Axes[0]
	k := &softmaxGrad{
		y: b.At(v.Args[0]), grad: b.At(v.Args[1]), out: b.At(v),
		from: y.DType, gradType: v.Args[1].Type.DType, result: v.Type.DType,
		n: y.Shape[axis], inner: y.Shape[axis+1:].Size(),
	}
	if k.inner == 1 {
		k.Rows = lanes.NewRows(v.Type, k.n, k.from, k.gradType)
	} else {
		k.Rows = lanes.NewRows(op.Type{DType: dtype.Float32, Shape: op.Shape{k.n}}, k.n, dtype.Float32)
	}
	if size := y.Shape.Size(); size > 0 {
		k.rows = size / k.n
	}
	k.group = max(1, normalizeBlock/max(1, k.n))
	var l tiling.Layout
	l.Take(4 * lanes.PassNumbers)
	k.atY, k.atG, k.atOut, k.atRaw = l.Take(4*k.n), l.Take(4*k.n), l.Take(4*k.n), l.Take(8*k.n)
	b.ReserveScratch(int(l))
	return k
}

func (k *softmaxGrad) Run(r *exec.Run) {
	r.Parallel(k, tiling.CeilDiv(k.rows, k.group), 3*k.rows*k.n)
}

func (k *softmaxGrad) Chunk(r *exec.Run, w *exec.Worker, c int) {
	if k.inner == 1 {
		k.rowsOf(r, w, c)
		return
	}
	s, size := lanes.ViewOf[float32](w.Scratch, lanes.PassNumbers), k.result.Size()
	out := w.Scratch[k.atOut:][:4*k.n]
	for i := c * k.group; i < min(k.rows, (c+1)*k.group); i++ {
		y, g := k.gather(w, r.Values[k.y], i, k.from, k.atY), k.gather(w, r.Values[k.grad], i, k.gradType, k.atG)
		k.SoftmaxGradRow(out, y, g, float32(k.Products(y, g, s, nil)), s, nil)
		raw := w.Scratch[k.atRaw : k.atRaw+k.n*size]
		lanes.StoreReal(raw, dtype.View[float32](out), k.result)
		move.Scatter(r.Values[k.out], raw, size, 0, k.first(i), 1, k.n, 0, 0, 1, k.inner)
	}
}

// rowsOf is Chunk for contiguous rows.
func (k *softmaxGrad) rowsOf(r *exec.Run, w *exec.Worker, c int) {
	s, size := lanes.ViewOf[float32](w.Scratch, lanes.PassNumbers), k.n*k.To.Size()
	for i := c * k.group; i < min(k.rows, (c+1)*k.group); i++ {
		y := k.Row(r.Values[k.y], i, k.n, k.from, w.Scratch[k.atY:])
		g := k.Row(r.Values[k.grad], i, k.n, k.gradType, w.Scratch[k.atG:])
		sum := k.Products(y, g, s, k.Next(r.Values[k.y], i, k.n, k.from))
		to := r.Values[k.out][i*size : (i+1)*size]
		out := to
		if k.Staged {
			out = w.Scratch[k.atOut:][:4*k.n]
		}
		k.SoftmaxGradRow(out, y, g, float32(sum), s, k.Next(r.Values[k.grad], i, k.n, k.gradType))
		if k.Staged {
			k.Store(to, out, w.Scratch[k.atRaw:])
		}
	}
	k.Fence()
}

// first returns the first element of row i, whose elements are inner apart.
func (k *softmaxGrad) first(i int) int { return i/k.inner*k.n*k.inner + i%k.inner }

// gather returns a row in float32.
func (k *softmaxGrad) gather(w *exec.Worker, data []byte, i int, d dtype.DType, at int) []byte {
	raw := w.Scratch[k.atRaw : k.atRaw+k.n*d.Size()]
	move.Scatter(raw, data, d.Size(), k.first(i), 0, 1, k.n, 0, 0, k.inner, 1)
	conv := lanes.ViewOf[float32](w.Scratch[at:], k.n)
	copy(conv, lanes.RealView(raw, d, conv))
	return lanes.BytesOf(conv)
}
