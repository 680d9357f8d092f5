package tensor

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TapID names a value of a step: its path, its operation, and which of those in the
// order in which they were recorded: "ff_2/MatMul#0". It is the same for every batch
// of one shape, and in another process.
type TapID string

// Tap is a value of a step, and how it compares with what it would be in a wider type.
type Tap struct {
	ID   TapID
	Path string // who recorded it: a layer, "layer/grad", "optimizer/variable"; the name of a variable or "argument 0"
	Op   op.Code
	Type op.Type
	Args []int // positions of the operands in Taps.Values

	Scaled   bool      // it has the loss scale in it
	Constant float64   // of a constant: what was written
	Variable *Variable // that it is the value of, when the step begins
	Argument int       // of the Function, counting the tensors of tuples; -1 for others

	// Shadow compares the value with its shadow: the same step computed in the wide
	// type throughout. Local compares it with what its operation gives in the wide
	// type on the step's own operands; it is nil unless asked for, and where nothing
	// is rounded. Both are nil for values that were left out.
	Shadow, Local *op.Statistics

	// Effect is Local with the elements of both multiplied by the shadow of the loss's
	// derivative by them: Effect.SquaredError is the sum of the squares of what each
	// rounding error changes the loss by, to first order. It is nil unless asked for,
	// where Local is, and where the loss has no derivative.
	Effect *op.Statistics
}

// Taps are the values of one step, in the order in which they were recorded.
type Taps struct {
	Values      []Tap
	Results     []int        // positions of what the function returned
	Assigned    []Assignment // what it assigned
	Derivatives []Derivative // what it differentiated
}

// Assignment is the new value of a variable.
type Assignment struct {
	Variable *Variable
	Tap      int

	// Change compares how far a trainable variable moves with how far its shadow does.
	// Change.Flushed of Change.Count elements stay where they are although an update
	// moves them: lost updates. Nil for other variables, and for those of float32 or
	// wider unless BesideOptions.Update is set.
	Change *op.Statistics
}

// Lost is the share of updates that leave elements of the variable as they were.
func (a *Assignment) Lost() float64 {
	if a.Change == nil || a.Change.Count == 0 {
		return 0
	}
	return float64(a.Change.Flushed) / float64(a.Change.Count)
}

// Derivative is a call of Gradients: the loss, and for each variable the
// gradient, -1 where there is none.
type Derivative struct {
	Loss      int
	Variables []*Variable
	Gradients []int
}

// BesideOptions say what Beside computes. The zero value is a shadow in float32
// with the step's own decisions.
type BesideOptions struct {
	Wide dtype.DType // the type of the shadow: Float32, the default, or Float64

	// Free lets the shadow take its own decisions: which way comparisons go, where
	// maxima lie. The default takes those of the step, so that a ReLU which falls
	// the other way is no error. Use it when the step is not finite: its decisions
	// mean nothing then.
	Free bool

	Local bool // Tap.Local, too: of the step as it was recorded

	// Effect adds Tap.Effect, and implies Local. The loss is that of the first call of
	// Gradients. Derivatives by all values are in the step then, also those that it does
	// not need, so that numbers in IDs of gradients may differ.
	Effect bool

	// Only selects the values with statistics; nil selects all floats that are
	// computed or given. Movements, such as Reshape, have none: they round nothing.
	Only func(*Tap) bool

	// All includes values that others stand for: those of which every element is one of
	// an operand's, or 0, such as the gradient of a ReLU, maxima, and max-pooling with
	// its gradient where windows do not overlap; products before the bias is added; and
	// what nothing but a ReLU reads. The first round nothing, and overflow or become 0
	// nowhere but where the operand does; where the others overflow, the sum does, too,
	// and the ReLU unless that makes it 0. Without All they have statistics as a result,
	// a loss or a gradient of a variable alone.
	All bool

	// Update includes what is of the update alone and stored in float32 or wider: new
	// values of variables, slots of the optimizer, the terms between, and
	// Assignment.Change. Most steps round nothing there, and have more numbers there than
	// elsewhere. Without it such an update is not computed.
	Update bool

	// Promote changes the step: values for which it returns a wider type are
	// computed in that type. Nil changes nothing. It is a remedy on trial.
	Promote func(*Tap) dtype.DType
}

