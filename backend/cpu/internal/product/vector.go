package product

import (
	"fmt"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// vectorProduct is a product of one row, or one column, with a matrix. Each element of the
// matrix is used once, so the time is that of reading the matrix: it is neither packed nor
// converted beforehand, and is read in the order of memory.
//
// The embedded product is that of a row with the matrix B of n columns; the product with a
// column is the same with both operands transposed. Rows of B are added up, one after the
// other. Slices of the inner dimension give partial sums, which are added up at the end. This
// is the order of blocked products, so a row has the same bits in every batch. Results of a
// product with a column are dot products with the stored rows, whatever their number, and so
// are those of a row with a transposed B: transposing it back, or reading panels that are kept,
// would take two to four times as long.
type vectorProduct struct {
	*product
	vector, matrix operandOf
	width          int  // results of a chunk
	four           bool // slices are added up four at a time
	transposes     bool // stored rows are transposed to rows of B, which are added up
	atX            int  // offset of the vector as float32 in scratch memory
	atTransposed   int  // offset of transposed rows in scratch memory
}

const (
	vectorBytes    = 1 << 17 // of the matrix, for a chunk at least
	mostVector     = 1 << 16 // elements of a row, at most: calls of assembly must be short
	sumCols        = 512     // of a chunk that adds up the sums of slices
	sumWidth       = 4096    // sums that stay in L1
	shortRows      = 20      // elements of stored rows below which dot products take longer
	transposeLanes = 64      // rows that are transposed at a time
	transposeDepth = 128     // elements of each
	vectorCols     = 128     // columns of a chunk that adds up rows, at least
	pageCols       = 4096    // columns of a chunk for which rows are read in long enough pieces
	pairRows       = 32      // rows of B that are added up in a call, on pairs
	leastCols      = 16      // of a last chunk: a whole vector, see gemm.Adds
	fewPanels      = 2       // of a tile's columns: with more, adding up rows takes less time
)

// fourSlices reports whether a product of a row with n columns in some slices is computed by
// AddsFour.
func fourSlices(set *gemm.Set, n, slices int) bool {
	return set.AddsFour != nil && n <= leastCols && slices >= 4
}

// newVectorProduct makes the kernel of a product with a vector.
func newVectorProduct(c *choice) exec.Kernel {
	b, v, set, d := c.b, c.v, c.set, &c.dims
	vector, matrix, n := d.a, d.b, d.n
	if d.n == 1 {
		vector, matrix, n = d.b, d.a, d.m
		matrix.trans = !matrix.trans
	}
	switch {
	case n == 1 && !matrix.trans:
		matrix.trans, matrix.stride = true, d.k // a column is a row, too
	case d.k == 1 && matrix.trans && matrix.stride == 1:
		matrix.trans, matrix.stride = false, n
	}
	element := gemm.ElementOf[matrix.dtype]
	if d.n > 1 && !d.b.trans && inPairs(set, element, d.k, c.leastPairs) && set.Adds[gemm.Pairs] != nil {
		element = gemm.Pairs
	}
	k := &vectorProduct{
		product: &product{Writer: Writer{Set: set, N: n, Out: b.At(v), To: v.Type.DType}, m: 1, k: d.k, batches: 1, Blocking: Blocking{Slices: Slices{N: 1}}},
		vector:  operandOf{matrix: vector, element: element, size: element.Size()},
		matrix:  operandOf{matrix: matrix, element: element, size: element.Size()},
	}
	k.transposes = k.matrix.trans && k.k < shortRows
	k.cutVector()
	k.four = k.matrix.element == gemm.F32 && !k.matrix.trans && fourSlices(set, n, k.Slices.N)
	k.atX = tiling.RoundUp(4*max(k.width, k.TileN), ir.Align)
	k.scratch = k.atX
	if element.Converts() {
		k.scratch += 4 * tiling.RoundUp(k.k, 16)
	}
	if k.transposes {
		k.atTransposed = k.scratch
		k.scratch += 4 * transposeLanes * min(k.k, transposeDepth)
	}
	b.ReserveScratch(k.scratch)
	k.store = k.Convert
	if k.After = elementwise.NewEpilogue(b, v, 2, n); k.After != nil {
		k.store = k.StoreEpilogue
		k.After.Place(b, k.scratch, max(k.width, k.TileN))
	}
	if k.Slices.N > 1 {
		k.sums.init(k.product)
		b.ReserveShared(k.Slices.N * k.partBytes())
	}
	return k
}

// cutVector decides the chunks.
func (k *vectorProduct) cutVector() {
	size := k.matrix.size
	k.Slices.K = k.k
	if k.matrix.trans && !k.transposes {
		k.width = min(mostCols, tiling.RoundUp(max(16, vectorBytes/(k.k*size)), 4))
	} else {
		p := Problem{K: k.k, A: k.vector.operand(), Micro: k.Set.F32}
		if k.matrix.element == gemm.Pairs {
			p.Micro = k.Set.Pairs
		}
		k.Slices.K = p.step()
		k.Slices.N = tiling.CeilDiv(k.k, k.Slices.K)
		parts := min(tiling.CeilDiv(k.N, pageCols), tiling.CeilDiv(tiling.MinChunks, k.Slices.N))
		if k.Slices.N == 1 && k.N*k.k*size >= 2*vectorBytes {
			parts = max(parts, 2)
		}
		k.width = tiling.Even(k.N, min(sumWidth, max(vectorCols, tiling.CeilDiv(k.N, parts))), 64)
		for last := k.N % k.width; last > 0 && last < leastCols && k.width < k.N; last = k.N % k.width {
			k.width += 64
		}
	}
	k.TileN = min(k.width, sumCols)
	if k.Slices.N == 1 {
		k.TileN = k.width
	}
	k.Slices.LD = 4*tiling.RoundUp(k.N, 16) + RowPad
}

func (k *vectorProduct) Run(r *exec.Run) {
	work := k.N * k.k / 8
	if k.matrix.trans && !k.transposes {
		work = k.N * (k.k/4 + 8) // starting a row and adding up its partial sums costs as much as 32 elements
	}
	chunks := tiling.CeilDiv(k.N, k.width) * k.Slices.N
	if k.four {
		chunks = tiling.CeilDiv(k.Slices.N, 4)
	}
	r.Parallel(k, chunks, work)
	if k.Slices.N > 1 {
		r.Parallel(&k.sums, k.sums.chunks(), k.Slices.N*k.N)
	}
}

// Chunk computes some results, or the partial sums of a slice, or of four.
func (k *vectorProduct) Chunk(r *exec.Run, w *exec.Worker, i int) {
	if k.four {
		k.slices(r, w, 4*i)
		return
	}
	k.slice(r, w, i, 0)
}

// slices computes the partial sums of up to four slices, of which the last may be shorter.
func (k *vectorProduct) slices(r *exec.Run, w *exec.Worker, slice int) {
	done := 0
	if slice+4 <= k.Slices.N {
		m, first := &k.matrix, slice*k.Slices.K
		done = min(k.Slices.K, k.k-first-3*k.Slices.K)
		x := unsafe.Pointer(&r.Values[k.vector.pos][4*(k.vector.starts[0]+first)])
		s := unsafe.Pointer(&r.Values[m.pos][4*(m.starts[0]+first*m.stride)])
		k.Set.AddsFour(unsafe.Pointer(&r.Shared[slice*k.partBytes()]), k.partBytes(), x, s, 4*m.stride, k.Slices.K, done, 1<<k.N-1)
	}
	for q := slice; q < min(slice+4, k.Slices.N); q++ {
		if q*k.Slices.K+done < min(k.k, (q+1)*k.Slices.K) {
			k.slice(r, w, q, done)
		}
	}
}

// slice computes some results, or the partial sums of a slice, in which so many elements of
// the inner dimension have been added up.
func (k *vectorProduct) slice(r *exec.Run, w *exec.Worker, i, done int) {
	m, size := &k.matrix, k.matrix.size
	slice := i % k.Slices.N
	t := Tile{Col: i / k.Slices.N * k.width, Rows: 1, LD: 4 * k.width, Data: unsafe.Pointer(&w.Scratch[0])}
	t.Cols = min(k.width, k.N-t.Col)
	if k.Slices.N > 1 {
		t.Data = unsafe.Pointer(&r.Shared[slice*k.partBytes()+4*t.Col])
	}
	first, end := slice*k.Slices.K+done, min(k.k, (slice+1)*k.Slices.K)
	x := unsafe.Pointer(&r.Values[k.vector.pos][(k.vector.starts[0]+first)*size])
	if m.element.Converts() {
		wide := unsafe.Pointer(&w.Scratch[k.atX])
		k.Set.Widen[m.element](wide, x, end-first)
		x = wide
	}
	s, lds := unsafe.Pointer(&r.Values[m.pos][m.starts[0]*size]), m.stride*size
	switch {
	case k.transposes:
		clear(unsafe.Slice((*float32)(t.Data), tiling.RoundUp(t.Cols, 16))) // whole vectors: there is room
		transpose, adds := k.Set.Transpose[m.element], k.Set.Adds[gemm.F32]
		transposed := unsafe.Pointer(&w.Scratch[k.atTransposed])
		for j := 0; j < t.Cols; j += transposeLanes {
			n := min(transposeLanes, t.Cols-j)
			for p := first; p < end; p += transposeDepth {
				depth := min(transposeDepth, end-p)
				for i := 0; i < n; i += 16 {
					l := min(16, n-i)
					transpose(unsafe.Add(transposed, 4*i), 4*transposeLanes, unsafe.Add(s, (t.Col+j+i)*lds+p*size), lds, depth, 1<<l-1, 1<<16-1)
				}
				for q := 0; q < depth; q += 4 {
					adds(unsafe.Add(t.Data, 4*j), unsafe.Add(x, 4*(p-first+q)), unsafe.Add(transposed, 4*transposeLanes*q), 4*transposeLanes, min(4, depth-q), tiling.RoundUp(n, 16))
				}
			}
		}
	case m.trans:
		dots := k.Set.Dots[m.element]
		for j := 0; j < t.Cols; j += 4 {
			dots(unsafe.Add(t.Data, 4*j), x, unsafe.Add(s, (t.Col+j)*lds), lds, min(4, t.Cols-j), k.k)
		}
	default:
		added := 0
		if done == 0 {
			clear(t.at(0))
			if m.element == gemm.F32 && t.Cols <= fewPanels*k.Set.F32.NR {
				added = k.panels(t, x, unsafe.Add(s, first*lds+4*t.Col), lds, end-first)
			}
		}
		adds, rows, sizeX := k.Set.Adds[m.element], 4, 4
		if m.element == gemm.Pairs {
			rows, sizeX = pairRows, size
		}
		for p := first + added; p < end; p += rows {
			adds(t.Data, unsafe.Add(x, sizeX*(p-first)), unsafe.Add(s, p*lds+t.Col*size), lds, min(rows, end-p), t.Cols)
		}
	}
	if k.Slices.N == 1 {
		k.store(r, w, t)
	}
}

// panels begins the sums of t: it multiplies a vector of n elements by rows of B, from s on, with
// micro-kernels for a row, whose sums have the order of Adds. It returns how many rows it has
// added up: kernels read all columns of a tile, so where a row is shorter the last ones are left
// to Adds.
func (k *vectorProduct) panels(t Tile, x, s unsafe.Pointer, lds, n int) int {
	micro := k.Set.F32
	nr, kernels := micro.NR, micro.Rows
	if t.Cols <= micro.NarrowNR {
		nr, kernels = micro.NarrowNR, micro.NarrowRows
	}
	n -= tiling.CeilDiv(4*max(0, nr-t.Cols), lds)
	if n <= 0 {
		return 0
	}
	for col := 0; col < t.Cols; col += nr {
		col = max(0, min(col, t.Cols-nr)) // the last panel has columns of the one before
		kernels[1](n, x, 0, unsafe.Add(s, 4*col), lds, nil, 0, unsafe.Add(t.Data, 4*col), 0, 1<<min(nr, t.Cols)-1)
	}
	return n
}

// String describes how the product is cut.
func (k *vectorProduct) String() string {
	s := fmt.Sprintf("%d elements at a time", k.width)
	if k.Slices.N > 1 {
		s += fmt.Sprintf(", %d slices of %d", k.Slices.N, k.Slices.K)
	}
	if k.four {
		s += ", four at a time"
	}
	return s
}
