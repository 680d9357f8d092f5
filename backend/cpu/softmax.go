package cpu

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// softmax is Softmax and LogSoftmax over one axis. A row is brought into
// float32 (float64 for float64), side by side if it is not, and rounded once
// when it is stored.
type softmax[T real] struct {
	src, out int
	from, to dtype.DType
	n, inner int
	rows     int
	group    int
	row      func(e, x, t []T)     // e from x, with t for what comes between
	short    func(e, x []T, n int) // many short rows, where there is assembly
}

func newSoftmax(b *builder, v *ir.Value) kernel {
	if v.Args[0].Type.DType == dtype.Float64 {
		return makeSoftmax(b, v, softRow[float64])
	}
	if s := vectors(); s != nil {
		k := makeSoftmax(b, v, func(log bool) func(e, x, t []float32) { return softVectors(s, log) })
		switch {
		case k.n > s.Lanes:
		case v.Op == op.LogSoftmax:
			k.short = s.LogSoftmaxRows
		default:
			k.short = s.SoftmaxRows
		}
		return k
	}
	return makeSoftmax(b, v, softRow[float32])
}

func makeSoftmax[T real](b *builder, v *ir.Value, row func(log bool) func(e, x, t []T)) *softmax[T] {
	x, axis := v.Args[0].Type, v.Attr.Axes[0]
	k := &softmax[T]{
		src: b.at(v.Args[0]), out: b.at(v), from: x.DType, to: v.Type.DType,
		n: x.Shape[axis], inner: x.Shape[axis+1:].Size(),
		row: row(v.Op == op.LogSoftmax),
	}
	if size := x.Shape.Size(); size > 0 {
		k.rows = size / k.n
	}
	k.group = max(1, 4*block/max(1, k.n))
	b.wantScratch(k.n*8 + 2*k.group*k.n*sizeOf[T]()) // an element in memory has at most 8 bytes
	return k
}

func (k *softmax[T]) run(r *run) {
	r.parallel(k, (k.rows+k.group-1)/k.group, k.rows*k.n*8)
}

func (k *softmax[T]) chunk(r *run, w *worker, c int) {
	src, dst := r.values[k.src], r.values[k.out]
	n, s, t := k.n, k.from.Size(), k.to.Size()
	lo, hi := c*k.group, min(k.rows, (c+1)*k.group)
	all := (hi - lo) * n
	raw := w.scratch[:8*n]
	between := viewOf[T](raw, n)
	x, e := viewOf[T](w.scratch[8*n:], all), viewOf[T](w.scratch[8*n+all*sizeOf[T]():], all)
	if k.inner == 1 {
		x = realView(src[lo*n*s:hi*n*s], k.from, x)
		out := dst[lo*n*t : hi*n*t]
		if t == sizeOf[T]() {
			e = dtype.View[T](out)
		}
		if k.short != nil {
			k.short(e, x, n)
		} else {
			for i := 0; i < all; i += n {
				k.row(e[i:i+n], x[i:i+n], between)
			}
		}
		if t != sizeOf[T]() {
			storeReal(out, e, k.to)
		}
		return
	}
	x, e = x[:n], e[:n]
	for row := lo; row < hi; row++ {
		first := row/k.inner*n*k.inner + row%k.inner
		scatter(raw[:n*s], src, s, first, 0, 1, n, 0, 0, k.inner, 1)
		copy(x, realView(raw[:n*s], k.from, x))
		k.row(e, x, between)
		storeReal(raw[:n*t], e, k.to)
		scatter(dst, raw[:n*t], t, 0, first, 1, n, 0, 0, 1, k.inner)
	}
}

// softRow is the softmax of a row or its logarithm.
func softRow[T real](log bool) func(e, x, t []T) {
	return func(e, x, t []T) {
		top := T(maxRun(x))
		for i, v := range x {
			t[i] = v - top
		}
		if !log {
			expAll(e, t)
			scale := 1 / sumRun[T, float64](e)
			for i, v := range e {
				e[i] = T(float64(v) * scale)
			}
			return
		}
		expAll(e, t)
		ln := math.Log(sumRun[T, float64](e))
		for i, v := range t {
			e[i] = T(float64(v) - ln)
		}
	}
}

// softVectors is softRow in assembly.
func softVectors(v *vec.Set, log bool) func(e, x, t []float32) {
	return func(e, x, t []float32) {
		top := float32(v.Max(x))
		if !log {
			v.MulScalar(e, e, float32(1/v.ExpSum(e, x, -top)))
			return
		}
		ln := math.Log(v.ExpSum(t, x, -top))
		v.AddScalar(e, x, -top)
		v.AddScalar(e, e, float32(-ln))
	}
}
