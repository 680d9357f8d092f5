//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestCollectiveRefused: a program of several ranks is refused when it is compiled, by the
// name of the operation; it does not run with the gradients of one rank.
func TestCollectiveRefused(t *testing.T) {
	d := open(t)
	for start, done := range map[op.Code]op.Code{op.AllReduceStart: op.AllReduceDone, op.AllGatherStart: op.AllGatherDone} {
		attr := op.Attr{AllReduce: &op.AllReduce{Ranks: 2, Shards: 2, Shapes: []op.Shape{{64}}, Wire: dtype.Float32, Scale: 1}}
		shape := op.Shape{64}
		if start == op.AllGatherStart {
			shape = op.Shape{32}
		}
		g := ir.New(1)
		x := g.Add(op.Param, op.Attr{DType: dtype.Float32, Dims: shape}, op.Type{DType: dtype.Float32, Shape: shape}, "x")
		for _, c := range []op.Code{start, done} {
			typ, err := op.Infer(c, attr, x.Type)
			if err != nil {
				t.Fatal(err)
			}
			x = g.Add(c, attr, typ, "data_parallel", x)
		}
		g.Output(x, -1)
		_, _, err := backend.Compile(t.Context(), d, g, ir.Options{})
		var refused *backend.UnsupportedError
		if !errors.As(err, &refused) || refused.Op != start || refused.Path != "data_parallel" {
			t.Errorf("%v: got %v, want a *backend.UnsupportedError for it", start, err)
		}
	}
}
