package cpu

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestFusedGather: rows of a table with one element-wise consumer are fused into
// it with the same bits, and an index out of range fails the run.
func TestFusedGather(t *testing.T) { forEachVectors(t, testFusedGather) }

func testFusedGather(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, width := range []int{1, 3, 64, 517, 3000} {
			const rows, n = 11, 37
			table := randomArray(rng, dtype.Float32, rows, width)
			for _, of := range []dtype.DType{dtype.Int32, dtype.Int64} {
				for _, bad := range []float64{0, rows} {
					at := arrayOf(of, op.Shape{n}, func(i int) float64 {
						if i == 30 {
							return bad
						}
						return float64(i * 7 % rows)
					})
					run := func(o ir.Options) ([]byte, int, error) {
						g := ir.New(2)
						x := param(t, g, 0, op.Type{DType: dtype.Float32, Shape: op.Shape{rows, width}})
						i := param(t, g, 1, op.Type{DType: of, Shape: op.Shape{n}})
						v := record(t, g, op.Gather, op.Attr{}, x, i)
						if of == dtype.Int32 { // otherwise the rows are only converted
							v = record(t, g, op.Neg, op.Attr{}, v)
						}
						if d != dtype.Float32 || of == dtype.Int32 {
							v = record(t, g, op.Cast, op.Attr{DType: d}, v)
						} else {
							v = record(t, g, op.Abs, op.Attr{}, v)
						}
						g.Output(v, -1)
						if err := ir.Optimize(g, o); err != nil {
							t.Fatal(err)
						}
						prog, err := compile(t.Context(), shared, g)
						if err != nil {
							t.Fatal(err)
						}
						spared := 0
						for _, s := range prog.steps {
							if s.watched {
								spared++
							}
						}
						out, check := guarded(g.Outputs[0].Type.Bytes())
						err = prog.Run(context.Background(), []driver.Buffer{&Buffer{storage: table.data}, &Buffer{storage: at.data}}, []driver.Buffer{out})
						check(t)
						return out.storage, spared, err
					}
					got, spared, err := run(ir.Options{Check: true})
					if spared != 1 {
						t.Fatalf("%v, rows of %d: %d values are read from where they come", d, width, spared)
					}
					if bad == rows {
						var index *driver.IndexError
						if !errors.As(err, &index) || index.Position != 30 || index.Got != rows {
							t.Errorf("%v, rows of %d: got error %v, want one for index 30", d, width, err)
						}
						continue
					}
					want, _, err2 := run(ir.Options{Skip: ir.OptionalPasses()})
					if err != nil || err2 != nil || !bytes.Equal(got, want) {
						t.Errorf("%v, rows of %d: other elements, or errors %v, %v", d, width, err, err2)
					}
				}
			}
		}
	}
}
