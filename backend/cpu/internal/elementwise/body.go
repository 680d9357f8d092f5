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

// code is a compiled body: a list of loops over block buffers. A buffer has the index
// of the value it holds: the operands come first, then the results of instructions,
// then a buffer for the intermediate type of conversions.
type code struct {
	laneTypes  []lanes.Type
	offset     []int  // of the block buffer in scratch memory; -1: none, or the value is read or written in place
	used       []bool // operands that are read
	single     []bool // scalar operands that loops take as a number, so that one element is enough
	raw        []bool // 16-bit operands that loops read from memory
	exec       []lanes.Loop
	results    []result
	draw       *flagDraw
	dropout    *dropoutLoop // or nil
	prefetched []int        // operands that slow loops prefetch a block ahead
	step       int          // elements per call of the loops
	prefetches bool         // whether the operands' next elements are prefetched meanwhile
	bytes      int          // scratch memory
	cost       int          // per element, in simple operations
}

// result is a result of a body.
type result struct {
	DType       dtype.DType
	slot        ir.Slot
	reg         int                    // block buffer with its elements
	direct      bool                   // the loop that computes it writes it to memory
	store       func(data, reg []byte) // writes it otherwise; nil: it is in memory already, or copied
	copied      bool                   // operand reg is read straight into the result's memory; there are no loops
	nonTemporal bool                   // store must be non-temporal
	rows        *move.Gather           // or nil: gathers rows of a float32 table that only have to be converted to DType
}

// costly is the cost of an expensive operation, in additions, in assembly and in Go.
const costly = 6

// instr is an instruction whose operands have been resolved: conversions that change
// nothing are skipped.
type instr struct {
	op.Instr
	from    dtype.DType // type of the first operand
	dst     int
	args    []int
	stored  bool          // read only by a store to its 16-bit type, which rounds
	chain   *chainPattern // pattern of the loop that computes this and earlier instructions, or nil
	draws   bool          // drawn by flagDraw
	low     lanes.Loop    // low-precision loop, or nil
	numbers bool          // low takes scalars as numbers
}

// compileBody compiles a body. Its results are the last instruction and then the extra
// outputs; outs has their slots.
func compileBody(body *op.Body, operands []operand, outs []result) *code {
	in := len(body.Inputs)
	through := in + len(body.Code)
	c := &code{
		laneTypes: make([]lanes.Type, through+1),
		offset:    make([]int, through+1),
		used:      make([]bool, in),
		single:    make([]bool, in),
		raw:       make([]bool, in),
		results:   slices.Clone(outs),
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
		c.laneTypes[i] = lanes.TypeOf(d)
		c.offset[i] = -1
	}
	c.laneTypes[through], c.offset[through] = lanes.F64, -1 // the widest type

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
	list, low := c.lowPrecision(list, operands)
	if !low {
		for i := range list {
			ins := &list[i]
			ins.stored = ins.DType.Is16() && c.storedAlone(ins, list)
		}
		c.store16(list)
		list = needed(c.chained(list, operands), c.results)
		c.place(operands, list)
	}
	c.findPrefetched(operands, list)
	c.findSingles(operands, list)
	c.allocate(operands, list)
	c.findDropout(operands, list)
	for i, ins := range list {
		if ins.draws {
			continue
		}
		if ins.low != nil {
			c.exec = append(c.exec, ins.low)
			continue
		}
		f := c.loop(ins, operands, through)
		if at := i - 2; at >= 0 && updatesMoments(list[at:i+1]) {
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

// inMemory reports whether scratch memory holds scalars only, so that a single loop may
// take any number of elements.
func (c *code) inMemory() bool {
	for i := range len(c.offset) - 1 {
		if c.offset[i] >= 0 && !(i < len(c.single) && (c.single[i] || !c.used[i])) {
			return false
		}
	}
	return !slices.ContainsFunc(c.results, func(r result) bool { return !r.direct && r.store != nil })
}

// resolve skips instructions that change nothing.
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

// resultsOf chooses the block buffers that results come from and how they are stored.
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
			// The store converts the cast's operand, so that there is one rounding.
			r.reg = ins.args[0]
			from := lanes.TypeOf(types[r.reg])
			r.store = func(data, reg []byte) { castStore(data, reg, from, d) }
		default:
			r.store = func(data, reg []byte) { lanes.Store(data, reg, d) }
		}
	}
}

// roundLater lets a Where whose 16-bit result is only stored choose between unrounded
// operands: the store rounds.
func (c *code) roundLater(list []instr) {
	for i := range list {
		ins := &list[i]
		if ins.Op != op.Where || !ins.DType.Is16() || !c.storedAlone(ins, list) {
			continue
		}
		for j, a := range ins.args[1:] {
			k := slices.IndexFunc(list, func(o instr) bool { return o.dst == a })
			if k < 0 || list[k].Op != op.Cast || c.laneTypes[list[k].args[0]] != lanes.F32 || c.isResult(a) {
				continue
			}
			ins.args[1+j], ins.DType = list[k].args[0], dtype.Float32
		}
	}
}

