package distribution

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// ErrStopped is in the error of a training that all ranks have ended together, after
// the same step, because the context of one of them had ended.
var ErrStopped = errors.New("the ranks have stopped together")

// RankError is an error that another rank has caused.
type RankError struct {
	Rank int // from 0
	Err  error
}

func (e *RankError) Error() string { return fmt.Sprintf("distribution: rank %d: %v", e.Rank, e.Err) }

func (e *RankError) Unwrap() error { return e.Err }

// DefaultTimeout is how long a collective call waits for other ranks, unless
// MEZZO_DISTRIBUTION_TIMEOUT is set, to a time such as "30s".
const DefaultTimeout = 10 * time.Minute

// Group is ranks that train together. Its methods are collective: all ranks call them
// in the same order. They may be called from any goroutine; calls wait for each other.
type Group struct {
	engine  Engine
	timeout time.Duration

	mu     sync.Mutex // one call at a time
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	one    []byte // scratch of Status
	all    []byte

	number int // as a driver.Communicator
	start  sync.Once
	wake   chan struct{} // of the goroutine that runs jobs
	queue  struct {
		sync.Mutex
		jobs []driver.CommunicatorJob
	}
	running sync.Mutex // held while jobs run
}

// NewGroup returns the group of an engine.
func NewGroup(e Engine) *Group {
	g := &Group{engine: e, timeout: DefaultTimeout, one: make([]byte, 1), all: make([]byte, e.Size())}
	if d, err := time.ParseDuration(os.Getenv("MEZZO_DISTRIBUTION_TIMEOUT")); err == nil && d > 0 {
		g.timeout = d
	}
	g.ctx, g.cancel = context.WithCancelCause(context.Background())
	g.number = driver.AddCommunicator(communicator{g})
	return g
}

// end forgets the group: its programs cannot run any more.
func (g *Group) end() {
	driver.RemoveCommunicator(g.number)
	g.start.Do(func() {})
	if g.wake != nil {
		close(g.wake)
	}
}

// communicator is what programs see of a group.
type communicator struct{ g *Group }

// Post implements driver.Communicator.
func (c communicator) Post(j driver.CommunicatorJob, soon bool) {
	c.g.queue.Lock()
	c.g.queue.jobs = append(c.g.queue.jobs, j)
	c.g.queue.Unlock()
	if !soon {
		return
	}
	c.g.wakeUp()
}

// wakeUp has the group's goroutine run what is queued.
func (g *Group) wakeUp() {
	g.start.Do(func() {
		g.wake = make(chan struct{}, 1)
		go func() {
			for range g.wake {
				g.run(nil)
			}
		}()
	})
	select {
	case g.wake <- struct{}{}:
	default: // it will look at the queue
	}
}

// Help implements driver.Communicator.
func (c communicator) Help(j driver.CommunicatorJob) {
	if c.g.run(j) && c.g.queued() {
		c.g.wakeUp()
	}
}

// run runs the queued jobs up to a last one, or all. It reports whether the last one was
// among them. A goroutine that finds another one running jobs leaves them to it, which looks
// at the queue again when it has finished.
func (g *Group) run(last driver.CommunicatorJob) bool {
	for g.queued() && g.running.TryLock() {
		found := false
		for !found {
			j := g.next()
			if j == nil {
				break
			}
			j.Exchange()
			found = j == last
		}
		g.running.Unlock()
		if found {
			return true
		}
	}
	return false
}

func (g *Group) queued() bool {
	g.queue.Lock()
	defer g.queue.Unlock()
	return len(g.queue.jobs) > 0
}

// next takes the first job out of the queue; nil if there is none.
func (g *Group) next() driver.CommunicatorJob {
	g.queue.Lock()
	defer g.queue.Unlock()
	if len(g.queue.jobs) == 0 {
		return nil
	}
	j := g.queue.jobs[0]
	g.queue.jobs = slices.Delete(g.queue.jobs, 0, 1)
	return j
}

func (c communicator) AllToAll(send, recv []byte) error  { return c.g.AllToAll(send, recv) }
func (c communicator) AllGather(send, recv []byte) error { return c.g.AllGather(send, recv) }

func (c communicator) Agree(err error) error              { return c.g.Agree(err) }
func (c communicator) Broadcast(b []byte, root int) error { return c.g.BroadcastBytes(b, root) }

// Timeout implements driver.Communicator.
func (c communicator) Timeout() time.Duration {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	return c.g.timeout
}

// Err implements driver.Communicator.
func (c communicator) Err() error {
	if l, ok := c.g.engine.(Locator); ok {
		return l.Err()
	}
	return nil
}

