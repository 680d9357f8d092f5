package elementwise

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/move"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// code is a body made ready: a list of loops over registers. A register is
// named by the value it holds: first the operands, then the results of the
// instructions, then one that conversions pass through.
type code struct {
	domain     []lanes.Type
	offset     []int  // of the register in scratch memory, or -1: no register, or the memory of an operand or a result
	used       []bool // operands that are read
	single     []bool // scalar operands that loops take as a number: one element is enough
	raw        []bool // operands of 16 bits that loops read in memory
	exec       []lanes.Loop
	results    []result
	draw       *flagDraw
	drop       *dropLoop // or nil
	ahead      []int     // operands whose next block slow loops ask the cache for
	step       int       // elements that the loops take at a time
	prefetches bool      // whether the caches are asked for the next ones meanwhile
	bytes      int       // scratch memory in all
	cost       int       // of an element, in simple operations
}

// result is what a body leaves in memory.
type result struct {
	DType       dtype.DType
	slot        ir.Slot
	reg         int                    // the register its elements come from
	direct      bool                   // the loop that makes them writes them to memory itself
	store       func(data, reg []byte) // else this does; nil: they are there already, or see copied
	copied      bool                   // the operand reg is read straight into memory: the body does nothing
	nonTemporal bool                   // store is to go around the caches
	rows        *move.Gather           // rows of a table of float32 that only have to be converted to dtype, or nil
}

// costly operations take about this many times as long as an addition, in
// assembly or without.
const costly = 6

// instr is an instruction whose operands were looked up: conversions that
// change nothing are skipped.
type instr struct {
	op.Instr
	from    dtype.DType // of the first operand
	dst     int
	args    []int
	stored  bool          // nothing but a store to its own 16-bit type reads it, and rounds
	chain   *chainPattern // whose loop does more than this instruction, or nil
	draws   bool          // made with random numbers: flagDraw
	half    lanes.Loop    // the loop of a body of 16 bits, or nil
	numbers bool          // that loop takes scalars as numbers
}

// compileBody makes the loops of a body. Its results are the last instruction
// and then its Extra, as outs has their types and places.
func compileBody(body *op.Body, operands []operand, outs []result) *code {
	in := len(body.Inputs)
	through := in + len(body.Code)
	c := &code{
		domain:  make([]lanes.Type, through+1),
		offset:  make([]int, through+1),
		used:    make([]bool, in),
		single:  make([]bool, in),
		raw:     make([]bool, in),
		results: slices.Clone(outs),
	}
	types := append([]dtype.DType(nil), body.Inputs...)
	for i := range types {
		if readAsFloat(body, i) {
			types[i] = dtype.Float32
		}
	}
	for _, i := range body.Code {
		types = append(types, i.DType)
	}
	for i, d := range types {
		c.domain[i] = lanes.TypeOf(d)
		c.offset[i] = -1
	}
	c.domain[through], c.offset[through] = lanes.F64, -1 // the widest

	list := resolve(body, types)
	c.resultsOf(body, types, list)
	c.roundLater(list)
	list = needed(list, c.results)
	if len(list) == 0 && len(c.results) == 1 && c.results[0].store != nil {
		c.copyOperand(operands)
	}
	for _, ins := range list {
		c.cost++
		if ins.Op.Info().Costly {
			c.cost += costly
		}
	}
	c.cost = max(c.cost, 1)
	c.findDraw(operands, list)
	list, half := c.halves(list, operands)
	if !half {
		for i := range list {
			ins := &list[i]
			ins.stored = ins.DType.Is16() && c.storedAlone(ins, list)
		}
		c.storeHalves(list)
		list = needed(c.chained(list, operands), c.results)
		c.place(operands, list)
	}
	c.findAhead(operands, list)
	c.findSingles(operands, list)
	c.allocate(operands, list)
	c.findDrop(operands, list)
	for i, ins := range list {
		if ins.draws {
			continue
		}
		if ins.half != nil {
			c.exec = append(c.exec, ins.half)
			continue
		}
		f := c.loop(ins, operands, through)
		if at := i - 2; at >= 0 && moveTogether(list[at:i+1]) {
			last := len(c.exec) - 2
			c.exec = append(c.exec[:last], momentsExec(list[at:i+1], operands, [3]lanes.Loop{c.exec[last], c.exec[last+1], f}))
			continue
		}
		if g := roundedLoop(ins.Instr, ins.dst, ins.args); g != nil && !ins.stored {
			f, ins.stored = g, true
		}
		c.exec = append(c.exec, f)
		if fix := rounding(ins.Instr, ins.dst); fix != nil && !ins.stored {
			c.exec = append(c.exec, fix)
		}
	}
	c.step = lanes.Block
	if len(c.exec) == 1 && c.inMemory() {
		c.step = longBlock
	}
	return c
}

