package tensor

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Autocast runs f, and lets what it records in float32 compute in d, float16 or bfloat16,
// where that is safe and faster. Tensors keep the type float32, so f needs no change;
// outside of a Function it has no effect. Inside another Autocast the inner one counts,
// and float32 switches it off for a part.
//
// Which operations compute in d is decided when all is known that f recorded: at the
// first call of Gradients, or at the end of the recording, as TensorFlow's
// auto_mixed_precision does it on graphs (grappler/optimizers/auto_mixed_precision.cc)
// and not call by call as torch.autocast does. Operations are on lists by their numerics
// (op.Info.Precision): products are allowed; exp, log and sums are denied, and what they
// lead to up to the next product; others follow their neighbours. A constant that d
// rounds to 0 or to infinity denies its reader. Where only float32 reads a product, it
// stores float32.
//
// Gradients follow the types of what they are gradients of; those of variables are
// float32. With float16 the loss must be scaled: see optimizers.LossScaleOptimizer.
func Autocast(d dtype.DType, f func()) {
	if d != dtype.Float32 && !d.Is16() {
		Fail("Autocast", "got %v, want float16 or bfloat16, or float32 to switch it off", d)
	}
	tr := current()
	if tr == nil {
		f()
		return
	}
	before := tr.autocast
	if tr.autocast = d; d == dtype.Float32 {
		tr.autocast = dtype.Invalid
	}
	defer func() { tr.autocast = before }()
	f()
}

// painter decides which tensors of a recording compute in 16 bits.
type painter struct {
	all     []*Tensor // in order
	readers map[*Tensor][]*Tensor
	colors  map[*Tensor]color
	casts   map[castTo]*Tensor
	narrow  map[*Tensor]*Tensor // what computes a painted tensor in 16 bits
}

// castTo is a tensor as another type, within a segment.
type castTo struct {
	t *Tensor
	d dtype.DType
	s *segment
}

type color uint8

const (
	unpainted color = iota
	painted
	denied
)

// paint makes tensors that roots depend on, and that were recorded under Autocast,
// compute in 16 bits where that is safe. It is the whole of auto_mixed_precision's
// passes 1 to 4 and 6; pass 5, support by the device, is no question: devices compute
// every operation in every float type.
func paint(roots ...*Tensor) {
	p := &painter{readers: map[*Tensor][]*Tensor{}, colors: map[*Tensor]color{}, casts: map[castTo]*Tensor{}, narrow: map[*Tensor]*Tensor{}}
	any := false
	visit(func(t *Tensor) {
		p.all = append(p.all, t)
		any = any || t.autocast != dtype.Invalid
	}, roots...)
	if !any {
		return
	}
	slices.SortFunc(p.all, bySeq)
	for _, t := range p.all {
		for _, a := range t.args {
			p.readers[a] = append(p.readers[a], t)
		}
	}
	p.choose()
	if backend.DebugFromEnv().Autocast {
		p.print()
	}
	for _, t := range p.all {
		p.rewrite(t)
		t.autocast = dtype.Invalid
	}
}

// free reports whether a tensor may compute in 16 bits: a float32 result that was
// recorded under Autocast.
func free(t *Tensor) bool {
	return t.autocast != dtype.Invalid && t.typ.DType == dtype.Float32 && t.data == nil && t.variable == nil && t.custom == nil &&
		t.trace != nil && !t.trace.eager && len(t.args) > 0
}

// onNoList marks operations that are neither painted nor deny others.
const onNoList op.Precision = 0xff

// list is the list that a tensor is on.
func list(t *Tensor) op.Precision {
	info := t.op.Info()
	switch {
	case t.op == op.Const:
		return op.Clear
	case info.Class == op.Leaf, t.op == op.Loop, t.op == op.Cast, t.op == op.Result, t.custom != nil:
		return onNoList
	case t.op == op.Gather && t.args[0].variable != nil:
		return onNoList // rows of a table: 16 bits of all would cost more than they save
	}
	return info.Precision
}

// vanishes reports whether rounding to d makes a constant 0 or infinite, such as 1e-8.
func vanishes(t *Tensor, d dtype.DType) bool {
	if t.op != op.Const || t.attr.Data != nil || t.attr.Value == 0 || math.IsInf(t.attr.Value, 0) || math.IsNaN(t.attr.Value) {
		return false
	}
	x := math.Abs(t.attr.Value)
	return x > d.Max() || x < d.SmallestSubnormal()/2
}

