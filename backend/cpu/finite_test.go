package cpu

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestFiniteSum: AllFinite reuses a SumSquares of the same value, even if that
// overflows the result's type, in either order of the two, and never a sum of an
// earlier run.
func TestFiniteSum(t *testing.T) {
	forEachVectors(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16, dtype.Float64} {
			most := map[dtype.DType]float64{dtype.Float32: math.MaxFloat32, dtype.BFloat16: 0x1.fep127, dtype.Float16: 65504, dtype.Float64: math.MaxFloat64}[d]
			for _, codes := range [][]op.Code{{op.SumSquares, op.AllFinite}, {op.AllFinite, op.SumSquares}} {
				for _, n := range []int{0, 1, 37, 100_003} {
					t.Run(fmt.Sprintf("%v/%v/%d", d, codes[0], n), func(t *testing.T) {
						g := ir.New(1)
						x := param(t, g, 0, op.Type{DType: d, Shape: op.Shape{n}})
						for _, c := range codes {
							g.Output(record(t, g, c, op.Attr{}, x), -1)
						}
						p := plan(t, g)
						in, intact := guarded(n * d.Size())
						defer intact(t)
						var out []driver.Buffer
						for _, v := range g.Outputs {
							b, intact := guarded(v.Type.Bytes())
							defer intact(t)
							out = append(out, b)
						}
						finite := out[0].(*Buffer)
						if codes[1] == op.AllFinite {
							finite = out[1].(*Buffer)
						}
						for _, odd := range []float64{0, math.Inf(-1), most, math.NaN(), 1} {
							exec.Fill(in.storage, d, most)
							if n > 0 {
								dtype.FromF64(in.storage[n/2*d.Size():][:d.Size()], []float64{odd}, d)
							}
							if err := p.Run(context.Background(), []driver.Buffer{in}, out); err != nil {
								t.Fatal(err)
							}
							if want := lanes.Truth(n == 0 || odd-odd == 0); finite.storage[0] != want {
								t.Errorf("with %v: got %v, want %v", odd, finite.storage[0], want)
							}
						}
					})
				}
			}
		}
	})
}
