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
// Tile registers multiply so fast that the time depends on how operands reach them. A
// kernel computes 32 rows and 32 columns of the result over the whole inner dimension, so
// that sums are stored once, while it streams A and B from L2. It reads A in place, unless
// A is transposed or its rows share lines of L1. B is packed in panels of 32 columns, once
// for all workers if several blocks of rows need it. While a block of columns is computed,
// the next one is prefetched.
//
// An inner dimension that is too long for that is cut into steps, and sums are stored after
// each. With many rows and columns, a block of columns goes through all steps before the
// next block begins: its sums stay in L2 from step to step.
//
// Packed B has pairs of neighbouring elements of the inner dimension, as rows of A have
// them. A stored B is only interleaved for that; a transposed A is transposed, too. So a
// product with A transposed, the gradient of a weight, is computed as Cᵀ = Bᵀ·A if B is the
// smaller operand. If its inner dimension is long, workers take slices of it, as in product.
//
// Tile registers multiply bfloat16 only. A float16 is the exact sum of two bfloat16, and a
// product of two float16 the sum of four products: the result is as exact as in float32
// arithmetic. Infinities and NaN cannot be split so. Splitting reports them, and the
// fallback computes the tiles that depend on them in float32.
//
// The cuts depend on shapes only, and so do the bits of the result: see
// [Problem.BlockPanels].
type panelProduct struct {
	result product // its stores and epilogue write the result
	panels *gemm.Panels
	Blocking
	m, n         int // of the computed matrix: the result or its transpose
	a, b         matrix
	pieces       int // bfloat16 that make up an element: 2 for float16
	stripes      []panelStripe
	tileEpilogue *tileEpilogue // applied to tiles that kernels write to the result, or nil
	store        tileStore
	fallback     *product // of float16

	ld, ldTransposed                          int // bytes from row to row of sums and of transposed results
	ldA, lowA, stepA                          int // bytes of packed A: from row to row, to the second piece, from step to step
	atSums, atA, atTail, atEdge, atPairs, atB int // in scratch memory
	atTransposed                              int
	scratch                                   int
}

// panelStripe is a stripe of columns whose packed panels workers share at a
// time: the task of computing it. packing is the task that packs B before.
type panelStripe struct {
	*panelProduct
	index     int
	col, cols int
	across    int // tiles
	packing   panelPacking
}

// sharesB reports whether all workers read the same packed B.
func (k *panelProduct) sharesB() bool { return k.Pack.B == BShared }

// packsA reports whether A is packed.
func (k *panelProduct) packsA() bool { return k.Pack.A != AInPlace }

// Sizes of packed operands.
const (
	FlagBytes      = 64                                   // before packed operands: whether an element is not finite
	TransposeBytes = 2 * gemm.PanelDepth * gemm.PanelCols // of a block that is transposed
)

