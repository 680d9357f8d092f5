package cpu

import (
	"bytes"
	"context"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestDropout: a dropout, its mask and its gradient have the same bits as operation by
// operation, also for rates that keep everything or nothing.
func TestDropout(t *testing.T) {
	isatest.SkipEmulated(t, "package vec compares the same loops")
	forEachVectors(t, testDropout)
}

func testDropout(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	state := &Buffer{storage: exec.Aligned(16)}
	copy(dtype.View[int64](state.storage), []int64{12345, 7})
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, dims := range []op.Shape{{1}, {3, 37, 43}, {41, 1024}} {
			x := randomArray(rng, d, dims...)
			for _, rate := range []float64{0, 0.2, 0.5, 0x1p-30, 0x1p-16, 1 - 0x1p-16, 1 - 0x1p-24, 1, -1, 2, math.NaN()} {
				for _, mask := range []int{0, 1, 2, 3} { // drawn from 32 or 16 bits, alone or with other results
					mask, bits := mask%2 == 1, mask/2*16
					build := func(o ir.Options) (results [][]byte) {
						g := ir.New(2)
						s := param(t, g, 0, op.Type{DType: dtype.Int64, Shape: op.Shape{2}})
						v := param(t, g, 1, op.Type{DType: d, Shape: dims})
						number := func(d dtype.DType, x float64) *ir.Value {
							return record(t, g, op.Const, op.Attr{DType: d, Dims: op.Shape{}, Value: x})
						}
						to := func(d dtype.DType, v *ir.Value) *ir.Value { return record(t, g, op.Cast, op.Attr{DType: d}, v) }
						u := record(t, g, op.RandomUniform, op.Attr{Dims: dims, Stream: 5, Bits: int8(bits)}, s)
						keep := record(t, g, op.GreaterEqual, op.Attr{}, u, number(dtype.Float32, rate))
						scale, zero := number(dtype.Float32, 1.25), number(d, 0)
						scaled := to(d, record(t, g, op.Mul, op.Attr{}, to(dtype.Float32, v), scale))
						g.Output(record(t, g, op.Where, op.Attr{}, keep, scaled, zero), -1)
						if mask {
							g.Output(keep, -1)
							back := record(t, g, op.Where, op.Attr{}, keep, record(t, g, op.Neg, op.Attr{}, v), zero)
							g.Output(to(d, record(t, g, op.Mul, op.Attr{}, to(dtype.Float32, back), scale)), -1)
						}
						if err := ir.Optimize(g, o); err != nil {
							t.Fatal(err)
						}
						prog, err := compile(t.Context(), shared, g)
						if err != nil {
							t.Fatal(err)
						}
						var out []driver.Buffer
						var checks []func(*testing.T)
						for _, o := range g.Outputs {
							b, check := guarded(o.Type.Bytes())
							out, checks, results = append(out, b), append(checks, check), append(results, b.storage)
						}
						if err := prog.Run(context.Background(), []driver.Buffer{state, &Buffer{storage: x.data}}, out); err != nil {
							t.Fatal(err)
						}
						for _, check := range checks {
							check(t)
						}
						return results
					}
					got, want := build(ir.Options{Check: true}), build(ir.Options{Skip: ir.OptionalPasses()})
					for i := range want {
						if !bytes.Equal(got[i], want[i]) {
							t.Errorf("%v%v, rate %v, %d bits, mask %t: result %d differs", d, dims, rate, bits, mask, i)
						}
					}
				}
			}
		}
	}
}
