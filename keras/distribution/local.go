package distribution

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// alone is the engine of a group of one rank.
type alone struct{}

func (alone) Name() string   { return "none" }
func (alone) Rank() int      { return 0 }
func (alone) Size() int      { return 1 }
func (alone) LocalRank() int { return 0 }
func (alone) LocalSize() int { return 1 }

func (alone) AllToAll(_ context.Context, send, recv []byte) error  { copy(recv, send); return nil }
func (alone) AllGather(_ context.Context, send, recv []byte) error { copy(recv, send); return nil }
func (alone) Broadcast(context.Context, []byte, int) error         { return nil }
func (alone) Barrier(context.Context) error                        { return nil }
func (alone) Abort(int, error)                                     {}
func (alone) Leave(context.Context) error                          { return nil }

// Local runs a group of size ranks as goroutines of this process and returns when all
// have ended: for tests, and for several models on one machine. Each calls run with its
// group. If one returns an error or panics, the others' collective calls fail, and Local
// returns the first error.
func Local(ctx context.Context, size int, run func(ctx context.Context, g *Group) error) error {
	if size < 1 {
		return fmt.Errorf("distribution: Local: got %d ranks, want 1 or more", size)
	}
	var wg sync.WaitGroup
	w := newWorld(size)
	for rank := range size {
		wg.Add(1)
		go func() {
			defer wg.Done()
			e := &local{w, rank}
			g := NewGroup(e)
			defer g.end()
			err := protect(func() error { return run(ctx, g) })
			if err != nil {
				e.Abort(1, err)
				return
			}
			e.Leave(ctx)
		}()
	}
	wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.broken
}

