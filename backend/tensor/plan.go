package tensor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// plan is a compiled recording and the bindings of its inputs and outputs.
type plan struct {
	types   []op.Type      // of the arguments it was recorded for
	given   []*GradientTag // of the arguments
	in, out []int          // how they lie in the argument, and the results in the result; see layout.shape
	program driver.Program
	graph   *ir.Graph
	sources []source
	written []written // where outputs 0 … go; results follow

	variables []*Variable // that it reads or assigns
	domain    *domain     // theirs, nil without any
	ensured   atomic.Bool // all have a value

	own   call           // of runs that assign variables, which take turns
	calls callList       // of others
	spare []*storage     // per output that is written: memory to swap with, when it is not overwritten in place
	tags  []*GradientTag // of the results
	free  []*freeList    // per result: released tensors

	starter driver.AsyncProgram // the program, if a failed run leaves nothing to undo here

	group     int         // number of the Communicator of its exchanges with other ranks, 0 without any
	exchanges string      // what they are
	agreed    atomic.Bool // that all ranks make them

	settings  settings // of package backend, when it was compiled
	unbounded bool     // it was made to be looked at; whether it fits into memory is not known
	stopAtNaN bool
	runs      int // how often it ran, for MEZZO_DEBUG=plan and trace

	key    besideKey
	beside *beside // of the step beside itself
}

// call is the bindings of a run of a plan.
type call struct {
	args            []*Tensor
	inBufs, outBufs []driver.Buffer
	results         []*Tensor
	traced          func(*ir.Graph, []driver.Span) error // gets the spans of the workers, or nil
}

// callList holds the calls that no run uses.
type callList struct {
	mu   sync.Mutex
	idle []*call
}

func (l *callList) take() *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.idle)
	if n == 0 {
		return &call{}
	}
	c := l.idle[n-1]
	l.idle = l.idle[:n-1]
	return c
}

func (l *callList) give(c *call) {
	clear(c.args)
	clear(c.inBufs)
	clear(c.outBufs)
	clear(c.results)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, c)
}

// fit makes room for the buffers of p.
func (c *call) fit(p *plan) {
	if c.inBufs == nil {
		c.inBufs = make([]driver.Buffer, len(p.sources))
		c.outBufs = make([]driver.Buffer, len(p.graph.Outputs))
		c.results = make([]*Tensor, len(p.graph.Outputs)-len(p.written))
	}
}

// concurrent reports whether runs of p may overlap: they assign nothing, and nothing
// watches them.
func (p *plan) concurrent() bool {
	debug := backend.DebugFromEnv()
	return len(p.written) == 0 && !p.stopAtNaN && !p.unbounded && !debug.Plan && debug.Trace == ""
}

// written is an assignment of a program: to a variable, or its shadow. If the program
// does not read it (blind), it may be written in place.
type written struct {
	variable *Variable
	shadow   *shadow
	blind    bool
}

// freeList holds released result tensors of one plan for its next runs.
type freeList struct {
	mu      sync.Mutex
	tensors []*Tensor
}

// Release returns memory that is no longer needed: of a Function's result to the next
// call, of a tensor (or tuple) of a batch to a later batch. Use it where steady calls
// and loops should allocate nothing.
//
// A released result must not be used. A tensor of a batch may be read until the next
// batch is requested from the dataset; after that, reading it, or a tensor recorded
// from it and not yet computed, is an error. Releasing it later, releasing any other
// tensor, and a second Release have no effect.
func (t *Tensor) Release() {
	if t == nil {
		return
	}
	for _, p := range t.parts {
		p.Release()
	}
	if t.data != nil {
		t.data.release()
	}
	if t.home == nil {
		return
	}
	if !backend.Keeps(backend.Results) {
		return
	}
	t.home.mu.Lock()
	defer t.home.mu.Unlock()
	if !slices.Contains(t.home.tensors, t) {
		t.home.tensors = append(t.home.tensors, t)
	}
}

