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
	p := &plan{in: slices.Clone(fn.core.shape), key: key, beside: b, settings: currentSettings()}
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
