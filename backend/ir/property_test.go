package ir

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

var (
	randomShapes = []op.Shape{{}, {}, {3}, {1}, {2, 3}, {2, 3}, {2, 3}, {2, 1}, {3, 2}, {4, 2, 3}, {0, 3}}
	randomTypes  = []dtype.DType{dtype.Float16, dtype.Float16, dtype.Float32, dtype.Float32, dtype.BFloat16, dtype.Float64, dtype.Int32, dtype.Bool}
	randomOps    = []op.Code{
		op.Iota, op.RandomUniform, op.Sum, op.Mean, op.Max, op.SumSquares, op.AllFinite, op.MatMul, op.MatMul,
		op.Reshape, op.Reshape, op.BroadcastTo, op.BroadcastTo, op.Transpose, op.Slice, op.Concat,
		op.Where, op.Where, op.Cast, op.Cast, op.Cast, op.Identity, op.Identity,
	}
)

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// randomGraph draws operations and arguments and keeps what op.Infer accepts.
func randomGraph(r *rand.Rand) *builder {
	b := build()
	var all []*Value
	b.param(dtype.Int64, 2) // random state
	for range 1 + r.IntN(5) {
		all = append(all, b.param(pick(r, randomTypes), pick(r, randomShapes)...))
	}
	all = append(all, b.op(op.Const, op.Attr{DType: pick(r, randomTypes), Dims: pick(r, randomShapes), Value: 1}))
	codes := slices.Clone(randomOps)
	for _, c := range op.Codes() { // in order, so that a seed means one graph
		if math1[c] != nil || math2[c] != nil {
			codes = append(codes, c)
		}
	}
	for tries := 0; tries < 600 && len(b.Values) < 8+r.IntN(40); tries++ {
		c := pick(r, codes)
		args := make([]*Value, max(c.Info().Args, 0))
		for i := range args {
			args[i] = pick(r, all)
			if r.IntN(2) == 0 { // recent values make long chains
				args[i] = all[max(0, len(all)-1-r.IntN(4))]
			}
		}
		if c == op.Concat {
			args = []*Value{pick(r, all), pick(r, all)}
		}
		if c == op.RandomUniform {
			args = []*Value{b.Params[0]}
		}
		if v := tryRandom(r, b, c, args); v != nil {
			all = append(all, v)
		}
	}
	for range 1 + r.IntN(4) {
		v := pick(r, all)
		if v.Op == op.Param || v.Op == op.Const || slices.Contains(b.Outputs, v) {
			v = b.do(op.Identity, v)
		}
		donate := -1
		var fits []int
		for i, p := range b.Params {
			if p.Type.Bytes() == v.Type.Bytes() {
				fits = append(fits, i)
			}
		}
		if len(fits) > 0 && r.IntN(4) > 0 {
			donate = pick(r, fits)
		}
		b.Output(v, donate)
	}
	return b
}

func tryRandom(r *rand.Rand, b *builder, c op.Code, args []*Value) *Value {
	a := op.Attr{}
	var s op.Shape
	if len(args) > 0 {
		s = args[0].Type.Shape
	}
	switch c {
	case op.Iota:
		a = op.Attr{DType: dtype.Float32, Dims: pick(r, randomShapes)}
	case op.RandomUniform:
		a = op.Attr{Dims: pick(r, randomShapes), Stream: uint64(r.IntN(2)), Bits: int8(16 * r.IntN(2))}
	case op.Cast:
		a.DType = pick(r, randomTypes)
	case op.Reshape, op.BroadcastTo:
		a.Dims = pick(r, randomShapes)
	case op.Sum, op.Mean, op.Max:
		for axis := range s {
			if r.IntN(2) == 0 {
				a.Axes = append(a.Axes, axis)
			}
		}
		a.KeepDims = r.IntN(2) == 0
		if c != op.Max && s.Size() > 0 && args[0].Type.DType.Is16() && r.IntN(2) == 0 {
			a.DType = dtype.Float32
		}
		if len(a.Axes) > 0 && s.Size() == 0 {
			return nil // the mean and maximum of nothing are nobody's business here
		}
	case op.MatMul:
		a.TransA, a.TransB = r.IntN(2) == 0, r.IntN(2) == 0
		if r.IntN(2) == 0 {
			a.DType = dtype.Float32
		}
		if len(s) != 2 || len(args[1].Type.Shape) != 2 {
			return nil
		}
	case op.Transpose:
		a.Perm = r.Perm(len(s))
	case op.Slice:
		for _, d := range s {
			lo := r.IntN(d + 1)
			a.Start, a.Limit, a.Stride = append(a.Start, lo), append(a.Limit, lo+r.IntN(d-lo+1)), append(a.Stride, 1+r.IntN(2))
		}
	case op.Concat:
		if len(s) == 0 {
			return nil
		}
		a.Axes = []int{r.IntN(len(s))}
	}
	types := make([]op.Type, len(args))
	for i, x := range args {
		types[i] = x.Type
	}
	t, err := op.Infer(c, a, types...)
	if err != nil || t.Shape.Size() > 200 {
		return nil
	}
	return b.Add(c, a, t, "", args...)
}