// Beside runs the function on in beside itself in a wider type, and changes no
// variable. Every value has a shadow, a value with the same operation on the shadows
// of its operands: forward, backward and update, in layers and in code of the
// user's. Both share arguments, variables and random numbers. The step computes
// what Call would, to the bit.
//
// The plan is kept with the Function's other plans, unless Only or Promote is set or it
// computes in more than 256 MiB.
//
// Loops are unrolled where that makes at most 2^14 values. The shadow of a longer
// one is a loop, which takes its own decisions, and what is inside is not shown.
func (fn *Func[In, Out]) Beside(ctx context.Context, in In, o BesideOptions) (taps *Taps, err error) {
	defer Catch(&err)
	needs(ctx, "Beside")
	o.Wide = cmp.Or(o.Wide, dtype.Float32)
	if o.Wide != dtype.Float32 && o.Wide != dtype.Float64 {
		Fail("Beside", "got %v for Wide, want float32 or float64", o.Wide)
	}
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.take(&in)
	b, err := fn.beside(ctx, in, o)
	if err != nil {
		return nil, err
	}
	c := &b.plan.own
	c.args = append(c.args[:0], fn.core.args...)
	results, err := b.plan.run(ctx, c)
	if err != nil {
		return nil, err
	}
	return b.read(results)
}

// besideKey says what a plan runs beside the step; the zero value is nothing.
type besideKey struct {
	wide                             dtype.DType
	free, local, effect, update, all bool
}

// kept reports whether the options select values by no function, which cannot be
// compared with that of another call.
func (o BesideOptions) kept() bool { return o.Only == nil && o.Promote == nil }

// beside is a plan that runs a step beside itself.
type beside struct {
	plan *plan
	taps Taps
	fill []comparison // what each result of the plan is
	same []same
}

// same is a tap that has the statistics of another one.
type same struct {
	tap, as int
	given   bool // those of as's shadow, which is the tap itself: a variable, of its cast
}

// comparison says which statistics of which tap a result has.
type comparison struct {
	tap    int
	local  bool
	effect bool
	change bool // of assignment tap
}

// read fills in a copy of the taps from the results of a run.
func (b *beside) read(results []*Tensor) (*Taps, error) {
	taps := b.taps
	taps.Values, taps.Assigned = slices.Clone(taps.Values), slices.Clone(taps.Assigned)
	for i, f := range b.fill {
		x, err := results[i].Float64s()
		if err != nil {
			return nil, err
		}
		s, err := op.DecodeStatistics(x)
		if err != nil {
			return nil, err
		}
		switch {
		case f.change:
			taps.Assigned[f.tap].Change = s
		case f.effect:
			taps.Values[f.tap].Effect = s
		case f.local:
			taps.Values[f.tap].Local = s
		default:
			taps.Values[f.tap].Shadow = s
		}
		results[i].Release()
	}
	for _, a := range b.same {
		s := *taps.Values[a.as].Shadow
		if a.given {
			s.X, s.SquaredError, s.Products, s.LargestError, s.Flushed = s.Y, 0, s.Y.Squares, 0, 0
			s.Finite, s.Subnormal = s.Count-s.Y.NaNs-s.Y.Infinities, s.Y.Below(-126)
		} else if taps.Values[a.as].Type.DType == dtype.Float16 {
			s.Subnormal = 0 // in wider types they are normal
		}
		taps.Values[a.tap].Shadow = &s
	}
	return &taps, nil
}

// maxKeptBeside is how many bytes a plan that is kept may compute in: those of large
// steps would hold as much memory as a training, to save a little of their time.
const maxKeptBeside = 256 << 20

// beside finds or makes the plan for arguments like those of the call in progress.
func (fn *Func[In, Out]) beside(ctx context.Context, in In, o BesideOptions) (*beside, error) {
	o.Local = o.Local || o.Effect
	key := besideKey{o.Wide, o.Free, o.Local, o.Effect, o.Update, o.All}
	if o.kept() {
		if p := fn.core.find(key); p != nil {
			return p.beside, nil
		}
	}
	b := &beside{}
	p := &plan{in: slices.Clone(fn.core.shape), key: key, beside: b, tf32: tf32()}
	b.plan = p
	for _, a := range fn.core.args {
		if !a.typ.Shape.Known() {
			Fail("Beside", "an argument is %v, want one of known shape", a.typ)
		}
		p.types, p.given = append(p.types, a.typ), append(p.given, a.gradient)
	}
	var out Out
	err := fn.core.record(ctx, false, func(tr *trace) {
		if o.Effect {
			tr.gradientOf = map[*Tensor]*Tensor{}
		}
		out = fn.symbolic(tr, in)
	}, func(tr *trace) error {
		results := fn.out.tensors(nil, ptr(&out))
		for _, r := range results {
			if r.err != nil {
				return r.err
			}
		}
		return b.compile(ctx, tr, results, fn.core.options, o)
	})
	if err != nil {
		return nil, err
	}
	if o.kept() && p.graph.ArenaBytes <= maxKeptBeside && backend.Keeps(backend.Plans) {
		fn.core.keep(p)
	}
	return b, nil
}

