package ir

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

const (
	f16  = dtype.Float16
	bf16 = dtype.BFloat16
	f32  = dtype.Float32
	f64  = dtype.Float64
)

func TestPassOrder(t *testing.T) {
	at := map[string]int{}
	for i, p := range passes {
		if _, dup := at[p.name]; dup {
			t.Errorf("two passes are called %q", p.name)
		}
		at[p.name] = i
		if p.hides && !p.optional {
			t.Errorf("pass %s is left out by Watch but not optional", p.name)
		}
	}
	for _, o := range passOrder {
		a, ok := at[o[0]]
		b, ok2 := at[o[1]]
		if !ok || !ok2 {
			t.Errorf("passOrder names %v, which is not a pair of passes", o)
		}
		if a >= b {
			t.Errorf("pass %s runs after %s, want before", o[0], o[1])
		}
	}
}

func TestCasts(t *testing.T) {
	b := build()
	x := b.param(f16, 2)
	y := b.param(f32, 2)
	nothing := b.cast(x, f16)
	through := b.cast(b.cast(x, f32), f16)
	other := b.cast(b.cast(x, f32), bf16)
	loses := b.cast(b.cast(y, f16), f32)
	b.Output(b.do(op.Add, nothing, through), -1)
	b.Output(b.do(op.Identity, other), -1)
	b.Output(b.do(op.Identity, loses), -1)
	b.Output(b.do(op.Identity, x), -1)              // stays: its argument is a Param
	b.Output(b.do(op.Identity, b.cast(y, f32)), -1) // a Param too
	same := b.do(op.Neg, x)
	b.Output(b.do(op.Identity, same), -1) // becomes the Neg itself
	b.Output(b.do(op.Identity, same), -1) // stays: the Neg is an output now
	one := b.scalar(f16, 1)
	product := b.do(op.Mul, b.broadcast(one, 2), b.do(op.Mul, same, b.reshape(one, 1)))
	b.Output(b.do(op.Exp, product), -1)
	b.Output(b.do(op.Mul, b.scalar(f16, 2), one), -1) // stays: the other argument is a Const
	wantText(t, optimize(t, b, "dce", Options{Skip: only("simplify", "dce")}), ""+
		"%0 = Param() float16[2]\n"+
		"%1 = Param() float32[2] index=1\n"+
		"%6 = Cast(%0) bfloat16[2]\n"+
		"%7 = Cast(%1) float16[2]\n"+
		"%8 = Cast(%7) float32[2]\n"+
		"%9 = Add(%0 %0) float16[2]\n"+
		"%12 = Identity(%0) float16[2]\n"+
		"%14 = Identity(%1) float32[2]\n"+
		"%15 = Neg(%0) float16[2]\n"+
		"%17 = Identity(%15) float16[2]\n"+
		"%23 = Exp(%15) float16[2]\n"+
		"%24 = Const() float16[] value=2\n"+
		"%25 = Identity(%24) float16[]\n"+
		"out 0 = %9\nout 1 = %6\nout 2 = %8\nout 3 = %12\nout 4 = %14\nout 5 = %15\nout 6 = %17\nout 7 = %23\nout 8 = %25\n")
}

func TestCastsOfNormalizations(t *testing.T) {
	b := build()
	x, y := b.param(bf16, 2, 3), b.param(f32, 2, 3)
	gain := b.param(f32, 3)
	wide := b.cast(x, f32)
	b.Output(b.do(op.LayerNorm, wide, gain, gain), -1)
	b.Output(b.do(op.LayerNormGrad, wide, gain, b.cast(x, f32)), -1)
	b.Output(b.do(op.LayerNorm, b.cast(y, bf16), gain, gain), -1) // rounds
	wantText(t, optimize(t, b, "dce", Options{Skip: only("simplify", "dce")}), ""+
		"%0 = Param() bfloat16[2 3]\n"+
		"%1 = Param() float32[2 3] index=1\n"+
		"%2 = Param() float32[3] index=2\n"+
		"%4 = LayerNorm(%0 %2 %2) float32[2 3]\n"+
		"%6 = LayerNormGrad(%0 %2 %0) float32[12]\n"+
		"%7 = Cast(%1) bfloat16[2 3]\n"+
		"%8 = LayerNorm(%7 %2 %2) bfloat16[2 3]\n"+
		"out 0 = %4\nout 1 = %6\nout 2 = %8\n")
}

