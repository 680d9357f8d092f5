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

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/attention"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// attentionShape is an attention with batch b, h heads of t queries with d features,
// and g heads of s keys with d features and values with e.
type attentionShape struct {
	name                string
	b, t, s, h, g, d, e int
	mask                op.Shape
	attr                op.Attr
}

// operands returns random operands of AttentionForward.
func (s attentionShape) operands(d dtype.DType) (a op.Attr, in []array) {
	rng := rand.New(rand.NewPCG(5, 6))
	in = []array{randomArray(rng, d, s.b, s.t, s.h, s.d), randomArray(rng, d, s.b, s.s, s.g, s.d), randomArray(rng, d, s.b, s.s, s.g, s.e)}
	if s.mask != nil {
		in = append(in, randomArray(rng, dtype.Bool, s.mask...))
	}
	if s.attr.DropoutRate > 0 {
		in = append(in, randomArray(rng, dtype.Int64, 2))
	}
	a = s.attr
	a.Scale = 1 / math.Sqrt(float64(s.d))
	return a, in
}

// converted returns x in another float type; integers and bools are unchanged.
func (a array) converted(d dtype.DType) array {
	if !a.DType.IsFloat() {
		return a
	}
	return arrayFrom(d, a.Shape, a.values())
}

// evalExpanded is eval for the expansion of an operation.
func evalExpanded(t *testing.T, c op.Code, a op.Attr, args ...array) array {
	t.Helper()
	return reference("expanded", c, a, args, func() array { return computeExpanded(t, c, a, args) })
}

func computeExpanded(t *testing.T, c op.Code, a op.Attr, args []array) array {
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

// TestAttentionBlocks runs attentions of several blocks at every level: results agree
// with the expansion in float64, have the same bits for any number of workers, and stay
// within their memory.
func TestAttentionBlocks(t *testing.T) {
	isatest.SkipEmulated(t, "TestAttentionFar compares the same kernels")
	isatest.SkipRace(t)
	shapes := []attentionShape{
		{name: "blocks", b: 1, t: 131, s: 661, h: 2, g: 2, d: 40, e: 24},
		{name: "whole", b: 2, t: 96, s: 96, h: 10, g: 10, d: 32, e: 32},
		{name: "causal", b: 1, t: 270, s: 600, h: 2, g: 1, d: 16, e: 70, attr: op.Attr{Causal: true}},
		{name: "window", b: 1, t: 530, s: 530, h: 1, g: 1, d: 17, e: 9, attr: op.Attr{SlidingWindow: 30}},
		{name: "masked", b: 2, t: 70, s: 150, h: 18, g: 9, d: 33, e: 33, mask: op.Shape{2, 1, 1, 150}, attr: op.Attr{DropoutRate: 0.25, Stream: 2}},
		{name: "wide", b: 1, t: 40, s: 300, h: 1, g: 1, d: 256, e: 256, mask: op.Shape{1, 1, 40, 300}},
	}
	type want struct{ forward, grad array }
	wants := map[string]want{}
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, s := range shapes {
				if isa.Current() == isa.Portable && (d.Is16() || s.d > 100) {
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
				// Each weight may be rounded to the operands' type, and results are
				// sums of products with weights. Four times that, as terms may cancel.
				rel, _ := d.Tolerance()
				grad := gradOperands(s, d, in, w.forward)
				algorithms := []string{"float32"}
				if set := gemm.Current(); d == dtype.BFloat16 && set != nil && set.Blocks != nil {
					algorithms = attention.Algorithms()
				}
				for _, name := range algorithms {
					restore := exec.Force("attention", name)
					checkExpanded(t, name+" "+what+" forward", op.AttentionForward, a, in, w.forward, n, 4*rel)
					checkExpanded(t, name+" "+what+" gradient", op.AttentionGrad, a, grad, w.grad, w.grad.Shape.Size(), 4*rel)
					restore()
				}
			}
		}
	})
}

// gradOperands returns the operands of AttentionGrad for a result of the forward pass.
func gradOperands(s attentionShape, d dtype.DType, in []array, forward array) []array {
	y, statistics := s.forwardParts(d, in, forward)
	g := randomArray(rand.New(rand.NewPCG(7, 8)), d, s.b, s.t, s.h, s.e)
	return slices.Concat(in[:3], []array{y, statistics, g}, in[3:])
}

