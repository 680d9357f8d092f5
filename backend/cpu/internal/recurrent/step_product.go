package recurrent

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// stepProduct multiplies a few rows by a block of columns of a kernel, the recurrent
// one or the input's, or by its transpose, at each step. The kernel is packed once,
// into the shared memory: as panels of columns for micro-kernels, else as a matrix of
// T.
//
// The split over the inner dimension depends on its length alone, and rows are
// independent: a row has the same bits in every block of rows.
type stepProduct[T lanes.Real] struct {
	src    int // position of the kernel in Run.Values
	dtype  dtype.DType
	stride int // columns of the kernel
	col    int // first column of the block
	trans  bool
	k, n   int // inner dimension, columns of the result

	set     *gemm.Set // nil: loops in Go
	tiles   *gemm.Tiles
	element gemm.Element
	cells   int // of 4 bytes along the inner dimension
	at      int // offset of the packed kernel in the shared memory
	cached  int // index of the cached copy in Run.Packed, or -1
	keptAt  int // offset in the cached copy
	chunks  int // of packing
	ld      int // leading dimension of a copied operand in bytes

	// For float16 on tile registers, else nil; wide is the same product in float32, for
	// non-finite elements.
	panels *gemm.Panels
	wide   *stepProduct[T]
}

// stepOperand is the rows that a stepProduct multiplies: the first row, the bytes from
// one row to the next and, for split float16, those from the high to the low parts.
type stepOperand struct {
	p       unsafe.Pointer
	ld, low int
}

// newStepProduct returns the product of rows by columns col to col+cols-1 of the
// kernel, transposed or not, of units rows and stride columns. The packed kernel lies
// at *shared, which newStepProduct advances. If split, float16 is multiplied on tile
// registers.
func newStepProduct[T lanes.Real](src int, d dtype.DType, units, stride, col, cols int, trans bool, rows int, split bool, shared *int) stepProduct[T] {
	p := stepProduct[T]{src: src, dtype: d, stride: stride, col: col, trans: trans, k: units, n: cols, at: *shared, cached: -1}
	if trans {
		p.k, p.n = cols, units
	}
	if p.set = gemm.Products(); p.set == nil || d == dtype.Float64 {
		p.set = nil
		p.cells, p.chunks = p.k, tiling.CeilDiv(units, 16)
		p.ld = lanes.SizeOf[T]() * p.k
		*shared += p.bytes()
		return p
	}
	p.tiles, p.element = p.set.F32, gemm.ElementOf[d]
	if p.element == gemm.BF16 {
		for _, t := range []*gemm.Tiles{p.set.Blocks, p.set.Pairs} {
			if t != nil && p.k >= max(8, t.Deep*t.Step*3/4) && rows >= t.Unit {
				p.tiles, p.element = t, gemm.Pairs
				break
			}
		}
	}
	p.cells = tiling.RoundUp(tiling.CeilDiv(p.k, p.tiles.Step), p.tiles.Deep)
	p.ld = 4*p.cells + product.RowPad
	p.chunks = tiling.CeilDiv(p.n, p.tiles.NR)
	if split {
		p.usePanels()
	}
	*shared += p.bytes()
	return p
}

// bytes returns the size of the packed kernel.
func (p *stepProduct[T]) bytes() int {
	if p.panels != nil {
		return p.panelBytes() + p.wide.bytes()
	}
	if p.set == nil {
		return tiling.RoundUp(lanes.SizeOf[T]()*p.k*p.n, 64)
	}
	return 4 * p.chunks * p.tiles.NR * p.cells
}

// packed returns the packed kernel: the copy in Run.Packed if it is of the current
// version, else the one in the shared memory.
func (p *stepProduct[T]) packed(r *exec.Run) []byte {
	if p.cached >= 0 {
		if k := &r.Packed[p.cached]; k.Data != nil && k.Version == r.Version[p.src] {
			return k.Data[p.keptAt:]
		}
	}
	return r.Shared[p.at:]
}

