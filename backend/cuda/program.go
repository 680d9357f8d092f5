//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// patch says that a parameter is an address in a buffer of the caller, known
// only when the program runs.
type patch struct {
	word, buffer, offset int
	out                  bool
}

// bind says that a value lies in a buffer of the caller.
type bind struct {
	buffer, bytes int
	out           bool
	overwritten   bool // outputs, and inputs that the plan donated
}

// Program is a compiled plan: kernel calls with their parameters, of which
// those that are addresses in the caller's buffers are filled in by Run.
type Program struct {
	device *Device
	graph  *ir.Graph
	chains api.Module
	memory api.Ptr // arena, constants and scratch, one allocation
	number int     // in Device.programs; 0 for a program without indices

	calls         []api.Launch
	products      []productCall  // among them, in order
	exchangeCalls []exchangeCall // as well
	exchanges     []*exchange
	ranks         atomic.Pointer[connection] // of those, when the program has run
	names         []string                   // of the kernels called, for errors
	words         []uint64
	patches       []patch
	binds         []bind
	static        map[*ir.Value]int // where constants lie in memory
	packed        map[*ir.Value]packing
	ends          []int // for each value, how many calls have been made when it is computed
	bytes         int   // of memory

	// A run with the same buffers as one before is one call: its captured
	// graph. The first run with them calls the kernels one by one, since the
	// driver loads code at its first use, which must not happen in a capture.
	graphs []captured
}

// captured is the runs with the same buffers.
type captured struct {
	at    []api.Ptr // of the buffers, in the order of Program.patches
	graph *api.Graph
}

// maxGraphs is how many sets of buffers a program remembers: a step's weights
// stay where they are, and its samples lie in one of a few places.
const maxGraphs = 8

// Run computes out from in. It returns when all of it has been computed.
func (p *Program) Run(ctx context.Context, in, out []driver.Buffer) error {
	if err := p.Start(ctx, in, out); err != nil {
		return err
	}
	return p.device.Wait()
}

// Start puts a run on the stream. Before that it returns the error of an
// earlier run that failed meanwhile.
func (p *Program) Start(ctx context.Context, in, out []driver.Buffer) error {
	return p.run(ctx, in, out, func() error {
		if p.device.faulted() {
			return p.device.takeFault()
		}
		return p.start(in, out)
	})
}

// RunWatched is Run, and calls see after each value.
func (p *Program) RunWatched(ctx context.Context, in, out []driver.Buffer, see func(v *ir.Value, data []byte) error) error {
	if err := p.device.Wait(); err != nil {
		return err
	}
	err := p.run(ctx, in, out, func() error { return p.watched(in, out, see) })
	return errors.Join(err, p.device.Wait())
}

// run calls f, which puts kernels on the stream, between what it waits for and
// a mark.
func (p *Program) run(ctx context.Context, in, out []driver.Buffer, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.check(in, out); err != nil {
		return err
	}
	if err := p.connect(); err != nil {
		return err
	}
	if !checking {
		return p.enqueue(in, out, f)
	}
	if err := p.verify(in, out, "before"); err != nil {
		return err
	}
	if err := p.enqueue(in, out, f); err != nil {
		return err
	}
	return p.verify(in, out, "after")
}

// enqueue calls f with the device, when what was copied to the buffers is on
// the stream.
func (p *Program) enqueue(in, out []driver.Buffer, f func() error) error {
	d := p.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.gpu.Enter(); err != nil {
		return err
	}
	defer d.gpu.Leave()
	for _, x := range p.patches {
		p.words[x.word] = uint64(x.in(in, out))
	}
	for _, b := range p.binds {
		x := b.of(in, out)
		if err := x.meet(d); err != nil {
			return err
		}
		x.used = d.mark + 1
		if b.overwritten {
			x.Changed()
		}
	}
	if err := f(); err != nil {
		return err
	}
	if err := d.putMark(); err != nil {
		return err
	}
	p.ranks.Load().ran(d.mark)
	return nil
}

// of is the buffer that is bound.
func (b bind) of(in, out []driver.Buffer) *Buffer {
	if b.out {
		return out[b.buffer].(*Buffer)
	}
	return in[b.buffer].(*Buffer)
}

// in is the address that a patch stands for.
func (x patch) in(in, out []driver.Buffer) api.Ptr {
	if x.out {
		return out[x.buffer].(*Buffer).at + api.Ptr(x.offset)
	}
	return in[x.buffer].(*Buffer).at + api.Ptr(x.offset)
}

// start puts a run on the stream, as a captured graph if it is not the first
// one with these buffers.
func (p *Program) start(in, out []driver.Buffer) error {
	if !p.device.settings.graphs || !backend.Keeps(backend.CapturedGraphs) {
		return p.launch()
	}
	s := p.device.stream
	for i := range p.graphs {
		c := &p.graphs[i]
		same := true
		for k, x := range p.patches {
			same = same && c.at[k] == x.in(in, out)
		}
		if !same {
			continue
		}
		if c.graph == nil {
			var err error
			if c.graph, err = s.Capture(p.launch); err != nil {
				return fmt.Errorf("cuda: capture: %w", err)
			}
		}
		return s.Start(c.graph)
	}
	c := captured{at: make([]api.Ptr, len(p.patches))}
	for k, x := range p.patches {
		c.at[k] = x.in(in, out)
	}
	if len(p.graphs) == maxGraphs { // the oldest one goes
		if err := errors.Join(s.Wait(), p.graphs[0].close()); err != nil {
			return err
		}
		p.graphs = slices.Delete(p.graphs, 0, 1)
	}
	p.graphs = append(p.graphs, c)
	return p.launch()
}

