package ir

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func everywhere(d dtype.DType) func(*Value) dtype.DType {
	return func(*Value) dtype.DType { return d }
}

func retype(t *testing.T, g *Graph, values []*Value, r Retyping) map[*Value]*Value {
	t.Helper()
	twins, err := g.Retype(values, r)
	if err != nil {
		t.Fatal(err)
	}
	g.number()
	g.Donated = slices.Repeat([]int{-1}, len(g.Outputs))
	if err := g.check(); err != nil {
		t.Fatalf("%v\n%v", err, g)
	}
	return twins
}

// reached is what the elements of v are, as interpret computes them.
func reached(g *Graph, in [][]byte, values ...*Value) [][]float64 {
	shown := *g
	shown.Outputs = values
	var all [][]float64
	for i, b := range interpret(&shown, in) {
		x := make([]float64, values[i].Type.Shape.Size())
		dtype.ToF64(x, b, values[i].Type.DType)
		all = append(all, x)
	}
	return all
}

func sameFloats(a, b []float64) bool {
	return slices.EqualFunc(a, b, func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) })
}

// With no wish for a type every value is its own twin.
func TestRetypeNothing(t *testing.T) {
	for seed := range uint64(200) {
		b := randomGraph(rand.New(rand.NewPCG(seed, 4)))
		for v, twin := range retype(t, b.Graph, slices.Clone(b.Values), Retyping{}) {
			if twin != v {
				t.Fatalf("seed %d: %v became %v", seed, v.Describe(), twin.Describe())
			}
		}
	}
}

// The shadow of a random graph is of one float type, and each element-wise value,
// computed alone in float64 and rounded, is the value to the bit: alone has the same
// operation on the same operands.
func TestRetypeAll(t *testing.T) {
	rounded, forced := 0, 0
	for seed := range uint64(400) {
		b := randomGraph(rand.New(rand.NewPCG(seed, 5)))
		in := randomInputs(rand.New(rand.NewPCG(seed, 6)), b.Graph)
		values := slices.Clone(b.Values)
		wide := []dtype.DType{dtype.Float32, dtype.Float64}[seed%2]
		twins := retype(t, b.Graph, values, Retyping{Least: everywhere(wide), Forced: true, Path: "shadow/"})
		var pairs []*Value
		for _, v := range values {
			twin := twins[v]
			if narrower(twin.Type.DType, wide) || v.Type.DType.IsFloat() != twin.Type.DType.IsFloat() || !v.Type.Shape.Equal(twin.Type.Shape) {
				t.Fatalf("seed %d: the twin of %s is %s", seed, v.Describe(), twin.Describe())
			}
			for _, a := range twin.Args {
				if twin != v && narrower(a.Type.DType, wide) && twin.Op != op.Cast {
					t.Fatalf("seed %d: %s reads %s", seed, twin.Describe(), a.Describe())
				}
			}
			switch {
			case !v.Type.DType.IsFloat() && twin != v:
				t.Fatalf("seed %d: %s decides anew", seed, v.Describe())
			case !v.Type.DType.IsFloat():
				forced++
			case elementwise(v) && v.Op != op.RoundE4M3: // which is not rounded alone
				alone, err := b.RetypeAlone(v, dtype.Float64, "")
				if err != nil {
					t.Fatal(err)
				}
				pairs = append(pairs, v, alone)
			}
		}
		got := reached(b.Graph, in, pairs...)
		for i := 0; i < len(pairs); i += 2 {
			v := pairs[i]
			alone := slices.Clone(got[i+1])
			for k, x := range alone {
				alone[k] = round(x, v.Type.DType)
			}
			if !sameFloats(got[i], alone) {
				t.Fatalf("seed %d: %s is %v, alone %v\n%v", seed, v.Describe(), got[i], got[i+1], b.Graph)
			}
			if !sameFloats(got[i], got[i+1]) {
				rounded++
			}
		}
	}
	if rounded < 100 || forced < 100 {
		t.Errorf("%d values lost something to rounding and %d were decisions, want at least 100", rounded, forced)
	}
}

