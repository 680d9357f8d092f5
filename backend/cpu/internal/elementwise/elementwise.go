// Package elementwise computes chains of element-wise operations (op.Fused), alone and
// as the epilogue of a contraction.
//
// A chain runs block by block, so that blocks stay in L1: operands are loaded into
// block buffers of the lane type, each instruction runs one loop over them, results are
// stored. Where to look: elementwise.go runs a [Chain]; body.go compiles its
// instructions; chains.go finds sequences that one loop of package vec computes;
// lowprecision.go and dropout.go are chains that need no block buffers; nontemporal.go
// decides which results are stored non-temporally; random.go has the random numbers;
// epilogue.go runs a chain on tiles.
package elementwise

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/move"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// longBlock is the elements per call of a single loop that needs no block buffers:
// memory is read faster in long runs.
const longBlock = 4 * lanes.Block

// fromMemory is the number of elements that no longer fit the caches: they are read in
// long runs and prefetched.
const fromMemory = 1 << 18

// Chain is the kernel of op.Fused, a chain of element-wise operations; a single
// operation is a chain of one. Workers process it block by block: operands are loaded
// into block buffers of the lane type, each instruction runs over a whole buffer, and
// results are stored.
//
// A result may share the memory of an operand of its shape and element size: each block
// of the result is written after that of the operand was read.
type Chain struct {
	n      int
	grain  int // per chunk
	chunks int
	work   int

	Operands []operand
	every    int     // elements after which short rows change, or 0
	outs     []int   // positions of the results
	fence    bool    // some are stored non-temporally
	flags    []int   // operands that select a variant
	variants []*code // of the body, by the values of flags
}

// operand is an argument of a chain and how its elements map to the result's.
type operand struct {
	Pos      int
	DType    dtype.DType
	slot     ir.Slot
	Access   access
	Producer exec.Producer // or nil; computes the elements, which are not in memory

	Period  int   // ByRow: elements until it repeats
	Every   int   // ByRow: elements until the next row, or 0
	dims    []int // byIndex: axes of the result, collapsed, innermost first
	strides []int // byIndex: of the operand, in elements; 0 where it repeats
}

// fewest is the number of elements from which on a short row is worth preparing.
const fewest = 4 * lanes.Block

type access uint8

const (
	Full    access = iota // element for element
	scalar                // one element for all
	ByRow                 // repeats after Period elements
	byIndex               // any other broadcast
)

func New(b *exec.Builder, v *ir.Value) exec.Kernel {
	body := v.Attr.Body
	if v.Op != op.Fused {
		body = &op.Body{Code: []op.Instr{{Op: v.Op, DType: v.Type.DType}}}
		for i, a := range v.Args {
			body.Inputs = append(body.Inputs, a.Type.DType)
			body.Code[0].Args[i] = int32(i)
		}
	}
	k := &Chain{n: v.Type.Shape.Size()}
	for _, a := range v.Args {
		k.operand(b, a, v.Type.Shape)
	}
	var outs []result
	for i := range 1 + len(body.ExtraOutputs) { // extra outputs follow their value
		at := b.At(v) + i
		k.outs = append(k.outs, at)
		nonTemporal := k.storesNonTemporal(b.Graph, at)
		k.fence = k.fence || nonTemporal
		outs = append(outs, result{slot: b.Graph.Values[at].Slot, nonTemporal: nonTemporal})
	}
	k.compile(b, body, outs)
	has16 := slices.ContainsFunc(k.Operands, func(o operand) bool { return o.Access == Full && o.DType.Is16() })
	// Prefetching pays for 16-bit operands, or while random numbers are drawn. Slow loops
	// prefetch their operands themselves.
	for _, c := range k.variants {
		c.prefetches = vec.Native() != nil && k.n >= fromMemory && (has16 || c.draw != nil) && len(c.prefetched) == 0
	}
	// Chunks are whole blocks of one or two microseconds, and longer if there are many:
	// memory is read faster in long runs.
	cost := k.cost()
	k.grain = lanes.Block * min(16, max(2, 32/cost))
	for k.n/k.grain >= manyChunks && k.grain < lanes.Block*maxBlocks {
		k.grain *= 2
	}
	k.chunks = (k.n + k.grain - 1) / k.grain
	k.work = k.n * cost
	b.ReserveScratch(k.scratch())
	return k
}

// Chunks grow from manyChunks on, to at most maxBlocks blocks.
const (
	manyChunks = 256
	maxBlocks  = 64
)

// maxFlags limits the flags, and so the variants, of a body.
const maxFlags = 3

// Loops returns the number of loops per block.
func (k *Chain) Loops() int { return len(k.variants[0].exec) }

