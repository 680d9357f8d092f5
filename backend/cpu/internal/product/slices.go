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

// A product with a long inner dimension and a small result, such as the gradient of a weight,
// is cut along the inner dimension (split-K): each worker reads a slice of both operands once,
// in the order of memory, and computes a whole result from it in shared memory. With tiles of
// the result, each worker would read short pieces of all rows of A, which is slow where A is
// transposed.

const (
	leastSlice = 512     // elements of the inner dimension, at least, in a slice
	sliceBytes = 1 << 20 // most bytes of a slice's result: it stays in L2
	leastDepth = 128     // elements of the inner dimension of a block of A that fits in L2, at least
)

// transpose turns AᵀB with few columns into (BᵀA)ᵀ if it is cut into slices: kernels then read
// A, the larger operand, in place, in the order of memory, a vector at a time. From a
// transposed A they read single elements, and A would be packed for a few columns. In 16 bits
// it is converted to panels that are wider than those of rows. The task that adds up slices
// transposes the result back.
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

// partBytes returns the size of a slice's result.
func (k *product) partBytes() int { return k.m * k.Slices.LD }

// sums is the task of adding up the results of slices; a chunk is some rows of a tile's
// columns.
type sums struct {
	*product
	add func(dst, a, b []float32)
}

// sumRows is the number of rows of a chunk of sums.
const sumRows = 32

func (k *sums) init(p *product) {
	k.product, k.add = p, lanes.Overlay(vec.Native()).Binary[op.Add]
	if p.transposed != nil && !p.Direct {
		p.scratch = max(p.scratch, 4*transposeRows*transposeCols)
	}
}

// chunks returns the number of chunks.
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

// sum adds row i of a tile of the other slices' results to that of the first.
func (k *sums) sum(r *exec.Run, t Tile, i int) {
	sum := t.at(i)
	for s := 1; s < k.Slices.N; s++ {
		part := t
		part.Data = unsafe.Pointer(&r.Shared[s*k.partBytes()+t.Row*k.Slices.LD+4*t.Col])
		k.add(sum, sum, part.at(i))
	}
}

// transposeRows and transposeCols are the rows and columns of the slices' results in a chunk
// that transposes: a vector's elements, and enough columns to read memory in order.
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
