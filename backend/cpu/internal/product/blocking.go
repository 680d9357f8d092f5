package product

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Problem is what the blocking of a product depends on.
type Problem struct {
	M, N, K, Batches int
	A, B             Operand
	To               dtype.DType  // of the result
	Micro            *gemm.Tiles  // the micro-kernels
	Cached           bool         // packed B can stay from run to run
	Transposed       bool         // the product is the transpose of the result
	Epilogue         EpilogueKind // who applies what follows
	Rounds           bool         // there are routines that round micro-tiles to To
	StripKernels     bool         // there are micro-kernels for strips of a result of To
}

// Operand is how an operand lies in memory.
type Operand struct {
	Element gemm.Element
	Size    int  // bytes of an element
	Trans   bool // it is stored as its transpose
	Stride  int  // elements from a stored row to the next
}

// conflicts reports whether rows share lines of the L1.
func (o *Operand) conflicts() bool { return o.Stride*o.Size%RowConflict == 0 }

// EpilogueKind says who computes the epilogue of a product.
type EpilogueKind uint8

// The kinds of epilogues.
const (
	NoEpilogue    EpilogueKind = iota
	ChainEpilogue              // a chain of loops over finished tiles
	TileEpilogue               // the micro-kernel
)

// Blocking is how a product is computed: a function of its Problem alone. The
// packing is one decision for each operand; the other fields cut the result and the
// inner dimension.
type Blocking struct {
	Pack   Pack
	Order  Order // of the micro-tiles of a tile
	Tiles  Grid  // of the result
	Depth  int   // of a step of the inner dimension, in elements
	Slices Slices
	Direct bool // micro-kernels write the result themselves
	Round  bool // each micro-tile is rounded when it is done, else whole tiles
	Strips bool // micro-kernels go along strips of rows and round the result themselves
}

// Pack is how the operands get to the micro-kernels.
type Pack struct {
	A PackA
	B PackB
	// CopyB: micro-kernels pack B while they compute the first rows of a tile.
	CopyB bool
}

// PackA is how A gets to the micro-kernels.
type PackA uint8

// The ways of A.
const (
	AInPlace  PackA = iota // read where it lies
	ARows                  // copied or converted row by row
	APanels                // in panels of the rows of a micro-kernel, k by k
	AStored                // transposed A, converted in the rows that it is stored in
	AOnDemand              // copied or converted row by row, as micro-kernels come to the rows
)

// PackB is how B gets to the micro-kernels: in place, or packed in panels of the
// columns of a micro-kernel.
type PackB uint8

// The ways of B.
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
)

// Grid is the tiles of a result.
type Grid struct {
	Rows, Cols int // of a tile
	Down       int // tiles from top to bottom
	Stripe     int // columns that go together: those of which B is packed at a time
}

// Slices is the cuts of the inner dimension whose sums are formed apart.
type Slices struct {
	N  int // 1: not cut
	K  int // elements of a slice
	LD int // bytes from a row of a slice's result to the next
}

// Limits of blocks, in bytes or elements of 4 bytes.
const (
	smallBytes   = 4 << 20 // operands and result that are not far from the L2: nothing is packed
	blockBytes   = 700_000 // of A, which stays in the L2
	mostRows     = 448
	mostCols     = 1024
	MostDepth    = 1024     // inner dimensions up to this are not split
	wholeDepth   = 2048     // of products on pairs
	wholeTiles   = 8        // micro-tiles that are enough for all workers
	streamDepth  = 32       // of B that is read in place from memory
	copyDepth    = 256      // of panels of B that go into the L1, with a panel of A
	streamRows   = 64       // that use B too seldom to hide its way from memory
	shareBytes   = 16 << 20 // of packed B
	ownedBytes   = 1 << 18  // of B that each worker packs for itself
	gapBytes     = 1 << 20  // of A that all of B's panels go along
	DeepDepth    = 256      // of kernels of tile registers, for which B must be in the L1
	Conflicts    = 4096     // rows a multiple of this apart share lines of the L1
	convertMACs  = 1 << 23  // multiplications that pay for converting an operand again
	ChunkMACs    = 1 << 18  // multiplications worth handing to another core
	writeMACs    = 16       // multiplications that take as long as to write an element
	sumsBytes    = 1 << 17  // of sums that are rounded while they are near the L1
	RowConflict  = 1024     // rows that a multiple of this apart share some lines
	firstPanels  = 4        // of columns along which kernels go first
	packedPanels = 8        // of columns that pay for packing rows that share lines
	shortDepth   = 32       // of the inner dimension
	pairsDepth   = 64       // of pairs that are packed by micro-kernels
	stripBytes   = 1 << 18  // of panels that strips go along before the next ones
	stripDepth   = 320      // of the inner dimension, for strips of any length
	stripPanels  = 16       // of strips, for any inner dimension
	RowPad       = 64       // bytes that keep copied rows from sharing lines
)