// Where one value is to be wide, the others keep their types, and those that do
// not depend on it stay what they were.
func TestRetypeOne(t *testing.T) {
	changed := 0
	for seed := range uint64(400) {
		b := randomGraph(rand.New(rand.NewPCG(seed, 7)))
		in := randomInputs(rand.New(rand.NewPCG(seed, 8)), b.Graph)
		values := slices.Clone(b.Values)
		chosen := values[rand.New(rand.NewPCG(seed, 9)).IntN(len(values))]
		twins := retype(t, b.Graph, values, Retyping{Least: func(v *Value) dtype.DType {
			if v == chosen {
				return dtype.Float32
			}
			return dtype.Invalid
		}})
		depends := map[*Value]bool{chosen: true}
		for _, v := range values {
			for _, a := range v.Args {
				depends[v] = depends[v] || depends[a]
			}
			twin := twins[v]
			if !depends[v] && twin != v {
				t.Fatalf("seed %d: %s does not depend on %s and became %s", seed, v.Describe(), chosen.Describe(), twin.Describe())
			}
			if v != chosen && v.Op.Info().Class != op.Movement && twin.Type.DType != v.Type.DType {
				t.Fatalf("seed %d: %s became %s", seed, v.Describe(), twin.Describe())
			}
			if twin != v {
				changed++
			}
		}
		if want := widen(chosen.Type.DType, dtype.Float32); twins[chosen].Type.DType != want {
			t.Fatalf("seed %d: %s became %s, want %v", seed, chosen.Describe(), twins[chosen].Describe(), want)
		}
		interpret(b.Graph, in) // it can be computed
	}
	if changed < 200 {
		t.Errorf("%d values changed in 400 graphs, want at least 200", changed)
	}
}

// Constants are what was written, casts disappear, decisions are those of the
// original.
func TestRetypeMeaning(t *testing.T) {
	b := build()
	x := b.param(dtype.Float32, 3)
	narrow := b.cast(x, dtype.Float16)
	tiny := b.scalar(dtype.Float16, 1e-8) // 0 in float16
	sum := b.do(op.Add, narrow, tiny)
	sign := b.do(op.Sign, narrow)
	e4m3 := b.do(op.RoundE4M3, sum)
	back := b.cast(e4m3, dtype.Float32)
	product := b.do(op.Mul, back, b.cast(sign, dtype.Float32))
	b.Output(product, -1)
	values := slices.Clone(b.Values)
	twins := retype(t, b.Graph, values, Retyping{Least: everywhere(dtype.Float32), Forced: true})
	in := make([]byte, 12)
	// float16 rounds the first to 0: its sign is the decision.
	dtype.FromF64(in, []float64{1e-9, 1.0001, -3}, dtype.Float32)
	got := reached(b.Graph, [][]byte{in}, twins[product], twins[sign], twins[tiny])
	exact := func(x float64) float64 { return float64(float32(x)) }
	want := [][]float64{{0, exact(exact(1.0001) + exact(1e-8)), -exact(exact(-3) + exact(1e-8))}, {0, 1, -1}, {exact(1e-8)}}
	for i := range want {
		if !sameFloats(got[i], want[i]) {
			t.Errorf("result %d is %v, want %v\n%v", i, got[i], want[i], b.Graph)
		}
	}
	free := retype(t, b.Graph, values, Retyping{Least: everywhere(dtype.Float32)})
	if got := reached(b.Graph, [][]byte{in}, free[sign]); !sameFloats(got[0], []float64{1, 1, -1}) {
		t.Errorf("without forcing signs are %v, want those of the shadow", got[0])
	}
}

// TestRetypeReLU: the decision of a ReLU's gradient is made again from the original's
// operand where that is in memory anyway, and is the same.
func TestRetypeReLU(t *testing.T) {
	b := build()
	x := b.param(dtype.Float32, 2, 2)
	narrow := b.cast(x, dtype.Float16)
	product := b.do(op.MatMul, narrow, narrow)
	rectified, zero := b.do(op.Relu, product), b.scalar(dtype.Float16, 0)
	stored := b.do(op.Greater, rectified, zero) // the next product reads rectified
	fused := b.do(op.Greater, product, zero)
	b.Output(b.do(op.MatMul, rectified, narrow), -1)
	twins := retype(t, b.Graph, slices.Clone(b.Values), Retyping{Least: everywhere(dtype.Float32), Forced: true})
	if a := twins[stored]; a == stored || a.Args[0].Op != op.Cast || a.Args[0].Args[0] != rectified {
		t.Errorf("the twin of %s is %s", stored.Describe(), a.Describe())
	}
	if twins[fused] != fused {
		t.Errorf("the twin of %s, whose operand need not be in memory, is %s", fused.Describe(), twins[fused].Describe())
	}
	in := make([]byte, 16)
	dtype.FromF64(in, []float64{1e-6, 1e-4, 1e-4, 1}, dtype.Float32) // the first product is 0 in float16
	got := reached(b.Graph, [][]byte{in}, stored, twins[stored], twins[product])
	if !sameFloats(got[0], got[1]) || got[0][0] != 0 || got[2][0] == 0 {
		t.Errorf("the decisions are %v and %v, of %v", got[0], got[1], got[2])
	}
}