func randomInputs(r *rand.Rand, g *Graph) [][]byte {
	in := make([][]byte, len(g.Params))
	for i, p := range g.Params {
		in[i] = make([]byte, p.Type.Bytes())
		for j := range p.Type.Shape.Size() {
			store(in[i], j, p.Type.DType, float64(r.IntN(17)-8)/4)
		}
	}
	return in
}

// Whatever passes run, the plan is valid and gives the bits of the graph.
func TestPlansComputeWhatGraphsDo(t *testing.T) {
	n := 1000
	if testing.Short() {
		n = 200
	}
	optional := OptionalPasses()
	granted, refused, fused, extras := 0, 0, 0, 0
	for seed := range uint64(n) {
		// Ever other subsets; each graph also with all passes and with none.
		subsets := []uint64{0, 1<<len(optional) - 1}
		r := rand.New(rand.NewPCG(seed, 1))
		for range 4 {
			subsets = append(subsets, r.Uint64N(1<<len(optional)))
		}
		b := randomGraph(rand.New(rand.NewPCG(seed, 2)))
		in := randomInputs(rand.New(rand.NewPCG(seed, 3)), b.Graph)
		want := interpret(b.Graph, in)
		recorded := b.Graph.String()
		for _, subset := range subsets {
			o := Options{Check: true}
			for i, name := range optional {
				if subset&(1<<i) != 0 {
					o.Skip = append(o.Skip, name)
				}
			}
			b := randomGraph(rand.New(rand.NewPCG(seed, 2)))
			if err := Optimize(b.Graph, o); err != nil {
				t.Fatalf("seed %d, skip %v: %v\n%v", seed, o.Skip, err, b.Graph)
			}
			got, err := run(b.Graph, in)
			if err != nil {
				t.Fatalf("seed %d, skip %v: %v\n%v", seed, o.Skip, err, b.Graph)
			}
			for i, v := range b.Outputs {
				if !same(got[i], want[i], v.Type.DType) {
					t.Fatalf("seed %d, skip %v: output %d is %x, want %x\n%v\nrecorded:\n%s", seed, o.Skip, i, got[i], want[i], b.Graph, recorded)
				}
			}
			// Order must not matter: without checks nothing is shuffled.
			b2 := randomGraph(rand.New(rand.NewPCG(seed, 2)))
			if err := Optimize(b2.Graph, Options{Skip: o.Skip}); err != nil {
				t.Fatal(err)
			}
			if b2.Graph.String() != b.Graph.String() {
				t.Fatalf("seed %d, skip %v: the plan depends on the order of values:\n%v\nshuffled:\n%v", seed, o.Skip, b2.Graph, b.Graph)
			}
			for o, p := range b.Donate {
				if p >= 0 && b.Donated[o] >= 0 {
					granted++
				} else if p >= 0 {
					refused++
				}
			}
			for _, v := range b.Values {
				switch v.Op {
				case op.Fused:
					fused++
				case op.ExtraOutput:
					extras++
				}
			}
		}
	}
	t.Logf("%d donations granted, %d refused or skipped, %d fused values, %d extras", granted, refused, fused, extras)
	// The test means something only when graphs do.
	if granted < n || fused < n/2 || extras < n/4 {
		t.Errorf("got %d donations, %d fused values and %d extras in %d graphs, want at least one, a half and a quarter in each", granted, fused, extras, n)
	}
}

func TestTrainingStepKeepsBits(t *testing.T) {
	expand := func() *builder {
		b := trainingStep(4, 6, 5, 3)
		for _, v := range slices.Clone(b.Values) {
			if v.Op.Info().Expand != nil {
				b.Expand(v)
			}
		}
		return b
	}
	b := expand()
	in := randomInputs(rand.New(rand.NewPCG(7, 7)), b.Graph)
	for i := 4; i < len(in); i += 2 { // velocities are not negative
		clear(in[i])
	}
	store(in[2], 0, dtype.Float32, 1024)
	want := interpret(b.Graph, in)
	skips := [][]string{nil, OptionalPasses()}
	for _, name := range OptionalPasses() {
		skips = append(skips, []string{name}, only(name))
	}
	for _, skip := range skips {
		b := expand()
		if err := Optimize(b.Graph, Options{Check: true, Skip: skip}); err != nil {
			t.Fatal(err)
		}
		got, err := run(b.Graph, in)
		if err != nil {
			t.Fatalf("skip %v: %v", skip, err)
		}
		for i, v := range b.Outputs {
			if !same(got[i], want[i], v.Type.DType) {
				t.Errorf("skip %v: output %d differs", skip, i)
			}
		}
	}
}
