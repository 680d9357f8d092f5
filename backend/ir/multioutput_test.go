package ir

import (
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// momentum records v' = v·c+g and w' = w-v'·rate, both in place, and an average
// of the new weight.
func momentum(b *builder) {
	w, v, avg, g, c, rate := b.param(f32, 4, 3), b.param(f32, 4, 3), b.param(f32, 4, 3), b.param(f32, 4, 3), b.param(f32), b.param(f32)
	b.path = "sgd"
	v2 := b.do(op.Add, b.do(op.Mul, v, c), g)
	w2 := b.do(op.Sub, w, b.do(op.Mul, v2, rate))
	avg2 := b.do(op.Add, avg, b.do(op.Mul, b.do(op.Sub, w2, avg), c))
	b.Output(w2, 0)
	b.Output(v2, 1)
	b.Output(avg2, 2)
}

func TestJoin(t *testing.T) {
	b := build()
	momentum(b)
	wantText(t, optimize(t, b, "", Options{}), ""+
		"%0 = Param() float32[4 3]  @in 0\n"+
		"%1 = Param() float32[4 3] index=1  @in 1\n"+
		"%2 = Param() float32[4 3] index=2  @in 2\n"+
		"%3 = Param() float32[4 3] index=3  @in 3\n"+
		"%4 = Param() float32[] index=4  @in 4\n"+
		"%5 = Param() float32[] index=5  @in 5\n"+
		"%6 = Fused(%3 %1 %4 %0 %5 %2) float32[4 3] {Mul(%1 %2):float32; Add(%6 %0):float32; Mul(%7 %4):float32; Sub(%3 %8):float32; Sub(%9 %5):float32; Mul(%10 %2):float32; Add(%5 %11):float32; also %7 %9}  # sgd  @in 2\n"+
		"%7 = ExtraOutput(%6) float32[4 3]  # sgd  @in 1\n"+
		"%8 = ExtraOutput(%6) float32[4 3] index=1  # sgd  @in 0\n"+
		"out 0 = %8 over input 0\nout 1 = %7 over input 1\nout 2 = %6 over input 2\n")
	if b.Commit != 6 {
		t.Errorf("the commit phase begins at %d, want 6", b.Commit)
	}
}

// TestJoinKeepsApart: what reads another shape, what a product lies between,
// what has nothing in common.
func TestJoinKeepsApart(t *testing.T) {
	for name, record := range map[string]func(b *builder){
		"shapes": func(b *builder) {
			x := b.param(f32, 4)
			b.Output(b.do(op.Exp, x), -1)
			b.Output(b.do(op.Exp, b.broadcast(x, 3, 4)), -1)
		},
		"product": func(b *builder) {
			x := b.param(f32, 4, 4)
			y := b.do(op.Exp, x)
			b.Output(y, -1)
			b.Output(b.do(op.Add, b.do(op.Tanh, b.do(op.MatMul, y, x)), x), -1)
		},
		"nothing in common": func(b *builder) {
			b.Output(b.do(op.Exp, b.param(f32, 4)), -1)
			b.Output(b.do(op.Exp, b.param(f32, 4)), -1)
		},
		// The first reads what the one between overwrites.
		"overwritten": func(b *builder) {
			x, y, z := b.param(f32, 4), b.param(f32, 4), b.param(f32, 2, 2)
			b.Output(b.do(op.Add, x, y), -1)
			b.Output(b.do(op.Neg, z), 0)
			b.Output(b.do(op.Exp, y), 1)
		},
	} {
		b := build()
		record(b)
		if text := optimize(t, b, "", Options{Skip: []string{"epilogue"}}); strings.Contains(text, "also") {
			t.Errorf("%s: values were joined:\n%s", name, text)
		}
	}
}

// TestJoinThroughOthers: what has to do with the last value only through values
// before it, whichever of them comes first.
func TestJoinThroughOthers(t *testing.T) {
	for name, record := range map[string]func(b *builder, x, y, z *Value){
		// Mul shares memory only with Add, which comes before it.
		"shared memory": func(b *builder, x, y, z *Value) {
			b.Output(b.do(op.Add, x, y), -1)
			b.Output(b.do(op.Mul, y, z), -1)
			b.Output(b.do(op.Exp, x), -1)
		},
		// Mul reads only Add, which may wait for Exp only if Mul does.
		"read by another": func(b *builder, x, y, z *Value) {
			v := b.do(op.Add, x, y)
			b.Output(v, -1)
			b.Output(b.do(op.Mul, v, z), -1)
			b.Output(b.do(op.Exp, x), -1)
		},
	} {
		b := build()
		record(b, b.param(f32, 4), b.param(f32, 4), b.param(f32, 4))
		optimize(t, b, "", Options{})
		if v := b.Values[3]; len(b.Values) != 6 || v.Op != op.Fused || len(v.Attr.Body.ExtraOutputs) != 2 {
			t.Errorf("%s: the values were not joined to one:\n%v", name, b.Graph)
		}
	}
}

func TestJoinLimits(t *testing.T) {
	b := build()
	x := b.param(f32, 2)
	y := x
	for range 2 * maxMultiInputs {
		y = b.do(op.Add, b.do(op.Mul, y, b.param(f32, 2)), x)
		b.Output(y, -1)
	}
	optimize(t, b, "", Options{})
	joined := 0
	for _, v := range b.Values {
		if v.Op == op.Fused {
			joined++
			if len(v.Args) > maxMultiInputs || len(v.Attr.Body.Code) > maxMultiCode {
				t.Errorf("a joined value has %d inputs and %d instructions, want at most %d and %d", len(v.Args), len(v.Attr.Body.Code), maxMultiInputs, maxMultiCode)
			}
		}
	}
	if joined < 2 || joined > 6 {
		t.Errorf("got %d joined values, want a few", joined)
	}
}

// TestVerifyExtraOutputs spoils a plan with Extras.
func TestVerifyExtraOutputs(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(b *builder)
	}{
		{"order", "is not where extra output 1", func(b *builder) { b.Values[7], b.Values[8] = b.Values[8], b.Values[7] }},
		{"missing", "extra output 1 does not follow it", func(b *builder) { b.Values = slices.Delete(b.Values, 8, 9); b.Outputs[0] = b.Values[6] }},
		{"type", "extra output 0 is", func(b *builder) { b.Values[7].Type.DType, b.Values[7].Attr.DType = f16, f16 }},
		{"result", "extra output 0 is %12", func(b *builder) { b.Values[6].Attr.Body.ExtraOutputs[0] = 12 }},
		{"place", "which begins at 7", func(b *builder) { b.Commit = 7 }},
		{"over each other", "lies at in 0, want in 1", func(b *builder) { b.Values[7].Slot = b.Values[8].Slot }},
	} {
		b := build()
		momentum(b)
		if err := Optimize(b.Graph, Options{Check: true}); err != nil {
			t.Fatal(err)
		}
		c.spoil(b)
		if err := b.Verify(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q\n%v", c.name, err, c.want, b.Graph)
		}
	}
}
