package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// softmaxGrad is SoftmaxGrad over one axis: rows as those of softmax, gathered
// in float32 where they do not lie side by side.
type softmaxGrad struct {
	passes
	y, grad, out    int
	from, gradType  dtype.DType
	result          dtype.DType
	n, inner, rows  int
	group           int // rows of a chunk
	atY, atG, atOut int
	atRaw           int
}

func newSoftmaxGrad(b *builder, v *ir.Value) kernel {
	y, axis := v.Args[0].Type, v.Attr.Axes[0]
	k := &softmaxGrad{
		y: b.at(v.Args[0]), grad: b.at(v.Args[1]), out: b.at(v),
		from: y.DType, gradType: v.Args[1].Type.DType, result: v.Type.DType,
		n: y.Shape[axis], inner: y.Shape[axis+1:].Size(),
	}
	if k.inner == 1 {
		k.passes = newPasses(v.Type, k.n, k.from, k.gradType)
	} else {
		k.passes = newPasses(op.Type{DType: dtype.Float32, Shape: op.Shape{k.n}}, k.n, dtype.Float32)
	}
	if size := y.Shape.Size(); size > 0 {
		k.rows = size / k.n
	}
	k.group = max(1, normalizeBlock/max(1, k.n))
	var l layout
	l.take(4 * passNumbers)
	k.atY, k.atG, k.atOut, k.atRaw = l.take(4*k.n), l.take(4*k.n), l.take(4*k.n), l.take(8*k.n)
	b.wantScratch(int(l))
	return k
}

func (k *softmaxGrad) run(r *run) {
	r.parallel(k, ceilDiv(k.rows, k.group), 3*k.rows*k.n)
}

func (k *softmaxGrad) chunk(r *run, w *worker, c int) {
	if k.inner == 1 {
		k.rowsOf(r, w, c)
		return
	}
	s, size := viewOf[float32](w.scratch, passNumbers), k.result.Size()
	out := w.scratch[k.atOut:][:4*k.n]
	for i := c * k.group; i < min(k.rows, (c+1)*k.group); i++ {
		y, g := k.gather(w, r.values[k.y], i, k.from, k.atY), k.gather(w, r.values[k.grad], i, k.gradType, k.atG)
		k.softmaxGradRow(out, y, g, float32(k.products(y, g, s, nil)), s, nil)
		raw := w.scratch[k.atRaw : k.atRaw+k.n*size]
		storeReal(raw, dtype.View[float32](out), k.result)
		scatter(r.values[k.out], raw, size, 0, k.first(i), 1, k.n, 0, 0, 1, k.inner)
	}
}

// rowsOf is chunk for rows side by side.
func (k *softmaxGrad) rowsOf(r *run, w *worker, c int) {
	s, size := viewOf[float32](w.scratch, passNumbers), k.n*k.to.Size()
	for i := c * k.group; i < min(k.rows, (c+1)*k.group); i++ {
		y := k.row(r.values[k.y], i, k.n, k.from, w.scratch[k.atY:])
		g := k.row(r.values[k.grad], i, k.n, k.gradType, w.scratch[k.atG:])
		sum := k.products(y, g, s, k.next(r.values[k.y], i, k.n, k.from))
		to := r.values[k.out][i*size : (i+1)*size]
		out := to
		if k.staged {
			out = w.scratch[k.atOut:][:4*k.n]
		}
		k.softmaxGradRow(out, y, g, float32(sum), s, k.next(r.values[k.grad], i, k.n, k.gradType))
		if k.staged {
			k.store(to, out, w.scratch[k.atRaw:])
		}
	}
	k.done()
}

// first is where row i begins, whose elements are inner apart.
func (k *softmaxGrad) first(i int) int { return i/k.inner*k.n*k.inner + i%k.inner }

// gather returns a row in float32.
func (k *softmaxGrad) gather(w *worker, data []byte, i int, d dtype.DType, at int) []byte {
	raw := w.scratch[k.atRaw : k.atRaw+k.n*d.Size()]
	scatter(raw, data, d.Size(), k.first(i), 0, 1, k.n, 0, 0, k.inner, 1)
	conv := viewOf[float32](w.scratch[at:], k.n)
	copy(conv, realView(raw, d, conv))
	return bytesOf(conv)
}
