package exec

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// Task is work that consists of chunks which may be done in any order and by
// any worker. Which chunks there are depends on shapes only.
type Task interface {
	Chunk(r *Run, w *Worker, i int)
}

// Worker is what a goroutine needs to do chunks: memory of its own.
type Worker struct {
	id       int // 0: the caller of a run
	Scratch  []byte
	Blocks   [][]byte
	Operands [12]vec.Operand // of the loop of a recurrent cell

	job              uint64      // number of the one whose chunks it does
	PackedA, PackedB PackedBlock // of that job's product, in scratch

	// Prefetch is the list of the tile that is computed; it is empty between tiles.
	Prefetch PrefetchList
}

// fit makes sure that a worker has the scratch memory that a program asks for.
func (w *Worker) fit(p *Plan) {
	if len(w.Scratch) < p.Scratch {
		if more := p.Scratch - len(w.Scratch); w.id == 0 {
			p.Memory.Hold(more)
		} else { // a helper is nobody's
			p.Memory.HoldByHelper(more)
		}
		w.Scratch = dirty(Aligned(p.Scratch))
	}
	if len(w.Blocks) < p.Blocks {
		w.Blocks = make([][]byte, p.Blocks)
	}
}

// minShare is the least work, in element operations, that is worth the help of
// another core: some microseconds.
const minShare = 1 << 14

// A job is a task being done: its chunks are cut into a range for each of its
// workers, who goes through its own and then helps with those of others. So
// neighbouring chunks, which mostly read and write neighbouring memory, are
// done by the same core, also in the next task of the same shape, and claiming
// one costs no traffic between cores. Which worker does a chunk has no
// influence on results.
//
// A worker waits for work by looking at its own range, and finds next to it all
// that it needs to know: what a job costs is mostly the cache lines that go from
// core to core, which here are one to the helper and one back.

// chunkRange is chunks that are to be done, and what they are chunks of, which
// is read by those who have claimed a chunk: until it is done, nothing changes.
type chunkRange struct {
	left   atomic.Uint64 // a rangeLeft
	job    uint64        // its number: no two have the same
	task   Task
	run    *Run
	ranges int // of the job
	_      [128 - 48]byte
}

// rangeLeft is which chunks are left: from the lowest bits, which a claim
// raises, to below the next, which a thief lowers. The highest bits are the
// helpers that the job may have.
type rangeLeft uint64

const (
	chunkBits = 28
	maxChunks = 1<<chunkBits - 1<<10 // some claims more than there are chunks do no harm
	maxLimit  = 1<<(64-2*chunkBits) - 1
)

func newRangeLeft(first, end, limit int) rangeLeft {
	return rangeLeft(min(limit, maxLimit))<<(2*chunkBits) | rangeLeft(end)<<chunkBits | rangeLeft(first)
}

func (l rangeLeft) first() int { return int(l & (1<<chunkBits - 1)) }
func (l rangeLeft) end() int   { return int(l >> chunkBits & (1<<chunkBits - 1)) }

// helps reports whether there are chunks for a helper.
func (l rangeLeft) helps(id int) bool {
	limit := int(l >> (2 * chunkBits))
	return l.first() < l.end() && (id <= limit || limit == maxLimit)
}

// claim takes a chunk: the first that is left of a range of one's own, or the
// last of another's, who goes on with those next to his own.
func (c *chunkRange) claim(own bool) (chunk int, claimed bool) {
	for {
		l := rangeLeft(c.left.Load())
		if l.first() >= l.end() {
			return 0, false
		}
		if own {
			l = rangeLeft(c.left.Add(1) - 1)
			return l.first(), l.first() < l.end()
		}
		if c.left.CompareAndSwap(uint64(l), uint64(l-1<<chunkBits)) {
			return l.end() - 1, true
		}
	}
}

// maxRanges is the most ranges of a job; more workers share them.
const maxRanges = 16

