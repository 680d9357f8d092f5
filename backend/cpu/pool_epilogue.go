package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// followedPool is a gradient of pooling and what follows it, after one another:
// the gradient goes to the memory that workers share. It is for gradients that
// are sums; windowPool itself does what follows others.
type followedPool struct {
	pool        kernel
	after       *epilogue
	dst         int // position of the result
	n, at, size int // elements of the gradient, their place and bytes
}

// followPool is the kernel of k and what follows v, if anything does.
func followPool[T real](b *builder, v *ir.Value, k *pooling[T], pool kernel) kernel {
	if v.Attr.Body == nil {
		return pool
	}
	c := &followedPool{pool: pool, dst: k.dst, n: v.Type.Shape.Size(), size: k.dtype.Size()}
	c.at = roundUp(4*k.batch*k.outSize*k.channels, ir.Align) // behind the places of maxima
	b.wantShared(c.at + c.n*c.size)
	c.after = newEpilogue(b, v, 2, k.channels)
	c.after.place(b, 0, 0)
	return c
}

func (k *followedPool) run(r *run) {
	result := r.values[k.dst]
	r.values[k.dst] = r.shared[k.at:][:k.n*k.size]
	k.pool.run(r)
	r.values[k.dst] = result
	r.parallel(k, ceilDiv(k.n, stripElements), k.n)
}

func (k *followedPool) chunk(r *run, w *worker, i int) {
	lo, hi := i*stripElements, min(k.n, (i+1)*stripElements)
	product := r.shared[k.at+lo*k.size : k.at+hi*k.size]
	if k.after.product.Is16() {
		rounded := k.after.rows(w, hi-lo)
		toF32(dtype.View[float32](rounded), product, k.after.product)
		product = rounded
	}
	k.after.apply(r, w, lo, hi-lo, 0, product)
}
