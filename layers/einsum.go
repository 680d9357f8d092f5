package layers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// einsum multiplies x and y, whose axes are called by the letters of xs and
// ys, and sums over the letters that out does not have: "abc", "cd" and "abd"
// are a matrix product over the last axis. Every letter of out is in xs or ys,
// and no letter is in a string twice.
//
// Letters of all three are batch axes of one matrix product. Transpositions
// that leave the last axis in its place are left to the product.
func einsum(x, y *tensor.Tensor, xs, ys, out string) *tensor.Tensor {
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
	matrices := func(t *tensor.Tensor, letters, a, b string) *tensor.Tensor {
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

// sumAway sums t over its letters that are not needed.
func sumAway(t *tensor.Tensor, letters, needed string) (*tensor.Tensor, string) {
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
func arrange(t *tensor.Tensor, from, to string) *tensor.Tensor {
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

// equation is a parsed einsum equation "x,y->out" of an input of known rank,
// with letters in place of "...".
type equation struct{ x, y, out string }

// parseEquation reads an equation for an input with rank axes. lead and trail
// are the numbers of axes that "..." stands for at the front and the end.
func parseEquation(text string, rank int) (e equation, lead, trail int, err error) {
	want := fmt.Errorf(`Equation is %q, want "x,y->z" with a letter for each axis, and "..." at the front of x and z, at the end of both, or nowhere`, text)
	operands, out, ok := strings.Cut(strings.ReplaceAll(text, " ", ""), "->")
	x, y, two := strings.Cut(operands, ",")
	if !ok || !two {
		return e, 0, 0, want
	}
	front, back := strings.HasPrefix(x, "..."), strings.HasSuffix(x, "...")
	if front && back || front != strings.HasPrefix(out, "...") || back != strings.HasSuffix(out, "...") {
		return e, 0, 0, want
	}
	x, out = strings.Trim(x, "."), strings.Trim(out, ".")
	for _, s := range []string{x, y, out} {
		for i, c := range s {
			letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
			if !letter || strings.IndexRune(s, c) != i {
				return e, 0, 0, want
			}
		}
		if s == "" {
			return e, 0, 0, want
		}
	}
	more := rank - len(x)
	if more < 0 || more > 0 && !front && !back {
		return e, 0, 0, fmt.Errorf("Equation is %q, want one for an input of %d axes", text, rank)
	}
	dots := ""
	for c := '0'; len(dots) < more; c++ { // no letter, so that none clashes
		dots += string(c)
	}
	if front {
		return equation{dots + x, y, dots + out}, more, 0, nil
	}
	return equation{x + dots, y, out + dots}, 0, more, nil
}

// fits checks that every letter has a size: those of the kernel from the
// input or the output.
func (e equation) fits(text string) error {
	for _, c := range e.y {
		if !strings.ContainsRune(e.x+e.out, c) {
			return fmt.Errorf("Equation is %q, want %q of the second operand in the first or in the result", text, c)
		}
	}
	for _, c := range e.out {
		if !strings.ContainsRune(e.x+e.y, c) {
			return fmt.Errorf("Equation is %q, want %q of the result in an operand", text, c)
		}
	}
	return nil
}

// axesIn lists the positions in letters of those that are, or are not, in set.
func axesIn(letters, set string, in bool) []int {
	var out []int
	for i, c := range letters {
		if strings.ContainsRune(set, c) == in {
			out = append(out, i)
		}
	}
	return slices.Clip(out)
}
