package cpu

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/driver"
)

// Buffer is memory of the device: a Go slice. Run works synchronously, so no
// program is using a buffer once it has returned, and copies need not wait.
//
// Its elements are written through the methods of this file alone, which change
// the version (driver.Contents); TestBufferWrites holds that.
type Buffer struct {
	driver.Contents
	storage []byte
	lease   *lease // nil: not the device's
}

// lease is memory that the device counts until its buffer is freed, or its program
// trimmed, or nobody has it any more.
type lease struct {
	device *Device
	bytes  atomic.Int64
}

func (l *lease) end() { l.device.held.Add(-l.bytes.Swap(0)) }

// Hold counts n bytes more, or less.
func (l *lease) Hold(n int) {
	l.device.held.Add(int64(n))
	l.bytes.Add(int64(n))
}

// HoldByHelper counts n bytes for the process: its helpers serve all programs.
func (l *lease) HoldByHelper(n int) { l.device.held.Add(int64(n)) }

// newBuffer makes a buffer of zeros, of bytes that the device has counted.
func newBuffer(d *Device, bytes int) *Buffer {
	b := &Buffer{storage: exec.Aligned(bytes), lease: &lease{device: d}}
	b.lease.bytes.Store(int64(bytes))
	runtime.AddCleanup(b, (*lease).end, b.lease)
	b.Changed()
	return b
}

// Bytes is the size.
func (b *Buffer) Bytes() int { return len(b.storage) }

// Data is the memory itself, aligned to 64 bytes, for reading. Fill writes.
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

// Free forgets the memory, so that using the buffer afterwards fails.
func (b *Buffer) Free() {
	if b.lease != nil {
		b.lease.end()
	}
	b.storage = nil
}

// beginWrite returns the memory to somebody who overwrites it until endWrite.
// The version changes at both: what is derived from the elements in between is
// current at no time.
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
