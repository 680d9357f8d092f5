package cpu

import (
	"context"
	"runtime/pprof"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// RunTraced is Run, and tells what the workers have done: worker 0 is the
// caller, whose spans are those of the values as a whole; the others' are the
// parts of it that they helped with.
func (p *Program) RunTraced(ctx context.Context, in, out []driver.Buffer) ([]driver.Span, error) {
	t := &exec.Tracer{Begin: time.Now()}
	err := p.runWith(ctx, in, out, t, nil)
	return t.Spans, err
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
