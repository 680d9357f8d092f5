package elementwise

import (
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// pattern is a tree of operations on float32. Its leaves are vectors ('a' to 'f'),
// scalars ('s' to 'v') and a vector of bools ('k').
type pattern struct {
	leaf byte
	op   op.Code
	args []pattern
}

// chainPatterns are the trees that package vec computes in one loop, larger ones first.
// They are the steps of optimizers and normalizations: keeping an intermediate in a
// register is cheaper than a pass over the cache.
var chainPatterns = func() []chainPattern {
	leaf := func(name byte) pattern { return pattern{leaf: name} }
	k := leaf('k')
	do := func(c op.Code, args ...pattern) pattern { return pattern{op: c, args: args} }
	a, b, c, d, e, f := leaf('a'), leaf('b'), leaf('c'), leaf('d'), leaf('e'), leaf('f')
	s, t := leaf('s'), leaf('t')
	square := do(op.Square, b)
	lerp := func(b pattern) pattern { return do(op.Add, a, do(op.Mul, do(op.Sub, b, a), s)) }
	flush := func(a pattern) pattern { return do(op.Sub, do(op.Add, a, t), t) }
	blend := func(c op.Code, b pattern) pattern { return do(c, do(op.Mul, a, s), do(op.Mul, b, t)) }
	step := func(root pattern) pattern { return do(op.Sub, a, do(op.Div, do(op.Mul, b, s), root)) }
	scaled := func(a, b, c pattern) pattern { return do(op.Mul, do(op.Sub, a, b), c) }
	return []chainPattern{
		{
			root: do(op.Add, do(op.Mul, b, do(op.NormalCDF, a)), do(op.Mul, do(op.Mul, b, a), do(op.NormalPDF, a))),
			whole: func(set *vec.Set, dst []float32, in [6][]float32, _ [4]float32) {
				set.GeluGrad(dst, in[0], in[1])
			},
			common: func(set *vec.Set, dst []float32, in [6][]float32, _ [4]float32) {
				set.Common.GeluGrad(dst, in[0], in[1])
			},
		},
		{
			root:   do(op.Mul, a, do(op.NormalCDF, a)),
			whole:  func(set *vec.Set, dst []float32, in [6][]float32, _ [4]float32) { set.Gelu(dst, in[0]) },
			common: func(set *vec.Set, dst []float32, in [6][]float32, _ [4]float32) { set.Common.Gelu(dst, in[0]) },
		},
		{root: do(op.Add, do(op.Add, do(op.Mul, a, b), scaled(c, d, e)), f), whole: affineSum},
		{root: do(op.Add, scaled(a, b, c), d), whole: affine},
		{root: step(do(op.Add, do(op.Sqrt, c), t)), role: rootStep, slow: func(v *vec.Set) vec.SlowChain { return v.RootStep }},
		{root: step(do(op.Sqrt, do(op.Add, c, t))), slow: func(v *vec.Set) vec.SlowChain { return v.RootStepInside }},
		{root: flush(lerp(square)), role: secondMoment, of: func(v *vec.Set) vec.Chain { return v.LerpSquareFlush }},
		{root: flush(lerp(b)), role: firstMoment, of: func(v *vec.Set) vec.Chain { return v.LerpFlush }},
		{root: lerp(square), of: func(v *vec.Set) vec.Chain { return v.LerpSquare }},
		{root: lerp(b), of: func(v *vec.Set) vec.Chain { return v.Lerp }},
		{root: blend(op.Add, square), of: func(v *vec.Set) vec.Chain { return v.BlendSquare }},
		{root: blend(op.Add, b), of: func(v *vec.Set) vec.Chain { return v.Blend }},
		{root: blend(op.Sub, b), of: func(v *vec.Set) vec.Chain { return v.BlendSub }},
		{
			root: do(op.Where, k, do(op.Mul, a, s), t),
			masked: func(set *vec.Set, dst []float32, c []byte, a []float32, s, t float32) {
				set.WhereScaled(dst, c, a, s, t)
			},
		},
		{
			root: do(op.Mul, do(op.Where, k, a, t), s),
			masked: func(set *vec.Set, dst []float32, c []byte, a []float32, s, t float32) {
				set.WhereScaled(dst, c, a, s, t*s)
			},
		},
		{root: do(op.Add, a, do(op.Mul, b, s)), of: func(v *vec.Set) vec.Chain { return v.AddScaled }},
		{root: do(op.Sub, a, do(op.Mul, b, s)), of: func(v *vec.Set) vec.Chain { return v.SubScaled }},
	}
}()

// GeluRows returns the loop over rows with the bits of the chain, or nil.
func GeluRows() func(d unsafe.Pointer, ld, rows, n int) {
	switch set := vec.Native(); {
	case set == nil:
		return nil
	case isa.PortableBits():
		return set.Common.GeluRows
	default:
		return set.GeluRows
	}
}

type chainPattern struct {
	root  pattern
	role  role
	of    func(v *vec.Set) vec.Chain
	slow  func(v *vec.Set) vec.SlowChain                                 // instead of of
	whole func(v *vec.Set, dst []float32, in [6][]float32, n [4]float32) // instead of them
	// common replaces whole for portable bits, or is nil.
	common func(v *vec.Set, dst []float32, in [6][]float32, n [4]float32)
	// masked replaces the others for a vector of bools, another vector and two numbers.
	masked func(v *vec.Set, dst []float32, c []byte, a []float32, s, t float32)
}

// role is the argument of vec.Set.Moments that a chain computes.
type role uint8

const (
	firstMoment role = 1 + iota
	secondMoment
	rootStep
)

// affine is (a-b)·c + d. The elements after the last whole vector are computed in Go.
func affine(s *vec.Set, dst []float32, v [6][]float32, _ [4]float32) {
	n := len(dst) / s.Lanes * s.Lanes
	s.Affine(dst[:n], v)
	for i := n; i < len(dst); i++ {
		dst[i] = float32((v[0][i]-v[1][i])*v[2][i]) + v[3][i]
	}
}

// affineSum is a·b + (c-d)·e + f.
func affineSum(s *vec.Set, dst []float32, v [6][]float32, _ [4]float32) {
	n := len(dst) / s.Lanes * s.Lanes
	s.AffineSum(dst[:n], v)
	for i := n; i < len(dst); i++ {
		dst[i] = float32(float32(v[0][i]*v[1][i])+float32((v[2][i]-v[3][i])*v[4][i])) + v[5][i]
	}
}

// chained replaces several instructions by one loop where it can. It leaves the
// replaced instructions to needed.
func (c *code) chained(list []instr, operands []operand) []instr {
	if vec.Native() == nil {
		return list
	}
	m := matcher{laneTypes: c.laneTypes, operands: operands, defs: map[int]*instr{}, reads: map[int]int{}}
	for i := range list {
		m.defs[list[i].dst] = &list[i]
		for _, a := range list[i].args {
			m.reads[a]++
		}
	}
	for _, r := range c.results {
		m.reads[r.reg]++
	}
	out := slices.Clone(list)
	for i := range slices.Backward(out) {
		for j := range chainPatterns {
			p, b := &chainPatterns[j], unbound
			if m.match(&p.root, out[i].dst, true, &b) {
				out[i].chain, out[i].args = p, nil
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

// binding is the block buffers that leaves match: vectors, then numbers and bools; -1
// is unbound.
type binding [11]int

var unbound = binding{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}

type matcher struct {
	laneTypes []lanes.Type // lane types of block buffers
	operands  []operand
	defs      map[int]*instr
	reads     map[int]int
}

// match reports whether block buffer reg is computed as p describes, and binds leaves.
func (m *matcher) match(p *pattern, reg int, root bool, b *binding) bool {
	if p.leaf != 0 {
		number, want := p.leaf >= 's', lanes.F32
		at := int(p.leaf - 'a')
		switch {
		case number:
			at = 6 + int(p.leaf-'s')
		case p.leaf == 'k':
			at, want = len(b)-1, lanes.Bool
		}
		if number != m.number(reg) || m.laneTypes[reg] != want || b[at] >= 0 && b[at] != reg {
			return false
		}
		b[at] = reg
		return true
	}
	ins := m.defs[reg]
	if ins == nil || ins.Op != p.op || ins.DType != dtype.Float32 && (root || !ins.Op.Info().Selects || !ins.DType.Is16()) || !root && m.reads[reg] > 1 {
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

// number reports whether reg is the same float for all elements.
func (m *matcher) number(reg int) bool { return isNumber(reg, m.operands) }

// isNumber is number for lane type float32.
func isNumber(reg int, operands []operand) bool {
	return reg < len(operands) && operands[reg].Access == scalar && (operands[reg].DType == dtype.Float32 || operands[reg].DType.Is16())
}

// chainExec binds the loop of a chain to block buffers: vectors, then numbers. The
// buffers after through are prefetched.
func chainExec(ins instr, operands []operand, through int) lanes.Loop {
	var in, numbers []int
	for _, a := range ins.args {
		if isNumber(a, operands) {
			numbers = append(numbers, a)
		} else {
			in = append(in, a)
		}
	}
	vector := func(r [][]byte, reg, n int) []float32 { return dtype.View[float32](r[reg])[:n] }
	number := func(r [][]byte, i int) float32 {
		if i < len(numbers) {
			return dtype.View[float32](r[numbers[i]])[0]
		}
		return 0
	}
	dst := ins.dst
	if f := ins.chain.masked; f != nil {
		set, a, c := vec.Native(), in[0], in[1]
		return func(r [][]byte, n int) {
			f(set, vector(r, dst, n), r[c][:n], vector(r, a, n), number(r, 0), number(r, 1))
		}
	}
	if whole := ins.chain.whole; whole != nil {
		if common := ins.chain.common; common != nil && isa.PortableBits() {
			whole = common
		}
		set := vec.Native()
		return func(r [][]byte, n int) {
			var v [6][]float32
			for i, reg := range in {
				v[i] = vector(r, reg, n)
			}
			whole(set, vector(r, dst, n), v, [4]float32{number(r, 0), number(r, 1), number(r, 2), number(r, 3)})
		}
	}
	if ins.chain.slow == nil {
		f := ins.chain.of(vec.Native())
		return func(r [][]byte, n int) {
			f(vector(r, dst, n), vector(r, in[0], n), vector(r, in[1], n), number(r, 0), number(r, 1))
		}
	}
	f := ins.chain.slow(vec.Native())
	return func(r [][]byte, n int) {
		var prefetched [mostPrefetched]unsafe.Pointer
		for i := range prefetched {
			prefetched[i] = unsafe.Pointer(unsafe.SliceData(r[dst]))
			if next := r[through+1+i]; len(next) > 0 {
				prefetched[i] = unsafe.Pointer(unsafe.SliceData(next))
			}
		}
		f(vector(r, dst, n), vector(r, in[0], n), vector(r, in[1], n), vector(r, in[2], n), number(r, 0), number(r, 1), prefetched)
	}
}

// updatesMoments reports whether three instructions are vec.Set.Moments: both moments of
// a gradient and the step.
func updatesMoments(list []instr) bool {
	first, second, step := byRole(list)
	return first != nil && second != nil && step == &list[2] &&
		step.args[1] == first.dst && step.args[2] == second.dst && first.args[1] == second.args[1]
}

func byRole(list []instr) (first, second, step *instr) {
	for i := range list {
		if p := list[i].chain; p != nil {
			switch p.role {
			case firstMoment:
				first = &list[i]
			case secondMoment:
				second = &list[i]
			case rootStep:
				step = &list[i]
			}
		}
	}
	return first, second, step
}

// momentsExec computes three instructions in one loop if the moments are updated in
// place, as in training steps.
func momentsExec(list []instr, operands []operand, separate [3]lanes.Loop) lanes.Loop {
	first, second, step := byRole(list)
	numbers := slices.Concat(first.args[2:], second.args[2:], step.args[3:])
	to, from := [3]int{first.dst, second.dst, step.dst}, [3]int{first.args[0], second.args[0], step.args[0]}
	gradient, f := first.args[1], vec.Native().Moments
	return func(r [][]byte, n int) {
		start := func(reg int) *byte { return unsafe.SliceData(r[reg]) }
		if start(to[0]) != start(from[0]) || start(to[1]) != start(from[1]) || start(to[2]) == start(gradient) {
			for _, f := range separate {
				f(r, n)
			}
			return
		}
		vector := func(reg int) []float32 { return dtype.View[float32](r[reg])[:n] }
		if start(to[2]) != start(from[2]) { // a weight after weight decay
			copy(vector(to[2]), vector(from[2]))
		}
		number := func(i int) float32 { return dtype.View[float32](r[numbers[i]])[0] }
		f(vector(to[0]), vector(to[1]), vector(to[2]), vector(gradient),
			number(0), number(1), number(2), number(3), number(4), number(5))
	}
}

// mostPrefetched is the most operands that a slow loop can prefetch.
const mostPrefetched = 4

// findPrefetched picks the operands that slow loops prefetch one block ahead.
func (c *code) findPrefetched(operands []operand, list []instr) {
	if !slices.ContainsFunc(list, func(ins instr) bool { return ins.chain != nil && ins.chain.slow != nil }) {
		return
	}
	for i, o := range operands {
		if o.Access == Full && o.DType == dtype.Float32 && o.slot.Place != ir.Nowhere && len(c.prefetched) < mostPrefetched {
			c.prefetched = append(c.prefetched, i)
		}
	}
}

// scalarLoop returns the loop of an operation on a vector and a number, or nil.
func scalarLoop(ins instr, operands []operand) (f vec.Scalar, vector, number int) {
	v := vec.Native()
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

// findSingles marks the scalars that loops read only as numbers.
func (c *code) findSingles(operands []operand, list []instr) {
	for i := range operands {
		c.single[i] = isNumber(i, operands) && !c.isResult(i) && !slices.ContainsFunc(list, func(ins instr) bool {
			if !slices.Contains(ins.args, i) || ins.chain != nil || ins.draws || ins.numbers {
				return false
			}
			f, _, _ := scalarLoop(ins, operands)
			return f == nil
		})
	}
}

// findDraw looks for a comparison of random numbers with a scalar, as in dropout, that
// is their only use. If package vec has assembly for it (16-bit draws), the comparison
// reads the bits as they are drawn.
func (c *code) findDraw(operands []operand, list []instr) {
	for i := range list {
		ins := &list[i]
		if ins.Op != op.GreaterEqual || ins.args[0] >= len(operands) || !isNumber(ins.args[1], operands) {
			continue
		}
		from := ins.args[0]
		numbers, ok := operands[from].Producer.(*random)
		if !ok || !numbers.bits16 || vec.Native() == nil || c.isResult(from) || slices.ContainsFunc(list, func(o instr) bool { return o.dst != ins.dst && slices.Contains(o.args, from) }) {
			continue
		}
		ins.draws, ins.args = true, ins.args[1:]
		c.draw = &flagDraw{numbers, ins.args[0], ins.dst}
		return
	}
}

// flagDraw is a vector of bools: which random numbers are at least a number.
type flagDraw struct {
	random *random
	number int // block buffer
	dst    int
}

// loop returns the loop of an instruction.
func (c *code) loop(ins instr, operands []operand, through int) lanes.Loop {
	if ins.chain != nil {
		return chainExec(ins, operands, through)
	}
	if f, x, s := scalarLoop(ins, operands); f != nil {
		dst := ins.dst
		return func(r [][]byte, n int) {
			f(dtype.View[float32](r[dst])[:n], dtype.View[float32](r[x])[:n], dtype.View[float32](r[s])[0])
		}
	}
	return loop(ins.Instr, ins.from, ins.dst, ins.args, through)
}
