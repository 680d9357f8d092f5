package cpu

import (
	"context"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// tracer notes what the workers do in one run.
type tracer struct {
	begin time.Time
	mu    sync.Mutex
	spans []driver.Span
}

func (t *tracer) add(value, worker int, from time.Time) {
	span := driver.Span{Value: value, Worker: worker, Start: from.Sub(t.begin), Duration: time.Since(from)}
	t.mu.Lock()
	t.spans = append(t.spans, span)
	t.mu.Unlock()
}

// RunTraced is Run, and tells what the workers have done: worker 0 is the
// caller, whose spans are those of the values as a whole; the others' are the
// parts of it that they helped with.
func (p *Program) RunTraced(ctx context.Context, in, out []driver.Buffer) ([]driver.Span, error) {
	t := &tracer{begin: time.Now()}
	err := p.runWith(ctx, in, out, t, nil)
	return t.spans, err
}

// labels says by which layer and operation profiles find a value.
func labels(v *ir.Value) context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels("layer", v.Path, "op", v.Op.String()))
}

// labelled are the labels of the values of a program, nil unless MEZZO_DEBUG
// asks for them.
func labelled(g *ir.Graph) []context.Context {
	if !backend.DebugFromEnv().Pprof {
		return nil
	}
	all := make([]context.Context, len(g.Values))
	for i, v := range g.Values {
		all[i] = labels(v)
	}
	return all
}

// observe does what a helper does for a run, in sight of its tracer and of
// profiles.
func (r *run) observe(worker int, f func()) {
	if r.plan.labels != nil {
		pprof.SetGoroutineLabels(r.plan.labels[r.at])
		defer pprof.SetGoroutineLabels(context.Background())
	}
	if r.trace != nil {
		defer r.trace.add(r.at, worker, time.Now())
	}
	f()
}
