package ir

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestMoveReshapes: a bias, an activation and a residual sum behind a product that is reshaped
// become its epilogue.
func TestMoveReshapes(t *testing.T) {
	b := build()
	x := b.param(f32, 2, 3, 4)
	product := func(columns int) *Value {
		return b.do(op.MatMul, b.reshape(x, 6, 4), b.param(f32, 4, columns))
	}
	// The bias has two axes, which the product does not have.
	heads := b.do(op.Add, b.reshape(product(10), 2, 3, 2, 5), b.param(f32, 2, 5))
	b.Output(b.op(op.Sum, op.Attr{Axes: []int{2}}, heads), -1)

	hidden := b.reshape(b.do(op.Add, product(4), b.param(f32, 4)), 2, 3, 4)
	hidden = b.do(op.Mul, hidden, b.do(op.NormalCDF, hidden))
	sum := b.do(op.Add, x, b.broadcast(b.param(f32, 3, 1), 2, 3, 4)) // what is fused with it is of no matrix
	b.Output(b.op(op.Max, op.Attr{Axes: []int{1}}, b.do(op.Add, sum, hidden)), -1)

	wantText(t, optimize(t, b, "epilogue", Options{Skip: only("reshapes", "fuse", "epilogue"), Check: true}), ""+
		"%0 = Param() float32[2 3 4]\n"+
		"%1 = Reshape(%0) float32[6 4]\n"+
		"%2 = Param() float32[4 10] index=1\n"+
		"%5 = Param() float32[2 5] index=2\n"+
		"%21 = Reshape(%5) float32[10]\n"+
		"%6 = MatMul(%1 %2 %21) float32[6 10] {Add(%0 %1):float32}\n"+
		"%22 = Reshape(%6) float32[2 3 2 5]\n"+
		"%7 = Sum(%22) float32[2 3 5] axes=[2]\n"+
		"%8 = Reshape(%0) float32[6 4]\n"+
		"%9 = Param() float32[4 4] index=3\n"+
		"%11 = Param() float32[4] index=4\n"+
		"%15 = MatMul(%8 %9 %11) float32[6 4] {Add(%0 %1):float32; NormalCDF(%2):float32; Mul(%2 %3):float32}\n"+
		"%16 = Param() float32[3 1] index=5\n"+
		"%24 = Reshape(%15) float32[2 3 4]\n"+
		"%19 = Fused(%24 %0 %16) float32[2 3 4] {Add(%1 %2):float32; Add(%3 %0):float32}\n"+
		"%20 = Max(%19) float32[2 4] axes=[1]\n"+
		"out 0 = %7\nout 1 = %20\n")
}

// TestMoveResidual: all of a residual sum is the epilogue of a product, through two Reshapes.
func TestMoveResidual(t *testing.T) {
	b := build()
	x := b.do(op.Exp, b.param(f32, 2, 3, 4))
	y := b.do(op.Add, b.reshape(b.do(op.MatMul, b.reshape(x, 6, 4), b.param(f32, 4, 4)), 2, 3, 2, 2), b.param(f32, 2, 2))
	sum := b.do(op.Add, x, b.reshape(y, 2, 3, 4))
	b.Output(b.op(op.Max, op.Attr{Axes: []int{1}}, sum), -1)
	wantText(t, optimize(t, b, "epilogue", Options{Skip: only("reshapes", "fuse", "epilogue"), Check: true}), ""+
		"%0 = Param() float32[2 3 4]\n"+
		"%1 = Exp(%0) float32[2 3 4]\n"+
		"%2 = Reshape(%1) float32[6 4]\n"+
		"%3 = Param() float32[4 4] index=1\n"+
		"%6 = Param() float32[2 2] index=2\n"+
		"%13 = Reshape(%1) float32[6 4]\n"+
		"%11 = Reshape(%6) float32[4]\n"+
		"%9 = MatMul(%2 %3 %13 %11) float32[6 4] {Add(%0 %2):float32; Add(%1 %3):float32}\n"+
		"%14 = Reshape(%9) float32[2 3 4]\n"+
		"%10 = Max(%14) float32[2 4] axes=[1]\n"+
		"out 0 = %10\n")
}

// TestMoveReshapesOnce: the sum of products of two shapes is computed in that of one of them.
func TestMoveReshapesOnce(t *testing.T) {
	b := build()
	x := b.reshape(b.do(op.MatMul, b.param(f32, 6, 4), b.param(f32, 4, 4)), 2, 3, 4)
	y := b.reshape(b.do(op.MatMul, b.param(f32, 3, 4), b.param(f32, 4, 8)), 2, 3, 4)
	b.Output(b.op(op.Max, op.Attr{Axes: []int{1}}, b.do(op.Add, x, y)), -1)
	if text := optimize(t, b, "epilogue", Options{Skip: only("reshapes", "epilogue"), Check: true}); strings.Count(text, "{Add(%0 %1):float32}") != 1 {
		t.Errorf("got\n%s\nwant one product with an epilogue", text)
	}
}

// TestMoveReshapesNot: a product keeps its Reshape where that is read by more than element-wise
// operations of its shape, is an output, or cannot be computed in the product's shape.
func TestMoveReshapesNot(t *testing.T) {
	for name, record := range map[string]func(b *builder, y *Value){
		"an output": func(b *builder, y *Value) { b.Output(y, -1); b.Output(b.do(op.Exp, y), -1) },
		"a reduction": func(b *builder, y *Value) {
			b.Output(b.do(op.Add, y, b.op(op.Max, op.Attr{Axes: []int{2}, KeepDims: true}, y)), -1)
		},
		"broadcast":    func(b *builder, y *Value) { b.Output(b.do(op.Add, b.param(f32, 2, 2, 3, 4), y), -1) },
		"steps":        func(b *builder, y *Value) { b.Output(b.do(op.Neg, b.do(op.Add, y, b.param(f32, 3, 1))), -1) },
		"its result":   func(b *builder, y *Value) { b.Output(b.do(op.Exp, y), -1) },
		"no arguments": func(b *builder, y *Value) { b.Output(b.op(op.Max, op.Attr{Axes: []int{1}}, y), -1) },
		"16 bits": func(b *builder, _ *Value) {
			y := b.reshape(b.do(op.MatMul, b.param(bf16, 6, 5), b.param(bf16, 5, 4)), 2, 3, 4)
			b.Output(b.op(op.Max, op.Attr{Axes: []int{1}}, b.do(op.Exp, y)), -1)
		},
	} {
		b := build()
		y := b.reshape(b.do(op.MatMul, b.param(f32, 6, 5), b.param(f32, 5, 4)), 2, 3, 4)
		record(b, y)
		want := b.String()
		if got := optimize(t, b, "reshapes", Options{Skip: only("reshapes"), Check: true}); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
		}
	}
}
