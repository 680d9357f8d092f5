package product

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// panelProduct is a matrix product on tile registers, of bfloat16 or float16.
//
// Tile registers multiply so fast that what counts is how operands reach them:
// a kernel takes 32 rows and 32 columns of the result through all of the inner
// dimension at once, so that sums are stored once, while it streams A and B
// from L2. A is read from where it lies, unless it is transposed
// or its rows fall on the same cache sets; B is packed to panels of 32
// columns, by all workers together if several blocks of rows need it. While a
// block of columns is computed, the next one is fetched.
//
// An inner dimension that is too long for that is taken in steps, and sums are
// stored after each. Where there are many rows and columns, those of a block
// go through all steps before the next block begins: they stay in L2,
// to which a step then adds little.
//
// In packed B neighbouring steps of the inner dimension make pairs, as rows of
// A have them. So rows of memory that are steps are interleaved to make B, but
// transposed besides to make A: a product with A transposed, the gradient of a
// weight, is computed transposed, Cᵀ = Bᵀ·A, if B is the smaller. If its inner
// dimension is long, workers take slices of it, as in product.
//
// The registers know bfloat16 only. A float16 is the exact sum of two of
// these, and a product of two float16 that of four products: the result is as
// exact as in float32 arithmetic. Infinities and NaN have no such parts. They
// are noticed when operands are split; what depends on them is computed in
// float32, by fallback.
//
// How everything is cut depends on shapes only, and so do the bits of the
// result.
type panelProduct struct {
	result     product // for its stores: what becomes of sums
	panels     *gemm.Panels
	m, n       int // of what is computed: the result, or its transpose
	a, b       matrix
	transposed bool
	parts      int // bfloat16 to a number

	depth        int // of a step of the inner dimension
	tileM, tileN int // of a chunk
	blockN       int // columns of it that are computed together
	down         int // chunks
	stripes      []panelStripe
	sharesB      bool
	packsA       bool
	byBlocks     bool          // each block of columns goes through all of the inner dimension before the next
	direct       bool          // kernels write the result themselves
	follow       *tileEpilogue // what follows, if that is done there, or nil
	store        tileStore
	fallback     *product // of float16

	ld, ldA, lowA, ldTransposed                             int // bytes from row to row of sums and of packed A, to its other part, of transposed results
	stepA                                                   int // bytes from a packed step of A to the next
	atSums, atA, atTail, atEdge, atPairs, atTransposed, atB int // in scratch memory
	scratch                                                 int
}

// panelStripe is a stripe of columns whose packed panels workers share at a
// time: the task of computing it. packing is the task that packs B before.
type panelStripe struct {
	*panelProduct
	index     int
	col, cols int
	across    int // chunks
	packing   panelPacking
}

// Limits of blocks.
const (
	panelMACs      = 1 << 21 // multiplications worth handing to another core
	panelRows      = 256     // of A in a chunk
	tallRows       = 96      // of A in a chunk, where long ones would push a B of few columns out of L2
	panelDepth     = 1024    // inner dimensions up to this are not split
	panelBlock     = 512 << 10
	panelWidth     = 512                                  // columns of a chunk that packs B itself
	blockCols      = 512                                  // columns of bfloat16 whose sums, of panelRows, stay in L2 with a step of both operands
	blockDepth     = 256                                  // of such a step: a kernel's rows of A stay in L1
	wideChunk      = 2048                                 // columns of a chunk that can be halved
	FlagBytes      = 64                                   // before packed operands: whether an element is not finite
	setConflict    = 2048                                 // rows of A a multiple of these bytes apart leave few lines of L1
	SplitMACs      = 1 << 17                              // multiplications that are worth splitting float16 for
	TransposeBytes = 2 * gemm.PanelDepth * gemm.PanelCols // of a block that is transposed
	transposeCost  = 2                                    // what transposing an element of the result costs in elements of an operand
	transposedCols = 128                                  // columns that are transposed at a time
)