// inMemory reports whether nothing but numbers lies in scratch memory, so that
// a single loop may take any number of elements.
func (c *code) inMemory() bool {
	for i := range len(c.offset) - 1 {
		if c.offset[i] >= 0 && !(i < len(c.single) && (c.single[i] || !c.used[i])) {
			return false
		}
	}
	return !slices.ContainsFunc(c.results, func(r result) bool { return !r.direct && r.store != nil })
}

// resolve looks through instructions that change nothing.
func resolve(body *op.Body, types []dtype.DType) []instr {
	in := len(body.Inputs)
	same := make([]int, in+len(body.Code))
	for i := range same {
		same[i] = i
	}
	list := make([]instr, len(body.Code))
	for i, b := range body.Code {
		ins := instr{Instr: b, dst: in + i}
		for _, a := range b.Args[:b.Op.Info().Args] {
			ins.args = append(ins.args, same[a])
		}
		ins.from = types[ins.args[0]]
		if changesNothing(b, types[b.Args[0]]) {
			same[in+i] = ins.args[0]
		}
		list[i] = ins
	}
	return list
}

// resultsOf settles which registers the results come from and how they get to
// memory.
func (c *code) resultsOf(body *op.Body, types []dtype.DType, list []instr) {
	in := len(body.Inputs)
	for k := range c.results {
		r := &c.results[k]
		at := len(list) - 1
		if k > 0 {
			at = int(body.ExtraOutputs[k-1]) - in
		}
		ins := list[at]
		d := ins.DType
		r.reg, r.DType = ins.dst, d
		switch {
		case changesNothing(body.Code[at], types[body.Code[at].Args[0]]):
			r.reg = ins.args[0]
			r.store = func(data, reg []byte) { lanes.Store(data, reg, d) }
		case ins.Op == op.Cast && !lanes.Native(d) && !readLater(list, ins.dst):
			// The store converts, in one rounding, from what the cast reads.
			r.reg = ins.args[0]
			from := lanes.TypeOf(types[r.reg])
			r.store = func(data, reg []byte) { castStore(data, reg, from, d) }
		default:
			r.store = func(data, reg []byte) { lanes.Store(data, reg, d) }
		}
	}
}

// roundLater has a choice whose result is only stored, in 16 bits, choose between
// numbers that were not rounded: the store rounds.
func (c *code) roundLater(list []instr) {
	for i := range list {
		ins := &list[i]
		if ins.Op != op.Where || !ins.DType.Is16() || !c.storedAlone(ins, list) {
			continue
		}
		for j, a := range ins.args[1:] {
			k := slices.IndexFunc(list, func(o instr) bool { return o.dst == a })
			if k < 0 || list[k].Op != op.Cast || c.domain[list[k].args[0]] != lanes.F32 || c.isResult(a) {
				continue
			}
			ins.args[1+j], ins.DType = list[k].args[0], dtype.Float32
		}
	}
}

// storeLow settles how results of 16 bits that are computed in float32 are
// stored: without rounding where the numbers are of the type already, and
// around the caches.
func (c *code) storeHalves(list []instr) {
	v := vec.Current()
	for k := range c.results {
		r := &c.results[k]
		if !r.DType.Is16() {
			continue
		}
		if v == nil || r.store == nil || c.domain[r.reg] != lanes.F32 {
			r.nonTemporal = false
			continue
		}
		exactly := slices.ContainsFunc(list, func(ins instr) bool {
			return ins.dst == r.reg && ins.DType == r.DType && (ins.Op.Info().Selects || !ins.stored)
		})
		var f vec.Store
		switch {
		case r.DType == dtype.Float16 && r.nonTemporal:
			f = v.ToF16NT
		case r.DType == dtype.Float16:
			continue
		case exactly && r.nonTemporal:
			f = v.CutBF16NT
		case exactly:
			f = v.CutBF16
		case r.nonTemporal:
			f = v.ToBF16NT
		default:
			continue
		}
		r.nonTemporal = false
		r.store = func(data, reg []byte) {
			to := dtype.View[uint16](data)
			f(to, dtype.View[float32](reg)[:len(to)])
		}
	}
}

