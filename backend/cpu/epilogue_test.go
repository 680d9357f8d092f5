package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// followedOperands caches the operands that sameFollowed draws, by place, type and
// shape: drawing takes longer than most of the products.
var followedOperands = map[string]array{}

// sameFollowed checks that a graph in which operation c has an epilogue has the same
// bits without the epilogue pass.
func sameFollowed(t *testing.T, c op.Code, build func(g *ir.Graph, operand func(dtype.DType, ...int) *ir.Value) *ir.Value) {
	t.Helper()
	var got [2][]byte
	for i, skip := range [][]string{nil, {"epilogue"}} {
		var in []array
		g := ir.New(6)
		g.Output(build(g, func(d dtype.DType, shape ...int) *ir.Value {
			key := fmt.Sprint(len(in), d, shape)
			if _, ok := followedOperands[key]; !ok {
				followedOperands[key] = randomArray(rand.New(rand.NewPCG(3, uint64(len(in)))), d, shape...)
			}
			in = append(in, followedOperands[key])
			return param(t, g, len(in)-1, in[len(in)-1].Type)
		}), -1)
		if err := ir.Optimize(g, ir.Options{Skip: skip, Check: true}); err != nil {
			t.Fatal(err)
		}
		fused := false
		for _, v := range g.Values {
			fused = fused || v.Op == c && v.Attr.Body != nil
		}
		if fused != (i == 0) {
			t.Fatalf("fused: %v in\n%v", fused, g)
		}
		p, err := shared.Compile(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		bufs := make([]driver.Buffer, 6)
		for i, x := range in {
			bufs[i] = &Buffer{storage: x.data}
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
}

// TestPoolEpilogue is TestEpilogue for gradients of pooling: windows that cover all
// pixels, that skip some, that overlap, that extend past the border, in one and three
// dimensions.
func TestPoolEpilogue(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64} {
			for _, s := range []struct {
				x                   op.Shape
				window, stride, pad int
			}{
				{op.Shape{3, 8, 6, 32}, 2, 2, 0}, {op.Shape{2, 11, 9, 5}, 2, 2, 0}, {op.Shape{2, 13, 13, 70}, 2, 3, 1}, {op.Shape{2, 9, 7, 33}, 3, 2, 1},
				{op.Shape{2, 5, 4, 1}, 5, 5, 2}, {op.Shape{3, 17, 8}, 2, 2, 0}, {op.Shape{1, 4, 6, 5, 8}, 2, 2, 0}, {op.Shape{1, 3, 3, 4}, 1, 4, 0}, {op.Shape{0, 4, 4, 3}, 2, 2, 0},
			} {
				all := func(n int) (r []int) { return slices.Repeat([]int{n}, len(s.x)-2) }
				a := op.Attr{Window: all(s.window), Stride: all(s.stride), Dilation: all(1), Low: all(s.pad), High: all(s.pad)}
				y, err := op.Infer(op.MaxPool, a, op.Type{DType: d, Shape: s.x})
				if err != nil {
					t.Fatal(err)
				}
				for _, mask := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v/%v/mask=%v", d, s, mask), func(t *testing.T) {
						sameFollowed(t, op.MaxPoolGrad, func(g *ir.Graph, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
							x := operand(d, s.x...)
							p := record(t, g, op.MaxPoolGrad, a, x, operand(d, y.Shape...))
							if mask {
								zero := record(t, g, op.Const, op.Attr{DType: d})
								return record(t, g, op.Where, op.Attr{}, record(t, g, op.Greater, op.Attr{}, x, zero), p, zero)
							}
							p = record(t, g, op.Mul, op.Attr{}, p, operand(d, s.x[len(s.x)-1]))
							return record(t, g, op.Cast, op.Attr{DType: dtype.BFloat16}, record(t, g, op.Add, op.Attr{}, p, operand(d)))
						})
					})
				}
			}
		}
	})
}

