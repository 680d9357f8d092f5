package cpu

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// code is a body made ready: a list of loops over registers. A register is
// named by the value it holds: first the operands, then the results of the
// instructions, then one that conversions pass through.
type code struct {
	domain []domain
	offset []int // of the register in scratch memory, or -1: no register, or the memory of an operand or the result
	exec   []exec
	result int
	direct bool                   // the last loop writes the result's memory itself
	store  func(data, reg []byte) // else this does
	bytes  int                    // scratch memory in all
	cost   int                    // of an element, in simple operations
}

// exec runs one loop over the first n elements of registers.
type exec func(regs [][]byte, n int)

// costly operations take about this many times as long as an addition, in
// assembly or without.
const costly = 6

func compileBody(body *op.Body, operands []operand) *code {
	in := len(body.Inputs)
	through := in + len(body.Code)
	c := &code{
		domain: make([]domain, through+1),
		offset: make([]int, through+1),
		result: through - 1,
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
		c.domain[i] = domainOf(d)
		c.offset[i] = -1
	}
	c.domain[through] = inF64 // the widest

	// What each instruction reads, looking through conversions that change
	// nothing.
	args := make([][]int, len(body.Code))
	same := make([]int, through)
	for i := range same {
		same[i] = i
	}
	last := body.Code[len(body.Code)-1]
	for i, ins := range body.Code {
		for _, a := range ins.Args[:ins.Op.Info().Args] {
			args[i] = append(args[i], same[a])
		}
		if a := args[i][0]; i < len(body.Code)-1 && changesNothing(ins, types[ins.Args[0]]) {
			same[in+i] = a
		}
	}
	c.store = func(data, reg []byte) { store(data, reg, last.DType) }
	c.direct = native(last.DType)
	n := len(body.Code)
	switch {
	case changesNothing(last, types[last.Args[0]]):
		n--
		c.result = args[n][0]
	case last.Op == op.Cast && !c.direct:
		// The store converts, in one rounding, from what the cast reads.
		n--
		c.result = args[n][0]
		from := types[c.result]
		c.store = func(data, reg []byte) { castStore(data, reg, domainOf(from), last.DType) }
	}
	if c.result < in {
		c.direct = false
		if d := operands[c.result].dtype; native(last.DType) && n == 0 {
			c.store = nil // reading the operand is all
			c.domain[c.result] = domainOf(last.DType)
		} else if d == last.DType {
			c.store = func(data, reg []byte) { store(data, reg, d) }
		}
	}

	c.allocate(operands, args[:n], same)
	for i, ins := range body.Code[:n] {
		dst := in + i
		if same[dst] != dst {
			continue
		}
		from := types[args[i][0]]
		// A store to 16 bits rounds by itself; integers wrap before it.
		stored := dst == c.result && !c.direct && ins.DType == last.DType && ins.DType.Is16()
		f := loop(ins, from, dst, args[i], through)
		if g := roundedLoop(ins, dst, args[i]); g != nil && !stored {
			f, stored = g, true
		}
		c.exec = append(c.exec, f)
		c.cost++
		if ins.Op.Info().Precision == op.Deny || slow[ins.Op] {
			c.cost += costly
		}
		if fix := rounding(ins, dst); fix != nil && !stored {
			c.exec = append(c.exec, fix)
		}
	}
	c.cost = max(c.cost, 1)
	return c
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
// of its register.
func (c *code) readsMemory(i int, o operand) bool {
	return native(o.dtype) && domainOf(o.dtype) == c.domain[i]
}

// changesNothing reports whether an instruction leaves a register as it is.
func changesNothing(ins op.Instr, from dtype.DType) bool {
	switch ins.Op {
	case op.Identity:
		return true
	case op.Cast:
		return from.Widens(ins.DType) && domainOf(from) == domainOf(ins.DType)
	}
	return false
}

// allocate gives registers their places, using one again after its value was
// read for the last time, also for the result of that very instruction.
// Scalars, which are loaded once for many blocks, keep theirs.
func (c *code) allocate(operands []operand, args [][]int, same []int) {
	in := len(operands)
	end := make([]int, len(c.domain)) // instruction that reads the value last
	for i, list := range args {
		for _, a := range list {
			end[a] = i
		}
	}
	end[c.result] = len(args)
	free := map[int][]int{}
	take := func(v int) {
		size := c.domain[v].size() * block
		if v < in && operands[v].pattern() { // of its own, larger
			c.offset[v] = c.bytes
			c.bytes += 2 * size
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
	take(len(c.domain) - 1)
	for i, o := range operands {
		if o.access != full || !c.readsMemory(i, o) {
			take(i)
		}
	}
	for i, list := range args {
		for j, a := range list {
			repeated := false
			for _, b := range list[:j] {
				repeated = repeated || a == b
			}
			held := a < in && (operands[a].access == scalar || operands[a].pattern())
			if end[a] == i && c.offset[a] >= 0 && !held && !repeated {
				size := c.domain[a].size() * block
				free[size] = append(free[size], c.offset[a])
			}
		}
		// Not for a value of another width: its register may be that of a
		// wider argument, and loops run forwards over both at once. Widths
		// have lists of their own.
		if v := in + i; same[v] == v && !(v == c.result && c.direct) {
			take(v)
		}
	}
}

// loop makes the loop of an instruction whose first argument is of type from.
func loop(ins op.Instr, from dtype.DType, dst int, args []int, through int) exec {
	switch ins.Op {
	case op.Cast, op.Identity:
		a, to := args[0], ins.DType
		return func(r [][]byte, n int) { cast(r[dst], r[a], r[through], n, domainOf(from), to) }
	case op.Where:
		switch domainOf(ins.DType) {
		case inF32:
			return choose(dst, args, ofF32().where)
		case inF64:
			return choose(dst, args, where[float64])
		case inI64:
			return choose(dst, args, where[int64])
		}
		return choose(dst, args, where[uint8])
	}
	switch domainOf(from) {
	case inF32:
		return ofF32().exec(ins.Op, dst, args)
	case inF64:
		return loopsF64.exec(ins.Op, dst, args)
	case inI64:
		return loopsI64.exec(ins.Op, dst, args)
	}
	return loopsBool.exec(ins.Op, dst, args)
}

// hasLoop reports whether there is a loop for an operation on a type.
func hasLoop(c op.Code, d dtype.DType) bool {
	if c == op.Cast || c == op.Identity || c == op.Where {
		return true
	}
	switch domainOf(d) {
	case inF32:
		return loopsF32.has(c)
	case inF64:
		return loopsF64.has(c)
	case inI64:
		return loopsI64.has(c)
	}
	return loopsBool.has(c)
}

// rounding makes the loop that brings a register of instruction ins to values
// of the instruction's type, or nil where they are that already.
func rounding(ins op.Instr, dst int) exec {
	if ins.Op == op.Cast || exact[ins.Op] {
		return nil
	}
	switch d := ins.DType; d {
	case dtype.Float16, dtype.BFloat16:
		return func(r [][]byte, n int) {
			x := dtype.View[float32](r[dst])[:n]
			roundTo(x, x, d)
		}
	case dtype.Uint8, dtype.Int32:
		return func(r [][]byte, n int) { wrap(dtype.View[int64](r[dst])[:n], d) }
	}
	return nil
}

// roundedLoop makes the loop of an instruction and its rounding where they are
// one, or nil.
func roundedLoop(ins op.Instr, dst int, args []int) exec {
	v := vectors()
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
	l := &loops[float32]{binary: map[op.Code]func(dst, a, b []float32){ins.Op: f}}
	return l.exec(ins.Op, dst, args)
}

// wrap brings each element into the range of an integer type, modulo its size.
func wrap(x []int64, d dtype.DType) {
	switch d {
	case dtype.Uint8:
		for i, v := range x {
			x[i] = int64(uint8(v))
		}
	case dtype.Int32:
		for i, v := range x {
			x[i] = int64(int32(v))
		}
	}
}

// exact operations give a value that one of their arguments has, or its
// negative, and so one of the type.
var exact = map[op.Code]bool{
	op.Identity: true, op.Where: true, op.Relu: true, op.Maximum: true, op.Minimum: true, op.Sign: true,
}

// slow operations are costly though they may run in 16 bits.
var slow = map[op.Code]bool{
	op.Sin: true, op.Cos: true, op.Tanh: true, op.Sigmoid: true, op.Erf: true,
	op.Div: true, op.Mod: true, op.Sqrt: true, op.Rsqrt: true, op.Reciprocal: true,
}

// cast converts the first n elements of register src to type to, as a
// register; through is a register for elements of that type on their way.
func cast(dst, src, through []byte, n int, from domain, to dtype.DType) {
	dom := domainOf(to)
	dst, src = dst[:n*dom.size()], src[:n*from.size()]
	switch {
	case from == inBool && dom == inF32:
		toF32(dtype.View[float32](dst), src, dtype.Bool)
	case from == inBool && dom == inF64:
		dtype.ToF64(dtype.View[float64](dst), src, dtype.Bool)
	case from == inBool && dom == inI64:
		dtype.ToI64(dtype.View[int64](dst), src, dtype.Bool)
	case from == inF32 && to.Is16():
		roundTo(dtype.View[float32](dst), dtype.View[float32](src), to)
	case native(to):
		castStore(dst, src, from, to)
	default:
		through = through[:n*to.Size()]
		castStore(through, src, from, to)
		load(dst, through, to, domainOf(to))
	}
}

// castStore converts a register to elements of another domain's type to.
func castStore(data, reg []byte, from domain, to dtype.DType) {
	n := len(data) / to.Size()
	switch from {
	case inF32:
		fromF32(data, dtype.View[float32](reg)[:n], to)
	case inF64:
		dtype.FromF64(data, dtype.View[float64](reg)[:n], to)
	case inI64:
		dtype.FromI64(data, dtype.View[int64](reg)[:n], to)
	case inBool:
		switch {
		case to == dtype.Bool:
			for i, b := range reg[:n] {
				data[i] = truth(b != 0)
			}
		case to.IsInt():
			for i, b := range reg[:n] {
				putInt(data, i, to, int64(truth(b != 0)))
			}
		default:
			one := [...]uint16{dtype.Float16: 0x3c00, dtype.BFloat16: 0x3f80}[to]
			for i, b := range reg[:n] {
				dtype.View[uint16](data)[i] = one * uint16(truth(b != 0))
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