// Block decides the blocking of p.
func (p Problem) Block() Blocking {
	d := decision{Problem: p}
	d.small = p.A.Size*(p.M+p.N)*p.K+p.To.Size()*p.M*p.N <= smallBytes
	d.Depth = p.K
	if cells := p.cells(p.K); cells > MostDepth && !p.whole() {
		d.Depth = tiling.Even(cells, MostDepth, 16) * p.Micro.Step
	}
	d.Depth = max(d.Depth, 1)
	packed := d.packB()
	d.packA()
	d.rows()
	d.slice()
	// Where columns cannot be masked, the last micro-kernel writes more of them. The
	// micro-kernels' epilogue needs sums of a single step.
	inKernel := p.Epilogue == TileEpilogue && p.K > 0 && d.Depth >= p.K
	d.Direct = p.To == dtype.Float32 && (p.Micro.Masked || p.N%p.Micro.NR == 0) && (p.Epilogue == NoEpilogue || inKernel)
	if packed {
		d.Pack.B = d.keeper()
	}
	if d.Slices.N == 1 {
		d.Strips = d.strips()
		d.columns()
		// Where the rows of a tile follow each other one call rounds the whole tile.
		whole := p.N%p.Micro.NR == 0 && d.Tiles.Cols >= p.N && 4*d.Tiles.Rows*p.N <= sumsBytes
		d.Round = p.Rounds && !d.Strips && !whole && p.Epilogue == NoEpilogue && p.K > 0 && d.Depth >= p.K
		if !d.Direct && !d.Round && !d.Strips && d.shallow() {
			// To write sums and to read them again is most of the work.
			d.Tiles.Rows = min(d.Tiles.Rows, tiling.RoundUp(max(1, sumsBytes/(4*d.Tiles.Cols)), d.Micro.MR))
		}
	}
	d.order()
	return d.Blocking
}

// decision is a blocking that is being decided: each method settles a field from
// those before.
type decision struct {
	Problem
	Blocking
	small bool // all is near the L2
	gaps  bool // rows of a small B share lines of the L1
}

// cells returns the number of elements of 4 bytes, float32 or pairs, that n elements
// of the inner dimension are padded to.
func (p *Problem) cells(n int) int { return tiling.CeilDiv(n, p.Micro.Step) }

// shallow reports whether the inner dimension is short: what counts is to write the
// result, and to read what the epilogue reads.
func (p *Problem) shallow() bool { return p.K <= shortDepth }

// strips reports whether micro-kernels go along strips of rows, over all panels of a tile.
// Of a long inner dimension and few panels, A takes longer to read than the result to
// write, and kernels of strips do not prefetch A.
func (d *decision) strips() bool {
	return d.StripKernels && !d.copiesPairs() && d.M >= d.Micro.MR/2 && !d.A.Trans && d.Pack.A != APanels && d.Pack.B != BInPlace && d.Epilogue == NoEpilogue &&
		d.K > 0 && (d.K <= stripDepth || d.N >= stripPanels*d.Micro.NR && d.M > 2*d.Micro.MR) && d.Depth >= d.K
}

