package cpu

import (
	"bytes"
	"context"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestConcurrentScans: two scans in one task give the same bits as one after the other,
// for any number of workers, also with packed kernels that are kept.
func TestConcurrentScans(t *testing.T) {
	isatest.SkipEmulated(t, "how kernels are joined does not depend on the processor")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const steps, features, units = 5, 48, 64
	isatest.ForEach(t, func(t *testing.T) {
		for _, batch := range []int{1, 9} {
			for _, d := range isatest.Floats() {
				rng := rand.New(rand.NewPCG(uint64(batch), 8))
				g := ir.New(8)
				var in []driver.Buffer
				var vals []*ir.Value
				for i, s := range []op.Shape{{steps, batch, features}, {batch, units}, {units, 3 * units}, {features, 3 * units}, {3 * units}, {units, 3 * units}, {features, 3 * units}, {3 * units}} {
					x := randomArray(rng, d, s...)
					vals, in = append(vals, param(t, g, i, x.Type)), append(in, &Buffer{storage: x.data})
				}
				for i, w := range [][]*ir.Value{vals[2:5], vals[5:8]} {
					s := &op.Scan{Cell: op.GRUBeforeCell, Steps: true, Product: true, Reverse: i == 1}
					g.Output(record(t, g, op.RNN, op.Attr{Scan: s}, vals[0], w[0], vals[1], w[1], w[2]), -1)
				}
				p := plan(t, g)
				joined := 0
				for _, s := range p.steps {
					if _, ok := s.kernel.(*concurrent); ok {
						joined++
					}
				}
				if joined != 1 && d != dtype.Float16 { // whose operands may be split
					t.Errorf("%v, batch %d: %d pairs, want 1 in\n%v", d, batch, joined, p.graph)
				}
				run := func(see func(*ir.Value, []byte) error) (all []byte) {
					var out []driver.Buffer
					for _, v := range p.graph.Outputs {
						out = append(out, &Buffer{storage: exec.Aligned(v.Type.Bytes())})
					}
					if err := p.RunWatched(context.Background(), in, out, see); err != nil {
						t.Fatal(err)
					}
					for _, b := range out {
						all = append(all, b.(*Buffer).storage...)
					}
					return all
				}
				alone := run(func(*ir.Value, []byte) error { return nil })
				for _, procs := range []int{1, 2, 5} {
					runtime.GOMAXPROCS(procs)
					for range 3 { // from the third run on kernels are kept
						if !bytes.Equal(run(nil), alone) {
							t.Errorf("%v, batch %d, %d workers: together and alone differ", d, batch, procs)
						}
					}
				}
				runtime.GOMAXPROCS(1)
			}
		}
	})
}