// unit returns the multiple that rows of operand and result are padded to.
func (p *stepProduct[T]) unit() int {
	switch {
	case p.set == nil:
		return 1
	case p.panels != nil:
		return panelUnit
	}
	return p.tiles.Unit
}

// masks reports whether micro-kernels leave columns after the last unchanged.
func (p *stepProduct[T]) masks() bool {
	if p.panels != nil {
		return p.n%panelUnit == 0
	}
	return p.set == nil || p.tiles.Masked || p.n%p.tiles.NR == 0
}

// inPlace reports whether a block of rows can be read without a copy.
func (p *stepProduct[T]) inPlace(rows int) bool {
	switch {
	case p.set == nil:
		return p.dtype.Size() == lanes.SizeOf[T]()
	case p.element != gemm.F32 && p.element != gemm.Pairs:
		return false
	}
	return p.k == p.cells*p.tiles.Step && rows%p.tiles.Unit == 0
}

// pack packs part i of the kernel.
func (p *stepProduct[T]) pack(r *exec.Run, w *exec.Worker, i int) {
	if p.panels != nil {
		p.packPanel(r, w, i)
		return
	}
	data, size := r.Values[p.src], p.dtype.Size()
	if p.set == nil {
		p.packRows(lanes.ViewOf[T](p.packed(r), p.k*p.n), data, i, w.Scratch)
		return
	}
	nr := p.tiles.NR
	dst := unsafe.Pointer(&p.packed(r)[4*i*nr*p.cells])
	first := i * nr
	cols := min(nr, p.n-first)
	src := unsafe.Pointer(unsafe.SliceData(data))
	if !p.trans {
		p.set.Lanes[p.element](dst, 4*nr, unsafe.Add(src, (p.col+first)*size), p.stride*size, p.k, 1<<cols-1, 1<<nr-1)
	} else {
		for j := 0; j < nr; j += 16 {
			load, store := max(0, min(16, cols-j)), min(16, nr-j)
			row := first + min(j, cols-1)
			p.set.Transpose[p.element](unsafe.Add(dst, 4*j), 4*nr, unsafe.Add(src, (row*p.stride+p.col)*size), p.stride*size, p.k, 1<<load-1, 1<<store-1)
		}
	}
	used := tiling.CeilDiv(p.k, p.tiles.Step)
	clear(unsafe.Slice((*uint32)(unsafe.Add(dst, 4*nr*used)), nr*(p.cells-used)))
}

// packRows copies 16 rows of the kernel as T.
func (p *stepProduct[T]) packRows(dst []T, data []byte, i int, scratch []byte) {
	size, units := p.dtype.Size(), p.k
	cols := p.n
	if p.trans {
		units, cols = p.n, p.k
	}
	row := lanes.ViewOf[T](scratch, cols)
	for j := 16 * i; j < min(units, 16*(i+1)); j++ {
		at := (j*p.stride + p.col) * size
		x := lanes.RealView(data[at:at+cols*size], p.dtype, row)
		if !p.trans {
			copy(dst[j*cols:], x)
			continue
		}
		for c, v := range x {
			dst[c*p.n+j] = v
		}
	}
}

// operand returns rows of k elements, ld bytes apart in data, as mul reads them: in
// place, or copied to scratch.
func (p *stepProduct[T]) operand(r *exec.Run, data []byte, ld, rows int, scratch []byte) stepOperand {
	if p.panels != nil {
		if a, finite := p.split(r, data, ld, rows, scratch); finite {
			return a
		}
		p = p.wide
	}
	if p.inPlace(rows) {
		return stepOperand{p: unsafe.Pointer(unsafe.SliceData(data)), ld: ld}
	}
	n := p.k * p.dtype.Size()
	for i := range rows {
		from, to := data[i*ld:][:n], scratch[i*p.ld:]
		if p.element == gemm.Pairs || p.dtype.Size() == lanes.SizeOf[T]() {
			copy(to, from)
			clear(to[n : 4*p.cells])
		} else {
			x := lanes.ViewOf[T](to, p.k)
			copy(x, lanes.RealView(from, p.dtype, x))
			if p.set != nil {
				clear(to[4*p.k : 4*p.cells])
			}
		}
	}
	return stepOperand{p: unsafe.Pointer(unsafe.SliceData(scratch)), ld: p.ld}
}

