package recurrent

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// The gradients of a scan's weights are sums over all steps and rows: the weights'
// inputs, transposed, times the gradients of the pre-activations. The latter never
// reach memory: the rows of some steps, a window, stay in scratch memory and are
// multiplied while they are in L2.
//
// The blocks of rows are divided into parts by the shape alone. Each part has its own
// sums in the shared memory, and Run adds the parts up.

const (
	windowRows   = 128 // of float32: reading the sums takes little of the time then
	windowPanels = 256 // for tile registers, which multiply faster
	checkRows    = 64  // rows multiplied at a time in a window with non-finite elements
	sumsChunk    = 16  // rows of sums per chunk
)

// weightSums accumulates the weight gradients of a scan as Aᵀ·B. A row of A holds x, a
// one, h and, for GRUBeforeCell, q. A row of B holds the gradients of the
// pre-activations, four for GRUCell.
type weightSums[T lanes.Real] struct {
	*scanGrad[T]
	features, wideA, wideB int // elements per row
	hasQ                   bool
	rows                   int // per window
	parts                  int
	blocks                 []sumBlock
	moves                  []sumMove

	tiles   *gemm.Tiles  // nil: loops in Go
	panels  *gemm.Panels // tile registers, or nil
	pieces  int          // bfloat16 per element in them
	copies  bool         // windows have elements of T, and stored elements are converted
	ldA     int          // leading dimension in bytes
	ldB     int
	packLD  int // leading dimension of packed A, which is transposed
	packLow int // bytes from the high to the low part of packed A

	at, partBytes                             int // in the shared memory
	atA, atB                                  int // in scratch memory
	atPackA, atPackB, atPairs, atFlag, atWide int
}

// sumBlock is a product of some rows of Aᵀ and columns of B, and the place of its
// result in a part's memory.
type sumBlock struct {
	row, rows, col, cols int
	at, ld               int
	panels               int // index of its first panel in packed B
}

// sumMove copies rows of a block to a section of the result, to columns from col on.
type sumMove struct {
	block, row, rows int
	to               op.Section
	col              int
}

// init sets the sizes of the sums of k.
func (s *weightSums[T]) init(b *exec.Builder, k *scanGrad[T], features int) {
	s.scanGrad, s.features = k, features
	u, width := k.units, k.gates*k.units
	s.hasQ = k.Cell == op.GRUBeforeCell
	s.wideA, s.wideB = features+1+u, width
	switch k.Cell {
	case op.GRUCell:
		s.wideB = 4 * u
		s.addBlock(0, s.wideA, 0, 2*u)
		s.addBlock(features, 1+u, 2*u, u)
		s.addBlock(0, features+1, 3*u, u)
		s.addMove(0, 0, features, k.to.W, 0)
		s.addMove(2, 0, features, k.to.W, 2*u)
		s.addMove(0, features, 1, k.to.V, 0)
		s.addMove(2, features, 1, k.to.V, 2*u)
		s.addMove(0, features+1, u, k.to.U, 0)
		s.addMove(1, 1, u, k.to.U, 2*u)
		s.addMove(1, 0, 1, k.to.B, 0)
	case op.GRUBeforeCell:
		s.wideA += u
		s.addBlock(0, features+1+u, 0, 2*u)
		s.addBlock(0, features+1, 2*u, u)
		s.addBlock(features+1+u, u, 2*u, u)
		s.addMove(0, 0, features, k.to.W, 0)
		s.addMove(1, 0, features, k.to.W, 2*u)
		s.addMove(0, features, 1, k.to.V, 0)
		s.addMove(1, features, 1, k.to.V, 2*u)
		s.addMove(0, features+1, u, k.to.U, 0)
		s.addMove(2, 0, u, k.to.U, 2*u)
	default:
		s.addBlock(0, s.wideA, 0, width)
		s.addMove(0, 0, features, k.to.W, 0)
		s.addMove(0, features, 1, k.to.V, 0)
		s.addMove(0, features+1, u, k.to.U, 0)
	}
	s.parts = min(tiling.MinChunks, tiling.CeilDiv(max(k.batch, 1), k.rows))
	s.rows = windowRows
	set := gemm.Products()
	if set != nil && lanes.SizeOf[T]() == 4 && set.F32.Inner != nil {
		s.tiles = set.F32
		s.choosePanels(set)
	}
	s.copies = s.panels == nil && k.dtype.Size() != lanes.SizeOf[T]()
	s.rows = max(k.rows, s.rows/k.rows*k.rows)
	s.layout(b)
}

