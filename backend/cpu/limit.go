package cpu

import (
	"runtime"
	"slices"
	"time"
	"weak"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// The device counts the memory that it hands out and refuses to exceed its limit: an
// error is better than being killed by the system. Memory that kernels keep for
// themselves, packed operands and scratch memory of helpers, is counted but not
// refused.

// MemoryLimit returns the bytes that buffers and programs may use together. The default
// is MEZZO_MEMORY_LIMIT, else the minimum of the machine's memory, the limit of its
// control group, GOMEMLIMIT and the process's address space.
func (d *Device) MemoryLimit() int {
	if n := d.limit.Load(); n > 0 {
		return int(n)
	}
	n := backend.MemoryLimitSetting()
	if n == 0 {
		n = available()
	}
	d.limit.CompareAndSwap(0, int64(n))
	return int(d.limit.Load())
}

// SetMemoryLimit sets MemoryLimit; 0 restores the default.
func (d *Device) SetMemoryLimit(bytes int) { d.limit.Store(int64(min(max(bytes, 0), op.Limit))) }

// Held returns the bytes of buffers that are neither freed nor collected, and of
// programs that are not closed.
func (d *Device) Held() int { return int(d.held.Load()) }

// reserve counts n bytes that are about to be allocated for what, or returns a
// *backend.MemoryError. The caller must give them back.
func (d *Device) reserve(n int, what string) error {
	limit := int64(d.MemoryLimit())
	for try := 0; ; try++ {
		if d.held.Add(int64(n)) <= limit {
			return nil
		}
		d.held.Add(-int64(n))
		held := d.held.Load()
		switch {
		case int64(n) > limit || try == 2:
			return &backend.MemoryError{Device: "cpu", What: what, Need: n, Held: int(held), Limit: int(limit)}
		case try == 0:
			d.trim()
		default:
			// Unreachable buffers are counted until their cleanups run, after a
			// collection.
			runtime.GC()
			for i := 0; i < 10 && d.held.Load() == held; i++ {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// compiled records a program for trim.
func (d *Device) compiled(p *Program) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.programs) == cap(d.programs) { // forget collected programs
		d.programs = slices.DeleteFunc(d.programs, func(w weak.Pointer[Program]) bool { return w.Value() == nil })
	}
	d.programs = append(d.programs, weak.Make(p))
}

// trim frees the memory that programs keep for their next runs.
func (d *Device) trim() {
	d.mu.Lock()
	all := slices.Clone(d.programs)
	d.mu.Unlock()
	for _, w := range all {
		if p := w.Value(); p != nil {
			p.Trim()
		}
	}
}

// available returns the memory that the process can have.
func available() int {
	n := op.Limit
	for _, m := range memoryBounds() {
		if m > 0 {
			n = min(n, m)
		}
	}
	return n
}