// castsThrough reports whether a conversion takes two steps.
func (c *code) castsThrough(ins instr) bool {
	return ins.Op == op.Cast && !lanes.Native(ins.DType) && !(ins.DType.Is16() && c.domain[ins.args[0]] == lanes.F32)
}

func readLater(list []instr, reg int) bool {
	return slices.ContainsFunc(list, func(ins instr) bool { return slices.Contains(ins.args, reg) })
}

// needed leaves out instructions that no result depends on.
func needed(list []instr, results []result) []instr {
	want := map[int]bool{}
	for _, r := range results {
		want[r.reg] = true
	}
	var live []instr
	for _, ins := range slices.Backward(list) {
		if want[ins.dst] {
			live = append(live, ins)
			for _, a := range ins.args {
				want[a] = true
			}
		}
	}
	slices.Reverse(live)
	return live
}

// copyOperand prepares a body that only converts an operand to another type or
// place.
func (c *code) copyOperand(operands []operand) {
	r := &c.results[0]
	d := operands[r.reg].DType
	switch {
	case lanes.Native(r.DType):
		r.copied = true
		c.domain[r.reg] = lanes.TypeOf(r.DType)
	case d == r.DType:
		r.store = func(data, reg []byte) { lanes.Store(data, reg, d) }
	case r.DType.Is16() && d == dtype.Float32 && !r.nonTemporal:
		r.rows, _ = operands[r.reg].Producer.(*move.Gather)
	}
}

// storedAlone reports whether only the store of a result of its own type reads
// what ins makes.
func (c *code) storedAlone(ins *instr, list []instr) bool {
	n := 0
	for _, r := range c.results {
		if r.reg == ins.dst {
			if r.DType != ins.DType {
				return false
			}
			n++
		}
	}
	return n > 0 && !readLater(list, ins.dst)
}

// place settles which results loops write to memory themselves: those whose
// elements in memory are those of a register, unless the same memory is read
// by a later loop as an operand.
func (c *code) place(operands []operand, list []instr) {
	for k := range c.results {
		r := &c.results[k]
		if r.reg < len(operands) {
			o := operands[r.reg]
			if o.slot == r.slot && o.Access == Full && o.DType == r.DType && r.slot.Place != ir.Nowhere {
				r.store, r.copied = nil, false // it stays as it is
			}
			continue
		}
		if r.nonTemporal || !lanes.Native(r.DType) || slices.ContainsFunc(c.results[:k], func(o result) bool { return o.reg == r.reg && o.direct }) {
			continue
		}
		if c.domain[r.reg] != lanes.TypeOf(r.DType) {
			continue // a cast on the way
		}
		made := slices.IndexFunc(list, func(ins instr) bool { return ins.dst == r.reg })
		r.direct = true
		for i, o := range operands {
			if o.slot == r.slot && (readLater(list[made+1:], i) || c.isResult(i)) {
				r.direct = false
			}
		}
	}
}

// isResult reports whether a result comes from register reg.
func (c *code) isResult(reg int) bool {
	return slices.ContainsFunc(c.results, func(r result) bool { return r.reg == reg })
}

// written reports whether a loop writes register reg to memory.
func (c *code) written(reg int) bool {
	return slices.ContainsFunc(c.results, func(r result) bool { return r.reg == reg && r.direct })
}

// readAsFloat reports whether input i of a body is an integer that is only
// used as a float32, so that it can be read as one.
func readAsFloat(body *op.Body, i int) bool {
	if d := body.Inputs[i]; d != dtype.Uint8 && d != dtype.Int32 {
		return false
	}
	for _, ins := range body.Code {
		for _, a := range ins.Args[:ins.Op.Info().Args] {
			if int(a) == i && (ins.Op != op.Cast || ins.DType != dtype.Float32) {
				return false
			}
		}
	}
	return true
}

