//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cublaslt"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/ptx"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// patch says that a parameter is the address of something in a buffer of the
// caller, known only when the program runs.
type patch struct {
	word, buffer int
	out          bool
}

// bind says that a value lies in a buffer of the caller.
type bind struct {
	buffer, bytes int
	out           bool
}

// Program is a compiled plan: kernel calls with their parameters, of which
// those that are addresses in the caller's buffers are filled in by Run.
type Program struct {
	device *Device
	graph  *ir.Graph
	chains api.Module
	memory api.Ptr // arena, constants and scratch, one allocation
	number int     // in Device.programs; 0 for a program without indices

	calls    []api.Launch
	products []productCall // among them, in order
	names    []string      // of the kernels called, for errors
	words    []uint64
	patches  []patch
	binds    []bind
	static   map[*ir.Value]int // where constants lie in memory
	ends     []int             // for each value, how many calls have been made when it is computed
	bytes    int               // of memory

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

// builder makes a program.
type builder struct {
	p         *Program
	pos       map[*ir.Value]int
	chains    []ptx.Chain
	pending   []pending
	scratch   int                   // bytes wanted behind everything else
	base      int                   // where scratch begins
	reserved  int                   // bytes of it that hold a result of the value being built
	temporary map[*ir.Value]scratch // such results
	bytes     int                   // of the memory so far
}

// pending is a call before its kernel is loaded.
type pending struct {
	name        string
	chain       bool
	grid, block [3]int
	args        []any
	value       int
	product     *cublaslt.Matmul // instead of a kernel
}

// scratch is a parameter: an address in working memory of the call.
type scratch int

// fault is a parameter: the address of the word for indices out of range.
type faultWord struct{}

func compile(d *Device, g *ir.Graph) (made *Program, err error) {
	p := &Program{device: d, graph: g, ends: make([]int, len(g.Values)), static: map[*ir.Value]int{}}
	defer func() {
		if err != nil {
			delete(d.programs, p.number)
		}
	}()
	b := &builder{p: p, pos: make(map[*ir.Value]int, len(g.Values)), temporary: map[*ir.Value]scratch{}}
	b.bytes = aligned(g.ArenaBytes)
	var constants []byte
	for i, v := range g.Values {
		b.pos[v] = i
		switch v.Slot.Place {
		case ir.Nowhere:
			return nil, fmt.Errorf("cuda: Compile: value %d (%v) has no place; the graph was not optimized", i, v.Op)
		case ir.Input:
			p.binds = append(p.binds, bind{v.Slot.Index, v.Type.Bytes(), false})
		case ir.Output:
			p.binds = append(p.binds, bind{v.Slot.Index, v.Type.Bytes(), true})
		}
		if v.Op == op.Const {
			p.static[v] = b.bytes + len(constants)
			constants = append(constants, constant(v)...)
			constants = append(constants, make([]byte, aligned(len(constants))-len(constants))...)
		} else if v.View() && v.Slot.Place == ir.Static {
			p.static[v] = p.static[v.Args[0]]
		}
	}
	constantsAt := b.bytes
	b.bytes += len(constants)
	for i, v := range g.Values {
		if v.Op != op.Param && v.Op != op.Const && !v.View() && v.Op != op.Extra {
			if err := b.value(v); err != nil {
				return nil, err
			}
		}
		p.ends[i] = len(b.pending)
	}
	b.base = aligned(b.bytes)
	p.bytes = max(1, b.base+b.scratch)
	what := fmt.Sprintf("the working memory of a program (%d bytes for its values, %d for constants and kernels): ", g.ArenaBytes, p.bytes-g.ArenaBytes)
	if p.memory, err = d.take(p.bytes, what); err != nil {
		return nil, err
	}
	p.binds = merged(p.binds)
	if err := b.finish(constants, constantsAt); err != nil {
		return nil, errors.Join(err, p.release())
	}
	return p, nil
}

// merged leaves one of the binds for each buffer, with the most bytes.
func merged(binds []bind) []bind {
	var list []bind
	at := map[bind]int{}
	for _, b := range binds {
		key := bind{buffer: b.buffer, out: b.out}
		if i, ok := at[key]; ok {
			list[i].bytes = max(list[i].bytes, b.bytes)
			continue
		}
		at[key] = len(list)
		list = append(list, b)
	}
	return list
}

func aligned(n int) int { return (n + 255) &^ 255 }

// constant returns the elements of a Const.
func constant(v *ir.Value) []byte {
	data := make([]byte, v.Type.Bytes())
	if v.Attr.Data != nil {
		copy(data, v.Attr.Data)
		return data
	}
	size := v.Type.DType.Size()
	for at := 0; at < len(data); at += size {
		if at == 0 {
			dtype.FromF64(data[:size], []float64{v.Attr.Value}, v.Type.DType)
		} else {
			copy(data[at:], data[:size])
		}
	}
	return data
}

// value makes the calls that compute v.
func (b *builder) value(v *ir.Value) error {
	t := v.Type.DType
	if len(v.Args) > 0 {
		t = v.Args[0].Type.DType
	}
	if !b.p.device.Supports(v.Op, t) {
		return &backend.UnsupportedError{Device: b.p.device.Name(), Op: v.Op, DType: t, Path: v.Path}
	}
	if v.Slot.Place == ir.Static {
		return fmt.Errorf("cuda: Compile: value %d (%v) lies among the constants", b.pos[v], v.Op)
	}
	if v.Op.Info().Class == op.Elementwise {
		return b.elementwise(v)
	}
	if v.Attr.Body != nil && v.Op.Info().Epilogue {
		return b.followed(v)
	}
	return builders[v.Op](b, v)
}

// call appends a call of a kernel. Arguments are *ir.Value, int, uint64,
// float64, scratch and faultWord.
func (b *builder) call(v *ir.Value, name string, grid, block [3]int, args ...any) {
	b.pending = append(b.pending, pending{name: name, grid: grid, block: block, args: args, value: b.pos[v]})
}

// each calls a kernel that goes through n elements with as many threads.
func (b *builder) each(v *ir.Value, name string, n int, args ...any) {
	if n > 0 {
		b.call(v, name, [3]int{min((n+255)/256, 1<<20), 1, 1}, [3]int{256, 1, 1}, args...)
	}
}

// finish loads the kernels and writes the list of calls.
func (b *builder) finish(constants []byte, at int) error {
	p := b.p
	if len(b.chains) > 0 {
		text, err := p.device.library.Module(b.chains)
		if err != nil {
			return err
		}
		if p.chains, err = api.Load(text); err != nil {
			return fmt.Errorf("cuda: Compile: %w\n%s", err, text)
		}
	}
	for _, c := range b.pending {
		if c.product != nil {
			p.products = append(p.products, productCall{len(p.calls), len(p.words), c.product})
			p.calls, p.names = append(p.calls, api.Launch{}), append(p.names, c.name)
			for _, a := range c.args {
				p.words = append(p.words, b.word(a))
			}
			continue
		}
		find := p.device.function
		if c.chain {
			find = p.chains.Function
		}
		f, err := find(c.name)
		if err != nil {
			return err
		}
		p.calls = append(p.calls, api.NewLaunch(f, c.grid, c.block, 0, len(p.words), len(c.args)))
		p.names = append(p.names, c.name)
		for _, a := range c.args {
			p.words = append(p.words, b.word(a))
		}
	}
	return p.device.stream.CopyIn(p.memory+api.Ptr(at), constants)
}

// word is the value of a parameter; of those that only Run knows, it is an
// offset.
func (b *builder) word(a any) uint64 {
	p := b.p
	switch a := a.(type) {
	case int:
		return uint64(int64(a))
	case uint64:
		return a
	case float64:
		return floatBits(a)
	case scratch:
		return uint64(p.memory) + uint64(b.base+int(a))
	case faultWord:
		return uint64(p.device.fault)
	case *ir.Value:
		if at, ok := b.temporary[a]; ok {
			return b.word(at)
		}
		switch a.Slot.Place {
		case ir.Arena:
			return uint64(p.memory) + uint64(a.Slot.Offset)
		case ir.Static:
			return uint64(p.memory) + uint64(p.static[a])
		}
		p.patches = append(p.patches, patch{len(p.words), a.Slot.Index, a.Slot.Place == ir.Output})
		return 0
	}
	panic(fmt.Sprintf("cuda: a parameter of type %T", a))
}

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
	}
	if err := f(); err != nil {
		return err
	}
	return d.putMark()
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
		return out[x.buffer].(*Buffer).at
	}
	return in[x.buffer].(*Buffer).at
}

// start puts a run on the stream, as a captured graph if it is not the first
// one with these buffers.
func (p *Program) start(in, out []driver.Buffer) error {
	if !p.device.settings.graphs {
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
	delete(p.device.programs, p.number)
	p.device.give(p.memory, p.bytes)
	if p.chains != (api.Module{}) {
		err = errors.Join(err, p.chains.Close())
	}
	return err
}

// Workspace is the memory that the program holds besides its arena: constants
// and what kernels work in.
func (p *Program) Workspace() int { return size(p.bytes) - p.graph.ArenaBytes }

// Close frees the program's memory and kernels.
func (p *Program) Close() error { return p.device.do(p.release) }

var (
	_ driver.Program   = (*Program)(nil)
	_ driver.Starter   = (*Program)(nil)
	_ driver.Watcher   = (*Program)(nil)
	_ driver.Sizer     = (*Program)(nil)
	_ driver.Device    = (*Device)(nil)
	_ driver.Waiter    = (*Device)(nil)
	_ driver.Filler    = (*Buffer)(nil)
	_ driver.Copier    = (*Buffer)(nil)
	_ driver.Describer = (*Device)(nil)
)
