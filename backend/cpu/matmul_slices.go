package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// A product with a long inner dimension and a small result, as gradients of
// weights are, is cut along the inner dimension: each worker takes a slice of
// both operands, reads it once, from end to end, and makes a whole result of
// it, in the memory that workers share. Tiles of the result would leave each
// worker short pieces of all rows of A, which is slow where A is transposed.

const (
	leastSlice = 512     // steps of the inner dimension that pay for adding up a result
	sliceBytes = 1 << 20 // most bytes of a slice's result: it stays in the second cache
	leastDepth = 128     // of blocks of A that go into the second cache
)

// slice cuts the inner dimension into parts if that pays: it sets slices and
// sliceK, and the depth and tiles that go with them.
func (k *product) slice() {
	k.slices, k.sliceK = 1, k.k
	parts := min(wantChunks, k.k/leastSlice)
	if parts < wantChunks/2 || k.batches != 1 || 4*k.m*k.n > sliceBytes || k.m*k.n*k.k < wantChunks*chunkMACs {
		return
	}
	k.sliceK = roundUp(ceilDiv(k.k, parts), packDepth)
	k.slices = ceilDiv(k.k, k.sliceK)
	k.depth = min(k.depth, even(k.sliceK, max(leastDepth, blockBytes/(4*k.m)), packDepth))
	k.tileM = even(k.m, max(k.tileM, blockBytes/(4*k.depth)), 1)
	k.tileN = even(k.n, mostCols, k.tiles.NR)
	k.partLead = 4*roundUp(k.n, k.tiles.NR) + rowPad
}

// partBytes is the size of a slice's result.
func (k *product) partBytes() int { return k.m * k.partLead }

// sums is the task of adding up the results of slices: rows of a tile's columns.
type sums struct {
	*product
	add func(dst, a, b []float32)
}

// sumRows is the rows of a chunk of sums.
const sumRows = 32

func (k *sums) init(p *product) {
	k.product, k.add = p, overlay(vectors()).binary[op.Add]
}

// chunks is how many there are.
func (k *sums) chunks() int { return ceilDiv(k.m, sumRows) * ceilDiv(k.n, k.tileN) }

func (k *sums) chunk(r *run, w *worker, i int) {
	across := ceilDiv(k.n, k.tileN)
	t := resultTile{row: i / across * sumRows, col: i % across * k.tileN, lead: k.partLead}
	t.rows, t.cols = min(sumRows, k.m-t.row), min(k.tileN, k.n-t.col)
	t.data = unsafe.Pointer(&r.shared[t.row*k.partLead+4*t.col])
	for i := range t.rows {
		sum := t.at(i)
		for s := 1; s < k.slices; s++ {
			part := t
			part.data = unsafe.Pointer(&r.shared[s*k.partBytes()+t.row*k.partLead+4*t.col])
			k.add(sum, sum, part.at(i))
		}
		if k.direct {
			copy(viewOf[float32](r.values[k.out][4*((t.row+i)*k.n+t.col):], t.cols), sum)
		}
	}
	if k.store != nil {
		k.store(r, w, t)
	}
}
