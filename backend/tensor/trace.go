package tensor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Trace runs the function on in, as Run does, and writes the work of each worker of the
// device over time, in the format that chrome://tracing and Perfetto load: a lane per
// worker, values named by their layers. The first run of a function compiles, and the
// second touches memory for the first time: trace a later one.
func (fn *Func[In, Out]) Trace(ctx context.Context, in In, w io.Writer) (err error) {
	defer Catch(&err)
	needs(ctx, "Trace")
	var events []traceEvent
	err = fn.traced(ctx, in, func(g *ir.Graph, spans []driver.Span) error {
		events = traceEvents(1, "step", g, spans)
		return nil
	})
	if err != nil {
		return err
	}
	return writeTrace(w, events)
}

// Times runs the function on in, as Run does, and returns how long the device computed
// the values of each path: of layers, "layer/grad", "optimizer/variable". A fused kernel
// counts for the path of its result. The first run of a function compiles, and the
// second touches memory for the first time: time a later one.
func (fn *Func[In, Out]) Times(ctx context.Context, in In) (times map[string]time.Duration, err error) {
	defer Catch(&err)
	needs(ctx, "Times")
	times = map[string]time.Duration{}
	return times, fn.traced(ctx, in, func(g *ir.Graph, spans []driver.Span) error {
		for _, s := range spans {
			if s.Worker == 0 {
				times[g.Values[s.Value].Path] += s.Duration
			}
		}
		return nil
	})
}

// traced runs the function on in and passes the spans of the workers to see.
func (fn *Func[In, Out]) traced(ctx context.Context, in In, see func(*ir.Graph, []driver.Span) error) error {
	fn.core.mu.Lock()
	defer fn.core.mu.Unlock()
	fn.take(&in)
	p, err := fn.plan(ctx, in, false)
	if err != nil {
		return err
	}
	results, err := p.run(ctx, &call{args: fn.core.args, traced: see})
	for _, r := range results {
		r.Release()
	}
	return err
}

// trace runs the program and passes the spans of its workers to see.
func (p *plan) trace(ctx context.Context, c *call, see func(*ir.Graph, []driver.Span) error) error {
	t, ok := p.program.(driver.Tracer)
	if !ok {
		return &Error{Op: "Function", Err: errors.New("the device cannot tell what its workers do")}
	}
	spans, err := t.RunTraced(ctx, c.inBufs, c.outBufs)
	if err != nil {
		return err
	}
	return see(p.graph, spans)
}

// traceEvent is a complete event ("X") or metadata ("M") of the Trace Event
// Format; times are in microseconds.
type traceEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	Start    float64        `json:"ts"`
	Duration float64        `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Args     map[string]any `json:"args,omitempty"`
}

// traceEvents returns the events of one run, as a process of that number and name.
func traceEvents(process int, name string, g *ir.Graph, spans []driver.Span) []traceEvent {
	meta := func(kind string, thread int, name string) traceEvent {
		return traceEvent{Name: kind, Phase: "M", Process: process, Thread: thread, Args: map[string]any{"name": name}}
	}
	events := []traceEvent{meta("process_name", 0, name)}
	workers := 0
	for _, s := range spans {
		workers = max(workers, s.Worker+1)
	}
	for i := range workers {
		events = append(events, meta("thread_name", i, fmt.Sprintf("worker %d", i)))
	}
	for _, s := range spans {
		v := g.Values[s.Value]
		name := v.Op.String()
		if v.Path != "" {
			name = v.Path + " " + name
		}
		events = append(events, traceEvent{Name: name, Category: v.Op.String(), Phase: "X", Process: process, Thread: s.Worker,
			Start: float64(s.Start.Nanoseconds()) / 1e3, Duration: float64(s.Duration.Nanoseconds()) / 1e3,
			Args: map[string]any{"layer": v.Path, "type": v.Type.String(), "value": fmt.Sprintf("%%%d", v.ID)}})
	}
	return events
}

func writeTrace(w io.Writer, events []traceEvent) error {
	return json.NewEncoder(w).Encode(map[string]any{"traceEvents": events, "displayTimeUnit": "ms"})
}

// traces is the output of MEZZO_DEBUG=trace so far: each plan is a process.
var traces struct {
	sync.Mutex
	plans  int
	events []traceEvent
}

// appendTrace writes the file anew with one more plan.
func appendTrace(file string) func(*ir.Graph, []driver.Span) error {
	return func(g *ir.Graph, spans []driver.Span) error {
		traces.Lock()
		defer traces.Unlock()
		traces.plans++
		traces.events = append(traces.events, traceEvents(traces.plans, fmt.Sprintf("plan %d, %d values", traces.plans, len(g.Values)), g, spans)...)
		f, err := os.Create(file)
		if err == nil {
			err = errors.Join(writeTrace(f, traces.events), f.Close())
		}
		if err != nil { // a debugging aid must not stop a program
			fmt.Fprintln(os.Stderr, "MEZZO_DEBUG: trace:", err)
		}
		return nil
	}
}