// TestCSEOfMasks: two equal masks and what is made of both are one.
func TestCSEOfMasks(t *testing.T) {
	b := build()
	x := b.param(f32, 2)
	mask := func() *Value { return b.do(op.Greater, x, b.scalar(f32, 1)) }
	both := b.do(op.And, mask(), b.do(op.Or, mask(), mask()))
	b.Output(b.do(op.Where, both, x, x), -1)
	less := func() *Value { return b.do(op.Less, x, x) }
	b.Output(b.do(op.Or, less(), less()), -1) // an output is a value of its own
	wantText(t, optimize(t, b, "dce", Options{Skip: only("cse", "dce")}), ""+
		"%0 = Param() float32[2]\n"+
		"%1 = Const() float32[] value=1\n"+
		"%2 = Greater(%0 %1) bool[2]\n"+
		"%9 = Where(%2 %0 %0) float32[2]\n"+
		"%10 = Less(%0 %0) bool[2]\n"+
		"%12 = Or(%10 %10) bool[2]\n"+
		"out 0 = %9\nout 1 = %12\n")
}

func TestCSE(t *testing.T) {
	b := build()
	x := b.param(f32, 2)
	state := b.param(dtype.Int64, 2)
	random := func(stream uint64) *Value {
		return b.op(op.RandomUniform, op.Attr{Dims: op.Shape{2}, Stream: stream}, state)
	}
	b.path = "first"
	s1 := b.do(op.Add, b.do(op.Exp, x), b.scalar(f32, 1))
	b.path = "second"
	s2 := b.do(op.Add, b.do(op.Exp, x), b.scalar(f32, 1))
	b.path = ""
	b.Output(s1, -1)
	b.Output(s2, -1) // no value may be an output twice
	b.Output(b.do(op.Mul, random(1), random(1)), -1)
	b.Output(b.do(op.Mul, random(1), random(2)), -1)
	// The element type of a sum may be spelled out.
	b.Output(b.do(op.Add, b.sum(x, dtype.Invalid, 0), b.sum(x, f32, 0)), -1)
	b.Output(b.do(op.Add, b.scalar(f32, 2), b.scalar(f32, 3)), -1) // different
	wantText(t, optimize(t, b, "cse", Options{Skip: only("cse")}), ""+
		"%0 = Param() float32[2]\n"+
		"%1 = Param() int64[2] index=1\n"+
		"%2 = Exp(%0) float32[2]  # first\n"+
		"%3 = Const() float32[] value=1  # first\n"+
		"%4 = Add(%2 %3) float32[2]  # first\n"+
		"%7 = Identity(%4) float32[2]  # second\n"+
		"%8 = RandomUniform(%1) float32[2] stream=1\n"+
		"%10 = Mul(%8 %8) float32[2]\n"+
		"%12 = RandomUniform(%1) float32[2] stream=2\n"+
		"%13 = Mul(%8 %12) float32[2]\n"+
		"%14 = Sum(%0) float32[] axes=[0]\n"+
		"%16 = Add(%14 %14) float32[]\n"+
		"%17 = Const() float32[] value=2\n"+
		"%18 = Const() float32[] value=3\n"+
		"%19 = Add(%17 %18) float32[]\n"+
		"out 0 = %4\nout 1 = %7\nout 2 = %10\nout 3 = %13\nout 4 = %16\nout 5 = %19\n")
}

func TestNarrow(t *testing.T) {
	b := build()
	x := b.param(f16, 2, 2)
	y := b.param(f64, 2)
	narrow := b.do(op.MatMul, x, x)
	wide := b.op(op.MatMul, op.Attr{DType: f32}, x, x)
	b.Output(narrow, -1)
	b.Output(wide, -1)
	b.Output(b.op(op.MatMul, op.Attr{TransA: true}, x, x), -1) // another product
	b.Output(b.sum(x, f16, 0), -1)
	b.Output(b.sum(x, f32, 0), -1)
	// Sums of float64 accumulate in float64: float32 would round twice.
	b.Output(b.sum(y, f16, 0), -1)
	b.Output(b.sum(y, f32, 0), -1)
	wantText(t, optimize(t, b, "precisions", Options{Skip: only("precisions")}), ""+
		"%0 = Param() float16[2 2]\n"+
		"%1 = Param() float64[2] index=1\n"+
		"%3 = MatMul(%0 %0) float32[2 2]\n"+
		"%2 = Cast(%3) float16[2 2]\n"+
		"%4 = MatMul(%0 %0) float16[2 2] transA\n"+
		"%6 = Sum(%0) float32[2] axes=[0]\n"+
		"%5 = Cast(%6) float16[2]\n"+
		"%7 = Sum(%1) float16[] axes=[0]\n"+
		"%8 = Sum(%1) float32[] axes=[0]\n"+
		"out 0 = %2\nout 1 = %3\nout 2 = %4\nout 3 = %5\nout 4 = %6\nout 5 = %7\nout 6 = %8\n")
}

