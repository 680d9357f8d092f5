package serving

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"
)

// job is a request in the queue. Before done is closed its results belong to the
// goroutine that computes, then to the one that waits.
type job struct {
	ctx   context.Context
	in    []Tensor
	rows  int
	since time.Time

	out              []Tensor
	err              error
	batch, padded    int
	queued, computed time.Duration
	done             chan struct{}
}

// together reports whether two jobs fit into one batch: their rows have the same
// shape.
func together(a, b *job) bool {
	for i := range a.in {
		if !slices.Equal(a.in[i].Shape[1:], b.in[i].Shape[1:]) {
			return false
		}
	}
	return true
}

// queue holds the jobs of a version in the order in which they came. Any number of
// goroutines put, one takes.
type queue struct {
	maxBatch, most int
	delay          time.Duration
	changed        chan struct{} // of capacity 1: put and close wake take

	mu     sync.Mutex
	jobs   []*job
	closed bool
}

func newQueue(o Options) *queue {
	return &queue{maxBatch: o.MaxBatch, most: o.MaxQueue, delay: o.MaxDelay, changed: make(chan struct{}, 1)}
}

func (q *queue) wake() {
	select {
	case q.changed <- struct{}{}:
	default:
	}
}

// put adds a job, or returns an error at once if the queue is full.
func (q *queue) put(j *job) error {
	if err := j.ctx.Err(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) >= q.most {
		return errorf(http.StatusTooManyRequests, "%d requests are waiting; try again later", len(q.jobs))
	}
	q.jobs = append(q.jobs, j)
	q.wake()
	return nil
}

// drop removes a job whose context has ended, unless it has been taken.
func (q *queue) drop(j *job) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.jobs, j); i >= 0 {
		q.jobs = slices.Delete(q.jobs, i, i+1)
	}
}

// length returns how many jobs wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.jobs)
}

// close makes take return nil once the queue is empty.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake()
}

// take waits for a batch and returns its jobs and their rows.
func (q *queue) take() ([]*job, int) {
	for {
		// Goroutines that are ready to run go first: those of requests that have
		// arrived, and of the clients that the last batch has answered. Else the first
		// of 32 clients is computed alone, and 31 wait for it.
		runtime.Gosched()
		batch, n, wait := q.try()
		if batch != nil {
			return batch, n
		}
		switch {
		case wait < 0:
			return nil, 0
		case wait == 0:
			<-q.changed
		default:
			timer := time.NewTimer(wait)
			select {
			case <-q.changed:
			case <-timer.C:
			}
			timer.Stop()
		}
	}
}

// try returns the first job and those after it that fit beside it. If the batch
// is not full and the first job may wait, it returns how long; 0 if the queue is
// empty, and -1 if it is also closed.
func (q *queue) try() (batch []*job, n int, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Whose context has ended is told so by it.
	q.jobs = slices.DeleteFunc(q.jobs, func(j *job) bool { return j.ctx.Err() != nil })
	if len(q.jobs) == 0 {
		if q.closed {
			return nil, 0, -1
		}
		return nil, 0, 0
	}
	first := q.jobs[0]
	full := false
	var left []*job
	for _, j := range q.jobs {
		fits := together(first, j) && n+j.rows <= q.maxBatch
		if !fits {
			full = full || together(first, j)
			left = append(left, j)
			continue
		}
		batch = append(batch, j)
		n += j.rows
	}
	if wait = q.delay - time.Since(first.since); wait > 0 && n < q.maxBatch && !full && !q.closed {
		return nil, 0, wait
	}
	q.jobs = left
	return batch, n, 0
}

// batches computes the jobs of v until its queue is closed.
func (v *version) batches() {
	for {
		batch, n := v.queue.take()
		if batch == nil {
			return
		}
		if !v.compute(batch, n) && len(batch) > 1 {
			// One of them failed: each alone, so that the others are answered.
			for _, j := range batch {
				if j.ctx.Err() == nil {
					v.compute([]*job{j}, j.rows)
				}
			}
		}
		for _, j := range batch {
			close(j.done)
		}
	}
}

// compute runs a batch and gives each job its rows; false if it failed.
func (v *version) compute(batch []*job, n int) bool {
	begun := time.Now()
	out, err := v.predict(batch, n)
	took := time.Since(begun)
	if v.batched != nil {
		v.batched(Batch{v.name, v.number, len(batch), n, v.padded(n), took, err})
	}
	at := 0
	for _, j := range batch {
		j.batch, j.padded, j.queued, j.computed = n, v.padded(n), begun.Sub(j.since), took
		if j.err = err; err != nil {
			continue
		}
		j.out = make([]Tensor, len(out))
		for i, t := range out {
			row := len(t.Data) / t.Shape[0]
			t.Shape = slices.Clone(t.Shape)
			t.Shape[0] = j.rows
			t.Data = t.Data[at*row : (at+j.rows)*row : (at+j.rows)*row]
			j.out[i] = t
		}
		at += j.rows
	}
	return err == nil
}