// readsMemory reports whether the elements of an operand in memory are those
// of its register. Where there are several results one of them may be written
// over it before another is stored from it.
func (c *code) readsMemory(i int, o operand) bool {
	return c.raw[i] || o.Producer == nil && lanes.Native(o.DType) && lanes.TypeOf(o.DType) == c.domain[i] && (len(c.results) == 1 || !c.isResult(i))
}

// changesNothing reports whether an instruction leaves a register as it is.
func changesNothing(ins op.Instr, from dtype.DType) bool {
	switch ins.Op {
	case op.Identity:
		return true
	case op.Cast:
		return from.Widens(ins.DType) && lanes.TypeOf(from) == lanes.TypeOf(ins.DType)
	}
	return false
}

// allocate gives registers their places, using one again after its value was
// read for the last time, also for the result of that very instruction.
// Scalars, which are loaded once for many blocks, keep theirs, and so do
// results that are stored at the end.
func (c *code) allocate(operands []operand, list []instr) {
	end := make([]int, len(c.domain)) // instruction that reads the value last
	for i, ins := range list {
		for _, a := range ins.args {
			end[a] = i
			if a < len(operands) {
				c.used[a] = true
			}
		}
	}
	for _, r := range c.results {
		end[r.reg] = len(list)
		if r.reg < len(operands) && (r.store != nil || r.copied) {
			c.used[r.reg] = true
		}
	}
	free := map[int][]int{}
	take := func(v int) {
		size := c.domain[v].Size() * lanes.Block
		if v < len(operands) && operands[v].pattern() { // of its own, larger
			c.offset[v] = c.bytes
			c.bytes += 2 * size
			return
		}
		if v < len(operands) && operands[v].Access == scalar && c.single[v] {
			c.offset[v] = c.bytes
			c.bytes += ir.Align
			return
		}
		if list := free[size]; len(list) > 0 {
			c.offset[v] = list[len(list)-1]
			free[size] = list[:len(list)-1]
			return
		}
		c.offset[v] = c.bytes
		c.bytes += size
	}
	if slices.ContainsFunc(list, c.castsThrough) {
		take(len(c.domain) - 1)
	}
	for i, o := range operands {
		if o.Access != Full || !c.readsMemory(i, o) {
			take(i)
		}
	}
	for i, ins := range list {
		for j, a := range ins.args {
			held := a < len(operands) && (operands[a].Access == scalar || operands[a].pattern())
			if end[a] == i && c.offset[a] >= 0 && !held && !slices.Contains(ins.args[:j], a) {
				size := c.domain[a].Size() * lanes.Block
				free[size] = append(free[size], c.offset[a])
			}
		}
		// Not for a value of another width: its register may be that of a
		// wider argument, and loops run forwards over both at once. Widths
		// have lists of their own.
		if !c.written(ins.dst) {
			take(ins.dst)
		}
	}
}

// loop makes the loop of an instruction whose first argument is of type from.
func loop(ins op.Instr, from dtype.DType, dst int, args []int, through int) lanes.Loop {
	switch ins.Op {
	case op.Cast, op.Identity:
		a, to := args[0], ins.DType
		return func(r [][]byte, n int) { cast(r[dst], r[a], r[through], n, lanes.TypeOf(from), to) }
	case op.Where:
		switch lanes.TypeOf(ins.DType) {
		case lanes.F32:
			return lanes.Choose(dst, args, lanes.OfF32().Where)
		case lanes.F64:
			return lanes.Choose(dst, args, lanes.Where[float64])
		case lanes.I64:
			return lanes.Choose(dst, args, lanes.Where[int64])
		}
		return lanes.Choose(dst, args, lanes.Where[uint8])
	}
	switch lanes.TypeOf(from) {
	case lanes.F32:
		return lanes.OfF32().Bind(ins.Op, dst, args)
	case lanes.F64:
		return lanes.F64Table.Bind(ins.Op, dst, args)
	case lanes.I64:
		return lanes.I64Table.Bind(ins.Op, dst, args)
	}
	return lanes.BoolTable.Bind(ins.Op, dst, args)
}

