package tensor

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// fold is a convolution or product and the affine chain after it, such as batch
// normalization in inference, whose factors and summands depend on variables alone. The
// factors go into the kernel and the summands become a bias: y = (x ∗ (k·gain)) + shift. Those
// of a kernel of int8 go into its scales, by which its sums are divided.
type fold struct {
	contraction *Tensor
	kernel      *Variable // or that of its scales
	chain       []*Tensor // after it, to the last factor or summand
	gain, shift *Tensor   // vectors or scalars of the type that the chain computes in; shift may be nil
}

// foldChains records the values of chains with their factors folded into kernels, to
// be captured instead of those that roots depend on. A program that assigns something
// is left as it is.
func (c *capture) foldChains(roots []*Tensor) {
	if len(c.trace.assigned) > 0 {
		return
	}
	all, users := reachable(roots)
	for _, t := range all {
		if t.op != op.Conv && t.op != op.MatMul && t.op != op.QuantizedConv {
			continue
		}
		if f := newFold(t, users); f != nil {
			c.instead[f.chain[len(f.chain)-1]] = c.record(f)
		}
	}
}

// reachable returns what roots are computed from in this recording, and how often each is
// read; roots are read once more.
func reachable(roots []*Tensor) (all []*Tensor, users map[*Tensor][]*Tensor) {
	users = map[*Tensor][]*Tensor{}
	for _, r := range roots {
		users[r] = append(users[r], nil)
	}
	seen, stack := map[*Tensor]bool{}, slices.Clone(roots)
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[t] {
			continue
		}
		seen[t] = true
		all = append(all, t)
		if t.data != nil {
			continue
		}
		for _, a := range t.args {
			users[a] = append(users[a], t)
			stack = append(stack, a)
		}
	}
	return all, users
}

// newFold returns the fold that begins with t, or nil.
func newFold(t *Tensor, users map[*Tensor][]*Tensor) *fold {
	f := &fold{contraction: t, kernel: kernelOf(t)}
	if f.kernel == nil {
		return nil
	}
	channels := t.typ.Shape[t.Rank()-1]
	taken := 0
	for last := t; len(users[last]) == 1 && users[last][0] != nil; {
		next := users[last][0]
		if !f.take(next, last, channels) {
			break
		}
		f.chain = append(f.chain, next)
		if next.op != op.Cast && next.op != op.Reshape {
			taken = len(f.chain)
		}
		last = next
	}
	f.chain = f.chain[:taken]
	if f.gain == nil {
		return nil
	}
	return f
}

// weightAt is the argument of a contraction that factors go into.
func weightAt(c op.Code) int {
	if c == op.QuantizedConv {
		return 2
	}
	return 1
}

// kernelOf returns the variable that is the kernel of a contraction, or its scales, whose
// last axis is the last axis of its result, or nil.
func kernelOf(t *Tensor) *Variable {
	if t.op == op.MatMul && (t.attr.TransB || t.args[1].Rank() != 2) || t.Rank() == 0 {
		return nil
	}
	k := t.args[weightAt(t.op)]
	for k.op == op.Reshape || k.op == op.Barrier || k.op == op.Cast && k.typ.DType.IsFloat() && k.args[0].typ.DType.IsFloat() {
		k = k.args[0]
	}
	return k.variable
}

// take adds the next operation of the chain to gain and shift, if it is one.
func (f *fold) take(next, last *Tensor, channels int) bool {
	if !next.typ.DType.IsFloat() {
		return false
	}
	switch next.op {
	case op.Reshape:
		s := next.typ.Shape
		return len(s) > 0 && s[len(s)-1] == channels
	case op.Cast:
		// To fewer bits: behind the chain, as a layer's result is.
		return last.typ.DType.Widens(next.typ.DType)
	case op.Add, op.Sub, op.Mul:
	default:
		return false
	}
	by := next.args[1]
	if by == last {
		by = next.args[0]
	}
	switch {
	case by == last, next.op == op.Sub && by == next.args[0], next.op == op.Mul && next.typ.DType.Is16():
		return false
	case !next.typ.Equal(last.typ) || !perChannel(by, channels) || !ofVariables(by):
		return false
	}
	wide := dtype.Float32
	if next.typ.DType == dtype.Float64 {
		wide = dtype.Float64
	}
	by = by.Cast(wide).Reshape(by.typ.Shape.Size())
	switch {
	case next.op == op.Mul:
		f.gain = combine(f.gain, by, (*Tensor).Mul, nil)
		if f.shift != nil {
			f.shift = combine(f.shift, by, (*Tensor).Mul, nil)
		}
	case next.op == op.Add:
		f.shift = combine(f.shift, by, (*Tensor).Add, nil)
	default:
		f.shift = combine(f.shift, by, (*Tensor).Sub, (*Tensor).Neg)
	}
	return true
}