// loopOf is a Loop of three steps in float16: s ← tanh(x·w + s + 1e-8), with the
// output exp(s), computed in float32.
func loopOf(b *builder) *Value {
	x := b.param(dtype.Float16, 3, 2)
	first := b.param(dtype.Float16, 2)
	w := b.param(dtype.Float16, 2)
	l := &op.LoopBody{Steps: 3, Sequences: 1, States: 1, Kept: 1, Outputs: 1, Code: []op.LoopInstr{
		{Op: op.Mul, Args: []int{0, 2}, Path: "cell"},
		{Op: op.Add, Args: []int{3, 1}},
		{Op: op.Const, Attr: op.Attr{DType: dtype.Float16, Value: 1e-8}},
		{Op: op.Add, Args: []int{4, 5}},
		{Op: op.Tanh, Args: []int{6}},
		{Op: op.Cast, Attr: op.Attr{DType: dtype.Float32}, Args: []int{7}},
		{Op: op.Exp, Args: []int{8}},
		{Op: op.Cast, Attr: op.Attr{DType: dtype.Float16}, Args: []int{9}},
	}, Results: []int{10, 7}}
	return b.op(op.Loop, op.Attr{Loop: l}, x, first, w)
}

// A loop that is recorded again computes what its expansion does.
func TestRetypeLoop(t *testing.T) {
	for _, wide := range []dtype.DType{dtype.Float32, dtype.Float64} {
		b := build()
		loop := loopOf(b)
		twin := retype(t, b.Graph, slices.Clone(b.Values), Retyping{Least: everywhere(wide), Forced: true})[loop]
		if twin.Op != op.Loop || twin.Type.DType != wide {
			t.Fatalf("the twin is %v, want a Loop in %v", twin.Describe(), wide)
		}
		if text := twin.Attr.Loop.String(); strings.Contains(text, "Cast") {
			t.Errorf("the body still casts: %s", text)
		}
		e := build()
		e.Expand(loopOf(e))
		end := e.Values[len(e.Values)-1]
		unrolled := retype(t, e.Graph, slices.Clone(e.Values), Retyping{Least: everywhere(wide), Forced: true})[end]
		in := randomInputs(rand.New(rand.NewPCG(1, 1)), b.Graph)
		b.Expand(loop)
		b.Expand(twin)
		got := reached(b.Graph, in, b.Values[len(b.Values)-1])
		want := reached(e.Graph, in, unrolled)
		if !sameFloats(got[0], want[0]) {
			t.Errorf("%v: the loop gives %v, its expansion %v", wide, got[0], want[0])
		}
	}
}

// Nothing of the original changes.
func TestRetypeKeepsOriginal(t *testing.T) {
	for seed := range uint64(50) {
		b := randomGraph(rand.New(rand.NewPCG(seed, 10)))
		in := randomInputs(rand.New(rand.NewPCG(seed, 11)), b.Graph)
		text, want := b.String(), interpret(b.Graph, in)
		retype(t, b.Graph, slices.Clone(b.Values), Retyping{Least: everywhere(dtype.Float32)})
		lines := strings.SplitAfter(b.String(), "\n")
		if recorded := strings.SplitAfter(text, "\n"); !slices.Equal(lines[:len(recorded)-1-len(b.Outputs)], recorded[:len(recorded)-1-len(b.Outputs)]) {
			t.Fatalf("seed %d: the graph begins as\n%v\nwant\n%v", seed, b.Graph, text)
		}
		for i, got := range interpret(b.Graph, in) {
			if !bytes.Equal(got, want[i]) {
				t.Fatalf("seed %d: output %d changed", seed, i)
			}
		}
	}
}
