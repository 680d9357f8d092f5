package ir

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestFuseThroughReshapes: what is normalized as a matrix and masked as an image
// is one pass; what a contraction makes keeps its shape, and so do outputs.
func TestFuseThroughReshapes(t *testing.T) {
	b := build()
	x, mask := b.param(bf16, 1, 6, 4), b.param(bf16, 1, 2, 3, 4)
	scale := b.param(f32, 1, 1, 4)
	scaled := b.cast(b.do(op.Mul, b.cast(x, f32), scale), bf16)
	b.Output(b.do(op.Maximum, b.reshape(scaled, 1, 2, 3, 4), mask), -1)

	// Of a matrix product the bias is an epilogue.
	left, right, bias := b.param(f32, 6, 5), b.param(f32, 5, 4), b.param(f32, 4)
	dense := b.do(op.Add, b.do(op.MatMul, left, right), bias)
	b.Output(b.do(op.Exp, b.reshape(dense, 2, 3, 4)), -1)

	// A column does not go along with another shape.
	column, rows := b.param(f32, 6, 1), b.param(f32, 6, 4)
	b.Output(b.do(op.Neg, b.reshape(b.do(op.Add, rows, column), 2, 3, 4)), -1)

	kept := b.do(op.Abs, rows)
	b.Output(kept, -1)
	b.Output(b.do(op.Neg, b.reshape(kept, 24)), -1)
	wantText(t, optimize(t, b, "epilogue", Options{Skip: only("fuse", "epilogue")}), ""+
		"%0 = Param() bfloat16[1 6 4]\n"+
		"%1 = Param() bfloat16[1 2 3 4] index=1\n"+
		"%2 = Param() float32[1 1 4] index=2\n"+
		"%23 = Reshape(%0) bfloat16[1 2 3 4]\n"+
		"%7 = Fused(%1 %2 %23) bfloat16[1 2 3 4] {Cast(%2):float32; Mul(%3 %1):float32; Cast(%4):bfloat16; Maximum(%5 %0):bfloat16}\n"+
		"%8 = Param() float32[6 5] index=3\n"+
		"%9 = Param() float32[5 4] index=4\n"+
		"%10 = Param() float32[4] index=5\n"+
		"%12 = MatMul(%8 %9 %10) float32[6 4] {Add(%0 %1):float32}\n"+
		"%13 = Reshape(%12) float32[2 3 4]\n"+
		"%14 = Exp(%13) float32[2 3 4]\n"+
		"%15 = Param() float32[6 1] index=6\n"+
		"%16 = Param() float32[6 4] index=7\n"+
		"%17 = Add(%16 %15) float32[6 4]\n"+
		"%18 = Reshape(%17) float32[2 3 4]\n"+
		"%19 = Neg(%18) float32[2 3 4]\n"+
		"%20 = Abs(%16) float32[6 4]\n"+
		"%21 = Reshape(%20) float32[24]\n"+
		"%22 = Neg(%21) float32[24]\n"+
		"out 0 = %7\nout 1 = %14\nout 2 = %19\nout 3 = %20\nout 4 = %22\n")
}

// TestEpilogueThroughReshapes: the gradient of an activation of images is computed as the
// epilogue of the product before it, though all it reads are images.
func TestEpilogueThroughReshapes(t *testing.T) {
	b := build()
	left, right, x := b.param(f32, 6, 5), b.param(f32, 5, 4), b.param(bf16, 2, 3, 4)
	g := b.reshape(b.do(op.MatMul, left, right), 2, 3, 4)
	wide := b.cast(x, f32) // read twice
	gradient := b.do(op.Add, b.do(op.Mul, g, b.do(op.NormalCDF, wide)), b.do(op.Mul, g, wide))
	b.Output(b.do(op.MatMul, b.reshape(b.cast(gradient, bf16), 6, 4), b.param(bf16, 4, 2)), -1)
	wantText(t, optimize(t, b, "epilogue", Options{Skip: only("fuse", "epilogue")}), ""+
		"%0 = Param() float32[6 5]\n"+
		"%1 = Param() float32[5 4] index=1\n"+
		"%2 = Param() bfloat16[2 3 4] index=2\n"+
		"%14 = Reshape(%2) bfloat16[6 4]\n"+
		"%10 = MatMul(%0 %1 %14) bfloat16[6 4] {Cast(%1):float32; NormalCDF(%2):float32; Mul(%0 %3):float32; Mul(%0 %2):float32; Add(%4 %5):float32; Cast(%6):bfloat16}\n"+
		"%12 = Param() bfloat16[4 2] index=3\n"+
		"%13 = MatMul(%10 %12) bfloat16[6 2]\n"+
		"out 0 = %13\n")
}