// Supports reports whether there is a loop for an operation on a type.
func Supports(c op.Code, d dtype.DType) bool {
	if c == op.Cast || c == op.Identity || c == op.Where {
		return true
	}
	switch lanes.TypeOf(d) {
	case lanes.F32:
		return lanes.F32Table.Has(c)
	case lanes.F64:
		return lanes.F64Table.Has(c)
	case lanes.I64:
		return lanes.I64Table.Has(c)
	}
	return lanes.BoolTable.Has(c)
}

// rounding makes the loop that rounds a register of instruction ins to values
// of the instruction's type, or nil where they are that already.
func rounding(ins op.Instr, dst int) lanes.Loop {
	if ins.Op == op.Cast || ins.Op.Info().Selects {
		return nil
	}
	switch d := ins.DType; d {
	case dtype.Float16, dtype.BFloat16:
		return func(r [][]byte, n int) {
			x := dtype.View[float32](r[dst])[:n]
			lanes.RoundTo(x, x, d)
		}
	case dtype.Uint8, dtype.Int32:
		return func(r [][]byte, n int) { lanes.Wrap(dtype.View[int64](r[dst])[:n], d) }
	}
	return nil
}

// roundedLoop makes the loop of an instruction and its rounding where they are
// one, or nil.
func roundedLoop(ins op.Instr, dst int, args []int) lanes.Loop {
	v := vec.Current()
	if v == nil {
		return nil
	}
	var f vec.Binary
	switch ins.DType {
	case dtype.Float16:
		f = map[op.Code]vec.Binary{op.Add: v.AddF16, op.Sub: v.SubF16, op.Mul: v.MulF16}[ins.Op]
	case dtype.BFloat16:
		f = map[op.Code]vec.Binary{op.Add: v.AddBF16, op.Sub: v.SubBF16, op.Mul: v.MulBF16}[ins.Op]
	}
	if f == nil {
		return nil
	}
	l := &lanes.Table[float32]{Binary: map[op.Code]func(dst, a, b []float32){ins.Op: f}}
	return l.Bind(ins.Op, dst, args)
}

// cast converts the first n elements of register src to type to, as a
// register; through is a register for elements of that type on their way.
func cast(dst, src, through []byte, n int, from lanes.Type, to dtype.DType) {
	dom := lanes.TypeOf(to)
	dst, src = dst[:n*dom.Size()], src[:n*from.Size()]
	switch {
	case from == lanes.Bool && dom == lanes.F32:
		lanes.ToF32(dtype.View[float32](dst), src, dtype.Bool)
	case from == lanes.Bool && dom == lanes.F64:
		dtype.ToF64(dtype.View[float64](dst), src, dtype.Bool)
	case from == lanes.Bool && dom == lanes.I64:
		dtype.ToI64(dtype.View[int64](dst), src, dtype.Bool)
	case from == lanes.F32 && to.Is16():
		lanes.RoundTo(dtype.View[float32](dst), dtype.View[float32](src), to)
	case lanes.Native(to):
		castStore(dst, src, from, to)
	default:
		through = through[:n*to.Size()]
		castStore(through, src, from, to)
		lanes.Load(dst, through, to, lanes.TypeOf(to))
	}
}

// castStore converts a register to elements of another domain's type to.
func castStore(data, reg []byte, from lanes.Type, to dtype.DType) {
	n := len(data) / to.Size()
	switch from {
	case lanes.F32:
		lanes.FromF32(data, dtype.View[float32](reg)[:n], to)
	case lanes.F64:
		dtype.FromF64(data, dtype.View[float64](reg)[:n], to)
	case lanes.I64:
		dtype.FromI64(data, dtype.View[int64](reg)[:n], to)
	case lanes.Bool:
		switch {
		case to == dtype.Bool:
			for i, b := range reg[:n] {
				data[i] = lanes.Truth(b != 0)
			}
		case to.IsInt():
			for i, b := range reg[:n] {
				putInt(data, i, to, int64(lanes.Truth(b != 0)))
			}
		default:
			one := [...]uint16{dtype.Float16: 0x3c00, dtype.BFloat16: 0x3f80}[to]
			for i, b := range reg[:n] {
				dtype.View[uint16](data)[i] = one * uint16(lanes.Truth(b != 0))
			}
		}
	}
}

func putInt(data []byte, i int, d dtype.DType, x int64) {
	if d == dtype.Uint8 {
		data[i] = uint8(x)
		return
	}
	dtype.View[int32](data)[i] = int32(x)
}
