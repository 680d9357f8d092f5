package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// panelProduct is a matrix product on tile registers, of bfloat16 or float16.
//
// Tile registers multiply so fast that what counts is how operands reach them:
// a kernel takes 32 rows and 32 columns of the result through all of the inner
// dimension at once, so that sums are stored once, while it streams A and B
// from the second cache. A is read from where it lies, unless it is transposed
// or its rows fall on the same lines of the cache; B is packed to panels of 32
// columns, by all workers together if several blocks of rows need it. While a
// block of columns is computed, the next one is fetched.
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
	result product // for its stores: what becomes of sums
	panels *gemm.Panels
	a, b   matrix
	parts  int // bfloat16 to a number

	depth        int // of a step of the inner dimension
	tileM, tileN int // of a chunk
	blockN       int // columns of it that are computed together
	down         int // chunks
	stripes      []panelStripe
	sharesB      bool
	packsA       bool
	store        tileStore
	fallback     *product // of float16

	lead, leadA, lowA                                 int // bytes from row to row of sums and of packed A, and to its other part
	atSums, atA, atTail, atEdge, atTurn, atSplit, atB int // in scratch memory
	scratch                                           int
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
	panelMACs   = 1 << 21 // multiplications worth handing to another core
	panelRows   = 256     // of A in a chunk
	panelDepth  = 1024    // inner dimensions up to this are not split
	panelBlock  = 512 << 10
	panelWidth  = 512     // columns of a chunk that packs B itself
	wideChunk   = 2048    // columns of a chunk that can be halved
	flagBytes   = 64      // before packed operands: whether an element is not finite
	setConflict = 2048    // rows of A a multiple of these bytes apart leave few lines of the first cache
	splitMACs   = 1 << 17 // multiplications that are worth splitting float16 for
	splitCols   = 512     // elements of a row that are split at a time
)

// newPanelProduct makes the kernel of a product on tile registers, or returns
// nil if others are faster or keep more.
func newPanelProduct(b *builder, v *ir.Value, set *gemm.Set, d *dims) kernel {
	k := &panelProduct{
		result: product{m: d.m, n: d.n, k: d.k, batches: d.batches, set: set, out: b.at(v), to: v.Type.DType},
		panels: set.Panels, a: d.a, b: d.b, parts: 1,
	}
	if set.Panels == nil {
		return nil
	}
	switch d.a.dtype {
	case dtype.BFloat16:
		// Sums over a short inner dimension cost less than their conversion,
		// and go through float32, which keeps subnormal numbers.
		if d.k < gemm.PanelDepth || d.m < gemm.PanelRows/2 {
			return nil
		}
	case dtype.Float16:
		k.parts = 2
		if d.k < gemm.PanelDepth || d.m < gemm.PanelRows || d.n < gemm.PanelCols/2 || d.m*d.n*d.k < splitMACs {
			return nil
		}
	default:
		return nil
	}
	p := &k.result
	if p.after = newEpilogue(b, v, 2, p.n); p.after != nil {
		k.store = p.storeEpilogue
	} else {
		k.store = p.convert
	}
	k.block()
	k.layout()
	need := k.scratch
	if k.parts == 2 {
		need = max(need, k.makeFallback())
	}
	b.wantScratch(need)
	if p.after != nil {
		p.after.place(b, need, k.tileN)
	}
	if k.sharesB {
		// The first stripe is the widest.
		b.wantShared(flagBytes + k.panelBytes(p.k)*ceilDiv(k.stripes[0].cols, gemm.PanelCols))
	}
	return k
}

// panelBytes is the size of a packed panel of B with n steps of the inner
// dimension.
func (k *panelProduct) panelBytes(n int) int {
	return ceilDiv(n, gemm.PanelDepth) * gemm.PanelStep * k.parts
}