// mul computes d = s + a·u for rows from operand; s may be nil for zeros. Rows of d and
// s are ldd and lds bytes apart. It also writes rows up to the next multiple of unit
// and, unless masks, columns up to the next panel.
func (p *stepProduct[T]) mul(r *exec.Run, rows int, a stepOperand, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int) {
	if p.set == nil {
		p.loop(r, rows, a, s, lds, d, ldd)
		return
	}
	p.columns(r, 0, p.n, rows, a, s, lds, d, ldd)
}

// columns computes columns from to end-1 of mul with vector instructions. They must be
// whole panels, but for the last; s and d begin at the first of them.
func (p *stepProduct[T]) columns(r *exec.Run, from, end, rows int, a stepOperand, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int) {
	switch {
	case a.low > 0:
		p.splitColumns(r, from, end, rows, a, s, lds, d, ldd)
		return
	case p.panels != nil:
		p = p.wide
	}
	t, nr := p.tiles, p.tiles.NR
	units := tiling.CeilDiv(rows, t.Unit)
	heights := tiling.CeilDiv(units*t.Unit, t.MR)
	depth := p.cells
	switch {
	case t.Deep > 1 && depth > product.DeepDepth: // as in package product
		depth = tiling.Even(depth, product.DeepDepth, 16)
	case depth > product.MostDepth:
		depth = tiling.Even(depth, product.MostDepth, 16)
	}
	packed := p.packed(r)
	for j := from; j < end; j += nr {
		cols := min(nr, end-j)
		kernels := t.Rows
		if cols <= t.NarrowNR {
			kernels = t.NarrowRows
		}
		dj := unsafe.Add(d, 4*(j-from))
		for q := 0; q < p.cells; q += depth {
			b := unsafe.Pointer(&packed[4*nr*(j/nr*p.cells+q)])
			sj, ld := dj, ldd
			if q == 0 {
				sj, ld = nil, 0
				if s != nil {
					sj, ld = unsafe.Add(s, 4*(j-from)), lds
				}
			}
			for i := range heights {
				at, end := tiling.Cut(i, heights, units)
				at, end = at*t.Unit, end*t.Unit
				si := sj
				if si != nil {
					si = unsafe.Add(si, at*ld)
				}
				kernels[end-at](min(depth, p.cells-q), unsafe.Add(a.p, at*a.ld+4*q), a.ld, b, 4*nr, si, ld, unsafe.Add(dj, at*ldd), ldd, 1<<cols-1)
			}
		}
	}
}

// loop is mul in Go.
func (p *stepProduct[T]) loop(r *exec.Run, rows int, a stepOperand, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int) {
	u := lanes.ViewOf[T](p.packed(r), p.k*p.n)
	for i := range rows {
		x := unsafe.Slice((*T)(unsafe.Add(a.p, i*a.ld)), p.k)
		y := unsafe.Slice((*T)(unsafe.Add(d, i*ldd)), p.n)
		switch {
		case s == nil:
			clear(y)
		case unsafe.Add(s, i*lds) != unsafe.Pointer(unsafe.SliceData(y)):
			copy(y, unsafe.Slice((*T)(unsafe.Add(s, i*lds)), p.n))
		}
		for q, x := range x {
			for j, v := range u[q*p.n:][:p.n] {
				y[j] += T(x * v)
			}
		}
	}
}

// A float16 product runs on tile registers, which multiply bfloat16, as in package
// product: each element is split into a high and a low bfloat16. Kernels are split when
// packed, rows at each step. A flag before the packed kernels and one before the rows
// say whether an element is not finite; if so, the product is computed in float32, from
// a second packed copy.

// panelUnit is the rows, and the columns, of a tile register.
const panelUnit = gemm.PanelRows / 2

// flagOf returns the flag before packed operands.
func flagOf(data []byte) *uint32 { return &lanes.ViewOf[uint32](data, 1)[0] }

