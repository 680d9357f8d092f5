// Package product multiplies matrices.
//
// Where to look: blocking.go decides what is packed and how the result is cut, from
// the shape alone; product.go makes the kernel and places its memory, and run.go computes
// tiles on the micro-kernels of package gemm; tall.go is products that go down A; slices.go cuts a long inner dimension;
// blocking_panels.go, panels.go and panels_run.go are the products on tile registers (AMX);
// quantized.go multiplies 8-bit integers; vector.go
// multiplies single rows and columns; portable.go is the product in Go, also for float64.
// store.go writes finished tiles, with the epilogue where there is one; tile_epilogue.go
// has the epilogues that micro-kernels compute themselves; prefetch.go lists what a tile
// prefetches for the next one.
package product

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// product is a matrix product on vector instructions, after Goto and van de Geijn, as matmul.
// Unlike matmul it packs operands only where that pays: a micro-kernel reads A in place,
// unless A must be converted or its rows share lines of L1, and also B if the operands are
// small.
//
// The result is cut into tiles, and each worker computes whole tiles over the whole inner
// dimension. A large product first packs B, in stripes of columns that all workers share; else
// the worker of a tile packs its columns itself. See Blocking.
type product struct {
	Writer
	m, k    int
	batches int
	batched bool // operands have batch axes
	tiles   *gemm.Tiles
	a, b    operandOf

	Blocking
	stripes    []stripe // the columns, by stripes
	cache      int      // index in Run.Packed of the packed B that is kept from run to run
	uncached   *product // the product that runs while B changes, or nil
	sums       sums
	transposed *product // the product of the result, if this computes its transpose, or nil
	ldA        int      // bytes from a packed row of A to the next
	ldSums     int      // bytes from a row of the accumulators to the next

	store        tileStore
	narrow       gemm.Pack          // rounds a micro-tile to the result's type, or nil
	strips       []gemm.StripKernel // of a result of that type, or nil
	narrowStrips []gemm.StripKernel // of a last panel of few columns, or nil
	tileEpilogue *tileEpilogue      // the epilogue, if micro-kernels can compute it, or nil
	lowEpilogue  *lowEpilogue       // the epilogue, if the rounding routine can compute it, or nil

	atA, atB, scratch int // offsets of packed operands in scratch memory, and its size
}

// operandOf is an operand and its elements.
type operandOf struct {
	matrix
	element gemm.Element
	size    int // bytes of an element
}

// newOperandOf returns the operand m of a product whose elements are read as element.
func newOperandOf(m matrix, element gemm.Element) operandOf {
	if m.rounds {
		element = gemm.RoundF16
	}
	return operandOf{matrix: m, element: element, size: element.Size()}
}

// stripe is a stripe of columns of a product, from column col on. It is the task that computes
// the tiles of the stripe; packing is the task that packs its B.
type stripe struct {
	*product
	col, cols int
	across    int // tiles
	packing   packing
}

// choice is the input of the choice of a product's algorithm.
type choice struct {
	dims
	b   *exec.Builder
	v   *ir.Value
	set *gemm.Set // of the current level, or nil

	leastPairs int  // elements of the inner dimension, at least, for products on pairs of bfloat16
	conv       bool // the product computes a convolution
}

