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

// RunTraced is Run; it returns what each worker has done. Worker 0 is the caller, whose
// spans are whole values; the others' spans are their parts of a value.
func (p *Program) RunTraced(ctx context.Context, in, out []driver.Buffer) ([]driver.Span, error) {
	t := &exec.Tracer{Begin: time.Now()}
	err := p.runWith(ctx, in, out, t, nil)
	return t.Spans, err
}

// labels returns the layer and operation of a value as labels for profiles.
func labels(v *ir.Value) context.Context {
	return pprof.WithLabels(context.Background(), pprof.Labels("layer", v.Path, "op", v.Op.String()))
}

// labelled returns the labels of a program's values, or nil unless MEZZO_DEBUG asks for
// them.
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