// choose sets the colors.
func (p *painter) choose() {
	// 1. Products.
	var products []*Tensor
	for _, t := range p.all {
		if free(t) && list(t) == op.Allow && p.fits(t) {
			p.colors[t] = painted
			products = append(products, t)
		}
	}
	// 2. Denial spreads forwards, as far as the last tensor on the list Deny or
	// Inferred: through these and those on the list Clear that lead to one.
	reachesDeny := map[*Tensor]bool{}
	for _, t := range slices.Backward(p.all) {
		switch l := list(t); {
		case !t.typ.DType.IsFloat():
		case l == op.Deny || l == op.Inferred:
			reachesDeny[t] = true
		case l == op.Clear:
			reachesDeny[t] = slices.ContainsFunc(p.readers[t], func(r *Tensor) bool { return reachesDeny[r] && list(r) != op.Allow })
		}
	}
	for _, t := range p.all {
		if !free(t) || p.colors[t] == painted || !reachesDeny[t] {
			continue
		}
		if list(t) == op.Deny || slices.ContainsFunc(t.args, func(a *Tensor) bool {
			return p.colors[a] == denied || vanishes(a, t.autocast)
		}) {
			p.colors[t] = denied
		}
	}
	// 3. What lies between products.
	between := func(t *Tensor) bool {
		l := list(t)
		return free(t) && p.colors[t] == unpainted && (l == op.Clear || l == op.Inferred) && t.op != op.Const && p.fits(t)
	}
	after := map[*Tensor]bool{}
	for _, t := range p.all {
		if between(t) && slices.ContainsFunc(t.args, func(a *Tensor) bool { return after[a] || p.colors[a] == painted }) {
			after[t] = true
		}
	}
	before := map[*Tensor]bool{}
	for _, t := range slices.Backward(p.all) {
		if after[t] && slices.ContainsFunc(p.readers[t], func(r *Tensor) bool { return before[r] || slices.Contains(products, r) }) {
			before[t] = true
		}
	}
	for t := range before {
		p.colors[t] = painted
	}
	// 4. Clear neighbours of what is painted.
	work := slices.DeleteFunc(slices.Clone(p.all), func(t *Tensor) bool { return p.colors[t] != painted })
	for len(work) > 0 {
		t := work[len(work)-1]
		work = work[:len(work)-1]
		for _, n := range slices.Concat(t.args, p.readers[t]) {
			if list(n) == op.Clear && between(n) {
				p.colors[n] = painted
				work = append(work, n)
			}
		}
	}
	// Parts of what has several results go with it.
	for _, t := range p.all {
		if t.op == op.Result && free(t) && p.colors[t.args[0]] == painted {
			p.colors[t] = painted
		}
	}
}

// fits reports whether t, painted, has operands that can be cast and a result in 16
// bits.
func (p *painter) fits(t *Tensor) bool {
	types := make([]op.Type, len(t.args))
	for i, a := range t.args {
		if types[i] = a.typ; a.typ.DType.IsFloat() && !a.typ.DType.Is16() && a.typ.DType != dtype.Float32 {
			return false
		}
		if casts(t, i) {
			types[i].DType = t.autocast
		}
	}
	r, err := op.Infer(t.op, narrowed(t), types...)
	return err == nil && r.DType == t.autocast && r.Shape.Equal(t.typ.Shape)
}

// casts reports whether operand i of a painted tensor is read in 16 bits. Weights and
// moments of normalization stay float32.
func casts(t *Tensor, i int) bool {
	switch t.op {
	case op.LayerNorm, op.BatchNorm:
		if i > 0 {
			return false
		}
	}
	return t.args[i].typ.DType == dtype.Float32
}

// narrowed are the attributes of a painted tensor.
func narrowed(t *Tensor) op.Attr {
	a := t.attr
	if a.DType != dtype.Invalid || t.op == op.LayerNorm || t.op == op.BatchNorm {
		a.DType = t.autocast
	}
	return a
}

