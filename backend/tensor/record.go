package tensor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/internal/goroutine"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// recording is the one in progress. There is one at a time, as variables are
// bound to symbols while it lasts.
var recording struct {
	sync.Mutex
	by    atomic.Uint64 // ID of the goroutine that records, 0 for none
	trace *trace        // for that goroutine alone
}

// current returns the recording of the calling goroutine, or nil. Some code has no
// tensor to get it from: a Function without arguments, a variable assigned a constant.
func current() *trace {
	if by := recording.by.Load(); by == 0 || by != goroutine.ID() {
		return nil
	}
	return recording.trace
}

// Recording numbers the recording that the calling goroutine is in: no two have
// the same number. It is 0 outside of Functions.
func Recording() uint64 {
	if tr := current(); tr != nil {
		return tr.id
	}
	return 0
}

// Readable returns nil outside of Functions, where computed tensors can be read. In a
// Function it returns an error that names what: a number read there would be a constant
// of the program.
func Readable(what string) error {
	if current() == nil {
		return nil
	}
	return fmt.Errorf("%s has no data inside a Function; read it when the call has returned", what)
}

// record records the function with call and passes the recording to finish. It repeats
// this while recording creates variables: layers build weights in their first call,
// then optimizers create slots for them. Only a recording that finds all variables in
// the list counts; errors of earlier ones, such as assigning a variable just created,
// are dropped.
func (c *core) record(ctx context.Context, eager bool, call func(*trace), finish func(*trace) error) error {
	if current() != nil {
		return &Error{Op: "Function", Err: errors.New("it is planned or watched inside another Function; do that outside")}
	}
	for range 4 {
		before := len(c.variables())
		err := c.recordOnce(ctx, &trace{id: sequence.Add(1), eager: eager}, call, finish)
		var e *Error
		if len(c.variables()) == before || err != nil && !errors.As(err, &e) {
			return err
		}
	}
	return &Error{Op: "Function", Err: errors.New("it makes new variables each time it is recorded; make them once, and keep them")}
}

func (c *core) recordOnce(ctx context.Context, tr *trace, call func(*trace), finish func(*trace) error) (err error) {
	defer Catch(&err)
	recording.Lock()
	defer recording.Unlock()
	listed := c.variables()
	if tr.eager { // before the recording begins, in which variables cannot be read: a slot may start as the weight
		for _, v := range listed {
			if _, err := v.ensure(ctx); err != nil {
				return err
			}
		}
	}
	recording.trace = tr
	recording.by.Store(goroutine.ID())
	defer func() {
		recording.by.Store(0)
		recording.trace = nil
		tr.done = true
		for _, v := range slices.Concat(listed, tr.assigned) {
			v.leaf, v.bound, v.latest = nil, nil, nil
		}
	}()
	for _, v := range listed {
		leaf := &Tensor{op: op.Param, typ: v.typ, variable: v, seq: sequence.Add(1), trace: tr, argument: -1}
		if tr.eager {
			leaf.data = v.store.Load()
		}
		v.leaf, v.bound = leaf, leaf
	}
	call(tr)
	now := c.variables()
	if len(now) > len(listed) {
		return nil // recorded again
	}
	for _, v := range tr.assigned {
		if !slices.Contains(now, v) {
			return &Error{Op: "Function", Err: fmt.Errorf("it assigns variable %s but its owner is not in the Function's list", v.name)}
		}
	}
	return finish(tr)
}

// symbolic calls f with arguments that have no data, like those of the call in
// progress.
func (fn *Func[In, Out]) symbolic(tr *trace, in In) Out {
	args := make([]*Tensor, len(fn.core.args))
	for i, a := range fn.core.args {
		args[i] = &Tensor{op: op.Param, typ: a.typ, seq: sequence.Add(1), trace: tr, argument: i, gradient: a.gradient}
	}
	return fn.f(fn.in.replace(in, ptr(&in), args).(In))
}

