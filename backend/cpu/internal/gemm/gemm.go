// Package gemm has the inner loops of matrix products: micro-kernels that
// compute a tile of a result in registers, and the routines that bring
// operands into the form kernels read.
//
// Main types: [Kernel] computes one tile; [Tiles] is the kernels of one kind
// of arithmetic; [Set] is all there is for an instruction set.
//
// Rules:
//
//   - Assembly is written by package asmgen. Each function's doc comment is
//     the loop that it equals, and [Reference] is that loop in Go.
//   - Routines trust their caller: they check neither bounds nor alignment,
//     and run to the end without being preempted, so that a call should take
//     no longer than about 100 µs.
//   - Distances are in bytes. Nothing beyond the elements named is read or
//     written, so operands may end at the end of a mapped page.
package gemm

import "unsafe"

// Kernel computes a tile of mr × nr float32:
//
//	d[i*ldd+j] = s[i*lds+j] + Σ a[i*lda+p]·b[p*ldb+j]   for p < k
//
// without the first term if s is nil; d and s may be the same. For a kernel of
// the form Inner the element of A is a[p*lda+i]. Rows of b have nr elements. If
// the Tiles are Masked, only the columns of s and d whose bit of mask is set are
// read and written.
//
// In kernels on pairs an element of A or B is two bfloat16, one index apart,
// and a product is the sum of both products. Sums of products are formed in
// float32 in the order of p, with one rounding for each p (fused), or two for
// a pair; subnormal operands and results of pairs count as zero, which is how
// the processor's instruction works.
type Kernel func(k int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, mask uint)

// NextKernel is a [Kernel] that brings what is needed after it to the second
// cache: 128 bytes at next for every four steps, stride bytes apart.
type NextKernel func(k int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, mask uint, next unsafe.Pointer, stride int)

// CopyKernel is a [Kernel] of the whole columns of a tile that copies B as it
// reads it, so that tiles below find it in the cache without gaps:
//
//	packed[p*NR+j] = b[p*ldb+j]
type CopyKernel func(k int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, mask uint, packed unsafe.Pointer)

// RunsKernel is a [Kernel] on pairs, with packed B, whose A lies in n blocks of
// Deep pairs: block q begins at[q] bytes, a list of int64, behind a. So A can
// be what a convolution reads.
//
//	d[i*ldd+j] = s[i*lds+j] + Σ a[at[q]+i*lda+p]·b[(q*Deep+p)*NR+j]   for q < n, p < Deep
//
// Kernels of two parts compute with numbers that are the sum of two bfloat16,
// with all four products of the parts: the other part of A lies lowA bytes after
// the first, that of B lowB bytes. Those of one part read neither.
//
// Unless next is nil, a part of what lies there is brought to the second cache:
// an eighth of the bytes of B.
type RunsKernel func(n int, a unsafe.Pointer, lda, lowA int, at unsafe.Pointer, b unsafe.Pointer, lowB int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, next unsafe.Pointer)

// NextKernels is kernels by the form of A and the number of rows, or nil where
// these are fewer than half of a tile's: when rows are cut evenly, there are
// such only if they are all.
type NextKernels struct{ Rows, Inner []NextKernel }

// CopyKernels is kernels that copy B, like [NextKernels].
type CopyKernels struct{ Rows, Inner []CopyKernel }