// rewrite makes t compute as its color says.
func (p *painter) rewrite(t *Tensor) {
	if p.colors[t] != painted {
		p.readNarrow(t)
		return
	}
	d := t.autocast
	args := slices.Clone(t.args)
	for i, a := range t.args {
		if casts(t, i) {
			args[i] = p.as(t, a, d)
		}
	}
	if wide := t.attr; storesWide(t.op) && !slices.ContainsFunc(p.readers[t], func(r *Tensor) bool { return p.colors[r] == painted }) {
		wide.DType = dtype.Float32
		t.attr, t.args = wide, args
		return
	}
	n := p.add(t, 2, t.op, narrowed(t), args...)
	p.narrow[t] = n
	if storesWide(t.op) && slices.ContainsFunc(p.readers[t], func(r *Tensor) bool { return p.colors[r] != painted }) {
		t.attr.DType, t.args = dtype.Float32, args // once more: they become one with two results
		return
	}
	t.op, t.attr, t.args = op.Cast, op.Attr{DType: dtype.Float32}, []*Tensor{n}
}

// storesWide reports whether a contraction stores float32 if Attr.DType says so.
func storesWide(c op.Code) bool {
	switch c {
	case op.MatMul, op.Conv, op.ConvInputGrad, op.ConvKernelGrad:
		return true
	}
	return false
}

// readNarrow lets a reduction that stores float32 anyhow read painted operands as they
// are.
func (p *painter) readNarrow(t *Tensor) {
	if !free(t) || t.op.Info().Class != op.Reduction {
		return
	}
	args, types := slices.Clone(t.args), make([]op.Type, len(t.args))
	found := false
	for i, a := range t.args {
		n := p.narrow[a]
		if n == nil && a.op == op.Cast && a.typ.DType == dtype.Float32 && a.args[0].typ.DType.Is16() {
			n = a.args[0] // painted by an earlier call of Gradients
		}
		if n != nil {
			args[i], found = n, true
		}
		types[i] = args[i].typ
	}
	if !found {
		return
	}
	a := t.attr
	switch t.op {
	case op.Sum, op.Mean, op.SumSquares, op.Prod:
		a.DType = dtype.Float32
	}
	if r, err := op.Infer(t.op, a, types...); err == nil && r.Equal(t.typ) {
		t.attr, t.args = a, args
	}
}

// as is operand a of t in 16 bits.
func (p *painter) as(t, a *Tensor, d dtype.DType) *Tensor {
	if n := p.narrow[a]; n != nil && n.typ.DType == d {
		return n
	}
	at := castTo{a, d, t.segment}
	if c := p.casts[at]; c != nil {
		return c
	}
	var c *Tensor
	if a.op == op.Const && a.attr.Data == nil {
		attr := a.attr
		attr.DType = d
		c = p.add(t, 3, op.Const, attr)
	} else {
		c = p.add(t, 3, op.Cast, op.Attr{DType: d}, a)
	}
	p.casts[at] = c
	return c
}

// add records an operation of t's before t.
func (p *painter) add(t *Tensor, before uint64, c op.Code, a op.Attr, args ...*Tensor) *Tensor {
	n := Record(c, a, args...)
	n.seq = t.seq - before // Record leaves room
	n.autocast = dtype.Invalid
	n.path, n.trace, n.scaled, n.gradient = t.path, t.trace, t.scaled, t.gradient
	if s := t.segment; s != nil && s.recomputed == nil {
		s.add(n)
		slices.SortFunc(s.tensors, bySeq)
	}
	return n
}

// print shows the colors, for MEZZO_DEBUG=autocast.
func (p *painter) print() {
	lists := map[op.Precision]string{op.Clear: "clear", op.Allow: "allow", op.Inferred: "infer", op.Deny: "deny", onNoList: "no list"}
	count := 0
	for _, t := range p.all {
		if t.autocast == dtype.Invalid || !t.typ.DType.IsFloat() || t.op == op.Const {
			continue
		}
		what := "float32"
		switch p.colors[t] {
		case painted:
			what = t.autocast.String()
			count++
		case denied:
			what = "float32, denied"
		}
		for _, a := range t.args {
			if vanishes(a, t.autocast) {
				what += fmt.Sprintf(" (reads %g)", a.attr.Value)
			}
		}
		fmt.Fprintf(os.Stderr, "autocast: %s/%v%v: %s: %s\n", t.path, t.op, t.typ.Shape, lists[list(t)], what)
	}
	fmt.Fprintf(os.Stderr, "autocast: %d of %d values in 16 bits\n", count, len(p.all))
}
