package cpu

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// softmax is Softmax and LogSoftmax over one axis. A row is brought into
// float32 (float64 for float64), side by side if it is not, and rounded once
// when it is stored.
type softmax[T lanes.Real] struct {
	lanes.RowStore
	src, out int
	from     dtype.DType
	n, inner int
	rows     int
	group    int
	between  int // bytes of scratch memory for what comes between
	// row is e from x, with t, of the length that rowScratch says, for what comes
	// between.
	row   func(e, x, t []T)
	short func(e, x []T, n int) // many short rows, where there is assembly
}

func newSoftmax(b *exec.Builder, v *ir.Value) exec.Kernel {
	x, log := v.Args[0].Type, v.Op == op.LogSoftmax
	s := vec.Current()
	switch n := x.Shape[v.Attr.Axes[0]]; {
	case x.DType == dtype.Float64:
		return makeSoftmax(b, v, softRow[float64](log))
	case s == nil:
		return makeSoftmax(b, v, softRow[float32](log))
	case n > s.Lanes && x.Shape[v.Attr.Axes[0]+1:].Size() == 1:
		return newSoftmaxRows(b, v)
	case n > s.Lanes:
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
		if !direct { // x was read
			k.Store(out, w.Scratch[atE:][:4*all], w.Scratch[k.between:])
			k.Fence()
		}
		return
	}
	x, e = x[:n], e[:n]
	for row := lo; row < hi; row++ {
		first := row/k.inner*n*k.inner + row%k.inner
		scatter(raw[:n*s], src, s, first, 0, 1, n, 0, 0, k.inner, 1)
		copy(x, lanes.RealView(raw[:n*s], k.from, x))
		k.row(e, x, between)
		lanes.StoreReal(raw[:n*t], e, k.To)
		scatter(dst, raw[:n*t], t, 0, first, 1, n, 0, 0, 1, k.inner)
	}
}

// softRow is the softmax of a row or its logarithm.
func softRow[T lanes.Real](log bool) func(e, x, t []T) {
	return func(e, x, t []T) {
		t = t[:len(x)]
		top := T(maxRun(x))
		for i, v := range x {
			t[i] = v - top
		}
		if !log {
			lanes.ExpAll(e, t)
			scale := 1 / sumRun[T, float64](e)
			for i, v := range e {
				e[i] = T(float64(v) * scale)
			}
			return
		}
		lanes.ExpAll(e, t)
		ln := math.Log(sumRun[T, float64](e))
		for i, v := range t {
			e[i] = T(float64(v) - ln)
		}
	}
}