// block chooses what is packed, and the size of chunks.
func (k *panelProduct) block() {
	p := &k.result
	k.depth = p.k
	if p.k > panelDepth {
		k.depth = even(p.k, panelDepth, gemm.PanelDepth)
	}
	k.tileM = even(p.m, panelRows, gemm.PanelRows)
	k.tileN = p.n
	// A single block of rows is cut by columns, which each chunk packs itself.
	k.sharesB = p.batches == 1 && ceilDiv(p.m, k.tileM) > 1
	if !k.sharesB {
		k.tileN = even(p.n, panelWidth, gemm.PanelCols)
	}
	count := func() int { return p.batches * ceilDiv(p.m, k.tileM) * ceilDiv(p.n, k.tileN) }
	worth := func() bool { return k.tileM*k.tileN*p.k >= 2*panelMACs }
	for count() < wantChunks && worth() {
		switch {
		case k.sharesB && k.tileN >= wideChunk, !k.sharesB && k.tileN > 2*gemm.PanelCols:
			k.tileN = even(k.tileN, ceilDiv(k.tileN, 2), gemm.PanelCols)
		case k.tileM > gemm.PanelRows && count() < wantChunks/2:
			k.tileM = even(k.tileM, ceilDiv(k.tileM, 2), gemm.PanelRows)
		default:
			goto cut
		}
	}
cut:
	k.down = ceilDiv(p.m, k.tileM)
	k.blockN = min(roundUp(k.tileN, gemm.PanelCols), even(k.tileN, max(2, panelBlock/k.panelBytes(k.depth))*gemm.PanelCols, gemm.PanelCols))
	stripe := p.n
	if k.sharesB {
		stripe = max(1, shareBytes/(k.panelBytes(p.k)*ceilDiv(k.tileN, gemm.PanelCols))) * k.tileN
	}
	for col := 0; col < p.n; col += stripe {
		s := panelStripe{panelProduct: k, index: len(k.stripes), col: col, cols: min(stripe, p.n-col)}
		s.across = ceilDiv(s.cols, k.tileN)
		k.stripes = append(k.stripes, s)
	}
	for i := range k.stripes {
		k.stripes[i].packing.panelStripe = &k.stripes[i]
	}
	k.packsA = k.parts > 1 || k.a.trans || p.k%2 != 0 || 2*k.a.stride%setConflict == 0 && k.tileN >= 4*gemm.PanelCols
}

// layout places sums and packed operands in scratch memory, behind the flag.
func (k *panelProduct) layout() {
	need := flagBytes
	take := func(n int) int {
		at := need
		need += roundUp(n, 64)
		return at
	}
	rows, cols := gemm.PanelRows, k.blockN
	if k.depth < k.result.k {
		rows, cols = k.tileM, roundUp(k.tileN, gemm.PanelCols)
	}
	k.lead = 4*cols + 2*rowPad
	k.atSums = take(rows * k.lead)
	k.leadA = 2*roundUp(k.depth, gemm.PanelDepth) + rowPad
	if k.packsA {
		k.lowA = k.tileM * k.leadA
		k.atA = take(k.parts * k.lowA)
	} else {
		k.atTail = take(k.tileM * 2 * gemm.PanelDepth)
		k.atEdge = take(gemm.PanelRows * k.leadA)
	}
	if k.a.trans {
		k.atTurn = take(2 * gemm.PanelDepth * 16)
	}
	if k.parts == 2 {
		k.atSplit = take(2 * k.splitBytes())
	}
	if !k.sharesB {
		k.atB = take(k.panelBytes(k.depth) * ceilDiv(k.tileN, gemm.PanelCols))
	}
	k.scratch = need
}

// splitBytes is the memory for one part of what is split at a time: some
// columns of as many rows as a panel step has, or 16 rows of the inner
// dimension.
func (k *panelProduct) splitBytes() int {
	return 2 * max(gemm.PanelDepth*splitCols, 16*roundUp(k.depth, gemm.PanelDepth))
}

// makeFallback makes the product in float32 of the same chunks, and returns
// what scratch memory it needs.
func (k *panelProduct) makeFallback() int {
	f := k.result
	f.tiles = f.set.F32
	f.a = operandOf{matrix: k.a, element: gemm.F16, size: 2}
	f.b = operandOf{matrix: k.b, element: gemm.F16, size: 2}
	k.fallback = &f
	if f.after != nil {
		f.store = k.fallback.storeEpilogue
	}
	f.block()
	f.depth = min(f.depth, 128)
	f.sharesB, f.b.packed = false, true
	f.tileM, f.tileN, f.down = k.tileM, k.tileN, k.down
	f.stripes = nil
	for _, s := range k.stripes {
		f.stripes = append(f.stripes, part{product: k.fallback, col: s.col, cols: s.cols, across: s.across})
	}
	f.layout()
	return f.scratch
}
