package gemm

import (
	"encoding/binary"
	"unsafe"
)

// ByteColumns is the columns of a panel of 8-bit integers.
const ByteColumns = 32

// BytesKernel computes rows of a product of 8-bit integers by a panel, in int32 modulo
// 2³². A row has n parts of 4·k elements, k a multiple of Bytes.Deep/4, that begin at
// taps[t]: the parts of a window in an image, or the whole row.
//
//	d[i*ldd+j] = b.start[j] + Σ a[i*lda+taps[t]+p]·b[4·k·t+p][j]   for t < n, p < 4·k, j < ByteColumns
//
// A panel is ByteColumns int32 to start with, and the columns, group after group of
// Bytes.Group, as int8, or int16 if there is a Bytes.Widen, as elements of A then are:
// PanelIndex. Taps, lda and ldd
// are bytes, taps are ints. Parts and rows may overlap. The kernel computes the first
// columns of the panel, all in groups of Bytes.Group, or more.
type BytesKernel func(taps unsafe.Pointer, n, k int, a unsafe.Pointer, lda int, b unsafe.Pointer, d unsafe.Pointer, ldd, columns int)

// WholeRows is the taps of rows of one part.
var WholeRows = unsafe.Pointer(new(int))

// Bytes is the kernels on 8-bit integers of an instruction set.
type Bytes struct {
	// Algorithm is the name of the algorithm that runs the kernels.
	Algorithm string
	// Offset is 0 if elements of A are int8, or 128 if they are uint8 with that added.
	// Sums of A with an offset start at -Offset times the sum of their column.
	Offset int
	Deep   int // elements of a part, which are padded to a multiple
	// Widen converts int8 to int16 for kernels without a product of bytes: panels and rows of
	// A hold int16, so that kernels need not widen again and again. They take twice the
	// memory, so it pays where panels are read often. X may be the second half of dst. It is
	// nil if panels and rows are bytes.
	Widen func(dst, x []byte)
	Group int // columns that are computed together, a divisor of ByteColumns
	// Rows is the kernels by the number of rows, nil where there is none. Other numbers
	// are cut into these; with Pad the last rows are computed with rows behind them.
	Rows []BytesKernel
	Pad  bool

	Begin, End func() // as in Tiles
}

// MR is the most rows of a kernel.
func (b *Bytes) MR() int { return len(b.Rows) - 1 }

// Size is the bytes of an element of A.
func (b *Bytes) Size() int {
	if b.Widen != nil {
		return 2
	}
	return 1
}

// Take returns the kernel for the next of n rows, and its rows, which are more than n
// only with Pad.
func (b *Bytes) Take(n int) (BytesKernel, int) {
	if b.Pad {
		for rows, k := range b.Rows {
			if k != nil && rows >= n {
				return k, rows
			}
		}
		n = b.MR()
	}
	rows := min(n, b.MR())
	for b.Rows[rows] == nil {
		rows--
	}
	return b.Rows[rows], rows
}

// PanelBytes is the bytes of a panel whose columns have k elements, a multiple of Deep.
func (b *Bytes) PanelBytes(k int) int {
	return ByteColumns * (4 + b.Size()*k)
}

// PanelIndex returns the index of element p of column j behind the first numbers of a panel
// whose columns have k elements: those of a group are four of each of its columns, the next
// four, and so on.
func (b *Bytes) PanelIndex(k, p, j int) int {
	return j/b.Group*b.Group*k + p/4*4*b.Group + 4*(j%b.Group) + p%4
}

// SetPanel makes x an element of a panel, whose index is behind the first numbers.
func (b *Bytes) SetPanel(panel []byte, index int, x int8) {
	panel = panel[4*ByteColumns:]
	if b.Widen != nil {
		binary.LittleEndian.PutUint16(panel[2*index:], uint16(x))
		return
	}
	panel[index] = byte(x)
}

// PackBytes packs ByteColumns columns, or the n that there are, of k rows of a matrix
// of int8: columns and rows that are missing are zeros.
func (b *Bytes) PackBytes(dst []byte, src []int8, ld, k, n int) {
	clear(dst)
	start := unsafe.Slice((*int32)(unsafe.Pointer(&dst[0])), ByteColumns)
	body := unsafe.Pointer(&dst[4*ByteColumns])
	if b.Widen != nil {
		packColumns(b, unsafe.Slice((*int16)(body), (len(dst)-4*ByteColumns)/2), start, src, ld, k, n)
		return
	}
	packColumns(b, unsafe.Slice((*int8)(body), len(dst)-4*ByteColumns), start, src, ld, k, n)
}

func packColumns[T int8 | int16](b *Bytes, body []T, start []int32, src []int8, ld, k, n int) {
	deep := len(body) / ByteColumns
	for first := 0; first < n; first += b.Group {
		starts := start[first:min(first+b.Group, n)]
		for p := range k {
			row := src[p*ld+first:][:len(starts)]
			to := body[b.PanelIndex(deep, p, first):]
			for j, x := range row {
				to[4*j] = T(x)
				starts[j] -= int32(b.Offset) * int32(x)
			}
		}
	}
}

// PortableBytes is the kernel in Go.
var PortableBytes = &Bytes{Algorithm: "portable", Deep: 4, Group: ByteColumns, Rows: []BytesKernel{1: bytesPortable}}

func bytesPortable(taps unsafe.Pointer, n, k int, a unsafe.Pointer, _ int, b unsafe.Pointer, d unsafe.Pointer, _, _ int) {
	out := (*[ByteColumns]int32)(d)
	*out = *(*[ByteColumns]int32)(b)
	steps := unsafe.Slice((*[ByteColumns][4]int8)(unsafe.Add(b, 4*ByteColumns)), n*k)
	for _, at := range unsafe.Slice((*int)(taps), n) {
		for p, x := range unsafe.Slice((*[4]int8)(unsafe.Add(a, at)), k) {
			x0, x1, x2, x3 := int32(x[0]), int32(x[1]), int32(x[2]), int32(x[3])
			for j, y := range &steps[p] {
				out[j] += x0*int32(y[0]) + x1*int32(y[1]) + x2*int32(y[2]) + x3*int32(y[3])
			}
		}
		steps = steps[k:]
	}
}
