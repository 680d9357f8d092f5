package cpu

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// task is work that consists of chunks which may be done in any order and by
// any worker. Which chunks there are depends on shapes only.
type task interface {
	chunk(r *run, w *worker, i int)
}

// worker is what a goroutine needs to do chunks: memory of its own.
type worker struct {
	scratch []byte
	regs    [][]byte
}

// fit makes sure that a worker has the scratch memory that a program asks for.
func (w *worker) fit(p *Program) {
	if len(w.scratch) < p.scratch {
		w.scratch = aligned(p.scratch)
	}
	if len(w.regs) < p.regs {
		w.regs = make([][]byte, p.regs)
	}
}

// minShare is the least work, in element operations, that is worth waking
// another core for: some ten microseconds.
const minShare = 1 << 14

// job is a task being done. Each run has one and uses it for all its steps.
//
// Helpers join and leave under the pool's lock, and none can join once the
// job is off the pool's list; so when the last has left, the job is done and
// may be used again.
type job struct {
	task  task
	run   *run
	n     int64
	limit int32 // helpers that may join
	next  atomic.Int64

	helpers atomic.Int32
	waiting bool
	done    chan struct{} // capacity 1
}

// pool is the workers of the process. They are shared by all programs, start
// when first needed, and sleep when there is nothing to do.
var pool = struct {
	sync.Mutex
	jobs    []*job // open: with chunks left to claim, as far as is known
	workers int
	parked  int
	open    atomic.Int32 // len(jobs), for looking without the lock
	wake    chan struct{}
}{wake: make(chan struct{}, 1024)}

// parallel does chunks 0 to n-1 of t, where work is the number of element
// operations in all. It returns when all are done.
func (r *run) parallel(t task, n, work int) {
	limit := min(r.procs, n, 1+work/minShare) - 1
	if limit <= 0 {
		for i := range n {
			t.chunk(r, &r.worker, i)
		}
		return
	}
	j := &r.job
	j.task, j.run, j.n, j.limit = t, r, int64(n), int32(limit)
	j.next.Store(0)
	j.offer()
	j.work(&r.worker)
	j.finish()
	j.task = nil
}

// offer puts the job on the list and wakes workers for it.
func (j *job) offer() {
	pool.Lock()
	pool.jobs = append(pool.jobs, j)
	pool.open.Store(int32(len(pool.jobs)))
	for ; pool.workers < int(j.limit); pool.workers++ {
		go serve()
	}
	wake := min(pool.parked, int(j.limit))
	pool.parked -= wake
	pool.Unlock()
	for range wake {
		pool.wake <- struct{}{}
	}
}

// work does chunks until all are claimed.
func (j *job) work(w *worker) {
	for {
		i := j.next.Add(1) - 1
		if i >= j.n {
			return
		}
		j.task.chunk(j.run, w, int(i))
	}
}

// finish takes the job off the list and waits for its helpers.
func (j *job) finish() {
	pool.Lock()
	drop(j)
	if j.helpers.Load() == 0 {
		pool.Unlock()
		return
	}
	pool.Unlock()
	for range spins {
		if j.helpers.Load() == 0 {
			break
		}
	}
	pool.Lock()
	j.waiting = j.helpers.Load() > 0
	wait := j.waiting
	pool.Unlock()
	if wait {
		<-j.done
	}
}

// drop takes j off the list if it is on it. The caller holds the lock.
func drop(j *job) {
	if i := slices.Index(pool.jobs, j); i >= 0 {
		pool.jobs = slices.Delete(pool.jobs, i, i+1)
		pool.open.Store(int32(len(pool.jobs)))
	}
}

// join finds a job that wants another helper, or says that the caller is to
// park.
func join(park bool) *job {
	pool.Lock()
	defer pool.Unlock()
	for _, j := range pool.jobs {
		if j.helpers.Load() < j.limit && j.next.Load() < j.n {
			j.helpers.Add(1)
			return j
		}
	}
	if park {
		pool.parked++
	}
	return nil
}

// leave ends what join began.
func (j *job) leave() {
	pool.Lock()
	drop(j)
	if j.helpers.Add(-1) == 0 && j.waiting {
		j.waiting = false
		j.done <- struct{}{}
	}
	pool.Unlock()
}

const (
	spins  = 1 << 12               // looks at an atomic counter: a few microseconds
	linger = 50 * time.Microsecond // how long an idle worker looks for work before it parks
)

// serve is the life of a worker.
func serve() {
	var w worker
	idle := time.Now()
	for {
		park := time.Since(idle) > linger
		if pool.open.Load() > 0 || park {
			if j := join(park); j != nil {
				w.fit(j.run.program)
				j.work(&w)
				j.leave()
				idle = time.Now()
				continue
			}
			if park {
				<-pool.wake
				idle = time.Now()
				continue
			}
		}
		runtime.Gosched()
	}
}
