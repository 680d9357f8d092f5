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
	// Chunks of a microsecond or two, whole blocks.
	k.grain = block * min(16, max(2, 32/k.code.cost))
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
	k.span(r, w.scratch, w.regs, i*k.grain, min(k.n, (i+1)*k.grain), nil)
}

// span computes elements lo to hi-1. first, if not nil, has those of operand
// 0, which then has no place of its own: see epilogue.
func (k *elementwise) span(r *run, scratch []byte, regs [][]byte, lo, hi int, first []byte) {
	c := k.code
	regs = regs[:len(c.offset)]
	begin := lo
	for i := range k.operands { // those that stay for the whole chunk
		o := &k.operands[i]
		size := c.domain[i].size()
		switch {
		case o.access == scalar:
			regs[i] = scratch[c.offset[i]:][:min(block, hi-lo)*size]
			load(regs[i][:size], r.values[o.pos], o.dtype, c.domain[i])
			repeat(regs[i], size)
		case o.pattern():
			pattern := scratch[c.offset[i]:][:(o.period+min(block, hi-lo))*size]
			load(pattern[:o.period*size], r.values[o.pos], o.dtype, c.domain[i])
			repeat(pattern, o.period*size)
		}
	}
	for i := len(k.operands); i < len(regs); i++ {
		if c.offset[i] >= 0 {
			regs[i] = scratch[c.offset[i]:][:block*c.domain[i].size()]
		}
	}
	out := r.values[k.out]
	size := k.outType.Size()
	for ; lo < hi; lo += block {
		n := min(block, hi-lo)
		dst := out[lo*size : (lo+n)*size]
		if c.store == nil && first == nil && k.operands[0].access != scalar {
			k.operands[0].read(dst, r.values[k.operands[0].pos], lo, n, c.domain[0])
			continue
		}
		for i := range k.operands {
			o := &k.operands[i]
			size := c.domain[i].size()
			data, lo := r.values[o.pos], lo
			if i == 0 && first != nil {
				data, lo = first, lo-begin
			}
			switch {
			case o.access == scalar:
			case o.pattern():
				regs[i] = scratch[c.offset[i]+lo%o.period*size:][:n*size]
			case c.offset[i] < 0:
				regs[i] = data[lo*size : (lo+n)*size]
			case o.access == byRow && c.readsMemory(i, *o) && lo%o.period+n <= o.period:
				at := lo % o.period
				regs[i] = data[at*size : (at+n)*size]
			default:
				regs[i] = scratch[c.offset[i]:][:n*size]
				o.read(regs[i], data, lo, n, c.domain[i])
			}
		}
		if c.direct {
			regs[c.result] = dst
		}
		for _, f := range c.exec {
			f(regs, n)
		}
		switch {
		case c.direct:
		case c.store == nil:
			copy(dst, regs[0])
		default:
			c.store(dst, regs[c.result][:n*c.domain[c.result].size()])
		}
	}
}

// pattern reports whether the operand is a short row: then a chunk has it once
// in a register that is a row longer than a block, and each block begins at
// its place in it.
func (o *operand) pattern() bool { return o.access == byRow && o.period <= block }

// read converts the n elements from element lo of the result on to reg.
func (o *operand) read(reg, data []byte, lo, n int, to domain) {
	s := o.dtype.Size()
	width := to.size()
	switch o.access {
	case full:
		load(reg, data[lo*s:(lo+n)*s], o.dtype, to)
	case byRow:
		for at, done := lo%o.period, 0; done < n; at = 0 {
			m := min(o.period-at, n-done)
			load(reg[done*width:(done+m)*width], data[at*s:(at+m)*s], o.dtype, to)
			done += m
		}
	case byIndex:
		inner, step := o.dims[0], o.strides[0]
		row, at := lo/inner, lo%inner
		for done := 0; done < n; {
			m := min(inner-at, n-done)
			src := data[o.offset(row)*s:]
			dst := reg[done*width : (done+m)*width]
			if step == 0 {
				load(dst[:width], src[:s], o.dtype, to)
				repeat(dst, width)
			} else {
				load(dst, src[at*s:(at+m)*s], o.dtype, to)
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

// load converts elements of type d to a register of domain to: that of d, or
// inF32 for integers that are read as float32.
func load(reg, data []byte, d dtype.DType, to domain) {
	switch {
	case to == inF32 && d != dtype.Float32:
		toF32(dtype.View[float32](reg), data, d)
	case native(d):
		copy(reg, data)
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
		fromF32(data, dtype.View[float32](reg), d)
	default:
		dtype.FromI64(data, dtype.View[int64](reg), d)
	}
}