// newPanelProduct makes the kernel of a product on tile registers.
func newPanelProduct(b *exec.Builder, v *ir.Value, set *gemm.Set, d *dims) exec.Kernel {
	k := &panelProduct{
		result: product{Writer: Writer{Set: set, N: d.n, Out: b.At(v), To: v.Type.DType}, m: d.m, k: d.k, batches: d.batches},
		panels: set.Panels, m: d.m, n: d.n, a: d.a, b: d.b, parts: 1,
	}
	if d.a.dtype == dtype.Float16 {
		k.parts = 2
	}
	p := &k.result
	if p.After = elementwise.NewEpilogue(b, v, 2, p.N); p.After != nil {
		p.lowEpilogue = newLowEpilogue(b, v, set, p.N)
		k.store = p.epilogueStore()
		if k.follow = newTileEpilogue(b, v, set, p.N); k.follow != nil && k.follow.add >= 0 {
			k.follow = nil // kernels begin with sums that lie as theirs do
		}
	} else {
		k.store = p.Convert
		p.Direct = p.To == dtype.Float32
	}
	// What packing saves, against the transposition of the result.
	if k.a.trans && !k.b.trans && p.N <= panelRows && (p.m-p.N)*p.k > transposeCost*p.m*p.N {
		k.transposed = true
		k.m, k.n, k.a, k.b = p.N, p.m, d.b, d.a
		k.a.trans, k.b.trans = true, false
	}
	k.block()
	k.layout()
	need := k.scratch
	if k.parts == 2 {
		need = max(need, k.makeFallback())
	}
	b.ReserveScratch(need)
	if p.After != nil {
		p.After.Place(b, need, p.TileN)
	}
	if p.Slices.N > 1 {
		p.store = k.store
		p.sums.init(p)
		b.ReserveShared(p.Slices.N * p.partBytes())
	}
	if k.sharesB {
		// The first stripe is the widest.
		b.ReserveShared(FlagBytes + k.panelBytes(p.k)*tiling.CeilDiv(k.stripes[0].cols, gemm.PanelCols))
	}
	return k
}

// panelBytes is the size of a packed panel of B with n steps of the inner
// dimension.
func (k *panelProduct) panelBytes(n int) int {
	return tiling.CeilDiv(n, gemm.PanelDepth) * gemm.PanelStep * k.parts
}

// slice cuts the inner dimension if that pays, as product.slice does.
func (k *panelProduct) slice() {
	p := &k.result
	p.Slices.N, p.Slices.K = 1, p.k
	parts := min(tiling.MinChunks, p.k/leastSlice)
	if !k.a.trans || k.b.trans || parts < tiling.MinChunks/2 || p.batches != 1 || k.m > panelRows || 4*p.m*p.N > sliceBytes || p.m*p.N*p.k < tiling.MinChunks*ChunkMACs {
		return
	}
	p.Slices.K = tiling.RoundUp(tiling.CeilDiv(p.k, parts), gemm.PanelDepth)
	p.Slices.N = tiling.CeilDiv(p.k, p.Slices.K)
	p.Slices.LD = 4*tiling.RoundUp(p.N, gemm.PanelCols) + RowPad
	k.depth = tiling.Even(p.Slices.K, max(leastDepth, sliceBytes/(2*k.parts*k.n)), gemm.PanelDepth)
}

