package cpu

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// task is work that consists of chunks which may be done in any order and by
// any worker. Which chunks there are depends on shapes only.
type task interface {
	chunk(r *run, w *worker, i int)
}

// worker is what a goroutine needs to do chunks: memory of its own.
type worker struct {
	id       int // 0: the caller of a run
	scratch  []byte
	regs     [][]byte
	operands [12]vec.Operand // of the loop of a recurrent cell

	packedA, packedB packedBlock // of the task's product, in scratch
}

// fit makes sure that a worker has the scratch memory that a program asks for.
func (w *worker) fit(p *Program) {
	if len(w.scratch) < p.scratch {
		p.device.held.Add(-int64(len(w.scratch)))
		w.scratch = p.device.aligned(p.scratch)
	}
	if len(w.regs) < p.regs {
		w.regs = make([][]byte, p.regs)
	}
}

// minShare is the least work, in element operations, that is worth the help of
// another core: some microseconds.
const minShare = 1 << 14

// job is a task being done. Each run has one and uses it for all its steps.
//
// Helpers join while state says that the job is open. The caller closes it
// when no chunk is left to claim and waits until those who joined have left,
// which is as long as their last chunks take. As joining and closing are steps
// of one atomic word, nobody joins a job that is over and being prepared for
// the next task.
//
// Chunks are cut into a range for each of the job's workers, who goes through
// its own and then helps with those of others. So neighbouring chunks, which
// mostly read and write neighbouring memory, are done by the same core, also in
// the next task of the same shape, and claiming one costs no traffic between
// cores. Which worker does a chunk has no influence on results.
type job struct {
	task   task
	run    *run
	ranges int

	_      [64]byte     // words below are written by all workers
	state  atomic.Int64 // openJob, limit<<32, helpers
	_      [56]byte
	chunks [maxRanges]chunkRange
}

// chunkRange is chunks that are to be done: next, of which each claim takes
// one, to end-1.
type chunkRange struct {
	next atomic.Int64
	end  int64
	_    [48]byte
}

// maxRanges is the most ranges of a job; more workers share them.
const maxRanges = 16

const openJob = 1 << 62

// pool is the workers of the process. They are shared by all programs, start
// when first needed, and sleep when there is nothing to do.
var pool = struct {
	open    [8]atomic.Pointer[job] // jobs that may want help; the caller of any more does them alone
	workers atomic.Int32
	parked  atomic.Int32
	wake    chan struct{}
}{wake: make(chan struct{}, 1024)}

// parallel does chunks 0 to n-1 of t, where work is the number of element
// operations in all. It returns when all are done.
func (r *run) parallel(t task, n, work int) {
	limit := min(r.procs, n, 1+work/minShare) - 1
	place := -1
	if limit > 0 {
		place = r.job.offer(t, r, n, limit)
	}
	if place < 0 {
		r.worker.packedA, r.worker.packedB = packedBlock{}, packedBlock{}
		for i := range n {
			t.chunk(r, &r.worker, i)
		}
		return
	}
	r.job.work(&r.worker, 0)
	r.job.finish(place)
}

// offer opens the job, puts it where workers look and wakes those asleep. It
// returns the place, or -1 if there is none.
func (j *job) offer(t task, r *run, n, limit int) int {
	for place := range pool.open {
		if pool.open[place].Load() != nil || !pool.open[place].CompareAndSwap(nil, j) {
			continue
		}
		j.task, j.run, j.ranges = t, r, min(limit+1, maxRanges)
		for i := range j.ranges {
			first, end := span(i, j.ranges, n)
			j.chunks[i].end = int64(end)
			j.chunks[i].next.Store(int64(first))
		}
		j.state.Store(openJob | int64(limit)<<32)
		for k := pool.workers.Load(); k < int32(limit); k = pool.workers.Load() {
			if pool.workers.CompareAndSwap(k, k+1) {
				go serve(int(k) + 1)
			}
		}
		for range limit {
			if !unpark() {
				break
			}
			pool.wake <- struct{}{}
		}
		return place
	}
	return -1
}

// unpark takes one of the workers that sleep or are about to, and reports
// whether there was one: it is going to take a message from pool.wake.
func unpark() bool {
	for {
		n := pool.parked.Load()
		if n == 0 || pool.parked.CompareAndSwap(n, n-1) {
			return n > 0
		}
	}
}

// join makes the caller a helper of the job if it is open and wants one, and
// says which.
func (j *job) join() (helper int, joined bool) {
	for {
		s := j.state.Load()
		helpers := s & (1<<32 - 1)
		if s&openJob == 0 || helpers >= s&^openJob>>32 {
			return 0, false
		}
		if j.state.CompareAndSwap(s, s+1) {
			return int(helpers) + 1, true
		}
	}
}

// work does chunks until all are claimed, those of range own%ranges first.
func (j *job) work(w *worker, own int) {
	w.packedA, w.packedB = packedBlock{}, packedBlock{}
	for i := range j.ranges {
		c := &j.chunks[(own+i)%j.ranges]
		for c.next.Load() < c.end {
			chunk := c.next.Add(1) - 1
			if chunk >= c.end {
				break
			}
			j.task.chunk(j.run, w, int(chunk))
		}
	}
}

// finish closes the job and waits for its helpers.
func (j *job) finish(place int) {
	j.state.And(^openJob)
	pool.open[place].Store(nil)
	for i := 0; j.state.Load()&(1<<32-1) != 0; i++ {
		if i < spins {
			pause()
		} else {
			yield()
		}
	}
	j.task = nil
}

const (
	spins  = 64                   // pauses before a core is offered to others: a few microseconds
	linger = 2 * time.Millisecond // how long an idle worker looks for work before it sleeps
)

// yield lets other goroutines and, where the system can, other threads run.
func yield() {
	runtime.Gosched()
	yieldThread()
}

// help joins one of the open jobs and works on it, if there is any.
func help(w *worker) bool {
	for i := range pool.open {
		j := pool.open[i].Load()
		if j == nil {
			continue
		}
		if helper, joined := j.join(); joined {
			w.fit(j.run.program)
			if r := j.run; r.trace != nil || r.labels != nil {
				r.observe(w.id, func() { j.work(w, helper) })
			} else {
				j.work(w, helper)
			}
			j.state.Add(-1)
			return true
		}
	}
	return false
}

// serve is the life of a worker.
func serve(id int) {
	w := worker{id: id}
	var idle time.Time // since when, once it has spun
	for i := 0; ; i++ {
		switch {
		case help(&w):
			i = 0
		case i < spins:
			pause()
		case i == spins:
			idle = time.Now()
		case time.Since(idle) < linger:
			yield()
		default:
			// Whoever offers a job now sees that a worker is parked, or the
			// worker sees the job.
			pool.parked.Add(1)
			if !help(&w) || !unpark() {
				<-pool.wake
			}
			i = 0
		}
	}
}
