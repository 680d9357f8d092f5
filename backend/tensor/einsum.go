package tensor

import (
	"strings"
)

// Einsum multiplies x and y, whose axes the equation calls by letters, and sums
// over the letters that the result does not have (Keras: ops.einsum of two
// operands): "abc,cd->abd" is a matrix product over the last axis. Every letter
// of the result is in an operand, and none is in one place twice.
//
// Letters of all three are batch axes of one matrix product, whose sums are
// wide. Transpositions that leave the last axis in its place are left to it.
func Einsum(equation string, x, y *Tensor) *Tensor {
	operands, out, arrow := strings.Cut(equation, "->")
	xs, ys, two := strings.Cut(operands, ",")
	if !arrow || !two || twice(xs) || twice(ys) || twice(out) || strings.ContainsFunc(out, func(c rune) bool { return !strings.ContainsRune(operands, c) }) {
		Fail("Einsum", `the equation is %q, want "x,y->z" with a letter for each axis, those of z from x and y`, equation)
	}
	known := map[rune]int{}
	for i, t := range []*Tensor{x, y} {
		letters := []rune([]string{xs, ys}[i])
		if t.Rank() != len(letters) {
			Fail("Einsum", "operand %d is %v, want %d axes as in %q", i, t.Type(), len(letters), equation)
		}
		for axis, c := range letters {
			if n, ok := known[c]; ok && n != t.Dim(axis) {
				Fail("Einsum", "operand %d is %v, want %d for axis %q as operand 0 has", i, t.Type(), n, c)
			}
			known[c] = t.Dim(axis)
		}
	}
	x, xs = sumAway(x, xs, ys+out)
	y, ys = sumAway(y, ys, xs+out)
	size := map[rune]int{}
	for i, c := range xs {
		size[c] = x.Dim(i)
	}
	for i, c := range ys {
		size[c] = y.Dim(i)
	}
	var batch, inner, rows, cols string
	for _, c := range xs {
		switch {
		case !strings.ContainsRune(ys, c):
			rows += string(c)
		case strings.ContainsRune(out, c):
			batch += string(c)
		default:
			inner += string(c)
		}
	}
	for _, c := range ys {
		if !strings.ContainsRune(xs, c) {
			cols += string(c)
		}
	}
	matrices := func(t *Tensor, letters, a, b string) *Tensor {
		t = arrange(t, letters, batch+a+b)
		shape := sizes(batch, size)
		return t.Reshape(append(shape, sizes(a, size).Size(), sizes(b, size).Size())...)
	}
	transX := endsWith(xs, rows)
	if transX {
		x = matrices(x, xs, inner, rows)
	} else {
		x = matrices(x, xs, rows, inner)
	}
	transY := endsWith(ys, inner)
	if transY {
		y = matrices(y, ys, cols, inner)
	} else {
		y = matrices(y, ys, inner, cols)
	}
	z := x.MatMulT(y, transX, transY)
	letters := batch + rows + cols
	return arrange(z.Reshape(sizes(letters, size)...), letters, out)
}

// twice reports whether a letter is there twice.
func twice(letters string) bool {
	for i, c := range letters {
		if strings.IndexRune(letters, c) != i {
			return true
		}
	}
	return false
}

// sumAway sums t over its letters that are not needed.
func sumAway(t *Tensor, letters, needed string) (*Tensor, string) {
	var axes []int
	left := ""
	for i, c := range letters {
		if strings.ContainsRune(needed, c) {
			left += string(c)
		} else {
			axes = append(axes, i)
		}
	}
	if axes != nil {
		t = t.Sum(axes...)
	}
	return t, left
}

// arrange puts the axes of t, called from, in the order to.
func arrange(t *Tensor, from, to string) *Tensor {
	if from == to {
		return t
	}
	perm := make([]int, 0, len(to))
	for _, c := range to {
		perm = append(perm, strings.IndexRune(from, c))
	}
	return t.Transpose(perm...)
}

func sizes(letters string, size map[rune]int) Shape {
	s := make(Shape, 0, len(letters))
	for _, c := range letters {
		s = append(s, size[c])
	}
	return s
}

// endsWith reports whether the last letter is one of group.
func endsWith(letters, group string) bool {
	return letters != "" && strings.IndexByte(group, letters[len(letters)-1]) >= 0
}
