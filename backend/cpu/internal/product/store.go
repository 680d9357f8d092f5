package product

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// tileStore writes the rows of a finished tile to the result while the tile is in the cache:
// converted, or through the epilogue. It runs on the worker that computed the tile, once for
// each element of the result; tiles depend on shapes, not on workers. The store's scratch
// memory must be after the product's.
type tileStore func(r *exec.Run, w *exec.Worker, t Tile)

// Tile is a part of a product's result before it is rounded. Rows are those of the result as a
// matrix in row-major order, in which batches are consecutive.
type Tile struct {
	Row, Col   int
	Rows, Cols int
	Step       int            // rows of the result from a row of the tile to the next; 0 is 1
	Data       unsafe.Pointer // float32
	LD         int            // bytes from a row to the next
}

// Writer writes finished tiles of a product to its result.
type Writer struct {
	Set   *gemm.Set
	N     int // columns of the result
	TileN int // the most columns of a tile
	Out   int // position of the result
	To    dtype.DType
	After *elementwise.Epilogue // or nil
}

// rowOf returns the row of the result of row i of the tile.
func (t *Tile) rowOf(i int) int { return t.Row + i*max(1, t.Step) }

// at returns row i of the tile.
func (t Tile) at(i int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Add(t.Data, i*t.LD)), t.Cols)
}

// Convert is the store of a plain product: it rounds to the result's type.
func (k *Writer) Convert(r *exec.Run, _ *exec.Worker, t Tile) {
	size := k.To.Size()
	if t.LD == 4*k.N && t.Cols == k.N && t.Step <= 1 {
		t.Rows, t.Cols = 1, t.Rows*t.Cols // rows are contiguous
	}
	for i := range t.Rows {
		at := (t.rowOf(i)*k.N + t.Col) * size
		k.narrowRow(r.Values[k.Out][at:at+t.Cols*size], t, i, k.To)
	}
}

// narrowRow writes row i of a tile as elements of type d.
func (k *Writer) narrowRow(to []byte, t Tile, i int, d dtype.DType) {
	switch d {
	case dtype.BFloat16:
		k.Set.Narrow[gemm.BF16](unsafe.Pointer(&to[0]), unsafe.Add(t.Data, i*t.LD), t.Cols)
	case dtype.Float16:
		k.Set.Narrow[gemm.F16](unsafe.Pointer(&to[0]), unsafe.Add(t.Data, i*t.LD), t.Cols)
	case dtype.Float32:
		copy(to, unsafe.Slice((*byte)(unsafe.Add(t.Data, i*t.LD)), 4*t.Cols))
	default:
		lanes.StoreReal(to, t.at(i), d)
	}
}

// StoreEpilogue is the store of a product with an epilogue.
func (k *Writer) StoreEpilogue(r *exec.Run, w *exec.Worker, t Tile) {
	e, strided := k.After, t.Step > 1
	if (t.Cols < k.N || strided) && t.Rows > 1 && t.Cols <= elementwise.GatherCols {
		rows := lanes.Block / t.Cols
		for i := 0; i < t.Rows; i += rows {
			n := min(rows, t.Rows-i)
			e.Parts(r, w, t.rowOf(i)*k.N+t.Col, max(1, t.Step)*k.N, n, t.Cols, k.TileN, takeRows(e, w, t, i, n))
		}
		return
	}
	strip := 1
	if !strided {
		strip = e.Strip(t.Cols)
	}
	for i := 0; i < t.Rows; i += strip {
		n := min(strip, t.Rows-i)
		e.Apply(r, w, t.rowOf(i)*k.N+t.Col, n*t.Cols, k.TileN, takeRows(e, w, t, i, n))
	}
}

// takeRows returns n rows of a tile from row i on in the layout that the chain reads:
// contiguous, rounded to the type of the product. It returns the tile's own memory where that
// has this layout.
func takeRows(e *elementwise.Epilogue, w *exec.Worker, t Tile, i, n int) []byte {
	if t.LD == 4*t.Cols { // rows are one long row
		t.Data, t.Cols, i, n = unsafe.Add(t.Data, i*t.LD), n*t.Cols, 0, 1
	}
	if n == 1 && e.Operands[0].DType == dtype.Float32 && !e.Product.Is16() {
		return lanes.BytesOf(t.at(i))
	}
	to := e.Rows(w, n*t.Cols)
	row := len(to) / n
	for j := range n {
		elementwise.PutProduct(e, to[j*row:(j+1)*row], t.at(i+j))
	}
	return to
}