// algorithms are the algorithms of MatMul. Products on tile registers need sums that are long
// enough to be worth the conversion: short sums are computed in float32, which keeps subnormal
// numbers.
var algorithms = []exec.Algorithm[*choice]{
	{
		Name: "vector",
		Applies: func(c *choice) string {
			switch {
			case c.set == nil || c.set.Dots[gemm.F32] == nil || c.a.dtype == dtype.Float64:
				return "no micro-kernels"
			case c.m != 1 && c.n != 1 || c.m*c.n == 0 || c.batches != 1:
				return fmt.Sprintf("the result is %d of %d×%d", c.batches, c.m, c.n)
			case (c.n == 1 || c.dims.b.trans) && len(c.v.Args[1].Type.Shape) > 2:
				return "a batch of columns" // which other products have, whose sums are in another order
			case c.conv && c.n > 1 && c.dims.b.trans:
				return "a batch of one pixel" // transposed convolutions of more samples have more rows
			case c.k == 0 || c.k > mostVector:
				return fmt.Sprintf("depth %d", c.k)
			}
			return ""
		},
		Pays: func(c *choice) string {
			few := c.m == 1 && c.n > 1 && c.n <= c.set.F32.NR/2 && !c.dims.b.trans
			if few && !(c.a.dtype == dtype.Float32 && fourSlices(c.set, c.n, tiling.CeilDiv(c.k, MostDepth))) {
				return "rows of few columns"
			}
			return ""
		},
		Build: func(c *choice) exec.Kernel { return newVectorProduct(c) },
	},
	{
		Name: "amx",
		Applies: func(c *choice) string {
			switch {
			case c.set == nil || c.set.Panels == nil:
				return "no tile registers"
			case !c.a.dtype.Is16():
				return fmt.Sprintf("elements of %v", c.a.dtype)
			case c.k < gemm.PanelDepth:
				return "sums are too short"
			}
			return ""
		},
		Pays: func(c *choice) string {
			small := c.m < gemm.PanelRows/2
			if c.a.dtype == dtype.Float16 {
				small = c.m < gemm.PanelRows || c.n < gemm.PanelCols/2 || c.m*c.n*c.k < SplitMACs
			}
			if small {
				return "too small"
			}
			return ""
		},
		Build: func(c *choice) exec.Kernel { return newPanelProduct(c.b, c.v, c.set, &c.dims) },
	},
	{
		Name: "blocked",
		Applies: func(c *choice) string {
			if c.set == nil || c.a.dtype == dtype.Float64 {
				return "no micro-kernels"
			}
			return ""
		},
		Build: func(c *choice) exec.Kernel { return newProduct(c.b, c.v, c.set, &c.dims, c.leastPairs) },
	},
	{
		Name:    "portable",
		Applies: func(*choice) string { return "" },
		Build: func(c *choice) exec.Kernel {
			if c.a.dtype == dtype.Float64 {
				return makeMatMul(c.b, c.v, kernelF64)
			}
			return makeMatMul(c.b, c.v, kernelF32)
		},
	},
}

// inPairs reports whether sums of k products are those of micro-kernels on pairs of bfloat16.
// Short sums are computed in float32, which keeps subnormal numbers.
func inPairs(set *gemm.Set, element gemm.Element, k, least int) bool {
	return element == gemm.BF16 && set.Pairs != nil && k >= least
}

// newProduct makes the kernel of a product with float32 accumulators.
func newProduct(b *exec.Builder, v *ir.Value, set *gemm.Set, dims *dims, leastPairs int) exec.Kernel {
	k := &product{Writer: Writer{Set: set, N: dims.n, Out: b.At(v), To: v.Type.DType}, m: dims.m, k: dims.k, batches: dims.batches, batched: len(v.Type.Shape) > 2, tiles: set.F32}
	k.After = elementwise.NewEpilogue(b, v, 2, k.N)
	element := gemm.ElementOf[v.Args[0].Type.DType]
	if inPairs(set, element, k.k, leastPairs) {
		element, k.tiles = gemm.Pairs, set.Pairs
	}
	k.a, k.b = newOperandOf(dims.a, element), newOperandOf(dims.b, element)
	if k.To.Is16() && k.tiles.NR <= 32 {
		k.narrow = set.NarrowLanes[gemm.ElementOf[k.To]]
	}
	if k.To == dtype.BFloat16 {
		kind := gemm.F32
		if element == gemm.Pairs {
			kind = gemm.Pairs
		}
		k.strips, k.narrowStrips = set.Strips[kind], set.NarrowStrips[kind]
	}
	k.tileEpilogue, k.lowEpilogue = newTileEpilogue(b, v, set, k.N), newLowEpilogue(b, v, set, k.N)
	if k.batches == 1 && k.m > 1 && k.m <= keptRows && k.b.size*k.N*k.k >= CacheBytes && backend.Keeps(backend.PackedOperands) && b.ReadOnly(v.Args[1]) {
		unkept := *k
		unkept.settle(b)
		k.uncached = &unkept
	}
	k.transpose()
	k.settle(b)
	return k
}

