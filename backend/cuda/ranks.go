//go:build cuda && linux && amd64

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nccl"
	"github.com/mezzo-ml/mezzo/backend/driver"
)

// ranks is what a device shares with the ranks of other devices.
type ranks struct {
	load    sync.Once
	library *nccl.Library
	missing error // why there is no library

	// mu may be locked while Device.mu is, which a goroutine may hold while it waits for
	// an exchange.
	mu        sync.Mutex
	groups    map[int]*connection // by the number of their driver.Communicator
	exchanges map[int]*exchange   // of programs, by number
	numbered  int                 // how many exchanges were given a number
	lost      error               // of runs that have ended early and changed nothing
}

// add gives an exchange a number.
func (r *ranks) add(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.exchanges == nil {
		r.exchanges = map[int]*exchange{}
	}
	r.numbered++
	x.number = r.numbered
	r.exchanges[x.number] = x
}

// remove forgets an exchange.
func (r *ranks) remove(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.exchanges, x.number)
}

// openNCCL loads the library.
func (d *Device) openNCCL() (*nccl.Library, error) {
	d.ranks.load.Do(func() { d.ranks.library, d.ranks.missing = nccl.Open(d.gpu.Driver) })
	return d.ranks.library, d.ranks.missing
}

// takeLost returns the error of runs that have ended early, once.
func (r *ranks) takeLost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.lost
	r.lost = nil
	return err
}

// connection is this device's place in a group of ranks. A goroutine watches it: NCCL
// tells of errors when it is asked, and a rank that is gone may leave others waiting
// for ever.
type connection struct {
	d       *Device
	group   int
	rank    int
	ranks   int
	once    sync.Once
	timeout time.Duration
	failed  atomic.Pointer[error] // why no exchange can succeed any more

	comm   *nccl.Comm
	stream api.Stream // of exchanges
	rescue api.Stream // of what must not wait for them
	begun  api.Ptr    // number of the exchange that began last, 4 bytes
	mirror []byte     // of begun
	stop   chan struct{}
	ended  chan struct{}

	last   atomic.Uint64 // mark behind the last run with exchanges
	passed uint64        // mark that has passed; of the goroutine
	since  time.Time     // when it has got there
}

// watchTime is the time between two looks at a connection.
const watchTime = 50 * time.Millisecond

// ran notes a run with exchanges, which ends at a mark.
func (c *connection) ran(mark uint64) {
	if c != nil {
		c.last.Store(mark)
	}
}

// connect connects the program to its group before its first run.
func (p *Program) connect() error {
	if len(p.exchanges) == 0 {
		return nil
	}
	if p.ranks.Load() == nil {
		d, a := p.device, p.exchanges[0].attr
		d.ranks.mu.Lock()
		if d.ranks.groups == nil {
			d.ranks.groups = map[int]*connection{}
		}
		c := d.ranks.groups[a.Group]
		if c == nil {
			c = &connection{d: d, group: a.Group, rank: a.Rank, ranks: a.Ranks}
			d.ranks.groups[a.Group] = c
		}
		d.ranks.mu.Unlock()
		c.once.Do(func() { // not under the lock: ranks may share a device, which NCCL refuses
			if err := c.open(); err != nil {
				err = fmt.Errorf("cuda: rank %d of %d does not connect: %w", a.Rank, a.Ranks, err)
				c.failed.Store(&err)
			}
		})
		p.ranks.Store(c)
	}
	if err := p.ranks.Load().failed.Load(); err != nil {
		return *err
	}
	return nil
}

// open connects the ranks. All of them call it.
func (c *connection) open() error {
	g := driver.CommunicatorOf(c.group)
	if g == nil {
		return errors.New("the group of ranks has ended")
	}
	c.timeout = g.Timeout()
	library, err := c.d.openNCCL()
	id := make([]byte, nccl.IDBytes)
	if err == nil && c.rank == 0 {
		id, err = library.UniqueID()
	}
	if err := g.Agree(err); err != nil {
		return err
	}
	if err := g.SameText("exchanges with NCCL " + library.String()); err != nil {
		return err
	}
	if err := g.Broadcast(id, 0); err != nil {
		return err
	}
	joined := make(chan error, 1)
	go func() { // NCCL waits for the others without end
		if err := c.d.gpu.Enter(); err != nil {
			joined <- err
			return
		}
		defer c.d.gpu.Leave()
		comm, err := library.NewComm(id, c.rank, c.ranks)
		c.comm = comm
		joined <- err
	}()
	select {
	case err = <-joined:
	case <-time.After(c.timeout):
		err = fmt.Errorf("ncclCommInitRank has waited %v for the other ranks", c.timeout)
	}
	if err := g.Agree(err); err != nil {
		return err
	}
	if err := c.d.do(c.start); err != nil {
		return err
	}
	c.stop, c.ended = make(chan struct{}), make(chan struct{})
	go c.watch()
	return nil
}

// start makes what exchanges need on the device.
func (c *connection) start() (err error) {
	if c.stream, err = api.NewStream(); err != nil {
		return err
	}
	if c.rescue, err = api.NewStream(); err != nil {
		return err
	}
	if c.mirror, err = api.AllocPinned(4); err != nil {
		return err
	}
	if c.begun, err = c.d.take(4, ""); err != nil {
		return err
	}
	return errors.Join(c.stream.Fill(c.begun, 0, 4), c.stream.Wait())
}

