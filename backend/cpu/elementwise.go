package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// block is how many elements the engine takes through a chain at a time:
// registers of that many float32 fit the innermost cache.
const block = 1024

// elementwise runs a chain of element-wise operations, op.Fused; a single
// operation is a chain of one. Each worker takes its elements in blocks: the
// operands become registers of the type computed in, each instruction runs
// over a whole register, and the last register is stored.
//
// The result may lie where an operand of its shape and element size does: a
// block of the result is written after that of the operand was read.
type elementwise struct {
	n      int
	grain  int // elements of a chunk
	chunks int
	work   int
	code   *code

	operands []operand
	out      int
	outType  dtype.DType
}

// operand is an argument of a chain and how its elements map to the result's.
type operand struct {
	pos    int
	dtype  dtype.DType
	access access

	period  int   // byRow: elements until it repeats
	dims    []int // byIndex: axes of the result, collapsed, innermost first
	strides []int // byIndex: of the operand, in elements; 0 where it repeats
}

type access uint8

const (
	full    access = iota // element for element
	scalar                // one element for all
	byRow                 // repeats after period elements
	byIndex               // any other broadcast
)

func newElementwise(b *builder, v *ir.Value) kernel {
	body := v.Attr.Body
	if v.Op != op.Fused {
		body = &op.Body{Code: []op.Instr{{Op: v.Op, DType: v.Type.DType}}}
		for i, a := range v.Args {
			body.Inputs = append(body.Inputs, a.Type.DType)
			body.Code[0].Args[i] = int32(i)
		}
	}
	k := &elementwise{n: v.Type.Shape.Size(), out: b.at(v), outType: v.Type.DType}
	for _, a := range v.Args {
		k.operands = append(k.operands, newOperand(b.at(a), a.Type, v.Type.Shape))
	}
	k.code = compileBody(body, k.operands)
	k.grain = 16 * block
	if len(body.Code) > 4 {
		k.grain = 8 * block
	}
	k.chunks = (k.n + k.grain - 1) / k.grain
	k.work = k.n * k.code.cost
	b.wantScratch(k.code.bytes)
	b.wantRegs(len(k.code.offset))
	return k
}

// newOperand classifies a broadcast.
func newOperand(pos int, t op.Type, out op.Shape) operand {
	o := operand{pos: pos, dtype: t.DType}
	size := t.Shape.Size()
	switch {
	case size == out.Size():
		return o
	case size == 1:
		o.access = scalar
		return o
	}
	// Axes of the operand, aligned at the end; axes that behave alike merge.
	stride := 1
	for i := range out {
		d := out[len(out)-1-i]
		if d == 1 {
			continue
		}
		s := 0
		if j := len(t.Shape) - 1 - i; j >= 0 && t.Shape[j] != 1 {
			s = stride
			stride *= d
		}
		if last := len(o.dims) - 1; last >= 0 && (o.strides[last] == 0) == (s == 0) {
			o.dims[last] *= d
			continue
		}
		o.dims = append(o.dims, d)
		o.strides = append(o.strides, s)
	}
	o.access = byIndex
	if len(o.dims) == 2 && o.strides[0] == 1 {
		o.access, o.period = byRow, o.dims[0]
	}
	return o
}

func (k *elementwise) run(r *run) { r.parallel(k, k.chunks, k.work) }