// settle decides the blocking and reserves memory.
func (k *product) settle(b *exec.Builder) {
	result := k.result()
	k.block()
	if k.After != nil && !k.Direct {
		k.store = result.epilogueStore()
	}
	k.layout()
	if k.Slices.N > 1 {
		k.sums.init(k)
		b.ReserveShared(k.Slices.N * k.partBytes())
	}
	b.ReserveScratch(k.scratch)
	if k.After != nil {
		// After the memory of the product that runs while B changes.
		behind, cols := k.scratch, max(k.TileN, result.TileN)
		if k.uncached != nil {
			behind, cols = max(behind, k.uncached.scratch), max(cols, k.uncached.TileN)
		}
		k.After.Place(b, behind, cols)
	}
	if k.Pack.B >= BShared {
		// The first stripe is the widest.
		bytes := 4 * tiling.RoundUp(k.stripes[0].cols, k.tiles.NR) * k.cells(k.k)
		if k.Pack.B == BCached {
			k.cache = b.ReservePacked(bytes)
		} else {
			b.ReserveShared(bytes)
		}
	}
}

// result returns the product whose result is stored.
func (k *product) result() *product {
	if k.transposed != nil {
		return k.transposed
	}
	return k
}

// epilogueStore returns the store of a product with an epilogue.
func (k *product) epilogueStore() tileStore {
	if k.lowEpilogue != nil {
		return k.storeLow
	}
	return k.StoreEpilogue
}

// problem returns the input of the blocking.
func (k *product) problem() Problem {
	p := Problem{
		M: k.m, N: k.N, K: k.k, Batches: k.batches, Batched: k.batched, A: k.a.operand(), B: k.b.operand(),
		To: k.To, Micro: k.tiles, Rounds: k.narrow != nil, Ordered: k.Set.Ordered, StripKernels: k.strips != nil, Cached: k.uncached != nil, Transposed: k.transposed != nil,
	}
	switch {
	case k.tileEpilogue != nil:
		p.Epilogue = TileEpilogue
	case k.After != nil:
		p.Epilogue = ChainEpilogue
	}
	return p
}

func (o *operandOf) operand() Operand { return Operand{o.element, o.size, o.trans, o.stride} }

// cells returns the number of elements of 4 bytes, float32 or pairs, for n elements of the
// inner dimension with padding.
func (k *product) cells(n int) int { return tiling.CeilDiv(n, k.tiles.Step) }

// block decides the blocking and makes the stripes.
func (k *product) block() {
	k.Blocking = k.problem().Block()
	k.TileN = k.Tiles.Cols
	for col := 0; col < max(k.N, 1); col += k.Tiles.Stripe {
		p := stripe{product: k, col: col, cols: min(k.Tiles.Stripe, k.N-col)}
		p.across = tiling.CeilDiv(p.cols, k.Tiles.Cols)
		k.stripes = append(k.stripes, p)
	}
	for i := range k.stripes {
		k.stripes[i].packing.stripe = &k.stripes[i]
	}
}

// layout places accumulators and packed operands in scratch memory.
func (k *product) layout() {
	t, cells := k.tiles, k.cells(k.Depth)
	need := 0
	take := func(n int) int {
		at := need
		need += tiling.RoundUp(n, 64)
		return at
	}
	switch {
	case k.Round:
		k.ldSums = 4 * t.NR
		take(t.MR * k.ldSums)
	case k.Slices.N == 1 && !k.Strips && (!k.Direct || k.Depth < k.k):
		k.ldSums = 4*tiling.RoundUp(k.TileN, t.NR) + 2*RowPad
		if k.N%t.NR == 0 && k.TileN >= k.N && 4*k.N%setConflict != 0 {
			k.ldSums = 4 * k.N // rows follow each other, as in the result
		}
		take(k.Tiles.Rows * k.ldSums)
	}
	if k.Pack.A != AInPlace {
		width, rows := cells, k.Tiles.Rows
		switch k.Pack.A {
		case AStored:
			width, rows = rows, width
		case AOnDemand:
			rows = min(rows, t.MR)
		}
		k.ldA = 4 * width
		if k.ldA%RowConflict == 0 || k.a.element == gemm.F32 {
			k.ldA += RowPad
		}
		k.atA = take(rows * k.ldA)
	}
	switch {
	case k.Pack.B == BPanel && k.Strips:
		k.atB = take(4 * cells * k.stripCols())
	case k.Pack.B == BPanel:
		k.atB = take(4 * cells * t.NR)
	case k.Pack.B == BTile || k.Pack.B == BPerWorker:
		k.atB = take(4 * cells * tiling.RoundUp(k.TileN, t.NR))
	case k.Pack.B == BInPlace && k.N%t.NR != 0:
		k.atB = take(4 * cells * t.NR) // the last panel
	}
	k.scratch = need
	if !k.Direct && !k.Round && !k.Strips && k.store == nil {
		k.store = k.result().Convert
	}
}