// compile compiles what tr recorded beside itself.
func (b *beside) compile(ctx context.Context, tr *trace, results []*Tensor, options ir.Options, o BesideOptions) error {
	var roots []*Tensor
	for _, v := range tr.assigned {
		roots = append(roots, v.bound)
	}
	roots = append(roots, results...)
	for _, d := range tr.derivatives { // a scaled loss is computed only to be shown
		roots = append(roots, d.loss)
		for _, t := range d.gradients {
			if t != nil {
				roots = append(roots, t)
			}
		}
	}
	wanted := len(roots)
	for t, g := range tr.gradientOf {
		if t.typ.DType.IsFloat() && t.op != op.Param {
			roots = append(roots, g)
		}
	}
	slices.SortFunc(roots[wanted:], bySeq)
	paint(roots...)
	c := newCapture(tr)
	c.roots(roots...)
	g := c.graph
	tensors := make(map[*ir.Value]*Tensor, len(c.values))
	for t, v := range c.values {
		if old := tensors[v]; old == nil || t.seq < old.seq { // two leaves may be one input
			tensors[v] = t
		}
	}
	unroll(g)
	b.describe(g, tensors, c.sources)
	at := make(map[*ir.Value]int, len(g.Values))
	for i, v := range g.Values {
		at[v] = i
	}
	position := func(t *Tensor) int {
		if t == nil || c.values[t] == nil {
			return -1
		}
		if i, ok := at[c.values[t]]; ok {
			return i
		}
		return -1
	}
	for _, v := range tr.assigned {
		b.taps.Assigned = append(b.taps.Assigned, Assignment{Variable: v, Tap: position(v.bound)})
	}
	for _, t := range results {
		b.taps.Results = append(b.taps.Results, position(t))
	}
	for _, d := range tr.derivatives {
		e := Derivative{Loss: position(d.loss), Variables: d.vars}
		for _, t := range d.gradients {
			e.Gradients = append(e.Gradients, position(t))
		}
		b.taps.Derivatives = append(b.taps.Derivatives, e)
	}
	derivative := map[*ir.Value]*ir.Value{}
	for t, d := range tr.gradientOf {
		if v := c.values[t]; v != nil && tensors[v] == t {
			derivative[v] = c.values[d]
		}
	}
	if err := b.compare(g, derivative, o); err != nil {
		return err
	}
	d, err := backend.Default()
	if err != nil {
		return err
	}
	p := b.plan
	options.Once = true // a remedy on trial is not run again, and memory for each value is much
	if p.program, p.graph, err = backend.Compile(ctx, d, g, options); err != nil {
		return err
	}
	p.tags = make([]*GradientTag, len(p.graph.Outputs))
	p.finish(c.sources)
	return nil
}

// maxUnrolled is how many values a loop may become.
const maxUnrolled = 1 << 14

// unroll replaces loops by their steps, so that what is in them is seen.
func unroll(g *ir.Graph) {
	for i := 0; i < len(g.Values); i++ {
		v := g.Values[i]
		if v.Op == op.Loop && v.Attr.Loop.Steps*(len(v.Attr.Loop.Code)+1) <= maxUnrolled {
			g.Expand(v)
			i-- // loops in loops
		}
	}
}

// tapID names the next value of a step; number counts those before it by name.
func tapID(v *ir.Value, number map[string]int) TapID {
	name := fmt.Sprintf("%s/%v", v.Path, v.Op)
	number[name]++
	return TapID(fmt.Sprintf("%s#%d", name, number[name]-1))
}