// block chooses what is packed, and the size of chunks.
func (k *panelProduct) block() {
	p := &k.result
	k.depth = p.k
	if p.k > panelDepth {
		k.depth = tiling.Even(p.k, panelDepth, gemm.PanelDepth)
	}
	k.tileM = tiling.Even(k.m, panelRows, gemm.PanelRows)
	k.tileN = k.n
	if k.m > panelRows && k.n <= panelRows && k.parts*2*panelRows*k.depth > panelBlock {
		k.tileM = tiling.Even(k.m, tallRows, gemm.PanelRows)
	}
	k.slice()
	// A single block of rows is cut by columns, which each chunk packs itself.
	k.sharesB = p.Slices.N == 1 && p.batches == 1 && tiling.CeilDiv(k.m, k.tileM) > 1
	if !k.sharesB && p.Slices.N == 1 {
		k.tileN = tiling.Even(k.n, panelWidth, gemm.PanelCols)
	}
	if k.byBlocks = k.sharesB && k.depth < p.k && !k.transposed && k.n > panelRows; k.byBlocks {
		k.depth = tiling.Even(p.k, blockDepth, gemm.PanelDepth)
	}
	count := func() int {
		return p.batches * p.Slices.N * tiling.CeilDiv(k.m, k.tileM) * tiling.CeilDiv(k.n, k.tileN)
	}
	worth := func() bool { return k.tileM*k.tileN*p.k >= 2*panelMACs }
	for count() < tiling.MinChunks && worth() {
		switch {
		case k.byBlocks && k.tileN >= 2*blockCols, k.sharesB && k.tileN >= wideChunk, !k.sharesB && k.tileN > 2*gemm.PanelCols:
			k.tileN = tiling.Even(k.tileN, tiling.CeilDiv(k.tileN, 2), gemm.PanelCols)
		case k.tileM > gemm.PanelRows && count() < tiling.MinChunks/2 && !k.transposed:
			k.tileM = tiling.Even(k.tileM, tiling.CeilDiv(k.tileM, 2), gemm.PanelRows)
		default:
			goto cut
		}
	}
cut:
	k.down = tiling.CeilDiv(k.m, k.tileM)
	k.blockN = min(tiling.RoundUp(k.tileN, gemm.PanelCols), tiling.Even(k.tileN, max(2, panelBlock/k.panelBytes(k.depth))*gemm.PanelCols, gemm.PanelCols))
	if k.byBlocks {
		k.blockN = min(tiling.RoundUp(k.tileN, gemm.PanelCols), tiling.Even(k.tileN, blockCols/k.parts, gemm.PanelCols))
	}
	if k.transposed {
		k.blockN = min(k.blockN, tiling.Even(k.tileN, transposedCols, gemm.PanelCols))
	}
	stripe := k.n
	if k.sharesB {
		stripe = max(1, shareBytes/(k.panelBytes(p.k)*tiling.CeilDiv(k.tileN, gemm.PanelCols))) * k.tileN
	}
	for col := 0; col < k.n; col += stripe {
		s := panelStripe{panelProduct: k, index: len(k.stripes), col: col, cols: min(stripe, k.n-col)}
		s.across = tiling.CeilDiv(s.cols, k.tileN)
		k.stripes = append(k.stripes, s)
	}
	for i := range k.stripes {
		k.stripes[i].packing.panelStripe = &k.stripes[i]
	}
	k.packsA = k.parts > 1 || k.a.trans || p.k%2 != 0 || 2*k.a.stride%setConflict == 0 && k.tileN >= 4*gemm.PanelCols
	// Kernels write whole tile registers, as far apart as sums of earlier steps.
	k.direct = (p.Direct || k.follow != nil) && !k.transposed && p.Slices.N == 1 && k.depth >= p.k && k.m%16 == 0 && k.n%16 == 0
	p.Direct = p.Direct || k.direct
	p.Tiles.Rows, p.TileN = k.tileM, k.tileN
	if k.transposed {
		p.Tiles.Rows, p.TileN = k.tileN, k.tileM
	}
}