// forwardParts splits the result of AttentionForward; y is converted to type d.
func (s attentionShape) forwardParts(d dtype.DType, in []array, forward array) (y, statistics array) {
	p := op.AttentionForward.Info().Results(s.attr, typesOf(in))
	all := forward.values()
	return arrayFrom(d, p[0].Shape, all[p[0].Start:][:p[0].Shape.Size()]), arrayFrom(d.Accumulator(), p[1].Shape, all[p[1].Start:][:p[1].Shape.Size()])
}

func typesOf(in []array) []op.Type {
	var types []op.Type
	for _, x := range in {
		types = append(types, x.Type)
	}
	return types
}

// checkExpanded runs an operation and compares it with want. The tolerance is tol times
// the largest for the first n elements, and 1e-4, absolute and relative, for the
// others.
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
		found, values := got.values(), want.values()
		for _, w := range values[:n] {
			largest = max(largest, math.Abs(w))
		}
		for i, w := range values {
			off := tol * largest
			if i >= n {
				off = 1e-4 * min(1, math.Abs(w))
			}
			if diff := math.Abs(found[i] - w); !(diff <= off) {
				t.Fatalf("%s: element %d is %v, want %v ± %.2g", what, i, found[i], w, off)
			}
		}
	}
}

// TestAttentionFar: results and gradients for scores of all sizes are as close to
// float64 as rounded products of queries and keys permit. A query with all its weight
// on one key has gradient 0, without rounding errors times large keys.
func TestAttentionFar(t *testing.T) {
	isatest.SkipRace(t)
	shapes := []attentionShape{
		{name: "one block", b: 1, t: 50, s: 50, h: 2, g: 1, d: 8, e: 8},
		{name: "blocks", b: 1, t: 70, s: 1100, h: 1, g: 1, d: 8, e: 9},
		{name: "causal", b: 1, t: 300, s: 600, h: 1, g: 1, d: 8, e: 8, attr: op.Attr{Causal: true}},
		{name: "window", b: 1, t: 70, s: 70, h: 1, g: 1, d: 8, e: 8, attr: op.Attr{SlidingWindow: 20}},
		{name: "masked", b: 2, t: 40, s: 600, h: 2, g: 2, d: 8, e: 8, mask: op.Shape{2, 1, 40, 600}},
		{name: "dropped", b: 2, t: 40, s: 70, h: 2, g: 1, d: 8, e: 8, mask: op.Shape{2, 1, 1, 70}, attr: op.Attr{DropoutRate: 0.25}},
	}
	wants := map[string]*farAttention{}
	isatest.ForEach(t, func(t *testing.T) {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for i, s := range shapes {
				if !isatest.InTurn(i + int(d)) {
					continue
				}
				for _, size := range []float64{4e2, 4e4, 5e6, 5e8, 5e10} {
					if d == dtype.Float16 && size > 1e9 {
						continue // the products of its numbers are smaller
					}
					if (testing.Short() || d.Is16()) && size != 4e2 && size != 5e8 {
						continue // scores are float32 for every type
					}
					if isatest.Emulated() && d.Is16() && size != 4e2 {
						continue // what differs from float32 is how operands are read
					}
					what := fmt.Sprintf("%v, %s, %.0e: ", d, s.name, size)
					want := wants[what]
					if want == nil {
						want = newFarAttention(t, s, d, size)
						wants[what] = want
					}
					want.check(t, what)
				}
			}
		}
	})
}

// farAttention is an attention with its result and gradients (dq, dk, dv) in float64
// and their tolerances.
type farAttention struct {
	attr      op.Attr
	in        []array // and the gradient of the result
	n         int     // arguments of AttentionForward
	want, off [4][]float64
}