// take returns a released tensor, or nil.
func (f *freeList) take() *Tensor {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.tensors)
	if n == 0 {
		return nil
	}
	t := f.tensors[n-1]
	f.tensors = f.tensors[:n-1]
	return t
}

// fits reports whether p was compiled for arguments like those of the call in progress.
func (p *plan) fits(c *core, key besideKey) bool {
	if p.key != key || p.settings != currentSettings() || !slices.Equal(c.shape, p.in) {
		return false
	}
	for i, a := range c.args {
		if !a.typ.Equal(p.types[i]) || !a.gradient.equal(p.given[i]) {
			return false
		}
	}
	return true
}

// settings is what a compilation depends on besides the graph: a plan of others is not used.
type settings struct {
	tf32, tf32Set bool
	bits          backend.Bits
}

func currentSettings() (s settings) {
	s.tf32, s.tf32Set = backend.TF32()
	s.bits = backend.CurrentBits()
	return s
}

func (p *plan) finish(sources []source) {
	p.sources = sources
	for i, s := range sources {
		switch {
		case p.graph.Params[i] == nil:
		case s.variable != nil:
			p.variables = append(p.variables, s.variable)
		case s.shadow != nil:
			p.variables = append(p.variables, s.shadow.from...)
		}
	}
	for _, w := range p.written {
		p.variables = append(p.variables, w.variable)
	}
	p.domain = unite(p.variables)
	for _, v := range p.graph.Values {
		if v.Op == op.AllReduceStart || v.Op == op.AllGatherStart {
			p.group = v.Attr.AllReduce.Group
			p.exchanges += fmt.Sprintf("%s %v\n", map[bool]string{false: "exchanges", true: "gathers"}[v.Op == op.AllGatherStart], v.Attr.AllReduce)
		}
	}
	p.spare = make([]*storage, len(p.written))
	inPlace := true
	for i := range p.written {
		inPlace = inPlace && p.graph.Donated[i] >= 0
	}
	if inPlace {
		p.starter, _ = p.program.(driver.AsyncProgram)
	}
	p.free = make([]*freeList, len(p.graph.Outputs)-len(p.written))
	for i := range p.free {
		p.free[i] = &freeList{}
	}
}

// ready makes sure that arguments and variables have values, which may run other
// programs. The caller must hold no domain.
func (p *plan) ready(ctx context.Context, args []*Tensor) error {
	for i, s := range p.sources {
		if s.argument >= 0 && p.graph.Params[i] != nil && args[s.argument].data == nil {
			if err := Eval(ctx, args[s.argument]); err != nil {
				return err
			}
		}
	}
	if p.ensured.Load() {
		return nil
	}
	for _, v := range p.variables {
		if _, err := v.ensure(ctx); err != nil {
			return err
		}
	}
	p.ensured.Store(true)
	return nil
}

// bind finds the buffers of the inputs.
func (p *plan) bind(ctx context.Context, c *call) error {
	for i, s := range p.sources {
		if p.graph.Params[i] == nil {
			continue // nothing depends on it
		}
		st := s.data
		switch {
		case s.argument >= 0:
			st = c.args[s.argument].data
		case s.variable != nil:
			var err error
			if st, err = s.variable.ensure(ctx); err != nil {
				return err
			}
		case s.shadow != nil:
			var err error
			if st, err = s.shadow.ensure(ctx, true); err != nil {
				return err
			}
		}
		if err := st.held(); err != nil {
			return &Error{Op: "Function", Err: err}
		}
		c.inBufs[i] = st.buf
	}
	return nil
}

