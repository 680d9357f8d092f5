package tensor

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Stateful has variables that a Function may change: a model, an optimizer, a metric.
type Stateful interface{ Variables() []*Variable }

var preconditions []func(Stateful) func() error

// RegisterPrecondition registers of, which returns the precondition of an owner
// of Functions, nil for an owner without one. A Function looks up the
// preconditions of its owners when it is made. It calls them before each run, and
// returns their errors: for owners whose settings are read only while recording
// and have been changed since. Packages call RegisterPrecondition in init.
func RegisterPrecondition(of func(Stateful) func() error) {
	preconditions = append(preconditions, of)
}

// Func is a compiled Go function; see Function. Its methods may be called
// from several goroutines. Calls of a Func that assigns no variable run at the same
// time; others take turns, and calls of whatever Func that read the variables wait
// for them.
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
	fn := &Func[In, Out]{f: f, in: layoutOf[In](), out: layoutOf[Out](), core: core{owners: changes}}
	fn.core.inspectOwners()
	return fn
}

// Options changes how later calls are compiled; programs made so far are
// forgotten.
func (fn *Func[In, Out]) Options(o ir.Options) {
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.options = o
	fn.core.plans = nil
}

// KeepCasts says whether later calls read 16-bit copies of variables, which are
// kept from one to the next and written with the variables (the default), or
// cast the variables in each call. Copies take memory for as long as the
// variables live; no bit of a result depends on them. Programs made so far are
// forgotten.
func (fn *Func[In, Out]) KeepCasts(on bool) {
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.castAlways = !on
	fn.core.plans = nil
}

// Call runs the function. If it returns an error, no variable has changed. The context
// is checked while the step computes, not while it stores.
//
// A GPU may still compute when Call returns; reading a result waits for it. An error
// that the device finds later, such as an index out of range, is returned by a later
// call or by the next read, whichever comes first. No variable has changed then since
// the step before the one that failed.
func (fn *Func[In, Out]) Call(ctx context.Context, in In) (out Out, err error) {
	defer Catch(&err)
	if current() != nil {
		return fn.f(in), nil // part of another recording: inline
	}
	needs(ctx, "Function")
	turn := fn.core.begin()
	defer turn.end()
	fn.take(&in)
	for _, a := range fn.core.args {
		if a.trace != nil || a.symbolic {
			return fn.f(in), nil
		}
	}
	if eager() {
		return fn.eager(ctx, in)
	}
	p, err := fn.plan(ctx, in, false)
	if err != nil {
		return out, err
	}
	c := turn.call(p)
	results, err := p.run(ctx, c)
	if err == nil {
		fn.out.restore(ptr(&out), p.out, results)
	}
	turn.done(p, c)
	return out, err
}

// turn is the time that a call has the state of its Function to itself. Calls
// that assign nothing end it before they run.
type turn struct {
	c    *core
	over bool
}

func (c *core) begin() turn {
	c.mu.Lock()
	return turn{c: c}
}

func (t *turn) end() {
	if !t.over {
		t.over = true
		t.c.mu.Unlock()
	}
}

// call returns the bindings of a run of p to the arguments of the call in progress.
func (t *turn) call(p *plan) *call {
	c := &p.own
	if p.concurrent() {
		c = p.calls.take()
	}
	c.args = append(c.args[:0], t.c.args...)
	if c != &p.own {
		t.end()
	}
	return c
}

// done returns c for later runs.
func (t *turn) done(p *plan, c *call) {
	if c != &p.own {
		p.calls.give(c)
	}
}

// needs panics when a caller gave no context.
func needs(ctx context.Context, where string) {
	if ctx == nil {
		Fail(where, "the context is nil; use context.Background()")
	}
}

// take records the tensors of in as the arguments of the call in progress, after
// checking whether calls may run.
func (fn *Func[In, Out]) take(in *In) {
	fn.core.checkOwners()
	fn.core.args = fn.in.tensors(fn.core.args[:0], ptr(in))
	fn.core.shape = fn.in.shape(fn.core.shape[:0], ptr(in))
	for _, a := range fn.core.args {
		if a.err != nil {
			panic(&Error{Op: "Function", Err: a.err})
		}
	}
}