// Missing implements driver.Communicator.
func (c communicator) Missing(what string, waited time.Duration, cause error) error {
	if l, ok := c.g.engine.(Locator); ok {
		return l.Missing(what, waited, cause)
	}
	return fmt.Errorf("distribution: rank %d of %d has waited %v in %s: %w", c.g.Rank(), c.g.Size(), waited, what, cause)
}

func (c communicator) AllReduce(x []float32) error {
	s, ok := c.g.engine.(Summer)
	if !ok {
		return fmt.Errorf("distribution: engine %s has no sum of its own; leave DataParallel.Engine out", c.g.engine.Name())
	}
	return c.g.call("all-reduce", func(ctx context.Context) error { return s.AllReduce(ctx, x) })
}

// SameText implements driver.Communicator. Its error names the first line that differs.
func (c communicator) SameText(text string) error {
	all, err := c.g.Gather([]byte(text))
	if err != nil {
		return err
	}
	for rank, other := range all {
		if string(other) == string(all[0]) {
			continue
		}
		a, b := strings.Split(string(all[0]), "\n"), strings.Split(string(other), "\n")
		for i := range max(len(a), len(b)) {
			x, y := "exchanges nothing", "exchanges nothing"
			if i < len(a) && a[i] != "" {
				x = a[i]
			}
			if i < len(b) && b[i] != "" {
				y = b[i]
			}
			if x != y {
				return &RankError{rank, fmt.Errorf("its program %s; that of rank 0 %s", y, x)}
			}
		}
	}
	return nil
}

// Rank returns the number of this process, from 0.
func (g *Group) Rank() int { return g.engine.Rank() }

// Size returns the number of ranks.
func (g *Group) Size() int { return g.engine.Size() }

// LocalRank returns the rank among the processes of this machine.
func (g *Group) LocalRank() int { return g.engine.LocalRank() }

// LocalSize returns the number of processes of this machine.
func (g *Group) LocalSize() int { return g.engine.LocalSize() }

// Engine returns the engine.
func (g *Group) Engine() Engine { return g.engine }

// SetTimeout sets how long a call waits for other ranks; see DefaultTimeout.
func (g *Group) SetTimeout(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.timeout = d
}

// call makes one call of the engine, with the timeout.
func (g *Group) call(what string, f func(ctx context.Context) error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.locked(what, f)
}

func (g *Group) locked(what string, f func(ctx context.Context) error) error {
	if g.timer == nil {
		g.timer = time.AfterFunc(g.timeout, func() {
			g.cancel(fmt.Errorf("no answer in %v (MEZZO_DISTRIBUTION_TIMEOUT): %w", g.timeout, context.DeadlineExceeded))
		})
	} else {
		g.timer.Reset(g.timeout)
	}
	err := f(g.ctx)
	g.timer.Stop()
	var known *RankError
	if err != nil && !errors.As(err, &known) {
		err = fmt.Errorf("distribution: %s on rank %d of %d: %w", what, g.Rank(), g.Size(), err)
	}
	return err
}

// AllToAll sends part i of send to rank i and receives its part for this rank as part i
// of recv: see Engine.
func (g *Group) AllToAll(send, recv []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.locked("all-to-all", func(ctx context.Context) error { return g.engine.AllToAll(ctx, send, recv) })
}

// AllGather receives send of rank i as part i of recv: see Engine.
func (g *Group) AllGather(send, recv []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.locked("all-gather", func(ctx context.Context) error { return g.engine.AllGather(ctx, send, recv) })
}

// Barrier waits until all ranks have called it.
func (g *Group) Barrier() error { return g.call("barrier", g.engine.Barrier) }

// Abort ends all ranks because of an error of this one.
func (g *Group) Abort(cause error) { g.engine.Abort(1, cause) }

// Agree is how ranks learn of each other's errors: every rank calls it with its own, or
// nil. If all are nil it returns nil. Else it returns err where it is not nil, and a
// *RankError with the text of the first one elsewhere.
func (g *Group) Agree(err error) error {
	code := byte(0)
	if err != nil {
		code = 1
	}
	_, _, err = g.Status(code, err)
	return err
}