// layout places sums and packed operands in scratch memory, behind the flag.
func (k *panelProduct) layout() {
	need := FlagBytes
	take := func(n int) int {
		at := need
		need += tiling.RoundUp(n, 64)
		return at
	}
	rows, cols := gemm.PanelRows, k.blockN
	switch {
	case k.byBlocks:
		rows = tiling.RoundUp(k.tileM, gemm.PanelRows)
	case k.transposed || k.depth < k.result.k:
		rows, cols = tiling.RoundUp(k.tileM, gemm.PanelRows), tiling.RoundUp(k.tileN, gemm.PanelCols)
	}
	k.ld = 4*cols + 2*RowPad
	if k.n%16 == 0 && k.blockN >= k.n && 4*k.n%setConflict != 0 && !k.transposed {
		k.ld = 4 * k.n // rows follow each other, as in the result
	}
	if !k.direct {
		k.atSums = take(rows * (4*cols + 2*RowPad))
	}
	k.ldA = 2*tiling.RoundUp(k.depth, gemm.PanelDepth) + RowPad
	if k.packsA {
		k.lowA = tiling.RoundUp(k.tileM, gemm.PanelRows) * k.ldA
		k.stepA = k.parts * k.lowA
		steps := 1
		if k.byBlocks {
			steps = tiling.CeilDiv(k.result.k, k.depth)
		}
		k.atA = take(steps * k.stepA)
	} else {
		k.atTail = take(k.tileM * 2 * gemm.PanelDepth)
		k.atEdge = take(gemm.PanelRows * k.ldA)
	}
	if k.a.trans {
		k.atPairs = take(TransposeBytes)
	}
	if k.transposed && k.result.Slices.N == 1 && !k.result.Direct {
		k.ldTransposed = 4 * k.m
		k.atTransposed = take(k.blockN * k.ldTransposed)
	}
	if !k.sharesB {
		k.atB = take(k.panelBytes(k.depth) * tiling.CeilDiv(k.tileN, gemm.PanelCols))
	}
	k.scratch = need
}

// makeFallback makes the product in float32 of the same chunks, and returns
// what scratch memory it needs.
func (k *panelProduct) makeFallback() int {
	f := k.result
	f.tiles = f.Set.F32
	x, y := k.a, k.b
	if k.transposed {
		x, y = y, x
		x.trans, y.trans = true, false
	}
	f.a = operandOf{matrix: x, element: gemm.F16, size: 2}
	f.b = operandOf{matrix: y, element: gemm.F16, size: 2}
	k.fallback = &f
	if f.After != nil {
		f.store = k.fallback.epilogueStore()
	}
	f.block()
	f.Depth = min(f.Depth, 128)
	if f.Pack.B == BInPlace || f.Pack.B >= BShared {
		f.Pack.B = BTile
	}
	f.Slices = k.result.Slices
	f.Tiles.Rows, f.TileN = k.result.Tiles.Rows, k.result.TileN
	f.Tiles.Down = tiling.CeilDiv(f.m, f.Tiles.Rows)
	f.stripes = nil
	for _, s := range k.stripes {
		t := stripe{product: k.fallback, col: s.col, cols: s.cols, across: s.across}
		if k.transposed {
			t.col, t.cols, t.across = 0, f.N, 1
		}
		f.stripes = append(f.stripes, t)
	}
	f.layout()
	return f.scratch
}

// panelPacking is the task of packing a stripe of B into the shared memory:
// panel after panel, each with all of the inner dimension.
type panelPacking struct{ *panelStripe }

// packings is the number of its chunks: panels of a transposed B, else steps
// of the inner dimension, so that memory is read from end to end.
func (k *panelStripe) packings() int {
	if k.b.trans {
		return tiling.CeilDiv(k.cols, packGroup*gemm.PanelCols)
	}
	return tiling.CeilDiv(k.result.k, gemm.PanelDepth)
}

func (k *panelPacking) Chunk(r *exec.Run, w *exec.Worker, i int) {
	first, cols, p, end := 0, k.cols, i*gemm.PanelDepth, min((i+1)*gemm.PanelDepth, k.result.k)
	if k.b.trans {
		first, p, end = i*packGroup*gemm.PanelCols, 0, k.result.k
		cols = min(packGroup*gemm.PanelCols, cols-first)
	}
	found := (*uint32)(unsafe.Pointer(&r.Shared[0]))
	for ; p < end; p += k.depth {
		step := p / k.depth * k.depth
		size := k.panelBytes(min(k.depth, k.result.k-step))
		d := unsafe.Add(k.packed(r, step, k.col+first), k.panelBytes(p-step))
		k.packB(w, d, size, found, r.Values[k.b.pos], 0, k.col+first, cols, p, min(k.depth, end-p))
	}
}

