package pooling

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// pooledChain is a pooling gradient that is a sum, followed by its epilogue: the
// gradient is stored in the shared memory. Vector itself applies the epilogue of other
// gradients.
type pooledChain struct {
	pool        exec.Kernel
	after       *elementwise.Epilogue
	dst         int // position of the result
	n, at, size int // elements of the gradient, its offset and element size
}

// newPooledChain returns pool with the epilogue of v, if it has one.
func newPooledChain[T lanes.Real](b *exec.Builder, v *ir.Value, k *pooling[T], pool exec.Kernel) exec.Kernel {
	if v.Attr.Body == nil {
		return pool
	}
	c := &pooledChain{pool: pool, dst: k.dst, n: v.Type.Shape.Size(), size: k.dtype.Size()}
	c.at = tiling.RoundUp(4*k.Batch*k.OutSize*k.channels, ir.Align) // after the places of maxima
	b.ReserveShared(c.at + c.n*c.size)
	c.after = elementwise.NewEpilogue(b, v, 2, k.channels)
	c.after.Place(b, 0, 0)
	return c
}

func (k *pooledChain) Run(r *exec.Run) {
	result := r.Values[k.dst]
	r.Values[k.dst] = r.Shared[k.at:][:k.n*k.size]
	k.pool.Run(r)
	r.Values[k.dst] = result
	r.Parallel(k, tiling.CeilDiv(k.n, elementwise.StripElements), k.n)
}

func (k *pooledChain) Chunk(r *exec.Run, w *exec.Worker, i int) {
	lo, hi := i*elementwise.StripElements, min(k.n, (i+1)*elementwise.StripElements)
	product := r.Shared[k.at+lo*k.size : k.at+hi*k.size]
	if k.after.Product.Is16() {
		rounded := k.after.Rows(w, hi-lo)
		lanes.ToF32(dtype.View[float32](rounded), product, k.after.Product)
		product = rounded
	}
	k.after.Apply(r, w, lo, hi-lo, 0, product)
}