func (k *elementwise) chunk(r *run, w *worker, i int) {
	c := k.code
	regs := w.regs[:len(c.offset)]
	lo, hi := i*k.grain, min(k.n, (i+1)*k.grain)
	for i := range k.operands { // scalars stay for the whole chunk
		if o := &k.operands[i]; o.access == scalar {
			size := c.domain[i].size()
			regs[i] = w.scratch[c.offset[i]:][:block*size]
			load(regs[i][:size], r.values[o.pos], o.dtype)
			repeat(regs[i][:min(block, hi-lo)*size], size)
		}
	}
	out := r.values[k.out]
	size := k.outType.Size()
	for ; lo < hi; lo += block {
		n := min(block, hi-lo)
		for i := range k.operands {
			o := &k.operands[i]
			switch data := r.values[o.pos]; {
			case o.access == scalar:
			case c.offset[i] < 0:
				s := o.dtype.Size()
				regs[i] = data[lo*s : (lo+n)*s]
			default:
				regs[i] = w.scratch[c.offset[i]:][:n*c.domain[i].size()]
				o.read(regs[i], data, lo, n)
			}
		}
		for i := len(k.operands); i < len(regs); i++ {
			if c.offset[i] < 0 {
				continue
			}
			regs[i] = w.scratch[c.offset[i]:][:n*c.domain[i].size()]
		}
		dst := out[lo*size : (lo+n)*size]
		if c.direct {
			regs[c.result] = dst
		}
		for _, f := range c.exec {
			f(regs, n)
		}
		if !c.direct {
			c.store(dst, regs[c.result])
		}
	}
}

// read converts the n elements from element lo of the result on to reg.
func (o *operand) read(reg, data []byte, lo, n int) {
	s := o.dtype.Size()
	width := len(reg) / max(n, 1)
	switch o.access {
	case full:
		load(reg, data[lo*s:(lo+n)*s], o.dtype)
	case byRow:
		// At most two pieces of the row make the first period, the register
		// itself the rest.
		at, done := lo%o.period, 0
		for done < min(n, o.period) {
			m := min(o.period-at, n-done)
			load(reg[done*width:(done+m)*width], data[at*s:(at+m)*s], o.dtype)
			done += m
			at = 0
		}
		repeat(reg, min(n, o.period)*width)
	case byIndex:
		inner, step := o.dims[0], o.strides[0]
		row, at := lo/inner, lo%inner
		for done := 0; done < n; {
			m := min(inner-at, n-done)
			src := data[o.offset(row)*s:]
			dst := reg[done*width : (done+m)*width]
			if step == 0 {
				load(dst[:width], src[:s], o.dtype)
				repeat(dst, width)
			} else {
				load(dst, src[at*s:(at+m)*s], o.dtype)
			}
			done += m
			at = 0
			row++
		}
	}
}

// offset is where the elements of a row begin: a row is the innermost axis.
func (o *operand) offset(row int) int {
	at := 0
	for i, d := range o.dims[1:] {
		at += row % d * o.strides[i+1]
		row /= d
	}
	return at
}

// domain is the type that registers hold and loops compute in.
type domain uint8

const (
	inF32  domain = iota // float16, bfloat16, float32
	inF64                // float64
	inI64                // uint8, int32, int64
	inBool               // bool
)

func domainOf(d dtype.DType) domain {
	switch {
	case d == dtype.Bool:
		return inBool
	case d.IsInt():
		return inI64
	case d == dtype.Float64:
		return inF64
	}
	return inF32
}

// size is the bytes of an element of a register.
func (d domain) size() int { return [...]int{inF32: 4, inF64: 8, inI64: 8, inBool: 1}[d] }

// native reports whether elements of a type in memory are those of a register.
func native(d dtype.DType) bool { return d.Size() == domainOf(d).size() }

// load converts elements of type d to a register of its domain.
func load(reg, data []byte, d dtype.DType) {
	switch {
	case native(d):
		copy(reg, data)
	case domainOf(d) == inF32:
		dtype.ToF32(dtype.View[float32](reg), data, d)
	default:
		dtype.ToI64(dtype.View[int64](reg), data, d)
	}
}

// store converts a register to elements of type d, of the same domain.
func store(data, reg []byte, d dtype.DType) {
	switch {
	case native(d):
		copy(data, reg)
	case domainOf(d) == inF32:
		dtype.FromF32(data, dtype.View[float32](reg), d)
	default:
		dtype.FromI64(data, dtype.View[int64](reg), d)
	}
}