func newFarAttention(t *testing.T, s attentionShape, d dtype.DType, size float64) *farAttention {
	a, in := s.operands(d)
	f := &farAttention{attr: a, n: len(in)}
	// Scale queries and keys so that the largest score is about size.
	largest := 0.
	q, k := in[0].values(), in[1].values()
	each := func(f func(row, t, at, kept int)) {
		for row := range s.b * s.h {
			for t := range s.t {
				b, h := row/s.h, row%s.h
				f(row*s.t+t, t, (b*s.t+t)*s.h+h, (b*s.s)*s.g+h/(s.h/s.g))
			}
		}
	}
	dot := func(x, y []float64, at, to, n int) (sum, size float64) {
		for i := range n {
			sum += x[at*n+i] * y[to*n+i]
			size += math.Abs(x[at*n+i] * y[to*n+i])
		}
		return
	}
	each(func(_, _, at, first int) {
		for j := range s.s {
			p, _ := dot(q, k, at, first+j*s.g, s.d)
			largest = max(largest, math.Abs(p*a.Scale))
		}
	})
	by := math.Sqrt(size / largest)
	for i, x := range [][]float64{q, k} {
		in[i] = arrayOf(d, in[i].Shape, func(j int) float64 { return by * x[j] })
	}
	f.in = append(slices.Clone(in), randomArray(rand.New(rand.NewPCG(7, 8)), d, s.b, s.t, s.h, s.e))

	var in64 []array
	for _, x := range in {
		in64 = append(in64, x.converted(dtype.Float64))
	}
	forward := evalExpanded(t, op.AttentionForward, a, in64...)
	y, statistics := s.forwardParts(dtype.Float64, in64, forward)
	grads := evalExpanded(t, op.AttentionGrad, a, slices.Concat(in64[:3], []array{y, statistics, f.in[f.n].converted(dtype.Float64)}, in64[3:])...)
	for i, p := range op.AttentionGrad.Info().Results(a, typesOf(in64)) {
		f.want[i+1] = grads.values()[p.Start : p.Start+p.Shape.Size()]
	}
	f.want[0] = y.values()

	// Tolerance rel for sums and their terms, plus the rounding of 16-bit operands.
	q, k = in[0].values(), in[1].values()
	v, g := in[2].values(), f.in[f.n].values()
	unit := dtype.Float32.Epsilon() / 2
	rel, _ := dtype.Float32.Tolerance()
	out, _ := d.Tolerance()
	keep := a.KeepScale()
	for i := range f.off {
		f.off[i] = make([]float64, len(f.want[i]))
	}
	sizes := op.AttentionSizes{Keys: s.s}
	product, exact, weight, off := make([]float64, s.s), make([]float64, s.s), make([]float64, s.s), make([]float64, s.s)
	each(func(row, t, at, first int) {
		lo, hi := sizes.Seen(a, t)
		seen := func(j int) bool {
			if j < lo || j >= hi {
				return false
			}
			if s.mask == nil {
				return true
			}
			m, i := tiling.RowMajor(s.mask), 0
			for axis, at := range []int{row / s.t / s.h, row / s.t % s.h, t, j} {
				if s.mask[axis] > 1 {
					i += at * m[axis]
				}
			}
			return in[3].data[i] != 0
		}
		top, sum, rest, missed := math.Inf(-1), 0., 0., 0.
		for j := range s.s {
			if seen(j) {
				p, size := dot(q, k, at, first+j*s.g, s.d)
				product[j], missed = p, max(missed, a.Scale*size*unit*float64(s.d+1))
				top = max(top, p)
			}
		}
		for j := range s.s {
			weight[j], exact[j] = 0, 0
			if seen(j) {
				weight[j] = math.Exp(a.Scale * (product[j] - top))
				if sum += weight[j]; product[j] != top {
					rest += weight[j]
				}
			}
		}
		if sum == 0 {
			return
		}
		// An error in a score moves weight between keys, but none if one key has all of
		// it.
		result := make([]float64, s.e)
		for j := range s.s {
			if weight[j] == 0 {
				off[j] = 0
				continue
			}
			others := sum - weight[j]
			if product[j] == top && rest < others {
				others = rest
			}
			exponent := a.Scale * (top - product[j])
			weight[j] /= sum
			off[j] = weight[j] * (rel*(1+exponent) + map[bool]float64{true: out}[d.Is16()])
			if others > 0 {
				off[j] += min(1, weight[j]*others/sum*math.Expm1(min(2*missed, 700)))
			}
			for e := range s.e {
				x := (first + j*s.g) * s.e
				result[e] += keep * (off[j]*math.Abs(v[x+e]) + rel*weight[j]*math.Abs(v[x+e]))
			}
		}
		mean := 0. // tolerance of the mean
		for e, x := range result {
			f.off[0][at*s.e+e] = x
			rounded := x + out*math.Abs(f.want[0][at*s.e+e])
			mean += math.Abs(g[at*s.e+e]) * (rounded + rel*math.Abs(f.want[0][at*s.e+e]))
		}
		was, _ := dot(g, f.want[0], at, at, s.e)
		for j := range s.s {
			if weight[j] == 0 {
				continue
			}
			x := first + j*s.g
			slope, size := dot(g, v, at, x, s.e)
			// Allow for both outcomes of dropout.
			slopes := max(math.Abs(slope*keep-was), map[bool]float64{true: math.Abs(was)}[a.DropoutRate > 0])
			ds := a.Scale * (off[j]*slopes + weight[j]*(mean+rel*size*keep+rel*slopes))
			if a.DropoutRate == 0 && weight[j] == 1 && rest < dtype.Float32.SmallestNormal() {
				ds = a.Scale * size * 0x1p-50 // 0 but for float64's rounding: the result is this key's value
			}
			for i := range s.d {
				f.off[1][at*s.d+i] += ds * math.Abs(k[x*s.d+i])
				f.off[2][x*s.d+i] += ds * math.Abs(q[at*s.d+i])
			}
			for e := range s.e {
				f.off[3][x*s.e+e] += keep * (off[j] + rel*weight[j]) * math.Abs(g[at*s.e+e])
			}
		}
	})
	for i := range f.off {
		for j, x := range f.want[i] {
			f.off[i][j] += out*math.Abs(x) + d.SmallestSubnormal() + 0x1p-100
		}
	}
	return f
}