// describe makes the taps of the values of g.
func (b *beside) describe(g *ir.Graph, tensors map[*ir.Value]*Tensor, sources []source) {
	at := make(map[*ir.Value]int, len(g.Values))
	number := map[string]int{}
	for i, v := range g.Values {
		at[v] = i
		t := Tap{ID: tapID(v, number), Path: v.Path, Op: v.Op, Type: v.Type, Argument: -1}
		for _, a := range v.Args {
			t.Args = append(t.Args, at[a])
		}
		switch {
		case v.Op == op.Const && v.Attr.Data == nil:
			t.Constant = v.Attr.Value
		case v.Op == op.Param:
			s := sources[v.Attr.Index]
			t.Argument, t.Variable = s.argument, s.variable
		}
		if r := tensors[v]; r != nil {
			t.Scaled = r.scaled != nil
		} else { // of an expansion: scaled if an operand is
			for _, a := range t.Args {
				t.Scaled = t.Scaled || b.taps.Values[a].Scaled && v.Type.DType.IsFloat()
			}
		}
		b.taps.Values = append(b.taps.Values, t)
	}
}

// compare adds the shadow to g, and statistics as the outputs of g. derivative has those
// of the loss by values of g.
func (b *beside) compare(g *ir.Graph, derivative map[*ir.Value]*ir.Value, o BesideOptions) error {
	c := &comparing{beside: b, g: g, o: o, values: slices.Clone(g.Values), compared: map[*ir.Value][]*ir.Value{}}
	if err := c.twins(); err != nil {
		return err
	}
	if err := c.changes(); err != nil {
		return err
	}
	if err := c.statistics(derivative); err != nil {
		return err
	}
	interleave(g, c.values, func(v *ir.Value) []*ir.Value {
		v = c.step[v]
		return append([]*ir.Value{v, c.shadows[v]}, c.compared[v]...)
	})
	return nil
}

// comparing is a call of compare.
type comparing struct {
	*beside
	g        *ir.Graph
	o        BesideOptions
	values   []*ir.Value               // of the step as it was recorded
	step     map[*ir.Value]*ir.Value   // by values: with what is promoted
	shadows  map[*ir.Value]*ir.Value   // by values of step
	compared map[*ir.Value][]*ir.Value // statistics by value of step
}

// twins makes step and shadows.
func (c *comparing) twins() (err error) {
	c.step = make(map[*ir.Value]*ir.Value, len(c.values))
	for _, v := range c.values {
		c.step[v] = v
	}
	if c.o.Promote != nil {
		at := make(map[*ir.Value]int, len(c.values))
		for i, v := range c.values {
			at[v] = i
		}
		c.step, err = c.g.Retype(c.values, ir.Retyping{Least: func(v *ir.Value) dtype.DType { return c.o.Promote(&c.taps.Values[at[v]]) }})
		if err != nil {
			return err
		}
	}
	// Of all values: a promoted step takes other decisions, and those are forced.
	c.shadows, err = c.g.Retype(slices.Clone(c.g.Values), ir.Retyping{Least: func(*ir.Value) dtype.DType { return c.o.Wide }, Forced: !c.o.Free, Path: "shadow/"})
	return err
}

// output adds statistics of v and its reference.
func (c *comparing) output(v, reference *ir.Value, f comparison) error {
	t, err := op.Infer(op.Stats, op.Attr{}, v.Type, reference.Type)
	if err != nil {
		return err
	}
	s := c.g.Add(op.Stats, op.Attr{}, t, v.Path, v, reference)
	c.g.Output(s, -1)
	c.compared[v] = append(c.compared[v], s)
	c.fill = append(c.fill, f)
	return nil
}

// changes adds statistics of how far variables move.
func (c *comparing) changes() error {
	was := map[*Variable]*ir.Value{}
	for i, v := range c.values {
		if x := c.taps.Values[i].Variable; x != nil && v.Op == op.Param {
			was[x] = v
		}
	}
	for i, a := range c.taps.Assigned {
		before := was[a.Variable]
		if a.Tap < 0 || before == nil || !a.Variable.Trainable() || !before.Type.DType.IsFloat() || !before.Type.DType.Is16() && !c.o.Update {
			continue
		}
		after := c.values[a.Tap]
		moved, err := pairwise(c.g, op.Sub, c.o.Wide, c.step[after], c.step[before])
		if err != nil {
			return err
		}
		moves, err := pairwise(c.g, op.Sub, c.o.Wide, c.shadows[c.step[after]], c.shadows[c.step[before]])
		if err != nil {
			return err
		}
		if err := c.output(moved, moves, comparison{tap: i, change: true}); err != nil {
			return err
		}
	}
	return nil
}

