package product

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Problem is the input of a product's blocking.
type Problem struct {
	M, N, K, Batches int
	Batched          bool // the operands have batch axes, maybe of a single matrix
	A, B             Operand
	To               dtype.DType  // of the result
	Micro            *gemm.Tiles  // the micro-kernels
	Cached           bool         // packed B can be kept from run to run
	Transposed       bool         // the product is computed as the transpose of the result
	Epilogue         EpilogueKind // which code applies the epilogue
	Ordered          bool         // sums have the order that they have on every level
	Rounds           bool         // there are routines that round micro-tiles to To
	StripKernels     bool         // there are micro-kernels for strips of a result of To
}

// Operand is the layout of an operand in memory.
type Operand struct {
	Element gemm.Element
	Size    int  // bytes of an element
	Trans   bool // it is stored as its transpose
	Stride  int  // elements from a stored row to the next
}

// conflicts reports whether rows share lines of L1.
func (o *Operand) conflicts() bool { return o.Stride*o.Size%RowConflict == 0 }

// EpilogueKind says which code computes the epilogue of a product.
type EpilogueKind uint8

// The kinds of epilogues.
const (
	NoEpilogue    EpilogueKind = iota
	ChainEpilogue              // a chain of loops over finished tiles
	TileEpilogue               // the micro-kernel
)

// Blocking is the cuts, the packing and the loop order of a product: a function of its Problem
// alone. The packing is one decision for each operand; the other fields cut the result and the
// inner dimension.
type Blocking struct {
	Pack  Pack
	Order Order // of the micro-tiles of a tile
	Tiles Grid  // of the result
	// The inner dimension is cut into steps, whose sums are added up one after the other. So the
	// step decides the rounding. Some micro-kernels cut a step into parts, whose sums begin with
	// those of the part before: see gemm.Continue.
	Step   int // elements of a step
	Depth  int // elements that are multiplied at a time: of a part
	Slices Slices
	Direct bool // micro-kernels write the result themselves
	// Of products on tile registers.
	Transpose bool // the transpose of the result is computed
	BlockCols int  // columns of a tile that are computed together: whole panels

	Round  bool // each micro-tile is rounded when it is done, else whole tiles
	Strips bool // micro-kernels go along strips of rows and round the result themselves
}

// Pack says in which layout micro-kernels read the operands.
type Pack struct {
	A PackA
	B PackB
	// CopyB: micro-kernels pack B while they compute the first rows of a tile.
	CopyB bool
}

// PackA is the layout in which micro-kernels read A.
type PackA uint8

// The layouts of A.
const (
	AInPlace  PackA = iota // read where it lies
	ARows                  // copied or converted row by row
	APanels                // in panels of the rows of a micro-kernel, transposed
	AStored                // transposed A, converted in its stored rows
	AOnDemand              // copied or converted row by row, just before micro-kernels read the rows
)

// PackB is the layout in which micro-kernels read B: in place, or packed in panels of the
// columns of a micro-kernel.
type PackB uint8

// The layouts of B.
const (
	BInPlace   PackB = iota
	BPanel           // one panel at a time
	BTile            // the columns of a tile
	BPerWorker       // all columns, by each worker, for all its chunks
	BShared          // all columns of a stripe, once for all workers
	BCached          // all columns, once until B changes
)

// Order is the order of the micro-tiles of a tile.
type Order uint8

// The orders.
const (
	ColumnsFirst Order = iota // down a panel of B, then the next panel
	RowsFirst                 // along all panels, then the next rows
	BlocksFirst               // a block of columns through the whole inner dimension, then the next block
)

// Grid is the tiles of a result.
type Grid struct {
	Rows, Cols int // of a tile
	Down       int // tiles from top to bottom
	Stripe     int // columns for which B is packed at a time
}

// Slices cuts the inner dimension into slices, whose sums are computed separately.
type Slices struct {
	N  int // 1: not cut
	K  int // elements of a slice
	LD int // bytes from a row of a slice's result to the next
}

