//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"runtime"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/driver"
)

// Buffer is memory of a GPU. Who forgets one need not free it.
type Buffer struct {
	driver.Contents
	device *Device
	*block
}

// block is memory and what is under way with it, which Device.mu guards.
type block struct {
	at    api.Ptr
	bytes int

	// used is the number of the mark behind the last kernel that reads or
	// writes the memory, see Device.mark: what comes from the host waits for it.
	used uint64

	// arrives is behind the last copy from the host: kernels wait for it. The
	// zero Event, when they have.
	arrives api.Event
}

// Alloc makes a buffer, filled with zeros.
func (d *Device) Alloc(bytes int) (driver.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cuda: Alloc: got %d bytes, want 0 or more", bytes)
	}
	b := &Buffer{device: d, block: &block{bytes: bytes}}
	b.Changed()
	if bytes == 0 {
		return b, nil
	}
	err := d.do(func() (err error) {
		if b.at, err = d.take(bytes, "a buffer: "); err != nil {
			return err
		}
		b.used = d.mark + 1
		return d.stream.Fill(b.at, 0, bytes)
	})
	if err == nil {
		runtime.AddCleanup(b, d.bury, b.block)
	}
	return b, err
}

// Bytes is the size.
func (b *Buffer) Bytes() int { return b.bytes }

// CopyIn overwrites the first len(src) bytes. It returns when src has been
// read; the copy waits for kernels that use the buffer, and they for it.
func (b *Buffer) CopyIn(src []byte) error {
	if len(src) > b.bytes {
		return fmt.Errorf("cuda: CopyIn: got %d bytes, want at most the buffer's %d", len(src), b.bytes)
	}
	b.Changed()
	defer b.Changed()
	for at := 0; at < len(src); at += maxStage {
		part := src[at:min(at+maxStage, len(src))]
		if err := b.send(at, len(part), func(dst []byte) error { copy(dst, part); return nil }); err != nil {
			return err
		}
	}
	return nil
}

// Fill is CopyIn of what f writes to pinned memory, from which the GPU copies.
func (b *Buffer) Fill(bytes int, f func(dst []byte) error) error {
	if bytes > b.bytes || bytes > maxStage {
		data := make([]byte, bytes)
		if err := f(data); err != nil {
			return err
		}
		return b.CopyIn(data)
	}
	b.Changed()
	defer b.Changed()
	return b.send(0, bytes, f)
}

// send copies n bytes that f writes to a place in the buffer.
func (b *Buffer) send(at, n int, f func(dst []byte) error) error {
	d := b.device
	s, err := d.stage(n)
	if err != nil {
		return err
	}
	defer d.unstage(s)
	if err := f(s.memory[:n]); err != nil || n == 0 {
		return err
	}
	return d.do(func() error {
		if b.used > d.mark {
			if err := d.putMark(); err != nil {
				return err
			}
		}
		if b.used > 0 && d.mark-b.used < runAhead { // older marks have been waited for
			if err := d.copies.After(d.marks[b.used%runAhead]); err != nil {
				return err
			}
		}
		if err := d.copies.CopyIn(b.at+api.Ptr(at), s.memory[:n]); err != nil {
			return err
		}
		b.arrives = s.event
		return d.copies.Record(s.event)
	})
}

// meet makes kernels wait for what was copied to the buffer.
func (b *block) meet(d *Device) error {
	if b.arrives == (api.Event{}) {
		return nil
	}
	err := d.stream.After(b.arrives)
	b.arrives = api.Event{}
	return err
}

// CopyOut reads the first len(dst) bytes. It waits for the programs that were
// started before, and returns the error of one that failed.
func (b *Buffer) CopyOut(dst []byte) error {
	if len(dst) > b.bytes {
		return fmt.Errorf("cuda: CopyOut: wants %d bytes, the buffer has %d", len(dst), b.bytes)
	}
	for at := 0; at < len(dst); at += maxStage {
		if err := b.receive(at, dst[at:min(at+maxStage, len(dst))]); err != nil {
			return err
		}
	}
	return nil
}

func (b *Buffer) receive(at int, dst []byte) error {
	d := b.device
	s, err := d.stage(len(dst))
	if err != nil {
		return err
	}
	defer d.unstage(s)
	err = d.do(func() error {
		if err := b.meet(d); err != nil {
			return err
		}
		if err := d.stream.CopyOut(s.memory[:len(dst)], b.at+api.Ptr(at)); err != nil {
			return err
		}
		return d.stream.Record(s.event)
	})
	if err != nil {
		return err
	}
	if err := d.await(s.event); err != nil {
		return err
	}
	copy(dst, s.memory)
	return nil
}

// CopyFrom overwrites the first bytes with those of another buffer of the
// device. It does not wait.
func (b *Buffer) CopyFrom(src driver.Buffer, bytes int) error {
	from, ok := src.(*Buffer)
	if !ok || from.device != b.device || bytes > b.bytes || bytes > from.bytes {
		return fmt.Errorf("cuda: CopyFrom: got %d bytes of a %T, want at most %d of a buffer of device %s that has them", bytes, src, b.bytes, b.device.Name())
	}
	b.Changed()
	if bytes == 0 {
		return nil
	}
	d := b.device
	return d.do(func() error {
		for _, x := range []*block{b.block, from.block} {
			if err := x.meet(d); err != nil {
				return err
			}
			x.used = d.mark + 1
		}
		return d.stream.Copy(b.at, from.at, bytes)
	})
}

// Free returns the memory.
func (b *Buffer) Free() {
	if b.at == 0 {
		return
	}
	b.device.bury(b.block)
}

// bury takes the memory of a buffer back that nobody uses any more, when
// memory is taken next: it may be called at any time, by the collector too.
func (d *Device) bury(b *block) {
	d.deadMu.Lock()
	defer d.deadMu.Unlock()
	d.dead = append(d.dead, *b)
	b.at = 0
}

// reap makes memory of buried buffers idle.
func (d *Device) reap() error {
	d.deadMu.Lock()
	defer d.deadMu.Unlock()
	for _, b := range d.dead {
		if b.at == 0 {
			continue
		}
		if err := b.meet(d); err != nil {
			return err
		}
		d.give(b.at, b.bytes)
	}
	d.dead = d.dead[:0]
	return nil
}
