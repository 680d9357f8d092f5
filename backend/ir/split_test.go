package ir

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// normalized is a graph with the gradient of a normalization and its parts: by
// the rows, in 16 bits, by gain, and by shift.
func normalized() (b *builder, whole *Value, parts []*Value) {
	b = build()
	x, gain := b.param(bf16, 8, 16), b.param(f32, 16)
	whole = b.op(op.LayerNormGrad, op.Attr{Epsilon: 1e-3}, b.do(op.Neg, x), gain, x)
	for _, s := range whole.Op.Info().Results(whole.Attr, []op.Type{x.Type, gain.Type, x.Type}) {
		parts = append(parts, b.op(op.Result, op.Attr{Start: []int{s.Start}, Dims: s.Shape}, whole))
	}
	parts[0] = b.cast(parts[0], bf16)
	return b, whole, parts
}

func TestSplit(t *testing.T) {
	b, _, parts := normalized()
	b.Output(b.reshape(parts[0], 4, 2, 16), -1)
	b.Output(b.do(op.Sub, b.Params[1], b.do(op.Add, parts[1], parts[2])), 1)
	// What the parts lie in is written while Neg is read.
	wantText(t, optimize(t, b, "", Options{Check: true}), ""+
		"%0 = Param() bfloat16[8 16]  @in 0\n"+
		"%1 = Param() float32[16] index=1  @in 1\n"+
		"%2 = Neg(%0) bfloat16[8 16]  @arena+0\n"+
		"%3 = LayerNormGrad(%2 %1 %0) float32[160] epsilon=0.001  @split\n"+
		"%4 = Result(%3) float32[16] start=[128]  @arena+256\n"+
		"%5 = Result(%3) float32[16] start=[144]  @arena+320\n"+
		"%6 = Result(%3) bfloat16[8 16] start=[0]  @out 0\n"+
		"%7 = Reshape(%6) bfloat16[4 2 16]  @out 0\n"+
		"%8 = Fused(%1 %4 %5) float32[16] {Add(%1 %2):float32; Sub(%0 %3):float32}  @in 1\n"+
		"out 0 = %7\nout 1 = %8 over input 1\n")
	if want := (Memory{Arena: 384, Inputs: 256 + 64, Outputs: 256}); b.Memory() != want || b.Peak() != 384 {
		t.Errorf("memory is %+v, want %+v", b.Memory(), want)
	}
}

// What reads a result as a whole, or other sections of it, leaves it whole.
func TestNotApart(t *testing.T) {
	for name, spoil := range map[string]func(b *builder, whole *Value){
		"output":         func(b *builder, whole *Value) { b.Output(whole, -1) },
		"another reader": func(b *builder, whole *Value) { b.Output(b.do(op.Neg, whole), -1) },
		"another section": func(b *builder, whole *Value) {
			b.Output(b.op(op.Result, op.Attr{Start: []int{0}, Dims: op.Shape{16}}, whole), -1)
		},
		"another shape": func(b *builder, whole *Value) {
			b.Output(b.op(op.Result, op.Attr{Start: []int{128}, Dims: op.Shape{4, 4}}, whole), -1)
		},
	} {
		b, whole, parts := normalized()
		b.Output(parts[0], -1)
		spoil(b, whole)
		if text := optimize(t, b, "", Options{Check: true}); strings.Contains(text, "@split") || !strings.Contains(text, "Cast") {
			t.Errorf("%s: want the result in one piece and its part cast, got\n%s", name, text)
		}
	}
}

// A plan in which a part lies where the kernel still reads, or that reads the
// whole, is no plan.
func TestVerifySplit(t *testing.T) {
	for _, c := range []struct {
		want  string
		spoil func(b *builder)
	}{
		{"%5 Result at arena+0 is written over its argument %2 Neg at arena+0", func(b *builder) { b.Values[5].Slot.Offset = 0 }},
		{"reads %4 Result at arena+320, which was overwritten", func(b *builder) { b.Values[4].Slot = b.Values[5].Slot }},
		{"%3 LayerNormGrad is split and has no memory of its own", func(b *builder) {
			b.Values[5].Op, b.Values[5].Attr = op.Slice, op.Attr{Start: []int{144}, Limit: []int{160}, Stride: []int{1}}
		}},
		{"is rounded, but %3 LayerNormGrad is not split", func(b *builder) { b.Values[3].Split = false }},
	} {
		b, _, parts := normalized()
		b.Output(parts[0], -1)
		b.Output(b.do(op.Sub, b.Params[1], b.do(op.Add, parts[1], parts[2])), 1)
		if err := Optimize(b.Graph, Options{}); err != nil {
			t.Fatal(err)
		}
		// As in TestSplit, without the Reshape.
		at := 0
		for i, v := range b.Values {
			if v.Op == op.LayerNormGrad {
				at = i
			}
		}
		if at != 3 || b.Values[6].Type.DType != bf16 {
			t.Fatalf("got another plan:\n%v", b.Graph)
		}
		c.spoil(b)
		if err := b.Verify(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q\n%v", err, c.want, b.Graph)
		}
	}
}