// NonTemporal reports whether results are written by non-temporal stores.
func (k *Chain) NonTemporal() bool { return k.fence }

// LowPrecision reports whether loops read 16-bit operands from memory.
func (k *Chain) LowPrecision() bool { return slices.Contains(k.variants[0].raw, true) }

// compile compiles the body. If a bool scalar selects between vectors, as in a training
// step that may be skipped, there is one variant for each of its values.
func (k *Chain) compile(b *exec.Builder, body *op.Body, outs []result) {
	for i, o := range k.Operands {
		if o.Access == scalar && o.DType == dtype.Bool && len(k.flags) < maxFlags && onlyChooses(body, i) {
			k.flags = append(k.flags, i)
		}
	}
	for values := range 1 << len(k.flags) {
		chosen := body
		for bit, i := range k.flags {
			chosen = choice(chosen, i, values>>bit&1 != 0)
		}
		k.variants = append(k.variants, compileBody(chosen, k.Operands, outs))
	}
	b.ReserveBlocks(len(k.Operands) + len(body.Code) + 1 + mostPrefetched)
}

// onlyChooses reports whether operand i is used only as the condition of Wheres.
func onlyChooses(body *op.Body, i int) bool {
	for _, ins := range body.Code {
		for j, a := range ins.Args[:ins.Op.Info().Args] {
			if int(a) == i && (ins.Op != op.Where || j != 0) {
				return false
			}
		}
	}
	return true
}

// choice returns body with operand i replaced by yes.
func choice(body *op.Body, i int, yes bool) *op.Body {
	chosen := *body
	chosen.Code = slices.Clone(body.Code)
	for j, ins := range chosen.Code {
		if ins.Op != op.Where || int(ins.Args[0]) != i {
			continue
		}
		from := ins.Args[2]
		if yes {
			from = ins.Args[1]
		}
		chosen.Code[j] = op.Instr{Op: op.Identity, DType: ins.DType, Args: [3]int32{from}}
	}
	return &chosen
}

// cost returns the cost per element of the costliest variant.
func (k *Chain) cost() int {
	cost := 0
	for _, c := range k.variants {
		cost = max(cost, c.cost)
	}
	for _, o := range k.Operands {
		if _, ok := o.Producer.(*random); ok {
			cost += randomCost
		}
	}
	return cost
}

// scratch returns the bytes of scratch memory per worker.
func (k *Chain) scratch() int {
	bytes := 0
	for _, c := range k.variants {
		bytes = max(bytes, c.bytes)
	}
	return bytes
}

// variant returns the compiled body for the flags of this run.
func (k *Chain) variant(r *exec.Run) *code {
	values := 0
	for bit, i := range k.flags {
		if r.Values[k.Operands[i].Pos][0] != 0 {
			values |= 1 << bit
		}
	}
	return k.variants[values]
}

// operand adds an operand. Short rows of all operands must change at the same elements.
func (k *Chain) operand(b *exec.Builder, a *ir.Value, out op.Shape) {
	o := NewOperand(b.At(a), a, out)
	if o.Every > 0 && k.every > 0 && o.Every != k.every {
		o.Access, o.Every = byIndex, 0
	}
	k.every = max(k.every, o.Every)
	if m, ok := b.Produced[a]; ok {
		o.Producer, o.slot = m, ir.Slot{}
	}
	k.Operands = append(k.Operands, o)
}

// NewOperand classifies a broadcast.
func NewOperand(pos int, v *ir.Value, out op.Shape) operand {
	t := v.Type
	o := operand{Pos: pos, DType: t.DType, slot: v.Slot}
	size := t.Shape.Size()
	switch {
	case size == out.Size():
		return o
	case size == 1:
		o.Access = scalar
		return o
	}
	// Axes of the operand, innermost first; adjacent axes that broadcast alike merge.
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
	o.Access = byIndex
	if len(o.strides) > 1 && o.strides[0] == 1 {
		o.Period = o.dims[0]
		switch {
		case len(o.dims) == 2:
			o.Access = ByRow
		case len(o.dims) == 3 && o.Period <= lanes.Block && o.Period*o.dims[1] >= fewest:
			o.Access, o.Every = ByRow, o.Period*o.dims[1]
		}
	}
	return o
}

func (k *Chain) Run(r *exec.Run) {
	r.Parallel(k, k.chunks, k.work)
	for i := range k.Operands {
		if g, ok := k.Operands[i].Producer.(*move.Gather); ok {
			g.Check(r)
		}
	}
}

func (k *Chain) Chunk(r *exec.Run, w *exec.Worker, i int) {
	k.span(r, w.Scratch, w.Blocks, i*k.grain, min(k.n, (i+1)*k.grain), nil, nil)
	if k.fence {
		vec.Native().Fence()
	}
}