// store16 chooses the stores of 16-bit results that are computed in float32:
// without rounding if the numbers have the type's precision already, and non-temporal
// where that is wanted.
func (c *code) store16(list []instr) {
	v := vec.Native()
	for k := range c.results {
		r := &c.results[k]
		if !r.DType.Is16() {
			continue
		}
		if v == nil || r.store == nil || c.laneTypes[r.reg] != lanes.F32 {
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

// castsThrough reports whether a conversion needs an intermediate type.
func (c *code) castsThrough(ins instr) bool {
	return ins.Op == op.Cast && !lanes.Native(ins.DType) && !(ins.DType.Is16() && c.laneTypes[ins.args[0]] == lanes.F32)
}

func readLater(list []instr, reg int) bool {
	return slices.ContainsFunc(list, func(ins instr) bool { return slices.Contains(ins.args, reg) })
}

// needed removes dead instructions.
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

// copyOperand compiles a body that only converts an operand, or copies it.
func (c *code) copyOperand(operands []operand) {
	r := &c.results[0]
	d := operands[r.reg].DType
	switch {
	case lanes.Native(r.DType):
		r.copied = true
		c.laneTypes[r.reg] = lanes.TypeOf(r.DType)
	case d == r.DType:
		r.store = func(data, reg []byte) { lanes.Store(data, reg, d) }
	case r.DType.Is16() && d == dtype.Float32 && !r.nonTemporal:
		r.rows, _ = operands[r.reg].Producer.(*move.Gather)
	}
}

// storedAlone reports whether the only use of ins is the store of a result of its type.
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

// place decides which results loops write to memory directly: those whose type in
// memory is the lane type, unless a later loop reads an operand in the same memory.
func (c *code) place(operands []operand, list []instr) {
	for k := range c.results {
		r := &c.results[k]
		if r.reg < len(operands) {
			o := operands[r.reg]
			if o.slot == r.slot && o.Access == Full && o.DType == r.DType && r.slot.Place != ir.Nowhere {
				r.store, r.copied = nil, false // it is there already
			}
			continue
		}
		if r.nonTemporal || !lanes.Native(r.DType) || slices.ContainsFunc(c.results[:k], func(o result) bool { return o.reg == r.reg && o.direct }) {
			continue
		}
		if c.laneTypes[r.reg] != lanes.TypeOf(r.DType) {
			continue // the store converts
		}
		def := slices.IndexFunc(list, func(ins instr) bool { return ins.dst == r.reg })
		r.direct = true
		for i, o := range operands {
			if o.slot == r.slot && (readLater(list[def+1:], i) || c.isResult(i)) {
				r.direct = false
			}
		}
	}
}

// isResult reports whether a result comes from block buffer reg.
func (c *code) isResult(reg int) bool {
	return slices.ContainsFunc(c.results, func(r result) bool { return r.reg == reg })
}

// written reports whether a loop writes reg to memory.
func (c *code) written(reg int) bool {
	return slices.ContainsFunc(c.results, func(r result) bool { return r.reg == reg && r.direct })
}

// readAsFloat reports whether input i is an integer that is only used as a float32, so
// that it can be loaded as one.
func readAsFloat(body *op.Body, i int) bool {
	if d := body.Inputs[i]; d != dtype.Uint8 && d != dtype.Int8 && d != dtype.Int32 {
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

// readsMemory reports whether loops can read operand i in place. With several results
// they cannot read one that is stored later: another result might overwrite it first.
func (c *code) readsMemory(i int, o operand) bool {
	return c.raw[i] || o.Producer == nil && lanes.Native(o.DType) && lanes.TypeOf(o.DType) == c.laneTypes[i] && (len(c.results) == 1 || !c.isResult(i))
}

// changesNothing reports whether an instruction is the identity.
func changesNothing(ins op.Instr, from dtype.DType) bool {
	switch ins.Op {
	case op.Identity:
		return true
	case op.Cast:
		return from.Widens(ins.DType) && lanes.TypeOf(from) == lanes.TypeOf(ins.DType)
	}
	return false
}

// allocate assigns block buffers. It reuses one after the last use of its value, also
// for the result of that instruction. Scalars, which are loaded once for many blocks,
// and results that are stored at the end keep theirs.
func (c *code) allocate(operands []operand, list []instr) {
	end := make([]int, len(c.laneTypes)) // last instruction that reads the value
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
		size := c.laneTypes[v].Size() * lanes.Block
		if v < len(operands) && operands[v].pattern() { // its own, larger buffer
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
		take(len(c.laneTypes) - 1)
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
				size := c.laneTypes[a].Size() * lanes.Block
				free[size] = append(free[size], c.offset[a])
			}
		}
		// Buffers are shared by values of one width only: loops run forwards, and a
		// result wider than an argument would overwrite elements not yet read.
		if !c.written(ins.dst) {
			take(ins.dst)
		}
	}
}

// loop returns the loop of an instruction whose first argument has type from.
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

// rounding returns the loop that rounds the result of ins to the instruction's type, or
// nil if it has that precision already.
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
	case dtype.Uint8, dtype.Int8, dtype.Int32:
		return func(r [][]byte, n int) { lanes.Wrap(dtype.View[int64](r[dst])[:n], d) }
	}
	return nil
}

// roundedLoop returns one loop that computes an instruction and rounds, or nil.
func roundedLoop(ins op.Instr, dst int, args []int) lanes.Loop {
	v := vec.Native()
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

// cast converts the first n elements of block buffer src to type to; through is a
// buffer for the intermediate type.
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

// castStore converts a block buffer to elements of type to, which has another lane
// type.
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
	if d.Size() == 1 {
		data[i] = uint8(x)
		return
	}
	dtype.View[int32](data)[i] = int32(x)
}