// run executes the program once, with the arguments of c, and rebinds the variables it
// assigns. It returns c's results.
func (p *plan) run(ctx context.Context, c *call) ([]*Tensor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.bound(); err != nil {
		return nil, err
	}
	if err := p.ready(ctx, c.args); err != nil {
		return nil, err
	}
	if err := p.agree(); err != nil {
		return nil, err
	}
	c.fit(p)
	if p.domain != nil {
		alone := len(p.written) > 0
		d := p.domain.lock(alone)
		defer d.unlock(alone)
	}
	for _, w := range p.written {
		if w.shadow == nil {
			if err := w.variable.own(); err != nil {
				return nil, err
			}
		}
	}
	if err := p.bind(ctx, c); err != nil {
		return nil, err
	}
	for i := range p.written {
		if err := p.place(ctx, c, i); err != nil {
			return nil, err
		}
	}
	for i := range c.results {
		r, err := p.result(i)
		if err != nil {
			return nil, err
		}
		c.results[i] = r
		c.outBufs[len(p.written)+i] = r.data.buf
	}
	if err := p.execute(ctx, c); err != nil {
		for _, r := range c.results {
			r.Release()
		}
		return nil, err
	}
	p.settle()
	if backend.DebugFromEnv().Check {
		if err := p.checkShadows(); err != nil {
			return nil, err
		}
	}
	return c.results, nil
}

// agree compares the exchanges of a program with those of the other ranks before its
// first run: a difference would be a call that never returns.
func (p *plan) agree() error {
	if p.group == 0 || p.agreed.Load() {
		return nil
	}
	c := driver.CommunicatorOf(p.group)
	if c == nil {
		return &Error{Op: "Function", Err: errors.New("the group of ranks that it was recorded for has ended")}
	}
	if err := c.SameText(arithmetic()); err != nil {
		return &Error{Op: "Function", Err: fmt.Errorf("%w: weights would differ from rank to rank; set MEZZO_CPU to a level that all machines have", err)}
	}
	if err := c.SameText(p.exchanges); err != nil {
		return &Error{Op: "Function", Err: err}
	}
	p.agreed.Store(true)
	return nil
}

// arithmetic says what the bits of an update depend on besides its program: ranks whose
// kernels are written for different instruction sets round differently.
func arithmetic() string {
	if backend.CurrentBits() == backend.PortableBits {
		return "computes with portable bits"
	}
	text := "computes on " + runtime.GOARCH
	if d, err := backend.Default(); err == nil {
		if d, ok := d.(driver.Describer); ok {
			about := d.Describe()
			kind, _, _ := strings.Cut(about.Device, ":") // ranks of a machine have GPUs of their own
			text = fmt.Sprintf("computes on %s, %s with %s", kind, runtime.GOARCH, about.ISA)
		}
	}
	return text
}

// bound returns a *backend.MemoryError if the plan does not fit into memory and this is
// not known yet.
func (p *plan) bound() error {
	if !p.unbounded {
		return nil
	}
	d, err := backend.Default()
	if err == nil {
		err = backend.Fits(d, p.graph)
	}
	p.unbounded = err != nil
	return err
}

// place finds memory for output i.
func (p *plan) place(ctx context.Context, c *call, i int) (err error) {
	if in := p.graph.Donated[i]; in >= 0 {
		c.outBufs[i] = c.inBufs[in]
		return nil
	}
	if w := p.written[i]; w.blind {
		s, err := w.shadow.ensure(ctx, false)
		if err != nil {
			return err
		}
		w.shadow.mark(0) // should the run fail
		c.outBufs[i] = s.buf
		return nil
	}
	if p.spare[i] == nil {
		if p.spare[i], err = allocate(p.graph.Outputs[i].Type.Bytes()); err != nil {
			return err
		}
	}
	c.outBufs[i] = p.spare[i].buf
	return nil
}

// settle makes the outputs the values of the variables, then of their copies.
func (p *plan) settle() {
	for i, w := range p.written {
		if swap := p.graph.Donated[i] < 0 && !w.blind; swap && w.shadow == nil {
			p.spare[i] = w.variable.store.Swap(p.spare[i])
		} else if swap {
			w.shadow.store, p.spare[i] = p.spare[i], w.shadow.store
		}
		if w.shadow != nil {
			w.shadow.mark(w.variable.store.Load().buf.Version())
		}
	}
}