// Limits of blocks, in bytes or elements of 4 bytes.
const (
	smallBytes   = 4 << 20 // operands and result that are about the size of L2: nothing is packed
	blockBytes   = 700_000 // of a block of A, which stays in L2
	mostRows     = 448
	mostCols     = 1024
	MostDepth    = 1024     // inner dimensions up to this are not split
	wholeDepth   = 2048     // of products on pairs
	streamDepth  = 32       // of B that is read in place from memory
	copyDepth    = 256      // of panels of B that fit in L1 with a panel of A
	streamRows   = 64       // of A, at most, that reuse B too little to hide its latency
	shareBytes   = 16 << 20 // of packed B
	ownedBytes   = 1 << 18  // of B that each worker packs for itself
	gapBytes     = 1 << 20  // of A that is multiplied with all panels of B
	DeepDepth    = 256      // of kernels on tile registers, for which B must be in L1
	Conflicts    = 4096     // bytes: rows a multiple of this apart share lines of L1
	convertMACs  = 1 << 23  // multiplications that are worth converting an operand again
	ChunkMACs    = 1 << 18  // multiplications worth handing to another core
	writeMACs    = 16       // multiplications that take as long as writing an element
	sumsBytes    = 1 << 17  // of sums that are rounded while they are in L1 or L2
	RowConflict  = 1024     // bytes: rows a multiple of this apart share some lines of L1
	firstPanels  = 4        // of columns, at most, for the order RowsFirst
	packedPanels = 8        // of columns, at least, that are worth packing rows that share lines
	shortDepth   = 32       // of the inner dimension, at most: see shallow
	pairsDepth   = 64       // of pairs that are packed by micro-kernels, at least
	stripBytes   = 1 << 18  // of the panels of B that strips are multiplied with at a time
	stripDepth   = 320      // of the inner dimension, at most, for strips of any length
	stripPanels  = 16       // of strips, at least, for any inner dimension
	RowPad       = 64       // bytes between copied rows, so that they do not share lines
)

// Block decides the blocking of p.
func (p Problem) Block() Blocking {
	d := decision{Problem: p}
	d.small = p.A.Size*(p.M+p.N)*p.K+p.To.Size()*p.M*p.N <= smallBytes
	d.Depth = p.step()
	packed := d.packB()
	d.packA()
	d.rows()
	d.slice()
	// Where columns cannot be masked, the last micro-kernel writes more columns than the
	// result has. The micro-kernels' epilogue needs sums of a single step.
	inKernel := p.Epilogue == TileEpilogue && p.K > 0 && d.Depth >= p.K
	d.Direct = p.To == dtype.Float32 && (p.Micro.Masked || p.N%p.Micro.NR == 0) && (p.Epilogue == NoEpilogue || inKernel)
	if packed {
		d.Pack.B = d.keeper()
	}
	if d.Slices.N == 1 {
		d.Strips = d.strips()
		d.columns()
		// If the rows of a tile are contiguous in the result, one call rounds the whole tile.
		whole := p.N%p.Micro.NR == 0 && d.Tiles.Cols >= p.N && 4*d.Tiles.Rows*p.N <= sumsBytes
		d.Round = p.Rounds && !d.Strips && !whole && p.Epilogue == NoEpilogue && p.K > 0 && d.Depth >= p.K
		if !d.Direct && !d.Round && !d.Strips && d.shallow() {
			// Writing sums and reading them again is most of the work.
			d.Tiles.Rows = min(d.Tiles.Rows, tiling.RoundUp(max(1, sumsBytes/(4*d.Tiles.Cols)), d.Micro.MR))
		}
	}
	d.order()
	d.Step = d.Depth
	if p.ordered() {
		d.Step = p.step()
	}
	return d.Blocking
}

// ordered reports whether the sums of a row are added up in one order, whatever the number of
// rows: rows are samples of a batch. A slice is then a step. In a gradient of weights, whose
// inner dimension is the samples, the number of rows decides steps and slices.
func (p *Problem) ordered() bool { return p.Ordered || !p.A.Trans }

// step returns the elements of a step of the inner dimension: the depth of a block, or all of
// a longer one of pairs, which micro-kernels read in place as fast as from a smaller block.
func (p *Problem) step() int {
	t := p.Micro
	cells := p.cells(p.K)
	whole := p.A.Element == gemm.Pairs && t.Masked && !p.A.Trans && cells <= wholeDepth
	if whole || cells <= MostDepth {
		return max(1, p.K)
	}
	return tiling.Even(cells, MostDepth, 16) * t.Step
}

// decision is a blocking in progress: each method sets a field from the previous ones.
type decision struct {
	Problem
	Blocking
	small bool // operands and result are about the size of L2
	gaps  bool // rows of a small B share lines of L1
}

// cells returns the number of elements of 4 bytes, float32 or pairs, for n elements of the
// inner dimension with padding.
func (p *Problem) cells(n int) int { return tiling.CeilDiv(n, p.Micro.Step) }

