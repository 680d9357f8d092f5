package product

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
	sliceBytes = 1 << 20 // most bytes of a slice's result: it stays in L2
	leastDepth = 128     // of blocks of A that go into L2
)

// transpose makes AᵀB with few columns (BᵀA)ᵀ if it is cut into slices: it is A, the
// larger of both, that kernels then read where it lies, from end to end, a
// vector at a time. Of transposed A they read single elements, and it would be
// packed for the sake of a few columns. In 16 bits it is converted to panels that
// are wider than those of rows. Sums of slices transpose the result back.
func (k *product) transpose() {
	if p := k.problem(); !p.transposes() {
		return
	}
	whole := *k
	whole.TileN = k.N
	k.transposed = &whole
	k.m, k.N, k.a, k.b = k.N, k.m, k.b, k.a
	k.a.trans, k.b.trans = true, false
}

// partBytes is the size of a slice's result.
func (k *product) partBytes() int { return k.m * k.Slices.LD }

// sums is the task of adding up the results of slices: rows of a tile's columns.
type sums struct {
	*product
	add func(dst, a, b []float32)
}

// sumRows is the rows of a chunk of sums.
const sumRows = 32

func (k *sums) init(p *product) {
	k.product, k.add = p, lanes.Overlay(vec.Current()).Binary[op.Add]
	if p.transposed != nil && !p.Direct {
		p.scratch = max(p.scratch, 4*transposeRows*transposeCols)
	}
}

// chunks is how many there are.
func (k *sums) chunks() int {
	if k.transposed != nil {
		return tiling.CeilDiv(k.m, transposeRows) * tiling.CeilDiv(k.N, transposeCols)
	}
	return tiling.CeilDiv(k.m, sumRows) * tiling.CeilDiv(k.N, k.TileN)
}

func (k *sums) Chunk(r *exec.Run, w *exec.Worker, i int) {
	if k.transposed != nil {
		k.transposeBack(r, w, i)
		return
	}
	across := tiling.CeilDiv(k.N, k.TileN)
	t := Tile{Row: i / across * sumRows, Col: i % across * k.TileN, LD: k.Slices.LD}
	t.Rows, t.Cols = min(sumRows, k.m-t.Row), min(k.TileN, k.N-t.Col)
	t.Data = unsafe.Pointer(&r.Shared[t.Row*k.Slices.LD+4*t.Col])
	for i := range t.Rows {
		k.sum(r, t, i)
		if k.Direct {
			copy(lanes.ViewOf[float32](r.Values[k.Out][4*((t.Row+i)*k.N+t.Col):], t.Cols), t.at(i))
		}
	}
	if k.store != nil {
		k.store(r, w, t)
	}
}

// sum adds up row i of a tile of the slices' results in that of the first.
func (k *sums) sum(r *exec.Run, t Tile, i int) {
	sum := t.at(i)
	for s := 1; s < k.Slices.N; s++ {
		part := t
		part.Data = unsafe.Pointer(&r.Shared[s*k.partBytes()+t.Row*k.Slices.LD+4*t.Col])
		k.add(sum, sum, part.at(i))
	}
}

// transposeRows and transposeCols are the rows and columns of slices' results that a chunk
// transposes: as many as a vector has elements, and far enough along.
const transposeRows, transposeCols = 16, 256

// transposeBack adds up a part of the slices' results, and stores its columns as rows.
func (k *sums) transposeBack(r *exec.Run, w *exec.Worker, i int) {
	across := tiling.CeilDiv(k.N, transposeCols)
	from := Tile{Row: i / across * transposeRows, Col: i % across * transposeCols, LD: k.Slices.LD}
	from.Rows, from.Cols = min(transposeRows, k.m-from.Row), min(transposeCols, k.N-from.Col)
	from.Data = unsafe.Pointer(&r.Shared[from.Row*k.Slices.LD+4*from.Col])
	for j := range from.Rows {
		k.sum(r, from, j)
	}
	t := Tile{Row: from.Col, Col: from.Row, Rows: from.Cols, Cols: from.Rows, LD: 4 * from.Rows}
	if k.Direct {
		t.LD = 4 * k.m
		t.Data = unsafe.Pointer(&r.Values[k.Out][4*(t.Row*k.m+t.Col)])
	} else {
		t.Data = unsafe.Pointer(&w.Scratch[0])
	}
	lanes := uint(1)<<t.Cols - 1
	k.Set.Transpose[gemm.F32](t.Data, t.LD, from.Data, k.Slices.LD, t.Rows, lanes, lanes)
	if k.store != nil {
		k.store(r, w, t)
	}
}