func (p *plan) result(i int) (*Tensor, error) {
	if r := p.free[i].take(); r != nil {
		return r, nil
	}
	t := p.graph.Outputs[len(p.written)+i].Type
	s, err := allocate(t.Bytes())
	if err != nil {
		return nil, err
	}
	r := fromStorage(t, s)
	r.home, r.gradient = p.free[i], p.tags[i]
	return r, nil
}

func (p *plan) execute(ctx context.Context, c *call) error {
	if p.stopAtNaN {
		return p.watch(ctx, c, p.stop)
	}
	if c.traced != nil {
		return p.trace(ctx, c, c.traced)
	}
	debug := backend.DebugFromEnv()
	if !debug.Plan && debug.Trace == "" {
		if p.starter != nil {
			return p.starter.Start(ctx, c.inBufs, c.outBufs)
		}
		return p.program.Run(ctx, c.inBufs, c.outBufs)
	}
	p.runs++
	if debug.Trace != "" && p.runs == 3 {
		return p.trace(ctx, c, appendTrace(debug.Trace))
	}
	if !debug.Plan {
		return p.program.Run(ctx, c.inBufs, c.outBufs)
	}
	t, ok := p.program.(driver.Timer)
	if ok {
		t.SetTiming(true)
	}
	err := p.program.Run(ctx, c.inBufs, c.outBufs)
	// The third run is the first with warm caches and all memory touched.
	if ok && err == nil && p.runs == 3 {
		printTimes(p.graph, t.Times())
	}
	return err
}

// watch runs the program and shows see its inputs, then every value computed.
func (p *plan) watch(ctx context.Context, c *call, see func(v *ir.Value, data []byte) error) error {
	w, ok := p.program.(driver.Watcher)
	if !ok {
		return &Error{Op: "Function", Err: errors.New("the device cannot show the values that it computes")}
	}
	for i, v := range p.graph.Params {
		if v == nil {
			continue
		}
		b, err := host(c.inBufs[i], v.Type.Bytes())
		if err == nil {
			err = see(v, b)
		}
		if err != nil {
			return err
		}
	}
	return w.RunWatched(ctx, c.inBufs, c.outBufs, see)
}

func printTimes(g *ir.Graph, ns []int64) {
	fmt.Fprintf(os.Stderr, "plan: third run, nanoseconds per step\n")
	for i, v := range g.Values {
		if i < len(ns) && ns[i] > 0 {
			fmt.Fprintf(os.Stderr, "%10d ns  %%%d = %v %v  # %s\n", ns[i], v.ID, v.Op, v.Type, v.Path)
		}
	}
}

// NonFinite is the first value of a step that was NaN or infinite.
type NonFinite struct {
	Path  string  // layer that computed it, or the name of the variable or argument
	Op    op.Code // operation that computed it; Param for an input
	Type  op.Type
	NaN   bool // a NaN is among the values, not only infinities
	Given bool // it was there before: an input or a variable had it

	Argument int // of the Function that was given it, counting the tensors of tuples; -1 for others
}

func (e *NonFinite) Error() string {
	kind := "an infinity"
	if e.NaN {
		kind = "a NaN"
	}
	if e.Given {
		return fmt.Sprintf("%s: %s was there before the step, in %v", e.Path, kind, e.Type)
	}
	where, cause := "", "overflow"
	if e.Path != "" {
		where = "layer " + e.Path + ": "
	}
	if e.NaN {
		cause = "invalid operation"
	}
	return fmt.Sprintf("%s%v made %s in %v (%s; its inputs were finite)", where, e.Op, kind, e.Type, cause)
}