// Status is Agree with a code, 0 to 254, of what this rank is about to do: it returns
// the smallest and the largest code of all.
func (g *Group) Status(code byte, err error) (smallest, largest byte, _ error) {
	if g.Size() == 1 {
		return code, code, err
	}
	g.mu.Lock()
	g.one[0] = code
	if err != nil {
		g.one[0] = 255
	}
	e := g.locked("status", func(ctx context.Context) error { return g.engine.AllGather(ctx, g.one, g.all) })
	failed := -1
	smallest = 255
	if e == nil {
		for rank, c := range g.all {
			smallest, largest = min(smallest, c), max(largest, c)
			if c == 255 && failed < 0 {
				failed = rank
			}
		}
	}
	g.mu.Unlock()
	if e != nil {
		return 0, 0, e
	}
	if failed < 0 {
		return smallest, largest, nil
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	texts, e := g.Gather([]byte(text))
	switch {
	case e != nil:
		return 0, 0, e
	case err != nil:
		return smallest, largest, err
	}
	return smallest, largest, &RankError{failed, errors.New(string(texts[failed]))}
}

// Gather returns b of each rank; lengths may differ.
func (g *Group) Gather(b []byte) ([][]byte, error) {
	n := binary.LittleEndian.AppendUint64(nil, uint64(len(b)))
	lengths := make([]byte, 8*g.Size())
	if err := g.AllGather(n, lengths); err != nil {
		return nil, err
	}
	most := 0
	for rank := range g.Size() {
		most = max(most, int(binary.LittleEndian.Uint64(lengths[8*rank:])))
	}
	send, recv := make([]byte, most), make([]byte, most*g.Size())
	copy(send, b)
	if err := g.AllGather(send, recv); err != nil {
		return nil, err
	}
	out := make([][]byte, g.Size())
	for rank := range out {
		out[rank] = recv[rank*most:][:binary.LittleEndian.Uint64(lengths[8*rank:])]
	}
	return out, nil
}

// BroadcastBytes copies b of rank root to all others, whose b has the same length.
func (g *Group) BroadcastBytes(b []byte, root int) error {
	return g.call("broadcast", func(ctx context.Context) error { return g.engine.Broadcast(ctx, b, root) })
}

// Broadcast gives the variables of rank 0 to all ranks. The owners have the same
// variables on all, which it checks first. Slots that are divided among the ranks stay.
func (g *Group) Broadcast(owners ...tensor.Stateful) error {
	if g.Size() == 1 {
		return nil
	}
	vars, err := g.alike(owners)
	if err != nil {
		return err
	}
	for _, v := range vars {
		if p, _ := v.Partition(); p != nil {
			continue
		}
		b, err := v.Bytes()
		if err != nil {
			return err
		}
		if err := g.BroadcastBytes(b, 0); err != nil {
			return err
		}
		if g.Rank() != 0 {
			if err := v.SetBytes(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// Same returns an error on all ranks that names the first variable whose elements are
// not the same, to the bit, as rank 0's. Slots that are divided among the ranks are not
// compared.
func (g *Group) Same(owners ...tensor.Stateful) error {
	if g.Size() == 1 {
		return nil
	}
	vars, err := g.alike(owners)
	if err != nil {
		return err
	}
	var sums []byte
	vars = slices.DeleteFunc(vars, func(v *tensor.Variable) bool { p, _ := v.Partition(); return p != nil })
	for _, v := range vars {
		b, err := v.Bytes()
		if err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		sums = append(sums, sum[:]...)
	}
	all, err := g.Gather(sums)
	if err != nil {
		return err
	}
	for rank, s := range all {
		for i, v := range vars {
			if at := i * sha256.Size; !bytes.Equal(s[at:at+sha256.Size], all[0][at:at+sha256.Size]) {
				return &RankError{rank, fmt.Errorf("variable %s differs from that of rank 0", v.Name())}
			}
		}
	}
	return nil
}

// alike returns the variables of owners, after a check that all ranks have the same
// types of variables in the same order.
func (g *Group) alike(owners []tensor.Stateful) ([]*tensor.Variable, error) {
	var vars []*tensor.Variable
	seen := map[*tensor.Variable]bool{}
	var text bytes.Buffer
	for _, o := range owners {
		for _, v := range o.Variables() {
			if !seen[v] {
				seen[v] = true
				vars = append(vars, v)
				fmt.Fprintf(&text, "%v %v\n", v.DType(), v.Shape())
			}
		}
	}
	all, err := g.Gather(text.Bytes())
	if err != nil {
		return nil, err
	}
	for rank, other := range all {
		if bytes.Equal(other, all[0]) {
			continue
		}
		a, b := bytes.Split(all[0], []byte{'\n'}), bytes.Split(other, []byte{'\n'})
		for i := range min(len(a), len(b), len(vars)) {
			if !bytes.Equal(a[i], b[i]) {
				return nil, &RankError{rank, fmt.Errorf("variable %d, %s, is %s; on rank 0 it is %s", i, vars[i].Name(), b[i], a[i])}
			}
		}
		return nil, &RankError{rank, fmt.Errorf("it has %d variables, rank 0 has %d", len(b)-1, len(a)-1)}
	}
	return vars, nil
}

// floatBytes is the memory of x.
func floatBytes(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}

// bytesFloats is the inverse of floatBytes.
func bytesFloats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
