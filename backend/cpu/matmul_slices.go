package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
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

// parts is how many parts the inner dimension may be cut into, 0 if that does
// not pay.
func (k *product) parts() int {
	parts := min(tiling.MinChunks, k.k/leastSlice)
	if parts < tiling.MinChunks/2 || k.batches != 1 || 4*k.m*k.n > sliceBytes || k.m*k.n*k.k < tiling.MinChunks*chunkMACs {
		return 0
	}
	return parts
}

// turn makes AᵀB with few columns (BᵀA)ᵀ if it is cut into slices: it is A, the
// larger of both, that kernels then read where it lies, from end to end, a
// vector at a time. Of transposed A they read single elements, and it would be
// packed for the sake of a few columns. In 16 bits it is converted to panels that
// are wider than those of rows. Sums of slices turn the result back.
func (k *product) turn() {
	if t := k.tiles; t.Copies.Inner == nil || k.a.element == gemm.Pairs || !k.a.trans || k.b.trans || k.n > 2*t.NR || k.m < 2*k.n || k.parts() == 0 {
		return
	}
	whole := *k
	whole.tileN = k.n
	k.turned = &whole
	k.m, k.n, k.a, k.b = k.n, k.m, k.b, k.a
	k.a.trans, k.b.trans = true, false
}

// slice cuts the inner dimension into parts if that pays: it sets slices and
// sliceK, and the depth and tiles that go with them.
func (k *product) slice() {
	k.slices, k.sliceK = 1, k.k
	parts := k.parts()
	if parts == 0 {
		return
	}
	k.sliceK = tiling.RoundUp(tiling.CeilDiv(k.k, parts), packDepth)
	k.slices = tiling.CeilDiv(k.k, k.sliceK)
	k.depth = min(k.depth, tiling.Even(k.sliceK, max(leastDepth, blockBytes/(4*k.m)), packDepth))
	if k.turned != nil {
		k.depth = tiling.Even(k.sliceK, copyDepth, packDepth)
	}
	k.tileM = tiling.Even(k.m, max(k.tileM, blockBytes/(4*k.depth)), 1)
	k.tileN = tiling.Even(k.n, mostCols, k.tiles.NR)
	k.partLead = 4*tiling.RoundUp(k.n, k.tiles.NR) + rowPad
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
	k.product, k.add = p, lanes.Overlay(vec.Current()).Binary[op.Add]
	if p.turned != nil && !p.direct {
		p.scratch = max(p.scratch, 4*turnRows*turnCols)
	}
}

// chunks is how many there are.
func (k *sums) chunks() int {
	if k.turned != nil {
		return tiling.CeilDiv(k.m, turnRows) * tiling.CeilDiv(k.n, turnCols)
	}
	return tiling.CeilDiv(k.m, sumRows) * tiling.CeilDiv(k.n, k.tileN)
}

func (k *sums) Chunk(r *exec.Run, w *exec.Worker, i int) {
	if k.turned != nil {
		k.turnBack(r, w, i)
		return
	}
	across := tiling.CeilDiv(k.n, k.tileN)
	t := resultTile{row: i / across * sumRows, col: i % across * k.tileN, lead: k.partLead}
	t.rows, t.cols = min(sumRows, k.m-t.row), min(k.tileN, k.n-t.col)
	t.data = unsafe.Pointer(&r.Shared[t.row*k.partLead+4*t.col])
	for i := range t.rows {
		k.sum(r, t, i)
		if k.direct {
			copy(lanes.ViewOf[float32](r.Values[k.out][4*((t.row+i)*k.n+t.col):], t.cols), t.at(i))
		}
	}
	if k.store != nil {
		k.store(r, w, t)
	}
}

// sum adds up row i of a tile of the slices' results in that of the first.
func (k *sums) sum(r *exec.Run, t resultTile, i int) {
	sum := t.at(i)
	for s := 1; s < k.slices; s++ {
		part := t
		part.data = unsafe.Pointer(&r.Shared[s*k.partBytes()+t.row*k.partLead+4*t.col])
		k.add(sum, sum, part.at(i))
	}
}

// turnRows and turnCols are the rows and columns of slices' results that a chunk
// turns: as many as a vector has elements, and far enough along.
const turnRows, turnCols = 16, 256

// turnBack adds up a part of the slices' results, and stores its columns as rows.
func (k *sums) turnBack(r *exec.Run, w *exec.Worker, i int) {
	across := tiling.CeilDiv(k.n, turnCols)
	from := resultTile{row: i / across * turnRows, col: i % across * turnCols, lead: k.partLead}
	from.rows, from.cols = min(turnRows, k.m-from.row), min(turnCols, k.n-from.col)
	from.data = unsafe.Pointer(&r.Shared[from.row*k.partLead+4*from.col])
	for j := range from.rows {
		k.sum(r, from, j)
	}
	t := resultTile{row: from.col, col: from.row, rows: from.cols, cols: from.rows, lead: 4 * from.rows}
	if k.direct {
		t.lead = 4 * k.m
		t.data = unsafe.Pointer(&r.Values[k.out][4*(t.row*k.m+t.col)])
	} else {
		t.data = unsafe.Pointer(&w.Scratch[0])
	}
	lanes := uint(1)<<t.cols - 1
	k.set.Transpose[gemm.F32](t.data, t.lead, from.data, k.partLead, t.rows, lanes, lanes)
	if k.store != nil {
		k.store(r, w, t)
	}
}