// Tiles is the kernels of one kind of arithmetic. Tables are indexed by the
// number of rows, from 1 to MR.
type Tiles struct {
	MR, NR      int
	Unit        int      // the rows of a kernel are a multiple of this
	Step        int      // elements of the inner index to a step: 2 for pairs
	Deep        int      // k, which counts steps, is a multiple of this
	Masked      bool     // else columns of results must be padded to NR, too
	Rows, Inner []Kernel // with NR columns, by the form of A; Inner may be nil

	// Next is kernels with NR columns that fetch what comes after them, or nil.
	Next NextKernels

	// Copies is kernels with NR columns that copy B, or nil.
	Copies CopyKernels

	// Narrow kernels have NarrowNR columns, for the last ones; 0 is none.
	NarrowNR                int
	NarrowRows, NarrowInner []Kernel

	// Runs is kernels with A in blocks, by parts of a number less one and by
	// rows like the others, or nil. Copy and Patches copy lanes of 16 bits, to
	// make blocks.
	Runs    [2][]RunsKernel
	Copy    Copy
	Patches Patches

	// RowRuns is kernels of the form Rows that go through runs, and NarrowRowRuns
	// those with NarrowNR columns, or nil.
	RowRuns, NarrowRowRuns []PixelRuns

	// Begin and End, unless nil, come before the first and after the last of
	// some calls of kernels, on the same thread.
	Begin, End func()
}

// PanelKernel computes a tile of 16 or 32 rows and columns with tile registers,
// through all of the inner dimension or a part of it:
//
//	d[i*ld+j] = s[i*ld+j] + Σ a[i*lda+p]·b[p][j]   for p < PanelDepth·k
//
// without the first term if s is nil. B is a panel of 32 columns, whatever the
// kernel's own are, as pairs of steps: 16 rows of 128 bytes to PanelDepth
// steps. Unless tail is nil, PanelDepth more steps follow, whose rows of A lie
// 64 bytes apart at tail.
//
// Kernels of two parts compute with numbers that are the sum of two bfloat16,
// with all four products of the parts. The other part of A lies lowA bytes
// after the first, that of B after each PanelDepth steps; there is no tail.
//
// A part of what lies at next is brought to the second cache: an eighth of the
// bytes of the panel.
type PanelKernel func(k int, a unsafe.Pointer, lda, lowA int, tail, b, s, d unsafe.Pointer, ld int, next unsafe.Pointer)

// Sizes of panels: rows, columns, and steps of the inner dimension, which they
// are padded to.
const (
	PanelRows  = 32
	PanelCols  = 32
	PanelDepth = 32
	// PanelStep is the bytes of PanelDepth steps of a panel of B, of one part.
	PanelStep = 2 * PanelDepth * PanelCols
)

// Panels is the kernels on tile registers.
type Panels struct {
	Kernels [2][2][2]PanelKernel // by parts, tile registers of rows, and of columns, less one

	// Split makes two bfloat16 of float16, whose sum is exact, and writes 1
	// to the uint32 at found if an element is not finite:
	//
	//	d[i*ldd+j] + d[i*ldd+low+j] = s[i*lds+j]   for i < rows, j < n
	//
	// Rows of both parts are filled with zeros up to a multiple of PanelDepth. D
	// and s may be the same if n is such a multiple, and ldd is lds.
	Split func(d unsafe.Pointer, ldd, low int, s unsafe.Pointer, lds, rows, n int, found unsafe.Pointer)

	// Begin and End come before the first and after the last of some calls of
	// kernels, on the same thread.
	Begin, End func()
}

// Element is what an operand is made of, and what it is packed as.
type Element uint8

const (
	F32      Element = iota // float32, as it is
	F16                     // float16, made float32
	BF16                    // bfloat16, made float32
	Pairs                   // bfloat16, packed as pairs
	RoundF16                // float32, rounded to float16
	elements
)

// Size is the bytes of an element before packing. A packed one, or a packed
// pair, has 4.
func (e Element) Size() int {
	if e == F32 || e == RoundF16 {
		return 4
	}
	return 2
}

// Converts reports whether packed elements are others than those packed.
func (e Element) Converts() bool { return e == F16 || e == BF16 || e == RoundF16 }

// Pack packs lanes, the rows of A or the columns of B: p < k is the inner
// index, lanes with a bit in store are written, and are zero without one in
// load. Loads are lanes from 0 on.
type Pack func(d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, load, store uint)

