package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// attentionShape is an attention of b·h heads of t queries with d features and
// of s keys with values of e features, g heads of them.
type attentionShape struct {
	name                string
	b, t, s, h, g, d, e int
	mask                op.Shape
	attr                op.Attr
}

// operands are those of AttentionForward, random.
func (s attentionShape) operands(d dtype.DType) (a op.Attr, in []array) {
	rng := rand.New(rand.NewPCG(5, 6))
	in = []array{randomArray(rng, d, s.b, s.t, s.h, s.d), randomArray(rng, d, s.b, s.s, s.g, s.d), randomArray(rng, d, s.b, s.s, s.g, s.e)}
	if s.mask != nil {
		in = append(in, randomArray(rng, dtype.Bool, s.mask...))
	}
	if s.attr.Rate > 0 {
		in = append(in, randomArray(rng, dtype.Int64, 2))
	}
	a = s.attr
	a.Value = 1 / math.Sqrt(float64(s.d))
	return a, in
}

// converted is x in another float type; others stay.
func (a array) converted(d dtype.DType) array {
	if !a.DType.IsFloat() {
		return a
	}
	return arrayOf(d, a.Shape, a.value)
}

// evalExpanded is eval of what an operation expands to.
func evalExpanded(t *testing.T, c op.Code, a op.Attr, args ...array) array {
	t.Helper()
	g := ir.New(len(args))
	vals := make([]*ir.Value, len(args))
	for i, x := range args {
		vals[i] = param(t, g, i, x.Type)
	}
	v := record(t, g, c, a, vals...)
	g.Output(v, -1)
	g.Expand(v)
	p := plan(t, g)
	in, out := buffers(p, args)
	if err := p.Run(context.Background(), in, out); err != nil {
		t.Fatal(err)
	}
	return array{v.Type, out[0].(*Buffer).storage}
}

// TestAttentionBlocks runs attentions of several blocks on every instruction
// set: against the expansion in float64, with the same bits for any number of
// workers, and without writing beside the result.
func TestAttentionBlocks(t *testing.T) {
	shapes := []attentionShape{
		{name: "blocks", b: 1, t: 131, s: 661, h: 2, g: 2, d: 40, e: 24},
		{name: "whole", b: 2, t: 96, s: 96, h: 10, g: 10, d: 32, e: 32},
		{name: "causal", b: 1, t: 270, s: 600, h: 2, g: 1, d: 16, e: 70, attr: op.Attr{Causal: true}},
		{name: "window", b: 1, t: 530, s: 530, h: 1, g: 1, d: 17, e: 9, attr: op.Attr{N: 30}},
		{name: "masked", b: 2, t: 70, s: 150, h: 18, g: 9, d: 33, e: 33, mask: op.Shape{2, 1, 1, 150}, attr: op.Attr{Rate: 0.25, Stream: 2}},
		{name: "wide", b: 1, t: 40, s: 300, h: 1, g: 1, d: 256, e: 256, mask: op.Shape{1, 1, 40, 300}},
	}
	type want struct{ forward, grad array }
	wants := map[string]want{}
	forEachISA(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, s := range shapes {
				if current() == isaPortable && (d.Is16() || s.d > 100) {
					continue // differs in conversions only
				}
				what := fmt.Sprintf("%v %s", d, s.name)
				a, in := s.operands(d)
				n := s.b * s.t * s.h * s.e
				w, ok := wants[what]
				if !ok {
					var wide []array
					for _, x := range in {
						wide = append(wide, x.converted(dtype.Float64))
					}
					w.forward = evalExpanded(t, op.AttentionForward, a, wide...)
					grad := gradOperands(s, d, in, w.forward)
					wide = nil
					for _, x := range grad {
						wide = append(wide, x.converted(dtype.Float64))
					}
					w.grad = evalExpanded(t, op.AttentionGrad, a, wide...)
					wants[what] = w
				}
				// Each weight may be rounded to the operands' type; results are
				// sums of products with them. Four times, as terms may cancel.
				rel, _ := d.Tolerance()
				checkExpanded(t, what+" forward", op.AttentionForward, a, in, w.forward, n, 4*rel)
				grad := gradOperands(s, d, in, w.forward)
				checkExpanded(t, what+" gradient", op.AttentionGrad, a, grad, w.grad, w.grad.Shape.Size(), 4*rel)
			}
		}
	})
}

