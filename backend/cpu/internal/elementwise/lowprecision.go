package elementwise

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// lowPrecision compiles a body of one or two 16-bit operations to one loop from memory to
// memory, if package vec has it; otherwise each operation is a pass over the cache,
// with two more for conversions. It reports whether it did. Draws stay in the list.
func (c *code) lowPrecision(list []instr, operands []operand) ([]instr, bool) {
	v := vec.Native()
	if v == nil || len(c.results) != 1 || !c.results[0].DType.Is16() || len(list) == 0 {
		return list, false
	}
	r := &c.results[0]
	m := lowMatcher{c: c, operands: operands, list: list, dtype: r.DType, set: &v.LowPrecisionF16}
	if r.DType == dtype.BFloat16 {
		m.set = &v.LowPrecisionBF16
	}
	drawn := slices.IndexFunc(list, func(ins instr) bool { return ins.draws })
	f, args, count := m.match(r.reg)
	if drawn >= 0 {
		count++
	}
	if f == nil || count != len(list) {
		return list, false
	}
	for i := range operands {
		if slices.Contains(args, i) && m.memory(i) {
			c.raw[i] = true
		}
	}
	whole := *m.by(r.reg)
	whole.args, whole.low = args, f
	whole.numbers = whole.Op == op.Where || whole.DType == dtype.Float32
	r.direct = !r.nonTemporal
	if drawn >= 0 {
		return []instr{list[drawn], whole}, true
	}
	return []instr{whole}, true
}

// lowMatcher looks for low-precision loops of package vec.
type lowMatcher struct {
	c        *code
	operands []operand
	list     []instr
	dtype    dtype.DType
	set      *vec.LowPrecision
}

// memory reports whether operand i can be read in place.
func (m *lowMatcher) memory(i int) bool {
	return i < len(m.operands) && m.operands[i].Access == Full && m.operands[i].Producer == nil && m.operands[i].DType == m.dtype
}

// row reports whether operand i has the type, but must be loaded into a block buffer.
func (m *lowMatcher) row(i int) bool {
	return i < len(m.operands) && m.operands[i].DType == m.dtype && !m.memory(i) && m.operands[i].Producer == nil
}

// number reports whether operand i is a scalar of the type.
func (m *lowMatcher) number(i int) bool { return m.row(i) && m.operands[i].Access == scalar }

// by returns the instruction that computes reg, or nil.
func (m *lowMatcher) by(reg int) *instr {
	if i := slices.IndexFunc(m.list, func(ins instr) bool { return ins.dst == reg }); i >= 0 {
		return &m.list[i]
	}
	return nil
}

// match returns the loop that computes reg, the block buffers it reads, and how many
// instructions it replaces.
func (m *lowMatcher) match(reg int) (f lanes.Loop, args []int, count int) {
	ins := m.by(reg)
	if ins == nil || ins.draws {
		return nil, nil, 0
	}
	switch same := ins.DType == m.dtype; {
	case ins.Op == op.Where:
		return m.choice(ins, reg)
	case ins.Op == op.Mul && ins.DType == dtype.Float32:
		return m.scaledChoice(ins, reg)
	case same && (ins.Op == op.Add || ins.Op == op.Sub || ins.Op == op.Mul):
		f, args = m.arithmetic(ins, reg, false)
		return f, args, 1
	case same && ins.Op == op.Relu:
		if a := ins.args[0]; m.memory(a) {
			relu := m.set.Relu
			return func(r [][]byte, n int) { relu(words(r, reg, n), words(r, a, n)) }, []int{a}, 1
		}
		if before := m.by(ins.args[0]); before != nil && before.Op == op.Add && before.DType == m.dtype {
			f, args = m.arithmetic(before, reg, true)
			return f, args, 2
		}
	}
	return nil, nil, 0
}