// copiesPairs reports whether micro-kernels pack pairs while they compute the first rows
// of a tile: of few rows packing would take longer than the product.
func (p *Problem) copiesPairs() bool {
	t := p.Micro
	return p.B.Element == gemm.Pairs && t.Copies.Rows != nil && !(p.Cached && p.slices() == 0) && !p.A.Trans && !p.B.Trans && p.M > 1 && p.M <= 2*t.MR && p.K > pairsDepth
}

// packB returns whether B is packed, and limits the depth to what suits that.
func (d *decision) packB() bool {
	t := d.Micro
	inPlace := t.Masked && d.B.Element == gemm.F32 && !d.B.Trans
	if d.A.Trans && d.M > 4*t.MR && d.B.conflicts() {
		inPlace = false // many short panels, whose rows share lines of the L1
	}
	// Rows of a small B that share lines of the L1 are packed as the first rows of a
	// tile are computed, by the worker that needs them.
	d.gaps = d.small && inPlace && t.Copies.Rows != nil && d.M > 2*t.MR && d.B.conflicts()
	inPlace = inPlace && !d.gaps
	packed := d.Cached || !(inPlace && (d.small || d.M <= t.MR))
	switch {
	case d.small:
	case !packed:
		// The cost is to read B: row by row, as it lies.
		d.Depth = min(d.Depth, streamDepth)
	case !d.B.Trans && d.B.Element == gemm.F32 && d.M <= streamRows && t.Copies.Rows != nil:
		// That is most of the cost: panels that fit the L1 are copied while few lines
		// are in flight.
		d.Depth = min(d.Depth, tiling.Even(d.K, copyDepth, 16))
	case d.copiesPairs():
		// Rows of a second micro-tile read the panel again, from the L1.
		depth := copyDepth
		if d.M <= d.Micro.MR {
			depth *= 4
		}
		d.Depth = min(d.Depth, tiling.Even(d.K, depth, 32))
	}
	return packed
}

// packA decides how A gets to the micro-kernels.
func (d *decision) packA() {
	t, a := d.Micro, &d.A
	switch {
	case a.Trans:
		if a.Element.Converts() || a.Element == gemm.Pairs || !d.small || a.conflicts() && d.N >= packedPanels*t.NR && t.Prefetch.Inner != nil {
			d.Pack.A = APanels
			// Where a panel has fewer rows than a vector, to convert their pieces would
			// take as long as to multiply.
			if t.Inner != nil && t.MR < 8 && a.Element.Converts() {
				d.Pack.A = AStored
			}
		}
	case a.Element.Converts():
		d.Pack.A = ARows
	case d.K%t.Step != 0 || d.K > 16*t.MR && a.Stride*a.Size%Conflicts == 0 && d.N > 4*t.NR:
		d.Pack.A = ARows
		// Kernels of many registers take one line of a panel where rows take one each;
		// transposing them costs those without AVX-512 more than it saves.
		if a.Element == gemm.F32 && t.Prefetch.Inner != nil {
			d.Pack.A = APanels
		}
	}
}

// rows decides the rows of a tile: a block of A stays in the L2.
func (d *decision) rows() {
	cells := d.cells(d.Depth)
	rows := max(1, min(mostRows, blockBytes/(4*cells)))
	// An even number of tiles, as cores mostly are.
	blocks := max(1, tiling.CeilDiv(d.M, rows))
	if blocks > 1 {
		blocks = tiling.RoundUp(blocks, 2)
	}
	d.Tiles.Rows = max(1, tiling.CeilDiv(d.M, blocks))
	if d.gaps && 4*cells*d.M <= gapBytes {
		d.Tiles.Rows = d.M
	}
}