// packed is where the panels from a column on lie in shared memory, for the
// step of the inner dimension from p on. Panels of a step follow each other.
func (k *panelStripe) packed(r *exec.Run, p, col int) unsafe.Pointer {
	size := k.panelBytes(min(k.depth, k.result.k-p))
	before := tiling.CeilDiv(k.cols, gemm.PanelCols) * k.panelBytes(p)
	return unsafe.Pointer(&r.Shared[FlagBytes+before+(col-k.col)/gemm.PanelCols*size])
}

// packB packs depth steps from p on of columns from col on. Panels are size
// bytes apart.
func (k *panelProduct) packB(_ *exec.Worker, d unsafe.Pointer, size int, found *uint32, data []byte, batch, col, cols, p, depth int) {
	b, set := &k.b, k.result.Set
	if b.trans {
		src := unsafe.Pointer(&data[2*(b.starts[batch]+col*b.stride+p)])
		TransposePanels(set, d, size, k.parts, src, 2*b.stride, cols, depth, unsafe.Pointer(found))
		return
	}
	src := unsafe.Pointer(&data[2*(b.starts[batch]+p*b.stride+col)])
	PackPanels(set, d, size, k.parts, src, 2*b.stride, cols, depth, unsafe.Pointer(found))
}

// TransposePanels is PackPanels of columns that are rows of memory, distance bytes
// apart.
func TransposePanels(set *gemm.Set, d unsafe.Pointer, size, pieces int, src unsafe.Pointer, distance, cols, depth int, found unsafe.Pointer) {
	clearTails(d, size, pieces, cols, depth)
	wide := cols
	if pieces == 2 {
		wide = tiling.RoundUp(cols, gemm.PanelCols) // all of a panel is split
	}
	for j := 0; j < wide; j += 16 {
		n := max(0, min(16, cols-j))
		from := unsafe.Add(src, min(j, cols-1)*distance)
		to := unsafe.Add(d, j/gemm.PanelCols*size+j%gemm.PanelCols*4)
		for q := 0; q < depth; q += gemm.PanelDepth {
			set.Transpose[gemm.Pairs](unsafe.Add(to, q/gemm.PanelDepth*pieces*gemm.PanelStep), 4*gemm.PanelCols,
				unsafe.Add(from, 2*q), distance, min(gemm.PanelDepth, depth-q), 1<<n-1, 1<<16-1)
		}
	}
	splitPanels(set, d, size, pieces, cols, depth, found)
}

// splitCols is the columns that are packed before they are split: they are in L1
// then.
const splitCols = 8 * gemm.PanelCols

// PackPanels packs depth rows of columns, distance bytes apart at src, to panels
// of so many pieces of a number, size bytes apart.
func PackPanels(set *gemm.Set, d unsafe.Pointer, size, pieces int, src unsafe.Pointer, distance, cols, depth int, found unsafe.Pointer) {
	clearTails(d, size, pieces, cols, depth)
	for q := 0; q < depth; q += gemm.PanelDepth {
		n := min(gemm.PanelDepth, depth-q)
		from, to := unsafe.Add(src, q*distance), unsafe.Add(d, q/gemm.PanelDepth*pieces*gemm.PanelStep)
		for j := 0; j < cols; j += splitCols {
			width, first := min(splitCols, cols-j), unsafe.Add(to, j/gemm.PanelCols*size)
			for i := 0; i < width; i += gemm.PanelCols {
				panel := unsafe.Add(first, i/gemm.PanelCols*size)
				set.Lanes[gemm.Pairs](panel, 4*gemm.PanelCols, unsafe.Add(from, 2*(j+i)), distance, n, 1<<min(gemm.PanelCols, width-i)-1, 1<<gemm.PanelCols-1)
			}
			if pieces == 2 {
				set.Panels.Split(first, size, gemm.PanelStep, first, size, tiling.CeilDiv(width, gemm.PanelCols), gemm.PanelStep/2, found)
			}
		}
	}
}

