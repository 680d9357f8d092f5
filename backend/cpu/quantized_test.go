package cpu

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestQuantizedAlgorithms: every algorithm of products of 8-bit integers that the processor
// has gives the bits of portable Go, with any number of workers, at sizes where blocking
// changes.
func TestQuantizedAlgorithms(t *testing.T) {
	used := map[string]int{}
	isatest.ForEach(t, func(t *testing.T) {
		for _, s := range [][3]int{{1, 129, 300}, {11, 64, 33}, {12, 64, 33}, {37, 1000, 70}, {300, 1100, 40}, {65, 5, 600}} {
			m, k, n := s[0], s[1], s[2]
			rng := rand.New(rand.NewPCG(5, uint64(m)))
			for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
				scales := arrayOf(d, op.Shape{n}, func(i int) float64 { return 1 + float64(i%7) })
				args := []array{randomArray(rng, d, m, k), randomArray(rng, dtype.Int8, k, n), scales}
				compute := func(name string, procs int) (array, exec.Choice) {
					defer exec.Force("int8", name)()
					g := ir.New(len(args))
					var in []*ir.Value
					for i, x := range args {
						in = append(in, param(t, g, i, x.Type))
					}
					g.Output(record(t, g, op.QuantizedMatMul, op.Attr{}, in...), -1)
					p := plan(t, g)
					return runProcs(t, p, args, procs), p.choices[len(p.graph.Values)-1]
				}
				want, _ := compute("portable", 1)
				for _, name := range product.QuantizedAlgorithms() {
					has := slices.ContainsFunc(gemm.AllBytes(), func(b *gemm.Bytes) bool { return b.Algorithm == name })
					got, choice := compute(name, 2)
					if forced := choice.Algorithm == name && slices.Equal(choice.Reasons, []string{"forced"}); forced != has {
						t.Fatalf("%s on %v: the choice is %v", name, isa.Current(), choice)
					}
					used[choice.Algorithm]++
					if !bytes.Equal(got.data, want.data) {
						t.Fatalf("%s", fmt.Sprintf("%s of %v %v has other bits than portable Go", name, s, d))
					}
				}
			}
		}
	})
	for _, b := range gemm.AllBytes() {
		if used[b.Algorithm] == 0 {
			t.Errorf("no product for %s", b.Algorithm)
		}
	}
}

// TestRequantize: convolutions that hand over 8-bit integers give the bits of those that
// hand over floats, on every instruction set and with any number of workers.
func TestRequantize(t *testing.T) {
	type layer struct {
		window, outs, stride int // outs 0: a depthwise convolution
		epilogue             func(rec func(c op.Code, args ...*ir.Value) *ir.Value, y, bias *ir.Value) *ir.Value
	}
	none := func(_ func(op.Code, ...*ir.Value) *ir.Value, y, _ *ir.Value) *ir.Value { return y }
	bias := func(rec func(op.Code, ...*ir.Value) *ir.Value, y, b *ir.Value) *ir.Value { return rec(op.Add, y, b) }
	relu := func(rec func(op.Code, ...*ir.Value) *ir.Value, y, b *ir.Value) *ir.Value {
		return rec(op.Relu, rec(op.Add, y, b))
	}
	silu := func(rec func(op.Code, ...*ir.Value) *ir.Value, y, b *ir.Value) *ir.Value {
		y = rec(op.Add, y, b)
		return rec(op.Mul, y, rec(op.Sigmoid, y))
	}
	nets := [][]layer{
		{{3, 16, 1, relu}, {3, 16, 1, bias}, {1, 24, 1, silu}, {3, 7, 2, relu}, {1, 5, 1, none}},
		{{1, 3, 1, none}, {3, 40, 2, none}, {3, 33, 1, relu}, {1, 4, 1, relu}},
		{{3, 0, 1, relu}, {1, 40, 1, relu}, {3, 0, 1, relu}, {3, 0, 2, bias}, {2, 0, 1, silu}, {1, 4, 1, none}},
	}
	isatest.ForEach(t, func(t *testing.T) {
		for n, net := range nets {
			for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16} {
				compute := func(skip []string, procs int) (array, int) {
					rng := rand.New(rand.NewPCG(7, uint64(n)))
					g := ir.New(0)
					var args []array
					input := func(a array) *ir.Value {
						args, g.Params = append(args, a), append(g.Params, nil)
						return param(t, g, len(args)-1, a.Type)
					}
					rec := func(c op.Code, args ...*ir.Value) *ir.Value { return record(t, g, c, op.Attr{}, args...) }
					x := input(randomArray(rng, d, 2, 13, 17, 5))
					channels := 5
					for i, l := range net {
						pad := l.window / 2
						attr := op.Attr{Stride: []int{l.stride, l.stride}, Dilation: []int{1, 1}, Low: []int{pad, pad}, High: []int{pad, pad}}
						outs, inner := l.outs, channels
						if outs == 0 {
							outs, inner, attr.Groups = channels, 1, channels
						}
						kernel := randomArray(rng, dtype.Int8, l.window, l.window, inner, outs)
						scales := arrayOf(dtype.Float32, op.Shape{outs}, func(i int) float64 { return 100 + float64(i) })
						scale, zero := arrayOf(dtype.Float32, op.Shape{}, func(int) float64 { return 40 }), arrayOf(dtype.Int8, op.Shape{}, func(int) float64 {
							if i == 1 {
								return -128 // as behind a ReLU
							}
							return float64(17*i - 120)
						})
						y := record(t, g, op.QuantizedConv, attr, x, input(kernel), input(scales), input(scale), input(zero))
						x = l.epilogue(rec, y, input(randomArray(rng, d, outs)))
						channels = outs
					}
					g.Output(x, -1)
					if err := ir.Optimize(g, ir.Options{Check: true, Skip: skip}); err != nil {
						t.Fatal(err)
					}
					p, err := shared.Compile(t.Context(), g)
					if err != nil {
						t.Fatal(err)
					}
					int8s := 0
					for _, v := range g.Values {
						if v.Attr.Requantize {
							int8s++
						}
					}
					return runProcs(t, p.(*Program), args, procs), int8s
				}
				want, _ := compute([]string{"requantize"}, 1)
				for _, procs := range []int{1, 3} {
					got, int8s := compute(nil, procs)
					if int8s != len(net)-1 {
						t.Errorf("net %d: %d convolutions hand over integers, want %d", n, int8s, len(net)-1)
					}
					if !bytes.Equal(got.data, want.data) {
						t.Errorf("net %d of %v with %d workers has other bits", n, d, procs)
					}
				}
			}
		}
	})
}
