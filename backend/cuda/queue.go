//go:build cuda && linux && amd64

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Programs are put on the stream of kernels and run in that order. What the
// host sends is copied on a stream of its own, while kernels run, and events
// keep both from overtaking where they meet: see block. The host waits only for
// what it reads, and when it is runAhead runs ahead.

// runAhead is how many runs may wait for the GPU: enough that it never waits
// for the host, few enough that an error does not come much later.
const runAhead = 32

// putMark puts a mark behind all that is on the stream of kernels.
func (d *Device) putMark() error {
	e := d.marks[(d.mark+1)%runAhead]
	if err := e.Wait(); err != nil {
		return err
	}
	d.mark++
	return d.stream.Record(e)
}

// staging is pinned memory that copies go through; it is in use until its event
// has passed.
type staging struct {
	memory []byte
	event  api.Event
}

const (
	maxStage  = 64 << 20  // bytes that are copied at a time
	maxPinned = 512 << 20 // of Device.maxPinned
)

// stage takes pinned memory of at least so many bytes.
func (d *Device) stage(bytes int) (*staging, error) {
	if err := d.gpu.Enter(); err != nil {
		return nil, err
	}
	defer d.gpu.Leave()
	d.stageMu.Lock()
	defer d.stageMu.Unlock()
	n := size(max(bytes, 4096))
	for {
		var oldest *staging
		for i, s := range d.stages {
			if len(s.memory) != n {
				continue
			}
			passed, err := s.event.Passed()
			if err != nil {
				return nil, err
			}
			if passed {
				d.stages = append(d.stages[:i], d.stages[i+1:]...)
				return s, nil
			}
			if oldest == nil {
				oldest = s
			}
		}
		if d.pinned+n <= d.maxPinned || len(d.stages) == 0 {
			memory, err := api.AllocPinned(n)
			if err != nil {
				return nil, fmt.Errorf("cuda: pinned memory: %w", err)
			}
			d.pinned += n
			event, err := d.newEvent()
			return &staging{memory, event}, err
		}
		if oldest != nil {
			if err := oldest.event.Wait(); err != nil {
				return nil, err
			}
			continue
		}
		if err := d.unpin(); err != nil {
			return nil, err
		}
	}
}

// unstage gives back what stage took, its copy being under way.
func (d *Device) unstage(s *staging) {
	d.stageMu.Lock()
	defer d.stageMu.Unlock()
	d.stages = append(d.stages, s)
}

// newEvent returns an event that unpin has left, or makes one.
func (d *Device) newEvent() (api.Event, error) {
	if n := len(d.events); n > 0 {
		e := d.events[n-1]
		d.events = d.events[:n-1]
		return e, nil
	}
	return api.NewEvent()
}

// unpin frees the pinned memory that is not in use. Its events stay: blocks that
// no kernel has met since still name them.
func (d *Device) unpin() error {
	for _, s := range d.stages {
		if err := errors.Join(s.event.Wait(), api.ReleasePinned(s.memory)); err != nil {
			return err
		}
		d.events = append(d.events, s.event)
		d.pinned -= len(s.memory)
	}
	d.stages = nil
	return nil
}

// await waits for an event, and returns the error of a run before it.
func (d *Device) await(e api.Event) error {
	if err := d.gpu.Enter(); err != nil {
		return err
	}
	err := e.Wait()
	d.gpu.Leave()
	if err != nil || !d.faulted() {
		return err
	}
	return d.do(d.takeFault)
}

// Wait waits until all programs that were started are done, and returns the
// error of the first one that failed since an error was returned last.
func (d *Device) Wait() error {
	return d.do(func() error {
		if err := d.stream.Wait(); err != nil {
			return err
		}
		return d.takeFault()
	})
}

// faultBytes is the size of the kernels' struct Fault.
const faultBytes = 32

// faulted reports whether a run that is done has found an index out of range:
// programs that can copy the device's word to the host behind each run.
func (d *Device) faulted() bool {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&d.mirror[0]))) != 0
}

// takeFault returns the error of a run that failed, if one has. Since then no
// run has changed an input; from now on they do again.
func (d *Device) takeFault() error {
	if !d.faulted() {
		return nil
	}
	if err := d.stream.Wait(); err != nil {
		return err
	}
	lost := d.ranks.takeLost()
	word := func(i int) int64 { return int64(binary.LittleEndian.Uint64(d.mirror[8*i:])) }
	value, position, got := word(1), word(2), word(3)
	clear(d.mirror)
	if err := d.stream.Fill(d.fault, 0, faultBytes); err != nil {
		return err
	}
	if lost != nil {
		return lost
	}
	p := d.programs[int(value>>valueBits)]
	if p == nil {
		return fmt.Errorf("cuda: index %d at position %d is out of range, in a program that was closed", got, position)
	}
	v := p.graph.Values[value&(1<<valueBits-1)]
	e := &driver.IndexError{Path: v.Path, Op: v.Op, Got: got, Position: int(position), Size: v.Attr.Size}
	if x := v.Args[0].Type.Shape; v.Op == op.Gather {
		e.Size = x[0]
	} else if v.Op == op.TakeAlongAxis {
		e.Size = x[len(x)-1]
	}
	return e
}

// valueBits are those of a value's place in its program, in the number that
// kernels report it by; above are those of the program.
const valueBits = 24

// size is what is allocated for a number of bytes: sizes that differ little
// are one, so that memory fits again.
func size(bytes int) int {
	const least = 512
	if bytes <= least {
		return least
	}
	step := 1 << (bits.Len(uint(bytes-1)) - 4) // at most an eighth is lost
	return (bytes + step - 1) &^ (step - 1)
}