// exchange puts the begin or the end of an exchange on the streams.
func (p *Program) exchange(call exchangeCall) error {
	x, c, main := call.x, p.ranks.Load(), p.device.stream
	if call.wait {
		return main.After(x.done)
	}
	s, a, w := c.stream, x.attr, p.words[x.first:]
	if err := errors.Join(main.Record(x.packed), s.After(x.packed), s.FillWords(c.begun, uint32(x.number), 1)); err != nil {
		return err
	}
	size := a.Wire.Size()
	var err error
	switch {
	case x.gather:
		err = c.comm.AllGather(s.Handle(), w[wordSend], w[wordSums], a.Gathered()*size)
	case a.Native:
		err = c.comm.AllReduce(s.Handle(), w[wordSend], a.Elements())
	default:
		if err = c.comm.AllToAll(s.Handle(), w[wordSend], w[wordRecv], a.Rows()*a.Part()*size); err == nil {
			_, err = s.Launch([]api.Launch{x.sum}, p.words)
		}
		if err == nil && !a.Scatter {
			err = c.comm.AllGather(s.Handle(), w[wordOwn], w[wordSums], a.Part()*size)
		}
	}
	if err != nil {
		return fmt.Errorf("rank %d of %d: layer %s: %v: %w", a.Rank, a.Ranks, x.path, a, err)
	}
	return s.Record(x.done)
}

// watch looks for errors until the group or the device ends.
func (c *connection) watch() {
	defer close(c.ended)
	c.since = time.Now()
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(watchTime):
		}
		if err := c.check(); err != nil {
			c.fail(err)
			return
		}
	}
}

// check returns why no exchange can succeed any more, or nil.
func (c *connection) check() error {
	if err := c.d.gpu.Enter(); err != nil {
		return err
	}
	defer c.d.gpu.Leave()
	last := c.last.Load()
	if last >= runAhead && c.passed < last-runAhead { // marks before that have been waited for
		c.passed, c.since = last-runAhead, time.Now()
	}
	for c.passed < last {
		passed, err := c.d.marks[(c.passed+1)%runAhead].Passed()
		if err != nil {
			return err
		}
		if !passed {
			break
		}
		c.passed, c.since = c.passed+1, time.Now()
	}
	waiting := c.passed < last
	if !waiting {
		c.since = time.Now()
	}
	waited := time.Since(c.since)
	if err := c.comm.Failed(); err != nil {
		return err
	}
	g := driver.CommunicatorOf(c.group)
	switch {
	case g == nil && (!waiting || waited > c.timeout):
		return errors.New("the group of ranks has ended")
	case g == nil:
	case g.Err() != nil:
		return g.Err()
	case waiting && waited > c.timeout:
		return g.Missing(c.where(), waited.Round(time.Millisecond), fmt.Errorf("no answer in %v (MEZZO_DISTRIBUTION_TIMEOUT)", c.timeout))
	}
	return nil
}

// where names the exchange that began last.
func (c *connection) where() string {
	if c.rescue.CopyOut(c.mirror, c.begun) != nil || c.rescue.Wait() != nil {
		return "an exchange"
	}
	number := int(binary.LittleEndian.Uint32(c.mirror))
	c.d.ranks.mu.Lock()
	defer c.d.ranks.mu.Unlock()
	if x := c.d.ranks.exchanges[number]; x != nil {
		return fmt.Sprintf("the exchange of layer %s, %v", x.path, x.attr)
	}
	return "an exchange"
}

// fail ends the connection because of an error. What waits for an exchange goes on, with
// numbers that mean nothing: before that the word of faults is set, so that no run
// changes an input.
func (c *connection) fail(err error) {
	if e := c.d.gpu.Enter(); e != nil {
		return
	}
	defer c.d.gpu.Leave()
	waiting := c.passed < c.last.Load()
	err = fmt.Errorf("cuda: rank %d of %d: %s: %w", c.rank, c.ranks, c.where(), err)
	c.failed.Store(&err)
	if !waiting {
		c.comm.Close()
		return
	}
	c.d.ranks.mu.Lock()
	c.d.ranks.lost = err
	c.d.ranks.mu.Unlock()
	if c.rescue.Fill(c.d.fault, 1, 4) == nil {
		c.rescue.Wait() // of the errors the one above counts
	}
	c.comm.Abort()
}

// disconnect leaves all groups.
func (d *Device) disconnect() {
	d.ranks.mu.Lock()
	groups := d.ranks.groups
	d.ranks.groups = nil
	d.ranks.mu.Unlock()
	for _, c := range groups {
		if c.stop == nil {
			continue
		}
		close(c.stop)
		<-c.ended
		d.do(func() error {
			if c.failed.Load() == nil {
				c.stream.Wait()
				c.comm.Close()
			}
			d.give(c.begun, 4)
			return errors.Join(api.ReleasePinned(c.mirror), c.stream.Close(), c.rescue.Close())
		})
	}
}
