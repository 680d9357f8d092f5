package cpu

import (
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/attention"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/collective"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/conv"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/move"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/pooling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/recurrent"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/reduce"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// step is the computation of a value. Views have no kernel. A value that is fused into
// its consumer is computed only if it is watched.
type step struct {
	pos     int
	kernel  exec.Kernel
	alone   exec.Kernel // kernel for watched runs, or nil: the same one
	watched bool
}

// bind records that a value lies in a buffer of the caller.
type bind struct {
	pos, bytes int
	from       int // index in Program.buffers
}

// callerBuffer is an input or output buffer. Outputs, and inputs that the plan donated,
// are overwritten.
type callerBuffer struct {
	index, bytes     int
	out, overwritten bool
}

// Program is a compiled plan.
type Program struct {
	plan    exec.Plan
	graph   *ir.Graph
	device  *Device
	lease   *lease // of constants and runs
	steps   []step
	binds   []bind
	buffers []callerBuffer
	static  [][]byte // data of constants, by position
	choices map[int]exec.Choice
	packers []int // positions of the values that the packed operands are for, as in plan.Packed

	mu     sync.Mutex
	free   []*execution
	times  []int64
	timing atomic.Bool
}

// execution is a run and the buffers that it is bound to. The program keeps it for
// later runs.
type execution struct {
	exec.Run
	bound  []*Buffer // the caller's, as in Program.buffers
	times  []int64
	worker int // that it is used by, if workers run the program
}

// compiler builds the kernels of a program.
type compiler struct {
	*exec.Builder
	ctx     context.Context
	program *Program
}

func compile(ctx context.Context, d *Device, g *ir.Graph) (*Program, error) {
	l := &lease{device: d}
	p := &Program{plan: exec.Plan{Graph: g, Memory: l, Labels: labelled(g)}, graph: g, device: d, lease: l, static: make([][]byte, len(g.Values))}
	b := &compiler{exec.NewBuilder(&p.plan), ctx, p}
	b.CastOf = product.FoldCasts(b.Builder)
	for i, v := range g.Values {
		bytes := v.Type.Bytes()
		switch v.Slot.Place {
		case ir.Nowhere:
			return nil, fmt.Errorf("cpu: Compile: value %d (%v) has no place; the graph was not optimized", i, v.Op)
		case ir.Input:
			p.place(i, callerBuffer{v.Slot.Index, bytes, false, slices.Contains(g.Donated, v.Slot.Index)})
		case ir.Output:
			p.place(i, callerBuffer{v.Slot.Index, bytes, true, true})
		}
		switch {
		case v.Op == op.Param:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case v.Op == op.Const:
			p.static[i] = exec.Constant(v)
			p.lease.Hold(len(p.static[i]))
		case v.View():
			p.static[i] = p.static[b.Pos[v.Args[0]]]
			p.steps = append(p.steps, step{pos: i})
		default:
			k, err := b.kernel(v)
			if err != nil {
				return nil, err
			}
			for len(p.packers) < len(p.plan.Packed) {
				p.packers = append(p.packers, i)
			}
			if v.Slot.Place == ir.Static {
				return nil, fmt.Errorf("cpu: Compile: value %d (%v) lies among the constants", i, v.Op)
			}
			s := step{pos: i, kernel: k}
			if k, ok := k.(exec.Producer); ok && v.Op != op.TakeAlongAxis && v.Type.DType == dtype.Float32 && elementwise.Fusible(g, i) {
				b.Produced[v], s.watched = k, true
			}
			if b.CastOf[v] != nil {
				s.watched = true
			}
			p.steps = append(p.steps, s)
		}
	}
	if err := b.runDepthFirst(g); err != nil {
		return nil, err
	}
	b.joinSeparable(g)
	b.tileBatches(g)
	b.runConcurrently(g)
	p.choices = b.Choices
	runtime.AddCleanup(p, (*lease).end, p.lease)
	return p, nil
}

// Copies shows the packed operands that are kept: those of the execution that the next run
// takes.
func (p *Program) Copies(see func(value int, data []byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 {
		return
	}
	r := p.free[len(p.free)-1]
	for i := range r.Packed {
		if k := &r.Packed[i]; k.Version != 0 && i < len(p.packers) {
			see(p.packers[i], k.Data)
		}
	}
}

// place records that the value at pos lies in a buffer of the caller.
func (p *Program) place(pos int, b callerBuffer) {
	at := slices.IndexFunc(p.buffers, func(x callerBuffer) bool { return x.index == b.index && x.out == b.out })
	if at < 0 {
		at = len(p.buffers)
		p.buffers = append(p.buffers, b)
	}
	p.buffers[at].bytes = max(p.buffers[at].bytes, b.bytes)
	p.binds = append(p.binds, bind{pos, b.bytes, at})
}

// kernel returns the kernel of v.
func (b *compiler) kernel(v *ir.Value) (exec.Kernel, error) {
	d := v.Type.DType
	if len(v.Args) > 0 {
		d = v.Args[0].Type.DType
	}
	if !b.program.device.Supports(v.Op, d) {
		return nil, &backend.UnsupportedError{Device: "cpu", Op: v.Op, DType: d, Path: v.Path}
	}
	switch {
	case v.WrittenByArg():
		return nil, nil
	case v.Op == op.Loop:
		return newLoop(b, v)
	case v.Op.Info().Class == op.Elementwise:
		return elementwise.New(b.Builder, v), nil
	}
	return kernels[v.Op](b.Builder, v), nil
}

// kernels builds the kernels of operations that are not element-wise.
var kernels map[op.Code]func(*exec.Builder, *ir.Value) exec.Kernel

func init() {
	kernels = map[op.Code]func(*exec.Builder, *ir.Value) exec.Kernel{
		op.Iota:            elementwise.NewIota,
		op.RandomUniform:   elementwise.NewRandom,
		op.Sum:             reduce.New,
		op.Mean:            reduce.New,
		op.Prod:            reduce.New,
		op.Max:             reduce.New,
		op.Min:             reduce.New,
		op.SumSquares:      reduce.New,
		op.AllFinite:       reduce.New,
		op.Stats:           reduce.NewStats,
		op.ArgMax:          reduce.NewArg,
		op.ArgMin:          reduce.NewArg,
		op.MatMul:          product.New,
		op.QuantizedMatMul: product.NewQuantized,
		op.Conv:            conv.New,
		op.QuantizedConv:   conv.NewQuantized,
		op.ConvInputGrad:   conv.New,
		op.ConvKernelGrad:  conv.New,
		op.RNN:             recurrent.New,
		op.RNNGrad:         recurrent.NewGrad,
		op.Result:          move.NewCopy,
		op.MaxPool:         pooling.New,
		op.MaxPoolGrad:     pooling.New,
		op.MaxPoolGradGrad: pooling.New,
		op.AvgPool:         pooling.New,
		op.AvgPoolGrad:     pooling.New,
		op.Softmax:         reduce.NewSoftmax,
		op.LogSoftmax:      reduce.NewSoftmax,
		op.Reshape:         move.NewCopy,
		op.Barrier:         move.NewCopy,

		op.SoftmaxGrad:      reduce.NewSoftmaxGrad,
		op.LayerNorm:        reduce.NewLayerNorm,
		op.LayerNormGrad:    reduce.NewLayerNormGrad,
		op.Moments:          reduce.NewMoments,
		op.BatchNormReduce:  reduce.NewBatchNormReduce,
		op.AttentionForward: attention.New,
		op.AttentionGrad:    attention.New,
		op.Transpose:        move.NewCopy,
		op.BroadcastTo:      move.NewCopy,
		op.Slice:            move.NewCopy,
		op.Concat:           move.NewConcat,
		op.Pad:              move.NewPad,
		op.Gather:           move.NewGather,
		op.TakeAlongAxis:    move.NewTakeAlongAxis,
		op.ScatterAlongAxis: move.NewScatterAlongAxis,
		op.ScatterAdd:       move.NewScatterAdd,
		op.ScatterUpdate:    move.NewScatterUpdate,
		op.Unique:           move.NewUnique,
		op.AllReduceStart:   collective.NewStart,
		op.AllReduceDone:    collective.NewDone,
		op.AllGatherStart:   collective.NewGatherStart,
		op.AllGatherDone:    collective.NewGatherDone,
	}
}

// Run computes out from in.
func (p *Program) Run(ctx context.Context, in, out []driver.Buffer) error {
	return p.RunWatched(ctx, in, out, nil)
}

// RunWatched is Run; it calls see after each value.
func (p *Program) RunWatched(ctx context.Context, in, out []driver.Buffer, see func(v *ir.Value, data []byte) error) error {
	return p.runWith(ctx, in, out, nil, see)
}

func (p *Program) runWith(ctx context.Context, in, out []driver.Buffer, t *exec.Tracer, see func(v *ir.Value, data []byte) error) error {
	r, err := p.get()
	if err != nil {
		return err
	}
	r.Trace = t
	err = p.bind(r, in, out)
	if err == nil {
		r.See = see
		err = p.do(ctx, r)
	}
	if e := p.unbind(r); err == nil {
		err = e
	}
	p.put(r)
	return err
}

// get returns an execution that is not in use, or a new one. Its error is a
// *backend.MemoryError.
func (p *Program) get() (*execution, error) { return p.getFor(0) }

// getFor is get for a worker, which prefers the execution that it had before.
func (p *Program) getFor(worker int) (*execution, error) {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		at := n - 1
		for i, r := range p.free {
			if r.worker == worker {
				at = i
			}
		}
		r := p.free[at]
		p.free[at] = p.free[n-1]
		p.free = p.free[:n-1]
		p.mu.Unlock()
		r.worker = worker
		return r, nil
	}
	p.mu.Unlock()
	need := p.graph.ArenaBytes + p.plan.Shared + 8*p.plan.Sums + p.plan.StateBytes
	if err := p.device.reserve(min(need+p.plan.Scratch, op.Limit), "a run of "+p.graph.Describe()); err != nil {
		return nil, err
	}
	p.device.held.Add(-int64(need + p.plan.Scratch)) // the lease and the helpers count it below
	p.lease.Hold(need)
	r := &execution{worker: worker, bound: make([]*Buffer, len(p.buffers)), times: make([]int64, len(p.graph.Values))}
	r.Init(&p.plan)
	for i, v := range p.graph.Values {
		if v.Slot.Place == ir.Static {
			r.Values[i] = p.static[i]
		}
	}
	return r, nil
}

// put keeps an execution for later runs, without the caller's buffers.
func (p *Program) put(r *execution) {
	for _, b := range p.binds {
		r.Values[b.pos] = nil
	}
	r.Reset()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timing.Load() {
		p.times = append(p.times[:0], r.times...)
	}
	if !backend.Keeps(backend.Arenas) {
		p.lease.Hold(-r.Bytes())
		return
	}
	p.free = append(p.free, r)
}

// bind binds the values in the caller's buffers to their memory.
func (p *Program) bind(r *execution, in, out []driver.Buffer) error {
	if len(in) != len(p.graph.Params) || len(out) != len(p.graph.Outputs) {
		return fmt.Errorf("cpu: Run: got %d inputs and %d outputs, want %d and %d", len(in), len(out), len(p.graph.Params), len(p.graph.Outputs))
	}
	for i, b := range p.buffers {
		list, kind := in, "input"
		if b.out {
			list, kind = out, "output"
		}
		host, ok := list[b.index].(*Buffer)
		if !ok {
			return fmt.Errorf("cpu: Run: %s %d is a %T, want a buffer of device cpu", kind, b.index, list[b.index])
		}
		if host.Bytes() < b.bytes {
			return fmt.Errorf("cpu: Run: %s %d has %d bytes, want %d", kind, b.index, host.Bytes(), b.bytes)
		}
		if exec.Checking && !host.verify() {
			return fmt.Errorf("cpu: check: before %s: %s changed, and its version %d did not", p.graph.Describe(), p.graph.DescribeBuffer(b.out, b.index), host.Version())
		}
		r.bound[i] = host
	}
	for i, b := range p.buffers {
		if b.overwritten {
			r.bound[i].beginWrite()
		}
	}
	for _, b := range p.binds {
		host := r.bound[b.from]
		r.Values[b.pos] = host.Data()[:b.bytes:b.bytes]
		if r.Version[b.pos] = 0; !p.buffers[b.from].overwritten {
			r.Version[b.pos] = host.Version()
		}
	}
	return nil
}

// unbind removes the caller's buffers. It returns an error if a kernel wrote to a
// buffer that the plan does not overwrite.
func (p *Program) unbind(r *execution) (err error) {
	for i, b := range p.buffers {
		host := r.bound[i]
		if host == nil { // bind failed
			continue
		}
		r.bound[i] = nil
		if b.overwritten {
			host.endWrite()
		}
		if exec.Checking && !host.verify() && err == nil {
			err = fmt.Errorf("cpu: check: %s changed %s, and its version %d did not change", p.graph.Describe(), p.graph.DescribeBuffer(b.out, b.index), host.Version())
		}
	}
	return err
}

// do runs the steps. If the context ends before the first step that overwrites an
// input, the rest of the current step is left out.
func (p *Program) do(ctx context.Context, r *execution) error {
	r.Done = ctx.Done()
	r.Procs = driver.Threads()
	timing := p.timing.Load()
	if p.plan.Labels != nil {
		defer pprof.SetGoroutineLabels(ctx)
	}
	for i := range p.steps {
		s := &p.steps[i]
		if s.pos >= p.graph.Commit {
			r.Done = nil
		} else if err := ctx.Err(); err != nil {
			return err
		}
		if s.kernel != nil && (r.See != nil || !s.watched) {
			var start time.Time
			if r.At = s.pos; p.plan.Labels != nil {
				pprof.SetGoroutineLabels(p.plan.Labels[s.pos])
			}
			if timing || r.Trace != nil {
				start = time.Now()
			}
			if r.See != nil && s.alone != nil {
				s.alone.Run(&r.Run)
			} else {
				s.kernel.Run(&r.Run)
			}
			if timing {
				r.times[s.pos] = int64(time.Since(start))
			}
			if r.Trace != nil {
				r.Trace.Add(s.pos, 0, start)
			}
			if r.Over() {
				r.ForgetPacked()
				return ctx.Err()
			}
			if r.Failed != nil {
				return r.Failed
			}
			if exec.Checking {
				r.CheckGuards(s.pos)
			}
			if exec.CheckingPacked {
				if err := r.CheckPacked(s.pos); err != nil {
					return err
				}
			}
		}
		if err := p.show(&r.Run, s.pos); err != nil {
			return err
		}
	}
	return nil
}

// show calls the watcher with the value at pos.
func (p *Program) show(r *exec.Run, pos int) error {
	if r.See == nil {
		return nil
	}
	return r.See(p.graph.Values[pos], r.Values[pos])
}

// SetTiming switches the timing of steps on or off.
func (p *Program) SetTiming(on bool) { p.timing.Store(on) }

// Times returns the nanoseconds of each value in the last timed run, 0 for views and
// leaves. It returns nil if no run was timed.
func (p *Program) Times() []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]int64(nil), p.times...)
}