// usePanels makes p, a product of float16 in float32, run on tile registers.
func (p *stepProduct[T]) usePanels() {
	wide := *p
	p.wide, p.panels = &wide, p.set.Panels
	wide.at += p.panelBytes()
	p.chunks = tiling.CeilDiv(p.n, gemm.PanelCols) + wide.chunks
	p.ld = max(wide.ld, 2*p.ldSplit())
}

// panelSize returns the bytes of a packed panel, panelBytes those of all panels,
// ldSplit those of a row of one part of a split operand.
func (p *stepProduct[T]) panelSize() int {
	return 2 * gemm.PanelStep * tiling.CeilDiv(p.k, gemm.PanelDepth)
}

func (p *stepProduct[T]) panelBytes() int { return p.panelSize() * tiling.CeilDiv(p.n, gemm.PanelCols) }

func (p *stepProduct[T]) ldSplit() int {
	return 2*tiling.RoundUp(p.k, gemm.PanelDepth) + product.RowPad
}

// packPanel packs chunk i of the kernel: a split panel, or a part of the float32 copy.
func (p *stepProduct[T]) packPanel(r *exec.Run, w *exec.Worker, i int) {
	panels := tiling.CeilDiv(p.n, gemm.PanelCols)
	if i >= panels {
		p.wide.pack(r, w, i-panels)
		return
	}
	first := i * gemm.PanelCols
	cols := min(gemm.PanelCols, p.n-first)
	size, found := p.panelSize(), unsafe.Pointer(flagOf(r.Shared))
	to, data := unsafe.Pointer(&r.Shared[p.at+i*size]), r.Values[p.src]
	if p.trans {
		product.TransposePanels(p.set, to, size, 2, unsafe.Pointer(&data[2*(first*p.stride+p.col)]), 2*p.stride, cols, p.k, found)
	} else {
		product.PackPanels(p.set, to, size, 2, unsafe.Pointer(&data[2*(p.col+first)]), 2*p.stride, cols, p.k, found)
	}
}

// split is operand for split float16. It reports whether all elements of the rows and
// of the kernels are finite.
func (p *stepProduct[T]) split(r *exec.Run, data []byte, ld, rows int, scratch []byte) (stepOperand, bool) {
	found, part := flagOf(scratch), p.ldSplit()
	a := stepOperand{p: unsafe.Pointer(&scratch[product.FlagBytes]), ld: 2 * part, low: part}
	*found = *flagOf(r.Shared)
	if *found == 0 {
		p.panels.Split(a.p, a.ld, a.low, unsafe.Pointer(unsafe.SliceData(data)), ld, rows, p.k, unsafe.Pointer(found))
	}
	return a, *found == 0
}

// splitColumns is columns for a split operand.
func (p *stepProduct[T]) splitColumns(r *exec.Run, from, end, rows int, a stepOperand, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int) {
	if s != nil && lds != ldd { // micro-kernels take one leading dimension for both
		for i := range rows {
			copy(unsafe.Slice((*float32)(unsafe.Add(d, i*ldd)), end-from), unsafe.Slice((*float32)(unsafe.Add(s, i*lds)), end-from))
		}
		s = d
	}
	depth, size := tiling.CeilDiv(p.k, gemm.PanelDepth), p.panelSize()
	for j := from; j < end; j += gemm.PanelCols {
		panel := unsafe.Pointer(&r.Shared[p.at+j/gemm.PanelCols*size])
		cols := (min(gemm.PanelCols, end-j) - 1) / panelUnit
		for i := 0; i < rows; i += gemm.PanelRows {
			high := (min(gemm.PanelRows, rows-i) - 1) / panelUnit
			at := i*ldd + 4*(j-from)
			start := s
			if s != nil {
				start = unsafe.Add(s, at)
			}
			p.panels.Kernels[1][high][cols](depth, unsafe.Add(a.p, i*a.ld), a.ld, a.low, nil, panel, start, unsafe.Add(d, at), ldd, panel)
		}
	}
}