// span computes elements lo to hi-1. first, if not nil, is the elements of operand 0,
// which an epilogue has in scratch memory. to, if not nil, is the memory for the elements of
// an epilogue's result.
func (k *Chain) span(r *exec.Run, scratch []byte, regs [][]byte, lo, hi int, first, to []byte) {
	if k.every == 0 {
		k.stretch(r, scratch, regs, lo, hi, first, to)
		return
	}
	for lo < hi {
		end := min(hi, (lo/k.every+1)*k.every)
		k.stretch(r, scratch, regs, lo, end, first, to)
		if first != nil {
			first = first[(end-lo)*k.Operands[0].DType.Size():]
		}
		if to != nil {
			to = to[(end-lo)*k.variants[0].results[0].DType.Size():]
		}
		lo = end
	}
}

// stretch is span for elements for which short rows do not change.
func (k *Chain) stretch(r *exec.Run, scratch []byte, regs [][]byte, lo, hi int, first, to []byte) {
	c := k.variant(r)
	prefetched := regs[len(c.offset):][:mostPrefetched]
	clear(prefetched)
	regs = regs[:len(c.offset)+mostPrefetched]
	begin := lo
	memory := func(i, lo, n int) []byte {
		if to != nil {
			size := c.results[i].DType.Size()
			return to[(lo-begin)*size : (lo-begin+n)*size]
		}
		return k.memory(r, c, i, lo, n)
	}
	for i := range k.Operands { // loaded once per chunk
		o := &k.Operands[i]
		size := c.laneTypes[i].Size()
		switch {
		case !c.used[i]:
		case o.Access == scalar:
			regs[i] = c.number(r, scratch, o, i, min(lanes.Block, hi-lo))
		case o.pattern() && lo%o.Period+hi-lo <= o.Period: // a part of a row
			at, n := lo%o.Period, hi-lo
			lanes.Load(scratch[c.offset[i]+at*size:][:n*size], o.row(r.Values[o.Pos], lo)[at*o.DType.Size():][:n*o.DType.Size()], o.DType, c.laneTypes[i])
		case o.pattern():
			pattern := scratch[c.offset[i]:][:(o.Period+min(lanes.Block, hi-lo))*size]
			lanes.Load(pattern[:o.Period*size], o.row(r.Values[o.Pos], lo), o.DType, c.laneTypes[i])
			exec.Repeat(pattern, o.Period*size)
		}
	}
	for i := len(k.Operands); i < len(c.offset); i++ {
		if c.offset[i] >= 0 {
			regs[i] = scratch[c.offset[i]:][:lanes.Block*c.laneTypes[i].Size()]
		}
	}
	lo = c.dropout.run(r, k, c, regs, lo, hi, first != nil)
	step := c.step
	if k.n < fromMemory {
		step = lanes.Block
	}
	for ; lo < hi; lo += step {
		n := min(step, hi-lo)
		if rows := c.results[0].rows; rows != nil {
			rows.Convert(r, lo, memory(0, lo, n), c.results[0].DType)
			continue
		}
		if a := c.results[0].reg; c.results[0].copied && (a > 0 || first == nil) && k.Operands[a].Access != scalar {
			o := &k.Operands[a]
			o.load(r, memory(0, lo, n), r.Values[o.Pos], lo, n, c.laneTypes[a])
			continue
		}
		for i := range k.Operands {
			o := &k.Operands[i]
			size := c.laneTypes[i].Size()
			data, lo := r.Values[o.Pos], lo
			if i == 0 && first != nil {
				data, lo = first, lo-begin
			}
			switch {
			case o.Access == scalar || !c.used[i]:
			case o.pattern():
				regs[i] = scratch[c.offset[i]+lo%o.Period*size:][:n*size]
			case c.offset[i] < 0:
				size := o.DType.Size() // raw operands are narrower than their lane type
				regs[i] = data[lo*size : (lo+n)*size]
			case o.Access == ByRow && c.readsMemory(i, *o) && lo%o.Period+n <= o.Period:
				at := lo % o.Period
				regs[i] = data[at*size : (at+n)*size]
			default:
				regs[i] = scratch[c.offset[i]:][:n*size]
				o.load(r, regs[i], data, lo, n, c.laneTypes[i])
			}
		}
		for i, a := range c.prefetched {
			if k.n < fromMemory {
				break
			}
			o := &k.Operands[a]
			prefetched[i] = r.Values[o.Pos][min(k.n, lo+step)*o.DType.Size():]
		}
		if c.prefetches {
			k.prefetch(r, lo+step, min(hi, lo+2*step))
		}
		for i := range c.results {
			if c.results[i].direct {
				regs[c.results[i].reg] = memory(i, lo, n)
			}
		}
		if d := c.draw; d != nil {
			d.random.of(r).AtLeast(lo, regs[d.dst][:n], dtype.View[float32](regs[d.number])[0])
		}
		for _, f := range c.exec {
			f(regs, n)
		}
		for i := range c.results {
			switch o := &c.results[i]; {
			case o.direct:
			case o.copied:
				copy(memory(i, lo, n), regs[o.reg])
			case o.nonTemporal && o.store != nil:
				vec.Native().CopyNT(memory(i, lo, n), regs[o.reg][:n*o.DType.Size()])
			case o.store != nil:
				o.store(memory(i, lo, n), regs[o.reg][:n*c.laneTypes[o.reg].Size()])
			}
		}
	}
}

