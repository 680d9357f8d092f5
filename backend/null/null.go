// Package null, without compatibility promise, is a device that compiles
// everything and computes nothing, for tests of plans, memory and programs. It registers itself
// as "null".
//
// Main type: [Device]. Compile verifies the plan with ir.Graph.Verify, Run
// verifies the buffers it is given, and the device knows every buffer that has
// not been freed ([Device.Allocated], [Device.Leaks]).
//
// Rules: mistakes that a real device would not notice are errors here; a
// buffer holds what was last copied in, and Run changes none.
package null

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() {
	backend.Register("null", func() (driver.Device, error) { return New(), nil })
}

// Device counts buffers instead of computing.
type Device struct {
	mu    sync.Mutex
	live  map[*buffer]struct{}
	bytes int64
	next  int // number of the next buffer, to list leaks in order
}

// New makes a device of its own; backend.Open("null") always gives the same.
func New() *Device { return &Device{live: map[*buffer]struct{}{}} }

// Name is "null".
func (d *Device) Name() string { return "null" }

// Supports is true for everything.
func (d *Device) Supports(op.Code, dtype.DType) bool { return true }

// Alloc makes a buffer and remembers who asked for it.
func (d *Device) Alloc(bytes int) (driver.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("null: Alloc: got %d bytes, want 0 or more", bytes)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	b := &buffer{device: d, bytes: bytes, number: d.next}
	runtime.Callers(2, b.stack[:])
	d.next++
	d.live[b] = struct{}{}
	b.Changed()
	d.bytes += int64(bytes)
	return b, nil
}

// Allocated is the number of bytes in buffers that were not freed.
func (d *Device) Allocated() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes
}

// Leaks lists the buffers that were not freed, oldest first, each with its
// size and the calls that made it: "64 bytes from main.go:10 < main.go:20".
func (d *Device) Leaks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var live []*buffer
	for b := range d.live {
		live = append(live, b)
	}
	slices.SortFunc(live, func(a, b *buffer) int { return cmp.Compare(a.number, b.number) })
	var list []string
	for _, b := range live {
		list = append(list, fmt.Sprintf("%d bytes from %s", b.bytes, b.origin()))
	}
	return list
}

// Close is an error when buffers were not freed.
func (d *Device) Close() error {
	if leaks := d.Leaks(); len(leaks) > 0 {
		return fmt.Errorf("null: %d buffers were not freed: %s", len(leaks), strings.Join(leaks, "; "))
	}
	return nil
}

// Compile verifies the plan.
func (d *Device) Compile(_ context.Context, g *ir.Graph) (driver.Program, error) {
	if err := g.Verify(); err != nil {
		return nil, fmt.Errorf("null: %w", err)
	}
	return &program{device: d, graph: g}, nil
}

type buffer struct {
	driver.Contents
	device *Device
	bytes  int
	number int
	freed  bool
	data   []byte // from the first CopyIn on; zeros before
	stack  [6]uintptr
}

func (b *buffer) Bytes() int { return b.bytes }

func (b *buffer) CopyIn(src []byte) error {
	return b.access("CopyIn", len(src), func() {
		if b.data == nil {
			b.data = make([]byte, b.bytes)
		}
		copy(b.data, src)
		b.Changed()
	})
}

func (b *buffer) CopyOut(dst []byte) error {
	return b.access("CopyOut", len(dst), func() {
		if b.data == nil {
			clear(dst)
		}
		copy(dst, b.data)
	})
}

// access does f under the device's lock if n bytes may be copied.
func (b *buffer) access(what string, n int, f func()) error {
	b.device.mu.Lock()
	defer b.device.mu.Unlock()
	if b.freed {
		return fmt.Errorf("null: %s: the buffer from %s was freed", what, b.origin())
	}
	if n > b.bytes {
		return fmt.Errorf("null: %s: got %d bytes for a buffer of %d", what, n, b.bytes)
	}
	f()
	return nil
}

// Free panics when the buffer was freed before.
func (b *buffer) Free() {
	b.device.mu.Lock()
	defer b.device.mu.Unlock()
	if b.freed {
		panic("null: Free called twice on the buffer from " + b.origin())
	}
	b.freed = true
	b.data = nil
	delete(b.device.live, b)
	b.device.bytes -= int64(b.bytes)
}

// origin is who made b, innermost call first.
func (b *buffer) origin() string {
	var calls []string
	frames := runtime.CallersFrames(slices.DeleteFunc(b.stack[:], func(pc uintptr) bool { return pc == 0 }))
	for {
		f, more := frames.Next()
		calls = append(calls, fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line))
		if !more {
			return strings.Join(calls, " < ")
		}
	}
}

type program struct {
	device *Device
	graph  *ir.Graph

	mu     sync.Mutex
	closed bool
}

// Run checks everything and computes nothing.
func (p *program) Run(ctx context.Context, in, out []driver.Buffer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return errors.New("null: Run: the program was closed")
	}
	g := p.graph
	if len(in) != len(g.Params) || len(out) != len(g.Outputs) {
		return fmt.Errorf("null: Run: got %d inputs and %d outputs, want %d and %d", len(in), len(out), len(g.Params), len(g.Outputs))
	}
	for i, v := range g.Params {
		if v != nil {
			if err := p.checkBuffer(in[i], v); err != nil {
				return fmt.Errorf("null: Run: input %d: %w", i, err)
			}
		}
	}
	for o, v := range g.Outputs {
		if err := p.checkBuffer(out[o], v); err != nil {
			return fmt.Errorf("null: Run: output %d: %w", o, err)
		}
		if q := g.Donated[o]; q >= 0 && out[o] != in[q] {
			return fmt.Errorf("null: Run: output %d overwrites input %d but has another buffer", o, q)
		}
		for i, b := range in {
			if b == out[o] && i != g.Donated[o] {
				return fmt.Errorf("null: Run: output %d has the buffer of input %d, which it does not overwrite", o, i)
			}
		}
		if i := slices.Index(out[:o], out[o]); i >= 0 {
			return fmt.Errorf("null: Run: outputs %d and %d have the same buffer", i, o)
		}
	}
	for _, b := range out {
		b.(*buffer).Changed()
	}
	return nil
}

// checkBuffer verifies that b can hold v.
func (p *program) checkBuffer(b driver.Buffer, v *ir.Value) error {
	own, ok := b.(*buffer)
	switch {
	case b == nil:
		return fmt.Errorf("got no buffer for %v %v", v, v.Type)
	case !ok || own.device != p.device:
		return fmt.Errorf("the buffer is another device's")
	}
	p.device.mu.Lock()
	defer p.device.mu.Unlock()
	switch {
	case own.freed:
		return fmt.Errorf("the buffer from %s was freed", own.origin())
	case own.bytes < v.Type.Bytes():
		return fmt.Errorf("got a buffer of %d bytes for %v %v, want %d", own.bytes, v, v.Type, v.Type.Bytes())
	}
	return nil
}

func (p *program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

// FusesEpilogue implements driver.EpilogueFuser: what computes nothing fuses
// everything.
func (d *Device) FusesEpilogue() bool { return true }

// MovesReshapes implements driver.ReshapeMover: plans are those of the CPU.
func (d *Device) MovesReshapes() bool { return true }