// nonFinite reports the non-finite elements of a value, or nil. Values are checked in
// the order of computation, so the first one was computed from finite arguments, or is
// an input.
func nonFinite(v *ir.Value, data []byte) *NonFinite {
	if !v.Type.DType.IsFloat() || v.Op == op.Const {
		return nil
	}
	bad, nan := scan(data, v.Type.DType)
	if !bad {
		return nil
	}
	return &NonFinite{Path: v.Path, Op: v.Op, Type: v.Type, NaN: nan, Given: v.Op == op.Param, Argument: -1}
}

// stop is nonFinite of a value of the plan, as an error.
func (p *plan) stop(v *ir.Value, data []byte) error {
	n := nonFinite(v, data)
	if n == nil {
		return nil
	}
	if n.Given {
		n.Argument = p.sources[v.Attr.Index].argument
	}
	return n
}

// checkFinite is an error if t, which was just computed, is not finite though its
// arguments are.
func (t *Tensor) checkFinite() error {
	bad := func(t *Tensor) error {
		b, err := host(t.data.buf, t.typ.Bytes())
		if err != nil {
			return err
		}
		if n := nonFinite(&ir.Value{Op: t.op, Type: t.typ, Path: t.path}, b); n != nil {
			return n
		}
		return nil
	}
	for _, a := range t.args {
		if a.data != nil && bad(a) != nil {
			return nil
		}
	}
	return bad(t)
}

// scan looks for values that are not finite.
func scan(data []byte, d dtype.DType) (bad, nan bool) {
	var chunk [1024]float64
	size := d.Size()
	for len(data) > 0 {
		n := min(len(data)/size, len(chunk))
		dtype.ToF64(chunk[:n], data[:n*size], d)
		for _, x := range chunk[:n] {
			if x-x != 0 {
				bad = true
				nan = nan || x != x
			}
		}
		data = data[n*size:]
	}
	return bad, nan
}

// FirstNonFinite runs the function on in, changes nothing, and returns the
// first value that was NaN or infinite, or nil when all were finite.
func (fn *Func[In, Out]) FirstNonFinite(ctx context.Context, in In) (*NonFinite, error) {
	err := fn.watch(ctx, in, nil, (*plan).stop)
	if n, ok := err.(*NonFinite); ok {
		return n, nil
	}
	return nil, err
}

// Programs is how many programs the function has compiled.
func (fn *Func[In, Out]) Programs() int {
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	return len(fn.core.plans)
}

// Memory is the memory of one run of a plan, in bytes.
type Memory struct {
	Arena, Arguments, Results int
	Variables                 int // with data from outside, and copies of variables in 16 bits
	Workspace                 int // of the device's kernels, and constants
}

// MemoryOf plans the function for arguments like in and returns the memory of a run.
func (fn *Func[In, Out]) MemoryOf(in In) (m Memory, err error) {
	defer Catch(&err)
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.take(&in)
	p, err := fn.plan(context.Background(), in, true)
	if err != nil {
		return m, err
	}
	m.Arena = p.graph.ArenaBytes
	if s, ok := p.program.(driver.WorkspaceSizer); ok {
		m.Workspace = s.Workspace()
	}
	read := map[*Variable]bool{}
	for i, s := range p.sources {
		v := p.graph.Params[i]
		if v != nil && s.variable != nil {
			read[s.variable] = true
		}
		switch {
		case v == nil:
		case s.argument >= 0:
			m.Arguments += v.Type.Bytes()
		default:
			m.Variables += v.Type.Bytes()
		}
	}
	for i, o := range p.graph.Outputs {
		switch {
		case i >= len(p.written):
			m.Results += o.Type.Bytes()
		case p.graph.Donated[i] < 0:
			m.Variables += o.Type.Bytes()
			if w := p.written[i]; w.shadow == nil && !read[w.variable] {
				m.Variables += o.Type.Bytes() // its last value, should the run fail
			}
		}
	}
	return m, nil
}