// protect returns a panic of f as an error.
func protect(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// LocalEngines returns the engines of a group of ranks in one process, for tests of
// what is built on them. Each belongs to a goroutine of its own.
func LocalEngines(size int) []Engine {
	w := newWorld(size)
	var all []Engine
	for rank := range size {
		all = append(all, &local{w, rank})
	}
	return all
}

// world is the common state of ranks in one process.
type world struct {
	size int

	mu     sync.Mutex
	now    *round // that ranks are joining
	left   []int  // ranks that have left
	broken error  // why no call can succeed any more
	over   chan struct{}
}

// round is a collective call.
type round struct {
	what    string
	length  int // of send
	root    int
	joined  []bool
	n       int // ranks that have joined
	calls   []buffers
	full    chan struct{} // closed when all have joined
	copies  int           // ranks that have copied what they need
	copied  chan struct{} // closed when all have
	waiting time.Time     // since the first joined
}

type buffers struct{ send, recv []byte }

func newWorld(size int) *world { return &world{size: size, over: make(chan struct{})} }

// breaks makes every call fail from now on. Only the first reason counts.
func (w *world) breaks(err error) {
	if w.broken == nil {
		w.broken = err
		close(w.over)
	}
}

// local is a rank of a world.
type local struct {
	*world
	rank int
}

func (l *local) Name() string   { return "local" }
func (l *local) Rank() int      { return l.rank }
func (l *local) Size() int      { return l.size }
func (l *local) LocalRank() int { return l.rank }
func (l *local) LocalSize() int { return l.size }

// Abort implements Engine.
func (l *local) Abort(_ int, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var known *RankError
	if !errors.As(cause, &known) {
		cause = &RankError{Rank: l.rank, Err: cause}
	}
	l.breaks(cause)
}

// Leave implements Engine.
func (l *local) Leave(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = append(l.left, l.rank)
	if r := l.now; r != nil { // others wait for this rank
		l.breaks(&RankError{Rank: l.rank, Err: fmt.Errorf("it has left the group, others are in %s", r.what)})
	}
	return nil
}

// Err implements Locator.
func (l *local) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// Missing implements Locator. Where other ranks are is not known.
func (l *local) Missing(what string, waited time.Duration, cause error) error {
	return fmt.Errorf("distribution: rank %d has waited %v in %s: %w", l.rank, waited, what, cause)
}

func (l *local) AllToAll(ctx context.Context, send, recv []byte) error {
	if len(send) != len(recv) || len(send)%l.size != 0 {
		return fmt.Errorf("distribution: AllToAll: got buffers of %d and %d bytes, want equal ones of %d parts", len(send), len(recv), l.size)
	}
	part := len(send) / l.size
	return l.do(ctx, "all-to-all", 0, buffers{send, recv}, func(all []buffers) {
		for i, b := range all {
			copy(recv[i*part:(i+1)*part], b.send[l.rank*part:])
		}
	})
}

func (l *local) AllGather(ctx context.Context, send, recv []byte) error {
	if len(recv) != l.size*len(send) {
		return fmt.Errorf("distribution: AllGather: got %d bytes for %d ranks with %d each", len(recv), l.size, len(send))
	}
	return l.do(ctx, "all-gather", 0, buffers{send, recv}, func(all []buffers) {
		for i, b := range all {
			copy(recv[i*len(send):], b.send)
		}
	})
}

func (l *local) Broadcast(ctx context.Context, b []byte, root int) error {
	if root < 0 || root >= l.size {
		return fmt.Errorf("distribution: Broadcast: got the root %d, want a rank of %d", root, l.size)
	}
	return l.do(ctx, "broadcast", root, buffers{send: b}, func(all []buffers) {
		if l.rank != root {
			copy(b, all[root].send)
		}
	})
}

func (l *local) Barrier(ctx context.Context) error {
	return l.do(ctx, "barrier", 0, buffers{}, func([]buffers) {})
}

// AllReduce implements Summer.
func (l *local) AllReduce(ctx context.Context, x []float32) error {
	sum := make([]float32, len(x))
	err := l.do(ctx, "all-reduce", 0, buffers{send: floatBytes(x)}, func(all []buffers) {
		for _, b := range all {
			for i, v := range bytesFloats(b.send) {
				sum[i] += v
			}
		}
	})
	if err == nil { // only now have the others read x
		copy(x, sum)
	}
	return err
}

// do is a collective call: once all ranks have joined it, take copies what this rank
// needs from the buffers of all.
func (l *local) do(ctx context.Context, what string, root int, b buffers, take func([]buffers)) error {
	r, err := l.join(what, root, b)
	if err != nil {
		return err
	}
	if err := l.wait(ctx, r, r.full); err != nil {
		return err
	}
	take(r.calls)
	l.mu.Lock()
	if r.copies++; r.copies == l.size {
		close(r.copied)
	}
	l.mu.Unlock()
	return l.wait(ctx, r, r.copied)
}

// join joins the round in progress, or begins one.
func (l *local) join(what string, root int, b buffers) (*round, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return nil, l.broken
	}
	if len(l.left) > 0 {
		l.breaks(&RankError{Rank: l.left[0], Err: fmt.Errorf("it has left the group, others are in %s", what)})
		return nil, l.broken
	}
	r := l.now
	if r == nil {
		r = &round{what: what, length: len(b.send), root: root, joined: make([]bool, l.size), calls: make([]buffers, l.size),
			full: make(chan struct{}), copied: make(chan struct{}), waiting: time.Now()}
		l.now = r
	}
	if r.what != what || r.length != len(b.send) || r.root != root {
		l.breaks(&RankError{Rank: l.rank, Err: fmt.Errorf("it calls %s of %d bytes, others call %s of %d bytes", what, len(b.send), r.what, r.length)})
		return nil, l.broken
	}
	if r.joined[l.rank] {
		l.breaks(&RankError{Rank: l.rank, Err: fmt.Errorf("two calls at a time, the second is %s", what)})
		return nil, l.broken
	}
	r.joined[l.rank], r.calls[l.rank] = true, b
	if r.n++; r.n == l.size {
		l.now = nil
		close(r.full)
	}
	return r, nil
}

// wait waits for c, which closes when the round has got further.
func (l *local) wait(ctx context.Context, r *round, c chan struct{}) error {
	select {
	case <-c:
		return nil
	default:
	}
	select {
	case <-c:
		return nil
	case <-l.over:
	case <-ctx.Done():
		l.mu.Lock()
		var missing []int
		for rank, joined := range r.joined {
			if !joined {
				missing = append(missing, rank)
			}
		}
		err := fmt.Errorf("distribution: %s: rank %d has waited %v: %w", r.what, l.rank, time.Since(r.waiting).Round(time.Millisecond), context.Cause(ctx))
		if len(missing) > 0 {
			err = &RankError{Rank: missing[0], Err: fmt.Errorf("it is missing in %s, of ranks %v, after %v: %w",
				r.what, slices.Compact(missing), time.Since(r.waiting).Round(time.Millisecond), context.Cause(ctx))}
		}
		l.breaks(err)
		l.mu.Unlock()
	}
	select { // both may have happened
	case <-c:
		return nil
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}