// whole reports whether the inner dimension is not cut, though it is long: kernels on pairs
// read A where it lies as fast as from a smaller block, and there are tiles for all workers.
// Sums must not depend on the epilogue or on the type of the result.
func (p *Problem) whole() bool {
	t := p.Micro
	return p.A.Element == gemm.Pairs && t.Masked && !p.A.Trans && p.cells(p.K) <= wholeDepth &&
		p.M > 2*t.MR && tiling.CeilDiv(p.M, t.MR)*tiling.CeilDiv(p.N, t.NR) >= wholeTiles
}

// slices returns how many slices the inner dimension may be cut into, 0 if that does
// not pay.
func (p *Problem) slices() int {
	n := min(tiling.MinChunks, p.K/leastSlice)
	if !p.A.Trans && p.M >= 2*tiling.MinChunks*p.Micro.MR && p.N <= p.Micro.NR {
		return 0 // rows are enough for all workers, who read them from end to end
	}
	if p.B.Element == gemm.Pairs && !p.B.Trans && p.M <= 2*p.Micro.MR && p.N >= tiling.MinChunks*p.Micro.NR {
		return 0 // columns are enough for all workers
	}
	if p.whole() || n < tiling.MinChunks/2 || p.Batches != 1 || 4*p.M*p.N > sliceBytes || p.M*p.N*p.K < tiling.MinChunks*ChunkMACs {
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
	s.N = tiling.CeilDiv(d.K, s.K)
	s.LD = 4*tiling.RoundUp(d.N, d.Micro.NR) + RowPad
	d.Depth = tiling.Even(s.K, min(d.Depth, max(leastDepth, blockBytes/(4*d.M))), packDepth)
	if d.Transposed {
		d.Depth = tiling.Even(s.K, copyDepth, packDepth)
	}
	d.Tiles.Rows = tiling.Even(d.M, max(d.Tiles.Rows, blockBytes/(4*d.Depth)), 1)
	d.Tiles.Cols = tiling.Even(d.N, mostCols, d.Micro.NR)
}

// keeper decides who packs B and who uses it: with a tile, unless more pays.
func (d *decision) keeper() PackB {
	if d.Slices.N > 1 {
		return BTile
	}
	if d.Cached {
		return BCached
	}
	// A single block of rows is cut by columns, which each chunk packs itself: they do
	// not go from core to core. An operand that must be converted is packed once rather
	// than by each block of rows.
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
	// A worker that packs an operand keeps it for its other chunks: those of the same
	// columns, or of the same rows. A single panel is not cut by columns.
	keepsA := packsB && !shares && !perWorker && tile.Rows >= d.M && tile.Cols > t.NR && d.Depth >= d.K
	switch {
	case perWorker:
		want *= 2 // for the sake of even shares
	case keepsA:
	case d.A.Element != gemm.F32 && !shares && d.M*d.N*d.K < tiling.MinChunks*convertMACs:
		want /= 2 // each chunk converts all rows
	case packsA || packsB && d.Pack.B != BCached:
		least <<= 2 // each chunk packs
	}
	count := func() int { return d.Batches * tiling.CeilDiv(d.M, tile.Rows) * tiling.CeilDiv(d.N, tile.Cols) }
	for count() < want && tile.Rows*tile.Cols*max(d.K, writeMACs) >= 2*least {
		// Halve what costs the least: rows are shared by all tiles of a row, columns
		// packed by each tile of a column. B in place that is the larger operand is read
		// by one worker or the other.
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

// order decides the order of micro-tiles, what that changes of the packing, and the
// stripes of columns.
func (d *decision) order() {
	t, tile := d.Micro, &d.Tiles
	tile.Down = tiling.CeilDiv(d.M, tile.Rows)
	packsB := d.Pack.B != BInPlace
	d.Pack.CopyB = t.Copies.Rows != nil && !d.Strips && packsB && d.Pack.B < BShared && (d.B.Element == gemm.F32 && !d.B.Trans || d.copiesPairs())
	if d.Pack.B == BTile && tile.Down == 1 && !d.shallow() {
		d.Pack.B = BPanel
	}
	// A few columns: A is read from memory, one row after the other.
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
