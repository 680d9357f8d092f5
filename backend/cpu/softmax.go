package cpu

import (
	"math"

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
	log      bool
	exp      func(dst, a []T)
}

func newSoftmax(b *builder, v *ir.Value) kernel {
	if v.Args[0].Type.DType == dtype.Float64 {
		return makeSoftmax(b, v, loopsF64)
	}
	return makeSoftmax(b, v, loopsF32)
}

func makeSoftmax[T real](b *builder, v *ir.Value, l *loops[T]) kernel {
	x, axis := v.Args[0].Type, v.Attr.Axes[0]
	k := &softmax[T]{
		src: b.at(v.Args[0]), out: b.at(v), from: x.DType, to: v.Type.DType,
		n: x.Shape[axis], inner: x.Shape[axis+1:].Size(),
		log: v.Op == op.LogSoftmax, exp: l.unary[op.Exp],
	}
	if size := x.Shape.Size(); size > 0 {
		k.rows = size / k.n
	}
	k.group = max(1, 2*block/max(1, k.n))
	b.wantScratch(k.n * (8 + 2*sizeOf[T]())) // an element in memory has at most 8 bytes
	return k
}

func (k *softmax[T]) run(r *run) {
	r.parallel(k, (k.rows+k.group-1)/k.group, k.rows*k.n*costly)
}

func (k *softmax[T]) chunk(r *run, w *worker, c int) {
	src, dst := r.values[k.src], r.values[k.out]
	n, s, t := k.n, k.from.Size(), k.to.Size()
	raw := w.scratch[:8*n]
	x, e := viewOf[T](w.scratch[8*n:], n), viewOf[T](w.scratch[(8+sizeOf[T]())*n:], n)
	for row := c * k.group; row < min(k.rows, (c+1)*k.group); row++ {
		if k.inner == 1 {
			copy(x, realView(src[row*n*s:(row+1)*n*s], k.from, x))
			k.row(x, e)
			storeReal(dst[row*n*t:(row+1)*n*t], e, k.to)
			continue
		}
		first := row/k.inner*n*k.inner + row%k.inner
		scatter(raw[:n*s], src, s, first, 0, 1, n, 0, 0, k.inner, 1)
		copy(x, realView(raw[:n*s], k.from, x))
		k.row(x, e)
		storeReal(raw[:n*t], e, k.to)
		scatter(dst, raw[:n*t], t, 0, first, 1, n, 0, 0, 1, k.inner)
	}
}

// row computes e from x, which it overwrites.
func (k *softmax[T]) row(x, e []T) {
	top := T(maxRun(x))
	for i, v := range x {
		x[i] = v - top
	}
	k.exp(e, x)
	var sum float64
	for rest := e; len(rest) > 0; {
		n := min(len(rest), foldBlock)
		sum += sumRun[T, float64](rest[:n])
		rest = rest[n:]
	}
	if k.log {
		ln := math.Log(sum)
		for i, v := range x {
			e[i] = T(float64(v) - ln)
		}
		return
	}
	scale := 1 / sum
	for i, v := range e {
		e[i] = T(float64(v) * scale)
	}
}