// stripCols returns the columns that strips are multiplied with at a time: those of a tile, or
// as many as L2 has room for.
func (k *product) stripCols() int {
	nr := k.tiles.NR
	return min(tiling.RoundUp(k.TileN, nr), max(1, stripBytes/(4*nr*k.cells(k.Depth)))*nr)
}

const (
	leastPairs     = 3 // elements of an inner dimension, at least, for products on pairs
	leastConvPairs = 8 // channels of a convolution, at least, for products on pairs

	keptRows   = 2048    // rows of a product, at most, whose packed B is kept: with more rows packing is some 1 % of the time
	CacheRows  = 256     // rows, at most, of recurrences and convolutions that keep packed kernels
	CacheBytes = 1 << 16 // of an operand, at least: a smaller one stays in the cache
)

// matrix is an operand of a product.
type matrix struct {
	pos    int
	dtype  dtype.DType
	trans  bool
	stride int   // elements from a row of the stored matrix to the next
	starts []int // first element, by batch
	rounds bool  // elements are rounded to float16 when they are read: see FoldCasts
}

// New makes the kernel of a MatMul.
func New(b *exec.Builder, v *ir.Value) exec.Kernel {
	return exec.Choose(b, v, "matmul", algorithms, &choice{productDims(b, v), b, v, gemm.Products(), leastPairs, false})
}

// NewConv is New for the product that computes a convolution. Its sums over few channels keep
// subnormal numbers, as those of other convolutions do.
func NewConv(b *exec.Builder, v *ir.Value) exec.Kernel {
	return exec.Choose(b, v, "matmul", algorithms, &choice{productDims(b, v), b, v, gemm.Products(), leastConvPairs, true})
}

// dims are the sizes of a product and its operands.
type dims struct {
	m, n, k, batches int
	a, b             matrix
}

func productDims(b *exec.Builder, v *ir.Value) dims {
	x, y, s := v.Args[0].Type.Shape, v.Args[1].Type.Shape, v.Type.Shape
	batch := s[:len(s)-2]
	d := dims{
		m: s[len(s)-2], n: s[len(s)-1], k: x[len(x)-1], batches: batch.Size(),
		a: newMatrix(b, v.Args[0], v.Attr.TransA, batch),
		b: newMatrix(b, v.Args[1], v.Attr.TransB, batch),
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

// newMatrix returns an operand with the offsets of its matrices, when its batch
// axes are broadcast to batch.
func newMatrix(b *exec.Builder, v *ir.Value, trans bool, batch op.Shape) matrix {
	s := v.Type.Shape
	dims := s[:len(s)-2]
	source, rounds := b.CastOf[v]
	if rounds {
		v = source
	}
	m := matrix{rounds: rounds, pos: b.At(v), dtype: v.Type.DType, trans: trans, stride: s[len(s)-1], starts: make([]int, batch.Size())}
	strides := make([]int, len(batch))
	size := s[len(s)-2] * s[len(s)-1]
	for i := len(dims) - 1; i >= 0; i-- {
		if dims[i] != 1 {
			strides[len(batch)-len(dims)+i] = size
		}
		size *= dims[i]
	}
	for i := range m.starts {
		m.starts[i] = tiling.OffsetAt(i, batch, strides)
	}
	return m
}

// String describes the blocking.
func (k *product) String() string { return k.Blocking.String() }

// Algorithms returns the names of the algorithms.
func Algorithms() []string { return exec.Names(algorithms) }