// Copy copies up to 32 neighbouring lanes of rows of pixels as they are: those
// with a bit in store are written, and are zero without one in load.
//
//	d[y*drow+x*ldd+j] = s[y*srow+x*lds+j]   for y < rows, x < cols
type Copy func(d unsafe.Pointer, ldd, drow int, s unsafe.Pointer, lds, srow int, cols, rows int, load, store uint)

// PatchRuns is the most runs of a patch of [Patches].
const PatchRuns = 5

// Patches copies what windows read of a source with few channels: some runs of n
// lanes of 16 bits for each pixel, next bytes apart, of together at most 32. They
// follow each other in the 32 lanes that are written, with zeros behind. There is
// at least one row, column and run.
//
//	d[y*drow+x*ldd+i*n+j] = s[y*srow+x*lds+i*next+j]   for y < rows, x < cols, i < runs, j < n
type Patches func(d unsafe.Pointer, ldd, drow int, s unsafe.Pointer, lds, srow int, cols, rows, runs, next, n int)

// PixelRuns is a [Kernel] whose operands lie in n runs, at least one, a list of
// three int64 each: where A and B begin, in bytes behind a and b, and how many
// steps there are.
type PixelRuns func(n int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, mask uint, at unsafe.Pointer)

// Finish does in place what follows a product, to rows of up to 32 columns, those
// of mask, of at least one row:
//
//	Relu:     d[i*ldd+j] = 0 if d[i*ldd+j] < 0; does not read y
//	ReluGrad: d[i*ldd+j] = 0 unless y[i*ldy+j] > 0
//	Divide:   d[i*ldd+j] /= y[0]
type Finish func(rows int, d unsafe.Pointer, ldd int, y unsafe.Pointer, ldy int, mask uint)

// FinishHalf rounds rows of up to 32 columns, those of mask, of at least one row, to
// 16 bits, as y and d are, and does what follows a product: each sum is rounded, too.
//
//	Add:     d[i*ldd+j] = s[i*lds+j] + y[i*ldy+j]
//	AddRelu: d[i*ldd+j] = the same, or 0 if that is below 0
//	Grad:    d[i*ldd+j] = s[i*lds+j], or 0 unless y[i*ldy+j] > 0
type FinishHalf func(rows int, d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, y unsafe.Pointer, ldy int, mask uint)

// Windows goes over windows of n pixels, up to 32 channels of them: those of
// mask, though it may read all 32 of y. At is a list of int64.
//
//	Own:     d[i*ds+j] = Σ x[at[2t]+i*xs+j]·y[at[2t+1]+j]             for t < taps
//	OwnAdd:  as Own, added to d
//	OwnGrad: d[at[2t+1]+j] += Σ x[at[2t]+i*xs+j]·y[i*ys+j]            for i < n; writes all 32
//	Largest: d[i*ds+j] = max x[at[t]+i*xs+j], -∞ of nothing, the first NaN wins
//	LargestGrad: d[at[t]+i*ds+j] = y[i*ys+j] if x[at[t]+i*xs+j] is the first of the largest, else 0
//	PositiveGrad: as LargestGrad if the largest is above 0, else 0
//	LargestGradAdd: d[at[t]+i*ds+j] += y[i*ys+j] if x[at[t]+i*xs+j] is the first of the largest, window by window
//
//	Taps: d[i*ds+j] = z if not z < y[ys+128], else 0, with z = y[ys+j] + Σ x[at[2t]+i*xs]·y[at[2t+1]+j] for t < taps
//	TapsGrad: d[at[2t+1]+j] += Σ x[at[2t]+i*xs+r*(n*xs+ds)]·y[(r*n+i)*ys+j] for r < taps, i < n; writes all 32
//
// OwnGrad to LargestGradAdd read of y those of mask.
type Windows func(n int, taps int, at unsafe.Pointer, x unsafe.Pointer, xs int, y unsafe.Pointer, ys int, d unsafe.Pointer, ds int, mask uint)

