package cpu

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestGelu: the activation and its gradient, as layers record them, compile to one loop
// each, with the bits of one loop per operation.
func TestGelu(t *testing.T) { forEachVectors(t, testGelu) }

func testGelu(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
		for _, n := range []int{1, 7, 1024, 5003} {
			x := arrayOf(d, op.Shape{n}, func(i int) float64 {
				if i < 3 {
					return []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[i]
				}
				return 12*rng.Float64() - 6
			})
			grad := randomArray(rng, d, n)
			for _, backward := range []bool{false, true} {
				var first []byte
				for _, skip := range [][]string{nil, {"fuse"}} {
					g := ir.New(2)
					do := func(c op.Code, args ...*ir.Value) *ir.Value { return record(t, g, c, op.Attr{}, args...) }
					wide := func(i int) *ir.Value {
						return record(t, g, op.Cast, op.Attr{DType: dtype.Float32}, param(t, g, i, x.Type))
					}
					v := wide(0)
					cdf := do(op.NormalCDF, v)
					y := do(op.Mul, v, cdf)
					in := []driver.Buffer{&Buffer{storage: x.data}}
					if backward {
						dy := wide(1)
						y = do(op.Add, do(op.Mul, dy, cdf), do(op.Mul, do(op.Mul, dy, v), do(op.NormalPDF, v)))
						in = append(in, &Buffer{storage: grad.data})
					} else {
						g.Params = g.Params[:1]
					}
					g.Output(record(t, g, op.Cast, op.Attr{DType: d}, y), -1)
					if err := ir.Optimize(g, ir.Options{Check: true, Skip: skip}); err != nil {
						t.Fatal(err)
					}
					p, err := compile(t.Context(), shared, g)
					if err != nil {
						t.Fatal(err)
					}
					k, ok := p.steps[len(p.steps)-1].kernel.(*elementwise.Chain)
					// With one element, numbers are not scalars.
					if skip == nil && (!ok || vec.Current() != nil && n > 1 && k.Loops() != 1) {
						t.Errorf("%v, backward %v: not one loop", d, backward)
					}
					out := &Buffer{storage: exec.Aligned(n * d.Size())}
					if err := p.Run(context.Background(), in, []driver.Buffer{out}); err != nil {
						t.Fatal(err)
					}
					if first == nil {
						first = out.storage
					} else if !bytes.Equal(first, out.storage) {
						t.Errorf("%v, %d elements, backward %v: other bits than without fusion", d, n, backward)
					}
				}
			}
		}
	}
}
