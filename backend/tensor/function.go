package tensor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Stateful is what a Function may change: a model, an optimizer, a metric.
type Stateful interface{ Variables() []*Variable }

// Func is a compiled Go function; see Function. Its methods may be called
// from several goroutines; they take turns.
type Func[In, Out any] struct {
	f    func(In) Out
	in   layout
	out  layout
	core core
}

// Function compiles f: called with tensors of the same types again, it runs
// as one program. In and Out are *Tensor, structs and slices of them, or
// struct{}.
//
// changes lists the owners of all variables that f assigns. f runs as Go code
// only while it is recorded: the first time for each combination of argument
// types, and once more when variables are made in it.
func Function[In, Out any](f func(In) Out, changes ...Stateful) *Func[In, Out] {
	return &Func[In, Out]{f: f, in: layoutOf[In](), out: layoutOf[Out](), core: core{owners: changes}}
}

// Options changes how later calls are compiled; programs made so far are
// forgotten.
func (fn *Func[In, Out]) Options(o ir.Options) {
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.options = o
	fn.core.plans = nil
}

// Call runs the function. When it returns an error no variable has changed.
// The context is checked while the step computes, not while it stores.
func (fn *Func[In, Out]) Call(ctx context.Context, in In) (out Out, err error) {
	defer Catch(&err)
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.args = fn.in.tensors(fn.core.args[:0], ptr(&in))
	for _, a := range fn.core.args {
		if a.trace != nil || a.symbolic {
			return fn.f(in), nil // part of another recording: inline
		}
	}
	if eager() {
		return fn.eager(ctx, in)
	}
	p, err := fn.plan(in)
	if err != nil {
		return out, err
	}
	results, err := p.run(ctx, fn.core.args)
	if err != nil {
		return out, err
	}
	fn.out.restore(ptr(&out), p.shape, results)
	return out, nil
}

// Run is Call for its effects: results are computed but not returned, and
// nothing is allocated once compiled.
func (fn *Func[In, Out]) Run(ctx context.Context, in In) (err error) {
	if eager() {
		_, err := fn.Call(ctx, in)
		return err
	}
	defer Catch(&err)
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.args = fn.in.tensors(fn.core.args[:0], ptr(&in))
	p, err := fn.plan(in)
	if err != nil {
		return err
	}
	results, err := p.run(ctx, fn.core.args)
	for _, r := range results {
		r.Release()
	}
	return err
}