func (f *farAttention) check(t *testing.T, what string) {
	t.Helper()
	g := ir.New(len(f.in))
	vals := make([]*ir.Value, len(f.in))
	for i, x := range f.in {
		vals[i] = param(t, g, i, x.Type)
	}
	args := vals[:f.n]
	both := record(t, g, op.AttentionForward, f.attr, args...)
	parts := op.AttentionForward.Info().Results(f.attr, typesOf(f.in[:f.n]))
	part := func(i int) *ir.Value {
		return record(t, g, op.Result, op.Attr{Start: []int{parts[i].Start}, Dims: parts[i].Shape}, both)
	}
	y := part(0)
	if d := f.in[0].DType; d != y.Type.DType {
		y = record(t, g, op.Cast, op.Attr{DType: d}, y)
	}
	grads := record(t, g, op.AttentionGrad, f.attr, slices.Concat(args[:3], []*ir.Value{y, part(1), vals[f.n]}, args[3:])...)
	g.Output(record(t, g, op.Identity, op.Attr{}, y), -1)
	g.Output(grads, -1)
	p := plan(t, g)
	in, out := buffers(p, f.in)
	if err := p.Run(context.Background(), in, out); err != nil {
		t.Fatal(err)
	}
	at := 0
	for i, name := range []string{"the result", "dq", "dk", "dv"} {
		got := array{y.Type, out[min(i, 1)].(*Buffer).storage}
		if i == 1 {
			at = 0
		}
		got.DType = f.in[0].DType
		values := got.part(at, len(f.want[i]))
		for j, want := range f.want[i] {
			if v := values[j]; !(math.Abs(v-want) <= f.off[i][j]) {
				t.Errorf("%selement %d of %s is %v, want %v ± %.2g", what, j, name, v, want, f.off[i][j])
				break
			}
		}
		at += len(f.want[i])
	}
}

// TestAttentionMemory: the memory of a plan with gradient grows linearly with the
// length of the sequence, not with its square.
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
		return p.plan.Scratch + p.graph.Memory().Arena + p.graph.Memory().Outputs
	}
	if a, b := arena(2048), arena(4096); float64(b) > 2.1*float64(a) {
		t.Errorf("an attention over 2048 steps takes %d bytes, over 4096 %d", a, b)
	}
}

// BenchmarkAttention reports the rate of the forward pass and of the gradient, at 4 and
// 10 operations per query, key and feature.
func BenchmarkAttention(b *testing.B) {
	for _, causal := range []bool{false, true} {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			s := attentionShape{b: 8, t: 512, s: 512, h: 12, g: 12, d: 64, e: 64, attr: op.Attr{Causal: causal}}
			a, in := s.operands(d)
			forward := array{Type: op.Type{DType: dtype.Float64, Shape: op.Shape{s.b * s.t * s.h * (s.e + 2)}}}
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
