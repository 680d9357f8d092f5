// Package recurrent has the scans of recurrent layers (LSTM, GRU, simple) and their
// gradients.
//
// Where to look: recurrent.go is the common part of both directions; forward.go runs
// steps over a block of the batch, columns.go over a range of units if the batch is
// small; backward.go is the gradient; step_product.go multiplies a step's rows by the
// recurrent weights, weight_sums.go accumulates the gradients of the weights.
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

// checkSteps is the number of steps between a chunk's checks whether its run was
// cancelled: a sequence may have a million steps.
const checkSteps = 16

// Rows of a batch are independent, so a worker takes a block of rows through all steps
// without waiting for others. Blocks depend on the shape alone. The recurrent kernel is
// packed once, before the steps. Each step multiplies the block by it and applies the
// cell's functions to pieces of the result that stay in L1.

const (
	scanRows  = 64   // most rows per block: reading the kernel takes little of a step's time then
	fewRows   = 4    // fewest rows per block
	scanPiece = 1024 // elements per call of a cell's functions
)

// recurrence is the common part of a scan and its gradient.
type recurrence[T lanes.Real] struct {
	op.Scan
	steps, batch, units, gates int

	dtype  dtype.DType
	rows   int  // per block
	padded int  // rows that scratch memory has room for
	wide   int  // elements from a row of a block in scratch memory to the next
	native bool // operands and the result have the layout of scratch memory, so blocks are not copied

	products []stepProduct[T]
	packs    []packKernels[T]
	fn       arithmetic[T]
	cells    vec.Cells // assembly for rows of units, or empty
	tiles    bool      // products need tile registers
	scratch  int       // bytes
	operand  int       // offset of a product's copied operand in scratch memory
}

// arithmetic is the table of functions that cells use.
type arithmetic[T lanes.Real] struct {
	sigmoid, tanh, relu func(dst, a []T)
	mul, add, sub       func(dst, a, b []T)
	ones                []T // for a whole piece
}

func arithmeticOf[T lanes.Real](l *lanes.Table[T]) arithmetic[T] {
	return arithmetic[T]{
		sigmoid: l.Unary[op.Sigmoid], tanh: l.Unary[op.Tanh], relu: l.Unary[op.Relu],
		mul: l.Binary[op.Mul], add: l.Binary[op.Add], sub: l.Binary[op.Sub],
	}
}

// oneLess computes y *= 1-x², the gradient of tanh.
func (f *arithmetic[T]) oneLess(y, x, t []T) {
	f.mul(t, x, x)
	f.sub(t, f.ones[:len(t)], t)
	f.mul(y, y, t)
}

