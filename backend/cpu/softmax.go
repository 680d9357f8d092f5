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
	rowStore
	src, out int
	from     dtype.DType
	n, inner int
	rows     int
	group    int
	between  int // bytes of scratch memory for what comes between
	// row is e from x, with t, of twice the length and more, for what comes
	// between, and ahead, which is read next.
	row   func(e, x, t []T, ahead []byte)
	short func(e, x []T, n int) // many short rows, where there is assembly
}

func newSoftmax(b *builder, v *ir.Value) kernel {
	if v.Args[0].Type.DType == dtype.Float64 {
		return makeSoftmax(b, v, softRow[float64])
	}
	if s := vectors(); s != nil {
		k := makeSoftmax(b, v, func(log bool) func(e, x, t []float32, ahead []byte) { return softVectors(s, log) })
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

func makeSoftmax[T real](b *builder, v *ir.Value, row func(log bool) func(e, x, t []T, ahead []byte)) *softmax[T] {
	x, axis := v.Args[0].Type, v.Attr.Axes[0]
	k := &softmax[T]{
		rowStore: rowStoreOf(v.Type), src: b.at(v.Args[0]), out: b.at(v), from: x.DType,
		n: x.Shape[axis], inner: x.Shape[axis+1:].Size(),
		row: row(v.Op == op.LogSoftmax),
	}
	if size := x.Shape.Size(); size > 0 {
		k.rows = size / k.n
	}
	k.group = max(1, 4*block/max(1, k.n))
	k.between = roundUp(2*k.n*sizeOf[T]()+4*vec.Line, vec.Line)
	b.wantScratch(k.between + 2*k.group*k.n*sizeOf[T]())
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
	raw := w.scratch[:k.between]
	between := dtype.View[T](raw)
	atE := k.between + all*sizeOf[T]()
	x, e := viewOf[T](w.scratch[k.between:], all), viewOf[T](w.scratch[atE:], all)
	if k.inner == 1 {
		x = realView(src[lo*n*s:hi*n*s], k.from, x)
		out := dst[lo*n*t : hi*n*t]
		direct := t == sizeOf[T]() && !k.around
		if direct {
			e = dtype.View[T](out)
		}
		if k.short != nil {
			k.short(e, x, n)
		} else {
			for i := 0; i < all; i += n {
				k.row(e[i:i+n], x[i:i+n], between, src[(lo*n+i+n)*s:])
			}
		}
		if !direct { // x was read
			k.store(out, w.scratch[atE:][:4*all], w.scratch[k.between:])
			k.done()
		}
		return
	}
	x, e = x[:n], e[:n]
	for row := lo; row < hi; row++ {
		first := row/k.inner*n*k.inner + row%k.inner
		scatter(raw[:n*s], src, s, first, 0, 1, n, 0, 0, k.inner, 1)
		copy(x, realView(raw[:n*s], k.from, x))
		k.row(e, x, between, nil)
		storeReal(raw[:n*t], e, k.to)
		scatter(dst, raw[:n*t], t, 0, first, 1, n, 0, 0, 1, k.inner)
	}
}

// softRow is the softmax of a row or its logarithm.
func softRow[T real](log bool) func(e, x, t []T, ahead []byte) {
	return func(e, x, t []T, _ []byte) {
		t = t[:len(x)]
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

// softVectors is softRow in assembly: powers of two, which a common factor of
// all takes to those of e.
func softVectors(v *vec.Set, log bool) func(e, x, t []float32, ahead []byte) {
	p, extreme := passes{&v.Passes, v.Lanes}, softRow[float32](log)
	return func(e, x, t []float32, ahead []byte) {
		top, n := v.Max(x), len(x)
		between, s, rest := t[:n], t[n:n+3], t[n+3:]
		if !(math.Abs(top) < 1<<100) { // the product below may overflow, or is NaN
			extreme(e, x, t, ahead)
			return
		}
		shift := float32(-top * math.Log2E)
		if !log {
			sum := p.exp2Sum(e, x, math.Log2E, shift, s, rest, ahead)
			v.MulScalar(e, e, float32(1/sum))
			return
		}
		sum := p.exp2Sum(between, x, math.Log2E, shift, s, rest, ahead)
		const scale = float32(math.Log2E)
		s[0] = float32(top)
		s[1] = float32(math.Log(sum) - math.Ln2*(float64(shift)+top*float64(scale)))
		p.lessRow(e, x, s)
	}
}