// shallow reports whether the inner dimension is so short that most of the time goes to
// writing the result and to reading the epilogue's operands.
func (p *Problem) shallow() bool { return p.K <= shortDepth }

// strips reports whether micro-kernels compute strips of rows, over all panels of a tile. With
// a long inner dimension and few panels, reading A takes longer than writing the result, and
// strip kernels do not prefetch A.
func (d *decision) strips() bool {
	return d.StripKernels && !d.copiesPairs() && d.M >= d.Micro.MR/2 && !d.A.Trans && d.Pack.A != APanels && d.Pack.B != BInPlace && d.Epilogue == NoEpilogue &&
		d.K > 0 && (d.K <= stripDepth || d.N >= stripPanels*d.Micro.NR && d.M > 2*d.Micro.MR) && d.Depth >= d.K
}

// copiesPairs reports whether micro-kernels pack pairs while they compute the first rows of a
// tile: with few rows, packing would take longer than the product.
func (p *Problem) copiesPairs() bool {
	t := p.Micro
	return p.B.Element == gemm.Pairs && t.Copies.Rows != nil && !(p.Cached && p.slices() == 0) && !p.A.Trans && !p.B.Trans && p.M <= 2*t.MR && p.K > pairsDepth
}

// packB reports whether B is packed, and limits the depth accordingly.
func (d *decision) packB() bool {
	t := d.Micro
	inPlace := t.Masked && d.B.Element == gemm.F32 && !d.B.Trans
	if d.A.Trans && d.M > 4*t.MR && d.B.conflicts() {
		inPlace = false // many short panels, whose rows share lines of L1
	}
	// Rows of a small B that share lines of L1 are packed while the first rows of a tile are
	// computed, by the worker of the tile.
	d.gaps = d.small && inPlace && t.Copies.Rows != nil && d.M > 2*t.MR && d.B.conflicts()
	inPlace = inPlace && !d.gaps
	packed := d.Cached || !(inPlace && (d.small || d.M <= t.MR))
	switch {
	case d.small:
	case d.ordered():
		// A part of a step is packed at a time: rows of B are in different pages. The rows of a
		// second micro-tile read the panel again, from L1.
		if d.copiesPairs() && (d.Depth >= d.K || d.slices() > 0) {
			depth := copyDepth
			if d.M <= d.Micro.MR {
				depth *= 4
			}
			d.Depth = min(d.Depth, tiling.Even(d.Depth, depth, 32))
		}
	case !packed:
		// Reading B in place, row by row, is most of the time.
		d.Depth = min(d.Depth, streamDepth)
	case !d.B.Trans && d.B.Element == gemm.F32 && d.M <= streamRows && t.Copies.Rows != nil:
		// Packing is most of the time: panels that fit in L1 are copied while few lines are in
		// flight.
		d.Depth = min(d.Depth, tiling.Even(d.K, copyDepth, 16))
	}
	return packed
}

// packA decides the layout of A.
func (d *decision) packA() {
	t, a := d.Micro, &d.A
	switch {
	case a.Trans:
		if a.Element.Converts() || a.Element == gemm.Pairs || !d.small || a.conflicts() && d.N >= packedPanels*t.NR && t.Prefetch.Inner != nil {
			d.Pack.A = APanels
			// If a panel has fewer rows than a vector, converting its parts would take as long
			// as the products.
			if t.Inner != nil && t.MR < 8 && a.Element.Converts() {
				d.Pack.A = AStored
			}
		}
	case a.Element.Converts():
		d.Pack.A = ARows
	case d.K%t.Step != 0 || d.K > 16*t.MR && a.Stride*a.Size%Conflicts == 0 && d.N > 4*t.NR:
		d.Pack.A = ARows
		// Kernels of many rows read one line of a panel where rows in place are one line each.
		// Without AVX-512 the transposition costs more than it saves.
		if a.Element == gemm.F32 && t.Prefetch.Inner != nil {
			d.Pack.A = APanels
		}
	}
}

// rows decides the rows of a tile: a block of A stays in L2.
func (d *decision) rows() {
	cells := d.cells(d.Depth)
	rows := max(1, min(mostRows, blockBytes/(4*cells)))
	// An even number of tiles, because most processors have an even number of cores.
	blocks := max(1, tiling.CeilDiv(d.M, rows))
	if blocks > 1 {
		blocks = tiling.RoundUp(blocks, 2)
	}
	d.Tiles.Rows = max(1, tiling.CeilDiv(d.M, blocks))
	if d.gaps && 4*cells*d.M <= gapBytes {
		d.Tiles.Rows = d.M
	}
}