func TestDead(t *testing.T) {
	b := build()
	x := b.param(f32, 2)
	unused := b.param(f32, 2)
	b.do(op.Exp, b.do(op.Add, x, unused))
	b.Output(b.do(op.Neg, x), 1) // the input is not read, so it may be nil
	wantText(t, optimize(t, b, "", Options{}), ""+
		"%0 = Param() float32[2]  @in 0\n"+
		"%1 = Neg(%0) float32[2]  @out 0\n"+
		"out 0 = %1\n")
	if b.Params[0] == nil || b.Params[1] != nil || b.Donated[0] != -1 {
		t.Errorf("got params %v, donated %v; want the second param gone and nothing donated", b.Params, b.Donated)
	}
}

func TestFuse(t *testing.T) {
	b := build()
	x := b.param(f16, 4, 3)
	bias := b.param(f16, 3)
	lr := b.param(f16)
	b.path = "dense"
	sum := b.do(op.Add, x, b.broadcast(bias, 4, 3))
	twice := b.do(op.Square, sum)
	b.path = "relu"
	b.Output(b.do(op.Relu, b.do(op.Mul, twice, b.do(op.Sub, twice, b.do(op.Neg, b.do(op.Exp, lr))))), -1)
	b.path = ""
	// Two halves with a sum between them, which also reads the first half.
	h := b.cast(x, f32)
	total := b.sum(h, dtype.Invalid, 0, 1)
	b.Output(b.do(op.Div, b.do(op.Abs, h), total), -1)
	// Nothing but broadcasts gives the shape: one of them stays.
	b.Output(b.do(op.Mul, b.broadcast(bias, 4, 3), b.broadcast(lr, 4, 3)), -1)
	wantText(t, optimize(t, b, "fuse", Options{Skip: only("fuse")}), ""+
		"%0 = Param() float16[4 3]\n"+
		"%1 = Param() float16[3] index=1\n"+
		"%2 = Param() float16[] index=2\n"+
		"%7 = Fused(%2) float16[] {Exp(%0):float16; Neg(%1):float16}  # relu\n"+
		"%10 = Fused(%7 %0 %1) float16[4 3] {Add(%1 %2):float16; Square(%3):float16; Sub(%4 %0):float16; Mul(%4 %5):float16; Relu(%6):float16}  # relu\n"+
		"%11 = Cast(%0) float32[4 3]\n"+
		"%12 = Sum(%11) float32[] axes=[0 1]\n"+
		"%14 = Fused(%12 %11) float32[4 3] {Abs(%1):float32; Div(%2 %0):float32}\n"+
		"%16 = BroadcastTo(%2) float16[4 3]\n"+
		"%17 = Mul(%1 %16) float16[4 3]\n"+
		"out 0 = %10\nout 1 = %14\nout 2 = %17\n")
}

func TestFuseLimits(t *testing.T) {
	b := build()
	sum := b.param(f32, 2)
	for range 30 {
		sum = b.do(op.Add, sum, b.param(f32, 2))
	}
	for range 100 {
		sum = b.do(op.Neg, sum)
	}
	b.Output(sum, -1)
	optimize(t, b, "", Options{Skip: []string{"multioutput"}})
	n, code := 0, 0
	for _, v := range b.Values {
		if v.Op == op.Fused {
			n++
			code += len(v.Attr.Body.Code)
			if len(v.Args) > maxFusedInputs || len(v.Attr.Body.Code) > maxFusedCode {
				t.Errorf("a fused value has %d inputs and %d instructions, want at most %d and %d", len(v.Args), len(v.Attr.Body.Code), maxFusedInputs, maxFusedCode)
			}
		}
	}
	// 130 operations of at most 48 each, in which the 31 operands take three
	// groups by themselves.
	if code != 130 || n > 5 {
		t.Errorf("got %d operations in %d fused values, want 130 in at most 5", code, n)
	}
}

func TestWatchKeepsValues(t *testing.T) {
	b := trainingStep(4, 3, 5, 2)
	optimize(t, b, "", Options{Watch: true})
	for i, v := range b.Values {
		if v.Op == op.Fused {
			t.Errorf("%v is fused", v)
		}
		for _, u := range b.Values[:i] {
			if v.Slot.Place == Arena && overlap(u, v) && !v.View() {
				t.Errorf("%v and %v share memory", u, v)
			}
		}
	}
	if slices.Max(b.Donated) >= 0 || b.Commit != len(b.Values) {
		t.Errorf("got donations %v, commit phase at %d of %d; want none", b.Donated, b.Commit, len(b.Values))
	}
}

