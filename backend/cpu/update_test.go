package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// TestUpdateBits: an update in one pass, with the loops for optimizers, has the bits of
// its operations one by one, in place and not, also for gradients and slots that are
// almost 0.
func TestUpdateBits(t *testing.T) {
	forEachVectors(t, func(t *testing.T) {
		for _, u := range updateRules {
			for _, n := range []int{1, 37, 5003} {
				t.Run(fmt.Sprintf("%s/%d", u.name, n), func(t *testing.T) {
					var want []driver.Buffer
					for _, skip := range [][]string{ir.OptionalPasses(), nil, {"donate"}} {
						rng := rand.New(rand.NewPCG(1, uint64(n)))
						var in []driver.Buffer
						for i := range u.slots + 2 {
							x := randomArray(rng, dtype.Float32, n)
							f := dtype.View[float32](x.data)
							for j := range f {
								if j%3 == 1 {
									f[j] *= 0x1p-83
								}
								if i > 0 && i <= u.slots { // squares are not negative
									f[j] = max(f[j], -f[j])
								}
							}
							b, intact := guarded(len(x.data))
							defer intact(t)
							copy(b.storage, x.data)
							in = append(in, b)
						}
						g := u.graph(t, n)
						if err := ir.Optimize(g, ir.Options{Skip: skip, Check: true}); err != nil {
							t.Fatal(err)
						}
						p, err := shared.Compile(t.Context(), g)
						if err != nil {
							t.Fatal(err)
						}
						out := make([]driver.Buffer, len(g.Outputs))
						for o, v := range g.Outputs {
							if d := g.Donated[o]; d >= 0 {
								out[o] = in[d]
								continue
							}
							b, intact := guarded(v.Type.Bytes())
							defer intact(t)
							out[o] = b
						}
						if err := p.Run(context.Background(), in, out); err != nil {
							t.Fatal(err)
						}
						if want == nil {
							want = out
						}
						for o := range out {
							if !bytes.Equal(out[o].(*Buffer).storage, want[o].(*Buffer).storage) {
								t.Errorf("output %d differs from that of the operations one by one", o)
							}
						}
					}
				})
			}
		}
	})
}
