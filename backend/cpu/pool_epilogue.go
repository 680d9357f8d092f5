package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// followedPool is a gradient of pooling and what follows it, after one another:
// the gradient goes to the memory that workers share. It is for gradients that
// are sums; windowPool itself does what follows others.
type followedPool struct {
	pool        exec.Kernel
	after       *epilogue
	dst         int // position of the result
	n, at, size int // elements of the gradient, their place and bytes
}

// followPool is the kernel of k and what follows v, if anything does.
func followPool[T lanes.Real](b *exec.Builder, v *ir.Value, k *pooling[T], pool exec.Kernel) exec.Kernel {
	if v.Attr.Body == nil {
		return pool
	}
	c := &followedPool{pool: pool, dst: k.dst, n: v.Type.Shape.Size(), size: k.dtype.Size()}
	c.at = tiling.RoundUp(4*k.batch*k.outSize*k.channels, ir.Align) // behind the places of maxima
	b.ReserveShared(c.at + c.n*c.size)
	c.after = newEpilogue(b, v, 2, k.channels)
	c.after.place(b, 0, 0)
	return c
}

func (k *followedPool) Run(r *exec.Run) {
	result := r.Values[k.dst]
	r.Values[k.dst] = r.Shared[k.at:][:k.n*k.size]
	k.pool.Run(r)
	r.Values[k.dst] = result
	r.Parallel(k, tiling.CeilDiv(k.n, stripElements), k.n)
}

func (k *followedPool) Chunk(r *exec.Run, w *exec.Worker, i int) {
	lo, hi := i*stripElements, min(k.n, (i+1)*stripElements)
	product := r.Shared[k.at+lo*k.size : k.at+hi*k.size]
	if k.after.product.Is16() {
		rounded := k.after.rows(w, hi-lo)
		lanes.ToF32(dtype.View[float32](rounded), product, k.after.product)
		product = rounded
	}
	k.after.apply(r, w, lo, hi-lo, 0, product)
}