// Each runs the function on every element of a sequence, for its effects, and
// stops at the first error.
func (fn *Func[In, Out]) Each(ctx context.Context, seq iter.Seq2[In, error]) error {
	for in, err := range seq {
		if err != nil {
			return err
		}
		if err := fn.Run(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

// Plan compiles the function for arguments of these types and returns the
// plan, for tests and for planning memory. It runs nothing.
func (fn *Func[In, Out]) Plan(in In) (g *ir.Graph, err error) {
	defer Catch(&err)
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.args = fn.in.tensors(fn.core.args[:0], ptr(&in))
	p, err := fn.plan(in)
	if err != nil {
		return nil, err
	}
	return p.graph, nil
}

// Watch runs the function as Call does but shows every value it computes, and
// changes no variable: how the cause of a NaN is found.
func (fn *Func[In, Out]) Watch(ctx context.Context, in In, see func(v *ir.Value, data []byte) error) (err error) {
	defer Catch(&err)
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.args = fn.in.tensors(fn.core.args[:0], ptr(&in))
	o := fn.core.options
	o.Watch = true
	p, err := fn.compile(in, o)
	if err != nil {
		return err
	}
	w, ok := p.program.(driver.Watcher)
	if !ok {
		return fmt.Errorf("Watch: the device cannot show values")
	}
	if err := p.bind(fn.core.args); err != nil {
		return err
	}
	for i, v := range p.graph.Outputs {
		s, err := allocate(v.Type.Bytes())
		if err != nil {
			return err
		}
		p.outBufs[i] = s.buf
	}
	return w.RunWatched(ctx, p.inBufs, p.outBufs, see)
}

// plan finds or makes the program for the types of the arguments.
func (fn *Func[In, Out]) plan(in In) (*plan, error) {
	for _, p := range fn.core.plans {
		if p.fits(fn.core.args) {
			return p, nil
		}
	}
	o := fn.core.options
	nan := backend.DebugFromEnv().NaN
	o.Watch = o.Watch || nan
	p, err := fn.compile(in, o)
	if err != nil {
		return nil, err
	}
	p.stopAtNaN = nan
	fn.core.plans = append(fn.core.plans, p)
	return p, nil
}

// recording is held while a function is recorded: variables are bound to
// symbols then.
var recording sync.Mutex

// settled runs f, which records the function, again for as long as that makes
// variables: layers build weights in their first call, then optimizers make
// slots for them. Only a recording that finds all of them in the list counts;
// what an earlier one ran into, such as assigning a variable that it had just
// made, does not.
func (c *core) settled(f func() error) error {
	for range 4 {
		before := len(c.variables())
		err := func() (err error) {
			defer Catch(&err)
			return f()
		}()
		var e *Error
		if len(c.variables()) == before || err != nil && !errors.As(err, &e) {
			return err
		}
	}
	return &Error{Op: "Function", Err: fmt.Errorf("it makes new variables each time it is recorded; make them once, and keep them")}
}

// compile records f and compiles the recording.
func (fn *Func[In, Out]) compile(in In, o ir.Options) (p *plan, err error) {
	recording.Lock()
	defer recording.Unlock()
	err = fn.core.settled(func() error {
		p, err = fn.recordOnce(in, o)
		return err
	})
	return p, err
}

func (fn *Func[In, Out]) recordOnce(in In, o ir.Options) (p *plan, err error) {
	tr := &trace{}
	listed := fn.core.variables()
	for _, v := range listed {
		if v.leaf != nil {
			return nil, &Error{Op: "Function", Err: fmt.Errorf("variable %s is being recorded by another Function; call this one outside it", v.name)}
		}
	}
	for _, v := range listed {
		v.leaf = &Tensor{op: op.Param, typ: v.typ, variable: v, seq: sequence.Add(1), trace: tr, argument: -1}
		v.bound = v.leaf
	}
	defer func() {
		tr.done = true
		for _, v := range slices.Concat(listed, tr.assigned) {
			v.leaf, v.bound = nil, nil
		}
	}()
	args := make([]*Tensor, len(fn.core.args))
	for i, a := range fn.core.args {
		args[i] = &Tensor{op: op.Param, typ: a.typ, seq: sequence.Add(1), trace: tr, argument: i}
	}
	recorded := fn.in.replace(in, ptr(&in), args)
	out := fn.f(recorded.(In))

	now := fn.core.variables()
	if len(now) > len(listed) {
		return nil, nil // recorded again
	}
	for _, v := range tr.assigned {
		if !slices.Contains(now, v) {
			return nil, &Error{Op: "Function", Err: fmt.Errorf("it assigns variable %s but its owner is not in the Function's list", v.name)}
		}
	}
	p = &plan{shape: fn.out.shapes(ptr(&out))}
	for _, a := range fn.core.args {
		p.types = append(p.types, a.typ)
	}
	results := fn.out.tensors(nil, ptr(&out))
	var roots []*Tensor
	for _, v := range tr.assigned {
		roots = append(roots, v.bound)
	}
	for _, r := range results {
		if r.err != nil {
			return nil, r.err
		}
	}
	c := newCapture(tr)
	c.roots(append(roots, results...)...)
	for _, v := range tr.assigned {
		c.output(v.bound, c.variableInput(v))
	}
	p.assigned = slices.Clone(tr.assigned)
	for _, r := range results {
		c.output(r, -1)
	}
	d, err := backend.Default()
	if err != nil {
		return nil, err
	}
	if p.program, p.graph, err = backend.Compile(d, c.graph, o); err != nil {
		return nil, err
	}
	p.finish(c.sources)
	return p, nil
}

// eager runs f on computed tensors, an operation at a time.
func (fn *Func[In, Out]) eager(ctx context.Context, in In) (out Out, err error) {
	recording.Lock()
	defer recording.Unlock()
	err = fn.core.settled(func() error {
		out, err = fn.eagerOnce(ctx, in)
		return err
	})
	return out, err
}

func (fn *Func[In, Out]) eagerOnce(ctx context.Context, in In) (out Out, err error) {
	tr := &trace{eager: true}
	listed := fn.core.variables()
	defer func() {
		tr.done = true
		for _, v := range slices.Concat(listed, tr.assigned) {
			v.leaf, v.bound = nil, nil
		}
	}()
	for _, v := range listed {
		s, err := v.ensure()
		if err != nil {
			return out, err
		}
		v.leaf = &Tensor{op: op.Param, typ: v.typ, variable: v, data: s, seq: sequence.Add(1), trace: tr, argument: -1}
		v.bound = v.leaf
	}
	args := make([]*Tensor, len(fn.core.args))
	for i, a := range fn.core.args {
		if err := Eval(ctx, a); err != nil {
			return out, err
		}
		args[i] = &Tensor{op: op.Param, typ: a.typ, data: a.data, seq: sequence.Add(1), trace: tr, argument: i}
	}
	out = fn.f(fn.in.replace(in, ptr(&in), args).(In))
	if err := ctx.Err(); err != nil {
		return out, err
	}
	now := fn.core.variables()
	if len(now) > len(listed) {
		return out, nil // run again
	}
	values := fn.out.tensors(nil, ptr(&out))
	for _, v := range tr.assigned {
		if !slices.Contains(now, v) {
			return out, &Error{Op: "Function", Err: fmt.Errorf("it assigns variable %s but its owner is not in the Function's list", v.name)}
		}
		values = append(values, v.bound)
	}
	if err := Eval(ctx, values...); err != nil {
		return out, err
	}
	for _, v := range tr.assigned {
		v.store, v.value = v.bound.data, nil
	}
	return out, nil
}

// core is the part of a Func that does not depend on its types.
type core struct {
	mu      sync.Mutex
	owners  []Stateful
	options ir.Options
	plans   []*plan
	args    []*Tensor // of the call in progress
}

func (c *core) variables() []*Variable {
	var all []*Variable
	seen := map[*Variable]bool{}
	for _, o := range c.owners {
		for _, v := range o.Variables() {
			if !seen[v] {
				seen[v] = true
				all = append(all, v)
			}
		}
	}
	return all
}
