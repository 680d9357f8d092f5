package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// epilogue is what follows a product while it is in the cache: an element-wise
// chain whose operand 0 is the product (op.Attr.Body of a contraction). Rows of
// the product are rounded to its type and laid side by side in scratch memory,
// as if they had been stored, so that fusing changes no bit.
type epilogue struct {
	*elementwise
	cols int // of the product
	base int // in scratch memory: rows of the product, then the registers of the chain
}

// stripElements is about how many elements go through the chain at a time:
// whole rows where a tile has whole rows.
const stripElements = 4 * block

// newEpilogue makes what follows the product of v, a matrix of cols columns,
// or nil when nothing does. own is how many arguments the product takes.
func newEpilogue(b *builder, v *ir.Value, own, cols int) *epilogue {
	if v.Attr.Body == nil {
		return nil
	}
	k := &elementwise{n: v.Type.Shape.Size(), outs: []int{b.at(v)}}
	k.operands = append(k.operands, operand{dtype: v.Attr.DType})
	for _, a := range v.Args[own:] {
		k.operands = append(k.operands, newOperand(b.at(a), a, v.Type.Shape))
	}
	k.compile(b, v.Attr.Body, []result{{slot: v.Slot}})
	return &epilogue{elementwise: k, cols: cols}
}

// place puts the epilogue's memory behind base bytes of scratch memory.
func (e *epilogue) place(b *builder, base, tileCols int) {
	e.base = roundUp(base, ir.Align)
	b.wantScratch(e.base + e.bufferBytes(tileCols) + e.scratch())
}

// strip is how many rows of a tile go through the chain at a time: one, unless
// they follow each other in the result.
func (e *epilogue) strip(cols int) int {
	if cols != e.cols {
		return 1
	}
	return max(1, stripElements/max(cols, 1))
}

func (e *epilogue) bufferBytes(tileCols int) int {
	return roundUp(max(stripElements, tileCols)*e.operands[0].dtype.Size(), ir.Align)
}

// rows is the memory for n elements of the product on their way to apply.
func (e *epilogue) rows(w *worker, n int) []byte {
	return w.scratch[e.base:][:n*e.operands[0].dtype.Size()]
}

// apply runs the chain over the n elements of the result from element at on;
// product has those of the product.
func (e *epilogue) apply(r *run, w *worker, at, n, tileCols int, product []byte) {
	e.span(r, w.scratch[e.base+e.bufferBytes(tileCols):], w.regs, at, at+n, product)
}

// storeEpilogue is the store of a product that something follows.
func (k *product) storeEpilogue(r *run, w *worker, t resultTile) {
	e := k.after
	strip := e.strip(t.cols)
	d := e.operands[0].dtype
	size := d.Size()
	for i := 0; i < t.rows; i += strip {
		n := min(strip, t.rows-i)
		rows := e.rows(w, n*t.cols)
		if n == 1 && d == dtype.Float32 {
			row := t.at(i)
			rows = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(row))), 4*len(row))
		} else {
			for j := range n {
				k.narrowRow(rows[j*t.cols*size:][:t.cols*size], t, i+j, d)
			}
		}
		e.apply(r, w, (t.row+i)*k.n+t.col, n*t.cols, k.tileN, rows)
	}
}