func (s *weightSums[T]) addBlock(row, rows, col, cols int) {
	s.blocks = append(s.blocks, sumBlock{row: row, rows: rows, col: col, cols: cols})
}

func (s *weightSums[T]) addMove(block, row, rows int, to op.Section, col int) {
	s.moves = append(s.moves, sumMove{block, row, rows, to, col})
}

// choosePanels selects tile registers if the sums are long enough to pay for packing.
func (s *weightSums[T]) choosePanels(set *gemm.Set) {
	k := s.steps * s.batch
	switch {
	case set.Panels == nil || k < gemm.PanelDepth:
		return
	case s.dtype == dtype.BFloat16:
		s.pieces = 1
	case s.dtype == dtype.Float16 && s.wideA*s.wideB*k >= product.SplitMACs:
		s.pieces = 2
	default:
		return
	}
	s.panels, s.rows = set.Panels, windowPanels
	s.scanGrad.tiles = true
}

// layout places the sums in the shared memory and windows in scratch memory.
func (s *weightSums[T]) layout(b *exec.Builder) {
	size, nr, low := lanes.SizeOf[T](), 1, 1
	switch {
	case s.panels != nil:
		size, nr, low = s.scanGrad.dtype.Size(), gemm.PanelCols, gemm.PanelRows
	case s.tiles != nil:
		nr = s.tiles.NR
	}
	panels := 0
	for i := range s.blocks {
		c := &s.blocks[i]
		c.panels = panels
		panels += tiling.CeilDiv(c.cols, gemm.PanelCols)
		c.at, c.ld = s.partBytes, lanes.SizeOf[T]()*tiling.RoundUp(c.cols, nr)+product.RowPad
		s.partBytes += tiling.RoundUp(c.rows, low) * c.ld
	}
	k := s.scanGrad
	last := &k.products[len(k.products)-1]
	s.at = tiling.RoundUp(last.at+last.bytes(), 64)
	b.ReserveShared(s.at + s.parts*s.partBytes)

	// Rows are read in whole panels and must not share cache sets.
	s.ldA = tiling.RoundUp(size*s.wideA, 64) + product.RowPad
	s.ldB = tiling.RoundUp(size*(s.wideB+nr), 64)
	if s.ldB%product.RowConflict == 0 {
		s.ldB += product.RowPad
	}
	s.atA = k.takeBytes(s.rows * s.ldA)
	s.atB = k.takeBytes(s.rows * s.ldB)
	if s.panels == nil {
		return
	}
	depth := tiling.RoundUp(s.rows, gemm.PanelDepth)
	s.packLD = 2*depth + product.RowPad
	s.packLow = (s.wideA + gemm.PanelRows) * s.packLD // micro-kernels read whole tile registers of rows
	s.atPackA = k.takeBytes(s.pieces * s.packLow)
	s.atPackB = k.takeBytes(s.pieces * 2 * depth * gemm.PanelCols * panels)
	s.atPairs = k.takeBytes(product.TransposeBytes)
	s.atFlag = k.takeBytes(64)
	if s.pieces > 1 {
		s.atWide = k.takeBytes(4 * checkRows * (s.wideA + s.wideB + s.tiles.NR))
	}
}

// rowsOfB returns B's rows of a window from row on.
func (s *weightSums[T]) rowsOfB(w *exec.Worker, row int) []byte { return w.Scratch[s.atB+row*s.ldB:] }

// convert fills rows of B from gradients stored in data.
func (s *weightSums[T]) convert(w *exec.Worker, row, rows int, data []byte, ld int) {
	for i := range rows {
		to := lanes.ViewOf[T](s.rowsOfB(w, row+i), s.wideB)
		copy(to, lanes.RealView(data[i*ld:][:s.wideB*s.scanGrad.dtype.Size()], s.scanGrad.dtype, to))
	}
}