// place is where workers look for a job. Who has taken it puts one there after
// the other; a job is over when all of its chunks are done.
type place struct {
	taken atomic.Bool

	// Of who has taken it.
	last *Run   // that ranges name
	used int    // ranges that do
	jobs uint64 // put here so far
	due  int64  // what done is when helpers have done all they have claimed

	_      [128]byte
	done   atomic.Int64 // chunks done by helpers, of all jobs so far
	_      [120]byte
	ranges [maxRanges]chunkRange
}

// helper is a worker that is not the caller of a run.
type helper struct {
	Worker
	asleep atomic.Bool
	wake   chan struct{}
}

// pool is the workers of the process. They are shared by all programs, start
// when first needed, and sleep when there is nothing to do.
var pool struct {
	places  [8]place // the caller of any more jobs does them alone
	helpers atomic.Pointer[[]*helper]
	mu      sync.Mutex // of who adds helpers
}

// Parallel does chunks 0 to n-1 of t, where work is the number of element
// operations in all. It returns when all are done.
func (r *Run) Parallel(t Task, n, work int) {
	r.worker.PackedA, r.worker.PackedB = PackedBlock{}, PackedBlock{}
	if limit := min(r.Procs, n, 1+work/minShare) - 1; limit > 0 && n <= maxChunks {
		if p := r.take(); p != nil {
			p.do(t, r, n, limit)
			p.taken.Store(false)
			return
		}
	}
	for i := range n {
		r.chunk(t, &r.worker, i)
	}
}

// chunk does chunk i of t, unless the run is over.
func (r *Run) chunk(t Task, w *Worker, i int) {
	if !r.Over() {
		t.Chunk(r, w, i)
	}
}

// take takes a place for a job, the one that the run had before if it can, or
// returns nil.
func (r *Run) take() *place {
	for i := range pool.places {
		i = (r.place + i) % len(pool.places)
		p := &pool.places[i]
		if p.taken.Load() || !p.taken.CompareAndSwap(false, true) {
			continue
		}
		if p.last != r {
			p.forget()
			p.last = r
		}
		r.place = i
		r.places |= 1 << i
		return p
	}
	return nil
}

// leave makes places forget a run that is over: they would keep its memory.
func (r *Run) leave() {
	for i := range pool.places {
		// Who else has taken the place has made it forget r.
		if p := &pool.places[i]; r.places>>i&1 != 0 && p.taken.CompareAndSwap(false, true) {
			if p.last == r {
				p.forget()
			}
			p.taken.Store(false)
		}
	}
	r.places = 0
}

func (p *place) forget() {
	for i := range p.used {
		p.ranges[i].task, p.ranges[i].run = nil, nil
	}
	p.last, p.used = nil, 0
}

// do does a job with the help of at most limit workers.
func (p *place) do(t Task, r *Run, n, limit int) {
	ranges := min(limit+1, maxRanges)
	p.used = max(p.used, ranges)
	p.jobs += uint64(len(pool.places))
	helpers := startHelpers(limit)
	for i := ranges - 1; i >= 0; i-- { // the caller's own last
		c := &p.ranges[i]
		first, end := tiling.Cut(i, ranges, n)
		c.job, c.task, c.run, c.ranges = p.jobs+uint64(r.place), t, r, ranges
		c.left.Store(uint64(newRangeLeft(first, end, limit)))
	}
	for _, h := range helpers {
		if h.asleep.Load() && h.asleep.CompareAndSwap(true, false) {
			h.wake <- struct{}{}
		}
	}
	own := 0
	for i := range ranges {
		for c := &p.ranges[i]; ; own++ {
			chunk, claimed := c.claim(i == 0)
			if !claimed {
				break
			}
			r.chunk(t, &r.worker, chunk)
		}
	}
	p.due += int64(n - own)
	for i := 0; p.done.Load() != p.due; i++ {
		if i < spins {
			pause()
		} else {
			Yield()
		}
	}
}

// startHelpers returns the first n helpers, and starts those missing.
func startHelpers(n int) []*helper {
	all := pool.helpers.Load()
	if all == nil || len(*all) < n {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		var more []*helper
		if all = pool.helpers.Load(); all != nil {
			more = append(more, *all...)
		}
		for len(more) < n {
			h := &helper{Worker: Worker{id: len(more) + 1}, wake: make(chan struct{}, 1)}
			more = append(more, h)
			go h.serve()
		}
		all = &more
		pool.helpers.Store(all)
	}
	return (*all)[:n]
}