// statistics adds those of values, but where the ones of another value are the same.
func (c *comparing) statistics(derivative map[*ir.Value]*ir.Value) error {
	shown := c.shown()
	has := make(map[*ir.Value]int, len(c.values)) // values with statistics: the taps that have them
	casts := map[*ir.Value]int{}                  // variables in float32: the taps of their casts to 16 bits
	var given []int                               // taps of variables in float32
	for i, v := range c.values {
		if !shown(i) {
			continue
		}
		x, reference := c.step[v], c.shadows[c.step[v]]
		if k, ok := c.widened(v, has); ok {
			has[v] = k
			c.same = append(c.same, same{tap: i, as: k})
			continue
		}
		if v.Op == op.Param && v.Type.DType == dtype.Float32 && reference == v {
			given = append(given, i)
			continue
		}
		if _, ok := casts[reference]; !ok && reference.Op == op.Param && x.Type.DType.Is16() {
			casts[reference] = i
		}
		has[v] = i
		if err := c.output(x, reference, comparison{tap: i}); err != nil {
			return err
		}
		if c.o.Local && v.Op != op.Param {
			if err := c.local(i, v, c.shadows[c.step[derivative[v]]]); err != nil {
				return err
			}
		}
	}
	for _, i := range given {
		v := c.values[i]
		if k, ok := casts[v]; ok {
			c.same = append(c.same, same{i, k, true})
		} else if err := c.output(v, v, comparison{tap: i}); err != nil {
			return err
		}
	}
	return nil
}

// shown reports which taps have statistics.
func (c *comparing) shown() func(i int) bool {
	terms, roots, summed := c.terms(), c.roots(), biased(c.values)
	activated := rectified(c.values)
	return func(i int) bool {
		v := c.values[i]
		switch {
		case !v.Type.DType.IsFloat() || v.Op.Info().Class == op.Movement:
			return false
		case terms[i] && !c.o.Update && !v.Type.DType.Is16():
			return false
		case c.o.Only != nil:
			return c.o.Only(&c.taps.Values[i])
		}
		hidden := v.Op != op.Relu && (summed[v] || activated[v])
		return c.o.All || roots[i] || v.Op == op.Relu && activated[v] || !selects(v) && !hidden
	}
}

// widened reports whether v is a cast to a wider type whose shadow is that of the operand,
// and which tap has the operand's statistics.
func (c *comparing) widened(v *ir.Value, has map[*ir.Value]int) (tap int, ok bool) {
	if v.Op != op.Cast || !v.Args[0].Type.DType.IsFloat() || v.Args[0].Type.DType.Size() >= v.Type.DType.Size() {
		return 0, false
	}
	x, operand := c.step[v], c.step[v.Args[0]]
	if c.shadows[x] != c.shadows[operand] || x != operand && (x.Op != op.Cast || x.Args[0] != operand) {
		return 0, false
	}
	tap, ok = has[v.Args[0]]
	return tap, ok
}

// local adds statistics of value i beside what its operation gives in the wide type on the
// same operands, and of its effect if derivative is not nil.
func (c *comparing) local(i int, v, derivative *ir.Value) error {
	alone, err := c.g.RetypeAlone(v, c.o.Wide, "alone/")
	if alone == v || err != nil {
		return err
	}
	if err := c.output(v, alone, comparison{tap: i, local: true}); err != nil || derivative == nil {
		return err
	}
	x, err := pairwise(c.g, op.Mul, c.o.Wide, v, derivative)
	if err != nil {
		return err
	}
	y, err := pairwise(c.g, op.Mul, c.o.Wide, alone, derivative)
	if err != nil {
		return err
	}
	return c.output(x, y, comparison{tap: i, effect: true})
}

// interleave orders g so that values that one layer recorded one after the other are
// followed by what goes with each: its shadow and their statistics. So these find them
// in the caches, and need little memory. The layer's own values stay together, to be
// fused, and max-pooling stays behind what it reads.
func interleave(g *ir.Graph, values []*ir.Value, with func(*ir.Value) []*ir.Value) {
	order := make([]*ir.Value, 0, len(g.Values))
	listed := make(map[*ir.Value]bool, len(g.Values))
	var list func(v *ir.Value)
	list = func(v *ir.Value) {
		if v == nil || listed[v] {
			return
		}
		for _, a := range v.Args {
			list(a)
		}
		listed[v] = true
		order = append(order, v)
	}
	for len(values) > 0 {
		n := 1
		for n < len(values) && (values[n].Path == values[0].Path || values[n].Op == op.MaxPool) {
			n++
		}
		for _, v := range values[:n] {
			list(with(v)[0])
		}
		for _, v := range values[:n] {
			for _, w := range with(v) {
				list(w)
			}
		}
		values = values[n:]
	}
	for _, v := range g.Values {
		list(v)
	}
	g.Values = order
}

