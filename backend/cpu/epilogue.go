package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// epilogue is what follows a product while it is in the cache: an element-wise
// chain whose operand 0 is the product (op.Attr.Body of a contraction). Elements
// of the product are rounded to its type, as if they had been stored, so that
// fusing changes no bit; those of 16 bits stay float32, which is what the chain
// computes in. Where rows do not lie side by side they are copied.
type epilogue struct {
	*elementwise
	product dtype.DType
	cols    int // of the product
	base    int // in scratch memory: rows of the product, then the registers of the chain
	gather  int // bytes behind those: parts of rows of operands and the result
}

// stripElements is about how many elements go through the chain at a time:
// whole rows where a tile has whole rows.
const stripElements = 4 * lanes.Block

// newEpilogue makes what follows the product of v, a matrix of cols columns,
// or nil when nothing does. own is how many arguments the product takes.
func newEpilogue(b *exec.Builder, v *ir.Value, own, cols int) *epilogue {
	if v.Attr.Body == nil {
		return nil
	}
	k := &elementwise{n: v.Type.Shape.Size(), outs: []int{b.At(v)}}
	held := v.Attr.DType
	if held.Is16() {
		held = dtype.Float32
	}
	k.operands = append(k.operands, operand{dtype: held})
	for _, a := range v.Args[own:] {
		k.operand(b, a, v.Type.Shape)
	}
	k.compile(b, v.Attr.Body, []result{{slot: v.Slot}})
	return &epilogue{elementwise: k, product: v.Attr.DType, cols: cols}
}

// place puts the epilogue's memory behind base bytes of scratch memory.
func (e *epilogue) place(b *exec.Builder, base, tileCols int) {
	e.base = tiling.RoundUp(base, ir.Align)
	e.gather = tiling.RoundUp(e.scratch(), ir.Align)
	b.ReserveScratch(e.base + e.bufferBytes(tileCols) + e.gather + len(e.operands)*gatherBytes)
}

// gatherBytes is the room of an operand in parts of rows: a block of the widest
// type.
const gatherBytes = 8 * lanes.Block

// gatherCols is the columns of parts of rows up to which a call of the chain
// for each would take longer than copying several together.
const gatherCols = lanes.Block / 2

// strip is how many rows of a tile go through the chain at a time: one, unless
// they follow each other in the result.
func (e *epilogue) strip(cols int) int {
	if cols != e.cols {
		return 1
	}
	return max(1, stripElements/max(cols, 1))
}

func (e *epilogue) bufferBytes(tileCols int) int {
	return tiling.RoundUp(max(stripElements, tileCols)*e.operands[0].dtype.Size(), ir.Align)
}

// rows is the memory for n elements of the product on their way to apply.
func (e *epilogue) rows(w *exec.Worker, n int) []byte {
	return w.Scratch[e.base:][:n*e.operands[0].dtype.Size()]
}

// apply runs the chain over the n elements of the result from element at on;
// product has those of the product.
func (e *epilogue) apply(r *exec.Run, w *exec.Worker, at, n, tileCols int, product []byte) {
	e.span(r, w.Scratch[e.base+e.bufferBytes(tileCols):], w.Blocks, at, at+n, product)
}

// parts runs the chain over n parts of rows of the result, of cols elements
// each, the first from element at on and step elements from one to the next,
// together. product has those of the product.
func (e *epilogue) parts(r *exec.Run, w *exec.Worker, at, step, n, cols, tileCols int, product []byte) {
	c := e.variant(r)
	scratch := w.Scratch[e.base+e.bufferBytes(tileCols):]
	room := func(i, size int) []byte { return scratch[e.gather+i*gatherBytes:][:n*cols*size] }
	regs := w.Blocks[:len(c.offset)+mostAhead]
	clear(regs[len(c.offset):])
	for i := len(e.operands); i < len(c.offset); i++ {
		if c.offset[i] >= 0 {
			regs[i] = scratch[c.offset[i]:][:lanes.Block*c.domain[i].Size()]
		}
	}
	for i := range e.operands {
		o, size := &e.operands[i], c.domain[i].Size()
		switch {
		case i == 0:
			regs[i] = product
		case !c.used[i]:
		case o.access == scalar:
			regs[i] = c.number(r, scratch, o, i, n*cols)
		case o.access == byRow && o.period == e.cols && o.every == 0: // a bias: the same for all rows
			regs[i] = room(i, size)
			o.fetch(r, regs[i][:cols*size], r.Values[o.pos], at, cols, c.domain[i])
			exec.Repeat(regs[i], cols*size)
		default:
			regs[i] = room(i, size)
			for j := range n {
				o.fetch(r, regs[i][j*cols*size:][:cols*size], r.Values[o.pos], at+j*step, cols, c.domain[i])
			}
		}
	}
	o := &c.results[0]
	if o.direct {
		regs[o.reg] = room(0, o.dtype.Size())
	}
	for _, f := range c.exec {
		f(regs, n*cols)
	}
	size := c.domain[o.reg].Size()
	for j := range n {
		to, reg := e.memory(r, c, 0, at+j*step, cols), regs[o.reg][j*cols*size:][:cols*size]
		switch {
		case o.direct || o.copied:
			copy(to, reg)
		case o.store != nil:
			o.store(to, reg)
		}
	}
}

// storeEpilogue is the store of a product that something follows.
func (k *product) storeEpilogue(r *exec.Run, w *exec.Worker, t resultTile) {
	e, apart := k.after, t.step > 1
	if (t.cols < k.n || apart) && t.rows > 1 && t.cols <= gatherCols {
		rows := lanes.Block / t.cols
		for i := 0; i < t.rows; i += rows {
			n := min(rows, t.rows-i)
			e.parts(r, w, t.rowOf(i)*k.n+t.col, max(1, t.step)*k.n, n, t.cols, k.tileN, e.take(w, t, i, n))
		}
		return
	}
	strip := 1
	if !apart {
		strip = e.strip(t.cols)
	}
	for i := 0; i < t.rows; i += strip {
		n := min(strip, t.rows-i)
		e.apply(r, w, t.rowOf(i)*k.n+t.col, n*t.cols, k.tileN, e.take(w, t, i, n))
	}
}

// take is n rows of a tile from row i on as the chain reads them: rounded to
// the type of the product, one after the other. They are those of the tile
// itself where they lie like that.
func (e *epilogue) take(w *exec.Worker, t resultTile, i, n int) []byte {
	if t.lead == 4*t.cols { // rows are one long row
		t.data, t.cols, i, n = unsafe.Add(t.data, i*t.lead), n*t.cols, 0, 1
	}
	if n == 1 && e.operands[0].dtype == dtype.Float32 && !e.product.Is16() {
		return lanes.BytesOf(t.at(i))
	}
	to := e.rows(w, n*t.cols)
	row := len(to) / n
	for j := range n {
		putProduct(e, to[j*row:(j+1)*row], t.at(i+j))
	}
	return to
}

// putProduct writes elements of the product for the chain.
func putProduct[T lanes.Real](e *epilogue, to []byte, x []T) {
	if e.product.Is16() {
		rounded := dtype.View[float32](to)
		if x, ok := any(x).([]float32); ok {
			lanes.RoundTo(rounded, x, e.product)
			return
		}
		lanes.StoreReal(to, x, dtype.Float32)
		lanes.RoundTo(rounded, rounded, e.product)
		return
	}
	lanes.StoreReal(to, x, e.product)
}