// work does chunks of range i until all are claimed. It returns the number of
// ranges of the job that they were of, 0 if there were none.
func (p *place) work(w *Worker, i int, own bool) (ranges int) {
	c := &p.ranges[i]
	chunk, claimed := c.claim(own)
	if !claimed {
		return 0
	}
	// The job is not over before this chunk is: what it is stays.
	r := c.run
	if w.job != c.job {
		w.job = c.job
		w.PackedA, w.PackedB = PackedBlock{}, PackedBlock{}
		w.fit(r.Plan)
	}
	ranges = c.ranges
	var done int64
	if r.Trace != nil || r.Plan.Labels != nil {
		r.observe(w.id, func() { done = c.rest(w, chunk, own) })
	} else {
		done = c.rest(w, chunk, own)
	}
	if Checking {
		checkGuards(w.Scratch, func() string { return fmt.Sprintf("%T with a helper's scratch memory", c.task) })
	}
	p.done.Add(done)
	return ranges
}

// rest does a chunk that has been claimed, and others until none is left. It
// returns how many.
func (c *chunkRange) rest(w *Worker, chunk int, own bool) (done int64) {
	t, r := c.task, c.run
	for claimed := true; claimed; chunk, claimed = c.claim(own) {
		r.chunk(t, w, chunk)
		done++
	}
	return done
}

const (
	spins  = 256                  // pauses before a core is offered to others: longer than what a step does between its large tasks
	linger = 2 * time.Millisecond // how long an idle worker looks for work before it sleeps
	stray  = 16                   // times that a worker looks at its own ranges before it looks at all
)

// Yield lets other goroutines and, where the system can, other threads run.
func Yield() {
	runtime.Gosched()
	yieldThread()
}

// help does chunks of the helper's own range of a job, if there are any, and
// then of the job's others. If there are none, those of any job count that may
// have the helper, when others is set. It reports whether there were any.
func (h *helper) help(others bool) bool {
	own := h.id
	if own >= maxRanges {
		own = 1 + (own-1)%(maxRanges-1)
	}
	for i := range pool.places {
		p := &pool.places[i]
		last := 1
		if others {
			last = maxRanges
		}
		for at := range last {
			at = (own + at) % maxRanges
			if !rangeLeft(p.ranges[at].left.Load()).helps(h.id) {
				continue
			}
			if ranges := p.work(&h.Worker, at, at == own); ranges > 0 {
				for other := 1; other < ranges; other++ {
					p.work(&h.Worker, (at+other)%ranges, false)
				}
				return true
			}
		}
	}
	return false
}

// serve is the life of a helper.
func (h *helper) serve() {
	var idle time.Time // since when, once it has spun
	for i := 0; ; i++ {
		switch {
		case h.help(i%stray == stray-1):
			i = 0
		case i < spins:
			pause()
		case i == spins:
			idle = time.Now()
		case time.Since(idle) < linger:
			Yield()
		default:
			// Whoever puts a job somewhere now sees that the helper is asleep, or
			// the helper sees the job.
			h.asleep.Store(true)
			if !h.help(true) || !h.asleep.CompareAndSwap(true, false) {
				<-h.wake
			}
			i = 0
		}
	}
}

// pause waits for some tens of nanoseconds in a way that leaves the core's
// resources, and its memory, to others.
func pause() {
	if v := vec.Current(); v != nil {
		v.Pause(1)
	}
}

// PackedBlock says which block of an operand lies packed in a worker's scratch
// memory, from an earlier chunk of the same task; the zero value is none.
type PackedBlock struct{ Batch, First, Lanes, P, Depth int }

// Packs reports whether block b has to be packed, and notes that it will be.
func (of *PackedBlock) Packs(b PackedBlock) bool {
	if *of == b {
		return false
	}
	*of = b
	return true
}
