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
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestEpilogue: what follows a product gives the bits that it gives on its
// own, for every kind of operand, on every level.
func TestEpilogue(t *testing.T) {
	type graph func(t *testing.T, g *ir.Graph, product *ir.Value, operand func(d dtype.DType, shape ...int) *ir.Value) *ir.Value
	chains := map[string]graph{
		"bias and relu": func(t *testing.T, g *ir.Graph, p *ir.Value, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
			n := p.Type.Shape[len(p.Type.Shape)-1]
			return record(t, g, op.Relu, op.Attr{}, record(t, g, op.Add, op.Attr{}, p, operand(p.Type.DType, n)))
		},
		"mask": func(t *testing.T, g *ir.Graph, p *ir.Value, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
			zero := record(t, g, op.Const, op.Attr{DType: p.Type.DType})
			y := operand(p.Type.DType, p.Type.Shape...)
			return record(t, g, op.Where, op.Attr{}, record(t, g, op.Greater, op.Attr{}, y, zero), p, zero)
		},
		"column, scale and cast": func(t *testing.T, g *ir.Graph, p *ir.Value, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
			m := p.Type.Shape[len(p.Type.Shape)-2]
			x := record(t, g, op.Div, op.Attr{}, p, operand(p.Type.DType))
			x = record(t, g, op.Mul, op.Attr{}, x, operand(p.Type.DType, m, 1))
			return record(t, g, op.Cast, op.Attr{DType: dtype.Float16}, x)
		},
		"cast alone": func(t *testing.T, g *ir.Graph, p *ir.Value, _ func(dtype.DType, ...int) *ir.Value) *ir.Value {
			to := dtype.BFloat16
			if p.Type.DType == to {
				to = dtype.Float16
			}
			return record(t, g, op.Cast, op.Attr{DType: to}, p)
		},
		"comparison": func(t *testing.T, g *ir.Graph, p *ir.Value, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
			return record(t, g, op.Less, op.Attr{}, p, operand(p.Type.DType, p.Type.Shape...))
		},
		"used twice": func(t *testing.T, g *ir.Graph, p *ir.Value, _ func(dtype.DType, ...int) *ir.Value) *ir.Value {
			return record(t, g, op.Mul, op.Attr{}, p, record(t, g, op.Sigmoid, op.Attr{}, p))
		},
	}
	forEachISA(t, func(t *testing.T) {
		for name, chain := range chains {
			for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64} {
				for _, s := range []struct {
					batch, m, n, k int
					trans          bool
				}{{1, 1, 1, 1, false}, {1, 37, 10, 19, false}, {1, 64, 64, 64, true}, {1, 5, 1500, 40, false}, {1, 300, 130, 70, true}, {3, 17, 33, 9, false}, {1, 4, 7, 0, false}, {1, 1, 600, 300, false}, {1, 600, 1, 300, false}} {
					t.Run(fmt.Sprintf("%s/%v/%v", name, d, s), func(t *testing.T) {
						var in []array
						make := func() *ir.Graph {
							in = in[:0]
							g := ir.New(6)
							operand := func(d dtype.DType, shape ...int) *ir.Value {
								in = append(in, randomArray(rand.New(rand.NewPCG(3, uint64(len(in)))), d, shape...))
								return param(t, g, len(in)-1, in[len(in)-1].Type)
							}
							x := operand(d, s.batch, s.m, s.k)
							w := []int{s.batch, s.k, s.n}
							if s.trans {
								w = []int{s.batch, s.n, s.k}
							}
							p := record(t, g, op.MatMul, op.Attr{TransB: s.trans}, x, operand(d, w...))
							g.Output(chain(t, g, p, operand), -1)
							return g
						}
						var got [2][]byte
						for i, skip := range [][]string{nil, {"epilogue"}} {
							g := make()
							if err := ir.Optimize(g, ir.Options{Skip: skip, Check: true}); err != nil {
								t.Fatal(err)
							}
							fused := false
							for _, v := range g.Values {
								fused = fused || v.Op == op.MatMul && v.Attr.Body != nil
							}
							if fused != (i == 0) {
								t.Fatalf("fused: %v in\n%v", fused, g)
							}
							p, err := New().Compile(g)
							if err != nil {
								t.Fatal(err)
							}
							bufs := []driver.Buffer{}
							for _, x := range in {
								bufs = append(bufs, &Buffer{x.data})
							}
							for len(bufs) < 6 {
								bufs = append(bufs, nil)
							}
							out, intact := guarded(g.Outputs[0].Type.Bytes())
							if err := p.Run(context.Background(), bufs, []driver.Buffer{out}); err != nil {
								t.Fatal(err)
							}
							intact(t)
							got[i] = out.Data()
						}
						if !bytes.Equal(got[0], got[1]) {
							t.Errorf("the bits differ from those without the pass")
						}
					})
				}
			}
		}
	})
}