// Run is Call for its effects: results are computed but not returned, and
// nothing is allocated once compiled.
func (fn *Func[In, Out]) Run(ctx context.Context, in In) (err error) {
	if eager() || current() != nil {
		_, err := fn.Call(ctx, in)
		return err
	}
	defer Catch(&err)
	needs(ctx, "Function")
	turn := fn.core.begin()
	defer turn.end()
	fn.take(&in)
	p, err := fn.plan(ctx, in, false)
	if err != nil {
		return err
	}
	c := turn.call(p)
	results, err := p.run(ctx, c)
	for _, r := range results {
		r.Release()
	}
	turn.done(p, c)
	return err
}

// Each runs the function on every element of a sequence, for its effects, and stops at
// the first error. After each run it releases the memory of a dataset's batch, as
// [Tensor.Release] does. To keep a batch, keep a [Tensor.Clone], or call Run in your
// own loop. Elements of other sequences, and batches kept before, are not released.
func (fn *Func[In, Out]) Each(ctx context.Context, seq iter.Seq2[In, error]) error {
	for in, err := range seq {
		if err != nil {
			return err
		}
		if err := fn.Run(ctx, in); err != nil {
			return err
		}
		fn.handBack(in)
	}
	return nil
}

// handBack releases the batches of an argument after Run, unless recorded tensors still
// refer to them.
func (fn *Func[In, Out]) handBack(in In) {
	if current() != nil {
		return
	}
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.args = fn.in.tensors(fn.core.args[:0], ptr(&in))
	for _, a := range fn.core.args {
		if a.trace != nil || a.symbolic {
			return
		}
	}
	HandBack(fn.core.args...)
}

// Plan compiles the function for arguments of these types and returns the
// plan, for tests and for planning memory. It runs nothing, so the arguments
// may be Placeholders.
func (fn *Func[In, Out]) Plan(in In) (g *ir.Graph, err error) {
	defer Catch(&err)
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.take(&in)
	p, err := fn.plan(context.Background(), in, true)
	if err != nil {
		return nil, err
	}
	return p.graph, nil
}

// Watch runs the function as Call does but shows every input and every value
// it computes, and changes no variable: how the cause of a NaN is found.
func (fn *Func[In, Out]) Watch(ctx context.Context, in In, see func(v *ir.Value, data []byte) error) (err error) {
	defer Catch(&err)
	needs(ctx, "Watch")
	return fn.watch(ctx, in, nil, func(_ *plan, v *ir.Value, data []byte) error { return see(v, data) })
}

// watch is Watch, also without the passes of skip.
func (fn *Func[In, Out]) watch(ctx context.Context, in In, skip []string, see func(p *plan, v *ir.Value, data []byte) error) (err error) {
	defer Catch(&err)
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.take(&in)
	o := fn.core.options
	o.Watch, o.Once, o.Skip = true, true, slices.Concat(o.Skip, skip)
	p, err := fn.compile(ctx, in, o)
	if err != nil {
		return err
	}
	c := &p.own
	c.args = append(c.args[:0], fn.core.args...)
	c.fit(p)
	if err := p.ready(ctx, c.args); err != nil {
		return err
	}
	if p.domain != nil {
		d := p.domain.lock(false)
		defer d.unlock(false)
	}
	if err := p.bind(ctx, c); err != nil {
		return err
	}
	for i, v := range p.graph.Outputs {
		s, err := allocate(v.Type.Bytes())
		if err != nil {
			return err
		}
		c.outBufs[i] = s.buf
	}
	return p.watch(ctx, c, func(v *ir.Value, data []byte) error { return see(p, v, data) })
}

