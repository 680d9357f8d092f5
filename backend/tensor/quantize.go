package tensor

import (
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// QuantizedEinsum is Einsum of x, float32 or bfloat16, and an int8 kernel that stands for
// kernel/scale (Keras: the int8 form of EinsumDense). Scale has x's type and the axes of the
// result, of size 1 where the kernel has none. X is quantized to int8 over the letters that
// the result does not have; sums are int32. There is no gradient.
//
// It is a QuantizedMatMul unless a letter is in x, the kernel and the result, or in x
// alone. These equations are multiplied in float64, which holds the sums exactly and is
// slow.
func QuantizedEinsum(equation string, x, kernel, scale *Tensor) *Tensor {
	operands, out, _ := strings.Cut(equation, "->")
	xs, ys, two := strings.Cut(operands, ",")
	if !two || len(xs) != x.Rank() || len(ys) != kernel.Rank() || len(out) != scale.Rank() {
		Fail("QuantizedEinsum", "the equation is %q, want one for %v, %v and scales %v of the result", equation, x.Type(), kernel.Type(), scale.Type())
	}
	var rows, inner, cols string
	plain := true
	size := map[rune]int{}
	for i, c := range xs {
		size[c] = x.Dim(i)
		inKernel, inResult := strings.ContainsRune(ys, c), strings.ContainsRune(out, c)
		if inResult {
			rows += string(c)
		}
		plain = plain && inKernel != inResult
	}
	for i, c := range ys {
		size[c] = kernel.Dim(i)
		if strings.ContainsRune(xs, c) {
			inner += string(c)
		} else {
			cols += string(c)
			plain = plain && strings.ContainsRune(out, c)
		}
	}
	if !plain {
		return exactEinsum(equation, x, kernel, scale, xs, out)
	}
	x = arrange(x, xs, rows+inner).Reshape(sizes(rows, size).Size(), sizes(inner, size).Size())
	kernel = arrange(kernel, ys, inner+cols).Reshape(sizes(inner, size).Size(), sizes(cols, size).Size())
	// The scales lie along the result; those of its axes that are rows have size 1.
	ofCols := ""
	for _, c := range out {
		if strings.ContainsRune(cols, c) {
			ofCols += string(c)
		}
	}
	scale = arrange(scale.Reshape(sizes(ofCols, size)...), ofCols, cols).Reshape(sizes(cols, size).Size())
	y := x.QuantizedMatMul(kernel, scale)
	return arrange(y.Reshape(sizes(rows+cols, size)...), rows+cols, out)
}

// exactEinsum is QuantizedEinsum for every equation.
func exactEinsum(equation string, x, kernel, scale *Tensor, xs, out string) *Tensor {
	var reduced []int
	kept := ""
	for i, c := range xs {
		if strings.ContainsRune(out, c) {
			kept += string(c)
		} else {
			reduced = append(reduced, i)
		}
	}
	q, s := op.ExpandQuantize(recorder{}, x, reduced...)
	sums := Einsum(equation, q.(*Tensor).Cast(dtype.Float64), kernel.Cast(dtype.Float64))
	// The scales of x are put along the result.
	shape := make(Shape, 0, len(out))
	order := ""
	for _, c := range out {
		n := 1
		if i := strings.IndexRune(xs, c); i >= 0 {
			n = x.Dim(i)
			order += string(c)
		}
		shape = append(shape, n)
	}
	ofX := s.(*Tensor)
	for _, a := range slices.Backward(reduced) {
		ofX = ofX.Squeeze(a)
	}
	ofX = arrange(ofX, kept, order).Reshape(shape...)
	y := op.ExpandQuantizedSum(recorder{}, sums, x.DType()).(*Tensor)
	return y.Div(ofX.Mul(scale))
}
