// Package recurrent has the scans of recurrent layers (LSTM, GRU, simple) and their
// gradients.
//
// Where to look: recurrent.go is what both directions share; forward.go runs steps over
// a part of the batch, columns.go over a part of the units where the batch is small;
// backward.go is the gradient; step_product.go multiplies a step's rows by the recurrent
// weights, weight_sums.go adds up the gradients of the weights.
package recurrent

import (
	"runtime"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// checkSteps is after how many steps a chunk looks whether its run is over: a
// sequence may have a million of them.
const checkSteps = 16

// Recurrent operations. Rows of a batch do not meet, so a worker takes a block
// of them through all steps without waiting for others; blocks are those of
// the shape. The recurrent kernel is packed once, before. At each step the
// block is multiplied by it, and the functions of the cell are computed on
// pieces of the result that stay in L1.

const (
	scanRows  = 64   // of a block, at most: a kernel that is read once for them takes little of the time
	fewRows   = 4    // of a block, at least
	scanPiece = 1024 // elements that the functions of a cell are computed on at a time
)

// recurrence is what a scan and its gradient have in common.
type recurrence[T lanes.Real] struct {
	op.Scan
	steps, batch, units, gates int

	dtype  dtype.DType
	rows   int  // of a block
	padded int  // rows that there is room for
	wide   int  // elements from a row of a block in scratch memory to the next
	native bool // blocks lie in the operands and the result as in scratch memory

	products []stepProduct[T]
	packs    []packKernels[T]
	fn       arithmetic[T]
	cells    vec.Cells // for rows of units, or empty
	tiles    bool      // whether products need tile registers set up
	scratch  int       // bytes
	operand  int       // where a copied operand of a product lies in it
}

// arithmetic is the functions that cells are made of.
type arithmetic[T lanes.Real] struct {
	sigmoid, tanh, relu func(dst, a []T)
	mul, add, sub       func(dst, a, b []T)
	ones                []T // as many as a piece has
}

func arithmeticOf[T lanes.Real](l *lanes.Table[T]) arithmetic[T] {
	return arithmetic[T]{
		sigmoid: l.Unary[op.Sigmoid], tanh: l.Unary[op.Tanh], relu: l.Unary[op.Relu],
		mul: l.Binary[op.Mul], add: l.Binary[op.Add], sub: l.Binary[op.Sub],
	}
}

// oneLess is y = y·(1-x²): the gradient through a tanh.
func (f *arithmetic[T]) oneLess(y, x, t []T) {
	f.mul(t, x, x)
	f.sub(t, f.ones[:len(t)], t)
	f.mul(y, y, t)
}

// cellsOf is the cells in one pass for rows of units, of which there are none
// for float64 and where rows are not whole vectors.
func cellsOf(d dtype.DType, units int) vec.Cells {
	v := vec.Current()
	if v == nil || units%v.CellLanes != 0 {
		return vec.Cells{}
	}
	switch {
	case d == dtype.Float32:
		return v.CellsF32
	case d == dtype.Float16:
		return v.CellsF16
	case d == dtype.BFloat16 && isa.Current() >= isa.AVX512BF16:
		return v.CellsConvertBF16
	case d == dtype.BFloat16:
		return v.CellsBF16
	}
	return vec.Cells{}
}

// through is y = y·x·(1-x): the gradient through a logistic function. 1-x
// first: it is exact where x is near 1.
func (f *arithmetic[T]) through(y, x, t []T) {
	f.sub(t, f.ones[:len(t)], x)
	f.mul(t, t, x)
	f.mul(y, y, t)
}

// columns is a block of columns of a kernel that lies at a position and has
// as many rows.
type columns struct{ position, rows, from, n int }

// init settles the geometry for products with blocks of kernels.
func (k *recurrence[T]) init(s *op.Scan, d dtype.DType, steps, batch, units int, trans bool, blocks ...columns) {
	k.Scan, k.dtype = *s, d
	k.steps, k.batch, k.units, k.gates = steps, batch, units, s.Cell.Gates()
	// Equal blocks, and two at least, as there mostly are cores.
	set, unit, split := gemm.Current(), fewRows, false
	switch {
	case set == nil:
	case d == dtype.BFloat16 && set.Blocks != nil:
		unit = set.Blocks.Unit
	case d == dtype.Float16 && set.Panels != nil && batch > sharedRows && steps > 1:
		unit, split = panelUnit, true
	}
	n := max(batch, 1)
	k.rows = tiling.Even(n, min(scanRows, tiling.RoundUp(tiling.CeilDiv(n, 2), unit)), unit)
	if set != nil {
		k.cells = cellsOf(d, units)
	}
	shared, masks := product.FlagBytes, true
	unit = 1
	for _, c := range blocks {
		p := newStepProduct[T](c.position, d, c.rows, k.gates*units, c.from, c.n, trans, k.rows, split, &shared)
		k.products = append(k.products, p)
		unit, masks = max(unit, p.unit()), masks && p.masks()
		k.tiles = k.tiles || p.set != nil && (p.panels != nil || p.tiles.Begin != nil)
	}
	k.padded = tiling.RoundUp(k.rows, unit)
	k.wide = units
	if !masks {
		k.wide = tiling.RoundUp(units, k.products[0].tiles.NR)
	}
	k.native = d.Size() == lanes.SizeOf[T]() && k.wide == units && unit == 1
	ld := 0
	for i := range k.products {
		ld = max(ld, k.products[i].ld)
		if i == 0 || k.products[i].src != k.products[i-1].src {
			k.packs = append(k.packs, packKernels[T]{k, i, i})
		}
		k.packs[len(k.packs)-1].end++
	}
	k.take(lanes.SizeOf[T]() * k.gates * units) // also for a row of the kernel
	k.operand = k.takeBytes(product.FlagBytes + max(k.padded, scanRows)*ld)
}

// take reserves scratch memory for n elements and returns where it begins.
func (k *recurrence[T]) take(n int) int { return k.takeBytes(n * lanes.SizeOf[T]()) }

func (k *recurrence[T]) takeBytes(n int) int {
	at := k.scratch
	k.scratch += tiling.RoundUp(n, 64)
	return at
}

// block reserves scratch memory for a block of rows.
func (k *recurrence[T]) block() int { return k.take(k.padded * k.wide) }

// reserve asks for the memory that k needs.
func (k *recurrence[T]) reserve(b *exec.Builder) {
	b.ReserveScratch(k.scratch)
	last := &k.products[len(k.products)-1]
	b.ReserveShared(last.at + last.bytes())
}

// cachePacked has the packed copy of each kernel, the recurrent one and the input's if
// there is one, kept from run to run where the program lets it, and where
// packing it is a large part of the work.
func (k *recurrence[T]) cachePacked(b *exec.Builder, kernels ...*ir.Value) {
	if !backend.Keeps(backend.PackedOperands) || k.steps*k.batch > product.CacheRows || k.products[0].panels != nil {
		return
	}
	for i, v := range kernels {
		p := &k.packs[i]
		if bytes := p.bytes(); bytes >= product.CacheBytes && b.ReadOnly(v) {
			place := b.ReservePacked(bytes)
			for j := p.first; j < p.end; j++ {
				k.products[j].cached, k.products[j].keptAt = place, k.products[j].at-k.products[p.first].at
			}
		}
	}
}

// prepare packs the kernels and reports whether there is anything else to do.
func (k *recurrence[T]) prepare(r *exec.Run) bool {
	if k.batch*k.units == 0 {
		return false
	}
	*flagOf(r.Shared) = 0
	for i := range k.packs {
		p := &k.packs[i]
		first, good := &k.products[p.first], false
		if first.cached >= 0 {
			good, _ = r.PackedCopy(first.cached, first.src)
		}
		if !good {
			r.Parallel(p, p.chunks(), first.k*k.gates*k.units)
		}
	}
	return true
}

// start runs t, which embeds k, on all blocks, in n chunks.
func (k *recurrence[T]) start(r *exec.Run, t exec.Task, n int) {
	r.Parallel(t, n, k.batch*k.units*(k.steps+1)*k.gates*(8+k.units/16))
}

// begin and end come before the first and after the last product of a chunk.
func (k *recurrence[T]) begin() {
	if k.tiles {
		runtime.LockOSThread()
		gemm.Current().Panels.Begin()
	}
}

func (k *recurrence[T]) end() {
	if k.tiles {
		gemm.Current().Panels.End()
		runtime.UnlockOSThread()
	}
}

// packKernels is the task that packs a kernel, for products first to end-1.
type packKernels[T lanes.Real] struct {
	*recurrence[T]
	first, end int
}

// bytes is the size of the packed kernel.
func (k *packKernels[T]) bytes() int {
	n := 0
	for i := range k.products[k.first:k.end] {
		n += k.products[k.first+i].bytes()
	}
	return n
}

func (k *packKernels[T]) chunks() int {
	n := 0
	for i := range k.products[k.first:k.end] {
		n += k.products[k.first+i].chunks
	}
	return n
}

func (k *packKernels[T]) Chunk(r *exec.Run, w *exec.Worker, i int) {
	for j := k.first; j < k.end; j++ {
		p := &k.products[j]
		if i < p.chunks {
			p.pack(r, w, i)
			return
		}
		i -= p.chunks
	}
}

// span is the block of rows i.
func (k *recurrence[T]) span(i int) (first, rows int) {
	first = i * k.rows
	return first, min(k.rows, k.batch-first)
}

// place is step i in the order of computation, and where h and c before and
// after it lie.
func (k *recurrence[T]) place(i int) (t, before, after int) {
	if k.Reverse {
		t = k.steps - 1 - i
		return t, t + 1, t
	}
	return i, i, i + 1
}

// BytesOf is rows of width elements from row first of matrix number i of a
// section of matrices of batch rows.
func (k *recurrence[T]) bytesOf(data []byte, start, i, first, rows, width int) []byte {
	size := k.dtype.Size()
	at := (start + (i*k.batch+first)*width) * size
	return data[at : at+rows*width*size]
}

// blockAt is a block of rows in scratch memory as an operand of a cell, and
// storedAt is rows of width elements in data.
func (k *recurrence[T]) blockAt(x []T) vec.Operand {
	return vec.Operand{P: pointer(x), Stride: k.ld()}
}

func (k *recurrence[T]) storedAt(data []byte, width int) vec.Operand {
	return vec.Operand{P: pointer(data), Stride: width * k.dtype.Size()}
}

// blockOf is a block of rows in scratch memory, from where it was reserved.
func (k *recurrence[T]) blockOf(w *exec.Worker, at, rows int) []T {
	return lanes.ViewOf[T](w.Scratch[at:], rows*k.wide)
}

// load is a block that lies in data: itself if it can be, else a copy in dst.
func (k *recurrence[T]) load(dst []T, data []byte) []T {
	if k.native {
		return dtype.View[T](data)
	}
	k.read(dst, data)
	return dst
}

// read copies a block from data.
func (k *recurrence[T]) read(dst []T, data []byte) {
	size := k.dtype.Size()
	if k.wide == k.units {
		copy(dst, lanes.RealView(data, k.dtype, dst))
		return
	}
	n := k.units * size
	for ; len(data) > 0; data = data[n:] {
		copy(dst, lanes.RealView(data[:n], k.dtype, dst[:k.units]))
		dst = dst[k.wide:]
	}
}

// room is where a block is computed that is going to lie in data: there if it
// can be, else in dst.
func (k *recurrence[T]) room(dst []T, data []byte) []T {
	if k.native {
		return dtype.View[T](data)
	}
	return dst
}

// store writes a block to data, unless it was computed there.
func (k *recurrence[T]) store(data []byte, x []T) {
	if k.native {
		return
	}
	if k.wide == k.units {
		lanes.StoreReal(data, x, k.dtype)
		return
	}
	for n := k.units * k.dtype.Size(); len(data) > 0; data = data[n:] {
		lanes.StoreReal(data[:n], x[:k.units], k.dtype)
		x = x[k.wide:]
	}
}

// save copies a block of scratch memory to data.
func (k *recurrence[T]) save(data []byte, x []T) {
	if k.native {
		copy(dtype.View[T](data), x)
		return
	}
	k.store(data, x)
}

// ld is the bytes from a row of a block to the next.
func (k *recurrence[T]) ld() int { return k.wide * lanes.SizeOf[T]() }

// pieces calls f with parts of n elements.
func pieces(n, piece int, f func(lo, hi int)) {
	for lo := 0; lo < n; lo += piece {
		f(lo, min(n, lo+piece))
	}
}

func pointer[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// New makes the kernel of RNN.
func New(b *exec.Builder, v *ir.Value) exec.Kernel {
	if v.Type.DType == dtype.Float64 {
		return makeScan(b, v, lanes.FloatLoops[float64]())
	}
	return makeScan(b, v, lanes.Overlay(vec.Current()))
}

// NewGrad makes the kernel of RNNGrad.
func NewGrad(b *exec.Builder, v *ir.Value) exec.Kernel {
	if v.Type.DType == dtype.Float64 {
		return makeScanGrad(b, v, lanes.FloatLoops[float64]())
	}
	return makeScanGrad(b, v, lanes.Overlay(vec.Current()))
}
