package exec

import (
	"context"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/mezzo-ml/mezzo/backend/driver"
)

// Tracer records the work of the workers in one run.
type Tracer struct {
	Begin time.Time
	mu    sync.Mutex
	Spans []driver.Span
}

// Add records that a worker has computed a part of the value at a position since from.
func (t *Tracer) Add(value, worker int, from time.Time) {
	span := driver.Span{Value: value, Worker: worker, Start: from.Sub(t.Begin), Duration: time.Since(from)}
	t.mu.Lock()
	t.Spans = append(t.Spans, span)
	t.mu.Unlock()
}

// observe runs f, a helper's work for a run, with the labels and spans of profilers and
// tracers.
func (r *Run) observe(worker int, f func()) {
	if r.Plan.Labels != nil {
		pprof.SetGoroutineLabels(r.Plan.Labels[r.At])
		defer pprof.SetGoroutineLabels(context.Background())
	}
	if r.Trace != nil {
		defer r.Trace.Add(r.At, worker, time.Now())
	}
	f()
}