// slices returns how many slices the inner dimension may be cut into, 0 if that does
// not pay.
func (p *Problem) slices() int {
	if p.A.Trans && p.Batched {
		return 0 // the matrices of a batch are not cut
	}
	n := min(tiling.MinChunks, p.K/leastSlice)
	least := tiling.MinChunks / 2
	if p.ordered() {
		n, least = tiling.CeilDiv(p.K, p.step()), 2
		if p.Cached && (p.M <= 4*p.Micro.MR || p.Micro.Copies.Rows == nil) {
			return 0 // nothing is packed
		}
	}
	if !p.A.Trans && p.M >= 2*tiling.MinChunks*p.Micro.MR && p.N <= p.Micro.NR {
		return 0 // there are enough rows for all workers, which read them in the order of memory
	}
	if p.A.Trans && p.B.Element == gemm.Pairs && !p.B.Trans && p.M <= 2*p.Micro.MR && p.N >= tiling.MinChunks*p.Micro.NR {
		return 0 // there are enough columns for all workers
	}
	if p.step() >= p.K && !p.A.Trans || n < least || p.Batches != 1 || 4*p.M*p.N > sliceBytes || p.M*p.N*p.K < tiling.MinChunks*ChunkMACs {
		return 0
	}
	return n
}

// transposes reports whether AᵀB is computed as (BᵀA)ᵀ; see product.transpose.
func (p *Problem) transposes() bool {
	t := p.Micro
	return t.Copies.Inner != nil && p.A.Element != gemm.Pairs && p.A.Trans && !p.B.Trans && p.N <= 2*t.NR && p.M >= 2*p.N && p.slices() > 0
}

// slice cuts the inner dimension if that pays, and sets the depth and tiles that go
// with it.
func (d *decision) slice() {
	d.Slices = Slices{N: 1, K: d.K}
	n := d.slices()
	if n == 0 {
		return
	}
	s := &d.Slices
	s.K = tiling.RoundUp(tiling.CeilDiv(d.K, n), packDepth)
	if d.ordered() {
		s.K = d.step()
	}
	s.N = tiling.CeilDiv(d.K, s.K)
	s.LD = 4*tiling.RoundUp(d.N, d.Micro.NR) + RowPad
	if !d.ordered() {
		d.Depth = tiling.Even(s.K, min(d.Depth, max(leastDepth, blockBytes/(4*d.M))), packDepth)
	}
	if d.Transposed {
		d.Depth = tiling.Even(s.K, copyDepth, packDepth)
	}
	d.Tiles.Rows = tiling.Even(d.M, max(d.Tiles.Rows, blockBytes/(4*d.Depth)), 1)
	cols := mostCols
	if d.ordered() && s.N%2 == 1 {
		cols = min(cols, max(d.Micro.NR, tiling.CeilDiv(d.N, 2))) // an even number of tiles
	}
	d.Tiles.Cols = tiling.Even(d.N, cols, d.Micro.NR)
}

// keeper decides which workers pack and read packed B: each tile its own, unless sharing pays.
func (d *decision) keeper() PackB {
	if d.Slices.N > 1 {
		return BTile
	}
	if d.Cached {
		return BCached
	}
	// A single block of rows is cut by columns, which each chunk packs itself: packed panels
	// do not move between cores. An operand that must be converted is packed once rather than
	// by each block of rows.
	t := d.Micro
	if d.gaps && d.N >= 4*t.NR {
		return BTile
	}
	if d.N <= mostCols && 4*d.cells(d.Depth)*tiling.RoundUp(d.N, t.NR) <= ownedBytes && d.Depth >= d.K {
		return BPerWorker
	}
	share := 32
	if d.B.Element != gemm.F32 {
		share = 8
	}
	if d.Batches == 1 && d.M > max(4*t.MR, d.Tiles.Rows) && d.M*d.N*max(d.K, 1) >= share*ChunkMACs {
		return BShared
	}
	return BTile
}