// TestEpilogue: the epilogue of a product has the bits of a separate chain, for every
// kind of operand, at every level.
func TestEpilogue(t *testing.T) {
	isatest.SkipRace(t)
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
		"sum and mask": func(t *testing.T, g *ir.Graph, p *ir.Value, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
			zero := record(t, g, op.Const, op.Attr{DType: p.Type.DType})
			x, y := operand(p.Type.DType, p.Type.Shape...), operand(p.Type.DType, p.Type.Shape...)
			return record(t, g, op.Where, op.Attr{}, record(t, g, op.Greater, op.Attr{}, y, zero), record(t, g, op.Add, op.Attr{}, x, p), zero)
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
		"sum": func(t *testing.T, g *ir.Graph, p *ir.Value, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
			return record(t, g, op.Add, op.Attr{}, operand(p.Type.DType, p.Type.Shape...), p)
		},
		"bias and sum": func(t *testing.T, g *ir.Graph, p *ir.Value, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
			n := p.Type.Shape[len(p.Type.Shape)-1]
			return record(t, g, op.Add, op.Attr{}, operand(p.Type.DType, p.Type.Shape...), record(t, g, op.Add, op.Attr{}, p, operand(p.Type.DType, n)))
		},
		"bias and gelu": func(t *testing.T, g *ir.Graph, p *ir.Value, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
			x := record(t, g, op.Add, op.Attr{}, p, operand(p.Type.DType, p.Type.Shape[len(p.Type.Shape)-1]))
			return record(t, g, op.Mul, op.Attr{}, x, record(t, g, op.NormalCDF, op.Attr{}, x))
		},
		"gelu": func(t *testing.T, g *ir.Graph, p *ir.Value, _ func(dtype.DType, ...int) *ir.Value) *ir.Value {
			return record(t, g, op.Mul, op.Attr{}, record(t, g, op.NormalCDF, op.Attr{}, p), p)
		},
		"quotient": func(t *testing.T, g *ir.Graph, p *ir.Value, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
			return record(t, g, op.Div, op.Attr{}, p, operand(p.Type.DType))
		},
		"used twice": func(t *testing.T, g *ir.Graph, p *ir.Value, _ func(dtype.DType, ...int) *ir.Value) *ir.Value {
			return record(t, g, op.Mul, op.Attr{}, p, record(t, g, op.Sigmoid, op.Attr{}, p))
		},
	}
	isatest.ForEach(t, func(t *testing.T) {
		for name, chain := range chains {
			for _, d := range isatest.Floats() {
				for i, s := range []struct {
					batch, m, n, k int
					trans          string
				}{{1, 1, 1, 1, ""}, {1, 37, 10, 19, ""}, {1, 64, 64, 64, "B"}, {1, 5, 1500, 40, ""}, {1, 300, 130, 70, "B"}, {3, 17, 33, 9, ""}, {1, 4, 7, 0, ""}, {1, 1, 600, 300, ""}, {1, 600, 1, 300, ""}, {2, 300, 24, 75, "A"}, {1, 90, 33, 2100, "A"}, {1, 40, 700, 30, ""}} {
					if !isatest.InTurn(i + int(d) + len(name)) {
						continue
					}
					t.Run(fmt.Sprintf("%s/%v/%v", name, d, s), func(t *testing.T) {
						if s.batch*s.m*s.n*s.k > 2<<20 {
							isatest.SkipEmulated(t, "smaller products have the same micro-tiles")
						}
						sameFollowed(t, op.MatMul, func(g *ir.Graph, operand func(dtype.DType, ...int) *ir.Value) *ir.Value {
							x, w := []int{s.batch, s.m, s.k}, []int{s.batch, s.k, s.n}
							switch s.trans {
							case "A":
								x = []int{s.batch, s.k, s.m}
							case "B":
								w = []int{s.batch, s.n, s.k}
							}
							a := op.Attr{TransA: s.trans == "A", TransB: s.trans == "B"}
							if name == "quotient" && d.Is16() {
								a.DType = dtype.Float32 // like gradients of weights
							}
							p := record(t, g, op.MatMul, a, operand(d, x...), operand(d, w...))
							return chain(t, g, p, operand)
						})
					})
				}
			}
		}
	})
}
