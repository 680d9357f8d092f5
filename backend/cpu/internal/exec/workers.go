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

// Task is work in chunks, which may run in any order and on any worker. The chunks
// depend on shapes alone.
type Task interface {
	Chunk(r *Run, w *Worker, i int)
}

// Worker is the memory that a goroutine needs to run chunks.
type Worker struct {
	id       int // 0: the caller of a run
	Scratch  []byte
	Blocks   [][]byte
	Operands [12]vec.Operand // of a recurrent cell's loop

	job              uint64      // number of the current job
	PackedA, PackedB PackedBlock // blocks of that job's product that are packed in Scratch

	// Prefetch is the list of the current tile; it is empty between tiles.
	Prefetch PrefetchList
}

// ID identifies a worker of a run: 0 is the goroutine that started the run.
func (w *Worker) ID() int { return w.id }

// fit grows a worker's scratch memory to what a program needs.
func (w *Worker) fit(p *Plan) {
	if len(w.Scratch) < p.Scratch {
		if more := p.Scratch - len(w.Scratch); w.id == 0 {
			p.Memory.Hold(more)
		} else { // helpers outlive programs
			p.Memory.HoldByHelper(more)
		}
		w.Scratch = dirty(Aligned(p.Scratch))
	}
	if len(w.Blocks) < p.Blocks {
		w.Blocks = make([][]byte, p.Blocks)
	}
}

// minShare is the least work, in element operations, that pays for another core's help:
// some microseconds.
const minShare = 1 << 14

// A job is a running task. Its chunks are divided into one range per worker. A worker
// does the chunks of its own range first and then steals from the others. So
// neighbouring chunks, which mostly access neighbouring memory, run on the same core,
// also in the next task of the same shape, and claiming a chunk causes no traffic
// between cores. Results do not depend on which worker does a chunk.
//
// An idle worker polls its own range, which has all it needs to know next to it. The
// cost of a job is mostly the cache lines that move between cores: here one to the
// helper and one back.

// chunkRange is a range of chunks to do and the job they belong to. A worker may read
// the job once it has claimed a chunk: it does not change until the chunk is done.
type chunkRange struct {
	left   atomic.Uint64 // a rangeLeft
	job    uint64        // the job's unique number
	task   Task
	run    *Run
	ranges int // of the job
	_      [128 - 48]byte
}

// rangeLeft packs the chunks that are left: in the lowest bits the first, which a claim
// raises, in the next the end, which a thief lowers. The highest bits are the number of
// helpers that the job may have.
type rangeLeft uint64

const (
	chunkBits = 28
	maxChunks = 1<<chunkBits - 1<<10 // leaves room for claims past the last chunk
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

// claim takes a chunk: the first of the worker's own range, or the last of another's,
// next to the thief's own chunks.
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

// maxRanges is the most ranges of a job; further workers share them.
const maxRanges = 16

// place is a slot that workers search for a job. A run takes it and puts one job there
// after the other; a job is over when all of its chunks are done.
type place struct {
	taken atomic.Bool

	// Fields of the run that has taken the place:
	last *Run   // run that ranges refer to
	used int    // number of such ranges
	jobs uint64 // jobs so far
	due  int64  // value of done when helpers have done all chunks they have claimed

	_      [128]byte
	done   atomic.Int64 // chunks done by helpers, in all jobs so far
	_      [120]byte
	ranges [maxRanges]chunkRange
}

// helper is a worker that is not the caller of a run.
type helper struct {
	Worker
	asleep atomic.Bool
	wake   chan struct{}
}

// pool is the workers of the process. All programs share them; they start when first
// needed and sleep when idle.
var pool struct {
	places  [8]place // callers of further jobs run them alone
	helpers atomic.Pointer[[]*helper]
	mu      sync.Mutex // held to add helpers
}

// Parallel runs chunks 0 to n-1 of t and returns when all are done. work is the number
// of element operations in all.
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

// chunk runs chunk i of t unless the run is over.
func (r *Run) chunk(t Task, w *Worker, i int) {
	if !r.Over() {
		t.Chunk(r, w, i)
	}
}

// take takes a place for a job, preferably the one that the run had before, or returns
// nil.
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

// leave clears references to a finished run from places: they would keep its memory.
func (r *Run) leave() {
	for i := range pool.places {
		// If another run has taken the place, it has cleared them.
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

// do runs a job with at most limit helpers.
func (p *place) do(t Task, r *Run, n, limit int) {
	ranges := min(limit+1, maxRanges)
	p.used = max(p.used, ranges)
	p.jobs += uint64(len(pool.places))
	helpers := startHelpers(limit)
	for i := ranges - 1; i >= 0; i-- { // the caller's own range last
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

// startHelpers returns the first n helpers; it starts missing ones.
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

// work runs chunks of range i until all are claimed. It returns the number of ranges of
// the job they belong to, or 0 if it claimed none.
func (p *place) work(w *Worker, i int, own bool) (ranges int) {
	c := &p.ranges[i]
	chunk, claimed := c.claim(own)
	if !claimed {
		return 0
	}
	// The job cannot end before this chunk, so c's fields are stable.
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

// rest runs a claimed chunk and others until none is left, and returns how many.
func (c *chunkRange) rest(w *Worker, chunk int, own bool) (done int64) {
	t, r := c.task, c.run
	for claimed := true; claimed; chunk, claimed = c.claim(own) {
		r.chunk(t, w, chunk)
		done++
	}
	return done
}

const (
	spins  = 256                  // pauses before the core is yielded: longer than a step takes between its large tasks
	linger = 2 * time.Millisecond // time before an idle worker sleeps
	stray  = 16                   // a worker looks at all places once for so many looks at its own ranges
)

// Yield lets other goroutines and, where the system can, other threads run.
func Yield() {
	runtime.Gosched()
	yieldThread()
}

// help runs chunks of the helper's own range of a job, then of the job's other ranges.
// If there are none and others is set, it does so for any job with room for the helper.
// It reports whether there were any.
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

// serve is a helper's loop.
func (h *helper) serve() {
	var idle time.Time // start of idleness, after spinning
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
			// From here on, either whoever starts a job sees that the helper is asleep,
			// or the helper sees the job.
			h.asleep.Store(true)
			if !h.help(true) || !h.asleep.CompareAndSwap(true, false) {
				<-h.wake
			}
			i = 0
		}
	}
}

// pause waits for some tens of nanoseconds without occupying the core's execution units
// or memory bandwidth.
func pause() {
	if v := vec.Native(); v != nil {
		v.Pause(1)
	}
}

// PackedBlock identifies the block of an operand that an earlier chunk of the same task
// has packed in a worker's scratch memory; the zero value is none.
type PackedBlock struct{ Batch, First, Lanes, P, Depth int }

// Packs reports whether block b must be packed, and records that it will be.
func (of *PackedBlock) Packs(b PackedBlock) bool {
	if *of == b {
		return false
	}
	*of = b
	return true
}
