package backendtest

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// scalarCases are the cases of unary operations with a formula, which need none
// of their own.
func scalarCases(c op.Code) func(*builder) {
	info := c.Info()
	switch {
	case info.Scalar == nil || info.Args != 1:
		return nil
	case info.Scalar.Positive:
		return unaryCases(positive)
	}
	return unaryCases(numbers)
}

func init() {
	register(unaryCases(numbers), op.Not, op.IsFinite)
	register(castCases, op.Cast)
	register(binaryCases(numbers, true), op.Add, op.Sub, op.Mul, op.Div)
	register(binaryCases(few, true),
		op.Maximum, op.Minimum, op.Equal, op.NotEqual, op.Less, op.LessEqual, op.Greater, op.GreaterEqual, op.And, op.Or)
	register(modCases, op.Mod)
	register(binaryCases(positive, false), op.Pow)
	register(whereCases, op.Where)
	register(fusedCases, op.Fused)
}

func unaryCases(f fill) func(*builder) {
	return func(b *builder) {
		for _, s := range shapeClasses {
			b.add(s.name, op.Attr{}, []op.Type{b.t(s.shape...)}, f).Large = large(s.name)
		}
		b.add("special", op.Attr{}, []op.Type{b.t(101)}, special)
		if b.dtype.Is16() {
			b.add("halves", op.Attr{}, []op.Type{b.t(65536)}, allBits16)
		} else {
			b.add("bits", op.Attr{}, []op.Type{b.t(5000)}, bits)
		}
	}
}

func castCases(b *builder) {
	for _, to := range dtype.All() {
		a := op.Attr{DType: to}
		name := to.String()
		for _, s := range shapeClasses {
			b.add(name+"/"+s.name, a, []op.Type{b.t(s.shape...)}, numbers).Large = large(s.name) && to.Is16() && b.dtype == dtype.Float32
		}
		b.add(name+"/special", a, []op.Type{b.t(101)}, special)
		if b.dtype.Is16() {
			b.add(name+"/halves", a, []op.Type{b.t(65536)}, allBits16)
		} else {
			b.add(name+"/bits", a, []op.Type{b.t(5000)}, bits)
		}
	}
}

// binaryCases has, with exact, random bit patterns: the operation is correctly
// rounded, so that every pair can be compared.
func binaryCases(f fill, exact bool) func(*builder) {
	return func(b *builder) {
		shapesOfTwo(b, f)
		// Every special value with every other.
		n := 65
		b.add("special", op.Attr{}, []op.Type{b.t(n, 1), b.t(1, n)}, special)
		if exact {
			b.add("bits", op.Attr{}, []op.Type{b.t(40007), b.t(40007)}, bits)
		}
	}
}

func shapesOfTwo(b *builder, f fill) {
	for _, s := range shapeClasses {
		b.add(s.name, op.Attr{}, []op.Type{b.t(s.shape...), b.t(s.shape...)}, f).Large = large(s.name)
	}
	for _, s := range broadcastClasses {
		b.add(s.name, op.Attr{}, []op.Type{b.t(s.x...), b.t(s.y...)}, f).Large = large(s.name)
	}
}

// modCases has no infinities: x modulo ∞ is x for C and Python, NaN after the
// formula, and nothing depends on it.
func modCases(b *builder) {
	shapesOfTwo(b, eighths)
	f := fill(special)
	if b.dtype.IsFloat() {
		f = values(specialFloats(b.dtype)[2], 0, 1, -1, 0.5, -0.5, 1.5, -2.5, 3, -7, 8, 100)
	}
	b.add("special", op.Attr{}, []op.Type{b.t(17, 1), b.t(1, 17)}, f)
}

func whereCases(b *builder) {
	cond := func(s ...int) op.Type { return op.Type{DType: dtype.Bool, Shape: s} }
	for _, s := range shapeClasses {
		b.add(s.name, op.Attr{}, []op.Type{cond(s.shape...), b.t(s.shape...), b.t(s.shape...)}, numbers).Large = large(s.name)
	}
	for _, s := range broadcastClasses {
		b.add(s.name, op.Attr{}, []op.Type{cond(s.x...), b.t(s.x...), b.t(s.y...)}, numbers)
		b.add(s.name+"Condition", op.Attr{}, []op.Type{cond(s.y...), b.t(s.x...), b.t(s.x...)}, numbers)
	}
	// The same condition for a whole tensor: how an update is skipped.
	b.add("switch", op.Attr{}, []op.Type{cond(), b.t(1023), b.t(1023)}, numbers)
	b.add("special", op.Attr{}, []op.Type{cond(101), b.t(101), b.t(101)}, numbers, special, numbers)
}

// fusedCases compares written bodies with the reference. That a fused chain
// has the bits of its parts is tested on random ones in testFusion.
func fusedCases(b *builder) {
	if !b.dtype.IsFloat() {
		b.err = errNotFused
		return
	}
	d := b.dtype
	// The update of SGD under a skip: where(c, w - lr·g, w).
	update := &op.Body{Inputs: []dtype.DType{dtype.Bool, d, d, d}, Code: []op.Instr{
		{Op: op.Mul, DType: d, Args: [3]int32{3, 2}},
		{Op: op.Sub, DType: d, Args: [3]int32{1, 4}},
		{Op: op.Where, DType: d, Args: [3]int32{0, 5, 1}},
	}}
	// A layer's epilogue: relu(x + bias), in another type.
	bias := &op.Body{Inputs: []dtype.DType{d, d}, Code: []op.Instr{
		{Op: op.Add, DType: d, Args: [3]int32{0, 1}},
		{Op: op.Relu, DType: d, Args: [3]int32{2}},
		{Op: op.Cast, DType: dtype.Float32, Args: [3]int32{3}},
	}}
	for _, s := range shapeClasses {
		t := b.t(s.shape...)
		b.add("update/"+s.name, op.Attr{Body: update},
			[]op.Type{{DType: dtype.Bool}, t, b.t(), t}, numbers).Large = large(s.name)
		b.add("bias/"+s.name, op.Attr{Body: bias}, []op.Type{t, t}, numbers).Large = large(s.name)
	}
	for _, s := range broadcastClasses {
		b.add("bias/"+s.name, op.Attr{Body: bias}, []op.Type{b.t(s.x...), b.t(s.y...)}, numbers).Large = large(s.name)
	}
	b.add("update/special", op.Attr{Body: update}, []op.Type{{DType: dtype.Bool, Shape: op.Shape{2}}, b.t(65, 1), b.t(), b.t(1, 2)}, special)
}
