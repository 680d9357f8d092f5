package attention

import (
	"runtime"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// blocks multiplies small matrices in a worker's scratch memory. Operands are float32,
// or pairs of bfloat16 if the processor has matrix instructions for them; sums are
// float32.
//
// All matrices have room for whole micro-tiles: rows are padded to a multiple of Unit,
// columns to a multiple of NR, inner dimensions with zeros.
type blocks struct {
	set     *gemm.Set
	tiles   *gemm.Tiles
	from    dtype.DType  // element type of operands in memory
	element gemm.Element // element type when packed
	pairs   bool
}

func newBlocks(set *gemm.Set, d dtype.DType, pairs bool) blocks {
	x := blocks{set: set, tiles: set.F32, from: d, element: gemm.ElementOf[d]}
	if pairs {
		x.tiles, x.element, x.pairs = set.Blocks, gemm.Pairs, true
	}
	return x
}

// cells returns the 4-byte elements that hold n elements of an inner dimension, padded;
// depth returns the elements in them.
func (x *blocks) cells(n int) int {
	return tiling.RoundUp(tiling.CeilDiv(n, x.tiles.Step), x.tiles.Deep)
}
func (x *blocks) depth(n int) int { return x.cells(n) * x.tiles.Step }

// rows and cols return n padded for rows and columns.
func (x *blocks) rows(n int) int { return tiling.RoundUp(n, x.tiles.Unit) }
func (x *blocks) cols(n int) int { return tiling.RoundUp(n, x.tiles.NR) }

// rowLD returns the leading dimension, in bytes, of a first operand with n columns. A
// float32 matrix with it can also be a second operand in place. Rows share no cache
// lines.
func (x *blocks) rowLD(n int) int { return paddedLD(4 * max(x.cells(n), x.cols(n)/x.tiles.Step)) }

// sumLD returns the leading dimension, in bytes, of sums with n columns.
func (x *blocks) sumLD(n int) int { return paddedLD(4 * x.cols(n)) }

// paddedLD returns a leading dimension for rows of n bytes that is no power of two, so
// that rows do not share cache sets.
func paddedLD(n int) int { return tiling.RoundUp(n, 2*product.RowPad) + 2*product.RowPad }

// size returns the bytes of a packed second operand.
func (x *blocks) size(depth, cols int) int { return 4 * x.cells(depth) * x.cols(cols) }

// panels is a second operand: panels of NR columns, panel bytes apart, with rows ld
// bytes apart.
type panels struct {
	data      unsafe.Pointer
	panel, ld int
}

// packed returns the layout that transposed and straight write to d.
func (x *blocks) packed(d unsafe.Pointer, depth int) panels {
	nr := 4 * x.tiles.NR
	return panels{d, nr * x.cells(depth), nr}
}

// inPlace is a float32 matrix as a second operand without packing.
func (x *blocks) inPlace(d unsafe.Pointer, ld int) panels { return panels{d, 4 * x.tiles.NR, ld} }

// from returns b without its first row rows and panel panels.
func (b panels) from(row, panel int) panels {
	b.data = unsafe.Add(b.data, row*b.ld+panel*b.panel)
	return b
}

// transposed packs cols rows of depth elements, lds bytes apart, as the columns of a
// second operand.
func (x *blocks) transposed(d, src unsafe.Pointer, lds, cols, depth int) panels {
	nr, b := x.tiles.NR, x.packed(d, depth)
	for j := 0; j < cols; j += nr {
		to := unsafe.Add(d, j/nr*b.panel)
		x.pad(to, depth)
		for i := 0; i < nr; i += 16 {
			from, load := src, max(0, min(16, cols-j-i))
			if load > 0 {
				from = unsafe.Add(src, (j+i)*lds)
			}
			x.set.Transpose[x.element](unsafe.Add(to, 4*i), b.ld, from, lds, depth, 1<<load-1, 1<<min(16, nr-i)-1)
		}
	}
	return b
}

// straight packs depth rows of cols elements, lds bytes apart, as a second
// operand.
func (x *blocks) straight(d, src unsafe.Pointer, lds, cols, depth int) panels {
	nr, b := x.tiles.NR, x.packed(d, depth)
	for j := 0; j < cols; j += nr {
		to := unsafe.Add(d, j/nr*b.panel)
		x.pad(to, depth)
		x.set.Lanes[x.element](to, b.ld, unsafe.Add(src, j*x.element.Size()), lds, depth, 1<<min(nr, cols-j)-1, 1<<nr-1)
	}
	return b
}

// pad clears the padding rows of a panel, after depth rows.
func (x *blocks) pad(d unsafe.Pointer, depth int) {
	nr, used, cells := x.tiles.NR, tiling.CeilDiv(depth, x.tiles.Step), x.cells(depth)
	clear(unsafe.Slice((*uint32)(unsafe.Add(d, 4*nr*used)), nr*(cells-used)))
}

// load copies rows of n elements, lds bytes apart, as a first operand, multiplied by
// scale, and clears their padding. Pairs are rounded to bfloat16 again if scale is not
// 1.
func (x *blocks) load(d unsafe.Pointer, ld int, src unsafe.Pointer, lds, rows, n int, scale float32) {
	size, end := n*4, 4*x.cells(n)
	if x.pairs {
		size = n * 2
	}
	v, copied := vec.Native(), (x.pairs || x.from == dtype.Float32) && scale == 1 && n > 0
	if copied = copied && v != nil && v.Scores != nil; copied {
		v.CopyRows(d, src, ld, lds, size, rows)
	}
	for i := range rows {
		to, from := unsafe.Add(d, i*ld), unsafe.Add(src, i*lds)
		row := floatsAt(to, n)
		switch {
		case copied:
		case x.pairs && scale != 1:
			row = floatsAt(unsafe.Add(d, rows*ld), n)
			x.set.Widen[gemm.BF16](unsafe.Pointer(unsafe.SliceData(row)), from, n)
			scaleRow(row, scale)
			x.set.Narrow[gemm.BF16](to, unsafe.Pointer(unsafe.SliceData(row)), n)
		case x.pairs:
			copy(unsafe.Slice((*uint16)(to), n), unsafe.Slice((*uint16)(from), n))
		case x.from == dtype.Float32:
			copy(row, floatsAt(from, n))
		default:
			x.set.Widen[x.element](to, from, n)
		}
		if !x.pairs && scale != 1 {
			scaleRow(row, scale)
		}
		if size < end {
			clear(unsafe.Slice((*byte)(unsafe.Add(to, size)), end-size))
		}
	}
}

// multiply computes d = a·b or d += a·b: rows × cols sums over cells 4-byte elements.
// If transposed, consecutive elements of the inner dimension are lda bytes apart in a.
// Each micro-kernel call also prefetches a part of next.
func (x *blocks) multiply(d unsafe.Pointer, ldd, rows, cols, cells int, a unsafe.Pointer, lda int, transposed bool, b panels, add bool, next *prefetchList) {
	t := x.tiles
	rowA := lda
	wide, narrow := t.Rows, t.NarrowRows
	if transposed {
		rowA, wide, narrow = 4, t.Inner, t.NarrowInner
	}
	units := tiling.CeilDiv(rows, t.Unit)
	heights := tiling.CeilDiv(units*t.Unit, t.MR)
	for j := 0; j < cols; j += t.NR {
		n := min(t.NR, cols-j)
		kernels := wide
		if n <= t.NarrowNR {
			kernels = narrow
		}
		bj, dj := unsafe.Add(b.data, j/t.NR*b.panel), unsafe.Add(d, 4*j)
		for i := range heights {
			at, end := tiling.Cut(i, heights, units)
			at, end = at*t.Unit, end*t.Unit
			di := unsafe.Add(dj, at*ldd)
			s := di
			if !add {
				s = nil
			}
			next.part()
			kernels[end-at](cells, unsafe.Add(a, at*rowA), lda, bj, b.ld, s, ldd, di, ldd, 1<<n-1)
		}
	}
}

// begin must be called before products, end after the last.
func (x *blocks) begin() {
	if x.tiles.Begin != nil {
		runtime.LockOSThread()
		x.tiles.Begin()
	}
}

func (x *blocks) end() {
	if x.tiles.End != nil {
		x.tiles.End()
		runtime.UnlockOSThread()
	}
}

// floatsAt returns the n float32 at p.
func floatsAt(p unsafe.Pointer, n int) []float32 { return unsafe.Slice((*float32)(p), n) }
