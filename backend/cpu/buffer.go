package cpu

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/driver"
)

// Buffer is memory of the device: a Go slice. Run is synchronous, so no program uses a
// buffer after Run has returned, and copies need not wait.
//
// Elements must be written by the methods of this file only, which change the version
// (driver.Contents); TestBufferWrites checks that.
type Buffer struct {
	driver.Contents
	storage []byte
	lease   *lease // nil: not counted
}

// lease is memory that the device counts until the buffer is freed or collected, or the
// program is trimmed.
type lease struct {
	device *Device
	bytes  atomic.Int64
}

func (l *lease) end() { l.device.held.Add(-l.bytes.Swap(0)) }

// Hold adds n bytes, which may be negative.
func (l *lease) Hold(n int) {
	l.device.held.Add(int64(n))
	l.bytes.Add(int64(n))
}

// HoldByHelper adds n bytes for the process: helpers serve all programs.
func (l *lease) HoldByHelper(n int) { l.device.held.Add(int64(n)) }

// newBuffer returns a buffer of zeros; the device has counted its bytes.
func newBuffer(d *Device, bytes int) *Buffer {
	b := &Buffer{storage: exec.Aligned(bytes), lease: &lease{device: d}}
	b.lease.bytes.Store(int64(bytes))
	runtime.AddCleanup(b, (*lease).end, b.lease)
	b.Changed()
	return b
}

// Bytes returns the size.
func (b *Buffer) Bytes() int { return len(b.storage) }

// Data returns the memory, aligned to 64 bytes, for reading only. Fill writes.
func (b *Buffer) Data() []byte { return b.storage }

// CopyIn overwrites the first len(src) bytes.
func (b *Buffer) CopyIn(src []byte) error {
	if len(src) > len(b.storage) {
		return fmt.Errorf("cpu: CopyIn: got %d bytes, want at most the buffer's %d", len(src), len(b.storage))
	}
	copy(b.beginWrite(), src)
	b.endWrite()
	return nil
}

// Fill implements driver.DirectWriter: f writes to the memory itself.
func (b *Buffer) Fill(bytes int, f func(dst []byte) error) error {
	if bytes > len(b.storage) {
		return fmt.Errorf("cpu: Fill: got %d bytes, want at most the buffer's %d", bytes, len(b.storage))
	}
	defer b.endWrite()
	return f(b.beginWrite()[:bytes:bytes])
}

// CopyOut reads the first len(dst) bytes.
func (b *Buffer) CopyOut(dst []byte) error {
	if len(dst) > len(b.storage) {
		return fmt.Errorf("cpu: CopyOut: wants %d bytes, the buffer has %d", len(dst), len(b.storage))
	}
	copy(dst, b.storage)
	return nil
}

// Free releases the memory. Later use of the buffer fails.
func (b *Buffer) Free() {
	if b.lease != nil {
		b.lease.end()
	}
	b.storage = nil
}

// beginWrite returns the memory to overwrite until endWrite. Both change the version,
// so that nothing derived from the elements in between counts as current.
func (b *Buffer) beginWrite() []byte {
	b.Changed()
	return b.storage
}

func (b *Buffer) endWrite() { b.Changed() }

// verify reports whether all writes since the last call have changed the version.
func (b *Buffer) verify() bool { return b.Verify(b.storage) }

var (
	_ driver.HostBuffer   = (*Buffer)(nil)
	_ driver.DirectWriter = (*Buffer)(nil)
)