// columns decides the columns of tiles, and makes tiles smaller until there are enough
// for several workers.
func (d *decision) columns() {
	t, tile := d.Micro, &d.Tiles
	tile.Cols = tiling.Even(d.N, mostCols, t.NR)
	least := ChunkMACs
	want := tiling.MinChunks
	packsA, packsB, perWorker, shares := d.Pack.A != AInPlace, d.Pack.B != BInPlace, d.Pack.B == BPerWorker, d.Pack.B >= BShared
	// A worker that packs an operand uses it for its other chunks with the same columns, or
	// the same rows. A single panel is not cut by columns.
	keepsA := packsB && !shares && !perWorker && tile.Rows >= d.M && tile.Cols > t.NR && d.Depth >= d.K
	switch {
	case perWorker:
		want *= 2 // for even shares
	case keepsA:
	case d.A.Element != gemm.F32 && !shares && d.M*d.N*d.K < tiling.MinChunks*convertMACs:
		want /= 2 // each chunk converts all rows
	case packsA || packsB && d.Pack.B != BCached:
		least <<= 2 // each chunk packs
	}
	count := func() int { return d.Batches * tiling.CeilDiv(d.M, tile.Rows) * tiling.CeilDiv(d.N, tile.Cols) }
	for count() < want && tile.Rows*tile.Cols*max(d.K, writeMACs) >= 2*least {
		// Halve the side that costs less: rows are packed once for all tiles of a row, columns
		// by each tile of a column. If B is read in place and is the larger operand, each
		// worker reads a part of it.
		wide := tile.Cols >= 2*t.NR && !perWorker
		cheap := packsB && !shares || !packsB && d.N >= 2*d.M || tile.Cols >= 2*tile.Rows && !(packsA && shares)
		switch {
		case wide && cheap && !d.shallow():
			tile.Cols = tiling.Even(tile.Cols, tile.Cols/2, t.NR)
		case tile.Rows >= 2*t.MR && !keepsA:
			tile.Rows = tiling.CeilDiv(tile.Rows, 2)
		case wide:
			tile.Cols = tiling.Even(tile.Cols, tile.Cols/2, t.NR)
		default:
			return
		}
	}
}

// order decides the order of micro-tiles, the packing that depends on it, and the stripes of
// columns.
func (d *decision) order() {
	t, tile := d.Micro, &d.Tiles
	tile.Down = tiling.CeilDiv(d.M, tile.Rows)
	packsB := d.Pack.B != BInPlace
	d.Pack.CopyB = t.Copies.Rows != nil && !d.Strips && packsB && d.Pack.B < BShared && (d.B.Element == gemm.F32 && !d.B.Trans || d.copiesPairs())
	if d.Pack.B == BTile && tile.Down == 1 && !d.shallow() {
		d.Pack.B = BPanel
	}
	// With a few columns, A is read from memory row by row.
	along := d.Pack.B > BPanel && !d.A.Trans && d.Depth >= d.K && tile.Cols <= firstPanels*t.NR
	if along && !d.shallow() && d.A.Element.Converts() || (along || d.Strips) && d.Pack.A == ARows && d.A.Element == gemm.Pairs && d.K%2 == 1 {
		d.Pack.A = AOnDemand
	}
	if d.shallow() || d.Strips || along && d.Pack.A == AInPlace || d.Pack.A == AOnDemand {
		d.Order = RowsFirst
	}
	tile.Stripe = max(d.N, 1)
	if d.Pack.B == BShared {
		tile.Stripe = max(tile.Cols, shareBytes/(4*d.cells(d.K))/tile.Cols*tile.Cols)
	}
}

var (
	packANames = [...]string{"in place", "by rows", "in panels", "as stored", "by rows on demand"}
	packBNames = [...]string{"in place", "panel by panel", "with each tile", "by each worker", "shared", "cached"}
)

// String describes the blocking in a line.
func (b Blocking) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "tiles of %d×%d, depth %d; A %s, B %s", b.Tiles.Rows, b.Tiles.Cols, b.Depth, packANames[b.Pack.A], packBNames[b.Pack.B])
	if b.Pack.CopyB {
		s.WriteString(" by micro-kernels")
	}
	if b.Order == RowsFirst {
		s.WriteString("; rows first")
	}
	if b.BlockCols > 0 {
		fmt.Fprintf(&s, "; blocks of %d columns", b.BlockCols)
	}
	if b.Order == BlocksFirst {
		s.WriteString(", blocks first")
	}
	if b.Transpose {
		s.WriteString("; transposed")
	}
	if b.Slices.N > 1 {
		fmt.Fprintf(&s, "; %d slices of %d", b.Slices.N, b.Slices.K)
	}
	if b.Direct {
		s.WriteString("; direct")
	}
	if b.Round {
		s.WriteString("; micro-tiles are rounded")
	}
	if b.Strips {
		s.WriteString("; in strips")
	}
	return s.String()
}