// fill fills rows of A for step t of a block of the batch.
func (s *weightSums[T]) fill(r *exec.Run, w *exec.Worker, row, t, before, first, rows int) {
	k := s.scanGrad
	x := k.bytesOf(r.Values[k.x], 0, t, first, rows, s.features)
	h := k.bytesOf(r.Values[k.s], k.saved.Outputs.Start, before, first, rows, k.units)
	var q []byte
	if s.hasQ {
		q = k.bytesOf(r.Values[k.s], k.saved.Saved.Start, t*k.Cell.Saved()+3, first, rows, k.units)
	}
	nx, nh := s.features*k.dtype.Size(), k.units*k.dtype.Size()
	for i := range rows {
		to := w.Scratch[s.atA+(row+i)*s.ldA:]
		to = s.put(to, x[i*nx:][:nx])
		to = s.one(to)
		to = s.put(to, h[i*nh:][:nh])
		if s.hasQ {
			s.put(to, q[i*nh:][:nh])
		}
	}
}

// put writes elements to a row of a window and returns the rest of the row.
func (s *weightSums[T]) put(to, x []byte) []byte {
	if !s.copies {
		return to[copy(to, x):]
	}
	n := len(x) / s.scanGrad.dtype.Size()
	y := lanes.ViewOf[T](to, n)
	copy(y, lanes.RealView(x, s.scanGrad.dtype, y))
	return to[n*lanes.SizeOf[T]():]
}

func (s *weightSums[T]) one(to []byte) []byte {
	switch {
	case s.panels == nil:
		lanes.ViewOf[T](to, 1)[0] = 1
		return to[lanes.SizeOf[T]():]
	case s.scanGrad.dtype == dtype.Float16:
		lanes.ViewOf[uint16](to, 1)[0] = 0x3c00
	default:
		lanes.ViewOf[uint16](to, 1)[0] = 0x3f80
	}
	return to[2:]
}

// flush adds the product of a window's rows to the sums of a part, or, if first,
// overwrites the sums.
func (s *weightSums[T]) flush(r *exec.Run, w *exec.Worker, part, rows int, first bool) {
	if rows == 0 {
		return
	}
	sums := r.Shared[s.at+part*s.partBytes:][:s.partBytes]
	a, b := w.Scratch[s.atA:], w.Scratch[s.atB:]
	switch {
	case s.tiles == nil:
		s.loop(sums, a, b, rows, first)
	case s.panels == nil:
		s.tile(sums, a, s.ldA, b, s.ldB, rows, first)
	case !s.panel(w, sums, rows, first):
		s.wide(w, sums, rows, first)
	}
}

// loop is flush in Go.
func (s *weightSums[T]) loop(sums, a, b []byte, rows int, first bool) {
	for _, c := range s.blocks {
		for i := range c.rows {
			d := lanes.ViewOf[T](sums[c.at+i*c.ld:], c.cols)
			if first {
				clear(d)
			}
			for p := range rows {
				x := lanes.ViewOf[T](a[p*s.ldA:], s.wideA)[c.row+i]
				for j, y := range lanes.ViewOf[T](b[p*s.ldB:], s.wideB)[c.col:][:c.cols] {
					d[j] += T(x * y)
				}
			}
		}
	}
}

// tile is flush for float32 with vector instructions.
func (s *weightSums[T]) tile(sums, a []byte, ldA int, b []byte, ldB, rows int, first bool) {
	t := s.tiles
	for _, c := range s.blocks {
		heights := tiling.CeilDiv(c.rows, t.MR)
		for j := 0; j < c.cols; j += t.NR {
			cols := min(t.NR, c.cols-j)
			kernels := t.Inner
			if cols <= t.NarrowNR {
				kernels = t.NarrowInner
			}
			for i := range heights {
				at, end := tiling.Cut(i, heights, c.rows)
				d := unsafe.Pointer(&sums[c.at+at*c.ld+4*j])
				from := d
				if first {
					from = nil
				}
				kernels[end-at](rows, unsafe.Pointer(&a[4*(c.row+at)]), ldA, unsafe.Pointer(&b[4*(c.col+j)]), ldB, from, c.ld, d, c.ld, 1<<cols-1)
			}
		}
	}
}

// wide is flush for float16 with non-finite elements, computed in float32.
func (s *weightSums[T]) wide(w *exec.Worker, sums []byte, rows int, first bool) {
	ldA, ldB := 4*s.wideA, 4*(s.wideB+s.tiles.NR)
	a := w.Scratch[s.atWide:]
	b := a[checkRows*ldA:]
	for p := 0; p < rows; p += checkRows {
		n := min(checkRows, rows-p)
		for i := range n {
			lanes.ToF32(lanes.ViewOf[float32](a[i*ldA:], s.wideA), w.Scratch[s.atA+(p+i)*s.ldA:][:2*s.wideA], dtype.Float16)
			lanes.ToF32(lanes.ViewOf[float32](b[i*ldB:], s.wideB), w.Scratch[s.atB+(p+i)*s.ldB:][:2*s.wideB], dtype.Float16)
		}
		s.tile(sums, a, ldA, b, ldB, n, first && p == 0)
	}
}

