package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestSplitResults: the results of a LayerNormGrad with their own slots have the bits of those
// copied out of the packed result and cast, for every subset that may be wanted, also
// if rows are stored non-temporally.
func TestSplitResults(t *testing.T) {
	large := lanes.NonTemporalBytes/2/1024 + 3 // rows of 16 bits
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, s := range []op.Shape{{1, 1}, {37, 67}, {130, 96}, {large, 1024}, {0, 3}, {3, 0}} {
				for _, wanted := range [][3]bool{{true, true, true}, {true, false, false}, {false, true, false}, {true, false, true}} {
					if s[0] == large && (isatest.Emulated() && testing.Short() || d != dtype.BFloat16 || wanted != [3]bool{true, true, true}) {
						continue
					}
					rng := rand.New(rand.NewPCG(5, 6))
					in := []array{randomArray(rng, d, s...), randomArray(rng, dtype.Float32, s[1]), randomArray(rng, d, s...)}
					t.Run(fmt.Sprint(d, s, wanted), func(t *testing.T) { sameResults(t, op.LayerNormGrad, op.Attr{Epsilon: 1e-3}, in, wanted[:]) })
				}
			}
		}
	})
}

// TestSplitAttention is TestSplitResults for attention with few keys.
func TestSplitAttention(t *testing.T) {
	steps := lanes.NonTemporalBytes/4/64/128 + 5
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, s := range []attentionShape{
				{b: 2, t: 37, s: 3, h: 3, g: 3, d: 5, e: 7},
				{b: 128, t: steps, s: 2, h: 4, g: 4, d: 4, e: 16}, // the result is stored non-temporally
				{b: 2, t: 0, s: 2, h: 1, g: 1, d: 4, e: 4},
			} {
				if s.t == steps && (isatest.Emulated() && testing.Short() || d.Is16() || isa.Current() == isa.Portable) {
					continue
				}
				a, in := s.operands(d)
				t.Run(fmt.Sprint(d, s.t), func(t *testing.T) {
					sameResults(t, op.AttentionForward, a, in, []bool{true, true})
					sameResults(t, op.AttentionForward, a, in, []bool{true, false})
					if s.t != 37 {
						return
					}
					forward := array{Type: op.Type{DType: dtype.Float32, Shape: op.Shape{s.b * s.t * s.h * (s.e + 2)}}}
					forward.data = make([]byte, forward.Bytes())
					in = gradOperands(s, d, in, forward)
					sameResults(t, op.AttentionGrad, a, in, []bool{true, true, true})
					sameResults(t, op.AttentionGrad, a, in, []bool{false, true, false})
				})
			}
		}
	})
}

// sameResults compares the wanted results of an operation, the first of which is cast to
// the first argument's type, with and without splitting.
func sameResults(t *testing.T, c op.Code, a op.Attr, in []array, wanted []bool) {
	want := make([][]byte, len(wanted))
	for _, skip := range [][]string{{"split"}, nil} {
		g := ir.New(len(in))
		var args []*ir.Value
		var types []op.Type
		for i, x := range in {
			args, types = append(args, param(t, g, i, x.Type)), append(types, x.Type)
		}
		whole := record(t, g, c, a, args...)
		for i, s := range c.Info().Results(a, types) {
			if !wanted[i] {
				continue
			}
			p := record(t, g, op.Result, op.Attr{Start: []int{s.Start}, Dims: s.Shape}, whole)
			if d := types[0].DType; i == 0 && p.Type.DType != d {
				p = record(t, g, op.Cast, op.Attr{DType: d}, p)
			}
			g.Output(p, -1)
		}
		if err := ir.Optimize(g, ir.Options{Skip: skip, Check: true}); err != nil {
			t.Fatal(err)
		}
		if apart := g.Values[len(in)].Split; apart != (skip == nil && whole.Type.Bytes() > 0) {
			t.Fatalf("apart: %v in\n%v", apart, g)
		}
		p, err := shared.Compile(t.Context(), g)
		if err != nil {
			t.Fatal(err)
		}
		var bufs, out []driver.Buffer
		for _, x := range in {
			bufs = append(bufs, &Buffer{storage: x.data})
		}
		var checks []func(*testing.T)
		for _, v := range g.Outputs {
			b, intact := guarded(v.Type.Bytes())
			out, checks = append(out, b), append(checks, intact)
		}
		if err := p.Run(context.Background(), bufs, out); err != nil {
			t.Fatal(err)
		}
		for i, b := range out {
			checks[i](t)
			got := b.(*Buffer).Data()
			if want[i] == nil {
				want[i] = got
			} else if !bytes.Equal(got, want[i]) {
				t.Errorf("result %d of %v differs from a copy of it", i, wanted)
			}
		}
	}
}
