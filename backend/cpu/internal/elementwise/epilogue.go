package elementwise

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Epilogue is what follows a product while it is in the cache: an element-wise
// chain whose operand 0 is the product (op.Attr.Body of a contraction). Elements
// of the product are rounded to its type, as if they had been stored, so that
// fusing changes no bit; those of 16 bits stay float32, which is what the chain
// computes in. Where rows do not lie side by side they are copied.
type Epilogue struct {
	*Chain
	Product dtype.DType
	cols    int // of the product
	base    int // in scratch memory: rows of the product, then the registers of the chain
	gather  int // bytes behind those: parts of rows of operands and the result
}

// StripElements is about how many elements go through the chain at a time:
// whole rows where a tile has whole rows.
const StripElements = 4 * lanes.Block

// NewEpilogue makes what follows the product of v, a matrix of cols columns,
// or nil when nothing does. own is how many arguments the product takes.
func NewEpilogue(b *exec.Builder, v *ir.Value, own, cols int) *Epilogue {
	if v.Attr.Body == nil {
		return nil
	}
	k := &Chain{n: v.Type.Shape.Size(), outs: []int{b.At(v)}}
	held := v.Attr.DType
	if held.Is16() {
		held = dtype.Float32
	}
	k.Operands = append(k.Operands, operand{DType: held})
	for _, a := range v.Args[own:] {
		k.operand(b, a, v.Type.Shape)
	}
	k.compile(b, v.Attr.Body, []result{{slot: v.Slot}})
	return &Epilogue{Chain: k, Product: v.Attr.DType, cols: cols}
}

// Place puts the epilogue's memory behind base bytes of scratch memory.
func (e *Epilogue) Place(b *exec.Builder, base, tileCols int) {
	e.base = tiling.RoundUp(base, ir.Align)
	e.gather = tiling.RoundUp(e.scratch(), ir.Align)
	b.ReserveScratch(e.base + e.bufferBytes(tileCols) + e.gather + len(e.Operands)*gatherBytes)
}

// gatherBytes is the room of an operand in parts of rows: a block of the widest
// type.
const gatherBytes = 8 * lanes.Block

// GatherCols is the columns of parts of rows up to which a call of the chain
// for each would take longer than copying several together.
const GatherCols = lanes.Block / 2

// Strip is how many rows of a tile go through the chain at a time: one, unless
// they follow each other in the result.
func (e *Epilogue) Strip(cols int) int {
	if cols != e.cols {
		return 1
	}
	return max(1, StripElements/max(cols, 1))
}

func (e *Epilogue) bufferBytes(tileCols int) int {
	return tiling.RoundUp(max(StripElements, tileCols)*e.Operands[0].DType.Size(), ir.Align)
}

// Rows is the memory for n elements of the product on their way to apply.
func (e *Epilogue) Rows(w *exec.Worker, n int) []byte {
	return w.Scratch[e.base:][:n*e.Operands[0].DType.Size()]
}

// Apply runs the chain over the n elements of the result from element at on;
// product has those of the product.
func (e *Epilogue) Apply(r *exec.Run, w *exec.Worker, at, n, tileCols int, product []byte) {
	e.span(r, w.Scratch[e.base+e.bufferBytes(tileCols):], w.Blocks, at, at+n, product)
}

// Parts runs the chain over n parts of rows of the result, of cols elements
// each, the first from element at on and step elements from one to the next,
// together. product has those of the product.
func (e *Epilogue) Parts(r *exec.Run, w *exec.Worker, at, step, n, cols, tileCols int, product []byte) {
	c := e.variant(r)
	scratch := w.Scratch[e.base+e.bufferBytes(tileCols):]
	room := func(i, size int) []byte { return scratch[e.gather+i*gatherBytes:][:n*cols*size] }
	regs := w.Blocks[:len(c.offset)+mostAhead]
	clear(regs[len(c.offset):])
	for i := len(e.Operands); i < len(c.offset); i++ {
		if c.offset[i] >= 0 {
			regs[i] = scratch[c.offset[i]:][:lanes.Block*c.domain[i].Size()]
		}
	}
	for i := range e.Operands {
		o, size := &e.Operands[i], c.domain[i].Size()
		switch {
		case i == 0:
			regs[i] = product
		case !c.used[i]:
		case o.Access == scalar:
			regs[i] = c.number(r, scratch, o, i, n*cols)
		case o.Access == ByRow && o.Period == e.cols && o.Every == 0: // a bias: the same for all rows
			regs[i] = room(i, size)
			o.fetch(r, regs[i][:cols*size], r.Values[o.Pos], at, cols, c.domain[i])
			exec.Repeat(regs[i], cols*size)
		default:
			regs[i] = room(i, size)
			for j := range n {
				o.fetch(r, regs[i][j*cols*size:][:cols*size], r.Values[o.Pos], at+j*step, cols, c.domain[i])
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

// PutProduct writes elements of the product for the chain.
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

// Prefetches lists what the epilogue reads and writes: rows of the result's
// shape, from element at on, n elements from one to the next.
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