// number returns the block buffer of scalar operand i, for up to n elements.
func (c *code) number(r *exec.Run, scratch []byte, o *operand, i, n int) []byte {
	size := c.laneTypes[i].Size()
	if c.single[i] {
		n = 1
	}
	reg := scratch[c.offset[i]:][:n*size]
	lanes.Load(reg[:size], r.Values[o.Pos], o.DType, c.laneTypes[i])
	exec.Repeat(reg, size)
	return reg
}

// prefetch prefetches elements lo to hi-1 of the operands in memory.
func (k *Chain) prefetch(r *exec.Run, lo, hi int) {
	if lo >= hi {
		return
	}
	v := vec.Native()
	for i := range k.Operands {
		if o := &k.Operands[i]; o.Access == Full && o.Producer == nil {
			size := o.DType.Size()
			v.Prefetch(r.Values[o.Pos][lo*size : hi*size])
		}
	}
}

// memory returns the n elements of result i of body c from element lo on.
func (k *Chain) memory(r *exec.Run, c *code, i, lo, n int) []byte {
	size := c.results[i].DType.Size()
	return r.Values[k.outs[i]][lo*size : (lo+n)*size]
}

// pattern reports whether the operand is a short row. It is then loaded once per chunk
// into a buffer that is a row longer than a block, so that a block can begin anywhere
// in the row.
func (o *operand) pattern() bool { return o.Access == ByRow && o.Period <= lanes.Block }

// row returns the row that repeats from element lo of the result on.
func (o *operand) row(data []byte, lo int) []byte {
	s := o.DType.Size()
	if o.Every > 0 {
		data = data[lo/o.Every*o.Period*s:]
	}
	return data[:o.Period*s]
}

// load reads the elements or lets their producer compute them.
func (o *operand) load(r *exec.Run, reg, data []byte, lo, n int, to lanes.Type) {
	if o.Producer != nil {
		o.Producer.Produce(r, lo, dtype.View[float32](reg)[:n])
		return
	}
	o.read(reg, data, lo, n, to)
}

// read converts the n elements from element lo of the result on to reg.
func (o *operand) read(reg, data []byte, lo, n int, to lanes.Type) {
	s := o.DType.Size()
	width := to.Size()
	switch o.Access {
	case Full:
		lanes.Load(reg, data[lo*s:(lo+n)*s], o.DType, to)
	case ByRow:
		data = o.row(data, lo)
		for at, done := lo%o.Period, 0; done < n; at = 0 {
			m := min(o.Period-at, n-done)
			lanes.Load(reg[done*width:(done+m)*width], data[at*s:(at+m)*s], o.DType, to)
			done += m
		}
	case byIndex:
		inner, step := o.dims[0], o.strides[0]
		row, at := lo/inner, lo%inner
		if step == 0 && inner <= move.MaxRepeats && len(o.dims) == 2 && o.strides[1] == 1 && o.DType == dtype.Float32 && to == lanes.F32 {
			move.RepeatEach(dtype.View[float32](reg)[:n], dtype.View[float32](data)[row:], inner, at)
			return
		}
		for done := 0; done < n; {
			m := min(inner-at, n-done)
			src := data[o.offset(row)*s:]
			dst := reg[done*width : (done+m)*width]
			if step == 0 {
				lanes.Load(dst[:width], src[:s], o.DType, to)
				exec.Repeat(dst, width)
			} else {
				lanes.Load(dst, src[at*s:(at+m)*s], o.DType, to)
			}
			done += m
			at = 0
			row++
		}
	}
}

// offset returns the operand's first element of a row; rows are along the innermost
// axis.
func (o *operand) offset(row int) int {
	at := 0
	for i, d := range o.dims[1:] {
		at += row % d * o.strides[i+1]
		row /= d
	}
	return at
}
