package elementwise

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Epilogue is an element-wise chain that runs on a product while it is in the cache;
// the product is its operand 0 (op.Attr.Body of a contraction). Elements of the product
// are rounded to its type as if they had been stored, so that fusion changes no bit;
// 16-bit elements are kept as float32, the chain's lane type. Rows that are not
// contiguous are copied.
type Epilogue struct {
	*Chain
	Product dtype.DType
	cols    int // columns of the product
	base    int // in scratch memory: rows of the product, then the chain's block buffers
	gather  int // bytes of these, followed by gathered rows of operands and the result
}

// StripElements is about how many elements go through the chain at a time: whole rows
// if a tile has whole rows.
const StripElements = 4 * lanes.Block

// NewEpilogue returns the epilogue of v, a product with cols columns, or nil if it has
// none. args is the number of the product's own arguments.
func NewEpilogue(b *exec.Builder, v *ir.Value, args, cols int) *Epilogue {
	if v.Attr.Body == nil {
		return nil
	}
	k := &Chain{n: v.Type.Shape.Size(), outs: []int{b.At(v)}}
	held := v.Attr.DType
	if held.Is16() {
		held = dtype.Float32
	}
	k.Operands = append(k.Operands, operand{DType: held})
	for _, a := range v.Args[args:] {
		k.operand(b, a, v.Type.Shape)
	}
	k.compile(b, v.Attr.Body, []result{{slot: v.Slot}})
	return &Epilogue{Chain: k, Product: v.Attr.DType, cols: cols}
}

// Place reserves the epilogue's scratch memory after base bytes.
func (e *Epilogue) Place(b *exec.Builder, base, tileCols int) {
	e.base = tiling.RoundUp(base, ir.Align)
	e.gather = tiling.RoundUp(e.scratch(), ir.Align)
	b.ReserveScratch(e.base + e.bufferBytes(tileCols) + e.gather + len(e.Operands)*gatherBytes)
}

// gatherBytes is the room for gathered rows of an operand: a block of the widest type.
const gatherBytes = 8 * lanes.Block

// GatherCols is the columns up to which gathering several partial rows is faster than a
// call of the chain for each.
const GatherCols = lanes.Block / 2

// Strip returns how many rows of a tile go through the chain at a time: one, unless the
// rows are contiguous in the result.
func (e *Epilogue) Strip(cols int) int {
	if cols != e.cols {
		return 1
	}
	return max(1, StripElements/max(cols, 1))
}

func (e *Epilogue) bufferBytes(tileCols int) int {
	return tiling.RoundUp(max(StripElements, tileCols)*e.Operands[0].DType.Size(), ir.Align)
}

// Rows returns the memory for n elements of the product that are passed to Apply.
func (e *Epilogue) Rows(w *exec.Worker, n int) []byte {
	return w.Scratch[e.base:][:n*e.Operands[0].DType.Size()]
}

// Apply runs the chain on n elements of the result from element at on; product has the
// same elements of the product.
func (e *Epilogue) Apply(r *exec.Run, w *exec.Worker, at, n, tileCols int, product []byte) {
	e.ApplyTo(r, w, at, n, tileCols, product, nil)
}

// ApplyTo is Apply with the result in memory of the caller instead of the value's, if to
// is not nil. It must not overlap product.
func (e *Epilogue) ApplyTo(r *exec.Run, w *exec.Worker, at, n, tileCols int, product, to []byte) {
	e.span(r, w.Scratch[e.base+e.bufferBytes(tileCols):], w.Blocks, at, at+n, product, to)
}

// Result returns the element type of the result.
func (e *Epilogue) Result() dtype.DType { return e.variants[0].results[0].DType }

// Parts runs the chain on n partial rows of the result at once: cols elements each,
// step elements apart, from element at on. product has the same elements of the
// product.
func (e *Epilogue) Parts(r *exec.Run, w *exec.Worker, at, step, n, cols, tileCols int, product []byte) {
	c := e.variant(r)
	scratch := w.Scratch[e.base+e.bufferBytes(tileCols):]
	room := func(i, size int) []byte { return scratch[e.gather+i*gatherBytes:][:n*cols*size] }
	regs := w.Blocks[:len(c.offset)+mostPrefetched]
	clear(regs[len(c.offset):])
	for i := len(e.Operands); i < len(c.offset); i++ {
		if c.offset[i] >= 0 {
			regs[i] = scratch[c.offset[i]:][:lanes.Block*c.laneTypes[i].Size()]
		}
	}
	for i := range e.Operands {
		o, size := &e.Operands[i], c.laneTypes[i].Size()
		switch {
		case i == 0:
			regs[i] = product
		case !c.used[i]:
		case o.Access == scalar:
			regs[i] = c.number(r, scratch, o, i, n*cols)
		case o.Access == ByRow && o.Period == e.cols && o.Every == 0: // a bias, the same for all rows
			regs[i] = room(i, size)
			o.load(r, regs[i][:cols*size], r.Values[o.Pos], at, cols, c.laneTypes[i])
			exec.Repeat(regs[i], cols*size)
		default:
			regs[i] = room(i, size)
			for j := range n {
				o.load(r, regs[i][j*cols*size:][:cols*size], r.Values[o.Pos], at+j*step, cols, c.laneTypes[i])
			}
		}
	}
	o := &c.results[0]
	if o.direct {
		regs[o.reg] = room(0, o.DType.Size())
	}
	for _, f := range c.exec {
		f(regs, n*cols)
	}
	size := c.laneTypes[o.reg].Size()
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

// PutProduct converts elements of the product to what Apply reads.
func PutProduct[T lanes.Real](e *Epilogue, to []byte, x []T) {
	if e.Product.Is16() {
		rounded := dtype.View[float32](to)
		if x, ok := any(x).([]float32); ok {
			lanes.RoundTo(rounded, x, e.Product)
			return
		}
		lanes.StoreReal(to, x, dtype.Float32)
		lanes.RoundTo(rounded, rounded, e.Product)
		return
	}
	lanes.StoreReal(to, x, e.Product)
}

// Prefetches adds what the epilogue reads and writes to f: rows of the result's shape,
// n elements apart, from element at on.
func (e *Epilogue) Prefetches(f *exec.PrefetchList, r *exec.Run, at, n, rows int) {
	for i := range e.Operands[1:] {
		if o := &e.Operands[i+1]; o.Access == Full && o.Producer == nil {
			f.Add(r.Values[o.Pos], at*o.DType.Size(), n*o.DType.Size(), rows)
		}
	}
	for i, out := range e.outs {
		if size := e.variants[0].results[i].DType.Size(); out >= 0 {
			f.Add(r.Values[out], at*size, n*size, rows)
		}
	}
}
