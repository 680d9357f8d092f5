package product

import (
	"math"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// quantizedProduct is op.QuantizedMatMul. It has three passes: the matrix is packed in
// panels, once if the program does not change it; rows of x are quantized to bytes in
// shared memory; tiles of sums in int32 are computed in scratch memory and divided by
// their scales on the way to the result.
type quantizedProduct struct {
	set          *gemm.Bytes
	x, y, z, out int // positions
	dtype        dtype.DType
	m, k, n      int
	deep         int  // k rounded up to what kernels take
	lda          int  // bytes of a quantized row
	atScales     int  // in shared memory: behind the quantized rows
	place        int  // of the packed matrix in Run.Packed
	keep         bool // the program does not change the matrix
	Blocking
	buffers            int // elements of each of the buffers in scratch memory
	pack, rows         quantizedPass
	multiply           quantizedPass
	panels, panelBytes int
}

// Limits of blocks of quantized products.
const (
	quantizedRowBytes   = 1 << 18 // of a block of x, which stays in L2
	quantizedChunkBytes = 1 << 18 // of the panels of a tile, at least
	quantizedMostPanels = 8       // of a tile: sums of a micro-tile stay in L1
	quantizeRows        = 1 << 13 // elements of a chunk that quantizes
	fewBytesRows        = 12      // rows below which tile registers wait for the matrix, which is read once
	fewWordsRows        = 4       // rows below which a matrix of bytes, half as large, is read faster than one of int16
)

// BlockQuantized decides the blocking of p, a product of 8-bit integers, for kernels of
// set. The depth is that of packed operands.
func (p Problem) BlockQuantized(set *gemm.Bytes) Blocking {
	depth := max(tiling.RoundUp(p.K, set.Deep), set.Deep)
	b := Blocking{Pack: Pack{A: ARows, B: BShared}, Depth: depth, Slices: Slices{N: 1, K: depth}}
	if p.Cached {
		b.Pack.B = BCached
	}
	rows, panels := max(quantizedRowBytes/(set.Size()*depth)/set.MR()*set.MR(), set.MR()), tiling.CeilDiv(p.N, gemm.ByteColumns)
	per := min(max(quantizedChunkBytes/set.PanelBytes(depth), 1), quantizedMostPanels, panels)
	for per > 1 && tiling.CeilDiv(panels, per)*tiling.CeilDiv(p.M, rows) < tiling.MinChunks {
		per /= 2
	}
	b.Tiles = Grid{Rows: min(rows, max(p.M, 1)), Cols: max(per, 1) * gemm.ByteColumns, Stripe: max(p.N, 1)}
	b.Tiles.Down = tiling.CeilDiv(p.M, b.Tiles.Rows)
	return b
}

// quantizedChoice is what the choice of a quantized product's algorithm depends on.
type quantizedChoice struct {
	b    *exec.Builder
	v    *ir.Value
	m    int
	sets []*gemm.Bytes // that run at the level in use
}

// quantizedAlgorithms are the algorithms of QuantizedMatMul, one for each set of kernels.
var quantizedAlgorithms = []exec.Algorithm[*quantizedChoice]{
	quantizedBy("amx", "tile registers of int8", func(c *quantizedChoice) string {
		if c.m < fewBytesRows {
			return "too few rows"
		}
		return ""
	}),
	quantizedBy("vnni", "AVX512-VNNI", nil),
	quantizedBy("dot", "dot products of NEON", nil),
	quantizedBy("avx2-words", "AVX2", func(c *quantizedChoice) string {
		if c.m < fewWordsRows {
			return "too few rows"
		}
		return ""
	}),
	quantizedBy("avx2", "AVX2", nil),
	quantizedBy("portable", "portable Go", nil),
}

// quantizedBy returns the algorithm with the kernels of a set, which need an instruction
// set.
func quantizedBy(name, needs string, pays func(*quantizedChoice) string) exec.Algorithm[*quantizedChoice] {
	set := func(c *quantizedChoice) *gemm.Bytes {
		for _, s := range c.sets {
			if s.Algorithm == name {
				return s
			}
		}
		return nil
	}
	return exec.Algorithm[*quantizedChoice]{
		Name: name,
		Applies: func(c *quantizedChoice) string {
			if set(c) == nil {
				return "no " + needs
			}
			return ""
		},
		Pays:  pays,
		Build: func(c *quantizedChoice) exec.Kernel { return newQuantizedProduct(c.b, c.v, set(c)) },
	}
}

// QuantizedAlgorithms returns the names of the algorithms.
func QuantizedAlgorithms() []string { return exec.Names(quantizedAlgorithms) }

// NewQuantized makes the kernel of an op.QuantizedMatMul.
func NewQuantized(b *exec.Builder, v *ir.Value) exec.Kernel {
	return exec.Choose(b, v, "int8", quantizedAlgorithms, &quantizedChoice{b, v, v.Args[0].Type.Shape[0], gemm.AllBytes()})
}

// newQuantizedProduct makes the kernel of v with the kernels of set.
func newQuantizedProduct(b *exec.Builder, v *ir.Value, set *gemm.Bytes) exec.Kernel {
	x, y := v.Args[0].Type, v.Args[1].Type
	q := &quantizedProduct{
		set: set, x: b.At(v.Args[0]), y: b.At(v.Args[1]), z: b.At(v.Args[2]), out: b.At(v), dtype: x.DType,
		m: x.Shape[0], k: x.Shape[1], n: y.Shape[1],
	}
	q.keep = backend.Keeps(backend.PackedOperands) && b.ReadOnly(v.Args[1])
	q.Blocking = Problem{M: q.m, N: q.n, K: q.k, Batches: 1, To: q.dtype, Cached: q.keep}.BlockQuantized(set)
	q.deep = q.Depth
	q.lda = set.Size()*q.deep + 64 // rows at a power of two would share sets of L1
	q.panelBytes = set.PanelBytes(q.deep)
	q.panels = tiling.CeilDiv(q.n, gemm.ByteColumns)
	q.atScales = tiling.RoundUp((q.m+q.set.MR())*q.lda, ir.Align)
	b.ReserveShared(q.atScales + 4*q.m)
	q.place = b.ReservePacked(q.panels * q.panelBytes)
	q.buffers = max(q.Tiles.Cols, lanes.Block)
	b.ReserveScratch(4*q.set.MR()*q.Tiles.Cols + 3*4*q.buffers)
	q.pack, q.rows, q.multiply = quantizedPass{q, (*quantizedProduct).packPanel}, quantizedPass{q, (*quantizedProduct).quantizeRows}, quantizedPass{q, (*quantizedProduct).multiplyTile}
	return q
}

// quantizedPass is one of the passes over a product.
type quantizedPass struct {
	*quantizedProduct
	chunk func(*quantizedProduct, *exec.Run, *exec.Worker, int)
}

func (p *quantizedPass) Chunk(r *exec.Run, w *exec.Worker, i int) {
	p.chunk(p.quantizedProduct, r, w, i)
}

// Run computes the product.
func (q *quantizedProduct) Run(r *exec.Run) {
	if q.m*q.n == 0 {
		return
	}
	if _, good := r.PackedMemory(q.place, q.keep, q.y); !good {
		r.Parallel(&q.pack, q.panels, q.panels*q.panelBytes)
	}
	r.Parallel(&q.rows, tiling.CeilDiv(q.m, q.rowsPerChunk()), q.m*q.k)
	// A multiplication takes a small part of an element operation's time.
	r.Parallel(&q.multiply, q.Tiles.Down*tiling.CeilDiv(q.panels, q.tilePanels()), q.m*q.panels*q.panelBytes/32)
}

// packPanel packs panel i.
func (q *quantizedProduct) packPanel(r *exec.Run, _ *exec.Worker, i int) {
	first := i * gemm.ByteColumns
	src := lanes.ViewOf[int8](r.Values[q.y], q.k*q.n)[min(first, q.k*q.n):]
	q.set.PackBytes(r.Packed[q.place].Data[i*q.panelBytes:(i+1)*q.panelBytes], src, q.n, q.k, min(gemm.ByteColumns, q.n-first))
}

// rowsPerChunk is the rows of a chunk of quantizeRows.
func (q *quantizedProduct) rowsPerChunk() int { return max(quantizeRows/max(q.k, 1), 1) }

// scales is the scales of rows in shared memory.
func (q *quantizedProduct) scales(r *exec.Run) []float32 {
	return lanes.ViewOf[float32](r.Shared[q.atScales:], q.m)
}

// buffer returns one of the buffers in scratch memory.
func (q *quantizedProduct) buffer(w *exec.Worker, i int) []float32 {
	return lanes.ViewOf[float32](w.Scratch[4*i*q.buffers:], q.buffers)
}

// quantizeRows quantizes the rows of chunk i.
func (q *quantizedProduct) quantizeRows(r *exec.Run, w *exec.Worker, i int) {
	size := q.dtype.Size()
	scales := q.scales(r)
	buffer := q.buffer(w, 0)
	for row := i * q.rowsPerChunk(); row < min((i+1)*q.rowsPerChunk(), q.m); row++ {
		x := r.Values[q.x][row*q.k*size : (row+1)*q.k*size]
		scale := q.scaleOf(x, buffer)
		scales[row] = scale
		to := r.Shared[row*q.lda : (row+1)*q.lda]
		if scale == 0 || scale != scale { // a number that is not finite
			q.fill(to, 0, q.deep)
			continue
		}
		for at := 0; at < q.k; at += lanes.Block {
			n := min(lanes.Block, q.k-at)
			q.quantize(to, at, x[at*size:(at+n)*size], buffer[:n], scale)
		}
		q.fill(to, q.k, q.deep)
	}
}

// scaleOf returns the scale of a row.
func (q *quantizedProduct) scaleOf(x []byte, buffer []float32) float32 {
	largest := float32(0)
	size := q.dtype.Size()
	for at := 0; at < len(x); at += lanes.Block * size {
		part := x[at:min(at+lanes.Block*size, len(x))]
		b := buffer[:len(part)/size]
		lanes.ToF32(b, part, q.dtype)
		largest = max(largest, magnitude(b)) // the builtin keeps NaN
	}
	return q.round(op.QuantizeLimit / q.round(largest+q.round(op.QuantizeEpsilon)))
}

// magnitude returns the largest magnitude in x, NaN if there is a NaN.
func magnitude(x []float32) (largest float32) {
	if v := vec.Current(); v != nil {
		return float32(max(v.Max(x), -v.Min(x)))
	}
	for _, f := range x {
		largest = max(largest, float32(math.Abs(float64(f))))
	}
	return largest
}

// round rounds x to the type of the product.
func (q *quantizedProduct) round(x float32) float32 {
	if q.dtype == dtype.Float32 {
		return x
	}
	return q.dtype.Round(x)
}

// quantize writes the integers of x, elements from at on, to a quantized row.
func (q *quantizedProduct) quantize(to []byte, at int, x []byte, buffer []float32, scale float32) {
	lanes.ToF32(buffer, x, q.dtype)
	if q.dtype != dtype.Float32 {
		lanes.MulScalar(buffer, scale)
		lanes.RoundTo(buffer, buffer, q.dtype)
		scale = 1
	}
	to = to[q.set.Size()*at:][:q.set.Size()*len(buffer)]
	out := to[len(to)-len(buffer):]                                                              // which are widened where they are
	lanes.Quantize(out, buffer, scale, -op.QuantizeLimit, op.QuantizeLimit, int32(q.set.Offset)) // a rounded scale can give 128
	if q.set.Widen != nil {
		q.set.Widen(to, out)
	}
}

// fill writes zeros to the elements from one to another of a quantized row.
func (q *quantizedProduct) fill(to []byte, from, end int) {
	to = to[q.set.Size()*from : q.set.Size()*end]
	for i := range to { // two bytes of offset 0 are a wide 0
		to[i] = byte(q.set.Offset)
	}
}

// tilePanels is the panels of a tile.
func (q *quantizedProduct) tilePanels() int { return q.Tiles.Cols / gemm.ByteColumns }

// multiplyTile computes tile i of the result.
func (q *quantizedProduct) multiplyTile(r *exec.Run, w *exec.Worker, i int) {
	across := tiling.CeilDiv(q.panels, q.tilePanels())
	first := i % across * q.tilePanels()
	panels := min(q.tilePanels(), q.panels-first)
	row := i / across * q.Tiles.Rows
	end := min(row+q.Tiles.Rows, q.m)
	all := r.Packed[q.place].Data[first*q.panelBytes:]
	ld := q.Tiles.Cols
	sums := w.Scratch[3*4*q.buffers:]
	if q.set.Begin != nil {
		q.set.Begin()
		defer q.set.End()
	}
	for row < end {
		kernel, rows := q.set.Take(end - row)
		a := unsafe.Pointer(&r.Shared[row*q.lda])
		for p := range panels {
			columns := min(gemm.ByteColumns, q.n-(first+p)*gemm.ByteColumns)
			kernel(gemm.WholeRows, 1, q.deep/4, a, q.lda, unsafe.Pointer(&all[p*q.panelBytes]), unsafe.Pointer(&sums[4*p*gemm.ByteColumns]), 4*ld, columns)
		}
		for t := range min(rows, end-row) {
			q.store(r, w, row+t, first*gemm.ByteColumns, min(panels*gemm.ByteColumns, q.n-first*gemm.ByteColumns), lanes.ViewOf[int32](sums[4*t*ld:], ld))
		}
		row += rows
	}
}

// store divides n sums of a row by their scales and stores them.
func (q *quantizedProduct) store(r *exec.Run, w *exec.Worker, row, column, n int, sums []int32) {
	size := q.dtype.Size()
	at := (row*q.n + column) * size
	out := r.Values[q.out][at : at+n*size]
	of := r.Values[q.z][column*size : (column+n)*size]
	values, divisors := q.buffer(w, 0)[:n], q.buffer(w, 1)[:n]
	scale := q.scales(r)[row]
	v := vec.Current()
	if v == nil {
		lanes.ToF32(divisors, of, q.dtype)
		for i, s := range sums[:n] {
			values[i] = q.round(float32(s)) / q.round(divisors[i]*scale)
		}
		lanes.FromF32(out, values, q.dtype)
		return
	}
	v.FromI32(values, sums[:n])
	if q.dtype == dtype.Float32 {
		v.MulScalar(divisors, lanes.ViewOf[float32](of, n), scale)
		v.Div(lanes.ViewOf[float32](out, n), values, divisors)
		return
	}
	lanes.ToF32(divisors, of, q.dtype)
	v.MulScalar(divisors, divisors, scale)
	lanes.RoundTo(divisors, divisors, q.dtype)
	lanes.RoundTo(values, values, q.dtype)
	v.Div(values, values, divisors)
	lanes.FromF32(out, values, q.dtype)
}
