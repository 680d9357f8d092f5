package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// softmaxGrad is SoftmaxGrad over one axis: rows as those of softmax, gathered
// in float32 where they do not lie side by side.
type softmaxGrad struct {
	lanes.Rows
	y, grad, out    int
	from, gradType  dtype.DType
	result          dtype.DType
	n, inner, rows  int
	group           int // rows of a chunk
	atY, atG, atOut int
	atRaw           int
}

func newSoftmaxGrad(b *exec.Builder, v *ir.Value) exec.Kernel {
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
		scatter(r.Values[k.out], raw, size, 0, k.first(i), 1, k.n, 0, 0, 1, k.inner)
	}
}

// rowsOf is chunk for rows side by side.
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

// first is where row i begins, whose elements are inner apart.
func (k *softmaxGrad) first(i int) int { return i/k.inner*k.n*k.inner + i%k.inner }

// gather returns a row in float32.
func (k *softmaxGrad) gather(w *exec.Worker, data []byte, i int, d dtype.DType, at int) []byte {
	raw := w.Scratch[k.atRaw : k.atRaw+k.n*d.Size()]
	scatter(raw, data, d.Size(), k.first(i), 0, 1, k.n, 0, 0, k.inner, 1)
	conv := lanes.ViewOf[float32](w.Scratch[at:], k.n)
	copy(conv, lanes.RealView(raw, d, conv))
	return lanes.BytesOf(conv)
}