// Close releases the memory of finished runs.
func (p *Program) Close() error {
	p.Trim()
	return nil
}

// Trim implements driver.Trimmer.
func (p *Program) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.free {
		p.lease.Hold(-r.Bytes())
	}
	p.free = nil
	for _, l := range p.loops() {
		l.Trim()
	}
}

// loops returns the step programs of the loops in p, and the programs of samples.
func (p *Program) loops() (all []*Program) {
	for _, s := range p.steps {
		switch l := s.kernel.(type) {
		case *stepLoop:
			all = append(all, l.step)
		case *depthFirst:
			all = append(all, l.sample)
		}
	}
	return all
}

// Workspace implements driver.WorkspaceSizer.
func (p *Program) Workspace() int {
	own, scratch := p.workspace()
	return own + (driver.Threads()-1)*scratch
}

// workspace returns the bytes that a run holds itself, and the scratch memory of a
// helper.
func (p *Program) workspace() (own, scratch int) {
	own, scratch = p.plan.Shared+8*p.plan.Sums+p.plan.StateBytes+p.plan.Scratch, p.plan.Scratch
	for _, n := range p.plan.Packed {
		own += n
	}
	for _, v := range p.graph.Values {
		if v.Op == op.Const {
			own += v.Type.Bytes()
		}
	}
	for _, l := range p.loops() {
		n, s := l.workspace()
		own, scratch = own+l.graph.ArenaBytes+n, max(scratch, s)
	}
	return own, scratch
}

// Explain implements driver.Explainer.
func (p *Program) Explain(i int) string {
	if c, ok := p.choices[i]; ok {
		return c.String()
	}
	return ""
}

var (
	_ driver.Program        = (*Program)(nil)
	_ driver.Watcher        = (*Program)(nil)
	_ driver.Timer          = (*Program)(nil)
	_ driver.Tracer         = (*Program)(nil)
	_ driver.WorkspaceSizer = (*Program)(nil)
	_ driver.Explainer      = (*Program)(nil)
	_ driver.Device         = (*Device)(nil)
	_ driver.Describer      = (*Device)(nil)
)
