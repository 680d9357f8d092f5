// Package product multiplies matrices.
//
// Where to look: product.go decides what is packed and how the result is cut into
// tiles, and run.go computes them on the micro-kernels of package gemm; slices.go cuts a
// long inner dimension; panels.go and panels_run.go are the products on tile registers
// (AMX); vector.go multiplies single rows and columns; portable.go is the product in
// Go, also for float64. store.go writes finished tiles, with the epilogue where there is
// one; tile_epilogue.go has the epilogues that micro-kernels compute themselves;
// prefetch.go lists what a tile prefetches for the next one.
package product

import (
	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// product is a matrix product on the processor's vector instructions, after
// Goto and van de Geijn like matmul. What differs is that operands are packed
// only where that pays: a micro-kernel reads A from where it lies, unless it
// must be converted or its rows would fall on the same lines of the cache, and
// B too if all is small. B is packed panel by panel as the first rows of a tile
// are computed, where that can be.
//
// The result is cut into tiles, and each worker takes whole tiles through all
// of the inner dimension. A large product first packs B, in stripes of columns
// that all workers share; else the worker of a tile packs its columns itself.
//
// How everything is cut depends on shapes and the instruction set only, and so
// do the bits of the result.
type product struct {
	Writer
	m, k    int
	batches int
	tiles   *gemm.Tiles
	a, b    operandOf

	depth      int      // of a step of the inner dimension, in elements
	tileM      int      // of a tile
	rowsFirst  bool     // kernels go along the columns of a tile first
	packsRows  bool     // then: rows of A are converted as kernels come to them
	down       int      // tiles
	stripes    []stripe // the columns, by the stripes in which B is shared; one if it is not
	sharesB    bool
	ownsB      bool // each worker packs all columns of B, and keeps them for its other chunks
	copies     bool // kernels pack B while they compute the first rows of a tile
	onePanel   bool // of B is packed at a time
	caches     bool // packed B from run to run, at kept
	cache      int
	uncached   *product // what is computed while B changes, or nil
	slices     int      // of the inner dimension, if its sums are made apart
	sliceK     int      // of a slice, in elements
	ldSlice    int      // bytes from a row of a slice's result to the next
	sums       sums
	transposed *product // of the result itself, if this is its transpose, or nil
	ldSums     int      // bytes from a row of the accumulators to the next

	direct       bool // kernels write the result themselves
	store        tileStore
	tileEpilogue *tileEpilogue // what after does, if kernels can, or nil
	lowEpilogue  *lowEpilogue  // what after does, if that can be done as sums are rounded, or nil

	atA, atB, scratch int // where the scratch memory has packed operands, and its size
}

// operandOf is an operand and how it gets to the kernel.
type operandOf struct {
	matrix
	element gemm.Element
	size    int  // bytes of an element
	packed  bool // else the kernel reads it where it lies
	panels  bool // packed rows of A lie k by k, in panels of those that a kernel takes
	lead    int  // bytes from a packed row to the next, if A is copied row by row
	stored  bool // transposed A is converted in the rows that it is stored in, not in panels
}

// newOperandOf is the operand m of a product of elements, or of what these are
// made of.
func newOperandOf(m matrix, element gemm.Element) operandOf {
	if m.rounds {
		element = gemm.RoundF16
	}
	return operandOf{matrix: m, element: element, size: element.Size()}
}

// stripe is a stripe of columns of a product, from column col on. It is the task that computes the
// tiles of the stripe; its packing is the task that packs B before.
type stripe struct {
	*product
	col, cols int
	across    int // tiles
	packing   packing
}

// Limits of blocks, in bytes or elements of 4 bytes.
const (
	smallBytes   = 4 << 20 // operands and result that are not far from the second cache: nothing is packed
	blockBytes   = 700_000 // of A, which stays in the second cache
	mostRows     = 448
	mostCols     = 1024
	MostDepth    = 1024     // inner dimensions up to this are not split
	streamDepth  = 32       // of B that is read in place from memory
	copyDepth    = 256      // of panels of B that go into the first cache, with a panel of A
	streamRows   = 64       // that use B too seldom to hide its way from memory
	shareBytes   = 16 << 20 // of packed B
	ownedBytes   = 1 << 18  // of B that each worker packs for itself
	gapBytes     = 1 << 20  // of A that all of B's panels go along
	DeepDepth    = 256      // of kernels of tile registers, for which B must be in the first cache
	Conflicts    = 4096     // rows a multiple of this apart share lines of the first cache
	convertMACs  = 1 << 23  // multiplications that pay for converting an operand again
	ChunkMACs    = 1 << 18  // multiplications worth handing to another core
	RowConflict  = 1024     // rows that a multiple of this apart share some lines
	firstPanels  = 4        // of columns along which kernels go first
	packedPanels = 8        // of columns that pay for packing rows that share lines
	shortDepth   = 32       // of the inner dimension
	RowPad       = 64       // bytes that keep copied rows from sharing lines
)

// makeProduct makes the kernel of a product with float32 accumulators.
func makeProduct(b *exec.Builder, v *ir.Value, set *gemm.Set) exec.Kernel {
	dims := productDims(b, v)
	if k := newVectorProduct(b, v, set, &dims); k != nil {
		return k
	}
	if k := newPanelProduct(b, v, set, &dims); k != nil {
		return k
	}
	k := &product{Writer: Writer{Set: set, N: dims.n, Out: b.At(v), To: v.Type.DType}, m: dims.m, k: dims.k, batches: dims.batches, tiles: set.F32}
	element := gemm.ElementOf[v.Args[0].Type.DType]
	// Sums over a short inner dimension cost less than their conversion, and
	// go through float32, which keeps subnormal numbers.
	if t := set.Pairs; element == gemm.BF16 && t != nil && k.k >= 8 {
		element, k.tiles = gemm.Pairs, t
	}
	k.a, k.b = newOperandOf(dims.a, element), newOperandOf(dims.b, element)
	k.After = elementwise.NewEpilogue(b, v, 2, k.N)
	k.tileEpilogue, k.lowEpilogue = newTileEpilogue(b, v, set, k.N), newLowEpilogue(b, v, set, k.N)
	if k.batches == 1 && k.m > k.tiles.MR && k.m <= CacheRows && k.b.size*k.N*k.k >= CacheBytes && backend.Keeps(backend.PackedOperands) && b.ReadOnly(v.Args[1]) {
		unkept := *k
		unkept.settle(b)
		k.caches, k.uncached = true, &unkept
	}
	k.transpose()
	k.settle(b)
	return k
}

// settle cuts the product and asks for the memory that it needs.
func (k *product) settle(b *exec.Builder) {
	result := k.result()
	k.block()
	if k.After != nil && !k.direct {
		k.store = result.epilogueStore()
	}
	k.layout()
	if k.slices > 1 {
		k.sums.init(k)
		b.ReserveShared(k.slices * k.partBytes())
	}
	b.ReserveScratch(k.scratch)
	if k.After != nil {
		// Behind that of the product which is computed while nothing is kept.
		behind, cols := k.scratch, max(k.TileN, result.TileN)
		if k.uncached != nil {
			behind, cols = max(behind, k.uncached.scratch), max(cols, k.uncached.TileN)
		}
		k.After.Place(b, behind, cols)
	}
	if k.sharesB {
		// The first stripe is the widest.
		bytes := 4 * tiling.RoundUp(k.stripes[0].cols, k.tiles.NR) * k.cells(k.k)
		if k.caches {
			k.cache = b.ReservePacked(bytes)
		} else {
			b.ReserveShared(bytes)
		}
	}
}

// result is the product whose result is stored.
func (k *product) result() *product {
	if k.transposed != nil {
		return k.transposed
	}
	return k
}

// epilogueStore is the store of a product that something follows.
func (k *product) epilogueStore() tileStore {
	if k.lowEpilogue != nil {
		return k.storeLow
	}
	return k.StoreEpilogue
}

// cells is the number of elements of 4 bytes, float32 or pairs, that n
// elements of the inner dimension are padded to.
func (k *product) cells(n int) int { return tiling.CeilDiv(n, k.tiles.Step) }

// block chooses what is packed, and the size of tiles.
func (k *product) block() {
	t := k.tiles
	bytes := k.a.size*(k.m+k.N)*k.k + k.To.Size()*k.m*k.N
	small := bytes <= smallBytes
	macs := k.m * k.N * max(k.k, 1)

	k.depth = k.k
	if cells := k.cells(k.k); cells > MostDepth {
		k.depth = tiling.Even(cells, MostDepth, 16) * t.Step
	}
	k.depth = max(k.depth, 1)

	inPlace := t.Masked && k.b.element == gemm.F32 && !k.b.trans
	if k.a.trans && k.m > 4*t.MR && k.b.stride*k.b.size%RowConflict == 0 {
		inPlace = false // many short panels, whose rows share lines of the first cache
	}
	// Rows of a small B that share lines of the first cache are packed as the
	// first rows of a tile are computed, by the worker that needs them.
	gaps := small && inPlace && t.Copies.Rows != nil && k.m > 2*t.MR && k.b.stride*k.b.size%RowConflict == 0
	inPlace = inPlace && !gaps
	k.b.packed = k.caches || !(inPlace && (small || k.m <= t.MR))
	if !small && !k.b.packed {
		// All that costs is to read B: row by row, as it lies.
		k.depth = min(k.depth, streamDepth)
	}
	if !small && k.b.packed && !k.b.trans && k.b.element == gemm.F32 && k.m <= streamRows && t.Copies.Rows != nil {
		// That is most of what costs: panels that fit the first cache are copied
		// while few lines are on their way.
		k.depth = min(k.depth, tiling.Even(k.k, copyDepth, 16))
	}
	switch {
	case k.a.element.Converts():
		k.a.packed = true // and converted
	case k.a.trans:
		k.a.packed = k.a.element == gemm.Pairs || !small || k.a.stride*k.a.size%RowConflict == 0 && k.N >= packedPanels*t.NR && t.Prefetch.Inner != nil
	default:
		apart := k.a.stride * k.a.size
		k.a.packed = k.k%t.Step != 0 || k.k > 16*t.MR && apart%Conflicts == 0 && k.N > 4*t.NR
		// Kernels of many registers take one line of a panel where rows take one
		// each; transposing them costs those without AVX-512 more than it saves.
		k.a.panels = k.a.packed && k.a.element == gemm.F32 && t.Prefetch.Inner != nil
	}

	cells := k.cells(k.depth)
	k.tileM = max(1, min(mostRows, blockBytes/(4*cells)))
	// An even number of tiles, as cores mostly are.
	blocks := max(1, tiling.CeilDiv(k.m, k.tileM))
	if blocks > 1 {
		blocks = tiling.RoundUp(blocks, 2)
	}
	k.tileM = max(1, tiling.CeilDiv(k.m, blocks))
	if gaps && 4*cells*k.m <= gapBytes {
		k.tileM = k.m
	}
	k.slice()
	// Where columns cannot be masked, the last kernel writes more of them. What
	// follows a product is done by kernels if sums are of a single step.
	finishes := k.tileEpilogue != nil && k.k > 0 && k.depth >= k.k
	k.direct = k.To == dtype.Float32 && (t.Masked || k.N%t.NR == 0) && (k.After == nil || finishes)
	// A single block of rows is cut by columns, which each chunk packs itself:
	// they do not go from core to core. What must be converted is packed once
	// rather than by each block of rows.
	share, rows := 32, max(4*t.MR, k.tileM)
	if k.b.element != gemm.F32 {
		share = 8
	}
	k.caches = k.caches && k.slices == 1
	byColumns := gaps && k.N >= 4*t.NR
	k.ownsB = !k.caches && !byColumns && k.slices == 1 && k.b.packed && k.N <= mostCols && 4*cells*tiling.RoundUp(k.N, t.NR) <= ownedBytes && k.depth >= k.k
	k.sharesB = k.caches || !k.ownsB && !byColumns && k.slices == 1 && k.b.packed && k.batches == 1 && k.m > rows && macs >= share*ChunkMACs
	shallow := k.k <= shortDepth
	if k.slices == 1 {
		k.cut(shallow)
	}
	k.down = tiling.CeilDiv(k.m, k.tileM)
	k.copies = t.Copies.Rows != nil && k.b.packed && !k.sharesB && k.b.element == gemm.F32 && !k.b.trans
	k.onePanel = k.down == 1 && k.b.packed && !k.sharesB && !k.ownsB && !shallow
	// A few columns: A is what is read from memory, rows in turn. Few steps: what
	// counts is to write the result, and to read what follows.
	along := !k.onePanel && !k.a.trans && k.b.packed && k.depth >= k.k && k.TileN <= firstPanels*t.NR
	k.packsRows = along && !shallow && k.a.element.Converts()
	k.rowsFirst = shallow || along && !k.a.packed || k.packsRows
	width := max(k.N, 1)
	if k.sharesB && !k.caches {
		width = max(k.TileN, shareBytes/(4*k.cells(k.k))/k.TileN*k.TileN)
	}
	for col := 0; col < max(k.N, 1); col += width {
		p := stripe{product: k, col: col, cols: min(width, k.N-col)}
		p.across = tiling.CeilDiv(p.cols, k.TileN)
		k.stripes = append(k.stripes, p)
	}
	for i := range k.stripes {
		k.stripes[i].packing.stripe = &k.stripes[i]
	}
}

// cut chooses the columns of tiles, and makes tiles smaller until there are
// enough for several workers.
func (k *product) cut(shallow bool) {
	t := k.tiles
	k.TileN = tiling.Even(k.N, mostCols, t.NR)
	least := ChunkMACs
	want := tiling.MinChunks
	// A worker that packs an operand keeps it for its other chunks: those of the
	// same columns, or of the same rows.
	ownsA := k.b.packed && !k.sharesB && !k.ownsB && k.tileM >= k.m && k.depth >= k.k
	switch {
	case k.ownsB:
		want *= 2 // for the sake of even shares
	case ownsA:
	case k.a.element != gemm.F32 && !k.sharesB && k.m*k.N*k.k < tiling.MinChunks*convertMACs:
		want /= 2 // each chunk converts all rows
	case k.a.packed || k.b.packed && !k.caches:
		least <<= 2 // each chunk packs
	}
	count := func() int { return k.batches * tiling.CeilDiv(k.m, k.tileM) * tiling.CeilDiv(k.N, k.TileN) }
	for count() < want && k.tileM*k.TileN*max(k.k, 1) >= 2*least {
		// Halve what costs the least: rows are shared by all tiles of a row,
		// columns packed by each tile of a column.
		// B in place that is the larger operand is read by one worker or the other.
		across := k.TileN >= 2*t.NR && !k.ownsB && !shallow && (k.b.packed && !k.sharesB || !k.b.packed && k.N >= 2*k.m || k.TileN >= 2*k.tileM && !(k.a.packed && k.sharesB))
		switch {
		case across:
			k.TileN = tiling.Even(k.TileN, k.TileN/2, t.NR)
		case k.tileM >= 2*t.MR && !ownsA:
			k.tileM = tiling.CeilDiv(k.tileM, 2)
		case k.TileN >= 2*t.NR && !k.ownsB:
			k.TileN = tiling.Even(k.TileN, k.TileN/2, t.NR)
		default:
			return
		}
	}
}

// layout places accumulators and packed operands in scratch memory.
func (k *product) layout() {
	t, cells := k.tiles, k.cells(k.depth)
	need := 0
	take := func(n int) int {
		at := need
		need += tiling.RoundUp(n, 64)
		return at
	}
	if k.slices == 1 && (!k.direct || k.depth < k.k) {
		k.ldSums = 4*tiling.RoundUp(k.TileN, t.NR) + 2*RowPad
		if k.N%t.NR == 0 && k.TileN >= k.N && 4*k.N%setConflict != 0 {
			k.ldSums = 4 * k.N // rows follow each other, as in the result
		}
		take(k.tileM * k.ldSums)
	}
	if k.a.packed {
		// Where a panel has fewer rows than a vector, to convert their pieces
		// would take as long as to multiply.
		k.a.stored = k.a.trans && t.Inner != nil && t.MR < 8 && k.a.element.Converts()
		width, rows := cells, k.tileM
		if k.a.stored {
			width, rows = rows, width
		}
		if k.packsRows {
			rows = min(rows, t.MR)
		}
		k.a.lead = 4 * width
		if k.a.lead%RowConflict == 0 || k.a.element == gemm.F32 {
			k.a.lead += RowPad
		}
		k.atA = take(rows * k.a.lead)
	}
	switch {
	case k.onePanel:
		k.atB = take(4 * cells * t.NR)
	case k.b.packed && !k.sharesB:
		k.atB = take(4 * cells * tiling.RoundUp(k.TileN, t.NR))
	case !k.b.packed && k.N%t.NR != 0:
		k.atB = take(4 * cells * t.NR) // the last panel
	}
	k.scratch = need
	if !k.direct && k.store == nil {
		k.store = k.result().Convert
	}
}

const (
	CacheRows  = 256     // of a product: more of them make packing cheap
	CacheBytes = 1 << 16 // of an operand: less lies in the cache as it is
)

// matrix is an operand of a product.
type matrix struct {
	pos    int
	dtype  dtype.DType
	trans  bool
	stride int   // elements from a row of the stored matrix to the next
	starts []int // first element, by batch
	rounds bool  // its elements become those of float16 when they are read: see sources
}

func New(b *exec.Builder, v *ir.Value) exec.Kernel {
	if v.Args[0].Type.DType == dtype.Float64 {
		return makeMatMul(b, v, kernelF64)
	}
	if set := gemm.Current(); set != nil {
		return makeProduct(b, v, set)
	}
	return makeMatMul(b, v, kernelF32)
}

// dims are the sizes of a product and its operands.
type dims struct {
	m, n, k, batches int
	a, b             matrix
}

func productDims(b *exec.Builder, v *ir.Value) dims {
	x, y, s := v.Args[0].Type.Shape, v.Args[1].Type.Shape, v.Type.Shape
	lead := s[:len(s)-2]
	d := dims{
		m: s[len(s)-2], n: s[len(s)-1], k: x[len(x)-1], batches: lead.Size(),
		a: newMatrix(b, v.Args[0], v.Attr.TransA, lead),
		b: newMatrix(b, v.Args[1], v.Attr.TransB, lead),
	}
	if v.Attr.TransA {
		d.k = x[len(x)-2]
	}
	if y[:len(y)-2].Size() == 1 && !v.Attr.TransA && x[:len(x)-2].Size() == d.batches {
		// One matrix for all batches: a single product of more rows.
		d.m *= d.batches
		d.batches = min(d.batches, 1)
	}
	return d
}

// newMatrix finds where the matrices of an operand begin when its leading axes
// are broadcast to lead.
func newMatrix(b *exec.Builder, v *ir.Value, trans bool, lead op.Shape) matrix {
	s := v.Type.Shape
	own := s[:len(s)-2]
	source, rounds := b.CastOf[v]
	if rounds {
		v = source
	}
	m := matrix{rounds: rounds, pos: b.At(v), dtype: v.Type.DType, trans: trans, stride: s[len(s)-1], starts: make([]int, lead.Size())}
	strides := make([]int, len(lead))
	size := s[len(s)-2] * s[len(s)-1]
	for i := len(own) - 1; i >= 0; i-- {
		if own[i] != 1 {
			strides[len(lead)-len(own)+i] = size
		}
		size *= own[i]
	}
	for i := range m.starts {
		m.starts[i] = tiling.OffsetAt(i, lead, strides)
	}
	return m
}