// panel is flush with tile registers. It returns false, with nothing done, if elements
// of float16 are not finite.
func (s *weightSums[T]) panel(w *exec.Worker, sums []byte, rows int, first bool) bool {
	set := gemm.Native()
	found := unsafe.Pointer(&w.Scratch[s.atFlag])
	*(*uint32)(found) = 0
	depth := tiling.CeilDiv(rows, gemm.PanelDepth)
	size := s.pieces * gemm.PanelStep * depth // of a panel
	packA, packB := unsafe.Pointer(&w.Scratch[s.atPackA]), unsafe.Pointer(&w.Scratch[s.atPackB])
	a, b, pairs := unsafe.Pointer(&w.Scratch[s.atA]), unsafe.Pointer(&w.Scratch[s.atB]), unsafe.Pointer(&w.Scratch[s.atPairs])
	for q := 0; q < rows; q += gemm.PanelDepth {
		n := min(gemm.PanelDepth, rows-q)
		product.TransposePairs(set, pairs, unsafe.Add(packA, 2*q), s.packLD, unsafe.Add(a, q*s.ldA), s.ldA, s.wideA, n)
	}
	for _, c := range s.blocks {
		product.PackPanels(set, unsafe.Add(packB, c.panels*size), size, s.pieces, unsafe.Add(b, 2*c.col), s.ldB, c.cols, rows, found)
	}
	if s.pieces == 2 {
		s.panels.Split(packA, s.packLD, s.packLow, packA, s.packLD, s.wideA, depth*gemm.PanelDepth, found)
		if *(*uint32)(found) != 0 {
			return false
		}
	}
	for _, c := range s.blocks {
		for j := 0; j < c.cols; j += gemm.PanelCols {
			panel := unsafe.Pointer(&w.Scratch[s.atPackB+(c.panels+j/gemm.PanelCols)*size])
			wide := (min(gemm.PanelCols, c.cols-j) - 1) / 16
			for i := 0; i < c.rows; i += gemm.PanelRows {
				d := unsafe.Pointer(&sums[c.at+i*c.ld+4*j])
				from := d
				if first {
					from = nil
				}
				high := (min(gemm.PanelRows, c.rows-i) - 1) / 16
				s.panels.Kernels[s.pieces-1][high][wide](depth, unsafe.Add(packA, (c.row+i)*s.packLD), s.packLD, s.packLow, nil, panel, from, d, c.ld, panel)
			}
		}
	}
	return true
}

// Run adds up the sums of all parts and writes them to the result.
func (s *weightSums[T]) Run(r *exec.Run) {
	k := s.scanGrad
	if k.steps*k.batch*k.units == 0 {
		for _, m := range s.moves {
			clear(r.Values[k.out][m.to.Start*lanes.SizeOf[T]():][:m.to.Shape.Size()*lanes.SizeOf[T]()])
		}
		return
	}
	n := 0
	for _, m := range s.moves {
		n += tiling.CeilDiv(m.rows, sumsChunk)
	}
	r.Parallel(s, n, s.parts*s.partBytes/lanes.SizeOf[T]())
}

// Chunk does this for sumsChunk rows of a move.
func (s *weightSums[T]) Chunk(r *exec.Run, _ *exec.Worker, i int) {
	k := s.scanGrad
	m := 0
	for ; i >= tiling.CeilDiv(s.moves[m].rows, sumsChunk); m++ {
		i -= tiling.CeilDiv(s.moves[m].rows, sumsChunk)
	}
	move := &s.moves[m]
	c := &s.blocks[move.block]
	width := move.to.Shape[len(move.to.Shape)-1]
	for row := i * sumsChunk; row < min(move.rows, (i+1)*sumsChunk); row++ {
		to := lanes.ViewOf[T](r.Values[k.out][(move.to.Start+row*width+move.col)*lanes.SizeOf[T]():], c.cols)
		for p := range s.parts {
			from := lanes.ViewOf[T](r.Shared[s.at+p*s.partBytes+c.at+(move.row+row)*c.ld:], c.cols)
			if p == 0 {
				copy(to, from)
			} else {
				k.fn.add(to, to, from)
			}
		}
	}
}
