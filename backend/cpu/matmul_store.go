package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// tileStore takes a finished tile of a product while it is in the cache, and
// writes the result's rows: converted, or with whatever follows the product
// applied. It runs on the worker that computed the tile, once for each element
// of the result; tiles are those of shapes, not of workers. Scratch memory
// that the store wants must lie beyond the product's own.
type tileStore func(r *exec.Run, w *exec.Worker, t resultTile)

// resultTile is a part of a product's result before it is rounded. Rows are
// those of the result as a matrix in row-major order: batches follow each
// other.
type resultTile struct {
	row, col   int
	rows, cols int
	step       int            // rows of the result from a row to the next, unless it is the next
	data       unsafe.Pointer // float32
	lead       int            // bytes from a row to the next
}

// rowOf is where row i of the tile lies in the result.
func (t *resultTile) rowOf(i int) int { return t.row + i*max(1, t.step) }

// at is row i of the tile.
func (t resultTile) at(i int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(t.data, i*t.lead)), t.cols)
}

// convert is the store of a plain product: it rounds to the result's type.
func (k *product) convert(r *exec.Run, _ *exec.Worker, t resultTile) {
	size := k.to.Size()
	if t.lead == 4*k.n && t.cols == k.n && t.step <= 1 {
		t.rows, t.cols = 1, t.rows*t.cols // rows follow each other
	}
	for i := range t.rows {
		at := (t.rowOf(i)*k.n + t.col) * size
		k.narrowRow(r.Values[k.out][at:at+t.cols*size], t, i, k.to)
	}
}

// narrowRow writes row i of a tile as elements of type d.
func (k *product) narrowRow(to []byte, t resultTile, i int, d dtype.DType) {
	switch d {
	case dtype.BFloat16:
		k.set.Narrow[gemm.BF16](unsafe.Pointer(&to[0]), unsafe.Add(t.data, i*t.lead), t.cols)
	case dtype.Float16:
		k.set.Narrow[gemm.F16](unsafe.Pointer(&to[0]), unsafe.Add(t.data, i*t.lead), t.cols)
	case dtype.Float32:
		copy(to, unsafe.Slice((*byte)(unsafe.Add(t.data, i*t.lead)), 4*t.cols))
	default:
		lanes.StoreReal(to, t.at(i), d)
	}
}
