package product

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Limits of blocks of products on tile registers.
const (
	panelMACs      = 1 << 21 // multiplications worth handing to another core
	panelRows      = 256     // of A in a tile
	tallRows       = 96      // of A in a tile, where long rows would evict a B of few columns from L2
	panelDepth     = 1024    // inner dimensions up to this are not cut
	panelBlock     = 512 << 10
	panelWidth     = 512     // columns of a tile that packs B itself
	blockCols      = 512     // columns of bfloat16 whose sums, of panelRows, stay in L2 with a step of both operands
	blockDepth     = 256     // of such a step: a kernel's rows of A stay in L1
	wideTile       = 2048    // columns of a tile that can be halved
	setConflict    = 2048    // rows of A a multiple of these bytes apart leave few lines of L1
	SplitMACs      = 1 << 17 // multiplications that are worth splitting float16 for
	transposeCost  = 2       // the cost of transposing an element of the result, in packed elements of an operand
	transposedCols = 128     // columns that are transposed at a time
)

// pieces returns the number of bfloat16 that make up an element.
func (p *Problem) pieces() int {
	if p.A.Element == gemm.F16 {
		return 2
	}
	return 1
}

// panelBytes is the size of a packed panel of B with n elements of the inner dimension,
// each in so many pieces.
func panelBytes(n, pieces int) int {
	return tiling.CeilDiv(n, gemm.PanelDepth) * gemm.PanelStep * pieces
}

// BlockPanels decides the blocking of p, with K of at least gemm.PanelDepth, on tile
// registers (AMX). Tiles are of the computed
// matrix, which is the transpose of the result if Transpose is set.
func (p Problem) BlockPanels() Blocking {
	d := panelDecision{decision: decision{Problem: p}, a: p.A, m: p.M, n: p.N}
	// A transposed result costs its transposition and saves packing the larger operand.
	if p.A.Trans && !p.B.Trans && p.N <= panelRows && (p.M-p.N)*p.K > transposeCost*p.M*p.N {
		d.Transpose = true
		d.m, d.n, d.a = p.N, p.M, p.B
		d.a.Trans = true
	}
	d.Depth = p.K
	if p.K > panelDepth {
		d.Depth = tiling.Even(p.K, panelDepth, gemm.PanelDepth)
	}
	d.Tiles.Rows = tiling.Even(d.m, panelRows, gemm.PanelRows)
	d.Tiles.Cols = max(d.n, 1)
	if d.m > panelRows && d.n <= panelRows && p.pieces()*2*panelRows*d.Depth > panelBlock {
		d.Tiles.Rows = tiling.Even(d.m, tallRows, gemm.PanelRows)
	}
	d.slice()
	d.packB()
	d.tiles()
	d.block()
	// Kernels write whole tile registers, with the leading dimension of earlier sums.
	writes := p.To == dtype.Float32 && p.Epilogue != ChainEpilogue
	d.Direct = writes && !d.Transpose && d.Slices.N == 1 && d.Depth >= p.K && d.m%16 == 0 && d.n%16 == 0
	if p.pieces() > 1 || d.a.Trans || p.K%2 != 0 || d.a.Size*d.a.Stride%setConflict == 0 && d.Tiles.Cols >= 4*gemm.PanelCols {
		d.Pack.A = ARows
	}
	return d.Blocking
}

// panelDecision is a blocking on tile registers that is being decided.
type panelDecision struct {
	decision
	a    Operand // the first operand and the sizes of the computed matrix
	m, n int
}

// slice cuts the inner dimension if that pays, as decision.slice does.
func (d *panelDecision) slice() {
	d.Slices = Slices{N: 1, K: d.K}
	n := min(tiling.MinChunks, d.K/leastSlice)
	if !d.a.Trans || !d.Transpose && d.B.Trans || n < tiling.MinChunks/2 || d.Batches != 1 || d.m > panelRows || 4*d.M*d.N > sliceBytes || d.M*d.N*d.K < tiling.MinChunks*ChunkMACs {
		return
	}
	s := &d.Slices
	s.K = tiling.RoundUp(tiling.CeilDiv(d.K, n), gemm.PanelDepth)
	s.N = tiling.CeilDiv(d.K, s.K)
	s.LD = 4*tiling.RoundUp(d.N, gemm.PanelCols) + RowPad
	d.Depth = tiling.Even(s.K, max(leastDepth, sliceBytes/(2*d.pieces()*d.n)), gemm.PanelDepth)
}

// packB decides who packs B, and the order that goes with it.
func (d *panelDecision) packB() {
	// A single block of rows is cut by columns, which each tile packs itself.
	d.Pack.B = BTile
	if d.Slices.N == 1 && d.Batches == 1 && tiling.CeilDiv(d.m, d.Tiles.Rows) > 1 {
		d.Pack.B = BShared
	} else if d.Slices.N == 1 {
		d.Tiles.Cols = tiling.Even(d.n, panelWidth, gemm.PanelCols)
	}
	if d.Pack.B == BShared && d.Depth < d.K && !d.Transpose && d.n > panelRows {
		d.Order = BlocksFirst
		d.Depth = tiling.Even(d.K, blockDepth, gemm.PanelDepth)
	}
}

// tiles makes tiles smaller until there are enough for several workers.
func (d *panelDecision) tiles() {
	tile, shares := &d.Tiles, d.Pack.B == BShared
	count := func() int {
		return d.Batches * d.Slices.N * tiling.CeilDiv(d.m, tile.Rows) * tiling.CeilDiv(d.n, tile.Cols)
	}
	halve := func() bool {
		switch {
		case d.Order == BlocksFirst && tile.Cols >= 2*blockCols, shares && tile.Cols >= wideTile, !shares && tile.Cols > 2*gemm.PanelCols:
			tile.Cols = tiling.Even(tile.Cols, tiling.CeilDiv(tile.Cols, 2), gemm.PanelCols)
		case tile.Rows > gemm.PanelRows && count() < tiling.MinChunks/2 && !d.Transpose:
			tile.Rows = tiling.Even(tile.Rows, tiling.CeilDiv(tile.Rows, 2), gemm.PanelRows)
		default:
			return false
		}
		return true
	}
	for count() < tiling.MinChunks && tile.Rows*tile.Cols*d.K >= 2*panelMACs && halve() {
	}
	tile.Down = tiling.CeilDiv(d.m, tile.Rows)
	tile.Stripe = max(d.n, 1)
	if shares {
		tile.Stripe = max(1, shareBytes/(panelBytes(d.K, d.pieces())*tiling.CeilDiv(tile.Cols, gemm.PanelCols))) * tile.Cols
	}
}

// block decides the columns of a block: its panels, or its sums, stay in L2.
func (d *panelDecision) block() {
	cols := max(2, panelBlock/panelBytes(d.Depth, d.pieces())) * gemm.PanelCols
	if d.Order == BlocksFirst {
		cols = blockCols / d.pieces()
	}
	tile := d.Tiles.Cols
	d.BlockCols = min(tiling.RoundUp(tile, gemm.PanelCols), tiling.Even(tile, cols, gemm.PanelCols))
	if d.Transpose {
		d.BlockCols = min(d.BlockCols, tiling.Even(tile, transposedCols, gemm.PanelCols))
	}
}
