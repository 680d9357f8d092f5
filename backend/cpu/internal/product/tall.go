package product

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// Limits of products by tall kernels, in bytes and in elements of the inner dimension.
const (
	tallBlock = 16 << 10 // of A that is multiplied with all panels: it stays in L1
	tallPanel = 8 << 10  // of a panel of B, at most, of which several stay in L1
	tallDepth = 128      // at most, where other kernels prefetch: of longer sums a call is a small part
	tallSplit = 6        // rows of a tile, at most, of which the last two may be cut evenly; measured on AVX2
)

// zero is the least result after a relu.
var zero float32

// tall reports whether the tile is computed by kernels that go down the rows of A: they read
// it in place, and write the result, with no more than a bias and a relu.
func (c *chunk) tall() bool {
	k := c.stripe
	if k.tiles.Tall == nil || c.inner || !k.Direct || k.Slices.N > 1 || k.Pack.A != AInPlace || c.depth < k.k || c.tile.Rows < k.tiles.MR || c.following[0] != nil {
		return false
	}
	if c.tile.Cols%k.tiles.NR != 0 || c.packs && k.Pack.CopyB || k.tiles.Prefetch.Rows != nil && k.k > tallDepth {
		return false
	}
	return k.tileEpilogue == nil || k.tileEpilogue.ld == 0
}

// multiplyTall is multiply by tall kernels. Blocks of rows are multiplied with all panels if
// panels are small, else all rows with a panel.
func (c *chunk) multiplyTall() {
	k, tile, t := c.stripe, &c.tile, c.tiles
	c.operandB()
	panels, block := tiling.CeilDiv(tile.Cols, t.NR), tile.Rows
	if 4*t.NR*c.cells <= tallPanel && k.Pack.B != BPanel {
		block = max(1, tallBlock/(4*t.MR*c.cells)) * t.MR
	}
	for at := 0; at < tile.Rows; at += block {
		rows := min(block, tile.Rows-at)
		for panel := range panels {
			j := panel * t.NR
			b, ldb, _ := c.panelB(panel, t.NR, at == 0)
			k.tallPanel(c.r, unsafe.Add(c.a, at*c.rowA), c.lda, b, ldb, tile.Row+at, tile.Col+j, rows, unsafe.Add(c.d, at*c.ldd+4*j), c.ldd)
		}
	}
}

// tallPanel computes rows of a panel, whose first element is at row and col of the result.
func (k *product) tallPanel(r *exec.Run, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb, row, col, rows int, d unsafe.Pointer, ldd int) {
	t, e, all := k.tiles, k.tileEpilogue, d
	var bias, least unsafe.Pointer
	if e != nil {
		if bias = e.term(r, 0, col); e.relu {
			least = unsafe.Pointer(&zero)
		}
	}
	tiles := rows / t.MR
	rest, parts := rows-tiles*t.MR, 1
	if tiles > 0 && 0 < rest && rest <= t.MR/2 && t.MR <= tallSplit {
		// Few sums wait for their additions: two tiles of about the same height take 0.93 of
		// the time, for 6 and 3 rows.
		tiles, rest, parts = tiles-1, rest+t.MR, 2
	}
	if tiles > 0 {
		t.Tall(tiles, k.k, a, lda, b, ldb, bias, least, d, ldd)
	}
	for i := range parts {
		at, end := tiling.Cut(i, parts, rest)
		if at == end {
			break
		}
		d := unsafe.Add(d, (tiles*t.MR+at)*ldd)
		t.Rows[end-at](k.k, unsafe.Add(a, (tiles*t.MR+at)*lda), lda, b, ldb, bias, 0, d, ldd, 1<<t.NR-1)
		if least != nil {
			e.then(end-at, d, ldd, nil, 0, 1<<t.NR-1)
		}
	}
	if e != nil && !e.relu {
		e.tile(r, row, col, rows, ldd, all, 1<<t.NR-1)
	}
}

// RowsOnDemand is a product that computes any rows of its result from rows of A that its caller
// has in memory. Their bits are those of Run.
type RowsOnDemand struct{ k *product }

// NewRowsOnDemand returns k as RowsOnDemand, if it is a product that tall kernels compute.
func NewRowsOnDemand(k exec.Kernel) (RowsOnDemand, bool) {
	p, ok := k.(*product)
	if !ok || p.batches != 1 || p.tiles.Tall == nil || !p.Direct || p.Slices.N > 1 || p.Depth < p.k || p.k == 0 || p.N%p.tiles.NR != 0 || p.k > tallDepth ||
		p.a.element != gemm.F32 || p.b.element != gemm.F32 || p.a.trans || p.b.trans {
		return RowsOnDemand{}, false
	}
	e := p.tileEpilogue
	return RowsOnDemand{p}, e == nil || e.ld == 0 && (e.then == nil || e.relu)
}

// Tile returns the rows of a micro-kernel: multiples of it are computed fastest.
func (p RowsOnDemand) Tile() int { return p.k.tiles.MR }

// Rows computes n rows of the result, from the given one on. Their A is at a, with lda bytes from a
// row to the next.
func (p RowsOnDemand) Rows(r *exec.Run, a unsafe.Pointer, lda, row, n int) {
	k := p.k
	b, ldb, ldd := &k.b, 4*k.b.stride, 4*k.N
	for j := 0; j < k.N && n > 0; j += k.tiles.NR {
		k.tallPanel(r, a, lda, unsafe.Pointer(&r.Values[b.pos][4*(b.starts[0]+j)]), ldb, row, j, n, unsafe.Pointer(&r.Values[k.Out][row*ldd+4*j]), ldd)
	}
}