// arithmetic matches an operation on two operands, the second of which may be a row.
func (m *lowMatcher) arithmetic(ins *instr, dst int, relu bool) (lanes.Loop, []int) {
	a, b := ins.args[0], ins.args[1]
	if !m.memory(a) && ins.Op != op.Sub {
		a, b = b, a
	}
	if !m.memory(a) || ins.from != m.dtype {
		return nil, nil
	}
	s := m.set
	both, row := s.Add, s.AddRow
	switch {
	case relu:
		both, row = s.AddRelu, s.AddReluRow
	case ins.Op == op.Sub:
		both, row = s.Sub, s.SubRow
	case ins.Op == op.Mul:
		both, row = s.Mul, s.MulRow
	}
	switch {
	case m.memory(b):
		return func(r [][]byte, n int) { both(words(r, dst, n), words(r, a, n), words(r, b, n)) }, []int{a, b}
	case m.row(b):
		return func(r [][]byte, n int) { row(words(r, dst, n), words(r, a, n), dtype.View[float32](r[b])[:n]) }, []int{a, b}
	}
	return nil, nil
}

// choice matches the gradient of a relu, or a dropout: a Where on scaled numbers.
func (m *lowMatcher) choice(ins *instr, dst int) (f lanes.Loop, args []int, count int) {
	c, yes, no := m.by(ins.args[0]), ins.args[1], ins.args[2]
	if !m.number(no) {
		return nil, nil, 0
	}
	if c != nil && c.Op == op.Greater && m.memory(c.args[0]) && m.number(c.args[1]) && m.memory(yes) {
		y, s, where := c.args[0], c.args[1], m.set.WhereGreater
		return func(r [][]byte, n int) {
			where(words(r, dst, n), words(r, y, n), words(r, yes, n), firstOf(r, s), firstOf(r, no))
		}, []int{y, yes, s, no}, 2
	}
	mul := m.by(yes)
	if mul == nil || mul.Op != op.Mul || !m.flags(ins.args[0]) {
		return nil, nil, 0
	}
	a, s := mul.args[0], mul.args[1]
	if !m.memory(a) {
		a, s = s, a
	}
	if !m.memory(a) || !isNumber(s, m.operands) {
		return nil, nil, 0
	}
	flags, where := ins.args[0], m.set.WhereScaled
	return func(r [][]byte, n int) {
		where(words(r, dst, n), r[flags][:n], words(r, a, n), firstOf(r, s), firstOf(r, no))
	}, []int{flags, a, s, no}, 2
}

// scaledChoice matches the gradient of a dropout: numbers are scaled after the Where.
func (m *lowMatcher) scaledChoice(ins *instr, dst int) (f lanes.Loop, args []int, count int) {
	c, s := m.by(ins.args[0]), ins.args[1]
	if c == nil {
		c, s = m.by(ins.args[1]), ins.args[0]
	}
	if c == nil || c.Op != op.Where || c.DType != m.dtype || !isNumber(s, m.operands) || !m.flags(c.args[0]) {
		return nil, nil, 0
	}
	flags, a, no, where := c.args[0], c.args[1], c.args[2], m.set.WhereScaled
	if !m.memory(a) || !m.number(no) {
		return nil, nil, 0
	}
	return func(r [][]byte, n int) {
		by := firstOf(r, s)
		where(words(r, dst, n), r[flags][:n], words(r, a, n), by, firstOf(r, no)*by)
	}, []int{flags, a, s, no}, 2
}

// flags reports whether reg is bools in memory or drawn.
func (m *lowMatcher) flags(reg int) bool {
	if ins := m.by(reg); ins != nil {
		return ins.draws
	}
	o := &m.operands[reg]
	return o.Access == Full && o.Producer == nil && o.DType == dtype.Bool
}

// words returns the first n elements of reg, a 16-bit type in memory.
func words(r [][]byte, reg, n int) []uint16 { return dtype.View[uint16](r[reg])[:n] }

// firstOf returns the scalar in reg.
func firstOf(r [][]byte, reg int) float32 { return dtype.View[float32](r[reg])[0] }