// newPanelProduct makes the kernel of a product on tile registers.
func newPanelProduct(b *exec.Builder, v *ir.Value, set *gemm.Set, d *dims) exec.Kernel {
	k := &panelProduct{
		result: product{Writer: Writer{Set: set, N: d.n, Out: b.At(v), To: v.Type.DType}, m: d.m, k: d.k, batches: d.batches},
		panels: set.Panels, m: d.m, n: d.n, a: d.a, b: d.b,
	}
	p := &k.result
	if p.After = elementwise.NewEpilogue(b, v, 2, p.N); p.After != nil {
		p.lowEpilogue = newLowEpilogue(b, v, set, p.N)
		k.store = p.epilogueStore()
		if k.tileEpilogue = newTileEpilogue(b, v, set, p.N); k.tileEpilogue != nil && k.tileEpilogue.add >= 0 {
			k.tileEpilogue = nil // kernels would have to begin with sums in the layout of theirs
		}
	} else {
		k.store = p.Convert
	}
	problem := k.problem(d)
	k.pieces, k.Blocking = problem.pieces(), problem.BlockPanels()
	if k.Transpose {
		k.m, k.n, k.a, k.b = p.N, p.m, d.b, d.a
		k.a.trans, k.b.trans = true, false
	}
	p.Slices, p.Direct = k.Slices, k.Direct || p.After == nil && p.To == dtype.Float32
	p.Tiles.Rows, p.TileN = k.Tiles.Rows, k.Tiles.Cols
	if k.Transpose {
		p.Tiles.Rows, p.TileN = k.Tiles.Cols, k.Tiles.Rows
	}
	k.cutStripes()
	k.layout()
	need := k.scratch
	if k.pieces == 2 {
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
	if k.sharesB() {
		// The first stripe is the widest.
		b.ReserveShared(FlagBytes + k.panelBytes(p.k)*tiling.CeilDiv(k.stripes[0].cols, gemm.PanelCols))
	}
	return k
}

// problem returns the input of the blocking.
func (k *panelProduct) problem(d *dims) Problem {
	p := Problem{M: d.m, N: d.n, K: d.k, Batches: d.batches, To: k.result.To}
	element := gemm.ElementOf[d.a.dtype]
	p.A = Operand{Element: element, Size: 2, Trans: d.a.trans, Stride: d.a.stride}
	p.B = Operand{Element: element, Size: 2, Trans: d.b.trans, Stride: d.b.stride}
	switch {
	case k.tileEpilogue != nil:
		p.Epilogue = TileEpilogue
	case k.result.After != nil:
		p.Epilogue = ChainEpilogue
	}
	return p
}

// cutStripes makes the stripes.
func (k *panelProduct) cutStripes() {
	for col := 0; col < max(k.n, 1); col += k.Tiles.Stripe {
		s := panelStripe{panelProduct: k, index: len(k.stripes), col: col, cols: min(k.Tiles.Stripe, k.n-col)}
		s.across = tiling.CeilDiv(s.cols, k.Tiles.Cols)
		k.stripes = append(k.stripes, s)
	}
	for i := range k.stripes {
		k.stripes[i].packing.panelStripe = &k.stripes[i]
	}
}

// panelBytes is the size of a packed panel of B with n elements of the inner dimension.
func (k *panelProduct) panelBytes(n int) int { return panelBytes(n, k.pieces) }

// layout places sums and packed operands in scratch memory, behind the flag.
func (k *panelProduct) layout() {
	need := FlagBytes
	take := func(n int) int {
		at := need
		need += tiling.RoundUp(n, 64)
		return at
	}
	rows, cols := gemm.PanelRows, k.BlockCols
	switch {
	case k.Order == BlocksFirst:
		rows = tiling.RoundUp(k.Tiles.Rows, gemm.PanelRows)
	case k.Transpose || k.Depth < k.result.k:
		rows, cols = tiling.RoundUp(k.Tiles.Rows, gemm.PanelRows), tiling.RoundUp(k.Tiles.Cols, gemm.PanelCols)
	}
	k.ld = 4*cols + 2*RowPad
	if k.n%16 == 0 && k.BlockCols >= k.n && 4*k.n%setConflict != 0 && !k.Transpose {
		k.ld = 4 * k.n // rows follow each other, as in the result
	}
	if !k.Direct {
		k.atSums = take(rows * (4*cols + 2*RowPad))
	}
	k.ldA = 2*tiling.RoundUp(k.Depth, gemm.PanelDepth) + RowPad
	if k.packsA() {
		k.lowA = tiling.RoundUp(k.Tiles.Rows, gemm.PanelRows) * k.ldA
		k.stepA = k.pieces * k.lowA
		steps := 1
		if k.Order == BlocksFirst {
			steps = tiling.CeilDiv(k.result.k, k.Depth)
		}
		k.atA = take(steps * k.stepA)
	} else {
		k.atTail = take(k.Tiles.Rows * 2 * gemm.PanelDepth)
		k.atEdge = take(gemm.PanelRows * k.ldA)
	}
	if k.a.trans {
		k.atPairs = take(TransposeBytes)
	}
	if k.Transpose && k.Slices.N == 1 && !k.result.Direct {
		k.ldTransposed = 4 * k.m
		k.atTransposed = take(k.BlockCols * k.ldTransposed)
	}
	if !k.sharesB() {
		k.atB = take(k.panelBytes(k.Depth) * tiling.CeilDiv(k.Tiles.Cols, gemm.PanelCols))
	}
	k.scratch = need
}

// makeFallback makes the product in float32 of the same tiles, and returns the size of the
// scratch memory that it needs.
func (k *panelProduct) makeFallback() int {
	f := k.result
	f.tiles = f.Set.F32
	x, y := k.a, k.b
	if k.Transpose {
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
	f.Step = f.Depth
	if f.Pack.B == BInPlace || f.Pack.B >= BShared {
		f.Pack.B = BTile
	}
	f.Slices = k.result.Slices
	f.Tiles.Rows, f.TileN = k.result.Tiles.Rows, k.result.TileN
	f.Tiles.Down = tiling.CeilDiv(f.m, f.Tiles.Rows)
	f.stripes = nil
	for _, s := range k.stripes {
		t := stripe{product: k.fallback, col: s.col, cols: s.cols, across: s.across}
		if k.Transpose {
			t.col, t.cols, t.across = 0, f.N, 1
		}
		f.stripes = append(f.stripes, t)
	}
	f.layout()
	return f.scratch
}

// panelPacking is the task of packing a stripe of B into shared memory: panel after panel,
// each over the whole inner dimension.
type panelPacking struct{ *panelStripe }

// packings returns the number of its chunks: groups of panels of a transposed B, else steps of
// the inner dimension, so that memory is read in order.
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
	for ; p < end; p += k.Depth {
		step := p / k.Depth * k.Depth
		size := k.panelBytes(min(k.Depth, k.result.k-step))
		d := unsafe.Add(k.packed(r, step, k.col+first), k.panelBytes(p-step))
		k.packB(w, d, size, found, r.Values[k.b.pos], 0, k.col+first, cols, p, min(k.Depth, end-p))
	}
}

// packed returns the panels from a column on in shared memory, for the step of the inner
// dimension from p on. The panels of a step are consecutive.
func (k *panelStripe) packed(r *exec.Run, p, col int) unsafe.Pointer {
	size := k.panelBytes(min(k.Depth, k.result.k-p))
	before := tiling.CeilDiv(k.cols, gemm.PanelCols) * k.panelBytes(p)
	return unsafe.Pointer(&r.Shared[FlagBytes+before+(col-k.col)/gemm.PanelCols*size])
}

// packB packs depth elements of the inner dimension from p on, for columns from col on. Panels
// are size bytes apart.
func (k *panelProduct) packB(_ *exec.Worker, d unsafe.Pointer, size int, found *uint32, data []byte, batch, col, cols, p, depth int) {
	b, set := &k.b, k.result.Set
	if b.trans {
		src := unsafe.Pointer(&data[2*(b.starts[batch]+col*b.stride+p)])
		TransposePanels(set, d, size, k.pieces, src, 2*b.stride, cols, depth, unsafe.Pointer(found))
		return
	}
	src := unsafe.Pointer(&data[2*(b.starts[batch]+p*b.stride+col)])
	PackPanels(set, d, size, k.pieces, src, 2*b.stride, cols, depth, unsafe.Pointer(found))
}

// TransposePanels is PackPanels for a transposed operand: columns are stored as rows, distance
// bytes apart.
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

// splitCols is the number of columns that are packed before they are split, while they are in
// L1.
const splitCols = 8 * gemm.PanelCols

// PackPanels packs depth rows at src, distance bytes apart, to panels of cols columns in all,
// size bytes apart. It splits elements into so many pieces.
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

// clearTails clears the last step of panels, if packing does not fill it.
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

// splitPanels splits packed elements into two pieces if pieces is 2.
func splitPanels(set *gemm.Set, d unsafe.Pointer, size, pieces, cols, depth int, found unsafe.Pointer) {
	if pieces == 1 {
		return
	}
	// The layout as pairs does not matter to the split.
	step := pieces * gemm.PanelStep
	for j := 0; j < cols; j += gemm.PanelCols {
		panel := unsafe.Add(d, j/gemm.PanelCols*size)
		set.Panels.Split(panel, step, gemm.PanelStep, panel, step, tiling.CeilDiv(depth, gemm.PanelDepth), gemm.PanelStep/2, found)
	}
}

// packA packs rows for depth elements of the inner dimension from p on, row by row, in each
// piece. Elements beyond depth are zero.
func (k *panelProduct) packA(w *exec.Worker, d unsafe.Pointer, data []byte, batch, row, rows, p, depth int) {
	a, found := &k.a, unsafe.Pointer(&w.Scratch[0])
	wide := tiling.RoundUp(depth, gemm.PanelDepth)
	switch {
	case a.trans:
		src := unsafe.Pointer(&data[2*(a.starts[batch]+p*a.stride+row)])
		for q := 0; q < depth; q += gemm.PanelDepth {
			k.transpose(w, unsafe.Add(d, 2*q), unsafe.Add(src, 2*q*a.stride), 2*a.stride, rows, min(gemm.PanelDepth, depth-q))
		}
		if k.pieces == 2 {
			k.panels.Split(d, k.ldA, k.lowA, d, k.ldA, rows, wide, found)
		}
	case k.pieces == 2:
		src := unsafe.Pointer(&data[2*(a.starts[batch]+row*a.stride+p)])
		k.panels.Split(d, k.ldA, k.lowA, src, 2*a.stride, rows, depth, found)
	default:
		src := unsafe.Pointer(&data[2*(a.starts[batch]+row*a.stride+p)])
		for i := range rows {
			k.copyRow(unsafe.Add(d, i*k.ldA), unsafe.Add(src, 2*i*a.stride), depth)
		}
	}
}

// transpose packs rows that are stored as columns, for a step of the inner dimension.
func (k *panelProduct) transpose(w *exec.Worker, d, s unsafe.Pointer, distance, rows, depth int) {
	TransposePairs(k.result.Set, unsafe.Pointer(&w.Scratch[k.atPairs]), d, k.ldA, s, distance, rows, depth)
}

// TransposePairs packs rows that are stored as columns at s, distance bytes apart, for a step
// of the inner dimension, 32 at a time: first as lanes of pairs, in TransposeBytes at buffer,
// then transposed to rows ld bytes apart.
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
