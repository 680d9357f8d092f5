package product

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// Limits of products by tall kernels, in bytes and in elements of the inner dimension.
const (
	tallBlock = 16 << 10 // of A that is multiplied with all panels: it stays in L1
	tallPanel = 8 << 10  // of a panel of B, at most, of which several stay in L1
	tallDepth = 256      // at most, where other kernels prefetch: of longer sums a call is a small part
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
	e := k.tileEpilogue
	return e == nil || e.ld == 0 && e.reads < 0
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
	var least unsafe.Pointer
	if e := k.tileEpilogue; e != nil && e.then != nil {
		least = unsafe.Pointer(&zero)
	}
	for at := 0; at < tile.Rows; at += block {
		rows := min(block, tile.Rows-at)
		for panel := range panels {
			j := panel * t.NR
			b, ldb, _ := c.panelB(panel, t.NR, at == 0)
			var bias unsafe.Pointer
			if e := k.tileEpilogue; e != nil {
				bias = e.term(c.r, 0, tile.Col+j)
			}
			a, d := unsafe.Add(c.a, at*c.rowA), unsafe.Add(c.d, at*c.ldd+4*j)
			tiles := rows / t.MR
			if tiles > 0 {
				t.Tall(tiles, c.cells, a, c.lda, b, ldb, bias, least, d, c.ldd)
			}
			if rest := rows - tiles*t.MR; rest > 0 {
				a, d := unsafe.Add(a, tiles*t.MR*c.rowA), unsafe.Add(d, tiles*t.MR*c.ldd)
				t.Rows[rest](c.cells, a, c.lda, b, ldb, bias, 0, d, c.ldd, 1<<t.NR-1)
				if least != nil {
					k.tileEpilogue.then(rest, d, c.ldd, nil, 0, 1<<t.NR-1)
				}
			}
		}
	}
}