// clearTails fills the last step of panels with zeros, if packing does not
// fill it.
func clearTails(d unsafe.Pointer, size, pieces, cols, depth int) {
	if depth%gemm.PanelDepth == 0 {
		return
	}
	step := pieces * gemm.PanelStep
	for j := 0; j < cols; j += gemm.PanelCols {
		last := unsafe.Add(d, j/gemm.PanelCols*size+depth/gemm.PanelDepth*step)
		clear(unsafe.Slice((*byte)(last), step))
	}
}

// splitPanels makes two pieces of packed numbers, if there are to be two.
func splitPanels(set *gemm.Set, d unsafe.Pointer, size, pieces, cols, depth int, found unsafe.Pointer) {
	if pieces == 1 {
		return
	}
	// Whether elements lie as pairs is nothing to their parts.
	step := pieces * gemm.PanelStep
	for j := 0; j < cols; j += gemm.PanelCols {
		panel := unsafe.Add(d, j/gemm.PanelCols*size)
		set.Panels.Split(panel, step, gemm.PanelStep, panel, step, tiling.CeilDiv(depth, gemm.PanelDepth), gemm.PanelStep/2, found)
	}
}

// packA packs rows for depth steps from p on: each part row by row. Steps
// beyond depth are zero.
func (k *panelProduct) packA(w *exec.Worker, d unsafe.Pointer, data []byte, batch, row, rows, p, depth int) {
	a, found := &k.a, unsafe.Pointer(&w.Scratch[0])
	wide := tiling.RoundUp(depth, gemm.PanelDepth)
	switch {
	case a.trans:
		src := unsafe.Pointer(&data[2*(a.starts[batch]+p*a.stride+row)])
		for q := 0; q < depth; q += gemm.PanelDepth {
			k.transpose(w, unsafe.Add(d, 2*q), unsafe.Add(src, 2*q*a.stride), 2*a.stride, rows, min(gemm.PanelDepth, depth-q))
		}
		if k.parts == 2 {
			k.panels.Split(d, k.ldA, k.lowA, d, k.ldA, rows, wide, found)
		}
	case k.parts == 2:
		src := unsafe.Pointer(&data[2*(a.starts[batch]+row*a.stride+p)])
		k.panels.Split(d, k.ldA, k.lowA, src, 2*a.stride, rows, depth, found)
	default:
		src := unsafe.Pointer(&data[2*(a.starts[batch]+row*a.stride+p)])
		for i := range rows {
			k.copyRow(unsafe.Add(d, i*k.ldA), unsafe.Add(src, 2*i*a.stride), depth)
		}
	}
}

// transpose packs rows that are columns in memory, for a step of the inner
// dimension.
func (k *panelProduct) transpose(w *exec.Worker, d, s unsafe.Pointer, distance, rows, depth int) {
	TransposePairs(k.result.Set, unsafe.Pointer(&w.Scratch[k.atPairs]), d, k.ldA, s, distance, rows, depth)
}

// TransposePairs packs rows that are columns at s, distance bytes from one to the
// next, for a step of the inner dimension, 32 at a time: first as lanes of
// pairs, in TransposeBytes at buffer, then transposed to rows ld bytes apart.
func TransposePairs(set *gemm.Set, buffer, d unsafe.Pointer, ld int, s unsafe.Pointer, distance, rows, depth int) {
	const lanes = 4 * gemm.PanelCols // bytes of a row of pairs
	if depth < gemm.PanelDepth {
		clear(unsafe.Slice((*byte)(buffer), TransposeBytes))
	}
	for i := 0; i < rows; i += gemm.PanelCols {
		n := min(gemm.PanelCols, rows-i)
		set.Lanes[gemm.Pairs](buffer, lanes, unsafe.Add(s, 2*i), distance, depth, 1<<n-1, 1<<gemm.PanelCols-1)
		for j := 0; j < n; j += 16 {
			set.Transpose[gemm.F32](unsafe.Add(d, (i+j)*ld), ld, unsafe.Add(buffer, 4*j), lanes, min(16, n-j), 1<<16-1, 1<<16-1)
		}
	}
}
