package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// softmaxGrad is SoftmaxGrad over one axis: rows as those of softmax, gathered
// where they do not lie side by side.
type softmaxGrad struct {
	passes
	y, grad, out       int
	from, gradType, to dtype.DType
	n, inner, rows     int
	group              int // rows of a chunk
	atY, atG, atOut    int
	atRaw              int
}

func newSoftmaxGrad(b *builder, v *ir.Value) kernel {
	y, axis := v.Args[0].Type, v.Attr.Axes[0]
	k := &softmaxGrad{
		passes: newPasses(), y: b.at(v.Args[0]), grad: b.at(v.Args[1]), out: b.at(v),
		from: y.DType, gradType: v.Args[1].Type.DType, to: v.Type.DType,
		n: y.Shape[axis], inner: y.Shape[axis+1:].Size(),
	}
	if size := y.Shape.Size(); size > 0 {
		k.rows = size / k.n
	}
	k.group = max(1, normalizeBlock/max(1, k.n))
	var l layout
	l.take(64)
	k.atY, k.atG, k.atOut, k.atRaw = l.take(4*k.n), l.take(4*k.n), l.take(4*k.n), l.take(8*k.n)
	b.wantScratch(int(l))
	return k
}

func (k *softmaxGrad) run(r *run) {
	r.parallel(k, ceilDiv(k.rows, k.group), 3*k.rows*k.n)
}

// bring returns a row in float32.
func (k *softmaxGrad) bring(w *worker, data []byte, i int, d dtype.DType, at int) []float32 {
	conv := viewOf[float32](w.scratch[at:], k.n)
	if k.inner == 1 {
		return row(data, i, k.n, d, conv)
	}
	raw := w.scratch[k.atRaw : k.atRaw+k.n*d.Size()]
	scatter(raw, data, d.Size(), i/k.inner*k.n*k.inner+i%k.inner, 0, 1, k.n, 0, 0, k.inner, 1)
	copy(conv, realView(raw, d, conv))
	return conv
}

func (k *softmaxGrad) chunk(r *run, w *worker, c int) {
	s, size := viewOf[float32](w.scratch, 4), k.to.Size()
	for i := c * k.group; i < min(k.rows, (c+1)*k.group); i++ {
		y, g := k.bring(w, r.values[k.y], i, k.from, k.atY), k.bring(w, r.values[k.grad], i, k.gradType, k.atG)
		sum := k.products(y, g, s)
		s[0], s[1], s[2], s[3] = 0, 1, -float32(sum), 0
		dst := r.values[k.out]
		if k.inner == 1 && k.to == dtype.Float32 {
			k.gradRow(dtype.View[float32](dst[i*k.n*4:(i+1)*k.n*4]), y, g, y, s)
			continue
		}
		out := viewOf[float32](w.scratch[k.atOut:], k.n)
		k.gradRow(out, y, g, y, s)
		if k.inner == 1 {
			storeReal(dst[i*k.n*size:(i+1)*k.n*size], out, k.to)
			continue
		}
		raw := w.scratch[k.atRaw : k.atRaw+k.n*size]
		storeReal(raw, out, k.to)
		scatter(dst, raw, size, 0, i/k.inner*k.n*k.inner+i%k.inner, 1, k.n, 0, 0, 1, k.inner)
	}
}