// Transform is a transform of n tiles of Winograd's F(2x2, 3x3) by a matrix M
// along both axes, for the channels of mask, up to 32:
//
//	d[t*ds+i*drow+j*dcolumn+c] = Σ M[i][r]·M[j][s]·x[t*xs+r*row+s*column+c]
type Transform func(n int, x unsafe.Pointer, row, column, xs int, d unsafe.Pointer, drow, dcolumn, ds int, mask uint)

// Convert converts n elements, which do not overlap.
type Convert func(d, s unsafe.Pointer, n int)

// Set is the routines for an instruction set.
type Set struct {
	Name  string
	F32   *Tiles // float32 by float32
	Pairs *Tiles // bfloat16 by bfloat16, or nil where float32 is as fast

	// Blocks is bfloat16 by bfloat16 for large products, or nil: its kernels
	// take whole units of rows and of steps.
	Blocks *Tiles

	// Panels is products on tile registers, or nil.
	Panels *Panels

	// Lanes packs up to 32 neighbouring lanes: d[p*ldd+j] = s[p*lds+j].
	// Transpose packs up to 16 that lie apart: d[p*ldd+j] = s[j*lds+p].
	Lanes, Transpose [elements]Pack

	// Dots and Adds are products by a vector, for F32, F16 and BF16, or nil.
	Dots [elements]Dots
	Adds [elements]Adds

	// Widen and Narrow convert 16-bit floats, F16 or BF16, to and from float32.
	// Widen rounds to float16, too.
	Widen, Narrow [elements]Convert

	// NarrowLanes rounds rows of up to 32 float32 to 16-bit floats: those of store.
	NarrowLanes [elements]Pack

	// Relu and ReluGrad are an activation and its gradient behind a product, Divide
	// takes the scale of a loss from a gradient, or nil.
	Relu, ReluGrad, Divide Finish

	// Halves are those of products of F16 and BF16, or nil.
	Halves [elements]struct{ Add, AddRelu, Grad FinishHalf }

	// Own is convolutions with a kernel for each channel, OwnGrad their gradients
	// by the kernels, LargestGradAdd those of maxima of windows that overlap, all
	// of float32. Largest is maxima of windows, LargestGrad their gradients, and
	// PositiveGrad those of maxima of what was max(0, ·), of F32, F16 and BF16.
	// All may be nil.
	Own, OwnAdd, OwnGrad, LargestGradAdd Windows
	Largest, LargestGrad, PositiveGrad   [elements]Windows

	// Taps is convolutions of sources with few channels, by what the result is
	// made of and the number of pixels of a turn, of which there are n, or nil.
	// Unlike other Windows they read 32 channels of y. In 16 bits the sum is
	// rounded before the last term, too. For BF16 the first 16 numbers of each 32
	// of y are those of channels 0, 2, 4 and so on.
	//
	// TapsGrad is their gradients by the kernels, of y of each type, by the number
	// of places; taps is that of rows.
	Taps, TapsGrad [elements][]Windows

	// WinogradSource transforms 4x4 pixels of a source by
	//
	//	1  0 -1  0
	//	0  1  1  0
	//	0 -1  1  0
	//	0  1  0 -1
	//
	// and WinogradResult 4x4 products to 2x2 pixels of a result by
	//
	//	1  1  1  0
	//	0  1 -1 -1
	//
	// WinogradGrads transforms by the transpose of that. They are there where Own
	// is, or nil.
	WinogradSource, WinogradResult, WinogradGrads Transform

	// PixelRuns is kernels of the form Inner on float32 by rows, with NR columns,
	// or nil.
	PixelRuns []PixelRuns

	// Peak does n times PeakFlops floating-point operations in registers, as
	// fast as the processor can: what rates are measured against. PeakPairs is
	// the same for products of pairs.
	Peak, PeakPairs           func(n int)
	PeakFlops, PeakPairsFlops int
}

// at is a pointer some elements of size bytes after p.
func at(p unsafe.Pointer, n, size int) unsafe.Pointer { return unsafe.Add(p, n*size) }