// terms marks what belongs to the update alone: what neither a loss, a gradient nor a
// result is computed from. A step without gradients has none.
func (b *beside) terms() []bool {
	terms := make([]bool, len(b.taps.Values))
	if len(b.taps.Derivatives) == 0 {
		return terms
	}
	for i := range terms {
		terms[i] = true
	}
	keep := func(i int) {
		if i >= 0 {
			terms[i] = false
		}
	}
	for _, d := range b.taps.Derivatives {
		keep(d.Loss)
		for _, g := range d.Gradients {
			keep(g)
		}
	}
	for i := len(terms) - 1; i >= 0; i-- { // operands come first
		if !terms[i] {
			for _, a := range b.taps.Values[i].Args {
				terms[a] = false
			}
		}
	}
	for _, i := range b.taps.Results {
		keep(i)
	}
	return terms
}

// roots marks results, losses, and gradients of variables.
func (b *beside) roots() map[int]bool {
	roots := map[int]bool{}
	for _, i := range b.taps.Results {
		roots[i] = true
	}
	for _, d := range b.taps.Derivatives {
		roots[d.Loss] = true
		for _, i := range d.Gradients {
			roots[i] = true
		}
	}
	return roots
}

// biased marks products that nothing reads but the sum with a bias.
func biased(values []*ir.Value) map[*ir.Value]bool {
	readers := readersOf(values)
	all := map[*ir.Value]bool{}
	for _, v := range values {
		if v.Op != op.Add || !v.Type.DType.IsFloat() {
			continue
		}
		product, bias := v.Args[0], v.Args[1]
		for len(bias.Args) == 1 && (bias.Op == op.Cast || bias.Op.Info().Class == op.Movement) {
			bias = bias.Args[0]
		}
		for product.Op.Info().Class == op.Movement && len(product.Args) == 1 && readers[product] == 1 {
			product = product.Args[0]
		}
		if product.Op.Info().Class == op.Contraction && bias.Op == op.Param && product.Type.Bytes() == v.Type.Bytes() && readers[product] == 1 {
			all[product] = true
		}
	}
	return all
}

// rectified marks ReLUs, and their operands that nothing else reads.
func rectified(values []*ir.Value) map[*ir.Value]bool {
	readers := readersOf(values)
	all := map[*ir.Value]bool{}
	for _, v := range values {
		if v.Op == op.Relu && v.Type.DType.IsFloat() && readers[v.Args[0]] == 1 && v.Args[0].Op.Info().Class != op.Leaf {
			all[v], all[v.Args[0]] = true, true
		}
	}
	return all
}

// readersOf counts the uses of values.
func readersOf(values []*ir.Value) map[*ir.Value]int {
	readers := map[*ir.Value]int{}
	for _, v := range values {
		for _, a := range v.Args {
			readers[a]++
		}
	}
	return readers
}

// selects reports whether each element of a value is one of an operand's, or 0.
func selects(v *ir.Value) bool {
	switch v.Op {
	case op.Sign:
		return false
	case op.Max, op.Min, op.MaxPool, op.MaxPoolGradGrad:
		return true
	case op.MaxPoolGrad: // adds up where windows overlap
		a := &v.Attr
		for i, n := range a.Window {
			if n > a.Stride[i] || a.Dilation != nil && a.Dilation[i] > 1 {
				return false
			}
		}
		return true
	}
	return v.Op.Info().Selects
}

// pairwise adds an operation on x and y, computed in d, to g.
func pairwise(g *ir.Graph, code op.Code, d dtype.DType, x, y *ir.Value) (*ir.Value, error) {
	args := []*ir.Value{x, y}
	for i, v := range args {
		if v.Type.DType != d {
			args[i] = g.Add(op.Cast, op.Attr{DType: d}, op.Type{DType: d, Shape: v.Type.Shape}, v.Path, v)
		}
	}
	t, err := op.Infer(code, op.Attr{}, args[0].Type, args[1].Type)
	if err != nil {
		return nil, err
	}
	return g.Add(code, op.Attr{}, t, x.Path, args...), nil
}