// cellsOf returns the assembly that computes a whole cell, for rows of units. It is
// empty for float64 and for rows that are not whole vectors.
func cellsOf(d dtype.DType, units int) vec.Cells {
	v := vec.Native()
	if v == nil || units%v.CellLanes != 0 {
		return vec.Cells{}
	}
	switch common := &v.Common; {
	case isa.PortableBits() && d == dtype.Float32:
		return common.CellsF32
	case isa.PortableBits() && d == dtype.Float16:
		return common.CellsF16
	case isa.PortableBits() && d == dtype.BFloat16:
		return common.CellsBF16
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

// through computes y *= x·(1-x), the gradient of the logistic function. 1-x comes first
// because it is exact for x near 1.
func (f *arithmetic[T]) through(y, x, t []T) {
	f.sub(t, f.ones[:len(t)], x)
	f.mul(t, t, x)
	f.mul(y, y, t)
}

// columns is n columns, from column from on, of the kernel with so many rows at a
// position in Run.Values.
type columns struct{ position, rows, from, n int }

// init sets the sizes for products with blocks of kernels.
func (k *recurrence[T]) init(s *op.Scan, d dtype.DType, steps, batch, units int, trans bool, blocks ...columns) {
	k.Scan, k.dtype = *s, d
	k.steps, k.batch, k.units, k.gates = steps, batch, units, s.Cell.Gates()
	// Blocks are equal, and at least two, to keep two cores busy.
	set, unit, split := gemm.Products(), fewRows, false
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
	for _, c := range blocks {
		p := newStepProduct[T](c.position, d, c.rows, k.gates*units, c.from, c.n, trans, k.rows, split, &shared)
		k.products = append(k.products, p)
		masks = masks && p.masks()
		k.tiles = k.tiles || p.set != nil && (p.panels != nil || p.tiles.Begin != nil)
	}
	k.padded = tiling.RoundUp(k.rows, k.unit())
	k.wide = units
	if !masks {
		k.wide = tiling.RoundUp(units, k.products[0].tiles.NR)
	}
	k.native = d.Size() == lanes.SizeOf[T]() && k.wide == units && k.unit() == 1
	ld := 0
	for i := range k.products {
		ld = max(ld, k.products[i].ld)
		if i == 0 || k.products[i].src != k.products[i-1].src {
			k.packs = append(k.packs, packKernels[T]{k, i, i})
		}
		k.packs[len(k.packs)-1].end++
	}
	k.take(lanes.SizeOf[T]() * k.gates * units) // also holds a row of the kernel
	k.operand = k.takeBytes(product.FlagBytes + max(k.padded, scanRows)*ld)
}

// unit returns the multiple that rows of a block are padded to.
func (k *recurrence[T]) unit() int {
	unit := 1
	for i := range k.products {
		unit = max(unit, k.products[i].unit())
	}
	return unit
}

// take reserves scratch memory for n elements and returns its offset.
func (k *recurrence[T]) take(n int) int { return k.takeBytes(n * lanes.SizeOf[T]()) }

func (k *recurrence[T]) takeBytes(n int) int {
	at := k.scratch
	k.scratch += tiling.RoundUp(n, 64)
	return at
}

// block reserves scratch memory for a block of rows and returns its offset.
func (k *recurrence[T]) block() int { return k.take(k.padded * k.wide) }

// reserve reserves k's scratch and shared memory.
func (k *recurrence[T]) reserve(b *exec.Builder) {
	b.ReserveScratch(k.scratch)
	last := &k.products[len(k.products)-1]
	b.ReserveShared(last.at + last.bytes())
}

// cachePacked keeps packed copies of the kernels, the recurrent one and the input's if
// there is one, from run to run. It does so only if the program allows it and packing
// is a large part of the work.
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

// prepare packs the kernels. It returns false if there is nothing to compute.
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

// start runs n chunks of t, which embeds k.
func (k *recurrence[T]) start(r *exec.Run, t exec.Task, n int) {
	r.Parallel(t, n, k.Work())
}

// Work returns about the element operations of all steps.
func (k *recurrence[T]) Work() int {
	return k.batch * k.units * (k.steps + 1) * k.gates * (8 + k.units/16)
}

// begin must be called before the first product of a chunk, end after the last.
func (k *recurrence[T]) begin() {
	if k.tiles {
		runtime.LockOSThread()
		gemm.Native().Panels.Begin()
	}
}

func (k *recurrence[T]) end() {
	if k.tiles {
		gemm.Native().Panels.End()
		runtime.UnlockOSThread()
	}
}

// packKernels is the task that packs a kernel for products[first:end].
type packKernels[T lanes.Real] struct {
	*recurrence[T]
	first, end int
}

// bytes returns the size of the packed kernel.
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

// span returns the rows of block i.
func (k *recurrence[T]) span(i int) (first, rows int) {
	first = i * k.rows
	return first, min(k.rows, k.batch-first)
}

// place returns the time step of iteration i, and the positions of h and c before and
// after it.
func (k *recurrence[T]) place(i int) (t, before, after int) {
	if k.Reverse {
		t = k.steps - 1 - i
		return t, t + 1, t
	}
	return i, i, i + 1
}

// bytesOf returns rows of width elements, from row first on, of the i-th matrix of a
// section. Each matrix has batch rows.
func (k *recurrence[T]) bytesOf(data []byte, start, i, first, rows, width int) []byte {
	size := k.dtype.Size()
	at := (start + (i*k.batch+first)*width) * size
	return data[at : at+rows*width*size]
}

// blockAt returns a block of rows in scratch memory, and storedAt rows of width
// elements in data, as an operand of a cell.
func (k *recurrence[T]) blockAt(x []T) vec.Operand {
	return vec.Operand{P: pointer(x), Stride: k.ld()}
}

func (k *recurrence[T]) storedAt(data []byte, width int) vec.Operand {
	return vec.Operand{P: pointer(data), Stride: width * k.dtype.Size()}
}

// blockOf returns the block of rows at an offset of scratch memory.
func (k *recurrence[T]) blockOf(w *exec.Worker, at, rows int) []T {
	return lanes.ViewOf[T](w.Scratch[at:], rows*k.wide)
}

// load returns the block in data: data itself if native, else a copy in dst.
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

// room returns the memory to compute a block in that store writes to data: data itself
// if native, else dst.
func (k *recurrence[T]) room(dst []T, data []byte) []T {
	if k.native {
		return dtype.View[T](data)
	}
	return dst
}

// store writes a block to data unless room returned data.
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

// ld returns the leading dimension of a block in bytes.
func (k *recurrence[T]) ld() int { return k.wide * lanes.SizeOf[T]() }

// pieces calls f for consecutive ranges of piece elements, up to n.
func pieces(n, piece int, f func(lo, hi int)) {
	for lo := 0; lo < n; lo += piece {
		f(lo, min(n, lo+piece))
	}
}

func pointer[T any](s []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(s)) }

// New returns the kernel of RNN.
func New(b *exec.Builder, v *ir.Value) exec.Kernel {
	if v.Type.DType == dtype.Float64 {
		return makeScan(b, v, lanes.FloatLoops[float64]())
	}
	return makeScan(b, v, lanes.OfF32())
}

// NewGrad returns the kernel of RNNGrad.
func NewGrad(b *exec.Builder, v *ir.Value) exec.Kernel {
	if v.Type.DType == dtype.Float64 {
		return makeScanGrad(b, v, lanes.FloatLoops[float64]())
	}
	return makeScanGrad(b, v, lanes.OfF32())
}