// compile records f and compiles the recording.
func (fn *Func[In, Out]) compile(ctx context.Context, in In, o ir.Options) (*plan, error) {
	for _, a := range fn.core.args {
		if !a.typ.Shape.Known() {
			return nil, &Error{Op: "Function", Err: fmt.Errorf("an argument is %v, want one of known shape", a.typ)}
		}
	}
	var out Out
	p := &plan{in: slices.Clone(fn.core.shape), settings: currentSettings()}
	for _, a := range fn.core.args {
		p.types, p.given = append(p.types, a.typ), append(p.given, a.gradient)
	}
	err := fn.core.record(ctx, false, func(tr *trace) { out = fn.symbolic(tr, in) }, func(tr *trace) error {
		p.out = fn.out.shape(nil, ptr(&out))
		results := fn.out.tensors(nil, ptr(&out))
		for _, r := range results {
			p.tags = append(p.tags, r.returned())
		}
		return p.compile(ctx, tr, results, o, !fn.core.castAlways && !o.Watch && backend.Keeps(backend.ShadowWeights), fn.core.folds && !o.Watch)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// compile compiles the recording tr with these results. The 16-bit copies of assigned
// variables are results too.
func (p *plan) compile(ctx context.Context, tr *trace, results []*Tensor, o ir.Options, shadows, folds bool) error {
	var roots []*Tensor
	for _, v := range tr.assigned {
		p.written = append(p.written, written{variable: v})
		roots = append(roots, v.bound)
	}
	for _, r := range results {
		if r.err != nil {
			return r.err
		}
		roots = append(roots, r)
	}
	paint(roots...)
	c := newCapture(tr)
	c.shadows = shadows
	if folds {
		c.foldChains(roots)
	}
	c.roots(roots...)
	roots = slices.Delete(roots, 0, len(tr.assigned))
	if shadows {
		for _, v := range tr.assigned {
			if tr.recast[v] {
				continue
			}
			for _, h := range v.shadows {
				p.written = append(p.written, written{v, h, c.inputOf(v, h) < 0})
			}
		}
	}
	for _, w := range p.written {
		t := w.variable.bound
		if w.shadow != nil {
			since := SequencePoint()
			t = t.Cast(w.shadow.typ.DType)
			Label(w.variable.bound.path, since, t)
		}
		c.output(t, c.inputOf(w.variable, w.shadow))
	}
	for _, t := range roots {
		c.output(t, -1)
	}
	d, err := backend.Default()
	if err != nil {
		return err
	}
	if p.program, p.graph, err = backend.Compile(ctx, d, c.graph, o); err != nil {
		return err
	}
	p.finish(c.sources)
	return nil
}

// eager runs f on computed tensors, an operation at a time.
func (fn *Func[In, Out]) eager(ctx context.Context, in In) (out Out, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	if err := Eval(ctx, fn.core.args...); err != nil {
		return out, err
	}
	var computed Out
	err = fn.core.record(ctx, true, func(tr *trace) {
		args := make([]*Tensor, len(fn.core.args))
		for i, a := range fn.core.args {
			args[i] = &Tensor{op: op.Param, typ: a.typ, data: a.data, seq: sequence.Add(1), trace: tr, argument: i, gradient: a.gradient}
		}
		computed = fn.f(fn.in.replace(in, ptr(&in), args).(In))
	}, func(tr *trace) error {
		results := fn.out.tensors(nil, ptr(&computed))
		values := slices.Clone(results)
		for _, v := range tr.assigned {
			values = append(values, v.bound)
		}
		if err := Eval(ctx, values...); err != nil {
			return err
		}
		// Copies: a value may belong to a variable or an argument.
		data := make([]*storage, len(values))
		for i, t := range values {
			if data[i], err = t.data.copy(t.typ.Bytes()); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for i, r := range results {
			results[i] = fromStorage(r.typ, data[i])
			results[i].gradient = r.returned()
		}
		for i, v := range tr.assigned {
			v.adopt(data[len(results)+i])
		}
		fn.out.restore(ptr(&out), fn.out.shape(nil, ptr(&computed)), results)
		return nil
	})
	return out, err
}