// plan finds or makes the program for the types of the arguments. A plan that is
// only looked at may need more memory than there is.
func (fn *Func[In, Out]) plan(ctx context.Context, in In, look bool) (*plan, error) {
	if p := fn.core.find(besideKey{}); p != nil {
		return p, nil
	}
	o := fn.core.options
	nan := backend.DebugFromEnv().NaN
	o.Watch, o.Unbounded = o.Watch || nan, look
	p, err := fn.compile(ctx, in, o)
	if err != nil {
		return nil, err
	}
	p.stopAtNaN, p.unbounded = nan, look
	if backend.Keeps(backend.Plans) {
		fn.core.keep(p)
	}
	return p, nil
}

// find returns the kept plan for the arguments of the call in progress, nil if there is
// none. It is the last one used then.
func (c *core) find(key besideKey) *plan {
	for i, p := range c.plans {
		if p.fits(c, key) {
			copy(c.plans[1:i+1], c.plans[:i])
			c.plans[0] = p
			return p
		}
	}
	return nil
}

// maxPlans is how many plans a Function keeps, unless KeepPlans says another
// number.
const maxPlans = 64

// KeepPlans sets how many plans the function keeps, the most recently used ones; there
// is one for each combination of argument types. The default is 64. Each plan takes
// memory and time to compile, so data of many lengths should be padded to a few
// (data.BucketByLength). Less than 1 is 1. Results do not depend on the number.
func (fn *Func[In, Out]) KeepPlans(n int) {
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.core.maxPlans = max(n, 1)
	fn.core.trim()
}

// keep makes p the plan that was used last.
func (c *core) keep(p *plan) {
	c.plans = slices.Insert(c.plans, 0, p)
	if c.trim() && !c.told {
		c.told = true
		slog.Warn("keras: the arguments of a Function keep changing their shapes, and each change compiles a plan; pad them to fewer lengths (data.BucketByLength), or raise the number of plans that are kept (KeepPlans)",
			slog.Int("plans", len(c.plans)), slog.Any("arguments", describe(c.args)))
	}
}

// trim forgets the plans that were not used for longest, if there are too many.
func (c *core) trim() (forgot bool) {
	n := cmp.Or(c.maxPlans, maxPlans)
	for len(c.plans) > n {
		last := len(c.plans) - 1
		if t, ok := c.plans[last].program.(driver.Trimmer); ok {
			t.Trim() // others may still have the program
		}
		c.plans = slices.Delete(c.plans, last, last+1)
		forgot = true
	}
	return forgot
}

// describe lists the types of arguments, for messages.
func describe(args []*Tensor) (all []string) {
	for _, a := range args {
		all = append(all, a.typ.String())
	}
	return all
}

// core is the part of a Func that does not depend on its types.
type core struct {
	mu            sync.Mutex
	owners        []Stateful
	absent        error          // an owner is nil
	preconditions []func() error // of the owners
	options       ir.Options
	castAlways    bool      // see KeepCasts
	folds         bool      // see FoldNormalization
	plans         []*plan   // the one that was used last first
	maxPlans      int       // 0: the default
	told          bool      // that shapes keep changing
	args          []*Tensor // of the call in progress
	shape         []int     // how they lie in its argument; see layout.shape
}

// inspectOwners finds nil owners and preconditions.
func (c *core) inspectOwners() {
	for i, o := range c.owners {
		if v := reflect.ValueOf(o); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			c.absent = fmt.Errorf("owner %d of its list is nil", i+1)
			if o != nil {
				c.absent = fmt.Errorf("owner %d of its list is a nil %T", i+1, o)
			}
			return
		}
		for _, of := range preconditions {
			if check := of(o); check != nil {
				c.preconditions = append(c.preconditions, check)
			}
		}
	}
}

// checkOwners panics when an owner is nil or a precondition fails.
func (c *core) checkOwners() {
	if c.absent != nil {
		panic(&Error{Op: "Function", Err: c.absent})
	}
	for _, check := range c.preconditions {
		if err := check(); err != nil {
			panic(&Error{Err: err})
		}
	}
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