func TestSkipErrors(t *testing.T) {
	for _, name := range []string{"slots", "inline"} {
		err := Optimize(New(0), Options{Skip: []string{name}})
		if err == nil || !strings.Contains(err.Error(), `cannot skip pass "`+name+`"; optional passes are ["simplify" "cse"`) {
			t.Errorf("skip %s: got %v, want an error that lists the passes", name, err)
		}
	}
}

func TestPanicNamesPass(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.HasPrefix(r.(string), "ir: pass broken: ") {
			t.Errorf("got panic %v, want one that names the pass", r)
		}
	}()
	pass{name: "broken", run: func(*Graph) { panic("oops") }}.guarded(New(0))
}

func TestTrace(t *testing.T) {
	b := build()
	b.Output(b.do(op.Neg, b.param(f32)), -1)
	var got []string
	if err := Optimize(b.Graph, Options{Skip: []string{"cse"}, Trace: func(p string, _ *Graph) { got = append(got, p) }}); err != nil {
		t.Fatal(err)
	}
	want := []string{"", "simplify", "precisions", "dce", "split", "reshapes", "fuse", "epilogue", "requantize", "donate", "schedule", "multioutput", "horizontal", "separable", "slots", "share"}
	if !slices.Equal(got, want) {
		t.Errorf("got passes %q, want %q", got, want)
	}
}

// A graph that breaks a rule is caught, and the error says where.
func TestCheckErrors(t *testing.T) {
	fresh := func() *builder {
		b := build()
		x := b.param(f32, 2)
		b.path = "layer"
		b.Output(b.do(op.Exp, b.do(op.Neg, x)), 0)
		return b
	}
	for _, c := range []struct {
		name, want string
		spoil      func(b *builder)
	}{
		{"order", "argument %1 Neg (layer) does not come before it", func(b *builder) { b.Values[1], b.Values[2] = b.Values[2], b.Values[1] }},
		{"type", "%1 Neg (layer): got type float16[2], want float32[2]", func(b *builder) { b.Values[1].Type.DType = f16 }},
		{"unknown axis", "want every axis known", func(b *builder) { b.Values[1].Type.Shape = op.Shape{op.Unknown} }},
		{"param", "is not among the graph's 0 params", func(b *builder) { b.Params = nil }},
		{"output", "output 0 is %0 Param; want an Identity", func(b *builder) { b.Outputs[0] = b.Values[0] }},
		{"twice", "is an output before; want an Identity", func(b *builder) { b.Output(b.Outputs[0], -1) }},
		{"lost", "is not in the graph", func(b *builder) { b.Values = b.Values[:2] }},
		{"wish", "output 0 wishes for input 7 of 1", func(b *builder) { b.Donate[0] = 7 }},
		{"body", "instruction 0: got type int32, want float32", func(b *builder) {
			b.Values[2].Op = op.Fused
			b.Values[2].Attr.Body = &op.Body{Inputs: []dtype.DType{f32}, Code: []op.Instr{
				{Op: op.Neg, DType: dtype.Int32}, {Op: op.Cast, DType: f32, Args: [3]int32{1}},
			}}
		}},
	} {
		b := fresh()
		c.spoil(b)
		for i, v := range b.Values {
			v.ID = i
		}
		if c.name == "order" {
			b.Values[1].ID, b.Values[2].ID = 2, 1
		}
		b.Donated = slices.Repeat([]int{-1}, len(b.Outputs))
		err := b.check()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
	b := fresh()
	b.Values[1].Type.DType = f16
	if err := Optimize(b.Graph, Options{Check: true}); err == nil || !strings.HasPrefix(err.Error(), "ir: before the first pass: ") {
		t.Errorf("got %v, want an error before the first pass", err)
	}
}

func TestEpilogue(t *testing.T) {
	b := build()
	x, bias := b.param(f32, 2, 3), b.param(f32, 3)
	w := b.param(f32, 3, 3)
	// Bias and activation follow the first product; the second has two
	// readers, the third becomes an output that overwrites an input, the
	// fourth is repeated by its reader.
	first := b.do(op.Relu, b.do(op.Add, bias, b.do(op.MatMul, x, w)))
	second := b.do(op.MatMul, first, w)
	b.Output(b.do(op.Neg, second), -1)
	b.Output(b.do(op.Sum, second), -1)
	b.Output(b.do(op.Sub, w, b.do(op.MatMul, w, w)), 2) // input 2 is w
	small := b.do(op.MatMul, b.param(f32, 1, 3), w)
	b.Output(b.do(op.Mul, small, x), -1)
	if err := Optimize(b.Graph, Options{Check: true}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, v := range b.Values {
		if v.Op == op.MatMul {
			got[v.Attr.String()]++
		}
	}
	want := map[string]int{"": 3, "{Add(%1 %0):float32; Relu(%2):float32}": 1}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v in\n%v", got, want, b.Graph)
	}
}
