package tensor

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// trace is the recording of one call of a Function.
type trace struct {
	id       uint64
	eager    bool                  // operations run at once; tensors have data
	done     bool                  // the Function has returned: its tensors are dead
	assigned []*Variable           // in order of their first Assign
	leaves   map[*Variable]*Tensor // see leafOf

	derivatives []derivative // calls of Gradients

	// recast are variables that segments of Remat cast to 16 bits, of which gradients
	// have computed the segments again. Who does that to save memory has none to spare
	// for second copies of the weights, and to cast them at each use takes little of
	// such a step.
	recast map[*Variable]bool

	// gradientOf has the gradients of all values, by the call of Gradients that came to
	// them first. Nil: they are not kept.
	gradientOf map[*Tensor]*Tensor

	autocast dtype.DType // of what is recorded now; see Autocast

	shard, shards int     // see Shard; 0 shards: none
	weight        float64 // of the shard
	means         []PendingMean
	unshared      string  // see UnsharedStatistics
	exchanges     int     // of AllReduce so far
	exchanged     *Tensor // the start of the last one

	predicate  *Tensor // of Assign, see Predicated; nil: always
	statistics *Tensor // see PredicateStatistics
}

// derivative is a call of Gradients.
type derivative struct {
	loss      *Tensor
	vars      []*Variable
	gradients []*Tensor
}

// keepGradients adds the gradients of tensors that have none to gradientOf.
func (tr *trace) keepGradients(grad map[*Tensor]*Tensor) {
	if tr.gradientOf == nil {
		return
	}
	for t, g := range grad {
		if tr.gradientOf[t] == nil {
			tr.gradientOf[t] = g
		}
	}
}

// assign rebinds v in the recording.
func (tr *trace) assign(v *Variable, t *Tensor) {
	tr.meet(v)
	switch {
	case tr.predicate != nil:
		t = Where(tr.predicate, t, v.bound)
	case v.statistic && tr.statistics != nil:
		t = Where(tr.statistics, t, v.bound)
	}
	tr.rebind(v, t)
}

// rebind is assign without a predicate.
func (tr *trace) rebind(v *Variable, t *Tensor) {
	tr.meet(v)
	if !slices.Contains(tr.assigned, v) {
		tr.assigned = append(tr.assigned, v)
	}
	v.bound = t
}

// meet binds a variable that was made, or is first met, in this recording.
func (tr *trace) meet(v *Variable) {
	if v.leaf == nil {
		v.leaf = v.Value()
		v.bound = v.leaf
	}
}

// Predicated runs f. Every Assign in f is masked: if cond, a bool scalar of the
// same recording, is false, the variable keeps its value. Optimizers use it to
// skip a step inside the program, without reading cond back.
func Predicated(cond *Tensor, f func()) {
	tr := cond.trace
	if tr == nil {
		Fail("Predicated", "the condition was not recorded in a Function")
	}
	outer := tr.predicate
	tr.predicate = cond
	if outer != nil {
		tr.predicate = outer.And(cond)
	}
	defer func() { tr.predicate = outer }()
	f()
}

// PredicateStatistics masks the assignments of all Statistic variables in the
// recording, before and after this call: if cond is false they keep their values.
// So a skipped step does not change the moving statistics of its forward pass.
func PredicateStatistics(cond *Tensor) {
	tr := cond.trace
	if tr == nil {
		Fail("PredicateStatistics", "the condition was not recorded in a Function")
	}
	tr.mask(cond, func(v *Variable) bool { return v.statistic })
	tr.statistics = cond
}

// PredicateAssigned masks all assignments recorded before this call: if cond is
// false the variables keep their values.
func PredicateAssigned(cond *Tensor) {
	tr := cond.trace
	if tr == nil {
		Fail("PredicateAssigned", "the condition was not recorded in a Function")
	}
	tr.mask(cond, func(*Variable) bool { return true })
}

// mask rebinds the assigned variables that selected accepts to their old values
// if cond is false.
func (tr *trace) mask(cond *Tensor, selected func(*Variable) bool) {
	for _, v := range tr.assigned {
		if selected(v) {
			v.bound = Where(cond, v.bound, v.leaf)
		}
	}
}

// source says where an input of a captured graph comes from.
type source struct {
	argument int       // ≥ 0: this argument of the Function
	variable *Variable // the variable's value when the program runs
	shadow   *shadow   // the same of a copy that is kept
	data     *storage  // else: these elements
}

// capture turns recorded tensors into a graph.
type capture struct {
	graph   *ir.Graph
	trace   *trace
	sources []source
	values  map[*Tensor]*ir.Value
	taken   map[*ir.Value]bool  // values that are outputs already
	shadows bool                // variables cast to 16 bits are read from copies that are kept
	instead map[*Tensor]*Tensor // values that stand for others; see foldChains
	derived map[*Tensor]*shadow // values that are read from copies that are kept; see derive
}

