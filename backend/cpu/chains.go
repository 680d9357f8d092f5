package cpu

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// pattern is a tree of operations on float32: a vector ('a', 'b', 'c'), a
// scalar ('s', 't'), or an operation on patterns.
type pattern struct {
	leaf byte
	op   op.Code
	args []pattern
}

// chainPatterns are the trees that package vec has one loop for, larger ones
// first. What optimizers do is made of them: a register each costs less than
// a pass over the cache.
var chainPatterns = func() []chainPattern {
	leaf := func(name byte) pattern { return pattern{leaf: name} }
	do := func(c op.Code, args ...pattern) pattern { return pattern{op: c, args: args} }
	a, b, c, s, t := leaf('a'), leaf('b'), leaf('c'), leaf('s'), leaf('t')
	square := do(op.Square, b)
	lerp := func(b pattern) pattern { return do(op.Add, a, do(op.Mul, do(op.Sub, b, a), s)) }
	blend := func(b pattern) pattern { return do(op.Add, do(op.Mul, a, s), do(op.Mul, b, t)) }
	step := func(root pattern) pattern { return do(op.Sub, a, do(op.Div, do(op.Mul, b, s), root)) }
	return []chainPattern{
		{step(do(op.Add, do(op.Sqrt, c), t)), func(v *vec.Set) vec.Chain { return v.RootStep }},
		{step(do(op.Sqrt, do(op.Add, c, t))), func(v *vec.Set) vec.Chain { return v.RootStepInside }},
		{lerp(square), func(v *vec.Set) vec.Chain { return v.LerpSquare }},
		{lerp(b), func(v *vec.Set) vec.Chain { return v.Lerp }},
		{blend(square), func(v *vec.Set) vec.Chain { return v.BlendSquare }},
		{blend(b), func(v *vec.Set) vec.Chain { return v.Blend }},
		{do(op.Add, a, do(op.Mul, b, s)), func(v *vec.Set) vec.Chain { return v.AddScaled }},
		{do(op.Sub, a, do(op.Mul, b, s)), func(v *vec.Set) vec.Chain { return v.SubScaled }},
	}
}()

type chainPattern struct {
	root pattern
	of   func(v *vec.Set) vec.Chain
}

// chained puts one loop in the place of several where there is one. The
// instructions that it takes the place of are left to needed.
func chained(list []instr, results []result, operands []operand) []instr {
	v := vectors()
	if v == nil {
		return list
	}
	m := matcher{operands: operands, made: map[int]*instr{}, reads: map[int]int{}}
	for i := range list {
		m.made[list[i].dst] = &list[i]
		for _, a := range list[i].args {
			m.reads[a]++
		}
	}
	for _, r := range results {
		m.reads[r.reg]++
	}
	out := slices.Clone(list)
	for i := range slices.Backward(out) {
		for _, p := range chainPatterns {
			b := unbound
			if m.match(&p.root, out[i].dst, true, &b) {
				out[i].chain, out[i].args = p.of(v), nil
				for _, reg := range b {
					if reg >= 0 {
						out[i].args = append(out[i].args, reg)
					}
				}
				break
			}
		}
	}
	return out
}

// binding is the registers that the leaves of a pattern stand for, vectors
// first, -1 where there is none yet.
type binding [5]int

var unbound = binding{-1, -1, -1, -1, -1}

type matcher struct {
	operands []operand
	made     map[int]*instr
	reads    map[int]int
}

// match reports whether register reg is what p describes, and binds leaves.
func (m *matcher) match(p *pattern, reg int, root bool, b *binding) bool {
	if p.leaf != 0 {
		number := p.leaf >= 's'
		at := int(p.leaf - 'a')
		if number {
			at = 3 + int(p.leaf-'s')
		}
		if number != m.number(reg) || b[at] >= 0 && b[at] != reg {
			return false
		}
		b[at] = reg
		return true
	}
	ins := m.made[reg]
	if ins == nil || ins.Op != p.op || ins.DType != dtype.Float32 || !root && m.reads[reg] > 1 {
		return false
	}
	was := *b
	if m.matchAll(p.args, ins.args, b) {
		return true
	}
	*b = was
	if ins.Op == op.Add || ins.Op == op.Mul {
		if m.matchAll(p.args, []int{ins.args[1], ins.args[0]}, b) {
			return true
		}
		*b = was
	}
	return false
}

func (m *matcher) matchAll(p []pattern, regs []int, b *binding) bool {
	for i := range p {
		if !m.match(&p[i], regs[i], false, b) {
			return false
		}
	}
	return true
}

// number reports whether a register is the same float32 for all elements.
func (m *matcher) number(reg int) bool { return isNumber(reg, m.operands) }

func isNumber(reg int, operands []operand) bool {
	return reg < len(operands) && operands[reg].access == scalar && operands[reg].dtype == dtype.Float32
}

// chainExec binds the loop of a chain to registers: vectors, then numbers.
func chainExec(ins instr, operands []operand) exec {
	var vectors, numbers []int
	for _, a := range ins.args {
		if isNumber(a, operands) {
			numbers = append(numbers, a)
		} else {
			vectors = append(vectors, a)
		}
	}
	f, dst := ins.chain, ins.dst
	return func(r [][]byte, n int) {
		var v [3][]float32
		for i, a := range vectors {
			v[i] = dtype.View[float32](r[a])[:n]
		}
		var s [2]float32
		for i, a := range numbers {
			s[i] = dtype.View[float32](r[a])[0]
		}
		f(dtype.View[float32](r[dst])[:n], v[0], v[1], v[2], s[0], s[1])
	}
}

// scalarLoop is the loop of an instruction between a vector and a number, or
// nil.
func scalarLoop(ins instr, operands []operand) (f vec.Scalar, vector, number int) {
	v := vectors()
	if v == nil || len(ins.args) != 2 || ins.DType != dtype.Float32 || ins.from != dtype.Float32 {
		return nil, 0, 0
	}
	x, y := ins.args[0], ins.args[1]
	switch {
	case isNumber(x, operands) == isNumber(y, operands):
		return nil, 0, 0
	case isNumber(y, operands):
		return map[op.Code]vec.Scalar{op.Add: v.AddScalar, op.Sub: v.SubScalar, op.Mul: v.MulScalar, op.Div: v.DivScalar}[ins.Op], x, y
	}
	return map[op.Code]vec.Scalar{op.Add: v.AddScalar, op.Sub: v.ScalarSub, op.Mul: v.MulScalar, op.Div: v.ScalarDiv}[ins.Op], y, x
}

// findSingles marks the scalars that loops only read as numbers.
func (c *code) findSingles(operands []operand, list []instr) {
	for i := range operands {
		c.single[i] = isNumber(i, operands) && !c.isResult(i) && !slices.ContainsFunc(list, func(ins instr) bool {
			if !slices.Contains(ins.args, i) || ins.chain != nil {
				return false
			}
			f, _, _ := scalarLoop(ins, operands)
			return f == nil
		})
	}
}

// loop makes the loop of an instruction.
func (c *code) loop(ins instr, operands []operand, through int) exec {
	if ins.chain != nil {
		return chainExec(ins, operands)
	}
	if f, x, s := scalarLoop(ins, operands); f != nil {
		dst := ins.dst
		return func(r [][]byte, n int) {
			f(dtype.View[float32](r[dst])[:n], dtype.View[float32](r[x])[:n], dtype.View[float32](r[s])[0])
		}
	}
	return loop(ins.Instr, ins.from, ins.dst, ins.args, through)
}