func (c captured) close() error {
	if c.graph == nil {
		return nil
	}
	return c.graph.Close()
}

// launch calls the kernels one by one.
func (p *Program) launch() error {
	if n, err := p.issue(0, len(p.calls)); err != nil {
		return fmt.Errorf("cuda: kernel %s: %w", p.names[n], err)
	}
	for _, x := range p.exchanges { // a graph must join the streams that take part
		if !x.awaited {
			if err := p.device.stream.After(x.done); err != nil {
				return err
			}
		}
	}
	return p.mirrorFault()
}

// mirrorFault tells the host whether an index was out of range.
func (p *Program) mirrorFault() error {
	if p.number == 0 {
		return nil
	}
	return p.device.stream.CopyOut(p.device.mirror, p.device.fault)
}

// watched runs value by value.
func (p *Program) watched(in, out []driver.Buffer, see func(v *ir.Value, data []byte) error) error {
	s, done := p.device.stream, 0
	for i, v := range p.graph.Values {
		if n, err := p.issue(done, p.ends[i]); err != nil {
			return fmt.Errorf("cuda: kernel %s: %w", p.names[n], err)
		}
		done = p.ends[i]
		if v.Op == op.Param || v.Op == op.Const {
			continue
		}
		data := make([]byte, v.Type.Bytes())
		if err := s.CopyOut(data, p.place(v, in, out)); err != nil {
			return err
		}
		if err := s.Wait(); err != nil {
			return err
		}
		if packed, ok := p.packed[rootOf(v)]; ok {
			packed.unpack(data, v.Type.DType)
		}
		if err := see(v, data); err != nil {
			return err
		}
	}
	return p.mirrorFault()
}

// place is where a value lies during a run.
func (p *Program) place(v *ir.Value, in, out []driver.Buffer) api.Ptr {
	switch v.Slot.Place {
	case ir.Arena:
		return p.memory + api.Ptr(v.Slot.Offset)
	case ir.Static:
		return p.memory + api.Ptr(p.static[v])
	case ir.Input:
		return in[v.Slot.Index].(*Buffer).at
	}
	return out[v.Slot.Index].(*Buffer).at
}

// check reports buffers that do not fit.
func (p *Program) check(in, out []driver.Buffer) error {
	if len(in) != len(p.graph.Params) || len(out) != len(p.graph.Outputs) {
		return fmt.Errorf("cuda: Run: got %d inputs and %d outputs, want %d and %d", len(in), len(out), len(p.graph.Params), len(p.graph.Outputs))
	}
	for _, b := range p.binds {
		list, kind := in, "input"
		if b.out {
			list, kind = out, "output"
		}
		buffer, ok := list[b.buffer].(*Buffer)
		if !ok || buffer.device != p.device {
			return fmt.Errorf("cuda: Run: %s %d is a %T, want a buffer of device %s", kind, b.buffer, list[b.buffer], p.device.Name())
		}
		if buffer.bytes < b.bytes {
			return fmt.Errorf("cuda: Run: %s %d has %d bytes, want %d", kind, b.buffer, buffer.bytes, b.bytes)
		}
	}
	return nil
}

// release frees what the program holds on the device.
func (p *Program) release() error {
	err := p.device.stream.Wait()
	for _, c := range p.graphs {
		err = errors.Join(err, c.close())
	}
	err = errors.Join(err, p.forget())
	p.device.give(p.memory, p.bytes)
	if p.chains != (api.Module{}) {
		err = errors.Join(err, p.chains.Close())
	}
	return err
}

// forget takes the program from the device's lists.
func (p *Program) forget() (err error) {
	delete(p.device.programs, p.number)
	for _, x := range p.exchanges {
		p.device.ranks.remove(x)
		err = errors.Join(err, x.packed.Close(), x.done.Close())
	}
	p.exchanges = nil
	return err
}

// Workspace is the memory that the program holds besides its arena: constants
// and what kernels work in.
func (p *Program) Workspace() int { return size(p.bytes) - p.graph.ArenaBytes }

// Close frees the program's memory and kernels.
func (p *Program) Close() error { return p.device.do(p.release) }

var (
	_ driver.Program        = (*Program)(nil)
	_ driver.AsyncProgram   = (*Program)(nil)
	_ driver.Watcher        = (*Program)(nil)
	_ driver.WorkspaceSizer = (*Program)(nil)
	_ driver.Device         = (*Device)(nil)
	_ driver.Synchronizer   = (*Device)(nil)
	_ driver.DirectWriter   = (*Buffer)(nil)
	_ driver.Copier         = (*Buffer)(nil)
	_ driver.Describer      = (*Device)(nil)
)
