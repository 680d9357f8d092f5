package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestFoldedCasts: products that round an operand as they pack it have the bits of
// products of the rounded operand, for either operand, also for numbers outside
// float16's range. A cast with another reader is computed.
func TestFoldedCasts(t *testing.T) {
	special := []float64{0, math.Copysign(0, -1), math.Inf(1), math.NaN(), 1e9, 0x1p-25, 0x1.8p-24, 65519, 0x1p-149}
	isatest.ForEach(t, func(t *testing.T) {
		set := gemm.Current()
		rounds := set != nil && set.Panels == nil
		for i, s := range []struct {
			rows, cols, others int // of the batch, and of the other operand's
			specials           bool
		}{{128, 784, 64, false}, {300, 70, 24, true}, {2100, 90, 33, false}, {5, 40, 700, true}, {37, 19, 10, false}, {600, 300, 1, false}, {64, 1100, 130, true}} {
			for side := range 4 { // A, Aᵀ, B or Bᵀ
				if !isatest.InTurn(i + side) {
					continue
				}
				t.Run(fmt.Sprintf("%v/%d", s, side), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(5, 6))
					x := randomArray(rng, dtype.Float32, s.rows, s.cols)
					if s.specials {
						list := dtype.View[float32](x.data)
						for _, y := range special {
							list[rng.IntN(len(list))] = float32(y)
						}
					}
					a, shape := op.Attr{TransA: side == 1, TransB: side == 3, DType: dtype.Float32}, []int{s.cols, s.others}
					switch side {
					case 1:
						shape = []int{s.rows, s.others}
					case 2:
						shape = []int{s.others, s.rows}
					case 3:
						shape = []int{s.others, s.cols}
					}
					y := randomArray(rng, dtype.Float16, shape...)
					var got [2][]byte
					for i := range got {
						g := ir.New(2)
						h := record(t, g, op.Cast, op.Attr{DType: dtype.Float16}, param(t, g, 0, x.Type))
						other := param(t, g, 1, y.Type)
						if side < 2 {
							g.Output(record(t, g, op.MatMul, a, h, other), -1)
						} else {
							g.Output(record(t, g, op.MatMul, a, other, h), -1)
						}
						if i == 1 {
							g.Output(h, -1)
						}
						if err := ir.Optimize(g, ir.Options{Check: true}); err != nil {
							t.Fatal(err)
						}
						p, err := shared.Compile(t.Context(), g)
						if err != nil {
							t.Fatal(err)
						}
						made := true
						for _, step := range p.(*Program).steps {
							made = made && !step.watched
						}
						if want := i == 1 || !rounds || s.others == 1; made != want {
							t.Errorf("the cast is made: %v, want %v", made, want)
						}
						out, intact := guarded(g.Outputs[0].Type.Bytes())
						bufs := []driver.Buffer{out}
						if i == 1 {
							bufs = append(bufs, &Buffer{storage: make([]byte, g.Outputs[1].Type.Bytes())})
						}
						if err := p.Run(context.Background(), []driver.Buffer{&Buffer{storage: x.data}, &Buffer{storage: y.data}}, bufs); err != nil {
							t.Fatal(err)
						}
						intact(t)
						got[i] = out.Data()
					}
					if !bytes.Equal(got[0], got[1]) {
						t.Error("the bits differ from those of rounded numbers")
					}
				})
			}
		}
	})
}