// combine is f(x, y) in the wider of their types, or first(y) if there is no x.
func combine(x, y *Tensor, f func(x, y *Tensor) *Tensor, first func(*Tensor) *Tensor) *Tensor {
	switch {
	case x == nil && first == nil:
		return y
	case x == nil:
		return first(y)
	}
	wide := dtype.Promote(x.typ.DType, y.typ.DType)
	return f(x.Cast(wide), y.Cast(wide))
}

// perChannel reports whether t has one element, or one for each channel along the last
// axis.
func perChannel(t *Tensor, channels int) bool {
	n := t.typ.Shape.Size()
	return n == 1 || n == channels && t.typ.Shape[t.Rank()-1] == channels
}

// ofVariables reports whether t is computed from variables and constants alone, element
// by element.
func ofVariables(t *Tensor) bool {
	switch {
	case t.variable != nil:
		return true
	case t.data != nil || t.argument >= 0:
		return false
	case t.op == op.Const, t.op == op.Reshape, t.op == op.Barrier, t.op.Info().Class == op.Elementwise:
		return !slices.ContainsFunc(t.args, func(a *Tensor) bool { return !ofVariables(a) })
	}
	return false
}

// record records the value of f: the contraction with the folded kernel, what lay between
// the factors and summands, and the bias.
func (c *capture) record(f *fold) *Tensor {
	t := f.contraction
	since := SequencePoint()
	last := f.chain[len(f.chain)-1]
	wide := f.gain.typ.DType
	args := slices.Clone(t.args)
	at := weightAt(t.op)
	kernel := f.widened(args[at], wide)
	if t.op == op.QuantizedConv {
		kernel = kernel.Div(f.gain)
	} else {
		kernel = kernel.Mul(f.gain)
	}
	args[at] = kernel.Cast(args[at].typ.DType)
	c.derive(args[at], f.kernel, "folded kernel")
	y := Record(t.op, t.attr, args...)
	Label(t.path, since, y)
	for _, between := range f.chain {
		switch between.op {
		case op.Cast:
			y = y.Cast(between.typ.DType)
		case op.Reshape:
			y = y.Reshape(between.typ.Shape...)
		}
	}
	if f.shift != nil {
		shift := f.shift.Cast(y.typ.DType)
		c.derive(shift, f.kernel, "folded bias")
		y = y.Add(shift)
	}
	Label(last.path, since, y)
	return y
}

// widened is a kernel before it was cast to 16 bits: a factor is applied before rounding.
func (f *fold) widened(k *Tensor, wide dtype.DType) *Tensor {
	shape := k.typ.Shape
	for k.variable == nil {
		k = k.args[0] // see kernelOf
	}
	return k.Cast(wide).Reshape(shape...)
}

// derive lets the program read t, which is computed from variables alone, from a copy that
// is kept from run to run.
func (c *capture) derive(t *Tensor, owner *Variable, what string) {
	if !c.shadows || t.variable != nil {
		return
	}
	inner := newCapture(c.trace)
	inner.output(t, -1)
	h := &shadow{of: owner, typ: t.typ, name: fmt.Sprintf("%s (%s)", owner.name, what), graph: inner.graph}
	for _, s := range inner.sources {
		h.from = append(h.from, s.variable)
	}
	if len(h.from) == 0 {
		return // constants alone: there is nothing whose change would fill a copy
	}
	// A program of other settings may round in another way.
	h.key = string(inner.graph.AppendKey(fmt.Appendf(nil, "%v ", currentSettings())))
	if i := slices.IndexFunc(owner.folded, h.same); i >= 0 {
		h = owner.folded[i]
	} else {
		owner.folded = append(owner.folded, h)
	}
	c.derived[t] = h
}

// same reports whether o is computed from the same variables in the same way.
func (h *shadow) same(o *shadow) bool { return h.key == o.key && slices.Equal(h.from, o.from) }

// FoldNormalization says whether later calls fold what follows a convolution or a product
// of a kernel and depends on variables alone, such as batch normalization in inference,
// into the kernel and a bias (the default is that they do not). The folded kernels are kept
// until one of their variables changes. Calls that assign variables never fold. Programs
// made so far are forgotten.
//
// Sums are rounded in another order: in float32 results differ from the unfolded ones
// by about as much as those of two orders of a sum's terms do, and kernels in 16 bits are
// rounded once, as before, but after the factor. MEZZO_SKIP=folding switches it off.
func (fn *Func[In, Out]) FoldNormalization(on bool) {
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.folds = on && backend.Folds()
	fn.core.plans = nil
}