// gradOperands are those of AttentionGrad, given what the forward pass found.
func gradOperands(s attentionShape, d dtype.DType, in []array, forward array) []array {
	n := s.b * s.t * s.h * s.e
	y := arrayOf(d, op.Shape{s.b, s.t, s.h, s.e}, forward.value)
	log := arrayOf(dtype.Float32, op.Shape{s.b, s.h, s.t}, func(i int) float64 { return forward.value(n + i) })
	g := randomArray(rand.New(rand.NewPCG(7, 8)), d, s.b, s.t, s.h, s.e)
	return slices.Concat(in[:3], []array{y, log, g}, in[3:])
}

// checkExpanded runs an operation. The first n elements may be missed by tol
// times the largest of them, the others by 1e-4.
func checkExpanded(t *testing.T, what string, c op.Code, a op.Attr, in []array, want array, n int, tol float64) {
	t.Helper()
	g := ir.New(len(in))
	vals := make([]*ir.Value, len(in))
	for i, x := range in {
		vals[i] = param(t, g, i, x.Type)
	}
	g.Output(record(t, g, c, a, vals...), -1)
	p := plan(t, g)
	var first []byte
	for _, procs := range []int{1, 3} {
		got := runProcs(t, p, in, procs)
		if first != nil {
			if !bytes.Equal(first, got.data) {
				t.Errorf("%s: other bits with %d workers", what, procs)
			}
			continue
		}
		first = got.data
		largest := 0.
		for i := range n {
			largest = max(largest, math.Abs(want.value(i)))
		}
		for i := range want.Shape.Size() {
			off := tol * largest
			if i >= n {
				off = 1e-4
			}
			if diff := math.Abs(got.value(i) - want.value(i)); !(diff <= off) {
				t.Fatalf("%s: element %d is %v, want %v ± %.2g", what, i, got.value(i), want.value(i), off)
			}
		}
	}
}

// TestAttentionMemory: memory of a plan with gradient grows with the length of
// the sequence, not with its square.
func TestAttentionMemory(t *testing.T) {
	arena := func(steps int) int {
		s := attentionShape{b: 1, t: steps, s: steps, h: 2, g: 2, d: 16, e: 16}
		a, in := s.operands(dtype.Float32)
		g := ir.New(len(in))
		var vals []*ir.Value
		for i, x := range in {
			vals = append(vals, param(t, g, i, x.Type))
		}
		g.Output(record(t, g, op.AttentionForward, a, vals...), -1)
		p := plan(t, g)
		return p.scratch + p.graph.Memory().Arena + p.graph.Memory().Outputs
	}
	if a, b := arena(2048), arena(4096); float64(b) > 2.1*float64(a) {
		t.Errorf("an attention over 2048 steps takes %d bytes, over 4096 %d", a, b)
	}
}

// BenchmarkAttention reports the rate of the forward pass and of the gradient,
// counting 4 and 10 operations for each query, key and feature.
func BenchmarkAttention(b *testing.B) {
	for _, causal := range []bool{false, true} {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			s := attentionShape{b: 8, t: 512, s: 512, h: 12, g: 12, d: 64, e: 64, attr: op.Attr{Causal: causal}}
			a, in := s.operands(d)
			forward := array{Type: op.Type{DType: dtype.Float64, Shape: op.Shape{s.b * s.t * s.h * (s.e + 1)}}}
			forward.data = make([]byte, forward.Bytes())
			pairs := float64(s.b*s.h) * float64(s.t*s.s) * float64(s.d)
			benchAttention(b, fmt.Sprintf("%v/causal=%v/forward", d, causal), 4*pairs, op.AttentionForward, a, in)
			benchAttention(b, fmt.Sprintf("%v/causal=%v/gradient", d, causal), 10*pairs, op.AttentionGrad, a, gradOperands(s, d, in, forward))
		}
	}
}

func benchAttention(b *testing.B, name string, flops float64, c op.Code, a op.Attr, in []array) {
	b.Run(name, func(b *testing.B) {
		g := ir.New(len(in))
		vals := make([]*ir.Value, len(in))
		for i, x := range in {
			vals[i] = param(b, g, i, x.Type)
		}
		g.Output(record(b, g, c, a, vals...), -1)
		p := plan(b, g)
		inputs, outputs := buffers(p, in)
		run := func() {
			if err := p.Run(context.Background(), inputs, outputs); err != nil {
				b.Fatal(err)
			}
		}
		run()
		var times []float64
		for b.Loop() {
			start := time.Now()
			run()
			times = append(times, time.Since(start).Seconds())
		}
		slices.Sort(times)
		rate := flops / times[len(times)/2]
		b.ReportMetric(1e3*times[len(times)/2], "ms")
		b.ReportMetric(rate/1e9, "GFLOP/s")
		if peak := Peak(in[0].DType); peak > 0 {
			b.ReportMetric(100*rate/peak, "%peak")
		}
		b.ReportMetric(0, "ns/op")
	})
}