func newCapture(tr *trace) *capture {
	return &capture{graph: ir.New(0), trace: tr, values: map[*Tensor]*ir.Value{}, taken: map[*ir.Value]bool{}, instead: map[*Tensor]*Tensor{}, derived: map[*Tensor]*shadow{}}
}

// roots adds everything that ts depend on, in the order it was recorded.
func (c *capture) roots(ts ...*Tensor) {
	var all []*Tensor
	seen := map[*Tensor]bool{}
	stack := slices.Clone(ts)
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[t] || c.values[t] != nil {
			continue
		}
		seen[t] = true
		all = append(all, t)
		switch {
		case c.instead[t] != nil:
			stack = append(stack, c.instead[t])
		case t.data == nil && c.shadowed(t) == nil && c.derived[t] == nil: // a computed tensor is an input, whatever computed it
			stack = append(stack, t.args...)
		}
	}
	slices.SortFunc(all, bySeq)
	for _, t := range all {
		if c.values[t] == nil {
			c.add(t)
		}
	}
}

// shadowed returns the variable whose copy in 16 bits t is, or nil.
func (c *capture) shadowed(t *Tensor) *Variable {
	if !c.shadows {
		return nil
	}
	v := shadowOf(t)
	if c.trace.recast[v] {
		return nil
	}
	return v
}

func (c *capture) add(t *Tensor) {
	switch {
	case c.instead[t] != nil:
		if c.values[c.instead[t]] == nil {
			c.add(c.instead[t]) // recorded after t
		}
		c.values[t] = c.values[c.instead[t]]
	case c.derived[t] != nil:
		c.input(t, source{argument: -1, shadow: c.derived[t]})
	case c.trace != nil && t.trace != nil && t.trace != c.trace:
		Fail("Function", "%v was recorded by a Function that has returned; return it from that Function instead", t.typ)
	case t.argument >= 0 && c.trace != nil:
		c.input(t, source{argument: t.argument})
	case t.variable != nil && (c.trace != nil || t.data == nil):
		c.input(t, source{argument: -1, variable: t.variable})
	case t.data != nil:
		c.input(t, source{argument: -1, data: t.data})
	case c.shadowed(t) != nil:
		c.input(t, source{argument: -1, shadow: c.shadowed(t).shadow(t.typ.DType)})
	case t.assigned != nil:
		if c.values[t.args[0]] == nil {
			c.add(t.args[0])
		}
		c.values[t] = c.values[t.args[0]]
	case t.op == op.Param:
		Fail("Function", "%v has no data: it belongs to a model under construction", t.typ)
	default:
		args := make([]*ir.Value, len(t.args))
		for i, a := range t.args {
			if c.values[a] == nil {
				c.add(a) // rematerializer.rewrite recorded it after t
			}
			args[i] = c.values[a]
		}
		c.values[t] = c.graph.Add(t.op, t.attr, t.typ, t.path, args...)
	}
}

// input adds a Param, one for each distinct source.
func (c *capture) input(t *Tensor, s source) {
	if i := slices.Index(c.sources, s); i >= 0 {
		c.values[t] = c.graph.Params[i]
		return
	}
	i := len(c.sources)
	c.sources = append(c.sources, s)
	c.graph.Params = append(c.graph.Params, nil)
	path := t.path
	switch {
	case s.variable != nil:
		path = s.variable.name
	case s.shadow != nil:
		path = s.shadow.path()
	case s.argument >= 0:
		path = fmt.Sprintf("argument %d", s.argument)
	case path == "":
		path = "data"
	}
	c.values[t] = c.graph.Add(op.Param, op.Attr{Index: i, DType: t.typ.DType, Dims: t.typ.Shape}, t.typ, path)
}

// output adds t as an output. A value can be an output once, and an input or
// constant cannot be one: a copy stands in.
func (c *capture) output(t *Tensor, donate int) {
	c.roots(t)
	v := c.values[t]
	if v.Op == op.Param || v.Op == op.Const || c.taken[v] {
		v = c.graph.Add(op.Identity, op.Attr{}, v.Type, v.Path, v)
	}
	c.taken[v] = true
	c.graph.Output(v, donate)
}

// inputOf is the input that the elements of a variable, or of its copy h, are
// read from, or -1.
func (c *capture) inputOf(v *Variable, h *shadow) int {
	if h != nil {
		v = nil
	}
	return slices.Index(c.sources, source{argument: -1, variable: v, shadow: h})
}
